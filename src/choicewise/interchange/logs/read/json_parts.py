"""A JSON file of another tool part by part: a log of gigabytes is never in memory as a whole."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, TextIO

from choicewise.errors import DataError

LONGEST: Final = 1 << 28
"""Characters of one part: of a sample with all its events, a few million are usual."""

_CHUNK: Final = 1 << 20
_SPACE: Final = " \t\r\n"
_AFTER: Final = frozenset(",:]} \t\r\n")
_DECODER: Final = json.JSONDecoder()


def parts(path: Path, streamed: str) -> Iterator[tuple[str, Any]]:
    """Every member of the object in ``path`` by its key; those of the array ``streamed`` come one by one.

    A file that is an array gives its elements with the key ``streamed``.  Raises DataError naming the place where the
    file ends too early or is no JSON.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            yield from _Parts(str(path), file).read(streamed)
    except OSError as error:
        raise DataError(f"{path} can't be read: {error.strerror}") from error


def whole(path: Path) -> Any:
    """What a file of at most ``LONGEST`` characters holds.  Raises DataError where it is no JSON."""
    try:
        with path.open("rb") as file:
            return json_value(file.read(LONGEST), str(path))
    except OSError as error:
        raise DataError(f"{path} can't be read: {error.strerror}") from error


def json_value(data: bytes, name: str) -> Any:
    """What ``data`` spells in JSON; DataError naming ``name`` where it spells none."""
    try:
        return json.loads(data.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise DataError(f"{name} is no JSON: {_said(error)}; was it cut off? copy it again") from error


class _Parts:
    """The text of a file as far as it has been read and not yet used."""

    def __init__(self, name: str, file: TextIO) -> None:
        self._name, self._text, self._used, self._before = name, "", 0, 0
        self._file = file

    def read(self, streamed: str) -> Iterator[tuple[str, Any]]:
        opening = self._next()
        if opening == "[":
            yield from ((streamed, value) for value in self._elements())
            return
        if opening != "{":
            raise self._error("it begins with no object")
        self._used += 1
        if self._next() == "}":
            return
        while True:
            key = self._value()
            if not isinstance(key, str) or self._next() != ":":
                raise self._error("a key is expected")
            self._used += 1
            if key == streamed and self._next() == "[":
                yield from ((key, value) for value in self._elements())
            else:
                yield key, self._value()
            if self._next() == "}":
                return
            self._comma()

    def _elements(self) -> Iterator[Any]:
        self._used += 1
        if self._next() == "]":
            self._used += 1
            return
        while True:
            yield self._value()
            if self._next() == "]":
                self._used += 1
                return
            self._comma()

    def _comma(self) -> None:
        if self._next() != ",":
            raise self._error("a comma is expected")
        self._used += 1

    def _next(self) -> str:
        """The next character that is no space."""
        while True:
            while self._used < len(self._text) and self._text[self._used] in _SPACE:
                self._used += 1
            if self._used < len(self._text):
                return self._text[self._used]
            if not self._more(_CHUNK):
                raise self._error("it ends too early")

    def _value(self) -> Any:
        self._next()
        chunk = _CHUNK
        while True:
            reason: Exception | None = None
            try:
                value, end = _DECODER.raw_decode(self._text, self._used)
            except (ValueError, RecursionError) as error:
                reason = error
            else:
                if self._text[end : end + 1] in _AFTER or not self._more(chunk):  # else a number that goes on
                    self._used = end
                    return value
                continue
            if isinstance(reason, RecursionError) or not self._more(chunk):
                raise self._error(_said(reason)) from reason
            chunk *= 2

    def _more(self, characters: int) -> bool:
        """Whether there was more to read."""
        if len(self._text) - self._used > LONGEST:
            raise self._error(f"one part of it has more than {LONGEST} characters")
        try:
            text = self._file.read(characters)
        except UnicodeDecodeError as error:
            raise self._error(f"it is not UTF-8: {error.reason}") from error
        self._before += self._used
        self._text, self._used = self._text[self._used :] + text, 0
        return bool(text)

    def _error(self, reason: str) -> DataError:
        place = self._before + self._used
        return DataError(f"{self._name} is no JSON after character {place}: {reason}; was it cut off? copy it again")


def _said(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return error.msg.removesuffix(" at")
    return "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
