"""How well a number tells models apart: signal and noise over checkpoints, and how items follow the compute.

Signal and noise are those of 2508.13144, the correlation of items with compute that of 2406.04391.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from choicewise.errors import UsageError
from choicewise.protocols.between import as_accuracy
from choicewise.protocols.metrics import CHAIN, METRICS
from choicewise.protocols.protocol import Protocol
from choicewise.records import Manifest
from choicewise.results.measurement import shared_items
from choicewise.results.outcomes import Outcome, Summary
from choicewise.results.rows import Row, data_id
from choicewise.scoring.intervals import ALIKE
from choicewise.scoring.observed import Floats
from choicewise.scoring.significance import length_correlations
from choicewise.util.text import are, counted, listed

STEPS = 3
"""Checkpoints of a training run from which on there is noise, and a line over them."""

MODELS = 5
"""Models from which on items are correlated with compute."""

LAST, MEANED = 30, 5
"""Last checkpoints whose spread is the noise, at most; last ones whose mean stands for a training run among models."""


@dataclass(frozen=True, slots=True)
class Separation:
    """``signal``: the greatest difference of two models over their mean; ``noise``: the standard deviation (over n) of
    checkpoints over theirs; ``snr``: signal / noise, with its bootstrap standard error ``se``."""

    signal: float
    noise: float
    snr: float
    se: float
    models: int
    checkpoints: int


def separation(models: Floats, *checkpoints: Floats, draws: int = 1000) -> Separation:
    """Signal of ``models`` and noise of the ``checkpoints`` of a training run, or of several, within each of them.

    The error is that of redrawing models and checkpoints: half the width of the middle 68 % of the draws, as the
    standard deviation is ruled by draws of nearly equal checkpoints.  NaN where there are too few to say: two models
    for the signal, three checkpoints for the noise.
    """
    sizes = [len(each) for each in checkpoints]
    signal, noise = _signal(models[None]), _noise([each[None] for each in checkpoints])
    snr, se = float(_ratio(signal, noise)[0]), math.nan
    if math.isinf(snr):
        snr = math.nan
    elif not math.isnan(snr):
        rng = np.random.default_rng(0)
        drawn = [
            each[rng.integers(0, len(each), (draws, len(each)))] for each in (models, *checkpoints)
        ]
        low, high = np.quantile(
            _ratio(_signal(drawn[0]), _noise(drawn[1:])), [0.16, 0.84], method="inverted_cdf"
        ).tolist()
        se = (high - low) / 2 if math.isfinite(high) else math.nan
    return Separation(float(signal[0]), float(noise[0]), snr, se, len(models), sum(sizes))


def decision_accuracy(small: Floats, large: Floats) -> float:
    """The share of pairs of models that stand in the same order by both values; NaN without a pair.

    The first is greater in both or in neither, so that a tie counts as not greater.
    """
    pairs = [*combinations(range(len(small)), 2)]
    same = [(small[one] > small[other]) == (large[one] > large[other]) for one, other in pairs]
    return float(np.mean(same)) if pairs else math.nan


def compute_correlations(scores: Floats, compute: Floats) -> Floats:
    """Spearman's correlation of each item's score with ``compute`` over models, float64 [items].

    ``scores``: float64 [models, items]; NaN for an item with a missing score, or the same for all models.  Raises
    UsageError for fewer than :data:`MODELS` models.
    """
    models, items = scores.shape
    if models < MODELS:
        raise UsageError(
            f"{counted(models, 'model')} {are(models)} too few; name {MODELS} or more of one family"
        )
    rows = np.arange(0, models * items + 1, models)
    return length_correlations(scores.T.ravel(), np.tile(compute, items), rows)


@dataclass(frozen=True, slots=True)
class Place:
    """Where in which training a model stands, as its name says.

    ``training``: the name without step and tokens; ``family``: without the size as well.  ``step``, ``tokens`` seen and
    ``parameters`` are NaN where the name does not say them.
    """

    training: str
    family: str
    step: float = math.nan
    tokens: float = math.nan
    parameters: float = math.nan


def training_place(*names: str) -> Place:
    """The place of a model with these names, by the first of them that says a step or tokens, else the first one.

    ``step1000``, ``checkpoint-1000``, ``global_step1000``, ``iter_0001000``, ``ba1000``, ``step10k``;
    ``stage1-step140000-tokens294B``; and sizes as in ``pythia-160m`` and ``OLMo-2-7B``.
    """
    places = [_place(name) for name in names if name] or [Place("", "")]
    return next(
        (each for each in places if not (math.isnan(each.step) and math.isnan(each.tokens))),
        places[0],
    )


def model_place(manifest: Manifest) -> Place:
    """The place of the model of a run: of what was asked for, which has the revision, then of its name and source."""
    asked = (manifest.job.get("models") or [{}])[0].get("name")
    return training_place(str(asked or ""), manifest.model.name, manifest.model.source)


@dataclass(frozen=True, slots=True)
class Training:
    """A training run: its checkpoints by their places in a list of runs (``runs``), each ``at`` a ``unit`` of progress.

    ``unit``: ``step``, or ``tokens`` where names say these alone.
    """

    name: str
    unit: str
    at: tuple[float, ...]
    runs: tuple[int, ...]


def trainings(manifests: Sequence[Manifest]) -> list[Training]:
    """The training runs with :data:`STEPS` checkpoints or more, each in order; of several at one step the first."""
    known: dict[str, list[tuple[int, Place]]] = {}
    for number, place in enumerate(map(model_place, manifests)):
        known.setdefault(place.training, []).append((number, place))
    chosen = []
    for name, own in known.items():
        unit = max(
            ("step", "tokens"),
            key=lambda unit: sum(not math.isnan(getattr(each, unit)) for _, each in own),
        )
        at: dict[float, int] = {}
        for number, place in own:
            if not math.isnan(progress := getattr(place, unit)):
                at.setdefault(progress, number)
        if len(at) >= STEPS:
            chosen.append(
                Training(name, unit, tuple(sorted(at)), tuple(at[each] for each in sorted(at)))
            )
    short = {each.name: "/".join(each.name.split("/")[-2:]) for each in chosen}
    times = Counter(short.values())
    return [
        replace(each, name=each.name if times[short[each.name]] > 1 else short[each.name])
        for each in chosen
    ]


@dataclass(frozen=True, slots=True)
class Follows:
    """How items follow compute: the middle and the quartiles of the correlations of ``items`` that all models scored.

    One whose score is the same for all models follows nothing: 0.
    """

    low: float
    median: float
    high: float
    items: int
    models: int


@dataclass(frozen=True, slots=True)
class SignalRow:
    """One protocol.  ``accuracy``: the decision accuracy of an earlier step of several training runs, NaN without them.

    ``chain``: the digest of the protocol with metric acc, which the steps of a chain share.
    """

    protocol: str
    metric: str
    separation: Separation
    accuracy: float
    follows: Follows | None
    chain: str


@dataclass(frozen=True, slots=True)
class Signal:
    """What the runs on one dataset say; the protocol with the most signal for its noise first.

    ``trainings``: name → its steps, the last ``last`` of which are the noise.  ``models``: what the signal is over.
    ``step``: of the decision accuracy, None without any.  ``notes``: what was left out, and what to beware of.
    """

    dataset: str
    data: str
    unit: str
    trainings: Mapping[str, tuple[float, ...]]
    last: Mapping[str, int]
    models: tuple[str, ...]
    step: float | None
    rows: tuple[SignalRow, ...]
    notes: tuple[str, ...]

    @property
    def chains(self) -> list[list[SignalRow]]:
        """The rows of every protocol that has several steps of the chain, in the order of the chain."""
        steps: dict[str, list[SignalRow]] = {}
        for row in self.rows:
            if row.metric in CHAIN and row.follows is not None:
                steps.setdefault(row.chain, []).append(row)
        return [
            sorted(own, key=lambda row: CHAIN.index(row.metric))
            for own in steps.values()
            if len(own) > 1
        ]


def signals(runs: Sequence[Summary]) -> list[Signal]:
    """One per dataset with the checkpoints of a training run.  UsageError where there is none, with the reason."""
    datasets: dict[str, list[Summary]] = {}
    for run in runs:
        datasets.setdefault(run.manifest.dataset.digest, []).append(run)
    known = [(own, trainings([each.manifest for each in own])) for own in datasets.values()]
    if not any(own for _, own in known):
        placed = [
            place for place in map(model_place, (run.manifest for run in runs)) if _progress(place)
        ]
        names = list(dict.fromkeys(run.manifest.model.name for run in runs))
        steps = Counter(place.training for place in placed).most_common(1)
        had = f"no name says a step: {listed(names)}"
        if steps:
            had = f"there {are(steps[0][1])} {counted(steps[0][1], 'checkpoint')} of {steps[0][0] or 'one'}"
        raise UsageError(
            f"noise needs {STEPS} or more checkpoints of a training run on the same data, and {had}; "
            "a step is read from names such as ORG/NAME@step1000 or run/checkpoint-1000"
        )
    return [_signals(own, chosen) for own, chosen in known if chosen]


def _progress(place: Place) -> bool:
    return not (math.isnan(place.step) and math.isnan(place.tokens))


_UNITS = {"k": 1e3, "m": 1e6, "b": 1e9, "t": 1e12}
_STEP = re.compile(
    r"(?<![a-z])(?:global[-_]?)?(?:steps?|checkpoint|ckpt|iter|ba)[-_=]?(?P<number>\d+)(?P<unit>k?)(?![0-9a-z])",
    re.I,
)
_TOKENS = re.compile(
    r"(?<![a-z])tokens?[-_=]?(?P<number>\d+(?:\.\d+)?)(?P<unit>[kmbt])(?![0-9a-z])", re.I
)
_SIZE = re.compile(r"(?<![0-9a-z.])(?P<number>\d+(?:\.\d+)?)(?P<unit>[mb])(?![0-9a-z])", re.I)


def _place(name: str) -> Place:
    rest, step = _taken(_STEP, name)
    rest, tokens = _taken(_TOKENS, rest)
    training = rest if rest != name else name.partition("@")[0]
    family, parameters = _taken(_SIZE, training)
    return Place(training, family, step, tokens, parameters)


def _taken(pattern: re.Pattern[str], name: str) -> tuple[str, float]:
    """The name without what the pattern finds, and the number that this says; NaN where it finds nothing."""
    if (said := pattern.search(name)) is None:
        return name, math.nan
    rest = _joined(f"{name[: said.start()]}{name[said.end() :]}")
    return rest, float(said["number"]) * _UNITS.get(said["unit"].lower(), 1)


def _joined(text: str) -> str:
    """What is left of a name where a part was taken out."""
    return re.sub(r"[-_=]+(?=[-_/@=]|$)|(?<=/)[-_/=]+", "", text).rstrip("/@").lstrip("-_=")


@dataclass(frozen=True)
class _Measured:
    """The runs that measured the same under a protocol: the number and the outcome of each, by its place."""

    pairs: Mapping[int, tuple[Row, Outcome]]

    def values(self, places: Iterable[int]) -> Floats:
        """The numbers of those of the runs at ``places`` that have one."""
        values = np.array(
            [self.pairs[place][0].value for place in places if place in self.pairs],
            dtype=np.float64,
        )
        return values[~np.isnan(values)]

    @property
    def tokenizers(self) -> int:
        """How many tokenizers the runs have, as far as the tokens of the same texts tell."""
        texts, tokens = ({getattr(row, id) for row, _ in self.pairs.values()} for id in "it")
        return len(tokens) if len(texts) == 1 else 1


def _signals(runs: Sequence[Summary], chosen: Sequence[Training]) -> Signal:
    places = [model_place(run.manifest) for run in runs]
    members = _members(runs, places, chosen)
    last = {each.name: each.runs[-max(STEPS, min(LAST, len(each.runs) // 2)) :] for each in chosen}
    step = _early(chosen)
    compute = _compute(places)
    rows, notes = list[SignalRow](), list[str]()
    for name, own in _protocols(runs, notes):
        protocol = next(iter(own.pairs.values()))[1].protocol
        metric = METRICS[protocol.metric]
        if own.tokenizers > 1 and metric.probable and "token" in protocol.score:
            notes.append(
                f"{name} is left out: the checkpoints have {own.tokenizers} tokenizers, and numbers per token do not "
                "compare across them; bits per byte (metric bpb) do"
            )
            continue
        means = [own.values(each).mean() for each in members.values() if len(own.values(each))]
        rows.append(
            SignalRow(
                name,
                protocol.metric,
                separation(np.array(means), *(own.values(each) for each in last.values())),
                _accuracy(own, chosen, members, step),
                _follows(own, compute, metric.higher or metric.exponential),
                _link(protocol),
            )
        )
    rows.sort(
        key=lambda row: -math.inf if math.isnan(row.separation.snr) else row.separation.snr,
        reverse=True,
    )
    first = runs[0].manifest.dataset
    return Signal(
        first.name,
        data_id(first),
        chosen[0].unit,
        {each.name: each.at for each in chosen},
        {name: len(own) for name, own in last.items()},
        tuple(members),
        step,
        tuple(rows),
        (
            *dict.fromkeys(notes),
            *_beware(
                rows, alone=all({*chosen[0].runs}.issuperset(own) for own in members.values())
            ),
        ),
    )


def _members(
    runs: Sequence[Summary], places: Sequence[Place], chosen: Sequence[Training]
) -> dict[str, list[int]]:
    """What the signal is over, by name, each with the runs whose mean is its number.

    Training runs with their last checkpoints and all other models; of one training run alone each of its checkpoints.
    """
    inside = {place for each in chosen for place in each.runs}
    known = {each.name: [*each.runs[-MEANED:]] for each in chosen}
    trained = {places[each.runs[0]].training for each in chosen}
    for number, run in enumerate(runs):
        if number not in inside and places[number].training not in trained:
            known.setdefault(run.manifest.model.name, [number])
    if len(known) > 1:
        return known
    (only,) = chosen
    return {f"{only.unit} {at:g}": [place] for at, place in zip(only.at, only.runs, strict=True)}


def _protocols(runs: Sequence[Summary], notes: list[str]) -> list[tuple[str, _Measured]]:
    """By name what most runs measured in the same way; ``notes``: says which measured other items."""
    groups: dict[str, dict[str, dict[int, tuple[Row, Outcome]]]] = {}
    for place, run in enumerate(runs):
        rows = {row.protocol: row for row in run.rows if row.subject == "all"}
        for each in run.outcomes.outcomes:
            if each.name in rows:
                of_part = groups.setdefault(each.protocol.digest, {}).setdefault(each.selection, {})
                of_part[place] = rows[each.name], each
    shown = []
    for parts in groups.values():
        most = max(parts.values(), key=len)
        first = next(iter(most.values()))[1]
        for selection, own in parts.items():
            for place, (_, outcome) in own.items() if own is not most else ():
                shared = len(shared_items((outcome, first))[0])
                part = f"{selection or 'all of the data'}: {len(outcome.ids):,} items, {shared:,} of them shared"
                notes.append(
                    f"{runs[place].manifest.model.name} is left out, it is about other items ({part})"
                )
        shown.append((first.name, _Measured(most)))
    return shown


def _early(chosen: Sequence[Training]) -> float | None:
    """The step that all of several training runs have, the latest up to half of the shortest one."""
    if len(chosen) < 2 or len({each.unit for each in chosen}) > 1:
        return None
    shared = set[float].intersection(*({*each.at} for each in chosen))
    half = min(each.at[-1] for each in chosen) / 2
    return max((at for at in shared if at <= half), default=None)


def _accuracy(
    own: _Measured,
    chosen: Sequence[Training],
    members: Mapping[str, Sequence[int]],
    step: float | None,
) -> float:
    if step is None:
        return math.nan
    early = [own.values([each.runs[each.at.index(step)]]) for each in chosen]
    late = [own.values(members[each.name]) for each in chosen]
    both = [
        (one[0], other.mean())
        for one, other in zip(early, late, strict=True)
        if len(one) and len(other)
    ]
    return decision_accuracy(*np.array(both).T) if len(both) > 1 else math.nan


def _compute(places: Sequence[Place]) -> dict[int, float]:
    """What the models of the largest family were trained with, but for a factor, by place; none where it is not known.

    Parameters times tokens or steps; parameters alone where no progress is known, progress alone in one training run.
    """
    families: dict[str, list[int]] = {}
    for number, place in enumerate(places):
        families.setdefault(place.family, []).append(number)
    best: dict[int, float] = {}
    for own in families.values():
        known = {number: _flops([places[each] for each in own], places[number]) for number in own}
        known = {number: flops for number, flops in known.items() if not math.isnan(flops)}
        if len({*known.values()}) >= MODELS and len(known) > len(best):
            best = known
    return best


def _flops(family: Sequence[Place], place: Place) -> float:
    if all(not math.isnan(each.tokens) for each in family):
        progress = place.tokens
    else:
        stepped = [each for each in family if not math.isnan(each.step)]
        progress = place.step if stepped else 1.0
    sizes = {each.training for each in family}
    return progress * (place.parameters if len(sizes) > 1 else 1.0)


def _follows(own: _Measured, compute: Mapping[int, float], higher: bool) -> Follows | None:
    places = [place for place in compute if place in own.pairs]
    if len(places) < MODELS:
        return None
    members = [own.pairs[place][1] for place in places]
    _, shared = shared_items(members)
    scores = np.array([each.credit[place] for each, place in zip(members, shared, strict=True)])
    scores = scores[:, ~np.isnan(scores).any(axis=0)]
    if not scores.shape[1]:
        return None
    rho = compute_correlations(
        scores if higher else -scores, np.array([compute[place] for place in places])
    )
    known = np.nan_to_num(rho)
    low, median, high = np.quantile(known, [0.25, 0.5, 0.75]).tolist()
    return Follows(low, median, high, len(known), len(places))


def _link(protocol: Protocol) -> str:
    return as_accuracy(protocol).digest


def _beware(rows: Sequence[SignalRow], alone: bool) -> list[str]:
    lines = [
        "the signal is a range: it grows with the number of models; the noise holds the trend of the last steps"
    ]
    if alone:
        lines.append(
            "there is one training run: its signal is over its own checkpoints, so how far training moved it"
        )
    if any(row.metric == "logprob" for row in rows):
        lines.append(
            "log-probabilities near 0 make noise over a mean as large as one likes: take bits per byte"
        )
    return lines


def _signal(models: Floats) -> Floats:
    """Of every row; NaN for fewer than two models."""
    if models.shape[1] < 2:
        return np.full(len(models), np.nan)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.ptp(models, axis=1) / np.abs(models.mean(axis=1)))


def _noise(checkpoints: Sequence[Floats]) -> Floats:
    """Of every row; NaN for fewer than :data:`STEPS` checkpoints."""
    known = [each for each in checkpoints if each.shape[1] >= STEPS]
    if not known:
        return np.full(len(checkpoints[0]) if checkpoints else 1, np.nan)
    together = np.concatenate(known, axis=1)
    within = sum(each.var(axis=1) * each.shape[1] for each in known) / together.shape[1]
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.sqrt(within) / np.abs(together.mean(axis=1)))


def _ratio(signal: Floats, noise: Floats) -> Floats:
    """Infinite where checkpoints differ by rounding alone."""
    return np.divide(signal, noise, out=np.full(np.shape(noise), np.inf), where=~(noise <= ALIKE))
