"""A cell of the board as HTML.  A page has up to ten thousand of them, which a template would take too long for."""

import math
from typing import TYPE_CHECKING

from choicewise.report.table import percent
from choicewise.results.diagnosis import FLAGS
from choicewise.web.board.column import Column
from choicewise.web.board.line import Cell, Spread
from choicewise.web.number import interval, ranks

if TYPE_CHECKING:
    from markupsafe import Markup

MARKS = dict(zip(FLAGS, "abcdefghijklmnopqrstuvwxyz", strict=False))
"""The letter that stands for a doubt beside a number; the words are below the table."""

_WIDTH = 1.5
"""Percent of the scale that a bar is wide at least, so that it can be seen."""


def cell_markup(cell: Cell, column: Column, rank_range: tuple[int, int] | None, sortable: bool = False) -> "Markup":
    """The number with its doubts, the bar of its interval and its rank, or the words in its place, in a ``td``.

    ``sortable``: with what a script sorts and filters by.
    """
    from markupsafe import Markup, escape

    row = cell.row
    if row is None or cell.rank is None:
        return Markup(f'<td><i class="words">{escape(cell.words)}</i></td>')
    guess = guessed(cell)
    marks = doubts(cell)
    shown = ranks(*rank_range) if rank_range else str(cell.rank)
    parts = [
        "<td",
        ' class="guessed"' if guess else "",
        f' data-value="{row.value:.6g}" data-doubts="{" ".join(row.diagnosis.flags)}"' if sortable else "",
        f"><b>{percent(row.value)}</b>",
        f'<sup><span class="only-read"> doubts </span>{marks}</sup>' if marks else "",
        "" if math.isnan(row.ci_low) else bar(row.ci_low, row.ci_high, column.chance),
        "<small>",
        f'<span class="only-read">rank </span>{shown}' if column.measured > 1 else "",
        '<span class="only-read"> no better than guessing</span>' if guess else "",
        f" <em>{row.n:,} items</em>" if row.n != column.n else "",
        "</small></td>",
    ]
    return Markup("".join(parts))


def spread_markup(spread: Spread | None, chance: float, sortable: bool = False) -> "Markup":
    """The median with the lowest and the highest number, or how many of the numbers are there, in a ``td``."""
    from markupsafe import Markup

    if spread is None or not spread.n:
        return Markup("<td></td>")
    if math.isnan(spread.median):
        return Markup(f'<td class="median"><i class="words">{spread.n} of {spread.of}</i></td>')
    value = f' data-value="{spread.median:.6g}"' if sortable else ""
    line = bar(spread.low, spread.high, chance, spread.median)
    low_high = interval(spread.low, spread.high)
    return Markup(f'<td class="median"{value}><b>{percent(spread.median)}</b>{line}<small>{low_high}</small></td>')


def bar(low: float, high: float, chance: float, value: float = math.nan) -> "Markup":
    """A bar from ``low`` to ``high`` on a line from 0 to 1, with a tick at ``chance`` and a stroke at ``value``."""
    from markupsafe import Markup

    width = max(100 * (high - low), _WIDTH)
    tick = "" if math.isnan(chance) else f'<rect class="chance" x="{100 * chance:.1f}%" width="1" height="7"/>'
    stroke = "" if math.isnan(value) else f'<rect class="stroke" x="{100 * value:.1f}%" width="2" height="7"/>'
    interval = f'<rect x="{min(100 * low, 100 - width):.1f}%" y="2" width="{width:.1f}%" height="3"/>'
    return Markup(f'<svg class="bar" aria-hidden="true">{tick}{interval}{stroke}</svg>')


def doubts(cell: Cell) -> str:
    """The letters of the doubts about a number."""
    return "" if cell.row is None else "".join(MARKS[flag] for flag in cell.row.diagnosis.flags)


def guessed(cell: Cell) -> bool:
    """Whether a number is no better than guessing: its 95 % interval reaches down to the expected value of guessing."""
    return cell.row is not None and cell.row.ci_low <= cell.row.chance
