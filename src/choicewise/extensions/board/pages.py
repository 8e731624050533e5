"""The pages of the board as HTML, their addresses, and all of them as files."""

from __future__ import annotations

import hashlib
import math
import re
from base64 import b64encode
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from choicewise import __version__
from choicewise.errors import UsageError
from choicewise.extensions.board.headlines import headlines, headlines_record
from choicewise.extensions.board.model import Cell, Column, ListedRun, Snapshot, Spread, State, slug
from choicewise.extensions.board.records import (
    AskedProtocol,
    ShownItem,
    View,
    as_json,
    asked_protocol,
    board_csv,
    board_record,
    headings,
    is_shown,
    measured,
    model_record,
    order_of,
    ordered_lines,
    sorted_by,
    visible_board,
)
from choicewise.extensions.board.runs import artefact_content, run_document, run_strip
from choicewise.page.embed import environment, static_text
from choicewise.page.item_views import words
from choicewise.page.reproduce import Recipe, recipe
from choicewise.page.study import file_address
from choicewise.protocols.protocol import parse_signature
from choicewise.report.tables import shown_value
from choicewise.results.compare import published
from choicewise.results.guessing import guess
from choicewise.results.rows import WARNINGS
from choicewise.util.files import disk_errors, write_text
from choicewise.util.text import disarmed, interval, percent, plain, ranks, shown_line

if TYPE_CHECKING:
    from markupsafe import Markup


FIRST = "index.html"
"""The page to open."""

_TEMPLATES = Path(__file__).parent / "templates"
_STATIC = Path(__file__).parent / "static"


def static_file(name: str) -> str:
    """Return the text of a style sheet or script, of the board or of all pages."""
    file = _STATIC / name
    if file.exists():
        return file.read_text(encoding="utf-8")
    return static_text(name)


def check_place(out: Path) -> None:
    """UsageError when ``out`` is a file, or a folder with other things than a board."""
    if out.exists() and not out.is_dir():
        raise UsageError(
            f"{out} is a file; a page ends in .html, and a board is written into a folder"
        )
    if out.is_dir() and any(out.iterdir()) and not (out / FIRST).exists():
        raise UsageError(f"{out} holds other files and no board; choose an empty or new folder")


def write_board(snapshot: Snapshot, out: Path) -> Path:
    """Write the board into the folder ``out`` and return its first page.

    Raises StoreError where nothing can be written.  What lies there under other names stays.
    """
    with disk_errors(out):
        for name, content in board_files(snapshot):
            file = out / name
            file.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(content, bytes):
                file.write_bytes(content)
            else:
                write_text(file, content)
    return out / FIRST


def board_files(snapshot: Snapshot) -> Iterator[tuple[str, str | bytes]]:
    """Every file by its name, relative to the folder; the first page comes last, when all that it names is there."""
    frame = _frame()
    below = Links(depth=1)
    whole = View(columns="all")
    for model in snapshot.board.models:
        yield f"model/{slug(model)}.html", model_page(snapshot, model, below, **frame)
        yield f"model/{slug(model)}.json", as_json(model_record(snapshot, model))
    for p in dict.fromkeys(column.p.removeprefix("#") for column in snapshot.board.columns):
        asked = asked_protocol(snapshot, p)
        if asked is not None:
            yield f"protocol/{p}.html", protocol_page(snapshot, asked, below, **frame)
    for run in snapshot.board.runs:
        if run.state is State.READ:
            yield f"strip/{run.id}.svg", run_strip(run.folder)
            yield f"run/{run.id}.html", run_document(run.folder, "../index.html", snapshot.metrics)
        else:
            yield f"run/{run.id}.html", run_page(snapshot, run, below, **frame)
        for artefact in run.artefacts:
            content = artefact_content(artefact.file, run.folder, run.rows)
            if content is not None:
                yield f"artefact/{artefact.name}", content
    yield "board.json", as_json(board_record(snapshot, whole) | headlines_record(snapshot, whole))
    yield "board.csv", board_csv(snapshot, whole)
    families = dict.fromkeys(column.family for column in snapshot.board.columns)
    for view in (*(View(family=(name,)) for name in families), whole, View()):
        yield board_file(view), board_page(snapshot, view, Links(), **frame)


def _frame() -> dict[str, Any]:
    """What every page holds: its look, its script, and the policy that allows these two and nothing else."""
    from markupsafe import Markup

    style = "\n".join([static_file("page.css"), static_file("board.css")])
    script = f'(() => {{\n"use strict";\n{static_file("board.js")}}})();'
    policy = (
        f"default-src 'none'; script-src '{_source(script)}'; style-src '{_source(style)}'; img-src 'self' data:; "
        "base-uri 'none'; form-action 'none'"
    )
    return {"style": Markup(style), "script": Markup(script), "policy": policy}


def _source(text: str) -> str:
    return f"sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


@dataclass(frozen=True, slots=True)
class Links:
    """Where a page finds the others: on a server, or in a folder of files.

    ``looks``: the names of the style sheets on a server, with digests of their content; None in files, which hold them.
    ``depth``: how many folders deep a file lies.  ``submissions``: where models are submitted; empty where nowhere.
    """

    looks: Mapping[str, str] | None = None
    submissions: str = ""
    depth: int = 0

    @property
    def served(self) -> bool:
        """Whether every state of the board has an answer of its own."""
        return self.looks is not None

    def board(self, view: View) -> str:
        """The board in that state; a file for each choice of columns, where the rest is for the script of the page."""
        if self.served:
            return f"/?{query}" if (query := view.query()) else "/"
        further = urlencode(
            [(name, value) for name, value in (("sort", view.sort), ("order", view.order)) if value]
        )
        return self._up(board_file(view)) + (f"#{further}" if further else "")

    def table(self, view: View, ending: str) -> str:
        """The board in that state as a file, ``json`` or ``csv``; in files all of it."""
        query = view.query() if self.served else ""
        return self._up(f"board.{ending}") + (f"?{query}" if query else "")

    def model(self, name: str) -> str:
        """The page of a model, by its slug, as names hold anything."""
        return self._page(f"model/{slug(name)}")

    def run(self, name: str) -> str:
        """The page of a run, by its id."""
        return self._page(f"run/{name}")

    def protocol(self, p: str) -> str:
        """The spec sheet of a protocol, by its short id (``#P``)."""
        return self._page(f"protocol/{p.removeprefix('#')}")

    def strip(self, name: str) -> str:
        """The strip of all numbers of a run, an image."""
        return self._up(f"strip/{name}.svg")

    def artefact(self, name: str) -> str:
        """A file, by its content and ending."""
        return self._up(f"artefact/{name}")

    def item(self, part: str, item: str, run: str = "", ending: str = "") -> str:
        """The page of an item of a part of the data, with what ``run`` (an id) was sent; none in files.

        The item is in the query, as ids hold anything, dots and slashes too.
        """
        pairs = {"id": item, "run": run} if run else {"id": item}
        return (
            f"/item/{part}{ending}?{urlencode(pairs, errors='surrogatepass')}"
            if self.served
            else ""
        )

    def look(self, name: str) -> str:
        """A style sheet, by the digest of its content, so that it is cached until it changes."""
        return f"/look/{self.looks[name]}" if self.looks is not None else ""

    def _page(self, path: str) -> str:
        return self._up(path) if self.served else self._up(f"{path}.html")

    def _up(self, path: str) -> str:
        return f"/{path}" if self.served else "../" * self.depth + path


def board_file(view: View) -> str:
    """The file that holds the columns of ``view``: a handful, all, or those of one family."""
    if view.family:
        return f"family-{slug(view.family[0])}.html"
    return "all.html" if view.columns == "all" else "index.html"


Strips = Mapping[str, str | None]
"""The image of a run's strip as an address, by the id of the run; None while it is drawn."""


def model_page(
    snapshot: Snapshot, model: str, links: Links, strips: Strips | None = None, **further: Any
) -> str:
    """The page of a model that the board has; ``strips``: the charts that are a part of it, None where they lie beside
    it."""
    parts = list(measured(snapshot, model))
    rows = [cell.row for part in parts for _, cell in part.numbers if cell.row]
    raised = {warning for row in rows for warning in row.diagnosis.warnings}
    runs = dict.fromkeys(run for part in parts for run in part.runs)
    return rendered(
        "model.html.j2",
        snapshot,
        links,
        model=model,
        parts=parts,
        runs=[(run, run_command(run)) for run in runs if run.manifest is not None],
        strips=strips,
        words=words,
        published={run for run in runs if any(row.id in published() for row in run.rows)},
        legend={warning: words for warning, words in WARNINGS.items() if warning in raised},
        **further,
    )


def item_page(snapshot: Snapshot, item: ShownItem, links: Links, view: View, **further: Any) -> str:
    """The item as HTML."""
    return rendered(
        "item.html.j2",
        snapshot,
        links,
        item=item,
        view=view,
        letter=letter,
        known_of=lambda scores: [score for score in scores if math.isfinite(score)],
        shown_line=shown_line,
        **further,
    )


def letter(place: int) -> str:
    """The name of a choice where protocols give it none: A, B, ..., Z, 27, ...; "none" where there was none."""
    return "none" if place < 0 else chr(ord("A") + place) if place < 26 else str(place + 1)


def protocol_page(snapshot: Snapshot, asked: AskedProtocol, links: Links, **further: Any) -> str:
    """The spec sheet as HTML."""
    numbers = [(column, ordered_lines(snapshot, column)) for column in asked.columns]
    return rendered(
        "protocol.html.j2",
        snapshot,
        links,
        asked=asked,
        numbers=numbers,
        **further,
    )


def run_page(snapshot: Snapshot, run: ListedRun, links: Links, **further: Any) -> str:
    """The page of any run, as HTML."""
    words = "is complete." if run.state is State.READ else f"is {run.state}."
    return rendered(
        "run.html.j2", snapshot, links, run=run, words=words, recipe=run_command(run), **further
    )


def run_command(run: ListedRun) -> Recipe:
    """How to get a run again; an empty line where its manifest can't be read."""
    if run.manifest is None:
        return Recipe("", "", "")
    named = {name: parse_signature(text) for name, text in run.manifest.protocols.items()}
    return recipe(run.manifest, named, "FOLDER")


def board_page(snapshot: Snapshot, view: View, links: Links, **further: Any) -> str:
    """The board in the state ``view``; ``further`` is what the frame of the page takes."""
    board = snapshot.board
    seen, first = visible_board(board, view), headlines(board, view, snapshot.means)
    cells = [
        line.cells[column.id]
        for line in seen.lines
        for column in seen.columns
        if column.id in line.cells
    ]
    cells += [cell for each in first.lines for cell in each.cells.values()]
    raised = {
        warning for cell in cells if cell.row is not None for warning in cell.row.diagnosis.warnings
    }
    return rendered(
        "board.html.j2",
        snapshot,
        links,
        board=board,
        view=view,
        seen=seen,
        headlines=first,
        sorted_headlines=partial(sorted_by, first),
        order_headlines=partial(order_of, first),
        headings=headings(board, seen.columns),
        families=Counter(column.family for column in board.columns),
        parts=dict.fromkeys((column.key.part, column.dataset) for column in board.columns),
        sorted_by=partial(sorted_by, seen),
        order_of=partial(order_of, seen),
        is_shown=is_shown,
        ranged=sum(column.measured > 1 for column in board.columns),
        warnings=WARNINGS,
        legend={MARKS[warning]: words for warning, words in WARNINGS.items() if warning in raised},
        State=State,
        **further,
    )


def rendered(template: str, snapshot: Snapshot, links: Links, **context: Any) -> str:
    """A page of the board."""
    common = {"version": __version__, "snapshot": snapshot, "links": links, "View": View}
    words = {"guessed": guessed, "breakable": breakable, "bar": bar}
    words |= {
        "cell_markup": cell_markup,
        "spread_markup": spread_markup,
        "file_address": file_address,
    }
    return environment(_TEMPLATES).get_template(template).render(**common, **words, **context)


def breakable(text: str) -> Markup:
    """``text`` with places where a line may break: after what parts the words of a name."""
    from markupsafe import Markup, escape

    return Markup("<wbr>").join(
        escape(part) for part in re.split(r"(?<=[/:_.-])(?=\w)", disarmed(text))
    )


MARKS = dict(zip(WARNINGS, "abcdefghijklmnopqrstuvwxyz", strict=False))
"""The letter that stands for a warning beside a number; the words are below the table."""

_WIDTH = 1.5
"""Percent of the scale that a bar is wide at least, so that it can be seen."""


def cell_markup(
    cell: Cell,
    column: Column,
    rank_range: tuple[int, int] | None,
    sortable: bool = False,
    ranked: bool = True,
) -> Markup:
    """The number with its warnings, the bar of its interval and its rank, or the words in its place, in a ``td``.

    ``sortable``: with what a script sorts and filters by; ``ranked``: with the rank.
    """
    from markupsafe import Markup, escape

    row = cell.row
    if row is None or not cell.scored:
        return Markup(f'<td><i class="words">{escape(cell.words)}</i></td>')
    guess = guessed(cell)
    letters = marks(cell)
    shown = ranks(*rank_range) if rank_range else str(cell.rank or "")
    parts = [
        "<td",
        ' class="guessed"' if guess else "",
        f' data-value="{row.value:.6g}" data-warnings="{" ".join(row.diagnosis.warnings)}"'
        if sortable
        else "",
        f"><b>{shown_value(row, percent if row.share else plain)}</b>",
        f'<sup><span class="only-read"> warnings </span>{letters}</sup>' if letters else "",
        f"<small>{interval(row.ci_low, row.ci_high, plain)}</small>" if not row.share else "",
        ""
        if math.isnan(row.ci_low) or not row.share
        else bar(row.ci_low, row.ci_high, column.chance),
        "<small>",
        f'<span class="only-read">rank </span>{shown}'
        if ranked and shown and column.measured > 1
        else "",
        '<span class="only-read"> no better than guessing</span>' if guess else "",
        f" <em>{row.coverage}</em>" if row.coverage else "",
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
    return Markup(
        f'<td class="median"{value}><b>{percent(spread.median)}</b>{line}<small>{low_high}</small></td>'
    )


def bar(low: float, high: float, chance: float, value: float = math.nan) -> Markup:
    """A bar from ``low`` to ``high`` on a line from 0 to 1, with a tick at ``chance`` and a stroke at ``value``."""
    from markupsafe import Markup

    width = max(100 * (high - low), _WIDTH)
    tick = (
        ""
        if math.isnan(chance)
        else f'<rect class="chance" x="{100 * chance:.1f}%" width="1" height="7"/>'
    )
    stroke = (
        ""
        if math.isnan(value)
        else f'<rect class="stroke" x="{100 * value:.1f}%" width="2" height="7"/>'
    )
    interval = (
        f'<rect x="{min(100 * low, 100 - width):.1f}%" y="2" width="{width:.1f}%" height="3"/>'
    )
    return Markup(f'<svg class="bar" aria-hidden="true">{tick}{interval}{stroke}</svg>')


def marks(cell: Cell) -> str:
    """The letters of the warnings about a number."""
    return (
        ""
        if cell.row is None
        else "".join(MARKS[warning] for warning in cell.row.diagnosis.warnings)
    )


def guessed(cell: Cell) -> bool:
    """Check that a number, looked at alone, is no better than guessing."""
    return cell.row is not None and cell.row.share and guess(cell.row)
