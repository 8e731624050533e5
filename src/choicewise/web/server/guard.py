"""What every request passes before anything is answered, and what every answer says about itself."""

from collections.abc import Callable, Sequence
from http.cookies import CookieError, SimpleCookie
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlencode

from choicewise.web.server.access import Access
from choicewise.web.server.door import Door, TooLarge

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
        self, application: "ASGIApp", access: Access, tell: Callable[[str], None], doors: Sequence[Door] = ()
    ) -> None:
        self._application, self._access, self._tell, self._doors = application, access, tell, doors

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        """Answer one request, or the server's start and end."""
        if scope["type"] == "lifespan":
            await self._application(scope, receive, send)
            return
        if scope["type"] != "http":
            return
        begun = False

        async def sent(message: "Message") -> None:
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

    def _refusal(self, scope: "Scope", door: Door | None) -> "ASGIApp | None":
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

    def _too_much(self, headers: dict[str, list[str]], door: Door | None) -> "ASGIApp | None":
        lengths = headers.get("content-length", [])
        if door is None or not door.largest:
            if "transfer-encoding" in headers or any(length.strip("0") for length in lengths):
                return _plain(413, "This server takes no content.")
        elif any(len(length) > 15 or int(length) > door.largest for length in lengths):
            return _plain(413, f"Here at most {door.largest:,} bytes are taken; send less.")
        return None

    def _by_token(self, scope: "Scope", headers: dict[str, list[str]], door: Door | None) -> "ASGIApp | None":
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

    def _without_token(self, scope: "Scope", headers: dict[str, list[str]]) -> "ASGIApp | None":
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

    def _let_in(self, scope: "Scope", query: str) -> "ASGIApp":
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


def _headers(scope: "Scope") -> dict[str, list[str]]:
    headers: dict[str, list[str]] = {}
    for name, value in scope["headers"]:
        headers.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1"))
    return headers


def bearers(headers: Sequence[str]) -> list[str]:
    """The tokens in ``Authorization`` headers."""
    schemes = (value.partition(" ") for value in headers)
    return [given.strip() for scheme, _, given in schemes if scheme.lower() == "bearer"]


def _bounded(receive: "Receive", door: Door | None) -> "Receive":
    """What is received, as long as it is no more than the door lets in."""
    if door is None:
        return receive
    left = door.largest

    async def received() -> "Message":
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


def _plain(status: int, words: str, headers: dict[str, str] | None = None) -> "ASGIApp":
    """An answer in words, after which the server hangs up: what the request may still send is not waited for.

    A program that asks for JSON gets ``{"error": words}``.
    """
    from starlette.responses import JSONResponse, PlainTextResponse

    further = {"connection": "close", **(headers or {})}

    async def answered(scope: "Scope", receive: "Receive", send: "Send") -> None:
        accepted = " ".join(_headers(scope).get("accept", []))
        machine = scope["path"].startswith("/work/") or ("application/json" in accepted and "text/html" not in accepted)
        answer = JSONResponse({"error": words}, status, further) if machine else None
        await (answer or PlainTextResponse(f"{words}\n", status, further))(scope, receive, send)

    return answered
