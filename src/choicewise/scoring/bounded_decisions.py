"""Decisions where some scores are known between bounds alone: made only where all that the bounds allow agree."""

from dataclasses import replace

import numpy as np

from choicewise.protocols.protocol import Protocol
from choicewise.scoring.credits import CREDITS, compared
from choicewise.scoring.decisions import Decisions, argmax, greedy_match
from choicewise.scoring.lows import Range
from choicewise.scoring.ragged import Floats, Integers, Mask, reduce_rows, row_of


def decided(protocol: Protocol, scores: Floats, item_offsets: Integers, right: Mask) -> Decisions:
    """What follows from the ``scores`` [rows], of which item i has those between its offsets."""
    if protocol.decision == "greedy-match":
        return greedy_match(scores, item_offsets, right)
    return CREDITS[protocol.metric](scores, item_offsets, right, protocol.ties)


def decided_between(protocol: Protocol, scores: Range, item_offsets: Integers, right: Mask) -> Decisions:
    """The same from the lowest and the highest that every score may be.

    An item is decided where one choice is the best whatever the others are; one that is equal to a bound counts as the
    best, since an upper bound is reached in a tie at most.  All other items with a bound are missing.  Credits that are
    no comparison of scores need every score.
    """
    low, high = scores
    decisions = decided(protocol, low, item_offsets, right)
    among = compared(protocol.metric, item_offsets, right)
    bounds = among & (low < high)
    if protocol.decision == "greedy-match" or CREDITS[protocol.metric] not in _COMPARING:
        return _missing(decisions, np.nan_to_num(reduce_rows(np.maximum, bounds, item_offsets)) > 0)
    item = row_of(item_offsets)
    best = reduce_rows(np.maximum, np.where(among, low, -np.inf), item_offsets)[item]
    above, at_top = among & (high > best), among & (low == best)
    tops, aboves, both = (reduce_rows(np.add, rows, item_offsets) for rows in (at_top, above, at_top & above))
    alone = (tops == 1) & (aboves == 1) & (both == 1)
    rival = reduce_rows(np.maximum, np.where(among & ~at_top, high, -np.inf), item_offsets)
    bounded = np.nan_to_num(reduce_rows(np.maximum, bounds, item_offsets)) > 0
    with np.errstate(invalid="ignore"):
        least = reduce_rows(np.maximum, np.where(among, low, -np.inf), item_offsets) - rival
    margin = np.where(bounded & ~decisions.tied & ~np.isnan(decisions.margin), least, decisions.margin)
    return _missing(replace(decisions, margin=margin), (np.nan_to_num(aboves) > 0) & ~alone)


_COMPARING = (argmax, CREDITS["mc1"])


def _missing(decisions: Decisions, items: Mask) -> Decisions:
    """The same without the decisions about ``items``."""
    return Decisions(
        prediction=np.where(items, -1, decisions.prediction),
        credit=np.where(items, np.nan, decisions.credit),
        tied=decisions.tied & ~items,
        margin=np.where(items, np.nan, decisions.margin),
    )
