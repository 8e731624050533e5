"""Items as columns of Arrow, and back."""

import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import pyarrow as pa

from choicewise.data.item import NO_FIELDS, Item, checked_item
from choicewise.records.tables import ITEMS

CHUNK: Final = 2048
"""Items that are Python values at a time while all of them are gone through."""

COLUMNS: Final = pa.schema([ITEMS.field(name) for name in ("item", "subject", "question", "choices", "gold", "fields")])
"""What an item fills of the table ``items`` of a run folder."""


class ItemColumns:
    """Takes items one by one; only the last ones wait as Python values."""

    def __init__(self) -> None:
        self._batches: list[pa.RecordBatch] = []
        self._waiting: list[Item] = []

    def add(self, item: Item) -> None:
        """Keep ``item`` after those before it."""
        self._waiting.append(item)
        if len(self._waiting) == CHUNK:
            self._turn()

    def batches(self) -> list[pa.RecordBatch]:
        """All items that were added, with the schema ``COLUMNS``."""
        if self._waiting:
            self._turn()
        return self._batches

    def _turn(self) -> None:
        pool = pa.system_memory_pool()  # the default one takes twice the memory for many arrays of this size
        rows = [(i.id, i.subject, i.question, i.choices, i.gold, _spelled(i.fields)) for i in self._waiting]
        columns = zip(zip(*rows, strict=True), COLUMNS.types, strict=True)
        arrays = [pa.array(values, kind, memory_pool=pool) for values, kind in columns]
        self._batches.append(pa.record_batch(arrays, schema=COLUMNS))
        self._waiting.clear()


def item_at(batch: pa.RecordBatch, row: int) -> Item:
    """One item; where several rows are wanted, :func:`items_of` is several times faster."""
    id, subject, question, choices, gold, fields = (column[row].as_py() for column in batch.columns)
    return checked_item(id, question, tuple(choices), tuple(gold), subject, _fields(fields))


def items_of(batch: pa.RecordBatch) -> Iterator[Item]:
    """The items of all rows, which are at least one."""
    ids, subjects, questions, choices, gold, fields = batch.columns
    parts = _list(ids), _list(questions), _tuples(choices), _tuples(gold), _list(subjects), map(_fields, _list(fields))
    return map(checked_item, *parts)


def _list(column: pa.Array) -> list[Any]:
    """The column's values; for texts several times faster than ``to_pylist``."""
    values: list[Any] = column.to_numpy(zero_copy_only=False).tolist()
    return values


def _tuples(lists: pa.ListArray) -> Iterable[tuple[Any, ...]]:
    values, offsets = _list(lists.flatten()), lists.offsets.to_numpy()
    width = int(offsets[1] - offsets[0])
    if width and (np.diff(offsets) == width).all():
        return zip(*[iter(values)] * width, strict=True)
    return [tuple(values[start:stop]) for start, stop in pairwise((offsets - offsets[0]).tolist())]


def _fields(spelled: str) -> Mapping[str, str]:
    return NO_FIELDS if spelled == "{}" else MappingProxyType(json.loads(spelled))


def _spelled(fields: Mapping[str, str]) -> str:
    return json.dumps(dict(fields), ensure_ascii=False, sort_keys=True) if fields else "{}"
