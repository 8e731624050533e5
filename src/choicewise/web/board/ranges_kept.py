"""The rank ranges of a board, a column at a time, and those that stay true when the board changes."""

from collections.abc import Iterable, Mapping
from threading import Lock

from choicewise.web.board.board import Board
from choicewise.web.board.column import handful
from choicewise.web.board.decisions_kept import DecisionsKept
from choicewise.web.board.line import Cell
from choicewise.web.board.rank_ranges import Ranges, rank_ranges
from choicewise.web.board.view import MOST

_MOST_WANTED = 1000
"""Columns that are remembered as asked for."""

Members = frozenset[tuple[str, str]]
"""The runs with a number in a column: id and version."""


class RangesKept:
    """Rank ranges by the id of their column, as long as the same runs have a number in it."""

    def __init__(self, decisions: DecisionsKept) -> None:
        self._decisions = decisions
        self._kept: dict[str, tuple[Members, Ranges]] = {}
        self._wanted: list[str] = []
        self._lock = Lock()

    def want(self, columns: Iterable[str]) -> None:
        """Compute those of these columns before others."""
        with self._lock:
            self._wanted = [*dict.fromkeys([*columns, *self._wanted])][:_MOST_WANTED]

    def of(self, board: Board) -> dict[str, Ranges]:
        """Those that are known and true for ``board``."""
        members = {name: _members(cells) for name, cells in _numbers(board).items()}
        self._kept = {name: each for name, each in self._kept.items() if members.get(name) == each[0]}
        return {name: ranges for name, (_, ranges) in self._kept.items()}

    def compute_next(self, board: Board) -> bool:
        """Compute those of one column: one that was asked for, else of the handful that is shown first, else any.

        False where nothing is left to do.
        """
        lacking = {each.id: each for each in board.columns if each.measured > 1 and each.id not in self._kept}
        with self._lock:
            self._wanted = [name for name in self._wanted if name in lacking]
            order = [*self._wanted, *(each.id for each in handful(board.columns, MOST)), *lacking]
        name = next((name for name in order if name in lacking), None)
        if name is None:
            return False
        cells = _numbers(board)[name]
        outcomes = {run: self._decisions.get(run) for run in cells}
        known = {run: each for run, each in outcomes.items() if each is not None}
        whole = len(known) == len(cells)  # else a run went away, and the board is about to change
        self._kept[name] = _members(cells), rank_ranges(lacking[name], cells, known) if whole else {}
        return True


def _numbers(board: Board) -> dict[str, dict[str, Cell]]:
    """The cells that hold numbers, by column and run."""
    numbers: dict[str, dict[str, Cell]] = {column.id: {} for column in board.columns}
    for line in board.lines:
        for name, cell in line.cells.items():
            if cell.rank is not None:
                numbers[name][cell.run.id] = cell
    return numbers


def _members(cells: Mapping[str, Cell]) -> Members:
    return frozenset((cell.run.id, cell.run.version) for cell in cells.values())
