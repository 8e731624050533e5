"""Do longer choices score better or worse, whatever they say?"""

import math
from typing import Final

import numpy as np

from choicewise.scoring.ragged import Floats, Integers, by_length

AT_ONCE: Final = 1 << 18
"""Pairs of choices that are compared together: some 10 MB."""


def length_correlations(scores: Floats, lengths: Floats, item_offsets: Integers) -> Floats:
    """Spearman's correlation between score and length among the choices of each item, float64 [items].

    NaN for an item with a missing choice, or whose choices all have the same length or score.
    """
    correlations = np.full(len(item_offsets) - 1, np.nan)
    for items, rows in by_length(item_offsets):
        step = max(1, AT_ONCE // rows.shape[1] ** 2)
        for start in range(0, len(items), step):
            part = slice(start, start + step)
            correlations[items[part]] = _correlations(scores[rows[part]], lengths[rows[part]])
    return correlations


def length_p(correlations: Floats) -> float:
    """How likely so large a mean correlation is where every item's could as well have the other sign; two-sided.

    The normal limit of the sign-flip test with a correction for continuity: no correlation is greater than 1.
    ``correlations``: float64 [items] without NaN.
    """
    spread = math.sqrt(float(np.square(correlations).sum()))
    beyond = max(0.0, abs(float(correlations.sum())) - 1)
    return math.erfc(beyond / spread / math.sqrt(2)) if spread else math.nan


def _correlations(scores: Floats, lengths: Floats) -> Floats:
    """The same of items with equally many choices: float64 [items] from [items, choices]."""
    left, right = _ranks(scores), _ranks(lengths)
    spread = np.sqrt((left**2).sum(axis=1) * (right**2).sum(axis=1))
    return np.divide((left * right).sum(axis=1), spread, out=np.full(len(left), np.nan), where=spread > 0)


def _ranks(values: Floats) -> Floats:
    """Average ranks within each row minus their mean, float64 [items, choices].  A row with a NaN is NaN."""
    left, right = values[:, :, None], values[:, None, :]
    ranks = ((left > right) - (left < right).astype(np.float64)).sum(axis=2) / 2
    return np.where(np.isnan(values).any(axis=1, keepdims=True), np.nan, ranks)
