"""How well predicted choice probabilities fit the choices that people made."""

import math
from dataclasses import dataclass

import numpy as np

from choicewise.scoring.ragged import Floats, Integers, reduce_rows, row_of


@dataclass(frozen=True, slots=True)
class Fit:
    """``log_likelihood``: Σ count · log p over the choices of ``items`` items by ``people`` people, in nats, -inf where
    a choice that was made has probability 0; ``correlation``: Pearson's, of probabilities and shares of people over all
    choices, NaN where either is constant."""

    log_likelihood: float
    correlation: float
    items: int
    people: float


def fit(probabilities: Floats, counts: Floats, item_offsets: Integers) -> Fit:
    """The fit of ``probabilities`` to ``counts``, both float64 [rows].  Items with NaN or a total of 0 do not count.

    Item i has the rows ``item_offsets[i]:item_offsets[i + 1]``.  The log-likelihood is without the multinomial
    coefficients, the same for every model (Franke et al. 2024 fit choice counts of the same kind).
    """
    totals = reduce_rows(np.add, counts, item_offsets)
    known = (totals > 0) & ~np.isnan(reduce_rows(np.add, probabilities, item_offsets))
    item = row_of(item_offsets)
    rows = known[item]
    predicted, people = probabilities[rows], counts[rows]
    shares = people / totals[item][rows]
    with np.errstate(divide="ignore"):
        terms = people[people > 0] * np.log(predicted[people > 0])
    likelihood = float(terms.sum()) if known.any() else math.nan
    return Fit(likelihood, _pearson(predicted, shares), int(known.sum()), float(people.sum()))


def _pearson(left: Floats, right: Floats) -> float:
    if not len(left):
        return math.nan
    x, y = left - left.mean(), right - right.mean()
    spread = math.sqrt(float((x**2).sum()) * float((y**2).sum()))
    return float((x * y).sum()) / spread if spread else math.nan
