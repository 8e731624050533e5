"""Do longer choices score better or worse, whatever they say?"""

from __future__ import annotations

import numpy as np

from choicewise.scoring.ragged import Floats, Integers


def length_correlations(scores: Floats, lengths: Floats, item_offsets: Integers) -> Floats:
    """Spearman's correlation between score and length among the choices of each item, float64 [items].

    NaN for an item with a missing choice, or whose choices all have the same length or score.
    """
    found = np.full(len(item_offsets) - 1, np.nan)
    for count in np.unique(np.diff(item_offsets)):
        if count > 1:
            alike = np.flatnonzero(np.diff(item_offsets) == count)
            rows = item_offsets[alike][:, None] + np.arange(count)
            found[alike] = _correlations(_ranks(scores[rows]), _ranks(lengths[rows]))
    return found


def length_correlation(scores: Floats, lengths: Floats, item_offsets: Integers) -> float:
    """Mean over items of Spearman's correlation between score and length among the item's choices.

    All choices are compared within their item, never across items.  Items with a missing choice, or whose choices all
    have the same length or score, say nothing and are left out; NaN when none is left.
    """
    rhos = length_correlations(scores, lengths, item_offsets)
    known = rhos[~np.isnan(rhos)]
    return float(np.mean(known)) if len(known) else float("nan")


def _ranks(values: Floats) -> Floats:
    """Average ranks within each row, less their mean; [items, choices].  A row with a NaN is NaN."""
    left, right = values[:, :, None], values[:, None, :]
    ranks = ((left > right) - (left < right).astype(np.float64)).sum(axis=2) / 2
    return np.where(np.isnan(values).any(axis=1, keepdims=True), np.nan, ranks)


def _correlations(left: Floats, right: Floats) -> Floats:
    spread = np.sqrt((left**2).sum(axis=1) * (right**2).sum(axis=1))
    return np.divide((left * right).sum(axis=1), spread, out=np.full(len(left), np.nan), where=spread > 0)
