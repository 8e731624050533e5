"""Read the address of a served model, and hide its key in every message and log."""

from __future__ import annotations

import base64
import ipaddress
import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from choicewise.errors import ModelError

HIDDEN = "[key]"
"""What replaces the key in a text."""

_LOGGERS = (
    "httpx2",
    "httpcore2.connection",
    "httpcore2.http11",
    "httpcore2.proxy",
    "httpcore2.socks",
)

# Characters at the end of a text that may begin a key and are hidden: fewer reveal nothing.
_REVEALING = 4

_CUT = re.compile(r"(%[0-9a-fA-F]?|\\+(u[0-9a-fA-F]{0,3})?)?")
"""The rest of a text whose last character is encoded and cut off."""

PREFIX = "server:"

KEY_VARIABLE = "CHOICEWISE_API_KEY"
"""The environment variable of the key that a server asks for; no other is ever sent."""

_FORM = "http://HOST:PORT/v1#NAME"
_ENDPOINTS = (
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
    """Hold the address of a server and its name of a ``model``; str() is what :meth:`parse` reads.

    ``url``: http or https, without credentials, query and a slash at its end.
    """

    url: str
    model: str | None = None
    prefix: str = PREFIX

    @classmethod
    def parse(cls, text: str, prefix: str = PREFIX) -> ServerAddress:
        """Read an address; ``model`` is None if ``text`` has no ``#NAME``.

        Raises ModelError if it can't be one, and never repeats what may be a secret: credentials or
        a query.
        """
        form = f"{prefix}{_FORM}"
        if not text.startswith(prefix):
            raise ModelError(f"the address of a served model is {form}")
        url, _, name = text.removeprefix(prefix).partition("#")
        objection = _objection(url, name, form)
        if objection is not None:
            raise ModelError(f"server address: {objection}")
        parts = urlsplit(url)
        host = f"{parts.scheme.lower()}://{parts.netloc.lower()}"
        return cls(host + parts.path.rstrip("/"), name or None, prefix)

    def __str__(self) -> str:
        address = f"{self.prefix}{self.url}"
        return address if self.model is None else f"{address}#{self.model}"

    @property
    def folder(self) -> str:
        """Return the name of the folder of its runs: the model's name at the server, or the URL."""
        return self.model or self.url

    @property
    def is_loopback(self) -> bool:
        """Check that the server is on this machine, so that no proxy may come in between."""
        host = urlsplit(self.url).hostname or ""
        try:
            return ipaddress.ip_address(host).is_loopback
        except ValueError:
            return host == "localhost" or host.endswith(".localhost")

    @property
    def is_proxied(self) -> bool:
        """Check that the environment names a proxy that requests go through."""
        parts = urlsplit(self.url)
        proxies = getproxies()
        named = parts.scheme in proxies or "all" in proxies
        return named and not self.is_loopback and not proxy_bypass(parts.hostname or "")

    def at(self, path: str) -> str:
        """Return the URL of ``path`` below ``url``, or below the server's root if it starts with /.

        The root is ``url`` without a ``/v1`` at its end: ``/tokenize`` of vLLM is beside ``/v1``.
        """
        if path.startswith("/"):
            return self.url.removesuffix("/v1") + path
        return f"{self.url}/{path}"


class Key:
    """Hold a key, which neither text nor repr shows; ``header`` is what is sent."""

    __slots__ = ("_spellings", "_text")

    def __init__(self, text: str) -> None:
        self._text = text.strip()
        content = self._text.encode()
        spellings: list[Sequence[str]] = [self._text]
        # Base64 has groups of three bytes, of which the key may begin in any.
        spellings += [_in_base64(content, start) for start in range(3)]
        self._spellings = [list(map(_encoded, signs)) for signs in spellings if signs]

    def check(self) -> None:
        """Raise ModelError if it can't be sent."""
        if not self._text.isascii() or not self._text.isprintable() or " " in self._text:
            raise ModelError(
                f"{KEY_VARIABLE} has characters that no key has; set it again, without spaces and "
                "quotes"
            )

    def __repr__(self) -> str:
        return "Key()"

    def __bool__(self) -> bool:
        return bool(self._text)

    def __reduce__(self) -> str:
        raise TypeError("a key is not written anywhere")

    @property
    def header(self) -> str:
        """Return the value of the header ``Authorization``."""
        return f"Bearer {self._text}"

    def hidden(self, text: str) -> str:
        """Replace the key by ``HIDDEN``, as it is or in base64, in JSON or percent-encoded.

        Also replace its first half or more, and a beginning that breaks off at the end of ``text``.
        """
        if self._text:
            text = text.replace(self._text, HIDDEN)
        for signs in self._spellings:
            text = _without(text, signs)
        return text


class HidingLog(logging.Filter):
    """Keep the key out of httpx2's log until ended; at level DEBUG it has a server's headers."""

    def __init__(self, key: Key) -> None:
        super().__init__()
        self._key = key
        for name in _LOGGERS:
            logging.getLogger(name).addFilter(self)

    def filter(self, record: logging.LogRecord) -> bool:
        """Keep every record, without the key."""
        record.msg = self._key.hidden(record.getMessage())
        record.args = ()
        return True

    def end(self) -> None:
        """Stop filtering."""
        for name in _LOGGERS:
            logging.getLogger(name).removeFilter(self)


def quoted(text: str, key: Key, most: int = 200) -> str:
    """Quote ``text`` from a server in a message, on one line, with at most ``most`` characters.

    Control, invisible and bidirectional characters are escapes.  The key is hidden before anything
    is cut, so that no part of it stays.
    """
    line = " ".join(key.hidden(text).split())
    if len(line) > most:
        line = f"{line[: most - 1]}…"
    return repr(line)


def _in_base64(text: bytes, start: int) -> list[str]:
    """Return the letters that ``text`` alone decides, ``start`` bytes into a group of three.

    A letter that URLs replace comes with its twin.
    """
    encoded = base64.b64encode(bytes(start) + text).decode()
    letters = encoded[-(-4 * start // 3) :].rstrip("=")[:-1]
    # Fewer are no key.
    if len(letters) <= 6:
        return []
    twins = {"+": "+-", "/": "/_"}
    return [twins.get(letter, letter) for letter in letters]


def _encoded(signs: str) -> str:
    """Return a pattern of one of ``signs``: as it is, percent-encoded, or in JSON, also nested."""
    spelled = []
    for sign in signs:
        code = f"(?i:{ord(sign):02x})"
        spelled.append(rf"%{code}|\\+u00{code}|\\*{re.escape(sign)}")
    return f"(?:{'|'.join(spelled)})"


def _without(text: str, signs: Sequence[str]) -> str:
    """Replace what ``signs`` (patterns) match one after another, as :meth:`Key.hidden` does."""
    beginning = re.compile("".join(signs[:_REVEALING]))
    clean = ""
    done = 0
    while begun := beginning.search(text, done):
        count = min(_REVEALING, len(signs))
        end = begun.end()
        while count < len(signs) and (sign := re.compile(signs[count]).match(text, end)):
            count += 1
            end = sign.end()
        clean += text[done : begun.start()]
        # The key breaks off with the text.
        if _CUT.fullmatch(text, end):
            return clean + HIDDEN
        if 2 * count >= len(signs):
            clean += HIDDEN
            done = end
        else:
            clean += text[begun.start()]
            done = begun.start() + 1
    return clean + text[done:]


def _objection(url: str, name: str, form: str) -> str | None:
    """Return why ``url`` and ``name`` are no address, or None."""
    if "@" in url:
        return f"it has credentials (an @); remove them, and set {KEY_VARIABLE} instead"
    if "?" in url:
        return f"it has a query (a ?); remove it, and set {KEY_VARIABLE} instead"
    if not (url + name).isprintable() or " " in url or "\\" in url:
        return f"it has white space, backslashes or invisible characters; the form is {form}"
    if not url.lower().startswith(("http://", "https://")):
        return f"it must start with http:// or https://; the form is {form}"
    try:
        parts = urlsplit(url)
        host = parts.hostname
        port = parts.port
    except ValueError:
        return f"its host or port can't be read; the form is {form}"
    if not host or port == 0 or parts.netloc.endswith(":"):
        return f"its host or port is missing; the form is {form}"
    for endpoint in _ENDPOINTS:
        if parts.path.rstrip("/").endswith((endpoint, endpoint + "/completions")):
            return f"remove {endpoint} and everything after it; the form is {form}"
    return None
