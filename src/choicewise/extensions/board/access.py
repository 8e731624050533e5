"""Decide which requests a board answers, by host, origin, method, size and token."""

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
        "default-src 'none'; style-src 'self'; img-src 'self' data:; form-action 'self'; base-uri "
        "'none'; frame-ancestors 'none'"
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
    """Refuse what the rules of ``access`` do not let through, and add :data:`HEADERS` to every
    answer.

    ``request.state.reads`` says whether the sender of a submission may read the board as well.
    """

    # Starlette's own TrustedHostMiddleware can't let every IP address through, as a server on
    # 0.0.0.0 must.

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app = app
        self._access = access

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
        refused = self._check_rules(request) or self._check_token(request)
        await (refused or self._app)(scope, receive, send_with_headers)

    def _check_rules(self, request: Request) -> Response | None:
        """Return the refusal of a request that breaks a rule, None if it breaks none."""
        headers = request.headers
        method = request.method
        takes = list(_READING)
        if self._access.submit and request.scope["path"] == SUBMISSIONS:
            takes.append("POST")
        is_chunked = "transfer-encoding" in headers
        length = headers.get("content-length")
        # With both headers a proxy may see another end of the request.
        if is_chunked and length is not None:
            return refusal(request, 400, "A request has exactly one header for its length.")
        refused = self._check_site(request)
        if refused is not None:
            return refused
        is_foreign = headers.get("sec-fetch-site") not in (None, "same-origin", "none")
        if is_foreign and method in takes and method not in _READING:
            return refusal(
                request, 403, "Pages of other sites may not send anything to this server."
            )
        if method not in takes:
            allow = {"allow": ", ".join(takes)}
            return refusal(request, 405, "This server only shows; it takes GET and HEAD.", allow)
        if len(request.scope["raw_path"]) + len(request.scope["query_string"]) > LONGEST_TARGET:
            return refusal(request, 414, "The address is too long.")
        has_content = is_chunked or bool((length or "").strip("0"))
        if has_content and method in _READING:
            return refusal(request, 413, "This server takes no content.")
        return None

    def _check_site(self, request: Request) -> Response | None:
        """Return the refusal of a request under another name, or from a page of another site."""
        headers = request.headers
        if not self._access.knows_host(headers.get("host", "")):
            words = "This server does not answer under that name; open the address that it printed."
            return refusal(request, 421, words)
        is_cross_site = headers.get("sec-fetch-site") == "cross-site"
        # A link on another site may lead here, but no page there may read an answer.
        is_embedded = is_cross_site and headers.get("sec-fetch-mode") != "navigate"
        origins = headers.getlist("origin")
        if is_embedded or not all(self._access.knows_origin(origin) for origin in origins):
            return refusal(request, 403, "Pages of other sites may not ask this server.")
        return None

    def _check_token(self, request: Request) -> Response | None:
        """Return the answer to a request without the token that it needs, None for other requests."""
        access = self._access
        bearers = bearer_tokens(request)
        reads = (
            access.token is None
            or _is_among(access.token, bearers)
            or access.knows_pass(request.cookies.get(_COOKIE, ""))
        )
        request.state.reads = reads
        if reads or request.method == "POST":  # the routes of submissions check their own token
            return None
        path = request.scope["path"]
        is_submission = path.startswith("/submission/") or path in (
            SUBMISSIONS,
            f"{SUBMISSIONS}.json",
        )
        if is_submission and access.submit and _is_among(access.submit, bearers):
            return None
        if _is_among(access.token or "", request.query_params.getlist("token")):
            return self._enter(request)
        words = (
            "This board needs its token: add ?token=TOKEN to the address once, or send "
            "Authorization: Bearer TOKEN."
        )
        return refusal(request, 401, words, {**AUTHENTICATE, "cache-control": "no-store"})

    def _enter(self, request: Request) -> Response:
        """Remember the reader with the token by a cookie, and go on to the address without the
        token.
        """
        # By a page and not by a redirect: a browser that comes from another site keeps the cookie
        # back on a redirect.
        from starlette.responses import HTMLResponse

        pairs = [pair for pair in request.query_params.multi_items() if pair[0] != "token"]
        path = request.scope["raw_path"].decode("latin-1").lstrip("/\\")
        address = f"/{path}"
        if pairs:
            address += f"?{urlencode(pairs)}"
        address = escape(address)
        page = (
            f'<!doctype html><title>Board</title><meta http-equiv="refresh" content="0;url={address}">'
            f'<p><a href="{address}">To the board</a></p>'
        )
        response = HTMLResponse(page, 200, {"cache-control": "no-store"})
        response.set_cookie(
            _COOKIE, self._access.pass_word, httponly=True, samesite="strict", path="/"
        )
        return response


def _is_among(token: str, candidates: Iterable[str]) -> bool:
    return any(same_token(candidate, token) for candidate in candidates)


AUTHENTICATE = {"www-authenticate": 'Bearer realm="choicewise"'}
"""The header of an answer that a token is missing."""


def refusal(
    request: Request,
    status: int,
    words: str,
    headers: Mapping[str, str] | None = None,
    json: bool = False,
) -> Response:
    """Return an answer in words; ``{"error": words}`` if ``json``, or if a program accepts JSON."""
    from starlette.responses import JSONResponse, PlainTextResponse

    if json or accepts_json(request):
        return JSONResponse({"error": words}, status, headers)
    return PlainTextResponse(f"{words}\n", status, headers)


def accepts_json(request: Request) -> bool:
    """Check that a header wants JSON."""
    accepted = request.headers.get("accept", "")
    return "application/json" in accepted and "text/html" not in accepted


def bearer_tokens(request: Request) -> list[str]:
    """Return the tokens in ``Authorization`` headers."""
    tokens = []
    for value in request.headers.getlist("authorization"):
        scheme, _, token = value.partition(" ")
        if scheme.lower() == "bearer":
            tokens.append(token.strip())
    return tokens


VARIABLE = "CHOICEWISE_TOKEN"
SUBMIT = "CHOICEWISE_SUBMIT_TOKEN"
"""The variables that hold the tokens if no file does."""


def read_token(file: Path | None, variable: str = VARIABLE) -> str | None:
    """Return the token in ``file``, else in the environment's ``variable``; None if there is none.

    Raises UsageError for a file that can't be read, and for a token that is too short or no line of
    plain characters; its message does not tell the token.
    """
    if file is None:
        where = f"the variable {variable}"
        token = os.environ.get(variable)
        if token is None:
            return None
    else:
        where = str(file)
        try:
            token = read_text(file, 10_000).strip()
        except OSError as error:
            raise UsageError(f"{file} can't be read: {error.strerror}") from error
        except ValueError as error:
            raise UsageError(f"{file} is no text") from error
    # Anybody who reaches the server can try tokens as fast as it answers.
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
    """Return the token in ``file``, a random one if there is no file, and whether it is new.

    Only whoever runs the board can read the file. Raises UsageError for a file that others can
    read.
    """
    if os.path.lexists(file):
        mode = file.lstat().st_mode
        if not stat.S_ISREG(mode) or mode & 0o077:
            raise UsageError(
                f"{file} can be read or replaced by others; delete it, and a new token is made"
            )
        token = read_token(file)
        assert token is not None
        return token, False
    token = secrets.token_urlsafe(24)
    with disk_errors(file):
        # Created with its rights, so that nobody reads it between making and protecting it.
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
    """Hold who may read a board, and who may submit.

    ``hosts``: the names, in lower case, by which the server may be called. ``anywhere``: any IP
    address as well, which no foreign page can take for its own. ``token``: that of readers, None if
    everybody may read. ``submit``: that of submitters, None if nobody submits.
    """

    hosts: frozenset[str]
    anywhere: bool = False
    token: str | None = field(default=None, repr=False)
    submit: str | None = field(default=None, repr=False)

    def knows_host(self, header: str) -> bool:
        """Check that a ``Host`` header names this server."""
        name = host_name(header)
        if name is None:
            return False
        return name in self.hosts or (self.anywhere and _ip_address(name) is not None)

    def knows_origin(self, header: str) -> bool:
        """Check that an ``Origin`` header is this server's own."""
        scheme, separator, host = header.partition("://")
        return bool(separator) and scheme in ("http", "https") and self.knows_host(host)

    @property
    def pass_word(self) -> str:
        """Return what a browser keeps instead of the token, which does not follow from it."""
        key = (self.token or "").encode()
        return hmac.new(key, b"a reader of the board", hashlib.sha256).hexdigest()

    def knows_pass(self, cookie: str) -> bool:
        """Check that a browser's cookie is of this token."""
        return self.token is not None and same_token(cookie, self.pass_word)


def access(
    host: str, names: Iterable[str] = (), token: str | None = None, submit: str | None = None
) -> Access:
    """Return the access to a server that listens on ``host`` and is called by further ``names`` as
    well.
    """
    bound = host.lower().strip("[]")
    hosts = {*_LOOPBACK, bound}
    hosts.update(name.lower() for name in names)
    anywhere = bound in ("0.0.0.0", "::")
    if anywhere:
        hosts.update([socket.gethostname().lower(), socket.getfqdn().lower()])
    return Access(frozenset(hosts), anywhere, token, submit)


def same_token(candidate: str, token: str) -> bool:
    """Check that ``candidate`` is the ``token``, in a time that does not tell how much of it is
    right.
    """
    # The digests have one length, as the comparison takes as long as its arguments are.
    return hmac.compare_digest(_digest(candidate), _digest(token))


def is_loopback(host: str) -> bool:
    """Check that only this machine reaches a server that listens on ``host``."""
    if host.lower() == "localhost":
        return True
    address = _ip_address(host.strip("[]"))
    return address is not None and address.is_loopback


def host_name(header: str) -> str | None:
    """Return the host in a ``Host`` header, in lower case, without port and brackets; None if it is
    no host.
    """
    parts = _HOST.fullmatch(header)
    if parts is None:
        return None
    return parts[1].strip("[]").lower().removesuffix(".")


def _ip_address(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(name)
    except ValueError:
        return None


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode(errors="surrogatepass")).digest()
