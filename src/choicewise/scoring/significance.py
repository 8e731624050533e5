"""Paired tests, biases, multiverse."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import product
from statistics import NormalDist
from typing import Final

import numpy as np
import numpy.typing as npt

from choicewise.scoring.decide import Decisions, guess
from choicewise.scoring.intervals import ALIKE, standard_error, student, two_sided
from choicewise.scoring.observed import Floats, Integers, Mask, by_length, reduce_rows, row_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Validity:
    """Checks of one protocol's decisions that need no model call.

    ``chance``: expected accuracy of guessing evenly.  ``at_chance``: the accuracy is within one standard error of it.
    ``constant``: every prediction is the same position, which a model without a preference would do with p < 0.01
    (:func:`~.position_bias.constant_p`).  ``most_common``: the greatest share any position has among
    the predictions.  ``tie_rate``: share of scored items with a tie at the top.  NaN and False without scored items.
    """

    chance: float
    at_chance: bool
    constant: bool
    most_common: float
    tie_rate: float


SIGNIFICANT = 0.01
"""Warnings that are the outcome of a test are raised below this p-value."""


def validity(
    decisions: Decisions, item_offsets: Integers, gold: Mask, guesses: Floats | None = None
) -> Validity:
    """The checks of one protocol's decisions; ``gold``: which rows are right choices, bool [rows].

    ``guesses``: the credit of each item that is expected of guessing; None: as accuracy counts.

    Items with one choice can't be guessed, nor predicted otherwise.
    """
    scored = ~decisions.missing
    credit = decisions.credit[scored]
    if not len(credit):
        return Validity(
            chance=math.nan,
            at_chance=False,
            constant=False,
            most_common=math.nan,
            tie_rate=math.nan,
        )
    chance = float((guess(item_offsets, gold) if guesses is None else guesses)[scored].mean())
    near = len(credit) < 2 or abs(float(credit.mean()) - chance) <= standard_error(credit)
    at_chance = near and not math.isnan(chance)
    known = decisions.prediction >= 0
    predicted = decisions.prediction[known]
    most_common = (
        float(np.bincount(predicted).max() / len(predicted)) if len(predicted) else math.nan
    )
    choices, right = np.diff(item_offsets)[known], reduce_rows(np.add, gold, item_offsets)[known]
    hit = gold[item_offsets[:-1][known] + predicted]
    constant = most_common == 1.0 and _constant_p(choices, right, hit) < SIGNIFICANT
    return Validity(
        chance=chance,
        at_chance=at_chance,
        constant=constant,
        most_common=most_common,
        tie_rate=float(decisions.tied[scored].mean()),
    )


def guessing_p(credit: Floats, chance: Floats) -> float:
    """At most how likely guessing gives as much ``credit``; ``chance``: of each item, float64 [items] both.

    The tail of a binomial distribution of the same mean: that of items with different chances is no heavier (Hoeffding
    1956).  A part of a right answer counts for nothing; NaN without items, or where an item can't be guessed.
    """
    if not len(credit) or np.isnan(chance).any():
        return math.nan
    right = math.floor(float(credit.sum()) + 1e-9)
    return binomial_tail(right, len(credit), float(chance.mean()))


def binomial_tail(right: int, n: int, chance: float) -> float:
    """Return how likely ``right`` or more of ``n`` items are right that are each right with probability ``chance``."""
    from scipy.special import bdtrc

    return float(bdtrc(right - 1, n, chance)) if right else 1.0


def positive_p(values: Floats) -> float:
    """Return how likely a mean of 0 or less gives as great a mean of ``values`` [items], by Student's t.

    NaN for fewer than two values, or where all are the same.
    """
    error = standard_error(values)
    if not error > 0:
        return math.nan
    from scipy.special import stdtr

    return float(stdtr(len(values) - 1, -float(values.mean()) / error))


HALF = 0.5
"""Below so much probability an item's labels hold little of it."""


def low_mass_rate(mass: Floats, threshold: float = HALF) -> float:
    """Share of items whose choices hold less than ``threshold`` of the model's probability (``option_mass`` [items]).

    Where it is high the model prefers to say something else, and the order of the choices says little.
    """
    known = mass[~np.isnan(mass)]
    return float((known < threshold).mean()) if len(known) else math.nan


@dataclass(frozen=True, slots=True)
class Fit:
    """``log_likelihood``: Σ count · log p over the choices of ``items`` items by ``people`` people, in nats, -inf where
    a choice that was made has probability 0; ``correlation``: Pearson's, of probabilities and shares of people over all
    choices, NaN where either is constant."""

    log_likelihood: float
    correlation: float
    items: int
    people: float


def fit(probabilities: Floats, counts: Floats, item_offsets: Integers) -> Fit:
    """The fit of ``probabilities`` to ``counts``, both float64 [rows].  Items with NaN or a total of 0 do not count.

    Item i has the rows ``item_offsets[i]:item_offsets[i + 1]``.  The log-likelihood is without the multinomial
    coefficients, the same for every model (Franke et al. 2024 fit choice counts of the same kind).
    """
    totals = reduce_rows(np.add, counts, item_offsets)
    known = (totals > 0) & ~np.isnan(reduce_rows(np.add, probabilities, item_offsets))
    item = row_of(item_offsets)
    rows = known[item]
    predicted, people = probabilities[rows], counts[rows]
    shares = people / totals[item][rows]
    with np.errstate(divide="ignore"):
        terms = people[people > 0] * np.log(predicted[people > 0])
    likelihood = float(terms.sum()) if known.any() else math.nan
    return Fit(likelihood, _pearson(predicted, shares), int(known.sum()), float(people.sum()))


LEVEL = 0.05
"""Of significance, after Holm's correction for all tests."""


def holm(p: npt.ArrayLike) -> Floats:
    """Adjusted p-values in the order given (Holm 1979); rejecting those ≤ α errs anywhere with probability ≤ α."""
    values = np.asarray(p, dtype=np.float64)
    order = np.argsort(values, kind="stable")
    stepped = np.maximum.accumulate(values[order] * np.arange(len(values), 0, -1))
    adjusted = np.empty_like(values)
    adjusted[order] = np.minimum(stepped, 1.0)
    return adjusted


AT_ONCE: Final = 1 << 18
"""Pairs of choices that are compared together: some 10 MB."""


def length_correlations(scores: Floats, lengths: Floats, item_offsets: Integers) -> Floats:
    """Spearman's correlation between score and length among the choices of each item, float64 [items].

    NaN for an item with a missing choice, or whose choices all have the same length or score.
    """
    correlations = np.full(len(item_offsets) - 1, np.nan)
    for items, rows in by_length(item_offsets):
        step = max(1, AT_ONCE // rows.shape[1] ** 2)
        for start in range(0, len(items), step):
            part = slice(start, start + step)
            correlations[items[part]] = _correlations(scores[rows[part]], lengths[rows[part]])
    return correlations


def length_shifts(
    chosen: Integers, right: Integers, lengths: Floats, item_offsets: Integers
) -> Floats:
    """Return how much longer than the right choice the chosen one is, in ranks from 0 (shortest) to 1, float64 [items].

    ``chosen`` and ``right`` are places in the item, -1 for none; ``lengths``: of all choices, float64 [rows].  NaN for
    an item without one of them, with a length that is not known, or whose choices are all as long.
    """
    shifts = np.full(len(item_offsets) - 1, np.nan)
    for items, rows in by_length(item_offsets):
        judged = (chosen[items] >= 0) & (right[items] >= 0)
        own = items[judged]
        if not len(own):
            continue
        ranks = _ranks(lengths[rows[judged]])
        index = np.arange(len(own))
        spread = np.ptp(ranks, axis=1)
        with np.errstate(invalid="ignore", divide="ignore"):
            shifts[own] = (ranks[index, chosen[own]] - ranks[index, right[own]]) / spread
    return shifts


def length_p(shifts: Floats) -> float:
    """Return how likely so large a mean shift is if every item's could as well have the other sign; two-sided.

    The normal limit of the sign-flip test with a correction for continuity: no shift is greater than 1.  ``shifts``:
    float64 [items] from -1 to 1, without NaN.
    """
    spread = math.sqrt(float(np.square(shifts).sum()))
    beyond = max(0.0, abs(float(shifts.sum())) - 1)
    return math.erfc(beyond / spread / math.sqrt(2)) if spread else math.nan


@dataclass(frozen=True, slots=True)
class Panel:
    """One model's accuracy over protocols; ``flips``: share of items with different predictions."""

    least: float
    median: float
    greatest: float
    flips: float


def panel(credits: Floats, predictions: Integers) -> Panel:
    """The spread over protocols; ``credits`` and ``predictions`` have shape [protocols, items], NaN and -1 missing.

    Each protocol's accuracy is over the items it scored, flips over the items that at least two of them predicted.
    """
    accuracies = [accuracy for accuracy in map(_mean, credits) if not math.isnan(accuracy)]
    predicted = predictions >= 0
    shared = predicted.sum(axis=0) > 1
    # A protocol without a prediction (-1) counts neither as the greatest nor as the least.
    least = np.where(predicted, predictions, np.iinfo(np.int64).max).min(
        axis=0, initial=np.iinfo(np.int64).max
    )
    flips = _mean((predictions.max(axis=0, initial=-1) != least)[shared].astype(np.float64))
    known = accuracies or [math.nan]
    return Panel(min(known), float(np.median(known)), max(known), flips)


@dataclass(frozen=True, slots=True)
class Agreement:
    """How many protocols say that left is better, that right is better, or neither; over the items both scored."""

    left: int
    right: int
    even: int

    @property
    def share(self) -> float:
        """Share of the protocols that agree with the most common sign; NaN without protocols."""
        counts = (self.left, self.right, self.even)
        return max(counts) / sum(counts) if sum(counts) else math.nan


def sign_agreement(left: Floats, right: Floats) -> Agreement:
    """The sign of the paired difference of two models under each protocol; credits [protocols, items], NaN missing.

    A protocol under which the models share no scored item has no sign and does not count.
    """
    means = np.array([_mean(difference) for difference in left - right])
    signs = np.where(np.abs(means) <= ALIKE, 0.0, np.sign(means))
    return Agreement(
        left=int((signs == 1).sum()), right=int((signs == -1).sum()), even=int((signs == 0).sum())
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Left mean minus right mean over the ``n`` items both scored; ``missing``: items that at least one did not score.

    ``se`` is NaN where all items have the same difference, which says nothing about how it varies, and so is the
    interval (95 %) unless credits are right or wrong.
    """

    value: float
    se: float
    ci_low: float
    ci_high: float
    n: int
    missing: int


def paired_difference(
    left: Floats, right: Floats, counted: bool = True, most: float = 1.0
) -> Difference:
    """Compare credits item by item, float64 [items] each with NaN for missing.

    Pairing removes what makes an item hard for both.  ``counted``: credits are right, wrong or a part of a tie; then
    the interval is that of Agresti & Min (2005), which exists however few items differ.  Else it is Student's t.
    ``most``: no two credits differ by more.
    """
    difference = mean_of_items(left - right, -most, most)
    if not counted or not difference.n:
        return difference
    centre, error = _with_halves(left - right)
    half = two_sided(0.95) * error
    return replace(difference, ci_low=max(-1.0, centre - half), ci_high=min(1.0, centre + half))


def mean_of_items(values: Floats, low: float = -math.inf, high: float = math.inf) -> Difference:
    """Return the mean of ``values`` [items], NaN for missing, with the interval of Student's t.

    ``low`` and ``high``: between which every value lies; the interval ends there.
    """
    known = values[~np.isnan(values)]
    n = len(known)
    value = float(known.mean()) if n else math.nan
    varies = n > 1 and np.ptp(known) >= 1e-9  # 1/3 - 0 and 2/3 - 1/3 are equal but for rounding
    se = standard_error(known) if varies else math.nan
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
    """Return Σ (left - right) / Σ tokens over the rows ``among``, in nats a token; None where they have none.

    ``left`` and ``right``: log-likelihoods [rows]; ``tokens``: how many scored tokens each row has.  The standard error
    is that of a ratio of sums over items, which are drawn, not the tokens: that of R + w (d - R) / mean w, with d the
    item's own loss per token and w its tokens.
    """
    known = among & (tokens > 0)
    with np.errstate(invalid="ignore"):
        lost = reduce_rows(np.add, np.where(among, left - right, 0.0), item_offsets)
        weight = reduce_rows(np.add, np.where(known, tokens, 0), item_offsets)
        scored = ~np.isnan(lost) & (weight > 0)
        if not scored.any():
            return None
        ratio = lost[scored].sum() / weight[scored].sum()
        of_items = np.where(scored, ratio + (lost - ratio * weight) / weight[scored].mean(), np.nan)
        return mean_of_items(of_items)


def detectable_difference(left: Floats, right: Floats, counted: bool = True) -> float:
    """Return the difference of means that is significant with probability 0.8 (95 %) on so many items.

    Arguments as of :func:`paired_difference`, with whose interval it shares the error; NaN where that has none.
    """
    error = _with_halves(left - right)[1] if counted else mean_of_items(left - right).se
    return minimum_detectable_effect(error)


def minimum_detectable_effect(error: float, level: float = 0.95, power: float = 0.8) -> float:
    """(z_{α/2} + z_β) · ``error``: the difference of means that is significant with probability ``power``.

    ``error``: the standard error, for two models that of their paired difference.
    """
    return (two_sided(level) + NormalDist().inv_cdf(power)) * error


def _with_halves(differences: Floats) -> tuple[float, float]:
    """Return mean and standard error with half an item more in each of the four cells: both, left, right, neither."""
    known = differences[~np.isnan(differences)]
    if not len(known):
        return math.nan, math.nan
    size = len(known) + 2
    mean = float(known.sum()) / size  # of the halves one is +1, one is -1
    variance = (float(np.square(known).sum()) + 1) / size - mean**2
    return mean, math.sqrt(variance / size)


@dataclass(frozen=True, slots=True, kw_only=True)
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


FEWEST = 20
"""Items from which on positions are tested, and an order of two models is claimed."""


def is_significant(p: float, items: int) -> bool:
    """Check that models may be called different: ``p``, corrected for all tests, is small, and the items are enough."""
    return items >= FEWEST and p <= LEVEL


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
        return PositionBias(
            recalls=tuple(recalls.tolist()), rstd=math.nan, chi_square=math.nan, p=math.nan, n=n
        )
    counts = np.bincount(predicted * positions + right, minlength=positions**2).reshape(
        positions, positions
    )
    chi_square, p = _homogeneity(counts)
    return PositionBias(
        recalls=tuple(recalls.tolist()),
        rstd=float(recalls[used].std()),
        chi_square=chi_square,
        p=p if n >= FEWEST else math.nan,
        n=n,
    )


def permutation_consistency(predictions: Integers) -> float:
    """Share of items with the same prediction in every order of the options; NaN when no item has all predictions.

    ``predictions``: the option chosen, by its index in the item, int64 [orders, items]; an item with -1 in any
    order does not count.
    """
    known = (predictions >= 0).all(axis=0)
    same = (predictions == predictions[:1]).all(axis=0)
    return float(same[known].mean()) if known.any() else math.nan


@dataclass(frozen=True, slots=True, kw_only=True)
class SignFlip:
    """``left_only``, ``right_only``: items only one of the two has right; ``by_tie``: items whose credits differ in
    another way, because a tie is split or credits are any numbers; ``p``: two-sided, NaN without items that both
    scored; ``exact``: computed from the distribution itself, not from its normal limit."""

    left_only: int
    right_only: int
    by_tie: int
    p: float
    exact: bool

    @property
    def differing(self) -> int:
        """Items whose credits differ: only they have a sign to flip."""
        return self.left_only + self.right_only + self.by_tie


_STEPS = 10**8
"""Most additions for which the distribution is computed exactly: a fraction of a second."""


def untested(difference: Difference) -> tuple[Difference, SignFlip, float]:
    """Return the difference of two numbers of all items together, a test and a detectable size: NaN but the first.

    A sample's calibration error is too great and its worst order too low, in one model more than in another: a paired
    test calls two calibrated models different in 4 of 10 samples.
    """
    bare = replace(difference, se=math.nan, ci_low=math.nan, ci_high=math.nan)
    return bare, SignFlip(left_only=0, right_only=0, by_tie=0, p=math.nan, exact=False), math.nan


def sign_flip(left: Floats, right: Floats, steps: int = _STEPS) -> SignFlip:
    """P(|Σ ± d| ≥ |Σ d|) for the differences d of the credits [items], NaN for missing, every sign equally likely.

    The permutation test of paired values (Fisher 1935).  Where all credits are 0 or 1 it is McNemar's exact test.
    If that takes more than ``steps`` additions, or where credits are no parts of a tie but any numbers, ``p`` is from
    the normal limit of the same distribution.
    """
    left_only = int(((left == 1) & (right == 0)).sum())
    right_only = int(((left == 0) & (right == 1)).sum())
    both = ~(np.isnan(left) | np.isnan(right))
    plain = both.any() and all(np.isin(side[both], (0, 1)).all() for side in (left, right))
    if plain and steps:
        return SignFlip(
            left_only=left_only,
            right_only=right_only,
            by_tie=0,
            p=_binomial_tail(left_only, right_only),
            exact=True,
        )
    if not (_fractions(left[both]) and _fractions(right[both])):
        signed = (left - right)[both]
        differing = int((signed != 0).sum())
        p = _limit(float(signed.sum()), float(np.square(signed).sum()), differing)
        return SignFlip(
            left_only=left_only,
            right_only=right_only,
            by_tie=differing - left_only - right_only,
            p=p,
            exact=False,
        )
    differences = integer_differences(left[both], right[both])
    observed, largest = abs(sum(differences)), sum(map(abs, differences))
    exact = len(differences) * ((largest - observed) // 2 + 1) <= steps
    p = (exact_tail if exact else normal_tail)(differences) if both.any() else math.nan
    return SignFlip(
        left_only=left_only,
        right_only=right_only,
        by_tie=len(differences) - left_only - right_only,
        p=p,
        exact=exact,
    )


def pairwise_p(credits: Floats) -> Floats:
    """Compute the two-sided p-value of the sign-flip test of every pair of models, float64 [models, models].

    ``credits``: float64 [models, items] without NaN.  It is exact where all credits are 0 or 1 (McNemar's test), else
    from the normal limit.
    """
    if np.isin(credits, (0, 1)).all():
        from scipy.special import bdtr

        only = credits @ (1 - credits).T  # [i, j]: items that i has right and j has not
        either = (only + only.T).astype(np.int64)
        tail = bdtr(np.minimum(only, only.T), either, 0.5)
        return np.asarray(np.minimum(1.0, 2 * tail))
    unit = _unit(credits)
    models = len(credits)
    p = np.ones((models, models))
    for one in range(models):
        for other in range(one):
            differences = credits[one] - credits[other]
            # Neighbouring sums of fractions differ by two units, so half of that corrects for continuity.
            beyond = max(0.0, abs(float(differences.sum())) - unit)
            differing = int(np.count_nonzero(differences))
            p[one, other] = p[other, one] = _limit(
                beyond, float(np.square(differences).sum()), differing
            )
    return p


def significantly_better(credits: Floats, undecided: Mask | None = None) -> Mask:
    """Mark which model is significantly better than which, bool [models, models]: [i, j] where i is better than j.

    All pairs of models are tested on the same items, with Holm's correction for all of them: where all models are
    equally good, anything is marked in at most 5 % of cases.  ``credits``: float64 [models, items] without NaN, the
    greater the better.  ``undecided``: pairs whose order something else leaves open.  Nothing is marked below
    :data:`FEWEST` items.
    """
    models, items = credits.shape
    if items < FEWEST:
        return np.zeros((models, models), dtype=np.bool_)
    p = pairwise_p(credits)
    if undecided is not None:
        p[undecided] = 1.0
    pairs = np.triu_indices(models, 1)
    adjusted = np.ones((models, models))
    adjusted[pairs] = holm(p[pairs])
    totals = credits.sum(axis=1)
    ahead = totals[:, None] > totals[None, :]
    return np.asarray(ahead & (np.minimum(adjusted, adjusted.T) <= LEVEL))


def rank_ranges(better: Mask) -> tuple[Integers, Integers]:
    """Compute the best and the worst rank that each model may have, int64 [models]; ``better``: of the pairs."""
    best = 1 + better.sum(axis=0)
    worst = len(better) - better.sum(axis=1)
    return best, worst


def _unit(credits: Floats) -> float:
    """Return the greatest number that all ``credits`` are multiples of; 0 where they are no parts of a tie."""
    if not _fractions(credits):
        return 0.0
    fractions = [
        Fraction(value).limit_denominator(_LARGEST) for value in np.unique(credits).tolist()
    ]
    return 1 / math.lcm(*(fraction.denominator for fraction in fractions))


def _limit(total: float, squares: float, differing: int) -> float:
    """Compute the p-value of a sum of differences of random signs from the normal limit; ``squares``: their sum.

    Where few items differ the limit has too little beyond, so p is at least the chance that all signs agree.
    """
    if not differing:
        return 1.0
    p = math.erfc(abs(total) / math.sqrt(2 * squares))
    return max(p, 2.0 ** (1 - differing))


_LARGEST = 1000
"""Largest denominator of a credit: a tie among that many choices.  Such fractions differ by far more than floats do."""


def integer_differences(left: Floats, right: Floats) -> list[int]:
    """left - right where they differ, in the greatest unit that makes all of them whole numbers."""
    values, positions = np.unique(np.concatenate([left, right]), return_inverse=True)
    credits = [Fraction(value).limit_denominator(_LARGEST) for value in values.tolist()]
    scale = math.lcm(*(credit.denominator for credit in credits))
    multiples = np.array([int(credit * scale) for credit in credits], dtype=object)[positions]
    differences = [
        difference for difference in multiples[: len(left)] - multiples[len(left) :] if difference
    ]
    unit = math.gcd(*differences)
    return [difference // unit for difference in differences]


def exact_tail(differences: Sequence[int]) -> float:
    """The two-sided p-value of whole differences other than 0, from the distribution of their sum over all signs.

    A sum over signs is the largest one minus twice the part that is flipped, so it takes P(flipped part = 0, 1, ...) up
    to the lower tail.
    """
    edge = (sum(map(abs, differences)) - abs(sum(differences))) // 2
    flipped = np.zeros(edge + 1)
    flipped[0] = 1.0
    for size in map(abs, differences):
        if size <= edge:
            flipped[size:] += flipped[:-size]
        flipped /= 2
    return min(1.0, 2 * float(flipped.sum()))


def normal_tail(differences: Sequence[int]) -> float:
    """The normal limit of :func:`exact_tail`, with a continuity correction of 1: neighbouring sums differ by 2."""
    sd = math.sqrt(sum(difference**2 for difference in differences))
    return math.erfc(max(0, abs(sum(differences)) - 1) / sd / math.sqrt(2)) if sd else 1.0


def _pearson(left: Floats, right: Floats) -> float:
    if not len(left):
        return math.nan
    x, y = left - left.mean(), right - right.mean()
    spread = math.sqrt(float((x**2).sum()) * float((y**2).sum()))
    return float((x * y).sum()) / spread if spread else math.nan


def _correlations(scores: Floats, lengths: Floats) -> Floats:
    """The same of items with equally many choices: float64 [items] from [items, choices]."""
    left, right = _ranks(scores), _ranks(lengths)
    spread = np.sqrt((left**2).sum(axis=1) * (right**2).sum(axis=1))
    return np.divide(
        (left * right).sum(axis=1), spread, out=np.full(len(left), np.nan), where=spread > 0
    )


def _ranks(values: Floats) -> Floats:
    """Average ranks within each row minus their mean, float64 [items, choices].  A row with a NaN is NaN."""
    left, right = values[:, :, None], values[:, None, :]
    ranks = ((left > right) - (left < right).astype(np.float64)).sum(axis=2) / 2
    return np.where(np.isnan(values).any(axis=1, keepdims=True), np.nan, ranks)


def _mean(values: Floats) -> float:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else math.nan


EXACT = 1 << 14
"""Most outcomes of which the distribution is computed exactly: some milliseconds."""


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
    turned = np.array(
        list(product(*(range(size + 1) for size in sizes)))
    )  # the items of each pair that go one way
    directions = np.array([axes[row] - axes[column] for row, column in upper])
    statistics = np.square((2 * turned - sizes) @ directions).sum(axis=1)
    chances = math.prod(_binomial(size)[turned[:, place]] for place, size in enumerate(sizes))
    return chi_square, min(1.0, float(chances[statistics >= chi_square * (1 - 1e-9)].sum()))


def _binomial(size: int) -> Floats:
    """The probabilities of 0 to ``size`` heads of a fair coin, float64 [size + 1]."""
    from scipy.special import bdtr

    return np.diff(bdtr(np.arange(size + 1), size, 0.5), prepend=0.0)


def _constant_p(choices: Integers, right: Floats | Integers, hit: Mask) -> float:
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
    likelihood = 0.0
    for count in (hits, n - hits):
        if count:
            likelihood += count * math.log(count / n)
    likelihood -= float(np.log(alike).sum())
    return min(1.0, int(choices.max()) * math.exp(likelihood))


def _fractions(credits: Floats) -> bool:
    """Whether all credits are whole, or parts of a tie."""
    values = np.unique(credits)
    if len(values) > _LARGEST:
        return False
    return all(
        abs(float(Fraction(value).limit_denominator(_LARGEST)) - value) < 1e-9
        for value in values.tolist()
    )


def _binomial_tail(left_only: int, right_only: int) -> float:
    """The same as :func:`exact_tail` where all differences are 1 or -1: McNemar's exact test."""
    from scipy.special import bdtr

    differing = left_only + right_only
    return (
        min(1.0, 2 * float(bdtr(min(left_only, right_only), differing, 0.5))) if differing else 1.0
    )
