"""The Wilson score interval of a proportion."""

import math

from choicewise.scoring.statistics.quantile import two_sided


def wilson(mean: float, n: float, level: float = 0.95, freedom: float = math.inf) -> tuple[float, float]:
    """(low, high) of the interval for a proportion ``mean`` observed over ``n`` items (Wilson 1927).

    Unlike mean ± 1.96 standard errors it keeps its level at a few dozen items and near 0 and 1.  Fractional credits
    vary less than 0/1 credits of the same mean, so for them it is wider than needed.  NaN when ``n`` is 0.

    Where the items were not drawn one by one, ``n`` is the effective size (:mod:`~.effective_size`) and ``freedom`` the
    degrees of freedom of the variance that it follows from.
    """
    if n == 0:
        return math.nan, math.nan
    z2 = two_sided(level, freedom) ** 2
    centre = (mean + z2 / (2 * n)) / (1 + z2 / n)
    half = math.sqrt(z2 * (mean * (1 - mean) / n + z2 / (4 * n * n))) / (1 + z2 / n)
    # The interval holds the proportion itself; rounding must not move a bound past it (or past 0 and 1).
    return max(0.0, min(centre - half, mean)), min(1.0, max(centre + half, mean))
