"""Test differences of models, positions and lengths, and check one protocol's decisions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from itertools import product
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from choicewise.scoring.decide import Decisions, guess
from choicewise.scoring.intervals import standard_error, student, two_sided
from choicewise.scoring.observed import (
    Floats,
    Integers,
    Mask,
    by_length,
    item_sum,
    mean_of_present,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Validity:
    """Hold checks of one protocol's decisions that need no model call.

    ``chance``: expected accuracy of guessing evenly.  ``at_chance``: the accuracy is within one
    standard error of it.  ``constant``: every prediction is the same position, which a model
    without a preference would do with p < 0.01.  ``most_common``: the greatest share of a position
    among the predictions.  ``tie_rate``: share of scored items with a tie at the top.  NaN and
    False without scored items.
    """

    chance: float
    at_chance: bool
    constant: bool
    most_common: float
    tie_rate: float


SIGNIFICANT = 0.01
"""The p-value below which a test raises a warning."""


def validity(
    decisions: Decisions, item_offsets: Integers, gold: Mask, guesses: Floats | None = None
) -> Validity:
    """Check one protocol's decisions; ``gold`` marks the rows of right choices, bool [rows].

    ``guesses``: the credit of each item that guessing gives on average; None: that of accuracy.
    Items with one choice can't be guessed, nor predicted otherwise.
    """
    is_scored = ~decisions.missing
    credit = decisions.credit[is_scored]
    if not len(credit):
        return Validity(
            chance=math.nan,
            at_chance=False,
            constant=False,
            most_common=math.nan,
            tie_rate=math.nan,
        )
    if guesses is None:
        guesses = guess(item_offsets, gold)
    chance = float(guesses[is_scored].mean())
    is_near = len(credit) < 2 or abs(float(credit.mean()) - chance) <= standard_error(credit)

    is_predicted = decisions.prediction >= 0
    predicted = decisions.prediction[is_predicted]
    most_common = math.nan
    constant = False
    if len(predicted):
        most_common = float(np.bincount(predicted).max() / len(predicted))
    if most_common == 1.0:
        choices = np.diff(item_offsets)[is_predicted]
        right = item_sum(gold, item_offsets)[is_predicted]
        is_hit = gold[item_offsets[:-1][is_predicted] + predicted]
        constant = _constant_p(choices, right, is_hit) < SIGNIFICANT
    return Validity(
        chance=chance,
        at_chance=is_near and not math.isnan(chance),
        constant=constant,
        most_common=most_common,
        tie_rate=float(decisions.tied[is_scored].mean()),
    )


def guessing_p(credit: Floats, chance: Floats) -> float:
    """Return at most how likely guessing gives as much ``credit``, float64 [items].

    ``chance``: of each item, float64 [items].  The p-value is the tail of a binomial distribution
    of the same mean: that of items with different chances is no heavier (Hoeffding 1956).  A part
    of a right answer counts for nothing.  NaN without items, or if an item can't be guessed.
    """
    if not len(credit) or np.isnan(chance).any():
        return math.nan
    right = math.floor(float(credit.sum()) + 1e-9)
    return binomial_tail(right, len(credit), float(chance.mean()))


def binomial_tail(right: int, n: int, chance: float) -> float:
    """Return how likely ``right`` or more of ``n`` items are right, each by ``chance``."""
    from scipy.special import bdtrc

    if not right:
        return 1.0
    return float(bdtrc(right - 1, n, chance))


def positive_p(values: Floats) -> float:
    """Return how likely a mean of 0 or less gives as great a mean of ``values``, by Student's t.

    NaN for fewer than two values, or if all are equal.
    """
    error = standard_error(values)
    if not error > 0:
        return math.nan
    from scipy.special import stdtr

    return float(stdtr(len(values) - 1, -float(values.mean()) / error))


HALF = 0.5
"""The probability below which an item's labels hold little of the model's."""


def low_mass_rate(mass: Floats) -> float:
    """Return the share of items whose choices hold less than :data:`HALF` of the probability.

    ``mass``: of each item (``option_mass``).  If the share is high, the model prefers to say
    something else, and the order of the choices says little.
    """
    present = mass[~np.isnan(mass)]
    return mean_of_present((present < HALF).astype(np.float64))


LEVEL = 0.05
"""The level of significance, after Holm's correction for all tests."""


def holm(p: npt.ArrayLike) -> Floats:
    """Return p-values adjusted for all of them, in the order given (Holm 1979).

    If those ≤ α are rejected, the probability of any error is ≤ α.
    """
    values = np.asarray(p, dtype=np.float64)
    order = np.argsort(values, kind="stable")
    stepped = np.maximum.accumulate(values[order] * np.arange(len(values), 0, -1))
    adjusted = np.empty_like(values)
    adjusted[order] = np.minimum(stepped, 1.0)
    return adjusted


def length_shifts(
    chosen: Integers, right: Integers, lengths: Floats, item_offsets: Integers
) -> Floats:
    """Return how much longer the chosen choice is than the right one, float64 [items].

    Lengths are ranked from 0 (shortest) to 1.  ``chosen`` and ``right`` are indices in the item, -1
    for none; ``lengths``: of all choices, float64 [rows].  NaN for an item without one of them,
    with an unknown length, or whose choices are all equally long.
    """
    shifts = np.full(len(item_offsets) - 1, np.nan)
    for items, rows in by_length(item_offsets):
        has_both = (chosen[items] >= 0) & (right[items] >= 0)
        if not has_both.any():
            continue
        ranked = items[has_both]
        ranks = centred_ranks(lengths[rows[has_both]])
        index = np.arange(len(ranked))
        difference = ranks[index, chosen[ranked]] - ranks[index, right[ranked]]
        with np.errstate(invalid="ignore", divide="ignore"):
            shifts[ranked] = difference / np.ptp(ranks, axis=1)
    return shifts


def length_p(shifts: Floats) -> float:
    """Return how likely so large a mean shift is if every sign is equally likely; two-sided.

    It is the normal limit of the sign-flip test with a correction for continuity.  ``shifts``:
    float64 [items] from -1 to 1, without NaN.
    """
    spread = math.sqrt(float(np.square(shifts).sum()))
    if not spread:
        return math.nan
    # No shift is greater than 1, so the sum is corrected by 1.
    beyond = max(0.0, abs(float(shifts.sum())) - 1)
    return math.erfc(beyond / spread / math.sqrt(2))


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Hold left mean minus right mean over the ``n`` items that both scored.

    ``missing``: items that at least one did not score.  ``se`` is NaN if all items have the same
    difference, which says nothing about how it varies; so is the 95 % interval, unless credits are
    right or wrong.
    """

    value: float
    se: float
    ci_low: float
    ci_high: float
    n: int
    missing: int


def paired_difference(
    left: Floats,
    right: Floats,
    counted: bool = True,
    most: float = 1.0,
    weights: Floats | float = 1.0,
) -> Difference:
    """Compare credits item by item, float64 [items] each with NaN for missing.

    Pairing removes what makes an item hard for both.  ``counted``: credits are right, wrong or a
    part of a tie; then the interval is that of Agresti & Min (2005), which exists if few items
    differ or none.  Else it is Student's t.  ``most``: the greatest difference of two credits.
    ``weights``: those of the items in both means, 1 on average [items].
    """
    difference = mean_of_items(weights * (left - right), -most, most)
    if not counted or not difference.n:
        return difference
    centre, error = _with_halves(left - right, weights)
    half = two_sided(0.95) * error
    return replace(difference, ci_low=max(-1.0, centre - half), ci_high=min(1.0, centre + half))


def mean_of_items(values: Floats, low: float = -math.inf, high: float = math.inf) -> Difference:
    """Return the mean of ``values`` [items], NaN for missing, with Student's t interval.

    ``low`` and ``high``: the range of a value; the interval ends there.
    """
    present = values[~np.isnan(values)]
    n = len(present)
    value = mean_of_present(values)
    se = math.nan
    # 1/3 - 0 and 2/3 - 1/3 are equal but for rounding.
    if n > 1 and np.ptp(present) >= 1e-9:
        se = standard_error(present)
    ci_low, ci_high = np.clip(student(value, se, n - 1), low, high).tolist()
    return Difference(
        value=value, se=se, ci_low=ci_low, ci_high=ci_high, n=n, missing=len(values) - n
    )


def lost_per_token(
    left: Floats,
    right: Floats,
    tokens: Integers,
    item_offsets: Integers,
    among: Mask,
) -> Difference | None:
    """Return Σ (left - right) / Σ tokens over the rows ``among``, in nats a token.

    ``left`` and ``right``: log-likelihoods [rows]; ``tokens``: the number of scored tokens of each
    row; None if there are none.  Items are drawn and not tokens, so the standard error is that of a
    ratio of sums over items: of R + w (d - R) / mean w, with d an item's loss per token and w its
    tokens.
    """
    with np.errstate(invalid="ignore"):
        lost = item_sum(np.where(among, left - right, 0.0), item_offsets)
        weight = item_sum(np.where(among, tokens, 0), item_offsets)
        is_scored = ~np.isnan(lost) & (weight > 0)
        if not is_scored.any():
            return None
        # An item that lost infinitely much makes the ratio infinite, and the items NaN.
        ratio = lost[is_scored].sum() / weight[is_scored].sum()
        linear = ratio + (lost - ratio * weight) / weight[is_scored].mean()
        return mean_of_items(np.where(is_scored, linear, np.nan))


def detectable_difference(
    left: Floats, right: Floats, counted: bool = True, weights: Floats | float = 1.0
) -> float:
    """Return the smallest difference of means that the test finds with probability 0.8.

    Takes arguments of :func:`paired_difference`.  ``counted``: the test is McNemar's
    (:func:`detectable_share`); the share of items that differ is that of the interval, with half an
    item more in each of the four cells.  If items weigh differently, it is the normal limit.  Else it
    is Student's t.  NaN below :data:`FEWEST` items of the last two.
    """
    differences = left - right
    if counted and _weigh_alike(weights):
        present = differences[~np.isnan(weights * differences)]
        share = (float(np.square(present).sum()) + 1) / (len(present) + 2)
        return detectable_share(len(present), share)
    difference = mean_of_items(weights * differences)
    if difference.n < FEWEST:
        return math.nan
    if counted:
        _, error = _with_halves(differences, weights)
        return minimum_detectable_effect(error)
    return minimum_detectable_effect(difference.se, freedom=difference.n - 1)


def _weigh_alike(weights: Floats | float) -> bool:
    """Check that all items with a weight, which is not NaN, have 1."""
    return bool(np.all(np.isnan(weights) | (np.asarray(weights) == 1)))


def minimum_detectable_effect(
    error: float, level: float = 0.95, power: float = 0.8, freedom: float = math.inf
) -> float:
    """Return the difference of means that is significant with probability ``power``.

    It is (t_{α/2} + t_β) · ``error``, the standard error with these degrees of freedom; for two
    models that of their paired difference.
    """
    return (two_sided(level, freedom) + two_sided(2 * power - 1, freedom)) * error


POWER = 0.8
"""The probability with which a detectable difference is found."""

EXACT_UP_TO = 60
"""Differing items up to which power is computed exactly; the limit differs by 2 % there."""


def detectable_share(n: int, share: float) -> float:
    """Return the smallest difference of two accuracies that McNemar's exact test finds.

    It is significant (5 %) with probability :data:`POWER` if ``share`` of the ``n`` items differ,
    or as many as the difference itself if these are more.  NaN if even a difference of 1 is not.
    """
    from scipy.special import bdtr, bdtrc, bdtri

    if n * share > EXACT_UP_TO:
        return _limit_of_detectable(n, share)
    least = _least_wins()[: n + 1]
    counts = np.arange(len(least))
    # If the better model wins all items that differ, so many of them are significant.
    fewest = int((least > counts).sum())
    if fewest > n:
        return math.nan
    with_wins_alone = float(bdtri(fewest - 1, n, 1 - POWER))
    if share <= with_wins_alone:
        return with_wins_alone
    chances = np.diff(bdtr(counts, n, share), prepend=0.0)
    is_likely = chances > 1e-9
    low, high = 0.0, share
    while high - low > 1e-5:
        middle = (low + high) / 2
        wins = (1 + middle / share) / 2
        powers = bdtrc(least[is_likely] - 1, counts[is_likely], wins)
        if chances[is_likely] @ powers < POWER:
            low = middle
        else:
            high = middle
    return high


def _limit_of_detectable(n: int, share: float) -> float:
    """Return the limit of :func:`detectable_share` for many items (Connor 1987)."""
    difference = 0.0
    # The variance of wins minus losses hardly depends on the difference, so that few rounds
    # suffice; 1 corrects for continuity.
    for _ in range(8):
        surplus = 1 + two_sided(0.95) * math.sqrt(n * share)
        surplus += NormalDist().inv_cdf(POWER) * math.sqrt(n * (share - difference**2))
        difference = surplus / n
    return difference


@cache
def _least_wins() -> Integers:
    """Return how many of 0, 1, ... differing items must be won for a p-value of at most 5 %."""
    from scipy.special import bdtr

    # More differ with no probability if EXACT_UP_TO are expected to.
    counts = np.arange(2 * EXACT_UP_TO + 1)[:, None]
    is_significant_loss = bdtr(counts.T, counts, 0.5) <= LEVEL / 2
    return np.asarray(counts[:, 0] + 1 - is_significant_loss.sum(axis=1))


def _with_halves(differences: Floats, weights: Floats | float) -> tuple[float, float]:
    """Return mean and standard error with half an item more in each of the four cells.

    Items that weigh differently count as fewer that weigh alike (Kish 1965), with the same mean and
    the same variance of the mean, Σ w² (d - mean)² / n².
    """
    is_present = ~np.isnan(differences)
    n = int(is_present.sum())
    if not n:
        return math.nan, math.nan
    weights = np.broadcast_to(weights, differences.shape)[is_present]
    worth = n / float(np.square(weights).sum())
    scaled = worth * weights
    present = scaled * differences[is_present]
    present_mean = float(present.sum()) / (worth * n)
    # Σ (scaled · (d - mean))² + worth · n · mean², in a form that is exactly Σ d² for weights of 1.
    squares = float((present * (present + 2 * present_mean * (1 - scaled))).sum())
    size = worth * n + 2
    # Of the four halves one is +1, one is -1, and two are 0.
    mean = float(present.sum()) / size
    variance = (squares + 1) / size - mean**2
    return mean, math.sqrt(variance / size)


@dataclass(frozen=True, slots=True, kw_only=True)
class PositionBias:
    """Say how unevenly the model treats the positions of the options.

    ``recalls``: per position, the share right of the items with the right choice there; NaN without
    such items.  ``rstd``: their standard deviation (over n), 0 without bias (Zheng et al. 2024;
    LLM-MCQ-Bias@da14c48).  ``chi_square`` and ``p``: of the test that positions are predicted as
    often as they are right.  NaN if fewer than two positions ever hold a right choice; ``p`` also
    for fewer than :data:`FEWEST` items.  ``n``: items with a prediction.
    """

    recalls: tuple[float, ...]
    rstd: float
    chi_square: float
    p: float
    n: int


FEWEST = 20
"""Items from which on positions are tested, and an order of two models is claimed."""


def is_significant(p: float, items: int) -> bool:
    """Check that a difference may be claimed, from ``p`` corrected for all tests."""
    return items >= FEWEST and p <= LEVEL


def position_bias(predictions: Integers, gold: Integers) -> PositionBias:
    """Compare predicted positions with right ones, indices [items] of items with one right choice.

    -1, no prediction, does not count.  Under the null hypothesis the predicted and the right
    position of an item could change places: the paired test of marginal homogeneity (Stuart 1955;
    Maxwell 1970).  Items predicted right say nothing, and items may have different numbers of
    choices.
    """
    is_predicted = predictions >= 0
    predicted = predictions[is_predicted]
    right = gold[is_predicted]
    n = len(right)
    positions = 0
    if n:
        positions = int(max(predicted.max(), right.max())) + 1
    expected = np.bincount(right, minlength=positions)
    hits = np.bincount(right[predicted == right], minlength=positions)
    is_used = expected > 0
    recalls = np.divide(hits, expected, out=np.full(positions, np.nan), where=is_used)
    rstd = chi_square = p = math.nan
    if is_used.sum() >= 2:
        rstd = float(recalls[is_used].std())
        pairs = np.bincount(predicted * positions + right, minlength=positions**2)
        chi_square, p = _homogeneity(pairs.reshape(positions, positions))
    if n < FEWEST:
        p = math.nan
    return PositionBias(recalls=tuple(recalls.tolist()), rstd=rstd, chi_square=chi_square, p=p, n=n)


def permutation_consistency(predictions: Integers) -> float:
    """Return the share of items with the same prediction in every order of the options.

    ``predictions``: the index in the item of the predicted option, int64 [orders, items]; an item
    with -1 in any order does not count.  NaN if none counts.
    """
    is_complete = (predictions >= 0).all(axis=0)
    is_same = (predictions == predictions[:1]).all(axis=0)
    return mean_of_present(is_same[is_complete].astype(np.float64))


@dataclass(frozen=True, slots=True, kw_only=True)
class SignFlip:
    """Hold a sign-flip test of two models' credits.

    ``left_only``, ``right_only``: items that only one of the two has right.  ``by_tie``: items
    whose credits differ in another way, because a tie is split or credits are any numbers.  ``p``:
    two-sided, NaN without items that both scored.  ``exact``: it is from the distribution itself,
    not from its normal limit.  ``weighted``: the test is of means in which items weigh differently.
    """

    left_only: int
    right_only: int
    by_tie: int
    p: float
    exact: bool
    weighted: bool = False

    @property
    def is_mcnemar(self) -> bool:
        """Check that it is McNemar's exact test."""
        return self.exact and not self.by_tie and not self.weighted

    @property
    def differing(self) -> int:
        """Count the items whose credits differ: only they have a sign to flip."""
        return self.left_only + self.right_only + self.by_tie


_STEPS = 10**8
"""Most additions for which the distribution is computed exactly: a fraction of a second."""


def untested(difference: Difference) -> tuple[Difference, SignFlip, float]:
    """Return the value of a difference of pooled numbers, and NaN for test and detectable size.

    A sample's calibration error is too great and its worst order too low, in one model more than in
    another: a paired test calls two calibrated models different in 4 of 10 samples.
    """
    bare = replace(difference, se=math.nan, ci_low=math.nan, ci_high=math.nan)
    return bare, SignFlip(left_only=0, right_only=0, by_tie=0, p=math.nan, exact=False), math.nan


def sign_flip(left: Floats, right: Floats, steps: int = _STEPS) -> SignFlip:
    """Compute P(|Σ ± d| ≥ |Σ d|) for the differences d of credits, every sign equally likely.

    ``left`` and ``right``: credits [items], NaN for missing.  It is the permutation test of paired
    values (Fisher 1935), McNemar's exact test if all credits are 0 or 1.  If it takes more than
    ``steps`` additions, or if credits are no parts of a tie but any numbers, ``p`` is from the
    normal limit of this distribution.
    """
    left_only = int(((left == 1) & (right == 0)).sum())
    right_only = int(((left == 0) & (right == 1)).sum())
    both = ~(np.isnan(left) | np.isnan(right))
    left = left[both]
    right = right[both]
    if len(left) and steps and _are_zero_or_one(left) and _are_zero_or_one(right):
        differing = left_only + right_only
        p = _mcnemar(left_only, right_only)
        exact = True
    elif _are_fractions(left) and _are_fractions(right):
        differences = integer_differences(left, right)
        differing = len(differences)
        exact = differing * (_lower_tail(differences) + 1) <= steps
        if not len(left):
            p = math.nan
        elif exact:
            p = exact_tail(differences)
        else:
            p = normal_tail(differences)
    else:
        signed = left - right
        differing = int(np.count_nonzero(signed))
        p = _limit(float(signed.sum()), float(np.square(signed).sum()), differing)
        exact = False
    return SignFlip(
        left_only=left_only,
        right_only=right_only,
        by_tie=differing - left_only - right_only,
        p=p,
        exact=exact,
    )


def weighted_flip(credits: Floats, weights: Floats) -> SignFlip:
    """Return :func:`sign_flip` of means in which items have ``weights``, float64 [items].

    ``credits``: of both, float64 [2, items].  Items are counted by them, whatever they weigh.
    """
    left, right = credits
    test = sign_flip(weights * left, weights * right)
    if _weigh_alike(weights):
        return test
    counts = sign_flip(left, right, steps=0)
    return replace(counts, p=test.p, exact=test.exact, weighted=True)


def _are_zero_or_one(credits: Floats) -> bool:
    return bool(np.isin(credits, (0, 1)).all())


def pairwise_p(credits: Floats, are_summed: bool = False) -> Floats:
    """Compute the two-sided p-value of the sign-flip test of every pair of models.

    ``credits``: float64 [models, items] without NaN.  Returns float64 [models, models], exact if
    all credits are 0 or 1 (McNemar's test), else from the normal limit.  ``are_summed``: credits
    are sums of weighed ones, and exact for a pair that differs by as much everywhere.
    """
    if _are_zero_or_one(credits):
        from scipy.special import bdtr

        # only[i, j] counts the items that i has right and j has not.
        only = credits @ (1 - credits).T
        either = (only + only.T).astype(np.int64)
        tail = bdtr(np.minimum(only, only.T), either, 0.5)
        return np.minimum(1.0, 2 * tail)
    unit = _unit(credits)
    models = len(credits)
    p = np.ones((models, models))
    for left in range(models):
        for right in range(left):
            differences = credits[left] - credits[right]
            if are_summed:
                p[left, right] = p[right, left] = _weighed_p(differences)
                continue
            # Neighbouring sums of fractions differ by two units, so half of that corrects for
            # continuity.
            beyond = max(0.0, abs(float(differences.sum())) - unit)
            differing = int(np.count_nonzero(differences))
            p[left, right] = _limit(beyond, float(np.square(differences).sum()), differing)
            p[right, left] = p[left, right]
    return p


def _weighed_p(differences: Floats) -> float:
    """Return the two-sided p-value of differences of sums of weighed credits."""
    # The same credits in another order differ by rounding.
    differing = differences[np.abs(differences) > 1e-9]
    if not len(differing):
        return 1.0
    sizes = np.abs(differing)
    if np.ptp(sizes) < 1e-9:
        return _mcnemar(int((differing > 0).sum()), int((differing < 0).sum()))
    # Weights have no unit: half of the least step between sums is the correction.
    beyond = max(0.0, abs(float(differing.sum())) - float(sizes.min()))
    return _limit(beyond, float(np.square(differing).sum()), len(differing))


def significantly_better(
    credits: Floats, undecided: Mask | None = None, are_summed: bool = False
) -> Mask:
    """Mark which model is significantly better than which, bool [models, models].

    [i, j] is marked if i is better than j.  All pairs are tested on the same items, with Holm's
    correction: if all models are equally good, anything is marked in at most 5 % of cases.
    ``credits``: float64 [models, items] without NaN, the greater the better.  ``undecided``: pairs
    whose order something else leaves open.  Nothing is marked below :data:`FEWEST` items.
    """
    models, items = credits.shape
    if items < FEWEST:
        return np.zeros((models, models), dtype=np.bool_)
    p = pairwise_p(credits, are_summed)
    if undecided is not None:
        p[undecided] = 1.0
    pairs = np.triu_indices(models, 1)
    adjusted = np.ones((models, models))
    adjusted[pairs] = holm(p[pairs])
    totals = credits.sum(axis=1)
    is_ahead = totals[:, None] > totals[None, :]
    return is_ahead & (np.minimum(adjusted, adjusted.T) <= LEVEL)


def rank_ranges(better: Mask) -> tuple[Integers, Integers]:
    """Return the best and the worst rank that each model may have, int64 [models].

    ``better``: of :func:`significantly_better`.
    """
    best = 1 + better.sum(axis=0)
    worst = len(better) - better.sum(axis=1)
    return best, worst


def _unit(credits: Floats) -> float:
    """Return the greatest number that divides all ``credits``; 0 if they aren't fractions."""
    if not _are_fractions(credits):
        return 0.0
    denominators = [_fraction(value).denominator for value in np.unique(credits).tolist()]
    return 1 / math.lcm(*denominators)


def _limit(total: float, squares: float, differing: int) -> float:
    """Compute the p-value of a sum of ``differing`` differences of random signs, from its limit.

    ``squares``: the sum of their squares.
    """
    if not differing:
        return 1.0
    p = math.erfc(abs(total) / math.sqrt(2 * squares))
    # If few items differ the tail of the limit is too light: p is at least the chance that all
    # signs agree.
    return max(p, 2.0 ** (1 - differing))


_LARGEST = 1000
"""The largest denominator of a credit, a tie among that many choices.

Such fractions differ by far more than floats do.
"""


def _fraction(credit: float) -> Fraction:
    return Fraction(credit).limit_denominator(_LARGEST)


def _are_fractions(credits: Floats) -> bool:
    """Check that all credits are whole, or parts of a tie."""
    values = np.unique(credits)
    if len(values) > _LARGEST:
        return False
    return all(abs(float(_fraction(value)) - value) < 1e-9 for value in values.tolist())


def integer_differences(left: Floats, right: Floats) -> list[int]:
    """Return left - right where they differ, in the greatest unit that makes all of them whole."""
    values, positions = np.unique(np.concatenate([left, right]), return_inverse=True)
    credits = [_fraction(value) for value in values.tolist()]
    scale = math.lcm(*(credit.denominator for credit in credits))
    # Python's integers, because a scale of many denominators does not fit into 64 bits.
    multiples = np.array([int(credit * scale) for credit in credits], dtype=object)[positions]
    differences = multiples[: len(left)] - multiples[len(left) :]
    differing = differences[differences != 0].tolist()
    unit = math.gcd(*differing)
    return [difference // unit for difference in differing]


def _lower_tail(differences: Sequence[int]) -> int:
    """Return the greatest flipped part of a sum in the lower tail.

    A sum over signs is the largest one minus twice the part that is flipped.
    """
    largest = sum(map(abs, differences))
    return (largest - abs(sum(differences))) // 2


def exact_tail(differences: Sequence[int]) -> float:
    """Return the two-sided p-value of whole differences other than 0.

    It is from the distribution of their sum over all signs: P(flipped part = 0, 1, ...) up to the
    lower tail.
    """
    edge = _lower_tail(differences)
    flipped = np.zeros(edge + 1)
    flipped[0] = 1.0
    for size in map(abs, differences):
        if size <= edge:
            flipped[size:] += flipped[:-size]
        flipped /= 2
    return min(1.0, 2 * float(flipped.sum()))


def normal_tail(differences: Sequence[int]) -> float:
    """Return the normal limit of :func:`exact_tail`, with a correction for continuity."""
    sd = math.sqrt(sum(difference**2 for difference in differences))
    if not sd:
        return 1.0
    # Neighbouring sums differ by 2, so half of that is the correction.
    beyond = max(0, abs(sum(differences)) - 1)
    return math.erfc(beyond / sd / math.sqrt(2))


def centred_ranks(values: Floats) -> Floats:
    """Return average ranks within each row minus their mean, float64 [items, choices].

    A row with a NaN is NaN.
    """
    left = values[:, :, None]
    right = values[:, None, :]
    ranks = ((left > right) - (left < right).astype(np.float64)).sum(axis=2) / 2
    has_nan = np.isnan(values).any(axis=1, keepdims=True)
    return np.where(has_nan, np.nan, ranks)


EXACT = 1 << 14
"""Most outcomes of which the distribution is computed exactly: some milliseconds."""


def _homogeneity(counts: Integers) -> tuple[float, float]:
    """Return the statistic d' V⁻¹ d of the differences d of row and column sums, and its p-value.

    ``counts`` is square.  V is the covariance of d if every item's pair is turned round with
    probability 1/2, which does not change V.  Of few items p is exact over all turns, else from the
    χ² limit.
    """
    from scipy.special import chdtrc

    pairs = counts + counts.T
    np.fill_diagonal(pairs, 0)
    covariance = np.diag(pairs.sum(axis=1)) - pairs
    values, vectors = np.linalg.eigh(covariance)
    # V has at least one eigenvalue of 0, since d sums to 0.
    rounding = values.max(initial=0.0) * len(values) * np.finfo(np.float64).eps
    is_axis = values > rounding
    if not is_axis.any():
        return 0.0, 1.0
    axes = vectors[:, is_axis] / np.sqrt(values[is_axis])
    difference = counts.sum(axis=1) - counts.sum(axis=0)
    chi_square = float(np.square(difference @ axes).sum())
    rows, columns = np.nonzero(np.triu(pairs))
    sizes = pairs[rows, columns].tolist()
    if math.prod(size + 1 for size in sizes) > EXACT:
        return chi_square, float(chdtrc(is_axis.sum(), chi_square))
    # turned[outcome, pair] counts the items of a pair that go one way.
    turned = np.array(list(product(*(range(size + 1) for size in sizes))))
    directions = axes[rows] - axes[columns]
    statistics = np.square((2 * turned - sizes) @ directions).sum(axis=1)
    chances = np.ones(len(turned))
    for pair, size in enumerate(sizes):
        chances *= _binomial(size)[turned[:, pair]]
    is_beyond = statistics >= chi_square * (1 - 1e-9)
    return chi_square, min(1.0, float(chances[is_beyond].sum()))


def _binomial(size: int) -> Floats:
    """Return the probabilities of 0 to ``size`` heads of a fair coin, float64 [size + 1]."""
    from scipy.special import bdtr

    return np.diff(bdtr(np.arange(size + 1), size, 0.5), prepend=0.0)


def _constant_p(choices: Integers, right: Floats | Integers, hit: Mask) -> float:
    """Return at most how likely a model without a preference predicts one position for every item.

    ``choices`` and ``right``: how many an item has; ``hit``: the position is right; [items] each.
    Such a model is right with the same probability everywhere, here the one under which this is
    likeliest, and else takes any wrong choice with the same probability.  The result is times the
    number of positions that it could have been.
    """
    has_wrong = choices > right
    n = int(has_wrong.sum())
    if not n:
        return 1.0
    hits = int(hit[has_wrong].sum())
    likelihood = 0.0
    for count in (hits, n - hits):
        if count:
            likelihood += count * math.log(count / n)
    # Among the right choices, or among the wrong ones, all are equally likely.
    equally_likely = np.where(hit, right, choices - right)[has_wrong]
    likelihood -= float(np.log(equally_likely).sum())
    return min(1.0, int(choices.max()) * math.exp(likelihood))


def _mcnemar(left_only: int, right_only: int) -> float:
    """Return McNemar's exact p-value: :func:`exact_tail` if all differences are 1 or -1."""
    from scipy.special import bdtr

    differing = left_only + right_only
    if not differing:
        return 1.0
    return min(1.0, 2 * float(bdtr(min(left_only, right_only), differing, 0.5)))
