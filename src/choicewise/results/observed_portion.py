"""What a portion of a run observed under one prompt, tokens included: all that scores are computed from."""

from collections.abc import Iterator
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from choicewise.results.prompt_spans import PromptSpans
from choicewise.results.run_tables import RunTables, offsets_of
from choicewise.scoring.continuations import Continuations
from choicewise.scoring.decisions import gold_rows
from choicewise.scoring.distribution import option_mass
from choicewise.scoring.lows import Range
from choicewise.scoring.outside import OUTSIDE
from choicewise.scoring.ragged import Floats, Integers, Mask, reduce_rows
from choicewise.scoring.scores import SCORES, lengths
from choicewise.scoring.scores.lacks import lacking
from choicewise.scoring.scores.score_range import score_range
from choicewise.scoring.scores.sensitivity import sensitivity
from choicewise.scoring.statistics.validity import HALF


class ObservedPortion:
    """The observations under one prompt (``Protocol.prompt_digest``) of every item in ``tables`` that was asked under
    it, in the order of the item table.

    Every item has one row per choice, whether or not it could be scored; a row without an observation is missing.
    ``items``: rows of the item table.  ``rescored``: the items whose observations are those of a float32 copy of the
    model, bool [items].
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
        self.rescored: Mask = self._spans.rescored
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
        """Which numbers of each item no model says (:mod:`choicewise.results.impossible_logprobs`), int8 [items]."""
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
        return lengths.chars(self.continuations())

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
        """Items that were not asked or scored in full, bool [items] by kind (:class:`choicewise.results.row.Row`)."""
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
