"""Compute metrics of probabilities from the scores of every choice, and what to compare them with.

``p`` is the softmax of an item's scores over the temperature.  It is a distribution of the answers
if the scores are log-likelihoods of labels; of whole texts short ones dominate it, and of means it
is flat.  All is in log space, so that an option's probability may underflow.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import pairwise
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from choicewise import ports
from choicewise.protocols.metrics import METRICS
from choicewise.scoring.decide import Decisions
from choicewise.scoring.intervals import Value, error_interval, extreme_interval, micro
from choicewise.scoring.observed import (
    Floats,
    Integers,
    Mask,
    item_first,
    mean_of_present,
    offsets_from,
    reduce_rows,
    row_of,
)


@dataclass(frozen=True, kw_only=True)
class Judged:
    """Hold what a metric of probabilities is computed from.

    ``scores``: float64 [rows], NaN if unknown.  ``right``: right choices, bool [rows].
    ``prediction`` and ``hit``: the choice with the greatest score and its credit, [items].
    ``golds``: the right choices that count: ``sum``, ``max`` (the one with the greatest score),
    ``first``, or ``each`` by itself.  ``soft``: how many people chose each choice, [rows], if the
    data says so.  ``orders``: the predicted choice in each order of the options, and ``letters``:
    its position there, int64 [orders, items], -1 for none.  ``bytes``: of every choice, [rows], if
    items are weighted by the bytes of their answers.  ``text_probability``: the probability of each
    item's answer in text, [items], which then is its confidence; such answers have no scores.
    """

    scores: Floats
    item_offsets: Integers
    right: Mask
    prediction: Integers
    hit: Floats
    golds: str = "sum"
    temperature: float = 1.0
    soft: Floats | None = None
    orders: Integers | None = None
    letters: Integers | None = None
    bytes: Floats | None = None
    text_probability: Floats | None = None

    @cached_property
    def item(self) -> Integers:
        """Return the item of every row."""
        return row_of(self.item_offsets)

    @cached_property
    def choices(self) -> Integers:
        """Count the choices of every item."""
        return np.diff(self.item_offsets)

    @cached_property
    def logs(self) -> Floats:
        """Return log p of every choice.

        NaN for an item with an unknown score, or with impossible choices alone.
        """
        scaled = self.scores / self.temperature
        total = self.reduced(np.logaddexp, scaled)
        with np.errstate(invalid="ignore"):
            return scaled - total[self.item]

    @cached_property
    def shares(self) -> Floats:
        """Return p of every choice."""
        return np.exp(self.logs)

    @cached_property
    def gold(self) -> Mask:
        """Mark the rows that count as the right answer."""
        if self.golds in ("sum", "each"):
            return self.right
        candidates = self.right
        if self.golds == "max":
            best = self.reduced(np.fmax, np.where(self.right, self.scores, -np.inf))
            candidates = self.right & (self.scores == best[self.item])
        first = item_first(candidates, self.item_offsets)
        return np.arange(len(candidates)) == first[self.item]

    @property
    def first(self) -> Judged:
        """Return a copy in which one right answer counts, because a sum of several has no bytes."""
        if self.golds == "sum":
            return replace(self, golds="first")
        return self

    def reduced(self, ufunc: np.ufunc, rows: Floats) -> Floats:
        """Reduce the rows of every item with ``ufunc``, float64 [items]."""
        return reduce_rows(ufunc, rows, self.item_offsets)

    def summed(self, rows: Floats | Mask) -> Floats:
        """Sum the rows of every item, float64 [items]."""
        return reduce_rows(np.add, rows, self.item_offsets)

    def of_gold(self, logs: Floats) -> Floats:
        """Return log of the right answer's probability, [items], from that of every choice."""
        return self.reduced(np.logaddexp, np.where(self.gold | np.isnan(logs), logs, -np.inf))

    @cached_property
    def confidence(self) -> Floats:
        """Return the highest p of every item, or the probability of its text."""
        if self.text_probability is not None:
            return self.text_probability
        return self.reduced(np.maximum, self.shares)

    @cached_property
    def hits(self) -> Floats:
        """Return 1 if the answer in an order is right, float64 [orders, items]; NaN without one."""
        assert self.orders is not None
        rows = self.item_offsets[:-1] + np.maximum(self.orders, 0)
        return np.where(self.orders < 0, np.nan, self.right[rows])


def credits(metric: str, judged: Judged) -> Floats:
    """Return numbers whose mean is the metric over all items, float64 [items]; NaN if missing.

    Of a ``pooled`` metric they are its linear part at the means of bins or orders, and of items
    that are weighted by bytes that of the ratio, R + w (c - R) / mean w.  So their standard error
    is that of the metric, and two models can be compared item by item.
    """
    if METRICS[metric].pooled:
        vectors = _vectors(metric, judged)
        scored = _without_missing(vectors)
        if not len(scored):
            return np.full(len(vectors), np.nan)
        return vectors @ _slopes(metric, scored.mean(axis=0))
    credit = _CREDITS[metric](judged)
    if judged.bytes is None:
        return credit
    one_right = judged.first
    weight = one_right.summed(np.where(one_right.gold, judged.bytes, 0.0))
    is_scored = ~np.isnan(credit) & ~np.isnan(weight)
    with np.errstate(invalid="ignore", divide="ignore"):
        ratio = (weight * credit)[is_scored].sum() / weight[is_scored].sum()
        linear = ratio + weight * (credit - ratio) / weight[is_scored].mean()
    return np.where(is_scored, linear, np.nan)


def pooled(metric: str, judged: Judged, among: Mask) -> Value:
    """Return the metric of the items ``among`` together, with its interval.

    Of a ``pooled`` metric the standard error is that of the bootstrap over items, with the means of
    bins or orders drawn from their normal limit, and the interval is computed apart
    (:mod:`choicewise.scoring.intervals`).  Of items that are weighted by bytes both are those of a
    ratio.
    """
    items = subset(judged, among)
    if judged.bytes is not None:
        ratio = Decisions.uncompared(items.prediction, credits(metric, items))
        return micro(ratio, counted=False)
    vectors = _vectors(metric, items)
    scored = _without_missing(vectors)
    n = len(scored)
    missing = len(vectors) - n
    if not n:
        nothing = Decisions.uncompared(items.prediction, np.full(missing, np.nan))
        return micro(nothing, counted=False)
    mean = scored.mean(axis=0)
    value = float(_number_of_means(metric, mean))
    error = math.nan
    if n > 1:
        spread = np.atleast_2d(np.cov(scored.T, ddof=1)) / n
        drawn = np.random.default_rng(0).multivariate_normal(mean, spread, _DRAWS, "ignore")
        error = float(np.std(_number_of_means(metric, drawn)))
    low, high = _pooled_interval(metric, items, scored)
    # The true error may be below that of any sample, so the interval need not hold the sample's.
    # It is printed beside that, and is made to hold it.
    return Value(
        value=value,
        se=error,
        ci_low=min(low, value),
        ci_high=max(high, value),
        n=n,
        missing=missing,
        ties=0,
    )


def subset(judged: Judged, among: Mask) -> Judged:
    """Return a copy with the items ``among`` alone, bool [items]."""
    if among.all():
        return judged
    rows = among[judged.item]
    return replace(
        judged,
        scores=judged.scores[rows],
        item_offsets=offsets_from(judged.choices[among]),
        right=judged.right[rows],
        prediction=judged.prediction[among],
        hit=judged.hit[among],
        soft=_columns(judged.soft, rows),
        orders=_columns(judged.orders, among),
        letters=_columns(judged.letters, among),
        bytes=_columns(judged.bytes, rows),
        text_probability=_columns(judged.text_probability, among),
    )


def _columns(values: npt.NDArray[_Number] | None, among: Mask) -> npt.NDArray[_Number] | None:
    if values is None:
        return None
    return values[..., among]


def uniform(metric: str, judged: Judged) -> Floats:
    """Return the expected credit of a predictor that holds all choices equally likely, [items].

    NaN if the metric needs no probabilities of choices.
    """
    if not METRICS[metric].softmax or judged.text_probability is not None:
        return np.full(len(judged.choices), np.nan)
    right = judged.summed(judged.right)
    even_scores = np.where(np.isnan(judged.scores), np.nan, 0.0)
    even = replace(judged, scores=even_scores, hit=right / judged.choices)
    if metric == "soft-accuracy":
        return even.summed(even.shares * people_shares(even))
    if metric in _PAYMENTS:
        # The last choice is "I don't know", and pays nothing.
        wrong = judged.choices - 1 - right
        payment = (right - _PAYMENTS[metric] * wrong) / judged.choices
        return np.where(np.isnan(judged.hit), np.nan, payment)
    if METRICS[metric].pooled:
        return even.confidence - even.hit
    return _CREDITS[metric](even)


def if_calibrated(metric: str, judged: Judged, among: Mask) -> float:
    """Return the metric's expected value if every answer is right as often as the softmax says.

    NaN if the metric has none.
    """
    items = subset(judged, among)
    if metric in BINS:
        bins, confidence = confidence_bins(metric, items.confidence)
        if not len(bins):
            return math.nan
        variance = np.bincount(bins, weights=confidence * (1 - confidence))
        # The mean distance of a normal variable from its mean is √(2 / π) standard deviations.
        return float(np.sqrt(2 * variance / math.pi).sum() / len(bins))
    if metric not in _EXPECTED:
        return math.nan
    return mean_of_present(_EXPECTED[metric](items))


def people_shares(judged: Judged) -> Floats:
    """Return the share of people that chose each choice, float64 [rows]; NaN without such data."""
    if judged.soft is None:
        return np.full(len(judged.scores), np.nan)
    with np.errstate(divide="ignore", invalid="ignore"):
        return judged.soft / judged.summed(judged.soft)[judged.item]


def bins_of(confidence: Floats, number: int, closed_right: bool = False) -> Integers:
    """Return the bin of each confidence among ``number`` bins of equal width, int64.

    Bins are closed to the left, or to the right if ``closed_right``.
    """
    # 0.6 is stored as float32 and a little less, so an edge is matched to 6 decimals of a bin.
    position = np.round(confidence * number, 6)
    if closed_right:
        bins = np.ceil(position) - 1
    else:
        bins = np.floor(position)
    return np.clip(bins, 0, number - 1).astype(np.int64)


def fit_temperature(judged: Judged) -> float:
    """Return the temperature with the least mean log score on these items, within exp(±5).

    The loss is convex in 1 / T.  The items must not be those that are scored with the temperature.
    NaN without an item that has all its scores.
    """
    from scipy.optimize import minimize_scalar

    has_scores = ~np.isnan(judged.logs[judged.item_offsets[:-1]])
    items = subset(judged, has_scores)
    if not len(items.choices):
        return math.nan

    def loss(scale: float) -> float:
        scores = _log_score(replace(items, temperature=math.exp(scale)))
        # An impossible answer stays so at every temperature; infinity would hide the others.
        return float(np.clip(scores, 0.0, 1e6).mean())

    best = minimize_scalar(loss, bounds=(-5, 5), method="bounded", options={"xatol": 1e-8})
    return math.exp(float(best.x))


BINS: Mapping[str, tuple[int, str]] = {
    "ece": (10, "left"),
    "ece-15": (15, "left"),
    "ece-right": (10, "right"),
    "ece-midpoint": (10, "middle"),
    "ece-mass": (10, "mass"),
}
"""The number of bins of a calibration error, and how items are put into them.

Bins have equal width: those of ``left`` and ``middle`` are closed to the left, those of ``right``
to the right.  Bins of ``mass`` have equally many items.

EvalScope 1.14.1 ``ece`` (left); Guo et al. 2017 (right); llm-foundry@8c8dd48f, which takes the
bin's middle for the confidence; HELM@63754d05 ``ece_10_bin`` (mass:
benchmark/metrics/basic_metrics.py, with uncertainty-calibration 0.1.4 ``get_ece_em``).
"""

_Number = TypeVar("_Number", bound=np.generic)

_DRAWS = 2000
"""Draws for the standard error of a pooled metric."""

_PAYMENTS = {"ternary": 1.0, "ternary-75": 3.0, "ternary-90": 9.0}
"""What a wrong answer costs: t / (1 - t), so that answering pays above a confidence t.

Kalai et al. 2025.
"""


def confidence_bins(metric: str, confidence: Floats) -> tuple[Integers, Floats]:
    """Return the bin of every item with a confidence, and the confidence that counts for it."""
    number, kind = BINS[metric]
    present = confidence[~np.isnan(confidence)]
    if kind == "mass":
        parts = [part for part in np.array_split(np.sort(present), number) if len(part)]
        edges = [(below[-1] + above[0]) / 2 for below, above in pairwise(parts)]
        bins = np.searchsorted(edges, present, side="left")
        return bins, present
    bins = bins_of(present, number, closed_right=kind == "right")
    if kind == "middle":
        return bins, (bins + 0.5) / number
    return bins, present


def _pooled_interval(metric: str, judged: Judged, vectors: Floats) -> tuple[float, float]:
    """Return (low, high) of a pooled metric; ``vectors``: the scored items' of :func:`_vectors`."""
    if metric not in BINS:
        return extreme_interval(vectors, greatest=metric == "position-prior")
    bins, confidence = confidence_bins(metric, judged.confidence)
    hit = judged.hit[~np.isnan(judged.confidence)]
    has_hit = ~np.isnan(hit)
    # Bins without items are left out.
    bin_of = np.unique(bins[has_hit], return_inverse=True)[1]
    counts = np.bincount(bin_of)
    mean_confidence = np.bincount(bin_of, weights=confidence[has_hit]) / counts
    right = np.bincount(bin_of, weights=hit[has_hit]) / counts
    return error_interval(mean_confidence, right, counts)


def _vectors(metric: str, judged: Judged) -> Floats:
    """Return what a pooled metric averages over items: [items, bins, orders or positions]."""
    if metric == "worst-order":
        return judged.hits.T
    if metric == "position-prior":
        assert judged.letters is not None
        positions = np.arange(int(judged.choices.max(initial=1)))
        shares = (judged.letters[..., None] == positions).mean(axis=0)
        shares[(judged.letters < 0).any(axis=0)] = np.nan
        return shares
    has_confidence = ~np.isnan(judged.confidence)
    bins, confidence = confidence_bins(metric, judged.confidence)
    vectors = np.zeros((len(has_confidence), BINS[metric][0]))
    vectors[has_confidence, bins] = confidence - judged.hit[has_confidence]
    vectors[~has_confidence] = np.nan
    return vectors


def _without_missing(vectors: Floats) -> Floats:
    return vectors[~np.isnan(vectors).any(axis=1)]


def _slopes(metric: str, means: Floats) -> Floats:
    """Return what each of the ``means`` [..., means] counts for in the metric."""
    if metric == "worst-order":
        return np.eye(means.shape[-1])[means.argmin(axis=-1)]
    if metric == "position-prior":
        return np.eye(means.shape[-1])[means.argmax(axis=-1)]
    # A calibration error is the sum of the bins' absolute errors.
    return np.sign(means)


def _number_of_means(metric: str, means: Floats) -> Floats:
    """Return the pooled metric [...] from the means of bins, orders or positions, [..., means]."""
    return (_slopes(metric, means) * means).sum(axis=-1)


def _bits(judged: Judged) -> Floats:
    return -judged.first.of_gold(judged.scores) / math.log(2)


def _logprob(judged: Judged) -> Floats:
    return judged.of_gold(judged.scores)


def _prob(judged: Judged) -> Floats:
    return np.exp(judged.of_gold(judged.scores))


def _margin(judged: Judged) -> Floats:
    wrong = judged.reduced(np.maximum, np.where(judged.gold, -np.inf, judged.scores))
    return _prob(judged) - np.exp(wrong)


def _total_prob(judged: Judged) -> Floats:
    return np.exp(judged.reduced(np.logaddexp, judged.scores))


def _norm_prob(judged: Judged) -> Floats:
    return np.exp(judged.of_gold(judged.logs))


def _log_score(judged: Judged) -> Floats:
    return -judged.of_gold(judged.logs)


def _brier(judged: Judged) -> Floats:
    if judged.golds == "each":
        return judged.summed((judged.shares - judged.gold) ** 2)
    # Times 0, so that a missing choice leaves its item NaN.
    wrong_squares = np.where(judged.gold, judged.shares * 0, judged.shares**2)
    return judged.summed(wrong_squares) + (1 - _norm_prob(judged)) ** 2


def _target(judged: Judged) -> Floats:
    """Return the right answer as a distribution; several right choices have equal parts."""
    return judged.gold / judged.summed(judged.gold)[judged.item]


def _rps(judged: Judged) -> Floats:
    """Compute the ranked probability score Σ_{i<K} (F_i - H_i)² / (K - 1) of ordered choices."""
    squares = _cumulated(judged, judged.shares - _target(judged)) ** 2
    with np.errstate(divide="ignore", invalid="ignore"):
        return judged.summed(squares) / (judged.choices - 1)


def _misplaced(judged: Judged) -> Floats:
    """Compute |Σ i (p_i - right_i)|, by how many levels the mean of p misses the right one."""
    level = np.arange(len(judged.gold)) - judged.item_offsets[:-1][judged.item]
    return np.abs(judged.summed(level * (judged.shares - _target(judged))))


def _cumulated(judged: Judged, rows: Floats) -> Floats:
    """Sum each row and those before it in its item."""
    is_missing = np.isnan(rows)
    sums = np.concatenate([[0.0], np.cumsum(np.where(is_missing, 0.0, rows))])
    before_item = sums[judged.item_offsets[:-1]][judged.item]
    return np.where(is_missing, np.nan, sums[1:] - before_item)


def _soft_brier(judged: Judged) -> Floats:
    return judged.summed((judged.shares - people_shares(judged)) ** 2)


def _divergence(judged: Judged) -> Floats:
    people = people_shares(judged)
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = people * (np.log(people) - judged.logs)
    return judged.summed(np.where(people == 0, judged.shares * 0, terms))


def _total_variation(judged: Judged) -> Floats:
    return judged.summed(np.abs(judged.shares - people_shares(judged))) / 2


def _agreed(judged: Judged) -> Floats:
    """Return the share of people that chose the predicted choice; NaN without either."""
    chosen = judged.item_offsets[:-1] + np.maximum(judged.prediction, 0)
    return np.where(judged.prediction < 0, np.nan, people_shares(judged)[chosen])


def _overconfidence(judged: Judged) -> Floats:
    return judged.confidence - judged.hit


def _paid(cost: float, judged: Judged) -> Floats:
    """Return 1 for right, 0 for the last choice ("I don't know"), -``cost`` for wrong."""
    has_abstained = (judged.prediction == judged.choices - 1) & ~np.isnan(judged.hit)
    return np.where(has_abstained, 0.0, judged.hit - cost * (1 - judged.hit))


def _distracted(judged: Judged) -> Floats:
    """Compute (p of the right - p of the wrong) (1 - p of the last, "I don't know").

    It is DCS with both weights 1 (arXiv 2510.04302).
    """
    right = _norm_prob(judged)
    unsure = judged.shares[judged.item_offsets[1:] - 1]
    return (2 * right - 1 + unsure) * (1 - unsure)


def _right_in_all_orders(judged: Judged) -> Floats:
    return judged.hits.min(axis=0)


def _flipped(judged: Judged) -> Floats:
    assert judged.orders is not None
    differs = (judged.orders != judged.orders[0]).any(axis=0)
    is_missing = (judged.orders < 0).any(axis=0)
    return np.where(is_missing, np.nan, differs)


_KERNEL: Mapping[str, Callable[[Judged], Floats]] = {
    "bpb": _bits,
    "logprob": _logprob,
    "prob": _prob,
    "margin": _margin,
    "total-prob": _total_prob,
    "norm-prob": _norm_prob,
    "log-score": _log_score,
    "brier": _brier,
    "rps": _rps,
    "mae": _misplaced,
    "brier-soft": _soft_brier,
    "kl": _divergence,
    "tv": _total_variation,
    "soft-accuracy": _agreed,
    "overconfidence": _overconfidence,
    "all-orders": _right_in_all_orders,
    "flip-rate": _flipped,
    "dcs": _distracted,
    "ternary": partial(_paid, _PAYMENTS["ternary"]),
    "ternary-75": partial(_paid, _PAYMENTS["ternary-75"]),
    "ternary-90": partial(_paid, _PAYMENTS["ternary-90"]),
}

_CREDITS: Mapping[str, Callable[[Judged], Floats]] = ports.OpenTable(
    _KERNEL, ports.Metric, lambda addition: addition.credits
)
"""Every metric that is a mean over items, by name."""


def _sum_of_squares(judged: Judged) -> Floats:
    return judged.summed(judged.shares**2)


def _gini(judged: Judged) -> Floats:
    return 1 - _sum_of_squares(judged)


def _entropy(judged: Judged) -> Floats:
    # A log of -inf times a share of 0 would be NaN.
    return -judged.summed(judged.shares * np.maximum(judged.logs, -1e300))


def _spread(judged: Judged) -> Floats:
    """Average F (1 - F) of the cumulated softmax over all levels but the last."""
    below = _cumulated(judged, judged.shares)
    return judged.summed(below * (1 - below)) / np.maximum(judged.choices - 1, 1)


def _nought(judged: Judged) -> Floats:
    return judged.confidence * 0


_EXPECTED: Mapping[str, Callable[[Judged], Floats]] = {
    "norm-prob": _sum_of_squares,
    "brier": _gini,
    "log-score": _entropy,
    "rps": _spread,
    "overconfidence": _nought,
}
"""The expected credit of an item if its answer is drawn from the softmax."""
