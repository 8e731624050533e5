"""Starlette application and server."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import socket
import sys
from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import replace
from functools import partial
from html import unescape
from http import HTTPStatus
from threading import Thread
from typing import TYPE_CHECKING, Any, cast

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from choicewise.board.access import Access
from choicewise.board.library import Library, Shelf
from choicewise.board.model import MEDIA, Artefact, ListedRun, State, View, chosen_columns, known_view, read_view
from choicewise.board.pages import (
    Served,
    as_json,
    board_csv,
    board_page,
    board_record,
    item_page,
    item_record,
    model_name,
    model_page,
    model_record,
    part_of,
    protocol_page,
    protocol_record,
    run_page,
    run_record,
    sheet,
    shown_item,
)
from choicewise.board.run_documents import RunProcesses, strip_style
from choicewise.errors import ChoicewiseError, UsageError
from choicewise.page.embed import static_text
from choicewise.results.explain import Explanation
from choicewise.util.background import Busy, Threads
from choicewise.util.cache import Answers

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.types import ASGIApp

    from choicewise.board.submission_routes import Submissions


PORT = 8470
"""The port that is taken where nobody asks for one; another one where it is in use."""

GRACE = 3
"""Seconds that answers which are being given at the end may take."""


def listen(host: str, port: int | None) -> socket.socket:
    """A socket that listens on ``host`` at ``port``; None: at :data:`PORT`, or at a free one where that is in use.

    Raises UsageError for a host that is not this machine's, or a port that is in use.
    """
    name = host.strip("[]")
    family = socket.AF_INET6 if ":" in name else socket.AF_INET
    for chosen in (PORT, 0) if port is None else (port,):
        try:
            return socket.create_server((name, chosen), family=family, backlog=128)
        except PermissionError as error:
            raise UsageError(f"port {chosen} may not be used ({error.strerror}); choose one above 1023") from error
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise UsageError(f"{host} is no address of this machine to listen on") from error
    raise UsageError(f"port {port} is in use; choose another one, or none and a free one is taken")


def address(bound: socket.socket) -> str:
    """The address to open in a browser."""
    host, port, *_ = bound.getsockname()
    name = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{name}]:{port}/" if ":" in name else f"http://{name}:{port}/"


class BoardServer:
    """The board of a library on a socket, answered by a thread of its own; with ``submissions`` it evaluates."""

    def __init__(
        self,
        library: Library,
        access: Access,
        bound: socket.socket,
        tell: Callable[[str], None],
        submissions: Submissions | None = None,
    ) -> None:
        import uvicorn

        from choicewise.board.access import Guard

        self._library, self._socket, self._submissions = library, bound, submissions
        self._site = Site(library, submissions)
        doors = () if submissions is None else submissions.doors
        application: Any = Guard(self._site.application(), access, tell, doors)
        settings: dict[str, Any] = {"http": Connection, "ws": "none", "lifespan": "off", "loop": "asyncio"}
        # No log of uvicorn's: paths may hold what a terminal would obey.
        settings |= {"log_config": None, "log_level": "critical", "access_log": False, "server_header": False}
        settings |= {"proxy_headers": False, "h11_max_incomplete_event_size": LONGEST, "timeout_keep_alive": 5}
        settings |= {"timeout_graceful_shutdown": GRACE}
        self._server = uvicorn.Server(uvicorn.Config(application, **settings))
        self._thread = Thread(target=self._server.run, args=([bound],), name="server", daemon=True)

    def start(self) -> None:
        """Begin to read and to answer."""
        self._library.start()
        self._thread.start()

    def wait(self) -> None:
        """Until the server ends, which it does not by itself."""
        while self._thread.is_alive():
            self._thread.join(1.0)

    def stop(self) -> None:
        """Take nothing more, answer what is being answered within :data:`GRACE` seconds, and end all that was begun."""
        self._server.should_exit = True
        self._thread.join(GRACE + 1)
        self._library.stop()
        self._site.stop()  # which ends answers that take longer
        self._thread.join(GRACE)
        if self._submissions is not None:
            self._submissions.close()


LOOKS = ("page.css", "board.css")
PATIENCE = 1.5
"""Seconds that a request waits for the document of a run that is being made."""

CHART_PATIENCE = 20.0
"""The same for a chart, which a browser asks for apart from the page."""

PROCESSES = 2
"""Processes that make something of runs at once."""

WAITING = 32
"""Things that wait for one of them, or for one of the threads that make pages; further ones are refused."""

RETRY = "5"
"""Seconds after which who was refused may ask again."""

FOREVER = "private, max-age=31536000, immutable"
"""How long to keep what its address names by its content."""


class Site:
    """The pages of a library, and of ``submissions`` where models can be submitted.

    What is kept is answered at once.  The rest is made by threads: one for the board as it is first seen, some for the
    other pages, and some for what processes make of runs, so that what is slow keeps nobody from what is fast.
    """

    def __init__(self, library: Library, submissions: Submissions | None = None) -> None:
        self._library, self._submissions = library, submissions
        self._looks = {name: static_text(name).encode() for name in LOOKS}
        looks = {name: f"{_digest(text)}-{name}" for name, text in self._looks.items()}
        self._links = Served(looks, submissions="" if submissions is None else submissions.address)
        self._answers, self._runs = Answers(), RunProcesses(PROCESSES)
        self._first, self._pages, self._slow = Threads(1, WAITING), Threads(2, WAITING), Threads(PROCESSES, WAITING)

    def application(self) -> ASGIApp:
        """The routes, without any guard."""
        from starlette.applications import Starlette
        from starlette.exceptions import HTTPException
        from starlette.responses import PlainTextResponse
        from starlette.routing import Route

        def refused(request: Request, error: Exception) -> Response:
            assert isinstance(error, HTTPException)
            return PlainTextResponse(f"{error.detail}\n", error.status_code, error.headers)

        def busy(request: Request, error: Exception) -> Response:
            words = "The board is busy; ask again in some seconds.\n"
            return PlainTextResponse(words, 503, {"retry-after": RETRY, "cache-control": "no-store"})

        pages = {
            "/": self._board,
            "/board.json": self._board,
            "/board.csv": self._csv,
            "/model/{name}": self._model,
            "/run/{name}": self._run,
            "/strip/{name}": self._strip,
            "/protocol/{name}": self._protocol,
            "/item/{name}": self._item,
            "/artefact/{name}": self._artefact,
            "/look/{name}": self._look,
        }
        routes = [Route(path, handler, methods=["GET"]) for path, handler in pages.items()]
        if self._submissions is not None:
            routes += self._submissions.routes(self._library, self._links)
        return Starlette(routes=routes, exception_handlers={HTTPException: refused, Busy: busy})

    def stop(self) -> None:
        """Make nothing more of runs."""
        self._runs.close()

    async def _board(self, request: Request) -> Response:
        if request.url.path.endswith(".json") or _wants_json(request):
            return await self._view(request, "json", lambda shelf, view: as_json(board_record(shelf, view)))
        return await self._view(request, "html", lambda shelf, view: board_page(shelf, view, self._links))

    async def _csv(self, request: Request) -> Response:
        response = await self._view(request, "csv", board_csv)
        response.headers["content-disposition"] = 'attachment; filename="board.csv"'
        return response

    async def _view(self, request: Request, kind: str, make: Callable[[Shelf, View], str]) -> Response:
        """The board as the query says; kept where it says nothing but what the board has."""
        shelf = self._library.shelf
        view, known = known_view(shelf.board, read_view(request.query_params.multi_items()))

        def made() -> str:
            self._library.want([column.id for column in chosen_columns(shelf.board, view)])
            return make(shelf, view)

        threads = self._first if view == View() else self._pages
        return await self._answer(request, kind, (shelf.number, "board", view), threads, made, known)

    async def _model(self, request: Request) -> Response:
        name, json = _name(request)
        shelf = self._library.shelf

        def made() -> str:
            model = model_name(shelf, name)
            if model is None:
                raise _absent("No model has that address; it may have gone with its run.")
            return as_json(model_record(shelf, model)) if json else model_page(shelf, model, self._links)

        return await self._page(request, json, (shelf.number, "model", name), made)

    async def _protocol(self, request: Request) -> Response:
        name, json = _name(request)
        shelf = self._library.shelf

        def made() -> str:
            asked = sheet(shelf, name)
            if asked is None:
                raise _absent("No run was asked under that protocol.")
            self._library.want([column.id for column in asked.columns])
            return as_json(protocol_record(shelf, asked)) if json else protocol_page(shelf, asked, self._links)

        return await self._page(request, json, (shelf.number, "protocol", name), made)

    async def _run(self, request: Request) -> Response:
        name, json = _name(request)
        shelf = self._library.shelf
        run = shelf.run(name)
        if run is None:
            raise _absent("No run has that address; its folder may have gone.")
        if run.state is State.READ and not json:
            return await self._document(request, shelf, run)

        def made() -> str:
            record = {**run_record(run), "rows": [row.as_json() for row in run.rows]}
            return as_json(record) if json else run_page(shelf, run, self._links)

        return await self._page(request, json, (shelf.number, "run", name), made)

    async def _document(self, request: Request, shelf: Shelf, run: ListedRun) -> Response:
        """The document of a complete run, under its own policy; while it is being made a page that asks again."""
        try:
            made = await self._drawn("document", run, PATIENCE)
        except ChoicewiseError as error:
            return await self._told(request, shelf, run, f"its page can't be made: {error}")
        if made is None:
            words = "its page is being made and appears here by itself in a moment"
            response = await self._told(request, shelf, run, words)
            response.headers["refresh"] = "2"
            response.headers["cache-control"] = "no-store"
            return response
        response = _answered(request, made, "html")
        policy = f"{_own_policy(made.decode('utf-8', 'replace'))}; frame-ancestors 'none'"
        response.headers["content-security-policy"] = policy
        return response

    async def _told(self, request: Request, shelf: Shelf, run: ListedRun, words: str) -> Response:
        told = replace(run, reason=words)
        key = shelf.number, "run", run.id, words
        return await self._page(request, False, key, lambda: run_page(shelf, told, self._links))

    async def _drawn(self, kind: str, run: ListedRun, wait: float) -> bytes | None:
        """What a process draws of a run; None where that takes longer."""
        board = self._links.board(View())

        def made() -> bytes:
            return self._runs.use(run, lambda process: process.draw(kind, run, board)).encode(
                "utf-8", "backslashreplace"
            )

        return await self._answers.get((kind, run.id, run.version), self._slow, made, wait)

    async def _strip(self, request: Request) -> Response:
        run = self._library.shelf.run(request.path_params["name"].removesuffix(".svg"))
        if run is None or run.state is not State.READ:
            raise _absent("No run with numbers has that address.")
        try:
            made = await self._drawn("strip", run, CHART_PATIENCE)
        except ChoicewiseError as error:
            raise _absent(f"The chart can't be drawn: {error}") from error
        if made is None:
            raise Busy
        digest = b64encode(hashlib.sha256(strip_style().encode()).digest()).decode()
        headers = {
            "content-security-policy": f"default-src 'none'; style-src 'sha256-{digest}'; frame-ancestors 'none'"
        }
        return _response(made, "image/svg+xml", headers)

    async def _item(self, request: Request) -> Response:
        name, json = _name(request)
        shelf, pairs = self._library.shelf, request.query_params
        part, item = part_of(shelf, name), pairs.get("id", "")
        if part is None:
            raise _absent("No run measured that part of the data.")
        asked = read_view(pairs.multi_items())
        view, known = known_view(shelf.board, replace(asked, data=(), doubt="", sort="", order=""))
        run = shelf.run(pairs.get("run", ""))
        run_id = "" if run is None else run.id

        def explained(run: ListedRun, item: str) -> Explanation:
            return self._runs.use(run, lambda process: process.explain(run, item))

        def made() -> str:
            try:
                shown = shown_item(self._library, part, item, run_id, view, explained)
            except UsageError:
                shown = None
            except ChoicewiseError as error:
                raise _absent(f"The item can't be read: {error}") from error
            if shown is None:
                raise _absent("No run has that item.")
            return as_json(item_record(shown)) if json else item_page(shelf, shown, self._links, view)

        key = shelf.number, "item", name, item, run_id, view
        return await self._answer(request, "json" if json else "html", key, self._slow, made, known)

    async def _artefact(self, request: Request) -> Response:
        name = request.path_params["name"]
        for run in self._library.shelf.board.runs:
            for artefact in run.artefacts:
                if artefact.name == name:
                    content = await self._answers.get(
                        ("artefact", name), self._slow, partial(self._content, run, artefact)
                    )
                    assert content is not None
                    return _file(content, artefact.ending, f"{run.id}-{artefact.file}")
        raise _absent("No run has a file of that content (any more).")

    def _content(self, run: ListedRun, artefact: Artefact) -> bytes:
        try:
            content = self._runs.use(run, lambda process: process.artefact(run, artefact))
        except ChoicewiseError as error:
            raise _absent(f"The file can't be read: {error}") from error
        if content is None or hashlib.sha256(content).hexdigest() != artefact.digest:
            raise _absent("No run has a file of that content (any more).")
        return content

    async def _look(self, request: Request) -> Response:
        for name, content in self._looks.items():
            if self._links.looks[name] == request.path_params["name"]:
                return _response(content, "text/css; charset=utf-8", {"cache-control": FOREVER})
        raise _absent("There is no such file.")

    async def _page(self, request: Request, json: bool, key: tuple[Hashable, ...], make: Callable[[], str]) -> Response:
        return await self._answer(request, "json" if json else "html", key, self._pages, make)

    async def _answer(
        self,
        request: Request,
        kind: str,
        key: tuple[Hashable, ...],
        threads: Threads,
        make: Callable[[], str],
        keep: bool = True,
    ) -> Response:
        """The answer of that kind, which one of the ``threads`` makes where it is not kept."""
        body = await self._answers.get(
            (kind, *key), threads, lambda: make().encode("utf-8", "backslashreplace"), keep=keep
        )
        assert body is not None
        return _answered(request, body, kind)


def _answered(request: Request, body: bytes, kind: str) -> Response:
    """The answer, or 304 where it is known."""
    media = {"html": "text/html", "json": "application/json", "csv": "text/csv"}[kind]
    tag = f'"{_digest(body)}"'
    headers = {"etag": tag, "vary": "Accept, Cookie, Authorization"}
    if tag in request.headers.get("if-none-match", ""):
        return _response(b"", None, headers, 304)
    return _response(body, f"{media}; charset=utf-8", headers)


def _own_policy(page: str) -> str:
    """The policy that a document says it needs: hashes of its own scripts and style."""
    return unescape(page.partition('http-equiv="Content-Security-Policy" content="')[2].partition('"')[0])


def _name(request: Request) -> tuple[str, bool]:
    """The name that the address ends in, and whether JSON is wanted."""
    name: str = request.path_params["name"]
    return name.removesuffix(".json"), name.endswith(".json") or _wants_json(request)


def _wants_json(request: Request) -> bool:
    accepted = request.headers.get("accept", "")
    return "application/json" in accepted and "text/html" not in accepted


def _file(content: bytes, ending: str, name: str) -> Response:
    disposition = f'attachment; filename="{name}"'
    return _response(content, MEDIA[ending], {"cache-control": FOREVER, "content-disposition": disposition})


def _response(content: bytes, media: str | None, headers: dict[str, str], status: int = 200) -> Response:
    from starlette.responses import Response

    return Response(content, status, headers, media)


def _absent(words: str) -> Exception:
    from starlette.exceptions import HTTPException

    return HTTPException(404, words)


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:24]


REQUEST_SECONDS = 10.0
"""For a whole request line with its headers, from the first byte of it or from the start of the connection."""

ANSWER_SECONDS = 120.0
"""For an answer to be made and taken."""

CONTENT_SECONDS = 30.0
"""For each further :data:`CONTENT_BYTES` of what a request brings to arrive, and for its end."""

CONTENT_BYTES = 1_000_000

MOST = 200
"""Connections at once."""

EACH = 64
"""Connections at once from one address; behind a proxy all readers have its address."""

LONGEST = 16384
"""Bytes of a request line with its headers."""


class Connection(H11Protocol):
    """HTTP/1.1 as uvicorn speaks it, with deadlines."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._deadline: asyncio.TimerHandle | None = None
        self._coming, self._arrived = False, 0  # whether content comes, and bytes of it since the deadline was put off
        self._idle_since = self.loop.time()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to wait for a request, or hang up where there are too many connections and all are being answered."""
        super().connection_made(transport)  # type: ignore[arg-type]
        # An answer leaves in two pieces; the second one must not wait 40 ms for the reader's word on the first.
        self.transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._expect(REQUEST_SECONDS)
        self._make_room()

    def data_received(self, data: bytes) -> None:
        """Take what came; the deadline changes only with whole requests, and with every so much of their content."""
        waiting = self.cycle is None or self.cycle.response_complete
        if waiting and self._deadline is None:
            self._expect(REQUEST_SECONDS)
        super().data_received(data)
        if self.cycle is None or self.cycle.response_complete:
            return
        coming = self.conn.their_state is h11.SEND_BODY
        if waiting:
            self._arrived = 0
            self._expect(CONTENT_SECONDS if coming else ANSWER_SECONDS)
        elif coming:
            self._arrived += len(data)
            if self._arrived >= CONTENT_BYTES:
                self._arrived = 0
                self._expect(CONTENT_SECONDS)
        elif self._coming:
            self._expect(ANSWER_SECONDS)
        self._coming = coming

    def on_response_complete(self) -> None:
        """The answer is made; it has its time to be taken, as has the next one where that was asked for already."""
        self._expect(None)
        self._idle_since = self.loop.time()
        super().on_response_complete()
        if self.transport.get_write_buffer_size() or not self.cycle.response_complete:
            self._expect(ANSWER_SECONDS)

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing is expected any more."""
        self._expect(None)
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """Say what was wrong with a request that is no HTTP, or too long, and hang up."""
        error = sys.exc_info()[1]
        status = HTTPStatus(getattr(error, "error_status_hint", 400))
        body = f"{status.phrase}.\n".encode()
        headers = [("content-type", "text/plain"), ("content-length", str(len(body))), ("connection", "close")]
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            for event in (h11.Response(status_code=status, headers=headers), h11.Data(data=body), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    @property
    def address(self) -> str:
        """Of the other side."""
        return self.client[0] if self.client else ""

    @property
    def idle(self) -> bool:
        """Whether no request is here in full that is still to be answered."""
        answered = self.cycle is None or self.cycle.response_complete
        return answered and not self.transport.get_write_buffer_size()

    def _make_room(self) -> None:
        """Hang up on one connection where there are too many: on the one that is idle for the longest, of the address
        that has the most of them; on this one where none is idle.

        So requests that are never sent to their end are what gives way, and not those that others send.
        """
        connections = cast("set[Connection]", self.connections)
        counts = Counter(each.address for each in connections)
        own = counts[self.address] > EACH
        if not own and len(connections) <= MOST:
            return
        among = [each for each in connections if each.idle and (each.address == self.address or not own)]
        others = (each for each in among if each is not self)
        given = max(others, key=lambda each: (counts[each.address], -each._idle_since), default=self)
        given._expect(None)
        given.transport.abort()
        connections.discard(given)  # asyncio does so only after what else came in by now

    def _expect(self, seconds: float | None) -> None:
        """Hang up after so many seconds; None: don't."""
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = None if seconds is None else self.loop.call_later(seconds, self.transport.abort)
