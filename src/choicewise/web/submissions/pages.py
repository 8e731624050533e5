"""The pages of submissions: a form and a list, and one of each."""

from collections.abc import Mapping, Sequence
from typing import Any

from choicewise.submissions.desk import Desk
from choicewise.submissions.submission import DTYPES, State, Submission, moment
from choicewise.web.board.library import Shelf
from choicewise.web.board.links import Links
from choicewise.web.board.listed_run import ListedRun
from choicewise.web.board.page import rendered

SHOWN = 200
"""Submissions on the page; the JSON has more."""


def runs_of(shelf: Shelf, desk: Desk, submission: Submission) -> list[ListedRun]:
    """The runs of a submission that the board has noticed by now."""
    if not submission.folder:
        return []
    place = desk.board / submission.folder
    return [run for run in shelf.board.runs if run.folder.is_relative_to(place)]


def submissions_page(
    shelf: Shelf,
    links: Links,
    desk: Desk,
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
        desk=desk,
        listed=listed[:SHOWN],
        counts=counts,
        total=sum(counts.values()),
        error=error,
        given={"model": "", "revision": "", "dtype": "", **(given or {})},
        dtypes=DTYPES,
        **_common(),
    )


def submission_page(shelf: Shelf, links: Links, desk: Desk, submission: Submission, there: bool = False) -> str:
    """How far one submission is, and where its runs are; ``there``: it was when somebody submitted the same."""
    own = runs_of(shelf, desk, submission)
    return rendered("submission.html.j2", shelf, links, desk=desk, each=submission, runs=own, there=there, **_common())


def _common() -> dict[str, Any]:
    return {"State": State, "moment": lambda seconds: moment(seconds).replace("T", " ").replace("Z", " UTC")}
