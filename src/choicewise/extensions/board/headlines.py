"""The table that the board opens on: models by headline protocols, with their means and the ranks of these."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import fmean
from threading import Lock
from typing import Any

from choicewise.extensions.board.model import (
    Board,
    Cell,
    Column,
    Line,
    ListedRun,
    Ranges,
    Snapshot,
    in_order,
)
from choicewise.extensions.board.records import MEAN, Sorted, View, falls, is_shown
from choicewise.results.headline import Matrix, matrix
from choicewise.results.outcomes import Outcomes


@dataclass(frozen=True, slots=True)
class HeadlineLine:
    """A model with what it has in the columns that are shown, by their ids.

    ``mean``: of its numbers in all columns, NaN where one lacks; ``rank`` by it, with its bounds where they are known.
    ``flips`` and ``net``: the means of those of its columns that were asked in other orders, None where none was.
    """

    line: Line
    cells: Mapping[str, Cell]
    mean: float
    rank: int | None
    rank_low: int | None
    rank_high: int | None
    flips: float | None = None
    net: float | None = None


@dataclass(frozen=True, eq=False)
class Headlines(Sorted):
    """One column for every part of the data, and the models that have something in one of them, sorted by the mean
    where the view asks for nothing else.  ``titles``: what each column is called."""

    titles: tuple[str, ...]
    lines: tuple[HeadlineLine, ...]

    @property
    def turned(self) -> bool:
        """Whether a model was asked in other orders."""
        return any(line.flips is not None for line in self.lines)

    @cached_property
    def measured(self) -> tuple[str, ...]:
        """The ids of the columns: what the ranks depend on."""
        return tuple(column.id for column in self.columns)


def headlines(
    board: Board, view: View, means: Mapping[tuple[str, ...], Ranges] | None = None
) -> Headlines:
    """The table that ``view`` leaves of ``board``.

    The choice of columns goes by all that the view allows, as does every rank; models and numbers that it hides are
    left out afterwards.  ``means``: the ranges of ranks that are known, by the ids of the columns.
    """
    columns = _columns(board, view)
    table = _matrix(board, columns, ())
    chosen = [columns[each.signature, each.data, each.selection] for each in table.benchmarks]
    ids = [column.id for column in chosen]
    known = (means or {}).get(tuple(ids), {})
    standings = {standing.model: standing for standing in table.standings}
    lines = []
    for line in board.lines:
        cells = {
            name: line.cells[name]
            for name in ids
            if name in line.cells and is_shown(line.cells[name], view)
        }
        if not cells or view.model.casefold() not in line.model.casefold():
            continue
        standing = standings.get(line.id)
        whole = standing is not None and standing.rank is not None and len(cells) == len(ids)
        mean, rank = (
            (standing.mean, standing.rank) if standing is not None and whole else (math.nan, None)
        )
        low, high = known.get(line.id, (None, None)) if whole else (None, None)
        lines.append(HeadlineLine(line, cells, mean, rank, low, high, *_turned(cells.values())))
    sort = view.sort if view.sort in (*ids, "model") else MEAN
    order = view.order if sort == view.sort else ""
    downwards = order == "down" or (not order and falls(chosen, sort))
    number = None if sort == "model" else lambda each: _number(each, sort)
    ordered = in_order(lines, lambda each: each.line, number, downwards)
    return Headlines(view, sort, downwards, tuple(chosen), table.titles, tuple(ordered))


def headlines_record(snapshot: Snapshot, view: View) -> dict[str, Any]:
    """The same as plain data, of the state ``view``; shares of 1."""
    seen = headlines(snapshot.board, view, snapshot.means)
    return {
        "headlines": {
            "columns": list(seen.measured),
            "models": [
                {
                    "model": each.line.model,
                    "told_apart": each.line.told_apart,
                    "mean": each.mean,
                    "rank": each.rank,
                    "rank_low": each.rank_low,
                    "rank_high": each.rank_high,
                    "flips": each.flips,
                    "net_flips": each.net,
                }
                for each in seen.lines
            ],
        }
    }


def _turned(cells: Iterable[Cell]) -> tuple[float | None, float | None]:
    """The mean share of pairs of orders that flip, and net of repeats, over the protocols that have it."""
    own = [
        orders
        for cell in cells
        for orders in cell.run.orders
        if cell.row is not None and orders.protocol == cell.row.protocol
    ]
    net = [each.net for each in own if each.net is not None]
    return fmean(each.flips for each in own) if own else None, fmean(net) if own and len(
        net
    ) == len(own) else None


def mean_ranges(
    board: Board, ids: Sequence[str], decided: Callable[[ListedRun], Outcomes | None]
) -> Ranges:
    """The ranges of the ranks by the mean over the columns ``ids``, by the id of the line; empty where not known.

    ``decided``: what was decided of every item of a run.
    """
    columns = {_place(column): column for column in board.columns if column.id in ids}
    outcomes = []
    for line in board.lines:
        for name in ids:
            if (cell := line.cells.get(name)) is not None and cell.row is not None:
                of_run = decided(cell.run)
                if of_run is None:
                    return {}
                own = tuple(each for each in of_run.outcomes if each.name == cell.row.protocol)
                outcomes.append(replace(of_run, model=line.id, outcomes=own))
    table = _matrix(board, columns, outcomes)
    return {
        each.model: (each.rank_low, each.rank_high)
        for each in table.standings
        if each.rank_low is not None and each.rank_high is not None
    }


Members = frozenset[tuple[str, str]]
"""The runs with a number in one of several columns: id and version."""


class MeanRanges:
    """The ranges of ranks by means, by the ids of the columns, as long as the same runs have a number in these.

    Several threads may use it.
    """

    def __init__(self, decided: Callable[[ListedRun], Outcomes | None]) -> None:
        self._decided = decided
        self._known: dict[tuple[str, ...], tuple[Members, Ranges]] = {}
        self._wanted: list[tuple[str, ...]] = []
        self._lock = Lock()

    def want(self, columns: tuple[str, ...]) -> None:
        """Compute those of these columns as soon as can be."""
        with self._lock:
            self._wanted = [*dict.fromkeys([columns, *self._wanted])][:_MOST]

    def get(self, board: Board, columns: tuple[str, ...]) -> Ranges:
        """Those of these columns, computed where they are not known; that can take a minute."""
        members = _members(board, columns)
        with self._lock:
            known = self._known.get(columns)
        if known is None or known[0] != members:
            known = members, mean_ranges(board, columns, self._decided)
            with self._lock:
                self._known[columns] = known
                while len(self._known) > _MOST:
                    del self._known[next(iter(self._known))]
        return known[1]

    def of(self, board: Board) -> dict[tuple[str, ...], Ranges]:
        """Those that are known and true for ``board``."""
        with self._lock:
            self._known = {
                ids: each for ids, each in self._known.items() if each[0] == _members(board, ids)
            }
            return {ids: ranges for ids, (_, ranges) in self._known.items()}

    def compute_next(self, board: Board) -> bool:
        """Compute those of the table as it is first seen, or of one that was asked for; False where none lacks."""
        there = {column.id for column in board.columns}
        with self._lock:
            wanted = [headlines(board, View()).measured, *self._wanted]
            lacking = [
                ids for ids in wanted if ids and ids not in self._known and there.issuperset(ids)
            ]
        for ids in lacking[:1]:
            self.get(board, ids)
        return bool(lacking)


_MOST = 100
"""Tables whose ranges are remembered, or that they are asked for."""


def _columns(board: Board, view: View) -> dict[tuple[str, str, str], Column]:
    """The columns that may be headlines, by signature, data and part: of several with other texts that of the most
    numbers."""
    columns: dict[tuple[str, str, str], Column] = {}
    for column in board.columns:
        wanted = (
            column.share
            and (not view.data or column.key.part.id in view.data)
            and (not view.family or column.family in view.family)
            and (not view.protocol or column.protocol in view.protocol)
        )
        before = columns.get(_place(column))
        if wanted and not column.group and (before is None or column.measured > before.measured):
            columns[_place(column)] = column
    return columns


def _place(column: Column) -> tuple[str, str, str]:
    return column.key.signature, f"#D{column.key.part.data[:6]}", column.key.part.selection


def _matrix(
    board: Board, columns: Mapping[tuple[str, str, str], Column], outcomes: Sequence[Outcomes]
) -> Matrix:
    """The table of the numbers in these columns, in which lines stand for models: several may be of one name."""
    ids = {column.id for column in columns.values()}
    cells = ((line, line.cells[name]) for line in board.lines for name in line.cells if name in ids)
    return matrix(
        [replace(cell.row, model=line.id) for line, cell in cells if cell.row is not None], outcomes
    )


def _number(each: HeadlineLine, sort: str) -> float:
    if sort == MEAN:
        return each.mean
    return each.cells[sort].value if sort in each.cells else math.nan


def _members(board: Board, ids: Sequence[str]) -> Members:
    cells = (line.cells[name] for line in board.lines for name in ids if name in line.cells)
    return frozenset((cell.run.id, cell.run.version) for cell in cells if cell.scored)
