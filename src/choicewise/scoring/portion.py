"""Hold the tables of a run or a portion of it, and its observations under one prompt as arrays."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from choicewise.protocols.readings import ALONG
from choicewise.questions import EOS, FILTERED
from choicewise.records import GENERATED, KEYS, OBSERVATIONS, REQUESTS, SPANS
from choicewise.scoring import scores
from choicewise.scoring.answers import Written
from choicewise.scoring.decide import OUTSIDE, gold_rows, option_mass
from choicewise.scoring.observed import (
    Continuations,
    Floats,
    Integers,
    Mask,
    Range,
    item_max,
    offsets_from,
    reduce_rows,
    row_of,
)
from choicewise.scoring.scores import SCORES, lacking, score_range, sensitivity
from choicewise.scoring.significance import HALF


class ObservedPortion:
    """Hold the observations of every item in ``tables`` with a request under one prompt.

    ``prompt``: ``Protocol.prompt_digest``.  The items have the order of the item table, of which
    ``items`` are the rows; item i has the rows ``item_offsets[i]:item_offsets[i + 1]`` here.  Every
    item has one row per choice, even if it could not be scored; a row without an observation is
    missing.  An option that the prompt adds
    (:func:`choicewise.protocols.preparations.more_options`) has a row after the others.
    """

    def __init__(self, tables: RunTables, prompt: str) -> None:
        self._tables = tables
        self._prompt = prompt
        requests = _taken(tables.requests, tables.request_rows.get(prompt, _NO_ROWS))
        ids = requests["item"].combine_chunks()
        self.item_table = tables.items.filter(pc.is_in(tables.items["item"], ids))
        self.requests = _taken(requests, pc.index_in(self.item_table["item"], ids).to_numpy())
        self.items: Integers = self.item_table["position"].to_numpy().astype(np.int64)
        extra = tables.extra_options.get(prompt, 0)
        self.item_offsets: Integers = offsets_of(self.item_table["choices"], extra)
        self._row_count = int(self.item_offsets[-1])

        span_rows = tables.span_rows.get(prompt, _NO_ROWS)
        self._spans = _taken(tables.spans, span_rows)
        item = pc.index_in(self._spans["item"], self.item_table["item"]).to_numpy()
        self._item = np.asarray(item, dtype=np.int64)
        self._choice = self._spans["choice"].to_numpy()
        self._answers_of_keys = tables.answers[:, span_rows]
        self._answers = self._answers_of_keys[0]
        self._scores: dict[tuple[str, str | None, str], Floats] = {}

    def continuations(self, null: str | None = None, part: int = 0) -> Continuations:
        """Return one ``part`` of the continuations after the prompt's or the ``null`` context."""
        latest = self._tables.latest
        key = (self._prompt, null, part)
        if key in latest:
            return latest[key]
        if any(prompt != self._prompt for prompt, _, _ in latest):
            latest.clear()
        spans, row = self._scored(null, part)
        text: npt.NDArray[Any] = np.full(self._row_count, "", dtype=object)
        text[row] = self._spans["continuation"].filter(pa.array(spans)).to_numpy()
        observations = _filled(self._row_count, -1, row, self._answers[spans])
        uncorrected = self._tables.continuations(observations, text.tolist(), self.item_offsets)
        first, last = self._corrections
        first = _filled(self._row_count, 0.0, row, first[spans])
        last = _filled(self._row_count, 0.0, row, last[spans])
        latest[key] = uncorrected.corrected(first, last)
        return latest[key]

    def parts(self) -> list[Continuations]:
        """Return what was observed of each part of a choice, all with the same rows."""
        last = int(pc.max(self._spans["part"]).as_py() or 0)
        return [self.continuations(part=part) for part in range(last + 1)]

    @cached_property
    def part_sums(self) -> list[Floats]:
        """Return the log-likelihoods of the parts in nats, float64 [rows] each."""
        return [part.sums for part in self.parts()]

    @property
    def part_lows(self) -> list[Floats]:
        """Return the lowest that the log-likelihoods of the parts may be, float64 [rows] each."""
        if not self.bounded:
            return self.part_sums
        return [part.lowest().sums for part in self.parts()]

    @property
    def bounded(self) -> bool:
        """Check if no more than an upper bound of any answer is known."""
        return bool(self._unlisted.any())

    def unlisted(self, null: str | None) -> npt.NDArray[np.int8]:
        """Return 1 for items with an answer that is only an upper bound, 2 if all are, else 0.

        ``null``: answers after this context count, too.  Int8 [items].
        """
        scored = self._read(null) & (self._choice >= 0)
        item_count = len(self.items)
        answers = np.bincount(self._item[scored], minlength=item_count)
        bounds = np.bincount(self._item[scored & self._unlisted], minlength=item_count)
        has_bound = bounds > 0
        codes = has_bound.astype(np.int8)
        codes[has_bound & (bounds == answers)] = 2
        return codes

    def impossible(self, null: str | None) -> npt.NDArray[np.int8]:
        """Return which impossible numbers were observed of each item, bits as int8 [items].

        ``null``: answers after this context count, too.
        """
        read = self._read(null)
        impossible = np.zeros(len(self.items), dtype=np.int8)
        bits = np.bitwise_or.reduce(self._of_answers(self._tables.impossible, 0), axis=0)
        marked = read & (bits > 0)
        np.bitwise_or.at(impossible, self._item[marked], bits[marked])
        is_zero = np.append(self._tables.totals == 0, False)[self._answers]
        certain = read & is_zero & (self._choice >= 0)
        if certain.any():
            contexts = self._spans["null"].combine_chunks().dictionary_encode().indices
            context_codes = np.asarray(pc.fill_null(contexts, -1))
            target = np.stack([self._item, self._spans["part"].to_numpy(), context_codes])
            items = _certain_twice(target.astype(np.int64), self._answers, certain)
            impossible[items] |= PLACEHOLDER
        return impossible

    def values(self) -> Floats:
        """Return the observed value of every choice, float64 [rows]; NaN if there is none.

        It is a loss or a cosine, no log-probability.
        """
        spans, row = self._scored(None, 0)
        column = self._tables.observations["value"].to_numpy()
        values = np.append(np.asarray(column, dtype=np.float64), np.nan)
        return values[_filled(self._row_count, -1, row, self._answers[spans])]

    def scores(self, name: str, null: str | None = None, outside: str = "keep") -> Floats:
        """Return the scores, float64 [rows]; greater is better, NaN is missing.

        The array is cached and must not be written to.
        """
        key = (name, null, outside)
        if key not in self._scores:
            observed = OUTSIDE[outside](self.continuations())
            self._scores[key] = SCORES[name](observed, self._after_null(null))
        return self._scores[key]

    def score_range(self, name: str, null: str | None = None, outside: str = "keep") -> Range:
        """Return the lowest and the highest that the scores may be, float64 [rows] each."""
        observed = OUTSIDE[outside](self.continuations())
        return score_range(SCORES[name], observed, self._after_null(null))

    def sensitivity(self, name: str, null: str | None = None, outside: str = "keep") -> Floats:
        """Return units of the score per nat of noise in a likelihood, float64 [rows].

        NaN if unknown.
        """
        observed = OUTSIDE[outside](self.continuations())
        return sensitivity(name, SCORES[name], observed, self._after_null(null))

    def generated(self) -> list[str | None]:
        """Return the generated text of every item; None if there is none."""
        rows = self._generations
        texts = self._tables.observations["text"].take(pa.array(rows, mask=rows < 0))
        return list(texts.to_pylist())

    def written(self, limit: int = 0) -> list[Written | str | None]:
        """Return the generated text of every item with its end.

        It is ``FILTERED`` if the text was withheld, and None if there is none.  ``limit``: the
        tokens that a text may have.
        """
        rows = self._generations
        counts, last_sizes = self._tables.lengths(rows)
        columns = self._tables.observations.select(_WRITTEN)
        written_rows = columns.take(pa.array(rows, mask=rows < 0)).to_pylist()
        texts = []
        for index, row in enumerate(written_rows):
            # Older runs do not say how a text ended; its tokens can tell.
            is_short = bool(counts[index] < limit or not last_sizes[index])
            texts.append(_written(row, has_tokens=bool(counts[index]), is_short=is_short))
        return texts

    def thoughts(self) -> tuple[Floats, Mask]:
        """Return the tokens of the thought before each part, and mark items whose limit closed it.

        Float64 [parts, items], NaN if nothing was scored along a thought; bool [items].
        """
        spans = self._choice == 0
        parts = self._spans["part"].to_numpy()
        column = pc.cast(self._tables.observations["thought_tokens"], pa.float64())
        tokens = np.append(pc.fill_null(column, np.nan).to_numpy(), np.nan)
        kept = np.full((len(ALONG), len(self.items)), np.nan)
        kept[parts[spans], self._item[spans]] = tokens[self._answers[spans]]
        # The first part is scored before any thought.
        kept[0] = np.where(np.isnan(kept[-1]), np.nan, 0.0)
        forced = _is_true(self._tables.observations["forced"])
        is_forced = np.append(forced, False)[self._generations]
        return kept, np.asarray(is_forced, dtype=np.bool_)

    def generation(self) -> Continuations:
        """Return the generated tokens, one row per item."""
        texts = [text or "" for text in self.generated()]
        return self._tables.continuations(self._generations, texts, np.arange(len(self.items) + 1))

    def expected(self) -> list[list[str]]:
        """Return the continuations in the request of every item; empty if it has no prompt."""
        return [texts or [] for texts in self.requests["continuations"].to_pylist()]

    def options(self) -> list[list[str]]:
        """Return the choices in the prompt of every item; empty if it has no prompt."""
        return [options or [] for options in self.requests["options"].to_pylist()]

    def lacks(self, name: str, null: str | None) -> npt.NDArray[np.int8]:
        """Return what each item lacks for the score of that name, indices of ``LACKS``, [items].

        Items of other tools' logs may lack something that the log does not have.
        """
        rows = lacking(SCORES[name], self.continuations(), self._after_null(null))
        return np.nan_to_num(item_max(rows, self.item_offsets)).astype(np.int8)

    @property
    def gold(self) -> list[list[int]]:
        """Return the right choices of every item, as a new list."""
        return list(self.item_table["gold"].to_pylist())

    @cached_property
    def right(self) -> Mask:
        """Mark the rows of right choices, bool [rows]."""
        return gold_rows(self.gold, self.item_offsets)

    @property
    def lengths(self) -> Floats:
        """Return the characters of every continuation, float64 [rows]; NaN without its text."""
        return scores.chars(self.continuations())

    @property
    def mass(self) -> Floats:
        """Return the probability of an item's continuations together, float64 [items].

        If only bounds of it are known, it is the one that tells on which side of a half it lies, or
        NaN if neither does.
        """
        if not self.bounded:
            return option_mass(self.scores("sum"), self.item_offsets)
        low, high = self.score_range("sum")
        least = option_mass(low, self.item_offsets)
        most = option_mass(high, self.item_offsets)
        below_half = np.where(most < HALF, most, np.nan)
        return np.where(least >= HALF, least, below_half)

    @property
    def defects(self) -> dict[str, Mask]:
        """Mark items with a defect in their prompts or tokens, bool [items] by kind.

        :class:`choicewise.results.number.Counts` describes the kinds.
        """
        defects = {}
        for name, column in _REQUEST_DEFECTS.items():
            defects[name] = _is_true(pc.greater(self.requests[column], 0))
        for name in _SPAN_DEFECTS:
            counts = pc.cast(self._spans[name], pa.int64())
            defects[name] = self._flagged(_is_true(pc.greater(counts, 0)))
        return defects

    @property
    def merged_rows(self) -> Mask:
        """Mark rows with a token that straddles the end of the context, bool [rows]."""
        return np.asarray(self._column("merged"), dtype=np.bool_)

    @property
    def context_tokens(self) -> Integers:
        """Return the tokens before each row or before its item's generation, int64 [rows]."""
        return self._column("context_tokens")

    @property
    def row_contexts(self) -> list[str | None]:
        """Return the context of each row if it is not that of its item, [rows]; else None.

        The tables must have been read with texts.
        """
        spans, row = self._scored(None, 0)
        texts: npt.NDArray[Any] = np.full(self._row_count, None, dtype=object)
        texts[row] = self._spans["context"].filter(pa.array(spans)).to_numpy()
        return list(texts.tolist())

    def questions(self, null: str | None = None) -> list[pa.Array]:
        """Return every question after the prompt's context or the ``null`` context, by item.

        They are choices, parts and keys, in order, as :func:`row_parts` of each item.
        """
        names = ["choice", "part", *KEYS]
        rows = np.flatnonzero(_is_true(self._after(null)))
        spans = _taken(self._spans.select(names), rows)
        item = self._item[rows]
        # Lexsort takes the most important key last.
        keys = np.stack([spans["part"].to_numpy(), spans["choice"].to_numpy(), item])
        keys = keys.astype(np.int64)
        order = np.lexsort(keys)
        # Blocks of a continued run can overlap, and then repeat spans.
        is_repeated = (np.diff(keys[:, order]) == 0).all(axis=0)
        order = order[np.append(True, ~is_repeated)[: len(order)]]
        spans = _taken(spans, order)
        columns = [pc.cast(spans[name], pa.string()) for name in names]
        lines = pc.binary_join_element_wise(
            *columns, " ", null_handling="replace", null_replacement="-"
        )
        ends = np.searchsorted(item[order], np.arange(len(self.items) + 1))
        by_item = pa.ListArray.from_arrays(pa.array(ends, pa.int32()), lines.combine_chunks())
        return row_parts(pa.chunked_array([by_item]))

    @property
    def no_number(self) -> Mask:
        """Mark items about which the model answered with NaN somewhere, bool [items]."""
        return self._flagged(self._are_no_numbers)

    def reasons(self, null: str | None) -> Iterator[tuple[int, str]]:
        """Yield the index of an item and why a number of it is missing, several times for some.

        Numbers after the prompt's context and after the ``null`` context count.
        """
        missing = self.requests["missing"]
        refused = np.flatnonzero(_is_valid(missing))
        reasons = missing.take(pa.array(refused)).to_pylist()
        yield from zip(refused.tolist(), reasons, strict=True)

        read = self._read(null)
        missing = self._spans["missing"]
        unsent = np.flatnonzero(read & _is_valid(missing))
        reasons = missing.take(pa.array(unsent)).to_pylist()
        yield from zip(self._item[unsent].tolist(), reasons, strict=True)

        missing = self._tables.observations["missing"]
        is_missing = self._of_answers(_is_valid(missing), False)
        unanswered = np.flatnonzero(read & is_missing.any(axis=0))
        # The answer itself comes before its corrections.
        first = is_missing[:, unanswered].argmax(axis=0)
        rows = self._answers_of_keys[first, unanswered]
        reasons = missing.take(pa.array(rows)).to_pylist()
        yield from zip(self._item[unanswered].tolist(), reasons, strict=True)

        was_sent = _is_valid(self._spans["key"])
        for item in self._item[read & was_sent & (self._answers < 0)].tolist():
            yield item, LOST
        for item in self._item[read & self._are_no_numbers].tolist():
            yield item, NO_NUMBER

    @cached_property
    def _unlisted(self) -> Mask:
        """Mark spans with an answer or correction that is only an upper bound, bool [spans]."""
        at_most = self._of_answers(self._tables.at_most, False)
        return np.asarray(at_most.any(axis=0), dtype=np.bool_)

    @cached_property
    def _are_no_numbers(self) -> Mask:
        """Mark spans with NaN for an answer or a correction, bool [spans].

        Those without an answer are not marked.
        """
        is_nan = self._of_answers(self._tables.is_nan, False)
        return np.asarray(is_nan.any(axis=0), dtype=np.bool_)

    @cached_property
    def _corrections(self) -> tuple[Floats, Floats]:
        return self._tables.corrections(self._spans, self._answers_of_keys)

    def _of_answers(self, values: npt.NDArray[Any], nothing: Any) -> npt.NDArray[Any]:
        """Return a value of the observations by span, [3, spans]; ``nothing`` without answer."""
        # Most runs have none of the rare values, and this is called for every prompt and context.
        if not (values != nothing).any():
            return np.full(self._answers_of_keys.shape, nothing, dtype=values.dtype)
        # Row -1 is the appended one.
        return np.append(values, nothing)[self._answers_of_keys]

    def _after_null(self, null: str | None) -> Continuations | None:
        if null is None:
            return None
        return self.continuations(null)

    @property
    def _generations(self) -> Integers:
        """Return each item's generation among the observations, int64 [items]; -1 for none."""
        spans = self._choice == GENERATED
        return _filled(len(self.items), -1, self._item[spans], self._answers[spans])

    def _flagged(self, spans: Mask) -> Mask:
        """Mark the items of these spans, bool [items]."""
        return _filled(len(self.items), False, self._item[spans], True)

    def _column(self, name: str) -> Integers:
        """Return a number or flag of the spans after the prompt's context, int64 [rows].

        The rows of a generated item have that of its generation.  It is 0 if there is none.
        """
        is_first_part = pc.equal(self._spans["part"], 0)
        of_prompt = pc.and_(pc.is_null(self._spans["null"]), is_first_part).to_numpy()
        value = np.asarray(pc.cast(self._spans[name], pa.int64()).to_numpy(), dtype=np.int64)
        generated = of_prompt & (self._choice == GENERATED)
        # The one generation of an item is about all of its choices.
        items = _filled(len(self.items), 0, self._item[generated], value[generated])
        rows = items[row_of(self.item_offsets)]
        scored = of_prompt & (self._choice >= 0)
        rows[self._row(scored)] = value[scored]
        return rows.astype(np.int64)

    def _read(self, null: str | None) -> Mask:
        """Mark the spans after the prompt's context or after the ``null`` context, bool [spans]."""
        of_prompt = _is_true(self._after(None))
        if null is None:
            return of_prompt
        return of_prompt | _is_true(self._after(null))

    def _scored(self, null: str | None, part: int) -> tuple[Mask, Integers]:
        """Mark the spans that score a choice after this context, and return the row of each."""
        of_part = pc.and_(self._after(null), pc.equal(self._spans["part"], part))
        chosen = _is_true(of_part) & (self._choice >= 0)
        return chosen, self._row(chosen)

    def _after(self, null: str | None) -> pa.ChunkedArray:
        """Mark the spans after the prompt's context, or after the ``null`` context if given."""
        column = self._spans["null"]
        if null is None:
            return pc.is_null(column)
        return pc.fill_null(pc.equal(column, null), False)

    def _row(self, spans: Mask) -> Integers:
        starts = self.item_offsets[:-1][self._item[spans]]
        return np.asarray(starts + self._choice[spans], dtype=np.int64)


LOST = "its answer was in a damaged block or a missing shard; run or merge again"
NO_NUMBER = "the model returned NaN"
"""Why a choice that was asked has no log-likelihood."""


@dataclass(frozen=True, kw_only=True)
class RunTables:
    """Hold the four tables (:mod:`choicewise.records`) of a run or a portion of it.

    They may lack columns.  ``extra_options``: by prompt, 1 if it shows an option more than the
    items have, and -1 if it shows one less.  ``latest``: the continuations of the prompt that was
    read last, by prompt, null context and part.
    """

    items: pa.Table
    requests: pa.Table = field(default_factory=REQUESTS.empty_table)
    spans: pa.Table = field(default_factory=SPANS.empty_table)
    observations: pa.Table = field(default_factory=OBSERVATIONS.empty_table)
    extra_options: Mapping[str, int] = field(default_factory=dict)
    # The tokens of every prompt laid out at once would need several times the memory of the run.
    latest: dict[tuple[str, str | None, int], Continuations] = field(default_factory=dict)

    @cached_property
    def request_rows(self) -> dict[str, Integers]:
        """Return the rows of the requests by their prompt, int64 [rows] each."""
        return _rows_by_prompt(self.requests)

    @cached_property
    def span_rows(self) -> dict[str, Integers]:
        """Return the rows of the spans by their prompt, int64 [rows] each."""
        return _rows_by_prompt(self.spans)

    @property
    def bytes(self) -> int:
        """Return how many bytes of memory the tables take."""
        return int(self.requests.nbytes + self.spans.nbytes + self.observations.nbytes)

    def of_items(self, ids: pa.Array) -> RunTables:
        """Return what the tables hold about the items with these ``ids``."""
        spans = self.spans.filter(pc.is_in(self.spans["item"], ids))
        keys = pa.concat_arrays([spans[name].combine_chunks() for name in KEYS])
        is_named = pc.is_in(self.observations["key"], keys)
        return replace(
            self,
            items=self.items.filter(pc.is_in(self.items["item"], ids)),
            requests=self.requests.filter(pc.is_in(self.requests["item"], ids)),
            spans=spans,
            observations=self.observations.filter(is_named).combine_chunks(),
            latest={},
        )

    @cached_property
    def answers(self) -> Integers:
        """Return the rows of the observations that the ``KEYS`` of each span name, [3, spans].

        It is -1 if there is none.
        """
        lost = _is_valid(self.observations["missing"])
        keys = self.observations["key"]
        if not lost.any():
            return self._rows_of_keys(keys)
        # If a prompt was sent again, the answer replaces the row that has none: it comes first.
        order = np.argsort(lost, kind="stable")
        rows = self._rows_of_keys(keys.take(pa.array(order)))
        return np.append(order, -1)[rows]

    def _rows_of_keys(self, observed: pa.ChunkedArray) -> Integers:
        """Return the index among the ``observed`` keys of those of each span; -1 for none."""
        rows = []
        for name in KEYS:
            indices = pc.index_in(self.spans[name], observed)
            rows.append(pc.fill_null(indices, -1).to_numpy())
        return np.stack(rows).astype(np.int64)

    def corrections(self, spans: pa.Table, answers: Integers) -> tuple[Floats, Floats]:
        """Return the nats that ``spans`` add at their first and last tokens, float64 [spans] each.

        They are 0 without a correction, and NaN if only an upper bound of it is known.
        ``answers``: of these spans.
        """
        # An upper bound can't be subtracted.
        totals = np.append(np.where(self.at_most, np.nan, self.totals), np.nan)
        _, before_totals, after_totals = totals[answers]
        before = np.where(_is_valid(spans["before"]), before_totals, 0.0)
        after = np.where(_is_valid(spans["after"]), after_totals, 0.0)
        # 0.0 - 0.0 is 0.0, where -0.0 would be printed with its sign.
        return 0.0 - before, after

    @cached_property
    def is_nan(self) -> Mask:
        """Mark the observations with NaN for an answer, bool [observations]."""
        has_tokens = np.diff(self.offsets) > 0
        is_summed = has_tokens | _is_valid(self.observations["total"])
        is_nan = is_summed & np.isnan(self.totals)
        is_nan |= _is_true(pc.is_nan(self.observations["value"]))
        # All numbers of a prompt without an answer are NaN, too.
        return np.asarray(is_nan & ~_is_valid(self.observations["missing"]), dtype=np.bool_)

    @cached_property
    def impossible(self) -> npt.NDArray[np.int8]:
        """Return the bits of impossible numbers in each observation, int8 [observations].

        Log-probabilities count, and the totals of observations without any.
        """
        logprobs = self._flat["logprobs"]
        highest = np.nan_to_num(reduce_rows(np.maximum, logprobs, self.offsets), nan=-1.0)
        highest_total = np.nan_to_num(self.totals, nan=-1.0)
        positive = (highest > _ROUNDING) | (highest_total > _ROUNDING)
        is_sentinel = reduce_rows(np.maximum, logprobs == _SENTINEL, self.offsets)
        placeholder = (np.nan_to_num(is_sentinel) > 0) | (self.totals == _SENTINEL)
        return (POSITIVE * positive + PLACEHOLDER * placeholder).astype(np.int8)

    @cached_property
    def offsets(self) -> Integers:
        """Return where each observation's tokens start in the flat arrays, and the last end."""
        return offsets_of(self.observations["tokens"])

    def lengths(self, rows: Integers) -> tuple[Integers, Integers]:
        """Return the tokens of these ``rows`` of the observations, and the bytes of the last one.

        Both are 0 if there is none.
        """
        counts = np.append(np.diff(self.offsets), 0)[rows]
        ends = np.append(self.offsets[1:], 0)[rows]
        sizes = np.append(self._flat["sizes"], 0)
        return counts, np.where(counts > 0, sizes[ends - 1], 0)

    def continuations(
        self, rows: Integers, text: Sequence[str | None], item_offsets: Integers
    ) -> Continuations:
        """Return the tokens of these ``rows`` of the observations; none for a row of -1."""
        starts = self.offsets[rows]
        counts = np.where(rows < 0, 0, self.offsets[rows + 1] - starts)
        offsets = offsets_from(counts)
        # Token t of a row is found t places after the start of its observation.
        shifts = np.repeat(starts - offsets[:-1], counts)
        flat = shifts + np.arange(offsets[-1])
        given = {name: np.append(values, np.nan)[rows] for name, values in self._given.items()}
        at_most = None
        if self.at_most.any():
            at_most = np.append(self.at_most, False)[rows]
        return Continuations(
            tokens=self._flat["tokens"][flat],
            logprobs=self._flat["logprobs"][flat],
            sizes=self._flat["sizes"][flat],
            ranks=self._flat["ranks"][flat],
            offsets=offsets,
            text=text,
            item_offsets=item_offsets,
            at_most=at_most,
            totals=given.get("total"),
            token_counts=given.get("token_count"),
            all_greedy=given.get("greedy"),
        )

    @cached_property
    def _flat(self) -> dict[str, npt.NDArray[Any]]:
        """Return the columns of the observations with an entry per token, token after token."""
        return {name: pc.list_flatten(self.observations[name]).to_numpy() for name in _FLAT}

    @cached_property
    def _given(self) -> dict[str, Floats]:
        """Return the columns of observations without tokens that any has; NaN for the others."""
        given = {}
        for name in _GIVEN:
            column = self.observations[name]
            if column.null_count < len(column):
                numbers = pc.fill_null(pc.cast(column, pa.float64()), np.nan)
                given[name] = numbers.to_numpy()
        return given

    @cached_property
    def at_most(self) -> Mask:
        """Mark the observations whose log-probabilities are upper bounds, bool [observations]."""
        return _is_true(self.observations["at_most"])

    @cached_property
    def totals(self) -> Floats:
        """Return the log-likelihood of every observation in nats; NaN if it has none."""
        sums = reduce_rows(np.add, self._flat["logprobs"], self.offsets)
        totals = self._given.get("total")
        if totals is None:
            return sums
        return np.where(np.diff(self.offsets) > 0, sums, totals)


def offsets_of(lists: pa.ChunkedArray, extra: int = 0) -> Integers:
    """Return where each list starts if they are laid end to end, and where the last one ends.

    ``extra``: by how much each of them is longer.  Int64 [lists + 1].
    """
    return offsets_from(pc.list_value_length(lists).to_numpy() + extra)


def row_bytes(column: pa.ChunkedArray) -> pa.Array:
    """Return bytes for every row of a column that are equal for equal rows alone, large_binary."""
    return _joined_rows(*row_parts(column))


def row_parts(column: pa.ChunkedArray) -> list[pa.Array]:
    """Return the parts of :func:`row_bytes` one after the other, large_binary [rows] each.

    The column has texts, lists of texts or lists of numbers.  The bytes of a row are how many
    values it has (-1 for null), the sizes of these in bytes, and the values one after the other.
    """
    array = column.combine_chunks()
    if pa.types.is_list(array.type):
        counts = pc.fill_null(pc.list_value_length(array), -1).to_numpy()
        values = pc.list_flatten(array)
    else:
        counts = np.where(pc.is_valid(array).to_numpy(zero_copy_only=False), 1, -1)
        values = pc.drop_null(array)
    sizes, data = _laid_out(values)
    value_starts = offsets_from(sizes)
    starts = offsets_from(np.maximum(counts, 0))
    return [
        _sliced(counts.astype(_INT), _INT.itemsize * np.arange(len(counts) + 1)),
        _sliced(sizes.astype(_INT), _INT.itemsize * starts),
        _sliced(data, value_starts[starts]),
    ]


def row_digests(*rows: pa.Array) -> npt.NDArray[np.void]:
    """Return a digest per item of the bytes that all ``rows`` have of it, [items] of 16 bytes.

    ``rows``: of :func:`row_bytes`, or its parts, which need not be joined before.
    """
    digests = []
    for content in _joined_rows(*rows).to_pylist():
        digests.append(hashlib.blake2b(content, digest_size=_DIGEST.itemsize).digest())
    return np.frombuffer(b"".join(digests), dtype=_DIGEST)


def _sliced(data: Any, offsets: Integers) -> pa.Array:
    """Return the bytes of ``data`` between the ``offsets`` [rows + 1], large_binary [rows]."""
    buffers = [None, pa.py_buffer(offsets.astype(np.int64)), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.large_binary(), len(offsets) - 1, buffers)


def _joined_rows(*rows: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise(*rows, pa.scalar(b"", pa.large_binary()))


POSITIVE = 1
PLACEHOLDER = 2
"""Bits: a log-probability above 0; a number that stands for none."""

_DIGEST = np.dtype((np.void, 16))

_REQUEST_DEFECTS = {"shots_dropped": "shots_dropped", "truncated": "tokens_dropped"}
"""Kinds of defects by the column of the requests that counts them."""

_SPAN_DEFECTS = ("merged", "noncanonical", "lossy", "unknown")
"""Columns of the spans that count or flag defects."""

_WRITTEN = ["text", "raw", "opened", "thought", "thought_tokens", "finish", "missing"]
"""Columns of the observations that say what was written, and how it ended."""

_FLAT = ("tokens", "logprobs", "sizes", "ranks")
"""Columns of the observations that have one entry per token."""

_GIVEN = ("total", "token_count", "greedy")
"""Columns of the observations that those without tokens have."""

_INT = np.dtype("<i4")

_ROUNDING = 1e-3
"""Nats that rounding may lift a log-probability above 0."""

_SENTINEL = -9999.0
"""The number that servers such as vLLM write for a log-probability that they don't have."""


_NO_ROWS: Integers = np.array([], dtype=np.int64)

_MOST_SLICES = 64
"""Slices that a table is joined of; rows in further pieces are copied one by one."""


def _rows_by_prompt(table: pa.Table) -> dict[str, Integers]:
    """Return the rows of every prompt, int64 [rows] each, in the order of the table."""
    prompts = table["prompt"].combine_chunks().dictionary_encode()
    codes = prompts.indices.to_numpy()
    order = np.argsort(codes, kind="stable")
    ends = np.cumsum(np.bincount(codes, minlength=len(prompts.dictionary)))
    rows = np.split(order, ends[:-1])
    return dict(zip(prompts.dictionary.to_pylist(), rows, strict=False))


def _taken(table: pa.Table, rows: Integers) -> pa.Table:
    """Return these rows of ``table``, which are not copied if they lie next to each other."""
    if not len(rows):
        return table.slice(0, 0)
    ends = np.flatnonzero(np.diff(rows) != 1) + 1
    if len(ends) >= _MOST_SLICES:
        return table.take(pa.array(rows))
    slices = [table.slice(part[0], len(part)) for part in np.split(rows, ends)]
    return pa.concat_tables(slices)


def _written(row: Mapping[str, Any], has_tokens: bool, is_short: bool) -> Written | str | None:
    """Return a generated text with its end.

    ``is_short``: True if the text ended before its limit, or if its last token stands for no text.
    """
    finish = row["finish"]
    if row["text"] is None or row["missing"] is not None:
        if finish == FILTERED:
            return FILTERED
        return None
    if finish is None and has_tokens and is_short:
        finish = EOS
    return Written.of(
        row["text"],
        row["raw"],
        row["opened"],
        finish=finish,
        thought=bool(row["thought"]) or bool(row["thought_tokens"]),
        named=has_tokens,
    )


def _certain_twice(target: Integers, answers: Integers, certain: Mask) -> Integers:
    """Return the items with different ``certain`` answers (bool [spans]) about one target.

    A certain answer is a log-probability of 0, which two choices can't have unless one is the start
    of the other.  ``target``: item, part and null context of each span, int64 [3, spans];
    ``answers``: the observation of each span, int64 [spans].
    """
    # Equal texts share an observation, which is one answer.
    distinct = np.unique(np.vstack([target, answers])[:, certain], axis=1)
    targets, counts = np.unique(distinct[:-1], axis=1, return_counts=True)
    return np.unique(targets[0, counts > 1])


def _laid_out(values: pa.Array) -> tuple[Integers, Any]:
    """Return the size of each value in bytes, and a buffer with all values."""
    if not pa.types.is_string(values.type):
        numbers = values.to_numpy()
        return np.full(len(numbers), numbers.itemsize), numbers
    sizes = pc.binary_length(values).to_numpy()
    content = values.cast(pa.binary())
    _, offsets, buffer = content.buffers()
    if not len(values):
        return sizes, b""
    # The buffer of a slice holds the texts before it, too.
    start = int(np.frombuffer(offsets, np.int32)[content.offset])
    return sizes, memoryview(buffer or b"")[start:]


def _filled(size: int, fill: float, indices: Integers, values: npt.ArrayLike) -> npt.NDArray[Any]:
    """Return an array of ``fill`` with ``values`` at the ``indices``."""
    array = np.full(size, fill)
    array[indices] = values
    return array


def _is_valid(column: pa.ChunkedArray) -> Mask:
    """Mark the values that are not null, bool [values]."""
    return np.asarray(pc.is_valid(column).to_numpy(), dtype=np.bool_)


def _is_true(column: pa.ChunkedArray) -> Mask:
    """Mark the values that are true and not null, bool [values]."""
    return np.asarray(pc.fill_null(column, False).to_numpy(), dtype=np.bool_)
