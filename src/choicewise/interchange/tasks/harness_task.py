"""A harness task, asked here: its questions as a dataset, and its metrics as protocols."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from choicewise.data.dataset import Dataset
from choicewise.errors import DataError, ProtocolError, UsageError
from choicewise.interchange.tasks.asked_row import AskedRow, asked_rows
from choicewise.interchange.tasks.loading import LoadedTasks, harness_version, load_tree, quiet, shipped_tasks
from choicewise.interchange.tasks.probed_metric import probed, results_code
from choicewise.interchange.tasks.selector import PREFIX, SHOTS, TaskSelector, parse_task
from choicewise.interchange.tasks.task_check import check_tree
from choicewise.interchange.tasks.task_form import AskedTask, task_form
from choicewise.interchange.tasks.task_items import task_items
from choicewise.interchange.tasks.task_metrics import own_metrics
from choicewise.interchange.tasks.task_names import TaskNames
from choicewise.interchange.tasks.task_protocols import TaskProtocols
from choicewise.interchange.tasks.task_tree import TaskTree, task_tree
from choicewise.interchange.tasks.templates import TaskTemplates, bounded_templates
from choicewise.protocols.protocol import Protocol
from choicewise.records.manifest import SkippedRow
from choicewise.requests.rendered import RenderedRequests

LISTED = 24
"""Rows that an error lists; it counts the others."""


@dataclass(frozen=True)
class HarnessTask:
    """What :func:`choicewise.evaluate` needs to ask a task: ``data``, ``protocols`` by name, and ``rendered`` requests.

    ``notes``: what whoever compares the numbers with the harness's should know.
    """

    name: str
    data: Dataset
    protocols: Mapping[str, Protocol]
    rendered: tuple[RenderedRequests, ...]
    notes: tuple[str, ...]


def load_harness_tasks(
    *selectors: str,
    include_path: Sequence[str | Path] = (),
    allow_code: bool = False,
    on_bad_item: str = "error",
) -> list[HarnessTask]:
    """The harness tasks that are named, ``lm-eval:arc_easy`` or ``lm-eval:PATH.yaml``; a tag is all its tasks.

    ``include_path``: further folders of task files.  ``allow_code``: whether Python code that the files name may run.
    ``on_bad_item``: ``skip`` sets rows aside that have no right answer that counts.

    Raises UsageError without the package ``lm_eval``, ProtocolError for what is no task, can't be asked here or runs
    code that is not allowed, DataError for data that are not there or rows that can't be asked.
    """
    if on_bad_item not in ("error", "skip"):
        raise UsageError(f"on_bad_item is {on_bad_item!r}; it must be error or skip")
    include = [Path(folder) for folder in include_path]
    named = named_tasks(selectors, include, allow_code)
    return [load_named(tree, [task for _, task in tasks], include, on_bad_item) for tree, tasks in named]


NamedTask = tuple[TaskTree, list[tuple[str, TaskSelector]]]
"""A task or group, and what is asked of it: the text of each selector, and what it says."""


def named_tasks(selectors: Sequence[str], include: Sequence[Path], allow_code: bool) -> list[NamedTask]:
    """The tasks and groups that are named, checked and not loaded, each once; a tag gives its tasks.

    Errors as of :func:`load_harness_tasks`, but for what is wrong with data.
    """
    if absent := [folder for folder in include if not folder.is_dir()]:
        raise UsageError(f"{absent[0]} is no folder; name one with task files")
    names = TaskNames([shipped_tasks(), *include])
    named: dict[str, NamedTask] = {}
    for selector in selectors:
        asked = parse_task(selector)
        tree = task_tree(asked.name, names)
        check_tree(tree, allow_code)
        trees = [task_tree(leaf.name, names) for leaf in tree.leaves] if tree.is_tag else [tree]
        for each in trees:
            own = replace(asked, name=each.name) if tree.is_tag else asked
            known, tasks = named.setdefault(each.name, (each, []))
            if known.files != each.files:
                files = f"{known.files[0]} and {each.files[0]}"
                raise ProtocolError(f"two tasks are called {each.name}, in {files}; ask one at a time")
            tasks.append((selector, own))
    return list(named.values())


def load_named(tree: TaskTree, tasks: Sequence[TaskSelector], include: Sequence[Path], on_bad_item: str) -> HarnessTask:
    """A task or group that was checked, with its data and requests."""
    templates = TaskTemplates()
    loaded = load_tree(tree, tasks[0].name, include, templates)
    with quiet(), bounded_templates(templates):
        return _Making(tree, loaded, on_bad_item, templates).task(tasks)


class _Making:
    """One dataset with its protocols under way."""

    def __init__(self, tree: TaskTree, loaded: LoadedTasks, on_bad_item: str, templates: TaskTemplates) -> None:
        self._tree, self._loaded = tree, loaded
        self._on_bad_item, self._templates = on_bad_item, templates
        self._called = f"{PREFIX}{tree.name}"
        self._notes: dict[str, None] = {}

    def task(self, selectors: Sequence[TaskSelector]) -> HarnessTask:
        """The task under everything that is selected of it."""
        variants = {each.shots: [*self._asked(each.shots)] for each in selectors}
        first = next(iter(variants.values()))
        data = self._dataset(first)
        forms = {shots: task_form(self._called, asked, data) for shots, asked in variants.items()}
        protocols: dict[str, Protocol] = {}
        making = TaskProtocols(self._called, self._loaded.group, self._note)
        for each in selectors:
            protocols |= making.under(each, variants[each.shots], forms[each.shots])
        for form in forms.values():
            if form.rendered is not None:
                self._note(f"its requests are kept as the harness renders them: {form.reason}")
        rendered = tuple(form.rendered for form in forms.values() if form.rendered is not None)
        return HarnessTask(self._called, data, protocols, rendered, tuple(self._notes))

    def _note(self, text: str) -> None:
        self._notes[f"{self._called}: {text}"] = None

    def _asked(self, shots: int | None) -> Iterator[AskedTask]:
        """Every leaf with its rows, under ``shots`` where its file does not forbid them."""
        fixed = [task.config.task for task in self._loaded.tasks if task.config.num_fewshot == 0]
        if shots and len(fixed) == len(self._loaded.tasks):
            raise ProtocolError(
                f"{self._called} says num_fewshot: 0, which the harness never changes; leave out @{SHOTS}={shots}"
            )
        if shots and fixed:
            self._note(f"{len(fixed)} of {len(self._loaded.tasks)} tasks say num_fewshot: 0 and stay without shots")
        for task in self._loaded.tasks:
            own = task.config.num_fewshot or 0
            number = own if shots is None or task.config.num_fewshot == 0 else shots
            rows = self._judged(task, list(asked_rows(task, number)))
            self._tell_rows(task, rows)
            subject = task.config.task if self._tree.group is not None else ""
            yield AskedTask(task, number, rows, task_items(task, subject, rows, self._templates))

    def _judged(self, task: Any, rows: list[AskedRow]) -> list[AskedRow]:
        """The rows with the right answers that the task's own code has, where it scores by code that we recognise."""
        if not results_code(task) or task.OUTPUT_TYPE != "multiple_choice":
            return rows
        asked = [row for row in rows if row.contexts]
        for name in own_metrics(task):
            if (result := probed(task, name, asked)) is not None:
                judged = iter(result[1])
                return [replace(next(judged), refused=None) if row.contexts else row for row in rows]
        return rows

    def _tell_rows(self, task: Any, rows: Sequence[AskedRow]) -> None:
        if own := sum(row.own_shot for row in rows):
            self._note(
                f"{own} of {len(rows)} rows of {task.config.task} stand among their own shots, as in the harness"
            )
        if digits := sum(row.read_as_index for row in rows):
            self._note(
                f"the target of {digits} rows of {task.config.task} is the text of one choice, and counts as the index "
                "of another, as in the harness"
            )

    def _dataset(self, asked: Sequence[AskedTask]) -> Dataset:
        refused = [
            SkippedRow(f"{PREFIX}{each.task.config.task}", number, row.refused)
            for each in asked
            for number, row in enumerate(each.rows)
            if row.refused is not None
        ]
        if refused and self._on_bad_item == "error":
            lines = [f"{row.file}, row {row.row}: {row.reason}" for row in refused[:LISTED]]
            more = [f"and {len(refused) - LISTED} more"] if len(refused) > LISTED else []
            raise DataError(
                f"{self._called}: {len(refused)} rows can't be asked; skip bad items to count them as missing",
                [*lines, *more],
            )
        splits: dict[str, list[Any]] = {}
        for each in asked:
            splits.setdefault(asked[0].items.split, []).extend(each.items.items)
            for name, pool in each.items.pool.items():
                splits.setdefault(name, []).extend(pool)
        if not splits[asked[0].items.split]:
            raise DataError(f"{self._called} holds no row that can be asked, the first because {refused[0].reason}")
        return Dataset(self._called, splits, tuple(refused), read_with=self._read_with())

    def _read_with(self) -> str:
        """Which task this is, of which version and data, and who read it."""
        tasks, group = self._loaded.tasks, self._loaded.group
        about = (tasks[0].config.metadata if group is None else group.metadata) or {}
        paths = ", ".join(dict.fromkeys(str(task.config.dataset_path) for task in tasks))
        kind = "task" if group is None else f"group of {len(tasks)} tasks"
        version = about.get("version", "none")
        return f"lm-eval {harness_version()}: {kind} {self._tree.name}, version {version}, data {paths}"
