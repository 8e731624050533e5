"""Measure how well a number tells models apart, by signal and noise over checkpoints and by how
items follow compute.

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
from choicewise.extensions.analyses.statistics import length_correlations
from choicewise.protocols.between import as_accuracy
from choicewise.protocols.metrics import CHAIN, METRICS
from choicewise.protocols.protocol import Protocol
from choicewise.records import Manifest
from choicewise.results.measurement import shared_items
from choicewise.results.number import Number
from choicewise.results.outcomes import Outcome, Summary
from choicewise.results.rows import data_id
from choicewise.scoring.intervals import ALIKE
from choicewise.scoring.observed import Floats
from choicewise.util.text import are, counted, listed

STEPS = 3
"""Checkpoints of a training run from which on there is noise, and a line over them."""

MODELS = 5
"""Models from which on items are correlated with compute."""

LAST = 30
"""Last checkpoints whose spread is the noise, at most."""

_AVERAGED = 5
"""Last checkpoints whose mean stands for a training run among models."""


@dataclass(frozen=True, kw_only=True)
class Separation:
    """Hold the signal and the noise of a number.

    ``signal``: the greatest difference of two models over their mean. ``noise``: the standard
    deviation (over n) of checkpoints over theirs. ``snr``: signal / noise, with its bootstrap
    standard error ``se``.
    """

    signal: float
    noise: float
    snr: float
    se: float
    models: int
    checkpoints: int


def separation(models: Floats, *checkpoints: Floats, draws: int = 1000) -> Separation:
    """Return the signal of ``models`` and the noise of the ``checkpoints`` within each of several
    training runs.

    The error is that of redrawing models and checkpoints. It is NaN with too few of them: two
    models for the signal, three checkpoints for the noise.
    """
    signal = _signal(models[None])
    noise = _noise([values[None] for values in checkpoints])
    snr = float(_ratio(signal, noise)[0])
    se = math.nan
    if math.isinf(snr):
        snr = math.nan
    elif not math.isnan(snr):
        rng = np.random.default_rng(0)
        drawn = []
        for values in (models, *checkpoints):
            drawn.append(values[rng.integers(0, len(values), (draws, len(values)))])
        ratios = _ratio(_signal(drawn[0]), _noise(drawn[1:]))
        # Half the width of the middle 68 %: draws of nearly equal checkpoints rule the standard
        # deviation.
        low, high = np.quantile(ratios, [0.16, 0.84], method="inverted_cdf").tolist()
        if math.isfinite(high):
            se = (high - low) / 2
    return Separation(
        signal=float(signal[0]),
        noise=float(noise[0]),
        snr=snr,
        se=se,
        models=len(models),
        checkpoints=sum(len(values) for values in checkpoints),
    )


def decision_accuracy(small: Floats, large: Floats) -> float:
    """Return the share of pairs of models that are in the same order by both values; NaN without a
    pair.

    The first is greater in both or in neither, so that a tie counts as not greater.
    """
    agrees = []
    for left, right in combinations(range(len(small)), 2):
        agrees.append((small[left] > small[right]) == (large[left] > large[right]))
    if not agrees:
        return math.nan
    return float(np.mean(agrees))


def compute_correlations(scores: Floats, compute: Floats) -> Floats:
    """Return Spearman's correlation of each item's score with ``compute`` over models, float64
    [items].

    ``scores``: float64 [models, items]. It is NaN for an item with a missing score, or with one
    score of all models. Raises UsageError for fewer than :data:`MODELS` models.
    """
    models, items = scores.shape
    if models < MODELS:
        raise UsageError(
            f"{counted(models, 'model')} {are(models)} too few; name {MODELS} or more of one family"
        )
    offsets = np.arange(0, models * items + 1, models)
    return length_correlations(scores.T.ravel(), np.tile(compute, items), offsets)


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """Describe the training of a model by what its name says.

    ``training``: the name without step and tokens. ``family``: without the size as well. ``step``,
    ``tokens`` that were seen, and ``parameters`` are NaN if the name does not say them.
    """

    training: str
    family: str
    step: float = math.nan
    tokens: float = math.nan
    parameters: float = math.nan

    @property
    def has_progress(self) -> bool:
        """Check that the name says a step or tokens."""
        return not (math.isnan(self.step) and math.isnan(self.tokens))


def parse_checkpoint(*names: str) -> Checkpoint:
    """Return the checkpoint of a model with these names, by the first one that says a step or
    tokens.

    Names are read as ``step1000``, ``checkpoint-1000``, ``global_step1000``, ``iter_0001000``,
    ``ba1000``, ``step10k``, ``stage1-step140000-tokens294B``, and with sizes as in ``pythia-160m``
    and ``OLMo-2-7B``.
    """
    checkpoints = [_parse_name(name) for name in names if name]
    for checkpoint in checkpoints:
        if checkpoint.has_progress:
            return checkpoint
    if not checkpoints:
        return Checkpoint(training="", family="")
    return checkpoints[0]


def checkpoint_of(manifest: Manifest) -> Checkpoint:
    """Return the checkpoint of the model of a run."""
    # The job names the revision, which the model's own name and source lack.
    models = manifest.job.get("models") or [{}]
    job_name = models[0].get("name")
    return parse_checkpoint(str(job_name or ""), manifest.model.name, manifest.model.source)


@dataclass(frozen=True)
class Training:
    """Describe the checkpoints of a training run, in order.

    ``unit``: "step", or "tokens" if more names say these. ``at``: the progress of each checkpoint
    in this unit. ``runs``: its index in a list of runs.
    """

    name: str
    unit: str
    at: tuple[float, ...]
    runs: tuple[int, ...]


def trainings(manifests: Sequence[Manifest]) -> list[Training]:
    """Return the training runs with :data:`STEPS` checkpoints or more; of several runs at one step
    the first counts.
    """
    checkpoints: dict[str, dict[int, Checkpoint]] = {}
    for number, manifest in enumerate(manifests):
        checkpoint = checkpoint_of(manifest)
        checkpoints.setdefault(checkpoint.training, {})[number] = checkpoint
    long_enough = []
    for name, of_training in checkpoints.items():
        training = _training(name, of_training)
        if len(training.at) >= STEPS:
            long_enough.append(training)

    short_names = ["/".join(training.name.split("/")[-2:]) for training in long_enough]
    counts = Counter(short_names)
    named = []
    for training, short_name in zip(long_enough, short_names, strict=True):
        if counts[short_name] == 1:
            training = replace(training, name=short_name)
        named.append(training)
    return named


def _training(name: str, checkpoints: Mapping[int, Checkpoint]) -> Training:
    unit = "step"
    progress = {number: checkpoint.step for number, checkpoint in checkpoints.items()}
    tokens = {number: checkpoint.tokens for number, checkpoint in checkpoints.items()}
    # Names of one training may say both; steps are exact, tokens are often rounded.
    if np.isnan(list(tokens.values())).sum() < np.isnan(list(progress.values())).sum():
        unit = "tokens"
        progress = tokens
    first_runs: dict[float, int] = {}
    for number, value in progress.items():
        if not math.isnan(value):
            first_runs.setdefault(value, number)
    at = sorted(first_runs)
    return Training(name, unit, tuple(at), tuple(first_runs[value] for value in at))


@dataclass(frozen=True, kw_only=True)
class Follows:
    """Hold the median and the quartiles of the items' correlations with compute.

    ``items``: how many all models scored. An item with one score of all models follows nothing: its
    correlation is 0.
    """

    low: float
    median: float
    high: float
    items: int
    models: int


@dataclass(frozen=True, kw_only=True)
class SignalRow:
    """Hold the signal of one protocol.

    ``accuracy``: the decision accuracy of an earlier step of several training runs, NaN without
    them. ``chain``: the digest of the protocol with metric acc, which the steps of a chain share.
    """

    protocol: str
    metric: str
    separation: Separation
    accuracy: float
    follows: Follows | None
    chain: str


@dataclass(frozen=True, kw_only=True)
class Signal:
    """Hold the signal of all protocols on one dataset, the protocol with the most signal for its
    noise first.

    ``trainings``: name → its steps, of which the last ``last`` are the noise. ``models``: the
    signal is over these. ``step``: of the decision accuracy, None without one. ``notes``: what was
    left out, and what to beware of.
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
        """Return the rows of every protocol that has several steps of the chain, in the order of
        the chain.
        """
        steps: dict[str, list[SignalRow]] = {}
        for row in self.rows:
            if row.metric in CHAIN and row.follows is not None:
                steps.setdefault(row.chain, []).append(row)
        chains = [rows for rows in steps.values() if len(rows) > 1]
        for rows in chains:
            rows.sort(key=lambda row: CHAIN.index(row.metric))
        return chains


def signals(runs: Sequence[Summary]) -> list[Signal]:
    """Return the signal on every dataset with the checkpoints of a training run; UsageError if
    there is none.
    """
    datasets: dict[str, list[Summary]] = {}
    for run in runs:
        datasets.setdefault(run.manifest.dataset.digest, []).append(run)
    reports = []
    for of_dataset in datasets.values():
        chosen = trainings([run.manifest for run in of_dataset])
        if chosen:
            reports.append(_signals(of_dataset, chosen))
    if reports:
        return reports

    checkpoints = [checkpoint_of(run.manifest) for run in runs]
    names_of_trainings = [
        checkpoint.training for checkpoint in checkpoints if checkpoint.has_progress
    ]
    longest = Counter(names_of_trainings).most_common(1)
    if longest:
        ((training, count),) = longest
        reason = f"there {are(count)} {counted(count, 'checkpoint')} of {training or 'one'}"
    else:
        names = list(dict.fromkeys(run.manifest.model.name for run in runs))
        reason = f"no name holds a step: {listed(names)}"
    raise UsageError(
        f"noise needs {STEPS} or more checkpoints of a training run on the same data, and "
        f"{reason}; a step is read from names such as ORG/NAME@step1000 or run/checkpoint-1000"
    )


_UNITS = {"k": 1e3, "m": 1e6, "b": 1e9, "t": 1e12}
_STEP = re.compile(
    r"(?<![a-z])(?:global[-_]?)?(?:steps?|checkpoint|ckpt|iter|ba)[-_=]?(?P<number>\d+)(?P<unit>k?)(?![0-9a-z])",
    re.I,
)
_TOKENS = re.compile(
    r"(?<![a-z])tokens?[-_=]?(?P<number>\d+(?:\.\d+)?)(?P<unit>[kmbt])(?![0-9a-z])", re.I
)
_SIZE = re.compile(r"(?<![0-9a-z.])(?P<number>\d+(?:\.\d+)?)(?P<unit>[mb])(?![0-9a-z])", re.I)
_LOOSE_JOINTS = re.compile(r"[-_=]+(?=[-_/@=]|$)|(?<=/)[-_/=]+")


def _parse_name(name: str) -> Checkpoint:
    rest, step = _take_number(_STEP, name)
    rest, tokens = _take_number(_TOKENS, rest)
    training = rest
    if rest == name:
        training = name.partition("@")[0]
    family, parameters = _take_number(_SIZE, training)
    return Checkpoint(
        training=training, family=family, step=step, tokens=tokens, parameters=parameters
    )


def _take_number(pattern: re.Pattern[str], name: str) -> tuple[str, float]:
    """Return the name without what the pattern finds, and the number in it; NaN if it finds
    nothing.
    """
    match = pattern.search(name)
    if match is None:
        return name, math.nan
    rest = _LOOSE_JOINTS.sub("", name[: match.start()] + name[match.end() :])
    number = float(match["number"]) * _UNITS.get(match["unit"].lower(), 1)
    return rest.rstrip("/@").lstrip("-_="), number


@dataclass(frozen=True)
class _Measured:
    """Hold the number and the outcome of the runs that measured the same items under one protocol,
    by run.
    """

    name: str
    protocol: Protocol
    rows: Mapping[int, Number]
    outcomes: Mapping[int, Outcome]

    def values(self, runs: Iterable[int]) -> Floats:
        """Return the numbers of those of ``runs`` that have one."""
        values = np.array(
            [self.rows[run].value for run in runs if run in self.rows], dtype=np.float64
        )
        return values[~np.isnan(values)]

    def tokenizer_count(self) -> int:
        """Count the tokenizers of the runs, as far as the tokens of the same texts tell."""
        if len({row.identity.i for row in self.rows.values()}) > 1:
            return 1
        return len({row.identity.t for row in self.rows.values()})


def _signals(runs: Sequence[Summary], chosen: Sequence[Training]) -> Signal:
    checkpoints = [checkpoint_of(run.manifest) for run in runs]
    members = _members(runs, checkpoints, chosen)
    noise_runs = {}
    for training in chosen:
        count = max(STEPS, min(LAST, len(training.runs) // 2))
        noise_runs[training.name] = training.runs[-count:]
    step = _early_step(chosen)
    compute = _compute(checkpoints)
    notes: list[str] = []
    rows = []
    for measured in _protocols(runs, notes):
        metric = METRICS[measured.protocol.metric]
        # A tokenizer that cuts a text into more tokens has a smaller log-probability per token.
        is_per_token = metric.probable and "token" in measured.protocol.score
        tokenizers = measured.tokenizer_count()
        if is_per_token and tokenizers > 1:
            notes.append(
                f"{measured.name} is left out: the checkpoints have {tokenizers} tokenizers, and "
                "numbers per token do "
                "not compare across them; bits per byte (metric bpb) do"
            )
            continue
        values = [measured.values(of_member) for of_member in members.values()]
        means = np.array([of_member.mean() for of_member in values if len(of_member)])
        noise_values = [measured.values(of_training) for of_training in noise_runs.values()]
        accuracy = math.nan
        if step is not None:
            accuracy = _accuracy(measured, chosen, members, step)
        rows.append(
            SignalRow(
                protocol=measured.name,
                metric=measured.protocol.metric,
                separation=separation(means, *noise_values),
                accuracy=accuracy,
                follows=_follows(measured, compute, metric.higher or metric.exponential),
                chain=as_accuracy(measured.protocol).digest,
            )
        )
    rows.sort(key=_snr_or_least, reverse=True)
    dataset = runs[0].manifest.dataset
    first_runs = set(chosen[0].runs)
    # Checkpoints of one run differ by what it learned, and not as models do.
    is_alone = all(first_runs.issuperset(of_member) for of_member in members.values())
    return Signal(
        dataset=dataset.name,
        data=data_id(dataset),
        unit=chosen[0].unit,
        trainings={training.name: training.at for training in chosen},
        last={name: len(of_training) for name, of_training in noise_runs.items()},
        models=tuple(members),
        step=step,
        rows=tuple(rows),
        notes=(*dict.fromkeys(notes), *_warnings(rows, is_alone)),
    )


def _snr_or_least(row: SignalRow) -> float:
    if math.isnan(row.separation.snr):
        return -math.inf
    return row.separation.snr


def _members(
    runs: Sequence[Summary], checkpoints: Sequence[Checkpoint], chosen: Sequence[Training]
) -> dict[str, list[int]]:
    """Return the members that the signal is over, by name; the mean of a member's runs is its
    number.

    They are training runs with their last checkpoints and all other models, or each checkpoint of a
    training run alone.
    """
    members = {training.name: list(training.runs[-_AVERAGED:]) for training in chosen}
    in_trainings: set[int] = set()
    for training in chosen:
        in_trainings.update(training.runs)
    # Other checkpoints of a chosen training run are no further model.
    trained = {checkpoints[training.runs[0]].training for training in chosen}
    for number, run in enumerate(runs):
        if number not in in_trainings and checkpoints[number].training not in trained:
            members.setdefault(run.manifest.model.name, [number])
    if len(members) > 1:
        return members
    (training,) = chosen
    by_progress = zip(training.at, training.runs, strict=True)
    return {f"{training.unit} {at:g}": [run] for at, run in by_progress}


def _protocols(runs: Sequence[Summary], notes: list[str]) -> list[_Measured]:
    """Return for each protocol the runs that measured the same items, the selection that most of
    them share.

    The runs that measured other items are added to ``notes``.
    """
    by_protocol: dict[str, dict[str, dict[int, Outcome]]] = {}
    rows: dict[int, dict[str, Number]] = {}
    for number, run in enumerate(runs):
        rows[number] = {
            row.identity.protocol: row for row in run.rows if row.identity.subject == "all"
        }
        for outcome in run.outcomes.outcomes:
            if outcome.name in rows[number]:
                by_selection = by_protocol.setdefault(outcome.protocol.digest, {})
                by_selection.setdefault(outcome.selection, {})[number] = outcome
    protocols = []
    for by_selection in by_protocol.values():
        outcomes = max(by_selection.values(), key=len)
        first = next(iter(outcomes.values()))
        for selection, others in by_selection.items():
            if others is outcomes:
                continue
            for number, outcome in others.items():
                shared = len(shared_items((outcome, first))[0])
                selected = selection or "all of the data"
                items = f"{len(outcome.ids):,} items, {shared:,} of them shared"
                model = runs[number].manifest.model.name
                notes.append(f"{model} is left out, it is about other items ({selected}: {items})")
        protocols.append(
            _Measured(
                name=first.name,
                protocol=first.protocol,
                rows={run: rows[run][outcome.name] for run, outcome in outcomes.items()},
                outcomes=outcomes,
            )
        )
    return protocols


def _early_step(chosen: Sequence[Training]) -> float | None:
    """Return the step that all of several training runs have, the latest up to half of the shortest
    one.
    """
    if len(chosen) < 2 or len({training.unit for training in chosen}) > 1:
        return None
    shared = set(chosen[0].at)
    for training in chosen[1:]:
        shared.intersection_update(training.at)
    # A decision close to the end of training would spare nobody any compute.
    half = min(training.at[-1] for training in chosen) / 2
    return max((at for at in shared if at <= half), default=None)


def _accuracy(
    measured: _Measured,
    chosen: Sequence[Training],
    members: Mapping[str, Sequence[int]],
    step: float,
) -> float:
    """Return how well the numbers at ``step`` of several training runs predict the order at their
    ends.
    """
    early_values = []
    late_values = []
    for training in chosen:
        early = measured.values([training.runs[training.at.index(step)]])
        late = measured.values(members[training.name])
        if len(early) and len(late):
            early_values.append(early[0])
            late_values.append(late.mean())
    return decision_accuracy(np.array(early_values), np.array(late_values))


def _compute(checkpoints: Sequence[Checkpoint]) -> dict[int, float]:
    """Return the training compute of the largest family, but for a factor, by index; nothing if it
    is unknown.
    """
    families: dict[str, dict[int, Checkpoint]] = {}
    for number, checkpoint in enumerate(checkpoints):
        families.setdefault(checkpoint.family, {})[number] = checkpoint
    largest: dict[int, float] = {}
    for family in families.values():
        compute = _compute_of_family(family)
        if len(set(compute.values())) >= MODELS and len(compute) > len(largest):
            largest = compute
    return largest


def _compute_of_family(family: Mapping[int, Checkpoint]) -> dict[int, float]:
    """Return parameters times tokens or steps of every model whose name says them.

    If no progress is known these are parameters alone, and in one training run the progress alone.
    """
    members = family.values()
    has_tokens = not any(math.isnan(checkpoint.tokens) for checkpoint in members)
    has_steps = not all(math.isnan(checkpoint.step) for checkpoint in members)
    has_sizes = len({checkpoint.training for checkpoint in members}) > 1
    compute = {}
    for number, checkpoint in family.items():
        product = 1.0
        if has_tokens:
            product = checkpoint.tokens
        elif has_steps:
            product = checkpoint.step
        if has_sizes:
            product *= checkpoint.parameters
        if not math.isnan(product):
            compute[number] = product
    return compute


def _follows(measured: _Measured, compute: Mapping[int, float], higher: bool) -> Follows | None:
    """Correlate the credit of items with compute; ``higher``: more credit is better. None with too
    few models.
    """
    runs = [run for run in compute if run in measured.outcomes]
    if len(runs) < MODELS:
        return None
    outcomes = [measured.outcomes[run] for run in runs]
    _, rows = shared_items(outcomes)
    credits = []
    for outcome, items in zip(outcomes, rows, strict=True):
        credits.append(outcome.credit[items])
    scores = np.array(credits)
    scores = scores[:, ~np.isnan(scores).any(axis=0)]
    if not scores.shape[1]:
        return None
    if not higher:
        scores = -scores
    rho = compute_correlations(scores, np.array([compute[run] for run in runs]))
    low, median, high = np.quantile(np.nan_to_num(rho), [0.25, 0.5, 0.75]).tolist()
    return Follows(low=low, median=median, high=high, items=len(rho), models=len(runs))


def _warnings(rows: Sequence[SignalRow], is_alone: bool) -> list[str]:
    lines = [
        "the signal is a range: it grows with the number of models; the noise holds the trend of "
        "the last steps"
    ]
    if is_alone:
        lines.append(
            "there is one training run: its signal is over its own checkpoints, so how far "
            "training moved it"
        )
    if any(row.metric == "logprob" for row in rows):
        lines.append(
            "log-probabilities near 0 make noise over a mean as large as one likes: take bits per "
            "byte"
        )
    return lines


def _signal(models: Floats) -> Floats:
    """Return the signal of every draw, for ``models`` [draws, models]; NaN for fewer than two
    models.
    """
    if models.shape[1] < 2:
        return np.full(len(models), np.nan)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.ptp(models, axis=1) / np.abs(models.mean(axis=1)))


def _noise(checkpoints: Sequence[Floats]) -> Floats:
    """Return the noise of every draw, for the checkpoints of training runs, [draws, checkpoints]
    each.

    It is NaN without a training run of :data:`STEPS` checkpoints.
    """
    long_enough = [values for values in checkpoints if values.shape[1] >= STEPS]
    if not long_enough:
        draws = 1
        if checkpoints:
            draws = len(checkpoints[0])
        return np.full(draws, np.nan)
    # Pooled within training runs, so that their different levels are no noise.
    together = np.concatenate(long_enough, axis=1)
    variances = [values.var(axis=1) * values.shape[1] for values in long_enough]
    within = sum(variances) / together.shape[1]
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.sqrt(within) / np.abs(together.mean(axis=1)))


def _ratio(signal: Floats, noise: Floats) -> Floats:
    """Return signal / noise, infinite if checkpoints differ by rounding alone."""
    return np.divide(signal, noise, out=np.full(np.shape(noise), np.inf), where=~(noise <= ALIKE))
