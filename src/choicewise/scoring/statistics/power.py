"""How small a difference a benchmark can show, and how many items one needs (Miller 2024)."""

from __future__ import annotations

import math
from statistics import NormalDist


def minimum_detectable_effect(sd: float, n: int, level: float = 0.95, power: float = 0.8) -> float:
    """(z_{α/2} + z_β) sd / √n: the difference of means found significant with probability ``power``.

    ``sd``: standard deviation over items of what is averaged, for two models of their paired difference.
    """
    return _z_sum(level, power) * sd / math.sqrt(n)


def items_needed(sd: float, effect: float, level: float = 0.95, power: float = 0.8) -> int:
    """The fewest items whose minimum detectable effect is at most ``effect``."""
    return math.ceil((_z_sum(level, power) * sd / effect) ** 2)


def _z_sum(level: float, power: float) -> float:
    return NormalDist().inv_cdf((1 + level) / 2) + NormalDist().inv_cdf(power)
