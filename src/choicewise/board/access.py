"""Middleware: hosts, origins, tokens, sizes."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import os
import re
import socket
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlencode

from choicewise.errors import UsageError

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send


COOKIE = "choicewise"
LONGEST_TARGET = 4096
"""Bytes of a path with its query."""

POLICY = (
    "default-src 'none'; style-src 'self'; img-src 'self' data:; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'"
)
"""The content security policy of an answer that has none of its own."""

READS = "choicewise.reads"
"""In the scope of a request that the application looks at itself: whether who sends it may read the board."""

_HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "cache-control": "no-cache",
}


_READING = ("GET", "HEAD")


class Guard:
    """An ASGI application in front of another one.

    Refuses requests of two lengths (400), foreign hosts (421) and origins (403), other methods than GET and HEAD (405),
    bodies (413), long targets (414), and readers without the token (401), but for what comes by one of the ``doors``,
    which say what they let in.
    Whatever goes wrong behind it becomes a plain answer (500), and a line for ``tell``.
    """

    def __init__(
        self, application: ASGIApp, access: Access, tell: Callable[[str], None], doors: Sequence[Door] = ()
    ) -> None:
        self._application, self._access, self._tell, self._doors = application, access, tell, doors

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or the server's start and end."""
        if scope["type"] == "lifespan":
            await self._application(scope, receive, send)
            return
        if scope["type"] != "http":
            return
        begun = False

        async def sent(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                own = {name for name, _ in message["headers"]}
                further = ((name.encode(), value.encode()) for name, value in _HEADERS.items())
                message["headers"] = [*message["headers"], *(pair for pair in further if pair[0] not in own)]
            await send(message)

        method, path = scope["method"], scope["path"]
        door = next((door for door in self._doors if door.fits(method, path)), None)
        answer = self._refusal(scope, door)
        try:
            await (answer or self._application)(scope, _bounded(receive, door), sent)
        except Exception as error:
            self._tell(f"error while answering {scope['path']}: {type(error).__name__}: {error}")
            if begun:
                raise ConnectionAbortedError from None
            await _plain(500, "Something went wrong here; whoever runs this server can see what.")(scope, receive, sent)

    def _refusal(self, scope: Scope, door: Door | None) -> ASGIApp | None:
        """The answer to a request that is not let through."""
        headers = _headers(scope)
        if "transfer-encoding" in headers and "content-length" in headers:
            return _plain(400, "A request says by one header alone how long it is.")  # else a proxy may see another end
        hosts = headers.get("host", [])
        if len(hosts) != 1 or not self._access.knows_host(hosts[0]):
            return _plain(421, "This server does not answer under that name; open the address that it printed.")
        if not all(map(self._access.knows_origin, headers.get("origin", []))):
            return _plain(403, "Pages of other sites may not ask this server.")
        if "cross-site" in (sites := headers.get("sec-fetch-site", [])) and headers.get("sec-fetch-mode") != [
            "navigate"
        ]:
            return _plain(403, "Pages of other sites may not ask this server.")
        if door is not None and scope["method"] not in _READING and not {*sites} <= {"same-origin", "none"}:
            return _plain(403, "Pages of other sites may not send anything to this server.")
        if door is None and scope["method"] not in _READING:
            return _plain(405, "This server only shows; it takes GET and HEAD.", self._allowed(scope["path"]))
        if len(scope["raw_path"]) + len(scope["query_string"]) > LONGEST_TARGET:
            return _plain(414, "The address is too long.")
        return self._too_much(headers, door) or self._by_token(scope, headers, door)

    def _allowed(self, path: str) -> dict[str, str]:
        methods = dict.fromkeys(each for door in self._doors if door.path.fullmatch(path) for each in door.methods)
        return {"allow": ", ".join(dict.fromkeys([*_READING, *methods]))}

    def _too_much(self, headers: dict[str, list[str]], door: Door | None) -> ASGIApp | None:
        lengths = headers.get("content-length", [])
        if door is None or not door.largest:
            if "transfer-encoding" in headers or any(length.strip("0") for length in lengths):
                return _plain(413, "This server takes no content.")
        elif any(len(length) > 15 or int(length) > door.largest for length in lengths):
            return _plain(413, f"Here at most {door.largest:,} bytes are taken; send less.")
        return None

    def _by_token(self, scope: Scope, headers: dict[str, list[str]], door: Door | None) -> ASGIApp | None:
        if door is None:
            return self._without_token(scope, headers)
        if door.knows is None:
            scope[READS] = self._without_token(scope, headers) is None
            return None
        if any(map(door.knows, bearers(headers.get("authorization", [])))):
            return None
        if door.readers:
            return self._without_token(scope, headers)
        words = "This needs the token of workers: send Authorization: Bearer TOKEN."
        return _plain(401, words, {"www-authenticate": 'Bearer realm="choicewise"', "cache-control": "no-store"})

    def _without_token(self, scope: Scope, headers: dict[str, list[str]]) -> ASGIApp | None:
        if self._access.token is None:
            return None
        if any(map(self._access.knows_token, bearers(headers.get("authorization", [])))):
            return None
        if any(map(self._access.knows_pass, _cookies(headers.get("cookie", [])))):
            return None
        pairs = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        if any(name == "token" and self._access.knows_token(value) for name, value in pairs):
            return self._let_in(scope, urlencode([pair for pair in pairs if pair[0] != "token"]))
        words = "This board needs its token: add ?token=TOKEN to the address once, or send Authorization: Bearer TOKEN."
        return _plain(401, words, {"www-authenticate": 'Bearer realm="choicewise"', "cache-control": "no-store"})

    def _let_in(self, scope: Scope, query: str) -> ASGIApp:
        """Keep who showed the token, and go on to the address without it.

        By a page and not by a redirect: a browser that comes from another site keeps the cookie back on a redirect.
        """
        from html import escape

        from starlette.responses import HTMLResponse

        address = escape("/" + scope["raw_path"].decode("latin-1").lstrip("/\\") + (f"?{query}" if query else ""))
        page = f'<!doctype html><title>Board</title><meta http-equiv="refresh" content="0;url={address}">'
        response = HTMLResponse(f'{page}<p><a href="{address}">To the board</a></p>')
        response.set_cookie(COOKIE, self._access.pass_word, httponly=True, samesite="strict", path="/")
        response.headers["cache-control"] = "no-store"
        return response


def _headers(scope: Scope) -> dict[str, list[str]]:
    headers: dict[str, list[str]] = {}
    for name, value in scope["headers"]:
        headers.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1"))
    return headers


def bearers(headers: Sequence[str]) -> list[str]:
    """The tokens in ``Authorization`` headers."""
    schemes = (value.partition(" ") for value in headers)
    return [given.strip() for scheme, _, given in schemes if scheme.lower() == "bearer"]


def _bounded(receive: Receive, door: Door | None) -> Receive:
    """What is received, as long as it is no more than the door lets in."""
    if door is None:
        return receive
    left = door.largest

    async def received() -> Message:
        nonlocal left
        message = await receive()
        left -= len(message.get("body", b""))
        if left < 0:
            raise TooLarge
        return message

    return received


def _cookies(headers: list[str]) -> list[str]:
    values = []
    for header in headers:
        try:
            cookies: Any = SimpleCookie(header)
        except CookieError:
            continue
        values += [cookies[COOKIE].value] if COOKIE in cookies else []
    return values


def _plain(status: int, words: str, headers: dict[str, str] | None = None) -> ASGIApp:
    """An answer in words, after which the server hangs up: what the request may still send is not waited for.

    A program that asks for JSON gets ``{"error": words}``.
    """
    from starlette.responses import JSONResponse, PlainTextResponse

    further = {"connection": "close", **(headers or {})}

    async def answered(scope: Scope, receive: Receive, send: Send) -> None:
        accepted = " ".join(_headers(scope).get("accept", []))
        machine = scope["path"].startswith("/work/") or ("application/json" in accepted and "text/html" not in accepted)
        answer = JSONResponse({"error": words}, status, further) if machine else None
        await (answer or PlainTextResponse(f"{words}\n", status, further))(scope, receive, send)

    return answered


VARIABLE = "CHOICEWISE_TOKEN"


def read_token(file: Path | None, variable: str = VARIABLE) -> str | None:
    """The token in ``file``, else in the environment's ``variable``; None where there is none.

    Raises UsageError for a file that can't be read, and for a token that is too short or no line of plain characters.
    Its message does not tell the token.
    """
    if file is None:
        token, where = os.environ.get(variable), f"the variable {variable}"
    else:
        where = str(file)
        try:
            token = file.read_text(encoding="utf-8").strip()
        except OSError as error:
            raise UsageError(f"{file} can't be read: {error.strerror}") from error
        except ValueError as error:
            raise UsageError(f"{file} is no text") from error
    if token is None:
        return None
    if len(token) < SHORTEST:
        raise UsageError(f"the token in {where} has {len(token)} characters; take {SHORTEST} or more")
    if not token.isascii() or not token.isprintable() or " " in token:
        raise UsageError(f"the token in {where} must be one line of letters, digits and signs, without spaces")
    return token


SHORTEST = 16
"""Characters of a token; shorter ones can be guessed."""

_HOST = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^\[\]:/@\s]+)(?::(\d{1,5}))?")
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True)
class Access:
    """``hosts``: the names, in lower case, by which the server may be called; ``anywhere``: any IP address as well,
    which no foreign page can take for its own.  ``token``: what a reader must know; None where everybody may read."""

    hosts: frozenset[str]
    anywhere: bool = False
    token: str | None = None

    def knows_host(self, header: str) -> bool:
        """Whether a ``Host`` header names this server."""
        name = host_name(header)
        return name is not None and (name in self.hosts or (self.anywhere and _is_address(name)))

    def knows_origin(self, header: str) -> bool:
        """Whether an ``Origin`` header is this server's own."""
        scheme, separator, host = header.partition("://")
        return bool(separator) and scheme in ("http", "https") and self.knows_host(host)

    def knows_token(self, given: str | None) -> bool:
        """Whether ``given`` is the token, or none is needed."""
        return self.token is None or same_token(given, self.token)

    @property
    def pass_word(self) -> str:
        """What a browser keeps instead of the token, which does not follow from it."""
        return hmac.new((self.token or "").encode(), b"a reader of the board", hashlib.sha256).hexdigest()

    def knows_pass(self, given: str) -> bool:
        """Whether a browser's cookie is of this token."""
        return self.token is not None and hmac.compare_digest(_digest(given), _digest(self.pass_word))


def access(host: str, names: Iterable[str] = (), token: str | None = None) -> Access:
    """The access to a server that listens on ``host``, is called by further ``names`` as well, and has a ``token``."""
    bound = host.lower().strip("[]")
    everywhere = bound in ("0.0.0.0", "::")
    own = {socket.gethostname().lower(), socket.getfqdn().lower()} if everywhere else set()
    return Access(frozenset({*_LOOPBACK, bound, *own, *(name.lower() for name in names)}), everywhere, token)


def same_token(given: str | None, token: str) -> bool:
    """Whether ``given`` is the ``token``, in a time that does not tell how much of it is right."""
    return given is not None and hmac.compare_digest(_digest(given), _digest(token))


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches a server that listens on ``host``."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def host_name(header: str) -> str | None:
    """The host in a ``Host`` header, in lower case, without port and brackets; None for what is no host."""
    parts = _HOST.fullmatch(header)
    return None if parts is None else parts[1].strip("[]").lower().removesuffix(".")


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode(errors="surrogatepass")).digest()


Knows = Callable[[str | None], bool]
"""Whether a token opens something."""


@dataclass(frozen=True, slots=True)
class Door:
    """Requests by one of ``methods`` for a path that ``path`` matches, with at most ``largest`` bytes of content.

    ``knows``: what the bearer's token must be; None where the application looks itself.  ``readers``: whether those who
    may read the board may come in as well.
    """

    methods: frozenset[str]
    path: re.Pattern[str]
    largest: int = 0
    knows: Knows | None = None
    readers: bool = False

    def fits(self, method: str, path: str) -> bool:
        """Whether a request comes by this door."""
        return method in self.methods and self.path.fullmatch(path) is not None


class TooLarge(Exception):
    """More content came than a door lets in."""
