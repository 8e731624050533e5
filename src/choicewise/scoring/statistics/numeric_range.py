"""How far rounding alone can move an accuracy."""

import numpy as np

from choicewise.scoring.decisions import Decisions
from choicewise.scoring.ragged import Floats, Integers, Mask, reduce_rows, row_of


def credit_range(
    scores: Floats,
    item_offsets: Integers,
    gold: Mask,
    decisions: Decisions,
    epsilon: float | Floats,
    low: Floats | None = None,
) -> tuple[Floats, Floats, Mask]:
    """Each item's least and greatest credit when every score is off by up to ``epsilon``, and whether it is open.

    ``scores`` and ``gold`` have shape [rows]; ``decisions`` are made from them.  ``epsilon``, one for all or [rows], is
    in the unit of the scores: the greatest difference between two ways of computing the same score on this model.
    ``low``: the lowest that the scores may be, [rows], where some of them are upper bounds.
    An item is open when more than one of its choices could be the best.  An item that is missing has NaN and False, and
    so has one with a score whose error is not known (NaN), unless that is infinite: no error moves it.  One that only
    the bounds leave undecided has its credits.
    """
    low = scores if low is None else low
    bounds = low < scores
    item, epsilon = row_of(item_offsets), np.broadcast_to(epsilon, scores.shape)
    known = np.where(np.isinf(scores) & np.isnan(epsilon), 0.0, epsilon)
    bounded = ~np.isnan(reduce_rows(np.add, known, item_offsets))
    best = reduce_rows(np.maximum, scores, item_offsets)
    lowest_best = reduce_rows(np.maximum, low - known, item_offsets)
    could_win = scores + known > lowest_best[item]
    reaching = scores + known >= lowest_best[item]  # a bound can be reached, and then it ties
    rival = np.nan_to_num(reduce_rows(np.maximum, bounds & reaching, item_offsets)) > 0
    could_win |= reaching & rival[item]
    # Equal infinities stay equal whatever is added to them, but rounding may have caused them, too.
    could_win |= (scores == best[item]) & (known > 0)
    open_ = reduce_rows(np.add, could_win, item_offsets) > 1
    could_win |= scores == best[item]
    least = np.where(open_, 1 - reduce_rows(np.maximum, could_win & ~gold, item_offsets), decisions.credit)
    most = np.where(open_, reduce_rows(np.maximum, could_win & gold, item_offsets), decisions.credit)
    undecided = decisions.missing & ~np.isnan(best) & (np.nan_to_num(reduce_rows(np.maximum, bounds, item_offsets)) > 0)
    known_range = (~decisions.missing | undecided) & bounded
    least, most = np.fmin(least, decisions.credit), np.fmax(most, decisions.credit)
    scored = known_range & ~np.isnan(least) & ~np.isnan(most)
    return np.where(scored, least, np.nan), np.where(scored, most, np.nan), open_ & scored
