"""Pages and their addresses."""

from __future__ import annotations

import hashlib
import json
import math
import re
from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from typing import Protocol as Structural
from urllib.parse import quote, urlencode

import pyarrow as pa
import pyarrow.compute as pc

from choicewise import __version__
from choicewise.board.library import Library, Shelf
from choicewise.board.model import (
    Cell,
    Column,
    Line,
    ListedRun,
    Part,
    Ranges,
    Spread,
    State,
    View,
    artefact_content,
    chosen_columns,
    headings,
    is_shown,
    order_of,
    shown,
    slug,
    sorted_by,
)
from choicewise.board.run_documents import run_document, run_strip
from choicewise.errors import UsageError
from choicewise.page.embed import environment, static_text
from choicewise.page.reproduce import selectors, table_csv
from choicewise.protocols.catalogue import Entry, entries
from choicewise.protocols.protocol import Protocol
from choicewise.protocols.signature import parse_signature, signature
from choicewise.results.compare import published
from choicewise.results.explain import Explanation
from choicewise.results.rows import WARNINGS
from choicewise.util.files import disk_errors, write_text
from choicewise.util.jsonio import json_value
from choicewise.util.text import disarmed, interval, json_safe, percent, ranks, shown_line

if TYPE_CHECKING:
    from markupsafe import Markup


FIRST = "index.html"
"""The page to open."""


def check_place(out: Path) -> None:
    """UsageError when ``out`` is a file, or a folder with other things than a board."""
    if out.exists() and not out.is_dir():
        raise UsageError(f"{out} is a file; a page ends in .html, and a board is written into a folder")
    if out.is_dir() and any(out.iterdir()) and not (out / FIRST).exists():
        raise UsageError(f"{out} holds other files and no board; choose an empty or new folder")


def write_board(shelf: Shelf, out: Path) -> Path:
    """Write the board into the folder ``out`` and return its first page.

    Raises StoreError where nothing can be written.  What lies there under other names stays.
    """
    with disk_errors(out):
        return _written(shelf, out)


def _written(shelf: Shelf, out: Path) -> Path:
    for name, content in board_files(shelf):
        file = out / name
        file.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, bytes):
            file.write_bytes(content)
        else:
            write_text(file, content)
    return out / FIRST


def board_files(shelf: Shelf) -> Iterator[tuple[str, str | bytes]]:
    """Every file by its name, relative to the folder; the first page comes last, when all that it names is there."""
    frame = _frame()
    below = Filed(1)
    whole = View(columns="all")
    for model in shelf.board.models:
        yield f"model/{slug(model)}.html", model_page(shelf, model, below, **frame)
        yield f"model/{slug(model)}.json", as_json(model_record(shelf, model))
    for p in dict.fromkeys(column.p.removeprefix("#") for column in shelf.board.columns):
        asked = sheet(shelf, p)
        if asked is not None:
            yield f"protocol/{p}.html", protocol_page(shelf, asked, below, **frame)
    for run in shelf.board.runs:
        if run.state is State.READ:
            yield f"strip/{run.id}.svg", run_strip(run.folder)
            yield f"run/{run.id}.html", run_document(run.folder, "../index.html")
        else:
            yield f"run/{run.id}.html", run_page(shelf, run, below, **frame)
        for artefact in run.artefacts:
            content = artefact_content(artefact.file, run.folder, run.rows)
            if content is not None:
                yield f"artefact/{artefact.name}", content
    yield "board.json", as_json(board_record(shelf, whole))
    yield "board.csv", board_csv(shelf, whole)
    families = dict.fromkeys(column.family for column in shelf.board.columns)
    for view in (*(View(family=(name,)) for name in families), whole, View()):
        yield board_file(view), board_page(shelf, view, Filed(), **frame)


def _frame() -> dict[str, object]:
    """What every page holds: its look, its script, and the policy that allows these two and nothing else."""
    from markupsafe import Markup

    style = static_text("page.css", "board.css")
    script = f'(() => {{\n"use strict";\n{static_text("board.js")}}})();'
    policy = (
        f"default-src 'none'; script-src '{_source(script)}'; style-src '{_source(style)}'; img-src 'self' data:; "
        "base-uri 'none'; form-action 'none'"
    )
    return {"style": Markup(style), "script": Markup(script), "policy": policy}


def _source(text: str) -> str:
    return f"sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


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
        flag for part in parts for each in part.numbers if each.cell.row for flag in each.cell.row.diagnosis.warnings
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
        legend={flag: words for flag, words in WARNINGS.items() if flag in raised},
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


def sheet(shelf: Shelf, p: str) -> Sheet | None:
    """The protocol of that short id (without the number sign), if the board has one."""
    columns = tuple(column for column in shelf.board.columns if column.p == f"#{p}")
    if not columns:
        return None
    protocol = parse_signature(columns[0].key.signature)
    known = (entry for entry in entries() if protocol in entry.protocols.values())
    return Sheet(columns[0].protocol, columns[0].p, protocol, columns, next(known, None))


def protocol_page(shelf: Shelf, asked: Sheet, links: Links, **further: Any) -> str:
    """The spec sheet as HTML."""
    numbers = [(column, _ordered(shelf, column)) for column in asked.columns]
    return rendered(
        "protocol.html.j2",
        shelf,
        links,
        sheet=asked,
        numbers=numbers,
        signature=signature(asked.protocol),
        **further,
    )


def protocol_record(shelf: Shelf, asked: Sheet) -> dict[str, Any]:
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
                    {"model": line.model, **cell_record(line.cells[column.id], shelf.ranges.get(column.id))}
                    for line in _ordered(shelf, column)
                ],
            }
            for column in asked.columns
        ],
    }


def _ordered(shelf: Shelf, column: Column) -> list[Line]:
    """The lines of a column, the best first, those without a number last."""
    lines = [line for line in shelf.board.lines if column.id in line.cells]
    return sorted(lines, key=lambda line: (line.cells[column.id].rank or len(lines) + 1, line.model))


def run_page(shelf: Shelf, run: ListedRun, links: Links, **further: Any) -> str:
    """The page of any run, as HTML."""
    words = "is complete." if run.state is State.READ else f"is {run.state}."
    return rendered("run.html.j2", shelf, links, run=run, words=words, protocols=asked_names(run), **further)


def asked_names(run: ListedRun) -> list[str]:
    """The fewest names that mean the protocols of a run; none where its manifest can't be read."""
    signatures = {} if run.manifest is None else run.manifest.protocols
    return selectors({name: parse_signature(text) for name, text in signatures.items()})


def board_page(shelf: Shelf, view: View, links: Links, **further: Any) -> str:
    """The board in the state ``view``; ``further`` is what the frame of the page takes."""
    board = shelf.board
    seen = shown(board, view)
    cells = [line.cells[column.id] for line in seen.lines for column in seen.columns if column.id in line.cells]
    raised = {flag for cell in cells if cell.row is not None for flag in cell.row.diagnosis.warnings}
    return rendered(
        "board.html.j2",
        shelf,
        links,
        board=board,
        view=view,
        seen=seen,
        headings=headings(board, seen.columns),
        families=Counter(column.family for column in board.columns),
        parts=dict.fromkeys((column.key.part, column.dataset) for column in board.columns),
        sorted_by=partial(sorted_by, seen),
        order_of=partial(order_of, seen),
        is_shown=is_shown,
        ranged=sum(column.measured > 1 for column in board.columns),
        flags=WARNINGS,
        legend={MARKS[flag]: words for flag, words in WARNINGS.items() if flag in raised},
        State=State,
        **further,
    )


def rendered(template: str, shelf: Shelf, links: Links, **context: Any) -> str:
    """A page of the board."""
    common = {"version": __version__, "shelf": shelf, "links": links, "View": View}
    words = {"doubts": doubts, "guessed": guessed, "breakable": breakable, "bar": bar}
    words |= {"cell_markup": cell_markup, "spread_markup": spread_markup}
    return environment().get_template(template).render(**common, **words, **context)


def breakable(text: str) -> Markup:
    """``text`` with places where a line may break: after what parts the words of a name."""
    from markupsafe import Markup, escape

    return Markup("<wbr>").join(escape(part) for part in re.split(r"(?<=[/:_.-])(?=\w)", disarmed(text)))


MARKS = dict(zip(WARNINGS, "abcdefghijklmnopqrstuvwxyz", strict=False))
"""The letter that stands for a doubt beside a number; the words are below the table."""

_WIDTH = 1.5
"""Percent of the scale that a bar is wide at least, so that it can be seen."""


def cell_markup(cell: Cell, column: Column, rank_range: tuple[int, int] | None, sortable: bool = False) -> Markup:
    """The number with its doubts, the bar of its interval and its rank, or the words in its place, in a ``td``.

    ``sortable``: with what a script sorts and filters by.
    """
    from markupsafe import Markup, escape

    row = cell.row
    if row is None or cell.rank is None:
        return Markup(f'<td><i class="words">{escape(cell.words)}</i></td>')
    guess = guessed(cell)
    marks = doubts(cell)
    shown = ranks(*rank_range) if rank_range else str(cell.rank)
    parts = [
        "<td",
        ' class="guessed"' if guess else "",
        f' data-value="{row.value:.6g}" data-doubts="{" ".join(row.diagnosis.warnings)}"' if sortable else "",
        f"><b>{percent(row.value)}</b>",
        f'<sup><span class="only-read"> doubts </span>{marks}</sup>' if marks else "",
        "" if math.isnan(row.ci_low) else bar(row.ci_low, row.ci_high, column.chance),
        "<small>",
        f'<span class="only-read">rank </span>{shown}' if column.measured > 1 else "",
        '<span class="only-read"> no better than guessing</span>' if guess else "",
        f" <em>{row.n:,} items</em>" if row.n != column.n else "",
        "</small></td>",
    ]
    return Markup("".join(parts))


def spread_markup(spread: Spread | None, chance: float, sortable: bool = False) -> Markup:
    """The median with the lowest and the highest number, or how many of the numbers are there, in a ``td``."""
    from markupsafe import Markup

    if spread is None or not spread.n:
        return Markup("<td></td>")
    if math.isnan(spread.median):
        return Markup(f'<td class="median"><i class="words">{spread.n} of {spread.of}</i></td>')
    value = f' data-value="{spread.median:.6g}"' if sortable else ""
    line = bar(spread.low, spread.high, chance, spread.median)
    low_high = interval(spread.low, spread.high)
    return Markup(f'<td class="median"{value}><b>{percent(spread.median)}</b>{line}<small>{low_high}</small></td>')


def bar(low: float, high: float, chance: float, value: float = math.nan) -> Markup:
    """A bar from ``low`` to ``high`` on a line from 0 to 1, with a tick at ``chance`` and a stroke at ``value``."""
    from markupsafe import Markup

    width = max(100 * (high - low), _WIDTH)
    tick = "" if math.isnan(chance) else f'<rect class="chance" x="{100 * chance:.1f}%" width="1" height="7"/>'
    stroke = "" if math.isnan(value) else f'<rect class="stroke" x="{100 * value:.1f}%" width="2" height="7"/>'
    interval = f'<rect x="{min(100 * low, 100 - width):.1f}%" y="2" width="{width:.1f}%" height="3"/>'
    return Markup(f'<svg class="bar" aria-hidden="true">{tick}{interval}{stroke}</svg>')


def doubts(cell: Cell) -> str:
    """The letters of the doubts about a number."""
    return "" if cell.row is None else "".join(MARKS[flag] for flag in cell.row.diagnosis.warnings)


def guessed(cell: Cell) -> bool:
    """Whether a number is no better than guessing: its 95 % interval reaches down to the expected value of guessing."""
    return cell.row is not None and cell.row.ci_low <= cell.row.chance


Record = dict[str, Any]

CSV_COLUMNS = (
    *("model", "run", "dataset", "data", "selection", "group", "protocol", "p", "i", "r", "family", "metric"),
    *("value", "ci_low", "ci_high", "n", "missing", "chance", "rank", "rank_low", "rank_high", "doubts", "state"),
    *("model_source", "dataset_source"),
)

_MARKUP = {ord(char): f"\\u{ord(char):04x}" for char in "<>&"}


def as_json(content: Any) -> str:
    """``content`` as JSON; NaN is null, and what HTML reads as markup, control and invisible characters are escapes."""
    text = json.dumps(json_value(content), ensure_ascii=False, indent=1)
    return json_safe(text.translate(_MARKUP)) + "\n"


def board_record(shelf: Shelf, view: View) -> Record:
    """What the board shows in the state ``view``: columns, and models in their order with their cells by column."""
    seen = shown(shelf.board, view)
    return {
        "view": asdict(view),
        "still_to_be_read": shelf.waiting,
        "problems": shelf.problems,
        "sorted_by": seen.sort,
        "order": "descending" if seen.downwards else "ascending",
        "columns": [column_record(column) for column in seen.columns],
        "models": [
            {
                "model": line.model,
                "told_apart": line.told_apart,
                "runs": [run.id for run in line.runs],
                "spreads": {part: spread for part, spread in line.spreads.items() if f"{part}" in seen.medians},
                "cells": {
                    column.id: cell_record(line.cells[column.id], shelf.ranges.get(column.id))
                    for column in seen.columns
                    if column.id in line.cells and is_shown(line.cells[column.id], view)
                },
            }
            for line in seen.lines
        ],
        "runs": [listed_record(run) for run in shelf.board.runs],
    }


def column_record(column: Column) -> Record:
    """A column with everything that tells it apart from others."""
    key = column.key
    about: Record = {"id": column.id, "dataset": column.dataset, "data": key.part.data, "part": key.part.id}
    about |= {"selection": key.part.selection, "group": column.group, "protocol": column.protocol, "p": column.p}
    about |= {"i": key.texts, "family": column.family, "metric": key.metric, "n": column.n, "chance": column.chance}
    return {**about, "measured": column.measured, "signature": key.signature}


def cell_record(cell: Cell, ranges: Ranges | None) -> Record:
    """A number with its rank, or the words that stand in its place; shares of 1."""
    if cell.row is None or cell.rank is None:
        return {"run": cell.run.id, "state": cell.words, "value": None}
    row = cell.row
    low, high = (ranges or {}).get(cell.run.id, (None, None))
    number = {name: getattr(row, name) for name in ("value", "se", "ci_low", "ci_high", "n", "missing")}
    ids = {"i": row.i, "t": row.t, "r": row.r}
    rank = {"rank": cell.rank, "rank_low": low, "rank_high": high}
    return {"run": cell.run.id, "state": "", **number, **rank, "doubts": row.diagnosis.warnings, **ids}


def listed_record(run: ListedRun) -> Record:
    """A run folder as the board lists it, without the place where it lies."""
    about: Record = {"id": run.id, "label": run.label, "state": run.state, "reason": run.reason, "version": run.version}
    if run.manifest is not None:
        dataset = run.manifest.dataset
        about |= {"model": run.model, "r": run.computed, "dataset": dataset.name, "data": dataset.digest}
    return about


def run_record(run: ListedRun) -> Record:
    """The same with everything that it takes to get its numbers again."""
    manifest = run.manifest
    if manifest is None:
        return listed_record(run)
    about = {
        "model": manifest.model,
        "dataset_source": manifest.dataset.source,
        "selection": manifest.selection,
        "engine": manifest.engine,
    }
    return {**listed_record(run), **about, "versions": manifest.versions, "protocols": manifest.protocols}


def board_csv(shelf: Shelf, view: View) -> str:
    """A row per number or word that the board shows in the state ``view``; shares of 1."""
    seen = shown(shelf.board, view)
    rows = (
        _csv_row(line, column, line.cells[column.id], shelf.ranges.get(column.id))
        for line in seen.lines
        for column in seen.columns
        if column.id in line.cells and is_shown(line.cells[column.id], view)
    )
    return table_csv(CSV_COLUMNS, rows)


def _csv_row(line: Line, column: Column, cell: Cell, ranges: Ranges | None) -> Mapping[str, Any]:
    about, number = column_record(column), cell_record(cell, ranges)
    manifest = cell.run.manifest
    sources = ("", "") if manifest is None else (manifest.model.source, manifest.dataset.source)
    place = dict(zip(("model_source", "dataset_source"), sources, strict=True))
    return {**about, **number, **place, "model": line.model, "run": cell.run.label, "r": cell.run.computed}


class Links(Structural):
    """Where a page finds the others."""

    @property
    def served(self) -> bool:
        """Whether every state of the board has an answer of its own."""

    @property
    def submissions(self) -> str:
        """The page where models are submitted; empty where the board takes none."""

    def board(self, view: View) -> str:
        """The board in that state."""

    def table(self, view: View, ending: str) -> str:
        """The board in that state as a file: ``json`` or ``csv``."""

    def model(self, name: str) -> str:
        """The page of a model."""

    def run(self, name: str) -> str:
        """The page of a run, by its id."""

    def strip(self, name: str) -> str:
        """The strip of all numbers of a run, an image."""

    def protocol(self, p: str) -> str:
        """The spec sheet of a protocol, by its short id (``#P``)."""

    def item(self, part: str, item: str, run: str = "") -> str:
        """The page of an item of a part of the data, with what ``run`` (an id) was sent; nothing without one."""

    def item_json(self, part: str, item: str, run: str) -> str:
        """The same as JSON."""

    def artefact(self, name: str) -> str:
        """A file, by its content and ending."""

    def look(self, name: str) -> str:
        """A style sheet."""


@dataclass(frozen=True, slots=True)
class Served:
    """Addresses on a server."""

    looks: dict[str, str]
    served: bool = True
    submissions: str = ""

    def board(self, view: View) -> str:
        """See :class:`Links`, as of the others."""
        return f"/?{query}" if (query := view.query()) else "/"

    def table(self, view: View, ending: str) -> str:
        """With the query of the board."""
        return f"/board.{ending}?{query}" if (query := view.query()) else f"/board.{ending}"

    def model(self, name: str) -> str:
        """By its slug, as names hold anything."""
        return f"/model/{slug(name)}"

    def run(self, name: str) -> str:
        """By its id."""
        return f"/run/{name}"

    def strip(self, name: str) -> str:
        """By the id of the run."""
        return f"/strip/{name}.svg"

    def protocol(self, p: str) -> str:
        """Without the number sign."""
        return f"/protocol/{p.removeprefix('#')}"

    def item(self, part: str, item: str, run: str = "") -> str:
        """With the item in the query, as ids hold anything, dots and slashes too."""
        pairs = {"id": item, "run": run} if run else {"id": item}
        return f"/item/{part}?{urlencode(pairs, errors='surrogatepass')}"

    def item_json(self, part: str, item: str, run: str) -> str:
        """With the same query."""
        return self.item(part, item, run).replace("?", ".json?", 1)

    def artefact(self, name: str) -> str:
        """By content."""
        return f"/artefact/{name}"

    def look(self, name: str) -> str:
        """With the digest of its content, so that it is kept until it changes."""
        return f"/look/{self.looks[name]}"


@dataclass(frozen=True, slots=True)
class Filed:
    """Addresses in a folder of files, relative to a page that lies ``depth`` folders deep."""

    depth: int = 0
    served: bool = False
    submissions: str = ""

    def board(self, view: View) -> str:
        """A file for each choice of columns; what else a view says is for the script of the page."""
        further = urlencode([(name, value) for name, value in (("sort", view.sort), ("order", view.order)) if value])
        return self._up(board_file(view)) + (f"#{further}" if further else "")

    def table(self, view: View, ending: str) -> str:
        """All of the board."""
        return self._up(f"board.{ending}")

    def model(self, name: str) -> str:
        """By its slug."""
        return self._up(f"model/{slug(name)}.html")

    def run(self, name: str) -> str:
        """By its id."""
        return self._up(f"run/{quote(name)}.html")

    def strip(self, name: str) -> str:
        """By the id of the run."""
        return self._up(f"strip/{quote(name)}.svg")

    def protocol(self, p: str) -> str:
        """Without the number sign."""
        return self._up(f"protocol/{p.removeprefix('#')}.html")

    def item(self, part: str, item: str, run: str = "") -> str:
        """The pages of runs hold their items."""
        return ""

    def item_json(self, part: str, item: str, run: str) -> str:
        """None either."""
        return ""

    def artefact(self, name: str) -> str:
        """By content."""
        return self._up(f"artefact/{name}")

    def look(self, name: str) -> str:
        """In the page itself."""
        return ""

    def _up(self, path: str) -> str:
        return "../" * self.depth + path


def board_file(view: View) -> str:
    """The file that holds the columns of ``view``: a handful, all, or those of one family."""
    if view.family:
        return f"family-{slug(view.family[0])}.html"
    return "all.html" if view.columns == "all" else "index.html"
