"""Two numbers compared: the same measurement, comparable, or neither, and what the difference is made of."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from choicewise.errors import UsageError
from choicewise.protocols.signature import axis_differences, short_signature
from choicewise.results.identity import engine_path, run_id, text_id, token_id
from choicewise.results.measurement import Measurement
from choicewise.results.pairing import paired_credits, paired_predictions, same_items, shared_items
from choicewise.results.run import Run
from choicewise.results.sent_texts import FirstDifference, first_difference, read_texts
from choicewise.scoring.statistics.clustered import FEWEST
from choicewise.scoring.statistics.paired import Difference, minimum_detectable_effect, paired_difference
from choicewise.scoring.statistics.sign_flip import SignFlip, sign_flip

VERDICTS = {
    "same measurement": "protocol, texts, model and engine agree: any difference is non-determinism",
    "comparable": "protocol and texts agree: a paired test is allowed",
    "other inputs": "the protocol is the same, but not the texts that were sent",
    "not comparable": "the protocols differ: the difference comes from them as much as from the models",
}
"""What follows from the identities that agree: protocol (P), texts (I), and model and engine (R)."""


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two numbers: its folder, model and protocol, with their short ids.

    ``p``, ``i``, ``t`` and ``r`` are those of :mod:`choicewise.results.identity`.
    """

    folder: str
    model: str
    protocol: str
    p: str
    i: str
    t: str
    r: str
    value: float


@dataclass(frozen=True, slots=True)
class Axis:
    """Something in which the two differ: an axis of the protocol, or part of the run's identity."""

    axis: str
    left: str
    right: str


@dataclass(frozen=True, slots=True)
class Flips:
    """Shared items by whose credit is greater, and by whether the predictions differ at all.

    ``near_ties``: items predicted differently that numeric noise leaves open on either side; None: not known.
    """

    left_better: int
    right_better: int
    predicted_differently: int
    near_ties: int | None
    shared: int
    left_only: int
    right_only: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two numbers compared.

    ``parting``: the first text that differs.  ``difference``: left minus right over the shared items, its standard
    error clustered by the ``clusters`` subjects where there are enough of them; ``test``: of the credits, item by item;
    ``detectable``: the difference that this many items would show with probability 0.8, NaN where they do not vary;
    ``furthest``: the largest difference of a score, where both protocols are the same.
    """

    verdict: str
    left: Side
    right: Side
    axes: tuple[Axis, ...]
    parting: FirstDifference | None
    difference: Difference
    clusters: int | None
    test: SignFlip
    detectable: float
    flips: Flips
    furthest: float


def comparisons(left: Run, right: Run | None, protocols: Sequence[str]) -> list[Comparison]:
    """``left`` against ``right`` under every protocol they share, or under those named; two protocols within one run.

    Two names with two runs compare the first protocol of ``left`` with the second of ``right``.  Raises UsageError when
    there is nothing to compare.
    """
    if len(protocols) > 2:
        raise UsageError(f"{len(protocols)} protocols were named; compare one in two runs, or two with each other")
    if len(protocols) == 2:
        other = right or left
        pairs = [(_one(left, protocols[0]), _one(other, protocols[1]))]
        return _compared(left, other, pairs)
    if right is None:
        raise UsageError("one run was named; name another run, or two of its protocols")
    sides = [
        {each.protocol.digest: each for each in run.choose(protocols).measurements.values()} for run in (left, right)
    ]
    shared = [digest for digest in sides[0] if digest in sides[1]]
    if not shared:
        raise UsageError(
            f"{left.folder} and {right.folder} share no protocol; name one of each, "
            f"such as {next(iter(left.protocols))} and {next(iter(right.protocols))}"
        )
    return _compared(left, right, [(sides[0][digest], sides[1][digest]) for digest in shared])


def _one(run: Run, protocol: str) -> Measurement:
    chosen = run.choose([protocol])
    names = list(chosen.protocols)
    if len(names) > 1:
        shown = ", ".join(names[:3])
        raise UsageError(f"{protocol} stands for {len(names)} protocols; name one of them: {shown}, ...")
    return chosen.measurements[names[0]]


def _compared(left: Run, right: Run, pairs: Sequence[tuple[Measurement, Measurement]]) -> list[Comparison]:
    for run, measured in zip((left, right), zip(*pairs, strict=True), strict=True):
        read_texts(run.evidence, (each.protocol.prompt_digest for each in measured))
    return [_compare(left, one, right, other) for one, other in pairs]


def _compare(left: Run, left_measured: Measurement, right: Run, right_measured: Measurement) -> Comparison:
    pair = (left_measured, right_measured)
    sides = _side(left, left_measured), _side(right, right_measured)
    subjects, credits = paired_credits(pair)
    clusters = len(set(subjects)) if len(set(subjects)) >= FEWEST else None
    difference = paired_difference(credits[0], credits[1], subjects if clusters else None)
    deviations = (credits[0] - credits[1])[~np.isnan(credits).any(axis=0)]
    detectable = math.nan
    if not math.isnan(difference.se):
        detectable = minimum_detectable_effect(float(deviations.std(ddof=1)), len(deviations))
    axes = [Axis(*axis) for axis in axis_differences(left_measured.protocol, right_measured.protocol)]
    axes += _identity(left, right)
    parting = None if sides[0].i == sides[1].i else first_difference((left.evidence, right.evidence), pair)
    identities = {"not comparable": "p", "other inputs": "i", "comparable": "r"}
    differing = (verdict for verdict, name in identities.items() if getattr(sides[0], name) != getattr(sides[1], name))
    return Comparison(
        *(next(differing, "same measurement"), *sides, tuple(axes), parting, difference, clusters),
        *(sign_flip(*credits), detectable, _flips(pair), _furthest(pair)),
    )


def _side(run: Run, measured: Measurement) -> Side:
    protocol, evidence, manifest = measured.protocol, measured.evidence, run.manifest
    ids = short_signature(protocol), text_id(evidence), token_id(evidence, protocol.null), run_id(manifest)
    return Side(str(run.folder), manifest.model.name, measured.name, *ids, measured.overall)


def _identity(left: Run, right: Run) -> list[Axis]:
    packages = sorted(left.manifest.versions.keys() | right.manifest.versions.keys())
    one, other = (
        {"data": run.manifest.dataset.digest}
        | {f"model {name}": value for name, value in asdict(run.manifest.model).items()}
        | {"engine path": engine_path(run.manifest)}
        | {f"version of {package}": run.manifest.versions.get(package) for package in packages}
        for run in (left, right)
    )
    return [Axis(name, _short(one[name]), _short(other[name])) for name in one if one[name] != other[name]]


def _short(value: Any) -> str:
    text = "-" if value is None else str(value)
    return text[:12] if len(text) == 64 else text


def _flips(pair: tuple[Measurement, Measurement]) -> Flips:
    ids, places = shared_items(pair)
    left, right = paired_predictions(pair)
    _, credits = paired_credits(pair)
    different = (left >= 0) & (right >= 0) & (left != right)
    noisy = pair[0].near_ties[places[0]] | pair[1].near_ties[places[1]]
    masks = (credits[0] > credits[1], credits[0] < credits[1], different, different & noisy)
    bounded = all(side.bounded[place].all() for side, place in zip(pair, places, strict=True))
    left_better, right_better, changed, near_ties = (int(mask.sum()) for mask in masks)
    left_only, right_only = (len(side.ids) - len(ids) for side in pair)
    return Flips(left_better, right_better, changed, near_ties if bounded else None, len(ids), left_only, right_only)


def _furthest(pair: tuple[Measurement, Measurement]) -> float:
    left, right = pair
    if left.scores is None or right.scores is None or left.protocol != right.protocol:
        return math.nan
    if not same_items(left, right) or len(left.scores) != len(right.scores):
        return math.nan
    with np.errstate(invalid="ignore"):  # equal infinities do not differ
        differences = np.abs(left.scores - right.scores)
    known = differences[~np.isnan(differences)]
    return float(known.max()) if len(known) else math.nan
