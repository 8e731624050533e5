"""Quantiles of the normal distribution and of Student's t."""

import math
from statistics import NormalDist


def two_sided(level: float, freedom: float = math.inf) -> float:
    """How many standard errors the interval of this ``level`` reaches to either side.

    Of Student's t with ``freedom`` degrees of freedom, of the normal distribution where there is no end of them.
    """
    if math.isinf(freedom):
        return NormalDist().inv_cdf((1 + level) / 2)
    from scipy.special import stdtrit

    return float(stdtrit(freedom, (1 + level) / 2))
