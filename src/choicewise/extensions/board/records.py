"""What the pages of the board are about, as values, as JSON and as CSV, and the view that a reader chose."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from itertools import groupby
from typing import Any, Literal
from urllib.parse import urlencode

import pyarrow.compute as pc

from choicewise.extensions.board.model import (
    Board,
    Cell,
    Column,
    Line,
    ListedRun,
    Part,
    Snapshot,
    Spread,
    in_order,
    slug,
)
from choicewise.page.sections import Sheet, sheet
from choicewise.protocols.catalogue import entries
from choicewise.protocols.metrics import METRICS
from choicewise.protocols.protocol import Protocol, parse_signature, signature
from choicewise.report.findings import sentences
from choicewise.results.compare import published
from choicewise.results.explain import Explanation
from choicewise.results.finding import finding
from choicewise.results.outcomes import Outcome, Outcomes, bounded, ranked
from choicewise.results.rows import WARNINGS
from choicewise.table import table_csv
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
            runs = tuple(
                dict.fromkeys(cell.run for numbers in families.values() for _, cell in numbers)
            )
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
                    {**column_record(column), **cell_record(snapshot, column, cell)}
                    for column, cell in part.numbers
                ],
            }
            for part in parts
        ],
        "runs": [
            run_record(run) for run in dict.fromkeys(run for part in parts for run in part.runs)
        ],
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
    return next(
        (column.key.part for column in snapshot.board.columns if column.key.part.id == name), None
    )


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
        column
        for column in chosen_columns(snapshot.board, replace(view, data=(part.id,)))
        if column.measured and column.share
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
                outcome = next(
                    (each for each in outcomes_of(cell.run) if each.name == cell.row.protocol), None
                )
                if outcome is not None and (place := place_in(outcome)) >= 0:
                    yield (
                        column.id,
                        (
                            int(outcome.predicted[place]),
                            float(outcome.values[outcome.codes[place]]),
                        ),
                    )

    for line in snapshot.board.lines:
        runs = [
            cell.run
            for column, cell in line.cells.items()
            if column in ids and cell.row is not None
        ]
        if not runs or view.model.casefold() not in line.model.casefold():
            continue
        if len(choices) == MOST_MODELS:
            more += 1
        elif (chosen := dict(chosen_by(line))) or any(
            place_in(each) >= 0 for each in outcomes_of(runs[0])
        ):
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
                    column.id: {
                        "protocol": column.protocol,
                        "prediction": prediction,
                        "credit": credit,
                    }
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
class AskedProtocol:
    """A protocol that the board has, its columns, and the ``sheet`` that a page of its runs shows, too."""

    p: str
    protocol: Protocol
    columns: tuple[Column, ...]
    sheet: Sheet

    @property
    def axes(self) -> list[tuple[str, str]]:
        """Every axis with its value: texts with their white space visible, the rest as the signature spells it."""
        spelled = (part.partition(":") for part in signature(self.protocol).split("|"))
        values = [(axis, value, getattr(self.protocol, axis)) for axis, _, value in spelled]
        return [
            (axis, shown_line(text) if isinstance(text, str) else value)
            for axis, value, text in values
        ]


def asked_protocol(snapshot: Snapshot, p: str) -> AskedProtocol | None:
    """The protocol of that short id (without the number sign), if the board has one."""
    columns = tuple(column for column in snapshot.board.columns if column.p == f"#{p}")
    if not columns:
        return None
    protocol = parse_signature(columns[0].key.signature)
    known = next((entry for entry in entries() if protocol in entry.protocols.values()), None)
    shown = sheet(columns[0].protocol, {columns[0].protocol: protocol}, known)
    return AskedProtocol(columns[0].p, protocol, columns, shown)


def protocol_record(snapshot: Snapshot, asked: AskedProtocol) -> dict[str, Any]:
    """The same as plain data."""
    entry = asked.sheet.entry
    published = None
    if entry is not None:
        published = {
            "title": entry.title,
            "citation": entry.citation,
            "source": entry.source,
            "about": entry.description,
        }
    return {
        "protocol": asked.sheet.name,
        "p": asked.p,
        "signature": signature(asked.protocol),
        "axes": dict(asked.axes),
        "entry": published,
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
    return sorted(
        lines, key=lambda line: (line.cells[column.id].rank or len(lines) + 1, line.model)
    )


Record = dict[str, Any]

CSV_COLUMNS = (
    *(
        "model",
        "run",
        "dataset",
        "data",
        "selection",
        "group",
        "protocol",
        "p",
        "i",
        "r",
        "family",
        "metric",
    ),
    *(
        "value",
        "ci_low",
        "ci_high",
        "n",
        "missing",
        "chance",
        "rank",
        "rank_low",
        "rank_high",
        "warnings",
        "state",
    ),
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
                "spreads": {
                    part: spread for part, spread in line.spreads.items() if part in seen.medians
                },
                "cells": {
                    column.id: cell_record(snapshot, column, cell)
                    for column, cell in _shown_cells(line, seen)
                },
            }
            for line in seen.lines
        ],
        "runs": [run_record(run, whole=False) for run in snapshot.board.runs],
    }


def column_record(column: Column) -> Record:
    """A column with everything that tells it apart from others."""
    key = column.key
    about: Record = {
        "id": column.id,
        "dataset": column.dataset,
        "data": key.part.data,
        "part": key.part.id,
    }
    about |= {
        "selection": key.part.selection,
        "group": column.group,
        "protocol": column.protocol,
        "p": column.p,
    }
    about |= {
        "i": key.texts,
        "family": column.family,
        "metric": key.metric,
        "n": column.n,
        "chance": column.chance,
    }
    metric = METRICS[key.metric]
    about |= {"unit": metric.unit, "higher_is_better": metric.higher}
    return {**about, "measured": column.measured, "signature": key.signature}


def cell_record(snapshot: Snapshot, column: Column, cell: Cell) -> Record:
    """A number of a column with its rank, or the words that stand in its place; shares of 1, or in its unit."""
    if cell.row is None or not cell.scored:
        return {"run": cell.run.id, "state": cell.words, "value": None}
    row = cell.row
    low, high = snapshot.ranges.get(column.id, {}).get(cell.run.id, (None, None))
    number = {
        name: getattr(row, name) for name in ("value", "se", "ci_low", "ci_high", "n", "missing")
    }
    ids = {"i": row.i, "t": row.t, "r": row.r}
    rank = {"rank": cell.rank, "rank_low": low, "rank_high": high}
    return {
        "run": cell.run.id,
        "state": "",
        **number,
        **rank,
        "warnings": row.diagnosis.warnings,
        **ids,
    }


def run_record(run: ListedRun, whole: bool = True) -> Record:
    """A run folder without the place where it lies; ``whole``: with all that it takes to get its numbers again."""
    about: Record = {
        "id": run.id,
        "label": run.label,
        "state": run.state,
        "reason": run.reason,
        "version": run.version,
    }
    if (manifest := run.manifest) is None:
        return about
    about |= {
        "model": run.model,
        "r": run.computed,
        "dataset": manifest.dataset.name,
        "data": manifest.dataset.digest,
    }
    if whole:
        about |= {
            name: getattr(manifest, name)
            for name in ("model", "selection", "engine", "versions", "protocols")
        }
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
                row |= {
                    "model_source": manifest.model.source,
                    "dataset_source": manifest.dataset.source,
                }
            rows.append(row)
    return table_csv(CSV_COLUMNS, rows)


MOST = 12
"""Columns that are chosen where nobody chose them."""

ANY = "any"
"""Numbers with any warning; see :attr:`View.warning`."""

Order = Literal["", "up", "down"]


@dataclass(frozen=True, slots=True)
class View:
    """One state of the board.

    ``data`` (ids of parts of the data), ``family`` and ``protocol`` (names) choose the columns, ``columns`` says "all"
    where all are wanted instead of a handful.  ``model`` is a part of a name.  ``warning`` leaves only the numbers that
    have this one, with "any" those with any, with "none" those without.  ``sort`` is the id of a column,
    "model", or "median-" and the id of a part; nothing for the median, best first.  ``order``: "up" from the lowest,
    "down" from the highest; nothing for best first, and names from A to Z.
    """

    data: tuple[str, ...] = ()
    family: tuple[str, ...] = ()
    protocol: tuple[str, ...] = ()
    columns: str = ""
    model: str = ""
    warning: str = ""
    sort: str = ""
    order: Order = ""

    def with_(self, **changes: Any) -> View:
        """The same state but for these changes; for templates."""
        return replace(self, **changes)

    def query(self) -> str:
        """The state as the query of an address, without what it does not say; one state has one spelling."""
        pairs: list[tuple[str, str]] = []
        for each in fields(self):
            value = getattr(self, each.name)
            pairs += [
                (each.name, one) for one in ((value,) if isinstance(value, str) else value) if one
            ]
        return urlencode(pairs, errors="replace")


def read_view(pairs: Iterable[tuple[str, str]]) -> View:
    """The state that a query says, as (name, value) pairs.  What no state can mean is left out."""
    told: dict[str, list[str]] = {}
    for name, value in pairs:
        if value:
            told.setdefault(name, []).append(value)
    data, family, protocol = (
        tuple(dict.fromkeys(told.get(name, ()))) for name in ("data", "family", "protocol")
    )
    columns, model, warning, sort = (
        told.get(name, [""])[-1] for name in ("columns", "model", "warning", "sort")
    )
    order: Order = (
        "up" if told.get("order", [""])[-1] == "up" else "down" if "order" in told else ""
    )
    return View(
        data, family, protocol, "all" if columns == "all" else "", model, warning, sort, order
    )


def known_view(board: Board, view: View) -> tuple[View, bool]:
    """The view without an order that ``board`` does not have, and whether all that it says is of the board: then there
    are only so many of its kind."""
    parts = {column.key.part.id for column in board.columns}
    sorts = {
        *(column.id for column in board.columns),
        "model",
        MEAN,
        *(f"median-{part}" for part in parts),
    }
    known = (
        not view.model
        and parts.issuperset(view.data)
        and {column.family for column in board.columns}.issuperset(view.family)
        and {column.protocol for column in board.columns}.issuperset(view.protocol)
        and view.warning in {"", ANY, "none", *WARNINGS}
    )
    return view if view.sort in sorts else replace(view, sort=""), known


MEAN = "mean"
"""What a view sorts by for the mean over the headline protocols."""


@dataclass(frozen=True, eq=False)
class Sorted:
    """A table whose lines are sorted by ``sort``, what the view asks for where it is there; ``downwards`` says how."""

    view: View
    sort: str
    downwards: bool
    columns: tuple[Column, ...]


@dataclass(frozen=True, eq=False)
class Shown(Sorted):
    """What a view leaves of a board, sorted by the median where it asks for nothing else.

    ``medians``: the ids of the parts of the data that have a column of medians.
    """

    medians: tuple[str, ...]
    lines: tuple[Line, ...]


def shown(board: Board, view: View) -> Shown:
    """What ``view`` shows of ``board``.  Lines without a number to sort by come last, in the order of their names."""
    columns = chosen_columns(board, view)
    medians = tuple(
        dict.fromkeys(
            column.key.part.id for column in columns if column.key.part.id in board.panels
        )
    )
    ids = {column.id for column in columns}
    lines = [
        line
        for line in board.lines
        if view.model.casefold() in line.model.casefold()
        and any(is_shown(cell, view) for column, cell in line.cells.items() if column in ids)
    ]
    sorts = {*ids, "model", *(f"median-{part}" for part in medians)}
    default = f"median-{medians[0]}" if medians else "model"
    sort = view.sort if view.sort in sorts else default
    order = view.order if sort == (view.sort or default) else ""
    downwards = order == "down" or (not order and falls(columns, sort))
    number = None if sort == "model" else lambda line: _number(line, sort)
    ordered = in_order(lines, lambda line: line, number, downwards)
    return Shown(view, sort, downwards, columns, medians, tuple(ordered))


def falls(columns: Sequence[Column], sort: str) -> bool:
    """Whether the best comes first where numbers fall: not for names, nor for numbers of which less is better."""
    return sort != "model" and all(column.higher for column in columns if column.id == sort)


def chosen_columns(board: Board, view: View) -> tuple[Column, ...]:
    """The columns that a view asks for, in the order of the board."""
    among = [
        column
        for column in board.columns
        if (not view.data or column.key.part.id in view.data)
        and (not view.family or column.family in view.family)
        and (not view.protocol or column.protocol in view.protocol)
    ]
    if view.columns == "all" or view.family or view.protocol:
        return tuple(among)
    return handful(among, MOST)


def is_shown(cell: Cell, view: View) -> bool:
    """Whether a view shows a cell; words are shown only where warnings don't matter."""
    if not view.warning:
        return True
    if cell.row is None:
        return False
    raised = cell.row.diagnosis.warnings
    return (
        not raised
        if view.warning == "none"
        else bool(raised)
        if view.warning == ANY
        else view.warning in raised
    )


def handful(columns: Sequence[Column], most: int) -> tuple[Column, ...]:
    """At most so many of ``columns``, in their order: headlines, of every part of the data and family in turn.

    Of the headlines of a family those measured most often come first, then those under which numbers were published.
    """
    headlines = [column for column in columns if column.headline] or list(columns)
    turns: dict[tuple[Part, str], int] = {}
    order: list[tuple[int, int, Column]] = []
    for column in sorted(headlines, key=lambda each: (-each.measured, each.p not in published())):
        turn = turns[column.key.part, column.family] = (
            turns.get((column.key.part, column.family), 0) + 1
        )
        order.append((turn, len(order), column))
    chosen = {column.id for _, _, column in sorted(order, key=lambda each: each[:2])[:most]}
    return tuple(column for column in columns if column.id in chosen)


@dataclass(frozen=True, slots=True)
class PartHeading:
    """The columns about one part of the data.

    ``n`` items and ``chance`` (a share of 1) where all columns agree in them, else None and NaN.  ``panel``: of how
    many numbers the median is; 0 where there is none.  ``prefix``: what the names of all protocols begin with.
    ``families``: the columns of each family, with whether another one has the same protocol and other texts.
    """

    part: Part
    dataset: str
    n: int | None
    chance: float
    panel: int
    prefix: str
    families: Mapping[str, Sequence[tuple[Column, bool]]]

    @property
    def width(self) -> int:
        """How many columns it spans."""
        return (self.panel > 0) + sum(map(len, self.families.values()))

    @property
    def median(self) -> str:
        """What a view sorts by for the median."""
        return f"median-{self.part.id}"


def headings(board: Board, columns: Sequence[Column]) -> tuple[PartHeading, ...]:
    """The headings over ``columns``, which are in the order of the board."""
    alike = Counter(replace(column.key, texts="") for column in board.columns)
    parts = []
    for part, members in groupby(columns, key=lambda column: column.key.part):
        own = list(members)
        families = {
            name: [(column, alike[replace(column.key, texts="")] > 1) for column in group]
            for name, group in groupby(own, key=lambda column: column.family)
        }
        sizes = {column.n for column in own if column.n}
        chances = {
            column.chance for column in own if column.share and not math.isnan(column.chance)
        }
        panel = len(board.panels.get(part.id, ()))
        size, chance = (
            (sizes.pop() if len(sizes) == 1 else None),
            (chances.pop() if len(chances) == 1 else math.nan),
        )
        parts.append(PartHeading(part, own[0].dataset, size, chance, panel, _prefix(own), families))
    return tuple(parts)


def sorted_by(seen: Sorted, sort: str) -> View:
    """The view after a click on the heading of ``sort``: the other way round where the lines are sorted by it."""
    if seen.sort != sort:
        return replace(seen.view, sort=sort, order="")
    first_down = falls(seen.columns, sort)
    turned = seen.downwards == first_down
    return replace(seen.view, sort=sort, order=("up" if first_down else "down") if turned else "")


def order_of(seen: Sorted, sort: str) -> str:
    """``ascending``, ``descending``, or nothing where the lines are sorted by something else."""
    return "" if seen.sort != sort else "descending" if seen.downwards else "ascending"


TESTED = 24
"""Models of a board of which it is said how many leads are significant; of more the tests would take long."""


def board_finding(board: Board, decided: Callable[[ListedRun], Outcomes | None]) -> tuple[str, ...]:
    """One to three sentences about the numbers that most models have; of a board without numbers, what it lacks.

    Numbers that are no shares of 1 have columns of their own, and one sentence says so.  ``decided``: what was decided
    of every item of a run.
    """
    if not board.runs:
        return ("No run is here yet.",)
    panel = {column for columns in board.panels.values() for column in columns}
    cells = [cell for line in board.lines for name, cell in line.cells.items() if name in panel]
    rows = [cell.row for cell in cells if cell.row]
    if len(board.lines) <= TESTED:
        runs = {cell.run.id: cell.run for cell in cells if cell.row}
        outcomes = [outcome for run in runs.values() if (outcome := decided(run)) is not None]
        rows = bounded(ranked(rows), outcomes)
    rows += [row for run in board.runs for row in run.rows if not row.share]
    return tuple(sentences(finding(rows))) if rows else ("No run has been read yet.",)


def _shown_cells(line: Line, seen: Shown) -> Iterator[tuple[Column, Cell]]:
    for column in seen.columns:
        if (cell := line.cells.get(column.id)) is not None and is_shown(cell, seen.view):
            yield column, cell


def _number(line: Line, sort: str) -> float:
    if sort.startswith("median-"):
        spread = line.spreads.get(sort.removeprefix("median-"))
        return math.nan if spread is None else spread.median
    return line.cells[sort].value if sort in line.cells else math.nan


def _prefix(columns: Sequence[Column]) -> str:
    """``mmlu/`` where all protocols are of that benchmark."""
    benchmarks = {column.protocol.partition("/")[0] for column in columns}
    common = f"{benchmarks.pop()}/" if len(benchmarks) == 1 else ""
    return common if all(column.protocol.startswith(common) for column in columns) else ""
