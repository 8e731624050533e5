"""The ranks that each number of a column could have had with another draw of items."""

from collections.abc import Mapping
from dataclasses import replace

from choicewise.results.outcome import Outcomes
from choicewise.results.ranks import bounded
from choicewise.web.board.column import Column
from choicewise.web.board.line import Cell

Ranges = Mapping[str, tuple[int, int]]
"""Lowest and highest rank in 95 % of the draws, by the id of the run; empty where there is nothing to compare."""


def rank_ranges(column: Column, cells: Mapping[str, Cell], outcomes: Mapping[str, Outcomes]) -> Ranges:
    """The ranges for the numbers of ``column``: its ``cells`` and what was decided of every item, by the id of the run.

    As :func:`choicewise.results.ranks.bounded` of these runs alone, except that two runs of one model stay apart.
    """
    rows, runs = [], []
    for name, cell in cells.items():
        if cell.row is not None and cell.rank is not None:
            own = tuple(each for each in outcomes[name].outcomes if each.name == cell.row.protocol)
            rows.append(replace(cell.row, model=name))
            runs.append(replace(outcomes[name], model=name, outcomes=own))
    edges = ((row.model, row.rank_low, row.rank_high) for row in bounded(rows, runs))
    return {name: (low, high) for name, low, high in edges if low is not None and high is not None}
