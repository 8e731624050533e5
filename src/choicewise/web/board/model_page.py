"""A model's page: all its numbers by part of the data and family, what speaks against them, how to get them again."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from choicewise.results.diagnosis import FLAGS
from choicewise.results.published import published
from choicewise.web.board.column import Column, Part
from choicewise.web.board.library import Shelf
from choicewise.web.board.line import Cell, Line, Spread
from choicewise.web.board.links import Links
from choicewise.web.board.listed_run import ListedRun
from choicewise.web.board.page import rendered
from choicewise.web.board.records import cell_record, column_record, run_record
from choicewise.web.board.run_page import asked_names
from choicewise.web.board.slug import slug

COUNTS = {
    "missing": "missing",
    "invalid": "name no option",
    "skipped": "rows of the data skipped",
    "ties": "tied",
    "near_ties": "near-tied",
    "unlisted": "with unlisted answers",
    "shots_dropped": "with shots dropped",
    "truncated": "truncated",
    "lossy": "with text lost",
    "unknown": "with unknown tokens",
}
"""Counts of items with a doubt, and the words for them."""


@dataclass(frozen=True, slots=True)
class Number:
    """One number of a model with its column."""

    column: Column
    cell: Cell

    @property
    def counted(self) -> str:
        """The items with a doubt, in words."""
        row = self.cell.row
        counts = {} if row is None else {words: getattr(row, name) for name, words in COUNTS.items()}
        return ", ".join(f"{count:,} {words}" for words, count in counts.items() if count)


@dataclass(frozen=True, slots=True)
class Measured:
    """The numbers of one line on one part of the data, by family."""

    line: Line
    part: Part
    dataset: str
    spread: Spread | None
    families: dict[str, list[Number]]
    runs: tuple[ListedRun, ...]

    @property
    def numbers(self) -> list[Number]:
        """All of them."""
        return [number for family in self.families.values() for number in family]


def model_name(shelf: Shelf, name: str) -> str | None:
    """The model whose address ends in ``name``."""
    return next((model for model in shelf.board.models if slug(model) == name), None)


def measured(shelf: Shelf, model: str) -> Iterator[Measured]:
    """What was measured of a model."""
    for line in shelf.board.lines:
        if line.model != model:
            continue
        parts: dict[Part, list[Number]] = {}
        for column in shelf.board.columns:
            if column.id in line.cells:
                parts.setdefault(column.key.part, []).append(Number(column, line.cells[column.id]))
        for part, numbers in parts.items():
            families: dict[str, list[Number]] = {}
            for number in numbers:
                families.setdefault(number.column.family, []).append(number)
            runs = tuple(dict.fromkeys(number.cell.run for number in numbers))
            dataset = numbers[0].column.dataset
            yield Measured(line, part, dataset, line.spreads.get(part.id), families, runs)


def model_page(shelf: Shelf, model: str, links: Links, **further: Any) -> str:
    """The page of a model that the board has."""
    parts = list(measured(shelf, model))
    raised = {
        flag for part in parts for each in part.numbers if each.cell.row for flag in each.cell.row.diagnosis.flags
    }
    runs = dict.fromkeys(run for part in parts for run in part.runs)
    return rendered(
        "model.html.j2",
        shelf,
        links,
        model=model,
        parts=parts,
        runs=[(run, asked_names(run)) for run in runs if run.manifest is not None],
        published={run for run in runs if any(row.id in published() for row in run.rows)},
        legend={flag: words for flag, words in FLAGS.items() if flag in raised},
        **further,
    )


def model_record(shelf: Shelf, model: str) -> dict[str, Any]:
    """The same as plain data."""
    parts = list(measured(shelf, model))
    return {
        "model": model,
        "measured": [
            {
                "told_apart": part.line.told_apart,
                "dataset": part.dataset,
                "data": part.part.data,
                "selection": part.part.selection,
                "spread": None if part.spread is None else asdict(part.spread),
                "numbers": [
                    {**column_record(each.column), **cell_record(each.cell, shelf.ranges.get(each.column.id))}
                    for each in part.numbers
                ],
            }
            for part in parts
        ],
        "runs": [run_record(run) for run in dict.fromkeys(run for part in parts for run in part.runs)],
    }
