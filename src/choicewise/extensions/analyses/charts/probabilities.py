"""What a page says of probabilities: the chain from log-probability to accuracy, calibration, and all other metrics.

Chain and calibration are read from the run folders, under one protocol of letters and one of texts.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from choicewise.errors import UsageError
from choicewise.extensions.analyses.reliability import chain, reliability_tables
from choicewise.page.item_views import words
from choicewise.page.study import MOST_RUNS, ShownRun, Study
from choicewise.protocols.between import under_metrics
from choicewise.protocols.metrics import CHAIN, METRICS
from choicewise.protocols.protocol import RENDERED, Protocol
from choicewise.report.brief import LETTERS, TEXTS
from choicewise.report.tables import letter_notes, shown_value
from choicewise.results.headline import headline
from choicewise.results.rows import Row
from choicewise.results.run import Run, open_run
from choicewise.scoring.probabilities import Bin
from choicewise.util import text
from choicewise.util.text import counted, percent, plain, sentence


@dataclass(frozen=True)
class Chain:
    """The chain of the models of one dataset under one protocol of a ``family``, each model with its rows in order."""

    dataset: str
    family: str
    protocol: str
    models: tuple[tuple[str, tuple[Row, ...]], ...]

    @property
    def metrics(self) -> list[str]:
        """What is known of a model at least."""
        there = {row.metric for _, rows in self.models for row in rows}
        return [metric for metric in CHAIN if metric in there]


@dataclass(frozen=True)
class Calibrated:
    """How far a model's confidence is right: the rows of both errors, and the bins of the first."""

    model: str
    protocol: str
    ece: Row
    brier: Row
    bins: tuple[Bin, ...]


@dataclass(frozen=True)
class StatedProbabilities:
    """What a page shows of one dataset; ``chains`` and ``calibrated`` are empty where log-likelihoods are not there."""

    dataset: str
    chains: tuple[Chain, ...]
    calibrated: tuple[Calibrated, ...]


def stated_probabilities(study: Study) -> list[StatedProbabilities]:
    """Of every dataset of the study what its first runs say; nothing of one where no run has log-likelihoods."""
    read = [_stated(name, runs) for name, runs in _by_dataset(study)]
    return [each for each in read if each.chains or each.calibrated]


def lacks_probabilities(study: Study) -> str:
    """Why nothing can be said of probabilities, in words; nothing where something can.  Reads no run."""
    runs = list(study.runs)
    if any(_asked(runs, families) for families in (LETTERS, TEXTS, (RENDERED,))):
        return ""
    return "no protocol scores log-likelihoods of the choices over all items"


CHAIN_TITLES = {
    "logprob": "log-probability",
    "prob": "probability",
    "norm-prob": "normalised",
    "brier": "Brier score",
    "acc": "accuracy",
}
"""What a metric of the chain is called where there is little room."""


def spelled(row: Row, value: float) -> str:
    """A value of the row's metric: accuracies in percent, others as reports spell them."""
    return f"{percent(value)} %" if row.share and not math.isnan(value) else plain(value)


def bounds(row: Row) -> str:
    """The interval of a row; a dash where there is none."""
    return text.interval(row.ci_low, row.ci_high, percent if row.share else plain)


def chain_table(chains: Sequence[Chain]) -> tuple[list[tuple[str, str]], list[list[str]]]:
    """The columns and the rows of the table behind the chart: a row for each model and protocol."""
    metrics = [metric for metric in CHAIN if any(metric in each.metrics for each in chains)]
    columns = [("model", ""), ("protocol", ""), *((_heading(metric), "number") for metric in metrics)]
    columns.append(("items", "number"))
    lines = []
    for each in chains:
        for model, rows in each.models:
            own = {row.metric: row for row in rows}
            cells = [
                f"{spelled(row, row.value)} ({bounds(row)})" if (row := own.get(metric)) else "" for metric in metrics
            ]
            lines.append([model, each.protocol, *cells, f"{rows[0].n:,}"])
    return columns, lines


CALIBRATION_COLUMNS = (
    ("model", ""),
    ("calibration error", "number"),
    ("95 % interval", "number"),
    ("if calibrated", "number"),
    ("Brier score", "number"),
    ("95 % interval", "number"),
    ("uniform", "number"),
    ("items", "number"),
)


def calibration_rows(calibrated: Sequence[Calibrated]) -> list[list[str]]:
    """A row for each model."""
    return [
        [
            each.model,
            plain(each.ece.value),
            bounds(each.ece),
            plain(each.ece.calibrated),
            plain(each.brier.value),
            bounds(each.brier),
            plain(each.brier.chance),
            f"{each.ece.n:,}",
        ]
        for each in calibrated
    ]


BIN_COLUMNS = (
    ("model", ""),
    ("confidence", ""),
    ("mean confidence in %", "number"),
    ("right in %", "number"),
    ("95 % interval", "number"),
    ("items", "number"),
)


def bin_rows(calibrated: Sequence[Calibrated]) -> list[list[str]]:
    """A row for each model and bin."""
    return [
        [
            each.model,
            text.interval(bin.lowest, bin.highest),
            percent(bin.confidence),
            percent(bin.right),
            text.interval(bin.right_low, bin.right_high),
            f"{bin.n:,}",
        ]
        for each in calibrated
        for bin in each.bins
    ]


def told(each: Calibrated) -> list[str]:
    """What a diagram does not show: the errors, and what other predictors would have on the same items."""
    return [
        f"Calibration error {plain(each.ece.value)} ({bounds(each.ece)}), {plain(each.ece.calibrated)} if calibrated; "
        f"{counted(each.ece.n, 'item')}.",
        f"Brier score {plain(each.brier.value)} ({bounds(each.brier)}), {plain(each.brier.calibrated)} if calibrated, "
        f"{plain(each.brier.chance)} uniform.",
    ]


@dataclass(frozen=True)
class MetricTable:
    """The numbers of one metric that runs were asked for themselves; ``notes``: what they do not say."""

    metric: str
    direction: str
    about: str
    columns: tuple[tuple[str, str], ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...]


def metric_tables(study: Study) -> list[MetricTable]:
    """One for each metric whose numbers are no shares of 1, the best number first."""
    by_metric: dict[str, list[Row]] = {}
    for row in study.other_metrics:
        by_metric.setdefault(row.metric, []).append(row)
    return [_metric_table(metric, own) for metric, own in by_metric.items()]


def _metric_table(metric: str, rows: Sequence[Row]) -> MetricTable:
    """Columns that say nothing are left out."""
    ordered = sorted(rows, key=lambda row: math.inf if math.isnan(row.merit) else -row.merit)
    every = [("model", "", [row.model for row in ordered]), ("protocol", "", [row.protocol for row in ordered])]
    grouped = len({row.subject for row in rows}) > 1
    if grouped:
        every.append(("group", "", [row.subject for row in ordered]))
    unit, pooled = METRICS[metric].unit, METRICS[metric].pooled
    every += [
        (unit or "value", "number", [shown_value(row, plain) for row in ordered]),
        ("95 % interval", "number", [bounds(row) for row in ordered]),
        ("items", "number", [f"{row.n:,}" for row in ordered]),
        ("uniform", "number", ["" if pooled else _known(row.chance) for row in ordered]),
        ("if calibrated", "number", [_known(row.calibrated) for row in ordered]),
        ("rank", "number", [_rank(row) for row in ordered]),
        ("warnings", "breaks", [words(row) for row in ordered]),
        ("ids", "code", [f"{row.id} {row.i} {row.t} {row.r}" for row in ordered]),
    ]
    optional = {"uniform", "if calibrated", "rank", "warnings"}
    shown = [(name, kind, cells) for name, kind, cells in every if name not in optional or any(cells)]
    columns = tuple((name, kind) for name, kind, _ in shown)
    lines = tuple(zip(*(cells for _, _, cells in shown), strict=True))
    about = METRICS[metric].about
    notes = tuple(sentence([note]) for note in letter_notes(rows))
    return MetricTable(metric, METRICS[metric].direction, f"{about[:1].upper()}{about[1:]}.", columns, lines, notes)


def _known(value: float) -> str:
    return "" if math.isnan(value) else plain(value)


def _rank(row: Row) -> str:
    if row.rank is None:
        return ""
    return f"{row.rank}" + (f" ({text.ranks(row.rank_low, row.rank_high)})" if row.rank_low is not None else "")


def _heading(metric: str) -> str:
    return f"{CHAIN_TITLES[metric]} ({METRICS[metric].direction})"


def _by_dataset(study: Study) -> list[tuple[str, list[ShownRun]]]:
    """The name of every dataset, with its id where another one is called the same, and its first runs."""
    names = {digest: study.runs[places[0]].manifest.dataset.name for digest, places in study.datasets.items()}
    called = Counter(names.values())
    return [
        (
            names[digest] if called[names[digest]] == 1 else f"{names[digest]} #D{digest[:6]}",
            [study.runs[place] for place in places if place < MOST_RUNS],
        )
        for digest, places in study.datasets.items()
    ]


def _stated(dataset: str, runs: Sequence[ShownRun]) -> StatedProbabilities:
    asked = {families: _asked(runs, families) for families in (LETTERS, TEXTS, (RENDERED,))}
    chosen = [asked[LETTERS], asked[TEXTS]] if asked[LETTERS] or asked[TEXTS] else [asked[(RENDERED,)]]
    sure = asked[LETTERS] or asked[(RENDERED,)]
    opened: dict[str, Run] = {}
    chains = [_chain(dataset, each, runs, opened) for each in chosen if each is not None]
    calibrated = [] if sure is None else [_calibrated(sure, run, opened) for run in runs]
    return StatedProbabilities(
        dataset,
        tuple(each for each in chains if each is not None),
        tuple(each for each in calibrated if each is not None),
    )


def _asked(runs: Sequence[ShownRun], families: Sequence[str]) -> Row | None:
    """The headline of the first of these families that has one, among what most of the models were asked."""
    for family in families:
        rows = [row for run in runs for row in run.rows if row.subject == "all" and row.family == family]
        rows = [row for row in rows if row.metric == "acc" and not math.isnan(row.value)]
        counts = Counter(row.signature for row in rows)
        most = max(counts.values(), default=0)
        if (row := headline([row for row in rows if counts[row.signature] == most])) is not None:
            return row
    return None


def _chain(dataset: str, asked: Row, runs: Sequence[ShownRun], opened: dict[str, Run]) -> Chain | None:
    models = []
    for run in runs:
        if (own := _own(asked, run)) is not None:
            rows = chain(_open(run, opened).under(own), next(iter(own)))
            known = [replace(row, model=run.label) for row in rows if not math.isnan(row.value)]
            if any(row.metric != "acc" for row in known):
                models.append((run.label, tuple(known)))
    return Chain(dataset, asked.family, asked.protocol, tuple(models)) if models else None


def _calibrated(asked: Row, run: ShownRun, opened: dict[str, Run]) -> Calibrated | None:
    own = _own(asked, run)
    if own is None:
        return None
    try:
        wanted = under_metrics(own, ["ece", "brier"])
    except UsageError:
        return None
    under = _open(run, opened).under(wanted)
    rows = {row.metric: replace(row, model=run.label) for row in under.rows() if row.subject == "all"}
    (table,) = reliability_tables(under)
    if not table.bins or rows.keys() != {"ece", "brier"}:
        return None
    return Calibrated(run.label, next(iter(own)), rows["ece"], rows["brier"], table.bins)


def _own(asked: Row, run: ShownRun) -> dict[str, Protocol] | None:
    """The protocol under the name that the run has for it."""
    name = next((row.protocol for row in run.rows if row.signature == asked.signature), None)
    return None if name is None else {name: run.protocols[name]}


def _open(run: ShownRun, opened: dict[str, Run]) -> Run:
    """The run of a folder, opened once."""
    if run.label not in opened:
        opened[run.label] = open_run(run.folder)
    return opened[run.label]
