"""Calibrate scores of labels against a prior or over several orders, and bound the result.

The corrections take and return log-probabilities of a fixed set of labels, float64 [items, labels]
(nats, normalised over the labels or not).  Items with a missing label are NaN in the result and do
not count in an estimate.  :func:`calibrated` takes items with any number of options, and corrects
those with the same number together, because the preference for a label depends on the other labels.

Ranges have shape [2, ...]: the lowest and the highest value.  Every label, view, item and prior is
taken to be anything between its bounds by itself, so a range contains the truth but can be wider
than necessary.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from choicewise.protocols.readings import MOST, VIEWS
from choicewise.scoring.observed import Floats, Integers, Range, by_length, known_range


def calibrated_range(
    name: str, views: str, parts: tuple[Sequence[Floats], Sequence[Floats]], item_offsets: Integers
) -> Range:
    """Return the lowest and the highest values of :func:`calibrated`, float64 [rows] each.

    ``parts``: the lowest and the highest log P(label) of the options in each view, float64 [rows]
    each.
    """
    ends = np.full((2, int(item_offsets[-1])), np.nan)
    observed = np.array(parts)
    for _, rows in by_length(item_offsets):
        by_item = np.moveaxis(observed[:, :, rows], 1, 2)
        # An impossible or a missing label gives NaN, a missing item.
        with np.errstate(invalid="ignore"):
            ends[:, rows] = _calibrated_range(name, views, by_item)
    return known_range(ends[0], ends[1])


def log_shares(scores: Floats) -> Floats:
    """Compute log softmax over the labels: the probabilities along the last axis sum to 1.

    NaN if all labels are impossible, since they have no shares.
    """
    with np.errstate(invalid="ignore"):
        return scores - np.logaddexp.reduce(scores, axis=-1, keepdims=True)


def contextual(scores: Floats, neutral: Floats) -> Floats:
    """Apply contextual calibration, log p - log p̂ (Zhao et al. 2021).

    p̂ is the mean over content-free inputs such as "N/A", "" and "[MASK]".  ``neutral``: the
    labels' scores after these inputs, float64 [inputs, labels].
    """
    return without(scores, _log_mean_of_known(log_shares(neutral)))


def batch(scores: Floats) -> Floats:
    """Apply batch calibration: contextual calibration with the evaluated items as the inputs.

    The method of Zhou et al. 2024 is transductive: an item's result depends on the other items in
    the batch, and a batch of one item gives all zeros.
    """
    return contextual(scores, scores)


def label_prior(permuted: Floats) -> Floats:
    """Estimate PriDe's prior, the model's preference for labels, in nats, float64 [labels].

    ``permuted``: the labels' scores under every cyclic order of the options, float64 [items,
    orders, labels].  Over the orders an option has every label once, so the average over them
    depends on the labels alone (Zheng et al. 2024; LLM-MCQ-Bias debias_pride.py@da14c48).
    """
    return _log_mean_of_known(log_shares(log_shares(permuted).mean(axis=1)))


def without(scores: Floats, prior: Floats) -> Floats:
    """Compute log P(label) - log prior(label), float64 [items, labels].

    It is PriDe with the prior of :func:`label_prior`.  NaN if a label is impossible both here and
    under the prior.
    """
    with np.errstate(invalid="ignore"):
        return log_shares(scores) - prior


def view_mean(scores: Floats) -> Floats:
    """Compute log of the mean of P(label) over the views of an item, float64 [items, labels].

    ``scores``: float64 [items, views, labels].  If the last axis holds the options, each under the
    label it has in the view's order, this is the mean over permutations (Zheng et al. 2024).
    """
    return np.logaddexp.reduce(log_shares(scores), axis=1) - np.log(scores.shape[1])


def view_geometric_mean(scores: Floats) -> Floats:
    """Compute log P(label) of the geometric mean over the views of an item, made to sum to 1.

    Takes and returns arrays as :func:`view_mean`.  A share below 1e-12 counts as 1e-12, so that one
    view alone makes no option impossible (Mad-Labs-HQ/sglang,
    srt/entrypoints/systemone/calibration.py@8ad8a45b).
    """
    return log_shares(np.maximum(log_shares(scores), _LEAST).mean(axis=1))


def calibrated(name: str, views: str, parts: Sequence[Floats], item_offsets: Integers) -> Floats:
    """Return the options' scores under calibration ``name``, in nats, float64 [rows].

    ``parts``: log P(label) of the options in each view of their item, float64 [rows] each, ordered
    by option and not by label; NaN if an item has no such view.  The result is NaN if the item
    lacks a view, or if no item with the same number of options gives the prior.
    """
    scores = np.full(int(item_offsets[-1]), np.nan)
    for _, rows in by_length(item_offsets):
        observed = np.stack([part[rows] for part in parts], axis=1)
        # An impossible or a missing label gives NaN, a missing item.
        with np.errstate(invalid="ignore"):
            scores[rows] = _calibrated(name, views, observed)
    return scores


def order_predictions(
    views: str,
    parts: Sequence[Floats],
    item_offsets: Integers,
    lows: Sequence[Floats] | None = None,
) -> Integers:
    """Predict the likeliest option of every item in each order, int64 [orders, items].

    The prediction is -1 if an option is missing.  ``lows``: the lowest values of ``parts``; it is
    -1 also if they leave open which option is the likeliest.  An item with fewer orders than
    ``parts``, because other items have more options, repeats its first prediction.
    """
    predictions = np.full((len(parts), len(item_offsets) - 1), -1, dtype=np.int64)
    for items, rows in by_length(item_offsets):
        option_count = rows.shape[1]
        orders = _option_orders(views, option_count, len(parts))
        if orders is None:
            continue
        observed = np.stack([part[rows] for part in parts])
        lowest = np.stack([part[rows] for part in lows or parts])
        best = lowest.argmax(axis=-1)
        is_best = np.arange(option_count) == best[..., None]
        best_rival = np.where(is_best, -np.inf, observed).max(axis=-1)
        unsure = (best_rival > lowest.max(axis=-1)) | np.isnan(observed).any(axis=-1)
        best[unsure] = -1
        best[len(orders) :] = best[0]
        predictions[:, items] = best
    return predictions


def answer_places(views: str, predictions: Integers, item_offsets: Integers) -> Integers:
    """Return where the predicted option stood in each order, int64 [orders, items]; -1 for none."""
    places = np.full_like(predictions, -1)
    for items, rows in by_length(item_offsets):
        orders = _option_orders(views, rows.shape[1], len(predictions))
        if orders is None:
            continue
        label_of_option = np.argsort(orders, axis=1)
        # Beyond its orders an item repeats the prediction of the first one.
        order = np.arange(len(predictions))
        order[len(orders) :] = 0
        predicted = predictions[:, items]
        labels = label_of_option[order[:, None], np.maximum(predicted, 0)]
        places[:, items] = np.where(predicted < 0, -1, labels)
    return places


def _share_range(scores: Floats) -> Floats:
    """Compute the lowest and the highest log share of each label, [2, ..., labels].

    A share is lowest if its label's score is lowest and all others are highest, and the reverse.
    """
    shares = np.empty_like(scores)
    opposite = scores[::-1]
    with np.errstate(invalid="ignore"):
        for label in range(scores.shape[-1]):
            score = scores[..., label]
            total = opposite.copy()
            total[..., label] = score
            shares[..., label] = score - np.logaddexp.reduce(total, axis=-1)
    # An impossible label has no share, even if all others may be impossible, too.
    low, high = shares
    low[np.isnan(low) & (scores[0] == -np.inf) & ~np.isnan(high)] = -np.inf
    return shares


def _calibrated_range(name: str, views: str, observed: Floats) -> Floats:
    """Calibrate items with the same number of options.

    Takes the lowest and the highest scores, float64 [2, items, views, options], and returns float64
    [2, items, options].
    """
    first_view = observed[:, :, 0]
    if name == "batch":
        return _range_without(first_view, _mean_range_of_known(_share_range(first_view)))
    if name == "contextual":
        return _range_without(first_view, _view_mean_range(observed[:, :, 1:]))
    orders = _option_orders(views, observed.shape[3], observed.shape[2])
    if orders is None:
        return np.full_like(first_view, np.nan)
    ordered = observed[:, :, : len(orders)]
    if name == "permutation":
        return _view_mean_range(ordered)
    if name == "permutation-geometric":
        return _share_range(np.maximum(_share_range(ordered), _LEAST).mean(axis=2))
    by_label = np.take_along_axis(ordered, orders[None, None], axis=-1)
    mean_shares = _share_range(by_label).mean(axis=2)
    return _range_without(first_view, _mean_range_of_known(_share_range(mean_shares)))


def _view_mean_range(scores: Floats) -> Floats:
    return np.logaddexp.reduce(_share_range(scores), axis=2) - np.log(scores.shape[2])


def _range_without(scores: Floats, prior: Floats) -> Floats:
    # A result is lowest if its prior is highest.
    return _share_range(scores) - prior[::-1]


def _mean_range_of_known(shares: Floats) -> Floats:
    """Average over the items that are not missing: [2, items, labels] to [2, 1, labels]."""
    is_known = ~np.isnan(shares).any(axis=(0, 2))
    count = int(is_known.sum())
    if not count:
        return np.full((2, 1, shares.shape[2]), np.nan)
    total = np.logaddexp.reduce(shares[:, is_known], axis=1, keepdims=True)
    return total - np.log(count)


def _calibrated(name: str, views: str, observed: Floats) -> Floats:
    """Calibrate items with as many options: [items, views, options] to [items, options]."""
    first_view = observed[:, 0]
    if name == "batch":
        return batch(first_view)
    if name == "contextual":
        # Every item has content-free inputs of its own: they differ if the header or the shots do.
        return without(first_view, view_mean(observed[:, 1:]))
    orders = _option_orders(views, observed.shape[2], observed.shape[1])
    if orders is None:
        return np.full_like(first_view, np.nan)
    ordered = observed[:, : len(orders)]
    if name == "permutation":
        return view_mean(ordered)
    if name == "permutation-geometric":
        return view_geometric_mean(ordered)
    by_label = np.take_along_axis(ordered, orders[None], axis=-1)
    return without(first_view, label_prior(by_label))


def _option_orders(views: str, options: int, most: int) -> Integers | None:
    """Return the option under each label in every order, int64 [orders, options].

    None if there are more than ``most`` orders.
    """
    # Not listed and then counted, because 12 options have half a billion orders.
    if views == "full" and options > MOST:
        return None
    orders = np.array(VIEWS[views](options, True), dtype=np.int64)
    return orders if len(orders) <= most else None


def _log_mean_of_known(shares: Floats) -> Floats:
    """Compute log of the mean probability over the items that are not missing, float64 [labels]."""
    present = shares[~np.isnan(shares).any(axis=-1)]
    if not len(present):
        return np.full(shares.shape[-1], np.nan)
    return np.logaddexp.reduce(present, axis=0) - np.log(len(present))


_LEAST = math.log(1e-12)

NOISE: Mapping[str, float] = {
    "none": 1.0,
    "permutation": 2.0,
    "permutation-geometric": 2.0,
    "batch": 3.0,
    "contextual": 3.0,
    "pride": 3.0,
}
"""How far a score moves relative to its item's others, at most, per nat of error everywhere.

A share moves by 2: 1 for the option and 1 for the sum.  The options of one context have the same
sum, which leaves 1, but a mean over contexts has a sum for each.  A prior is such a mean: 1 + 2.
"""

ACROSS_ITEMS = ("batch", "pride")
"""Calibrations in which the result of an item depends on other items."""
