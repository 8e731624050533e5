"""Find the runs that folders hold, and average the suites of a sweep."""

from __future__ import annotations

import math
import os
import re
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import NamedTuple
from warnings import warn

import numpy as np
import pyarrow.compute as pc

from choicewise.errors import StoreError, UsageError
from choicewise.protocols.catalogue import plain_name
from choicewise.protocols.preparations import more_options
from choicewise.protocols.protocol import parse_signature
from choicewise.records import MANIFEST, CellRecord, PartRecord, SuiteRecord, Sweep
from choicewise.results.number import Number
from choicewise.results.outcomes import COMPARABLE, Outcome, Summary, ranks_among
from choicewise.results.rows import chosen_part
from choicewise.results.tables import read_item_table
from choicewise.scoring.intervals import ranks, standard_error, stratified
from choicewise.scoring.observed import Integers, Mask
from choicewise.store.folder import is_sweep, read_manifest, read_sweep
from choicewise.store.tables import check_items
from choicewise.util.jsonio import JsonDict, json_value
from choicewise.util.text import counted


def averages(folder: Path, sweep: Sweep, summaries: Mapping[Path, Summary]) -> list[Average]:
    """Return the average of every suite of ``sweep`` for every model, ranked.

    ``summaries``: of the runs in ``folder``, by their folders.
    """
    model_names = _model_names(folder, sweep, summaries)
    unranked = []
    for suite in sweep.suites:
        if suite.average == "none":
            continue
        for model in sweep.models:
            cells = [cell for cell in sweep.cells if cell.model == model]
            runs = []
            for cell in cells:
                run = folder / cell.folder
                if run in summaries:
                    runs.append(summaries[run])
            # A run of another suite on the same model may have another selection.
            selections: dict[str, None] = {}
            for summary in runs:
                if _is_of_suite(summary, suite):
                    selections[chosen_part(summary.manifest.selection)] = None
            unranked.append(
                Average(
                    suite=suite.name,
                    model=model_names[model],
                    normalised=suite.normalised,
                    parts=tuple(_part(part, suite, cells, runs) for part in suite.parts),
                    selection="; ".join(filter(None, selections)),
                )
            )
    return ranked_averages(unranked)


def run_folders(folders: Iterable[str | Path]) -> list[Path]:
    """Return the folders of runs, with the runs of a sweep in place of its folder; each once.

    The folder of one model of a sweep stands for the model's runs.  A folder that is no run and no
    sweep stands for the runs directly in it, in the order of their names.  If a folder stands for
    several runs, those that can't be read at all are left out, each with a warning.

    Raises StoreError if the record of a sweep is damaged, UsageError if a sweep has no run yet.
    """
    runs: list[Path] = []
    for folder in map(Path, folders):
        sweep = _sweep(folder)
        if sweep is None:
            runs += _readable(_runs_in(folder)) or [folder]
            continue
        root, record = sweep
        begun = []
        for cell in record.cells:
            run = root / cell.folder
            if (run / MANIFEST).exists():
                begun.append(run)
        if not begun:
            raise _no_run(folder, record)
        runs += _readable(begun)
    return list(dict.fromkeys(runs))


def sweeps(folders: Iterable[str | Path]) -> list[tuple[Path, Sweep]]:
    """Return the records of the sweeps among ``folders``, and the folders their cells lie in."""
    records = [_sweep(Path(folder)) for folder in folders]
    return [record for record in records if record is not None]


def one_run(folder: str | Path) -> Path:
    """Return the run in ``folder``.  Raises UsageError, with their names, if there are several."""
    runs = run_folders([folder])
    if len(runs) > 1:
        raise UsageError(
            f"{folder} holds {len(runs)} runs; name one of them", [str(run) for run in runs]
        )
    return runs[0]


class Stratum(NamedTuple):
    """Count items of a part that weigh alike: all, or those of a subject in a mean over subjects.

    ``right``: the sum of their credits.  ``size``: their number.  ``low``: the accuracy that counts
    as 0.
    """

    right: float
    size: int
    low: float = 0.0

    @property
    def normalised(self) -> float:
        """The accuracy on a scale from ``low`` (0) to all right (1); 0 below ``low``."""
        return max((self.right / self.size - self.low) / (1 - self.low), 0.0)


@dataclass(frozen=True, kw_only=True)
class ScoredPart:
    """Describe one protocol of a part: the ``raw`` value of its row, and the ``value`` that counts.

    The two differ if the suite normalises.  ``se``: of ``value``.  ``strata``: the items that
    ``value`` is a mean of; none if it is no share of 1.
    """

    protocol: str
    metric: str
    value: float
    raw: float
    se: float
    n: int
    missing: int
    strata: tuple[Stratum, ...]

    def as_json(self) -> JsonDict:
        """Return the part as JSON has it."""
        content = asdict(self)
        del content["strata"]
        return content


@dataclass(frozen=True)
class PartValue:
    """Hold a part of a suite for one model, of whose protocols the best counts.

    ``problem``: why the part has no number; empty if it has one.
    """

    benchmark: str
    scored: tuple[ScoredPart, ...]
    problem: str = ""

    @property
    def best(self) -> ScoredPart | None:
        """The protocol that counts, the first of equal ones; None if there is no number."""
        placed = ranks([scored.value for scored in self.scored]).tolist()
        if 1 not in placed:
            return None
        return self.scored[placed.index(1)]


@dataclass(frozen=True, kw_only=True)
class Average:
    """Hold the number of a suite for one model.

    ``selection``: the part of the data that the numbers are about, in words; empty for all of it.
    ``mean``: of the parts that have a number; it is the suite's number if all have one.
    """

    suite: str
    model: str
    normalised: bool
    parts: tuple[PartValue, ...]
    selection: str = ""
    rank: int | None = None

    @cached_property
    def counted(self) -> tuple[ScoredPart, ...]:
        """The protocols that the mean is over, one for each part with a number."""
        best_of_parts = [part.best for part in self.parts]
        return tuple(best for best in best_of_parts if best is not None)

    @property
    def complete(self) -> bool:
        """Check that every part has a number."""
        return len(self.counted) == len(self.parts)

    @property
    def mean(self) -> float:
        """The plain mean of the parts that have a number, NaN without any."""
        if not self.counted:
            return math.nan
        return math.fsum(part.value for part in self.counted) / len(self.counted)

    @property
    def se(self) -> float:
        """The standard error of the mean: √(Σ se²) / parts, as their items are independent."""
        if not self.counted:
            return math.nan
        return math.sqrt(math.fsum(part.se**2 for part in self.counted)) / len(self.counted)

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % score interval of the mean, (low, high).

        It is NaN without any part, or if the value of a part is no share of 1.
        """
        if not self.counted or not all(part.strata for part in self.counted):
            return math.nan, math.nan
        strata: list[Stratum] = []
        strata_of_part: list[int] = []
        for part in self.counted:
            strata += part.strata
            strata_of_part += [len(part.strata)] * len(part.strata)
        rights, sizes, lows = np.array(strata, dtype=np.float64).T
        # Parts weigh alike, and so do the strata of a part.
        scale = len(self.counted) * np.array(strata_of_part)
        weights = 1 / (scale * (1 - lows))
        low, high = np.array(stratified(rights, sizes, weights=weights)) - weights @ lows
        # The mean counts accuracies below guessing as 0, the interval as they are: the mean may lie
        # outside of it.
        return min(max(float(low), 0.0), self.mean), max(float(high), self.mean)

    @property
    def n(self) -> int:
        """The number of items that the parts are means over."""
        return sum(part.n for part in self.counted)

    def as_json(self) -> JsonDict:
        """Return a row of a report: dataset and protocol are the suite, the metric is ``average``.

        ``value`` and its interval are null if a part is missing; ``mean_of_parts`` is the mean over
        the other parts.
        """
        value = math.nan
        se = math.nan
        low, high = math.nan, math.nan
        if self.complete:
            value = self.mean
            se = self.se
            low, high = self.interval
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
    """Rank the averages among those of the same suite, parts and selection; the best comes first.

    An average with a part over far fewer items than that part of a rival gets no rank, and comes
    after the ranked ones.
    """
    rivalries = [_rivalry(average) for average in averages]
    item_counts = [_item_counts(average) for average in averages]
    most: dict[tuple[Hashable, str], int] = {}
    for rivalry, counts in zip(rivalries, item_counts, strict=True):
        for benchmark, count in counts:
            most[rivalry, benchmark] = max(most.get((rivalry, benchmark), 0), count)

    means = []
    for average, rivalry, counts in zip(averages, rivalries, item_counts, strict=True):
        mean = average.mean
        # An average without a mean gets no rank.
        for benchmark, count in counts:
            if count < COMPARABLE * most[rivalry, benchmark]:
                mean = math.nan
        means.append(mean)

    placed = ranks_among(means, rivalries)
    for rivalry, count in Counter(rivalries).items():
        ranked = []
        for index, rank in enumerate(placed):
            if rivalries[index] == rivalry and rank is not None:
                ranked.append(index)
        if len(ranked) == 1 < count:
            placed[ranked[0]] = None  # its rivals all scored too few items

    suites = [average.suite for average in averages]
    order = ranks_among(means, suites)

    def position(index: int) -> tuple[int, int, float]:
        first_of_suite = suites.index(suites[index])
        return first_of_suite, -len(averages[index].counted), order[index] or math.inf

    indices = sorted(range(len(averages)), key=position)
    return [replace(averages[index], rank=placed[index]) for index in indices]


def _item_counts(average: Average) -> list[tuple[str, int]]:
    """Return the benchmarks of the parts with a number, and the items that these are over."""
    return [(part.benchmark, part.best.n) for part in average.parts if part.best is not None]


def _part(
    part: PartRecord,
    suite: SuiteRecord,
    cells: Sequence[CellRecord],
    runs: Sequence[Summary],
) -> PartValue:
    if part.unscored:
        return PartValue(part.benchmark, (), part.unscored)
    scored: list[ScoredPart] = []
    problems: dict[str, None] = {}
    for name, text in part.protocols.items():
        rows: list[Number] = []
        complete: list[tuple[Summary, Number]] = []
        for summary in runs:
            for row in summary.rows:
                if not _is_under(row, name, text):
                    continue
                rows.append(row)
                if "incomplete" not in row.identity.selection and row.counts.n:
                    complete.append((summary, row))
        # Of several complete rows it is not known which dataset the suite means.
        if len(complete) == 1:
            summary, row = complete[0]
            scored.append(_scored(summary, row, suite.normalised))
        elif complete:
            problems[f"{name} was measured on several datasets"] = None
        elif rows:
            problems[f"{name}: {rows[0].identity.selection or 'nothing could be scored'}"] = None
        else:
            problems[_failure(part, cells) or f"{name} has no run yet"] = None
    return PartValue(part.benchmark, tuple(scored), "; ".join(problems))


def _is_under(row: Number, name: str, text: str) -> bool:
    """Check that a row is of the protocol with this name and signature, in a chat or not."""
    plain, _ = plain_name(row.identity.protocol)
    if plain != name:
        return False
    wanted = parse_signature(text)
    measured = parse_signature(row.identity.signature)
    # Runs name the split if a protocol leaves it open.
    split = None if wanted.split is None else measured.split
    return wanted == replace(measured, split=split, chat=wanted.chat, system=wanted.system)


def _failure(part: PartRecord, cells: Sequence[CellRecord]) -> str:
    """Return why a run of the part failed, or an empty text."""
    for cell in cells:
        if cell.failure and cell.dataset == part.benchmark:
            return cell.failure
    return ""


def _scored(summary: Summary, row: Number, normalised: bool) -> ScoredPart:
    """Return the value of a row, or its place between guessing (0) and all right (1).

    Guessing is 1 / the most choices of an item: of every subject, if the value is a mean over them.
    The standard error is that of the raw value over ``1 - low``.
    """
    outcomes = {outcome.name: outcome for outcome in summary.outcomes.outcomes}
    outcome = outcomes[row.identity.protocol]
    credit = outcome.credit
    choices = _choices(summary, outcome) if normalised else np.ones(len(credit), dtype=np.int64)
    strata = []
    errors = []
    for is_member in _members(outcome):
        most_choices = int(choices[is_member].max())
        # Items without choices can't be guessed.
        low = 1 / most_choices if most_choices > 1 else 0.0
        credits = credit[is_member]
        strata.append(Stratum(float(credits.sum()), len(credits), low))
        errors.append(standard_error(credits) / (1 - low))
    value = row.value
    se = row.se
    if normalised:
        value = math.fsum(stratum.normalised for stratum in strata) / len(strata)
        se = math.sqrt(math.fsum(error**2 for error in errors)) / len(errors)
    if not row.share:
        strata = []
    return ScoredPart(
        protocol=row.identity.protocol,
        metric=row.identity.metric,
        value=value,
        raw=row.value,
        se=se,
        n=row.counts.n,
        missing=row.counts.missing,
        strata=tuple(strata),
    )


def _members(outcome: Outcome) -> Iterator[Mask]:
    """Yield masks of the scored items, by subject if the value is a mean over subjects."""
    is_scored = ~np.isnan(outcome.credit)
    if outcome.protocol.aggregation != "macro":
        yield is_scored
        return
    subjects = np.array(outcome.subjects, dtype=str)
    for subject in np.unique(subjects[is_scored]):
        yield is_scored & (subjects == subject)


def _choices(summary: Summary, outcome: Outcome) -> Integers:
    """Count the choices of each item, int64 [items]."""
    table = read_item_table(summary.folder, summary.manifest)
    counts = pc.list_value_length(table["choices"]).to_numpy().astype(np.int64)
    rows = pc.index_in(outcome.ids, table["item"].combine_chunks()).to_numpy()
    return counts[rows] + more_options(outcome.protocol.prepare)


def _is_of_suite(summary: Summary, suite: SuiteRecord) -> bool:
    """Check that a run has a protocol of the suite."""
    names: set[str] = set()
    for part in suite.parts:
        names.update(part.protocols)
    for protocol in summary.manifest.protocols:
        plain, _ = plain_name(protocol)
        if plain in names:
            return True
    return False


def _model_names(folder: Path, sweep: Sweep, summaries: Mapping[Path, Summary]) -> dict[str, str]:
    """Return the names of the models in reports, by the names that they were loaded by.

    Models whose reports would call them alike keep the names that they were loaded by.
    """
    names: dict[str, str] = {}
    for cell in sweep.cells:
        summary = summaries.get(folder / cell.folder)
        if summary is not None:
            names[cell.model] = summary.manifest.model.name
    # Two folders can hold models whose configurations have one name.
    counts = Counter(names.values())
    for model in sweep.models:
        if model not in names or counts[names[model]] > 1:
            names[model] = model
    return names


def _readable(runs: Sequence[Path]) -> Sequence[Path]:
    """Return the runs whose manifest and item table can be read; all of them if none can."""
    reasons: dict[Path, str] = {}
    for run in runs:
        try:
            check_items(run, read_manifest(run))
        except StoreError as error:
            reasons[run] = error.message
    if len(reasons) == len(runs):
        return runs  # the error of the first says more than that there is none
    for reason in reasons.values():
        warn(f"a run is left out: {reason}", stacklevel=3)
    return [run for run in runs if run not in reasons]


def _no_run(folder: Path, sweep: Sweep) -> UsageError:
    """Say that a sweep has no run yet, why, and what to do."""
    reasons = list(dict.fromkeys(cell.failure for cell in sweep.cells if cell.failure))
    runs = counted(len(sweep.cells), "run")
    why = f"{runs} planned, none begun"
    if reasons:
        why = f"each of {runs} failed. Fix the problems below"
    again = "Run the same `choicewise sweep` command again; it resumes"
    return UsageError(f"no run in {folder}: {why}. {again}", reasons)


def _runs_in(folder: Path) -> list[Path]:
    """Return the runs directly in a folder that is no run; step50 comes before step100."""
    if os.path.exists(folder / MANIFEST):
        return []
    with suppress(OSError):  # whoever opens the folder says what is wrong with it
        runs = [manifest.parent for manifest in folder.glob(f"*/{MANIFEST}")]
        return sorted(runs, key=_by_number)
    return []


def _by_number(run: Path) -> list[tuple[str, int, str]]:
    parts = re.findall(r"(\D*)(\d*)", run.name)
    return [(text, int(digits or -1), digits) for text, digits in parts]


def _sweep(folder: Path) -> tuple[Path, Sweep] | None:
    """Return the record of a sweep, and the folder that its cells lie in.

    Of the folder of one model of a sweep, the record has the cells of the model alone.  None for
    any other folder.
    """
    if is_sweep(folder):
        return folder, read_sweep(folder)
    resolved = folder.resolve()
    if os.path.exists(folder / MANIFEST) or not is_sweep(resolved.parent):
        return None
    sweep = read_sweep(resolved.parent)
    cells = []
    for cell in sweep.cells:
        model_folder, _, _ = cell.folder.partition("/")
        if model_folder == resolved.name:
            cells.append(cell)
    if not cells:
        return None
    # Paths are shown as they were typed, unless the folder is a link of another name.
    root = folder.parent if folder.name == resolved.name else resolved.parent
    return root, replace(sweep, cells=tuple(cells))


def _rivalry(average: Average) -> tuple[object, ...]:
    """Return what averages have in common that are ranked together."""
    benchmarks = tuple(part.benchmark for part in average.parts if part.best is not None)
    return average.suite, benchmarks, average.selection


def _part_json(part: PartValue) -> JsonDict:
    counts: JsonDict = dict.fromkeys(("protocol", "metric", "value", "raw", "se", "n", "missing"))
    if part.best is not None:
        counts = part.best.as_json()
    return {
        "benchmark": part.benchmark,
        **counts,
        "problem": part.problem,
        "protocols": [scored.as_json() for scored in part.scored],
    }
