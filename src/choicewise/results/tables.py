"""Tables of a run by portions.

Each question is asked once per run, so that equal texts of several items, such as those after a null context, share an
observation, which lies where it was asked first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from choicewise.errors import StoreError
from choicewise.records import ITEM_FILE, ITEMS, KEYS, OBSERVATIONS, SPANS, BlockRecord, Manifest
from choicewise.scoring.observed import Integers
from choicewise.store.tables import (
    block_file,
    check_items,
    damaged_blocks,
    read_batches,
    read_columns,
    read_metadata,
)


def find_elsewhere(
    folder: Path, blocks: Sequence[BlockRecord], portions: Sequence[Portion], checked: bool = True
) -> pa.Table:
    """The observations of ``blocks`` that any of the ``portions`` needs and does not hold.

    ``checked``: whether all blocks are known to be whole; else those that are of use are checked, and left out if not.
    """
    if all(len(portion.blocks) == len(blocks) for portion in portions):
        return OBSERVATIONS.empty_table()
    wanted = [_lacking(folder, portion) for portion in portions]
    keys = pc.unique(pa.concat_arrays(wanted)) if wanted else pa.array([], pa.string())
    tables = [OBSERVATIONS.empty_table()]
    for block in blocks if len(keys) else ():
        path = block_file(folder, block, "observations")
        held = pc.is_in(read_columns(path, OBSERVATIONS, ["key"])["key"], keys)
        if pc.any(held).as_py() and (checked or not damaged_blocks(folder, [block])):
            batches = read_batches(path, OBSERVATIONS, OBSERVATIONS.names)
            tables += [
                pa.Table.from_batches([batch.filter(pc.is_in(batch["key"], keys))])
                for batch in batches
            ]
    return pa.concat_tables(tables)


def named(spans: pa.Table) -> pa.Array:
    """The keys that ``spans`` name, each once."""
    columns = [spans[name].combine_chunks() for name in KEYS]
    return pc.unique(
        pa.concat_arrays(
            [column for column in columns if column.null_count < len(column)] or [_NONE]
        )
    )


MOST = 64_000_000
"""Bytes that the spans and tokens of a portion take, about; more only where a single block has more."""


@dataclass(frozen=True, slots=True)
class Portion:
    """``items``: rows of the item table, int64; ``blocks``: those that hold what was observed of them.

    ``inside``: names of the blocks that hold nothing about other items.
    """

    items: Integers
    blocks: tuple[BlockRecord, ...]
    inside: frozenset[str] = frozenset()


def list_portions(
    folder: Path, blocks: Sequence[BlockRecord], places: Mapping[Subject, Integers]
) -> list[Portion]:
    """The portions of the run in ``folder`` that has these blocks, and items of every subject at ``places``.

    A continued run can have blocks that begin and end elsewhere than its earlier ones: such a block is in several
    portions, each of which takes the rows of its own items.
    """
    order = {block.name: number for number, block in enumerate(blocks)}
    weights = {block.name: _weight(folder, block) for block in blocks}
    portions, growing = list[_Growing](), _Growing()
    for rows, covering in segments(blocks, places):
        new = [block for block in covering if block.name not in growing.blocks]
        weight = sum(weights[block.name] for block in new)
        if growing.items and growing.weight + weight > MOST:
            portions.append(growing)
            growing, new, weight = (
                _Growing(),
                covering,
                sum(weights[block.name] for block in covering),
            )
        growing.items.append(rows)
        growing.blocks.update((block.name, block) for block in new)
        growing.weight += weight
        for block in covering:
            growing.covered[block.name] += len(rows)
    if growing.items:
        portions.append(growing)
    return [each.portion(order) for each in portions]


def segments(
    blocks: Sequence[BlockRecord], places: Mapping[Subject, Integers]
) -> Iterator[tuple[Integers, list[BlockRecord]]]:
    """The items between two places at which a block begins or ends, with the blocks that cover them."""
    by_subject: dict[Subject, list[BlockRecord]] = {}
    for block in blocks:
        by_subject.setdefault((block.split, block.subject), []).append(block)
    for (split, name), own in by_subject.items():
        if max(block.stop for block in own) > len(places.get((split, name), ())):
            raise StoreError(
                f"block {own[-1].name} is about other items than the item table has of {name} ({split}); "
                "evaluate again into a new folder"
            )
    for subject in sorted(by_subject, key=lambda subject: int(places[subject][0])):
        own = by_subject[subject]
        waiting = sorted(own, key=lambda block: block.start, reverse=True)
        covering: list[BlockRecord] = []
        for start, stop in pairwise(
            sorted({edge for block in own for edge in (block.start, block.stop)})
        ):
            covering = [block for block in covering if block.stop > start]
            while waiting and waiting[-1].start <= start:
                covering.append(waiting.pop())
            if covering:
                yield places[subject][start:stop], list(covering)


def covering_portion(
    blocks: Sequence[BlockRecord], places: Mapping[Subject, Integers], items: Sequence[int]
) -> Portion:
    """The portion of these ``items``, which are places of the item table in its order."""
    wanted, names = np.array(items, dtype=np.int64), set[str]()
    for rows, covering in segments(blocks, places):
        if np.isin(wanted, rows).any():
            names.update(block.name for block in covering)
    return Portion(wanted, tuple(block for block in blocks if block.name in names))


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
    batches = [
        pa.table({name: batch[name] for name in columns}) for batch in item_batches(folder, columns)
    ]
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
        rows |= zip(
            own,
            batch.take(pa.array([place - start for place in own], pa.int64())).to_pylist(),
            strict=True,
        )
        start += len(batch)
        if start > waiting[-1]:
            break
    return rows


def _lacking(folder: Path, portion: Portion) -> pa.Array:
    """The keys that the spans of ``portion`` name and its blocks do not hold."""
    spans = _read(folder, portion, "spans", KEYS)
    own = _read(folder, portion, "observations", ["key"])["key"]
    keys = named(spans)
    return keys.filter(pc.invert(pc.or_(pc.is_in(keys, own), pc.is_null(keys))))


def _read(folder: Path, portion: Portion, table: str, columns: Sequence[str]) -> pa.Table:
    schema = SPANS if table == "spans" else OBSERVATIONS
    tables = [
        read_columns(block_file(folder, block, table), schema, columns) for block in portion.blocks
    ]
    return pa.concat_tables([schema.empty_table().select(columns), *tables])


_NONE = pa.array([], pa.string())

_SPAN, _TOKEN = 256, 32
"""Bytes of a span with its texts and its observation, and of a token laid out."""

_MOST_OF_USUAL = 4
"""How many times as many bytes the tables of a block may take before they count themselves."""


@dataclass(slots=True)
class _Growing:
    """A portion that takes more items until it is heavy."""

    items: list[Integers] = field(default_factory=list)
    blocks: dict[str, BlockRecord] = field(default_factory=dict)
    weight: int = 0
    covered: Counter[str] = field(default_factory=Counter)

    def portion(self, order: Mapping[str, int]) -> Portion:
        """The portion, with its blocks in the order of the run."""
        blocks = tuple(sorted(self.blocks.values(), key=lambda block: order[block.name]))
        inside = frozenset(
            block.name for block in blocks if self.covered[block.name] == block.stop - block.start
        )
        return Portion(np.concatenate(self.items), blocks, inside)


def _weight(folder: Path, block: BlockRecord) -> int:
    spans, span_bytes = read_metadata(block_file(folder, block, "spans"), SPANS)
    observations, observed_bytes = read_metadata(
        block_file(folder, block, "observations"), OBSERVATIONS
    )
    groups = (observations.row_group(number) for number in range(observations.num_row_groups))
    tokens = sum(group.column(1).num_values for group in groups)
    usual = _SPAN * (spans.num_rows + observations.num_rows) + _TOKEN * tokens
    return max(usual, (span_bytes + observed_bytes) // _MOST_OF_USUAL)


_COUNTED = ("split", "item", "subject", "choices", "gold")


def _counted(batch: pa.RecordBatch) -> dict[str, pa.Array]:
    columns = {name: batch[name] for name in _COUNTED}
    offsets = columns["choices"].offsets
    starts = pa.array(offsets.to_numpy() - offsets[0].as_py(), pa.int32())
    columns["choices"] = pa.ListArray.from_arrays(starts, pa.nulls(starts[-1].as_py()))
    return columns | {name: columns[name].dictionary_encode() for name in ("split", "subject")}


def _empty() -> pa.Table:
    return pa.table(_counted(pa.RecordBatch.from_pylist([], ITEMS)))
