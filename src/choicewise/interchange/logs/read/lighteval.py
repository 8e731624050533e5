"""Details of lighteval: ``details_TASK_DATE.parquet``, and ``results_DATE.json`` with the totals and the model's name.

Read from huggingface/lighteval@3fd1526 (2026), @8d9ecd6 (0.9.2) and @e469d7e (January 2024),
logging/evaluation_tracker.py: ``OUT/details/MODEL/DATE/details_...`` beside ``OUT/results/MODEL/results_...``; on the
Hub ``DATE/details_...`` beside ``results_...``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from choicewise.errors import DataError
from choicewise.interchange.logs.log import Log, LoggedItem, Unreadable
from choicewise.interchange.logs.read import Reader
from choicewise.interchange.logs.read.layout import laid_out_by
from choicewise.interchange.logs.read.lighteval_item import logged_item
from choicewise.interchange.logs.read.lighteval_row import COLUMNS, detail
from choicewise.interchange.logs.read.lighteval_task import Task, read_task

PARTS: Final = 5
"""So many parts of one task (MMLU's subjects) are one log with a subject each; fewer remain tasks of their own."""

_PART: Final = re.compile(
    r"(?P<suite>[^|]*\|)?(?P<parent>[^|:]+?)(?::|(?<=hendrycksTest)-)(?P<part>[^|]+)(?P<rest>\|.*)?"
)


def _recognises(path: Path) -> bool:
    if path.is_dir():
        return next(path.rglob("details_*.parquet"), None) is not None
    return path.name.startswith("details_") and path.suffix == ".parquet"


def _read(paths: Sequence[Path], results: Path | None) -> Iterator[Log]:
    """A log for every model and task, of the newest date where there are several."""
    files = dict.fromkeys(file for path in paths for file in _files(path))
    newest: dict[tuple[str, str], Task] = {}
    older: list[str] = []
    for task in sorted((read_task(file, results) for file in files), key=lambda each: each.date):
        if (task.model, task.name) in newest:
            older.append(f"{newest[task.model, task.name].path.name} is older than another of its task")
        newest[task.model, task.name] = task
    together: dict[tuple[str, str], list[tuple[str, Task]]] = {}
    for task in newest.values():
        name, part = _parent(task, newest)
        together.setdefault((task.model, name), []).append((part, task))
    logs = [(_log_or_broken(model, name, tasks), tasks) for (model, name), tasks in together.items()]
    other = [f"{name} is no multiple choice" for log, tasks in logs if log is None for name in (tasks[0][1].name,)]
    kept = [log for log, _ in logs if log is not None]
    if not kept:
        raise DataError(f"{', '.join(map(str, paths))}: {'; '.join(other) or 'no details of lighteval'}")
    for log in kept:
        yield replace(log, unused=(*log.unused, *older, *other))


def _files(path: Path) -> list[Path]:
    return sorted(path.rglob("details_*.parquet")) if path.is_dir() else [path]


def _parent(task: Task, tasks: Mapping[tuple[str, str], Task]) -> tuple[str, str]:
    """The task's name and part: ``leaderboard|mmlu:anatomy|5`` → ``leaderboard|mmlu|5`` and anatomy."""
    match = _PART.fullmatch(task.name)
    if match is None:
        return task.name, ""
    whole_name = "".join([match["suite"] or "", match["parent"], match["rest"] or ""])
    others = [_PART.fullmatch(name) for model, name in tasks if model == task.model]
    alike = [each for each in others if each and (each["suite"], each["parent"], each["rest"]) == match.group(1, 2, 4)]
    return (whole_name, match["part"]) if len(alike) >= PARTS else (task.name, "")


def _log_or_broken(model: str, name: str, tasks: Sequence[tuple[str, Task]]) -> Log | None:
    """The same, whose items are the error where a file can't be used: the other tasks are kept."""
    try:
        return _log(model, name, tasks)
    except DataError as error:
        return Log("lighteval", model, name, Unreadable(error))


def _log(model: str, name: str, tasks: Sequence[tuple[str, Task]]) -> Log | None:
    """The log, or None where the task is no multiple choice."""
    items: list[LoggedItem] = []
    nulls: set[str | None] = set()
    truncated = 0
    for part, task in tasks:
        for number, row in enumerate(_rows(task.path)):
            place = f"{task.path}, row {number}"
            with laid_out_by("lighteval", task.path):
                given = detail(row, number, place)
                item = logged_item(given, part, place)
            if item is None and items:
                raise DataError(f"{place} is no multiple choice, and those before it are; is it of two tasks?")
            if item is None:
                return None
            items.append(replace(item, id=f"{part}/{item.id}") if part else item)
            if any(choice.unconditional is not None for choice in item.choices):
                nulls.add(given.null)
            truncated += given.truncated > 0
    if not items:
        raise DataError(f"{tasks[0][1].path} holds no rows; the task was not run")
    if len({item.id for item in items}) < len(items):
        items = [replace(item, id=f"{item.subject}/{number}".lstrip("/")) for number, item in enumerate(items)]
    cut = {"truncated": f"{truncated} of {len(items)} items"} if truncated else {}
    return Log(
        tool="lighteval",
        model=model,
        task=name,
        items=tuple(items),
        settings={**tasks[0][1].settings, **cut},
        null=next(iter(nulls)) if len(nulls) == 1 else None,
        recorded=tasks[0][1].totals if len(tasks) == 1 else {},
    )


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    """The rows of a file, without the token ids of the prompts, which are most of it."""
    import pyarrow as pa

    from choicewise.store.files import TABLE, open_file
    from choicewise.store.unpacked import open_parquet, unpacked

    try:
        with open_file(path, TABLE) as file:
            table = open_parquet(file)
            columns = [name for name in table.schema_arrow.names if name in COLUMNS]
            unpacked(file, columns, whole=False)
            for batch in table.iter_batches(256, columns=columns, use_threads=False):
                yield from batch.to_pylist()
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} can't be read as Parquet: {error}; copy it again") from error


READER = Reader("lighteval's details (details_*.parquet, with results_*.json)", _recognises, _read)
"""Details of lighteval."""
