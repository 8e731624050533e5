"""The address of a served model, and the key that no message shows."""

from __future__ import annotations

import base64
import ipaddress
import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from choicewise.errors import ModelError

HIDDEN: Final = "[key]"  # what stands in a text for every occurrence of the key
_LOGGERS: Final = (
    "httpx2",
    *(f"httpcore2.{part}" for part in ("connection", "http11", "proxy", "socks")),
)
_REVEALING: Final = (
    4  # characters at the end of a text that may begin a key and are hidden: fewer reveal nothing
)

_CUT: Final = re.compile(r"(%[0-9a-fA-F]?|\\+(u[0-9a-fA-F]{0,3})?)?")
"""What may stand at the end of a text of a character that is encoded and cut off."""

PREFIX: Final = "server:"
KEY_VARIABLE: Final = (
    "CHOICEWISE_API_KEY"  # with the key that a server asks for; no other is ever sent
)
_FORM: Final = "http://HOST:PORT/v1#NAME"
_ENDPOINTS: Final = (
    "/completions",
    "/chat",
    "/models",
    "/tokenize",
    "/embeddings",
    "/systemone",
    "/decisions",
    "/decide",
)


@dataclass(frozen=True)
class ServerAddress:
    """``url``: http or https, without credentials, query and a slash at its end; ``model``: its name at the server.

    As text it is what :meth:`parse` reads, after its ``prefix``.
    """

    url: str
    model: str | None = None
    prefix: str = PREFIX

    @classmethod
    def parse(cls, text: str, prefix: str = PREFIX) -> ServerAddress:
        """The address that ``text`` spells; where it has no ``#NAME``, ``model`` is None.

        Raises ModelError where it can't be one.  What may be a secret, credentials or a query, is never repeated.
        """
        form = f"{prefix}{_FORM}"
        if not text.startswith(prefix):
            raise ModelError(f"the address of a served model is {form}")
        url, _, name = text.removeprefix(prefix).partition("#")
        if objection := _objection(url, name, form):
            raise ModelError(f"server address: {objection}")
        parts = urlsplit(url)
        return cls(
            f"{parts.scheme.lower()}://{parts.netloc.lower()}{parts.path.rstrip('/')}",
            name or None,
            prefix,
        )

    def __str__(self) -> str:
        return f"{self.prefix}{self.url}" + ("" if self.model is None else f"#{self.model}")

    @property
    def folder(self) -> str:
        """Return the name of the folder of its runs: the model's name at the server, or the URL."""
        return self.model or self.url

    @property
    def is_loopback(self) -> bool:
        """Whether the server is on this machine, so that no proxy may come in between."""
        host = urlsplit(self.url).hostname or ""
        try:
            return ipaddress.ip_address(host).is_loopback
        except ValueError:
            return host == "localhost" or host.endswith(".localhost")

    @property
    def is_proxied(self) -> bool:
        """Whether the environment names a proxy that requests go through."""
        parts = urlsplit(self.url)
        proxies = getproxies()
        named = parts.scheme in proxies or "all" in proxies
        return named and not self.is_loopback and not proxy_bypass(parts.hostname or "")

    def at(self, path: str) -> str:
        """The URL of ``path``: below ``url``, or where it starts with a slash below the server's root.

        The root is ``url`` without a ``/v1`` at its end: ``/tokenize`` of vLLM lies beside ``/v1``, not in it.
        """
        if path.startswith("/"):
            return self.url.removesuffix("/v1") + path
        return f"{self.url}/{path}"


class Key:
    """A key; ``header`` is what is sent.  Neither its text nor its repr says what it is."""

    __slots__ = ("_spellings", "_text")

    def __init__(self, text: str) -> None:
        self._text = text.strip()
        in_base64 = (_in_base64(self._text.encode(), start) for start in range(3))
        self._spellings = [
            [_encoded(sign) for sign in each] for each in (self._text, *in_base64) if each
        ]

    def check(self) -> None:
        """Raises ModelError where it can't be sent."""
        if not self._text.isascii() or not self._text.isprintable() or " " in self._text:
            raise ModelError(
                f"{KEY_VARIABLE} has characters that no key has; set it again, without spaces and quotes"
            )

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
    """Keeps the key out of the log of httpx2, which at level DEBUG has the headers that a server sends, until ended."""

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


def quoted(text: str, key: Key, most: int = 200) -> str:
    """``text`` from a server for a message: in quotes, without the key, on one line, at most ``most`` characters of it.

    Control, invisible and bidirectional characters are escapes.  The key goes before anything is cut, so that no part
    of it stays.
    """
    shown = " ".join(key.hidden(text).split())
    return repr(shown if len(shown) <= most else shown[: most - 1] + "…")


def _in_base64(text: bytes, start: int) -> list[str]:
    """The base64 of ``text``, ``start`` bytes into a group of three: letters of it alone, with their twins in URLs."""
    letters = base64.b64encode(bytes(start) + text).decode()[-(-4 * start // 3) :].rstrip("=")[:-1]
    return (
        [{"+": "+-", "/": "/_"}.get(letter, letter) for letter in letters]
        if len(letters) > 6
        else []
    )


def _encoded(signs: str) -> str:
    """A pattern of each of ``signs`` as it is, percent-encoded, or as JSON may spell it, also in a text of JSON."""
    spelled = [
        rf"%(?i:{ord(sign):02x})|\\+u00(?i:{ord(sign):02x})|\\*{re.escape(sign)}" for sign in signs
    ]
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


def _objection(url: str, name: str, form: str) -> str | None:
    """Why ``url`` and ``name`` are no address; None where they are."""
    if "@" in url:
        return f"it must not hold credentials (an @); leave them out, and put a key into {KEY_VARIABLE}"
    if "?" in url:
        return f"it must not hold a query (a ?); leave it out, and put a key into {KEY_VARIABLE}"
    if not (url + name).isprintable() or " " in url or "\\" in url:
        return f"it has white space, backslashes or invisible characters; the form is {form}"
    if not url.lower().startswith(("http://", "https://")):
        return f"it must start with http:// or https://; the form is {form}"
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        return f"its host or port can't be read; the form is {form}"
    if not host or port == 0 or parts.netloc.endswith(":"):
        return f"its host or port is missing; the form is {form}"
    for endpoint in _ENDPOINTS:
        if parts.path.rstrip("/").endswith((endpoint, endpoint + "/completions")):
            return f"it goes too far: leave out {endpoint} and what follows; the form is {form}"
    return None
