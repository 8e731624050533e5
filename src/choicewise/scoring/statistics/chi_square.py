"""The upper tail of the χ² distribution."""

from __future__ import annotations

import math


def chi_square_tail(statistic: float, degrees: int) -> float:
    """P(χ² with ``degrees`` ≥ 1 degrees of freedom > ``statistic``), by the closed form for whole degrees.

    Even degrees: e^-h Σ h^i / i!, odd ones: erfc √h + e^-h Σ h^(i+1/2) / Γ(i + 3/2), with h = statistic / 2.
    """
    half = statistic / 2
    if half <= 0:
        return 1.0
    odd = degrees % 2
    powers = (i + odd / 2 for i in range(degrees // 2))
    # In logarithms, because h^i alone overflows for the statistics of thousands of items.
    terms = (math.exp(power * math.log(half) - half - math.lgamma(power + 1)) for power in powers)
    return (math.erfc(math.sqrt(half)) if odd else 0.0) + math.fsum(terms)
