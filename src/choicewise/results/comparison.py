"""Are two numbers the same measurement, comparable, or neither, and what is the difference made of?"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from choicewise.errors import UsageError
from choicewise.protocols.signature import axis_differences, short_signature
from choicewise.results.evidence import Evidence
from choicewise.results.measurement import Measurement
from choicewise.results.pairing import paired_credits, paired_predictions, shared_items
from choicewise.results.rows import plain
from choicewise.scoring.statistics.paired import Difference, paired_difference
from choicewise.scoring.statistics.power import minimum_detectable_effect
from choicewise.scoring.statistics.sign_flip import SignFlip, sign_flip

if TYPE_CHECKING:
    from choicewise.results.run import Run

VERDICTS = {
    "same measurement": "protocol, texts, model and engine agree: any difference is non-determinism",
    "comparable": "protocol and texts agree: a paired test is allowed",
    "other inputs": "the protocol is the same, but not the texts that were sent",
    "not comparable": "the protocols differ: the difference is theirs as much as the models'",
}
"""What follows from the identities that agree: protocol (P), texts (I), and model and engine (R)."""


FEWEST = 10
"""Subjects from which on the standard error is clustered; of fewer it would come out too small."""


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two numbers: its folder, model and protocol, with the identities in short (``#P``, ``#I``, ``#R``)."""

    folder: str
    model: str
    protocol: str
    p: str
    i: str
    r: str
    value: float


@dataclass(frozen=True, slots=True)
class Axis:
    """Something in which the two differ: an axis of the protocol, or part of the run's identity."""

    axis: str
    left: str
    right: str


@dataclass(frozen=True, slots=True)
class Parting:
    """The first item whose text is not the same, from where the two part on."""

    item: str
    left: str
    right: str


@dataclass(frozen=True, slots=True)
class Flips:
    """Shared items by whose credit is greater, and by whether the predictions differ at all.

    ``near_ties``: items predicted differently that numeric noise leaves open on either side.
    """

    left_better: int
    right_better: int
    predicted_differently: int
    near_ties: int
    shared: int
    left_only: int
    right_only: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two numbers set against each other.

    ``difference``: left less right over the shared items, its standard error clustered by the ``clusters`` subjects
    where there are enough of them; ``test``: of the credits, item by item; ``detectable``: the difference that this
    many items would show with probability 0.8, NaN where they do not vary; ``furthest``: the largest difference of a
    score, where both protocols are the same.
    """

    verdict: str
    left: Side
    right: Side
    axes: tuple[Axis, ...]
    parting: Parting | None
    difference: Difference
    clusters: int | None
    test: SignFlip
    detectable: float
    flips: Flips
    furthest: float

    def as_json(self) -> dict[str, Any]:
        """As JSON knows it."""
        return plain(asdict(self))


def comparisons(left: Run, right: Run | None, protocols: Sequence[str]) -> list[Comparison]:
    """``left`` against ``right`` under every protocol they share, or under those named; two protocols within one run.

    Two names with two runs set the first protocol of ``left`` against the second of ``right``.  Raises UsageError when
    there is nothing to compare.
    """
    if len(protocols) > 2:
        raise UsageError(f"{len(protocols)} protocols were named; compare one in two runs, or two with each other")
    if right is None and len(protocols) != 2:
        raise UsageError("one run was named; name another run, or two of its protocols with --protocol P --protocol Q")
    if len(protocols) == 2:
        other = right or left
        return [_compare(left, _one(left, protocols[0]), other, _one(other, protocols[1]))]
    assert right is not None  # two lines above
    ours = {each.protocol.digest: each for each in left.choose(protocols).measure()}
    theirs = {each.protocol.digest: each for each in right.choose(protocols).measure()}
    if not ours.keys() & theirs.keys():
        raise UsageError(
            f"{left.folder} and {right.folder} share no protocol; name two: --protocol {next(iter(left.protocols))} "
            f"--protocol {next(iter(right.protocols))}"
        )
    return [_compare(left, each, right, theirs[digest]) for digest, each in ours.items() if digest in theirs]


def text_digest(evidence: Evidence) -> str:
    """sha256 (64 hex) over the texts sent and the right answers, item by item in the order of their ids.

    It agrees for two models that were asked the same, whatever their tokenizers.
    """
    digest = hashlib.sha256()
    for item, texts in sorted(_texts(evidence).items()):
        digest.update(json.dumps([item, *texts]).encode() + b"\n")
    return digest.hexdigest()


def _one(run: Run, protocol: str) -> Measurement:
    measured = list(run.choose([protocol]).measure())
    if len(measured) > 1:
        names = ", ".join(each.name for each in measured[:3])
        raise UsageError(f"{protocol} stands for {len(measured)} protocols; name one of them: {names}, ...")
    return measured[0]


def _compare(left: Run, ours: Measurement, right: Run, theirs: Measurement) -> Comparison:
    pair = (ours, theirs)
    one, other = _side(left, ours), _side(right, theirs)
    subjects, credits = paired_credits(pair)
    clusters = len(set(subjects))
    difference = paired_difference(credits[0], credits[1], subjects if clusters >= FEWEST else None)
    deviations = (credits[0] - credits[1])[~np.isnan(credits).any(axis=0)]
    axes = [Axis(*each) for each in axis_differences(ours.protocol, theirs.protocol)] + _identity(left, right)
    return Comparison(
        verdict=_verdict(one, other),
        left=one,
        right=other,
        axes=tuple(axes),
        parting=None if one.i == other.i else _parting(ours.evidence, theirs.evidence),
        difference=difference,
        clusters=clusters if clusters >= FEWEST else None,
        test=sign_flip(*credits),
        detectable=math.nan
        if math.isnan(difference.se)
        else minimum_detectable_effect(float(deviations.std(ddof=1)), len(deviations)),
        flips=_flips(pair),
        furthest=_furthest(pair),
    )


def _side(run: Run, measured: Measurement) -> Side:
    about = {
        "model": {**asdict(run.manifest.model), "name": ""},
        "versions": run.manifest.versions,
        "engine": _rung(run),
    }
    digest = hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()
    value = (
        next(iter(measured.values().values())).value if measured.protocol.aggregation in ("micro", "macro") else None
    )
    credit = measured.decisions.credit
    return Side(
        folder=str(run.folder),
        model=run.manifest.model.name,
        protocol=measured.name,
        p=short_signature(measured.protocol),
        i=f"#I{text_digest(measured.evidence)[:6]}",
        r=f"#R{digest[:6]}",
        value=value if value is not None else float(np.nanmean(credit)) if (~np.isnan(credit)).any() else math.nan,
    )


def _verdict(left: Side, right: Side) -> str:
    if left.p != right.p:
        return "not comparable"
    if left.i != right.i:
        return "other inputs"
    return "same measurement" if left.r == right.r else "comparable"


def _rung(run: Run) -> str:
    check = run.manifest.engine.selfcheck
    return "-" if check is None else check.rung


def _identity(left: Run, right: Run) -> list[Axis]:
    """Data, model and engine, where they differ."""
    pairs: dict[str, tuple[Any, Any]] = {"data": (left.manifest.dataset.digest, right.manifest.dataset.digest)}
    for key in ("name", "digest", "dtype", "device", "window"):
        pairs[f"model {key}"] = (getattr(left.manifest.model, key), getattr(right.manifest.model, key))
    pairs["engine path"] = (_rung(left), _rung(right))
    for package in sorted(left.manifest.versions.keys() | right.manifest.versions.keys()):
        pairs[f"version of {package}"] = (left.manifest.versions.get(package), right.manifest.versions.get(package))
    return [Axis(name, _short(one), _short(other)) for name, (one, other) in pairs.items() if one != other]


def _short(value: Any) -> str:
    text = "-" if value is None else str(value)
    return text[:12] if len(text) == 64 else text


def _texts(evidence: Evidence) -> dict[str, list[Any]]:
    columns = (evidence.requests[name].to_pylist() for name in ("context", "continuations", "gold"))
    return {item: list(texts) for item, *texts in zip(evidence.ids, *columns, strict=True)}


def _parting(left: Evidence, right: Evidence) -> Parting | None:
    ours, theirs = _texts(left), _texts(right)
    for item, texts in ours.items():
        if item in theirs and texts != theirs[item]:
            one, other = (_joined(found) for found in (texts, theirs[item]))
            start = next(
                (place for place, (a, b) in enumerate(zip(one, other, strict=False)) if a != b),
                min(len(one), len(other)),
            )
            start = max(0, start - 20)
            return Parting(item, one[start : start + 80], other[start : start + 80])
    return None


def _joined(texts: list[Any]) -> str:
    context, continuations, gold = texts
    return f"{context or ''}{'|'.join(continuations or [])} (right: {', '.join(map(str, gold))})"


def _flips(pair: tuple[Measurement, Measurement]) -> Flips:
    ids, places = shared_items(pair)
    left, right = paired_predictions(pair)
    _, (ours, theirs) = paired_credits(pair)
    known = (left >= 0) & (right >= 0)
    open_ = pair[0].near_ties[places[0]] | pair[1].near_ties[places[1]]
    different = known & (left != right)
    return Flips(
        left_better=int((ours > theirs).sum()),
        right_better=int((ours < theirs).sum()),
        predicted_differently=int(different.sum()),
        near_ties=int((different & open_).sum()),
        shared=len(ids),
        left_only=len(pair[0].evidence.ids) - len(ids),
        right_only=len(pair[1].evidence.ids) - len(ids),
    )


def _furthest(pair: tuple[Measurement, Measurement]) -> float:
    left, right = pair
    if left.scores is None or right.scores is None or left.protocol != right.protocol:
        return math.nan
    if left.evidence.ids != right.evidence.ids or len(left.scores) != len(right.scores):
        return math.nan
    with np.errstate(invalid="ignore"):  # equal infinities do not differ
        apart = np.abs(left.scores - right.scores)
    known = apart[~np.isnan(apart)]
    return float(known.max()) if len(known) else math.nan
