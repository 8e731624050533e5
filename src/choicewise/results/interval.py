"""The interval of a number, computed the way its reader asks for."""

import math
from collections.abc import Sequence
from statistics import NormalDist

import numpy as np

from choicewise.scoring.ragged import Floats
from choicewise.scoring.statistics.clustered import clustered_standard_error, standard_error
from choicewise.scoring.statistics.wilson import wilson


def interval(name: str, credit: Floats, subjects: Sequence[str], macro: bool) -> tuple[str, float, float]:
    """(the interval's name, low, high) at 95 % of the mean ``credit`` of scored items of these ``subjects``.

    ``clustered`` takes subjects as drawn at random, and is NaN for fewer than two.  A mean of subjects' means
    (``macro``) is no proportion of items, so the other two leave it with its ``normal`` interval.
    """
    if macro and name != "clustered":
        return "normal", math.nan, math.nan
    if not len(credit):
        return name, math.nan, math.nan
    if name == "wilson":
        return name, *wilson(float(credit.mean()), len(credit))
    if name == "beta-binomial":
        from scipy.special import betaincinv

        # Quantiles of Beta(right + 1, wrong + 1), the posterior under a uniform prior, recommended for benchmarks of a
        # few hundred items or fewer (Bowyer et al. 2025).  Split ties make halves and thirds of a
        # right answer: the interval holds those of the whole numbers around.
        n, total = len(credit), round(float(credit.sum()), 9)
        least, most = math.floor(total), math.ceil(total)
        low, high = betaincinv(least + 1, n - least + 1, 0.025), betaincinv(most + 1, n - most + 1, 0.975)
        return name, float(low), float(high)
    clusters = list(dict.fromkeys(subjects))
    if len(clusters) < 2:
        return name, math.nan, math.nan
    mean, se = float(credit.mean()), clustered_standard_error(credit, subjects)
    if macro:
        of = np.asarray(subjects, dtype=object)
        means = np.array([credit[of == cluster].mean() for cluster in clusters])
        mean, se = float(means.mean()), standard_error(means)
    half = NormalDist().inv_cdf(0.975) * se
    return name, max(0.0, mean - half), min(1.0, mean + half)
