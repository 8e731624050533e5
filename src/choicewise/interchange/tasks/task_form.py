"""How the requests of loaded tasks become protocols: by templates of ours, or kept as the harness rendered them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from choicewise.data.dataset import Dataset
from choicewise.data.item import Item
from choicewise.errors import DataError, ProtocolError
from choicewise.interchange.tasks.asked_row import AskedRow
from choicewise.interchange.tasks.task_items import DESCRIPTION, TaskItems
from choicewise.interchange.tasks.task_metrics import COMMON
from choicewise.interchange.tasks.task_shots import shot_axes
from choicewise.interchange.tasks.task_template import Inexpressible
from choicewise.protocols.consistency import NEUTRAL
from choicewise.protocols.protocol import Protocol
from choicewise.requests.rendered import RenderedRequests
from choicewise.requests.request import Request
from choicewise.requests.source import TemplateSource


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
