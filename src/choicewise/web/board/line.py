"""A line of the board: one model as it was computed, with a cell for every column."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from choicewise.results.row import Row
from choicewise.web.board.listed_run import ListedRun


@dataclass(frozen=True, slots=True)
class Cell:
    """What a line has in a column: a number with its rank, or in words why there is none.

    ``rank`` is among all numbers of the column, whatever is shown of them; equal numbers share a rank.
    """

    run: ListedRun
    row: Row | None
    words: str = ""
    rank: int | None = None

    @property
    def value(self) -> float:
        """A share of 1; NaN where there is no number."""
        return math.nan if self.row is None else self.row.value


@dataclass(frozen=True, slots=True)
class Spread:
    """How far the numbers of a model on one part of the data lie apart (shares of 1).

    ``n`` numbers were measured of the ``of`` that most models have; median, lowest and highest are NaN unless it has
    them all, because a median over other numbers is another one.
    """

    median: float
    low: float
    high: float
    n: int
    of: int


@dataclass(frozen=True, eq=False)
class Line:
    """A model, the runs of it that can share a line, and its cells by the id of their column.

    ``told_apart`` is the id ``#R`` where several lines are of a model of that name, and the run folder where they
    agree in that as well.  ``spreads`` are by the id of the part of the data.
    """

    id: str
    model: str
    told_apart: str
    runs: tuple[ListedRun, ...]
    cells: Mapping[str, Cell]
    spreads: Mapping[str, Spread]
