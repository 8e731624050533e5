"""The headings of a board: parts of the data, families, and what the next click on a heading sorts by."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from choicewise.web.board.board import Board
from choicewise.web.board.column import Column, Part
from choicewise.web.board.view import Shown, View


@dataclass(frozen=True, slots=True)
class Heading:
    """A column under its protocol; ``told_apart`` where another one has the same protocol and other texts."""

    column: Column
    told_apart: bool


@dataclass(frozen=True, slots=True)
class FamilyHeading:
    """The columns of one family beside each other."""

    family: str
    headings: tuple[Heading, ...]


@dataclass(frozen=True, slots=True)
class PartHeading:
    """The columns about one part of the data.

    ``n`` items and ``chance`` (a share of 1) where all columns agree in them, else None and NaN.  ``panel``: of how
    many numbers the median is; 0 where there is none.  ``prefix``: what the names of all protocols begin with.
    """

    part: Part
    dataset: str
    n: int | None
    chance: float
    panel: int
    prefix: str
    families: tuple[FamilyHeading, ...]

    @property
    def width(self) -> int:
        """How many columns it spans."""
        return (self.panel > 0) + sum(len(family.headings) for family in self.families)

    @property
    def median(self) -> str:
        """What a view sorts by for the median."""
        return f"median-{self.part.id}"


def headings(board: Board, columns: Sequence[Column]) -> tuple[PartHeading, ...]:
    """The headings over ``columns``, which are in the order of the board."""
    alike: dict[tuple[object, ...], int] = {}
    for column in board.columns:
        alike[_protocol(column)] = alike.get(_protocol(column), 0) + 1
    parts = []
    for part, members in groupby(columns, key=lambda column: column.key.part):
        own = list(members)
        families = tuple(
            FamilyHeading(name, tuple(Heading(column, alike[_protocol(column)] > 1) for column in group))
            for name, group in groupby(own, key=lambda column: column.family)
        )
        sizes = {column.n for column in own if column.n}
        chances = {column.chance for column in own if not math.isnan(column.chance)}
        panel = len(board.panels.get(part.id, ()))
        one_size, one_chance = (
            sizes.pop() if len(sizes) == 1 else None,
            chances.pop() if len(chances) == 1 else math.nan,
        )
        parts.append(PartHeading(part, own[0].dataset, one_size, one_chance, panel, _prefix(own), families))
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


def _protocol(column: Column) -> tuple[object, ...]:
    key = column.key
    return key.part, key.signature, key.metric, key.subject


def _prefix(columns: Sequence[Column]) -> str:
    """``mmlu/`` where all protocols are of that benchmark."""
    benchmarks = {column.protocol.partition("/")[0] for column in columns}
    common = f"{benchmarks.pop()}/" if len(benchmarks) == 1 else ""
    return common if all(column.protocol.startswith(common) for column in columns) else ""
