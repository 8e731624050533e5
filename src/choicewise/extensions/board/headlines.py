"""Build the table that the board opens on: models by headline protocols, with their means and the
ranks of these.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from statistics import fmean
from threading import Lock

from choicewise.extensions.board.model import (
    Board,
    Cell,
    Column,
    Line,
    ListedRun,
    Ranges,
    Snapshot,
    in_order,
    outcomes_under,
)
from choicewise.extensions.board.records import MEAN, Sorted, View, falls, visible_cells
from choicewise.results.headline import Matrix, matrix
from choicewise.results.outcomes import Outcomes
from choicewise.util.jsonio import JsonDict


@dataclass(frozen=True, kw_only=True)
class HeadlineLine:
    """Hold a model with its cells by the ids of the columns.

    ``mean``: of its numbers in all columns, NaN if it lacks one. ``rank``: by the mean, with its
    bounds if they are known. ``flips``, ``net``: the means of its columns that were measured in
    other orders, None if none was.
    """

    line: Line
    cells: Mapping[str, Cell]
    mean: float
    rank: int | None
    rank_low: int | None
    rank_high: int | None
    flips: float | None = None
    net: float | None = None


@dataclass(frozen=True, eq=False, kw_only=True)
class Headlines(Sorted):
    """Hold a column for every part of the data, and the models with a cell in one of them.

    They are sorted by the mean if the view asks for nothing else. ``titles``: the names of the
    columns.
    """

    titles: tuple[str, ...]
    lines: tuple[HeadlineLine, ...]

    @property
    def turned(self) -> bool:
        """Check that a model was measured in other orders."""
        return any(line.flips is not None for line in self.lines)

    @cached_property
    def measured(self) -> tuple[str, ...]:
        """Return the ids of the columns: what the ranks depend on."""
        return tuple(column.id for column in self.columns)


def headlines(
    board: Board, view: View, means: Mapping[tuple[str, ...], Ranges] | None = None
) -> Headlines:
    """Return the table that ``view`` leaves of ``board``.

    ``means``: the ranges of ranks by the ids of the columns, as far as they are known.
    """
    # The choice of columns goes by all that the view allows, as does every rank: models and numbers
    # that the view hides are left out afterwards, so that hiding one changes no other number.
    columns = _columns(board, view)
    table = _matrix(board, columns, ())
    chosen = []
    for benchmark in table.benchmarks:
        chosen.append(columns[benchmark.signature, benchmark.data, benchmark.selection])
    ids = [column.id for column in chosen]
    ranges: Ranges = {}
    if means is not None:
        ranges = means.get(tuple(ids), {})
    standings = {standing.model: standing for standing in table.standings}
    lines = []
    for line in board.lines:
        cells = _cells_by_id(line, chosen, view)
        if not cells or view.model.casefold() not in line.model.casefold():
            continue
        mean = math.nan
        rank = low = high = None
        standing = standings.get(line.id)
        if standing is not None and standing.rank is not None and len(cells) == len(ids):
            mean = standing.mean
            rank = standing.rank
            low, high = ranges.get(line.id, (None, None))
        flips, net = _mean_flips(cells.values())
        lines.append(
            HeadlineLine(
                line=line,
                cells=cells,
                mean=mean,
                rank=rank,
                rank_low=low,
                rank_high=high,
                flips=flips,
                net=net,
            )
        )
    sort = view.sort
    if sort not in (*ids, "model"):
        sort = MEAN
    order = ""
    if sort == view.sort:
        order = view.order
    downwards = order == "down" or (not order and falls(chosen, sort))
    number = None
    if sort != "model":
        number = partial(_number, sort=sort)
    ordered = in_order(lines, lambda headline: headline.line, number, downwards)
    return Headlines(
        view=view,
        sort=sort,
        downwards=downwards,
        columns=tuple(chosen),
        titles=table.titles,
        lines=tuple(ordered),
    )


def _cells_by_id(line: Line, columns: Iterable[Column], view: View) -> dict[str, Cell]:
    return {column.id: cell for column, cell in visible_cells(line, columns, view)}


def lead_sentence(table: Headlines) -> str:
    """Return who leads the table, and if that is significant; an empty text if no two models have a
    rank.
    """
    ranked = [line for line in table.lines if line.rank is not None]
    if len(ranked) < 2:
        return ""
    if any(line.rank_low is None for line in ranked):
        best = min(ranked, key=lambda line: line.rank or 0)
        return f"{best.line.model} is ahead; tests of its lead are still being computed."
    candidates = [line for line in ranked if line.rank_low == 1]
    if len(candidates) == 1:
        return f"{candidates[0].line.model} leads significantly."
    if len(candidates) == len(ranked):
        return f"No clear winner: all {len(ranked)} models could rank first."
    return f"No clear winner: {len(candidates)} of {len(ranked)} models could rank first."


def headlines_record(snapshot: Snapshot, view: View) -> JsonDict:
    """Return the table in the state ``view`` as plain data; shares of 1."""
    table = headlines(snapshot.board, view, snapshot.means)
    models = []
    for headline in table.lines:
        models.append(
            {
                "model": headline.line.model,
                "told_apart": headline.line.told_apart,
                "mean": headline.mean,
                "rank": headline.rank,
                "rank_low": headline.rank_low,
                "rank_high": headline.rank_high,
                "flips": headline.flips,
                "net_flips": headline.net,
            }
        )
    return {"headlines": {"columns": list(table.measured), "models": models}}


def _mean_flips(cells: Iterable[Cell]) -> tuple[float | None, float | None]:
    """Return the mean share of pairs of orders that flip, and net of repeats, over the protocols
    that have them.
    """
    flips = []
    net = []
    for cell in cells:
        for orders in cell.run.orders:
            if cell.row is not None and orders.protocol == cell.row.identity.protocol:
                flips.append(orders.flips)
                if orders.net is not None:
                    net.append(orders.net)
    if not flips:
        return None, None
    # A mean over some of the protocols would not belong to the mean beside it.
    if len(net) < len(flips):
        return fmean(flips), None
    return fmean(flips), fmean(net)


def mean_ranges(
    board: Board, ids: Sequence[str], decided: Callable[[ListedRun], Outcomes | None]
) -> Ranges:
    """Return the ranges of the ranks by the mean over the columns ``ids``, by the id of the line.

    ``decided`` returns what was decided of every item of a run. They are empty if a run is gone.
    """
    columns = {_key(column): column for column in board.columns if column.id in ids}
    outcomes = []
    for line in board.lines:
        for column_id in ids:
            cell = line.cells.get(column_id)
            if cell is None or cell.row is None:
                continue
            of_run = decided(cell.run)
            # Ranks over the other runs would change when the run is back.
            if of_run is None:
                return {}
            outcomes.append(outcomes_under(of_run, cell.row.identity.protocol, model=line.id))
    ranges = {}
    for standing in _matrix(board, columns, outcomes).standings:
        if standing.rank_low is not None and standing.rank_high is not None:
            ranges[standing.model] = standing.rank_low, standing.rank_high
    return ranges


Members = frozenset[tuple[str, str]]
"""The runs with a number in one of several columns: id and version."""


class MeanRanges:
    """Remember the ranges of ranks by means, as long as the same runs have a number in their
    columns.

    Several threads may use it.
    """

    def __init__(self, decided: Callable[[ListedRun], Outcomes | None]) -> None:
        self._decided = decided
        self._ranges: dict[tuple[str, ...], tuple[Members, Ranges]] = {}
        self._wanted: list[tuple[str, ...]] = []
        self._lock = Lock()

    def want(self, columns: tuple[str, ...]) -> None:
        """Compute the ranges of these columns as soon as can be."""
        with self._lock:
            self._wanted = list(dict.fromkeys([columns, *self._wanted]))[:_MOST]

    def get(self, board: Board, columns: tuple[str, ...]) -> Ranges:
        """Return the ranges of these columns, computed if they are not known; that can take a
        minute.
        """
        members = _members(board, columns)
        with self._lock:
            remembered = self._ranges.get(columns)
        if remembered is not None and remembered[0] == members:
            return remembered[1]
        ranges = mean_ranges(board, columns, self._decided)
        with self._lock:
            self._ranges[columns] = members, ranges
            # Views are chosen by readers, and there is no end of them.
            while len(self._ranges) > _MOST:
                oldest = next(iter(self._ranges))
                del self._ranges[oldest]
        return ranges

    def of(self, board: Board) -> dict[tuple[str, ...], Ranges]:
        """Return the remembered ranges that are true for ``board``, and forget the others."""
        ranges_of_board = {}
        with self._lock:
            for columns, (members, ranges) in list(self._ranges.items()):
                if members == _members(board, columns):
                    ranges_of_board[columns] = ranges
                else:
                    del self._ranges[columns]
        return ranges_of_board

    def compute_next(self, board: Board) -> bool:
        """Compute the ranges of the table as it is first seen, or of a wanted one; return False if
        none lacks.
        """
        ids = {column.id for column in board.columns}
        with self._lock:
            wanted = [headlines(board, View()).measured, *self._wanted]
        for columns in wanted:
            if columns and columns not in self._ranges and ids.issuperset(columns):
                self.get(board, columns)
                return True
        return False


_MOST = 100
"""Tables whose ranges are remembered or wanted."""

_Key = tuple[str, str, str]
"""Signature, data and part, by which the matrix of headlines names a column."""


def _key(column: Column) -> _Key:
    return column.key.signature, f"#D{column.key.part.data[:6]}", column.key.part.selection


def _columns(board: Board, view: View) -> dict[_Key, Column]:
    """Return the columns that may be headlines; of several with other texts the one of the most
    numbers.
    """
    columns: dict[_Key, Column] = {}
    for column in board.columns:
        if column.share and not column.group and view.wants(column):
            key = _key(column)
            if key not in columns or column.measured > columns[key].measured:
                columns[key] = column
    return columns


def _matrix(board: Board, columns: Mapping[_Key, Column], outcomes: Sequence[Outcomes]) -> Matrix:
    """Return the table of the numbers in these columns, in which lines stand for models: several
    may have one name.
    """
    ids = {column.id for column in columns.values()}
    rows = []
    for line in board.lines:
        for column_id, cell in line.cells.items():
            if column_id in ids and cell.row is not None:
                rows.append(cell.row.with_model(line.id))
    return matrix(rows, outcomes)


def _number(headline: HeadlineLine, sort: str) -> float:
    """Return the number that a line is sorted by; NaN if it has none."""
    if sort == MEAN:
        return headline.mean
    if sort not in headline.cells:
        return math.nan
    return headline.cells[sort].value


def _members(board: Board, ids: Sequence[str]) -> Members:
    members = set()
    for line in board.lines:
        for column_id in ids:
            cell = line.cells.get(column_id)
            if cell is not None and cell.scored:
                members.add((cell.run.id, cell.run.version))
    return frozenset(members)
