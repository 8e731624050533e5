"""The JSON of an answer, read strictly: what is no JSON, or can be read in two ways, is no answer."""

from __future__ import annotations

import json
import math
import re
from typing import Any

JSON = dict[str, Any]
"""An object of JSON.  Its numbers are finite, and its texts can be encoded."""

_DEEPEST = 100
"""Levels of lists and objects within one another; answers have fewer than ten."""

_SURROGATES = re.compile("[\ud800-\udfff]")


class Unreadable(Exception):
    """The text of an answer is no object of JSON; ``deliberate`` where the server wrote it so, not the way to us."""

    def __init__(self, reason: str, deliberate: bool = False) -> None:
        super().__init__(reason)
        self.reason, self.deliberate = reason, deliberate


def json_answer(body: bytes) -> JSON:
    r"""The object that ``body`` holds.

    Raises Unreadable for what is not UTF-8, truncated, no object, nested too deeply, has a name twice in one object, or
    has a number that is not finite (``NaN``, ``Infinity``, ``1e999``).  Lone surrogates (``"\ud800"``) become U+FFFD,
    as bytes do that are not UTF-8.
    """
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise Unreadable("it is not UTF-8") from None
    try:
        answer = json.loads(text, parse_constant=_constant, parse_float=_finite, object_pairs_hook=_object)
    except RecursionError:
        raise Unreadable("its JSON is nested too deeply", deliberate=True) from None
    except ValueError as error:
        reason = error.msg if isinstance(error, json.JSONDecodeError) else "a number is too long"
        raise Unreadable(f"it is no JSON ({reason})" if text.strip() else "it is empty") from None
    if _is_deep(answer):
        raise Unreadable("its JSON is nested too deeply", deliberate=True)
    if not isinstance(answer, dict):
        raise Unreadable(f"its JSON is no object but {_KINDS[type(answer)]}", deliberate=True)
    return _encodable(answer) if r"\ud" in text.lower() else answer


_KINDS = {list: "a list", str: "a text", int: "a number", float: "a number", bool: "true or false", type(None): "null"}


def _constant(name: str) -> None:
    raise Unreadable(f"its JSON has {name} in place of a number", deliberate=True)


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise Unreadable("its JSON has a number that is out of range", deliberate=True)
    return number


def _object(pairs: list[tuple[str, Any]]) -> JSON:
    answer = dict(pairs)
    if len(answer) < len(pairs):
        raise Unreadable("its JSON has the same name twice in one object", deliberate=True)
    return answer


def _is_deep(answer: Any) -> bool:
    """Whether lists and objects are nested in more than ``_DEEPEST`` levels, which recursion may not get through."""
    level = [answer]
    for _ in range(_DEEPEST + 1):
        inside = (each.values() if isinstance(each, dict) else each for each in level if isinstance(each, dict | list))
        level = [one for each in inside for one in each if isinstance(one, dict | list)]
    return bool(level)


def _encodable(value: Any) -> Any:
    match value:
        case str():
            return _SURROGATES.sub("\ufffd", value)
        case list():
            return [_encodable(each) for each in value]
        case dict():
            return {_encodable(name): _encodable(each) for name, each in value.items()}
    return value
