"""Does the model prefer a position (a letter) whatever the choice there, or choose the same in every order?"""

import math
from dataclasses import dataclass

import numpy as np

from choicewise.scoring.ragged import Integers


@dataclass(frozen=True, slots=True)
class PositionBias:
    """How unevenly the model treats the positions.

    ``recalls``: per position, the share of the items with the right choice there that are predicted right; NaN without
    such items.  ``rstd``: their standard deviation (over n), 0 without bias (Zheng et al. 2024; LLM-MCQ-Bias@da14c48).
    ``chi_square`` and ``p``: predictions per position against right choices per position.  The test is conservative,
    because right predictions follow the right choices.  NaN when fewer than two positions ever hold a right choice.
    ``n``: items with a prediction.
    """

    recalls: tuple[float, ...]
    rstd: float
    chi_square: float
    p: float
    n: int


def position_bias(predictions: Integers, gold: Integers) -> PositionBias:
    """Position bias of predicted choices against right ones, indices [items]; -1 (no prediction) does not count.

    For items with one right choice.  A prediction at a position that is never right makes ``chi_square`` infinite.
    """
    from scipy.special import chdtrc

    known = predictions >= 0
    predicted, right = predictions[known], gold[known]
    n, positions = len(right), int(max(predicted.max(), right.max())) + 1 if known.any() else 0
    expected = np.bincount(right, minlength=positions)
    hits = np.bincount(right[predicted == right], minlength=positions)
    counts = np.bincount(predicted, minlength=positions)
    used = expected > 0
    recalls = np.divide(hits, expected, out=np.full(positions, np.nan), where=used)
    if used.sum() < 2:
        return PositionBias(tuple(recalls.tolist()), math.nan, math.nan, math.nan, n)
    deviations = ((counts[used] - expected[used]) ** 2 / expected[used]).sum()
    statistic = math.inf if counts[~used].any() else float(deviations)
    p = float(chdtrc(used.sum() - 1, statistic))
    return PositionBias(tuple(recalls.tolist()), float(recalls[used].std()), statistic, p, n)


def permutation_consistency(predictions: Integers) -> float:
    """Share of items with the same prediction in every order of the options; NaN when no item has all predictions.

    ``predictions``: the option chosen, by its index in the item, int64 [orders, items]; an item with -1 in any
    order does not count.
    """
    known = (predictions >= 0).all(axis=0)
    same = (predictions == predictions[:1]).all(axis=0)
    return float(same[known].mean()) if known.any() else math.nan
