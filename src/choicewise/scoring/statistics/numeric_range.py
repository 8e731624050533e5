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


def credit_range(
    scores: Floats, item_offsets: Integers, gold: Mask, decisions: Decisions, epsilon: float | Floats
) -> tuple[Floats, Floats, Mask]:
    """Each item's least and greatest credit when every score is off by up to ``epsilon``, and whether it is open.

    ``scores`` and ``gold`` have shape [rows]; ``decisions`` are made from them.  ``epsilon``, one for all or [rows], is
    in the unit of the scores: the greatest difference seen between two ways of computing the same score on this model.
    An item is open when more than one of its choices could be the best.
    """
    item, epsilon = row_of(item_offsets), np.broadcast_to(epsilon, scores.shape)
    known = np.where(np.isnan(epsilon), 0.0, epsilon)
    best, pessimistic = (
        reduce_rows(np.maximum, scores, item_offsets),
        reduce_rows(np.maximum, scores - known, item_offsets),
    )
    could_win = scores + known > pessimistic[item]
    # Equal infinities stay equal whatever is added to them, but where they come from is rounding as well.
    could_win |= (scores == best[item]) & (known > 0)
    open_ = reduce_rows(np.add, could_win, item_offsets) > 1
    could_win |= scores == best[item]
    low = np.where(open_, 1 - reduce_rows(np.maximum, could_win & ~gold, item_offsets), decisions.credit)
    high = np.where(open_, reduce_rows(np.maximum, could_win & gold, item_offsets), decisions.credit)
    scored = ~decisions.missing
    low, high = np.minimum(low, decisions.credit), np.maximum(high, decisions.credit)
    return np.where(scored, low, np.nan), np.where(scored, high, np.nan), open_ & scored


def numeric_range(
    scores: Floats, item_offsets: Integers, gold: Mask, decisions: Decisions, epsilon: float | Floats
) -> NumericRange:
    """The range of accuracies that scores within ``epsilon`` of the given ones allow (see :func:`credit_range`)."""
    low, high, open_ = credit_range(scores, item_offsets, gold, decisions, epsilon)
    scored = ~decisions.missing
    if not scored.any():
        return NumericRange(math.nan, math.nan, math.nan, math.nan)
    means = (float(values[scored].mean()) for values in (low, decisions.credit, high, open_))
    return NumericRange(*means)
