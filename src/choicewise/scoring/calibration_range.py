"""The calibrations of :mod:`choicewise.scoring.calibration` of log-probabilities that are known between bounds alone.

Each label, view and item is taken to be anything between its bounds by itself, and so is a prior: what comes out holds
the truth, and can be wider than need be.
"""

from collections.abc import Callable, Sequence

import numpy as np

from choicewise.scoring.calibration import option_orders
from choicewise.scoring.lows import Range
from choicewise.scoring.ragged import Floats, Integers, by_length


def calibrated_range(
    name: str, views: str, parts: tuple[Sequence[Floats], Sequence[Floats]], item_offsets: Integers
) -> Range:
    """The lowest and the highest that :func:`~choicewise.scoring.calibration.calibrated` may be, float64 [rows] each.

    ``parts``: the lowest and the highest log P(label) of the options in each view, float64 [rows] each.
    """
    low, high = np.full(int(item_offsets[-1]), np.nan), np.full(int(item_offsets[-1]), np.nan)
    for _, rows in by_length(item_offsets):
        ends = tuple(np.stack([part[rows] for part in end], axis=1) for end in parts)
        with np.errstate(invalid="ignore"):  # where a label is impossible or missing: NaN
            low[rows], high[rows] = _calibrated(name, views, (ends[0], ends[1]))
    either = np.isnan(low) | np.isnan(high)
    return np.where(either, np.nan, low), np.where(either, np.nan, high)


def share_range(scores: Range) -> Range:
    """The lowest and the highest log share of each label: it alone up and all others down, and the reverse."""
    low, high = np.empty_like(scores[0]), np.empty_like(scores[0])
    with np.errstate(invalid="ignore"):
        for label in range(low.shape[-1]):
            for own, others, shares in ((*scores, low), (*reversed(scores), high)):
                total = others.copy()
                total[..., label] = own[..., label]
                shares[..., label] = own[..., label] - np.logaddexp.reduce(total, axis=-1)
    # what is impossible has no share, even where all others may be impossible, too
    low = np.where(np.isnan(low) & (scores[0] == -np.inf) & ~np.isnan(high), -np.inf, low)
    return low, high


def _calibrated(name: str, views: str, observed: Range) -> Range:
    """Of items with the same number of options: float64 [items, views, options] to [items, options], twice."""
    given = _each(observed, lambda each: each[:, 0])
    if name == "batch":
        return _without(given, _mean_of_known(share_range(given)))
    if name == "contextual":
        return _without(given, _view_mean(_each(observed, lambda each: each[:, 1:])))
    orders = option_orders(views, observed[0].shape[2], observed[0].shape[1])
    if orders is None:
        return _each(given, lambda each: np.full_like(each, np.nan))
    ordered = _each(observed, lambda each: each[:, : len(orders)])
    if name == "permutation":
        return _view_mean(ordered)
    by_label = _each(ordered, lambda each: np.take_along_axis(each, orders[None], axis=-1))
    mean_shares = _each(share_range(by_label), lambda each: each.mean(axis=1))
    return _without(given, _mean_of_known(share_range(mean_shares)))


def _each(ends: Range, function: Callable[[Floats], Floats]) -> Range:
    return function(ends[0]), function(ends[1])


def _view_mean(scores: Range) -> Range:
    views = scores[0].shape[1]
    return _each(share_range(scores), lambda each: np.logaddexp.reduce(each, axis=1) - np.log(views))


def _without(scores: Range, prior: Range) -> Range:
    """A score is lowest where its prior is highest."""
    shares = share_range(scores)
    return shares[0] - prior[1], shares[1] - prior[0]


def _mean_of_known(shares: Range) -> Range:
    """Over the rows that are not missing, float64 [labels] each; NaN when all are."""
    known = ~np.isnan(shares[0] + shares[1]).any(axis=-1)
    count = int(known.sum())
    if not count:
        return _each(shares, lambda each: np.full(each.shape[-1], np.nan))
    return _each(shares, lambda each: np.logaddexp.reduce(each[known], axis=0) - np.log(count))
