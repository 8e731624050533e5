"""The standard error of a mean over items in clusters (a passage with several questions, a subject)."""

import math
from collections.abc import Sequence

import numpy as np

from choicewise.scoring.ragged import Floats


def standard_error(values: Floats) -> float:
    """sd / √n with sd over n - 1; NaN for fewer than two values."""
    return float(values.std(ddof=1)) / math.sqrt(len(values)) if len(values) > 1 else math.nan


def clustered_standard_error(values: Floats, clusters: Sequence[str]) -> float:
    """√(se² + Σ_clusters Σ_{i≠j} (vᵢ - v̄)(vⱼ - v̄) / n²), Miller 2024 ("Adding Error Bars to Evals").

    ``clusters`` names each value's cluster.  Equals the plain standard error when every value is its own cluster.
    """
    deviations = values - values.mean() if len(values) else values
    numbers = np.unique(np.asarray(clusters, dtype=str), return_inverse=True)[1]
    cluster_sums = np.bincount(numbers, weights=deviations)
    crossed = float((cluster_sums**2).sum() - (deviations**2).sum())
    return math.sqrt(standard_error(values) ** 2 + crossed / len(values) ** 2) if len(values) > 1 else math.nan
