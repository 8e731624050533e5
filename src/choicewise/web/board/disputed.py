"""The items on which the numbers of a board disagree most: half of them count the model's answer as right."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from choicewise.scoring.ragged import Floats
from choicewise.web.board.board import Board
from choicewise.web.board.column import Column, Part, handful
from choicewise.web.board.decisions_kept import DecisionsKept
from choicewise.web.board.view import MOST

LISTED = 12
"""Items of a part of the data that are listed."""


@dataclass(frozen=True, slots=True)
class Disputed:
    """An item, and how many of the answers to it are right (a tie counts by its share)."""

    item: str
    right: float
    answers: int


def disputed(board: Board, decisions: DecisionsKept) -> dict[str, tuple[Disputed, ...]]:
    """The most disputed items by the id of the part of the data, over the headline columns; nothing undisputed."""
    parts: dict[Part, list[Column]] = {}
    for column in board.columns:
        parts.setdefault(column.key.part, []).append(column)
    return {part.id: _of_part(board, handful(columns, MOST), decisions) for part, columns in parts.items()}


def _of_part(board: Board, columns: tuple[Column, ...], decisions: DecisionsKept) -> tuple[Disputed, ...]:
    items: pa.Table | None = None
    right, answers = np.zeros(0), np.zeros(0)
    for outcome_items, credit in _credits(board, columns, decisions):
        if items is None:
            items, right, answers = outcome_items, np.zeros(len(credit)), np.zeros(len(credit))
        if outcome_items is items:  # as they are for runs on the same items, which share the table
            right += np.nan_to_num(credit)
            answers += ~np.isnan(credit)
    if items is None:
        return ()
    with np.errstate(invalid="ignore"):
        share = np.where(answers > 1, right / answers, np.nan)
    order = np.argsort(np.abs(share - 0.5), kind="stable")[:LISTED].tolist()
    names = items["item"]
    return tuple(
        Disputed(names[place].as_py(), float(right[place]), int(answers[place]))
        for place in order
        if 0 < share[place] < 1
    )


def _credits(board: Board, columns: tuple[Column, ...], decisions: DecisionsKept) -> Iterator[tuple[pa.Table, Floats]]:
    for line in board.lines:
        for column in columns:
            cell = line.cells.get(column.id)
            outcomes = None if cell is None or cell.row is None else decisions.get(cell.run.id)
            if cell is not None and cell.row is not None and outcomes is not None:
                own = (each for each in outcomes.outcomes if each.name == cell.row.protocol)
                yield from ((each.items, each.credit) for each in own)


Listed = Mapping[str, tuple[Disputed, ...]]
"""Disputed items by the id of the part of the data."""
