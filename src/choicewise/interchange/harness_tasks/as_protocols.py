"""Tasks as protocols and items.

What stands between double braces becomes a hole of that name, and every item a field of that name with what the harness
puts there; so the text of the protocol is the text of the task file.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np

from choicewise.data.dataset import Dataset
from choicewise.data.hub import Download
from choicewise.data.items import Item, has_half_character
from choicewise.errors import ChoicewiseError, DataError, ProtocolError, UsageError, did_you_mean
from choicewise.interchange.harness_tasks.files import (
    PREFIX,
    SHOTS,
    TaskNames,
    TaskSelector,
    TaskTree,
    check_tree,
    parse_task,
    task_tree,
)
from choicewise.interchange.harness_tasks.load import (
    SEEDS,
    LoadedTasks,
    TaskTemplates,
    bounded_templates,
    harness_version,
    load_tree,
    quiet,
    shipped_tasks,
)
from choicewise.protocols.between import CHANGES, change_axes
from choicewise.protocols.protocol import NEUTRAL, Protocol
from choicewise.records import SkippedRow
from choicewise.requests.render import RenderedRequests, TemplateSource
from choicewise.requests.request import Request
from choicewise.running.sources import Source
from choicewise.scoring.decide import CREDITS


@dataclass(frozen=True, kw_only=True)
class TaskSource(Source):
    """A task or group of the harness that is checked, and loaded when it is opened.

    ``tasks``: what of it is asked; ``tree``: its files; ``include``: the folders of further ones; ``allow_code``: as of
    :func:`~choicewise.interchange.harness_tasks.as_protocols.load_harness_tasks`.
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
        return _TaskBuild(tree, loaded, on_bad_item, templates).task(tasks)


class _TaskBuild:
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


@dataclass(frozen=True)
class TaskProtocols:
    """Makes the protocols of a task or group that is ``called`` so; ``group``: the harness's object, if it is one.

    ``note`` hears what whoever compares numbers should know.
    """

    called: str
    group: Any | None
    note: Callable[[str], None]

    def under(self, selector: TaskSelector, asked: Sequence[AskedTask], form: TaskForm) -> dict[str, Protocol]:
        """The protocols that ``selector`` names, of tasks that are ``asked`` in this ``form``.

        Raises ProtocolError for a metric that there is not, or that is not computed here.
        """
        metrics = self._metrics(selector.metric, asked)
        own = {each.task.config.num_fewshot or 0 for each in asked}
        shots = [f"{SHOTS}={selector.shots}"] if selector.shots is not None and own != {selector.shots} else []
        named = {
            f"{self.called}:{name}": Protocol(benchmark=self.called, **{**COMMON, **form.axes, **axes})
            for name, axes in metrics.items()
        }
        if not selector.changes and not shots:
            return named
        changed = {}
        for name, protocol in named.items():
            other = protocol
            if selector.changes:
                (other,) = change_axes({name: protocol}, selector.changes).values()
            changes = [*shots, *([selector.changes] if other != protocol else [])]
            changed[f"{name}{CHANGES}{','.join(changes)}" if changes else name] = other
        return changed

    def _metrics(self, wanted: str | None, asked: Sequence[AskedTask]) -> dict[str, dict[str, Any]]:
        """Metric → axes: all of the tasks' own that are computed here, or the one that is ``wanted``."""
        own = list(dict.fromkeys(name for each in asked for name in own_metrics(each.task)))
        kinds = {each.task.OUTPUT_TYPE for each in asked}
        if len(kinds) > 1:
            raise ProtocolError(
                f"{self.called} mixes output types {', '.join(sorted(kinds))}; ask its tasks by themselves"
            )
        ours, fallback = OURS[kinds.pop()]
        known = [*dict.fromkeys([*own, *(CHOICES if ours == "sum" else TARGETS), ours])]
        if wanted is not None and wanted not in known:
            raise ProtocolError(f"{self.called} has no metric {wanted!r}; {did_you_mean(wanted, known)}")
        metrics: dict[str, dict[str, Any]] = {}
        for name in own if wanted is None else [wanted]:
            axes = fallback if name == ours and ours not in own else self._common_axes(name, asked)
            if not isinstance(axes, Unavailable):
                metrics[name] = {**axes, "aggregation": self._aggregation(name)}
            elif wanted is None:
                self.note(f"its metric {name} is not computed here: {axes.reason}")
            else:
                raise ProtocolError(f"{self.called}: metric {name} is not computed here: {axes.reason}")
        if not metrics:
            self.note(f"{ours}, which is asked instead, is no metric of its own")
            return {ours: {**fallback, "aggregation": self._aggregation(ours)}}
        return metrics

    def _common_axes(self, name: str, asked: Sequence[AskedTask]) -> Mapping[str, Any] | Unavailable:
        """The axes of a metric, where they are the same for all tasks."""
        every = []
        for each in asked:
            if (aggregation := other_aggregation(name, each.task)) is not None:
                return Unavailable(f"the task {each.task.config.task} aggregates it by {aggregation}")
            rows = [row for row in each.rows if row.refused is None]
            if results_code(each.task) and name in own_metrics(each.task):
                result = probed(each.task, name, rows) if each.task.OUTPUT_TYPE == "multiple_choice" else None
                if result is None or [row.gold for row in rows] != [row.gold for row in result[1]]:
                    return Unavailable(f"code of the task {each.task.config.task} computes it")
                axes: Mapping[str, Any] | Unavailable = as_axes(result[0])
            elif len(asked) > 1 and name not in own_metrics(each.task):
                return Unavailable(f"the task {each.task.config.task} does not have it; ask tasks by themselves")
            else:
                axes = metric_axes(name, each.task, rows)
            if isinstance(axes, Unavailable):
                return axes
            every.append(axes)
        if any(axes != every[0] for axes in every[1:]):
            return Unavailable("its tasks compute it in different ways; ask them by themselves")
        return every[0]

    def _aggregation(self, metric: str) -> str:
        """``micro`` where a group weights its tasks by their sizes, as the harness does unless told otherwise."""
        group = self.group
        if group is None:
            return "micro"
        listed = {each.metric: each for each in group.aggregate_metric_list or ()}
        if metric not in listed:
            self.note(f"the group says not how {metric} is averaged; here every row counts alike (micro)")
            return "micro"
        return "micro" if listed[metric].weight_by_size else "macro"


@dataclass(frozen=True, slots=True)
class AskedRow:
    """One row of a task.

    ``query``: its own text without description and shots.  ``contexts``: one for all choices, or one for each;
    ``continuations``: one for each choice.  ``choices``: their texts; ``gold``: indices of the right ones.
    ``refused``: why it can't be asked; then nothing else is sure.  ``read_as_index``: its target is the text of one
    choice and was taken as the index of another.  ``own_shot``: it stands among its own shots.
    """

    doc: Mapping[str, Any]
    query: str
    contexts: tuple[str, ...]
    continuations: tuple[str, ...]
    choices: tuple[str, ...]
    gold: tuple[int, ...]
    refused: str | None = None
    read_as_index: bool = False
    own_shot: bool = False


@dataclass(frozen=True)
class TaskTemplate:
    """How a task asks, as axes, and the expressions that fill its holes.

    ``asked``: the hole that is the item's question; None where there are several, so that the whole query is.
    ``fields``: further hole → the template that fills it.
    """

    header: str
    question: str
    answer: str
    continuation: str
    separator: str
    choices: int | None
    asked: str | None
    fields: Mapping[str, str] = field(default_factory=dict)

    @property
    def axes(self) -> dict[str, Any]:
        """What of a protocol follows from it."""
        return {
            "header": self.header,
            "question": self.question,
            "option": "",
            "answer": self.answer,
            "continuation": self.continuation,
            "separator": self.separator,
            "choices": self.choices,
        }


@dataclass(frozen=True)
class TaskItems:
    """The items of one task that can be asked, and those of its pool by the name of its split.

    ``numbers``: which rows of the task they are, counted from 0.  ``template``: how they are asked; None where no
    protocol of ours says that, for the ``reason``, and then there is no pool.
    """

    split: str
    items: tuple[Item, ...]
    numbers: tuple[int, ...]
    pool: Mapping[str, tuple[Item, ...]]
    template: TaskTemplate | None
    reason: str = ""


@dataclass(frozen=True)
class AskedTask:
    """One task as it is asked: the harness's object, its few-shot examples, rows and items."""

    task: Any
    shots: int
    rows: Sequence[AskedRow]
    items: TaskItems


@dataclass(frozen=True)
class TaskForm:
    """The axes that render the requests of tasks; ``rendered``: those that no template renders, for the ``reason``."""

    axes: Mapping[str, Any]
    rendered: RenderedRequests | None = None
    reason: str = ""


def task_form(name: str, asked: Sequence[AskedTask], data: Dataset) -> TaskForm:
    """The form of the requests of tasks whose items are all of ``data``.

    Templates are taken only where they render every request to the letter as the harness did.
    """
    split = asked[0].items.split
    try:
        axes = _axes(asked)
        _verify(asked, data, Protocol(benchmark=name, split=split, **{**COMMON, **axes}))
        return TaskForm({"split": split, **axes})
    except (Inexpressible, DataError, ProtocolError) as error:
        requests = dict(_requests(asked))
        rendered = RenderedRequests(name, requests)
        return TaskForm({"split": split, **NEUTRAL, "requests": rendered.digest}, rendered, str(error).split("\n")[0])


def _axes(asked: Sequence[AskedTask]) -> dict[str, Any]:
    """The axes that are those of all tasks; raises Inexpressible where there are none."""
    forms = []
    for each in asked:
        if each.items.template is None:
            raise Inexpressible(each.items.reason)
        shots = shot_axes(each.task, each.shots)
        if each.shots and each.items.reason:
            raise Inexpressible(each.items.reason)
        forms.append({**each.items.template.axes, **shots})
    if len({form["header"] for form in forms}) > 1:
        forms = [{**form, "header": "{" + DESCRIPTION + "}"} for form in forms]
    for form in forms[1:]:
        if differ := [axis for axis in form if form[axis] != forms[0][axis]]:
            raise Inexpressible(f"its tasks differ in {', '.join(differ)}")
    return forms[0]


def _verify(asked: Sequence[AskedTask], data: Dataset, protocol: Protocol) -> None:
    """Raise Inexpressible at the first request that ``protocol`` renders in another way."""
    source = TemplateSource(protocol, data)
    for each in asked:
        items = each.items.items
        subject = items[0].subject if items else ""
        for number, request in zip(each.items.numbers, source.requests(subject, items), strict=True):
            row = each.rows[number]
            if not isinstance(request, Request):
                raise Inexpressible(request.reason.message)
            if ((request.context(),), request.continuations) != (row.contexts, row.continuations):
                raise Inexpressible(f"row {number} comes out in another way")


def _requests(asked: Sequence[AskedTask]) -> Iterator[tuple[str, Request]]:
    for each in asked:
        for number, item in zip(each.items.numbers, each.items.items, strict=True):
            yield item.id, _request(item, each.rows[number])


def _request(item: Item, row: AskedRow) -> Request:
    own = len(row.contexts) > 1
    return Request(
        item=item,
        header="",
        shots=(),
        query="" if own else row.contexts[0],
        separator="",
        continuations=row.continuations,
        options=row.choices,
        gold=item.gold,
        parts=tuple((continuation,) for continuation in row.continuations),
        proposals=row.contexts if own else (),
    )


DESCRIPTION = "task description"
"""The field with what stands before everything else, where the tasks of a group differ in it."""


def task_items(task: Any, subject: str, rows: Sequence[AskedRow], templates: TaskTemplates) -> TaskItems:
    """The items of ``task`` from its ``rows``; ``subject``: its name in a group, empty outside."""
    template, reason = _template(task)
    numbers = tuple(number for number, row in enumerate(rows) if row.refused is None)
    asked = [rows[number] for number in numbers]
    making = _ItemBuild(task, subject, template, templates)
    docs, texts = [row.doc for row in asked], [row.query for row in asked]
    items = making.items(numbers, docs, texts, [(row.choices, row.gold) for row in asked])
    split, pool = evaluated_split(task), task_pool(task)
    if template is None or pool is None or pool.split == split:
        return TaskItems(split, items, numbers, {}, template, reason)
    answers = [answered(task, doc) for doc in pool.docs]
    if wrong := [each for each in answers if isinstance(each, str)]:
        return TaskItems(split, items, numbers, {}, template, f"a row of split {pool.split} can't be shown: {wrong[0]}")
    known = [each for each in answers if not isinstance(each, str)]
    shown = making.items(range(len(pool.docs)), pool.docs, _queries(task, template, pool), known)
    return TaskItems(split, items, numbers, {pool.split: shown}, template, reason)


def _template(task: Any) -> tuple[TaskTemplate | None, str]:
    try:
        return task_template(task), ""
    except Inexpressible as error:
        return None, str(error)


def _queries(task: Any, template: TaskTemplate, pool: TaskPool) -> list[str]:
    """The texts of the rows of a pool, where they stand for the question."""
    return ["" if template.asked is not None else str(task.doc_to_text(doc)) for doc in pool.docs]


@dataclass(frozen=True)
class _ItemBuild:
    """Makes the items of one task."""

    task: Any
    subject: str
    template: TaskTemplate | None
    templates: TaskTemplates

    def items(
        self,
        numbers: Sequence[int],
        docs: Sequence[Mapping[str, Any]],
        queries: Sequence[str],
        answers: Sequence[tuple[tuple[str, ...], tuple[int, ...]]],
    ) -> tuple[Item, ...]:
        """The items of ``docs``: their fields, and their queries where no single hole is the question."""
        filled: list[tuple[str | None, dict[str, str]]] = [(None, {}) for _ in docs]
        if self.template is not None:
            filled = fill_fields(self.template, docs, self.templates)
        start = f"{self.subject}/" if self.subject else ""
        more = {DESCRIPTION: self.task.config.description or ""} if self.subject and self.template is not None else {}
        return tuple(
            Item(f"{start}{number}", query if asked is None else asked, choices, gold, self.subject, {**fields, **more})
            for number, query, (choices, gold), (asked, fields) in zip(numbers, queries, answers, filled, strict=True)
        )


Axes = Mapping[str, Any]

COMMON: Axes = {"fit": "cut-start", "boundary": "moved-space"}
"""How the harness cuts what is too long and where it puts the boundary (lm_eval/models/huggingface.py, 0.4.13)."""

CHARACTERS: Mapping[str, Callable[[str], int]] = {
    "char_mean_bare": lambda text: len(text.removeprefix(" ")),
    "char_mean": len,
}
"""Scores that divide by characters of what is sent, and by how many."""

BYTES: Mapping[str, Callable[[str], int]] = {"byte_mean_bare": lambda text: len(text.removeprefix(" ").encode())}
"""Likewise by bytes."""


@dataclass(frozen=True)
class Unavailable:
    """A metric that is not computed here, and why."""

    reason: str


def metric_axes(name: str, task: Any, rows: Sequence[AskedRow]) -> Axes | Unavailable:
    """The axes that compute the metric ``name`` of ``task``, whose ``rows`` are those that can be asked."""
    if task.OUTPUT_TYPE == "loglikelihood":
        return TARGETS.get(name) or Unavailable(f"metric {name} is none of {', '.join(TARGETS)}")
    if name not in CHOICES:
        return Unavailable(f"metric {name} is none of {', '.join(CHOICES)}")
    several = bool(task.multiple_input)
    if several and name not in ("acc", "exact_match"):
        return Unavailable(f"metric {name} means nothing where choices are contexts, as their texts are not scored")
    if name == "acc_mutual_info" and task.multiple_target:
        return Unavailable(f"metric {name} fails in the harness where rows have lists of targets")
    return CHOICES[name](rows)


def other_aggregation(name: str, task: Any) -> str | None:
    """How ``task`` makes one number of the rows' values of its metric ``name``; None where that is what is done here.

    A task file may state it; a metric for which a task states nothing is averaged.
    """
    from lm_eval.api.registry import get_aggregation

    stated = task.aggregation().get(name)
    ours = ("perplexity",) if name == "perplexity" else ("mean", "nanmean")  # no value here is NaN
    if stated is None or any(stated is get_aggregation(each) for each in ours):
        return None
    return str(getattr(stated, "__name__", stated))


def _plain(score: str, **axes: Any) -> Callable[[Sequence[AskedRow]], Axes]:
    return lambda rows: {"score": score, **axes}


def _mean(lengths: Mapping[str, Callable[[str], int]], own: Callable[[str], int]) -> Callable[..., Axes | Unavailable]:
    """The score whose lengths are those of the choices, which the harness divides by."""

    def axes(rows: Sequence[AskedRow]) -> Axes | Unavailable:
        pairs = {pair for row in rows for pair in zip(row.continuations, row.choices, strict=True)}
        for score, length in lengths.items():
            if all(length(sent) == own(choice) for sent, choice in pairs):
                return {"score": score}
        sent, choice = next(iter(pairs))
        return Unavailable(f"it divides by the length of {choice[:40]!r}, and no score here by that of {sent[:40]!r}")

    return axes


CHOICES: Mapping[str, Callable[[Sequence[AskedRow]], Axes | Unavailable]] = {
    "acc": _plain("sum"),
    "acc_norm": _mean(CHARACTERS, len),
    "acc_bytes": _mean(BYTES, lambda choice: len(choice.encode())),
    "acc_mutual_info": _plain("pmi", null=""),
    "exact_match": _plain("greedy", decision="greedy-match"),
}
"""Metrics of tasks with choices (lm_eval/api/task.py, 0.4.13, process_results)."""

TARGETS: Mapping[str, Axes] = {
    "acc": {"score": "greedy", "decision": "greedy-match"},
    "perplexity": {"score": "sum", "metric": "perplexity"},
}
"""Metrics of tasks with one target."""

OURS: Mapping[str, tuple[str, Axes]] = {
    "multiple_choice": ("sum", {"score": "sum"}),
    "loglikelihood": ("greedy", TARGETS["acc"]),
}
"""What is asked where nothing of a task's own is computed here, by output type: its name and axes."""


def own_metrics(task: Any) -> Iterator[str]:
    """The names of a task's metrics, in its order; those that are functions by the functions' names."""
    yield from task._metric_fn_list


SAMPLERS = {
    ("ContextSampler", False): "harness",
    ("ContextSampler", True): "harness-spare",
    ("FirstNSampler", False): "first",
}
"""Our sampler by the class of the harness's, and by whether the item itself is left out."""


@dataclass(frozen=True)
class TaskPool:
    """The rows that examples come from: their split, and the rows as the task has processed them."""

    split: str
    docs: tuple[Any, ...]


def evaluated_split(task: Any) -> str:
    """The name of the split that is asked."""
    return str(task.config.test_split if task.has_test_docs() else task.config.validation_split)


def task_pool(task: Any) -> TaskPool | None:
    """The pool of ``task``; None where it has none (lm_eval/api/task.py, 0.4.13, fewshot_docs)."""
    if getattr(task, "sampler", None) is None:
        return None
    config, shots = task.config, task.fewshot_cfg
    names = [shots.split, "fewshot" if shots.samples is not None else None]
    names += [config.training_split, config.validation_split, config.test_split]
    return TaskPool(str(next(name for name in names if name is not None)), tuple(task.sampler.df))


def shot_axes(task: Any, shots: int) -> dict[str, Any]:
    """The axes about examples; raises Inexpressible for a sampler that is none of ours."""
    if not shots:
        return {"shots": 0, "shot_split": None, "sampler": "none"}
    spare = task.fewshot_cfg.split == task.config.test_split
    sampler = SAMPLERS.get((type(task.sampler).__name__, spare))
    pool = task_pool(task)
    if sampler is None or pool is None:
        raise Inexpressible(
            f"its sampler is {type(task.sampler).__name__}" + ", which leaves out the row itself" * spare
        )
    seed = None if sampler == "first" else SEEDS["shots"]
    return {"shots": shots, "shot_split": pool.split, "sampler": sampler, "seed": seed}


PROBES = 4
"""Draws of log-likelihoods that a row's code is asked about."""

CLOSE = 1e-6
"""The most by which a credit may differ."""

METRICS = ("acc", "mc2", "mc1")
"""What a task's code may compute of summed log-likelihoods, tried in this order."""


def probed(task: Any, name: str, rows: Sequence[AskedRow]) -> tuple[str, tuple[AskedRow, ...]] | None:
    """Our metric that gives every row the credit that ``task.process_results`` gives it as ``name``, and the rows with
    their right choices as that code has them.

    None where there is none.  Which choices are right shows where one of them has all the probability.
    """
    right = [_right(task, name, row) for row in rows]
    judged = [row if gold is None else replace(row, gold=gold) for row, gold in zip(rows, right, strict=True)]
    if any(gold is None for gold in right):
        return None
    random = np.random.default_rng(0)
    draws = [[random.normal(-10, 4, len(row.choices)) for _ in range(PROBES)] for row in rows]
    for metric in METRICS:
        pairs = (
            pair for row, own in zip(judged, draws, strict=True) for pair in _credits(task, name, metric, row, own)
        )
        if all(abs(ours - theirs) <= CLOSE for ours, theirs in pairs):
            return metric, tuple(judged)
    return None


def _right(task: Any, name: str, row: AskedRow) -> tuple[int, ...] | None:
    gold = []
    for choice in range(len(row.choices)):
        scores = np.where(np.arange(len(row.choices)) == choice, -1e-3, -600.0)
        value = _theirs(task, name, row, scores)
        if value not in (0.0, 1.0) and not (value is not None and min(abs(value), abs(value - 1)) < CLOSE):
            return None
        if value is not None and value > 0.5:
            gold.append(choice)
    return tuple(gold) or None


def _credits(task: Any, name: str, metric: str, row: AskedRow, draws: Sequence[Any]) -> Iterator[tuple[float, float]]:
    """(ours, theirs) for each draw."""
    gold = np.isin(np.arange(len(row.choices)), row.gold)
    for scores in draws:
        theirs = _theirs(task, name, row, scores)
        decisions = CREDITS[metric](scores, np.array([0, len(scores)]), gold, "first")
        yield float(decisions.credit[0]), float("inf") if theirs is None else theirs


def _theirs(task: Any, name: str, row: AskedRow, scores: Any) -> float | None:
    """What the task's code says; None where it fails or says no number."""
    try:
        value = task.process_results(row.doc, [(float(score), False) for score in scores])[name]
        return float(value)
    except Exception:
        return None


def results_code(task: Any) -> bool:
    """Whether a task computes its metrics by code of its own."""
    return callable(task.config.process_results)


def as_axes(metric: str) -> Mapping[str, Any]:
    """The axes of a metric of summed log-likelihoods."""
    return {"score": "sum", "metric": metric}


_TAKEN = frozenset({"question", "options", "subject", "letter", "choice"})
"""Holes that mean something else in our templates."""

_SHOT_KEYS = ("doc_to_text", "doc_to_target", "doc_to_choice", "gen_prefix")
"""What few-shot examples may have of their own."""


class Inexpressible(Exception):
    """A task whose requests no protocol of ours renders, and why."""


def task_template(task: Any) -> TaskTemplate:
    """The templates of ``task``; raises Inexpressible where it has code, statements, or a shape of its own."""
    config, shots = task.config, task.fewshot_cfg
    if task.multiple_input:
        raise Inexpressible("its choices are contexts")
    if not isinstance(config.doc_to_text, str):
        raise Inexpressible("doc_to_text is no template")
    if config.gen_prefix is not None:
        raise Inexpressible("it has a gen_prefix")
    for key in _SHOT_KEYS:
        if getattr(shots, key) != getattr(config, key):
            raise Inexpressible(f"its shots have a {key} of their own")
    pieces = _pieces(config.doc_to_text, task.features)
    before = _pieces(config.description or "", task.features)
    holes = list(dict.fromkeys(text for text, is_hole in pieces if is_hole))
    asked = "question" if "question" in holes else holes[0] if len(holes) == 1 else None
    names = {hole: f"doc.{hole}" if hole in _TAKEN else hole for hole in holes}
    header_names = {text: f"doc.{text}" if text in _TAKEN else text for text, is_hole in before if is_hole}
    question_names = names if asked is None else {**names, asked: "question"}
    fields = {name: hole for hole, name in {**names, **header_names}.items() if hole != asked or hole in header_names}
    delimiter = "" if task.OUTPUT_TYPE == "loglikelihood" else config.target_delimiter
    return TaskTemplate(
        header=_spelled(before, header_names),
        question=_spelled(pieces, question_names),
        answer=_escaped(shots.target_delimiter) + "{choice}",
        continuation=_escaped(delimiter) + "{choice}",
        separator=shots.fewshot_delimiter,
        choices=1 if task.OUTPUT_TYPE == "loglikelihood" else None,
        asked=asked,
        fields={name: "{{" + hole + "}}" for name, hole in fields.items()},
    )


def fill_fields(
    template: TaskTemplate, docs: Sequence[Mapping[str, Any]], templates: TaskTemplates
) -> list[tuple[str | None, dict[str, str]]]:
    """For each of ``docs`` the question, None where the whole query is it, and the fields."""
    names = list(template.fields)
    asked = [] if template.asked is None else ["{{" + template.asked + "}}"]
    filled = templates.fill_all([*asked, *(template.fields[name] for name in names)], docs)
    if not asked and not names:
        return [(None, {}) for _ in docs]
    rest = len(asked)
    return [(texts[0] if asked else None, dict(zip(names, texts[rest:], strict=True))) for texts in filled]


def _pieces(template: str, features: Iterable[str]) -> list[tuple[str, bool]]:
    """(text, False) for plain text and (expression, True) for what stands between double braces."""
    from jinja2 import Environment, TemplateSyntaxError

    if template in features:
        return [(template, True)]
    pieces: list[tuple[str, bool]] = []
    try:
        tokens = list(Environment(keep_trailing_newline=True).lex(template))
    except TemplateSyntaxError as error:
        raise Inexpressible(f"a template is no valid Jinja ({error.message})") from error
    expression: list[str] | None = None
    for _, kind, text in tokens:
        if kind == "data":
            pieces.append((text, False))
        elif kind == "variable_begin" and text == "{{":
            expression = []
        elif kind == "variable_end" and text == "}}" and expression is not None:
            spelled = "".join(expression).strip()
            if "{" in spelled or "}" in spelled or not spelled:
                raise Inexpressible(f"a hole can't be called {spelled!r}")
            pieces.append((spelled, True))
            expression = None
        elif expression is not None:
            expression.append(text)
        else:
            raise Inexpressible(f"a template has more than text and expressions ({text.strip()!r})")
    return pieces


def _spelled(pieces: Iterable[tuple[str, bool]], names: Mapping[str, str]) -> str:
    return "".join("{" + names[text] + "}" if is_hole else _escaped(text) for text, is_hole in pieces)


def _escaped(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")


def asked_rows(task: Any, shots: int) -> Iterator[AskedRow]:
    """Every row of the evaluated split, in order, with ``shots`` drawn by the harness's own stream.

    Raises DataError for a row that the harness itself can't make a request of.
    """
    task.set_fewshot_seed(SEEDS["shots"])
    drawn = _recorded(task) if shots else []
    for number, doc in enumerate(task.eval_docs):
        drawn.clear()
        try:
            yield _asked(task, doc, shots, drawn)
        except ChoicewiseError as error:
            raise DataError(f"task {task.config.task}, row {number}: {error.message}") from error
        except Exception as error:
            reason = f"the harness makes no request of it ({type(error).__name__}: {str(error)[:200]})"
            raise DataError(f"task {task.config.task}, row {number}: {reason}") from error


def _recorded(task: Any) -> list[Any]:
    """A list that has the shots of the latest row."""
    drawn: list[Any] = []
    sample = task.sampler.sample

    def recording(*args: Any, **kwargs: Any) -> Any:
        shots = sample(*args, **kwargs)
        drawn.extend(shots)
        return shots

    task.sampler.sample = recording
    return drawn


def _asked(task: Any, doc: Mapping[str, Any], shots: int, drawn: Sequence[Any]) -> AskedRow:
    context = task.fewshot_context(doc, num_fewshot=shots, gen_prefix=task.doc_to_prefix(doc))
    own_shot = any(shot == doc for shot in drawn)
    if task.OUTPUT_TYPE == "loglikelihood":
        target = task.doc_to_target(doc)
        if not isinstance(target, str) or not target:
            return AskedRow(doc, "", (), (), (), (), f"its target is {target!r}, and not a text that can be scored")
        return _checked(AskedRow(doc, task.doc_to_text(doc), (context,), (target,), (target,), (0,), own_shot=own_shot))
    choices = task.doc_to_choice(doc)
    if (wrong := _wrong_choices(choices)) is not None:
        return AskedRow(doc, "", (), (), (), (), wrong)
    instances = task.construct_requests(doc, context, metadata=(task.config.task, 0, 1))
    pairs = [instance.args for instance in instances][: len(choices)]
    contexts = tuple(dict.fromkeys(pair[0] for pair in pairs)) if not task.multiple_input else [p[0] for p in pairs]
    query = pairs[0][1].strip() if task.multiple_input else str(task.doc_to_text(doc))
    target = task.doc_to_text(doc) if task.multiple_input else task.doc_to_target(doc)
    gold = _gold(target, choices, bool(task.multiple_target))
    refused = gold if isinstance(gold, str) else None
    row = AskedRow(
        doc,
        query,
        tuple(contexts),
        tuple(pair[1] for pair in pairs),
        tuple(choices),
        () if isinstance(gold, str) else gold,
        refused,
        not refused and _was_text(task, doc, choices),
        own_shot,
    )
    return _checked(row)


def _checked(row: AskedRow) -> AskedRow:
    if has_half_character("".join((row.query, *row.contexts, *row.continuations))):
        return AskedRow(row.doc, "", (), (), (), (), "a text holds half a character, which no file can store")
    return row


def answered(task: Any, doc: Mapping[str, Any]) -> tuple[tuple[str, ...], tuple[int, ...]] | str:
    """The choices of a row that is shown as an example, and which are right, or why that is not known."""
    target = task.doc_to_target(doc)
    if task.OUTPUT_TYPE == "loglikelihood":
        return ((target,), (0,)) if isinstance(target, str) and target else f"its target is {target!r}"
    choices = task.doc_to_choice(doc)
    gold = _wrong_choices(choices) or _gold(target, choices, bool(task.multiple_target))
    return gold if isinstance(gold, str) else (tuple(choices), gold)


def _wrong_choices(choices: Any) -> str | None:
    if isinstance(choices, list) and choices and all(isinstance(choice, str) for choice in choices):
        return None
    return f"its choices are {str(choices)[:80]!r}, and not a list of texts"


def _gold(target: Any, choices: Sequence[str], several: bool) -> tuple[int, ...] | str:
    """The right choices, or why they are not known.

    ``several``: whether the first row of the task has a list, after which the harness judges all rows
    (lm_eval/api/task.py, 0.4.13, process_results).  What it takes for a wrong answer without a word, or counts from the
    end, is no answer here.
    """
    if isinstance(target, list) != several:
        kinds = ("a list", "the first row's is none") if isinstance(target, list) else ("no list", "the first row's is")
        return f"its target {target!r} is {kinds[0]}, and {kinds[1]}"
    if isinstance(target, str):
        if target not in choices:
            return f"its target {target[:80]!r} is none of its choices"
        return (choices.index(target),)
    indices = target if isinstance(target, list) else [target]
    for index in indices:
        if not isinstance(index, Integral) or not 0 <= int(index) < len(choices):
            return f"its target {target!r} is no index of its {len(choices)} choices"
    return tuple(sorted({int(index) for index in indices})) or "it has no target"


def _was_text(task: Any, doc: Mapping[str, Any], choices: Sequence[str]) -> bool:
    """Whether the target was a text of digits, one of the choices, and taken as the index of another choice."""
    template = task.config.doc_to_text if task.multiple_input else task.config.doc_to_target
    if not isinstance(template, str) or template in task.features:
        return False
    from lm_eval import utils

    text = utils.apply_template(template, doc)
    return text.isdigit() and text in choices and choices.index(text) != int(text)
