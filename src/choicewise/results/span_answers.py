"""Which observations answer the spans of a run: the model's own, or those of a float32 copy that asked again."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from choicewise.records.tables import FLOAT32
from choicewise.scoring.ragged import Integers, Mask

CORRECTIONS = ("before", "after")
"""The columns of the spans with the keys of what is subtracted at the first token and added at the last."""


@dataclass(frozen=True, slots=True)
class SpanAnswers:
    """Rows of the table of observations, int64 [spans], -1 where there is none.

    ``scored``: of the observation of the span itself; ``before`` and ``after``: of those that correct it.
    """

    scored: Integers
    before: Integers
    after: Integers

    def replaced(self, where: Mask, by: SpanAnswers) -> SpanAnswers:
        """These answers, but those of ``by`` for the spans in ``where``, bool [spans]."""
        return SpanAnswers(
            np.where(where, by.scored, self.scored),
            np.where(where, by.before, self.before),
            np.where(where, by.after, self.after),
        )


def find_answers(spans: pa.Table, keys: pa.ChunkedArray, suffix: str = "") -> SpanAnswers:
    """The observations, by their ``keys``, that have the spans' keys with ``suffix`` added."""
    return SpanAnswers(*(_find(spans[column], keys, suffix) for column in ("key", *CORRECTIONS)))


def find_rescored(spans: pa.Table, keys: pa.ChunkedArray, first: SpanAnswers) -> tuple[Mask, SpanAnswers]:
    """The spans whose float32 answers count, bool [spans], and all float32 answers.

    They count for items that have all of them under a prompt, those of the corrections included: answers of two
    computations within one item would shift its choices against each other.  ``first``: the model's own answers.
    """
    if not pc.any(pc.ends_with(keys, FLOAT32)).as_py():  # the usual case, and quick
        return np.zeros(len(spans), dtype=np.bool_), first
    again = find_answers(spans, keys, FLOAT32)
    complete = again.scored >= 0
    for column, rows in zip(CORRECTIONS, (again.before, again.after), strict=True):
        complete &= pc.is_null(spans[column]).to_numpy() | (rows >= 0)
    prompt, item = (
        spans[column].combine_chunks().dictionary_encode().indices.to_numpy().astype(np.int64)
        for column in ("prompt", "item")
    )
    number, answered = prompt * len(spans) + item, first.scored >= 0
    return answered & complete & ~np.isin(number, number[answered & ~complete]), again


def _find(column: pa.ChunkedArray, keys: pa.ChunkedArray, suffix: str) -> Integers:
    wanted = pc.binary_join_element_wise(column, suffix, "") if suffix else column
    return np.asarray(pc.fill_null(pc.index_in(wanted, keys), -1).to_numpy(), dtype=np.int64)
