"""Tables of numbers that are no shares of 1, for a page."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from choicewise.page.item_views import words
from choicewise.page.study import Study
from choicewise.protocols.metrics import METRICS
from choicewise.report.tables import interval_text, letter_notes, shown_value
from choicewise.results.rows import Row
from choicewise.util import text
from choicewise.util.text import plain, sentence


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
    every = [
        ("model", "", [row.model for row in ordered]),
        ("protocol", "", [row.protocol for row in ordered]),
    ]
    grouped = len({row.subject for row in rows}) > 1
    if grouped:
        every.append(("group", "", [row.subject for row in ordered]))
    unit, pooled = METRICS[metric].unit, METRICS[metric].pooled
    every += [
        (unit or "value", "number", [shown_value(row, plain) for row in ordered]),
        ("95 % interval", "number", [interval_text(row) for row in ordered]),
        ("items", "number", [f"{row.n:,}" for row in ordered]),
        ("uniform", "number", ["" if pooled else _known(row.chance) for row in ordered]),
        ("if calibrated", "number", [_known(row.calibrated) for row in ordered]),
        ("rank", "number", [_rank(row) for row in ordered]),
        ("warnings", "breaks", [words(row) for row in ordered]),
        ("ids", "code", [f"{row.id} {row.i} {row.t} {row.r}" for row in ordered]),
    ]
    optional = {"uniform", "if calibrated", "rank", "warnings"}
    shown = [
        (name, kind, cells) for name, kind, cells in every if name not in optional or any(cells)
    ]
    columns = tuple((name, kind) for name, kind, _ in shown)
    lines = tuple(zip(*(cells for _, _, cells in shown), strict=True))
    about = METRICS[metric].description
    notes = tuple(sentence([note]) for note in letter_notes(rows))
    return MetricTable(
        metric, METRICS[metric].direction, f"{about[:1].upper()}{about[1:]}.", columns, lines, notes
    )


def _known(value: float) -> str:
    return "" if math.isnan(value) else plain(value)


def _rank(row: Row) -> str:
    if row.rank is None:
        return ""
    return f"{row.rank}" + (
        f" ({text.ranks(row.rank_low, row.rank_high)})" if row.rank_low is not None else ""
    )
