"""Harness tasks as sources of questions, as runs and sweeps take them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from choicewise.data.dataset import Dataset
from choicewise.data.download_bars import Download
from choicewise.interchange.tasks.harness_task import HarnessTask, load_named, named_tasks
from choicewise.interchange.tasks.loading import harness_version
from choicewise.interchange.tasks.selector import PREFIX, TaskSelector
from choicewise.interchange.tasks.task_tree import TaskTree
from choicewise.protocols.protocol import Protocol
from choicewise.requests.rendered import RenderedRequests
from choicewise.running.source import Source


@dataclass(frozen=True, kw_only=True)
class TaskSource(Source):
    """A task or group of the harness that is checked, and loaded when it is opened.

    ``tasks``: what of it is asked; ``tree``: its files; ``include``: the folders of further ones; ``allow_code``: as of
    :func:`~choicewise.interchange.tasks.harness_task.load_harness_tasks`.
    """

    tasks: tuple[TaskSelector, ...]
    tree: TaskTree = field(repr=False)
    include: tuple[str, ...] = ()
    allow_code: bool = False

    def open(self, progress: Download | None = None) -> Dataset:
        """The dataset, loaded once."""
        return self._loaded.data

    def protocols(self, data: Dataset, subjects: Sequence[str] | None = None) -> dict[str, Protocol]:
        """The metrics of the task."""
        return dict(self._loaded.protocols)

    @property
    def rendered(self) -> Sequence[RenderedRequests]:
        """The requests that no template of ours renders."""
        return self._loaded.rendered

    @property
    def notes(self) -> Sequence[str]:
        """What whoever compares the numbers with the harness's should know."""
        return self._loaded.notes

    @property
    def asked(self) -> str:
        """A digest of what is asked, and of the task files, their code and local data, with sizes and times."""
        states = sorted({state for path in self._files() for state in _state(path)})
        content = [self.selectors, self.include, self.allow_code, self.on_bad_item, harness_version(), states]
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()

    @cached_property
    def _loaded(self) -> HarnessTask:
        return load_named(self.tree, self.tasks, [Path(folder) for folder in self.include], self.on_bad_item)

    def _files(self) -> Iterator[Path]:
        yield from self.tree.files
        for code in self.tree.code:
            yield code.place.file.parent / f"{code.names.rpartition('.')[0].replace('.', '/')}.py"
        for leaf in self.tree.leaves:
            for text in _texts([leaf.config.get("dataset_path"), leaf.config.get("dataset_kwargs")]):
                yield Path(text)


def task_sources(
    selectors: Sequence[str], include_path: Sequence[Path], allow_code: bool, on_bad_item: str
) -> list[TaskSource]:
    """One source for each task or group that the selectors name, checked and not loaded; errors as there."""
    own = named_tasks(selectors, include_path, allow_code)
    return [
        TaskSource(
            tuple(selector for selector, _ in tasks),
            f"{PREFIX}{tree.name}",
            on_bad_item=on_bad_item,
            tasks=tuple(task for _, task in tasks),
            tree=tree,
            include=tuple(map(str, include_path)),
            allow_code=allow_code,
        )
        for tree, tasks in own
    ]


def _texts(value: Any) -> Iterator[str]:
    """Every text in nested lists and tables."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | list):
        for each in value.values() if isinstance(value, Mapping) else value:
            yield from _texts(each)


def _state(path: Path) -> Iterator[tuple[str, int, int]]:
    try:
        if path.is_file():
            state = path.stat()
            yield str(path), state.st_size, state.st_mtime_ns
    except (OSError, ValueError):
        return
