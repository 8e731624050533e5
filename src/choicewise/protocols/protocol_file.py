"""Protocols in TOML files, the catalogue's own and users' files: a file states the axes that differ from its base."""

import tomllib
from collections.abc import Collection, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from choicewise.errors import ProtocolError, did_you_mean
from choicewise.protocols.protocol import Protocol

AXES = {axis.name: str(axis.type) for axis in fields(Protocol)}


def read_file(path: Path) -> dict[str, Any]:
    """The tables of a user's file: ``name``, ``about``, ``base`` and the table ``[protocol]``, each optional.

    Raises ProtocolError, naming the file, when it can't be read, isn't TOML or holds another key.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ProtocolError(f"{path} can't be read: {error.strerror}; give the path of a protocol file") from error
    except UnicodeDecodeError as error:
        raise ProtocolError(f"{path} is not UTF-8 text (byte {error.start}); save it as UTF-8") from error
    table = parse(text, str(path), allowed=("name", "about", "base", "protocol"))
    for key in ("name", "about", "base"):
        if not isinstance(table.get(key, ""), str):
            raise ProtocolError(f'{path}: {key} is {table[key]!r}; write it in quotes, {key} = "..."')
    return table


def parse(text: str, where: str, *, allowed: Collection[str]) -> dict[str, Any]:
    """The tables of a TOML text, whose top has no key but the ``allowed`` ones."""
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ProtocolError(f"{where} is not valid TOML: {error}") from error
    _check_keys(table, allowed, where)
    return table


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
    with any number of choices.
    """
    if not isinstance(axes, Mapping):
        raise ProtocolError(f"{where}: protocol is {axes!r}; it must be a table, [protocol] on a line of its own")
    _check_keys(axes, AXES, where)
    values: dict[str, Any] = {
        name: None if value == "-" and "None" in AXES[name] else value for name, value in axes.items()
    }
    if values.get("choices") == "any":
        values["choices"] = None
    if base is None and "benchmark" not in values:
        raise ProtocolError(
            f'{where}: no benchmark; state benchmark = "..." under [protocol], or a base = "mmlu/original"'
        )
    try:
        return Protocol(**values) if base is None else replace(base, **values)
    except ProtocolError as error:
        raise ProtocolError(f"{where}: {error}") from error


def _check_keys(table: Mapping[str, object], allowed: Collection[str], where: str) -> None:
    for key in table:
        if key not in allowed:
            raise ProtocolError(f"{where}: unknown key {key!r}; {did_you_mean(key, allowed)}")
