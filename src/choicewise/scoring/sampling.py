"""Say how much of the error of a sample is left if all items are few."""

from __future__ import annotations

import math


def unseen(n: int, population: int) -> float:
    """Return √(1 - n / population), the part of an error that is left (Cochran 1977, 2.6).

    ``n``: items seen of ``population``.  NaN for a population of 0.
    """
    if not population:
        return math.nan
    return math.sqrt(max(0.0, 1 - n / population))
