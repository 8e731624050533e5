"""From the scores of an item's choices to probabilities of choosing them."""

from __future__ import annotations

import numpy as np

from choicewise.scoring.ragged import Floats, Integers, Mask, reduce_rows, row_of


def choice_distribution(scores: Floats, item_offsets: Integers, temperature: float = 1.0) -> Floats:
    """softmax(scores / temperature) within each item, float64 [rows]; NaN for an item with a missing choice.

    A probability of the choices only when the scores are log-probabilities; of means or PMI it is a link function
    that has to be reported with its temperature, above 0 (Franke et al. 2024).
    """
    item = row_of(item_offsets)
    with np.errstate(invalid="ignore"):  # an item all of whose choices are impossible has no distribution: NaN
        scaled = (scores - reduce_rows(np.maximum, scores, item_offsets)[item]) / temperature
    weights = np.exp(scaled)
    return weights / reduce_rows(np.add, weights, item_offsets)[item]


def option_mass(sums: Floats, item_offsets: Integers) -> Floats:
    """Σ exp S over an item's choices, float64 [items]: the probability that the model says any of them.

    1 - mass bounds what other wordings of the answers can hold (Wiegreffe et al. 2023).  Choices that begin or repeat
    each other are counted each, so the sum can exceed 1.
    """
    return reduce_rows(np.add, np.exp(sums), item_offsets)


def gold_share(sums: Floats, item_offsets: Integers, gold: Mask) -> Floats:
    """The right choices' share of the option mass, float64 [items]; gold bool [rows] (OLMES norm_correct_prob)."""
    return reduce_rows(np.add, choice_distribution(sums, item_offsets) * gold, item_offsets)
