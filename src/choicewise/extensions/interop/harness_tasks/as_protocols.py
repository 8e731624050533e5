"""Make datasets and protocols of the harness's tasks, with its metrics as axes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from choicewise.data.dataset import Dataset
from choicewise.data.hub import Download
from choicewise.errors import DataError, ProtocolError, UsageError, did_you_mean, first_lines
from choicewise.extensions.interop.harness_tasks.files import (
    LISTED,
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
    Axes,
    TaskData,
    TaskRow,
    task_data,
    task_form,
    task_rows,
)
from choicewise.protocols.between import CHANGES, change_axes
from choicewise.protocols.protocol import Protocol, Protocols
from choicewise.records import SkippedRow
from choicewise.requests.render import RenderedRequests
from choicewise.running.job import Source
from choicewise.scoring.decide import CREDITS
from choicewise.util.jsonio import json_digest


@dataclass(frozen=True, kw_only=True)
class HarnessTask:
    """Hold a task for :func:`choicewise.evaluate`: its data, protocols and rendered requests.

    ``notes``: differences from the harness's numbers, in words.
    """

    name: str
    data: Dataset
    protocols: Protocols
    rendered: tuple[RenderedRequests, ...]
    notes: tuple[str, ...]


def load_harness_tasks(
    *selectors: str,
    include_path: Sequence[str | Path] = (),
    allow_code: bool = False,
    on_bad_item: str = "error",
) -> list[HarnessTask]:
    """Load harness tasks such as ``lm-eval:arc_easy`` or ``lm-eval:PATH.yaml``, or all of a tag.

    ``include_path``: further folders of task files.  ``allow_code``: run the Python code of files
    that the harness does not come with.  ``on_bad_item``: ``skip`` leaves out rows without a right
    answer.

    Raises UsageError without the package ``lm_eval``, ProtocolError for a name that is no task, a
    task that can't be scored here or runs code that is not allowed, and DataError for data that do
    not exist or rows without a right answer.
    """
    if on_bad_item not in ("error", "skip"):
        raise UsageError(f"on_bad_item is {on_bad_item!r}; it must be error or skip")
    folders = list(map(Path, include_path))
    sources = task_sources(selectors, folders, allow_code, on_bad_item)
    return [source.loaded for source in sources]


@dataclass(frozen=True, kw_only=True)
class TaskSource(Source):
    """Describe a task or group of the harness that is checked, and loaded when it is opened.

    ``tasks``: its metrics and changes that are selected.  ``tree``: its files.  ``include`` and
    ``allow_code``: those of
    :func:`~choicewise.extensions.interop.harness_tasks.as_protocols.load_harness_tasks`.
    """

    tasks: tuple[TaskSelector, ...]
    tree: TaskTree = field(repr=False)
    include: tuple[str, ...] = ()
    allow_code: bool = False

    def open(self, progress: Download | None = None) -> Dataset:
        """Return the dataset, loaded once."""
        return self.loaded.data

    def protocols(
        self, data: Dataset, subjects: Sequence[str] | None = None
    ) -> dict[str, Protocol]:
        """Return the protocols of the task's metrics."""
        return dict(self.loaded.protocols)

    @property
    def rendered(self) -> Sequence[RenderedRequests]:
        """Return the requests that no template of ours renders."""
        return self.loaded.rendered

    @property
    def notes(self) -> Sequence[str]:
        """Return the differences from the harness's numbers, in words."""
        return self.loaded.notes

    @property
    def state_digest(self) -> str:
        """Return a digest of the selection, and of the sizes and times of its files."""
        states = set[tuple[str, int, int]]()
        for path in self._files():
            # The system may refuse a text that is no path.
            with suppress(OSError, ValueError):
                if path.is_file():
                    status = path.stat()
                    states.add((str(path), status.st_size, status.st_mtime_ns))
        content = [
            self.selectors,
            self.include,
            self.allow_code,
            self.on_bad_item,
            harness_version(),
            sorted(states),
        ]
        return json_digest(content)

    @cached_property
    def loaded(self) -> HarnessTask:
        """Return the task with its data, protocols and requests."""
        return _load(self.tree, self.tasks, self.on_bad_item)

    def _files(self) -> Iterator[Path]:
        """Yield the task files, the modules of their code, and texts that may be local paths."""
        yield from self.tree.files
        for code in self.tree.code:
            module = code.names.rpartition(".")[0].replace(".", "/")
            yield code.position.file.parent / f"{module}.py"
        for leaf in self.tree.leaves:
            yield from map(Path, _texts([leaf.get("dataset_path"), leaf.get("dataset_kwargs")]))


def task_sources(
    selectors: Sequence[str], include_path: Sequence[Path], allow_code: bool, on_bad_item: str
) -> list[TaskSource]:
    """Return a source for each task or group in the selectors, checked and not loaded, each once.

    Raises the UsageError and ProtocolError of :func:`load_harness_tasks`.
    """
    for folder in include_path:
        if not folder.is_dir():
            raise UsageError(f"{folder} is not a folder; name a folder of task files")
    names = TaskNames(include_path)
    sources: dict[str, TaskSource] = {}
    for selector in selectors:
        task = parse_task(selector)
        tree = names.tree(task.name)
        check_tasks(tree.name, tree.group, tree.leaves, tree.code, allow_code)
        # A tag is a list of tasks, and has no number of its own.
        trees = [tree]
        if tree.is_tag:
            trees = [names.tree(leaf.name) for leaf in tree.leaves]
        for selected in trees:
            new = TaskSource(
                (),
                f"{PREFIX}{selected.name}",
                on_bad_item=on_bad_item,
                tasks=(),
                tree=selected,
                include=tuple(map(str, include_path)),
                allow_code=allow_code,
            )
            source = sources.get(selected.name, new)
            if source.tree.files != selected.files:
                files = f"{source.tree.files[0]} and {selected.files[0]}"
                raise ProtocolError(
                    f"two tasks are called {selected.name}, in {files}; run one at a time"
                )
            if tree.is_tag:
                task = replace(task, name=selected.name)
            sources[selected.name] = replace(
                source, selectors=(*source.selectors, selector), tasks=(*source.tasks, task)
            )
    return list(sources.values())


def _texts(value: Any) -> Iterator[str]:
    """Yield every text in nested lists and tables."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        yield from _texts(list(value.values()))
    elif isinstance(value, list):
        for part in value:
            yield from _texts(part)


def _load(tree: TaskTree, selectors: Sequence[TaskSelector], on_bad_item: str) -> HarnessTask:
    """Load a task or group that was checked, with the protocols of all its selectors."""
    templates = TaskTemplates()
    tasks, group = load_tree(tree, selectors[0].name, templates)
    with quiet(), bounded_templates(templates):
        build = _TaskBuild(tree, tasks, group, templates)
        variants = {}
        for selector in selectors:
            if selector.shots not in variants:
                variants[selector.shots] = list(build.read(selector.shots))
        # All variants have the same items.
        data = build.dataset(variants[selectors[0].shots], on_bad_item)
        forms = {
            shots: task_form(build.called, variant, data) for shots, variant in variants.items()
        }
        protocols: dict[str, Protocol] = {}
        for selector in selectors:
            axes = forms[selector.shots].axes
            protocols |= build.protocols(selector, variants[selector.shots], axes)
        rendered = []
        for form in forms.values():
            if form.rendered is not None:
                rendered.append(form.rendered)
                build.note(f"its requests are kept as the harness renders them: {form.reason}")
        return HarnessTask(
            name=build.called,
            data=data,
            protocols=protocols,
            rendered=tuple(rendered),
            notes=tuple(build.notes),
        )


class _TaskBuild:
    """Build the rows, data and protocols of a task or group, and collect ``notes``."""

    def __init__(
        self, tree: TaskTree, tasks: list[Any], group: Any | None, templates: TaskTemplates
    ) -> None:
        self._tree = tree
        self._tasks = tasks
        self._group = group
        self._templates = templates
        self.called = f"{PREFIX}{tree.name}"
        self.notes: dict[str, None] = {}

    def note(self, text: str) -> None:
        """Note a difference from the harness's numbers."""
        self.notes[f"{self.called}: {text}"] = None

    def read(self, shots: int | None) -> Iterator[TaskData]:
        """Yield every task with its rows, under ``shots`` unless its file forbids them."""
        fixed = [task for task in self._tasks if task.config.num_fewshot == 0]
        # The harness never changes num_fewshot: 0.
        if shots and len(fixed) == len(self._tasks):
            raise ProtocolError(
                f"{self.called} has num_fewshot: 0, which the harness never changes; leave out "
                f"@{SHOTS}={shots}"
            )
        if shots and fixed:
            self.note(
                f"{len(fixed)} of {len(self._tasks)} tasks have num_fewshot: 0 and stay zero-shot"
            )
        for task in self._tasks:
            number = shots
            if shots is None or task.config.num_fewshot == 0:
                number = task.config.num_fewshot
            yield self._read_task(task, number or 0)

    def _read_task(self, task: Any, shots: int) -> TaskData:
        name = task.config.task
        rows = _judged(task, list(task_rows(task, shots)))
        own_shots = sum(row.own_shot for row in rows)
        if own_shots:
            self.note(
                f"{own_shots} of {len(rows)} rows of {name} are among their own few-shot examples, "
                "as in the harness"
            )
        indices = sum(row.read_as_index for row in rows)
        if indices:
            self.note(
                f"the target of {indices} rows of {name} is the text of one choice, and counts as "
                "the index of another, as in the harness"
            )
        subject = ""
        if self._tree.group is not None:
            subject = name
        return task_data(task, subject, shots, rows, self._templates)

    def dataset(self, tasks: Sequence[TaskData], on_bad_item: str) -> Dataset:
        """Return the items of all tasks and of their pools.

        Raises DataError if there are none, or for rows that can't be scored unless they are
        skipped.
        """
        refused = []
        for data in tasks:
            file = f"{PREFIX}{data.task.config.task}"
            for number, row in enumerate(data.rows):
                if row.refused is not None:
                    refused.append(SkippedRow(file, number, row.refused))
        if refused and on_bad_item == "error":
            lines = [f"{row.file}, row {row.row}: {row.reason}" for row in refused]
            raise DataError(
                f"{self.called}: {len(refused)} rows can't be scored; skip bad items to count "
                "them as missing",
                first_lines(lines, LISTED),
            )
        split = tasks[0].split
        # Pools of different tasks may have the same split.
        splits: dict[str, list[Any]] = {split: []}
        for data in tasks:
            splits[split].extend(data.items)
            for name, pool in data.pool.items():
                splits.setdefault(name, []).extend(pool)
        if not splits[split]:
            raise DataError(
                f"{self.called} has no row that can be scored; the first: {refused[0].reason}"
            )
        read_with = f"lm-eval {harness_version()}: {self._version()}"
        return Dataset(self.called, splits, tuple(refused), read_with=read_with)

    def _version(self) -> str:
        paths = ", ".join(dict.fromkeys(str(task.config.dataset_path) for task in self._tasks))
        if self._group is None:
            kind = "task"
            metadata = self._tasks[0].config.metadata or {}
        else:
            kind = f"group of {len(self._tasks)} tasks"
            metadata = self._group.metadata or {}
        version = metadata.get("version", "none")
        return f"{kind} {self._tree.name}, version {version}, data {paths}"

    def protocols(
        self, selector: TaskSelector, tasks: Sequence[TaskData], form: Axes
    ) -> dict[str, Protocol]:
        """Return the protocols of ``selector`` by name; ``form``: the axes of the requests.

        Raises ProtocolError for a metric that does not exist, or is not computed here.
        """
        shots = []
        shots_of_tasks = {data.task.config.num_fewshot or 0 for data in tasks}
        # A task's default number of shots is not spelled in the name.
        if selector.shots is not None and shots_of_tasks != {selector.shots}:
            shots.append(f"{SHOTS}={selector.shots}")
        protocols = {}
        for metric, axes in self._metrics(selector.metric, tasks).items():
            name = f"{self.called}:{metric}"
            protocol = Protocol(benchmark=self.called, **{**COMMON, **form, **axes})
            changes = list(shots)
            if selector.changes:
                (changed,) = change_axes({name: protocol}, selector.changes).values()
                if changed != protocol:
                    changes.append(selector.changes)
                protocol = changed
            if changes:
                name = f"{name}{CHANGES}{','.join(changes)}"
            protocols[name] = protocol
        return protocols

    def _metrics(self, wanted: str | None, tasks: Sequence[TaskData]) -> dict[str, Axes]:
        """Return the axes of the ``wanted`` metric, or of all metrics of the tasks, by name."""
        names: dict[str, None] = {}
        for data in tasks:
            names.update(dict.fromkeys(data.task.aggregation()))
        output_types = {data.task.OUTPUT_TYPE for data in tasks}
        if len(output_types) > 1:
            raise ProtocolError(
                f"{self.called} mixes output types {', '.join(sorted(output_types))}; name its "
                "tasks one by one"
            )
        ours = _OURS[output_types.pop()]
        computed = list(dict.fromkeys([*names, *ours.computed, ours.metric]))
        if wanted is not None and wanted not in computed:
            raise ProtocolError(
                f"{self.called} has no metric {wanted!r}; {did_you_mean(wanted, computed)}"
            )
        selected = list(names)
        if wanted is not None:
            selected = [wanted]
        metrics: dict[str, Axes] = {}
        for name in selected:
            try:
                axes = ours.axes
                if name != ours.metric or name in names:
                    axes = _common_axes(name, tasks)
            except _NotComputed as reason:
                text = f"metric {name} is not computed here: {reason}"
                if wanted is not None:
                    raise ProtocolError(f"{self.called}: {text}") from reason
                self.note(f"its {text}")
                continue
            metrics[name] = {**axes, "aggregation": self._aggregation(name)}
        if metrics:
            return metrics
        self.note(f"{ours.metric} is computed instead, which the task does not have")
        return {ours.metric: {**ours.axes, "aggregation": self._aggregation(ours.metric)}}

    def _aggregation(self, metric: str) -> str:
        """Return ``micro`` if a group weights tasks by their sizes, the harness's default."""
        if self._group is None:
            return "micro"
        for declared in reversed(self._group.aggregate_metric_list or ()):
            if declared.metric != metric:
                continue
            if declared.weight_by_size:
                return "micro"
            return "macro"
        self.note(
            f"the group does not define how {metric} is averaged; here every row has the same "
            "weight (micro)"
        )
        return "micro"


class _NotComputed(Exception):
    """Tell why a metric of a task is not computed here."""


def _common_axes(name: str, tasks: Sequence[TaskData]) -> Axes:
    """Return the axes of a metric.  Raises _NotComputed if a task has none, or tasks differ."""
    axes_of_tasks = []
    for data in tasks:
        task = data.task
        has_metric = name in task.aggregation()
        _check_aggregation(name, task)
        rows = [row for row in data.rows if row.refused is None]
        if has_metric and callable(task.config.process_results):
            axes_of_tasks.append(_probed_axes(name, task, rows))
        elif len(tasks) > 1 and not has_metric:
            raise _NotComputed(
                f"the task {task.config.task} does not have it; name tasks one by one"
            )
        else:
            axes_of_tasks.append(_metric_axes(name, task, rows))
    first = axes_of_tasks[0]
    if any(axes != first for axes in axes_of_tasks):
        raise _NotComputed("its tasks compute it in different ways; name them one by one")
    return first


def _probed_axes(name: str, task: Any, rows: Sequence[TaskRow]) -> Axes:
    """Return the axes of a metric that code of the task computes."""
    if task.OUTPUT_TYPE == "multiple_choice":
        probed = _probed(task, name, rows)
        if probed is not None and [row.gold for row in rows] == probed.golds:
            return {"score": "sum", "metric": probed.metric}
    raise _NotComputed(f"code of the task {task.config.task} computes it")


def _metric_axes(name: str, task: Any, rows: Sequence[TaskRow]) -> Axes:
    """Return the axes that compute the metric ``name`` of ``task`` on its usable ``rows``."""
    if task.OUTPUT_TYPE == "loglikelihood":
        if name not in TARGETS:
            raise _NotComputed(f"metric {name} is none of {', '.join(TARGETS)}")
        return TARGETS[name]
    if name not in CHOICES:
        raise _NotComputed(f"metric {name} is none of {', '.join(CHOICES)}")
    if task.multiple_input and name not in ("acc", "exact_match"):
        raise _NotComputed(
            f"metric {name} is undefined if choices are contexts, because their texts are not "
            "scored"
        )
    if name == "acc_mutual_info" and task.multiple_target:
        raise _NotComputed(f"metric {name} fails in the harness if rows have lists of targets")
    axes = CHOICES[name]
    if isinstance(axes, _Lengths):
        return axes.axes(rows)
    return axes


def _check_aggregation(name: str, task: Any) -> None:
    """Check that ``task`` aggregates a metric by our average.  Raises _NotComputed."""
    from lm_eval.api.registry import get_aggregation

    # No value here is NaN, so both means are the same.
    ours: tuple[str, ...] = ("mean", "nanmean")
    if name == "perplexity":
        ours = ("perplexity",)
    # A metric for which a task declares nothing is averaged.
    declared = task.aggregation().get(name)
    if declared is None or any(declared is get_aggregation(aggregation) for aggregation in ours):
        return
    aggregation = getattr(declared, "__name__", declared)
    raise _NotComputed(f"the task {task.config.task} aggregates it by {aggregation}")


def _bare_chars(text: str) -> int:
    return len(text.removeprefix(" "))


def _byte_count(text: str) -> int:
    return len(text.encode())


def _bare_bytes(text: str) -> int:
    return _byte_count(text.removeprefix(" "))


@dataclass(frozen=True)
class _Lengths:
    """Hold the length of a choice by which the ``harness`` divides, and those of our ``scores``.

    The harness measures the choice of the data, and our scores measure the text that is scored.
    """

    harness: Callable[[str], int]
    scores: Mapping[str, Callable[[str], int]]

    def axes(self, rows: Sequence[TaskRow]) -> Axes:
        """Return the first score whose lengths are the harness's in all ``rows``."""
        pairs: dict[tuple[str, str], None] = {}
        for row in rows:
            pairs.update(dict.fromkeys(zip(row.continuations, row.choices, strict=True)))
        for score, length in self.scores.items():
            if all(length(text) == self.harness(choice) for text, choice in pairs):
                return {"score": score}
        text, choice = next(iter(pairs))
        raise _NotComputed(
            f"it divides by the length of {choice[:40]!r}, and no score here by that of "
            f"{text[:40]!r}"
        )


TARGETS: Mapping[str, Axes] = {
    "acc": {"score": "greedy", "decision": "greedy-match"},
    "perplexity": {"score": "sum", "metric": "perplexity"},
}
"""Metrics of tasks with one target."""

CHOICES: Mapping[str, Axes | _Lengths] = {
    "acc": {"score": "sum"},
    "acc_norm": _Lengths(len, {"char_mean_bare": _bare_chars, "char_mean": len}),
    "acc_bytes": _Lengths(_byte_count, {"byte_mean_bare": _bare_bytes}),
    "acc_mutual_info": {"score": "pmi", "null": ""},
    "exact_match": TARGETS["acc"],
}
"""Metrics of tasks with choices (lm_eval/api/task.py, 0.4.13, process_results)."""


@dataclass(frozen=True)
class _Ours:
    """Hold the metrics ``computed`` for an output type, and ours for tasks without them."""

    metric: str
    axes: Axes
    computed: Iterable[str]


_OURS: Mapping[str, _Ours] = {
    "multiple_choice": _Ours("sum", {"score": "sum"}, CHOICES),
    "loglikelihood": _Ours("greedy", TARGETS["acc"], TARGETS),
}

_CLOSE = 1e-6
"""Largest difference between two equal credits."""


def _judged(task: Any, rows: list[TaskRow]) -> list[TaskRow]:
    """Return the rows with the right choices of the task's code, if its scores are recognised."""
    if not callable(task.config.process_results) or task.OUTPUT_TYPE != "multiple_choice":
        return rows
    # Code of a task may read the right choice from another field of the row.
    scored = [row for row in rows if row.contexts]
    for name in task.aggregation():
        probed = _probed(task, name, scored)
        if probed is None:
            continue
        golds = iter(probed.golds)
        judged = []
        for row in rows:
            if row.contexts:
                row = replace(row, gold=next(golds), refused=None)
            judged.append(row)
        return judged
    return rows


class _Probed(NamedTuple):
    """Hold the metric of ours that code of a task computes, and its right choices."""

    metric: str
    golds: list[tuple[int, ...]]


def _probed(task: Any, name: str, rows: Sequence[TaskRow]) -> _Probed | None:
    """Return our metric that equals the metric ``name`` of the task's code, None if none does."""
    golds = []
    for row in rows:
        gold = _right(task, name, row)
        if gold is None:
            return None
        golds.append(gold)
    random = np.random.default_rng(0)
    draws = [[random.normal(-10, 4, len(row.choices)) for _ in range(4)] for row in rows]
    # Metrics that code may compute of summed log-likelihoods, the most usual first.
    for metric in ("acc", "mc2", "mc1"):
        if all(
            _agrees(task, name, metric, replace(row, gold=gold), scores)
            for row, gold, scores in zip(rows, golds, draws, strict=True)
        ):
            return _Probed(metric, golds)
    return None


def _right(task: Any, name: str, row: TaskRow) -> tuple[int, ...] | None:
    """Return the choices with the credit 1 if they are likeliest, None if a credit is odd."""
    gold = []
    for choice in range(len(row.choices)):
        # The choice has nearly all the probability.
        scores = np.full(len(row.choices), -600.0)
        scores[choice] = -1e-3
        credit = _credit(task, name, row, scores)
        if not min(abs(credit), abs(credit - 1)) < _CLOSE:
            return None
        if credit > 0.5:
            gold.append(choice)
    if not gold:
        return None
    return tuple(gold)


def _agrees(task: Any, name: str, metric: str, row: TaskRow, draws: Sequence[Any]) -> bool:
    """Return whether our ``metric`` gives a row the task's credit under each of ``draws``."""
    gold = np.isin(np.arange(len(row.choices)), row.gold)
    for scores in draws:
        ours = CREDITS[metric](scores, np.array([0, len(scores)]), gold, "first").credit[0]
        if not abs(float(ours) - _credit(task, name, row, scores)) <= _CLOSE:
            return False
    return True


def _credit(task: Any, name: str, row: TaskRow, scores: Any) -> float:
    """Return the credit of the task's code, infinite if it fails or returns no number."""
    results = [(float(score), False) for score in scores]
    try:
        return float(task.process_results(row.doc, results)[name])
    # Code of a stranger's file may raise anything.
    except Exception:
        return float("inf")
