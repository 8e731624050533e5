"""From the scores of an item's choices to probabilities of choosing them."""

import numpy as np

from choicewise.scoring.ragged import Floats, Integers, reduce_rows, row_of


def choice_distribution(scores: Floats, item_offsets: Integers, temperature: float = 1.0) -> Floats:
    """softmax(scores / temperature) within each item, float64 [rows]; NaN for an item with a missing choice.

    A probability of the choices only when the scores are log-probabilities; of means or PMI it is a link function,
    to be reported with its temperature, above 0 (Franke et al. 2024).
    """
    item = row_of(item_offsets)
    with np.errstate(invalid="ignore"):  # an item all of whose choices are impossible has no distribution: NaN
        scaled = (scores - reduce_rows(np.maximum, scores, item_offsets)[item]) / temperature
    weights = np.exp(scaled)
    return weights / reduce_rows(np.add, weights, item_offsets)[item]


def option_mass(sums: Floats, item_offsets: Integers) -> Floats:
    """Σ exp S over an item's choices, float64 [items]: the probability that the model says any of them.

    Other wordings of the answers have at most 1 - mass (Wiegreffe et al. 2023).  The sum can exceed 1 where choices are
    equal or one is the start of another, because each counts in full.
    """
    return reduce_rows(np.add, np.exp(sums), item_offsets)
