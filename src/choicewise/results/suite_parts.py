"""From the runs of a folder to the parts of its suites."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from choicewise.protocols.chat import plain_name
from choicewise.protocols.signature import parse_signature
from choicewise.records.sweep import CellRecord, PartRecord, SuiteRecord, Sweep
from choicewise.results.average import Average, PartValue, ScoredPart, Stratum, ranked_averages
from choicewise.results.item_table import read_item_table
from choicewise.results.outcome import Outcome
from choicewise.results.row import Row, chosen_part
from choicewise.results.summary import Summary
from choicewise.scoring.ragged import Integers
from choicewise.scoring.statistics.clustered import standard_error


def averages(folder: Path, sweep: Sweep, summaries: Mapping[Path, Summary]) -> list[Average]:
    """The average of every suite of ``sweep`` for every model, ranked.

    ``summaries``: those of the runs in ``folder``, by their own folders.
    """
    chosen, shown = [], _shown_names(folder, sweep, summaries)
    for suite in sweep.suites:
        if suite.average == "none":
            continue
        for model in sweep.models:
            cells = [cell for cell in sweep.cells if cell.model == model]
            own = {cell: summaries[folder / cell.folder] for cell in cells if folder / cell.folder in summaries}
            parts = tuple(_part(part, suite, cells, own) for part in suite.parts)
            asked = [each for each in own.values() if _asked(each, suite)]
            selections = dict.fromkeys(chosen_part(each.manifest.selection) for each in asked)
            words = "; ".join(filter(None, selections))
            chosen.append(Average(suite.name, shown[model], suite.normalised, parts, words))
    return ranked_averages(chosen)


def _part(
    part: PartRecord, suite: SuiteRecord, cells: Sequence[CellRecord], own: Mapping[CellRecord, Summary]
) -> PartValue:
    if part.unscored:
        return PartValue(part.benchmark, (), part.unscored)
    scored, problems = list[ScoredPart](), list[str]()
    for name, text in part.protocols.items():
        rows = [(summary, row) for summary in own.values() for row in summary.rows if _measures(row, name, text)]
        whole = [(summary, row) for summary, row in rows if "incomplete" not in row.selection and row.n]
        if len(whole) == 1:
            scored.append(_scored(*whole[0], suite.normalised))
        else:
            problems.append(_problem(part, name, cells, [row for _, row in rows], len(whole)))
    return PartValue(part.benchmark, tuple(scored), "; ".join(dict.fromkeys(problems)))


def _measures(row: Row, name: str, text: str) -> bool:
    """Whether a row is of the protocol, in a chat or not; runs name the split where a protocol leaves it open."""
    if plain_name(row.protocol)[0] != name:
        return False
    wanted, measured = parse_signature(text), parse_signature(row.signature)
    split = None if wanted.split is None else measured.split
    return wanted == replace(measured, split=split, chat=wanted.chat, system=wanted.system)


def _problem(part: PartRecord, name: str, cells: Sequence[CellRecord], rows: Sequence[Row], whole: int) -> str:
    if whole > 1:
        return f"{name} was measured on several datasets"
    if rows:
        return f"{name}: {rows[0].selection or 'nothing could be scored'}"
    failures = [cell.failure for cell in cells if cell.failure and cell.dataset == part.benchmark]
    return failures[0] if failures else f"{name} is not there yet"


def _scored(summary: Summary, row: Row, normalised: bool) -> ScoredPart:
    """What counts of a row: its value, or that from guessing (0) to all right (1).

    ``(raw - low) / (1 - low)``, 0 below ``low``, which is 1 / the most choices of an item (0 where there are none to
    choose from): of every subject where the value is a mean over them.  The standard error is that of the raw value
    over ``1 - low``.
    """
    outcome = next(each for each in summary.outcomes.outcomes if each.name == row.protocol)
    credit, value, se = outcome.credit, row.value, row.se
    counts = _choices(summary, outcome) if normalised else np.ones(len(credit))
    subjects = outcome.subjects if outcome.protocol.aggregation == "macro" else ["all"] * len(credit)
    numbers = np.unique(np.array(subjects, dtype=str), return_inverse=True)[1]
    strata, errors = list[Stratum](), list[float]()
    for number in range(int(numbers.max()) + 1):
        among = (numbers == number) & ~np.isnan(credit)
        if among.any():
            low = 1 / float(counts[among].max()) if counts[among].max() > 1 else 0.0
            strata.append(Stratum(float(credit[among].sum()), int(among.sum()), low))
            errors.append(standard_error(credit[among]) / (1 - low))
    if normalised:
        values = [max((right / size - low) / (1 - low), 0.0) for right, size, low in strata]
        value, se = math.fsum(values) / len(values), math.sqrt(math.fsum(each**2 for each in errors)) / len(errors)
    return ScoredPart(
        row.protocol, row.metric, value, row.value, se, row.n, row.missing, tuple(strata) if row.share else ()
    )


def _choices(summary: Summary, outcome: Outcome) -> Integers:
    """How many choices each item has, int64 [items]."""
    table = read_item_table(summary.folder, summary.manifest)
    choices = dict(zip(table["item"].to_pylist(), _lengths(table["choices"]), strict=True))
    return np.array([choices[item] for item in outcome.ids.to_pylist()], dtype=np.int64)


def _lengths(lists: object) -> list[int]:
    import pyarrow.compute as pc

    return [int(length) for length in pc.list_value_length(lists).to_pylist()]


def _asked(summary: Summary, suite: SuiteRecord) -> bool:
    """Whether the run is one of the suite's."""
    names = {name for part in suite.parts for name in part.protocols}
    return any(plain_name(name)[0] in names for name in summary.manifest.protocols)


def _shown_names(folder: Path, sweep: Sweep, summaries: Mapping[Path, Summary]) -> dict[str, str]:
    """What reports call each model, where no other of the sweep has that name; else as it was asked for."""
    names: dict[str, str] = {}
    for cell in sweep.cells:
        if (summary := summaries.get(folder / cell.folder)) is not None:
            names[cell.model] = summary.manifest.model.name
    called = list(names.values())
    return {model: names[model] if called.count(names.get(model, "")) == 1 else model for model in sweep.models}
