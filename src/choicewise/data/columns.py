"""Items in columns: a dataset's items without a Python value for each, until they are asked for."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, pairwise
from types import MappingProxyType
from typing import Any, Final, overload

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from choicewise.data.items import _NO_FIELDS, Item, _checked_item
from choicewise.records import ITEMS
from choicewise.util.jsonio import exact_json

_Places = range | npt.NDArray[np.int64]


CHUNK: Final = 2048
"""Items that are Python values at a time while all of them are gone through."""


COLUMNS: Final = pa.schema([ITEMS.field(name) for name in ("item", "subject", "question", "choices", "gold", "fields")])
"""What an item fills of the table ``items`` of a run folder."""


class Items(Sequence[Item]):
    """Items in file order; slices and selections share the columns of the whole.

    A million items of 100 bytes take about 150 MB.  One item takes some microseconds to be made, all of them in a row
    about one each.
    """

    __slots__ = ("_batches", "_places", "_starts")

    def __init__(self, batches: Sequence[pa.RecordBatch], places: _Places | None = None) -> None:
        """The rows at ``places`` of all ``batches``, which have the schema ``COLUMNS``; every row when None."""
        self._batches = batches
        self._starts = [0, *accumulate(batch.num_rows for batch in batches)]
        self._places: _Places = range(self._starts[-1]) if places is None else places

    @classmethod
    def of(cls, items: Iterable[Item]) -> Items:
        """The ``items``, kept in columns; they are taken one by one."""
        if isinstance(items, Items):
            return items
        columns = ItemColumns()
        for item in items:
            columns.add(item)
        return cls(columns.batches())

    def __len__(self) -> int:
        return len(self._places)

    @overload
    def __getitem__(self, index: int) -> Item: ...
    @overload
    def __getitem__(self, index: slice) -> Items: ...
    def __getitem__(self, index: int | slice) -> Item | Items:
        if isinstance(index, slice):
            return Items(self._batches, self._places[index])
        place = int(self._places[index])
        number = bisect_right(self._starts, place) - 1
        return _item_at(self._batches[number], place - self._starts[number])

    def __iter__(self) -> Iterator[Item]:
        for start in range(0, len(self), CHUNK):
            for batch in self._rows(self._places[start : start + CHUNK]):
                yield from _items_of(batch)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence):
            return NotImplemented
        return len(self) == len(other) and all(mine == theirs for mine, theirs in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]  # as long as a list, and compared as one

    def __repr__(self) -> str:
        return f"<{len(self)} items>"

    def take(self, positions: npt.NDArray[np.int64]) -> Items:
        """The items at ``positions``, counted from 0, in that order."""
        if isinstance(self._places, range):
            return Items(self._batches, self._places.start + self._places.step * positions)
        return Items(self._batches, self._places[positions])

    def table(self) -> pa.Table:
        """The items in the columns ``COLUMNS``, without a Python value for each."""
        starts = range(0, len(self), CHUNK)
        parts = (batch for start in starts for batch in self._rows(self._places[start : start + CHUNK]))
        return pa.Table.from_batches(parts, COLUMNS)

    def by_subject(self) -> dict[str, Items]:
        """Subject → its items, in file order; subjects in order of first appearance."""
        if not len(self):
            return {}
        coded = self.table()["subject"].combine_chunks().dictionary_encode()
        codes = coded.indices.to_numpy()
        order = np.argsort(codes, kind="stable")
        ends = np.cumsum(np.bincount(codes, minlength=len(coded.dictionary)))
        groups = (Items(self._batches, _shortest(self.take(group)._places)) for group in np.split(order, ends[:-1]))
        return dict(zip(coded.dictionary.to_pylist(), groups, strict=True))

    def right_texts(self) -> pa.StringArray:
        """The text of the first right choice of each item."""
        return pa.chunked_array(map(_right, self.table().to_batches()), pa.string()).combine_chunks()

    def _rows(self, places: _Places) -> Iterator[pa.RecordBatch]:
        """The rows at ``places``, batch by batch."""
        numbers = np.searchsorted(self._starts, places, side="right") - 1
        bounds = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(places)]
        for start, stop in pairwise(bounds):
            batch, inside = self._batches[numbers[start]], _shortest(places[start:stop])
            first = self._starts[numbers[start]]
            if isinstance(inside, range) and inside.step == 1:
                yield batch.slice(inside.start - first, len(inside))
            else:
                yield batch.take(pa.array(np.asarray(inside) - first))


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


def _shortest(places: _Places) -> _Places:
    """_Places that follow each other as a range, which takes no memory."""
    if isinstance(places, range) or not len(places) or (np.diff(places) != 1).any():
        return places
    return range(int(places[0]), int(places[-1]) + 1)


def _right(batch: pa.RecordBatch) -> pa.StringArray:
    choices = batch["choices"]
    starts = pc.subtract(choices.offsets[:-1], choices.offsets[0])
    return choices.flatten().take(pc.add(starts, pc.list_element(batch["gold"], 0)))


def _item_at(batch: pa.RecordBatch, row: int) -> Item:
    """One item; where several rows are wanted, :func:`_items_of` is several times faster."""
    id, subject, question, choices, gold, fields = (column[row].as_py() for column in batch.columns)
    return _checked_item(id, question, tuple(choices), tuple(gold), subject, _fields(fields))


def _items_of(batch: pa.RecordBatch) -> Iterator[Item]:
    """The items of all rows, which are at least one."""
    ids, subjects, questions, choices, gold, fields = batch.columns
    parts = _list(ids), _list(questions), _tuples(choices), _tuples(gold), _list(subjects), map(_fields, _list(fields))
    return map(_checked_item, *parts)


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
    return _NO_FIELDS if spelled == "{}" else MappingProxyType(json.loads(spelled))


def _spelled(fields: Mapping[str, str]) -> str:
    return exact_json(dict(fields), sort=True) if fields else "{}"
