"""Serve a board over HTTP, as an application of Starlette."""

from __future__ import annotations

import errno
import hashlib
import socket
from base64 import b64encode
from collections.abc import Callable, Hashable
from dataclasses import replace
from functools import partial
from html import unescape
from threading import Thread
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from choicewise.errors import ChoicewiseError, UsageError
from choicewise.extensions.board.access import (
    HEADERS,
    SUBMISSIONS,
    Access,
    AccessMiddleware,
    accepts_json,
    refusal,
)
from choicewise.extensions.board.answers import Answers, Busy, Threads
from choicewise.extensions.board.connections import BUSY, RETRY, BoardConnection
from choicewise.extensions.board.headlines import headlines, headlines_record
from choicewise.extensions.board.library import Library
from choicewise.extensions.board.model import Artefact, ListedRun, Snapshot, State
from choicewise.extensions.board.pages import (
    Links,
    Strips,
    board_page,
    item_page,
    model_page,
    protocol_page,
    run_page,
    static_file,
)
from choicewise.extensions.board.queue import SubmissionService
from choicewise.extensions.board.records import (
    ItemChoices,
    View,
    as_json,
    asked_protocol,
    board_csv,
    board_record,
    chosen_columns,
    item_record,
    known_view,
    measured,
    model_name,
    model_record,
    part_of,
    protocol_record,
    read_view,
    run_record,
    shown_item,
)
from choicewise.extensions.board.runs import MEDIA, RunProcesses, strip_style
from choicewise.extensions.board.submission_routes import SubmissionRoutes
from choicewise.results.explain import Explanation

PORT = 8470
"""The port if nobody names one; another one if it is in use."""

LONGEST = 16384
"""Bytes of a request line with its headers."""

GRACE = 3
"""Seconds that answers which are being given at the end may take."""


def listen(host: str, port: int | None) -> socket.socket:
    """Return a socket that listens on ``host`` at ``port``; None: at :data:`PORT`, or at a free one
    if that is in use.

    Raises UsageError for a host that is not this machine's, or a port that is in use.
    """
    name = host.strip("[]")
    family = socket.AF_INET
    if ":" in name:
        family = socket.AF_INET6
    ports = [PORT, 0]
    if port is not None:
        ports = [port]
    for chosen in ports:
        try:
            bound = socket.create_server((name, chosen), family=family, backlog=128)
            # An answer leaves in two pieces; the second one must not wait 40 ms for the reader's
            # word on the first.
            bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return bound
        except PermissionError as error:
            raise UsageError(
                f"port {chosen} may not be used ({error.strerror}); choose one above 1023"
            ) from error
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise UsageError(f"{host} is no address of this machine to listen on") from error
    raise UsageError(f"port {port} is in use; choose another one, or none and a free one is taken")


def address(bound: socket.socket) -> str:
    """Return the address to open in a browser."""
    host, port, *_ = bound.getsockname()
    name = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    if ":" in name:
        name = f"[{name}]"
    return f"http://{name}:{port}/"


class BoardServer:
    """Answer on a socket by a thread, with the board of a library; with ``service`` it takes
    submissions.
    """

    def __init__(
        self,
        library: Library,
        access: Access,
        bound: socket.socket,
        tell: Callable[[str], None],
        service: SubmissionService | None = None,
    ) -> None:
        self._library = library
        self._service = service
        self._site = Site(library, access, tell, service)
        # No log of uvicorn's: paths may hold what a terminal would obey.
        config = uvicorn.Config(
            self._site.application(),
            log_config=None,
            log_level="critical",
            access_log=False,
            http=BoardConnection,
            ws="none",
            lifespan="off",
            loop="asyncio",
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=5,
            timeout_graceful_shutdown=GRACE,
            h11_max_incomplete_event_size=LONGEST,
        )
        self._server = uvicorn.Server(config)
        self._thread = Thread(target=self._server.run, args=([bound],), name="server", daemon=True)

    def start(self) -> None:
        """Begin to read and to answer."""
        self._library.start()
        self._thread.start()

    def wait(self) -> None:
        """Wait until the server ends, which it does not by itself."""
        while self._thread.is_alive():
            self._thread.join(1.0)

    def stop(self) -> None:
        """Take nothing more, answer what is being answered within :data:`GRACE` seconds, and end
        all that was begun.
        """
        self._server.should_exit = True
        self._thread.join(GRACE + 1)
        self._library.stop()
        self._site.stop()  # which ends answers that take longer
        self._thread.join(GRACE)
        if self._service is not None:
            self._service.close()


LOOKS = ("page.css", "board.css")
PATIENCE = 1.5
"""Seconds that a request waits for the document of a run that is being made, or for ranges of
ranks.
"""

STRIPS = 3
"""Charts of runs on one part of the data that the page of a model has."""

CHART_PATIENCE = 20.0
"""Seconds that a request waits for a chart, which a browser loads apart from the page."""

PROCESSES = 2
"""Processes that make something of runs at once."""

WAITING = 32
"""Things that wait for one of them, or for one of the threads that make pages; further ones are
refused.
"""

FOREVER = "private, max-age=31536000, immutable"
"""How long to keep what its address names by its content."""


class Site:
    """Answer requests for the pages of a library, and of submissions if there is a ``service`` for
    them.
    """

    # What is kept is answered at once. Threads make the other answers: one the board as it is first
    # seen, some the other pages, and some what processes make of runs, so that what is slow keeps
    # nobody from what is fast.

    def __init__(
        self,
        library: Library,
        access: Access,
        tell: Callable[[str], None],
        service: SubmissionService | None = None,
    ) -> None:
        self._library = library
        self._access = access
        self._tell = tell
        self._looks: dict[str, bytes] = {}
        look_names = {}
        for file in LOOKS:
            content = static_file(file).encode()
            look_names[file] = f"{_digest(content)}-{file}"
            self._looks[look_names[file]] = content
        self._links = Links(look_names)
        self._submissions = None
        if service is not None:
            assert access.submit, "who submits needs a token"
            self._links = Links(look_names, submissions=SUBMISSIONS)
            self._submissions = SubmissionRoutes(service, library, self._links, access.submit, tell)
        self._answers = Answers()
        self._runs = RunProcesses(PROCESSES, library.metrics)
        self._first = Threads(1, WAITING)
        self._pages = Threads(2, WAITING)
        self._slow = Threads(PROCESSES, WAITING)

    def application(self) -> ASGIApp:
        """Return the routes, behind the rules of access."""

        def refused(request: Request, error: Exception) -> Response:
            assert isinstance(error, HTTPException)
            return refusal(request, error.status_code, error.detail, error.headers)

        def busy(request: Request, error: Exception) -> Response:
            headers = {"retry-after": RETRY, "cache-control": "no-store"}
            return refusal(request, 503, BUSY, headers)

        def failed(request: Request, error: Exception) -> Response:
            self._tell(
                f"error while answering {request.scope['path']}: {type(error).__name__}: {error}"
            )
            words = "Something went wrong here; whoever runs this server can see what."
            return refusal(request, 500, words, {**HEADERS, "connection": "close"})

        def gone(request: Request, error: Exception) -> Response:
            return Response(status_code=400)  # nobody hears it

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
        handlers: dict[Any, Any] = {
            HTTPException: refused,
            Busy: busy,
            ClientDisconnect: gone,
            Exception: failed,
        }
        if self._submissions is not None:
            routes += self._submissions.routes()
            handlers[ChoicewiseError] = self._submissions.refused
        middleware = [Middleware(AccessMiddleware, access=self._access)]
        return Starlette(routes=routes, exception_handlers=handlers, middleware=middleware)

    def stop(self) -> None:
        """Make nothing more of runs."""
        self._runs.close()

    async def _board(self, request: Request) -> Response:
        if request.url.path.endswith(".json") or accepts_json(request):
            return await self._view(request, "json", _board_json)
        return await self._view(request, "html", partial(board_page, links=self._links))

    async def _csv(self, request: Request) -> Response:
        response = await self._view(request, "csv", board_csv)
        response.headers["content-disposition"] = 'attachment; filename="board.csv"'
        return response

    async def _view(
        self, request: Request, kind: str, make: Callable[[Snapshot, View], str]
    ) -> Response:
        """Return the board in the state of the query."""
        snapshot = self._library.snapshot
        # Answers are kept if the query says only what the board has: of these there are so many.
        view, keep = known_view(snapshot.board, read_view(request.query_params.multi_items()))
        threads = self._pages
        if view == View():
            threads = self._first
        with_means: Snapshot | None = snapshot
        if kind != "csv":
            with_means = await self._with_means(snapshot, view, threads, keep)

        def text() -> str:
            self._library.want([column.id for column in chosen_columns(snapshot.board, view)])
            return make(with_means or snapshot, view)

        key = (snapshot.number, "board", view, with_means is None)
        response = await self._answer(request, kind, key, threads, text, keep)
        if with_means is None and kind == "html":
            response.headers.update(_RELOAD)
        return response

    async def _with_means(
        self, snapshot: Snapshot, view: View, threads: Threads, keep: bool
    ) -> Snapshot | None:
        """Return the snapshot with the ranges of ranks by the mean that ``view`` shows; None while
        they are computed.

        ``keep``: whether the names of the columns are kept.
        """
        part = View(data=view.data, family=view.family, protocol=view.protocol)

        def measured() -> bytes:
            return " ".join(headlines(snapshot.board, part).measured).encode()

        key = (snapshot.number, "columns", part)
        names = await self._answers.get(key, threads, measured, keep=keep)
        assert names is not None
        columns = tuple(names.decode().split())
        # Those of a board that is still being read are left out, as they change with every run.
        if not columns or columns in snapshot.means or snapshot.waiting:
            return snapshot
        if part == View():
            return None  # whoever keeps the board up to date computes them first

        def computed() -> bytes:
            self._library.means.get(snapshot.board, columns)
            return b"there"

        key_of_means = (snapshot.number, "means", columns)
        try:
            computed_in_time = await self._answers.get(key_of_means, self._slow, computed, PATIENCE)
        except Busy:
            return None
        if computed_in_time is None:
            return None
        ranges = self._library.means.get(snapshot.board, columns)
        return replace(snapshot, means={**snapshot.means, columns: ranges})

    async def _model(self, request: Request) -> Response:
        name, json = _name(request)
        snapshot = self._library.snapshot
        model = model_name(snapshot, name)
        if model is None:
            raise HTTPException(404, "No model has that address; it may have gone with its run.")
        strips: Strips = {}
        if not json:
            strips = await self._strips(snapshot, model)

        def text() -> str:
            if json:
                return as_json(model_record(snapshot, model))
            return model_page(snapshot, model, self._links, strips)

        is_drawn = tuple(strip is not None for strip in strips.values())
        key = (snapshot.number, "model", name, is_drawn)
        response = await self._page(request, json, key, text)
        if not all(is_drawn):
            response.headers.update(_RELOAD)
        return response

    async def _strips(self, snapshot: Snapshot, model: str) -> Strips:
        """Return the charts of the page of a model as images inside the page, so that it comes
        whole.
        """
        runs: dict[ListedRun, None] = {}
        for part in measured(snapshot, model):
            with_rows = [run for run in part.runs if run.rows]
            runs |= dict.fromkeys(with_rows[:STRIPS])
        strips: dict[str, str | None] = {}
        for run in runs:
            if run.state is not State.READ:
                continue
            try:
                drawn = await self._drawn("strip", run, PATIENCE)
            except ChoicewiseError:
                continue  # the page of the run says why
            strips[run.id] = None
            if drawn is not None:
                strips[run.id] = f"data:image/svg+xml;base64,{b64encode(drawn).decode()}"
        return strips

    async def _protocol(self, request: Request) -> Response:
        name, json = _name(request)
        snapshot = self._library.snapshot

        def text() -> str:
            protocol = asked_protocol(snapshot, name)
            if protocol is None:
                raise HTTPException(404, "No run has that protocol.")
            self._library.want([column.id for column in protocol.columns])
            if json:
                return as_json(protocol_record(snapshot, protocol))
            return protocol_page(snapshot, protocol, self._links)

        return await self._page(request, json, (snapshot.number, "protocol", name), text)

    async def _run(self, request: Request) -> Response:
        name, json = _name(request)
        snapshot = self._library.snapshot
        run = snapshot.run(name)
        if run is None:
            raise HTTPException(404, "No run has that address; its folder may have gone.")
        # The page of a complete run is the document of `choicewise page`.
        if run.state is State.READ and not json:
            return await self._document(request, snapshot, run)

        def text() -> str:
            if json:
                return as_json({**run_record(run), "rows": [row.as_json() for row in run.rows]})
            return run_page(snapshot, run, self._links)

        return await self._page(request, json, (snapshot.number, "run", name), text)

    async def _document(self, request: Request, snapshot: Snapshot, run: ListedRun) -> Response:
        """Return the document of a complete run, or while it is being made a page that is loaded
        again.
        """
        reason = "its page is being made and appears here by itself in a moment"
        headers = _RELOAD
        try:
            drawn = await self._drawn("document", run, PATIENCE)
        except ChoicewiseError as error:
            drawn = None
            reason = f"its page can't be made: {error}"
            headers = {}
        if drawn is None:
            with_reason = replace(run, reason=reason)

            def text() -> str:
                return run_page(snapshot, with_reason, self._links)

            key = (snapshot.number, "run", run.id, reason)
            response = await self._page(request, False, key, text)
            response.headers.update(headers)
            return response
        # The document says which policy it needs: hashes of its scripts and style.
        html = drawn.decode("utf-8", "replace")
        policy = html.partition('http-equiv="Content-Security-Policy" content="')[2].partition('"')[
            0
        ]
        response = _answered(request, drawn, "html")
        response.headers["content-security-policy"] = f"{unescape(policy)}; frame-ancestors 'none'"
        return response

    async def _drawn(self, kind: str, run: ListedRun, wait: float) -> bytes | None:
        """Return what a process draws of a run; None if that takes longer than ``wait`` seconds."""
        board = self._links.board(View())

        def drawn() -> bytes:
            text = self._runs.use(run, lambda process: process.draw(kind, run, board))
            return text.encode("utf-8", "backslashreplace")

        return await self._answers.get((kind, run.id, run.version), self._slow, drawn, wait)

    async def _strip(self, request: Request) -> Response:
        run = self._library.snapshot.run(request.path_params["name"].removesuffix(".svg"))
        if run is None or run.state is not State.READ:
            raise HTTPException(404, "No run with numbers has that address.")
        try:
            drawn = await self._drawn("strip", run, CHART_PATIENCE)
        except ChoicewiseError as error:
            raise HTTPException(404, f"The chart can't be drawn: {error}") from error
        if drawn is None:
            raise Busy
        digest = b64encode(hashlib.sha256(strip_style().encode()).digest()).decode()
        policy = f"default-src 'none'; style-src 'sha256-{digest}'; frame-ancestors 'none'"
        return Response(drawn, 200, {"content-security-policy": policy}, "image/svg+xml")

    async def _item(self, request: Request) -> Response:
        name, json = _name(request)
        snapshot = self._library.snapshot
        query = request.query_params
        part = part_of(snapshot, name)
        if part is None:
            raise HTTPException(404, "No run measured that part of the data.")
        item = query.get("id", "")
        run_id = query.get("run", "")
        if snapshot.run(run_id) is None:
            run_id = ""
        columns_of_view = replace(
            read_view(query.multi_items()), data=(), warning="", sort="", order=""
        )
        view, keep = known_view(snapshot.board, columns_of_view)

        def explained(run: ListedRun, item: str) -> Explanation:
            return self._runs.use(run, lambda process: process.explain(run, item))

        def text() -> str:
            try:
                choices = ItemChoices(item, self._library.decisions.get)
                item_of_run = shown_item(snapshot, choices, explained, part, run_id, view)
            except UsageError:
                item_of_run = None
            except ChoicewiseError as error:
                raise HTTPException(404, f"The item can't be read: {error}") from error
            if item_of_run is None:
                raise HTTPException(404, "No run has that item.")
            if json:
                return as_json(item_record(item_of_run))
            return item_page(snapshot, item_of_run, self._links, view)

        key = snapshot.number, "item", name, item, run_id, view
        return await self._answer(request, _kind(json), key, self._slow, text, keep)

    async def _artefact(self, request: Request) -> Response:
        name = request.path_params["name"]
        for run in self._library.snapshot.board.runs:
            for artefact in run.artefacts:
                if artefact.name == name:
                    read = partial(self._content, run, artefact)
                    content = await self._answers.get(("artefact", name), self._slow, read)
                    assert content is not None
                    disposition = f'attachment; filename="{run.id}-{artefact.file}"'
                    # The address has the digest of the content, which therefore never changes.
                    headers = {"cache-control": FOREVER, "content-disposition": disposition}
                    return Response(content, 200, headers, MEDIA[artefact.ending])
        raise HTTPException(404, "No run has a file of that content (any more).")

    def _content(self, run: ListedRun, artefact: Artefact) -> bytes:
        try:
            content = self._runs.use(run, lambda process: process.artefact(run, artefact))
        except ChoicewiseError as error:
            raise HTTPException(404, f"The file can't be read: {error}") from error
        # The file may have changed since its digest was listed.
        if content is None or hashlib.sha256(content).hexdigest() != artefact.digest:
            raise HTTPException(404, "No run has a file of that content (any more).")
        return content

    async def _look(self, request: Request) -> Response:
        content = self._looks.get(request.path_params["name"])
        if content is None:
            raise HTTPException(404, "There is no such file.")
        return Response(content, 200, {"cache-control": FOREVER}, "text/css; charset=utf-8")

    async def _page(
        self, request: Request, json: bool, key: tuple[Hashable, ...], make: Callable[[], str]
    ) -> Response:
        return await self._answer(request, _kind(json), key, self._pages, make)

    async def _answer(
        self,
        request: Request,
        kind: str,
        key: tuple[Hashable, ...],
        threads: Threads,
        make: Callable[[], str],
        keep: bool = True,
    ) -> Response:
        """Return the answer of that kind, which one of the ``threads`` makes if it is not kept."""

        def encoded() -> bytes:
            return make().encode("utf-8", "backslashreplace")

        body = await self._answers.get((kind, *key), threads, encoded, keep=keep)
        assert body is not None
        return _answered(request, body, kind)


_RELOAD = {"refresh": "2", "cache-control": "no-store"}
"""Headers of a page that is loaded again in two seconds, when the rest of it is made."""

_MEDIA_TYPES = {"html": "text/html", "json": "application/json", "csv": "text/csv"}


def _kind(json: bool) -> str:
    return "json" if json else "html"


def _board_json(snapshot: Snapshot, view: View) -> str:
    return as_json(board_record(snapshot, view) | headlines_record(snapshot, view))


def _answered(request: Request, body: bytes, kind: str) -> Response:
    """Return the answer, or 304 if the reader has it."""
    tag = f'"{_digest(body)}"'
    headers = {"etag": tag, "vary": "Accept, Cookie, Authorization"}
    if tag in request.headers.get("if-none-match", ""):
        return Response(b"", 304, headers)
    return Response(body, 200, headers, f"{_MEDIA_TYPES[kind]}; charset=utf-8")


def _name(request: Request) -> tuple[str, bool]:
    """Return the name at the end of the address, and whether JSON is wanted."""
    name: str = request.path_params["name"]
    return name.removesuffix(".json"), name.endswith(".json") or accepts_json(request)


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:24]
