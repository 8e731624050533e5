"""What the numbers of a decision endpoint hold: what rounding leaves open, what its confidence is, what to doubt.

A server that rounds to two or four decimals tells each probability within half a step.  Brier score, TV distance and
accuracy hardly move within that; a negative log-likelihood and KL divergence may be anything up to infinity.  So they
are bounded here over all distributions that round to what was told, and not computed with a floor.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

import numpy as np

from choicewise.errors import UsageError
from choicewise.scoring.observed import Floats, Integers, Mask, reduce_rows, row_of
from choicewise.scoring.probabilities import Judged, people_shares

STEPS: Final = (1e-2, 1e-4)
"""Steps to which endpoints are known to round: TypeSafe's two decimals, four of Cloudflare and of Vercel's gateway."""

_NEAR: Final = 1e-3
"""How far, in steps, a value may lie from a multiple: stored log-probabilities are float32."""


@dataclass(frozen=True, slots=True)
class Rounding:
    """A number of probabilities that were rounded to a ``step``.

    ``floor``: items of which it needs a probability that was told as 0, so that it is infinite as told.
    ``with_floor``: what 1e-12 in the place of 0 makes of a number that rounding leaves open; NaN for others.
    """

    step: float
    floor: int
    with_floor: float = math.nan


def rounding_step(probabilities: Iterable[float], evidence: int = 3) -> float | None:
    """The largest of :data:`STEPS` that all ``probabilities`` are multiples of, but NaN; None where there is none.

    ``evidence``: how many different values must speak for it.  Multiples of five steps do not count, for halves,
    quarters and fifths come about without any rounding.
    """
    values = np.unique(np.fromiter(probabilities, dtype=np.float64))
    values = values[~np.isnan(values)]
    if not len(values):
        return None
    for step in STEPS:
        places = np.round(values / step)
        if np.all(np.abs(values / step - places) <= _NEAR):
            return step if np.count_nonzero(np.unique(places) % 5) >= evidence else None
    return None


def rounded_bounds(metric: str, judged: Judged, step: float) -> tuple[Floats, Floats]:
    """(low, high) of ``metric`` over all distributions that round to what was told, float64 [items] each.

    NaN for an item of which something is missing, and everywhere for a metric that is not in :data:`BOUNDED` or at
    another temperature than 1.  With h half a ``step``, every probability lies between p - h and p + h.  Log score:
    -ln min(1, p + h) to -ln max(0, p - h), and minus that the log-probability.  KL from g: low at clip(c g, p - h,
    p + h) with c such that all sum to 1, where choices with g = 0 take what is left; high with p - h wherever g > 0,
    infinite if one of these is 0.  Brier scores and TV: each probability by itself, so that the bounds hold and are
    not always reached.
    """
    if metric not in _BOUNDS or judged.temperature != 1:
        nothing = np.full(len(judged.choices), np.nan)
        return nothing, nothing
    low, high = _BOUNDS[metric](judged, *_between(judged.scores, step))
    known = ~np.isnan(judged.reduced(np.maximum, judged.scores))
    return np.where(known, low, np.nan), np.where(known, high, np.nan)


def at_floor(metric: str, judged: Judged, step: float) -> Mask:
    """Items whose ``metric`` is infinite as told, because a probability that it needs was told as 0; bool [items]."""
    nought = np.exp(judged.scores) < step / 2
    if metric == "kl":
        nought &= people_shares(judged) > 0
        return np.asarray(judged.reduced(np.maximum, nought.astype(np.float64)) > 0)
    return np.asarray(judged.reduced(np.minimum, np.where(judged.gold, nought, 1.0)) > 0)


def top_bounds(
    scores: Floats, offsets: Integers, right: Mask, step: float
) -> tuple[Floats, Floats, Mask]:
    """(low, high) of an item's hit, and whether rounding leaves open which choice is its top one; [items] each.

    ``scores``: log p of every choice, float64 [rows].  The hit is NaN where one is missing.
    """
    low, high = _between(scores, step)
    least = reduce_rows(np.maximum, low, offsets)
    rivals = reduce_rows(np.add, (high >= least[row_of(offsets)]).astype(np.float64), offsets)

    def most(among: Mask, bound: Floats) -> Floats:
        return reduce_rows(np.maximum, np.where(among | np.isnan(bound), bound, -1.0), offsets)

    sure = np.where(np.isnan(least), np.nan, most(right, low) > most(~right, high))
    possible = np.where(np.isnan(least), np.nan, most(right, high) >= most(~right, low))
    return sure, possible, rivals > 1


def require_number(name: str, metric: str, step: float | None) -> None:
    """Raises UsageError where rounding to a ``step`` (None: of nothing) leaves the number of protocol ``name`` open."""
    if step is not None and metric in OPEN:
        raise UsageError(
            f"{name} has no number to compare: its endpoint rounds to {step:g}, so that {metric} is known between two "
            "bounds alone; compare the protocol under another metric, such as brier-soft, tv or acc, by naming it"
        )


def confidences(
    kind: str, probabilities: Sequence[float], mass: float | None = None
) -> Mapping[str, float]:
    """What servers call ``confidence`` for an answer with these ``probabilities``, by whose formula it is.

    ``typesafe``: how far the top option is above an even share, (p - 1/n) / (1 - 1/n), for yes and no |2p - 1|; of a
    score 1 - sum p |level - mode| over what it is if all levels are as likely, at least 0 (system-one-adapter
    0.2.1; llama.cpp, transformers, SGLang and Perplexity have the same).  ``p-max``: the highest probability (Google).
    ``p-mass``: that times the label ``mass``, the probability of all labels in the vocabulary; only where it is known
    (vLLM 0.32.0).
    """
    return {name: value for name, (value, _) in _formulas(kind, probabilities, mass).items()}


def formulas_of(
    confidence: float, kind: str, probabilities: Sequence[float], mass: float | None = None
) -> tuple[str, ...]:
    """Which of :func:`confidences` a server's ``confidence`` agrees with, as far as rounding tells; often several."""
    step = rounding_step(probabilities, evidence=0) or 0.0
    step_of_confidence = rounding_step([confidence], evidence=0) or 0.0
    names = []
    for name, (value, slope) in _formulas(kind, probabilities, mass).items():
        allowed = (slope * step + step_of_confidence) / 2 + 1e-6
        if abs(value - confidence) <= allowed:
            names.append(name)
    return tuple(names)


MASSES: Final = ("label_mass", "x_label_mass", "option_mass")
"""What servers call the probability that all labels have among all tokens (vLLM and SGLang, SGLang, maple-sdk)."""


def label_mass(diagnostics: Mapping[str, float | bool]) -> float | None:
    """The label mass among a server's ``diagnostics``; None where it gives none."""
    for name in MASSES:
        if name in diagnostics:
            return float(diagnostics[name])
    return None


class Answered(Protocol):
    """What is kept of an answer: the ``kind`` of the question, and what the endpoint said."""

    @property
    def kind(self) -> str:
        """``choice``, ``noul`` or ``score``."""

    @property
    def probabilities(self) -> Sequence[float] | None:
        """As they were sent, of a noul yes first; None where they are missing."""

    @property
    def confidence(self) -> float | None:
        """As it was sent."""

    @property
    def diagnostics(self) -> Mapping[str, float | bool]:
        """By the server's names."""


@dataclass(frozen=True, slots=True)
class Check:
    """What a run's answers say of one thing: ``description`` what, how many ``values``, and what the endpoint ``says``.

    ``doubt``: what speaks against it, in words; empty where nothing does.
    """

    description: str
    values: int
    says: str
    doubt: str


def checks(answers: Iterable[Answered]) -> list[Check]:
    """What to believe of the numbers of an endpoint, from all its answers of a run; what no answer has is left out."""
    masses, labels, sums = list[float](), list[float](), list[float]()
    nouls, values, agreeing = list[float](), list[float](), list[tuple[str, ...]]()
    for each in answers:
        if each.probabilities is None:
            continue
        values += each.probabilities
        sums.append(math.fsum(each.probabilities))
        nouls += each.probabilities[:1] if each.kind == "noul" else ()
        if (mass := label_mass(each.diagnostics)) is not None:
            masses.append(mass)
        if "argmax_is_label" in each.diagnostics:
            labels.append(float(each.diagnostics["argmax_is_label"]))
        if each.confidence is not None:
            agreeing.append(formulas_of(each.confidence, each.kind, each.probabilities, mass))
    rows = [_rounding_check(values), _sum_check(sums), _noul_check(nouls), _mass_check(masses)]
    constant = len(masses) > 1 and min(masses) == max(masses) == 1
    share = math.fsum(labels) / len(labels) if labels else 0.0
    always = "not measured: always so, as the mass is always 1" if constant and share == 1 else ""
    rows.append(Check("likeliest token a label", len(labels), f"{100 * share:.1f} %", always))
    return [row for row in [*rows, _confidence_check(agreeing)] if row.values]


def _rounding_check(values: Sequence[float]) -> Check:
    step = rounding_step(values)
    doubt = "" if step is None else "a log score and KL are known between two bounds alone"
    return Check(
        "step of probabilities", len(values), "none" if step is None else f"{step:g}", doubt
    )


def _sum_check(sums: Sequence[float]) -> Check:
    off = sum(abs(total - 1) > 1e-5 for total in sums)
    return Check(
        "sum of an answer",
        len(sums),
        _range(sums),
        f"{off} of {len(sums)} are not 1" if off else "",
    )


def _noul_check(nouls: Sequence[float]) -> Check:
    inside = all(_EDGE - 1e-9 <= yes <= 1 - _EDGE + 1e-9 for yes in nouls)
    edges = sum(min(yes, 1 - yes) <= _EDGE + 1e-9 for yes in nouls)
    most = f"{-math.log(_EDGE):.3f}"
    doubt = f"clipped: {edges} at {_EDGE} or {1 - _EDGE}, none beyond; no log score is above {most}"
    return Check("probability of yes", len(nouls), _range(nouls), doubt if inside and edges else "")


def _mass_check(masses: Sequence[float]) -> Check:
    same = len(masses) > 1 and min(masses) == max(masses)
    half = sum(mass < 0.5 for mass in masses)
    low = f"below a half in {half} of {len(masses)}" if half else ""
    return Check(
        "label mass", len(masses), _range(masses), "not measured: always the same" if same else low
    )


def _confidence_check(agreeing: Sequence[tuple[str, ...]]) -> Check:
    counts = Counter(name for names in agreeing for name in names)
    known = [name for name, count in counts.items() if count == len(agreeing)]
    named = (
        ", ".join(known or (f"{name} in {count}" for name, count in counts.most_common()))
        or "no formula"
    )
    return Check(
        "confidence agrees with",
        len(agreeing),
        named,
        "" if known else "by no one formula that is known",
    )


def _range(values: Sequence[float]) -> str:
    low, high = (f"{value:.4g}" for value in (min(values, default=0.0), max(values, default=0.0)))
    return low if low == high else f"{low} – {high}"


_EDGE: Final = 0.01
"""Google keeps the probability of yes this far from 0 and 1 (google-genai 3.4.0)."""


def _formulas(
    kind: str, probabilities: Sequence[float], mass: float | None
) -> Mapping[str, tuple[float, float]]:
    """(confidence, how far it moves at most if every probability moves by one) by each formula."""
    n, top = len(probabilities), max(probabilities)
    if n == 1:
        typesafe = 1.0, 0.0
    elif kind == "score":
        mode = probabilities.index(top)
        even = sum(abs(level - (n - 1) / 2) for level in range(n)) / n
        away = [abs(level - mode) for level in range(n)]
        typesafe = (
            max(0.0, 1 - sum(p * far for p, far in zip(probabilities, away, strict=True)) / even),
            sum(away) / even,
        )
    else:
        typesafe = (top - 1 / n) / (1 - 1 / n), n / (n - 1)
    named = {"typesafe": typesafe, "p-max": (top, 1.0)}
    return named if mass is None else {**named, "p-mass": (top * mass, mass)}


def _between(scores: Floats, step: float) -> tuple[Floats, Floats]:
    """The least and the most that every probability may be, which was given as exp(``scores``)."""
    rounded = np.round(np.exp(scores) / step) * step
    return np.maximum(rounded - step / 2, 0.0), np.minimum(rounded + step / 2, 1.0)


def _minus_log(share: Floats) -> Floats:
    with np.errstate(divide="ignore"):
        return np.asarray(-np.log(share))


def _log_score(judged: Judged, low: Floats, high: Floats) -> tuple[Floats, Floats]:
    least, most = (
        judged.reduced(np.add, np.where(judged.gold, bound, 0.0)) for bound in (low, high)
    )
    return _minus_log(np.minimum(most, 1.0)) + 0.0, _minus_log(least)


def _log_probability(judged: Judged, low: Floats, high: Floats) -> tuple[Floats, Floats]:
    least, most = _log_score(judged, low, high)
    return -most, -least


def _brier(judged: Judged, low: Floats, high: Floats) -> tuple[Floats, Floats]:
    least, most = (
        judged.reduced(np.add, np.where(judged.gold, bound, 0.0)) for bound in (low, high)
    )
    wrong = [judged.reduced(np.add, np.where(judged.gold, 0.0, bound**2)) for bound in (low, high)]
    return wrong[0] + (1 - np.minimum(most, 1.0)) ** 2, wrong[1] + (1 - least) ** 2


def _kl(judged: Judged, low: Floats, high: Floats) -> tuple[Floats, Floats]:
    people = people_shares(judged)
    asked = people > 0
    room = 1 - judged.reduced(np.add, np.where(asked, 0.0, low))
    nearest = _water(
        np.where(asked, people, 0.0),
        np.where(asked, low, 0.0),
        np.where(asked, high, 0.0),
        room,
        judged,
    )
    own = np.where(asked, people * np.log(np.where(asked, people, 1.0)), 0.0)

    def divergence(shares: Floats) -> Floats:
        return judged.reduced(
            np.add, own + np.where(asked, people * _minus_log(np.where(asked, shares, 1.0)), 0.0)
        )

    known = ~np.isnan(judged.reduced(np.add, people))
    bounds = np.maximum(divergence(nearest), 0.0), divergence(low)
    return np.where(known, bounds[0], np.nan), np.where(known, bounds[1], np.nan)


def _water(shares: Floats, low: Floats, high: Floats, room: Floats, judged: Judged) -> Floats:
    """clip(c g, ``low``, ``high``) with c such that an item's values sum to its ``room``, or as near to it as they can.

    By bisection: the sum never falls as c grows.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        most = judged.reduced(np.fmax, np.where(shares > 0, high / shares, 0.0))
    least = np.zeros_like(most)
    for _ in range(200):  # every step gives a bit of c, and c may be as small as a probability
        middle = (least + most) / 2
        over = judged.reduced(np.add, np.clip(middle[judged.item] * shares, low, high)) > room
        least, most = np.where(over, least, middle), np.where(over, middle, most)
    return np.asarray(np.clip(most[judged.item] * shares, low, high))


def _of_distance(
    power: int, scale: float, judged: Judged, low: Floats, high: Floats
) -> tuple[Floats, Floats]:
    people = people_shares(judged)
    nearest = np.maximum(np.maximum(low - people, people - high), 0.0)
    farthest = np.maximum(np.abs(low - people), np.abs(high - people))
    return judged.reduced(np.add, nearest**power) * scale, judged.reduced(
        np.add, farthest**power
    ) * scale


_BOUNDS: Mapping[str, Callable[[Judged, Floats, Floats], tuple[Floats, Floats]]] = {
    "log-score": _log_score,
    "logprob": _log_probability,
    "kl": _kl,
    "brier": _brier,
    "brier-soft": partial(_of_distance, 2, 1.0),
    "tv": partial(_of_distance, 1, 0.5),
}

BOUNDED: Final = frozenset(_BOUNDS)
"""The metrics that :func:`rounded_bounds` knows; accuracy has :func:`top_bounds`."""

OPEN: Final = frozenset({"log-score", "logprob", "kl"})
"""Those that rounding can move without limit, so that two bounds stand in the place of a number."""
