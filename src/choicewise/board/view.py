"""The states of the board: what a view shows, in which order, under which headings, and as an address."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import groupby
from typing import Any, Literal
from urllib.parse import urlencode

from choicewise.board.model import Board, Cell, Column, Line, Part
from choicewise.report.findings import sentences
from choicewise.results.compare import published
from choicewise.results.finding import finding
from choicewise.results.rows import WARNINGS

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

    def with_(self, **changes: Any) -> View:
        """The same state but for these changes; for templates."""
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
        and view.doubt in {"", ANY, "none", *WARNINGS}
    )
    return view if view.sort in sorts else replace(view, sort=""), known


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
    flags = cell.row.diagnosis.warnings
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


def handful(columns: Sequence[Column], most: int) -> tuple[Column, ...]:
    """At most so many of ``columns``, in their order: headlines, of every part of the data and family in turn.

    Of the headlines of a family those measured most often come first, then those under which numbers were published.
    """
    headlines = [column for column in columns if column.headline] or list(columns)
    turns: dict[tuple[Part, str], int] = {}
    order: list[tuple[int, int, Column]] = []
    for column in sorted(headlines, key=lambda each: (-each.measured, each.p not in published())):
        turn = turns[column.key.part, column.family] = turns.get((column.key.part, column.family), 0) + 1
        order.append((turn, len(order), column))
    chosen = {column.id for _, _, column in sorted(order, key=lambda each: each[:2])[:most]}
    return tuple(column for column in columns if column.id in chosen)


@dataclass(frozen=True, slots=True)
class PartHeading:
    """The columns about one part of the data.

    ``n`` items and ``chance`` (a share of 1) where all columns agree in them, else None and NaN.  ``panel``: of how
    many numbers the median is; 0 where there is none.  ``prefix``: what the names of all protocols begin with.
    ``families``: the columns of each family, with whether another one has the same protocol and other texts.
    """

    part: Part
    dataset: str
    n: int | None
    chance: float
    panel: int
    prefix: str
    families: Mapping[str, Sequence[tuple[Column, bool]]]

    @property
    def width(self) -> int:
        """How many columns it spans."""
        return (self.panel > 0) + sum(map(len, self.families.values()))

    @property
    def median(self) -> str:
        """What a view sorts by for the median."""
        return f"median-{self.part.id}"


def headings(board: Board, columns: Sequence[Column]) -> tuple[PartHeading, ...]:
    """The headings over ``columns``, which are in the order of the board."""
    alike = Counter(replace(column.key, texts="") for column in board.columns)
    parts = []
    for part, members in groupby(columns, key=lambda column: column.key.part):
        own = list(members)
        families = {
            name: [(column, alike[replace(column.key, texts="")] > 1) for column in group]
            for name, group in groupby(own, key=lambda column: column.family)
        }
        sizes = {column.n for column in own if column.n}
        chances = {column.chance for column in own if not math.isnan(column.chance)}
        panel = len(board.panels.get(part.id, ()))
        size, chance = (sizes.pop() if len(sizes) == 1 else None), (chances.pop() if len(chances) == 1 else math.nan)
        parts.append(PartHeading(part, own[0].dataset, size, chance, panel, _prefix(own), families))
    return tuple(parts)


def sorted_by(seen: Shown, sort: str) -> View:
    """The view after a click on the heading of ``sort``: the other way round where the lines are sorted by it."""
    if seen.sort != sort:
        return replace(seen.view, sort=sort, order="")
    first_down = sort != "model"
    turned = seen.downwards == first_down
    return replace(seen.view, sort=sort, order=("up" if first_down else "down") if turned else "")


def order_of(seen: Shown, sort: str) -> str:
    """``ascending``, ``descending``, or nothing where the lines are sorted by something else."""
    return "" if seen.sort != sort else "descending" if seen.downwards else "ascending"


def _prefix(columns: Sequence[Column]) -> str:
    """``mmlu/`` where all protocols are of that benchmark."""
    benchmarks = {column.protocol.partition("/")[0] for column in columns}
    common = f"{benchmarks.pop()}/" if len(benchmarks) == 1 else ""
    return common if all(column.protocol.startswith(common) for column in columns) else ""


def board_finding(board: Board) -> str:
    """One to three sentences about the numbers that most models have; of a board without numbers, what it lacks.

    Numbers that are no shares of 1 have no column, and one sentence says so.
    """
    if not board.runs:
        return "No run is here yet."
    panel = {column for columns in board.panels.values() for column in columns}
    rows = [cell.row for line in board.lines for name, cell in line.cells.items() if name in panel and cell.row]
    rows += [row for run in board.runs for row in run.rows if not row.share]
    return " ".join(sentences(finding(rows))) if rows else "No run has been read yet."
