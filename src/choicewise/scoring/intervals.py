"""The number of each metric from the credits of its items, and its interval."""

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
from choicewise.scoring.observed import Floats, Integers, Mask, reduce_rows, row_of

_STEPS = 45
"""Bisections, to 1e-13 of a bound's way from the mean to the end."""

_DRAWS = 1000
"""Samples that an interval of a calibration error is made of."""

_TAIL = 0.025
"""How likely a sample at a bound of a 95 % interval is, or one further away."""


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
    if (
        alone := sizes == 1
    ).sum() > 1:  # what does not vary within a subject varies between such subjects
        weight, size = (
            weights[alone].sum(),
            weights[alone].sum() ** 2 / np.square(weights[alone]).sum(),
        )
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
        with np.errstate(
            invalid="ignore", divide="ignore"
        ):  # where one form is 0 / 0 the other one is taken
            p = np.where(linear > 0, 2 * rights / (linear + root), (linear - root) / (2 * pull))
        return float(weights @ np.clip(p, 0.0, 1.0))

    def bound(sign: int) -> float:
        """Where the test statistic (mean - θ)² / variance(θ), which is slope · (mean - θ), reaches the threshold."""
        low, high = 0.0, 1.0  # of slope / (slope + total)
        for _ in range(_STEPS):
            middle = (low + high) / 2
            slope = sign * total * middle / (1 - middle)
            low, high = (
                (low, middle) if slope * (mean - constrained(slope)) > threshold else (middle, high)
            )
        return constrained(sign * total * low / (1 - low))

    return min(bound(1), mean), max(bound(-1), mean)


def wilson(
    mean: float, n: float, level: float = 0.95, freedom: float = math.inf
) -> tuple[float, float]:
    """(low, high) of the interval for a proportion ``mean`` observed over ``n`` items (Wilson 1927).

    Unlike mean ± 1.96 standard errors it keeps its level at a few dozen items and near 0 and 1.  Fractional credits
    vary less than 0/1 credits of the same mean, so for them it is wider than needed.  NaN when ``n`` is 0.

    Where the items were not drawn one by one, ``n`` is the effective size (:mod:`~.effective_size`) and ``freedom`` the
    degrees of freedom of the variance that it follows from.
    """
    if n == 0:
        return math.nan, math.nan
    z2 = two_sided(level, freedom) ** 2
    centre = (mean + z2 / (2 * n)) / (1 + z2 / n)
    half = math.sqrt(z2 * (mean * (1 - mean) / n + z2 / (4 * n * n))) / (1 + z2 / n)
    # The interval holds the proportion itself; rounding must not move a bound past it (or past 0 and 1).
    return max(0.0, min(centre - half, mean)), min(1.0, max(centre + half, mean))


def student(mean: float, error: float, freedom: float, level: float = 0.95) -> tuple[float, float]:
    """(low, high): Student's t interval for a mean of values of any size; NaN where the ``error`` is not known.

    ``freedom``: the degrees of freedom of the ``error``, one less than there are values.
    """
    if math.isnan(error) or not freedom > 0:
        return math.nan, math.nan
    half = two_sided(level, freedom) * error
    return mean - half, mean + half


def error_interval(confidence: Floats, right: Floats, counts: Integers) -> tuple[float, float]:
    """(low, high) for a calibration error, the mean over items of how far confidence and share right of a bin differ.

    ``confidence`` and ``right``: the mean of each bin's items; ``counts``: how many it has, at least one; all [bins].

    Chance alone makes a sample's error greater than the true one, so mean ± 1.96 standard errors misses the truth (0 of
    a calibrated model most of all).  The bounds are the true errors of which the one at hand is in the tail of 2.5 %:
    the lower with errors of the bins as they are, all of them smaller by the same, the upper with one error in all
    bins.  Samples are drawn from such bins.
    """
    n = int(counts.sum())
    weights = counts / n
    gaps = np.abs(confidence - right)
    error = float(weights @ gaps)
    drawn_counts = np.random.default_rng(0).multinomial(n, weights, _DRAWS)
    side = np.where(confidence >= right, 1, -1)
    room = np.where(confidence >= right, confidence, 1 - confidence)

    def shares(sizes: Floats) -> Floats:
        """The share right of bins whose error is of these ``sizes``: to the side it is on, or to one with more room."""
        turned = (sizes > room) & (room < 0.5)
        signed = np.where(turned, -side, side) * sizes
        return np.clip(confidence - signed, 0.0, 1.0)

    def drawn_errors(sizes: Floats) -> Floats:
        rights = np.random.default_rng(1).binomial(drawn_counts, shares(sizes))
        return np.asarray(np.abs(drawn_counts * confidence - rights).sum(axis=1) / n)

    def smaller(by: float) -> Floats:
        return np.maximum(gaps - by, 0.0)

    def reached(by: float) -> bool:
        return float((drawn_errors(smaller(by)) >= error - ALIKE).mean()) > _TAIL

    def kept(size: float) -> bool:
        return float((drawn_errors(np.full(len(gaps), size)) <= error + ALIKE).mean()) > _TAIL

    lowest = smaller(_greatest(reached))
    highest = shares(np.full(len(gaps), _greatest(kept)))
    low = float(weights @ np.abs(confidence - shares(lowest)))
    high = float(weights @ np.abs(confidence - highest))
    return low, high


def extreme_interval(shares: Floats, greatest: bool) -> tuple[float, float]:
    """(low, high) for the ``greatest`` (else the least) of several means of the same items.

    ``shares``: what each item adds to each mean, from 0 to 1, [items, means].  The greatest mean of a sample is likely
    too great: a bound on the inner side must hold for all means together (Bonferroni), one on the outer
    side only for the mean that is the greatest in truth.  Every mean has the interval of Agresti and Coull: its further
    items keep a width where all items are alike.
    """
    if not greatest:
        low, high = extreme_interval(1 - shares, greatest=True)
        return 1 - high, 1 - low
    all_together = two_sided(1 - 0.05 / shares.shape[1])
    lows, _ = _with_further_items(shares, all_together)
    _, highs = _with_further_items(shares, two_sided(0.95))
    return float(lows.max()), float(highs.max())


def _with_further_items(shares: Floats, z: float) -> tuple[Floats, Floats]:
    """(low, high) of every mean, [means], with z² / 2 further items of 0 and as many of 1."""
    further = z**2 / 2
    n = len(shares) + 2 * further
    means = (shares.sum(axis=0) + further) / n
    variances = (np.square(shares).sum(axis=0) + further) / n - means**2
    half = z * np.sqrt(variances / n)
    return np.maximum(means - half, 0.0), np.minimum(means + half, 1.0)


def _greatest(holds: Callable[[float], bool]) -> float:
    """The greatest number from 0 to 1 that ``holds``, where all smaller ones do; 0 where none does."""
    low, high = 0.0, 1.0
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


def effective_size(mean: float, variance: float, most: float) -> float:
    """The n at which a proportion ``mean`` has this ``variance``, m (1 - m) / n, but no more than ``most``.

    Intervals of proportions keep their level near 0 and 1 when they are computed at it (Korn & Graubard 1998; Franco et
    al. 2019).  ``most``: what it would be if only the weights of the items differed.  The variance of few right answers
    is too uncertain to claim more.
    """
    return min(most, mean * (1 - mean) / variance) if variance > 0 else most


def weighted_size(sizes: Integers) -> float:
    """The effective size of a mean of subjects' means, of ``sizes`` items each that are all alike (Kish 1965)."""
    return float(len(sizes) ** 2 / (1 / sizes).sum())


def variance_of_means(rights: Floats, sizes: Integers) -> float:
    """The variance of a mean of subjects' means, from the credit (``rights``) and the number of items of each.

    An item alone in its subject shows no variance there and is taken to vary as much as items vary at all.
    """
    means = rights / sizes
    every = means.mean() * (1 - means.mean())
    within = np.where(sizes > 1, means * (1 - means) / np.maximum(sizes - 1, 1), every)
    return float(within.sum()) / len(sizes) ** 2


def two_sided(level: float, freedom: float = math.inf) -> float:
    """How many standard errors the interval of this ``level`` reaches to either side.

    Of Student's t with ``freedom`` degrees of freedom, of the normal distribution where there is no end of them.
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
    """Each item's least and greatest credit when every score is off by up to ``epsilon``, and whether it is open.

    ``scores`` and ``gold`` have shape [rows]; ``decisions`` are made from them.  ``epsilon``, one for all or [rows], is
    in the unit of the scores: the greatest difference between two ways of computing the same score on this model.
    ``low``: the lowest that the scores may be, [rows], where some of them are upper bounds.
    An item is open when more than one of its choices could be the best.  An item that is missing has NaN and False, and
    so has one with a score whose error is not known (NaN), unless that is infinite: no error moves it.  One that only
    the bounds leave undecided has its credits.
    """
    low = scores if low is None else low
    bounds = low < scores
    item, epsilon = row_of(item_offsets), np.broadcast_to(epsilon, scores.shape)
    known = np.where(np.isinf(scores) & np.isnan(epsilon), 0.0, epsilon)
    bounded = ~np.isnan(reduce_rows(np.add, known, item_offsets))
    best = reduce_rows(np.maximum, scores, item_offsets)
    lowest_best = reduce_rows(np.maximum, low - known, item_offsets)
    could_win = scores + known > lowest_best[item]
    reaching = scores + known >= lowest_best[item]  # a bound can be reached, and then it ties
    rival = np.nan_to_num(reduce_rows(np.maximum, bounds & reaching, item_offsets)) > 0
    could_win |= reaching & rival[item]
    # Equal infinities stay equal whatever is added to them, but rounding may have caused them, too.
    could_win |= (scores == best[item]) & (known > 0)
    open_ = reduce_rows(np.add, could_win, item_offsets) > 1
    could_win |= scores == best[item]
    least = np.where(
        open_, 1 - reduce_rows(np.maximum, could_win & ~gold, item_offsets), decisions.credit
    )
    most = np.where(
        open_, reduce_rows(np.maximum, could_win & gold, item_offsets), decisions.credit
    )
    undecided = (
        decisions.missing
        & ~np.isnan(best)
        & (np.nan_to_num(reduce_rows(np.maximum, bounds, item_offsets)) > 0)
    )
    known_range = (~decisions.missing | undecided) & bounded
    least, most = np.fmin(least, decisions.credit), np.fmax(most, decisions.credit)
    scored = known_range & ~np.isnan(least) & ~np.isnan(most)
    return np.where(scored, least, np.nan), np.where(scored, most, np.nan), open_ & scored


ALIKE = 1e-9
"""Values that differ by no more, absolutely and relatively, are equal: their sums were rounded in another order."""


def ranks(values: npt.ArrayLike) -> Integers:
    """1 for the greatest along the last axis, 0 for NaN; equal values share the better rank."""
    values = np.asarray(values, dtype=np.float64)
    order = np.argsort(-values, axis=-1, kind="stable")
    falling = np.take_along_axis(values, order, axis=-1)
    lower = ~np.isclose(falling[..., 1:], falling[..., :-1], rtol=ALIKE, atol=ALIKE)
    places = np.pad(lower * np.arange(1, values.shape[-1]), [(0, 0)] * (values.ndim - 1) + [(1, 0)])
    result = np.empty_like(order)
    np.put_along_axis(result, order, 1 + np.maximum.accumulate(places, axis=-1), axis=-1)
    return np.where(np.isnan(values), 0, result)


FEWEST = 10
"""Clusters from which on a standard error is clustered; of fewer it would come out too small."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """A mean credit with its uncertainty, or what a metric makes of it.

    ``se``: standard error; ``ci_low`` and ``ci_high``: 95 % interval; ``n``: items the value is a mean over;
    ``missing``: items that could not be scored and do not count; ``ties``: items of ``n`` with a tie at the top.
    NaN where there are too few items to say (none for the value, fewer than two for the standard error).
    """

    value: float
    se: float
    ci_low: float
    ci_high: float
    n: int
    missing: int
    ties: int


def micro(decisions: Decisions, among: Mask | None = None, counted: bool = True) -> Value:
    """Mean over the items that are ``among``, else all; standard error sd / √n with sd over n - 1; Wilson interval.

    Of credits that are not ``counted`` as right or wrong the interval is Student's t.
    """
    if among is None:
        return _mean_of(decisions.credit, decisions.tied, counted)
    return _mean_of(decisions.credit[among], decisions.tied[among], counted)


def _mean_of(credits: Floats, tied: Mask, counted: bool) -> Value:
    scored = ~np.isnan(credits)
    credit, n = credits[scored], int(scored.sum())
    mean, error = float(credit.mean()) if n else math.nan, standard_error(credit)
    low, high = wilson(mean, n) if counted else student(mean, error, n - 1)
    ties = int(tied[scored].sum())
    return Value(
        value=mean, se=error, ci_low=low, ci_high=high, n=n, missing=len(credits) - n, ties=ties
    )


def macro(decisions: Decisions, subjects: Sequence[str], counted: bool = True) -> Value:
    """Mean of the subjects' means; standard error √(Σ se²) / subjects for a fixed set of subjects; score interval.

    ``subjects`` names each item's subject.  A subject without a scored item does not count; its items are in
    ``missing``.
    """
    over_items = micro(decisions, counted=counted)
    scored = [value for value in by_group(decisions, subjects, counted).values() if value.n]
    if not scored:
        return over_items
    mean = math.fsum(value.value for value in scored) / len(scored)
    se = math.sqrt(math.fsum(value.se**2 for value in scored)) / len(scored)
    sizes = np.array([value.n for value in scored])
    if not counted:
        # Satterthwaite's degrees of freedom of a sum of variances.
        parts = math.fsum((value.se / len(scored)) ** 4 / max(value.n - 1, 1) for value in scored)
        low, high = student(mean, se, se**4 / parts if parts else math.inf)
    else:
        low, high = stratified(np.array([value.value for value in scored]) * sizes, sizes)
    return replace(over_items, value=mean, se=se, ci_low=low, ci_high=high)


def by_group(decisions: Decisions, groups: Sequence[str], counted: bool = True) -> dict[str, Value]:
    """The micro mean of every group, in order of first appearance; ``groups`` names each item's group."""
    order = {name: number for number, name in enumerate(dict.fromkeys(groups))}
    numbers = np.array([order[name] for name in groups], dtype=np.int64)
    sorted_by_group = np.argsort(numbers, kind="stable")
    ends = np.cumsum(np.bincount(numbers, minlength=len(order)))[:-1]
    own = np.split(sorted_by_group, ends)
    return {
        name: _mean_of(decisions.credit[own[number]], decisions.tied[own[number]], counted)
        for name, number in order.items()
    }


def number(value: Value, metric: Metric) -> Value:
    """The number that a mean credit is under ``metric``: the mean itself, or exp(-mean) where it is ``exponential``.

    The standard error of the latter follows by the delta method, the interval from that of the mean.  Intervals end
    where the metric's range does.
    """
    if not metric.exponential:
        low, high = np.clip([value.ci_low, value.ci_high], metric.low, metric.high).tolist()
        return value if metric.counted else replace(value, ci_low=low, ci_high=high)
    with np.errstate(over="ignore"):
        result, high, low = np.exp(np.negative([value.value, value.ci_low, value.ci_high])).tolist()
    low = max(low, metric.low)
    return replace(value, value=result, se=result * value.se, ci_low=low, ci_high=high)


def _place(subject: str, categories: Categories) -> tuple[str, str]:
    """The category and subcategory of a subject; both "other" where it has none."""
    for category, parts in categories.items():
        for subcategory, subjects in parts.items():
            if subject in subjects:
                return category, subcategory
    return "other", "other"


GROUPS: dict[str, Callable[[str, Categories], str]] = {
    "micro": lambda subject, categories: "all",
    "macro": lambda subject, categories: "all",
    "bytes": lambda subject, categories: "all",
    "subjects": lambda subject, categories: subject,
    "categories": lambda subject, categories: _place(subject, categories)[0],
    "subcategories": lambda subject, categories: _place(subject, categories)[1],
}
"""Aggregation by name: from a subject and the dataset's categories to the row that its items are counted in."""


def _by(
    aggregation: str,
    decisions: Decisions,
    subjects: Sequence[str],
    categories: Categories,
    counted: bool = True,
) -> dict[str, Value]:
    """A mean over the items of every group, in the order of the categories, then of first appearance."""
    known = (
        subject
        for parts in categories.values()
        for members in parts.values()
        for subject in members
    )
    group_of = {
        subject: GROUPS[aggregation](subject, categories)
        for subject in (*known, *dict.fromkeys(subjects))
    }
    values = by_group(decisions, [group_of[subject] for subject in subjects], counted)
    return {name: values[name] for name in dict.fromkeys(group_of.values()) if name in values}


AGGREGATIONS: dict[str, Callable[..., dict[str, Value]]] = {
    "micro": lambda decisions, subjects, categories, counted=True: {
        "all": micro(decisions, None, counted)
    },
    "bytes": lambda decisions, subjects, categories, counted=True: {
        "all": micro(decisions, None, counted)
    },
    "macro": lambda decisions, subjects, categories, counted=True: {
        "all": macro(decisions, subjects, counted)
    },
    "subjects": lambda decisions, subjects, categories, counted=True: by_group(
        decisions, subjects, counted
    ),
    "categories": partial(_by, "categories"),
    "subcategories": partial(_by, "subcategories"),
}
"""Aggregation by name: from decisions, each item's subject and the dataset's categories to the rows it prints by name;
``counted``: as in :func:`micro`.

Under bytes the credits are made for a plain mean (:func:`choicewise.scoring.probabilities.credits`).
Categories and subcategories are means over their questions, one row each, as the original MMLU scripts print them.
"""
