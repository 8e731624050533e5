"""Read the tables of a run in portions that fit into memory, and the items of a run.

A prompt is answered once per run, so equal texts of several items share an observation, such as
those after a null context.  It lies in the block of the item that was evaluated first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from choicewise.errors import StoreError
from choicewise.records import ITEM_FILE, ITEMS, KEYS, OBSERVATIONS, SPANS, BlockRecord, Manifest
from choicewise.scoring.observed import Integers, Mask
from choicewise.store.tables import (
    block_file,
    check_items,
    count_bytes,
    damaged_blocks,
    read_batches,
    read_columns,
    read_metadata,
)
from choicewise.util.text import text_digest


class SharedObservations:
    """Hold the observations that ``portions`` need and that lie in blocks of other portions.

    A block that is read for its portion gives its rows (:meth:`keep`); the others are read when
    they are needed.  ``items``: the item table.  ``checked``: all ``blocks`` were checked before;
    if not, damaged ones are left out here.
    """

    def __init__(
        self,
        folder: Path,
        blocks: Sequence[BlockRecord],
        portions: Sequence[Portion],
        items: pa.Table,
        checked: bool = True,
    ) -> None:
        self._folder = folder
        self._rows: dict[str, pa.Table] = {}
        # Blocks with some of the observations, in the order of the run, and marks of their keys.
        self._blocks: dict[str, BlockRecord] = {}
        self._held: dict[str, Mask] = {}
        self._lacking = [pa.array([], pa.string())] * len(portions)
        self._keys = pa.array([], pa.string())
        if all(len(portion.blocks) == len(blocks) for portion in portions):
            return
        self._lacking = []
        for portion in portions:
            ids = items["item"].take(pa.array(portion.items)).combine_chunks()
            self._lacking.append(_lacking_keys(folder, portion, ids))
        self._keys = pc.unique(pa.concat_arrays(self._lacking))
        for block in blocks:
            # The keys alone are read first: most blocks have none of the observations.
            path = block_file(folder, block, "observations")
            block_keys = read_columns(path, OBSERVATIONS, ["key"])["key"]
            indices = pc.drop_null(pc.index_in(block_keys, self._keys))
            if not len(indices):
                continue
            if checked or not damaged_blocks(folder, [block]):
                self._blocks[block.name] = block
                self._held[block.name] = np.zeros(len(self._keys), dtype=np.bool_)
                self._held[block.name][indices.to_numpy()] = True

    def keep(self, block: BlockRecord, observations: pa.Table) -> None:
        """Keep the rows that other portions need of all ``observations`` of ``block``."""
        if block.name in self._blocks and block.name not in self._rows:
            self._rows[block.name] = self._among(observations)

    def of(self, number: int) -> pa.Table:
        """Return what the portion of that ``number`` lacks, in the order of the run's blocks."""
        keys = self._lacking[number]
        indices = pc.index_in(keys, self._keys).to_numpy()
        tables = [OBSERVATIONS.empty_table()]
        for block in self._blocks.values():
            if self._held[block.name][indices].any():
                rows = self._rows_of(block)
                tables.append(rows.filter(pc.is_in(rows["key"], keys)))
        return pa.concat_tables(tables)

    def _rows_of(self, block: BlockRecord) -> pa.Table:
        if block.name not in self._rows:
            path = block_file(self._folder, block, "observations")
            batches = []
            for batch in read_batches(path, OBSERVATIONS, OBSERVATIONS.names):
                batches.append(self._among(batch))
            self._rows[block.name] = pa.Table.from_batches(batches, OBSERVATIONS)
        return self._rows[block.name]

    def _among(self, rows: _Rows) -> _Rows:
        """Return the rows of observations that a portion lacks."""
        return rows.filter(pc.is_in(rows["key"], self._keys))


_Rows = TypeVar("_Rows", pa.Table, pa.RecordBatch)


def named(spans: pa.Table) -> pa.Array:
    """Return the keys of the observations of ``spans``, without duplicates."""
    return pc.unique(_keys_of(spans))


def _keys_of(spans: pa.Table) -> pa.Array:
    return pc.drop_null(pa.concat_arrays([spans[name].combine_chunks() for name in KEYS]))


MOST = 64_000_000
"""Bytes that the spans and tokens of a portion take, roughly; a single block may have more."""


@dataclass(frozen=True, slots=True)
class Portion:
    """Name a part of a run: rows of the item table, and the blocks with what was observed of them.

    ``inside``: names of the blocks without other items.
    """

    items: Integers
    blocks: tuple[BlockRecord, ...]
    inside: frozenset[str] = frozenset()


def list_portions(
    folder: Path, blocks: Sequence[BlockRecord], subject_rows: Mapping[Subject, Integers]
) -> list[Portion]:
    """Return the portions of the run in ``folder`` with these blocks.

    ``subject_rows``: the rows of the item table by subject.  Blocks of a continued run can overlap
    earlier ones: such a block is in several portions, each of which takes the rows of its items.
    """
    weights = {block.name: _weight(folder, block) for block in blocks}
    portions: list[list[Segment]] = []
    names: set[str] = set()
    weight = 0
    for rows, covering in segments(blocks, subject_rows):
        weight += sum(weights[block.name] for block in covering if block.name not in names)
        if weight > MOST or not portions:
            portions.append([])
            names.clear()
            weight = sum(weights[block.name] for block in covering)
        names.update(block.name for block in covering)
        portions[-1].append((rows, covering))
    return [_portion(blocks, segments_of_portion) for segments_of_portion in portions]


def _portion(blocks: Sequence[BlockRecord], parts: Sequence[Segment]) -> Portion:
    """Return the portion that consists of these segments, with its blocks in the order of the run."""
    covered: Counter[str] = Counter()
    for rows, covering in parts:
        for block in covering:
            covered[block.name] += len(rows)
    in_order = [block for block in blocks if block.name in covered]
    inside = []
    for block in in_order:
        if covered[block.name] == block.stop - block.start:
            inside.append(block.name)
    items = np.concatenate([rows for rows, _ in parts])
    return Portion(items, tuple(in_order), frozenset(inside))


Segment = tuple[Integers, list[BlockRecord]]
"""Rows of the item table that the same blocks cover, and these blocks."""


def segments(
    blocks: Sequence[BlockRecord], subject_rows: Mapping[Subject, Integers]
) -> Iterator[Segment]:
    """Yield stretches of items that the same blocks cover, in the order of the item table.

    Raises StoreError if a block has more items of a subject than there are.
    """
    subject_blocks: dict[Subject, list[BlockRecord]] = {}
    for block in blocks:
        subject_blocks.setdefault((block.split, block.subject), []).append(block)
    for (split, name), covering in subject_blocks.items():
        item_count = len(subject_rows.get((split, name), ()))
        if max(block.stop for block in covering) > item_count:
            raise StoreError(
                f"block {covering[-1].name} and the item table of {name} ({split}) hold "
                "different items; evaluate again into a new folder"
            )
    # In the order of the item table, whatever the order in which blocks were written.
    for subject in sorted(subject_blocks, key=lambda subject: int(subject_rows[subject][0])):
        for start, stop, covering in _covered_ranges(subject_blocks[subject]):
            yield subject_rows[subject][start:stop], covering


def covering_portion(
    blocks: Sequence[BlockRecord], subject_rows: Mapping[Subject, Integers], items: Sequence[int]
) -> Portion:
    """Return the portion of ``items``, which are rows of the item table in its order."""
    wanted = np.array(items, dtype=np.int64)
    names: set[str] = set()
    for rows, covering in segments(blocks, subject_rows):
        if np.isin(wanted, rows).any():
            names.update(block.name for block in covering)
    return Portion(wanted, tuple(block for block in blocks if block.name in names))


Subject = tuple[str, str]
"""The names of a split and of a subject in it."""


def read_item_table(folder: Path, manifest: Manifest) -> pa.Table:
    """Return the items of the run that ``manifest`` describes, and their rows as ``position``.

    The lists in ``choices`` have their lengths and hold nulls: the texts of a million questions
    would take a gigabyte.  Raises StoreError if the table is missing or damaged.
    """
    check_items(folder, manifest)
    # The empty table has the columns even if the file has no batch.
    tables = [_without_choices(pa.RecordBatch.from_pylist([], ITEMS))]
    for batch in read_batches(folder / ITEM_FILE, ITEMS, _ITEM_COLUMNS):
        tables.append(_without_choices(batch))
    table = pa.concat_tables(tables).unify_dictionaries().combine_chunks()
    return table.append_column("position", pa.array(np.arange(len(table))))


def read_item_names(folder: Path) -> pa.Table:
    """Return what names the items of an item file that was checked before.

    ``item`` and ``subject`` are as in the file; ``question`` is a digest of the text, and ``gold``
    has the right choices, such as "0,2".
    """
    tables = [_names_of_items(pa.RecordBatch.from_pylist([], _NAMES_OF_ITEMS))]
    for batch in item_batches(folder, tuple(_NAMES_OF_ITEMS.names)):
        tables.append(_names_of_items(batch))
    return pa.concat_tables(tables).unify_dictionaries().combine_chunks()


def rows_at(table: pa.Table, numbers: Integers) -> pa.Table:
    """Return the rows with these numbers: the table itself, not a copy, if they are all in order."""
    if np.array_equal(numbers, np.arange(len(table))):
        return table
    return table.take(pa.array(numbers))


def places_of(items: pa.Table) -> dict[Subject, Integers]:
    """Return the rows of every subject of every split, in the order of the table, int64 [items]."""
    if not len(items):
        return {}
    splits = items["split"].combine_chunks()
    subjects = items["subject"].combine_chunks()
    split_codes = splits.indices.to_numpy().astype(np.int64)
    subject_codes = subjects.indices.to_numpy().astype(np.int64)
    split_names = splits.dictionary.to_pylist()
    subject_names = subjects.dictionary.to_pylist()

    # A stable sort keeps the order of the table within each subject.
    number = split_codes * len(subject_names) + subject_codes
    order = np.argsort(number, kind="stable")
    ends = np.flatnonzero(np.diff(number[order])) + 1
    rows_of_subject = {}
    for rows in np.split(order, ends):
        first = rows[0]
        subject = split_names[split_codes[first]], subject_names[subject_codes[first]]
        rows_of_subject[subject] = rows
    return rows_of_subject


def item_batches(folder: Path, columns: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
    """Yield some columns of the item file, which was checked before, in batches."""
    return read_batches(folder / ITEM_FILE, ITEMS, columns)


def read_item_rows(folder: Path, numbers: Sequence[int]) -> dict[int, dict[str, Any]]:
    """Return the rows of the item file with these ``numbers``, as a value by column."""
    rows_by_number: dict[int, dict[str, Any]] = {}
    wanted = sorted(set(numbers))
    if not wanted:
        return rows_by_number
    start = 0
    for batch in item_batches(folder, tuple(ITEMS.names)):
        inside = [number for number in wanted if start <= number < start + len(batch)]
        rows = batch.take(pa.array([number - start for number in inside], pa.int64()))
        rows_by_number.update(zip(inside, rows.to_pylist(), strict=True))
        start += len(batch)
        if start > wanted[-1]:
            break
    return rows_by_number


def _lacking_keys(folder: Path, portion: Portion, ids: pa.Array) -> pa.Array:
    """Return the keys in the spans of ``portion`` whose observations lie in other blocks.

    ``ids``: of its items.
    """
    spans = [SPANS.empty_table().select(KEYS)]
    observations = [OBSERVATIONS.empty_table().select(["key"])]
    for block in portion.blocks:
        path = block_file(folder, block, "spans")
        if block.name in portion.inside:
            spans.append(read_columns(path, SPANS, KEYS))
        else:
            rows = read_columns(path, SPANS, ["item", *KEYS])
            spans.append(rows.filter(pc.is_in(rows["item"], ids)).select(KEYS))
        path = block_file(folder, block, "observations")
        observations.append(read_columns(path, OBSERVATIONS, ["key"]))
    inside = pa.concat_tables(observations)["key"].combine_chunks()
    keys = _keys_of(pa.concat_tables(spans))
    return pc.unique(keys.filter(pc.invert(pc.is_in(keys, inside))))


_SPAN_BYTES = 256
"""Bytes of a span with its texts and its observation."""

_TOKEN_BYTES = 32
"""Bytes of a token laid out."""


_MOST_OF_USUAL = 4
"""Times of the usual bytes that a table may take before its texts are counted."""


def _covered_ranges(
    blocks: Sequence[BlockRecord],
) -> Iterator[tuple[int, int, list[BlockRecord]]]:
    """Yield (start, stop, blocks that cover it) for the ranges between the ends of the blocks."""
    edges = {block.start for block in blocks} | {block.stop for block in blocks}
    waiting = sorted(blocks, key=lambda block: block.start, reverse=True)
    covering: list[BlockRecord] = []
    for start, stop in pairwise(sorted(edges)):
        covering = [block for block in covering if block.stop > start]
        while waiting and waiting[-1].start <= start:
            covering.append(waiting.pop())
        if covering:
            yield start, stop, list(covering)


def _weight(folder: Path, block: BlockRecord) -> int:
    """Return how many bytes a block takes in memory, roughly."""
    spans_path = block_file(folder, block, "spans")
    observations_path = block_file(folder, block, "observations")
    spans, most_of_spans = read_metadata(spans_path, SPANS)
    observations, most_of_observations = read_metadata(observations_path, OBSERVATIONS)
    token_count = 0
    for number in range(observations.num_row_groups):
        token_count += observations.row_group(number).column(1).num_values
    row_count = spans.num_rows + observations.num_rows
    usual = _SPAN_BYTES * row_count + _TOKEN_BYTES * token_count
    counted = 0
    # A foreign run can hold texts of megabytes, and repeat them.
    if most_of_spans > _MOST_OF_USUAL * usual:
        counted += count_bytes(spans_path)
    if most_of_observations > _MOST_OF_USUAL * usual:
        counted += count_bytes(observations_path)
    return max(usual, counted)


_NAMES_OF_ITEMS = pa.schema([ITEMS.field(name) for name in ("item", "subject", "question", "gold")])


def _names_of_items(batch: pa.RecordBatch) -> pa.Table:
    """Return the names of items, with digests in place of the texts of their questions."""
    digests = [text_digest(question)[:16] for question in batch["question"].to_pylist()]
    golds = pc.binary_join(batch["gold"].cast(pa.list_(pa.string())), ",")
    return pa.table(
        {
            "item": batch["item"],
            "subject": batch["subject"].dictionary_encode(),
            "question": pa.array(digests, pa.string()),
            "gold": golds.dictionary_encode(),
        }
    )


_ITEM_COLUMNS = ("split", "item", "subject", "choices", "gold")


def _without_choices(batch: pa.RecordBatch) -> pa.Table:
    """Return the columns of an item table, with lists of nulls in place of the choices."""
    offsets = batch["choices"].offsets
    starts = pa.array(offsets.to_numpy() - offsets[0].as_py(), pa.int32())
    nulls = pa.nulls(starts[-1].as_py())
    return pa.table(
        {
            "split": batch["split"].dictionary_encode(),
            "item": batch["item"],
            "subject": batch["subject"].dictionary_encode(),
            "choices": pa.ListArray.from_arrays(starts, nulls),
            "gold": batch["gold"],
        }
    )
