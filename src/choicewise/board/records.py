"""What the pages of the board are about, as values, as JSON and as CSV."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import pyarrow.compute as pc

from choicewise.board.model import Cell, Column, Line, ListedRun, Part, Snapshot, Spread, slug
from choicewise.board.view import Shown, View, chosen_columns, is_shown, shown
from choicewise.page.reproduce import table_csv
from choicewise.protocols.catalogue import Entry, entries
from choicewise.protocols.protocol import Protocol
from choicewise.protocols.signature import parse_signature, signature
from choicewise.results.explain import Explanation
from choicewise.results.outcomes import Outcome, Outcomes
from choicewise.util.jsonio import json_text
from choicewise.util.text import json_safe, shown_line


@dataclass(frozen=True, slots=True)
class Measured:
    """The numbers of one line on one part of the data, by family."""

    line: Line
    part: Part
    dataset: str
    spread: Spread | None
    families: dict[str, list[tuple[Column, Cell]]]
    runs: tuple[ListedRun, ...]

    @property
    def numbers(self) -> list[tuple[Column, Cell]]:
        """All of them."""
        return [number for family in self.families.values() for number in family]


def model_name(snapshot: Snapshot, name: str) -> str | None:
    """The model whose address ends in ``name``."""
    return next((model for model in snapshot.board.models if slug(model) == name), None)


def measured(snapshot: Snapshot, model: str) -> Iterator[Measured]:
    """What was measured of a model."""
    for line in snapshot.board.lines:
        if line.model != model:
            continue
        parts: dict[Part, dict[str, list[tuple[Column, Cell]]]] = {}
        for column in snapshot.board.columns:
            if column.id in line.cells:
                families = parts.setdefault(column.key.part, {})
                families.setdefault(column.family, []).append((column, line.cells[column.id]))
        for part, families in parts.items():
            runs = tuple(dict.fromkeys(cell.run for numbers in families.values() for _, cell in numbers))
            dataset = next(iter(families.values()))[0][0].dataset
            yield Measured(line, part, dataset, line.spreads.get(part.id), families, runs)


def model_record(snapshot: Snapshot, model: str) -> dict[str, Any]:
    """The same as plain data."""
    parts = list(measured(snapshot, model))
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
                    {**column_record(column), **cell_record(snapshot, column, cell)} for column, cell in part.numbers
                ],
            }
            for part in parts
        ],
        "runs": [run_record(run) for run in dict.fromkeys(run for part in parts for run in part.runs)],
    }


MOST_MODELS = 60
"""Models whose choices one page shows; a part of a name chooses others."""


@dataclass(frozen=True, slots=True)
class Choices:
    """What one line chose, by the id of the column: the place of a choice (-1: none), and its credit (NaN: missing)."""

    line: Line
    run: ListedRun
    chosen: dict[str, tuple[int, float]]


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


def part_of(snapshot: Snapshot, name: str) -> Part | None:
    """The part of the data with that id."""
    return next((column.key.part for column in snapshot.board.columns if column.key.part.id == name), None)


def shown_item(
    snapshot: Snapshot,
    decisions: Callable[[ListedRun], Outcomes | None],
    explain: Callable[[ListedRun, str], Explanation],
    part: Part,
    item: str,
    run: str,
    view: View,
) -> ShownItem | None:
    """The item as ``run`` was asked it (an id; another run that has the item where it is none), which ``explain`` tells
    or raises; None where no run has it.  ``decisions``: the outcomes of a run."""
    columns = tuple(
        column for column in chosen_columns(snapshot.board, replace(view, data=(part.id,))) if column.measured
    )
    ids = {column.id for column in snapshot.board.columns if column.key.part == part}
    places: dict[int, int] = {}
    choices, more = list[Choices](), 0

    def place_in(outcome: Outcome) -> int:
        """The row of the item, -1 where it is not there; a table that runs share is searched once."""
        if id(outcome.items) not in places:
            places[id(outcome.items)] = pc.index(outcome.items["item"], item).as_py()
        return places[id(outcome.items)]

    def outcomes_of(run: ListedRun) -> Sequence[Outcome]:
        outcomes = decisions(run)
        return () if outcomes is None else outcomes.outcomes

    def chosen_by(line: Line) -> Iterator[tuple[str, tuple[int, float]]]:
        for column in columns:
            cell = line.cells.get(column.id)
            if cell is not None and cell.row is not None:
                outcome = next((each for each in outcomes_of(cell.run) if each.name == cell.row.protocol), None)
                if outcome is not None and (place := place_in(outcome)) >= 0:
                    yield column.id, (int(outcome.predicted[place]), float(outcome.values[outcome.codes[place]]))

    for line in snapshot.board.lines:
        runs = [cell.run for column, cell in line.cells.items() if column in ids and cell.row is not None]
        if not runs or view.model.casefold() not in line.model.casefold():
            continue
        if len(choices) == MOST_MODELS:
            more += 1
        elif (chosen := dict(chosen_by(line))) or any(place_in(each) >= 0 for each in outcomes_of(runs[0])):
            choices.append(Choices(line, runs[0], chosen))
    if not choices:
        return None
    asked = next((each.run for each in choices if each.run.id == run), choices[0].run)
    return ShownItem(part, asked, explain(asked, item), columns, tuple(choices), more)


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
                    column.id: {"protocol": column.protocol, "prediction": prediction, "credit": credit}
                    for column in item.columns
                    for prediction, credit in [each.chosen.get(column.id, (None, None))]
                    if prediction is not None
                },
            }
            for each in item.choices
        ],
        "models_left_out": item.more,
        "explained": asdict(item.explained),
    }


@dataclass(frozen=True, slots=True)
class Sheet:
    """A protocol that the board has: its name, its columns, and what the catalogue says of it, if it knows it."""

    name: str
    p: str
    protocol: Protocol
    columns: tuple[Column, ...]
    entry: Entry | None

    @property
    def axes(self) -> list[tuple[str, str]]:
        """Every axis with its value: texts with their white space visible, the rest as the signature spells it."""
        spelled = (part.partition(":") for part in signature(self.protocol).split("|"))
        values = [(axis, value, getattr(self.protocol, axis)) for axis, _, value in spelled]
        return [(axis, shown_line(text) if isinstance(text, str) else value) for axis, value, text in values]


def sheet(snapshot: Snapshot, p: str) -> Sheet | None:
    """The protocol of that short id (without the number sign), if the board has one."""
    columns = tuple(column for column in snapshot.board.columns if column.p == f"#{p}")
    if not columns:
        return None
    protocol = parse_signature(columns[0].key.signature)
    known = (entry for entry in entries() if protocol in entry.protocols.values())
    return Sheet(columns[0].protocol, columns[0].p, protocol, columns, next(known, None))


def protocol_record(snapshot: Snapshot, asked: Sheet) -> dict[str, Any]:
    """The same as plain data."""
    entry = asked.entry
    about = {} if entry is None else {name: getattr(entry, name) for name in ("title", "citation", "source", "about")}
    return {
        "protocol": asked.name,
        "p": asked.p,
        "signature": signature(asked.protocol),
        "axes": dict(asked.axes),
        "entry": about or None,
        "columns": [
            {
                **column_record(column),
                "models": [
                    {"model": line.model, **cell_record(snapshot, column, line.cells[column.id])}
                    for line in ordered_lines(snapshot, column)
                ],
            }
            for column in asked.columns
        ],
    }


def ordered_lines(snapshot: Snapshot, column: Column) -> list[Line]:
    """The lines of a column, the best first, those without a number last."""
    lines = [line for line in snapshot.board.lines if column.id in line.cells]
    return sorted(lines, key=lambda line: (line.cells[column.id].rank or len(lines) + 1, line.model))


Record = dict[str, Any]

CSV_COLUMNS = (
    *("model", "run", "dataset", "data", "selection", "group", "protocol", "p", "i", "r", "family", "metric"),
    *("value", "ci_low", "ci_high", "n", "missing", "chance", "rank", "rank_low", "rank_high", "doubts", "state"),
    *("model_source", "dataset_source"),
)

_MARKUP = {ord(char): f"\\u{ord(char):04x}" for char in "<>&"}


def as_json(content: Any) -> str:
    """``content`` as JSON; NaN is null, and what HTML reads as markup, control and invisible characters are escapes."""
    return json_safe(json_text(content, indent=1).translate(_MARKUP)) + "\n"


def board_record(snapshot: Snapshot, view: View) -> Record:
    """What the board shows in the state ``view``: columns, and models in their order with their cells by column."""
    seen = shown(snapshot.board, view)
    return {
        "view": asdict(view),
        "still_to_be_read": snapshot.waiting,
        "problems": snapshot.problems,
        "sorted_by": seen.sort,
        "order": "descending" if seen.downwards else "ascending",
        "columns": [column_record(column) for column in seen.columns],
        "models": [
            {
                "model": line.model,
                "told_apart": line.told_apart,
                "runs": [run.id for run in line.runs],
                "spreads": {part: spread for part, spread in line.spreads.items() if part in seen.medians},
                "cells": {column.id: cell_record(snapshot, column, cell) for column, cell in _shown_cells(line, seen)},
            }
            for line in seen.lines
        ],
        "runs": [run_record(run, whole=False) for run in snapshot.board.runs],
    }


def column_record(column: Column) -> Record:
    """A column with everything that tells it apart from others."""
    key = column.key
    about: Record = {"id": column.id, "dataset": column.dataset, "data": key.part.data, "part": key.part.id}
    about |= {"selection": key.part.selection, "group": column.group, "protocol": column.protocol, "p": column.p}
    about |= {"i": key.texts, "family": column.family, "metric": key.metric, "n": column.n, "chance": column.chance}
    return {**about, "measured": column.measured, "signature": key.signature}


def cell_record(snapshot: Snapshot, column: Column, cell: Cell) -> Record:
    """A number of a column with its rank, or the words that stand in its place; shares of 1."""
    if cell.row is None or cell.rank is None:
        return {"run": cell.run.id, "state": cell.words, "value": None}
    row = cell.row
    low, high = snapshot.ranges.get(column.id, {}).get(cell.run.id, (None, None))
    number = {name: getattr(row, name) for name in ("value", "se", "ci_low", "ci_high", "n", "missing")}
    ids = {"i": row.i, "t": row.t, "r": row.r}
    rank = {"rank": cell.rank, "rank_low": low, "rank_high": high}
    return {"run": cell.run.id, "state": "", **number, **rank, "doubts": row.diagnosis.warnings, **ids}


def run_record(run: ListedRun, whole: bool = True) -> Record:
    """A run folder without the place where it lies; ``whole``: with all that it takes to get its numbers again."""
    about: Record = {"id": run.id, "label": run.label, "state": run.state, "reason": run.reason, "version": run.version}
    if (manifest := run.manifest) is None:
        return about
    about |= {"model": run.model, "r": run.computed, "dataset": manifest.dataset.name, "data": manifest.dataset.digest}
    if whole:
        about |= {name: getattr(manifest, name) for name in ("model", "selection", "engine", "versions", "protocols")}
        about["dataset_source"] = manifest.dataset.source
    return about


def board_csv(snapshot: Snapshot, view: View) -> str:
    """A row per number or word that the board shows in the state ``view``; shares of 1."""
    seen, rows = shown(snapshot.board, view), list[Record]()
    for line in seen.lines:
        for column, cell in _shown_cells(line, seen):
            row = {**column_record(column), **cell_record(snapshot, column, cell)}
            row |= {"model": line.model, "run": cell.run.label, "r": cell.run.computed}
            if (manifest := cell.run.manifest) is not None:
                row |= {"model_source": manifest.model.source, "dataset_source": manifest.dataset.source}
            rows.append(row)
    return table_csv(CSV_COLUMNS, rows)


def _shown_cells(line: Line, seen: Shown) -> Iterator[tuple[Column, Cell]]:
    for column in seen.columns:
        if (cell := line.cells.get(column.id)) is not None and is_shown(cell, seen.view):
            yield column, cell
