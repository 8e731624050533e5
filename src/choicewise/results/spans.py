"""Spans of one prompt in rows."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from choicewise.records import GENERATED
from choicewise.results.tables import KEYS, PLACEHOLDER, RunTables, certain_twice, offsets_of, row_bytes
from choicewise.scoring import scores
from choicewise.scoring.decide import OUTSIDE, gold_rows, option_mass
from choicewise.scoring.observed import Continuations, Floats, Integers, Mask, Range, reduce_rows, row_of
from choicewise.scoring.scores import SCORES, lacking, score_range, sensitivity
from choicewise.scoring.significance import HALF


class ObservedPortion:
    """The observations under one prompt (``Protocol.prompt_digest``) of every item in ``tables`` that was asked under
    it, in the order of the item table.

    Every item has one row per choice, whether or not it could be scored; a row without an observation is missing.
    ``items``: rows of the item table.
    """

    def __init__(self, tables: RunTables, prompt: str) -> None:
        requests = tables.requests.filter(pc.equal(tables.requests["prompt"], prompt))
        items = requests["item"].combine_chunks()
        self._tables, self._prompt = tables, prompt
        self.about = tables.items.filter(pc.is_in(tables.items["item"], items))
        self.requests = requests.take(pc.index_in(self.about["item"], items))
        self.items: Integers = self.about["position"].to_numpy().astype(np.int64)
        self.gold: list[list[int]] = self.about["gold"].to_pylist()
        self.item_offsets: Integers = offsets_of(self.about["choices"])
        self._spans = PromptSpans(tables, prompt, self.about["item"], self.item_offsets)
        self._scores: dict[tuple[str, str | None, str], Floats] = {}

    def continuations(self, null: str | None = None) -> Continuations:
        """The scored continuations after the request's own context, or after the ``null`` context."""
        return self._continuations(null, 0)

    def parts(self) -> list[Continuations]:
        """What was observed of each thing that the reading asks about a choice; each has the same rows."""
        return [self._continuations(None, part) for part in range(self._spans.parts)]

    @cached_property
    def part_sums(self) -> list[Floats]:
        """The log-likelihoods of the parts in nats, float64 [rows] each."""
        return [part.sums for part in self.parts()]

    @property
    def part_lows(self) -> list[Floats]:
        """The lowest that the log-likelihoods of the parts may be in nats, float64 [rows] each."""
        return [part.lowest().sums for part in self.parts()] if self.bounded else self.part_sums

    @property
    def bounded(self) -> bool:
        """Whether of any answer no more than an upper bound is known."""
        return self._spans.bounded

    def unlisted(self, null: str | None) -> npt.NDArray[np.int8]:
        """1 for items of which an answer is known as an upper bound alone, 2 where all are, 0 for others, [items]."""
        return self._spans.unlisted(null)

    def impossible(self, null: str | None) -> npt.NDArray[np.int8]:
        """Which numbers of each item no model says (:mod:`choicewise.results.tables`), int8 [items]."""
        return self._spans.impossible(null)

    def values(self) -> Floats:
        """What was observed of every choice that is no log-probability, float64 [rows]; NaN where there is nothing."""
        return self._spans.values()

    def scores(self, name: str, null: str | None = None, outside: str = "keep") -> Floats:
        """One number per row, float64: greater is better, NaN is missing.  Not to be written to."""
        key = (name, null, outside)
        if key not in self._scores:
            observed = OUTSIDE[outside](self.continuations())
            self._scores[key] = SCORES[name](observed, None if null is None else self.continuations(null))
        return self._scores[key]

    def score_range(self, name: str, null: str | None = None, outside: str = "keep") -> Range:
        """The lowest and the highest that the score of that name may be, float64 [rows] each."""
        after_null = None if null is None else self.continuations(null)
        return score_range(SCORES[name], OUTSIDE[outside](self.continuations()), after_null)

    def sensitivity(self, name: str, null: str | None = None, outside: str = "keep") -> Floats:
        """Units of the score per nat of numeric noise in a likelihood, float64 [rows]; NaN where not known."""
        after_null = None if null is None else self.continuations(null)
        return sensitivity(name, SCORES[name], OUTSIDE[outside](self.continuations()), after_null)

    def generated(self) -> list[str | None]:
        """The generated text of every item; None where there is none."""
        rows = self._spans.generations
        return list(self._tables.observations["text"].take(pa.array(rows, mask=rows < 0)).to_pylist())

    def generation(self) -> Continuations:
        """The generated tokens, one row per item."""
        texts = [text or "" for text in self.generated()]
        return self._tables.continuations(self._spans.generations, texts, np.arange(len(self.items) + 1))

    def expected(self) -> list[list[str]]:
        """The continuations of every item as the request has them; empty where it could not be asked."""
        return [texts or [] for texts in self.requests["continuations"].to_pylist()]

    def options(self) -> list[list[str]]:
        """The choices of every item as they were shown; empty where the item could not be asked."""
        return [options or [] for options in self.requests["options"].to_pylist()]

    def lacks(self, name: str, null: str | None) -> npt.NDArray[np.int8]:
        """What each item lacks for the score of that name, where its log has no more: places in ``LACKS``, [items]."""
        rows = lacking(SCORES[name], self.continuations(), None if null is None else self.continuations(null))
        return np.nan_to_num(reduce_rows(np.maximum, rows, self.item_offsets)).astype(np.int8)

    @cached_property
    def right(self) -> Mask:
        """Which rows are right choices, bool [rows]."""
        return gold_rows(self.gold, self.item_offsets)

    @property
    def lengths(self) -> Floats:
        """Characters of every continuation, float64 [rows]; NaN where its text is not known."""
        return scores.chars(self.continuations())

    @property
    def mass(self) -> Floats:
        """The probability of an item's continuations together, float64 [items].

        Where no more than bounds of it are known, the one that says on which side of a half it lies, or NaN.
        """
        if not self.bounded:
            return option_mass(self.scores("sum"), self.item_offsets)
        least, most = (option_mass(sums, self.item_offsets) for sums in self.score_range("sum"))
        return np.where(least >= HALF, least, np.where(most < HALF, most, np.nan))

    @property
    def doubts(self) -> dict[str, Mask]:
        """Items that were not asked or scored in full, bool [items] by kind (:class:`choicewise.results.rows.Row`)."""
        cut = {"shots_dropped": "shots_dropped", "truncated": "tokens_dropped"}
        requests = {name: pc.greater(pc.fill_null(self.requests[column], 0), 0) for name, column in cut.items()}
        flags = {name: self._spans.flagged(name) for name in ("merged", "noncanonical", "lossy", "unknown")}
        return {name: np.asarray(items.to_numpy(), dtype=np.bool_) for name, items in requests.items()} | flags

    @property
    def merged_rows(self) -> Mask:
        """Rows with a token that straddles the end of the context, bool [rows]."""
        return np.asarray(self._spans.column("merged"), dtype=np.bool_)

    @property
    def context_tokens(self) -> Integers:
        """Tokens that each row is scored after, int64 [rows]; those of its item where it was generated."""
        return self._spans.column("context_tokens")

    @property
    def own_contexts(self) -> list[str | None]:
        """The context of each row where it is not its item's, [rows]; None elsewhere.  Texts must have been read."""
        return self._spans.own_contexts

    def questions(self, null: str | None = None) -> Iterator[bytes]:
        """By item, every question after its own context, or the ``null`` context: choice, part and keys."""
        return self._spans.questions(null)

    @property
    def no_number(self) -> Mask:
        """Items about which the model answered with NaN somewhere, bool [items]."""
        return self._spans.no_number

    def reasons(self, null: str | None) -> Iterator[tuple[int, str]]:
        """(place of an item, why a choice of it has no log-likelihood), after its context or the ``null`` context."""
        missing = self.requests["missing"]
        refused = np.flatnonzero(pc.is_valid(missing).to_numpy())
        yield from zip(refused.tolist(), missing.take(pa.array(refused)).to_pylist(), strict=True)
        yield from self._spans.reasons(null)

    def _continuations(self, null: str | None, part: int) -> Continuations:
        kept, key = self._tables.latest, (self._prompt, null, part)
        if key not in kept:
            if any(prompt != self._prompt for prompt, _, _ in kept):
                kept.clear()
            kept[key] = self._spans.continuations(null, part)
        return kept[key]


LOST = "its observation lay in a block that is damaged; repeat the same run to ask it again"
NO_NUMBER = "the model answers with NaN"
"""Why a choice that was asked has no log-likelihood."""


class PromptSpans:
    """The spans that ``tables`` has under ``prompt``.

    ``items``: the ids of the items in order; item i has the rows ``item_offsets[i]:item_offsets[i + 1]``.
    """

    def __init__(self, tables: RunTables, prompt: str, items: pa.ChunkedArray, item_offsets: Integers) -> None:
        under = pc.equal(tables.spans["prompt"], prompt)
        chosen = under.to_numpy()
        self._tables, self._item_offsets = tables, item_offsets
        self._spans = tables.spans.filter(under)
        self._item = np.asarray(pc.index_in(self._spans["item"], items).to_numpy(), dtype=np.int64)
        self._choice = self._spans["choice"].to_numpy()
        self._answers = tables.answers[0][chosen]
        self._no_number = tables.no_number[chosen]
        self._unlisted = tables.unlisted[chosen]
        self._impossible, self._certain = tables.impossible[chosen], tables.certain[chosen]
        place = np.cumsum(chosen) - 1
        self._unanswered = [(int(place[span]), reason) for span, reason in tables.unanswered if chosen[span]]
        self._corrections = [nats[chosen] for nats in tables.corrections]
        self._items, self._rows = len(item_offsets) - 1, int(item_offsets[-1])

    @property
    def parts(self) -> int:
        """How many things the reading asks about a choice."""
        return 1 + int(pc.max(self._spans["part"]).as_py() or 0)

    def continuations(self, null: str | None, part: int) -> Continuations:
        """The scored tokens of one ``part`` after the request's own context, or after the ``null`` context."""
        spans, row = self._scored(null, part)
        text: npt.NDArray[Any] = np.full(self._rows, "", dtype=object)
        text[row] = self._spans["continuation"].filter(pa.array(spans)).to_numpy()
        observations = _filled(self._rows, -1, row, self._answers[spans])
        uncorrected = self._tables.continuations(observations, text.tolist(), self._item_offsets)
        return uncorrected.corrected(*(_filled(self._rows, 0.0, row, nats[spans]) for nats in self._corrections))

    def values(self) -> Floats:
        """What was observed of each choice that is no log-probability, float64 [rows]; NaN where there is nothing."""
        spans, row = self._scored(None, 0)
        known = np.asarray(self._tables.observations["value"].to_numpy(), dtype=np.float64)
        return np.append(known, np.nan)[_filled(self._rows, -1, row, self._answers[spans])]

    @property
    def generations(self) -> Integers:
        """Each item's generation among the observations, int64 [items]; -1 where there is none."""
        spans = self._choice == GENERATED
        return _filled(self._items, -1, self._item[spans], self._answers[spans])

    def flagged(self, column: str) -> Mask:
        """Items with a choice whose ``column`` is true or above zero, bool [items]."""
        raised = pc.greater(pc.fill_null(pc.cast(self._spans[column], pa.int64()), 0), 0).to_numpy()
        return _filled(self._items, False, self._item[raised], True)

    def column(self, name: str) -> Integers:
        """A number or flag of the requests' own spans by row, int64 [rows]; 0 where there is none.

        The rows of a generated item have that of its generation.
        """
        own = pc.and_(pc.is_null(self._spans["null"]), pc.equal(self._spans["part"], 0)).to_numpy()
        value = np.asarray(pc.cast(self._spans[name], pa.int64()).to_numpy(), dtype=np.int64)
        rows = np.zeros(self._rows, dtype=np.int64)
        generated = own & (self._choice == GENERATED)
        rows += _filled(self._items, 0, self._item[generated], value[generated])[row_of(self._item_offsets)]
        scored = own & (self._choice >= 0)
        rows[self._row(scored)] = value[scored]
        return rows

    @property
    def own_contexts(self) -> list[str | None]:
        """The context of each row where it is not its item's, [rows]; None elsewhere."""
        spans, row = self._scored(None, 0)
        texts: npt.NDArray[Any] = np.full(self._rows, None, dtype=object)
        texts[row] = self._spans["context"].filter(pa.array(spans)).to_numpy()
        return list(texts.tolist())

    def questions(self, null: str | None) -> Iterator[bytes]:
        """By item, every question after its own context, or the ``null`` context: choice, part and keys in order."""
        asked = self._after(null)
        spans, item = self._spans.filter(asked), self._item[asked.to_numpy()]
        place = np.stack([spans["part"].to_numpy(), spans["choice"].to_numpy(), item]).astype(np.int64)
        order = np.lexsort(place)
        order = order[np.append(True, (np.diff(place[:, order]) != 0).any(axis=0))[: len(order)]]
        columns = (pc.cast(spans[name].take(pa.array(order)), pa.string()) for name in ("choice", "part", *KEYS))
        lines = pc.binary_join_element_wise(*columns, " ", null_handling="replace", null_replacement="-")
        ends = np.searchsorted(item[order], np.arange(self._items + 1))
        by_item = pa.ListArray.from_arrays(pa.array(ends, pa.int32()), lines.combine_chunks())
        return row_bytes(pa.chunked_array([by_item]))

    @property
    def bounded(self) -> bool:
        """Whether of anything no more than an upper bound is known."""
        return bool(self._unlisted.any())

    def unlisted(self, null: str | None) -> npt.NDArray[np.int8]:
        """1 for the items of which an answer is known as an upper bound alone, 2 where all are, int8 [items].

        ``null``: as in :meth:`reasons`.
        """
        scored = self._read(null).to_numpy() & (self._choice >= 0)
        asked, bounds = (
            np.bincount(self._item[spans], minlength=self._items) for spans in (scored, scored & self._unlisted)
        )
        return ((bounds > 0).astype(np.int8) + ((bounds > 0) & (bounds == asked))).astype(np.int8)

    def impossible(self, null: str | None) -> npt.NDArray[np.int8]:
        """What no model says among the observations of each item, after these two contexts; int8 [items]."""
        read = self._read(null).to_numpy()
        impossible = np.zeros(self._items, dtype=np.int8)
        np.bitwise_or.at(impossible, self._item[read], self._impossible[read])
        certain = read & self._certain & (self._choice >= 0)
        if certain.any():
            codes = np.asarray(pc.fill_null(self._spans["null"].combine_chunks().dictionary_encode().indices, -1))
            asked = np.stack([self._item, self._spans["part"].to_numpy(), codes]).astype(np.int64)
            impossible[certain_twice(asked, self._answers, certain)] |= PLACEHOLDER
        return impossible

    @property
    def no_number(self) -> Mask:
        """Items about which the model answered with NaN somewhere, bool [items]."""
        return _filled(self._items, False, self._item[self._no_number], True)

    def reasons(self, null: str | None) -> Iterator[tuple[int, str]]:
        """(place of an item, why something that is asked about it has no number), after these two contexts."""
        read = self._read(null)
        lost = pc.and_(pc.is_valid(self._spans["key"]), pa.array(self._answers < 0))
        causes = {LOST: lost, NO_NUMBER: pa.array(self._no_number)}
        missing = self._spans["missing"]
        told = np.flatnonzero(pc.and_(read, pc.is_valid(missing)).to_numpy())
        yield from zip(self._item[told].tolist(), missing.take(pa.array(told)).to_pylist(), strict=True)
        wanted = read.to_numpy()
        yield from ((int(self._item[span]), reason) for span, reason in self._unanswered if wanted[span])
        for cause, spans in causes.items():
            yield from ((item, cause) for item in self._item[pc.and_(read, spans).to_numpy()].tolist())

    def _read(self, null: str | None) -> pa.ChunkedArray:
        """Which spans come after the request's own context or after the ``null`` context."""
        own = pc.is_null(self._spans["null"])
        return own if null is None else pc.or_(own, pc.fill_null(pc.equal(self._spans["null"], null), False))

    def _scored(self, null: str | None, part: int) -> tuple[Mask, Integers]:
        """Which spans score a choice after this context, bool [spans], and the row of each."""
        spans = pc.fill_null(pc.and_(self._after(null), pc.equal(self._spans["part"], part)), False).to_numpy()
        chosen = np.asarray(spans & (self._choice >= 0), dtype=np.bool_)
        return chosen, self._row(chosen)

    def _after(self, null: str | None) -> pa.ChunkedArray:
        """Which spans come after the request's own context, or the ``null`` context."""
        column = self._spans["null"]
        return pc.is_null(column) if null is None else pc.fill_null(pc.equal(column, null), False)

    def _row(self, spans: Mask) -> Integers:
        return np.asarray(self._item_offsets[:-1][self._item[spans]] + self._choice[spans], dtype=np.int64)


def _filled(size: int, fill: float, places: Integers, values: npt.ArrayLike) -> npt.NDArray[Any]:
    """An array of ``fill`` with ``values`` at the ``places``."""
    array = np.full(size, fill)
    array[places] = values
    return array
