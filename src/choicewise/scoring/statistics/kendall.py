"""Kendall's rank correlation."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt


def kendall_tau_b(left: npt.ArrayLike, right: npt.ArrayLike) -> float:
    """(concordant - discordant pairs) / √(pairs untied left · pairs untied right), between -1 and 1 (Kendall 1945).

    NaN when either side is constant or has fewer than two values.  Takes all pairs: meant for rankings of models or
    protocols, not for thousands of values.
    """
    x, y = np.asarray(left, dtype=np.float64), np.asarray(right, dtype=np.float64)
    i, j = np.triu_indices(len(x), 1)
    x_signs, y_signs = np.sign(x[i] - x[j]), np.sign(y[i] - y[j])
    untied = math.sqrt(float((x_signs != 0).sum()) * float((y_signs != 0).sum()))
    return float((x_signs * y_signs).sum()) / untied if untied else math.nan
