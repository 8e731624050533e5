"""A sample of a known set of items: the error of its mean, and what other models' credits of all items add to it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from choicewise.scoring.intervals import standard_error, student
from choicewise.scoring.observed import Floats, Integers

FOLDS, PENALTY = 10, 10.0
"""Parts of a sample, each predicted from the others; the penalty of the ridge regression."""


def unseen(n: int, population: int) -> float:
    """√(1 - n / population): what is left of an error when ``n`` items of so many were seen (Cochran 1977, 2.6)."""
    return math.sqrt(max(0.0, 1 - n / population)) if population else math.nan


def finite_population_error(credits: Floats, population: int) -> float:
    """The standard error of the mean of ``credits`` (NaN: missing) for that of all ``population`` items.

    They are a random sample of these items: sd / √n · √(1 - n / population), sd over n - 1.  0 where all are there.
    """
    known = credits[~np.isnan(credits)]
    return standard_error(known) * unseen(len(known), population)


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """The mean over all ``population`` items, estimated from ``n`` of them and predictions of all.

    ``plain`` and ``plain_se``: the mean of the sample alone, for comparison.  Errors are NaN where credits, or what
    predictions leave of them, are all the same and say nothing about how they vary.
    """

    value: float
    se: float
    ci_low: float
    ci_high: float
    n: int
    population: int
    plain: float
    plain_se: float

    @property
    def worth(self) -> float:
        """How many times as many items a plain sample needs for the same error; NaN where an error is not known."""
        share = (self.se / self.plain_se) ** 2 if self.plain_se > 0 else math.nan
        return (
            1 / (share * (1 - self.n / self.population) + self.n / self.population)
            if share > 0
            else math.nan
        )


def aipw(
    credits: Floats,
    places: Integers,
    others: Floats,
    weights: Floats | None = None,
    seed: int = 0,
    low: float = 0.0,
    high: float = 1.0,
) -> Estimate:
    """The mean credit over all items, from a random sample and what other models have for every item.

    ``credits``: of the sample, float64 [n], NaN for missing; ``places``: its items among all, int64 [n]; ``others``:
    float64 [models, items].  ``weights``: of each item in the mean, float64 [items] with mean 1.  ``low``, ``high``:
    between which every credit lies.

    θ = mean over all of ŷ + mean over the sample of (y - ŷ), SE² = (1 - n/N) s²(y - ŷ) / n (augmented inverse
    probability weighting; prediction-powered inference).  A ridge regression on the others' credits gives ŷ, of a part
    of the sample from the other parts: fitted on the same items the second term would be 0 and θ only the regression.
    Items that a fit has seen count with what they are, all others by prediction and correction, so that θ is unbiased
    over draws of the sample and of its parts (by ``seed``), however bad the predictions are.  Where they are constant
    it is the mean of the sample.  The value and its interval, Student's t, end where the items that were seen and the
    range of the others end.
    """
    known = ~np.isnan(credits)
    target, places = credits[known], places[known]
    n, population = len(target), others.shape[1]
    weights = np.ones(population) if weights is None else weights
    own = target * weights[places]
    plain, plain_se = float(own.mean()) if n else math.nan, _error(own, population)
    if n < 2:
        return Estimate(
            value=plain,
            se=math.nan,
            ci_low=math.nan,
            ci_high=math.nan,
            n=n,
            population=population,
            plain=plain,
            plain_se=plain_se,
        )
    features = _filled(others)
    fold = np.random.default_rng(seed).permutation(n) % min(FOLDS, n)
    residuals, value = np.empty(n), 0.0
    for number in range(min(FOLDS, n)):
        held = fold == number
        predicted = _ridge(features[:, places[~held]], target[~held], features) * weights
        residuals[held] = own[held] - predicted[places[held]]
        seen = places[~held]
        unseen_items = population - len(seen)
        total = (
            own[~held].sum()
            + predicted.sum()
            - predicted[seen].sum()
            + unseen_items * residuals[held].mean()
        )
        value += held.mean() * total / population
    error = _error(residuals, population)
    if n < population:
        rest = population - float(weights[places].sum())
        lowest = (own.sum() + rest * low) / population
        highest = (own.sum() + rest * high) / population
    else:
        lowest = highest = plain
    value, ci_low, ci_high = np.clip(
        [value, *student(value, error, n - 1)], lowest, highest
    ).tolist()
    return Estimate(
        value=value,
        se=error,
        ci_low=ci_low,
        ci_high=ci_high,
        n=n,
        population=population,
        plain=plain,
        plain_se=plain_se,
    )


def _error(credits: Floats, population: int) -> float:
    return (
        finite_population_error(credits, population)
        if len(credits) and np.ptp(credits) > _SAME
        else math.nan
    )


_SAME = 1e-9
"""Credits that differ by no more differ by rounding."""


def _filled(others: Floats) -> Floats:
    """``others`` with an item's mean where a model has no credit for it, and 0 where none has."""
    known = ~np.isnan(others)
    counts = known.sum(axis=0)
    means = np.where(known, others, 0.0).sum(axis=0) / np.maximum(counts, 1)
    return np.where(known, others, means)


def _ridge(features: Floats, target: Floats, of: Floats) -> Floats:
    """What a ridge regression with an intercept of ``target`` on ``features`` [models, n] predicts ``of`` others."""
    centre = features.mean(axis=1, keepdims=True)
    centred = features - centre
    squares = centred @ centred.T + PENALTY * np.eye(len(features))
    slopes = np.linalg.solve(squares, centred @ (target - target.mean()))
    return np.asarray(target.mean() + slopes @ (of - centre), dtype=np.float64)
