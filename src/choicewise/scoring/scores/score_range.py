"""Between which numbers a score lies where of some log-probabilities no more than an upper bound is known."""

import numpy as np

from choicewise.scoring.continuations import Continuations
from choicewise.scoring.lows import Range
from choicewise.scoring.ragged import reduce_rows, row_of
from choicewise.scoring.scores import Score

COMPARING = ("constrained_greedy", "locally_renormalised")
"""Scores that don't simply rise with the choice's own log-probabilities: made of a bound they are not known.

``greedy`` looks at ranks alone, of which a bound does not take anything away.
"""

NULL_ALONE = ("domain_conditional",)
"""Scores that rise with the log-likelihood after the null context; all others fall."""


def score_range(score: Score, observed: Continuations, null: Continuations | None) -> Range:
    """The lowest and the highest score of every row, float64 [rows] each; NaN where it is missing or has no bounds.

    The true log-probabilities may be anything up to their bounds, each by itself.
    """
    if observed.at_most is None and (null is None or null.at_most is None):
        known = score(observed, null)
        return known, known
    if score.name in COMPARING:
        bounds = np.zeros(len(observed.text)) if observed.at_most is None else observed.at_most
        in_item = np.nan_to_num(reduce_rows(np.maximum, bounds, observed.item_offsets))
        known = np.where(in_item[row_of(observed.item_offsets)] > 0, np.nan, score(observed, null))
        return known, known
    lowest, highest = observed.lowest(), observed
    if null is None:
        low, high = score(lowest), score(highest)
    else:
        after = (null.lowest(), null) if score.name in NULL_ALONE else (null, null.lowest())
        low, high = score(lowest, after[0]), score(highest, after[1])
    either = np.isnan(low) | np.isnan(high)
    return np.where(either, np.nan, low), np.where(either, np.nan, high)
