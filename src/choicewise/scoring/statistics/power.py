"""How small a difference a benchmark can show (Miller 2024)."""

import math
from statistics import NormalDist


def minimum_detectable_effect(sd: float, n: int, level: float = 0.95, power: float = 0.8) -> float:
    """(z_{α/2} + z_β) sd / √n: the difference of means that is significant with probability ``power``.

    ``sd``: standard deviation over the ``n`` items of what is averaged, for two models of their paired difference.
    """
    return (NormalDist().inv_cdf((1 + level) / 2) + NormalDist().inv_cdf(power)) * sd / math.sqrt(n)
