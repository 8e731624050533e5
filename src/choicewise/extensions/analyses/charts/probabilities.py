"""Read what runs say of probabilities: the chain from log-probability to accuracy, and calibration.

It is read under one protocol of letters and one of texts.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from choicewise.extensions.analyses.charts.stored import (
    FAMILIES,
    NAME,
    calibration,
    chain,
    read_calibration,
)
from choicewise.extensions.analyses.statistics import Bin
from choicewise.page.study import MOST_RUNS, ShownRun, Study
from choicewise.protocols.metrics import CHAIN, METRICS
from choicewise.protocols.protocol import Protocol
from choicewise.report.tables import interval_text, value_text
from choicewise.results.headline import headline
from choicewise.results.number import Number
from choicewise.results.run import Run
from choicewise.results.summary import read_numbers
from choicewise.util import text
from choicewise.util.jsonio import JsonMapping
from choicewise.util.text import counted, percent, plain


@dataclass(frozen=True)
class Chain:
    """Hold the chain of the models of one dataset under one protocol of a ``family``.

    ``models``: name → the rows of the metrics that the model has, in the order of the chain.
    """

    dataset: str
    family: str
    protocol: str
    models: tuple[tuple[str, tuple[Number, ...]], ...]

    @property
    def metrics(self) -> list[str]:
        """Return the metrics that one model has at least."""
        of_models: set[str] = set()
        for _, rows in self.models:
            of_models.update(row.identity.metric for row in rows)
        return [metric for metric in CHAIN if metric in of_models]


@dataclass(frozen=True, kw_only=True)
class Calibrated:
    """Hold how far a model's confidence is right: the rows of both errors, and the bins of the
    first.
    """

    model: str
    protocol: str
    ece: Number
    brier: Number
    bins: tuple[Bin, ...]


@dataclass(frozen=True)
class StatedProbabilities:
    """Hold what a page shows of one dataset; ``chains`` and ``calibrated`` are empty without
    log-likelihoods.
    """

    dataset: str
    chains: tuple[Chain, ...]
    calibrated: tuple[Calibrated, ...]


def stated_probabilities(study: Study) -> list[StatedProbabilities]:
    """Read the first runs on every dataset of the study; a dataset without log-likelihoods is left
    out.
    """
    names = {}
    for digest, run_numbers in study.datasets.items():
        names[digest] = study.runs[run_numbers[0]].manifest.dataset.name
    name_counts = Counter(names.values())
    stated = []
    for digest, run_numbers in study.datasets.items():
        name = names[digest]
        # Two datasets may have one name, such as two versions of a benchmark.
        if name_counts[name] > 1:
            name = f"{name} #D{digest[:6]}"
        runs = [study.runs[number] for number in run_numbers if number < MOST_RUNS]
        of_dataset = _Reader(runs).read(name)
        if of_dataset.chains or of_dataset.calibrated:
            stated.append(of_dataset)
    return stated


def lacks_probabilities(study: Study) -> str:
    """Return why nothing can be said of probabilities, or an empty text; no run is read."""
    for families in FAMILIES:
        if _commonest_row(study.runs, families) is not None:
            return ""
    return "no protocol scores log-likelihoods of the choices over all items"


CHAIN_TITLES = {
    "logprob": "log-probability",
    "prob": "probability",
    "norm-prob": "normalised",
    "brier": "Brier score",
    "acc": "accuracy",
}
"""Metric of the chain → its name where there is little room."""


def chain_table(chains: Sequence[Chain]) -> tuple[list[tuple[str, str]], list[list[str]]]:
    """Return the columns and the rows of the table behind the chart: a row for each model and
    protocol.
    """
    of_chains: set[str] = set()
    for chain_ in chains:
        of_chains.update(chain_.metrics)
    metrics = [metric for metric in CHAIN if metric in of_chains]
    columns = [("model", ""), ("protocol", "")]
    for metric in metrics:
        columns.append((f"{CHAIN_TITLES[metric]} ({METRICS[metric].direction})", "number"))
    columns.append(("items", "number"))
    lines = []
    for chain_ in chains:
        for model, rows in chain_.models:
            by_metric = {row.identity.metric: row for row in rows}
            cells = [_value_cell(by_metric.get(metric)) for metric in metrics]
            lines.append([model, chain_.protocol, *cells, f"{rows[0].counts.n:,}"])
    return columns, lines


def _value_cell(row: Number | None) -> str:
    if row is None:
        return ""
    return f"{value_text(row, row.value)} ({interval_text(row)})"


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
    """Return a row under :data:`CALIBRATION_COLUMNS` for each model."""
    rows = []
    for of_model in calibrated:
        ece = of_model.ece
        brier = of_model.brier
        row = [of_model.model, plain(ece.value), interval_text(ece), plain(ece.calibrated)]
        row += [plain(brier.value), interval_text(brier), plain(brier.chance), f"{ece.counts.n:,}"]
        rows.append(row)
    return rows


BIN_COLUMNS = (
    ("model", ""),
    ("confidence", ""),
    ("mean confidence in %", "number"),
    ("right in %", "number"),
    ("95 % interval", "number"),
    ("items", "number"),
)


def bin_rows(calibrated: Sequence[Calibrated]) -> list[list[str]]:
    """Return a row under :data:`BIN_COLUMNS` for each model and bin."""
    rows = []
    for of_model in calibrated:
        for bin in of_model.bins:
            row = [of_model.model, text.interval(bin.lowest, bin.highest)]
            row += [percent(bin.confidence), percent(bin.right)]
            row += [text.interval(bin.right_low, bin.right_high), f"{bin.n:,}"]
            rows.append(row)
    return rows


def errors_in_words(calibrated: Calibrated) -> list[str]:
    """Return both errors, and those of other predictors on the same items, which a diagram does not
    show.
    """
    ece = calibrated.ece
    brier = calibrated.brier
    return [
        f"Calibration error {plain(ece.value)} ({interval_text(ece)}), {plain(ece.calibrated)} if "
        f"calibrated; {counted(ece.counts.n, 'item')}.",
        f"Brier score {plain(brier.value)} ({interval_text(brier)}), {plain(brier.calibrated)} if "
        f"calibrated, {plain(brier.chance)} uniform.",
    ]


def _commonest_row(runs: Sequence[ShownRun], families: Sequence[str]) -> Number | None:
    """Return the headline of the first of ``families`` that has one, among the protocols that most
    runs have.
    """
    # Models of one chart must have the same protocol, or their order says nothing.
    for family in families:
        rows = []
        for run in runs:
            for row in run.rows:
                is_accuracy = row.identity.metric == "acc" and not math.isnan(row.value)
                if row.identity.subject == "all" and row.identity.family == family and is_accuracy:
                    rows.append(row)
        counts = Counter(row.identity.signature for row in rows)
        most = max(counts.values(), default=0)
        row_of_family = headline([row for row in rows if counts[row.identity.signature] == most])
        if row_of_family is not None:
            return row_of_family
    return None


@dataclass
class _Reader:
    """Read the runs on one dataset, each opened once."""

    runs: Sequence[ShownRun]
    opened: dict[str, Run] = field(default_factory=dict)

    def read(self, dataset: str) -> StatedProbabilities:
        letters, texts, rendered = (_commonest_row(self.runs, families) for families in FAMILIES)
        chain_rows = [row for row in (letters, texts) if row is not None]
        if not chain_rows and rendered is not None:
            chain_rows = [rendered]
        chains = []
        for row in chain_rows:
            models = self._chain_models(row)
            if models:
                chains.append(
                    Chain(dataset, row.identity.family, row.identity.protocol, tuple(models))
                )
        calibrated = []
        calibration_row = letters or rendered
        if calibration_row is not None:
            for run in self.runs:
                of_model = self._calibrated(calibration_row, run)
                if of_model is not None:
                    calibrated.append(of_model)
        return StatedProbabilities(dataset, tuple(chains), tuple(calibrated))

    def _chain_models(self, row: Number) -> list[tuple[str, tuple[Number, ...]]]:
        """Return the rows of the chain for every model with the protocol of ``row`` and more than
        its accuracy.
        """
        models = []
        for run in self.runs:
            protocol = _protocol_of(row, run)
            if not protocol:
                continue
            (name,) = protocol
            rows = []
            for link in self._chain(run, name, protocol[name]):
                if not math.isnan(link.value):
                    rows.append(link.with_model(run.label))
            if any(link.identity.metric != "acc" for link in rows):
                models.append((run.label, tuple(rows)))
        return models

    def _calibrated(self, row: Number, run: ShownRun) -> Calibrated | None:
        protocol = _protocol_of(row, run)
        if not protocol:
            return None
        (name,) = protocol
        stored = _stored(run, protocol[name])
        if stored is None:
            rows, bins = calibration(self._open(run), protocol)
        else:
            rows, bins = read_calibration(stored)
        errors = {}
        for error in rows:
            if error.identity.subject == "all":
                errors[error.identity.metric] = error.with_model(run.label)
        if not bins or errors.keys() != {"ece", "brier"}:
            return None
        return Calibrated(
            model=run.label,
            protocol=name,
            ece=errors["ece"],
            brier=errors["brier"],
            bins=tuple(bins),
        )

    def _chain(self, run: ShownRun, name: str, protocol: Protocol) -> Sequence[Number]:
        stored = _stored(run, protocol)
        if stored is None:
            return chain(self._open(run).under({name: protocol}), name)
        return read_numbers(stored["chain"])

    def _open(self, run: ShownRun) -> Run:
        if run.label not in self.opened:
            self.opened[run.label] = run.open()
        return self.opened[run.label]


def _stored(run: ShownRun, protocol: Protocol) -> JsonMapping | None:
    """Return the probabilities of a protocol in the summary of the run; None if it has none."""
    probabilities: JsonMapping = run.statistics.get(NAME, {})
    return probabilities.get(protocol.digest)


def _protocol_of(row: Number, run: ShownRun) -> dict[str, Protocol]:
    """Return the protocol of ``row`` under the name that the run has for it; nothing if it has
    none.
    """
    for row_of_run in run.rows:
        if row_of_run.identity.signature == row.identity.signature:
            return {row_of_run.identity.protocol: run.protocols[row_of_run.identity.protocol]}
    return {}
