"""Does the model prefer a position (a letter) whatever the choice there, or choose the same in every order?"""

import math
from dataclasses import dataclass
from itertools import product

import numpy as np

from choicewise.scoring.ragged import Floats, Integers, Mask

SIGNIFICANT = 0.01
"""Warnings that are the outcome of a test are raised below this p-value."""

FEWEST = 20
"""Items with a prediction from which on positions are tested."""

EXACT = 1 << 14
"""Most outcomes of which the distribution is computed exactly: some milliseconds."""


@dataclass(frozen=True, slots=True)
class PositionBias:
    """How unevenly the model treats the positions.

    ``recalls``: per position, the share of the items with the right choice there that are predicted right; NaN without
    such items.  ``rstd``: their standard deviation (over n), 0 without bias (Zheng et al. 2024; LLM-MCQ-Bias@da14c48).
    ``chi_square`` and ``p``: of the test whether positions are predicted as often as they are right.  NaN when fewer
    than two positions ever hold a right choice; ``p`` also when there are fewer than :data:`FEWEST` items.
    ``n``: items with a prediction.
    """

    recalls: tuple[float, ...]
    rstd: float
    chi_square: float
    p: float
    n: int


def position_bias(predictions: Integers, gold: Integers) -> PositionBias:
    """Position bias of predicted choices against right ones, indices [items]; -1 (no prediction) does not count.

    For items with one right choice.  Under the null hypothesis the predicted and the right position of an item could
    change places: the paired test of marginal homogeneity (Stuart 1955; Maxwell 1970).  Items predicted right say
    nothing, and items may have different numbers of choices.
    """
    known = predictions >= 0
    predicted, right = predictions[known], gold[known]
    n, positions = len(right), int(max(predicted.max(), right.max())) + 1 if known.any() else 0
    expected = np.bincount(right, minlength=positions)
    hits = np.bincount(right[predicted == right], minlength=positions)
    used = expected > 0
    recalls = np.divide(hits, expected, out=np.full(positions, np.nan), where=used)
    if used.sum() < 2:
        return PositionBias(tuple(recalls.tolist()), math.nan, math.nan, math.nan, n)
    counts = np.bincount(predicted * positions + right, minlength=positions**2).reshape(positions, positions)
    chi_square, p = _homogeneity(counts)
    return PositionBias(
        tuple(recalls.tolist()), float(recalls[used].std()), chi_square, p if n >= FEWEST else math.nan, n
    )


def _homogeneity(counts: Integers) -> tuple[float, float]:
    """The statistic d' V⁻¹ d of the differences d of row and column sums, and its p-value; ``counts`` is square.

    V is the covariance of d when every item's pair is turned round with probability 1/2, which leaves V itself as it
    is.  Of few items p is exact over all turns, else from the χ² limit.
    """
    from scipy.special import chdtrc

    pairs = counts + counts.T
    np.fill_diagonal(pairs, 0)
    values, vectors = np.linalg.eigh(np.diag(pairs.sum(axis=1)) - pairs)
    scale = values > values.max(initial=0.0) * len(values) * np.finfo(np.float64).eps
    if not scale.any():
        return 0.0, 1.0
    axes = vectors[:, scale] / np.sqrt(values[scale])
    chi_square = float(np.square((counts.sum(axis=1) - counts.sum(axis=0)) @ axes).sum())
    upper = [(row, column) for row, column in zip(*np.nonzero(np.triu(pairs)), strict=True)]
    sizes = [int(pairs[pair]) for pair in upper]
    if math.prod(size + 1 for size in sizes) > EXACT:
        return chi_square, float(chdtrc(scale.sum(), chi_square))
    turned = np.array(list(product(*(range(size + 1) for size in sizes))))  # the items of each pair that go one way
    directions = np.array([axes[row] - axes[column] for row, column in upper])
    statistics = np.square((2 * turned - sizes) @ directions).sum(axis=1)
    chances = math.prod(_binomial(size)[turned[:, place]] for place, size in enumerate(sizes))
    return chi_square, min(1.0, float(chances[statistics >= chi_square * (1 - 1e-9)].sum()))


def _binomial(size: int) -> Floats:
    """The probabilities of 0 to ``size`` heads of a fair coin, float64 [size + 1]."""
    from scipy.special import bdtr

    return np.diff(bdtr(np.arange(size + 1), size, 0.5), prepend=0.0)


def constant_p(choices: Integers, right: Floats | Integers, hit: Mask) -> float:
    """At most how likely a model without a preference predicts the same position for every item.

    ``choices`` and ``right``: how many an item has, ``hit``: whether the position is right, [items] each.  Such a model
    is right with the same probability everywhere, the one under which this is likeliest, and else takes any wrong
    choice alike; times the number of positions that it could have been.
    """
    told = choices > right
    hits, n = int(hit[told].sum()), int(told.sum())
    if not n:
        return 1.0
    alike = np.where(hit, right, choices - right)[told]
    likelihood = sum(count * math.log(count / n) for count in (hits, n - hits) if count) - float(np.log(alike).sum())
    return min(1.0, int(choices.max()) * math.exp(likelihood))


def permutation_consistency(predictions: Integers) -> float:
    """Share of items with the same prediction in every order of the options; NaN when no item has all predictions.

    ``predictions``: the option chosen, by its index in the item, int64 [orders, items]; an item with -1 in any
    order does not count.
    """
    known = (predictions >= 0).all(axis=0)
    same = (predictions == predictions[:1]).all(axis=0)
    return float(same[known].mean()) if known.any() else math.nan
