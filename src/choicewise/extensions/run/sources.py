"""Open the data of several sources, and gather what is wrong with them into one error."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from choicewise.errors import DataError, MissingData
from choicewise.running.job import Job, OpenedSource, Source, open_source

if TYPE_CHECKING:
    from choicewise.data.hub import Download


def open_all(
    sources: Sequence[Source],
    job: Job,
    progress: Download | None = None,
    measured: bool = True,
    checked: bool = False,
) -> tuple[dict[str, OpenedSource], dict[str, DataError]]:
    """Open sources; return those that opened, and the errors of the others, by name."""
    opened: dict[str, OpenedSource] = {}
    failed: dict[str, DataError] = {}
    for source in sources:
        try:
            opened[source.name] = open_source(source, job, progress, measured, checked)
        except DataError as error:
            failed[source.name] = error
    return opened, failed


def refuse(failed: Mapping[str, DataError], without_missing: bool = False) -> None:
    """Raise the errors of the data of several benchmarks as one, if there are any.

    ``without_missing``: True if data that are not found are no error.
    """
    missing = []
    wrong = []
    for error in failed.values():
        if isinstance(error, MissingData):
            missing.append(error)
        else:
            wrong.append(error)
    if len(wrong) == 1:
        raise wrong[0]
    if wrong:
        lines = []
        for error in wrong:
            lines.append(error.message)
            lines += [f"  {problem}" for problem in error.problems]
        raise DataError(f"the questions of {len(wrong)} benchmarks can't be used", lines)
    if without_missing or not missing:
        return
    if len(missing) == 1:
        raise missing[0]
    names: list[str] = []
    reasons: list[str] = []
    for error in missing:
        names += error.benchmarks
        reasons += [error.message, *error.problems]
    problems = list(dict.fromkeys(reasons))
    raise MissingData(f"the data of {len(names)} benchmarks are missing", problems, names)
