"""JSON, read within limits and written: exact, for digests, for other tools' readers, and inside pages."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, is_dataclass
from typing import Any, Final

from choicewise.util.text import disarmed

_ESCAPES = {ord(char): f"\\u{ord(char):04x}" for char in "<>&\u2028\u2029"}


DEEPEST: Final = 100
"""Levels of lists and tables in one another; whatever walks through them goes down a level at a time."""

TOO_DEEP: Final = (
    f"it is nested too deeply: lists and tables stand in each other at most {DEEPEST} deep"
)


def read_json(text: str | bytes) -> Any:
    """Return what ``text`` spells; ValueError if it is no JSON, or nested more than DEEPEST deep."""
    try:
        value = json.loads(text)
    except RecursionError as error:
        raise ValueError(TOO_DEEP) from error
    if is_deep(value):
        raise ValueError(TOO_DEEP)
    return value


def is_deep(value: Any) -> bool:
    """Tell whether lists and tables stand in one another more than DEEPEST deep."""
    level = [value]
    for _ in range(DEEPEST):
        inside: list[Any] = []
        for container in level:
            if isinstance(container, dict):
                inside.extend(container.values())
            elif isinstance(container, list):
                inside.extend(container)
        level = [inner for inner in inside if isinstance(inner, dict | list)]
        if not level:
            return False
    return True


def compact_json(value: object) -> str:
    """``value`` in one line without spaces, as most clients write a request."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def exact_json(value: Any, *, indent: int | None = None, sort: bool = False) -> str:
    """``value`` as JSON that reads back as the same, its keys in order where ``sort``; ValueError for NaN."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, indent=indent, sort_keys=sort)


def json_digest(value: Any) -> str:
    """sha256 (64 hex) of ``value`` as JSON in ASCII with sorted keys."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def lines_digest(values: Iterable[Any]) -> str:
    """sha256 (64 hex) of all ``values``, a line of such JSON each."""
    sha, spell = hashlib.sha256(), json.JSONEncoder(sort_keys=True).encode
    for value in values:
        sha.update(spell(value).encode() + b"\n")
    return sha.hexdigest()


_BREAKS = {0x85: "\\u0085", 0x2028: "\\u2028", 0x2029: "\\u2029"}
"""Characters that some readers take for the end of a line, though JSON does not ask to escape them."""


def json_text(value: Any, indent: int | None = None) -> str:
    """``value`` as JSON, NaN and infinity as null; without ``indent`` one line, without its end."""
    return exact_json(json_value(value), indent=indent).translate(_BREAKS)


def json_value(value: Any) -> Any:
    """``value`` in dicts and lists, with null for what JSON has no word for: NaN and infinity."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if is_dataclass(value) and not isinstance(value, type):
        value = asdict(value)
    if isinstance(value, dict):
        return {key: json_value(inner) for key, inner in value.items()}
    return [json_value(inner) for inner in value] if isinstance(value, list | tuple) else value


def page_json(content: Any, plain: bool = False) -> str:
    """``content`` as JSON without spaces.  No character of it can end a script element or begin a tag.

    Control and invisible characters in texts become visible escapes, numbers that JSON does not know become null, and
    numbers keep six digits, more than any chart or table shows.  ``plain``: all of that is so already.
    """
    text = json.dumps(
        content if plain else _plain(content),
        ensure_ascii=False,
        allow_nan=False,
        separators=(",", ":"),
    )
    return text.translate(_ESCAPES)


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return disarmed(value)
    if isinstance(value, float):
        return (
            None
            if not math.isfinite(value)
            else int(value)
            if value.is_integer()
            else float(f"{value:.6g}")
        )
    if isinstance(value, Mapping):
        return {_plain(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value
