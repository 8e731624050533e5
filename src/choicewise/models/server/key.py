"""The key that a server asks for, which is sent to it and shown nowhere."""

from __future__ import annotations

import base64
import json
import logging
from typing import Final
from urllib.parse import quote

from choicewise.errors import ModelError
from choicewise.models.server.address import KEY_VARIABLE

HIDDEN: Final = "[key]"
"""What stands in a text for every occurrence of the key."""

_LOGGERS: Final = ("httpx2", *(f"httpcore2.{part}" for part in ("connection", "http11", "proxy", "socks")))

_REVEALING: Final = 4
"""Characters at the end of a text that are hidden where a key may begin with them: fewer reveal nothing."""


class Key:
    """A key; ``header`` is what is sent.  Neither its text nor its repr says what it is."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text.strip()

    def check(self) -> None:
        """Raises ModelError where it can't be sent."""
        if not self._text.isascii() or not self._text.isprintable() or " " in self._text:
            raise ModelError(f"{KEY_VARIABLE} has characters that no key has; set it again, without spaces and quotes")

    def __repr__(self) -> str:
        return "Key()"

    def __bool__(self) -> bool:
        return bool(self._text)

    def __reduce__(self) -> str:
        raise TypeError("a key is not written anywhere")

    @property
    def header(self) -> str:
        """The value of the header ``Authorization``."""
        return f"Bearer {self._text}"

    def hidden(self, text: str) -> str:
        """``text`` with ``HIDDEN`` for every occurrence of the key, also for one that breaks off at its end."""
        for spelling in self._spellings if self._text else ():
            text = text.replace(spelling, HIDDEN)
            for length in range(len(spelling) - 1, _REVEALING - 1, -1):
                if text.endswith(spelling[:length]):
                    text = text[:-length] + HIDDEN
        return text

    @property
    def _spellings(self) -> set[str]:
        """As it is, and as it stands in JSON, in URLs and in base64."""
        in_json = json.dumps(self._text)[1:-1]
        in_base64 = (each for start in range(3) for each in _in_base64(self._text.encode(), start))
        return {self._text, in_json, in_json.replace("/", r"\/"), quote(self._text, safe=""), *in_base64}


class HidingLog(logging.Filter):
    """Keeps the key out of the log of httpx2, which at level DEBUG has the headers that a server sends.

    Until it is ended.
    """

    def __init__(self, key: Key) -> None:
        super().__init__()
        self._key = key
        for name in _LOGGERS:
            logging.getLogger(name).addFilter(self)

    def filter(self, record: logging.LogRecord) -> bool:
        """Every record stays, without the key."""
        record.msg, record.args = self._key.hidden(record.getMessage()), ()
        return True

    def end(self) -> None:
        """Keep nothing out any more."""
        for name in _LOGGERS:
            logging.getLogger(name).removeFilter(self)


def _in_base64(text: bytes, start: int) -> set[str]:
    """The letters of base64 that are of ``text`` alone, which begins ``start`` bytes into a group of three."""
    letters = base64.b64encode(bytes(start) + text).decode()[-(-4 * start // 3) :].rstrip("=")[:-1]
    return {letters, letters.translate(str.maketrans("+/", "-_"))} if len(letters) > 6 else set()


def quoted(text: str, key: Key, most: int = 200) -> str:
    """``text`` from a server for a message: in quotes, without the key, on one line, at most ``most`` characters of it.

    Control, invisible and bidirectional characters are escapes.  The key goes before anything is cut, so that no part
    of it stays.
    """
    shown = " ".join(key.hidden(text).split())
    return repr(shown if len(shown) <= most else shown[: most - 1] + "…")
