"""The averages of suites as tables: a line per model, a column per part, and what is missing below."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Group

from choicewise.report.table import percent, table, titled
from choicewise.report.visible_text import safe
from choicewise.results.average import Average, PartValue


@dataclass(frozen=True)
class AverageTable:
    """One suite in texts: a row per model under ``columns``, and what its numbers are not, a line each."""

    title: str
    columns: list[str]
    rows: list[list[str]]
    notes: list[str]


def average_tables(averages: Sequence[Average]) -> list[AverageTable]:
    """One table per suite and part of the data."""
    suites: dict[tuple[str, str], list[Average]] = {}
    for each in averages:
        suites.setdefault((each.suite, each.selection), []).append(each)
    return [_table(own) for own in suites.values()]


def printed(shown: AverageTable) -> Group:
    """The table for a terminal."""
    lines = table(*shown.columns)
    for row in shown.rows:
        lines.add_row(*map(safe, row))
    return titled(shown.title, lines, *shown.notes)


def _table(averages: Sequence[Average]) -> AverageTable:
    first = averages[0]
    rows = []
    for each in averages:
        mark = "" if each.complete else f" of {len(each.counted)} of {len(each.parts)}"
        cells = [_cell(part, each.normalised) for part in each.parts]
        interval = "-" if math.isnan(each.interval[0]) else " – ".join(map(percent, each.interval))
        rows.append([each.model, *cells, f"{percent(each.mean)}{mark}", interval, f"{each.n:,}", str(each.rank or "")])
    about = f" ({first.selection})" if first.selection else ""
    state = "" if all(each.complete for each in averages) else ", incomplete"
    title = f"{first.suite}{about}: values in % and their plain mean{state}"
    columns = ["model", *(part.benchmark for part in first.parts), "average", "95 % interval", "n", "rank"]
    return AverageTable(title, columns, rows, _notes(averages))


def _notes(averages: Sequence[Average]) -> list[str]:
    """Parts that are missing, and how values and the mean are made."""
    lines = []
    problems: dict[tuple[str, str], list[str]] = {}
    for each in averages:
        for part in each.parts:
            if part.best is None:
                problems.setdefault((part.benchmark, part.problem), []).append(each.model)
    for (benchmark, problem), models in problems.items():
        who = "" if len(models) == len(averages) else f" of {', '.join(models)}"
        lines.append(f"{benchmark}{who} is missing: {problem}")
    if any(not each.complete for each in averages):
        lines.append("incomplete: the mean is over the parts that are there, and is not the suite's number")
    if averages[0].normalised:
        lines.append("values count from guessing (0) to all right (100), by subtask; raw values in brackets")
    several = [(each.model, part) for each in averages for part in each.parts if len(part.scored) > 1]
    lines += [f"{model}: the better counts of {_scored(part)}" for model, part in several]
    return lines


def _cell(part: PartValue, normalised: bool) -> str:
    best = part.best
    if best is None:
        return "-"
    return percent(best.value) + (f" ({percent(best.raw)})" if normalised else "")


def _scored(part: PartValue) -> str:
    return " and ".join(f"{each.protocol} {percent(each.value)}" for each in part.scored)
