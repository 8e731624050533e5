"""The items of a run as far as reports count them: without the texts of their questions and choices."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from choicewise.records.format import ITEM_FILE
from choicewise.records.manifest import Manifest
from choicewise.records.tables import ITEMS
from choicewise.scoring.ragged import Integers
from choicewise.store.tables import check_items, read_batches

_COUNTED = ("split", "item", "subject", "choices", "gold")

Subject = tuple[str, str]
"""A subject of a split."""


def read_item_table(folder: Path, manifest: Manifest) -> pa.Table:
    """The items of the run that ``manifest`` describes; raises StoreError when the table is missing or damaged.

    ``position`` is the row.  The lists in ``choices`` are as long as in the file and hold nothing: a million questions
    with their texts would take a gigabyte.
    """
    check_items(folder, manifest)
    batches = [_counted(batch) for batch in read_batches(folder / ITEM_FILE, ITEMS, _COUNTED)]
    table = pa.concat_tables(map(pa.table, batches)) if batches else _empty()
    table = table.unify_dictionaries().combine_chunks()
    return table.append_column("position", pa.array(np.arange(len(table))))


def read_item_names(folder: Path) -> pa.Table:
    """Columns ``item`` and ``subject`` alone, of an item file that was checked before."""
    columns = ("item", "subject")
    batches = [pa.table({name: batch[name] for name in columns}) for batch in item_batches(folder, columns)]
    names = pa.concat_tables(batches) if batches else _empty().select(columns)
    return names.set_column(1, "subject", names["subject"].dictionary_encode()).combine_chunks()


def places_of(items: pa.Table) -> dict[Subject, Integers]:
    """The rows of every subject of every split, in the order of the table, int64 [items of the subject]."""
    if not len(items):
        return {}
    columns = [items[name].combine_chunks() for name in ("split", "subject")]
    codes = [column.indices.to_numpy().astype(np.int64) for column in columns]
    splits, subjects = (column.dictionary.to_pylist() for column in columns)
    number = codes[0] * len(subjects) + codes[1]
    order = np.argsort(number, kind="stable")
    parts = np.split(order, np.flatnonzero(np.diff(number[order])) + 1)
    return {(splits[codes[0][part[0]]], subjects[codes[1][part[0]]]): part for part in parts}


def item_batches(folder: Path, columns: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
    """Some columns of the item file, which was checked before, in batches."""
    return read_batches(folder / ITEM_FILE, ITEMS, columns)


def read_item_rows(folder: Path, places: Sequence[int]) -> dict[int, dict[str, Any]]:
    """Everything the item file says about the items at these ``places``, by place and column."""
    rows: dict[int, dict[str, Any]] = {}
    start, waiting = 0, sorted(set(places))
    for batch in item_batches(folder, tuple(ITEMS.names)) if waiting else ():
        own = [place for place in waiting if start <= place < start + len(batch)]
        rows |= zip(own, batch.take(pa.array([place - start for place in own], pa.int64())).to_pylist(), strict=True)
        start += len(batch)
        if start > waiting[-1]:
            break
    return rows


def _counted(batch: pa.RecordBatch) -> dict[str, pa.Array]:
    columns = {name: batch[name] for name in _COUNTED}
    offsets = columns["choices"].offsets
    starts = pa.array(offsets.to_numpy() - offsets[0].as_py(), pa.int32())
    columns["choices"] = pa.ListArray.from_arrays(starts, pa.nulls(starts[-1].as_py()))
    return columns | {name: columns[name].dictionary_encode() for name in ("split", "subject")}


def _empty() -> pa.Table:
    return pa.table(_counted(pa.RecordBatch.from_pylist([], ITEMS)))
