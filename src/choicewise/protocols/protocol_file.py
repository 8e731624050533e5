"""Protocols in TOML files, the catalogue's own and users' files: a file states the axes that differ from its base."""

from collections.abc import Collection, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from choicewise.data.toml_text import read_toml
from choicewise.errors import ProtocolError, did_you_mean
from choicewise.protocols.protocol import Protocol, axis_problems

AXES = {axis.name: str(axis.type) for axis in fields(Protocol)}


def read_file(path: Path) -> dict[str, Any]:
    """The tables of a user's file.  Raises ProtocolError, naming the file, when it can't be read or isn't TOML."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ProtocolError(f"{path} can't be read: {error.strerror}; give the path of a protocol file") from error
    except UnicodeDecodeError as error:
        raise ProtocolError(f"{path} is not UTF-8 text (byte {error.start}); save it as UTF-8") from error
    return parse(text, str(path))


def parse(text: str, where: str, *, allowed: Collection[str] | None = None) -> dict[str, Any]:
    """The tables of a TOML text, whose top has no key but the ``allowed`` ones; None: it may have any."""
    try:
        table = read_toml(text)
    except ValueError as error:
        raise ProtocolError(f"{where} is not valid TOML: {error}") from error
    if allowed is not None and (problems := _unknown(table, allowed)):
        raise ProtocolError.about(problems).within(where)
    return table


def read_user_protocol(table: Mapping[str, Any], path: str, catalogue: Mapping[str, Mapping[str, Any]]) -> Protocol:
    """The protocol of a user's file: ``name``, ``about``, ``base`` and the table ``[protocol]``, each optional.

    Raises ProtocolError, naming the file, with everything that is wrong in it.
    """
    problems = _unknown(table, ("name", "about", "base", "protocol"))
    wrong = [key for key in ("name", "about", "base") if not isinstance(table.get(key, ""), str)]
    problems += [f'{key} is {table[key]!r}; write it in quotes, {key} = "..."' for key in wrong]
    base: Protocol | None = None
    known = "base" in table and "base" not in wrong
    try:
        base = inherit(table["base"], {**catalogue, path: table}, (path,)) if known else None
    except ProtocolError as error:
        problems += [part.removeprefix(f"{path}: ") for part in error.parts]
    if "base" in table and base is None:  # whether the axes go together can't be said
        axes = table.get("protocol", {})
        problems += [*_unknown(axes, AXES), *axis_problems(_values(axes))] if isinstance(axes, Mapping) else []
        raise ProtocolError.about(problems).within(path)
    try:
        protocol = _read_axes(table.get("protocol", {}), base)
    except ProtocolError as error:
        problems += error.parts
    if problems:
        raise ProtocolError.about(problems).within(path)
    return protocol


def inherit(name: str, tables: Mapping[str, Mapping[str, Any]], heirs: tuple[str, ...] = ()) -> Protocol:
    """The protocol of the file ``name``: the axes it states, then those of its ``base``, then the defaults.

    ``tables`` holds every file by name; ``heirs`` are the names that inherit from this one.  Raises ProtocolError,
    naming the files, for an unknown base and for a base that inherits from its own heir.
    """
    if name in heirs:
        raise ProtocolError(f"{' inherits from '.join((*heirs, name))}; a base must not inherit from its heirs")
    if name not in tables:
        raise ProtocolError(f"{heirs[-1]}: base {name!r} is not in the catalogue; {did_you_mean(name, tables)}")
    table = tables[name]
    base = inherit(table["base"], tables, (*heirs, name)) if "base" in table else None
    return read_axes(table.get("protocol", {}), name, base)


def read_axes(axes: object, where: str, base: Protocol | None = None) -> Protocol:
    """The protocol that a table of axes spells; axes that are left out are those of ``base``, else the defaults.

    TOML has no null: an axis that does not apply is ``"-"``, as in a signature, and ``choices = "any"`` takes items
    with any number of choices.  Raises ProtocolError, saying ``where``, with everything that is wrong.
    """
    try:
        return _read_axes(axes, base)
    except ProtocolError as error:
        raise error.within(where) from error


def _read_axes(axes: object, base: Protocol | None) -> Protocol:
    if not isinstance(axes, Mapping):
        raise ProtocolError(f"protocol is {axes!r}; it must be a table, [protocol] on a line of its own")
    values, problems = _values(axes), _unknown(axes, AXES)
    if base is None and "benchmark" not in values:
        problems.append('no benchmark; state benchmark = "..." under [protocol], or a base = "mmlu/original"')
        values["benchmark"] = "unknown"
    try:
        protocol = Protocol(**values) if base is None else replace(base, **values)
    except ProtocolError as error:
        problems += error.parts
    if problems:
        raise ProtocolError.about(problems)
    return protocol


def _values(axes: Mapping[str, object]) -> dict[str, Any]:
    """The known axes of a table, with None for what TOML can't say."""
    values = {
        name: None if value == "-" and "None" in AXES[name] else value for name, value in axes.items() if name in AXES
    }
    return values | ({"choices": None} if values.get("choices") == "any" else {})


def _unknown(table: Mapping[str, object], known: Collection[str]) -> list[str]:
    return [f"unknown key {key!r}; {did_you_mean(key, known)}" for key in table if key not in known]
