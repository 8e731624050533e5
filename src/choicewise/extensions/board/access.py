"""Who may ask the board: hosts, origins, methods, sizes and tokens."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import os
import re
import secrets
import socket
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from choicewise.errors import UsageError
from choicewise.util.files import disk_errors, read_text

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.types import ASGIApp, Message, Receive, Scope, Send


SUBMISSIONS = "/submissions"
"""Where models are submitted, on a board that takes any."""

LONGEST_TARGET = 4096
"""Bytes of a path with its query."""

HEADERS = {
    "content-security-policy": (
        "default-src 'none'; style-src 'self'; img-src 'self' data:; form-action 'self'; base-uri 'none'; "
        "frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "cache-control": "no-cache",
}
"""Of every answer that does not say otherwise."""

_READING = ("GET", "HEAD")
_COOKIE = "choicewise"


class AccessMiddleware:
    """Refuses what the rules of ``access`` do not let through, and adds :data:`HEADERS` to every answer.

    Starlette's own TrustedHostMiddleware can't let every IP address through, as a server on 0.0.0.0 must.
    ``request.state.reads`` says whether who sends a submission may read the board as well.
    """

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app, self._access = app, access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or the server's start and end."""
        from starlette.datastructures import MutableHeaders
        from starlette.requests import Request

        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                if message["status"] >= 400:  # what the request may still send is not waited for
                    headers["connection"] = "close"
            await send(message)

        request = Request(scope)
        await (self._broken_rule(request) or self._by_token(request) or self._app)(
            scope, receive, send_with_headers
        )

    def _broken_rule(self, request: Request) -> Response | None:
        headers, method, site = (
            request.headers,
            request.method,
            request.headers.get("sec-fetch-site"),
        )
        takes = (
            (*_READING, "POST")
            if self._access.submit and request.scope["path"] == SUBMISSIONS
            else _READING
        )
        origins = all(map(self._access.knows_origin, headers.getlist("origin")))
        chunked, length = "transfer-encoding" in headers, headers.get("content-length")
        embedded = site == "cross-site" and headers.get("sec-fetch-mode") != "navigate"
        foreign = (
            method in takes and method not in _READING and site not in (None, "same-origin", "none")
        )
        target = len(request.scope["raw_path"]) + len(request.scope["query_string"])
        content = method in _READING and (chunked or bool((length or "").strip("0")))
        rules = (
            # with both headers a proxy may see another end of the request
            (
                not chunked or length is None,
                400,
                "A request says by one header alone how long it is.",
            ),
            (
                self._access.knows_host(headers.get("host", "")),
                421,
                "This server does not answer under that name; open the address that it printed.",
            ),
            (origins and not embedded, 403, "Pages of other sites may not ask this server."),
            (not foreign, 403, "Pages of other sites may not send anything to this server."),
            (method in takes, 405, "This server only shows; it takes GET and HEAD."),
            (target <= LONGEST_TARGET, 414, "The address is too long."),
            (not content, 413, "This server takes no content."),
        )
        for fits, status, words in rules:
            if not fits:
                return refusal(
                    request, status, words, {"allow": ", ".join(takes)} if status == 405 else None
                )
        return None

    def _by_token(self, request: Request) -> Response | None:
        access, path, bearers = self._access, request.scope["path"], bearer_tokens(request)
        reads = access.token is None or any(same_token(each, access.token) for each in bearers)
        request.state.reads = reads = reads or access.knows_pass(request.cookies.get(_COOKIE, ""))
        if reads or request.method == "POST":  # which the routes of submissions look at themselves
            return None
        below = path.startswith("/submission/") or path in (SUBMISSIONS, f"{SUBMISSIONS}.json")
        if below and access.submit and any(same_token(each, access.submit) for each in bearers):
            return None
        if any(
            same_token(each, access.token or "") for each in request.query_params.getlist("token")
        ):
            return self._enter(request)
        words = "This board needs its token: add ?token=TOKEN to the address once, or send Authorization: Bearer TOKEN."
        return refusal(request, 401, words, {**AUTHENTICATE, "cache-control": "no-store"})

    def _enter(self, request: Request) -> Response:
        """Keep who showed the token, and go on to the address without it.

        By a page and not by a redirect: a browser that comes from another site keeps the cookie back on a redirect.
        """
        from starlette.responses import HTMLResponse

        query = urlencode(
            [pair for pair in request.query_params.multi_items() if pair[0] != "token"]
        )
        path = request.scope["raw_path"].decode("latin-1").lstrip("/\\")
        address = escape(f"/{path}?{query}" if query else f"/{path}")
        page = f'<!doctype html><title>Board</title><meta http-equiv="refresh" content="0;url={address}">'
        response = HTMLResponse(
            f'{page}<p><a href="{address}">To the board</a></p>', 200, {"cache-control": "no-store"}
        )
        response.set_cookie(
            _COOKIE, self._access.pass_word, httponly=True, samesite="strict", path="/"
        )
        return response


AUTHENTICATE = {"www-authenticate": 'Bearer realm="choicewise"'}
"""What an answer says that a token is missing in."""


def refusal(
    request: Request,
    status: int,
    words: str,
    headers: Mapping[str, str] | None = None,
    json: bool = False,
) -> Response:
    """An answer in words; ``{"error": words}`` where ``json``, or where a program asks for JSON."""
    from starlette.responses import JSONResponse, PlainTextResponse

    if json or accepts_json(request):
        return JSONResponse({"error": words}, status, headers)
    return PlainTextResponse(f"{words}\n", status, headers)


def accepts_json(request: Request) -> bool:
    """Whether JSON is asked for by a header."""
    accepted = request.headers.get("accept", "")
    return "application/json" in accepted and "text/html" not in accepted


def bearer_tokens(request: Request) -> list[str]:
    """The tokens in ``Authorization`` headers."""
    schemes = (value.partition(" ") for value in request.headers.getlist("authorization"))
    return [given.strip() for scheme, _, given in schemes if scheme.lower() == "bearer"]


VARIABLE = "CHOICEWISE_TOKEN"
SUBMIT = "CHOICEWISE_SUBMIT_TOKEN"
"""The variables that hold the tokens where no file does."""


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
            token = read_text(file, 10_000).strip()
        except OSError as error:
            raise UsageError(f"{file} can't be read: {error.strerror}") from error
        except ValueError as error:
            raise UsageError(f"{file} is no text") from error
    if token is None:
        return None
    if len(token) < SHORTEST:
        raise UsageError(
            f"the token in {where} has {len(token)} characters; take {SHORTEST} or more"
        )
    if not token.isascii() or not token.isprintable() or " " in token:
        raise UsageError(
            f"the token in {where} must be one line of letters, digits and signs, without spaces"
        )
    return token


def stored_token(file: Path) -> tuple[str, bool]:
    """The token in ``file``, a random one that is written there where there is none, and whether it is new.

    Only whoever runs the board can read the file.  Raises UsageError for a file that others can read.
    """
    if os.path.lexists(file):
        about = file.lstat()
        if not stat.S_ISREG(about.st_mode) or about.st_mode & 0o077:
            raise UsageError(
                f"{file} can be read or replaced by others; delete it, and a new token is made"
            )
        token = read_token(file)
        assert token is not None
        return token, False
    token = secrets.token_urlsafe(24)
    with disk_errors(file):
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "w", encoding="ascii") as opened:
            opened.write(f"{token}\n")
    return token, True


SHORTEST = 16
"""Characters of a token; shorter ones can be guessed."""

_HOST = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^\[\]:/@\s]+)(?::(\d{1,5}))?")
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True)
class Access:
    """``hosts``: the names, in lower case, by which the server may be called; ``anywhere``: any IP address as well,
    which no foreign page can take for its own.  ``token``: what a reader must know; None where everybody may read.
    ``submit``: what who submits must know; None where nobody submits."""

    hosts: frozenset[str]
    anywhere: bool = False
    token: str | None = field(default=None, repr=False)
    submit: str | None = field(default=None, repr=False)

    def knows_host(self, header: str) -> bool:
        """Whether a ``Host`` header names this server."""
        name = host_name(header)
        return name is not None and (
            name in self.hosts or (self.anywhere and _ip_address(name) is not None)
        )

    def knows_origin(self, header: str) -> bool:
        """Whether an ``Origin`` header is this server's own."""
        scheme, separator, host = header.partition("://")
        return bool(separator) and scheme in ("http", "https") and self.knows_host(host)

    @property
    def pass_word(self) -> str:
        """What a browser keeps instead of the token, which does not follow from it."""
        return hmac.new(
            (self.token or "").encode(), b"a reader of the board", hashlib.sha256
        ).hexdigest()

    def knows_pass(self, given: str) -> bool:
        """Whether a browser's cookie is of this token."""
        return self.token is not None and hmac.compare_digest(
            _digest(given), _digest(self.pass_word)
        )


def access(
    host: str, names: Iterable[str] = (), token: str | None = None, submit: str | None = None
) -> Access:
    """The access to a server that listens on ``host``, is called by further ``names`` as well, and has these tokens."""
    bound = host.lower().strip("[]")
    everywhere = bound in ("0.0.0.0", "::")
    own = {socket.gethostname().lower(), socket.getfqdn().lower()} if everywhere else set()
    return Access(
        frozenset({*_LOOPBACK, bound, *own, *(name.lower() for name in names)}),
        everywhere,
        token,
        submit,
    )


def same_token(given: str, token: str) -> bool:
    """Whether ``given`` is the ``token``, in a time that does not tell how much of it is right."""
    return hmac.compare_digest(_digest(given), _digest(token))


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches a server that listens on ``host``."""
    address = _ip_address(host.strip("[]"))
    return host.lower() == "localhost" if address is None else address.is_loopback


def host_name(header: str) -> str | None:
    """The host in a ``Host`` header, in lower case, without port and brackets; None for what is no host."""
    parts = _HOST.fullmatch(header)
    return None if parts is None else parts[1].strip("[]").lower().removesuffix(".")


def _ip_address(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(name)
    except ValueError:
        return None


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode(errors="surrogatepass")).digest()
