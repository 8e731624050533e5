"""Bound what the rounded probabilities of a decision endpoint leave open, and check its numbers.

A server that rounds to two or four decimals tells a probability within half a step.  Brier score,
TV distance and accuracy hardly move within that; a negative log-likelihood and a KL divergence may
be anything up to infinity.  So they are bounded over all distributions that round to the given
probabilities, and not computed with a floor.
"""

from __future__ import annotations

import math
import typing
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import numpy as np

from choicewise.errors import UsageError
from choicewise.protocols.metrics import OPEN
from choicewise.scoring.observed import Floats, Integers, Mask, item_max, item_sum, row_of
from choicewise.scoring.probabilities import Judged, people_shares

STEPS: Final = (1e-2, 1e-4)
"""Steps that endpoints round to: TypeSafe to two decimals, Cloudflare and Vercel to four."""

_NEAR: Final = 1e-3
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
            f"{name} has no number to compare: its endpoint rounds to {step:g}, which leaves {metric} open; "
            "add @metric=brier-soft, @metric=tv or @metric=acc to the protocol"
        )


@dataclass(frozen=True, slots=True)
class _Confidence:
    """Hold a confidence, and how far it moves at most if every probability moves by one."""

    value: float
    slope: float


def confidences(
    kind: str, probabilities: Sequence[float], mass: float | None = None
) -> Mapping[str, float]:
    """Return what servers call ``confidence`` for ``probabilities``, by the name of the formula.

    ``typesafe``: how far the top option is above an even share, (p - 1/n) / (1 - 1/n), for yes and
    no |2p - 1|; of a score 1 - sum p |level - mode| over its value if all levels are equally
    likely, at least 0 (system-one-adapter 0.2.1; llama.cpp, transformers, SGLang and Perplexity
    have the same). ``p-max``: the highest probability (Google).  ``p-mass``: that times the label
    ``mass``, the probability of all labels in the vocabulary; only with a mass (vLLM 0.32.0).
    """
    formulas = _formulas(kind, probabilities, mass)
    return {name: confidence.value for name, confidence in formulas.items()}


def formulas_of(
    confidence: float, kind: str, probabilities: Sequence[float], mass: float | None = None
) -> tuple[str, ...]:
    """Return the formulas of :func:`confidences` that a server's ``confidence`` agrees with.

    Rounding often leaves several.
    """
    step = rounding_step(probabilities, evidence=0) or 0.0
    step_of_confidence = rounding_step([confidence], evidence=0) or 0.0
    names = []
    for name, expected in _formulas(kind, probabilities, mass).items():
        allowed = (expected.slope * step + step_of_confidence) / 2 + 1e-6
        if abs(expected.value - confidence) <= allowed:
            names.append(name)
    return tuple(names)


def _formulas(
    kind: str, probabilities: Sequence[float], mass: float | None
) -> dict[str, _Confidence]:
    top = max(probabilities)
    formulas = {"typesafe": _typesafe(kind, probabilities), "p-max": _Confidence(top, 1.0)}
    if mass is not None:
        formulas["p-mass"] = _Confidence(top * mass, mass)
    return formulas


def _typesafe(kind: str, probabilities: Sequence[float]) -> _Confidence:
    n = len(probabilities)
    top = max(probabilities)
    if n == 1:
        return _Confidence(1.0, 0.0)
    if kind != "score":
        return _Confidence((top - 1 / n) / (1 - 1 / n), n / (n - 1))
    mode = probabilities.index(top)
    distances = [abs(level - mode) for level in range(n)]
    even = sum(abs(level - (n - 1) / 2) for level in range(n)) / n
    spread = sum(p * distance for p, distance in zip(probabilities, distances, strict=True))
    return _Confidence(max(0.0, 1 - spread / even), sum(distances) / even)


MASSES: Final = ("label_mass", "x_label_mass", "option_mass")
"""Names of the probability that all labels have among all tokens (vLLM, SGLang, maple-sdk)."""


def label_mass(diagnostics: Mapping[str, float | bool]) -> float | None:
    """Return the label mass among a server's ``diagnostics``; None if it gives none."""
    for name in MASSES:
        if name in diagnostics:
            return float(diagnostics[name])
    return None


class Answered(typing.Protocol):
    """Give the ``kind`` of a question, and what the endpoint answered."""

    @property
    def kind(self) -> str:
        """Return ``choice``, ``noul`` or ``score``."""

    @property
    def probabilities(self) -> Sequence[float] | None:
        """Return the probabilities as sent, of a noul yes first; None if they are missing."""

    @property
    def confidence(self) -> float | None:
        """Return the confidence as sent."""

    @property
    def diagnostics(self) -> Mapping[str, float | bool]:
        """Return further numbers by the server's names."""


@dataclass(frozen=True, slots=True)
class Check:
    """Hold what a run's answers say of one property: ``values`` numbers, and what they ``says``.

    ``doubt``: what speaks against it, in words; "" without doubt.
    """

    description: str
    values: int
    says: str
    doubt: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Collected:
    """Collect the numbers of all answers of a run."""

    probabilities: list[float] = field(default_factory=list)
    sums: list[float] = field(default_factory=list)
    nouls: list[float] = field(default_factory=list)
    masses: list[float] = field(default_factory=list)
    labels: list[float] = field(default_factory=list)
    formulas: list[tuple[str, ...]] = field(default_factory=list)

    def add(self, answer: Answered) -> None:
        if answer.probabilities is None:
            return
        self.probabilities.extend(answer.probabilities)
        self.sums.append(math.fsum(answer.probabilities))
        if answer.kind == "noul":
            self.nouls.extend(answer.probabilities[:1])
        mass = label_mass(answer.diagnostics)
        if mass is not None:
            self.masses.append(mass)
        if "argmax_is_label" in answer.diagnostics:
            self.labels.append(float(answer.diagnostics["argmax_is_label"]))
        if answer.confidence is not None:
            names = formulas_of(answer.confidence, answer.kind, answer.probabilities, mass)
            self.formulas.append(names)


def checks(answers: Iterable[Answered]) -> list[Check]:
    """Check the numbers of an endpoint from all its answers of a run.

    A check that no answer has a value for is left out.
    """
    collected = _Collected()
    for answer in answers:
        collected.add(answer)
    rows = [
        _rounding_check(collected.probabilities),
        _sum_check(collected.sums),
        _noul_check(collected.nouls),
        _mass_check(collected.masses),
        _label_check(collected.labels, collected.masses),
        _confidence_check(collected.formulas),
    ]
    return [row for row in rows if row.values]


def _rounding_check(probabilities: Sequence[float]) -> Check:
    description = "step of probabilities"
    step = rounding_step(probabilities)
    if step is None:
        return Check(description, len(probabilities), "none", "")
    doubt = "log score and KL are only known within bounds"
    return Check(description, len(probabilities), f"{step:g}", doubt)


def _sum_check(sums: Sequence[float]) -> Check:
    off = [total for total in sums if abs(total - 1) > 1e-5]
    doubt = f"{len(off)} of {len(sums)} are not 1" if off else ""
    return Check("sum of an answer", len(sums), _range(sums), doubt)


def _noul_check(nouls: Sequence[float]) -> Check:
    inside = 0
    at_edge = 0
    for yes in nouls:
        distance = min(yes, 1 - yes)
        inside += distance >= _EDGE - 1e-9
        at_edge += distance <= _EDGE + 1e-9
    doubt = ""
    if inside == len(nouls) and at_edge:
        most = f"{-math.log(_EDGE):.3f}"
        edges = f"clipped: {at_edge} at {_EDGE} or {1 - _EDGE}, none beyond"
        doubt = f"{edges}; no log score is above {most}"
    return Check("probability of yes", len(nouls), _range(nouls), doubt)


def _is_constant(masses: Sequence[float]) -> bool:
    return len(masses) > 1 and min(masses) == max(masses)


def _mass_check(masses: Sequence[float]) -> Check:
    low = [mass for mass in masses if mass < 0.5]
    doubt = ""
    if _is_constant(masses):
        doubt = "not measured: constant"
    elif low:
        doubt = f"below a half in {len(low)} of {len(masses)}"
    return Check("label mass", len(masses), _range(masses), doubt)


def _label_check(labels: Sequence[float], masses: Sequence[float]) -> Check:
    share = math.fsum(labels) / len(labels) if labels else 0.0
    doubt = ""
    # A server that masks all other tokens can't measure if the likeliest token is a label.
    if share == 1 and _is_constant(masses) and masses[0] == 1:
        doubt = "not measured: the mass is always 1"
    return Check("likeliest token a label", len(labels), f"{100 * share:.1f} %", doubt)


def _confidence_check(formulas: Sequence[tuple[str, ...]]) -> Check:
    description = "confidence agrees with"
    counts = Counter[str]()
    for names in formulas:
        counts.update(names)
    in_all = [name for name, count in counts.items() if count == len(formulas)]
    if in_all:
        return Check(description, len(formulas), ", ".join(in_all), "")
    in_some = ", ".join(f"{name} in {count}" for name, count in counts.most_common())
    doubt = "no known formula"
    return Check(description, len(formulas), in_some or "no formula", doubt)


def _range(values: Sequence[float]) -> str:
    low = f"{min(values, default=0.0):.4g}"
    high = f"{max(values, default=0.0):.4g}"
    return low if low == high else f"{low} – {high}"


_EDGE: Final = 0.01
"""Google keeps the probability of yes this far from 0 and 1 (google-genai 3.4.0)."""


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

BOUNDED: Final = frozenset(_BOUNDS)
"""The metrics of :func:`rounded_bounds`; accuracy has :func:`top_bounds`."""
