"""What a page says of probabilities: the chain from log-probability to accuracy, and calibration.

They are read from the run folders, under one protocol of letters and one of texts.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from choicewise.errors import UsageError
from choicewise.page.study import MOST_RUNS, ShownRun, Study
from choicewise.protocols.between import under_metrics
from choicewise.protocols.metrics import CHAIN, METRICS
from choicewise.protocols.protocol import RENDERED, Protocol
from choicewise.report.brief import LETTERS, TEXTS
from choicewise.report.tables import interval_text, value_text
from choicewise.results.headline import headline
from choicewise.results.reliability import chain, reliability_tables
from choicewise.results.rows import Row
from choicewise.results.run import Run, open_run
from choicewise.scoring.probabilities import Bin
from choicewise.util import text
from choicewise.util.text import counted, percent, plain


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


def chain_table(chains: Sequence[Chain]) -> tuple[list[tuple[str, str]], list[list[str]]]:
    """The columns and the rows of the table behind the chart: a row for each model and protocol."""
    metrics = [metric for metric in CHAIN if any(metric in each.metrics for each in chains)]
    columns = [
        ("model", ""),
        ("protocol", ""),
        *((_heading(metric), "number") for metric in metrics),
    ]
    columns.append(("items", "number"))
    lines = []
    for each in chains:
        for model, rows in each.models:
            own = {row.metric: row for row in rows}
            cells = [
                f"{value_text(row, row.value)} ({interval_text(row)})"
                if (row := own.get(metric))
                else ""
                for metric in metrics
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
            interval_text(each.ece),
            plain(each.ece.calibrated),
            plain(each.brier.value),
            interval_text(each.brier),
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


def errors_in_words(each: Calibrated) -> list[str]:
    """What a diagram does not show: the errors, and what other predictors would have on the same items."""
    ece, brier = each.ece, each.brier
    return [
        f"Calibration error {plain(ece.value)} ({interval_text(ece)}), {plain(ece.calibrated)} if calibrated; "
        f"{counted(ece.n, 'item')}.",
        f"Brier score {plain(brier.value)} ({interval_text(brier)}), {plain(brier.calibrated)} if calibrated, "
        f"{plain(brier.chance)} uniform.",
    ]


def _heading(metric: str) -> str:
    return f"{CHAIN_TITLES[metric]} ({METRICS[metric].direction})"


def _by_dataset(study: Study) -> list[tuple[str, list[ShownRun]]]:
    """The name of every dataset, with its id where another one is called the same, and its first runs."""
    names = {
        digest: study.runs[places[0]].manifest.dataset.name
        for digest, places in study.datasets.items()
    }
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
    chosen = (
        [asked[LETTERS], asked[TEXTS]] if asked[LETTERS] or asked[TEXTS] else [asked[(RENDERED,)]]
    )
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
        rows = [
            row for run in runs for row in run.rows if row.subject == "all" and row.family == family
        ]
        rows = [row for row in rows if row.metric == "acc" and not math.isnan(row.value)]
        counts = Counter(row.signature for row in rows)
        most = max(counts.values(), default=0)
        if (row := headline([row for row in rows if counts[row.signature] == most])) is not None:
            return row
    return None


def _chain(
    dataset: str, asked: Row, runs: Sequence[ShownRun], opened: dict[str, Run]
) -> Chain | None:
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
    rows = {
        row.metric: replace(row, model=run.label) for row in under.rows() if row.subject == "all"
    }
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
