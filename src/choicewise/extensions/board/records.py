"""Select what the pages of the board show, as values, as JSON and as CSV, by the view that a reader
chose.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import partial
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
from choicewise.results.explain import Explanation
from choicewise.results.finding import finding
from choicewise.results.number import WARNINGS
from choicewise.results.outcomes import Outcome, Outcomes, bounded, ranked
from choicewise.results.published import published
from choicewise.running.fitting import variants_among
from choicewise.table import table_csv
from choicewise.util.jsonio import json_text
from choicewise.util.text import json_safe, shown_line

Number = tuple[Column, Cell]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Hold the numbers of one line on one part of the data, by family."""

    line: Line
    part: Part
    dataset: str
    spread: Spread | None
    families: dict[str, list[Number]]
    runs: tuple[ListedRun, ...]

    @property
    def numbers(self) -> list[Number]:
        """Return the numbers of all families."""
        numbers: list[Number] = []
        for of_family in self.families.values():
            numbers += of_family
        return numbers


def model_name(snapshot: Snapshot, name: str) -> str | None:
    """Return the model whose address ends in ``name``, None if there is none."""
    for model in snapshot.board.models:
        if slug(model) == name:
            return model
    return None


def measured(snapshot: Snapshot, model: str) -> Iterator[Measured]:
    """Yield the numbers of a model, line by line and part by part."""
    for line in snapshot.board.lines:
        if line.model != model:
            continue
        parts: dict[Part, dict[str, list[Number]]] = {}
        datasets: dict[Part, str] = {}
        runs: dict[Part, dict[ListedRun, None]] = {}
        for column, cell in line.under(snapshot.board.columns):
            part = column.key.part
            parts.setdefault(part, {}).setdefault(column.family, []).append((column, cell))
            datasets.setdefault(part, column.dataset)
            runs.setdefault(part, {})[cell.run] = None
        for part, families in parts.items():
            yield Measured(
                line=line,
                part=part,
                dataset=datasets[part],
                spread=line.spreads.get(part.id),
                families=families,
                runs=tuple(runs[part]),
            )


def model_record(snapshot: Snapshot, model: str) -> Record:
    """Return the numbers of a model as plain data."""
    records = []
    runs: dict[ListedRun, None] = {}
    for part in measured(snapshot, model):
        spread = None
        if part.spread is not None:
            spread = asdict(part.spread)
        numbers = []
        for column, cell in part.numbers:
            numbers.append({**column_record(column), **cell_record(snapshot, column, cell)})
        records.append(
            {
                "told_apart": part.line.told_apart,
                "dataset": part.dataset,
                "data": part.part.data,
                "selection": part.part.selection,
                "spread": spread,
                "numbers": numbers,
            }
        )
        runs |= dict.fromkeys(part.runs)
    return {"model": model, "measured": records, "runs": [run_record(run) for run in runs]}


MOST_MODELS = 60
"""Models whose choices one page shows; a part of a name chooses others."""


@dataclass(frozen=True, slots=True)
class Choices:
    """Hold what one line chose under the columns: by column id, the index of a choice (-1: none)
    and its credit.
    """

    line: Line
    run: ListedRun
    chosen: dict[str, tuple[int, float]]


@dataclass(frozen=True, kw_only=True)
class ShownItem:
    """Hold an item with the choices of models under the ``columns``; ``left_out``: how many further
    models there are.

    ``explained`` is what ``run`` was sent and what every protocol made of it.
    """

    part: Part
    run: ListedRun
    explained: Explanation
    columns: tuple[Column, ...]
    choices: tuple[Choices, ...]
    left_out: int


def part_of(snapshot: Snapshot, name: str) -> Part | None:
    """Return the part of the data with that id, None if there is none."""
    for column in snapshot.board.columns:
        if column.key.part.id == name:
            return column.key.part
    return None


@dataclass(frozen=True)
class ItemChoices:
    """Look up what was chosen on one item; ``decisions`` returns the outcomes of a run, None if
    they are gone.
    """

    item: str
    decisions: Callable[[ListedRun], Outcomes | None]
    rows: dict[int, int] = field(default_factory=dict)

    def row_in(self, outcome: Outcome) -> int:
        """Return the row of the item, -1 if it is not in the outcome's table."""
        # Runs on the same items share one table, which is searched once.
        key = id(outcome.items)
        if key not in self.rows:
            self.rows[key] = pc.index(outcome.items["item"], self.item).as_py()
        return self.rows[key]

    def outcomes_of(self, run: ListedRun) -> Sequence[Outcome]:
        """Return the outcomes of a run that has the item."""
        outcomes = self.decisions(run)
        if outcomes is None:
            return ()
        return [outcome for outcome in outcomes.outcomes if self.row_in(outcome) >= 0]

    def chosen(self, line: Line, columns: Sequence[Column]) -> dict[str, tuple[int, float]]:
        """Return what a line chose under each of ``columns`` that it has."""
        chosen = {}
        for column, cell in line.under(columns):
            if cell.row is None:
                continue
            for outcome in self.outcomes_of(cell.run):
                if outcome.name == cell.row.identity.protocol:
                    row = self.row_in(outcome)
                    credit = float(outcome.values[outcome.codes[row]])
                    chosen[column.id] = int(outcome.predicted[row]), credit
        return chosen


def shown_item(
    snapshot: Snapshot,
    item_choices: ItemChoices,
    explain: Callable[[ListedRun, str], Explanation],
    part: Part,
    run: str,
    view: View,
) -> ShownItem | None:
    """Return an item in the way ``run`` (an id) was sent it, or another run that has the item; None
    if no run has it.

    ``explain`` returns what a run was sent, or raises.
    """
    columns = []
    for column in chosen_columns(snapshot.board, replace(view, data=(part.id,))):
        if column.measured and column.share:
            columns.append(column)
    ids = {column.id for column in snapshot.board.columns if column.key.part == part}
    choices: list[Choices] = []
    left_out = 0
    for line in snapshot.board.lines:
        first_run = _first_run(line, ids)
        if first_run is None or view.model.casefold() not in line.model.casefold():
            continue
        if len(choices) == MOST_MODELS:
            left_out += 1
            continue
        chosen = item_choices.chosen(line, columns)
        if chosen or item_choices.outcomes_of(first_run):
            choices.append(Choices(line, first_run, chosen))
    if not choices:
        return None
    explained_run = choices[0].run
    for of_line in choices:
        if of_line.run.id == run:
            explained_run = of_line.run
    return ShownItem(
        part=part,
        run=explained_run,
        explained=explain(explained_run, item_choices.item),
        columns=tuple(columns),
        choices=tuple(choices),
        left_out=left_out,
    )


def _first_run(line: Line, columns: Collection[str]) -> ListedRun | None:
    """Return the first run of a line with a number in one of ``columns`` (ids)."""
    for column_id, cell in line.cells.items():
        if column_id in columns and cell.row is not None:
            return cell.run
    return None


def item_record(item: ShownItem) -> Record:
    """Return an item as plain data."""
    choices = []
    for of_line in item.choices:
        chosen = {}
        for column in item.columns:
            if column.id in of_line.chosen:
                prediction, credit = of_line.chosen[column.id]
                chosen[column.id] = {
                    "protocol": column.protocol,
                    "prediction": prediction,
                    "credit": credit,
                }
        choices.append({"model": of_line.line.model, "run": of_line.run.id, "chosen": chosen})
    return {
        "data": item.part.data,
        "selection": item.part.selection,
        "run": item.run.id,
        "choices": choices,
        "models_left_out": item.left_out,
        "explained": asdict(item.explained),
    }


@dataclass(frozen=True, slots=True)
class AskedProtocol:
    """Hold a protocol that the board has, its columns, and the ``sheet`` that a page of its runs
    shows, too.
    """

    p: str
    protocol: Protocol
    columns: tuple[Column, ...]
    sheet: Sheet

    @property
    def axes(self) -> list[tuple[str, str]]:
        """Return every axis with its value: texts with visible white space, others as the signature
        spells them.
        """
        axes = []
        for part in signature(self.protocol).split("|"):
            axis, _, text = part.partition(":")
            value = getattr(self.protocol, axis)
            if isinstance(value, str):
                text = shown_line(value)
            axes.append((axis, text))
        return axes


def asked_protocol(snapshot: Snapshot, p: str) -> AskedProtocol | None:
    """Return the protocol of that short id (without the number sign), None if the board has none."""
    columns = tuple(column for column in snapshot.board.columns if column.p == f"#{p}")
    if not columns:
        return None
    first = columns[0]
    protocol = parse_signature(first.key.signature)
    entry_of_protocol = None
    for entry in entries():
        if protocol in entry.protocols.values():
            entry_of_protocol = entry
            break
    protocol_sheet = sheet(first.protocol, {first.protocol: protocol}, entry_of_protocol)
    return AskedProtocol(first.p, protocol, columns, protocol_sheet)


def protocol_record(snapshot: Snapshot, protocol: AskedProtocol) -> Record:
    """Return a protocol of the board as plain data."""
    entry = protocol.sheet.entry
    published_entry = None
    if entry is not None:
        published_entry = {
            "title": entry.title,
            "citation": entry.citation,
            "source": entry.source,
            "about": entry.description,
        }
    columns = []
    for column in protocol.columns:
        models = []
        for line in ordered_lines(snapshot, column):
            cell = cell_record(snapshot, column, line.cells[column.id])
            models.append({"model": line.model, **cell})
        columns.append({**column_record(column), "models": models})
    return {
        "protocol": protocol.sheet.name,
        "p": protocol.p,
        "signature": signature(protocol.protocol),
        "axes": dict(protocol.axes),
        "entry": published_entry,
        "columns": columns,
    }


def ordered_lines(snapshot: Snapshot, column: Column) -> list[Line]:
    """Return the lines of a column, the best first, those without a number last."""
    lines = [line for line in snapshot.board.lines if column.id in line.cells]
    # Lines without a rank come behind the last rank.
    after_all = len(lines) + 1
    lines.sort(key=lambda line: (line.cells[column.id].rank or after_all, line.model))
    return lines


Record = dict[str, Any]

CSV_COLUMNS = tuple(
    (
        "model run dataset data selection group protocol p i r family metric "
        "value ci_low ci_high n missing chance rank rank_low rank_high warnings state "
        "model_source dataset_source"
    ).split()
)

_MARKUP = {ord(char): f"\\u{ord(char):04x}" for char in "<>&"}


def as_json(content: Any) -> str:
    """Write ``content`` as JSON; NaN is null, and markup of HTML, control and invisible characters
    are escapes.
    """
    return json_safe(json_text(content, indent=1).translate(_MARKUP)) + "\n"


def board_record(snapshot: Snapshot, view: View) -> Record:
    """Return the board in the state ``view``: columns, and models in their order with their cells
    by column.
    """
    visible = visible_board(snapshot.board, view)
    order = "ascending"
    if visible.downwards:
        order = "descending"
    models = []
    for line in visible.lines:
        spreads = {}
        for part, spread in line.spreads.items():
            if part in visible.medians:
                spreads[part] = spread
        cells = {}
        for column, cell in visible_cells(line, visible.columns, view):
            cells[column.id] = cell_record(snapshot, column, cell)
        models.append(
            {
                "model": line.model,
                "told_apart": line.told_apart,
                "runs": [run.id for run in line.runs],
                "spreads": spreads,
                "cells": cells,
            }
        )
    return {
        "view": asdict(view),
        "still_to_be_read": snapshot.waiting,
        "problems": snapshot.problems,
        "sorted_by": visible.sort,
        "order": order,
        "columns": [column_record(column) for column in visible.columns],
        "models": models,
        "runs": [run_record(run, whole=False) for run in snapshot.board.runs],
    }


def column_record(column: Column) -> Record:
    """Return a column with everything that tells it apart from others."""
    key = column.key
    metric = METRICS[key.metric]
    return {
        "id": column.id,
        "dataset": column.dataset,
        "data": key.part.data,
        "part": key.part.id,
        "selection": key.part.selection,
        "group": column.group,
        "protocol": column.protocol,
        "p": column.p,
        "i": key.texts,
        "family": column.family,
        "metric": key.metric,
        "n": column.n,
        "chance": column.chance,
        "unit": metric.unit,
        "higher_is_better": metric.higher,
        "measured": column.measured,
        "signature": key.signature,
    }


def cell_record(snapshot: Snapshot, column: Column, cell: Cell) -> Record:
    """Return a number of a column with its rank, or the words in its place; shares of 1, or in its
    unit.
    """
    if cell.row is None or not cell.scored:
        return {"run": cell.run.id, "state": cell.words, "value": None}
    row = cell.row
    # Ranges of ranks take long and come later than the numbers.
    low, high = snapshot.ranges.get(column.id, {}).get(cell.run.id, (None, None))
    return {
        "run": cell.run.id,
        "state": "",
        "value": row.value,
        "se": row.se,
        "ci_low": row.interval.low,
        "ci_high": row.interval.high,
        "n": row.counts.n,
        "missing": row.counts.missing,
        "rank": cell.rank,
        "rank_low": low,
        "rank_high": high,
        "warnings": row.diagnosis.warnings,
        "i": row.identity.i,
        "t": row.identity.t,
        "r": row.identity.r,
    }


def run_record(run: ListedRun, whole: bool = True) -> Record:
    """Return a run without its folder; ``whole``: with all that it takes to get its numbers again."""
    record: Record = {
        "id": run.id,
        "label": run.label,
        "state": run.state,
        "reason": run.reason,
        "version": run.version,
    }
    manifest = run.manifest
    if manifest is None:
        return record
    record["model"] = run.model
    record["r"] = run.computed
    record["dataset"] = manifest.dataset.name
    record["data"] = manifest.dataset.digest
    if whole:
        record["model"] = manifest.model
        record["selection"] = manifest.selection
        record["engine"] = manifest.engine
        record["versions"] = manifest.versions
        record["protocols"] = manifest.protocols
        record["dataset_source"] = manifest.dataset.source
    return record


def board_csv(snapshot: Snapshot, view: View) -> str:
    """Write a row per number or word that the board shows in the state ``view``; shares of 1."""
    visible = visible_board(snapshot.board, view)
    rows = []
    for line in visible.lines:
        for column, cell in visible_cells(line, visible.columns, view):
            row = {**column_record(column), **cell_record(snapshot, column, cell)}
            row |= {"model": line.model, "run": cell.run.label, "r": cell.run.computed}
            manifest = cell.run.manifest
            if manifest is not None:
                row["model_source"] = manifest.model.source
                row["dataset_source"] = manifest.dataset.source
            rows.append(row)
    return table_csv(CSV_COLUMNS, rows)


MOST = 12
"""Columns that are chosen if nobody chose any."""

ANY = "any"
"""Numbers with any warning; see :attr:`View.warning`."""

Order = Literal["", "up", "down"]


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """Describe one state of the board.

    ``data`` (ids of parts of the data), ``family`` and ``protocol`` (names) choose the columns;
    ``columns`` says "all" to have all instead of a handful. ``model`` is a part of a name.
    ``warning`` leaves only the numbers that have this one, with "any" those with any, with "none"
    those without. ``sort`` is the id of a column, "model", or "median-" and the id of a part; ""
    for the median, best first. ``order``: "up" from the lowest, "down" from the highest; "" for
    best first, and names from A to Z.
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
        """Return the state with these changes; for templates."""
        return replace(self, **changes)

    def wants(self, column: Column) -> bool:
        """Check that the view asks for a column, or does not choose."""
        if self.data and column.key.part.id not in self.data:
            return False
        if self.family and column.family not in self.family:
            return False
        return not self.protocol or column.protocol in self.protocol

    def query(self) -> str:
        """Return the state as the query of an address, without what it does not say; one state has
        one spelling.
        """
        pairs: list[tuple[str, str]] = []
        for axis in fields(self):
            value = getattr(self, axis.name)
            if isinstance(value, str):
                value = (value,)
            pairs += [(axis.name, text) for text in value if text]
        return urlencode(pairs, errors="replace")


def read_view(pairs: Iterable[tuple[str, str]]) -> View:
    """Return the state that a query says, as (name, value) pairs. What no state can mean is left
    out.
    """
    # Addresses are typed and changed by people: the last of repeated names counts.
    values: dict[str, list[str]] = {}
    for name, value in pairs:
        if value:
            values.setdefault(name, []).append(value)

    def several(name: str) -> tuple[str, ...]:
        return tuple(dict.fromkeys(values.get(name, ())))

    def last(name: str) -> str:
        return values.get(name, [""])[-1]

    order: Order = ""
    if last("order") == "up":
        order = "up"
    elif "order" in values:
        order = "down"
    columns = ""
    if last("columns") == "all":
        columns = "all"
    return View(
        data=several("data"),
        family=several("family"),
        protocol=several("protocol"),
        columns=columns,
        model=last("model"),
        warning=last("warning"),
        sort=last("sort"),
        order=order,
    )


def known_view(board: Board, view: View) -> tuple[View, bool]:
    """Return the view without an order that ``board`` lacks, and whether all that it says is of the
    board.

    A protocol's name stands for its only variant on the board, if the board lacks it.
    """
    # Of the views that say only what the board has there are so many, and their pages can be kept.
    parts = {column.key.part.id for column in board.columns}
    families = {column.family for column in board.columns}
    protocols = {column.protocol for column in board.columns}
    variants = variants_among(protocols, view.protocol)
    view = replace(view, protocol=tuple(variants.get(name, name) for name in view.protocol))
    is_of_board = (
        not view.model
        and parts.issuperset(view.data)
        and families.issuperset(view.family)
        and protocols.issuperset(view.protocol)
        and view.warning in {"", ANY, "none", *WARNINGS}
    )
    sorts = {"model", MEAN}
    sorts.update(column.id for column in board.columns)
    sorts.update(f"median-{part}" for part in parts)
    if view.sort not in sorts:
        view = replace(view, sort="")
    return view, is_of_board


MEAN = "mean"
"""What a view sorts by for the mean over the headline protocols."""


@dataclass(frozen=True, eq=False)
class Sorted:
    """Hold a table whose lines are sorted by ``sort``, which is what the view asks for if the table
    has it.

    ``downwards``: whether the greatest comes first.
    """

    view: View
    sort: str
    downwards: bool
    columns: tuple[Column, ...]


@dataclass(frozen=True, eq=False, kw_only=True)
class VisibleBoard(Sorted):
    """Hold what a view leaves of a board, sorted by the median if it asks for nothing else.

    ``medians``: the ids of the parts of the data that have a column of medians.
    """

    medians: tuple[str, ...]
    lines: tuple[Line, ...]


def visible_board(board: Board, view: View) -> VisibleBoard:
    """Return what ``view`` leaves of ``board``. Lines without a number to sort by are last, in the
    order of names.
    """
    columns = chosen_columns(board, view)
    parts = dict.fromkeys(column.key.part.id for column in columns)
    medians = tuple(part for part in parts if part in board.panels)
    ids = {column.id for column in columns}
    lines = [line for line in board.lines if _has_visible_cell(line, ids, view)]
    default = "model"
    if medians:
        default = f"median-{medians[0]}"
    sort = view.sort
    if sort not in {*ids, "model", *(f"median-{part}" for part in medians)}:
        sort = default
    order = ""
    if sort == (view.sort or default):
        order = view.order
    downwards = order == "down" or (not order and falls(columns, sort))
    number = None
    if sort != "model":
        number = partial(_number, sort=sort)
    ordered = in_order(lines, lambda line: line, number, downwards)
    return VisibleBoard(
        view=view,
        sort=sort,
        downwards=downwards,
        columns=columns,
        medians=medians,
        lines=tuple(ordered),
    )


def _has_visible_cell(line: Line, columns: Collection[str], view: View) -> bool:
    if view.model.casefold() not in line.model.casefold():
        return False
    for column_id, cell in line.cells.items():
        if column_id in columns and is_shown(cell, view):
            return True
    return False


def falls(columns: Sequence[Column], sort: str) -> bool:
    """Check that the best comes first if numbers fall: not for names, nor for numbers of which less
    is better.
    """
    return sort != "model" and all(column.higher for column in columns if column.id == sort)


def chosen_columns(board: Board, view: View) -> tuple[Column, ...]:
    """Return the columns that a view asks for, in the order of the board."""
    columns = tuple(column for column in board.columns if view.wants(column))
    if view.columns == "all" or view.family or view.protocol:
        return columns
    return handful(columns, MOST)


def is_shown(cell: Cell, view: View) -> bool:
    """Check that a view shows a cell; words are shown only if warnings don't matter."""
    if not view.warning:
        return True
    if cell.row is None:
        return False
    warnings = cell.row.diagnosis.warnings
    if view.warning == "none":
        return not warnings
    if view.warning == ANY:
        return bool(warnings)
    return view.warning in warnings


def handful(columns: Sequence[Column], most: int) -> tuple[Column, ...]:
    """Return at most so many of ``columns``, in their order: headlines, of every part and family in
    turn.

    Of the headlines of a family those measured most often come first, then those under which
    numbers were published.
    """
    headlines = [column for column in columns if column.headline] or list(columns)
    # Sorted twice: within a family by how often it was measured, then in turns over the families.
    headlines.sort(key=lambda column: (-column.measured, column.p not in published()))
    turns: Counter[tuple[Part, str]] = Counter()
    turn_of: dict[str, int] = {}
    for column in headlines:
        family = column.key.part, column.family
        turns[family] += 1
        turn_of[column.id] = turns[family]
    headlines.sort(key=lambda column: turn_of[column.id])
    chosen = {column.id for column in headlines[:most]}
    return tuple(column for column in columns if column.id in chosen)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartHeading:
    """Describe the columns about one part of the data.

    ``n`` items and ``chance`` (a share of 1) if all columns agree in them, else None and NaN.
    ``panel``: of how many numbers the median is; 0 if there is none. ``prefix``: what the names of
    all protocols begin with. ``families``: the columns of each family, with whether another one has
    the same protocol and other texts.
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
        """Count the columns below the heading, with that of the median."""
        count = sum(len(columns) for columns in self.families.values())
        if self.panel > 0:
            count += 1
        return count

    @property
    def median(self) -> str:
        """Return what a view sorts by for the median."""
        return f"median-{self.part.id}"


def headings(board: Board, columns: Sequence[Column]) -> tuple[PartHeading, ...]:
    """Return the headings over ``columns``, which are in the order of the board."""
    # Columns of one protocol with other texts look alike but for their ids, which are shown then.
    same_but_texts = Counter(replace(column.key, texts="") for column in board.columns)
    headings_of_parts = []
    for part, grouped in groupby(columns, key=lambda column: column.key.part):
        of_part = list(grouped)
        families: dict[str, list[tuple[Column, bool]]] = {}
        sizes = set()
        chances = set()
        for column in of_part:
            is_ambiguous = same_but_texts[replace(column.key, texts="")] > 1
            families.setdefault(column.family, []).append((column, is_ambiguous))
            if column.n:
                sizes.add(column.n)
            if column.share and not math.isnan(column.chance):
                chances.add(column.chance)
        n = None
        if len(sizes) == 1:
            (n,) = sizes
        chance = math.nan
        if len(chances) == 1:
            (chance,) = chances
        headings_of_parts.append(
            PartHeading(
                part=part,
                dataset=of_part[0].dataset,
                n=n,
                chance=chance,
                panel=len(board.panels.get(part.id, ())),
                prefix=_prefix(of_part),
                families=families,
            )
        )
    return tuple(headings_of_parts)


def sorted_by(table: Sorted, sort: str) -> View:
    """Return the view after a click on the heading of ``sort``: turned round if the lines are
    sorted by it.
    """
    order: Order = ""
    best_first = falls(table.columns, sort)
    if table.sort == sort and table.downwards == best_first:
        order = "up" if best_first else "down"
    return replace(table.view, sort=sort, order=order)


def order_of(table: Sorted, sort: str) -> str:
    """Return "ascending", "descending", or "" if the lines are sorted by something else."""
    if table.sort != sort:
        return ""
    if table.downwards:
        return "descending"
    return "ascending"


TESTED = 24
"""Models of a board up to which leads are tested for significance; with further ones the tests
would take long.
"""


def board_finding(board: Board, decided: Callable[[ListedRun], Outcomes | None]) -> tuple[str, ...]:
    """Return one to three sentences about the numbers that most models have, or what a board
    without numbers lacks.

    Numbers that are no shares of 1 have columns of their own, and one sentence says so. ``decided``
    returns what was decided of every item of a run.
    """
    if not board.runs:
        return ("No run is here yet.",)
    panel: set[str] = set()
    for columns in board.panels.values():
        panel.update(columns)
    rows = []
    runs: dict[str, ListedRun] = {}
    for line in board.lines:
        for column_id, cell in line.cells.items():
            if column_id in panel and cell.row:
                rows.append(cell.row)
                runs[cell.run.id] = cell.run
    # All pairs of models are tested, which grows with the square of their number.
    if len(board.lines) <= TESTED:
        outcomes = []
        for run in runs.values():
            of_run = decided(run)
            if of_run is not None:
                outcomes.append(of_run)
        rows = list(bounded(ranked(rows), outcomes))
    for run in board.runs:
        rows += [row for row in run.rows if not row.share]
    if not rows:
        return ("No run has been read yet.",)
    return tuple(sentences(finding(rows)))


def visible_cells(line: Line, columns: Iterable[Column], view: View) -> Iterator[Number]:
    """Yield the cells of a line under ``columns`` that the view shows."""
    for column, cell in line.under(columns):
        if is_shown(cell, view):
            yield column, cell


def _number(line: Line, sort: str) -> float:
    """Return the number that a line is sorted by; NaN if it has none."""
    if sort.startswith("median-"):
        spread = line.spreads.get(sort.removeprefix("median-"))
        return math.nan if spread is None else spread.median
    if sort not in line.cells:
        return math.nan
    return line.cells[sort].value


def _prefix(columns: Sequence[Column]) -> str:
    """Return ``mmlu/`` if all protocols are of that benchmark, else an empty text."""
    first = columns[0].protocol
    prefix = f"{first.partition('/')[0]}/"
    if all(column.protocol.startswith(prefix) for column in columns):
        return prefix
    return ""
