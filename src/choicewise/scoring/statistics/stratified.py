"""The score interval of a weighted sum of accuracies, such as a mean of subjects' means."""

import numpy as np

from choicewise.scoring.ragged import Floats, Integers
from choicewise.scoring.statistics.quantile import two_sided

_STEPS = 45
"""Bisections, to 1e-13 of a bound's way from the mean to the end."""


def stratified(
    rights: Floats, sizes: Integers | Floats, level: float = 0.95, weights: Floats | None = None
) -> tuple[float, float]:
    """(low, high) of the interval for the mean of the subjects' accuracies, the subjects being given.

    ``rights``: the credit of each subject's items together, float64 [subjects]; ``sizes``: how many items it has, at
    least one; ``weights``: of each accuracy in a sum that takes the place of the mean.  All sums θ are in the interval
    that the score test does not reject, with the subjects' accuracies as likely as a sum of θ lets them be (Miettinen &
    Nurminen 1985, their correction for as many estimates as there are subjects included; Martín Andrés et al. 2011 for
    any weights).  Of one subject it is the Wilson interval.

    Mean ± 1.96 standard errors has no width where every subject is all wrong or all right, and too little near it.
    """
    weights = np.full(len(sizes), 1 / len(sizes)) if weights is None else weights
    if (alone := sizes == 1).sum() > 1:  # what does not vary within a subject varies between such subjects
        weight, size = weights[alone].sum(), weights[alone].sum() ** 2 / np.square(weights[alone]).sum()
        rights = np.append(rights[~alone], size * (weights @ (rights * alone)) / weight)
        weights = np.append(weights[~alone], weight)
        sizes = np.append(sizes[~alone], size)
    total = float(sizes.sum())
    mean = float(weights @ (rights / sizes))
    threshold = two_sided(level) ** 2 * total / (total - len(sizes) + 1)

    def constrained(slope: float) -> float:
        """The mean of the likeliest accuracies p where the derivative of their log-likelihood is ``slope`` · weight.

        That is (right - n p) / (p (1 - p)) = slope · weight, a quadratic in p.
        """
        pull = slope * weights
        linear = pull + sizes
        root = np.sqrt(np.maximum(linear**2 - 4 * pull * rights, 0.0))
        with np.errstate(invalid="ignore", divide="ignore"):  # where one form is 0 / 0 the other one is taken
            p = np.where(linear > 0, 2 * rights / (linear + root), (linear - root) / (2 * pull))
        return float(weights @ np.clip(p, 0.0, 1.0))

    def bound(sign: int) -> float:
        """Where the test statistic (mean - θ)² / variance(θ), which is slope · (mean - θ), reaches the threshold."""
        low, high = 0.0, 1.0  # of slope / (slope + total)
        for _ in range(_STEPS):
            middle = (low + high) / 2
            slope = sign * total * middle / (1 - middle)
            low, high = (low, middle) if slope * (mean - constrained(slope)) > threshold else (middle, high)
        return constrained(sign * total * low / (1 - low))

    return min(bound(1), mean), max(bound(-1), mean)
