"""Calibrated and permuted label scores of items with any number of options.

Labels are calibrated among items with as many options: how a label is liked depends on which others there are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import numpy as np

from choicewise.scoring.calibration import batch, label_prior, log_shares, without
from choicewise.scoring.permutation import all_orders, cyclic_orders, permutation_mean
from choicewise.scoring.ragged import Floats, Integers

ORDERS: Mapping[str, tuple[Callable[[int], int], Callable[[int], Integers]]] = MappingProxyType(
    {
        "cyclic": (int, cyclic_orders),
        "cyclic-5%": (int, cyclic_orders),
        "full": (math.factorial, all_orders),
    }
)
"""Name of the views → how many orders so many options have, and which."""


def calibrated(name: str, views: str, parts: Sequence[Floats], item_offsets: Integers) -> Floats:
    """Scores of the options under the calibration ``name``, log-probabilities less a prior, float64 [rows].

    ``parts``: log P(label) of the options in each view of their item, float64 [rows] each, by option and not by label;
    NaN where an item has no such view.  ``item_offsets``: where each item's rows start, and where the last ones end.  NaN in
    the result: the item lacks what is needed, or no item with as many options tells the prior.
    """
    found = np.full(int(item_offsets[-1]), np.nan)
    counts = np.diff(item_offsets)
    for options in np.unique(counts[counts > 0]).tolist():
        rows = item_offsets[:-1][counts == options][:, None] + np.arange(options)
        seen = np.stack([part[rows] for part in parts], axis=1)
        with np.errstate(invalid="ignore"):  # where a label is impossible or missing: NaN
            found[rows] = _CALIBRATED[name](seen, views)
    return found


def order_predictions(views: str, parts: Sequence[Floats], item_offsets: Integers) -> Integers:
    """The likeliest option of every item in each order, int64 [orders, items]; -1 where one is missing.

    Items have fewer orders than there are parts where others have more options; what they lack repeats their first.
    """
    found = np.full((len(parts), len(item_offsets) - 1), -1, dtype=np.int64)
    counts = np.diff(item_offsets)
    for options in np.unique(counts[counts > 0]).tolist():
        mine = np.flatnonzero(counts == options)
        rows = item_offsets[:-1][mine][:, None] + np.arange(options)
        seen = np.stack([part[rows] for part in parts])
        best = np.where(np.isnan(seen).any(axis=-1), -1, seen.argmax(axis=-1))
        orders = ORDERS[views][0](options)
        best[orders:] = best[0]
        found[:, mine] = best if orders <= len(parts) else -1
    return found


def _batch(seen: Floats, views: str) -> Floats:
    return batch(seen[:, 0])


def _contextual(seen: Floats, views: str) -> Floats:
    """With the content-free inputs of each item, which differ where the header or the shots do."""
    neutral = log_shares(seen[:, 1:])
    return without(seen[:, 0], np.logaddexp.reduce(neutral, axis=1) - np.log(neutral.shape[1]))


def _pride(seen: Floats, views: str) -> Floats:
    labels, _ = _by_label(seen, views)
    return np.full_like(seen[:, 0], np.nan) if labels is None else without(seen[:, 0], label_prior(labels))


def _permutation(seen: Floats, views: str) -> Floats:
    labels, orders = _by_label(seen, views)
    return np.full_like(seen[:, 0], np.nan) if labels is None else permutation_mean(labels, orders)


def _by_label(seen: Floats, views: str) -> tuple[Floats | None, Integers]:
    """The scores under the label that each option had, float64 [items, orders, labels]; None where no item has all."""
    options = seen.shape[-1]
    count, list_orders = ORDERS[views]
    if count(options) > seen.shape[1]:
        return None, np.empty((0, options), dtype=np.int64)
    orders = list_orders(options)
    return np.take_along_axis(seen[:, : len(orders)], orders[None], axis=-1), orders


_CALIBRATED: Mapping[str, Callable[[Floats, str], Floats]] = MappingProxyType(
    {"batch": _batch, "contextual": _contextual, "pride": _pride, "permutation": _permutation}
)

NOISE: Mapping[str, float] = MappingProxyType(
    {"none": 1.0, "permutation": 2.0, "batch": 3.0, "contextual": 3.0, "pride": 3.0}
)
"""How far, at most, a score moves against another of its item for each nat that any log-probability may be off.

A share moves by 2, its own nat and the sum's; against another option of the item the sum's is the same, but a mean of
shares of different contexts has each its own.  A prior is such a mean: 1 + 2.
"""
