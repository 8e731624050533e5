"""The tables of a portion of a run, with the arrays that all protocols read laid out once."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from choicewise.records.manifest import Manifest
from choicewise.records.tables import FLOAT32, OBSERVATIONS, REQUESTS, SPANS
from choicewise.results.elsewhere import KEYS, named
from choicewise.results.impossible_logprobs import impossible_logprobs
from choicewise.results.portion import Portion
from choicewise.scoring.continuations import Continuations
from choicewise.scoring.ragged import Floats, Integers, Mask, reduce_rows
from choicewise.store.tables import SCHEMAS, block_file, read_batches, read_blocks, read_columns, read_items

CORRECTIONS = KEYS[1:]
"""Columns of the spans with the keys of what is subtracted at the first token and added at the last."""

FLAT = ("tokens", "logprobs", "sizes", "ranks")
"""Columns of the observations that have one entry per token."""

GIVEN = {"totals": "total", "token_counts": "token_count", "all_greedy": "greedy"}
"""What an observation without tokens has, by its name in :class:`choicewise.scoring.continuations.Continuations`."""


@dataclass(frozen=True)
class RunTables:
    """The four tables (:mod:`choicewise.records.tables`) of a run, or of a portion of it, which may lack columns."""

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
        """The rows of the observations that the ``KEYS`` of each span name, int64 [3, spans]; -1 where there is none.

        Those of the float32 copy where the item was rescored.
        """
        return np.where(self.rescored, self._float32_answers, self._own_answers)

    @cached_property
    def rescored(self) -> Mask:
        """The spans whose float32 answers count, bool [spans]: those of items that have all of them under a prompt.

        Answers of two computations within one item would shift its choices against each other.
        """
        answered, again = self._own_answers[0] >= 0, self._float32_answers
        if not (again[0] >= 0).any():
            return np.zeros(len(answered), dtype=np.bool_)
        named = np.stack([pc.is_valid(self.spans[column]).to_numpy() for column in KEYS])
        lacking = answered & (named & (again < 0)).any(axis=0)
        columns = (self.spans[name].combine_chunks().dictionary_encode() for name in ("prompt", "item"))
        prompt, item = (column.indices.to_numpy().astype(np.int64) for column in columns)
        number = prompt * len(self.spans) + item
        return np.asarray(answered & ~np.isin(number, number[lacking]), dtype=np.bool_)

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
        rows = self._own_answers
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
        return np.asarray(nan[self._own_answers].any(axis=0), dtype=np.bool_)

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

    @cached_property
    def _own_answers(self) -> Integers:
        return self._find("")

    @cached_property
    def _float32_answers(self) -> Integers:
        again = pc.any(pc.ends_with(self.observations["key"], FLOAT32)).as_py()
        return self._find(FLOAT32) if again else np.full((len(KEYS), len(self.spans)), -1, dtype=np.int64)

    def _find(self, suffix: str) -> Integers:
        known, columns = self.observations["key"], [self.spans[name] for name in KEYS]
        keys = [pc.binary_join_element_wise(column, suffix, "") for column in columns] if suffix else columns
        lost = pc.is_valid(self.observations["missing"]).to_numpy()
        order = np.append(np.argsort(lost, kind="stable"), -1)  # of a question that was asked again the answer counts
        known = known.take(pa.array(order[:-1])) if lost.any() else known
        rows = np.stack([pc.fill_null(pc.index_in(key, known), -1).to_numpy() for key in keys]).astype(np.int64)
        return order[rows] if lost.any() else rows


def read_run_tables(folder: Path, manifest: Manifest) -> RunTables:
    """The tables of the run folder that ``manifest`` describes.  Raises StoreError when one is missing or damaged."""
    requests, spans, observations = (
        read_blocks(folder, manifest.blocks, table) for table in ("requests", "spans", "observations")
    )
    return RunTables(read_items(folder, manifest), requests, spans, observations.combine_chunks())


def read_portion_tables(folder: Path, portion: Portion, items: pa.Table, elsewhere: pa.Table, texts: bool) -> RunTables:
    """The tables of a ``portion`` of the run whose ``items`` (:mod:`choicewise.results.item_table`) are given.

    ``elsewhere``: observations that lie in other portions.  ``texts``: whether contexts are read, too, which are longer
    than everything else together.  The files were checked before.
    """
    own = items.take(pa.array(portion.items))
    left_out = () if texts else ("context",)
    requests, spans = (_rows(folder, portion, name, "item", own["item"], left_out) for name in ("requests", "spans"))
    keys = named(spans)
    keys = pa.concat_arrays([keys, pc.binary_join_element_wise(keys, FLOAT32, "")])
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
