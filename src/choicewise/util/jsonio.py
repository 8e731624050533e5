"""Read JSON within limits, and write it: exact, for digests, for other tools' readers, and inside
pages.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, is_dataclass
from functools import lru_cache
from typing import Any

from choicewise.util.text import disarmed, text_digest

JsonDict = dict[str, Any]
"""An object of JSON."""

JsonMapping = Mapping[str, Any]
"""An object of JSON that is only read."""

_ESCAPES = {char: f"\\u{ord(char):04x}" for char in "<>&\u2028\u2029"}


DEEPEST = 100
"""Levels of lists and tables in one another; functions that walk through them recurse once a level.
"""

TOO_DEEP = f"it is nested too deeply: more than {DEEPEST} levels"


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
    """Return whether lists and tables are nested more than DEEPEST deep."""
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
    """Spell ``value`` in one line without spaces, as most clients write a request."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def exact_json(value: Any, *, indent: int | None = None, sort: bool = False) -> str:
    """Spell ``value`` as JSON that reads back as equal, with sorted keys if ``sort``.

    ValueError for NaN.
    """
    return json.dumps(value, ensure_ascii=False, allow_nan=False, indent=indent, sort_keys=sort)


def json_digest(value: Any) -> str:
    """Return the sha256 (64 hex) of ``value`` as JSON in ASCII with sorted keys."""
    return text_digest(ascii_json(value))


def ascii_json(value: Any) -> str:
    """Spell ``value`` as JSON in ASCII with sorted keys."""
    return json.dumps(value, sort_keys=True)


def lines_digest(values: Iterable[Any]) -> str:
    """Return the sha256 (64 hex) of all ``values``, each as a line of JSON in ASCII with sorted
    keys.
    """
    return spelled_digest(map(json.JSONEncoder(sort_keys=True).encode, values))


def spelled_digest(lines: Iterable[str]) -> str:
    """Return the sha256 (64 hex) of all ``lines``."""
    sha = hashlib.sha256()
    for line in lines:
        sha.update(line.encode() + b"\n")
    return sha.hexdigest()


_BREAKS = {0x85: "\\u0085", 0x2028: "\\u2028", 0x2029: "\\u2029"}
"""Characters that some readers take for the end of a line, though JSON allows them in texts."""


def json_text(value: Any, indent: int | None = None) -> str:
    """Spell ``value`` as JSON, NaN and infinity as null.

    Without ``indent`` in one line, without its end.
    """
    return exact_json(json_value(value), indent=indent).translate(_BREAKS)


def json_value(value: Any) -> Any:
    """Return ``value`` in dicts and lists, with None for numbers that JSON does not have: NaN and
    infinity.
    """
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if is_dataclass(value) and not isinstance(value, type):
        value = asdict(value)
    if isinstance(value, dict):
        return {key: json_value(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [json_value(inner) for inner in value]
    return value


def page_json(content: Any, plain: bool = False) -> str:
    """Spell ``content`` as JSON without spaces, in which no character can end a script element or
    begin a tag.

    Control and invisible characters in texts become visible escapes, numbers that JSON does not
    have become null, and numbers keep six digits, more than any chart or table shows.  ``plain``:
    whether ``content`` is so already.
    """
    if not plain:
        content = _plain(content)
    text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    # Texts of megabytes: `str.translate` looks up every character of theirs.
    for char, escape in _ESCAPES.items():
        text = text.replace(char, escape)
    return text


# The records of a page share their keys and most of their words.
_plain_text = lru_cache(maxsize=4096)(disarmed)


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return _plain_text(value)
    if isinstance(value, float):
        return _plain_number(value)
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    if isinstance(value, Mapping):
        return {_plain(key): _plain(inner) for key, inner in value.items()}
    return value


def _plain_number(value: float) -> float | None:
    if not math.isfinite(value):
        return None
    if value.is_integer():
        return int(value)
    return float(f"{value:.6g}")
