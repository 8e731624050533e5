"""Submitting and following: the pages and the same as JSON."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from choicewise.errors import ChoicewiseError, StoreError
from choicewise.submissions.desk import Desk
from choicewise.submissions.submission import State, Submission, wanted
from choicewise.web.board.library import Library
from choicewise.web.board.links import Links
from choicewise.web.json_text import json_text
from choicewise.web.server.answers import AnswersKept
from choicewise.web.server.door import TooLarge
from choicewise.web.server.guard import READS, bearers
from choicewise.web.server.threads import Threads
from choicewise.web.submissions.answers import answer, headers_of, refusal, status_of
from choicewise.web.submissions.content import form_fields, is_form
from choicewise.web.submissions.doors import doors
from choicewise.web.submissions.pages import runs_of, submission_page, submissions_page
from choicewise.web.submissions.tokens import Tokens
from choicewise.web.submissions.worker_routes import WorkerRoutes

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

ADDRESS = "/submissions"

AGAIN = 15
"""Seconds after which the page of a submission that is not at its end asks again."""

THERE = "there"
"""After the address of a submission: it was there when somebody submitted the same."""

_AGAIN = b"again\n"
"""Before a page that is kept: it asks again."""

_HTML = "text/html; charset=utf-8"

LISTED = 1000
"""Submissions in a list."""

KEPT = 16_000_000
"""Bytes of pages and lists that are kept for the next who asks the same."""

NO_TOKEN = "the token is missing or wrong; ask whoever runs this board for the token of who submits"


class Submissions:
    """The routes of a board that evaluates; ``tell`` gets what only whoever runs it may read."""

    def __init__(self, desk: Desk, tokens: Tokens, tell: Callable[[str], None]) -> None:
        self.address, self.doors = ADDRESS, doors(tokens)
        self._desk, self._tokens, self._tell = desk, tokens, tell
        self._threads, self._work = Threads(8), WorkerRoutes(desk, tell)
        self._kept = AnswersKept(KEPT)

    def close(self) -> None:
        """Let go of the queue."""
        self._desk.close()

    def routes(self, library: Library, links: Links) -> "list[Route]":
        """Of the pages, and of workers."""
        from starlette.requests import Request
        from starlette.routing import Route

        async def listed(request: Request) -> "Response":
            return await self._listed(request, library, links)

        async def submitted(request: Request) -> "Response":
            return await self._submitted(request, library, links)

        async def one(request: Request) -> "Response":
            return await self._one(request, library, links)

        return [
            Route(ADDRESS, submitted, methods=["POST"]),
            Route(ADDRESS, listed, methods=["GET"]),
            Route(f"{ADDRESS}.json", listed, methods=["GET"]),
            Route("/submission/{id}", one, methods=["GET"]),
            *self._work.routes(),
        ]

    async def _listed(self, request: "Request", library: Library, links: Links) -> "Response":
        json = _wants_json(request)

        def made() -> bytes:
            submissions = self._desk.queue.submissions(LISTED)
            if json:
                return json_text({"submissions": [self._record(library, each) for each in submissions]}).encode()
            counts = self._desk.queue.counts()
            return _encoded(submissions_page(library.shelf, links, self._desk, submissions, counts))

        try:
            body = await self._threads.run(lambda: self._made(library, ("", json, False), made))
        except StoreError as error:
            return refusal(error, self._tell)
        return _response(body, "application/json") if json else _response(body, _HTML)

    def _made(self, library: Library, asked: tuple[str, bool, bool], make: Callable[[], bytes]) -> bytes:
        """What ``make`` makes, once for each state of the queue and of the board."""
        key = self._desk.queue.version(), library.shelf.number, asked
        body = self._kept.get(key)
        if body is None:
            body = make()
            self._kept.keep(key, body)
        return body

    async def _one(self, request: "Request", library: Library, links: Links) -> "Response":
        name, json = request.path_params["id"].removesuffix(".json"), _wants_json(request)
        there = not json and request.url.query == THERE

        def made() -> bytes:
            submission = self._desk.queue.get(name)
            if json:
                return json_text(self._record(library, submission)).encode()
            noticed = submission.state is not State.DONE or runs_of(library.shelf, self._desk, submission)
            again = _AGAIN if not submission.state.final or not noticed else b""
            return again + _encoded(submission_page(library.shelf, links, self._desk, submission, there))

        try:
            body = await self._threads.run(lambda: self._made(library, (name, json, there), made))
        except ChoicewiseError as error:
            return refusal(error, self._tell) if json else _words(*status_of(error, self._tell))
        if json:
            return _response(body, "application/json")
        return _response(body.removeprefix(_AGAIN), _HTML, {"refresh": str(AGAIN)} if body.startswith(_AGAIN) else {})

    async def _submitted(self, request: "Request", library: Library, links: Links) -> "Response":
        from starlette.requests import ClientDisconnect
        from starlette.responses import RedirectResponse

        form, given, shown = is_form(request), dict[str, Any](), bool(request.scope.get(READS))
        try:
            given = await form_fields(request)
            if not self._may_submit(request, given):
                own = {"www-authenticate": 'Bearer realm="choicewise"'}
                return self._refused(form, shown, library, links, given, 401, NO_TOKEN, own)
            shown = True
            asked = wanted(given.get("model"), given.get("revision"), given.get("dtype"))
            submission, new = await self._threads.run(lambda: self._desk.submit(asked))
        except (ChoicewiseError, TooLarge) as error:
            status, words = status_of(error, self._tell)
            return self._refused(form, shown, library, links, given, status, words, headers_of(error, status))
        except ClientDisconnect:
            return answer({}, 400)  # nobody hears it
        if form:
            place = f"/submission/{submission.id}" + ("" if new else f"?{THERE}")
            return RedirectResponse(place, 303, {"cache-control": "no-store"})
        record = self._record(library, submission)
        if submission.state is State.REFUSED:
            return answer({"error": submission.reason, "submission": record}, 422)
        return answer(record, 201 if new else 200)

    def _refused(
        self,
        form: bool,
        shown: bool,
        library: Library,
        links: Links,
        given: Mapping[str, Any],
        status: int,
        words: str,
        headers: Mapping[str, str],
    ) -> "Response":
        """JSON with the error, or the form again with it, without the token; words alone where it may not be shown."""
        if not form:
            return answer({"error": words}, status, headers)
        if not shown:
            return _words(status, words, headers)
        kept = {name: str(given.get(name, ""))[:300] for name in ("model", "revision", "dtype")}
        page = submissions_page(library.shelf, links, self._desk, (), {}, words, kept)
        return _response(_encoded(page), _HTML, headers, status)

    def _may_submit(self, request: "Request", given: Mapping[str, Any]) -> bool:
        field = given.get("token")
        offered = [*bearers(request.headers.getlist("authorization")), *([field] if isinstance(field, str) else [])]
        return any([self._tokens.may_submit(each.strip()) for each in offered])  # noqa: C419 each takes its time

    def _record(self, library: Library, submission: Submission) -> dict[str, Any]:
        runs = [f"/run/{run.id}" for run in runs_of(library.shelf, self._desk, submission)]
        return replace(submission, runs=tuple(runs)).as_json()


def _wants_json(request: "Request") -> bool:
    accepted = request.headers.get("accept", "")
    return request.url.path.endswith(".json") or ("application/json" in accepted and "text/html" not in accepted)


def _encoded(page: str) -> bytes:
    return page.encode("utf-8", "backslashreplace")


def _response(body: bytes, media: str, headers: Mapping[str, str] | None = None, status: int = 200) -> "Response":
    """What nobody else keeps.  The form says where it comes from, to this server alone, which looks at that."""
    from starlette.responses import Response

    own = {"cache-control": "no-store", "referrer-policy": "same-origin", **(headers or {})}
    return Response(body, status, own, media)


def _words(status: int, words: str, headers: Mapping[str, str] | None = None) -> "Response":
    from starlette.responses import PlainTextResponse

    return PlainTextResponse(f"{words}\n", status, {"cache-control": "no-store", **(headers or {})})
