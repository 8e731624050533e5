"""How each reading's observations are combined: one file per reading, named like it, with its ``COMBINER``."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Protocol, cast

import numpy as np

from choicewise.protocols.protocol import Protocol as Recipe
from choicewise.scoring.bounded_decisions import decided, decided_between
from choicewise.scoring.continuations import Continuations
from choicewise.scoring.decisions import Decisions
from choicewise.scoring.lows import Lows, Range, not_known
from choicewise.scoring.ragged import Floats, Integers, Mask, reduce_rows, row_of


class Observed(Protocol):
    """The observations under one prompt, one row per item and choice; an item has the rows between its offsets."""

    gold: list[list[int]]
    item_offsets: Integers

    @property
    def right(self) -> Mask:
        """Which rows are right choices, bool [rows]."""

    def continuations(self, null: str | None = None) -> Continuations:
        """The scored continuations after the request's own context, or after the ``null`` context."""

    def parts(self) -> list[Continuations]:
        """The observations of each thing that the reading asks about a choice; each has the same rows."""

    @property
    def part_sums(self) -> list[Floats]:
        """The log-likelihoods of the parts in nats, float64 [rows] each."""

    def values(self) -> Floats:
        """The observed number of every choice that is no log-probability, float64 [rows]; NaN where there is none."""

    def scores(self, name: str, null: str | None = None, outside: str = "keep") -> Floats:
        """The score of that name, float64 [rows]: greater is better, NaN is missing."""

    @property
    def bounded(self) -> bool:
        """Whether of anything no more than an upper bound is known."""

    def score_range(self, name: str, null: str | None = None, outside: str = "keep") -> Range:
        """The lowest and the highest that the score of that name may be."""

    @property
    def part_lows(self) -> list[Floats]:
        """The lowest that the log-likelihoods of the parts may be, float64 [rows] each."""

    def generated(self) -> Sequence[str | None]:
        """The generated text of every item; None where there is none."""

    def generation(self) -> Continuations:
        """The generated tokens, one row per item."""

    def expected(self) -> list[list[str]]:
        """The continuations of every item as its request has them; empty where it could not be asked."""

    def options(self) -> list[list[str]]:
        """The choices of every item as they were shown; empty where it could not be asked."""


Decision = tuple[Floats | None, Decisions, Lows | None]
"""Scores, float64 [rows], or None where a letter is read from text; what was decided; and how low scores may be."""


@dataclass(frozen=True, slots=True)
class Combiner:
    """How one reading's observations become a number per choice.

    ``scores``: float64 [rows], greater is better, NaN is missing.  ``retrieved``: the scored tokens of each choice, one
    row per choice, where the reading retrieves the likelihood of the choice's text; None where it does not.
    ``decide``: scores and decisions, where they are not simply made from ``scores``.  ``ranges``: the lowest and the
    highest that the scores may be; where it is not given, a score that is made of an upper bound is not known.
    """

    scores: Callable[[Recipe, Observed], Floats]
    retrieved: Callable[[Recipe, Observed], Continuations | None] = lambda protocol, observed: None
    decide: Callable[[Recipe, Observed], tuple[Floats | None, Decisions]] | None = None
    ranges: Callable[[Recipe, Observed], Range] | None = None

    def decision(self, protocol: Recipe, observed: Observed) -> Decision:
        """Scores and decisions under ``protocol``."""
        if self.decide is not None:
            scores, decisions = self.decide(protocol, observed)
            return scores, decisions, None if scores is None else Lows.of(scores, scores)
        if not observed.bounded:
            known = self.scores(protocol, observed)
            return known, decided(protocol, known, observed.item_offsets, observed.right), Lows.of(known, known)
        low, high = self.range(protocol, observed)
        return high, decided_between(protocol, (low, high), observed.item_offsets, observed.right), Lows.of(low, high)

    def range(self, protocol: Recipe, observed: Observed) -> Range:
        """The lowest and the highest that every score may be; NaN where it is missing, or not known."""
        if self.ranges is not None:
            return self.ranges(protocol, observed)
        bounds = [part.at_most for part in observed.parts() if part.at_most is not None]
        scores = self.scores(protocol, observed)
        if not bounds:
            return scores, scores
        item = row_of(observed.item_offsets)
        in_item = np.nan_to_num(reduce_rows(np.maximum, np.any(bounds, axis=0), observed.item_offsets))
        return not_known(scores, in_item[item])


@cache
def combiner(reading: str) -> Combiner:
    """The combiner of the reading of that name (:data:`choicewise.protocols.readings.READINGS`)."""
    return cast(Combiner, import_module(f"{__name__}.{reading.replace('-', '_')}").COMBINER)
