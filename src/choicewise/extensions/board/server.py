"""The board as an application of Starlette, and the server that answers by it."""

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
from choicewise.util.background import Busy, Threads
from choicewise.util.cache import Answers

PORT = 8470
"""The port that is taken where nobody asks for one; another one where it is in use."""

LONGEST = 16384
"""Bytes of a request line with its headers."""

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
            bound = socket.create_server((name, chosen), family=family, backlog=128)
            # An answer leaves in two pieces; the second one must not wait 40 ms for the reader's word on the first.
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
    """The address to open in a browser."""
    host, port, *_ = bound.getsockname()
    name = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{name}]:{port}/" if ":" in name else f"http://{name}:{port}/"


class BoardServer:
    """The board of a library on a socket, answered by a thread of its own; with ``service`` it takes submissions."""

    def __init__(
        self,
        library: Library,
        access: Access,
        bound: socket.socket,
        tell: Callable[[str], None],
        service: SubmissionService | None = None,
    ) -> None:
        self._library, self._service = library, service
        self._site = Site(library, access, tell, service)
        # No log of uvicorn's: paths may hold what a terminal would obey.
        settings: dict[str, Any] = {
            "log_config": None,
            "log_level": "critical",
            "access_log": False,
        }
        settings |= {"http": BoardConnection, "ws": "none", "lifespan": "off", "loop": "asyncio"}
        settings |= {
            "server_header": False,
            "proxy_headers": False,
            "timeout_graceful_shutdown": GRACE,
        }
        settings |= {"h11_max_incomplete_event_size": LONGEST}
        self._server = uvicorn.Server(
            uvicorn.Config(self._site.application(), timeout_keep_alive=5, **settings)
        )
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
        if self._service is not None:
            self._service.close()


LOOKS = ("page.css", "board.css")
PATIENCE = 1.5
"""Seconds that a request waits for the document of a run that is being made, or for ranges of ranks."""

STRIPS = 3
"""Charts of runs on one part of the data that the page of a model has."""

CHART_PATIENCE = 20.0
"""The same for a chart, which a browser asks for apart from the page."""

PROCESSES = 2
"""Processes that make something of runs at once."""

WAITING = 32
"""Things that wait for one of them, or for one of the threads that make pages; further ones are refused."""

FOREVER = "private, max-age=31536000, immutable"
"""How long to keep what its address names by its content."""


class Site:
    """The pages of a library, and of ``submissions`` where models can be submitted.

    What is kept is answered at once.  The rest is made by threads: one for the board as it is first seen, some for the
    other pages, and some for what processes make of runs, so that what is slow keeps nobody from what is fast.
    """

    def __init__(
        self,
        library: Library,
        access: Access,
        tell: Callable[[str], None],
        service: SubmissionService | None = None,
    ) -> None:
        self._library, self._access, self._tell = library, access, tell
        self._looks = {
            f"{_digest(static_file(name).encode())}-{name}": static_file(name).encode()
            for name in LOOKS
        }
        looks = dict(zip(LOOKS, self._looks, strict=True))
        self._links = Links(looks, submissions="" if service is None else SUBMISSIONS)
        self._submissions = None
        if service is not None:
            assert access.submit, "who submits needs a token"
            self._submissions = SubmissionRoutes(service, library, self._links, access.submit, tell)
        self._answers, self._runs = Answers(), RunProcesses(PROCESSES, library.metrics)
        self._first, self._pages, self._slow = (
            Threads(1, WAITING),
            Threads(2, WAITING),
            Threads(PROCESSES, WAITING),
        )

    def application(self) -> ASGIApp:
        """The routes, behind the rules of access."""

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
        return await self._view(
            request, "html", lambda snapshot, view: board_page(snapshot, view, self._links)
        )

    async def _csv(self, request: Request) -> Response:
        response = await self._view(request, "csv", board_csv)
        response.headers["content-disposition"] = 'attachment; filename="board.csv"'
        return response

    async def _view(
        self, request: Request, kind: str, make: Callable[[Snapshot, View], str]
    ) -> Response:
        """The board as the query says; kept where it says nothing but what the board has."""
        snapshot = self._library.snapshot
        view, known = known_view(snapshot.board, read_view(request.query_params.multi_items()))
        threads = self._first if view == View() else self._pages
        whole = (
            snapshot if kind == "csv" else await self._with_means(snapshot, view, threads, known)
        )

        def text() -> str:
            self._library.want([column.id for column in chosen_columns(snapshot.board, view)])
            return make(whole or snapshot, view)

        key = (snapshot.number, "board", view, whole is None)
        response = await self._answer(request, kind, key, threads, text, known)
        if whole is None and kind == "html":
            response.headers.update({"refresh": "2", "cache-control": "no-store"})
        return response

    async def _with_means(
        self, snapshot: Snapshot, view: View, threads: Threads, known: bool
    ) -> Snapshot | None:
        """The snapshot with the ranges of ranks by the mean that ``view`` shows; None while they are computed.

        Those of a board that is still being read are left out, as they change with every run.  ``known``: as of a view.
        """
        part = View(data=view.data, family=view.family, protocol=view.protocol)

        def measured() -> bytes:
            return " ".join(headlines(snapshot.board, part).measured).encode()

        told = await self._answers.get(
            (snapshot.number, "columns", part), threads, measured, keep=known
        )
        assert told is not None
        columns = tuple(told.decode().split())
        if not columns or columns in snapshot.means or snapshot.waiting:
            return snapshot
        if part == View():
            return None  # whoever keeps the board up to date computes them first

        def computed() -> bytes:
            self._library.means.get(snapshot.board, columns)
            return b"there"

        try:
            there = await self._answers.get(
                (snapshot.number, "means", columns), self._slow, computed, PATIENCE
            )
        except Busy:
            return None
        if there is None:
            return None
        return replace(
            snapshot,
            means={**snapshot.means, columns: self._library.means.get(snapshot.board, columns)},
        )

    async def _model(self, request: Request) -> Response:
        name, json = _name(request)
        snapshot = self._library.snapshot
        model = model_name(snapshot, name)
        if model is None:
            raise HTTPException(404, "No model has that address; it may have gone with its run.")
        strips = {} if json else await self._strips(snapshot, model)

        def text() -> str:
            return (
                as_json(model_record(snapshot, model))
                if json
                else model_page(snapshot, model, self._links, strips)
            )

        there = tuple(strip is not None for strip in strips.values())
        response = await self._page(request, json, (snapshot.number, "model", name, there), text)
        if not all(there):
            response.headers.update({"refresh": "2", "cache-control": "no-store"})
        return response

    async def _strips(self, snapshot: Snapshot, model: str) -> Strips:
        """The charts of the page of a model: an image inside the page, so that it comes with the page or not at all."""
        runs = {
            run
            for part in measured(snapshot, model)
            for run in [each for each in part.runs if each.rows][:STRIPS]
        }
        strips: dict[str, str | None] = {}
        for run in runs:
            if run.state is State.READ:
                try:
                    drawn = await self._drawn("strip", run, PATIENCE)
                except ChoicewiseError:
                    continue  # the page of the run says why
                code = None if drawn is None else b64encode(drawn).decode()
                strips[run.id] = None if code is None else f"data:image/svg+xml;base64,{code}"
        return strips

    async def _protocol(self, request: Request) -> Response:
        name, json = _name(request)
        snapshot = self._library.snapshot

        def text() -> str:
            asked = asked_protocol(snapshot, name)
            if asked is None:
                raise HTTPException(404, "No run was asked under that protocol.")
            self._library.want([column.id for column in asked.columns])
            return (
                as_json(protocol_record(snapshot, asked))
                if json
                else protocol_page(snapshot, asked, self._links)
            )

        return await self._page(request, json, (snapshot.number, "protocol", name), text)

    async def _run(self, request: Request) -> Response:
        name, json = _name(request)
        snapshot = self._library.snapshot
        run = snapshot.run(name)
        if run is None:
            raise HTTPException(404, "No run has that address; its folder may have gone.")
        if run.state is State.READ and not json:
            return await self._document(request, snapshot, run)

        def text() -> str:
            record = {**run_record(run), "rows": [row.as_json() for row in run.rows]}
            return as_json(record) if json else run_page(snapshot, run, self._links)

        return await self._page(request, json, (snapshot.number, "run", name), text)

    async def _document(self, request: Request, snapshot: Snapshot, run: ListedRun) -> Response:
        """The document of a complete run, under its own policy; while it is being made a page that asks again."""
        words, refresh = (
            "its page is being made and appears here by itself in a moment",
            {"refresh": "2"},
        )
        try:
            drawn = await self._drawn("document", run, PATIENCE)
        except ChoicewiseError as error:
            drawn, words, refresh = None, f"its page can't be made: {error}", {}
        if drawn is None:
            told, key = replace(run, reason=words), (snapshot.number, "run", run.id, words)
            response = await self._page(
                request, False, key, lambda: run_page(snapshot, told, self._links)
            )
            response.headers.update(refresh and {**refresh, "cache-control": "no-store"})
            return response
        # the policy that the document says it needs: hashes of its own scripts and style
        head = drawn.decode("utf-8", "replace").partition(
            'http-equiv="Content-Security-Policy" content="'
        )[2]
        response = _answered(request, drawn, "html")
        response.headers["content-security-policy"] = (
            unescape(head.partition('"')[0]) + "; frame-ancestors 'none'"
        )
        return response

    async def _drawn(self, kind: str, run: ListedRun, wait: float) -> bytes | None:
        """What a process draws of a run; None where that takes longer."""
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
        snapshot, pairs = self._library.snapshot, request.query_params
        part, item = part_of(snapshot, name), pairs.get("id", "")
        if part is None:
            raise HTTPException(404, "No run measured that part of the data.")
        asked = read_view(pairs.multi_items())
        view, known = known_view(
            snapshot.board, replace(asked, data=(), warning="", sort="", order="")
        )
        run = snapshot.run(pairs.get("run", ""))
        run_id = "" if run is None else run.id

        def explained(run: ListedRun, item: str) -> Explanation:
            return self._runs.use(run, lambda process: process.explain(run, item))

        def text() -> str:
            try:
                choices = ItemChoices(item, self._library.decisions.get)
                shown = shown_item(snapshot, choices, explained, part, run_id, view)
            except UsageError:
                shown = None
            except ChoicewiseError as error:
                raise HTTPException(404, f"The item can't be read: {error}") from error
            if shown is None:
                raise HTTPException(404, "No run has that item.")
            return (
                as_json(item_record(shown))
                if json
                else item_page(snapshot, shown, self._links, view)
            )

        key = snapshot.number, "item", name, item, run_id, view
        return await self._answer(request, "json" if json else "html", key, self._slow, text, known)

    async def _artefact(self, request: Request) -> Response:
        name = request.path_params["name"]
        for run in self._library.snapshot.board.runs:
            for artefact in run.artefacts:
                if artefact.name == name:
                    read = partial(self._content, run, artefact)
                    content = await self._answers.get(("artefact", name), self._slow, read)
                    assert content is not None
                    disposition = f'attachment; filename="{run.id}-{artefact.file}"'
                    headers = {"cache-control": FOREVER, "content-disposition": disposition}
                    return Response(content, 200, headers, MEDIA[artefact.ending])
        raise HTTPException(404, "No run has a file of that content (any more).")

    def _content(self, run: ListedRun, artefact: Artefact) -> bytes:
        try:
            content = self._runs.use(run, lambda process: process.artefact(run, artefact))
        except ChoicewiseError as error:
            raise HTTPException(404, f"The file can't be read: {error}") from error
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


def _board_json(snapshot: Snapshot, view: View) -> str:
    return as_json(board_record(snapshot, view) | headlines_record(snapshot, view))


def _answered(request: Request, body: bytes, kind: str) -> Response:
    """The answer, or 304 where it is known."""
    media = {"html": "text/html", "json": "application/json", "csv": "text/csv"}[kind]
    tag = f'"{_digest(body)}"'
    headers = {"etag": tag, "vary": "Accept, Cookie, Authorization"}
    if tag in request.headers.get("if-none-match", ""):
        return Response(b"", 304, headers)
    return Response(body, 200, headers, f"{media}; charset=utf-8")


def _name(request: Request) -> tuple[str, bool]:
    """The name that the address ends in, and whether JSON is wanted."""
    name: str = request.path_params["name"]
    return name.removesuffix(".json"), name.endswith(".json") or accepts_json(request)


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:24]
