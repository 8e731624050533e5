"""Section A: all numbers of one model."""

import math

from choicewise.report.table import percent
from choicewise.web import number
from choicewise.web.page import doubts
from choicewise.web.study import ShownRun

COLUMNS = (
    ("protocol", ""),
    ("family", ""),
    ("%", "number"),
    ("95 % interval", "number"),
    ("items", "number"),
    ("rank", "number"),
    ("doubts", "breaks"),
    ("ids", "code"),
)


def table(run: ShownRun) -> list[list[str]]:
    """The same numbers in rows, the families in the order of the chart and their numbers from the greatest."""
    families = list(dict.fromkeys(row.family for row in run.rows))
    ordered = sorted(run.rows, key=lambda row: (families.index(row.family), _rising(row.value)))
    grouped = len({row.subject for row in run.rows}) > 1
    cells = []
    for row in ordered:
        rank = "" if row.rank is None else f"{row.rank}"
        if row.rank is not None and row.rank_low is not None:
            rank += f" ({number.ranks(row.rank_low, row.rank_high)})"
        cells.append(
            [
                f"{row.protocol}, {row.subject}" if grouped else row.protocol,
                row.family,
                percent(row.value),
                number.interval(row.ci_low, row.ci_high),
                f"{row.n:,}",
                rank,
                doubts.words(row),
                f"{row.id} {row.i} {row.t} {row.r}",
            ]
        )
    return cells


def _rising(value: float) -> float:
    """The greatest first, and last what is no number."""
    return 1.0 if math.isnan(value) else -value
