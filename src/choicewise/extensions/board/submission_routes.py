"""The pages and routes by which people submit models, and follow what becomes of them."""

from __future__ import annotations

import errno
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any
from urllib.parse import parse_qsl

from pydantic import TypeAdapter
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from choicewise.errors import ChoicewiseError, UsageError
from choicewise.extensions.board.access import (
    AUTHENTICATE,
    SUBMISSIONS,
    accepts_json,
    bearer_tokens,
    refusal,
    same_token,
)
from choicewise.extensions.board.library import Library
from choicewise.extensions.board.model import ListedRun
from choicewise.extensions.board.pages import Links, rendered
from choicewise.extensions.board.queue import SubmissionService
from choicewise.extensions.board.submission import (
    DTYPES,
    Busy,
    NoSubmission,
    NotAllowed,
    NoToken,
    State,
    Submission,
    moment,
    wanted,
)
from choicewise.util.background import Threads
from choicewise.util.cache import BoundedCache
from choicewise.util.jsonio import page_json

FORM = 16_384
"""Bytes of a submission."""

RETRY_AFTER = 15
"""Seconds after which the page of a submission that is not at its end asks again."""

RETRY_LATER = 5
"""Seconds after which a busy queue may be asked again."""

THERE = "there"
"""After the address of a submission: it was there when somebody submitted the same."""

LISTED = 1000
"""Submissions in a list."""

SHOWN = 200
"""Submissions on the page; the JSON has more."""

CACHED = 16_000_000
"""Bytes of pages and lists that are cached for the next who asks the same."""

STATUS: Mapping[type[Exception], int] = {
    UsageError: 400,
    NoToken: 401,
    NotAllowed: 403,
    NoSubmission: 404,
    Busy: 503,
}
"""What each error is in HTTP."""


class SubmissionRoutes:
    """The routes of a board that evaluates; ``token`` is of who submits, ``tell`` gets what only whoever runs the board
    may read."""

    def __init__(
        self,
        service: SubmissionService,
        library: Library,
        links: Links,
        token: str,
        tell: Callable[[str], None],
    ) -> None:
        self._service, self._library, self._links = service, library, links
        self._token, self._tell = token, tell
        self._threads = Threads(8)
        self._cache = BoundedCache[Hashable, bytes](CACHED, len)

    def routes(self) -> list[Route]:
        """Of the pages and of who submits."""
        return [
            Route(SUBMISSIONS, self._submitted, methods=["POST"], max_body_size=FORM),
            Route(SUBMISSIONS, self._listed, methods=["GET"]),
            Route(f"{SUBMISSIONS}.json", self._listed, methods=["GET"]),
            Route("/submission/{id}", self._one, methods=["GET"]),
        ]

    def refused(self, request: Request, error: Exception) -> Response:
        """The answer for an error: JSON to a program, words to a browser."""
        status, words, headers = self._told(error)
        json = _wants_json(request) or (request.method == "POST" and not _is_form(request))
        return refusal(request, status, words, headers, json)

    def _told(self, error: Exception) -> tuple[int, str, dict[str, str]]:
        """Status, words and headers; what only whoever runs the board may read goes to ``tell``."""
        status = next((status for kind, status in STATUS.items() if isinstance(error, kind)), 0)
        words = str(error)
        if not status:
            self._tell(f"error with a submission: {error}")
            full = isinstance(error.__cause__, OSError) and error.__cause__.errno in (
                errno.ENOSPC,
                errno.EDQUOT,
            )
            status, words = (
                503,
                "something is wrong on the disk of this board; whoever runs it can see what",
            )
            if full:
                status, words = 507, "the disk of this board is full; ask again later"
        headers = {"cache-control": "no-store"} | (AUTHENTICATE if status == 401 else {})
        return status, words, headers | ({"retry-after": str(RETRY_LATER)} if status == 503 else {})

    async def _listed(self, request: Request) -> Response:
        def listed() -> bytes:
            submissions = self._service.queue.submissions(LISTED)
            if json:
                return _json({"submissions": [self._record(each) for each in submissions]})
            return self._list_page(submissions, self._service.queue.counts())

        json = _wants_json(request)
        return _response(await self._cached(("", json, False), listed), json)

    async def _one(self, request: Request) -> Response:
        name, json = request.path_params["id"].removesuffix(".json"), _wants_json(request)
        there = not json and request.url.query == THERE

        def shown() -> bytes:
            submission = self._service.queue.get(name)
            if json:
                return _json(self._record(submission))
            runs = self._runs_of(submission)
            refresh = (
                b""
                if submission.state.final and (submission.state is not State.DONE or runs)
                else _REFRESH
            )
            return refresh + self._page(
                "submission.html.j2", each=submission, runs=runs, there=there
            )

        body = await self._cached((name, json, there), shown)
        headers = {"refresh": str(RETRY_AFTER)} if body.startswith(_REFRESH) else None
        return _response(body.removeprefix(_REFRESH), json, headers)

    async def _cached(self, asked: Hashable, make: Callable[[], bytes]) -> bytes:
        """What ``make`` returns, once for each state of the queue and of the board."""

        def cached() -> bytes:
            key = self._service.queue.version(), self._library.snapshot.number, asked
            if (body := self._cache.get(key)) is None:
                body = make()
                self._cache.put(key, body)
            return body

        return await self._threads.run(cached)

    async def _submitted(self, request: Request) -> Response:
        form, given, shown = _is_form(request), dict[str, Any](), request.state.reads
        try:
            given = await _fields(request)
            offered = [*bearer_tokens(request), str(given.get("token", "")).strip()]
            if not any(same_token(each, self._token) for each in offered):
                raise NoToken(
                    "the token is missing or wrong; ask whoever runs this board for the token of who submits"
                )
            shown = True
            asked = wanted(given.get("model"), given.get("revision"), given.get("dtype"))
            submission, new = await self._threads.run(lambda: self._service.submit(asked))
        except ChoicewiseError as error:
            if not (form and shown):
                raise
            status, words, headers = self._told(error)
            return _response(self._list_page((), {}, words, given), False, headers, status)
        if form:
            place = f"/submission/{submission.id}" + ("" if new else f"?{THERE}")
            return RedirectResponse(place, 303, {"cache-control": "no-store"})
        record = self._record(submission)
        if submission.state is State.REFUSED:
            return _response(
                _json({"error": submission.reason, "submission": record}), True, status=422
            )
        return _response(_json(record), True, status=201 if new else 200)

    def _list_page(
        self,
        listed: Sequence[Submission],
        counts: Mapping[State, int],
        error: str = "",
        given: Mapping[str, Any] | None = None,
    ) -> bytes:
        """The form and the list; ``error`` says what was wrong with what was ``given``, which the form shows, without
        the token."""
        fields = {
            name: str((given or {}).get(name, ""))[:300] for name in ("model", "revision", "dtype")
        }
        about = {"listed": listed[:SHOWN], "counts": counts, "total": sum(counts.values())}
        return self._page("submissions.html.j2", error=error, given=fields, dtypes=DTYPES, **about)

    def _page(self, template: str, **context: Any) -> bytes:
        common = {"service": self._service, "State": State, "moment": _shown_moment}
        page = rendered(template, self._library.snapshot, self._links, **common, **context)
        return page.encode("utf-8", "backslashreplace")

    def _record(self, submission: Submission) -> dict[str, Any]:
        return submission.as_json([f"/run/{run.id}" for run in self._runs_of(submission)])

    def _runs_of(self, submission: Submission) -> list[ListedRun]:
        """The runs of a submission that the board has noticed by now."""
        if not submission.folder:
            return []
        place = self._service.board / submission.folder
        return [
            run for run in self._library.snapshot.board.runs if run.folder.is_relative_to(place)
        ]


_REFRESH = b"refresh\n"
"""Before a cached page that asks again by itself."""


def _shown_moment(seconds: float) -> str:
    return moment(seconds).replace("T", " ").replace("Z", " UTC")


def _wants_json(request: Request) -> bool:
    return request.url.path.endswith(".json") or accepts_json(request)


def _json(content: Any) -> bytes:
    return page_json(content).encode()


def _response(
    body: bytes, json: bool, headers: Mapping[str, str] | None = None, status: int = 200
) -> Response:
    """What nobody else keeps.  The form says where it comes from, to this server alone, which looks at that."""
    own = {"cache-control": "no-store", "referrer-policy": "same-origin", **(headers or {})}
    return Response(body, status, own, "application/json" if json else "text/html; charset=utf-8")


def _is_form(request: Request) -> bool:
    """Whether it comes from a form of a page."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    return kind == "application/x-www-form-urlencoded"


_FIELDS = 16
"""Fields of a form."""


async def _fields(request: Request) -> dict[str, Any]:
    """The fields of a form, or the JSON object in the request, whatever it says that it is.  UsageError for neither."""
    content, form = await request.body(), _is_form(request)
    try:
        if form:
            return dict(
                parse_qsl(
                    content.decode("utf-8"), max_num_fields=_FIELDS, strict_parsing=bool(content)
                )
            )
        return TypeAdapter(dict[str, Any]).validate_json(content or b"{}")
    except ValueError as error:
        form_words = "the form can't be read; send model, revision, dtype and token"
        raise UsageError(
            form_words if form else "the content must be a JSON object in UTF-8"
        ) from error
