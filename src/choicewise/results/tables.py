"""Tables of a run by portions.

Each question is asked once per run, so that equal texts of several items, such as those after a null context, share an
observation, which lies where it was asked first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from choicewise.errors import StoreError
from choicewise.records import ITEM_FILE, ITEMS, OBSERVATIONS, REQUESTS, SPANS, BlockRecord, Manifest
from choicewise.scoring.observed import Continuations, Floats, Integers, Mask, reduce_rows
from choicewise.store.tables import (
    SCHEMAS,
    block_file,
    check_items,
    damaged_blocks,
    read_batches,
    read_blocks,
    read_columns,
    read_items,
    read_metadata,
)

KEYS = ("key", "before", "after")
"""All columns of the spans that name observations."""

CORRECTIONS = KEYS[1:]
"""Columns of the spans with the keys of what is subtracted at the first token and added at the last."""

FLAT = ("tokens", "logprobs", "sizes", "ranks")
"""Columns of the observations that have one entry per token."""

GIVEN = {"totals": "total", "token_counts": "token_count", "all_greedy": "greedy"}
"""What an observation without tokens has, by its name in :class:`choicewise.scoring.observed.Continuations`."""


@dataclass(frozen=True)
class RunTables:
    """The four tables (:mod:`choicewise.records`) of a run, or of a portion of it, which may lack columns."""

    items: pa.Table
    requests: pa.Table
    spans: pa.Table
    observations: pa.Table
    latest: dict[tuple[str, str | None, int], Continuations] = field(default_factory=dict)
    """The continuations of the prompt that was read last, by prompt, null context and part.

    Only those, since the tokens of every prompt laid out at once would need several times the memory of the run.
    """

    @cached_property
    def answers(self) -> Integers:
        """The rows of the observations that the ``KEYS`` of each span name, int64 [3, spans]; -1: none."""
        known, keys = self.observations["key"], [self.spans[name] for name in KEYS]
        lost = pc.is_valid(self.observations["missing"]).to_numpy()
        order = np.append(np.argsort(lost, kind="stable"), -1)  # of a question that was asked again the answer counts
        known = known.take(pa.array(order[:-1])) if lost.any() else known
        rows = np.stack([pc.fill_null(pc.index_in(key, known), -1).to_numpy() for key in keys]).astype(np.int64)
        return order[rows] if lost.any() else rows

    @cached_property
    def corrections(self) -> tuple[Floats, Floats]:
        """What each span adds at its first and at its last token, in nats, float64 [spans]; 0 where nothing.

        NaN where no more than an upper bound of it is known: what is subtracted can't be that.
        """
        totals = np.append(np.where(self._at_most, np.nan, self._totals), np.nan)  # row -1: none
        named = (pc.is_valid(self.spans[column]).to_numpy() for column in CORRECTIONS)
        before, after = (np.where(name, totals[rows], 0.0) for name, rows in zip(named, self.answers[1:], strict=True))
        return 0.0 - before, after  # 0.0 - 0.0 is 0.0, where -0.0 would be printed with its sign

    @cached_property
    def unlisted(self) -> Mask:
        """The spans of whose answer, or of a correction of it, no more than an upper bound is known, bool [spans]."""
        return np.asarray(np.append(self._at_most, False)[self.answers].any(axis=0), dtype=np.bool_)

    @cached_property
    def impossible(self) -> npt.NDArray[np.int8]:
        """Which numbers no model says (:func:`impossible_logprobs`) are in a span's answers, bits as int8 [spans]."""
        rows = impossible_logprobs(self._flat["logprobs"], self.offsets, self._totals)
        return np.asarray(np.bitwise_or.reduce(np.append(rows, 0)[self.answers], axis=0), dtype=np.int8)  # row -1: none

    @cached_property
    def certain(self) -> Mask:
        """The spans whose own answer is a log-likelihood of exactly 0, bool [spans]."""
        return np.asarray(np.append(self._totals == 0, False)[self.answers[0]], dtype=np.bool_)

    @cached_property
    def unanswered(self) -> list[tuple[int, str]]:
        """(span, why the model gave no answer about it or a correction of it), in the order of the spans."""
        column = self.observations["missing"]
        if column.null_count == len(column):
            return []
        reasons = [*column.to_pylist(), None]  # row -1: none
        rows = self.answers
        spans = np.flatnonzero(np.append(pc.is_valid(column).to_numpy(), False)[rows].any(axis=0))
        return [(span, next(filter(None, (reasons[row] for row in rows[:, span])))) for span in spans.tolist()]

    @cached_property
    def no_number(self) -> Mask:
        """The spans about which the model answered with NaN, corrections included, bool [spans]; not those that it did
        not answer."""
        summed = (np.diff(self.offsets) > 0) | pc.is_valid(self.observations["total"]).to_numpy()
        no_value = pc.fill_null(pc.is_nan(self.observations["value"]), False).to_numpy()
        answered = pc.is_null(self.observations["missing"]).to_numpy()
        nan = np.append(((summed & np.isnan(self._totals)) | no_value) & answered, False)  # row -1: none
        return np.asarray(nan[self.answers].any(axis=0), dtype=np.bool_)

    @cached_property
    def offsets(self) -> Integers:
        """Where each observation's tokens start in the flat arrays, and where the last ones end."""
        return offsets_of(self.observations["tokens"])

    def continuations(self, rows: Integers, text: Sequence[str | None], item_offsets: Integers) -> Continuations:
        """The tokens of these ``rows`` of the observations; none where the row is -1."""
        starts = self.offsets[rows]
        counts = np.where(rows < 0, 0, self.offsets[rows + 1] - starts)
        offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        flat = np.repeat(starts - offsets[:-1], counts) + np.arange(offsets[-1])
        columns = {name: values[flat] for name, values in self._flat.items()}
        given = {name: np.append(values, np.nan)[rows] for name, values in self._given.items()}
        at_most = np.append(self._at_most, False)[rows] if self._at_most.any() else None
        return Continuations(
            columns["tokens"],
            columns["logprobs"],
            columns["sizes"],
            columns["ranks"],
            offsets,
            text,
            item_offsets,
            at_most=at_most,
            totals=given.get("totals"),
            token_counts=given.get("token_counts"),
            all_greedy=given.get("all_greedy"),
        )

    @cached_property
    def _flat(self) -> dict[str, npt.NDArray[Any]]:
        """The columns of the observations that have one entry per token, token after token."""
        return {name: pc.list_flatten(self.observations[name]).to_numpy() for name in FLAT}

    @cached_property
    def _given(self) -> dict[str, Floats]:
        """What observations without tokens have of :class:`Continuations`, NaN for the others; only what any has."""
        columns = {name: self.observations[column] for name, column in GIVEN.items()}
        known = {name: column for name, column in columns.items() if column.null_count < len(column)}
        return {name: pc.fill_null(pc.cast(column, pa.float64()), np.nan).to_numpy() for name, column in known.items()}

    @cached_property
    def _at_most(self) -> Mask:
        """The observations whose log-probabilities are upper bounds, bool [observations]."""
        return np.asarray(pc.fill_null(self.observations["at_most"], False).to_numpy(), dtype=np.bool_)

    @cached_property
    def _totals(self) -> Floats:
        """The log-likelihood of every observation in nats; NaN where it has none."""
        sums = reduce_rows(np.add, self._flat["logprobs"], self.offsets)
        totals = self._given.get("totals")
        return sums if totals is None else np.where(np.diff(self.offsets) > 0, sums, totals)


def read_run_tables(folder: Path, manifest: Manifest) -> RunTables:
    """The tables of the run folder that ``manifest`` describes.  Raises StoreError when one is missing or damaged."""
    requests, spans, observations = (
        read_blocks(folder, manifest.blocks, table) for table in ("requests", "spans", "observations")
    )
    return RunTables(read_items(folder, manifest), requests, spans, observations.combine_chunks())


def read_portion_tables(folder: Path, portion: Portion, items: pa.Table, elsewhere: pa.Table, texts: bool) -> RunTables:
    """The tables of a ``portion`` of the run whose ``items`` (:mod:`choicewise.results.tables`) are given.

    ``elsewhere``: observations that lie in other portions.  ``texts``: whether contexts are read, too, which are longer
    than everything else together.  The files were checked before.
    """
    own = items.take(pa.array(portion.items))
    left_out = () if texts else ("context",)
    requests, spans = (_rows(folder, portion, name, "item", own["item"], left_out) for name in ("requests", "spans"))
    keys = named(spans)
    observations = _rows(folder, portion, "observations", "key", pa.chunked_array([keys]))
    if len(elsewhere):
        lacking = keys.filter(pc.invert(pc.is_in(keys, observations["key"])))
        observations = pa.concat_tables([observations, elsewhere.filter(pc.is_in(elsewhere["key"], lacking))])
    return RunTables(own, requests, spans, observations.combine_chunks())


def read_portion_requests(folder: Path, portion: Portion, items: pa.Table) -> RunTables:
    """The same with the requests and their texts alone, and nothing that was observed."""
    own = items.take(pa.array(portion.items))
    requests = _rows(folder, portion, "requests", "item", own["item"])
    return RunTables(own, requests, SPANS.empty_table(), OBSERVATIONS.empty_table())


def _rows(
    folder: Path,
    portion: Portion,
    name: str,
    column: str,
    values: pa.ChunkedArray | pa.Array,
    left_out: Sequence[str] = (),
) -> pa.Table:
    """The rows of one table; of blocks that hold other items, too, only those with one of ``values`` in ``column``."""
    schema = pa.schema([field for field in SCHEMAS[name] if field.name not in left_out])
    values = values.combine_chunks()
    tables = [schema.empty_table()]
    for block in portion.blocks:
        path = block_file(folder, block, name)
        if block.name in portion.inside:
            tables.append(read_columns(path, SCHEMAS[name], schema.names))
        else:
            batches = read_batches(path, SCHEMAS[name], schema.names)
            tables += [pa.Table.from_batches([batch.filter(pc.is_in(batch[column], values))]) for batch in batches]
    return pa.concat_tables(tables[1:] or tables)


def nothing(items: pa.Table) -> RunTables:
    """No items of a run with such ``items``, and nothing observed."""
    return RunTables(items.slice(0, 0), *(schema.empty_table() for schema in (REQUESTS, SPANS, OBSERVATIONS)))


def offsets_of(lists: pa.ChunkedArray) -> Integers:
    """Where each list starts when they are laid end to end, and where the last one ends; int64 [lists + 1]."""
    return np.concatenate([[0], np.cumsum(pc.list_value_length(lists).to_numpy())]).astype(np.int64)


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
            tables += [pa.Table.from_batches([batch.filter(pc.is_in(batch["key"], keys))]) for batch in batches]
    return pa.concat_tables(tables)


def named(spans: pa.Table) -> pa.Array:
    """The keys that ``spans`` name, each once."""
    columns = [spans[name].combine_chunks() for name in KEYS]
    return pc.unique(pa.concat_arrays([column for column in columns if column.null_count < len(column)] or [_NONE]))


def _lacking(folder: Path, portion: Portion) -> pa.Array:
    """The keys that the spans of ``portion`` name and its blocks do not hold."""
    spans = _read(folder, portion, "spans", KEYS)
    own = _read(folder, portion, "observations", ["key"])["key"]
    keys = named(spans)
    return keys.filter(pc.invert(pc.or_(pc.is_in(keys, own), pc.is_null(keys))))


def _read(folder: Path, portion: Portion, table: str, columns: Sequence[str]) -> pa.Table:
    schema = SPANS if table == "spans" else OBSERVATIONS
    tables = [read_columns(block_file(folder, block, table), schema, columns) for block in portion.blocks]
    return pa.concat_tables([schema.empty_table().select(columns), *tables])


_NONE = pa.array([], pa.string())

MOST = 64_000_000
"""Bytes that the spans and tokens of a portion take, about; more only where a single block has more."""

_SPAN, _TOKEN = 256, 32
"""Bytes of a span with its texts and its observation, and of a token laid out."""

_MOST_OF_USUAL = 4
"""How many times as many bytes the tables of a block may take before they count themselves."""


@dataclass(frozen=True, slots=True)
class Portion:
    """``items``: rows of the item table, int64; ``blocks``: those that hold what was observed of them.

    ``inside``: names of the blocks that hold nothing about other items.
    """

    items: Integers
    blocks: tuple[BlockRecord, ...]
    inside: frozenset[str] = frozenset()


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
        inside = frozenset(block.name for block in blocks if self.covered[block.name] == block.stop - block.start)
        return Portion(np.concatenate(self.items), blocks, inside)


def list_portions(folder: Path, blocks: Sequence[BlockRecord], places: Mapping[Subject, Integers]) -> list[Portion]:
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
            growing, new, weight = _Growing(), covering, sum(weights[block.name] for block in covering)
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
        for start, stop in pairwise(sorted({edge for block in own for edge in (block.start, block.stop)})):
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


def _weight(folder: Path, block: BlockRecord) -> int:
    spans, span_bytes = read_metadata(block_file(folder, block, "spans"), SPANS)
    observations, observed_bytes = read_metadata(block_file(folder, block, "observations"), OBSERVATIONS)
    groups = (observations.row_group(number) for number in range(observations.num_row_groups))
    tokens = sum(group.column(1).num_values for group in groups)
    usual = _SPAN * (spans.num_rows + observations.num_rows) + _TOKEN * tokens
    return max(usual, (span_bytes + observed_bytes) // _MOST_OF_USUAL)


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


_INT = np.dtype("<i4")


def row_bytes(column: pa.ChunkedArray) -> Iterator[bytes]:
    """Every row of a column of texts, of lists of texts or of lists of numbers: equal bytes for equal rows alone.

    A row is how many values it has (-1 for null), the bytes of each, and the values one after the other.
    """
    array = column.combine_chunks()
    if pa.types.is_list(array.type):
        counts, values = pc.fill_null(pc.list_value_length(array), -1).to_numpy(), pc.list_flatten(array)
    else:
        counts = np.where(pc.is_valid(array).to_numpy(zero_copy_only=False), 1, -1)
        values = pc.drop_null(array)
    counted = counts.astype(_INT).tobytes()
    ends = np.concatenate([[0], np.cumsum(np.maximum(counts, 0))])
    sized, data, places = _values(values)
    starts, sizes = places[ends].tolist(), (_INT.itemsize * ends).tolist()
    for row in range(len(counts)):
        count = counted[_INT.itemsize * row : _INT.itemsize * (row + 1)]
        yield count + sized[sizes[row] : sizes[row + 1]] + data[starts[row] : starts[row + 1]]


def _values(values: pa.Array) -> tuple[bytes, bytes, Integers]:
    """The bytes of each value counted in an int32, those of all values, and where each begins and the last one ends."""
    if pa.types.is_string(values.type):
        sizes, content = pc.binary_length(values).to_numpy(), values.cast(pa.binary())
        _, offsets, buffer = content.buffers()
        start = int(np.frombuffer(offsets, np.int32)[content.offset]) if len(values) else 0
        data = bytes(buffer or b"")[start:]
    else:
        numbers = values.to_numpy()
        sizes, data = np.full(len(numbers), numbers.itemsize), numbers.tobytes()
    places = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
    return sizes.astype(_INT).tobytes(), data, places


POSITIVE, PLACEHOLDER = 1, 2
"""Bits: a log-probability above 0; a number that stands for none."""

ROUNDING = 1e-3
"""Nats that rounding may lift a log-probability above 0."""

SENTINEL = -9999.0
"""What some servers write in place of a log-probability that they don't have (vLLM, for one that is impossible)."""


def impossible_logprobs(logprobs: npt.NDArray[np.float32], offsets: Integers, totals: Floats) -> npt.NDArray[np.int8]:
    """Which of the two each observation has, int8 [observations]: of ``logprobs`` [tokens], or a total without any."""
    flat = logprobs.astype(np.float64)
    most = np.nan_to_num(reduce_rows(np.maximum, flat, offsets), nan=-1.0)
    positive = (most > ROUNDING) | (np.nan_to_num(totals, nan=-1.0) > ROUNDING)
    absent = np.nan_to_num(reduce_rows(np.maximum, flat == SENTINEL, offsets)) > 0
    placeholder = absent | (totals == SENTINEL)
    return (POSITIVE * positive + PLACEHOLDER * placeholder).astype(np.int8)


def certain_twice(asked: Integers, answers: Integers, certain: Mask) -> Integers:
    """The items of which different answers to the same thing are ``certain``, bool [spans]: log-probabilities of 0.

    That can't be, unless one choice is the start of another.  ``asked``: item, part and null context of each span,
    int64 [3, spans]; ``answers``: its observation, int64 [spans].
    """
    distinct = np.unique(np.vstack([asked, answers])[:, certain], axis=1)
    things, times = np.unique(distinct[:-1], axis=1, return_counts=True)
    return np.unique(things[0, times > 1])
