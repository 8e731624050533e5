"""What the server answers: a page for every address, the same as JSON, and files by their content."""

import hashlib
from base64 import b64encode
from collections.abc import Callable
from dataclasses import replace
from html import unescape
from threading import Lock
from typing import TYPE_CHECKING, Any

from choicewise.errors import ChoicewiseError, UsageError
from choicewise.web.board.artefact import MEDIA, artefact_content
from choicewise.web.board.item_page import item_page, item_record, part_of, shown_item
from choicewise.web.board.library import Library
from choicewise.web.board.links import Served
from choicewise.web.board.listed_run import ListedRun, State
from choicewise.web.board.model_page import model_name, model_page, model_record
from choicewise.web.board.page import board_page
from choicewise.web.board.protocol_page import protocol_page, protocol_record, sheet
from choicewise.web.board.records import as_json, board_csv, board_record, run_record
from choicewise.web.board.run_page import run_page
from choicewise.web.board.run_reader import reason
from choicewise.web.board.run_strip import strip_style
from choicewise.web.board.view import View, chosen_columns, read_view
from choicewise.web.environment import static_text
from choicewise.web.server.answers_kept import AnswersKept
from choicewise.web.server.made_apart import MadeApart

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.types import ASGIApp

    from choicewise.web.submissions.routes import Submissions

LOOKS = ("page.css", "board.css")
PATIENCE = 1.5
"""Seconds that a request waits for the document of a run that is being made."""

CHART_PATIENCE = 20.0
"""The same for a chart, which a browser asks for apart from the page."""

FOREVER = "private, max-age=31536000, immutable"
"""How long to keep what its address names by its content."""


class Site:
    """The pages of a library, and of ``submissions`` where models can be submitted."""

    def __init__(self, library: Library, submissions: "Submissions | None" = None) -> None:
        self._library, self._submissions = library, submissions
        self._looks = {name: static_text(name).encode() for name in LOOKS}
        looks = {name: f"{_digest(text)}-{name}" for name, text in self._looks.items()}
        self._links = Served(looks, submissions="" if submissions is None else submissions.address)
        self._kept = AnswersKept()
        self._explaining = Lock()
        self._apart = MadeApart(self._links.board(View()))

    def application(self) -> "ASGIApp":
        """The routes, without any guard."""
        from starlette.applications import Starlette
        from starlette.responses import PlainTextResponse
        from starlette.routing import Route

        def absent(request: "Request", error: Exception) -> "Response":
            return PlainTextResponse(f"{getattr(error, 'detail', 'Not found.')}\n", getattr(error, "status_code", 404))

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
        return Starlette(routes=routes, exception_handlers={404: absent, 405: absent})

    def stop(self) -> None:
        """Make nothing more in the background."""
        self._apart.stop()

    def _board(self, request: "Request") -> "Response":
        view = read_view(request.query_params.multi_items())
        shelf = self._library.shelf
        self._library.want([column.id for column in chosen_columns(shelf.board, view)])
        if request.url.path.endswith(".json") or _wants_json(request):
            return self._answer(request, "json", ("board", view), lambda: as_json(board_record(shelf, view)))
        return self._answer(request, "html", ("board", view), lambda: board_page(shelf, view, self._links))

    def _csv(self, request: "Request") -> "Response":
        view, shelf = read_view(request.query_params.multi_items()), self._library.shelf
        response = self._answer(request, "csv", ("board", view), lambda: board_csv(shelf, view))
        response.headers["content-disposition"] = 'attachment; filename="board.csv"'
        return response

    def _model(self, request: "Request") -> "Response":
        name, json = _name(request)
        shelf = self._library.shelf
        model = model_name(shelf, name)
        if model is None:
            raise _absent("No model has that address; it may have gone with its run.")
        if json:
            return self._answer(request, "json", ("model", model), lambda: as_json(model_record(shelf, model)))
        return self._answer(request, "html", ("model", model), lambda: model_page(shelf, model, self._links))

    def _protocol(self, request: "Request") -> "Response":
        name, json = _name(request)
        shelf = self._library.shelf
        asked = sheet(shelf, name)
        if asked is None:
            raise _absent("No run was asked under that protocol.")
        self._library.want([column.id for column in asked.columns])
        if json:
            return self._answer(request, "json", ("protocol", name), lambda: as_json(protocol_record(shelf, asked)))
        return self._answer(request, "html", ("protocol", name), lambda: protocol_page(shelf, asked, self._links))

    def _run(self, request: "Request") -> "Response":
        name, json = _name(request)
        shelf = self._library.shelf
        run = shelf.run(name)
        if run is None:
            raise _absent("No run has that address; its folder may have gone.")
        if json:
            record = {**run_record(run), "rows": [row.as_json() for row in run.rows]}
            return self._answer(request, "json", ("run", name), lambda: as_json(record))
        if run.state is State.READ:
            return self._document(request, run)
        return self._answer(request, "html", ("run", name), lambda: run_page(shelf, run, self._links))

    def _document(self, request: "Request", run: ListedRun) -> "Response":
        """The document of a complete run, under its own policy; while it is being made a page that asks again."""
        shelf = self._library.shelf
        try:
            made = self._apart.get("document", run, PATIENCE)
        except ChoicewiseError as error:
            told = replace(run, reason=f"its page can't be made: {reason(error, run)}")
            return self._answer(request, "html", ("broken", run.id), lambda: run_page(shelf, told, self._links))
        if made is None:
            told = replace(run, reason="its page is being made and appears here by itself in a moment")
            response = self._answer(request, "html", ("making", run.id), lambda: run_page(shelf, told, self._links))
            response.headers["refresh"] = "2"
            response.headers["cache-control"] = "no-store"
            return response
        response = self._answer(request, "html", ("document", run.id, run.version), lambda: made)
        response.headers["content-security-policy"] = f"{_own_policy(made)}; frame-ancestors 'none'"
        return response

    def _strip(self, request: "Request") -> "Response":
        run = self._library.shelf.run(request.path_params["name"].removesuffix(".svg"))
        if run is None or run.state is not State.READ:
            raise _absent("No run with numbers has that address.")
        try:
            made = self._apart.get("strip", run, CHART_PATIENCE)
        except ChoicewiseError as error:
            raise _absent(f"The chart can't be drawn: {reason(error, run)}") from error
        if made is None:
            raise _absent("The chart is being drawn; ask again in a moment.")
        digest = b64encode(hashlib.sha256(strip_style().encode()).digest()).decode()
        headers = {
            "content-security-policy": f"default-src 'none'; style-src 'sha256-{digest}'; frame-ancestors 'none'"
        }
        return _response(made.encode(), "image/svg+xml", headers)

    def _item(self, request: "Request") -> "Response":
        name, json = _name(request)
        shelf, pairs = self._library.shelf, request.query_params
        part, view = part_of(shelf, name), read_view(pairs.multi_items())
        item, run = pairs.get("id", ""), pairs.get("run", "")
        if part is None:
            raise _absent("No run measured that part of the data.")

        def made() -> str:
            with self._explaining:  # one at a time: each reads and scores the blocks around an item
                try:
                    shown = shown_item(self._library, part, item, run, view)
                except UsageError:
                    shown = None
                except ChoicewiseError as error:
                    raise _absent(f"The item can't be read: {type(error).__name__}.") from error
            if shown is None:
                raise _absent("No run has that item.")
            return as_json(item_record(shown)) if json else item_page(shelf, shown, self._links, view)

        return self._answer(request, "json" if json else "html", ("item", name, item, run, view), made)

    def _artefact(self, request: "Request") -> "Response":
        name = request.path_params["name"]
        for run in self._library.shelf.board.runs:
            for artefact in run.artefacts:
                if artefact.name == name:
                    content = artefact_content(artefact.file, run.folder, run.rows)
                    if content is not None and hashlib.sha256(content).hexdigest() == artefact.digest:
                        return _file(content, artefact.ending, f"{run.id}-{artefact.file}")
        raise _absent("No run has a file of that content (any more).")

    def _look(self, request: "Request") -> "Response":
        for name, content in self._looks.items():
            if self._links.looks[name] == request.path_params["name"]:
                return _response(content, "text/css; charset=utf-8", {"cache-control": FOREVER})
        raise _absent("There is no such file.")

    def _answer(self, request: "Request", kind: str, key: tuple[Any, ...], make: Callable[[], str]) -> "Response":
        """The answer of that kind, from what is kept where the library has not changed, or 304 where it is known."""
        whole = (self._library.shelf.number, kind, *key)
        body = self._kept.get(whole)
        if body is None:
            body = make().encode("utf-8", "backslashreplace")
            self._kept.keep(whole, body)
        media = {"html": "text/html", "json": "application/json", "csv": "text/csv"}[kind]
        tag = f'"{_digest(body)}"'
        headers = {"etag": tag, "vary": "Accept, Cookie, Authorization"}
        if tag in request.headers.get("if-none-match", ""):
            return _response(b"", None, headers, 304)
        return _response(body, f"{media}; charset=utf-8", headers)


def _own_policy(page: str) -> str:
    """The policy that a document says it needs: hashes of its own scripts and style."""
    return unescape(page.partition('http-equiv="Content-Security-Policy" content="')[2].partition('"')[0])


def _name(request: "Request") -> tuple[str, bool]:
    """The name that the address ends in, and whether JSON is wanted."""
    name: str = request.path_params["name"]
    return name.removesuffix(".json"), name.endswith(".json") or _wants_json(request)


def _wants_json(request: "Request") -> bool:
    accepted = request.headers.get("accept", "")
    return "application/json" in accepted and "text/html" not in accepted


def _file(content: bytes, ending: str, name: str) -> "Response":
    disposition = f'attachment; filename="{name}"'
    return _response(content, MEDIA[ending], {"cache-control": FOREVER, "content-disposition": disposition})


def _response(content: bytes, media: str | None, headers: dict[str, str], status: int = 200) -> "Response":
    from starlette.responses import Response

    return Response(content, status, headers, media)


def _absent(words: str) -> Exception:
    from starlette.exceptions import HTTPException

    return HTTPException(404, words)


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:24]
