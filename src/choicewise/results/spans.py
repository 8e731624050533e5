"""The observations of a run, or of a portion of it, as arrays: four tables, and the spans of one prompt in rows."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from choicewise.protocols.readings import ALONG
from choicewise.questions import EOS, FILTERED
from choicewise.records import GENERATED, KEYS
from choicewise.scoring import scores
from choicewise.scoring.answers import Written
from choicewise.scoring.decide import OUTSIDE, gold_rows, option_mass
from choicewise.scoring.observed import (
    Continuations,
    Floats,
    Integers,
    Mask,
    Range,
    reduce_rows,
    row_of,
)
from choicewise.scoring.scores import SCORES, lacking, score_range, sensitivity
from choicewise.scoring.significance import HALF


class ObservedPortion:
    """The observations under one prompt (``Protocol.prompt_digest``) of every item in ``tables`` that was asked under
    it, in the order of the item table.

    Every item has one row per choice, whether or not it could be scored; a row without an observation is missing.  So
    has an option that the prompt adds (:func:`choicewise.protocols.preparations.more_options`), behind the others.
    ``items``: rows of the item table; item i has the rows ``item_offsets[i]:item_offsets[i + 1]``.
    """

    def __init__(self, tables: RunTables, prompt: str) -> None:
        requests = tables.requests.filter(pc.equal(tables.requests["prompt"], prompt))
        items = requests["item"].combine_chunks()
        self._tables, self._prompt = tables, prompt
        self.item_table = tables.items.filter(pc.is_in(tables.items["item"], items))
        self.requests = requests.take(pc.index_in(self.item_table["item"], items))
        self.items: Integers = self.item_table["position"].to_numpy().astype(np.int64)
        self.gold: list[list[int]] = self.item_table["gold"].to_pylist()
        self.item_offsets: Integers = offsets_of(
            self.item_table["choices"], tables.adding.get(prompt, 0)
        )
        self._rows = int(self.item_offsets[-1])
        under = pc.equal(tables.spans["prompt"], prompt)
        chosen = under.to_numpy()
        self._spans = tables.spans.filter(under)
        self._item = np.asarray(
            pc.index_in(self._spans["item"], self.item_table["item"]).to_numpy(), dtype=np.int64
        )
        self._choice = self._spans["choice"].to_numpy()
        self._answers = tables.answers[0][chosen]
        self._no_number = tables.no_number[chosen]
        self._unlisted = tables.unlisted[chosen]
        self._impossible, self._certain = tables.impossible[chosen], tables.certain[chosen]
        place = np.cumsum(chosen) - 1
        self._unanswered = [
            (int(place[span]), reason) for span, reason in tables.unanswered if chosen[span]
        ]
        self._corrections = [nats[chosen] for nats in tables.corrections]
        self._scores: dict[tuple[str, str | None, str], Floats] = {}

    def continuations(self, null: str | None = None) -> Continuations:
        """The scored continuations after the request's own context, or after the ``null`` context."""
        return self._continuations(null, 0)

    def parts(self) -> list[Continuations]:
        """What was observed of each thing that the reading asks about a choice; each has the same rows."""
        return [
            self._continuations(None, part)
            for part in range(1 + int(pc.max(self._spans["part"]).as_py() or 0))
        ]

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
        return bool(self._unlisted.any())

    def unlisted(self, null: str | None) -> npt.NDArray[np.int8]:
        """1 for items of which an answer is known as an upper bound alone, 2 where all are, 0 for others, [items].

        ``null``: as in :meth:`reasons`.
        """
        scored = self._read(null).to_numpy() & (self._choice >= 0)
        asked, bounds = (
            np.bincount(self._item[spans], minlength=len(self.items))
            for spans in (scored, scored & self._unlisted)
        )
        return ((bounds > 0).astype(np.int8) + ((bounds > 0) & (bounds == asked))).astype(np.int8)

    def impossible(self, null: str | None) -> npt.NDArray[np.int8]:
        """Which numbers that no model says are observed of each item, after these two contexts: bits, int8 [items]."""
        read = self._read(null).to_numpy()
        impossible = np.zeros(len(self.items), dtype=np.int8)
        np.bitwise_or.at(impossible, self._item[read], self._impossible[read])
        certain = read & self._certain & (self._choice >= 0)
        if certain.any():
            codes = np.asarray(
                pc.fill_null(self._spans["null"].combine_chunks().dictionary_encode().indices, -1)
            )
            asked = np.stack([self._item, self._spans["part"].to_numpy(), codes]).astype(np.int64)
            impossible[_certain_twice(asked, self._answers, certain)] |= PLACEHOLDER
        return impossible

    def values(self) -> Floats:
        """What was observed of every choice that is no log-probability, float64 [rows]; NaN where there is nothing."""
        spans, row = self._scored(None, 0)
        known = np.asarray(self._tables.observations["value"].to_numpy(), dtype=np.float64)
        return np.append(known, np.nan)[_filled(self._rows, -1, row, self._answers[spans])]

    def scores(self, name: str, null: str | None = None, outside: str = "keep") -> Floats:
        """One number per row, float64: greater is better, NaN is missing.  Not to be written to."""
        key = (name, null, outside)
        if key not in self._scores:
            observed = OUTSIDE[outside](self.continuations())
            self._scores[key] = SCORES[name](
                observed, None if null is None else self.continuations(null)
            )
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
        rows = self._generations
        return list(
            self._tables.observations["text"].take(pa.array(rows, mask=rows < 0)).to_pylist()
        )

    def written(self, limit: int = 0) -> list[Written | str | None]:
        """The generated text of every item with its end: ``FILTERED`` where it was withheld, None where there is none.

        Of runs that do not say how a text of known tokens ended, one with fewer than ``limit`` tokens, or whose last
        one stands for no text, ended by itself; of others it is not known.
        """
        rows = self._generations
        counts, last_sizes = self._tables.lengths(rows)
        columns = self._tables.observations.select(_WRITTEN).take(pa.array(rows, mask=rows < 0))
        texts = list[Written | str | None]()
        for place, row in enumerate(columns.to_pylist()):
            finish = row["finish"]
            if row["text"] is None or row["missing"] is not None:
                texts.append(finish if finish == FILTERED else None)
                continue
            if (
                finish is None
                and counts[place]
                and (counts[place] < limit or not last_sizes[place])
            ):
                finish = EOS
            thought = bool(row["thought"]) or bool(row["thought_tokens"])
            how = {"finish": finish, "thought": thought, "named": bool(counts[place])}
            texts.append(Written.of(row["text"], row["raw"], row["opened"], **how))
        return texts

    def thoughts(self) -> tuple[Floats, Mask]:
        """Tokens of each item's thought before each part, [parts, items], and whether its limit closed it, [items].

        NaN where nothing was scored along a thought.
        """
        spans, parts = self._choice == 0, self._spans["part"].to_numpy()
        known = pc.fill_null(
            pc.cast(self._tables.observations["thought_tokens"], pa.float64()), np.nan
        ).to_numpy()
        kept = np.full((len(ALONG), len(self.items)), np.nan)
        kept[parts[spans], self._item[spans]] = np.append(known, np.nan)[self._answers[spans]]
        kept[0] = np.where(np.isnan(kept[-1]), np.nan, 0.0)
        forced = pc.fill_null(self._tables.observations["forced"], False).to_numpy()
        return kept, np.asarray(np.append(forced, False)[self._generations], dtype=np.bool_)

    def generation(self) -> Continuations:
        """The generated tokens, one row per item."""
        texts = [text or "" for text in self.generated()]
        return self._tables.continuations(self._generations, texts, np.arange(len(self.items) + 1))

    def expected(self) -> list[list[str]]:
        """The continuations of every item as the request has them; empty where it could not be asked."""
        return [texts or [] for texts in self.requests["continuations"].to_pylist()]

    def options(self) -> list[list[str]]:
        """The choices of every item as they were shown; empty where the item could not be asked."""
        return [options or [] for options in self.requests["options"].to_pylist()]

    def lacks(self, name: str, null: str | None) -> npt.NDArray[np.int8]:
        """What each item lacks for the score of that name, where its log has no more: places in ``LACKS``, [items]."""
        rows = lacking(
            SCORES[name], self.continuations(), None if null is None else self.continuations(null)
        )
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
    def warnings(self) -> dict[str, Mask]:
        """Mark items not asked or scored in full, bool [items] by kind (:class:`choicewise.results.number.Counts`)."""
        cut = {"shots_dropped": "shots_dropped", "truncated": "tokens_dropped"}
        requests = {
            name: pc.greater(pc.fill_null(self.requests[column], 0), 0)
            for name, column in cut.items()
        }
        spans = {
            name: pc.cast(self._spans[name], pa.int64())
            for name in ("merged", "noncanonical", "lossy", "unknown")
        }
        raised = {
            name: pc.greater(pc.fill_null(spans_, 0), 0).to_numpy()
            for name, spans_ in spans.items()
        }
        of_requests = {
            name: np.asarray(items.to_numpy(), dtype=np.bool_) for name, items in requests.items()
        }
        return of_requests | {name: self._flagged(spans_) for name, spans_ in raised.items()}

    @property
    def merged_rows(self) -> Mask:
        """Rows with a token that straddles the end of the context, bool [rows]."""
        return np.asarray(self._column("merged"), dtype=np.bool_)

    @property
    def context_tokens(self) -> Integers:
        """Tokens that each row is scored after, int64 [rows]; those of its item where it was generated."""
        return self._column("context_tokens")

    @property
    def own_contexts(self) -> list[str | None]:
        """The context of each row where it is not its item's, [rows]; None elsewhere.  Texts must have been read."""
        spans, row = self._scored(None, 0)
        texts: npt.NDArray[Any] = np.full(self._rows, None, dtype=object)
        texts[row] = self._spans["context"].filter(pa.array(spans)).to_numpy()
        return list(texts.tolist())

    def questions(self, null: str | None = None) -> Iterator[bytes]:
        """By item, every question after its own context, or the ``null`` context: choice, part and keys in order."""
        asked = self._after(null)
        spans, item = self._spans.filter(asked), self._item[asked.to_numpy()]
        place = np.stack([spans["part"].to_numpy(), spans["choice"].to_numpy(), item]).astype(
            np.int64
        )
        order = np.lexsort(place)
        order = order[np.append(True, (np.diff(place[:, order]) != 0).any(axis=0))[: len(order)]]
        columns = (
            pc.cast(spans[name].take(pa.array(order)), pa.string())
            for name in ("choice", "part", *KEYS)
        )
        lines = pc.binary_join_element_wise(
            *columns, " ", null_handling="replace", null_replacement="-"
        )
        ends = np.searchsorted(item[order], np.arange(len(self.items) + 1))
        by_item = pa.ListArray.from_arrays(pa.array(ends, pa.int32()), lines.combine_chunks())
        return row_bytes(pa.chunked_array([by_item]))

    @property
    def no_number(self) -> Mask:
        """Items about which the model answered with NaN somewhere, bool [items]."""
        return self._flagged(self._no_number)

    def reasons(self, null: str | None) -> Iterator[tuple[int, str]]:
        """(place of an item, why something asked about it has no number), after its context or the ``null`` context."""
        missing = self.requests["missing"]
        refused = np.flatnonzero(pc.is_valid(missing).to_numpy())
        yield from zip(refused.tolist(), missing.take(pa.array(refused)).to_pylist(), strict=True)
        read = self._read(null)
        missing = self._spans["missing"]
        told = np.flatnonzero(pc.and_(read, pc.is_valid(missing)).to_numpy())
        yield from zip(
            self._item[told].tolist(), missing.take(pa.array(told)).to_pylist(), strict=True
        )
        wanted = read.to_numpy()
        yield from (
            (int(self._item[span]), reason) for span, reason in self._unanswered if wanted[span]
        )
        lost = pc.and_(pc.is_valid(self._spans["key"]), pa.array(self._answers < 0))
        for cause, spans in {LOST: lost, NO_NUMBER: pa.array(self._no_number)}.items():
            yield from (
                (item, cause) for item in self._item[pc.and_(read, spans).to_numpy()].tolist()
            )

    def _continuations(self, null: str | None, part: int) -> Continuations:
        """The scored tokens of one ``part``, from the cache or laid out."""
        latest, key = self._tables.latest, (self._prompt, null, part)
        if key not in latest:
            if any(prompt != self._prompt for prompt, _, _ in latest):
                latest.clear()
            spans, row = self._scored(null, part)
            text: npt.NDArray[Any] = np.full(self._rows, "", dtype=object)
            text[row] = self._spans["continuation"].filter(pa.array(spans)).to_numpy()
            observations = _filled(self._rows, -1, row, self._answers[spans])
            uncorrected = self._tables.continuations(observations, text.tolist(), self.item_offsets)
            corrections = (_filled(self._rows, 0.0, row, nats[spans]) for nats in self._corrections)
            latest[key] = uncorrected.corrected(*corrections)
        return latest[key]

    @property
    def _generations(self) -> Integers:
        """Each item's generation among the observations, int64 [items]; -1 where there is none."""
        spans = self._choice == GENERATED
        return _filled(len(self.items), -1, self._item[spans], self._answers[spans])

    def _flagged(self, spans: Mask) -> Mask:
        """The items of these spans, bool [items]."""
        return _filled(len(self.items), False, self._item[spans], True)

    def _column(self, name: str) -> Integers:
        """A number or flag of the requests' own spans by row, int64 [rows]; 0 where there is none.

        The rows of a generated item have that of its generation.
        """
        own = pc.and_(pc.is_null(self._spans["null"]), pc.equal(self._spans["part"], 0)).to_numpy()
        value = np.asarray(pc.cast(self._spans[name], pa.int64()).to_numpy(), dtype=np.int64)
        generated = own & (self._choice == GENERATED)
        rows = _filled(len(self.items), 0, self._item[generated], value[generated])[
            row_of(self.item_offsets)
        ]
        scored = own & (self._choice >= 0)
        rows[self._row(scored)] = value[scored]
        return rows.astype(np.int64)

    def _read(self, null: str | None) -> pa.ChunkedArray:
        """Which spans come after the request's own context or after the ``null`` context."""
        own = pc.is_null(self._spans["null"])
        return own if null is None else pc.or_(own, self._after(null))

    def _scored(self, null: str | None, part: int) -> tuple[Mask, Integers]:
        """Which spans score a choice after this context, bool [spans], and the row of each."""
        spans = pc.fill_null(
            pc.and_(self._after(null), pc.equal(self._spans["part"], part)), False
        ).to_numpy()
        chosen = np.asarray(spans & (self._choice >= 0), dtype=np.bool_)
        return chosen, self._row(chosen)

    def _after(self, null: str | None) -> pa.ChunkedArray:
        """Which spans come after the request's own context, or the ``null`` context."""
        column = self._spans["null"]
        return pc.is_null(column) if null is None else pc.fill_null(pc.equal(column, null), False)

    def _row(self, spans: Mask) -> Integers:
        return np.asarray(
            self.item_offsets[:-1][self._item[spans]] + self._choice[spans], dtype=np.int64
        )


LOST = "its observation lay in a damaged block, or in a shard that is not there; run or merge again to have it"
NO_NUMBER = "the model answers with NaN"
"""Why a choice that was asked has no log-likelihood."""


@dataclass(frozen=True, kw_only=True)
class RunTables:
    """The four tables (:mod:`choicewise.records`) of a run, or of a portion of it, which may lack columns."""

    items: pa.Table
    requests: pa.Table
    spans: pa.Table
    observations: pa.Table
    adding: Mapping[str, int] = field(default_factory=dict)
    """Prompts that show an option more than the items have, or one less (-1)."""
    latest: dict[tuple[str, str | None, int], Continuations] = field(default_factory=dict)
    """The continuations of the prompt that was read last, by prompt, null context and part.

    Only those, since the tokens of every prompt laid out at once would need several times the memory of the run.
    """

    @cached_property
    def answers(self) -> Integers:
        """The rows of the observations that the ``KEYS`` of each span name, int64 [3, spans]; -1: none."""
        known, keys = self.observations["key"], [self.spans[name] for name in KEYS]
        lost = pc.is_valid(self.observations["missing"]).to_numpy()
        order = np.append(
            np.argsort(lost, kind="stable"), -1
        )  # of a question that was asked again the answer counts
        known = known.take(pa.array(order[:-1])) if lost.any() else known
        rows = np.stack(
            [pc.fill_null(pc.index_in(key, known), -1).to_numpy() for key in keys]
        ).astype(np.int64)
        return order[rows] if lost.any() else rows

    @cached_property
    def corrections(self) -> tuple[Floats, Floats]:
        """What each span adds at its first and at its last token, in nats, float64 [spans]; 0 where nothing.

        NaN where no more than an upper bound of it is known: what is subtracted can't be that.
        """
        totals = np.append(np.where(self._at_most, np.nan, self._totals), np.nan)  # row -1: none
        named = (pc.is_valid(self.spans[column]).to_numpy() for column in _CORRECTIONS)
        before, after = (
            np.where(name, totals[rows], 0.0)
            for name, rows in zip(named, self.answers[1:], strict=True)
        )
        return 0.0 - before, after  # 0.0 - 0.0 is 0.0, where -0.0 would be printed with its sign

    @cached_property
    def unlisted(self) -> Mask:
        """The spans of whose answer, or of a correction of it, no more than an upper bound is known, bool [spans]."""
        return np.asarray(np.append(self._at_most, False)[self.answers].any(axis=0), dtype=np.bool_)

    @cached_property
    def impossible(self) -> npt.NDArray[np.int8]:
        """Which numbers no model says (:func:`_impossible_logprobs`) are in a span's answers, bits as int8 [spans]."""
        rows = _impossible_logprobs(self._flat["logprobs"], self.offsets, self._totals)
        return np.asarray(
            np.bitwise_or.reduce(np.append(rows, 0)[self.answers], axis=0), dtype=np.int8
        )  # row -1: none

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
        return [
            (span, next(filter(None, (reasons[row] for row in rows[:, span]))))
            for span in spans.tolist()
        ]

    @cached_property
    def no_number(self) -> Mask:
        """The spans about which the model answered with NaN, corrections included, bool [spans]; not those that it did
        not answer."""
        summed = (np.diff(self.offsets) > 0) | pc.is_valid(self.observations["total"]).to_numpy()
        no_value = pc.fill_null(pc.is_nan(self.observations["value"]), False).to_numpy()
        answered = pc.is_null(self.observations["missing"]).to_numpy()
        nan = np.append(
            ((summed & np.isnan(self._totals)) | no_value) & answered, False
        )  # row -1: none
        return np.asarray(nan[self.answers].any(axis=0), dtype=np.bool_)

    @cached_property
    def offsets(self) -> Integers:
        """Where each observation's tokens start in the flat arrays, and where the last ones end."""
        return offsets_of(self.observations["tokens"])

    def lengths(self, rows: Integers) -> tuple[Integers, Integers]:
        """How many tokens these ``rows`` of the observations have, and how many bytes the last one; 0 where none is."""
        counts = np.append(np.diff(self.offsets), 0)[rows]
        sizes = np.append(self._flat["sizes"], 0)
        return counts, np.where(counts > 0, sizes[np.append(self.offsets[1:], 0)[rows] - 1], 0)

    def continuations(
        self, rows: Integers, text: Sequence[str | None], item_offsets: Integers
    ) -> Continuations:
        """The tokens of these ``rows`` of the observations; none where the row is -1."""
        starts = self.offsets[rows]
        counts = np.where(rows < 0, 0, self.offsets[rows + 1] - starts)
        offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        flat = np.repeat(starts - offsets[:-1], counts) + np.arange(offsets[-1])
        columns = {name: values[flat] for name, values in self._flat.items()}
        given = {name: np.append(values, np.nan)[rows] for name, values in self._given.items()}
        at_most = np.append(self._at_most, False)[rows] if self._at_most.any() else None
        return Continuations(
            tokens=columns["tokens"],
            logprobs=columns["logprobs"],
            sizes=columns["sizes"],
            ranks=columns["ranks"],
            offsets=offsets,
            text=text,
            item_offsets=item_offsets,
            at_most=at_most,
            totals=given.get("totals"),
            token_counts=given.get("token_counts"),
            all_greedy=given.get("all_greedy"),
        )

    @cached_property
    def _flat(self) -> dict[str, npt.NDArray[Any]]:
        """The columns of the observations that have one entry per token, token after token."""
        return {name: pc.list_flatten(self.observations[name]).to_numpy() for name in _FLAT}

    @cached_property
    def _given(self) -> dict[str, Floats]:
        """What observations without tokens have of :class:`Continuations`, NaN for the others; only what any has."""
        columns = {name: self.observations[column] for name, column in _GIVEN.items()}
        known = {
            name: column for name, column in columns.items() if column.null_count < len(column)
        }
        return {
            name: pc.fill_null(pc.cast(column, pa.float64()), np.nan).to_numpy()
            for name, column in known.items()
        }

    @cached_property
    def _at_most(self) -> Mask:
        """The observations whose log-probabilities are upper bounds, bool [observations]."""
        return np.asarray(
            pc.fill_null(self.observations["at_most"], False).to_numpy(), dtype=np.bool_
        )

    @cached_property
    def _totals(self) -> Floats:
        """The log-likelihood of every observation in nats; NaN where it has none."""
        sums = reduce_rows(np.add, self._flat["logprobs"], self.offsets)
        totals = self._given.get("totals")
        return sums if totals is None else np.where(np.diff(self.offsets) > 0, sums, totals)


def offsets_of(lists: pa.ChunkedArray, more: int = 0) -> Integers:
    """Where each list starts when they are laid end to end, and where the last one ends; int64 [lists + 1].

    ``more``: by how much each of them is longer.
    """
    return np.concatenate([[0], np.cumsum(pc.list_value_length(lists).to_numpy() + more)]).astype(
        np.int64
    )


def row_bytes(column: pa.ChunkedArray) -> Iterator[bytes]:
    """Every row of a column of texts, of lists of texts or of lists of numbers: equal bytes for equal rows alone.

    A row is how many values it has (-1 for null), the bytes of each, and the values one after the other.
    """
    array = column.combine_chunks()
    if pa.types.is_list(array.type):
        counts, values = (
            pc.fill_null(pc.list_value_length(array), -1).to_numpy(),
            pc.list_flatten(array),
        )
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


def row_digests(*rows: Iterable[bytes]) -> npt.NDArray[np.void]:
    """A digest per item of everything that ``rows`` say of it, part after part: [items] of 16 bytes."""
    digests = (
        hashlib.blake2b(b"".join(parts), digest_size=_DIGEST.itemsize).digest()
        for parts in zip(*rows, strict=True)
    )
    return np.frombuffer(b"".join(digests), dtype=_DIGEST)


POSITIVE, PLACEHOLDER = 1, 2
"""Bits: a log-probability above 0; a number that stands for none."""

_DIGEST = np.dtype((np.void, 16))

_CORRECTIONS = KEYS[1:]
"""Columns of the spans with the keys of what is subtracted at the first token and added at the last."""

_WRITTEN = ["text", "raw", "opened", "thought", "thought_tokens", "finish", "missing"]
"""Columns of the observations that say what was written, and how it ended."""

_FLAT = ("tokens", "logprobs", "sizes", "ranks")
"""Columns of the observations that have one entry per token."""

_GIVEN = {"totals": "total", "token_counts": "token_count", "all_greedy": "greedy"}
"""What an observation without tokens has, by its name in :class:`choicewise.scoring.observed.Continuations`."""

_INT = np.dtype("<i4")

_ROUNDING = 1e-3
"""Nats that rounding may lift a log-probability above 0."""

_SENTINEL = -9999.0
"""What some servers write in place of a log-probability that they don't have (vLLM, for one that is impossible)."""


def _impossible_logprobs(
    logprobs: npt.NDArray[np.float32], offsets: Integers, totals: Floats
) -> npt.NDArray[np.int8]:
    """Which of the two each observation has, int8 [observations]: of ``logprobs`` [tokens], or a total without any."""
    flat = logprobs.astype(np.float64)
    most = np.nan_to_num(reduce_rows(np.maximum, flat, offsets), nan=-1.0)
    positive = (most > _ROUNDING) | (np.nan_to_num(totals, nan=-1.0) > _ROUNDING)
    absent = np.nan_to_num(reduce_rows(np.maximum, flat == _SENTINEL, offsets)) > 0
    placeholder = absent | (totals == _SENTINEL)
    return (POSITIVE * positive + PLACEHOLDER * placeholder).astype(np.int8)


def _certain_twice(asked: Integers, answers: Integers, certain: Mask) -> Integers:
    """The items of which different answers to the same thing are ``certain``, bool [spans]: log-probabilities of 0.

    That can't be, unless one choice is the start of another.  ``asked``: item, part and null context of each span,
    int64 [3, spans]; ``answers``: its observation, int64 [spans].
    """
    distinct = np.unique(np.vstack([asked, answers])[:, certain], axis=1)
    things, times = np.unique(distinct[:-1], axis=1, return_counts=True)
    return np.unique(things[0, times > 1])


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


def _filled(size: int, fill: float, places: Integers, values: npt.ArrayLike) -> npt.NDArray[Any]:
    """An array of ``fill`` with ``values`` at the ``places``."""
    array = np.full(size, fill)
    array[places] = values
    return array
