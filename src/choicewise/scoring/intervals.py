"""Compute a metric from the credits of its items, with its standard error and interval."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from choicewise.data.items import Categories
from choicewise.protocols.metrics import Metric
from choicewise.scoring.decide import Decisions
from choicewise.scoring.observed import (
    Floats,
    Integers,
    Mask,
    item_any,
    item_max,
    item_sum,
    mean_of_present,
    row_of,
)

_STEPS = 45
"""Bisections, to 1e-13 of the way from the mean to the end of the range."""

_DRAWS = 1000
"""Samples for the interval of a calibration error."""

_TAIL = 0.025
"""The probability beyond a bound of a 95 % interval."""


def stratified(
    rights: Floats, sizes: Integers | Floats, level: float = 0.95, weights: Floats | None = None
) -> tuple[float, float]:
    """Return (low, high), an interval for the mean of the accuracies of a fixed set of subjects.

    ``rights``: the total credit of each subject's items, float64 [subjects].  ``sizes``: how many
    items it has, at least one.  ``weights``: of each accuracy in a sum that replaces the mean.

    The interval holds all sums θ that the score test does not reject, with the subjects' accuracies
    as likely as a sum of θ allows (Miettinen & Nurminen 1985, with their correction for the number
    of estimates, here of subjects; Martín Andrés et al. 2011 for any weights).  Of one subject it
    is the Wilson interval.  Mean ± 1.96 standard errors has no width if every subject is all wrong
    or all right, and too little near that.
    """
    if weights is None:
        weights = np.full(len(sizes), 1 / len(sizes))
    is_single = sizes == 1
    if is_single.sum() > 1:
        # An item alone in its subject shows no variance there, but such items vary between their
        # subjects: together they count as one subject of their effective size.
        weight = weights[is_single].sum()
        size = weight**2 / np.square(weights[is_single]).sum()
        right = size * (weights @ (rights * is_single)) / weight
        rights = np.append(rights[~is_single], right)
        weights = np.append(weights[~is_single], weight)
        sizes = np.append(sizes[~is_single], size)
    total = float(sizes.sum())
    mean = float(weights @ (rights / sizes))
    threshold = two_sided(level) ** 2 * total / (total - len(sizes) + 1)

    def constrained(slope: float) -> float:
        """Return the mean of the likeliest accuracies p at a slope of their log-likelihood.

        They solve (right - n p) / (p (1 - p)) = slope · weight, a quadratic in p.
        """
        pull = slope * weights
        linear = pull + sizes
        root = np.sqrt(np.maximum(linear**2 - 4 * pull * rights, 0.0))
        # The two forms of the root are equal, but one of them can be 0 / 0.
        with np.errstate(invalid="ignore", divide="ignore"):
            p = np.where(linear > 0, 2 * rights / (linear + root), (linear - root) / (2 * pull))
        return float(weights @ np.clip(p, 0.0, 1.0))

    def bound(sign: int) -> float:
        """Bisect for the θ whose test statistic reaches the threshold.

        The statistic (mean - θ)² / variance(θ) equals slope · (mean - θ).
        """
        # The slope has no end, so slope / (slope + total) is bisected, from 0 to 1.
        low = 0.0
        high = 1.0
        for _ in range(_STEPS):
            middle = (low + high) / 2
            slope = sign * total * middle / (1 - middle)
            statistic = slope * (mean - constrained(slope))
            if statistic > threshold:
                high = middle
            else:
                low = middle
        return constrained(sign * total * low / (1 - low))

    return min(bound(1), mean), max(bound(-1), mean)


def wilson(
    mean: float, n: float, level: float = 0.95, freedom: float = math.inf
) -> tuple[float, float]:
    """Return (low, high), Wilson's interval for a proportion ``mean`` of ``n`` items (1927).

    Unlike mean ± 1.96 standard errors it keeps its level at a few dozen items and near 0 and 1.
    Fractional credits vary less than 0/1 credits of the same mean, so for them it is wider than
    necessary.  NaN if ``n`` is 0.

    If the items were not drawn one by one, ``n`` is their :func:`effective_size` and ``freedom``
    the degrees of freedom of the variance that it follows from.
    """
    if n == 0:
        return math.nan, math.nan
    z2 = two_sided(level, freedom) ** 2
    centre = (mean + z2 / (2 * n)) / (1 + z2 / n)
    half = math.sqrt(z2 * (mean * (1 - mean) / n + z2 / (4 * n * n))) / (1 + z2 / n)
    # The interval holds the proportion; rounding must not move a bound past it, nor past 0 and 1.
    low = min(centre - half, mean)
    high = max(centre + half, mean)
    return max(0.0, low), min(1.0, high)


def student(mean: float, error: float, freedom: float, level: float = 0.95) -> tuple[float, float]:
    """Return (low, high), Student's t interval for a mean of values of any size.

    ``freedom``: the degrees of freedom of the ``error``, one less than the number of values.  NaN
    if the ``error`` is NaN.
    """
    if math.isnan(error) or not freedom > 0:
        return math.nan, math.nan
    half = two_sided(level, freedom) * error
    return mean - half, mean + half


def error_interval(confidence: Floats, right: Floats, counts: Integers) -> tuple[float, float]:
    """Return (low, high) for a calibration error.

    The error is the mean over items of the distance between the confidence of a bin and the share
    of it that is right.  ``confidence`` and ``right``: the mean of each bin's items; ``counts``:
    how many it has, at least one; all [bins].

    Chance alone makes a sample's error greater than the true one, so mean ± 1.96 standard errors
    misses the truth, most of all the 0 of a calibrated model.  The bounds are the true errors in
    whose 2.5 % tail the observed one is.  For the lower bound the errors of all bins are reduced by
    the same amount, for the upper bound all bins have one error.  Samples are drawn from such bins.
    """
    n = int(counts.sum())
    weights = counts / n
    gaps = np.abs(confidence - right)
    error = float(weights @ gaps)
    drawn_counts = np.random.default_rng(0).multinomial(n, weights, _DRAWS)
    is_too_sure = confidence >= right
    side = np.where(is_too_sure, 1, -1)
    room = np.where(is_too_sure, confidence, 1 - confidence)

    def shares(sizes: Floats) -> Floats:
        """Return the share right of bins whose error has these ``sizes``.

        The error is on its observed side, or on the other one if only that has room for it.
        """
        is_turned = (sizes > room) & (room < 0.5)
        signed = np.where(is_turned, -side, side) * sizes
        return np.clip(confidence - signed, 0.0, 1.0)

    def drawn_errors(sizes: Floats) -> Floats:
        rights = np.random.default_rng(1).binomial(drawn_counts, shares(sizes))
        return np.abs(drawn_counts * confidence - rights).sum(axis=1) / n

    def reduced(amount: float) -> Floats:
        return np.maximum(gaps - amount, 0.0)

    def reaches(amount: float) -> bool:
        """Check that errors reduced by ``amount`` often enough give the observed error or more."""
        is_reached = drawn_errors(reduced(amount)) >= error - ALIKE
        return float(is_reached.mean()) > _TAIL

    def stays_below(size: float) -> bool:
        """Check that bins with one error often enough give the observed error or less."""
        is_below = drawn_errors(np.full(len(gaps), size)) <= error + ALIKE
        return float(is_below.mean()) > _TAIL

    lowest = shares(reduced(_greatest(reaches)))
    highest = shares(np.full(len(gaps), _greatest(stays_below)))
    low = float(weights @ np.abs(confidence - lowest))
    high = float(weights @ np.abs(confidence - highest))
    return low, high


def extreme_interval(shares: Floats, greatest: bool) -> tuple[float, float]:
    """Return (low, high) for the ``greatest`` (else the least) of several means of the same items.

    ``shares``: what each item adds to each mean, from 0 to 1, [items, means].  The greatest mean of
    a sample is likely too great: a bound on the inner side must hold for all means together
    (Bonferroni), one on the outer side only for the mean that is truly the greatest.  Every mean
    has the interval of Agresti and Coull, whose further items give it a width if all items are
    equal.
    """
    if not greatest:
        low, high = extreme_interval(1 - shares, greatest=True)
        return 1 - high, 1 - low
    all_together = two_sided(1 - 0.05 / shares.shape[1])
    lows, _ = _with_further_items(shares, all_together)
    _, highs = _with_further_items(shares, two_sided(0.95))
    return float(lows.max()), float(highs.max())


def _with_further_items(shares: Floats, z: float) -> tuple[Floats, Floats]:
    """Return (low, high) of every mean with z² / 2 further items of 0 and as many of 1."""
    further = z**2 / 2
    n = len(shares) + 2 * further
    means = (shares.sum(axis=0) + further) / n
    variances = (np.square(shares).sum(axis=0) + further) / n - means**2
    half = z * np.sqrt(variances / n)
    return np.maximum(means - half, 0.0), np.minimum(means + half, 1.0)


def _greatest(holds: Callable[[float], bool]) -> float:
    """Bisect for the greatest number from 0 to 1 that ``holds``, if all smaller ones do; else 0."""
    low = 0.0
    high = 1.0
    if holds(high):
        return high
    for _ in range(12):
        middle = (low + high) / 2
        if holds(middle):
            low = middle
        else:
            high = middle
    return low


def standard_error(values: Floats) -> float:
    """Return sd / √n with sd over n - 1; NaN for fewer than two values, or an infinite one."""
    if len(values) < 2 or not np.isfinite(values).all():
        return math.nan
    return float(values.std(ddof=1)) / math.sqrt(len(values))


@dataclass(frozen=True, slots=True)
class ClusteredError:
    """Hold a standard error and the degrees of freedom of its t; NaN for one cluster."""

    se: float
    freedom: float


def clustered_error(values: Floats, clusters: Sequence[str] | Integers) -> ClusteredError:
    """Compute the cluster-robust standard error of a mean (Miller 2024, "Adding Error Bars to
    Evals").

    √(Σ_clusters (Σᵢ vᵢ - v̄)² / (1 - share)) / n, with ``share`` the part of the ``n`` values in
    the cluster.  This is the small-sample correction CR2, which makes it unbiased for values that
    do not cluster, with its Satterthwaite degrees of freedom: one less than the number of clusters
    if all have the same size, else fewer (Bell & McCaffrey 2002; Imbens & Kolesár 2016).
    ``clusters`` names or numbers the cluster of each value.  If every value is a cluster, it is the
    plain standard error.
    """
    numbers = np.unique(np.asarray(clusters), return_inverse=True)[1]
    sizes = np.bincount(numbers)
    if len(sizes) < 2:
        return ClusteredError(math.nan, math.nan)
    share = sizes / len(values)
    sums = np.bincount(numbers, weights=values - values.mean())
    se = math.sqrt(float((sums**2 / (1 - share)).sum())) / len(values)
    crossed = share**2 / (1 - share)
    spread = float((share**2).sum() + crossed.sum() ** 2 - (crossed**2).sum())
    return ClusteredError(se, 1 / spread)


def effective_size(mean: float, variance: float, most: float) -> float:
    """Return the n at which a proportion ``mean`` has this ``variance``, m (1 - m) / n.

    Intervals of proportions keep their level near 0 and 1 if they are computed at this n (Korn &
    Graubard 1998; Franco et al. 2019).  ``most``: the n if only the weights of the items differed.
    More is not claimed, because the variance of few right answers is too uncertain.
    """
    if not variance > 0:
        return most
    return min(most, mean * (1 - mean) / variance)


def weighted_size(sizes: Integers) -> float:
    """Return the effective size of a mean of subjects' means, for subjects of ``sizes`` items.

    The items are taken to be all alike (Kish 1965).
    """
    return float(len(sizes) ** 2 / (1 / sizes).sum())


def variance_of_means(rights: Floats, sizes: Integers) -> float:
    """Return the variance of a mean of subjects' means.

    ``rights`` and ``sizes``: the total credit and the number of items of each subject.
    """
    means = rights / sizes
    grand_mean = means.mean()
    # An item alone in its subject shows no variance there, so it is taken to vary as any item does.
    variance_of_item = grand_mean * (1 - grand_mean)
    variances = means * (1 - means) / np.maximum(sizes - 1, 1)
    within = np.where(sizes > 1, variances, variance_of_item)
    return float(within.sum()) / len(sizes) ** 2


def two_sided(level: float, freedom: float = math.inf) -> float:
    """Return how many standard errors an interval of this ``level`` reaches to either side.

    Of Student's t with ``freedom`` degrees of freedom, or of the normal distribution if they are
    infinite.
    """
    if math.isinf(freedom):
        return NormalDist().inv_cdf((1 + level) / 2)
    from scipy.special import stdtrit

    return float(stdtrit(freedom, (1 + level) / 2))


def credit_range(
    scores: Floats,
    item_offsets: Integers,
    gold: Mask,
    decisions: Decisions,
    epsilon: float | Floats,
    low: Floats | None = None,
) -> tuple[Floats, Floats, Mask]:
    """Return the least and the greatest credit if scores are off by ``epsilon``, and open items.

    ``scores`` and ``gold`` have shape [rows]; ``decisions`` are made from them.  ``epsilon``, one
    for all or [rows], is in the unit of the scores: the greatest difference between two ways of
    computing the same score on this model.  ``low``: the lowest values of the scores, [rows], if
    some of them are upper bounds.

    An item is open if more than one of its choices could be the best.  An item that is missing has
    NaN and False, and so has one with a score whose error is NaN, unless the score is infinite: no
    error moves it.  An item that only the bounds leave undecided has credits.
    """
    if low is None:
        low = scores
    is_bound = low < scores
    item = row_of(item_offsets)
    epsilon = np.broadcast_to(epsilon, scores.shape)
    noise = np.where(np.isinf(scores) & np.isnan(epsilon), 0.0, epsilon)
    best = item_max(scores, item_offsets)
    is_best = scores == best[item]
    lowest_best = item_max(low - noise, item_offsets)[item]

    could_win = scores + noise > lowest_best
    # A bound can be reached, and then the choice ties with all that can reach its value.
    could_tie = scores + noise >= lowest_best
    has_rival_bound = item_any(is_bound & could_tie, item_offsets)
    could_win |= could_tie & has_rival_bound[item]
    # Equal infinities stay equal whatever is added to them, but rounding may have caused them, too.
    could_win |= is_best & (noise > 0)
    is_open = item_sum(could_win, item_offsets) > 1
    could_win |= is_best

    credit = decisions.credit
    worst = 1 - item_max(could_win & ~gold, item_offsets)
    least = np.fmin(np.where(is_open, worst, credit), credit)
    most = np.fmax(np.where(is_open, item_max(could_win & gold, item_offsets), credit), credit)

    has_noise = ~np.isnan(item_sum(noise, item_offsets))
    is_undecided = decisions.missing & ~np.isnan(best) & item_any(is_bound, item_offsets)
    is_scored = (~decisions.missing | is_undecided) & has_noise
    is_scored &= ~np.isnan(least) & ~np.isnan(most)
    return (
        np.where(is_scored, least, np.nan),
        np.where(is_scored, most, np.nan),
        is_open & is_scored,
    )


ALIKE = 1e-9
"""Values that differ by no more, absolutely and relatively, are equal but for rounding."""


def ranks(values: npt.ArrayLike) -> Integers:
    """Rank values along the last axis, 1 for the greatest; 0 for NaN.

    Equal values share the better rank.
    """
    values = np.asarray(values, dtype=np.float64)
    order = np.argsort(-values, axis=-1, kind="stable")
    falling = np.take_along_axis(values, order, axis=-1)
    is_lower = ~np.isclose(falling[..., 1:], falling[..., :-1], rtol=ALIKE, atol=ALIKE)
    # The position of the first of several equal values, which the others share.
    positions = np.zeros_like(order)
    positions[..., 1:] = is_lower * np.arange(1, values.shape[-1])
    result = np.empty_like(order)
    np.put_along_axis(result, order, 1 + np.maximum.accumulate(positions, axis=-1), axis=-1)
    return np.where(np.isnan(values), 0, result)


FEWEST = 10
"""Clusters from which on a standard error is clustered; of fewer it would be too small."""


@dataclass(frozen=True, slots=True)
class Rounding:
    """Describe a number that is made of probabilities rounded to a ``step``.

    ``floor``: items for which the number needs a probability that is given as 0, so that it is
    infinite as given.  ``with_floor``: the number with 1e-12 in the place of 0, if rounding leaves
    it open; NaN for others.
    """

    step: float
    floor: int
    with_floor: float = math.nan


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """Hold a mean credit, or what a metric makes of it, with its uncertainty.

    ``se``: standard error.  ``ci_low`` and ``ci_high``: 95 % interval.  ``n``: the items of the
    mean. ``missing``: items that could not be scored and do not count.  ``ties``: items of ``n``
    with a tie at the top.  The value is NaN without items, the standard error for fewer than two.
    """

    value: float
    se: float
    ci_low: float
    ci_high: float
    n: int
    missing: int
    ties: int


def micro(decisions: Decisions, among: Mask | None = None, counted: bool = True) -> Value:
    """Average over the items ``among``, or all; standard error sd / √n with sd over n - 1.

    The interval is Wilson's, or Student's t if credits are not ``counted`` as right or wrong.
    """
    if among is None:
        return _mean_of(decisions.credit, decisions.tied, counted)
    return _mean_of(decisions.credit[among], decisions.tied[among], counted)


def _mean_of(credits: Floats, tied: Mask, counted: bool) -> Value:
    is_scored = ~np.isnan(credits)
    credit = credits[is_scored]
    n = len(credit)
    mean = float(credit.mean()) if n else math.nan
    error = standard_error(credit)
    if counted:
        low, high = wilson(mean, n)
    else:
        low, high = student(mean, error, n - 1)
    return Value(
        value=mean,
        se=error,
        ci_low=low,
        ci_high=high,
        n=n,
        missing=len(credits) - n,
        ties=int(tied[is_scored].sum()),
    )


def macro(decisions: Decisions, subjects: Sequence[str], counted: bool = True) -> Value:
    """Average the subjects' means; standard error √(Σ se²) / subjects for a fixed set of subjects.

    ``subjects`` names each item's subject.  A subject without a scored item does not count; its
    items are in ``missing``.  The interval is that of the score test, or Student's t if credits are
    not ``counted``.
    """
    over_items = micro(decisions, counted=counted)
    scored = [value for value in by_group(decisions, subjects, counted).values() if value.n]
    if not scored:
        return over_items
    mean = math.fsum(value.value for value in scored) / len(scored)
    se = math.sqrt(math.fsum(value.se**2 for value in scored)) / len(scored)
    if counted:
        sizes = np.array([value.n for value in scored])
        means = np.array([value.value for value in scored])
        low, high = stratified(means * sizes, sizes)
    else:
        # Satterthwaite's degrees of freedom of a sum of variances.
        parts = math.fsum((value.se / len(scored)) ** 4 / max(value.n - 1, 1) for value in scored)
        freedom = se**4 / parts if parts else math.inf
        low, high = student(mean, se, freedom)
    return replace(over_items, value=mean, se=se, ci_low=low, ci_high=high)


def by_group(decisions: Decisions, groups: Sequence[str], counted: bool = True) -> dict[str, Value]:
    """Return the micro mean of every group in order of first appearance.

    ``groups`` names each item's group.
    """
    values = {}
    for name, items in _items_by(groups).items():
        values[name] = _mean_of(decisions.credit[items], decisions.tied[items], counted)
    return values


def _items_by(groups: Sequence[str]) -> dict[str, Integers]:
    """Return the items of every group, in order of first appearance."""
    number_of = {name: number for number, name in enumerate(dict.fromkeys(groups))}
    numbers = np.array([number_of[name] for name in groups], dtype=np.int64)
    sorted_by_group = np.argsort(numbers, kind="stable")
    ends = np.cumsum(np.bincount(numbers, minlength=len(number_of)))[:-1]
    return dict(zip(number_of, np.split(sorted_by_group, ends), strict=False))


def group_means(
    aggregation: str, credit: Floats, subjects: Sequence[str], categories: Categories
) -> dict[str, float]:
    """Return the mean ``credit`` [items] of every row of an ``aggregation``, by its name.

    They are the values of :data:`AGGREGATIONS`, without what their errors and intervals take.
    """
    if GROUPS[aggregation] is not _all:
        group_of = {name: GROUPS[aggregation](name, categories) for name in set(subjects)}
        items_by_group = _items_by([group_of[name] for name in subjects])
        return {name: mean_of_present(credit[items]) for name, items in items_by_group.items()}
    if aggregation != "macro":
        return {"all": mean_of_present(credit)}
    means = []
    for items in _items_by(subjects).values():
        of_subject = credit[items]
        if not np.isnan(of_subject).all():
            means.append(mean_of_present(of_subject))
    if not means:
        return {"all": math.nan}
    return {"all": math.fsum(means) / len(means)}


def number(value: Value, metric: Metric) -> Value:
    """Turn a mean credit into ``metric``: the mean, or exp(-mean) if it is ``exponential``.

    The standard error of the latter follows by the delta method, the interval from that of the
    mean. Intervals end where the metric's range does.
    """
    if not metric.exponential:
        if metric.counted:
            return value
        low, high = np.clip([value.ci_low, value.ci_high], metric.low, metric.high).tolist()
        return replace(value, ci_low=low, ci_high=high)
    means = [value.value, value.ci_low, value.ci_high]
    with np.errstate(over="ignore"):
        result, high, low = np.exp(np.negative(means)).tolist()
    return replace(
        value, value=result, se=result * value.se, ci_low=max(low, metric.low), ci_high=high
    )


def _all(subject: str, categories: Categories) -> str:
    return "all"


def _subject(subject: str, categories: Categories) -> str:
    return subject


def _category(subject: str, categories: Categories) -> str:
    for category, subcategories in categories.items():
        if any(subject in subjects for subjects in subcategories.values()):
            return category
    return "other"


def _subcategory(subject: str, categories: Categories) -> str:
    for subcategories in categories.values():
        for subcategory, subjects in subcategories.items():
            if subject in subjects:
                return subcategory
    return "other"


GROUPS: dict[str, Callable[[str, Categories], str]] = {
    "micro": _all,
    "macro": _all,
    "bytes": _all,
    "subjects": _subject,
    "categories": _category,
    "subcategories": _subcategory,
}
"""The row that a subject's items are counted in, by the name of the aggregation.

Takes the subject and the dataset's categories.  A subject without a category is in "other".
"""


def _micro_row(
    decisions: Decisions, subjects: Sequence[str], categories: Categories, counted: bool = True
) -> dict[str, Value]:
    return {"all": micro(decisions, counted=counted)}


def _macro_row(
    decisions: Decisions, subjects: Sequence[str], categories: Categories, counted: bool = True
) -> dict[str, Value]:
    return {"all": macro(decisions, subjects, counted)}


def _subject_rows(
    decisions: Decisions, subjects: Sequence[str], categories: Categories, counted: bool = True
) -> dict[str, Value]:
    return by_group(decisions, subjects, counted)


def _category_rows(
    aggregation: str,
    decisions: Decisions,
    subjects: Sequence[str],
    categories: Categories,
    counted: bool = True,
) -> dict[str, Value]:
    """Average the items of every group, first in the order of the categories."""
    ordered: list[str] = []
    for subcategories in categories.values():
        for members in subcategories.values():
            ordered.extend(members)
    ordered.extend(subjects)
    group = GROUPS[aggregation]
    group_of = {subject: group(subject, categories) for subject in dict.fromkeys(ordered)}
    values = by_group(decisions, [group_of[subject] for subject in subjects], counted)
    return {name: values[name] for name in dict.fromkeys(group_of.values()) if name in values}


AGGREGATIONS: dict[str, Callable[..., dict[str, Value]]] = {
    "micro": _micro_row,
    "bytes": _micro_row,
    "macro": _macro_row,
    "subjects": _subject_rows,
    "categories": partial(_category_rows, "categories"),
    "subcategories": partial(_category_rows, "subcategories"),
}
"""The rows that an aggregation prints, by name.

Takes decisions, each item's subject, the dataset's categories, and ``counted`` of :func:`micro`.
Under bytes the credits are made for a plain mean
(:func:`choicewise.scoring.probabilities.credits`). Categories and subcategories are means over
their questions, one row each, as the original MMLU scripts print them.
"""
