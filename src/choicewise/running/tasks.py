"""Tasks of other tools among the protocols that a job names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from choicewise.ports import TaskLibrary, find
from choicewise.running.job import Job, Source

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


def task_sources(tasks: Sequence[str], job: Job) -> list[Source]:
    """Return the sources of questions of ``tasks``, those of a library together."""
    selectors_of_library: dict[TaskLibrary, list[str]] = {}
    for selector in tasks:
        library = library_of(selector)
        assert library is not None
        selectors_of_library.setdefault(library, []).append(selector)
    sources: list[Source] = []
    for library, selectors in selectors_of_library.items():
        sources += library.sources(selectors, job)
    return sources
