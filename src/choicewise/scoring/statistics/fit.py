"""How well predicted choice probabilities fit the choices that people made."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from choicewise.scoring.ragged import Floats, Integers, reduce_rows, row_of


@dataclass(frozen=True, slots=True)
class Fit:
    """``log_likelihood``: Σ count · log p over the choices of ``items`` items made by ``people``, in nats, -inf where a
    choice that was made has probability 0; ``correlation``: Pearson's, of probabilities and shares of people over all
    choices, NaN where either is constant."""

    log_likelihood: float
    correlation: float
    items: int
    people: float


def fit(probabilities: Floats, counts: Floats, items: Integers) -> Fit:
    """The fit of ``probabilities`` to ``counts``, both float64 [rows]; NaN rows and items nobody answered are left out.

    Item i has the rows ``items[i]:items[i + 1]``.  The multinomial coefficients, the same for every model, are left
    out of the log-likelihood (Franke et al. 2024 fit choice counts of the same kind).
    """
    totals = reduce_rows(np.add, counts, items)
    known = (totals > 0) & ~np.isnan(reduce_rows(np.add, probabilities, items))
    rows = known[row_of(items)]
    predicted, made = probabilities[rows], counts[rows]
    shares = made / totals[row_of(items)][rows]
    with np.errstate(divide="ignore"):
        terms = made[made > 0] * np.log(predicted[made > 0])
    return Fit(
        float(terms.sum()) if known.any() else math.nan,
        _pearson(predicted, shares),
        int(known.sum()),
        float(made.sum()),
    )


def _pearson(left: Floats, right: Floats) -> float:
    if not len(left):
        return math.nan
    x, y = left - left.mean(), right - right.mean()
    spread = math.sqrt(float((x**2).sum()) * float((y**2).sum()))
    return float((x * y).sum()) / spread if spread else math.nan
