"""Build the tables of numbers that are no shares of 1 for a page."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from choicewise.page.item_views import words
from choicewise.page.study import Study
from choicewise.page.tables import PageTable, page_table
from choicewise.protocols.metrics import METRICS, Metric
from choicewise.report.tables import by_metric, letter_notes, value_cell
from choicewise.results.number import Number
from choicewise.table import Column, Span, Table
from choicewise.util.text import sentence


@dataclass(frozen=True, kw_only=True)
class MetricTable:
    """The numbers of one metric that runs were asked for themselves; ``notes``: what they do not
    say.
    """

    metric: str
    direction: str
    about: str
    table: PageTable
    notes: tuple[str, ...]


def metric_tables(study: Study) -> list[MetricTable]:
    """Return a table for each metric whose numbers are no shares of 1, the best number first."""
    metrics = by_metric(study.other_metrics)
    return [_metric_table(metric, rows) for metric, rows in metrics.items()]


def _metric_table(name: str, rows: Sequence[Number]) -> MetricTable:
    metric = METRICS[name]
    # A column that is the same in all rows says nothing.
    has_groups = len({row.identity.subject for row in rows}) > 1
    columns = [
        Column("model"),
        Column("protocol"),
        Column("group", optional=True),
        Column("value", "number", heading=metric.unit or "value"),
        *interval_columns("number"),
        Column("items", "count"),
        Column("uniform", "number", optional=True, blank=True),
        Column("if calibrated", "number", optional=True, blank=True),
        *rank_columns(optional=True),
        Column("warnings", optional=True, blank=True),
        Column("ids"),
    ]
    cells = [_cells(row, metric, has_groups) for row in sorted(rows, key=_worst_last)]
    return MetricTable(
        metric=name,
        direction=metric.direction,
        about=f"{metric.description[:1].upper()}{metric.description[1:]}.",
        table=page_table(Table(name=name, title=name, columns=columns, rows=cells)),
        notes=tuple(sentence([note]) for note in letter_notes(rows)),
    )


def _cells(row: Number, metric: Metric, has_groups: bool) -> list[Any]:
    cells: list[Any] = [row.identity.model, row.identity.protocol]
    cells.append(row.identity.subject if has_groups else None)
    cells += [value_cell(row), row.interval.low, row.interval.high, row.counts.n]
    # Over all items together, a uniform guess has no mean.
    cells.append(None if metric.pooled else _number_or_none(row.chance))
    cells.append(_number_or_none(row.calibrated))
    cells += rank_cells(row)
    cells += [words(row) or None, row_ids(row)]
    return cells


def _worst_last(row: Number) -> float:
    return math.inf if math.isnan(row.merit) else -row.merit


def _number_or_none(value: float) -> float | None:
    return None if math.isnan(value) else value


def interval_columns(kind: str) -> list[Column]:
    """Return the columns of a 95 % interval."""
    return [
        Column("ci_low", kind, heading="95 % interval"),
        Column("ci_high", kind, joined=" – "),
    ]


def rank_columns(optional: bool) -> list[Column]:
    """Return the columns of a rank with the ranks that tests leave open: "3 (1–4)"."""
    return [
        Column("rank", "integer", optional=optional, blank=True),
        Column("possible ranks", "ranks", joined=" (", closed=")"),
    ]


def rank_cells(row: Number) -> list[Any]:
    """Return the cells of :func:`rank_columns`."""
    if row.ranks.rank is None or row.ranks.low is None or row.ranks.high is None:
        return [row.ranks.rank, None]
    return [row.ranks.rank, Span(row.ranks.low, row.ranks.high)]


def row_ids(row: Number) -> str:
    """Return the short ids of protocol, texts, tokens and model."""
    return f"{row.identity.id} {row.identity.i} {row.identity.t} {row.identity.r}"
