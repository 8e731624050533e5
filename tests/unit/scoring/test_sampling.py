"""Samples of a known set of items, against all samples that there are and against formulae by hand."""

import math
from itertools import combinations

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from choicewise.extensions.analyses.sampling import (
    FOLDS,
    PENALTY,
    Estimate,
    aipw,
    finite_population_error,
)
from choicewise.scoring.intervals import standard_error
from choicewise.scoring.observed import Floats
from choicewise.scoring.sampling import unseen

POPULATION = 9
RNG = np.random.default_rng(5)
CREDITS = RNG.integers(0, 2, POPULATION).astype(np.float64)
OTHERS = np.array([np.clip(CREDITS + RNG.normal(0, 0.3, POPULATION), 0, 1) for _ in range(3)])


def every_sample(n: int) -> list[np.ndarray]:
    return [np.array(chosen) for chosen in combinations(range(POPULATION), n)]


@pytest.mark.parametrize("n", [2, 4, 8])
def test_the_squared_error_is_the_variance_of_the_mean_over_all_samples(n: int) -> None:
    """Both without bias: the mean of the squared errors is the variance of the means."""
    means = [CREDITS[sample].mean() for sample in every_sample(n)]
    squares = [
        finite_population_error(CREDITS[sample], POPULATION) ** 2 for sample in every_sample(n)
    ]
    assert np.mean(squares) == pytest.approx(np.var(means))


def test_all_items_leave_no_error_and_missing_ones_do_not_count() -> None:
    assert finite_population_error(CREDITS, POPULATION) == 0
    lacking = np.append(CREDITS[:4], math.nan)
    assert finite_population_error(lacking, 100) == pytest.approx(
        standard_error(CREDITS[:4]) * math.sqrt(0.96)
    )
    assert math.isnan(finite_population_error(CREDITS[:1], 100))
    assert (unseen(25, 100), unseen(5, 4)) == (pytest.approx(math.sqrt(0.75)), 0.0)
    assert math.isnan(unseen(0, 0))


@pytest.mark.parametrize("n", [3, 6])
def test_the_estimate_is_unbiased_over_all_samples(n: int) -> None:
    weights = np.linspace(0.5, 1.5, POPULATION)
    for weighted in (None, weights):
        estimates = [
            aipw(CREDITS[sample], sample, OTHERS, weighted).value for sample in every_sample(n)
        ]
        expected = CREDITS.mean() if weighted is None else (CREDITS * weights).mean()
        assert np.mean(estimates) == pytest.approx(expected)


@given(st.integers(2, 40), st.integers(0, 100), st.integers(0, 3))
def test_constant_predictions_give_the_mean_of_the_sample(n: int, seed: int, models: int) -> None:
    rng = np.random.default_rng(seed)
    places, credits = rng.permutation(50)[:n], rng.random(n)
    estimate = aipw(credits, places, np.full((models, 50), 0.5), seed=seed)
    assert estimate.value == pytest.approx(credits.mean())
    assert estimate.plain == pytest.approx(credits.mean())
    assert estimate.plain_se == pytest.approx(finite_population_error(credits, 50))
    if n == FOLDS:
        assert estimate.se >= estimate.plain_se


def reference(credits: Floats, places: np.ndarray, others: Floats) -> tuple[float, float]:
    """The published formulae with one item held back at a time, fitted by least squares with rows for the penalty."""
    n, population = len(credits), others.shape[1]
    total, residuals = 0.0, []
    for held in range(n):
        kept = [place for place in range(n) if place != held]
        centre = others[:, places[kept]].mean(axis=1)
        rows = np.vstack(
            [(others[:, places[kept]].T - centre), math.sqrt(PENALTY) * np.eye(len(others))]
        )
        aims = np.append(credits[kept] - credits[kept].mean(), np.zeros(len(others)))
        slopes = np.linalg.lstsq(rows, aims, rcond=None)[0]
        predicted = {
            item: credits[kept].mean() + (others[:, item] - centre) @ slopes
            for item in range(population)
        }
        residuals.append(credits[held] - predicted[places[held]])
        known = dict(zip(places[kept].tolist(), credits[kept].tolist(), strict=True))
        rest = [predicted[item] + residuals[-1] for item in range(population) if item not in known]
        total += (sum(known.values()) + sum(rest)) / population
    return total / n, math.sqrt((1 - n / population) * np.var(residuals, ddof=1) / n)


def test_the_estimate_is_that_of_plain_sums() -> None:
    """With no more items than folds, each is a fold."""
    sample = RNG.permutation(POPULATION)[:5]
    assert len(sample) <= FOLDS
    estimate = aipw(CREDITS[sample], sample, OTHERS)
    value, se = reference(CREDITS[sample], sample, OTHERS)
    assert (estimate.value, estimate.se) == (pytest.approx(value), pytest.approx(se))
    half = scipy.stats.t.ppf(0.975, len(sample) - 1) * se
    seen = CREDITS[sample].sum()
    possible = seen / POPULATION, (seen + POPULATION - len(sample)) / POPULATION
    assert estimate.ci_low == pytest.approx(max(value - half, possible[0]))
    assert estimate.ci_high == pytest.approx(min(value + half, possible[1]))


def test_good_predictions_make_the_error_smaller_and_it_holds() -> None:
    """Over draws, the interval has the true mean about as often as it says, with a smaller error than the sample."""
    rng = np.random.default_rng(0)
    truth = rng.random(600)
    credits = (rng.random(600) < truth).astype(np.float64)
    others = (rng.random((12, 600)) < truth).astype(np.float64)
    drawn = [
        aipw(credits[own], own, others) for own in (rng.permutation(600)[:120] for _ in range(200))
    ]
    held = [each.ci_low <= credits.mean() <= each.ci_high for each in drawn]
    assert 0.9 <= np.mean(held) <= 0.99
    spread = np.std([each.value for each in drawn])
    assert np.mean([each.se for each in drawn]) == pytest.approx(spread, rel=0.15)
    assert np.mean([each.se for each in drawn]) < 0.95 * np.mean([each.plain_se for each in drawn])
    assert 1.0 < np.median([each.worth for each in drawn]) < 3


def test_estimates_stay_within_what_the_seen_items_leave_possible() -> None:
    """Other models that are all wrong or all right about the rest take a prediction beyond 0 and 1."""
    credits = np.array([1.0, 1, 1, 1, 1, 0])
    others = np.array([[0.9, 0.9, 1, 1, 1, 0.5, *[3.0] * 6]] * 40)
    estimate = aipw(credits, np.arange(6), others)
    assert 5 / 12 <= estimate.ci_low <= estimate.value <= estimate.ci_high <= 11 / 12
    assert estimate.value == pytest.approx(11 / 12)
    every = aipw(CREDITS, np.arange(POPULATION), OTHERS)
    assert every.value == every.ci_low == every.ci_high == pytest.approx(CREDITS.mean())
    unbounded = aipw(-credits, np.arange(6), others, low=-math.inf, high=0.0)
    assert unbounded.ci_low < unbounded.value < -11 / 12


def test_a_fit_on_the_same_items_is_not_made() -> None:
    """Noise predicts nothing: residuals are no smaller than the credits vary."""
    rng = np.random.default_rng(1)
    credits, others = rng.random(30), rng.random((40, 300))
    estimate = aipw(credits, np.arange(30), others)
    assert estimate.se >= 0.98 * estimate.plain_se


def test_credits_that_are_all_the_same_have_a_value_and_no_error() -> None:
    none = aipw(np.zeros(5), np.arange(5), OTHERS)
    assert (none.value, none.plain) == (0, 0)
    assert all(map(math.isnan, (none.se, none.plain_se, none.ci_low, none.worth)))


def test_too_few_items_have_no_error_and_missing_credits_of_others_are_filled() -> None:
    one = aipw(np.array([1.0, math.nan]), np.array([3, 4]), OTHERS)
    assert (one.value, one.n) == (1.0, 1)
    assert math.isnan(one.se)
    assert math.isnan(one.worth)
    holes = OTHERS.copy()
    holes[0, 2] = holes[:, 5] = math.nan
    filled = OTHERS.copy()
    filled[0, 2], filled[:, 5] = OTHERS[1:, 2].mean(), 0.0
    sample = np.arange(6)
    assert aipw(CREDITS[sample], sample, holes) == aipw(CREDITS[sample], sample, filled)
    assert isinstance(one, Estimate)
