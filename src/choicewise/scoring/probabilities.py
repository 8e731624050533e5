"""Metrics of probabilities, from the scores of every choice: credits of items, calibration, the uniform predictor.

``p`` is the softmax of an item's scores over the temperature.  It is a distribution of the answers where scores are
log-likelihoods of labels; of whole texts short ones dominate it, and of means it is flat.  All in log space, so that an
option's probability may underflow.
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

from choicewise.protocols.metrics import METRICS
from choicewise.scoring.decide import Decisions
from choicewise.scoring.intervals import Value, error_interval, extreme_interval, micro, wilson
from choicewise.scoring.observed import Floats, Integers, Mask, reduce_rows, row_of


@dataclass(frozen=True, kw_only=True)
class Judged:
    """What a metric of probabilities looks at.

    ``scores``: float64 [rows], NaN where one is not known.  ``right``: bool [rows].  ``prediction`` and ``hit``: the
    choice with the greatest score and the credit for it, [items].  ``golds``: which of several right choices count:
    ``sum``, ``max`` (the one with the greatest score), ``first``, or ``each`` by itself.  ``soft``: how many people
    chose each choice, [rows], where the data says so.  ``orders``: the choice predicted in each order of the options,
    and ``letters``, the place where it stood, int64 [orders, items], -1 for none.  ``bytes``: of every choice, [rows],
    where items weigh as much as their answers have.  ``text_probability``: that of each item's answer in text, [items],
    which then is its confidence; such answers have no scores.
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
        """The item of every row."""
        return row_of(self.item_offsets)

    @cached_property
    def choices(self) -> Integers:
        """How many choices every item has."""
        return np.diff(self.item_offsets)

    @cached_property
    def logs(self) -> Floats:
        """log p of every choice; NaN for an item with a score that is not known, or with impossible choices alone."""
        scaled = self.scores / self.temperature
        with np.errstate(invalid="ignore"):
            return np.asarray(
                scaled - self.reduced(np.logaddexp, scaled)[self.item], dtype=np.float64
            )

    @cached_property
    def shares(self) -> Floats:
        """p of every choice."""
        return np.exp(self.logs)

    @cached_property
    def gold(self) -> Mask:
        """The rows that count as the right answer."""
        among = self.right
        if self.golds in ("sum", "each"):
            return among
        if self.golds == "max":
            best = self.reduced(np.fmax, np.where(among, self.scores, -np.inf))
            among = among & (self.scores == best[self.item])
        index = np.arange(len(among))
        return np.asarray(
            index == self.reduced(np.minimum, np.where(among, index, np.inf))[self.item],
            dtype=np.bool_,
        )

    @property
    def first(self) -> Judged:
        """The same with one right answer: a sum of several has no bytes."""
        return replace(self, golds="first") if self.golds == "sum" else self

    def reduced(self, ufunc: np.ufunc, rows: Floats) -> Floats:
        """The rows of every item reduced, float64 [items]."""
        return reduce_rows(ufunc, rows, self.item_offsets)

    def of_gold(self, logs: Floats) -> Floats:
        """log of the right answer's probability, [items], from that of every choice."""
        return self.reduced(np.logaddexp, np.where(self.gold | np.isnan(logs), logs, -np.inf))

    @cached_property
    def confidence(self) -> Floats:
        """The highest p of every item, or that of its text."""
        if self.text_probability is not None:
            return self.text_probability
        return self.reduced(np.maximum, self.shares)

    @cached_property
    def hits(self) -> Floats:
        """1 where the answer in an order is right, float64 [orders, items]; NaN where there is none."""
        assert self.orders is not None
        rows = self.item_offsets[:-1] + np.maximum(self.orders, 0)
        return np.where(self.orders < 0, np.nan, self.right[rows])


def credits(metric: str, judged: Judged) -> Floats:
    """Numbers whose mean is the number of all these items, float64 [items], NaN where one is missing.

    Of a metric that is ``pooled`` they are its linear part at the means of bins or orders, and of items that weigh as
    much as their answers have bytes that of the ratio, R + w (c - R) / mean w: so their standard error is that of the
    number, and two models are compared item by item.
    """
    if METRICS[metric].pooled:
        vectors, pool = _vectors(metric, judged)
        known = vectors[~np.isnan(vectors).any(axis=1)]
        return (
            vectors @ pool(known.mean(axis=0))[1] if len(known) else np.full(len(vectors), np.nan)
        )
    each = _CREDITS[metric](judged)
    if judged.bytes is None:
        return each
    weight = judged.first.reduced(np.add, np.where(judged.first.gold, judged.bytes, 0.0))
    scored = ~np.isnan(each) & ~np.isnan(weight)
    with np.errstate(invalid="ignore", divide="ignore"):
        ratio = (weight * each)[scored].sum() / weight[scored].sum()
        return np.asarray(
            np.where(scored, ratio + weight * (each - ratio) / weight[scored].mean(), np.nan)
        )


def pooled(metric: str, judged: Judged, among: Mask) -> Value:
    """The number of the items ``among`` together, with its interval (:mod:`choicewise.scoring.intervals`).

    Of a metric that is ``pooled`` the standard error is that of the bootstrap over items, with the means of bins or
    orders drawn from their normal limit, and the interval is not made of it; of items that weigh differently both are
    those of a ratio.
    """
    own = subset(judged, among)
    if judged.bytes is not None:
        return micro(Decisions.uncompared(own.prediction, credits(metric, own)), counted=False)
    vectors, pool = _vectors(metric, own)
    known = vectors[~np.isnan(vectors).any(axis=1)]
    n, missing = len(known), len(vectors) - len(known)
    if not n:
        return Value(
            value=math.nan,
            se=math.nan,
            ci_low=math.nan,
            ci_high=math.nan,
            n=0,
            missing=missing,
            ties=0,
        )
    mean = known.mean(axis=0)
    value, error = float(pool(mean)[0]), math.nan
    if n > 1:
        spread = np.atleast_2d(np.cov(known.T, ddof=1)) / n
        drawn = np.random.default_rng(0).multivariate_normal(mean, spread, _DRAWS, "ignore")
        error = float(np.std(pool(drawn)[0]))
    low, high = _pooled_interval(metric, own, known)
    # What is true may be below any sample's error; the interval is shown beside the sample's, and holds that, too.
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
    """The same of the items ``among`` alone, bool [items]."""
    if among.all():
        return judged
    rows = among[judged.item]
    return replace(
        judged,
        scores=judged.scores[rows],
        item_offsets=np.concatenate([[0], np.cumsum(judged.choices[among])]),
        right=judged.right[rows],
        prediction=judged.prediction[among],
        hit=judged.hit[among],
        soft=_only(judged.soft, rows),
        orders=_only(judged.orders, among),
        letters=_only(judged.letters, among),
        bytes=_only(judged.bytes, rows),
        text_probability=_only(judged.text_probability, among),
    )


def _only(values: npt.NDArray[_Number] | None, among: Mask) -> npt.NDArray[_Number] | None:
    """Return the columns ``among`` of an array that may not be there."""
    return None if values is None else values[..., among]


def uniform(metric: str, judged: Judged) -> Floats:
    """The credit that a predictor is expected to have which holds all choices equally likely, [items]; NaN for none."""
    nothing = np.full(len(judged.choices), np.nan)
    if not METRICS[metric].softmax or judged.text_probability is not None:
        return nothing
    right = judged.reduced(np.add, judged.right.astype(np.float64))
    even = replace(
        judged, scores=np.where(np.isnan(judged.scores), np.nan, 0.0), hit=right / judged.choices
    )
    if metric == "soft-accuracy":
        return even.reduced(np.add, even.shares * people_shares(even))
    if metric in _PAYMENTS:
        wrong = judged.choices - 1 - right
        return np.where(
            np.isnan(judged.hit), np.nan, (right - _PAYMENTS[metric] * wrong) / judged.choices
        )
    return even.confidence - even.hit if METRICS[metric].pooled else _CREDITS[metric](even)


def if_calibrated(metric: str, judged: Judged, among: Mask) -> float:
    """The value that is expected if every answer is right as often as the softmax says; NaN where none follows."""
    own = subset(judged, among)
    if metric in BINS:
        where, confidence = _bins(metric, own.confidence)
        variance = np.bincount(where, weights=confidence * (1 - confidence))
        return float(np.sqrt(2 * variance / math.pi).sum() / len(where)) if len(where) else math.nan
    expected = _EXPECTED.get(metric, lambda own: np.array([]))(own)
    known = expected[~np.isnan(expected)]
    return float(known.mean()) if len(known) else math.nan


def people_shares(judged: Judged) -> Floats:
    """The share of people that chose each choice, float64 [rows]; NaN where the data does not say."""
    if judged.soft is None:
        return np.full(len(judged.scores), np.nan)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(
            judged.soft / judged.reduced(np.add, judged.soft)[judged.item], dtype=np.float64
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Bin:
    """A line of the reliability table: items with a confidence in this range, and the share of them that is right."""

    n: int
    lowest: float
    highest: float
    confidence: float
    right: float
    right_low: float
    right_high: float


def reliability(metric: str, judged: Judged) -> list[Bin]:
    """The bins of a calibration error that hold items, in order; Wilson intervals of the share that is right."""
    known = ~np.isnan(judged.confidence) & ~np.isnan(judged.hit)
    confidence, hit = judged.confidence[known], judged.hit[known]
    where, _ = _bins(metric, judged.confidence)
    table = []
    for own in (where == number for number in np.unique(where)):
        right, n = float(hit[own].mean()), int(own.sum())
        right_low, right_high = wilson(right, n)
        table.append(
            Bin(
                n=n,
                lowest=float(confidence[own].min()),
                highest=float(confidence[own].max()),
                confidence=float(confidence[own].mean()),
                right=right,
                right_low=right_low,
                right_high=right_high,
            )
        )
    return table


def bins_of(confidence: Floats, number: int, closed_right: bool = False) -> Integers:
    """Which of so many bins of equal width each confidence is in, int64; closed to the left unless ``closed_right``.

    An edge holds 6 decimals of a bin: what is kept of 0.6 is float32, and a little less.
    """
    at = np.round(confidence * number, 6)
    return np.asarray(
        np.clip(np.ceil(at) - 1 if closed_right else np.floor(at), 0, number - 1), dtype=np.int64
    )


def fit_temperature(judged: Judged) -> float:
    """The temperature with the least mean log score on these items, which must not be those that are scored with it.

    It is convex in 1 / T; between exp(-5) and exp(5).  NaN without an item that has all its scores.
    """
    from scipy.optimize import minimize_scalar

    known = subset(judged, ~np.isnan(judged.logs[judged.item_offsets[:-1]]))
    if not len(known.choices):
        return math.nan

    def loss(scale: float) -> float:
        scores = np.maximum(_CREDITS["log-score"](replace(known, temperature=math.exp(scale))), 0.0)
        return float(
            np.minimum(scores, 1e6).mean()
        )  # an impossible answer stays so at every temperature

    return math.exp(
        float(minimize_scalar(loss, bounds=(-5, 5), method="bounded", options={"xatol": 1e-8}).x)
    )


BINS: Mapping[str, tuple[int, str]] = {
    "ece": (10, "left"),
    "ece-15": (15, "left"),
    "ece-right": (10, "right"),
    "ece-midpoint": (10, "middle"),
    "ece-mass": (10, "mass"),
}
"""How many bins a calibration error has, and how items are put into them: equal width, with the edges of ``left`` and
``middle`` closed to the left and of ``right`` to the right; ``mass``: equally many.

EvalScope 1.14.1 ``ece`` (left); Guo et al. 2017 (right); llm-foundry@8c8dd48f, which takes the bin's middle for the
confidence; HELM@63754d05 ``ece_10_bin`` (mass: benchmark/metrics/basic_metrics.py, with
uncertainty-calibration 0.1.4 ``get_ece_em``).
"""

_Number = TypeVar("_Number", bound=np.generic)

_DRAWS = 2000
"""Draws for the standard error of what is pooled."""

_PAYMENTS = {"ternary": 1.0, "ternary-75": 3.0, "ternary-90": 9.0}
"""What a wrong answer costs: t / (1 - t), so that answering pays from a confidence t (Kalai et al. 2025)."""


def _bins(metric: str, confidence: Floats) -> tuple[Integers, Floats]:
    """The bin of every item whose confidence is known, and the confidence that counts for it."""
    number, kind = BINS[metric]
    known = confidence[~np.isnan(confidence)]
    if kind == "mass":
        parts = [part for part in np.array_split(np.sort(known), number) if len(part)]
        edges = [(one[-1] + other[0]) / 2 for one, other in pairwise(parts)]
        where = np.searchsorted(edges, known, side="left")
    else:
        where = bins_of(known, number, closed_right=kind == "right")
    return where, (where + 0.5) / number if kind == "middle" else known


def _pooled_interval(metric: str, judged: Judged, vectors: Floats) -> tuple[float, float]:
    """(low, high) of a metric that is ``pooled``; ``vectors``: the scored items' of :func:`_vectors`."""
    if metric not in BINS:
        return extreme_interval(vectors, greatest=metric == "position-prior")
    scored = ~np.isnan(judged.confidence)
    where, confidence = _bins(metric, judged.confidence)
    hit = judged.hit[scored]
    judgeable = ~np.isnan(hit)
    bins = np.unique(where[judgeable], return_inverse=True)[1]
    counts = np.bincount(bins)
    mean_confidence = np.bincount(bins, weights=confidence[judgeable]) / counts
    right = np.bincount(bins, weights=hit[judgeable]) / counts
    return error_interval(mean_confidence, right, counts)


_Pool = Callable[[Floats], tuple[Floats, Floats]]
"""From the means of bins, orders or places, [..., means], to the number [...] and what each mean counts for in it."""


def _one(pick: Callable[..., Integers], means: Floats) -> tuple[Floats, Floats]:
    chosen = np.eye(means.shape[-1])[pick(means, axis=-1)]
    return (chosen * means).sum(axis=-1), chosen


def _vectors(metric: str, judged: Judged) -> tuple[Floats, _Pool]:
    """What is averaged over items, float64 [items, bins, orders or places], and how a number is made of the means."""
    if metric == "worst-order":
        return judged.hits.T, partial(_one, np.argmin)
    if metric == "position-prior":
        assert judged.letters is not None
        places = np.arange(int(judged.choices.max(initial=1)))
        shares = (judged.letters[..., None] == places).mean(axis=0)
        shares[(judged.letters < 0).any(axis=0)] = np.nan
        return shares, partial(_one, np.argmax)
    known = ~np.isnan(judged.confidence)
    where, confidence = _bins(metric, judged.confidence)
    vectors = np.zeros((len(known), BINS[metric][0]))
    vectors[known, where] = confidence - judged.hit[known]
    vectors[~known] = np.nan
    return vectors, lambda means: (np.abs(means).sum(axis=-1), np.sign(means))


def _bits(judged: Judged) -> Floats:
    return -judged.first.of_gold(judged.scores) / math.log(2)


def _margin(judged: Judged) -> Floats:
    wrong = judged.reduced(np.maximum, np.where(judged.gold, -np.inf, judged.scores))
    return np.exp(judged.of_gold(judged.scores)) - np.exp(wrong)


def _brier(judged: Judged) -> Floats:
    if judged.golds == "each":
        return judged.reduced(np.add, (judged.shares - judged.gold) ** 2)
    wrong = judged.reduced(np.add, np.where(judged.gold, judged.shares * 0, judged.shares**2))
    return wrong + (1 - np.exp(judged.of_gold(judged.logs))) ** 2


def _rps(judged: Judged) -> Floats:
    """Σ_{i<K} (F_i - H_i)² / (K - 1): the choices stand in their order, and of several right ones each has a part."""
    gold = judged.gold.astype(np.float64)
    target = gold / judged.reduced(np.add, gold)[judged.item]
    with np.errstate(divide="ignore", invalid="ignore"):
        return judged.reduced(np.add, _cumulated(judged, judged.shares - target) ** 2) / (
            judged.choices - 1
        )


def _misplaced(judged: Judged) -> Floats:
    """|Σ i (p_i - right_i)|: by how many levels the softmax's mean misses, of several right ones the mean of them."""
    gold = judged.gold.astype(np.float64)
    level = np.arange(len(gold)) - judged.item_offsets[:-1][judged.item]
    target = gold / judged.reduced(np.add, gold)[judged.item]
    return np.abs(judged.reduced(np.add, level * (judged.shares - target)))


def _cumulated(judged: Judged, rows: Floats) -> Floats:
    """The sum of each row and those before it in its item."""
    missing = np.isnan(rows)
    sums = np.concatenate([[0.0], np.cumsum(np.where(missing, 0.0, rows))])
    return np.where(missing, np.nan, sums[1:] - sums[judged.item_offsets[:-1]][judged.item])


def _divergence(judged: Judged) -> Floats:
    people = people_shares(judged)
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.where(people == 0, judged.shares * 0, people * (np.log(people) - judged.logs))
    return judged.reduced(np.add, terms)


def _agreed(judged: Judged) -> Floats:
    """The share of people that chose what is predicted; NaN where nothing is, or the data does not say."""
    chosen = judged.item_offsets[:-1] + np.maximum(judged.prediction, 0)
    return np.where(judged.prediction < 0, np.nan, people_shares(judged)[chosen])


def _paid(cost: float, judged: Judged) -> Floats:
    """1 for right, 0 for the last choice ("I don't know"), -``cost`` for wrong."""
    abstained = judged.prediction == judged.choices - 1
    return np.where(abstained & ~np.isnan(judged.hit), 0.0, judged.hit - cost * (1 - judged.hit))


def _distracted(judged: Judged) -> Floats:
    """(p of the right - p of the wrong) (1 - p of the last, "I don't know"): DCS with both weights 1 (2510.04302)."""
    right = np.exp(judged.of_gold(judged.logs))
    unsure = judged.shares[judged.item_offsets[1:] - 1]
    return (2 * right - 1 + unsure) * (1 - unsure)


def _flipped(judged: Judged) -> Floats:
    assert judged.orders is not None
    other = (judged.orders != judged.orders[0]).any(axis=0)
    return np.where((judged.orders < 0).any(axis=0), np.nan, other)


_CREDITS: Mapping[str, Callable[[Judged], Floats]] = {
    "bpb": _bits,
    "logprob": lambda judged: judged.of_gold(judged.scores),
    "prob": lambda judged: np.exp(judged.of_gold(judged.scores)),
    "margin": _margin,
    "total-prob": lambda judged: np.exp(judged.reduced(np.logaddexp, judged.scores)),
    "norm-prob": lambda judged: np.exp(judged.of_gold(judged.logs)),
    "log-score": lambda judged: -judged.of_gold(judged.logs),
    "brier": _brier,
    "rps": _rps,
    "mae": _misplaced,
    "brier-soft": lambda judged: judged.reduced(
        np.add, (judged.shares - people_shares(judged)) ** 2
    ),
    "kl": _divergence,
    "tv": lambda judged: judged.reduced(np.add, np.abs(judged.shares - people_shares(judged))) / 2,
    "soft-accuracy": _agreed,
    "overconfidence": lambda judged: judged.confidence - judged.hit,
    "all-orders": lambda judged: np.asarray(judged.hits.min(axis=0)),
    "flip-rate": _flipped,
    "dcs": _distracted,
    **{name: partial(_paid, cost) for name, cost in _PAYMENTS.items()},
}
"""Every metric that is a mean over items, by name."""

_EXPECTED: Mapping[str, Callable[[Judged], Floats]] = {
    "norm-prob": lambda judged: judged.reduced(np.add, judged.shares**2),
    "brier": lambda judged: 1 - judged.reduced(np.add, judged.shares**2),
    "log-score": lambda judged: (
        -judged.reduced(np.add, judged.shares * np.maximum(judged.logs, -1e300))
    ),
    "rps": lambda judged: (
        judged.reduced(np.add, _spread(judged)) / np.maximum(judged.choices - 1, 1)
    ),
    "overconfidence": lambda judged: judged.confidence * 0,
}
"""The value of an item if its answer is drawn from the softmax."""


def _spread(judged: Judged) -> Floats:
    """F (1 - F) of the cumulated softmax."""
    below = _cumulated(judged, judged.shares)
    return below * (1 - below)
