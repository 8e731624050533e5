"""What is shown of a board, and in which order: the state that an address holds."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal
from urllib.parse import urlencode

from choicewise.results.diagnosis import FLAGS
from choicewise.web.board.board import Board
from choicewise.web.board.column import Column, handful
from choicewise.web.board.line import Cell, Line

MOST = 12
"""Columns that are chosen where nobody chose them."""

ANY = "any"
"""Numbers with any doubt; see :attr:`View.doubt`."""

Order = Literal["", "up", "down"]


@dataclass(frozen=True, slots=True)
class View:
    """One state of the board.

    ``data`` (ids of parts of the data), ``family`` and ``protocol`` (names) choose the columns, ``columns`` says "all"
    where all are wanted instead of a handful.  ``model`` is a part of a name.  ``doubt`` leaves only the numbers that a
    flag was raised for, with "any" those with any flag, with "none" those without.  ``sort`` is the id of a column,
    "model", or "median-" and the id of a part; nothing for the median, best first.  ``order``: "up" from the lowest,
    "down" from the highest; nothing for best first, and names from A to Z.
    """

    data: tuple[str, ...] = ()
    family: tuple[str, ...] = ()
    protocol: tuple[str, ...] = ()
    columns: str = ""
    model: str = ""
    doubt: str = ""
    sort: str = ""
    order: Order = ""

    def with_(self, **changes: Any) -> "View":
        """The same state but for these changes."""
        return replace(self, **changes)

    def query(self) -> str:
        """The state as the query of an address, without what it does not say; one state has one spelling."""
        pairs: list[tuple[str, str]] = []
        for each in fields(self):
            value = getattr(self, each.name)
            pairs += [(each.name, one) for one in ((value,) if isinstance(value, str) else value) if one]
        return urlencode(pairs, errors="replace")


def read_view(pairs: Iterable[tuple[str, str]]) -> View:
    """The state that a query says, as (name, value) pairs.  What no state can mean is left out."""
    told: dict[str, list[str]] = {}
    for name, value in pairs:
        if value:
            told.setdefault(name, []).append(value)
    data, family, protocol = (tuple(dict.fromkeys(told.get(name, ()))) for name in ("data", "family", "protocol"))
    columns, model, doubt, sort = (told.get(name, [""])[-1] for name in ("columns", "model", "doubt", "sort"))
    order: Order = "up" if told.get("order", [""])[-1] == "up" else "down" if "order" in told else ""
    return View(data, family, protocol, "all" if columns == "all" else "", model, doubt, sort, order)


def known_view(board: Board, view: View) -> tuple[View, bool]:
    """The view without an order that ``board`` does not have, and whether all that it says is of the board: then there
    are only so many of its kind."""
    parts = {column.key.part.id for column in board.columns}
    sorts = {*(column.id for column in board.columns), "model", *(f"median-{part}" for part in parts)}
    known = (
        not view.model
        and parts.issuperset(view.data)
        and {column.family for column in board.columns}.issuperset(view.family)
        and {column.protocol for column in board.columns}.issuperset(view.protocol)
        and view.doubt in {"", ANY, "none", *FLAGS}
    )
    return view if view.sort in sorts else view.with_(sort=""), known


@dataclass(frozen=True, eq=False)
class Shown:
    """What a view leaves of a board.

    ``medians``: the ids of the parts of the data that have a column of medians.  ``sort``: what the lines are sorted
    by, which is the median where the view asks for a column that is not there; ``downwards`` says how.
    """

    view: View
    columns: tuple[Column, ...]
    medians: tuple[str, ...]
    lines: tuple[Line, ...]
    sort: str
    downwards: bool


def shown(board: Board, view: View) -> Shown:
    """What ``view`` shows of ``board``.  Lines without a number to sort by come last, in the order of their names."""
    columns = chosen_columns(board, view)
    medians = tuple(dict.fromkeys(column.key.part.id for column in columns if column.key.part.id in board.panels))
    ids = {column.id for column in columns}
    lines = [
        line
        for line in board.lines
        if view.model.casefold() in line.model.casefold()
        and any(is_shown(cell, view) for column, cell in line.cells.items() if column in ids)
    ]
    sorts = {*ids, "model", *(f"median-{part}" for part in medians)}
    default = f"median-{medians[0]}" if medians else "model"
    sort = view.sort if view.sort in sorts else default
    downwards = view.order == "down" or (not view.order and sort != "model")
    return Shown(view, columns, medians, tuple(_sorted(lines, sort, downwards)), sort, downwards)


def chosen_columns(board: Board, view: View) -> tuple[Column, ...]:
    """The columns that a view asks for, in the order of the board."""
    among = [
        column
        for column in board.columns
        if (not view.data or column.key.part.id in view.data)
        and (not view.family or column.family in view.family)
        and (not view.protocol or column.protocol in view.protocol)
    ]
    if view.columns == "all" or view.family or view.protocol:
        return tuple(among)
    return handful(among, MOST)


def is_shown(cell: Cell, view: View) -> bool:
    """Whether a view shows a cell; words are shown only where doubts don't matter."""
    if not view.doubt:
        return True
    if cell.row is None:
        return False
    flags = cell.row.diagnosis.flags
    return not flags if view.doubt == "none" else bool(flags) if view.doubt == ANY else view.doubt in flags


def _sorted(lines: Sequence[Line], sort: str, downwards: bool) -> list[Line]:
    by_name = sorted(lines, key=lambda line: (line.model.casefold(), line.model, line.told_apart))
    if sort == "model":
        return by_name[::-1] if downwards else by_name
    numbers = {line.id: _number(line, sort) for line in by_name}
    measured = [line for line in by_name if not math.isnan(numbers[line.id])]
    measured.sort(key=lambda line: numbers[line.id] * (-1 if downwards else 1))
    return [*measured, *(line for line in by_name if math.isnan(numbers[line.id]))]


def _number(line: Line, sort: str) -> float:
    if sort.startswith("median-"):
        spread = line.spreads.get(sort.removeprefix("median-"))
        return math.nan if spread is None else spread.median
    return line.cells[sort].value if sort in line.cells else math.nan
