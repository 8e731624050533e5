"""The lowest that scores may be, where of some log-probabilities no more than an upper bound is known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from choicewise.scoring.ragged import Floats, Integers

Range = tuple[Floats, Floats]
"""The lowest and the highest that every score may be, float64 [rows] each: the same where it is known."""


@dataclass(frozen=True, eq=False)
class Lows:
    """Of ``count`` scores those that are not known: ``values`` [unknown], the lowest that they may be, at ``places``.

    The scores themselves are the highest that they may be.
    """

    count: int
    places: Integers
    values: Floats

    @classmethod
    def of(cls, low: Floats, high: Floats) -> Lows:
        """The scores of ``high`` that ``low`` has lower, [rows] each."""
        places = np.flatnonzero(low < high)
        return cls(len(high), places, low[places])

    @classmethod
    def joined(cls, parts: Sequence[Lows]) -> Lows:
        """Those of all parts, in order."""
        starts = np.cumsum([0, *(part.count for part in parts)])
        places = [part.places + start for part, start in zip(parts, starts, strict=False)]
        return cls(int(starts[-1]), np.concatenate(places), np.concatenate([part.values for part in parts]))

    def filled(self, scores: Floats) -> Floats:
        """The lowest that all ``scores`` [rows] may be."""
        if not len(self.places):
            return scores
        low = scores.copy()
        low[self.places] = self.values
        return low


def not_known(scores: Floats, bounds: Floats) -> Range:
    """The scores but for those where ``bounds`` (bool or 0 and 1, [rows]) says that they are made of upper bounds."""
    known = np.where(bounds, np.nan, scores)
    return known, known
