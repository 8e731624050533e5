"""Reports as tables for people: one per model, and one of ranks when there are several models."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.table import Table

from choicewise.report.rows import Row

_DOUBTS = ("missing", "ties", "skipped", "shots_dropped", "truncated", "merged")
"""Counts that are shown where they are not all zero."""

_WIDE = 160
"""Columns of a table that goes to a file or a pipe, where nothing limits it."""


def console() -> Console:
    """Where results go: stdout, as wide as the terminal."""
    return Console(width=None if sys.stdout.isatty() else _WIDE, highlight=False)


def report_tables(rows: Sequence[Row]) -> list[Table]:
    """One table per model and dataset, then the ranks when the same was measured on several models."""
    runs: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        runs.setdefault((row.model, f"{row.dataset} {row.data}"), []).append(row)
    several = len({row.model for row in rows}) > 1
    tables = [_run_table(f"{model} on {dataset}", found, several) for (model, dataset), found in runs.items()]
    return [*tables, rank_table("accuracy in % and rank", _cells(rows))] if several else tables


def rank_table(title: str, cells: Mapping[str, Mapping[str, tuple[float, int | None]]]) -> Table:
    """A matrix of values and ranks: ``cells[row][column]`` is (share of 1, rank)."""
    columns = list(dict.fromkeys(column for found in cells.values() for column in found))
    table = _table(title, "", *columns)
    for name, found in cells.items():
        table.add_row(name, *(_ranked(*found[column]) if column in found else "" for column in columns))
    return table


def _cells(rows: Sequence[Row]) -> dict[str, dict[str, tuple[float, int | None]]]:
    grouped = len({row.subject for row in rows}) > 1
    cells: dict[str, dict[str, tuple[float, int | None]]] = {}
    for row in rows:
        name = f"{row.protocol} {row.subject}" if grouped else row.protocol
        cells.setdefault(name, {})[row.model] = (row.value, row.rank)
    return cells


def _run_table(title: str, rows: Sequence[Row], several: bool) -> Table:
    shown = [name for name in _DOUBTS if any(getattr(row, name) for row in rows)]
    grouped = len({row.subject for row in rows}) > 1
    groups = ["group"] if grouped else []
    table = _table(title, "protocol", *groups, "metric", "%", "95 % interval", "n", *shown, *["rank"][:several], "id")
    for row in rows:
        table.add_row(
            row.protocol,
            *([row.subject] if grouped else []),
            row.metric,
            percent(row.value),
            f"{percent(row.ci_low)} – {percent(row.ci_high)}",
            str(row.n),
            *(str(getattr(row, name)) for name in shown),
            *([str(row.rank or "")] if several else []),
            row.id,
        )
    return table


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for number, column in enumerate(columns):
        text = column in ("protocol", "group", "metric", "id")
        table.add_column(column.replace("_", " "), justify="left" if text or number == 0 else "right", overflow="fold")
    return table


def percent(share: float) -> str:
    """A share of 1 in percent with one decimal; a dash when there is no number."""
    return "-" if math.isnan(share) else f"{100 * share:.1f}"


def _ranked(share: float, rank: int | None) -> str:
    return percent(share) if rank is None else f"{percent(share)} ({rank})"
