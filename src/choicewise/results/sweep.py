"""The runs that folders hold, and the averages of the suites of a sweep."""

from __future__ import annotations

import math
import os
import re
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple
from warnings import warn

import numpy as np

from choicewise.errors import StoreError, UsageError
from choicewise.protocols.catalogue import plain_name
from choicewise.protocols.preparations import more_options
from choicewise.protocols.protocol import parse_signature
from choicewise.records import MANIFEST, CellRecord, PartRecord, SuiteRecord, Sweep
from choicewise.results.outcomes import COMPARABLE, Outcome, Summary, ranks_among
from choicewise.results.rows import Row, chosen_part
from choicewise.results.tables import read_item_table
from choicewise.scoring.intervals import ranks, standard_error, stratified
from choicewise.scoring.observed import Integers
from choicewise.store.folder import is_sweep, read_manifest, read_sweep
from choicewise.store.tables import check_items
from choicewise.util.jsonio import json_value
from choicewise.util.text import counted


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
            own = {
                cell: summaries[folder / cell.folder]
                for cell in cells
                if folder / cell.folder in summaries
            }
            parts = tuple(_part(part, suite, cells, own) for part in suite.parts)
            asked = [each for each in own.values() if _asked(each, suite)]
            selections = dict.fromkeys(chosen_part(each.manifest.selection) for each in asked)
            words = "; ".join(filter(None, selections))
            chosen.append(
                Average(
                    suite=suite.name,
                    model=shown[model],
                    normalised=suite.normalised,
                    parts=parts,
                    selection=words,
                )
            )
    return ranked_averages(chosen)


def run_folders(folders: Iterable[str | Path]) -> list[Path]:
    """The folders, with the runs that are there in place of every folder of several, or of one model's; each once.

    A folder that is no run and no sweep stands for the runs directly in it, in the order of their names.  Of several
    runs that a folder stands for, those that can't be read at all are left out, each with a warning.

    Raises StoreError for a folder of several runs that is damaged, UsageError for one in which no run is there.
    """
    runs: list[Path] = []
    for folder in map(Path, folders):
        sweep = _sweep(folder)
        if sweep is None:
            runs += _readable(_within(folder)) or [folder]
            continue
        there = [sweep[0] / cell.folder for cell in sweep[1].cells]
        there = [run for run in there if (run / MANIFEST).exists()]
        if not there:
            raise _nothing(folder, sweep[1])
        runs += _readable(there)
    return list(dict.fromkeys(runs))


def sweeps(folders: Iterable[str | Path]) -> list[tuple[Path, Sweep]]:
    """What the folders of several runs say of themselves, each with the folder that the cells' own are relative to."""
    return [sweep for sweep in map(_sweep, map(Path, folders)) if sweep is not None]


def one_run(folder: str | Path) -> Path:
    """The run in ``folder``.  Raises UsageError, naming them, where there are several."""
    runs = run_folders([folder])
    if len(runs) > 1:
        raise UsageError(
            f"{folder} holds {len(runs)} runs; name one of them", [str(run) for run in runs]
        )
    return runs[0]


class Stratum(NamedTuple):
    """Items of a part that count alike: all of them, or those of a subject where the value is a mean over subjects.

    ``right``: their credit together; ``size``: how many they are; ``low``: the accuracy that counts as 0.
    """

    right: float
    size: int
    low: float = 0.0


@dataclass(frozen=True, kw_only=True)
class ScoredPart:
    """One protocol of a part: ``raw``, the value of its row, and ``value``, what counts; both shares of 1.

    They differ where the suite normalises.  ``se``: of ``value``.  ``strata``: what ``value`` is the mean of, where
    it is a share of 1.
    """

    protocol: str
    metric: str
    value: float
    raw: float
    se: float
    n: int
    missing: int
    strata: tuple[Stratum, ...]


@dataclass(frozen=True)
class PartValue:
    """A part of a suite for one model: what its protocols give; the best of them counts.

    ``problem``: why the part has no number, empty where it has one.
    """

    benchmark: str
    scored: tuple[ScoredPart, ...]
    problem: str = ""

    @property
    def best(self) -> ScoredPart | None:
        """The one that counts, the first of equal ones; None where there is no number."""
        placed = zip(self.scored, ranks([each.value for each in self.scored]).tolist(), strict=True)
        return next((each for each, rank in placed if rank == 1), None)


@dataclass(frozen=True, kw_only=True)
class Average:
    """What a suite says of one model.

    ``selection``: which part of the data the numbers are about, in words; nothing for all of it.  ``mean``: of the
    parts that have a number; it is the suite's number only where all have one.
    """

    suite: str
    model: str
    normalised: bool
    parts: tuple[PartValue, ...]
    selection: str = ""
    rank: int | None = None

    @cached_property
    def counted(self) -> tuple[ScoredPart, ...]:
        """What the mean is over."""
        return tuple(part.best for part in self.parts if part.best is not None)

    @property
    def complete(self) -> bool:
        """Whether every part has a number."""
        return len(self.counted) == len(self.parts)

    @property
    def mean(self) -> float:
        """The plain mean of the parts that have a number, NaN without any."""
        return (
            math.fsum(part.value for part in self.counted) / len(self.counted)
            if self.counted
            else math.nan
        )

    @property
    def se(self) -> float:
        """The standard error of the mean: √(Σ se²) / parts, as their items are independent."""
        if not self.counted:
            return math.nan
        return math.sqrt(math.fsum(part.se**2 for part in self.counted)) / len(self.counted)

    @property
    def interval(self) -> tuple[float, float]:
        """(low, high) of the 95 % score interval of the mean; NaN without any part, or with one that is no share of 1.

        It counts below guessing as it is, and the mean counts it as 0: that may lie above what the interval is about.
        """
        if not self.counted or not all(part.strata for part in self.counted):
            return math.nan, math.nan
        strata = [each for part in self.counted for each in part.strata]
        rights, sizes, lows = (
            np.array(column, dtype=np.float64) for column in zip(*strata, strict=True)
        )
        alike = np.repeat(
            [len(part.strata) for part in self.counted], [len(part.strata) for part in self.counted]
        )
        weights = 1 / (len(self.counted) * alike * (1 - lows))
        low, high = np.array(stratified(rights, sizes, weights=weights)) - weights @ lows
        return min(max(float(low), 0.0), self.mean), max(float(high), self.mean)

    @property
    def n(self) -> int:
        """Items that the parts are means over, in all."""
        return sum(part.n for part in self.counted)

    def as_json(self) -> dict[str, Any]:
        """A row of a report: dataset and protocol are the suite, the metric is ``average``.

        ``value`` and its interval are null where a part is missing; ``mean_of_parts`` is over those that are there.
        """
        value, se, (low, high) = self.mean, self.se, self.interval
        if not self.complete:
            value = se = low = high = math.nan
        return json_value(
            {
                "model": self.model,
                "dataset": self.suite,
                "selection": self.selection,
                "subject": "all",
                "protocol": self.suite,
                "signature": None,
                "metric": "average",
                "value": value,
                "se": se,
                "interval": "wilson",
                "ci_low": low,
                "ci_high": high,
                "n": self.n,
                "missing": sum(part.missing for part in self.counted),
                "rank": self.rank,
                "complete": self.complete,
                "mean_of_parts": self.mean,
                "normalised": self.normalised,
                "parts": [_part_json(part) for part in self.parts],
            }
        )


def ranked_averages(averages: Sequence[Average]) -> list[Average]:
    """The averages, each with its rank among those of the same suite, parts and selection; the best first.

    One with a part over far fewer items than that part of a rival gets no rank, and comes after those that have one.
    """
    rivalries = [_rivalry(average) for average in averages]
    most: dict[tuple[Hashable, str], int] = {}
    for average, rivalry in zip(averages, rivalries, strict=True):
        for part in average.parts:
            key = rivalry, part.benchmark
            most[key] = max(most.get(key, 0), 0 if part.best is None else part.best.n)
    means = []
    for average, rivalry in zip(averages, rivalries, strict=True):
        parts = [
            (part.best.n, most[rivalry, part.benchmark])
            for part in average.parts
            if part.best is not None
        ]
        few = any(count < COMPARABLE * of_rivals for count, of_rivals in parts)
        means.append(math.nan if few else average.mean)
    placed = ranks_among(means, rivalries)
    for rivalry, count in Counter(rivalries).items():
        places = [
            place
            for place, own in enumerate(rivalries)
            if own == rivalry and placed[place] is not None
        ]
        if len(places) == 1 < count:
            placed[places[0]] = None  # its rivals all scored too few items
    order = ranks_among(means, [each.suite for each in averages])
    suites = list(dict.fromkeys(each.suite for each in averages))
    shown = sorted(
        zip(averages, placed, order, strict=True),
        key=lambda each: (suites.index(each[0].suite), -len(each[0].counted), each[2] or math.inf),
    )
    return [replace(each, rank=rank) for each, rank, _ in shown]


def _part(
    part: PartRecord,
    suite: SuiteRecord,
    cells: Sequence[CellRecord],
    own: Mapping[CellRecord, Summary],
) -> PartValue:
    if part.unscored:
        return PartValue(part.benchmark, (), part.unscored)
    scored, problems = list[ScoredPart](), list[str]()
    for name, text in part.protocols.items():
        rows = [
            (summary, row)
            for summary in own.values()
            for row in summary.rows
            if _measures(row, name, text)
        ]
        whole = [
            (summary, row) for summary, row in rows if "incomplete" not in row.selection and row.n
        ]
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


def _problem(
    part: PartRecord, name: str, cells: Sequence[CellRecord], rows: Sequence[Row], whole: int
) -> str:
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
    subjects = (
        outcome.subjects if outcome.protocol.aggregation == "macro" else ["all"] * len(credit)
    )
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
        value, se = (
            math.fsum(values) / len(values),
            math.sqrt(math.fsum(each**2 for each in errors)) / len(errors),
        )
    return ScoredPart(
        protocol=row.protocol,
        metric=row.metric,
        value=value,
        raw=row.value,
        se=se,
        n=row.n,
        missing=row.missing,
        strata=tuple(strata) if row.share else (),
    )


def _choices(summary: Summary, outcome: Outcome) -> Integers:
    """How many choices each item has, int64 [items]."""
    table = read_item_table(summary.folder, summary.manifest)
    choices = dict(zip(table["item"].to_pylist(), _lengths(table["choices"]), strict=True))
    known = np.array([choices[item] for item in outcome.ids.to_pylist()], dtype=np.int64)
    return known + more_options(outcome.protocol.prepare)


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
    return {
        model: names[model] if called.count(names.get(model, "")) == 1 else model
        for model in sweep.models
    }


def _readable(runs: Sequence[Path]) -> Sequence[Path]:
    """The runs with a manifest and an item table that can be used; all of them where that is none."""
    reasons: dict[Path, str] = {}
    for run in runs:
        try:
            check_items(run, read_manifest(run))
        except StoreError as error:
            reasons[run] = error.message
    if len(reasons) == len(runs):
        return runs
    for reason in reasons.values():
        warn(f"a run is left out: {reason}", stacklevel=3)
    return [run for run in runs if run not in reasons]


def _nothing(folder: Path, sweep: Sweep) -> UsageError:
    """That a sweep has no run yet, why, and what to do."""
    reasons = list(dict.fromkeys(cell.failure for cell in sweep.cells if cell.failure))
    asked = counted(len(sweep.cells), "run")
    why = (
        f"each of {asked} failed; mend what stands below, and"
        if reasons
        else f"{asked} were to come, and"
    )
    again = "type the same `choicewise sweep` line again, which asks what lacks"
    return UsageError(f"no run is there in {folder}: {why} {again}", reasons)


def _within(folder: Path) -> list[Path]:
    """The runs directly in a folder that is none itself; numbers in their names by size: step50 before step100."""
    if os.path.exists(folder / MANIFEST):
        return []
    with suppress(OSError):  # whoever opens the folder says what is wrong with it
        return sorted(
            (manifest.parent for manifest in folder.glob(f"*/{MANIFEST}")), key=_by_number
        )
    return []


def _by_number(run: Path) -> list[tuple[str, int, str]]:
    parts = re.findall(r"(\D*)(\d*)", run.name)
    return [(text, int(digits or -1), digits) for text, digits in parts]


def _sweep(folder: Path) -> tuple[Path, Sweep] | None:
    """The sweep in a folder, or what it says of the one model whose folder this is; None for any other folder."""
    if is_sweep(folder):
        return folder, read_sweep(folder)
    whole = folder.resolve()
    if os.path.exists(folder / MANIFEST) or not is_sweep(whole.parent):
        return None
    sweep = read_sweep(whole.parent)
    own = tuple(cell for cell in sweep.cells if cell.folder.partition("/")[0] == whole.name)
    return (
        (folder.parent if folder.name == whole.name else whole.parent, replace(sweep, cells=own))
        if own
        else None
    )


def _rivalry(average: Average) -> tuple[object, ...]:
    there = tuple(part.benchmark for part in average.parts if part.best is not None)
    return average.suite, there, average.selection


def _part_json(part: PartValue) -> dict[str, Any]:
    best = part.best
    counts = {} if best is None else _scored_json(best)
    empty = dict.fromkeys(("protocol", "metric", "value", "raw", "se", "n", "missing"))
    return {
        "benchmark": part.benchmark,
        **empty,
        **counts,
        "problem": part.problem,
        "protocols": list(map(_scored_json, part.scored)),
    }


def _scored_json(scored: ScoredPart) -> dict[str, Any]:
    return {name: value for name, value in asdict(scored).items() if name != "strata"}
