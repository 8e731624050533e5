"""Spearman's rank correlation."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from choicewise.scoring.ragged import Floats


def spearman_rho(left: npt.ArrayLike, right: npt.ArrayLike) -> float:
    """Pearson's correlation of the average ranks, between -1 and 1; NaN when either side is constant or empty."""
    x, y = average_ranks(left), average_ranks(right)
    if not len(x):
        return math.nan
    x, y = x - x.mean(), y - y.mean()
    spread = math.sqrt(float((x**2).sum()) * float((y**2).sum()))
    return float((x * y).sum()) / spread if spread else math.nan


def average_ranks(values: npt.ArrayLike) -> Floats:
    """Ranks from 1 for the least value, float64; equal values share the mean of their ranks."""
    _, inverse, counts = np.unique(np.asarray(values, dtype=np.float64), return_inverse=True, return_counts=True)
    return np.asarray((np.cumsum(counts) - (counts - 1) / 2)[inverse], dtype=np.float64)
