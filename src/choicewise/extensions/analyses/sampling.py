"""Estimate the mean credit of a set of items from a sample of it, with other models' credits."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from choicewise.scoring.intervals import standard_error, student
from choicewise.scoring.observed import Floats, Integers, Mask
from choicewise.scoring.sampling import unseen

FOLDS = 10
"""Parts of a sample; the items of a part are predicted from the other parts."""

PENALTY = 10.0
"""The penalty of the ridge regression."""


def finite_population_error(credits: Floats, population: int) -> float:
    """Return the standard error of a sample's mean as an estimate of the whole population's.

    ``credits``: of a random sample of the ``population`` items, NaN for missing.  The error is
    sd / √n · √(1 - n / population) with sd over n - 1, so 0 if the sample has all items.
    """
    scored = credits[~np.isnan(credits)]
    return standard_error(scored) * unseen(len(scored), population)


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """Hold the mean over ``population`` items, estimated from ``n`` of them and predictions of all.

    ``plain`` and ``plain_se``: the mean of the sample alone, for comparison.  An error is NaN if
    the credits, or what the predictions leave of them, are all equal: that says nothing about how
    they vary.
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
        """Return how many times as many items a plain sample needs for the same error.

        NaN if one of the two errors is NaN.
        """
        if not self.plain_se > 0:
            return math.nan
        error_share = (self.se / self.plain_se) ** 2
        if not error_share > 0:
            return math.nan
        seen = self.n / self.population
        return 1 / (error_share * (1 - seen) + seen)


def aipw(
    credits: Floats,
    places: Integers,
    others: Floats,
    weights: Floats | None = None,
    seed: int = 0,
    low: float = 0.0,
    high: float = 1.0,
) -> Estimate:
    """Estimate the mean credit over all items from a random sample and other models' credits.

    ``credits``: of the sample, float64 [n], NaN for missing.  ``places``: the indices of its items
    among all, int64 [n].  ``others``: credits of other models for all items, float64 [models,
    items]. ``weights``: of each item in the mean, float64 [items] with mean 1.  ``seed``: draws the
    folds. ``low``, ``high``: the range of a credit.

    θ = mean over all of ŷ + mean over the sample of (y - ŷ), SE² = (1 - n/N) s²(y - ŷ) / n
    (augmented inverse probability weighting; prediction-powered inference).  ŷ is a ridge
    regression on the others' credits, cross-fitted: fitted on the same items the second term would
    be 0 and θ only the regression.  Items that a fit has seen count with their credits, and all
    others by prediction and correction, so that θ is unbiased over draws of the sample and of the
    folds, even if the predictions are bad.  If they are constant, θ is the mean of the sample.  The
    interval is Student's t.  It and the value are clipped to what the credits seen and the range of
    the others allow.
    """
    scored = ~np.isnan(credits)
    target = credits[scored]
    sampled = places[scored]
    n = len(target)
    population = others.shape[1]
    if weights is None:
        weights = np.ones(population)
    weighted = target * weights[sampled]
    plain = float(weighted.mean()) if n else math.nan
    plain_se = _error(weighted, population)
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
    fold_count = min(FOLDS, n)
    fold_of = np.random.default_rng(seed).permutation(n) % fold_count
    residuals = np.empty(n)
    value = 0.0
    for fold in range(fold_count):
        in_fold = fold_of == fold
        seen = sampled[~in_fold]
        prediction = _ridge(features[:, seen], target[~in_fold], features) * weights
        residuals[in_fold] = weighted[in_fold] - prediction[sampled[in_fold]]
        # Items that the fit has seen count with their credits, all others by their predictions and
        # the mean residual of the fold.
        total = weighted[~in_fold].sum() + prediction.sum() - prediction[seen].sum()
        total += (population - len(seen)) * residuals[in_fold].mean()
        value += in_fold.mean() * total / population
    error = _error(residuals, population)

    lowest = highest = plain
    if n < population:
        unseen_weight = population - float(weights[sampled].sum())
        lowest = (weighted.sum() + unseen_weight * low) / population
        highest = (weighted.sum() + unseen_weight * high) / population
    ends = student(value, error, n - 1)
    value, ci_low, ci_high = np.clip([value, *ends], lowest, highest).tolist()
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
    if not len(credits) or np.ptp(credits) <= _ROUNDING:
        return math.nan
    return finite_population_error(credits, population)


_ROUNDING = 1e-9
"""Credits that differ by no more differ by rounding alone."""


def _filled(others: Floats) -> Floats:
    """Fill missing credits with the item's mean over the models, or 0 if no model has a credit."""
    present: Mask = ~np.isnan(others)
    totals = np.where(present, others, 0.0).sum(axis=0)
    means = totals / np.maximum(present.sum(axis=0), 1)
    return np.where(present, others, means)


def _ridge(features: Floats, target: Floats, inputs: Floats) -> Floats:
    """Predict ``inputs`` [models, items] by a ridge regression of ``target`` on ``features``.

    The regression has an intercept; ``features`` has shape [models, n].
    """
    centre = features.mean(axis=1, keepdims=True)
    centred = features - centre
    squares = centred @ centred.T + PENALTY * np.eye(len(features))
    slopes = np.linalg.solve(squares, centred @ (target - target.mean()))
    return target.mean() + slopes @ (inputs - centre)
