"""The key that a server asks for, which is sent to it and shown nowhere."""

from __future__ import annotations

import base64
import logging
import re
from collections.abc import Sequence
from typing import Final

from choicewise.errors import ModelError
from choicewise.models.server.address import KEY_VARIABLE

HIDDEN: Final = "[key]"
"""What stands in a text for every occurrence of the key."""

_LOGGERS: Final = ("httpx2", *(f"httpcore2.{part}" for part in ("connection", "http11", "proxy", "socks")))

_REVEALING: Final = 4
"""Characters at the end of a text that are hidden where a key may begin with them: fewer reveal nothing."""

_CUT: Final = re.compile(r"(%[0-9a-fA-F]?|\\+(u[0-9a-fA-F]{0,3})?)?")
"""What may stand at the end of a text of a character that is encoded and cut off."""


class Key:
    """A key; ``header`` is what is sent.  Neither its text nor its repr says what it is."""

    __slots__ = ("_spellings", "_text")

    def __init__(self, text: str) -> None:
        self._text = text.strip()
        in_base64 = (_in_base64(self._text.encode(), start) for start in range(3))
        self._spellings = [[_encoded(sign) for sign in each] for each in (self._text, *in_base64) if each]

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
        """``text`` with ``HIDDEN`` for every occurrence of the key, as it is or in base64, in JSON or percent-encoded.

        Also for its first half or more, and for a beginning that breaks off at the end of ``text``.
        """
        text = text.replace(self._text, HIDDEN) if self._text else text
        for signs in self._spellings:
            text = _without(text, signs)
        return text


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


def _in_base64(text: bytes, start: int) -> list[str]:
    """The letters of base64 that are of ``text`` alone, which begins ``start`` bytes into a group of three.

    Each with the other one that stands for it in URLs.
    """
    letters = base64.b64encode(bytes(start) + text).decode()[-(-4 * start // 3) :].rstrip("=")[:-1]
    return [{"+": "+-", "/": "/_"}.get(letter, letter) for letter in letters] if len(letters) > 6 else []


def _encoded(signs: str) -> str:
    """A pattern of each of ``signs`` as it is, percent-encoded, or as JSON may spell it, also in a text of JSON."""
    spelled = [rf"%(?i:{ord(sign):02x})|\\+u00(?i:{ord(sign):02x})|\\*{re.escape(sign)}" for sign in signs]
    return f"(?:{'|'.join(spelled)})"


def _without(text: str, signs: Sequence[str]) -> str:
    """``text`` with ``HIDDEN`` for what ``signs`` (patterns) match one after another, as :meth:`Key.hidden` says."""
    begins = re.compile("".join(signs[:_REVEALING]))
    shown, done = "", 0
    while begun := begins.search(text, done):
        count, end = min(_REVEALING, len(signs)), begun.end()
        while count < len(signs) and (sign := re.compile(signs[count]).match(text, end)):
            count, end = count + 1, sign.end()
        if _CUT.fullmatch(text, end):
            return f"{shown}{text[done : begun.start()]}{HIDDEN}"
        hidden = 2 * count >= len(signs)
        shown += text[done : begun.start()] + (HIDDEN if hidden else text[begun.start()])
        done = end if hidden else begun.start() + 1
    return shown + text[done:]


def quoted(text: str, key: Key, most: int = 200) -> str:
    """``text`` from a server for a message: in quotes, without the key, on one line, at most ``most`` characters of it.

    Control, invisible and bidirectional characters are escapes.  The key goes before anything is cut, so that no part
    of it stays.
    """
    shown = " ".join(key.hidden(text).split())
    return repr(shown if len(shown) <= most else shown[: most - 1] + "…")
