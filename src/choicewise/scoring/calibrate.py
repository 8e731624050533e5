"""Calibrations and their ranges.

The corrections take and return scores of a fixed set of labels as log-probabilities, float64 [items, labels] (nats,
normalised over the labels or not).  Items with a missing label are NaN in the result and do not count in an estimate.
``calibrated`` applies one to items with any number of options: among items with the same number, because the preference
for a label depends on which others there are.

Each label, view and item is taken to be anything between its bounds by itself, and so is a prior: what comes out holds
the truth, and can be wider than need be.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from choicewise.protocols.readings import MOST, VIEWS
from choicewise.scoring.observed import Floats, Integers, Range, by_length


def calibrated_range(
    name: str, views: str, parts: tuple[Sequence[Floats], Sequence[Floats]], item_offsets: Integers
) -> Range:
    """The lowest and the highest that :func:`~choicewise.scoring.calibrate.calibrated` may be, float64 [rows] each.

    ``parts``: the lowest and the highest log P(label) of the options in each view, float64 [rows] each.
    """
    low, high = np.full(int(item_offsets[-1]), np.nan), np.full(int(item_offsets[-1]), np.nan)
    for _, rows in by_length(item_offsets):
        ends = tuple(np.stack([part[rows] for part in end], axis=1) for end in parts)
        with np.errstate(invalid="ignore"):  # where a label is impossible or missing: NaN
            low[rows], high[rows] = _calibrated_range(name, views, (ends[0], ends[1]))
    either = np.isnan(low) | np.isnan(high)
    return np.where(either, np.nan, low), np.where(either, np.nan, high)


def log_shares(scores: Floats) -> Floats:
    """log softmax over the labels, float64 as ``scores``: each row's probabilities sum to 1."""
    with np.errstate(
        invalid="ignore"
    ):  # labels that are all impossible have no shares: NaN, missing
        return scores - np.logaddexp.reduce(scores, axis=-1, keepdims=True)


def contextual(scores: Floats, neutral: Floats) -> Floats:
    """Contextual calibration, log p - log p̂, with p̂ the mean over content-free inputs (Zhao et al. 2021).

    ``neutral``: the labels' scores after inputs such as "N/A", "" and "[MASK]", float64 [inputs, labels].
    """
    return without(scores, _log_mean_of_known(log_shares(neutral)))


def batch(scores: Floats) -> Floats:
    """Batch calibration: contextual calibration with the evaluated items as the inputs (Zhou et al. 2024).

    Transductive: an item's result depends on which others are in the batch; a batch of one item gives all zeros.
    """
    return contextual(scores, scores)


def label_prior(permuted: Floats) -> Floats:
    """PriDe's prior: how the model prefers each label, log-probabilities, float64 [labels] (Zheng et al. 2024).

    ``permuted``: the labels' scores under every cyclic order of the options, float64 [items, orders, labels].  Over
    the orders each option has each label once, so the average over them depends on the labels alone
    (LLM-MCQ-Bias debias_pride.py@da14c48).
    """
    return _log_mean_of_known(log_shares(log_shares(permuted).mean(axis=1)))


def without(scores: Floats, prior: Floats) -> Floats:
    """log P(label) - log prior(label), float64 [items, labels]; PriDe with the prior that ``label_prior`` gives."""
    with np.errstate(invalid="ignore"):  # a label impossible here and everywhere: NaN, missing
        return log_shares(scores) - prior


def view_mean(scores: Floats) -> Floats:
    """log of the mean over several views of an item of P(label), float64 [items, labels].

    ``scores``: float64 [items, views, labels].  Where the last axis holds the options, each under the label it had in
    the view's order, it is the mean over cyclic or all permutations (Zheng et al. 2024).
    """
    return np.asarray(
        np.logaddexp.reduce(log_shares(scores), axis=1) - np.log(scores.shape[1]), dtype=np.float64
    )


def view_geometric_mean(scores: Floats) -> Floats:
    """log P(label) of the geometric mean over several views of an item, float64 [items, labels], made to sum to 1.

    ``scores`` as in :func:`view_mean`.  A share below 1e-12 counts as 1e-12, so that one view alone makes no option
    impossible (Mad-Labs-HQ/sglang, srt/entrypoints/systemone/calibration.py@8ad8a45b).
    """
    return log_shares(np.maximum(log_shares(scores), _LEAST).mean(axis=1))


def calibrated(name: str, views: str, parts: Sequence[Floats], item_offsets: Integers) -> Floats:
    """Scores of the options under the calibration ``name``, log-probabilities minus a prior's, float64 [rows].

    ``parts``: log P(label) of the options in each view of their item, float64 [rows] each, by option and not by label;
    NaN where an item has no such view.  Item i has the rows ``item_offsets[i]:item_offsets[i + 1]``.  NaN in the
    result: the item lacks a view, or no item with the same number of options gives the prior.
    """
    scores = np.full(int(item_offsets[-1]), np.nan)
    for _, rows in by_length(item_offsets):
        with np.errstate(invalid="ignore"):  # where a label is impossible or missing: NaN
            scores[rows] = _calibrated(
                name, views, np.stack([part[rows] for part in parts], axis=1)
            )
    return scores


def order_predictions(
    views: str,
    parts: Sequence[Floats],
    item_offsets: Integers,
    lows: Sequence[Floats] | None = None,
) -> Integers:
    """The likeliest option of every item in each order, int64 [orders, items]; -1 where one is missing.

    ``lows``: the lowest that each of the ``parts`` may be; -1 also where it is not known which is the likeliest.
    An item with fewer orders than there are ``parts``, because others have more options, repeats its first prediction.
    """
    predictions = np.full((len(parts), len(item_offsets) - 1), -1, dtype=np.int64)
    for items, rows in by_length(item_offsets):
        observed = np.stack([part[rows] for part in parts])
        lowest = np.stack([part[rows] for part in lows or parts])
        best = lowest.argmax(axis=-1)
        others = np.where(np.arange(rows.shape[1]) == best[..., None], -np.inf, observed).max(
            axis=-1
        )
        unsure = (others > lowest.max(axis=-1)) | np.isnan(observed).any(axis=-1)
        best = np.where(unsure, -1, best)
        orders = _option_orders(views, rows.shape[1], len(parts))
        if orders is not None:
            best[len(orders) :] = best[0]
            predictions[:, items] = best
    return predictions


def answer_places(views: str, predictions: Integers, item_offsets: Integers) -> Integers:
    """Where the predicted options stood in each order, int64 [orders, items] as ``predictions``; -1 for none."""
    places = np.full_like(predictions, -1)
    for items, rows in by_length(item_offsets):
        orders = _option_orders(views, rows.shape[1], len(predictions))
        if orders is not None:
            place_of = np.argsort(orders, axis=1)
            own = np.minimum(np.arange(len(predictions)), len(orders) - 1)
            own = np.where(np.arange(len(predictions)) < len(orders), own, 0)
            predicted = predictions[:, items]
            places[:, items] = np.where(
                predicted < 0, -1, place_of[own[:, None], np.maximum(predicted, 0)]
            )
    return places


def _share_range(scores: Range) -> Range:
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


def _calibrated_range(name: str, views: str, observed: Range) -> Range:
    """Of items with the same number of options: float64 [items, views, options] to [items, options], twice."""
    given = _each(observed, lambda each: each[:, 0])
    if name == "batch":
        return _without(given, _mean_of_known(_share_range(given)))
    if name == "contextual":
        return _without(given, _view_mean(_each(observed, lambda each: each[:, 1:])))
    orders = _option_orders(views, observed[0].shape[2], observed[0].shape[1])
    if orders is None:
        return _each(given, lambda each: np.full_like(each, np.nan))
    ordered = _each(observed, lambda each: each[:, : len(orders)])
    if name == "permutation":
        return _view_mean(ordered)
    if name == "permutation-geometric":
        return _share_range(
            _each(_share_range(ordered), lambda each: np.maximum(each, _LEAST).mean(axis=1))
        )
    by_label = _each(ordered, lambda each: np.take_along_axis(each, orders[None], axis=-1))
    mean_shares = _each(_share_range(by_label), lambda each: each.mean(axis=1))
    return _without(given, _mean_of_known(_share_range(mean_shares)))


def _each(ends: Range, function: Callable[[Floats], Floats]) -> Range:
    return function(ends[0]), function(ends[1])


def _view_mean(scores: Range) -> Range:
    views = scores[0].shape[1]
    return _each(
        _share_range(scores), lambda each: np.logaddexp.reduce(each, axis=1) - np.log(views)
    )


def _without(scores: Range, prior: Range) -> Range:
    """A score is lowest where its prior is highest."""
    shares = _share_range(scores)
    return shares[0] - prior[1], shares[1] - prior[0]


def _mean_of_known(shares: Range) -> Range:
    """Over the rows that are not missing, float64 [labels] each; NaN when all are."""
    known = ~np.isnan(shares[0] + shares[1]).any(axis=-1)
    count = int(known.sum())
    if not count:
        return _each(shares, lambda each: np.full(each.shape[-1], np.nan))
    return _each(shares, lambda each: np.logaddexp.reduce(each[known], axis=0) - np.log(count))


def _calibrated(name: str, views: str, observed: Floats) -> Floats:
    """Of items with the same number of options: float64 [items, views, options] to float64 [items, options]."""
    given = observed[:, 0]
    if name == "batch":
        return batch(given)
    if (
        name == "contextual"
    ):  # with the content-free inputs of each item, which differ where header or shots do
        return without(given, view_mean(observed[:, 1:]))
    orders = _option_orders(views, observed.shape[2], observed.shape[1])
    if orders is None:
        return np.full_like(given, np.nan)
    ordered = observed[:, : len(orders)]
    if name == "permutation":
        return view_mean(ordered)
    if name == "permutation-geometric":
        return view_geometric_mean(ordered)
    return without(given, label_prior(np.take_along_axis(ordered, orders[None], axis=-1)))


def _option_orders(views: str, options: int, most: int) -> Integers | None:
    """For every order the option under each label, int64 [orders, options]; None where there are more than ``most``."""
    if views == "full" and options > MOST:
        return None  # not listed first, because 12 options have half a billion orders
    orders = np.array(VIEWS[views](options, True), dtype=np.int64)
    return orders if len(orders) <= most else None


def _log_mean_of_known(shares: Floats) -> Floats:
    """log of the mean probability over the rows that are not missing, float64 [labels]; NaN when all are."""
    known = shares[~np.isnan(shares).any(axis=-1)]
    if not len(known):
        return np.full(shares.shape[-1], np.nan)
    return np.asarray(np.logaddexp.reduce(known, axis=0) - np.log(len(known)), dtype=np.float64)


_LEAST = math.log(1e-12)

NOISE: Mapping[str, float] = {
    **{"none": 1.0, "permutation": 2.0, "permutation-geometric": 2.0},
    **{"batch": 3.0, "contextual": 3.0, "pride": 3.0},
}
"""The most that a score moves relative to the others of its item, per nat that every log-probability may be off.

A share moves by 2, its own nat and that of the sum.  The options of one context have the same sum, which leaves 1, but
a mean over contexts has a sum for each.  A prior is such a mean: 1 + 2.
"""

ACROSS_ITEMS = ("batch", "pride")
"""Calibrations in which the result of an item depends on other items."""
