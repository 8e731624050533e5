"""The pages and routes by which people submit models, and follow what becomes of them."""

from __future__ import annotations

import errno
import json
import os
import re
import secrets
import stat
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

from choicewise.board.access import READS, Door, TooLarge, bearers, read_token, same_token
from choicewise.board.library import Library, Shelf
from choicewise.board.model import ListedRun
from choicewise.board.pages import Links, rendered
from choicewise.board.service import SubmissionService
from choicewise.board.submission import (
    DTYPES,
    Busy,
    NoSubmission,
    NotAllowed,
    Refused,
    State,
    Submission,
    moment,
    wanted,
)
from choicewise.errors import ChoicewiseError, StoreError, UsageError
from choicewise.util.background import Threads
from choicewise.util.cache import BoundedCache
from choicewise.util.files import disk_errors
from choicewise.util.jsonio import page_json

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route


ADDRESS = "/submissions"

RETRY_AFTER = 15
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

    def __init__(self, service: SubmissionService, tokens: Tokens, tell: Callable[[str], None]) -> None:
        self.address, self.doors = ADDRESS, doors(tokens)
        self._service, self._tokens, self._tell = service, tokens, tell
        self._threads = Threads(8)
        self._cache = BoundedCache[Hashable, bytes](KEPT, len)

    def close(self) -> None:
        """Let go of the queue."""
        self._service.close()

    def routes(self, library: Library, links: Links) -> list[Route]:
        """Of the pages and of who submits."""
        from starlette.routing import Route

        async def listed(request: Request) -> Response:
            return await self._listed(request, library, links)

        async def submitted(request: Request) -> Response:
            return await self._submitted(request, library, links)

        async def one(request: Request) -> Response:
            return await self._one(request, library, links)

        return [
            Route(ADDRESS, submitted, methods=["POST"]),
            Route(ADDRESS, listed, methods=["GET"]),
            Route(f"{ADDRESS}.json", listed, methods=["GET"]),
            Route("/submission/{id}", one, methods=["GET"]),
        ]

    async def _listed(self, request: Request, library: Library, links: Links) -> Response:
        json = _wants_json(request)

        def made() -> bytes:
            submissions = self._service.queue.submissions(LISTED)
            if json:
                return page_json({"submissions": [self._record(library, each) for each in submissions]}).encode()
            counts = self._service.queue.counts()
            return _encoded(submissions_page(library.shelf, links, self._service, submissions, counts))

        try:
            body = await self._threads.run(lambda: self._made(library, ("", json, False), made))
        except StoreError as error:
            return refusal(error, self._tell)
        return _response(body, "application/json") if json else _response(body, _HTML)

    def _made(self, library: Library, asked: tuple[str, bool, bool], make: Callable[[], bytes]) -> bytes:
        """What ``make`` makes, once for each state of the queue and of the board."""
        key = self._service.queue.version(), library.shelf.number, asked
        body = self._cache.get(key)
        if body is None:
            body = make()
            self._cache.put(key, body)
        return body

    async def _one(self, request: Request, library: Library, links: Links) -> Response:
        name, json = request.path_params["id"].removesuffix(".json"), _wants_json(request)
        there = not json and request.url.query == THERE

        def made() -> bytes:
            submission = self._service.queue.get(name)
            if json:
                return page_json(self._record(library, submission)).encode()
            noticed = submission.state is not State.DONE or runs_of(library.shelf, self._service, submission)
            again = _AGAIN if not submission.state.final or not noticed else b""
            return again + _encoded(submission_page(library.shelf, links, self._service, submission, there))

        try:
            body = await self._threads.run(lambda: self._made(library, (name, json, there), made))
        except ChoicewiseError as error:
            return refusal(error, self._tell) if json else _words(*status_of(error, self._tell))
        if json:
            return _response(body, "application/json")
        return _response(
            body.removeprefix(_AGAIN), _HTML, {"refresh": str(RETRY_AFTER)} if body.startswith(_AGAIN) else {}
        )

    async def _submitted(self, request: Request, library: Library, links: Links) -> Response:
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
            submission, new = await self._threads.run(lambda: self._service.submit(asked))
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
    ) -> Response:
        """JSON with the error, or the form again with it, without the token; words alone where it may not be shown."""
        if not form:
            return answer({"error": words}, status, headers)
        if not shown:
            return _words(status, words, headers)
        kept = {name: str(given.get(name, ""))[:300] for name in ("model", "revision", "dtype")}
        page = submissions_page(library.shelf, links, self._service, (), {}, words, kept)
        return _response(_encoded(page), _HTML, headers, status)

    def _may_submit(self, request: Request, given: Mapping[str, Any]) -> bool:
        field = given.get("token")
        offered = [*bearers(request.headers.getlist("authorization")), *([field] if isinstance(field, str) else [])]
        return any([self._tokens.may_submit(each.strip()) for each in offered])  # noqa: C419 each takes its time

    def _record(self, library: Library, submission: Submission) -> dict[str, Any]:
        runs = [f"/run/{run.id}" for run in runs_of(library.shelf, self._service, submission)]
        return replace(submission, runs=tuple(runs)).as_json()


def _wants_json(request: Request) -> bool:
    accepted = request.headers.get("accept", "")
    return request.url.path.endswith(".json") or ("application/json" in accepted and "text/html" not in accepted)


def _encoded(page: str) -> bytes:
    return page.encode("utf-8", "backslashreplace")


def _response(body: bytes, media: str, headers: Mapping[str, str] | None = None, status: int = 200) -> Response:
    """What nobody else keeps.  The form says where it comes from, to this server alone, which looks at that."""
    from starlette.responses import Response

    own = {"cache-control": "no-store", "referrer-policy": "same-origin", **(headers or {})}
    return Response(body, status, own, media)


def _words(status: int, words: str, headers: Mapping[str, str] | None = None) -> Response:
    from starlette.responses import PlainTextResponse

    return PlainTextResponse(f"{words}\n", status, {"cache-control": "no-store", **(headers or {})})


FORM = 16_384
"""Bytes of a submission."""


def doors(tokens: Tokens) -> tuple[Door, ...]:
    """All of them.  Who submits shows the token in the form as well, so that there the application looks itself."""
    return (
        Door(_methods("POST"), re.compile(r"/submissions"), FORM),
        Door(_methods("GET HEAD"), re.compile(r"/submissions(\.json)?"), 0, tokens.may_submit, readers=True),
        Door(_methods("GET HEAD"), re.compile(r"/submission/[^/]+"), 0, tokens.may_submit, readers=True),
    )


def _methods(names: str) -> frozenset[str]:
    return frozenset(names.split())


STATUS: Mapping[type[Exception], int] = {
    UsageError: 400,
    NotAllowed: 403,
    NoSubmission: 404,
    TooLarge: 413,
    Refused: 422,
    Busy: 503,
}
"""What each error is in HTTP."""

RETRY_LATER = 5
"""Seconds after which a busy queue may be asked again."""

OUR_TROUBLE = "something is wrong on the disk of this board; whoever runs it can see what"


def answer(content: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """JSON, never kept."""
    from starlette.responses import Response

    kept = {"cache-control": "no-store", **(headers or {})}
    return Response(page_json(content).encode(), status, kept, "application/json")


def status_of(error: Exception, tell: Callable[[str], None]) -> tuple[int, str]:
    """The status and the words of an error; what only whoever runs the board may read is a line for ``tell``."""
    for kind, status in STATUS.items():
        if isinstance(error, kind):
            words = str(error) if isinstance(error, ChoicewiseError) else "more content than is taken here; send less"
            return status, words
    tell(f"error with a submission: {error}")
    full = isinstance(error.__cause__, OSError) and error.__cause__.errno in (errno.ENOSPC, errno.EDQUOT)
    return (507, "the disk of this board is full; ask again later") if full else (503, OUR_TROUBLE)


def refusal(error: ChoicewiseError | TooLarge, tell: Callable[[str], None]) -> Response:
    """The same as an answer."""
    status, words = status_of(error, tell)
    return answer({"error": words}, status, headers_of(error, status))


def headers_of(error: Exception, status: int) -> dict[str, str]:
    """What else an answer with that status says."""
    headers = {"retry-after": str(RETRY_LATER)} if status == 503 and isinstance(error, StoreError) else {}
    return {**headers, **({"connection": "close"} if isinstance(error, TooLarge) else {})}


_FORM = "application/x-www-form-urlencoded"
_FIELDS = 16


async def form_fields(request: Request) -> dict[str, Any]:
    """The fields of a form, or the object in the request.  UsageError for what is neither."""
    if is_form(request):
        content = await request.body()
        try:
            return dict(parse_qsl(content.decode("utf-8"), max_num_fields=_FIELDS, strict_parsing=bool(content)))
        except ValueError as error:
            raise UsageError("the form can't be read; send model, revision, dtype and token") from error
    return await fields(request)


async def fields(request: Request) -> dict[str, Any]:
    """The JSON object in the request, whatever it says that it is.  UsageError where it is none."""
    content = await request.body()
    try:
        value = json.loads(content.decode("utf-8") or "{}", parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise UsageError("the content must be a JSON object in UTF-8") from error
    if not isinstance(value, dict):
        raise UsageError("the content must be a JSON object in UTF-8")
    return value


def is_form(request: Request) -> bool:
    """Whether it comes from a form of a page."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower() == _FORM


def _no_number(name: str) -> None:
    raise ValueError(name)


SHOWN = 200
"""Submissions on the page; the JSON has more."""


def runs_of(shelf: Shelf, service: SubmissionService, submission: Submission) -> list[ListedRun]:
    """The runs of a submission that the board has noticed by now."""
    if not submission.folder:
        return []
    place = service.board / submission.folder
    return [run for run in shelf.board.runs if run.folder.is_relative_to(place)]


def submissions_page(
    shelf: Shelf,
    links: Links,
    service: SubmissionService,
    listed: Sequence[Submission],
    counts: Mapping[State, int],
    error: str = "",
    given: Mapping[str, str] | None = None,
) -> str:
    """The form and the list; ``error`` says what was wrong with what was ``given``, which stands in the form again."""
    return rendered(
        "submissions.html.j2",
        shelf,
        links,
        service=service,
        listed=listed[:SHOWN],
        counts=counts,
        total=sum(counts.values()),
        error=error,
        given={"model": "", "revision": "", "dtype": "", **(given or {})},
        dtypes=DTYPES,
        **_common(),
    )


def submission_page(
    shelf: Shelf, links: Links, service: SubmissionService, submission: Submission, there: bool = False
) -> str:
    """How far one submission is, and where its runs are; ``there``: it was when somebody submitted the same."""
    own = runs_of(shelf, service, submission)
    return rendered(
        "submission.html.j2", shelf, links, service=service, each=submission, runs=own, there=there, **_common()
    )


def _common() -> dict[str, Any]:
    return {"State": State, "moment": lambda seconds: moment(seconds).replace("T", " ").replace("Z", " UTC")}


SUBMIT = "CHOICEWISE_SUBMIT_TOKEN"
"""The variable that holds the token where no file does."""


@dataclass(frozen=True)
class Tokens:
    """``submit`` opens submitting, and is never shown."""

    submit: str = field(repr=False)

    def may_submit(self, given: str | None) -> bool:
        """Whether that is the token of who submits."""
        return same_token(given, self.submit)


def kept_token(file: Path) -> tuple[str, bool]:
    """The token in ``file``, a random one that is written there where there is none, and whether it is new.

    Only whoever runs the board can read the file.  Raises UsageError for a file that others can read.
    """
    if os.path.lexists(file):
        about = file.lstat()
        if not stat.S_ISREG(about.st_mode) or about.st_mode & 0o077:
            raise UsageError(f"{file} can be read or replaced by others; delete it, and a new token is made")
        token = read_token(file)
        assert token is not None
        return token, False
    token = secrets.token_urlsafe(24)
    with disk_errors(file):
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "w", encoding="ascii") as opened:
            opened.write(f"{token}\n")
    return token, True
