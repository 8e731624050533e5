"""The tables of a run folder, with the arrays that all protocols read laid out once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from choicewise.results.span_answers import CORRECTIONS, SpanAnswers, find_answers, find_rescored
from choicewise.scoring.continuations import Continuations
from choicewise.scoring.ragged import Floats, Integers, Mask, reduce_rows
from choicewise.store.blocks import read_blocks
from choicewise.store.items import read_items
from choicewise.store.manifest import Manifest


@dataclass(frozen=True)
class RunTables:
    """The four tables of a run folder (:mod:`choicewise.records.tables`)."""

    items: pa.Table
    requests: pa.Table
    spans: pa.Table
    observations: pa.Table

    @cached_property
    def answers(self) -> SpanAnswers:
        """The observations that count for each span: those of a float32 copy where the item was rescored."""
        return self._first.replaced(self.rescored, self._again)

    @property
    def rescored(self) -> Mask:
        """The spans whose float32 answers count, bool [spans]."""
        return self._rescored[0]

    @cached_property
    def corrections(self) -> tuple[Floats, Floats]:
        """What each span adds at its first and at its last token, in nats, float64 [spans]."""
        return 0.0 - self._sums("before", self.answers.before), self._sums("after", self.answers.after)  # no -0.0

    @cached_property
    def unanswered(self) -> list[str]:
        """The items about which the model answered with NaN, corrections included."""
        counts = np.diff(self.offsets)
        summed = (counts > 0) | pc.is_valid(self.observations["total"]).to_numpy()
        no_value = pc.fill_null(pc.is_nan(self.observations["value"]), False).to_numpy()
        nan = np.append((summed & np.isnan(self._totals)) | no_value, False)  # -1 is none of them
        rows = (self._first.scored, self._first.before, self._first.after)
        spans = np.logical_or.reduce([nan[observation] for observation in rows])
        items: list[str] = pc.unique(self.spans["item"].filter(pa.array(spans))).to_pylist()
        return items

    @cached_property
    def latest(self) -> dict[tuple[str, str | None, int], Continuations]:
        """The continuations of the prompt that was read last, by prompt, null context and part.

        Only those, since the tokens of every prompt laid out at once would need several times the memory of the run.
        """
        return {}

    @cached_property
    def offsets(self) -> Integers:
        """Where each observation's tokens start in the flat arrays, and where the last ones end."""
        return offsets_of(self.observations["tokens"])

    def continuations(self, rows: Integers, text: Sequence[str], item_offsets: Integers) -> Continuations:
        """The tokens of these ``rows`` of the observations; none where the row is -1."""
        starts = self.offsets[rows]
        counts = np.where(rows < 0, 0, self.offsets[rows + 1] - starts)
        offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        flat = np.repeat(starts - offsets[:-1], counts) + np.arange(offsets[-1])
        return Continuations(
            tokens=self._flat["tokens"][flat],
            logprobs=self._flat["logprobs"][flat],
            sizes=self._flat["sizes"][flat],
            ranks=self._flat["ranks"][flat],
            offsets=offsets,
            text=text,
            item_offsets=item_offsets,
            totals=None if self._given is None else np.append(self._given, np.nan)[rows],
        )

    @cached_property
    def _flat(self) -> dict[str, npt.NDArray[Any]]:
        """The columns of the observations that have one entry per token, token after token."""
        columns = ("tokens", "logprobs", "sizes", "ranks")
        return {name: pc.list_flatten(self.observations[name]).to_numpy() for name in columns}

    @cached_property
    def _given(self) -> Floats | None:
        """The log-likelihoods of observations without tokens in nats, NaN for the others; None where there are none."""
        column = self.observations["total"]
        return None if column.null_count == len(column) else np.asarray(column.to_numpy(), dtype=np.float64)

    @cached_property
    def _totals(self) -> Floats:
        """The log-likelihood of every observation in nats; NaN where it has none."""
        sums = reduce_rows(np.add, self._flat["logprobs"], self.offsets)
        return sums if self._given is None else np.where(np.diff(self.offsets) > 0, sums, self._given)

    def _sums(self, column: str, rows: Integers) -> Floats:
        """Log-likelihood of the observation that a ``column`` of each span names; 0 where it names none."""
        return np.where(pc.is_null(self.spans[column]).to_numpy(), 0.0, np.append(self._totals, np.nan)[rows])

    @property
    def _keys(self) -> pa.ChunkedArray:
        return self.observations["key"]

    @cached_property
    def _first(self) -> SpanAnswers:
        """The answers of the model itself."""
        return find_answers(self.spans, self._keys)

    @cached_property
    def _rescored(self) -> tuple[Mask, SpanAnswers]:
        return find_rescored(self.spans, self._keys, self._first)

    @property
    def _again(self) -> SpanAnswers:
        return self._rescored[1]

    def with_answers(self) -> pa.Table:
        """The spans with the columns of the observations that count for them, under the keys of those, and the nats
        that a boundary policy adds at the first and the last token (``correction_first``, ``correction_last``)."""
        table, keys = self.spans, self._keys
        rows = (self.answers.scored, self.answers.before, self.answers.after)
        for name, observation in zip(("key", *CORRECTIONS), rows, strict=True):
            answer = keys.take(pa.array(observation, mask=observation < 0))
            answered = pc.coalesce(answer, table[name])
            table = table.set_column(table.schema.get_field_index(name), table.schema.field(name), answered)
        answers = self.observations.take(pa.array(rows[0], mask=rows[0] < 0))
        for field in answers.schema:
            if field.name != "key":
                table = table.append_column(field, answers[field.name])
        for name, nats in zip(("correction_first", "correction_last"), self.corrections, strict=True):
            table = table.append_column(name, pa.array(nats))
        return table


def read_run_tables(folder: Path, manifest: Manifest) -> RunTables:
    """The tables of the run folder that ``manifest`` describes.  Raises StoreError when one is missing or damaged."""
    requests, spans, observations = (
        read_blocks(folder, manifest.blocks, table) for table in ("requests", "spans", "observations")
    )
    return RunTables(read_items(folder, manifest), requests, spans, observations.combine_chunks())


def offsets_of(lists: pa.ChunkedArray) -> Integers:
    """Where each list starts when they are laid end to end, and where the last one ends; int64 [lists + 1]."""
    return np.concatenate([[0], np.cumsum(pc.list_value_length(lists).to_numpy())]).astype(np.int64)
