"""Calibrated and permuted label scores of items with any number of options.

Labels are calibrated among items with the same number of options, because the preference for a label depends on which
others there are.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType

import numpy as np

from choicewise.protocols.option_orders import MOST, VIEWS
from choicewise.scoring.calibration import batch, label_prior, view_mean, without
from choicewise.scoring.ragged import Floats, Integers


def calibrated(name: str, views: str, parts: Sequence[Floats], item_offsets: Integers) -> Floats:
    """Scores of the options under the calibration ``name``, log-probabilities minus a prior's, float64 [rows].

    ``parts``: log P(label) of the options in each view of their item, float64 [rows] each, by option and not by label;
    NaN where an item has no such view.  Item i has the rows ``item_offsets[i]:item_offsets[i + 1]``.  NaN in the
    result: the item lacks a view, or no item with the same number of options gives the prior.
    """
    scores = np.full(int(item_offsets[-1]), np.nan)
    for _, rows in _by_options(item_offsets):
        observed = np.stack([part[rows] for part in parts], axis=1)
        with np.errstate(invalid="ignore"):  # where a label is impossible or missing: NaN
            scores[rows] = _CALIBRATED[name](observed, views)
    return scores


def order_predictions(views: str, parts: Sequence[Floats], item_offsets: Integers) -> Integers:
    """The likeliest option of every item in each order, int64 [orders, items]; -1 where one is missing.

    An item with fewer orders than there are ``parts``, because others have more options, repeats its first prediction.
    """
    predictions = np.full((len(parts), len(item_offsets) - 1), -1, dtype=np.int64)
    for items, rows in _by_options(item_offsets):
        observed = np.stack([part[rows] for part in parts])
        best = np.where(np.isnan(observed).any(axis=-1), -1, observed.argmax(axis=-1))
        orders = _orders(views, rows.shape[1], len(parts))
        if orders is not None:
            best[len(orders) :] = best[0]
            predictions[:, items] = best
    return predictions


def _by_options(item_offsets: Integers) -> Iterator[tuple[Integers, Integers]]:
    """(items, their rows) for every number of options that items have, int64 [items] and [items, options]."""
    counts = np.diff(item_offsets)
    for options in np.unique(counts[counts > 0]).tolist():
        items = np.flatnonzero(counts == options)
        yield items, item_offsets[:-1][items][:, None] + np.arange(options)


def _orders(views: str, options: int, most: int) -> Integers | None:
    """For every order the option under each label, int64 [orders, options]; None where there are more than ``most``."""
    if views == "full" and options > MOST:
        return None  # not listed first, because 12 options have half a billion orders
    orders = np.array(VIEWS[views](options, 0), dtype=np.int64)
    return orders if len(orders) <= most else None


def _batch(observed: Floats, views: str) -> Floats:
    return batch(observed[:, 0])


def _contextual(observed: Floats, views: str) -> Floats:
    """With the content-free inputs of each item, which differ where the header or the shots do."""
    return without(observed[:, 0], view_mean(observed[:, 1:]))


def _pride(observed: Floats, views: str) -> Floats:
    orders = _orders(views, observed.shape[-1], observed.shape[1])
    if orders is None:
        return np.full_like(observed[:, 0], np.nan)
    by_label = np.take_along_axis(observed[:, : len(orders)], orders[None], axis=-1)
    return without(observed[:, 0], label_prior(by_label))


def _permutation(observed: Floats, views: str) -> Floats:
    orders = _orders(views, observed.shape[-1], observed.shape[1])
    return np.full_like(observed[:, 0], np.nan) if orders is None else view_mean(observed[:, : len(orders)])


_CALIBRATED: Mapping[str, Callable[[Floats, str], Floats]] = MappingProxyType(
    {"batch": _batch, "contextual": _contextual, "pride": _pride, "permutation": _permutation}
)
"""Scores of items with the same number of options, float64 [items, views, options], to float64 [items, options]."""

NOISE: Mapping[str, float] = MappingProxyType(
    {"none": 1.0, "permutation": 2.0, "batch": 3.0, "contextual": 3.0, "pride": 3.0}
)
"""The most that a score moves relative to the others of its item, per nat that every log-probability may be off.

A share moves by 2, its own nat and that of the sum.  The options of one context have the same sum, which leaves 1, but
a mean over contexts has a sum for each.  A prior is such a mean: 1 + 2.
"""
