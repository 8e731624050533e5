"""From two measurements to what they have in common and what differs."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from choicewise.errors import UsageError
from choicewise.protocols.signature import axis_differences, short_signature
from choicewise.results.comparison import Axis, Comparison, Flips, Side
from choicewise.results.measurement import Measurement
from choicewise.results.pairing import paired_credits, paired_predictions, shared_items
from choicewise.results.sent_texts import first_difference, text_digest
from choicewise.scoring.statistics.paired import minimum_detectable_effect, paired_difference
from choicewise.scoring.statistics.sign_flip import sign_flip

if TYPE_CHECKING:
    from choicewise.results.run import Run

FEWEST = 10
"""Subjects from which on the standard error is clustered; of fewer it would come out too small."""


def comparisons(left: Run, right: Run | None, protocols: Sequence[str]) -> list[Comparison]:
    """``left`` against ``right`` under every protocol they share, or under those named; two protocols within one run.

    Two names with two runs compare the first protocol of ``left`` with the second of ``right``.  Raises UsageError when
    there is nothing to compare.
    """
    if len(protocols) > 2:
        raise UsageError(f"{len(protocols)} protocols were named; compare one in two runs, or two with each other")
    if len(protocols) == 2:
        other = right or left
        return [_compare(left, _one(left, protocols[0]), other, _one(other, protocols[1]))]
    if right is None:
        raise UsageError("one run was named; name another run, or two of its protocols with --protocol P --protocol Q")
    sides = [
        {each.protocol.digest: each for each in run.choose(protocols).measurements.values()} for run in (left, right)
    ]
    shared = [digest for digest in sides[0] if digest in sides[1]]
    if not shared:
        raise UsageError(
            f"{left.folder} and {right.folder} share no protocol; name two: --protocol {next(iter(left.protocols))} "
            f"--protocol {next(iter(right.protocols))}"
        )
    return [_compare(left, sides[0][digest], right, sides[1][digest]) for digest in shared]


def _one(run: Run, protocol: str) -> Measurement:
    names = list(run.choose([protocol]).protocols)
    if len(names) > 1:
        shown = ", ".join(names[:3])
        raise UsageError(f"{protocol} stands for {len(names)} protocols; name one of them: {shown}, ...")
    return run.choose([protocol]).measurements[names[0]]


def _compare(left: Run, left_measured: Measurement, right: Run, right_measured: Measurement) -> Comparison:
    pair = (left_measured, right_measured)
    sides = _side(left, left_measured), _side(right, right_measured)
    subjects, credits = paired_credits(pair)
    clusters = len(set(subjects))
    difference = paired_difference(credits[0], credits[1], subjects if clusters >= FEWEST else None)
    deviations = (credits[0] - credits[1])[~np.isnan(credits).any(axis=0)]
    axes = [Axis(*axis) for axis in axis_differences(left_measured.protocol, right_measured.protocol)]
    same_texts = sides[0].i == sides[1].i
    return Comparison(
        verdict=_verdict(*sides),
        left=sides[0],
        right=sides[1],
        axes=(*axes, *_identity(left, right)),
        parting=None if same_texts else first_difference(left_measured.evidence, right_measured.evidence),
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
    identity = {
        "model": {**asdict(run.manifest.model), "name": ""},
        "versions": run.manifest.versions,
        "engine": _rung(run),
    }
    digest = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()
    return Side(
        folder=str(run.folder),
        model=run.manifest.model.name,
        protocol=measured.name,
        p=short_signature(measured.protocol),
        i=f"#I{text_digest(measured.evidence)[:6]}",
        r=f"#R{digest[:6]}",
        value=measured.overall,
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


def _flips(pair: tuple[Measurement, Measurement]) -> Flips:
    ids, places = shared_items(pair)
    left, right = paired_predictions(pair)
    _, credits = paired_credits(pair)
    different = (left >= 0) & (right >= 0) & (left != right)
    noisy = pair[0].near_ties[places[0]] | pair[1].near_ties[places[1]]
    return Flips(
        left_better=int((credits[0] > credits[1]).sum()),
        right_better=int((credits[0] < credits[1]).sum()),
        predicted_differently=int(different.sum()),
        near_ties=int((different & noisy).sum()),
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
        differences = np.abs(left.scores - right.scores)
    known = differences[~np.isnan(differences)]
    return float(known.max()) if len(known) else math.nan
