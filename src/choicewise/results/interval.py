"""The interval of a number, computed the way its reader asks for."""

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np

from choicewise.errors import UsageError
from choicewise.scoring.ragged import Floats, Integers
from choicewise.scoring.statistics.clustered import FEWEST, clustered_error
from choicewise.scoring.statistics.effective_size import effective_size, variance_of_means, weighted_size
from choicewise.scoring.statistics.stratified import stratified
from choicewise.scoring.statistics.wilson import wilson

Bounds = tuple[float, float]
"""(low, high) at 95 %."""


def interval(name: str, credit: Floats, subjects: Sequence[str], macro: bool) -> Bounds:
    """The interval of that name for the mean ``credit`` of scored items of these ``subjects``; NaN without items.

    ``macro``: for the mean of the subjects' means.  ``clustered`` takes the subjects as drawn at random, the other two
    take them as given; it is NaN for fewer than :data:`~.clustered.FEWEST` subjects.
    """
    if not len(credit):
        return math.nan, math.nan
    numbers = np.unique(np.asarray(subjects, dtype=str), return_inverse=True)[1]
    sizes = np.bincount(numbers)
    if name == "clustered":
        return _clustered(credit, subjects, numbers, sizes, macro)
    if not macro:
        return of_items(name, float(credit.sum()), len(credit))
    rights = np.bincount(numbers, weights=credit).astype(np.float64)
    if name == "wilson":
        return stratified(rights, sizes)
    mean = float((rights / sizes).mean())
    n = effective_size(mean, variance_of_means(rights, sizes), weighted_size(sizes))
    return _beta(mean * n, n)


def of_items(name: str, right: float, n: int) -> Bounds:
    """The interval ``wilson`` or ``beta-binomial`` for the mean of ``n`` items with so much credit together."""
    return wilson(right / n, n) if name == "wilson" else _posterior(right, n)


def check_clusters(data: str, groups: Sequence[str], subjects: Sequence[str]) -> None:
    """UsageError where no row of a report on ``data`` can have a clustered interval.

    ``groups`` and ``subjects``: those of every item; a row is about a group.
    """
    counts = Counter(group for group, _ in set(zip(groups, subjects, strict=True)))
    most = max(counts.values(), default=0)
    if most < FEWEST:
        raise UsageError(
            f"no row on {data} is about more than {most} {'subject' if most == 1 else 'subjects'}; clustered by fewer "
            f"than {FEWEST}, the interval would come out too small; take wilson or beta-binomial"
        )


def _clustered(credit: Floats, subjects: Sequence[str], numbers: Integers, sizes: Integers, macro: bool) -> Bounds:
    """Wilson's interval at the effective size, with the t quantile."""
    if len(sizes) < FEWEST:
        return math.nan, math.nan
    values, clusters, most = credit, subjects, float(len(credit))
    if macro:
        values = np.bincount(numbers, weights=credit) / sizes
        clusters, most = [str(number) for number in range(len(sizes))], weighted_size(sizes)
    error, mean = clustered_error(values, clusters), float(values.mean())
    return wilson(mean, effective_size(mean, error.se**2, most), freedom=error.freedom)


def _posterior(right: float, n: int) -> Bounds:
    """Split ties make halves and thirds of a right answer: the interval holds those of the whole numbers around."""
    total = round(float(right), 9)
    return _beta(math.floor(total), n)[0], _beta(math.ceil(total), n)[1]


def _beta(right: float, n: float) -> Bounds:
    """Quantiles of Beta(right + 1, wrong + 1), the posterior under a uniform prior, recommended for benchmarks of a few
    hundred items or fewer (Bowyer et al. 2025)."""
    from scipy.special import betaincinv

    low, high = (float(betaincinv(right + 1, n - right + 1, share)) for share in (0.025, 0.975))
    return low, high
