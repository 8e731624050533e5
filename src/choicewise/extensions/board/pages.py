"""Draw the pages of the board as HTML, with their addresses, and write all of them as files."""

from __future__ import annotations

import hashlib
import math
import re
from base64 import b64encode
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from choicewise import __version__
from choicewise.errors import UsageError
from choicewise.extensions.board.headlines import (
    Headlines,
    headlines,
    headlines_record,
    lead_sentence,
)
from choicewise.extensions.board.model import (
    Board,
    Cell,
    Column,
    ListedRun,
    Part,
    Snapshot,
    Spread,
    State,
    slug,
)
from choicewise.extensions.board.records import (
    AskedProtocol,
    ShownItem,
    View,
    VisibleBoard,
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
from choicewise.results.guessing import guess
from choicewise.results.number import WARNINGS, Number
from choicewise.results.published import published
from choicewise.util.files import disk_errors, write_text
from choicewise.util.jsonio import JsonDict
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
    """Raise UsageError if ``out`` is a file, or a folder with other things than a board."""
    if out.exists() and not out.is_dir():
        raise UsageError(
            f"{out} is a file; a page ends in .html, and a board is written into a folder"
        )
    if out.is_dir() and any(out.iterdir()) and not (out / FIRST).exists():
        raise UsageError(f"{out} holds other files and no board; choose an empty or new folder")


def write_board(snapshot: Snapshot, out: Path) -> Path:
    """Write the board into the folder ``out`` and return its first page.

    Files of other names stay. Raises StoreError if nothing can be written.
    """
    first = out / FIRST
    with disk_errors(out):
        out.mkdir(parents=True, exist_ok=True)
        # If the disk is full below, the folder is still known as one of a board.
        if not first.exists():
            write_text(first, "This board is not complete. Run the same command again.\n")
        for name, content in board_files(snapshot):
            file = out / name
            file.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(content, bytes):
                file.write_bytes(content)
            else:
                write_text(file, content)
    return first


def board_files(snapshot: Snapshot) -> Iterator[tuple[str, str | bytes]]:
    """Yield every file with its name, relative to the folder."""
    # The first page comes last, when all that it names is there.
    frame = _frame()
    below = Links(depth=1)
    for model in snapshot.board.models:
        yield f"model/{slug(model)}.html", model_page(snapshot, model, below, **frame)
        yield f"model/{slug(model)}.json", as_json(model_record(snapshot, model))
    for p in dict.fromkeys(column.p.removeprefix("#") for column in snapshot.board.columns):
        protocol = asked_protocol(snapshot, p)
        if protocol is not None:
            yield f"protocol/{p}.html", protocol_page(snapshot, protocol, below, **frame)
    for run in snapshot.board.runs:
        yield from _run_files(snapshot, run, below, frame)
    whole = View(columns="all")
    yield "board.json", as_json(board_record(snapshot, whole) | headlines_record(snapshot, whole))
    yield "board.csv", board_csv(snapshot, whole)
    families = dict.fromkeys(column.family for column in snapshot.board.columns)
    for view in (*(View(family=(name,)) for name in families), whole, View()):
        yield board_file(view), board_page(snapshot, view, Links(), **frame)


def _run_files(
    snapshot: Snapshot, run: ListedRun, links: Links, frame: JsonDict
) -> Iterator[tuple[str, str | bytes]]:
    if run.state is State.READ:
        yield f"strip/{run.id}.svg", run_strip(run.folder)
        yield f"run/{run.id}.html", run_document(run.folder, "../index.html", snapshot.metrics)
    else:
        yield f"run/{run.id}.html", run_page(snapshot, run, links, **frame)
    for artefact in run.artefacts:
        content = artefact_content(artefact.file, run.folder, run.rows)
        if content is not None:
            yield f"artefact/{artefact.name}", content


def _frame() -> JsonDict:
    """Return what every file holds: its look, its script, and the policy that allows these two and
    nothing else.
    """
    from markupsafe import Markup

    style = "\n".join([static_file("page.css"), static_file("board.css")])
    # A function around the script keeps its names out of the page's.
    script = f'(() => {{\n"use strict";\n{static_file("board.js")}}})();'
    policy = (
        f"default-src 'none'; script-src '{_source(script)}'; style-src '{_source(style)}'; "
        "img-src 'self' data:; "
        "base-uri 'none'; form-action 'none'"
    )
    return {"style": Markup(style), "script": Markup(script), "policy": policy}


def _source(text: str) -> str:
    return f"sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


@dataclass(frozen=True)
class Links:
    """Return the addresses of the pages, on a server or in a folder of files.

    ``looks``: the names of the style sheets on a server, with digests of their content; None in
    files, which hold them. ``depth``: how many folders deep a file is. ``submissions``: the address
    where models are submitted, or empty.
    """

    looks: Mapping[str, str] | None = None
    submissions: str = ""
    depth: int = 0

    @property
    def served(self) -> bool:
        """Check that every state of the board has an answer of its own."""
        return self.looks is not None

    def board(self, view: View) -> str:
        """Return the address of the board in a state."""
        if self.served:
            return _with_query("/", view.query())
        # A file holds a choice of columns; the script of the page sorts it by what stands behind
        # the number sign.
        order = {"sort": view.sort, "order": view.order}
        fragment = urlencode({name: value for name, value in order.items() if value})
        address = self._up(board_file(view))
        if fragment:
            address += f"#{fragment}"
        return address

    def table(self, view: View, ending: str) -> str:
        """Return the address of the board in a state as a file, ``json`` or ``csv``; in files that
        has all of it.
        """
        address = self._up(f"board.{ending}")
        if self.served:
            address = _with_query(address, view.query())
        return address

    def model(self, name: str) -> str:
        """Return the address of a model's page; it has the slug, as names hold any characters."""
        return self._page(f"model/{slug(name)}")

    def run(self, name: str) -> str:
        """Return the address of a run's page, by its id."""
        return self._page(f"run/{name}")

    def protocol(self, p: str) -> str:
        """Return the address of a protocol's spec sheet, by its short id (``#P``)."""
        return self._page(f"protocol/{p.removeprefix('#')}")

    def strip(self, name: str) -> str:
        """Return the address of the image of all numbers of a run."""
        return self._up(f"strip/{name}.svg")

    def artefact(self, name: str) -> str:
        """Return the address of a file, by its content and ending."""
        return self._up(f"artefact/{name}")

    def item(self, part: str, item: str, run: str = "", ending: str = "") -> str:
        """Return the address of an item of a part of the data, with what ``run`` (an id) was sent;
        none in files.
        """
        if not self.served:
            return ""
        # The item is in the query, as ids hold any characters, dots and slashes too.
        pairs = {"id": item}
        if run:
            pairs["run"] = run
        return f"/item/{part}{ending}?{urlencode(pairs, errors='surrogatepass')}"

    def look(self, name: str) -> str:
        """Return the address of a style sheet."""
        if self.looks is None:
            return ""
        # It has the digest of the content, so that it is cached until that changes.
        return f"/look/{self.looks[name]}"

    def _page(self, path: str) -> str:
        if self.served:
            return self._up(path)
        return self._up(f"{path}.html")

    def _up(self, path: str) -> str:
        if self.served:
            return f"/{path}"
        return "../" * self.depth + path


def _with_query(address: str, query: str) -> str:
    if not query:
        return address
    return f"{address}?{query}"


def board_file(view: View) -> str:
    """Return the name of the file with the columns of ``view``: a handful, all, or those of one
    family.
    """
    if view.family:
        return f"family-{slug(view.family[0])}.html"
    if view.columns == "all":
        return "all.html"
    return "index.html"


Strips = Mapping[str, str | None]
"""The image of a run's strip as an address, by the id of the run; None while it is drawn."""


def _raised(rows: Iterable[Number]) -> set[str]:
    warnings: set[str] = set()
    for row in rows:
        warnings.update(row.diagnosis.warnings)
    return warnings


def model_page(
    snapshot: Snapshot, model: str, links: Links, strips: Strips | None = None, **further: Any
) -> str:
    """Return the page of a model that the board has.

    ``strips``: the charts inside the page; None if they are files beside it.
    """
    parts = list(measured(snapshot, model))
    rows = []
    runs: dict[ListedRun, None] = {}
    for part in parts:
        rows += [cell.row for _, cell in part.numbers if cell.row]
        runs |= dict.fromkeys(part.runs)
    raised = _raised(rows)
    published_runs = set()
    for run in runs:
        if any(row.identity.id in published() for row in run.rows):
            published_runs.add(run)
    return rendered(
        "model.html.j2",
        snapshot,
        links,
        model=model,
        parts=parts,
        runs=[(run, run_command(run)) for run in runs if run.manifest is not None],
        strips=strips,
        words=words,
        published=published_runs,
        legend={warning: words for warning, words in WARNINGS.items() if warning in raised},
        **further,
    )


def item_page(snapshot: Snapshot, item: ShownItem, links: Links, view: View, **further: Any) -> str:
    """Return the page of an item."""
    return rendered(
        "item.html.j2",
        snapshot,
        links,
        item=item,
        view=view,
        letter=letter,
        known_of=_finite,
        shown_line=shown_line,
        **further,
    )


def _finite(scores: Iterable[float]) -> list[float]:
    return [score for score in scores if math.isfinite(score)]


def letter(choice: int) -> str:
    """Return the name of a choice for protocols that give it none: A to Z, 27, 28, ...; "none" for
    -1.
    """
    if choice < 0:
        return "none"
    if choice < 26:
        return chr(ord("A") + choice)
    return str(choice + 1)


def protocol_page(snapshot: Snapshot, protocol: AskedProtocol, links: Links, **further: Any) -> str:
    """Return the spec sheet of a protocol with the numbers under it."""
    numbers = [(column, ordered_lines(snapshot, column)) for column in protocol.columns]
    return rendered("protocol.html.j2", snapshot, links, asked=protocol, numbers=numbers, **further)


def run_page(snapshot: Snapshot, run: ListedRun, links: Links, **further: Any) -> str:
    """Return the page of any run."""
    state = f"is {run.state}."
    if run.state is State.READ:
        state = "is complete."
    return rendered(
        "run.html.j2", snapshot, links, run=run, words=state, recipe=run_command(run), **further
    )


def run_command(run: ListedRun) -> Recipe:
    """Return how to get a run again; an empty line if its manifest can't be read."""
    if run.manifest is None:
        return Recipe("", "", "")
    protocols = {name: parse_signature(text) for name, text in run.manifest.protocols.items()}
    return recipe(run.manifest, protocols, "FOLDER")


def board_page(snapshot: Snapshot, view: View, links: Links, **further: Any) -> str:
    """Return the page of the board in the state ``view``; ``further``: what the frame of the page
    takes.
    """
    board = snapshot.board
    visible = visible_board(board, view)
    first = headlines(board, view, snapshot.means)
    raised = _raised(_visible_rows(visible, first))
    # Who leads does not depend on the models that a search hides.
    everyone = first
    if view.model or view.warning:
        everyone = headlines(board, replace(view, model="", warning=""), snapshot.means)
    parts = dict.fromkeys((column.key.part, column.dataset) for column in board.columns)
    return rendered(
        "board.html.j2",
        snapshot,
        links,
        board=board,
        view=view,
        seen=visible,
        headlines=first,
        sorted_headlines=partial(sorted_by, first),
        order_headlines=partial(order_of, first),
        headings=headings(board, visible.columns),
        families=Counter(column.family for column in board.columns),
        parts=parts,
        chosen=_chosen(board, view, [part for part, _ in parts], everyone),
        lead=lead_sentence(everyone),
        sorted_by=partial(sorted_by, visible),
        order_of=partial(order_of, visible),
        is_shown=is_shown,
        ranged=sum(column.measured > 1 for column in board.columns),
        warnings=WARNINGS,
        # Only warnings that a visible number has are explained.
        legend={MARKS[warning]: words for warning, words in WARNINGS.items() if warning in raised},
        State=State,
        **further,
    )


def _visible_rows(board: VisibleBoard, table: Headlines) -> Iterator[Number]:
    """Yield the numbers of both tables of the page."""
    for line in board.lines:
        for _, cell in line.under(board.columns):
            if cell.row is not None:
                yield cell.row
    for headline in table.lines:
        for cell in headline.cells.values():
            if cell.row is not None:
                yield cell.row


@dataclass(frozen=True, kw_only=True)
class _Chosen:
    """Hold what the board has of the data that a reader chose, or of all data."""

    parts: Sequence[Part]
    columns: Sequence[Column]
    models: Collection[str]
    runs: Sequence[ListedRun]


def _chosen(board: Board, view: View, parts: Sequence[Part], everyone: Headlines) -> _Chosen:
    """Return what the board has of the data that ``view`` names.

    ``everyone``: the headlines of that data, with all models.
    """
    if not view.data:
        return _Chosen(parts=parts, columns=board.columns, models=board.models, runs=board.runs)
    chosen = [part for part in parts if part.id in view.data]
    digests = {part.data for part in chosen}
    return _Chosen(
        parts=chosen,
        columns=[column for column in board.columns if column.key.part in chosen],
        models={line.line.model for line in everyone.lines},
        runs=[run for run in board.runs if _is_of(run, digests)],
    )


def _is_of(run: ListedRun, digests: Collection[str]) -> bool:
    """Check that a run is of data with one of these digests; one that can't be read may be of any."""
    return run.manifest is None or run.manifest.dataset.digest in digests


def rendered(template: str, snapshot: Snapshot, links: Links, **context: Any) -> str:
    """Return a page of the board, made of a template."""
    return (
        environment(_TEMPLATES)
        .get_template(template)
        .render(
            version=__version__,
            snapshot=snapshot,
            links=links,
            View=View,
            guessed=guessed,
            breakable=breakable,
            bar=bar,
            cell_markup=cell_markup,
            spread_markup=spread_markup,
            file_address=file_address,
            **context,
        )
    )


_BREAKS = re.compile(r"(?<=[/:_.-])(?=\w)")


def breakable(text: str) -> Markup:
    """Return ``text`` with breaks that a line may use, behind the signs between the words of a
    name.
    """
    from markupsafe import Markup, escape

    words = [escape(word) for word in _BREAKS.split(disarmed(text))]
    return Markup("<wbr>").join(words)


MARKS = dict(zip(WARNINGS, "abcdefghijklmnopqrstuvwxyz", strict=False))
"""The letter of a warning beside a number; the words are below the table."""

_WIDTH = 1.5
"""Percent of the scale that a bar is wide at least, so that it can be seen."""


def cell_markup(
    cell: Cell,
    column: Column,
    rank_range: tuple[int, int] | None,
    sortable: bool = False,
    ranked: bool = True,
) -> Markup:
    """Return a ``td`` with a number, its warnings, the bar of its interval and its rank, or with
    words.

    ``sortable``: with what a script sorts and filters by. ``ranked``: with the rank.
    """
    from markupsafe import Markup, escape

    row = cell.row
    if row is None or not cell.scored:
        return Markup(f'<td><i class="words">{escape(cell.words)}</i></td>')
    is_guessed = guessed(cell)
    parts = ["<td"]
    if is_guessed:
        parts.append(' class="guessed"')
    if sortable:
        warnings = " ".join(row.diagnosis.warnings)
        parts.append(f' data-value="{row.value:.6g}" data-warnings="{warnings}"')
    parts.append(f">{_number_markup(row, column)}<small>")
    if ranked and column.measured > 1:
        rank = str(cell.rank or "")
        if rank_range:
            rank = ranks(*rank_range)
        if rank:
            parts.append(f'<span class="only-read">rank </span>{rank}')
    if is_guessed:
        parts.append('<span class="only-read"> no better than guessing</span>')
    if row.coverage:
        parts.append(f" <em>{row.coverage}</em>")
    parts.append("</small></td>")
    return Markup("".join(parts))


def _number_markup(row: Number, column: Column) -> str:
    """Return a number with the letters of its warnings and its interval, drawn for shares and
    written for others.
    """
    if row.share:
        markup = f"<b>{shown_value(row, percent)}</b>"
    else:
        markup = f"<b>{shown_value(row, plain)}</b>"
    letters = "".join(MARKS[warning] for warning in row.diagnosis.warnings)
    if letters:
        markup += f'<sup><span class="only-read"> warnings </span>{letters}</sup>'
    if not row.share:
        markup += f"<small>{interval(row.interval.low, row.interval.high, plain)}</small>"
    elif not math.isnan(row.interval.low):
        # A Markup would escape the text that it is added to.
        markup += str(bar(row.interval.low, row.interval.high, column.chance))
    return markup


def spread_markup(spread: Spread | None, chance: float, sortable: bool = False) -> Markup:
    """Return a ``td`` with the median, the lowest and the highest number, or with how many of the
    numbers there are.
    """
    from markupsafe import Markup

    if spread is None or not spread.n:
        return Markup("<td></td>")
    if math.isnan(spread.median):
        return Markup(f'<td class="median"><i class="words">{spread.n} of {spread.of}</i></td>')
    data = ""
    if sortable:
        data = f' data-value="{spread.median:.6g}"'
    line = bar(spread.low, spread.high, chance, spread.median)
    low_high = interval(spread.low, spread.high)
    return Markup(
        f'<td class="median"{data}><b>{percent(spread.median)}</b>{line}<small>{low_high}</small></td>'
    )


def bar(low: float, high: float, chance: float, value: float = math.nan) -> Markup:
    """Return a bar from ``low`` to ``high`` on a line from 0 to 1, with marks at ``chance`` and at
    ``value``.
    """
    from markupsafe import Markup

    # A narrow interval at the right edge must not leave the scale.
    width = max(100 * (high - low), _WIDTH)
    left = min(100 * low, 100 - width)
    marks = ""
    if not math.isnan(chance):
        marks += f'<rect class="chance" x="{100 * chance:.1f}%" width="1" height="7"/>'
    marks += f'<rect x="{left:.1f}%" y="2" width="{width:.1f}%" height="3"/>'
    if not math.isnan(value):
        marks += f'<rect class="stroke" x="{100 * value:.1f}%" width="2" height="7"/>'
    return Markup(f'<svg class="bar" aria-hidden="true">{marks}</svg>')


def guessed(cell: Cell) -> bool:
    """Check that a number, looked at alone, is no better than guessing."""
    return cell.row is not None and cell.row.share and guess(cell.row)
