"""The rows of a task, and those that its examples come from, as items of a dataset."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from choicewise.data.item import Item
from choicewise.interchange.tasks.asked_row import AskedRow, answered
from choicewise.interchange.tasks.task_shots import TaskPool, evaluated_split, task_pool
from choicewise.interchange.tasks.task_template import Inexpressible, TaskTemplate, fill_fields, task_template
from choicewise.interchange.tasks.templates import TaskTemplates

DESCRIPTION = "task description"
"""The field with what stands before everything else, where the tasks of a group differ in it."""


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


def task_items(task: Any, subject: str, rows: Sequence[AskedRow], templates: TaskTemplates) -> TaskItems:
    """The items of ``task`` from its ``rows``; ``subject``: its name in a group, empty outside."""
    template, reason = _template(task)
    numbers = tuple(number for number, row in enumerate(rows) if row.refused is None)
    asked = [rows[number] for number in numbers]
    making = _Making(task, subject, template, templates)
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
class _Making:
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
