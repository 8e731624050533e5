"""The standard error of a mean over items in clusters (a passage with several questions, a subject)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from choicewise.scoring.ragged import Floats, Integers

FEWEST = 10
"""Clusters from which on a standard error is clustered; of fewer it would come out too small."""


def standard_error(values: Floats) -> float:
    """sd / √n with sd over n - 1; NaN for fewer than two values."""
    return float(values.std(ddof=1)) / math.sqrt(len(values)) if len(values) > 1 else math.nan


@dataclass(frozen=True, slots=True)
class ClusteredError:
    """A standard error, and the degrees of freedom of the t distribution for its interval; NaN for one cluster."""

    se: float
    freedom: float


def clustered_error(values: Floats, clusters: Sequence[str] | Integers) -> ClusteredError:
    """√(Σ_clusters (Σᵢ vᵢ - v̄)² / (1 - share)) / n, with ``share`` the part of the ``n`` values in the cluster.

    The cluster-robust error of Miller 2024 ("Adding Error Bars to Evals") with the small-sample correction CR2, which
    makes it unbiased for values that do not cluster, and its Satterthwaite degrees of freedom, one less than there are
    clusters where all have the same size and fewer where not (Bell & McCaffrey 2002; Imbens & Kolesár 2016).
    ``clusters`` names or numbers each value's cluster.  The plain standard error when every value is its own cluster.
    """
    numbers = np.unique(np.asarray(clusters), return_inverse=True)[1]
    sizes = np.bincount(numbers)
    if len(sizes) < 2:
        return ClusteredError(math.nan, math.nan)
    share = sizes / len(values)
    sums = np.bincount(numbers, weights=values - values.mean())
    se = math.sqrt(float((sums**2 / (1 - share)).sum())) / len(values)
    crossed = share**2 / (1 - share)
    return ClusteredError(se, 1 / float((share**2).sum() + crossed.sum() ** 2 - (crossed**2).sum()))
