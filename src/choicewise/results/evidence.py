"""What a run observed, laid out as the arrays that scores are computed from."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from choicewise.records.tables import FLOAT32, GENERATED
from choicewise.scoring.continuations import Continuations
from choicewise.scoring.decisions import gold_rows
from choicewise.scoring.distribution import option_mass
from choicewise.scoring.outside import OUTSIDE
from choicewise.scoring.ragged import Floats, Integers, Mask, reduce_rows
from choicewise.scoring.scores import SCORES, lengths
from choicewise.scoring.scores.sensitivity import sensitivity

CORRECTING = ("before", "after")
"""The columns of the spans with the keys of what is taken off at the first token and added at the last."""


@dataclass(frozen=True)
class Tables:
    """The four tables of a run folder (:mod:`choicewise.records.tables`), laid out once however many protocols ask."""

    items: pa.Table
    requests: pa.Table
    spans: pa.Table
    observations: pa.Table

    def evidence(self, prompt: str) -> Evidence:
        """What was seen under one prompt (``Protocol.prompt_digest``)."""
        if prompt not in self._evidence:
            self._evidence[prompt] = Evidence(self, prompt)
        return self._evidence[prompt]

    @cached_property
    def _evidence(self) -> dict[str, Evidence]:
        return {}

    @cached_property
    def answers(self) -> Integers:
        """Each span's row in the table of observations, int64 [spans]; -1 where there is none."""
        return self._found("key")

    @cached_property
    def settled(self) -> Integers:
        """The same for the answers of a float32 copy; -1 unless it answered for the span's corrections, too."""
        lacks = [self._found(column, FLOAT32) < 0 for column in CORRECTING]
        wants = [pc.is_valid(self.spans[column]).to_numpy() for column in CORRECTING]
        return np.where(np.logical_or.reduce(np.logical_and(lacks, wants)), -1, self._found("key", FLOAT32))

    @cached_property
    def taken(self) -> Mask:
        """The spans whose float32 answers count, bool [spans]: those of items that have all of them, under a prompt.

        Half an item in each would set its choices apart.
        """
        known, found = self.answers >= 0, self.settled >= 0
        if not found.any():
            return np.asarray(found, dtype=np.bool_)
        prompt, item = (
            self.spans[column].combine_chunks().dictionary_encode().indices.to_numpy().astype(np.int64)
            for column in ("prompt", "item")
        )
        asked = prompt * len(self.spans) + item
        return np.asarray(known & found & ~np.isin(asked, asked[known & ~found]), dtype=np.bool_)

    @cached_property
    def unanswered(self) -> list[str]:
        """The items about which the model answered with NaN, be it for a correction."""
        no_value = pc.fill_null(pc.is_nan(self.observations["value"]), False).to_numpy()
        nan = np.append(np.isnan(self._totals) | no_value, False)  # -1 is none of them
        told = np.logical_or.reduce([nan[self._found(column)] for column in ("key", *CORRECTING)])
        found: list[str] = pc.unique(self.spans["item"].filter(pa.array(told))).to_pylist()
        return found

    @cached_property
    def corrections(self) -> tuple[tuple[Floats, Floats], tuple[Floats, Floats]]:
        """What each span adds at its first and at its last token, in nats, float64 [spans].

        Each as the model said it, and as a float32 copy of it did.
        """
        before, after = ((self._sums(column), self._sums(column, FLOAT32)) for column in CORRECTING)
        return (0.0 - before[0], 0.0 - before[1]), after  # 0 - 0 is 0, where -0 would be -0.0

    def _sums(self, column: str, behind: str = "") -> Floats:
        """Log-likelihood of the observation that a ``column`` of each span names; 0 where it names none."""
        known = np.append(self._totals, np.nan)[self._found(column, behind)]  # -1 is none of them
        return np.where(pc.is_null(self.spans[column]).to_numpy(), 0.0, known)

    @cached_property
    def _totals(self) -> Floats:
        return reduce_rows(np.add, self.flat("logprobs"), self.starts)

    def _found(self, column: str, behind: str = "") -> Integers:
        """The rows of the observations whose keys are in a ``column`` of the spans with ``behind`` behind them."""
        keys = self.spans[column]
        if behind:
            if not self._rescored:
                return np.full(len(keys), -1, dtype=np.int64)
            keys = pc.binary_join_element_wise(keys, behind, "")
        return _integers(pc.index_in(keys, self._keys))

    @cached_property
    def _keys(self) -> pa.Array:
        return self.observations["key"].combine_chunks()

    @cached_property
    def _rescored(self) -> bool:
        """Whether a float32 copy answered anything: mostly not, and then there is nothing to look for."""
        return bool(pc.any(pc.ends_with(self._keys, FLOAT32)).as_py())

    @cached_property
    def starts(self) -> Integers:
        """Where each observation's tokens start in the flat arrays, and where the last ones end."""
        return _offsets(pc.list_value_length(self.observations["tokens"]).to_numpy())

    def flat(self, column: str) -> npt.NDArray[Any]:
        """A column of the observations, token after token."""
        if column not in self._flat:
            self._flat[column] = pc.list_flatten(self.observations[column].combine_chunks()).to_numpy()
        return self._flat[column]

    @cached_property
    def _flat(self) -> dict[str, npt.NDArray[Any]]:
        return {}


class Evidence:
    """The observations under one prompt, for every item that was asked under it, in the order of the item table.

    Every item has one row per choice, whether or not it could be scored; a row without tokens is missing.
    """

    def __init__(self, tables: Tables, prompt: str) -> None:
        mine = pc.equal(tables.spans["prompt"], prompt)
        self._tables = tables
        self._answers = tables.answers[mine.to_numpy()]
        self._spans = tables.spans.filter(mine)
        requests = tables.requests.filter(pc.equal(tables.requests["prompt"], prompt))
        asked = pc.is_in(tables.items["item"], requests["item"].combine_chunks())
        self.about = tables.items.filter(asked)
        self.requests = requests.take(pc.index_in(self.about["item"], requests["item"].combine_chunks()))
        self.ids: list[str] = self.about["item"].to_pylist()
        self.subjects: list[str] = self.about["subject"].to_pylist()
        self.gold: list[list[int]] = self.about["gold"].to_pylist()
        self.item_offsets: Integers = _offsets(pc.list_value_length(self.about["choices"]).to_numpy())
        self._take_settled(mine.to_numpy())
        self._seen: dict[str | None, Continuations] = {}
        self._parts: list[Continuations] = []
        self._scores: dict[tuple[str, str | None, str], Floats] = {}
        self._sensitivities: dict[tuple[str, str | None, str], Floats] = {}

    def _take_settled(self, mine: Mask) -> None:
        """Read the float32 answers that count."""
        taken = self._tables.taken[mine]
        self.settled: Mask = np.zeros(len(self.ids), dtype=np.bool_)
        self.settled[self._item_of(self._spans)[taken]] = True
        self._answers = np.where(taken, self._tables.settled[mine], self._answers)
        self._corrections = [np.where(taken, wide[mine], first[mine]) for first, wide in self._tables.corrections]

    def continuations(self, null: str | None = None) -> Continuations:
        """The scored continuations after the request's own context, or after the ``null`` context."""
        if null not in self._seen:
            self._seen[null] = self._continuations(null)
        return self._seen[null]

    def parts(self) -> list[Continuations]:
        """What was observed of each thing that the reading asks about a choice; each has the same rows."""
        if not self._parts:
            count = 1 + int(pc.max(self._spans["part"]).as_py() or 0)
            self._parts = [self._continuations(None, part) for part in range(count)]
        return self._parts

    def values(self) -> Floats:
        """What was observed of every choice that is no log-probability, float64 [rows]; NaN where there is nothing."""
        observation, _, _ = self._rows(None, 0)
        seen = np.asarray(self._tables.observations["value"].to_numpy(), dtype=np.float64)
        return np.where(observation < 0, np.nan, seen[observation]) if len(seen) else np.full(len(observation), np.nan)

    def scores(self, name: str, null: str | None = None, outside: str = "keep") -> Floats:
        """One number per row, float64: greater is better, NaN is missing.  Not to be written to."""
        key = (name, null, outside)
        if key not in self._scores:
            observed = OUTSIDE[outside](self.continuations())
            self._scores[key] = SCORES[name](observed, None if null is None else self.continuations(null))
        return self._scores[key]

    def _rows(self, null: str | None, part: int) -> tuple[Integers, npt.NDArray[Any], list[Floats]]:
        """Each row's observation, -1 where there is none, its text, and what to add at its first and last token."""
        chosen = pc.is_null(self._spans["null"]) if null is None else pc.equal(self._spans["null"], null)
        mine = pc.and_(pc.equal(self._spans["part"], part), pc.greater_equal(self._spans["choice"], 0))
        mask = pc.fill_null(pc.and_(chosen, mine), False)
        spans, found = self._spans.filter(mask), self._answers[mask.to_numpy()]
        row = self.item_offsets[:-1][self._item_of(spans)] + spans["choice"].to_numpy()
        observation = np.full(int(self.item_offsets[-1]), -1, dtype=np.int64)
        observation[row] = found
        text = np.full(int(self.item_offsets[-1]), "", dtype=object)
        text[row] = spans["continuation"].to_numpy()
        corrections = [np.zeros(len(observation)), np.zeros(len(observation))]
        for correction, added in zip(corrections, self._corrections, strict=True):
            correction[row] = added[mask.to_numpy()]
        return observation, text, corrections

    def _continuations(self, null: str | None, part: int = 0) -> Continuations:
        observation, text, corrections = self._rows(null, part)
        return self._seen_at(observation, text, self.item_offsets).corrected(*corrections)

    def _seen_at(self, observation: Integers, text: npt.NDArray[Any], items: Integers) -> Continuations:
        """The tokens of the observations, one row each; none where the observation is -1."""
        starts, ends = self._tables.starts[observation], self._tables.starts[observation + 1]
        counts = np.where(observation < 0, 0, ends - starts)
        offsets = _offsets(counts)
        flat = np.repeat(starts - offsets[:-1], counts) + np.arange(offsets[-1])
        return Continuations(
            tokens=self._tables.flat("tokens")[flat],
            logprobs=self._tables.flat("logprobs")[flat],
            sizes=self._tables.flat("sizes")[flat],
            ranks=self._tables.flat("ranks")[flat],
            offsets=offsets,
            text=text.tolist(),
            item_offsets=items,
        )

    def generated(self) -> list[str | None]:
        """The generated text of every item; None where there is none."""
        observation = self._generations
        return self._tables.observations["text"].take(pa.array(observation, mask=observation < 0)).to_pylist()

    def generation(self) -> Continuations:
        """The generated tokens, one row per item."""
        text = np.array([text or "" for text in self.generated()], dtype=object)
        return self._seen_at(self._generations, text, np.arange(len(self.ids) + 1))

    @cached_property
    def _generations(self) -> Integers:
        """Each item's generation among the observations, -1 where there is none."""
        mask = pc.equal(self._spans["choice"], GENERATED)
        observation = np.full(len(self.ids), -1, dtype=np.int64)
        observation[self._item_of(self._spans.filter(mask))] = self._answers[mask.to_numpy()]
        return observation

    def expected(self) -> list[list[str]]:
        """The continuations of every item as the request has them; empty where it could not be asked."""
        return [texts or [] for texts in self.requests["continuations"].to_pylist()]

    def options(self) -> list[list[str]]:
        """The choices of every item as they were shown; empty where the item could not be asked."""
        return [options or [] for options in self.requests["options"].to_pylist()]

    def sensitivity(self, name: str, null: str | None = None, outside: str = "keep") -> Floats:
        """Units of the score per nat of numeric noise in a likelihood, float64 [rows]; NaN where not known."""
        key = (name, null, outside)
        if key not in self._sensitivities:
            observed = OUTSIDE[outside](self.continuations())
            after_null = None if null is None else self.continuations(null)
            self._sensitivities[key] = sensitivity(name, SCORES[name], observed, after_null)
        return self._sensitivities[key]

    @cached_property
    def right(self) -> Mask:
        """Which rows are right choices, bool [rows]."""
        return gold_rows(self.gold, self.item_offsets)

    @cached_property
    def gold_index(self) -> Integers:
        """The right choice of every item, int64 [items]; -1 where several are right."""
        return np.array([gold[0] if len(gold) == 1 else -1 for gold in self.gold], dtype=np.int64)

    @cached_property
    def lengths(self) -> Floats:
        """Characters of every continuation, float64 [rows]."""
        return lengths.chars(self.continuations())

    @cached_property
    def mass(self) -> Floats:
        """The probability of an item's continuations together, float64 [items]."""
        return option_mass(self.scores("sum"), self.item_offsets)

    def positive(self, column: str) -> Mask:
        """Items whose ``column`` of the request table is above zero, bool [items]."""
        return np.asarray(pc.greater(pc.fill_null(self.requests[column], 0), 0).to_numpy(), dtype=np.bool_)

    @cached_property
    def merged(self) -> Mask:
        """Items with a token that straddles the end of the context, bool [items]."""
        return self.flagged("merged")

    def flagged(self, column: str) -> Mask:
        """Items with a choice whose ``column`` of the span table is true or above zero, bool [items]."""
        found = np.zeros(len(self.ids), dtype=np.bool_)
        told = pc.fill_null(pc.cast(self._spans[column], pa.int64()), 0)
        found[self._item_of(self._spans.filter(pc.greater(told, 0)))] = True
        return found

    @cached_property
    def merged_rows(self) -> Mask:
        """Rows with a token that straddles the end of the context, bool [rows]."""
        return np.asarray(self._by_row("merged"), dtype=np.bool_)

    @cached_property
    def context_tokens(self) -> Integers:
        """Tokens that each row is scored after, int64 [rows]; those of its item where it was generated."""
        return self._by_row("context_tokens")

    def _by_row(self, column: str) -> Integers:
        """A column of the requests' own spans by row; 0 where there is none."""
        mask = pc.and_(pc.is_null(self._spans["null"]), pc.equal(self._spans["part"], 0))
        spans = self._spans.filter(mask)
        item, choice = self._item_of(spans), spans["choice"].to_numpy()
        value = np.asarray(pc.cast(spans[column], pa.int64()).to_numpy(), dtype=np.int64)
        found = np.zeros(int(self.item_offsets[-1]), dtype=np.int64)
        generated, scored = choice == GENERATED, choice >= 0
        for start, end, of_item in zip(
            self.item_offsets[:-1][item[generated]],
            self.item_offsets[1:][item[generated]],
            value[generated],
            strict=True,
        ):
            found[start:end] = of_item
        found[self.item_offsets[:-1][item[scored]] + choice[scored]] = value[scored]
        return found

    def _item_of(self, spans: pa.Table) -> Integers:
        return _integers(pc.index_in(spans["item"], self.about["item"].combine_chunks()))


def _integers(found: pa.ChunkedArray) -> Integers:
    return np.asarray(pc.fill_null(found, -1).to_numpy(), dtype=np.int64)


def _offsets(lengths: npt.NDArray[Any]) -> Integers:
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
