"""Protocols in TOML files: the catalogue's own and anybody else's."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from choicewise.errors import ProtocolError
from choicewise.protocols.protocol import Protocol


def read_file(path: Path) -> tuple[str, Protocol]:
    """Name and protocol of a user's file: ``name`` (else the file's stem), ``about``, and the table ``[protocol]``.

    Raises ProtocolError, naming the file, when it can't be read, isn't TOML or holds what no protocol has.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ProtocolError(f"{path} can't be read: {error.strerror}; give the path of a protocol file") from error
    except UnicodeDecodeError as error:
        raise ProtocolError(f"{path} is not UTF-8 text (byte {error.start}); save it as UTF-8") from error
    table = parse(text, str(path), allowed=("name", "about", "protocol"))
    for key in ("name", "about"):
        if not isinstance(table.get(key, ""), str):
            raise ProtocolError(f'{path}: {key} is {table[key]!r}; write it in quotes, {key} = "..."')
    return table.get("name", path.stem), read_axes(table.get("protocol", {}), str(path))


def parse(text: str, where: str, *, allowed: Iterable[str]) -> dict[str, Any]:
    """The tables of a TOML text, with no key but the ``allowed`` ones at its top."""
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ProtocolError(f"{where} is not valid TOML: {error}") from error
    _check_keys(table, list(allowed), where)
    return table


def read_axes(axes: object, where: str) -> Protocol:
    """The protocol that a table of axes spells; axes that are left out have their defaults.

    TOML has no null: an axis that does not apply is ``"-"``, as in a signature, and ``choices = "any"`` takes items
    with any number of choices.
    """
    if not isinstance(axes, Mapping):
        raise ProtocolError(f"{where}: protocol is {axes!r}; it must be a table, [protocol] on a line of its own")
    optional = {axis.name for axis in fields(Protocol) if "None" in str(axis.type)}
    _check_keys(axes, [axis.name for axis in fields(Protocol)], where)
    values: dict[str, Any] = {
        name: None if value == "-" and name in optional else value for name, value in axes.items()
    }
    if values.get("choices") == "any":
        values["choices"] = None
    try:
        return Protocol(**values)
    except ProtocolError as error:
        raise ProtocolError(f"{where}: {error}") from error


def _check_keys(table: Mapping[str, object], allowed: list[str], where: str) -> None:
    for key in table:
        if key not in allowed:
            near = get_close_matches(key, allowed, n=1)
            hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(allowed)}"
            raise ProtocolError(f"{where}: unknown key {key!r}; {hint}")
