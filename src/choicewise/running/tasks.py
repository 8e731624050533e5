"""Finds the sources of a job's items: the catalogue's protocols, and tasks of other tools."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from choicewise.errors import UsageError, not_applicable
from choicewise.ports import TaskLibrary, find
from choicewise.running.fitting import selectors_with_shots
from choicewise.running.job import Job, Source
from choicewise.running.job import sources_of as catalogue_sources

_TASK = re.compile(r"([a-z][a-z0-9-]*):.+", re.DOTALL)


def library_of(selector: str) -> TaskLibrary | None:
    """Return the library whose task ``selector`` names, ``lm-eval:arc_easy``, or None."""
    task = _TASK.fullmatch(selector)
    if task is None:
        return None
    return find(TaskLibrary, task[1])


def split_tasks(selectors: Iterable[str]) -> tuple[list[str], list[str]]:
    """Return the selectors that name tasks, and the others."""
    tasks: list[str] = []
    others: list[str] = []
    for selector in selectors:
        if library_of(selector) is None:
            others.append(selector)
        else:
            tasks.append(selector)
    return tasks, others


def sources_of(
    job: Job, fitting: bool = False, spelled: Callable[[str], str] = str
) -> list[Source]:
    """Return the sources of the items of ``job``: for the catalogue's protocols, and for tasks.

    ``fitting``: True to leave out protocols that do not fit the data.  ``spelled``: from the name
    of an option to the user's spelling.  Raises UsageError for an option that no source of the job
    takes, and the errors of the sources.
    """
    tasks, others = split_tasks(selectors_with_shots(job.protocols, job.shots))
    sources = catalogue_sources(job, others, fitting) if others or job.data else []
    refused = _refusal(job, tasks, spelled)
    if refused:
        raise UsageError(refused)
    selectors_of_library: dict[TaskLibrary, list[str]] = {}
    for task in tasks:
        library = library_of(task)
        assert library is not None
        selectors_of_library.setdefault(library, []).append(task)
    for library, selectors in selectors_of_library.items():
        sources += library.sources(selectors, job)
    return sources


TASK_OPTIONS: Final = ("include_path", "allow_task_code")
"""Options of a job that only tasks take."""


def _refusal(job: Job, tasks: Sequence[str], spelled: Callable[[str], str]) -> str:
    """Return why an option of ``job`` is refused beside its ``tasks``, "" if none is."""
    given = [option for option in TASK_OPTIONS if getattr(job, option)]
    if not tasks:
        return _without_use(
            "protocols without a task of the harness (lm-eval:TASK)", given, spelled
        )
    first = tasks[0]
    if job.score:
        return _without_use(
            f"{first}, which names its own metrics (such as {first}:acc_norm)", ["score"], spelled
        )
    for task in tasks:
        library = library_of(task)
        assert library is not None
        useless = [option for option in given if option not in library.takes]
        if useless:
            return _without_use(task, useless, spelled)
    for model in job.models:
        chat = [option for option in ("chat", "system") if getattr(model, option)]
        if chat:
            return _without_use(
                f"{first}, which runs as the harness runs it, without a chat", chat, spelled
            )
    return ""


def _without_use(target: str, useless: Sequence[str], spelled: Callable[[str], str]) -> str:
    if not useless:
        return ""
    return not_applicable(list(map(spelled, useless)), target)
