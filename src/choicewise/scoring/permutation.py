"""Showing the options in several orders and averaging over them.

An order lists, for every label, the option that stands under it: ``order[label] == option``.
"""

from __future__ import annotations

from itertools import permutations

import numpy as np

from choicewise.scoring.calibration import log_shares
from choicewise.scoring.ragged import Floats, Integers


def cyclic_orders(options: int) -> Integers:
    """The rotations of the options, int64 [options, options]; the first is the order as given."""
    return (np.arange(options)[:, None] + np.arange(options)) % options


def all_orders(options: int) -> Integers:
    """Every order of the options, int64 [options!, options]; the first is the order as given."""
    return np.array(list(permutations(range(options))), dtype=np.int64)


def option_scores(scores: Floats, orders: Integers) -> Floats:
    """Scores by label put under the options they stood for; both float64 [items, orders, options]."""
    return np.take_along_axis(scores, np.argsort(orders, axis=-1)[None], axis=-1)


def permutation_mean(scores: Floats, orders: Integers) -> Floats:
    """log of the mean over the orders of P(the label each option stood under), float64 [items, options].

    ``scores``: log-probabilities of the labels, float64 [items, orders, labels] (Zheng et al. 2024, cyclic and full
    permutation).
    """
    shares = option_scores(log_shares(scores), orders)
    return np.asarray(np.logaddexp.reduce(shares, axis=1) - np.log(len(orders)), dtype=np.float64)
