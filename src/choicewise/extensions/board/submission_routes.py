"""Serve the pages by which people submit models and follow their submissions."""

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
from choicewise.extensions.board.answers import Threads
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
from choicewise.util.cache import BoundedCache
from choicewise.util.jsonio import JsonDict, JsonMapping, page_json

FORM = 16_384
"""Bytes of a submission."""

RETRY_AFTER = 15
"""Seconds after which the page of a submission that is not at its end asks again."""

RETRY_LATER = 5
"""Seconds after which a busy queue may be asked again."""

THERE = "there"
"""The query of the address of a submission that was there when somebody submitted the same model."""

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
"""Error → its status in HTTP."""


class SubmissionRoutes:
    """Answer the requests about submissions.

    ``token``: that of submitters. ``tell`` receives lines that only whoever runs the board may
    read.
    """

    def __init__(
        self,
        service: SubmissionService,
        library: Library,
        links: Links,
        token: str,
        tell: Callable[[str], None],
    ) -> None:
        self._service = service
        self._library = library
        self._links = links
        self._token = token
        self._tell = tell
        self._threads = Threads(8)
        self._cache = BoundedCache[Hashable, bytes](CACHED, len)

    def routes(self) -> list[Route]:
        """Return the routes of the pages and of submitters."""
        return [
            Route(SUBMISSIONS, self._submitted, methods=["POST"], max_body_size=FORM),
            Route(SUBMISSIONS, self._listed, methods=["GET"]),
            Route(f"{SUBMISSIONS}.json", self._listed, methods=["GET"]),
            Route("/submission/{id}", self._one, methods=["GET"]),
        ]

    def refused(self, request: Request, error: Exception) -> Response:
        """Return the answer to an error: JSON to a program, words to a browser."""
        status, words, headers = self._describe(error)
        json = _wants_json(request) or (request.method == "POST" and not _is_form(request))
        return refusal(request, status, words, headers, json)

    def _describe(self, error: Exception) -> tuple[int, str, dict[str, str]]:
        """Return status, words and headers of the answer to an error."""
        status = _status_of(error)
        words = str(error)
        if not status:
            self._tell(f"error with a submission: {error}")
            status = 503
            words = "something is wrong on the disk of this board; whoever runs it can see what"
            cause = error.__cause__
            if isinstance(cause, OSError) and cause.errno in (errno.ENOSPC, errno.EDQUOT):
                status = 507
                words = "the board's disk is full; try again later"
        headers = {"cache-control": "no-store"}
        if status == 401:
            headers |= AUTHENTICATE
        if status == 503:
            headers["retry-after"] = str(RETRY_LATER)
        return status, words, headers

    async def _listed(self, request: Request) -> Response:
        def listed() -> bytes:
            submissions = self._service.queue.submissions(LISTED)
            if json:
                records = [self._record(submission) for submission in submissions]
                return _json({"submissions": records})
            return self._list_page(submissions, self._service.queue.counts())

        json = _wants_json(request)
        return _response(await self._cached(("", json, False), listed), json)

    async def _one(self, request: Request) -> Response:
        name = request.path_params["id"].removesuffix(".json")
        json = _wants_json(request)
        there = not json and request.url.query == THERE

        def page() -> bytes:
            submission = self._service.queue.get(name)
            if json:
                return _json(self._record(submission))
            runs = self._runs_of(submission)
            body = self._page("submission.html.j2", submission=submission, runs=runs, there=there)
            waits_for_runs = submission.state is State.DONE and not runs
            if waits_for_runs or not submission.state.final:
                body = _REFRESH + body
            return body

        body = await self._cached((name, json, there), page)
        headers = {}
        if body.startswith(_REFRESH):
            headers = {"refresh": str(RETRY_AFTER)}
        return _response(body.removeprefix(_REFRESH), json, headers)

    async def _cached(self, page: Hashable, make: Callable[[], bytes]) -> bytes:
        """Return what ``make`` returns, computed once for each state of the queue and of the board."""

        def cached() -> bytes:
            key = self._service.queue.version(), self._library.snapshot.number, page
            body = self._cache.get(key)
            if body is None:
                body = make()
                self._cache.put(key, body)
            return body

        return await self._threads.run(cached)

    async def _submitted(self, request: Request) -> Response:
        is_form = _is_form(request)
        fields: JsonDict = {}
        may_read = request.state.reads
        try:
            fields = await _fields(request)
            tokens = [*bearer_tokens(request), str(fields.get("token", "")).strip()]
            if not any(same_token(token, self._token) for token in tokens):
                raise NoToken(
                    "the token is missing or wrong; ask whoever runs this board for the token of "
                    "who submits"
                )
            may_read = True
            model = wanted(fields.get("model"), fields.get("revision"), fields.get("dtype"))
            submission, is_new = await self._threads.run(lambda: self._service.submit(model))
        except ChoicewiseError as error:
            # The form is shown again with its fields, but the list beside it only to readers of the
            # board.
            if not is_form or not may_read:
                raise
            status, words, headers = self._describe(error)
            return _response(self._list_page((), {}, words, fields), False, headers, status)
        if is_form:
            address = f"/submission/{submission.id}"
            if not is_new:
                address += f"?{THERE}"
            return RedirectResponse(address, 303, {"cache-control": "no-store"})
        record = self._record(submission)
        if submission.state is State.REFUSED:
            refused = {"error": submission.reason, "submission": record}
            return _response(_json(refused), True, status=422)
        status = 201 if is_new else 200
        return _response(_json(record), True, status=status)

    def _list_page(
        self,
        submissions: Sequence[Submission],
        counts: Mapping[State, int],
        error: str = "",
        fields: JsonMapping | None = None,
    ) -> bytes:
        """Return the page with the form and the list.

        ``error``: what was wrong with the ``fields`` of the form, which it shows again without the
        token.
        """
        # The token is left out, as the page may stay on a screen.
        values = dict.fromkeys(("model", "revision", "dtype"), "")
        if fields is not None:
            values = {name: str(fields.get(name, ""))[:300] for name in values}
        return self._page(
            "submissions.html.j2",
            error=error,
            given=values,
            dtypes=DTYPES,
            listed=submissions[:SHOWN],
            counts=counts,
            total=sum(counts.values()),
        )

    def _page(self, template: str, **context: Any) -> bytes:
        common = {"service": self._service, "State": State, "moment": _shown_moment}
        page = rendered(template, self._library.snapshot, self._links, **common, **context)
        return page.encode("utf-8", "backslashreplace")

    def _record(self, submission: Submission) -> JsonDict:
        return submission.as_json([f"/run/{run.id}" for run in self._runs_of(submission)])

    def _runs_of(self, submission: Submission) -> list[ListedRun]:
        """Return the runs of a submission that the board has noticed by now."""
        if not submission.folder:
            return []
        folder = self._service.board / submission.folder
        runs = self._library.snapshot.board.runs
        return [run for run in runs if run.folder.is_relative_to(folder)]


def _status_of(error: Exception) -> int:
    """Return the status of an error, 0 for one that only whoever runs the board may read."""
    for kind, status in STATUS.items():
        if isinstance(error, kind):
            return status
    return 0


_REFRESH = b"refresh\n"
"""The beginning of a cached page that is to be loaded again by itself."""


def _shown_moment(seconds: float) -> str:
    return moment(seconds).replace("T", " ").replace("Z", " UTC")


def _wants_json(request: Request) -> bool:
    return request.url.path.endswith(".json") or accepts_json(request)


def _json(content: Any) -> bytes:
    return page_json(content).encode()


def _response(
    body: bytes, json: bool, headers: Mapping[str, str] | None = None, status: int = 200
) -> Response:
    """Return an answer that nobody keeps."""
    # The form says where it comes from, to this server alone, which checks that.
    every = {"cache-control": "no-store", "referrer-policy": "same-origin", **(headers or {})}
    media_type = "text/html; charset=utf-8"
    if json:
        media_type = "application/json"
    return Response(body, status, every, media_type)


def _is_form(request: Request) -> bool:
    """Check that a request comes from a form of a page."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    return kind == "application/x-www-form-urlencoded"


_FIELDS = 16
"""Fields of a form."""


async def _fields(request: Request) -> JsonDict:
    """Return the fields of a form, or else the JSON object in the request; UsageError if it has
    neither.
    """
    content = await request.body()
    if _is_form(request):
        try:
            text = content.decode("utf-8")
            return dict(parse_qsl(text, max_num_fields=_FIELDS, strict_parsing=bool(content)))
        except ValueError as error:
            words = "the form can't be read; send model, revision, dtype and token"
            raise UsageError(words) from error
    # Whatever the request says of its content: programs forget the header.
    try:
        return TypeAdapter(dict[str, Any]).validate_json(content or b"{}")
    except ValueError as error:
        raise UsageError("the content must be a JSON object in UTF-8") from error
