"""Do longer choices score better or worse, whatever they say?"""

import numpy as np

from choicewise.scoring.ragged import Floats, Integers, by_length


def length_correlations(scores: Floats, lengths: Floats, item_offsets: Integers) -> Floats:
    """Spearman's correlation between score and length among the choices of each item, float64 [items].

    NaN for an item with a missing choice, or whose choices all have the same length or score.
    """
    correlations = np.full(len(item_offsets) - 1, np.nan)
    for items, rows in by_length(item_offsets):
        left, right = _ranks(scores[rows]), _ranks(lengths[rows])
        spread = np.sqrt((left**2).sum(axis=1) * (right**2).sum(axis=1))
        none = np.full(len(items), np.nan)
        correlations[items] = np.divide((left * right).sum(axis=1), spread, out=none, where=spread > 0)
    return correlations


def _ranks(values: Floats) -> Floats:
    """Average ranks within each row minus their mean, float64 [items, choices].  A row with a NaN is NaN."""
    left, right = values[:, :, None], values[:, None, :]
    ranks = ((left > right) - (left < right).astype(np.float64)).sum(axis=2) / 2
    return np.where(np.isnan(values).any(axis=1, keepdims=True), np.nan, ranks)
