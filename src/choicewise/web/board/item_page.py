"""An item's page: who chose what, and what one of the models was sent and made of it."""

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from choicewise.results.explanation import Explanation
from choicewise.web.board.column import Column, Part
from choicewise.web.board.library import Library, Shelf
from choicewise.web.board.line import Line
from choicewise.web.board.links import Links
from choicewise.web.board.listed_run import ListedRun
from choicewise.web.board.page import rendered
from choicewise.web.board.view import View, chosen_columns
from choicewise.web.shown_text import shown_line

MOST_MODELS = 60
"""Models whose choices one page shows; a part of a name chooses others."""


@dataclass(frozen=True, slots=True)
class Choice:
    """What a model chose under a protocol: the place of a choice (-1: none), and the credit it got (NaN: missing)."""

    prediction: int
    credit: float


@dataclass(frozen=True, slots=True)
class Choices:
    """What one line chose, by the id of the column."""

    line: Line
    run: ListedRun
    chosen: dict[str, Choice]


@dataclass(frozen=True)
class ShownItem:
    """An item with the choices of models under the ``columns``; ``more``: models that are left out.

    ``explained`` is what ``run`` was sent and what every protocol made of it.
    """

    part: Part
    run: ListedRun
    explained: Explanation
    columns: tuple[Column, ...]
    choices: tuple[Choices, ...]
    more: int


def part_of(shelf: Shelf, name: str) -> Part | None:
    """The part of the data with that id."""
    return next((column.key.part for column in shelf.board.columns if column.key.part.id == name), None)


def shown_item(
    library: Library, part: Part, item: str, run: str, view: View, explain: Callable[[ListedRun, str], Explanation]
) -> ShownItem | None:
    """The item as ``run`` was asked it (an id; another run that has the item where it is none), which ``explain`` tells
    or raises; None where no run has it."""
    shelf = library.shelf
    columns = tuple(column for column in chosen_columns(shelf.board, view.with_(data=(part.id,))) if column.measured)
    ids = {column.id for column in shelf.board.columns if column.key.part == part}
    places = _Places(item)
    choices, more = list[Choices](), 0
    for line in shelf.board.lines:
        runs = [cell.run for column, cell in line.cells.items() if column in ids and cell.row is not None]
        if not runs or view.model.casefold() not in line.model.casefold():
            continue
        if len(choices) == MOST_MODELS:
            more += 1
        elif (chosen := _choices(library, line, columns, places)) or places.of(library, runs[0]) >= 0:
            choices.append(Choices(line, runs[0], chosen))
    if not choices:
        return None
    asked = next((each.run for each in choices if each.run.id == run), choices[0].run)
    return ShownItem(part, asked, explain(asked, item), columns, tuple(choices), more)


class _Places:
    """Where the item stands in tables of items, each of which is searched once."""

    def __init__(self, item: str) -> None:
        self._item, self._places = item, dict[int, int]()

    def within(self, items: pa.Table) -> int:
        """The row, -1 where it is not there."""
        if id(items) not in self._places:
            self._places[id(items)] = pc.index(items["item"], self._item).as_py()
        return self._places[id(items)]

    def of(self, library: Library, run: ListedRun) -> int:
        """The row in what the first protocol of a run was asked."""
        outcomes = library.decisions.get(run.id)
        return -1 if outcomes is None else max((self.within(each.items) for each in outcomes.outcomes), default=-1)


def _choices(library: Library, line: Line, columns: Sequence[Column], places: _Places) -> dict[str, Choice]:
    chosen = {}
    for column in columns:
        cell = line.cells.get(column.id)
        outcomes = None if cell is None or cell.row is None else library.decisions.get(cell.run.id)
        if cell is None or cell.row is None or outcomes is None:
            continue
        outcome = next((each for each in outcomes.outcomes if each.name == cell.row.protocol), None)
        place = -1 if outcome is None else places.within(outcome.items)
        if outcome is not None and place >= 0:
            credit = float(outcome.values[outcome.codes[place]])
            chosen[column.id] = Choice(int(outcome.predicted[place]), credit)
    return chosen


def item_page(shelf: Shelf, item: ShownItem, links: Links, view: View, **further: Any) -> str:
    """The item as HTML."""
    return rendered(
        "item.html.j2",
        shelf,
        links,
        item=item,
        view=view,
        letter=letter,
        known_of=lambda scores: [score for score in scores if math.isfinite(score)],
        shown_line=shown_line,
        **further,
    )


def item_record(item: ShownItem) -> dict[str, Any]:
    """The same as plain data."""
    return {
        "data": item.part.data,
        "selection": item.part.selection,
        "run": item.run.id,
        "choices": [
            {
                "model": each.line.model,
                "run": each.run.id,
                "chosen": {
                    column.id: {"protocol": column.protocol, **asdict(each.chosen[column.id])}
                    for column in item.columns
                    if column.id in each.chosen
                },
            }
            for each in item.choices
        ],
        "models_left_out": item.more,
        "explained": asdict(item.explained),
    }


def letter(place: int) -> str:
    """The name of a choice where protocols give it none: A, B, ..., Z, 27, ...; "none" where there was none."""
    return "none" if place < 0 else chr(ord("A") + place) if place < 26 else str(place + 1)
