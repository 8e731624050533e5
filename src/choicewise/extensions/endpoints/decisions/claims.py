"""Check what a decision endpoint claims beside its probabilities: steps, sums, masses, confidences."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from choicewise.extensions.endpoints.decisions.exchange import Exchange
from choicewise.scoring.rounding import rounding_step


@dataclass(frozen=True)
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


MASSES = ("label_mass", "x_label_mass", "option_mass")
"""Names of the probability that all labels have among all tokens (vLLM, SGLang, maple-sdk)."""


def label_mass(diagnostics: Mapping[str, float | bool]) -> float | None:
    """Return the label mass among a server's ``diagnostics``; None if it gives none."""
    for name in MASSES:
        if name in diagnostics:
            return float(diagnostics[name])
    return None


@dataclass(frozen=True)
class Check:
    """Hold a check of one property of a run's answers.

    ``values``: how many numbers were checked.  ``says``: the finding.  ``doubt``: why not to rely
    on it, "" without doubt.
    """

    description: str
    values: int
    says: str
    doubt: str


@dataclass(frozen=True, kw_only=True)
class _Collected:
    """Collect the numbers of all answers of a run."""

    probabilities: list[float] = field(default_factory=list)
    sums: list[float] = field(default_factory=list)
    nouls: list[float] = field(default_factory=list)
    masses: list[float] = field(default_factory=list)
    labels: list[float] = field(default_factory=list)
    formulas: list[tuple[str, ...]] = field(default_factory=list)

    def add(self, answer: Exchange) -> None:
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


def checks(answers: Iterable[Exchange]) -> list[Check]:
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


_EDGE = 0.01
"""Google keeps the probability of yes this far from 0 and 1 (google-genai 3.4.0)."""
