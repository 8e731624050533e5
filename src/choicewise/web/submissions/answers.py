"""Answers of the routes of submissions: JSON that nobody keeps, and errors by what went wrong."""

import errno
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from choicewise.errors import ChoicewiseError, StoreError, UsageError
from choicewise.submissions.trouble import (
    Busy,
    Damaged,
    DiskFull,
    Lacking,
    LeaseLost,
    NoSubmission,
    NotAllowed,
    Refused,
    TooMuch,
    WrongPart,
)
from choicewise.web.json_text import json_text
from choicewise.web.server.door import TooLarge

if TYPE_CHECKING:
    from starlette.responses import Response

STATUS: Mapping[type[Exception], int] = {
    UsageError: 400,
    WrongPart: 400,
    NotAllowed: 403,
    NoSubmission: 404,
    LeaseLost: 409,
    Lacking: 409,
    TooMuch: 413,
    TooLarge: 413,
    Damaged: 422,
    Refused: 422,
    Busy: 503,
    DiskFull: 507,
}
"""What each error is in HTTP."""

AGAIN = 5
"""Seconds after which a busy queue may be asked again."""

OUR_TROUBLE = "something is wrong on the disk of this board; whoever runs it can see what"


def answer(content: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> "Response":
    """JSON, never kept."""
    from starlette.responses import Response

    kept = {"cache-control": "no-store", **(headers or {})}
    return Response(json_text(content).encode(), status, kept, "application/json")


def status_of(error: Exception, tell: Callable[[str], None]) -> tuple[int, str]:
    """The status and the words of an error; what only whoever runs the board may read is a line for ``tell``."""
    for kind, status in STATUS.items():
        if isinstance(error, kind):
            words = str(error) if isinstance(error, ChoicewiseError) else "more content than is taken here; send less"
            return status, words
    tell(f"error with a submission: {error}")
    full = isinstance(error.__cause__, OSError) and error.__cause__.errno in (errno.ENOSPC, errno.EDQUOT)
    return (507, "the disk of this board is full; ask again later") if full else (503, OUR_TROUBLE)


def refusal(error: "ChoicewiseError | TooLarge", tell: Callable[[str], None]) -> "Response":
    """The same as an answer."""
    status, words = status_of(error, tell)
    further = {"lacking": [*error.sums]} if isinstance(error, Lacking) else {}
    return answer({"error": words, **further}, status, headers_of(error, status))


def headers_of(error: Exception, status: int) -> dict[str, str]:
    """What else an answer with that status says."""
    headers = {"retry-after": str(AGAIN)} if status == 503 and isinstance(error, StoreError) else {}
    return {**headers, **({"connection": "close"} if isinstance(error, TooLarge | TooMuch | DiskFull) else {})}
