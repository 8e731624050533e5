"""Tasks of the harness as data sets and protocols of ours: what is selected of them, and their metrics as axes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from choicewise.data.dataset import Dataset
from choicewise.data.hub import Download
from choicewise.errors import DataError, ProtocolError, UsageError, did_you_mean
from choicewise.extensions.interop.harness_tasks.files import (
    PREFIX,
    SHOTS,
    TaskSelector,
    check_tasks,
    parse_task,
)
from choicewise.extensions.interop.harness_tasks.load import (
    TaskNames,
    TaskTemplates,
    TaskTree,
    bounded_templates,
    harness_version,
    load_tree,
    quiet,
)
from choicewise.extensions.interop.harness_tasks.rows import (
    COMMON,
    AskedRow,
    AskedTask,
    asked_rows,
    asked_task,
    task_form,
)
from choicewise.protocols.between import CHANGES, change_axes
from choicewise.protocols.protocol import Protocol
from choicewise.records import SkippedRow
from choicewise.requests.render import RenderedRequests
from choicewise.running.job import Source
from choicewise.scoring.decide import CREDITS


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

    ``include_path``: further folders of task files.  ``allow_code``: whether Python code that files name may run which
    the harness does not come with.  ``on_bad_item``: ``skip`` sets rows aside that have no right answer that counts.

    Raises UsageError without the package ``lm_eval``, ProtocolError for what is no task, can't be asked here or runs
    code that is not allowed, DataError for data that are not there or rows that can't be asked.
    """
    if on_bad_item not in ("error", "skip"):
        raise UsageError(f"on_bad_item is {on_bad_item!r}; it must be error or skip")
    named = _named_tasks(selectors, [Path(folder) for folder in include_path], allow_code)
    return [_load(tree, [task for _, task in tasks], on_bad_item) for tree, tasks in named]


@dataclass(frozen=True, kw_only=True)
class TaskSource(Source):
    """A task or group of the harness that is checked, and loaded when it is opened.

    ``tasks``: what of it is asked; ``tree``: its files; ``include``: the folders of further ones; ``allow_code``: as of
    :func:`~choicewise.extensions.interop.harness_tasks.as_protocols.load_harness_tasks`.
    """

    tasks: tuple[TaskSelector, ...]
    tree: TaskTree = field(repr=False)
    include: tuple[str, ...] = ()
    allow_code: bool = False

    def open(self, progress: Download | None = None) -> Dataset:
        """The dataset, loaded once."""
        return self._loaded.data

    def protocols(
        self, data: Dataset, subjects: Sequence[str] | None = None
    ) -> dict[str, Protocol]:
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
    def state_digest(self) -> str:
        """A digest of what is asked, and of the task files, their code and local data, with sizes and times."""
        states = set[tuple[str, int, int]]()
        for path in self._files():
            with suppress(OSError, ValueError):
                if path.is_file():
                    states.add((str(path), path.stat().st_size, path.stat().st_mtime_ns))
        content = [
            self.selectors,
            self.include,
            self.allow_code,
            self.on_bad_item,
            harness_version(),
            sorted(states),
        ]
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()

    @cached_property
    def _loaded(self) -> HarnessTask:
        return _load(self.tree, self.tasks, self.on_bad_item)

    def _files(self) -> Iterator[Path]:
        yield from self.tree.files
        for code in self.tree.code:
            yield code.place.file.parent / f"{code.names.rpartition('.')[0].replace('.', '/')}.py"
        for leaf in self.tree.leaves:
            yield from map(Path, _texts([leaf.get("dataset_path"), leaf.get("dataset_kwargs")]))


def task_sources(
    selectors: Sequence[str], include_path: Sequence[Path], allow_code: bool, on_bad_item: str
) -> list[TaskSource]:
    """One source for each task or group that the selectors name, checked and not loaded; errors as there."""
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
        for tree, tasks in _named_tasks(selectors, include_path, allow_code)
    ]


def _texts(value: Any) -> Iterator[str]:
    """Every text in nested lists and tables."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | list):
        for each in value.values() if isinstance(value, Mapping) else value:
            yield from _texts(each)


_NamedTask = tuple[TaskTree, list[tuple[str, TaskSelector]]]
"""A task or group, and what is asked of it: the text of each selector, and what it says."""


def _named_tasks(
    selectors: Sequence[str], include: Sequence[Path], allow_code: bool
) -> Iterable[_NamedTask]:
    """The tasks and groups that are named, checked and not loaded, each once; a tag gives its tasks."""
    if absent := [folder for folder in include if not folder.is_dir()]:
        raise UsageError(f"{absent[0]} is no folder; name one with task files")
    names = TaskNames(include)
    named: dict[str, _NamedTask] = {}
    for selector in selectors:
        asked = parse_task(selector)
        tree = names.tree(asked.name)
        check_tasks(tree.name, tree.group, tree.leaves, tree.code, allow_code)
        for each in [names.tree(leaf.name) for leaf in tree.leaves] if tree.is_tag else [tree]:
            own = replace(asked, name=each.name) if tree.is_tag else asked
            known, tasks = named.setdefault(each.name, (each, []))
            if known.files != each.files:
                files = f"{known.files[0]} and {each.files[0]}"
                raise ProtocolError(
                    f"two tasks are called {each.name}, in {files}; ask one at a time"
                )
            tasks.append((selector, own))
    return named.values()


def _load(tree: TaskTree, selectors: Sequence[TaskSelector], on_bad_item: str) -> HarnessTask:
    """A task or group that was checked, with its data and requests, under everything that is selected of it."""
    templates = TaskTemplates()
    tasks, group = load_tree(tree, selectors[0].name, templates)
    with quiet(), bounded_templates(templates):
        build = _TaskBuild(tree, tasks, group, templates)
        variants = {each.shots: list(build.asked(each.shots)) for each in selectors}
        data = build.dataset(next(iter(variants.values())), on_bad_item)
        forms = {shots: task_form(build.called, asked, data) for shots, asked in variants.items()}
        protocols: dict[str, Protocol] = {}
        for each in selectors:
            protocols |= build.protocols(each, variants[each.shots], forms[each.shots][0])
        unrendered = [
            (rendered, reason) for _, rendered, reason in forms.values() if rendered is not None
        ]
        for _, reason in unrendered:
            build.note(f"its requests are kept as the harness renders them: {reason}")
        return HarnessTask(
            build.called, data, protocols, tuple(each for each, _ in unrendered), tuple(build.notes)
        )


_LISTED = 24
"""Rows that an error lists; it counts the others."""


class _TaskBuild:
    """The rows, data and protocols of one task or group; ``notes``, each once, by their texts."""

    def __init__(
        self, tree: TaskTree, tasks: list[Any], group: Any | None, templates: TaskTemplates
    ) -> None:
        self._tree, self._tasks, self._group, self._templates = tree, tasks, group, templates
        self.called = f"{PREFIX}{tree.name}"
        self.notes: dict[str, None] = {}

    def note(self, text: str) -> None:
        """Tell whoever compares the numbers with the harness's."""
        self.notes[f"{self.called}: {text}"] = None

    def asked(self, shots: int | None) -> Iterator[AskedTask]:
        """Every leaf with its rows, under ``shots`` where its file does not forbid them."""
        tasks = self._tasks
        fixed = [task for task in tasks if task.config.num_fewshot == 0]
        if shots and len(fixed) == len(tasks):
            raise ProtocolError(
                f"{self.called} says num_fewshot: 0, which the harness never changes; leave out @{SHOTS}={shots}"
            )
        if shots and fixed:
            self.note(
                f"{len(fixed)} of {len(tasks)} tasks say num_fewshot: 0 and stay without shots"
            )
        for task in tasks:
            number = (
                (task.config.num_fewshot or 0)
                if shots is None or task.config.num_fewshot == 0
                else shots
            )
            rows = _judged(task, list(asked_rows(task, number)))
            subject = task.config.task if self._tree.group is not None else ""
            if own := sum(row.own_shot for row in rows):
                self.note(
                    f"{own} of {len(rows)} rows of {task.config.task} stand among their own shots, as in the harness"
                )
            if digits := sum(row.read_as_index for row in rows):
                self.note(
                    f"the target of {digits} rows of {task.config.task} is the text of one choice, and counts as the "
                    "index of another, as in the harness"
                )
            yield asked_task(task, subject, number, rows, self._templates)

    def dataset(self, asked: Sequence[AskedTask], on_bad_item: str) -> Dataset:
        """The items of all tasks, and those of their pools; DataError where none, or with bad ones that count."""
        refused = [
            SkippedRow(f"{PREFIX}{each.task.config.task}", number, row.refused)
            for each in asked
            for number, row in enumerate(each.rows)
            if row.refused is not None
        ]
        if refused and on_bad_item == "error":
            lines = [f"{row.file}, row {row.row}: {row.reason}" for row in refused[:_LISTED]]
            more = [f"and {len(refused) - _LISTED} more"] if len(refused) > _LISTED else []
            raise DataError(
                f"{self.called}: {len(refused)} rows can't be asked; skip bad items to count them as missing",
                [*lines, *more],
            )
        splits: dict[str, list[Any]] = {}
        for each in asked:
            splits.setdefault(asked[0].split, []).extend(each.items)
            for name, pool in each.pool.items():
                splits.setdefault(name, []).extend(pool)
        if not splits[asked[0].split]:
            raise DataError(
                f"{self.called} holds no row that can be asked, the first because {refused[0].reason}"
            )
        tasks, group = self._tasks, self._group
        about = (tasks[0].config.metadata if group is None else group.metadata) or {}
        paths = ", ".join(dict.fromkeys(str(task.config.dataset_path) for task in tasks))
        kind = "task" if group is None else f"group of {len(tasks)} tasks"
        version = f"{kind} {self._tree.name}, version {about.get('version', 'none')}, data {paths}"
        return Dataset(
            self.called, splits, tuple(refused), read_with=f"lm-eval {harness_version()}: {version}"
        )

    def protocols(
        self, selector: TaskSelector, asked: Sequence[AskedTask], form: Axes
    ) -> dict[str, Protocol]:
        """The protocols that ``selector`` names, of tasks that are ``asked``, their requests in the axes ``form``.

        Raises ProtocolError for a metric that there is not, or that is not computed here.
        """
        own = {each.task.config.num_fewshot or 0 for each in asked}
        shots = (
            [f"{SHOTS}={selector.shots}"]
            if selector.shots is not None and own != {selector.shots}
            else []
        )
        named = {}
        for metric, axes in self._metrics(selector.metric, asked).items():
            name = f"{self.called}:{metric}"
            protocol = other = Protocol(benchmark=self.called, **{**COMMON, **form, **axes})
            if selector.changes:
                (other,) = change_axes({name: protocol}, selector.changes).values()
            changes = [*shots, *([selector.changes] if other != protocol else [])]
            named[f"{name}{CHANGES}{','.join(changes)}" if changes else name] = other
        return named

    def _metrics(self, wanted: str | None, asked: Sequence[AskedTask]) -> dict[str, dict[str, Any]]:
        """Metric → axes: all of the tasks' own that are computed here, or the one that is ``wanted``."""
        own = list(dict.fromkeys(name for each in asked for name in each.task.aggregation()))
        kinds = {each.task.OUTPUT_TYPE for each in asked}
        if len(kinds) > 1:
            raise ProtocolError(
                f"{self.called} mixes output types {', '.join(sorted(kinds))}; ask its tasks by themselves"
            )
        ours, fallback = _OURS[kinds.pop()]
        known = [*dict.fromkeys([*own, *(CHOICES if ours == "sum" else TARGETS), ours])]
        if wanted is not None and wanted not in known:
            raise ProtocolError(
                f"{self.called} has no metric {wanted!r}; {did_you_mean(wanted, known)}"
            )
        metrics: dict[str, dict[str, Any]] = {}
        for name in own if wanted is None else [wanted]:
            axes = fallback if name == ours and ours not in own else _common_axes(name, asked)
            if not isinstance(axes, str):
                metrics[name] = {**axes, "aggregation": self._aggregation(name)}
            elif wanted is None:
                self.note(f"its metric {name} is not computed here: {axes}")
            else:
                raise ProtocolError(f"{self.called}: metric {name} is not computed here: {axes}")
        if not metrics:
            self.note(f"{ours}, which is asked instead, is no metric of its own")
            return {ours: {**fallback, "aggregation": self._aggregation(ours)}}
        return metrics

    def _aggregation(self, metric: str) -> str:
        """``micro`` where a group weights its tasks by their sizes, as the harness does unless told otherwise."""
        if self._group is None:
            return "micro"
        listed = {each.metric: each for each in self._group.aggregate_metric_list or ()}
        if metric not in listed:
            self.note(
                f"the group says not how {metric} is averaged; here every row counts alike (micro)"
            )
            return "micro"
        return "micro" if listed[metric].weight_by_size else "macro"


Axes = Mapping[str, Any]


def _common_axes(name: str, asked: Sequence[AskedTask]) -> Axes | str:
    """The axes of a metric, where they are the same for all tasks, or why it is not computed here."""
    every: list[Axes] = []
    for each in asked:
        task, own = each.task, name in each.task.aggregation()
        if (aggregation := _other_aggregation(name, task)) is not None:
            return f"the task {task.config.task} aggregates it by {aggregation}"
        rows = [row for row in each.rows if row.refused is None]
        if own and callable(task.config.process_results):
            result = _probed(task, name, rows) if task.OUTPUT_TYPE == "multiple_choice" else None
            if result is None or [row.gold for row in rows] != [row.gold for row in result[1]]:
                return f"code of the task {task.config.task} computes it"
            axes: Axes | str = {"score": "sum", "metric": result[0]}
        elif len(asked) > 1 and not own:
            return f"the task {task.config.task} does not have it; ask tasks by themselves"
        else:
            axes = _metric_axes(name, task, rows)
        if isinstance(axes, str):
            return axes
        every.append(axes)
    if any(axes != every[0] for axes in every[1:]):
        return "its tasks compute it in different ways; ask them by themselves"
    return every[0]


def _metric_axes(name: str, task: Any, rows: Sequence[AskedRow]) -> Axes | str:
    """The axes that compute the metric ``name`` of ``task``, whose ``rows`` are those that can be asked, or why not."""
    if task.OUTPUT_TYPE == "loglikelihood":
        return TARGETS.get(name) or f"metric {name} is none of {', '.join(TARGETS)}"
    if name not in CHOICES:
        return f"metric {name} is none of {', '.join(CHOICES)}"
    if task.multiple_input and name not in ("acc", "exact_match"):
        return (
            f"metric {name} means nothing where choices are contexts, as their texts are not scored"
        )
    if name == "acc_mutual_info" and task.multiple_target:
        return f"metric {name} fails in the harness where rows have lists of targets"
    return CHOICES[name](rows)


def _other_aggregation(name: str, task: Any) -> str | None:
    """How ``task`` makes one number of the rows' values of its metric ``name``; None where that is what is done here.

    A task file may state it; a metric for which a task states nothing is averaged.
    """
    from lm_eval.api.registry import get_aggregation

    stated = task.aggregation().get(name)
    ours = ("perplexity",) if name == "perplexity" else ("mean", "nanmean")  # no value here is NaN
    if stated is None or any(stated is get_aggregation(each) for each in ours):
        return None
    return str(getattr(stated, "__name__", stated))


def _mean(
    lengths: Mapping[str, Callable[[str], int]], own: Callable[[str], int]
) -> Callable[[Sequence[AskedRow]], Axes | str]:
    """The score, of those that divide by ``lengths`` of what is sent, whose are those that the harness divides by."""

    def axes(rows: Sequence[AskedRow]) -> Axes | str:
        pairs = {pair for row in rows for pair in zip(row.continuations, row.choices, strict=True)}
        for score, length in lengths.items():
            if all(length(sent) == own(choice) for sent, choice in pairs):
                return {"score": score}
        sent, choice = next(iter(pairs))
        return f"it divides by the length of {choice[:40]!r}, and no score here by that of {sent[:40]!r}"

    return axes


CHOICES: Mapping[str, Callable[[Sequence[AskedRow]], Axes | str]] = {
    "acc": lambda rows: {"score": "sum"},
    "acc_norm": _mean(
        {"char_mean_bare": lambda text: len(text.removeprefix(" ")), "char_mean": len}, len
    ),
    "acc_bytes": _mean(
        {"byte_mean_bare": lambda text: len(text.removeprefix(" ").encode())},
        lambda choice: len(choice.encode()),
    ),
    "acc_mutual_info": lambda rows: {"score": "pmi", "null": ""},
    "exact_match": lambda rows: TARGETS["acc"],
}
"""Metrics of tasks with choices (lm_eval/api/task.py, 0.4.13, process_results)."""

TARGETS: Mapping[str, Axes] = {
    "acc": {"score": "greedy", "decision": "greedy-match"},
    "perplexity": {"score": "sum", "metric": "perplexity"},
}
"""Metrics of tasks with one target."""

_OURS: Mapping[str, tuple[str, Axes]] = {
    "multiple_choice": ("sum", {"score": "sum"}),
    "loglikelihood": ("greedy", TARGETS["acc"]),
}
"""What is asked where nothing of a task's own is computed here, by output type: its name and axes."""

_CLOSE = 1e-6
"""The most by which a credit may differ."""


def _judged(task: Any, rows: list[AskedRow]) -> list[AskedRow]:
    """The rows with the right answers that the task's own code has, where it scores by code that we recognise."""
    if not callable(task.config.process_results) or task.OUTPUT_TYPE != "multiple_choice":
        return rows
    asked = [row for row in rows if row.contexts]
    for name in task.aggregation():
        if (result := _probed(task, name, asked)) is not None:
            judged = iter(result[1])
            return [replace(next(judged), refused=None) if row.contexts else row for row in rows]
    return rows


def _probed(task: Any, name: str, rows: Sequence[AskedRow]) -> tuple[str, list[AskedRow]] | None:
    """Our metric that gives every row the credit that ``task.process_results`` gives it as ``name``, and the rows with
    their right choices as that code has them.

    None where there is none.  Which choices are right shows where one of them has all the probability.
    """
    judged = []
    for row in rows:
        if (gold := _right(task, name, row)) is None:
            return None
        judged.append(replace(row, gold=gold))
    random = np.random.default_rng(0)
    draws = [[random.normal(-10, 4, len(row.choices)) for _ in range(4)] for row in rows]
    for metric in (
        "acc",
        "mc2",
        "mc1",
    ):  # what code may compute of summed log-likelihoods, tried in this order
        if all(
            _agrees(task, name, metric, row, own) for row, own in zip(judged, draws, strict=True)
        ):
            return metric, judged
    return None


def _right(task: Any, name: str, row: AskedRow) -> tuple[int, ...] | None:
    gold = []
    for choice in range(len(row.choices)):
        value = _theirs(
            task, name, row, np.where(np.arange(len(row.choices)) == choice, -1e-3, -600.0)
        )
        if not min(abs(value), abs(value - 1)) < _CLOSE:
            return None
        if value > 0.5:
            gold.append(choice)
    return tuple(gold) or None


def _agrees(task: Any, name: str, metric: str, row: AskedRow, draws: Sequence[Any]) -> bool:
    """Whether our ``metric`` gives a row the task's credit under each of ``draws``."""
    gold = np.isin(np.arange(len(row.choices)), row.gold)
    for scores in draws:
        ours = CREDITS[metric](scores, np.array([0, len(scores)]), gold, "first").credit[0]
        if not abs(float(ours) - _theirs(task, name, row, scores)) <= _CLOSE:
            return False
    return True


def _theirs(task: Any, name: str, row: AskedRow, scores: Any) -> float:
    """What the task's code says; infinite where it fails or says no number."""
    try:
        return float(
            task.process_results(row.doc, [(float(score), False) for score in scores])[name]
        )
    except Exception:
        return float("inf")
