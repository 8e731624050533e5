"""Bound what the rounded probabilities of a decision endpoint leave open.

A server that rounds to two or four decimals tells a probability within half a step.  Brier score,
TV distance and accuracy hardly move within that; a negative log-likelihood and a KL divergence may
be anything up to infinity.  So they are bounded over all distributions that round to the given
probabilities, and not computed with a floor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial

import numpy as np

from choicewise.errors import UsageError
from choicewise.protocols.metrics import OPEN
from choicewise.scoring.observed import Floats, Integers, Mask, item_max, item_sum, row_of
from choicewise.scoring.probabilities import Judged, people_shares

STEPS = (1e-2, 1e-4)
"""Steps that endpoints round to: TypeSafe to two decimals, Cloudflare and Vercel to four."""

_NEAR = 1e-3
"""How far, in steps, a value may lie from a multiple: stored log-probabilities are float32."""


def rounding_step(probabilities: Iterable[float], evidence: int = 3) -> float | None:
    """Return the largest of :data:`STEPS` that all ``probabilities`` are multiples of.

    NaN is left out.  ``evidence``: the number of different values that must speak for the step.
    Multiples of five steps do not count, because halves, quarters and fifths need no rounding.
    None if there is no step.
    """
    values = np.unique(np.fromiter(probabilities, dtype=np.float64))
    values = values[~np.isnan(values)]
    if not len(values):
        return None
    for step in STEPS:
        multiples = np.round(values / step)
        if np.all(np.abs(values / step - multiples) <= _NEAR):
            speaking = np.count_nonzero(np.unique(multiples) % 5)
            return step if speaking >= evidence else None
    return None


def rounded_bounds(metric: str, judged: Judged, step: float) -> tuple[Floats, Floats]:
    """Return (low, high) of ``metric`` over all distributions that round to the given one.

    Both are float64 [items], NaN for an item that lacks a probability, and everywhere for a metric
    that is not in :data:`BOUNDED` or at another temperature than 1.  With h half a ``step``, every
    probability lies between p - h and p + h.

    Log score: -ln min(1, p + h) to -ln max(0, p - h), and minus that the log-probability.  KL from
    g: low at clip(c g, p - h, p + h) with c such that all sum to 1, where choices with g = 0 take
    the rest; high with p - h for all g > 0, infinite if one of these is 0.  Brier scores and TV:
    each probability by itself, so that the bounds hold but are not always reached.
    """
    if metric not in _BOUNDS or judged.temperature != 1:
        nothing = np.full(len(judged.choices), np.nan)
        return nothing, nothing
    least, most = _between(judged.scores, step)
    low, high = _BOUNDS[metric](judged, least, most)
    is_missing = np.isnan(item_max(judged.scores, judged.item_offsets))
    return np.where(is_missing, np.nan, low), np.where(is_missing, np.nan, high)


def at_floor(metric: str, judged: Judged, step: float) -> Mask:
    """Mark the items whose ``metric`` is infinite as given, bool [items].

    They need a probability that is given as 0.
    """
    is_nought = np.exp(judged.scores) < step / 2
    if metric == "kl":
        is_needed = is_nought & (people_shares(judged) > 0)
        return item_max(is_needed, judged.item_offsets) > 0
    # Of several right choices, one with a probability is enough.
    return judged.reduced(np.minimum, np.where(judged.gold, is_nought, 1.0)) > 0


def top_bounds(
    scores: Floats, offsets: Integers, right: Mask, step: float
) -> tuple[Floats, Floats, Mask]:
    """Return (low, high) of an item's hit, and mark items whose top choice rounding leaves open.

    ``scores``: log p of every choice, float64 [rows].  The hit is NaN if one is missing.
    """
    low, high = _between(scores, step)
    best_low = item_max(low, offsets)
    rivals = item_sum(high >= best_low[row_of(offsets)], offsets)

    def greatest(among: Mask, bound: Floats) -> Floats:
        return item_max(np.where(among | np.isnan(bound), bound, -1.0), offsets)

    is_missing = np.isnan(best_low)
    is_sure = greatest(right, low) > greatest(~right, high)
    is_possible = greatest(right, high) >= greatest(~right, low)
    return (
        np.where(is_missing, np.nan, is_sure),
        np.where(is_missing, np.nan, is_possible),
        rivals > 1,
    )


def require_number(name: str, metric: str, step: float | None) -> None:
    """Raise UsageError if rounding to ``step`` leaves the number of protocol ``name`` open.

    None: the probabilities are not rounded.
    """
    if step is not None and metric in OPEN:
        raise UsageError(
            f"{name} has no number to compare: its endpoint rounds to {step:g}, which leaves "
            f"{metric} open; add @metric=brier-soft, @metric=tv or @metric=acc to the protocol"
        )


def _between(scores: Floats, step: float) -> tuple[Floats, Floats]:
    """Return the least and the greatest value of every probability, given as exp(``scores``)."""
    rounded = np.round(np.exp(scores) / step) * step
    return np.maximum(rounded - step / 2, 0.0), np.minimum(rounded + step / 2, 1.0)


def _minus_log(share: Floats) -> Floats:
    with np.errstate(divide="ignore"):
        return -np.log(share)


def _gold_sum(judged: Judged, bound: Floats) -> Floats:
    return judged.summed(np.where(judged.gold, bound, 0.0))


def _wrong_squares(judged: Judged, bound: Floats) -> Floats:
    return judged.summed(np.where(judged.gold, 0.0, bound**2))


def _log_score(judged: Judged, low: Floats, high: Floats) -> tuple[Floats, Floats]:
    least = np.minimum(_gold_sum(judged, high), 1.0)
    # Plus 0 makes the -0 of a certain answer a 0.
    return _minus_log(least) + 0.0, _minus_log(_gold_sum(judged, low))


def _log_probability(judged: Judged, low: Floats, high: Floats) -> tuple[Floats, Floats]:
    least, most = _log_score(judged, low, high)
    return -most, -least


def _brier(judged: Judged, low: Floats, high: Floats) -> tuple[Floats, Floats]:
    most_right = np.minimum(_gold_sum(judged, high), 1.0)
    least = _wrong_squares(judged, low) + (1 - most_right) ** 2
    most = _wrong_squares(judged, high) + (1 - _gold_sum(judged, low)) ** 2
    return least, most


def _kl(judged: Judged, low: Floats, high: Floats) -> tuple[Floats, Floats]:
    people = people_shares(judged)
    is_chosen = people > 0
    # Choices that nobody chose have no term, but take at least their lowest probability.
    room = 1 - judged.summed(np.where(is_chosen, 0.0, low))
    nearest = _scaled_to_room(
        np.where(is_chosen, people, 0.0),
        np.where(is_chosen, low, 0.0),
        np.where(is_chosen, high, 0.0),
        room,
        judged,
    )
    negentropy = np.where(is_chosen, people * np.log(np.where(is_chosen, people, 1.0)), 0.0)

    def divergence(shares: Floats) -> Floats:
        cross = people * _minus_log(np.where(is_chosen, shares, 1.0))
        return judged.summed(negentropy + np.where(is_chosen, cross, 0.0))

    is_missing = np.isnan(judged.summed(people))
    least = np.maximum(divergence(nearest), 0.0)
    return np.where(is_missing, np.nan, least), np.where(is_missing, np.nan, divergence(low))


def _scaled_to_room(
    shares: Floats, low: Floats, high: Floats, room: Floats, judged: Judged
) -> Floats:
    """Return clip(c g, ``low``, ``high``) with c such that an item's values sum to its ``room``.

    They come as near to it as they can.  The c is bisected: the sum never falls as c grows.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        limits = np.where(shares > 0, high / shares, 0.0)
    most = judged.reduced(np.fmax, limits)
    least = np.zeros_like(most)
    # Every step gives a bit of c, and c may be as small as a probability.
    for _ in range(200):
        middle = (least + most) / 2
        total = judged.summed(np.clip(middle[judged.item] * shares, low, high))
        is_over = total > room
        least = np.where(is_over, least, middle)
        most = np.where(is_over, middle, most)
    return np.clip(most[judged.item] * shares, low, high)


def _of_distance(
    power: int, scale: float, judged: Judged, low: Floats, high: Floats
) -> tuple[Floats, Floats]:
    people = people_shares(judged)
    nearest = np.maximum(np.maximum(low - people, people - high), 0.0)
    farthest = np.maximum(np.abs(low - people), np.abs(high - people))
    return judged.summed(nearest**power) * scale, judged.summed(farthest**power) * scale


_BOUNDS: Mapping[str, Callable[[Judged, Floats, Floats], tuple[Floats, Floats]]] = {
    "log-score": _log_score,
    "logprob": _log_probability,
    "kl": _kl,
    "brier": _brier,
    "brier-soft": partial(_of_distance, 2, 1.0),
    "tv": partial(_of_distance, 1, 0.5),
}

BOUNDED = frozenset(_BOUNDS)
"""The metrics of :func:`rounded_bounds`; accuracy has :func:`top_bounds`."""
