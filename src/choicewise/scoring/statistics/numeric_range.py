"""How far rounding alone can move an accuracy."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from choicewise.scoring.decisions import Decisions
from choicewise.scoring.ragged import Floats, Integers, Mask, reduce_rows, row_of


@dataclass(frozen=True, slots=True)
class NumericRange:
    """Accuracy as decided (``point``), and the least and greatest it could be if every score is off by up to ε.

    ``undetermined``: share of the scored items whose best two scores are closer than 2 ε.
    """

    low: float
    point: float
    high: float
    undetermined: float


def numeric_range(scores: Floats, items: Integers, gold: Mask, decisions: Decisions, epsilon: float) -> NumericRange:
    """The range of accuracies that scores within ``epsilon`` of the given ones allow.

    ``scores`` and ``gold`` have shape [rows]; ``decisions`` are made from them.  ``epsilon`` is in the unit of the
    scores: the greatest difference seen between two ways of computing the same score on this model.
    """
    item = row_of(items)
    top = reduce_rows(np.maximum, scores, items)[item]
    with np.errstate(invalid="ignore"):  # equal infinities are caught by the comparison
        could_win = (scores == top) | (top - scores < 2 * epsilon)
    right_could_win = reduce_rows(np.maximum, could_win & gold, items)
    wrong_could_win = reduce_rows(np.maximum, could_win & ~gold, items)
    open_ = decisions.margin < 2 * epsilon
    scored = ~decisions.missing
    if not scored.any():
        return NumericRange(math.nan, math.nan, math.nan, math.nan)
    low = np.where(open_, 1 - wrong_could_win, decisions.credit)
    high = np.where(open_, right_could_win, decisions.credit)
    low, high = np.minimum(low, decisions.credit), np.maximum(high, decisions.credit)
    means = (float(values[scored].mean()) for values in (low, decisions.credit, high, open_))
    return NumericRange(*means)
