"""A result as titled tables of typed columns, with one renderer for each medium.

A table holds numbers and texts as they are computed. Only the renderers below format them.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, fields, replace
from functools import partial
from html import escape
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from choicewise.util.jsonio import JsonDict, JsonMapping, json_value
from choicewise.util.text import (
    NAME,
    broken,
    counted,
    disarmed,
    listed,
    percent,
    plain,
    points,
    probability,
    ranks,
    safe,
    short,
    shortened,
    visible_line,
)

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, Group, RenderableType
    from rich.table import Table as RichTable


class Share(float):
    """Mark a share of 1 in a column of other numbers, which people read in percent."""


class Span(NamedTuple):
    """Hold the two ends of a range in one cell. People read one of them if both are written in the
    same way.
    """

    low: float
    high: float


@dataclass(frozen=True)
class Column:
    """Describe a column of a table.

    ``name``: its key in JSON and CSV. ``heading``: what people read above it, the name by default.
    ``kind``: a key of :data:`KINDS`. ``meaning``: a sentence below the table. ``data``: only
    programs read it. ``optional``: people don't see it if no row has a value. ``joined``: people
    see its value behind the value of the column before, after this text and before the text
    ``closed``, as in 5.0 ± 0.4 or 5.0 (2); for programs it is a column of its own.  ``before``: a
    text in front of a value. ``blank``: None is an empty cell instead of a dash. Raises ValueError
    for another kind.
    """

    name: str
    kind: str = "text"
    _: KW_ONLY
    heading: str = ""
    meaning: str = ""
    data: bool = False
    optional: bool = False
    joined: str = ""
    closed: str = ""
    before: str = ""
    blank: bool = False

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(
                f"column {self.name}: its kind is {self.kind!r}; it must be one of "
                f"{', '.join(KINDS)}"
            )


@dataclass(frozen=True, kw_only=True)
class Table:
    """Hold a result.

    ``name``: its key among the tables of one analysis. ``rows``: a value for each column, which is
    a number, a text, several texts, or None if it is unknown. ``notes``: sentences below the table.
    ``facts``: what the table is about, for programs, in plain values. ``data``: only programs read
    the table; people see other tables of the same values.  ``split``: columns of a terminal that a
    value needs; if there is no room for all, a terminal shows parts one below the other, each with
    the first column. Raises ValueError if a row has too few or too many values, or a fact has a
    name that JSON uses otherwise.
    """

    name: str
    title: str
    columns: Sequence[Column] = ()
    rows: Sequence[Sequence[Any]] = ()
    notes: Sequence[str] = ()
    facts: JsonMapping = field(default_factory=dict)
    data: bool = False
    split: int = 0

    def __post_init__(self) -> None:
        taken = {"table", "title", "rows", "notes"}.intersection(self.facts)
        if taken:
            raise ValueError(f"{self.name}: facts can't be called {listed(sorted(taken))}")
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(
                    f"{self.name}: a row has {len(row)} values for {len(self.columns)} columns"
                )


def rows_of(columns: Sequence[Column], records: Iterable[object]) -> list[Sequence[Any]]:
    """Return a row for each record: its attributes with the names of the columns, of which there
    are several.
    """
    return list(map(attrgetter(*[column.name for column in columns]), records))


def facts_of(record: Any, without: Collection[str]) -> JsonDict:
    """Return the fields of a dataclass by name, without those that the rows or the notes of a table
    have.
    """
    names = [field.name for field in fields(record)]
    return {name: getattr(record, name) for name in names if name not in without}


def without_columns(table: Table, names: Collection[str]) -> Table:
    """Return the table without the columns of these names."""
    kept = [index for index, column in enumerate(table.columns) if column.name not in names]
    return replace(
        table,
        columns=[table.columns[index] for index in kept],
        rows=[[row[index] for index in kept] for row in table.rows],
    )


MOST = 20
"""Rows of a table that a terminal shows unless the reader asks for all of them."""


# Values as people read them


def _names(names: Sequence[str]) -> str:
    return safe(listed(names))


def _lines(texts: Sequence[str]) -> str:
    return "\n".join(map(safe, texts))


def _tally(counts: Mapping[Any, int]) -> str:
    """Write how often each value occurs, such as "4 (1,200), 5 (31)"; a value without others stands
    alone.
    """
    if len(counts) == 1:
        return safe(str(*counts))
    return short(", ".join(f"{value} ({count:,})" for value, count in counts.items()), NAME)


def _excerpt(text: str) -> str:
    """Write the beginning of a long text, such as a question or an answer."""
    return visible_line(shortened(text, 90))


def _tokens(number: float) -> str:
    return f"{number:,.1f}".removesuffix(".0")


def _ranks(span: Span) -> str:
    return ranks(int(span.low), int(span.high))


def _change(number: float) -> str:
    sign = "+" if number > 0 else ""
    return sign + plain(number)


def _score(number: float) -> str:
    if isinstance(number, float):
        return f"{number:.4f}"
    return str(number)


def _correlation(number: float) -> str:
    return f"{number:.2f}".replace("-", "−")


def _probability(p: float) -> str:
    if p < 0.001:
        return "<0.001"
    return f"{p:.3f}"


KINDS: Mapping[str, Callable[[Any], str]] = {
    "text": safe,
    "excerpt": _excerpt,
    "names": _names,
    "lines": _lines,
    "tally": _tally,
    "count": "{:,}".format,
    "integer": str,
    "ranks": _ranks,
    "tokens": _tokens,
    "share": percent,
    "points": partial(points, minus="-"),
    "difference": points,
    "number": plain,
    "ratio": "{:.1f}".format,
    "change": _change,
    "score": _score,
    "signed": "{:+.2f}".format,
    "correlation": _correlation,
    "probability": "{:.3f}".format,
    "distance": "{:.4f}".format,
    "size": "{:.2g}".format,
    "nats": "{:.3g}".format,
    "p": _probability,
    "p value": probability,
}
"""Kind of a column → the function that writes a value for people. Shares are of 1, and read in
percent.
"""

_TEXTS = ("text", "excerpt", "names", "lines", "tally")


def has_value(value: Any) -> bool:
    """Tell if a cell holds a value: None, NaN and an empty list are none."""
    if isinstance(value, float):
        return not math.isnan(value)
    if isinstance(value, list | tuple):
        return bool(value)
    return value is not None


def is_text(column: Column) -> bool:
    """Tell if a column holds texts: they are aligned to the left, and folded if there is no room."""
    return column.kind in _TEXTS


def visible_columns(table: Table) -> list[Column]:
    """Return the columns that people see, without those that are joined to the one before."""
    columns = []
    for index, column in enumerate(table.columns):
        is_empty = not any(has_value(row[index]) for row in table.rows)
        if column.data or column.joined or (column.optional and is_empty):
            continue
        columns.append(column)
    return columns


def cell_texts(table: Table, most: int | None = None) -> list[list[str]]:
    """Return the cells of the first ``most`` rows as people read them, a text for each visible
    column.
    """
    visible = visible_columns(table)
    rows = []
    for row in table.rows[:most]:
        texts: list[str] = []
        for column, value in zip(table.columns, row, strict=True):
            if column.joined and has_value(value) and not column.data:
                texts[-1] += column.joined + written(value, column.kind) + column.closed
            elif column in visible:
                text = written(value, column.kind)
                if has_value(value):
                    text = column.before + text
                elif value is None and column.blank:
                    text = ""
                texts.append(text)
        rows.append(texts)
    return rows


def written(value: Any, kind: str) -> str:
    """Write a value for people, as in a column of this kind; a dash if it is unknown."""
    if isinstance(value, list | tuple) and not value:
        return ""
    if not has_value(value):
        return "-"
    if isinstance(value, Share):
        return percent(value)
    if isinstance(value, Span) and kind != "ranks":
        return span_text(value, KINDS[kind])
    return KINDS[kind](value)


def span_text(span: Span, spelled: Callable[[float], str]) -> str:
    """Write both ends, or one of them if they are written in the same way; an infinite end is not
    identified.
    """
    low = _end(span.low, spelled)
    high = _end(span.high, spelled)
    if low == high:
        return low
    return f"{low} – {high}"


def _end(number: float, spelled: Callable[[float], str]) -> str:
    if not math.isfinite(number):
        return "not identified"
    return spelled(number)


def heading(column: Column) -> str:
    """Return what people read above a column."""
    return column.heading or column.name


def notes_below(table: Table) -> list[str]:
    """Return the sentences below a table: its notes, then what its columns mean."""
    lines = list(table.notes)
    for column in table.columns:
        if column.meaning:
            lines.append(f"{heading(column)}: {column.meaning}")
    return lines


# Renderers


def terminal(table: Table, most: int | None = MOST) -> Group:
    """Draw a table for a terminal, with at most ``most`` rows. A table without columns is its title
    and notes.
    """
    from rich.console import Group
    from rich.text import Text

    parts: list[Grid | Text] = []
    if table.title:
        parts.append(Text(safe(table.title), style="italic"))
    rows = cell_texts(table, most)
    if rows:
        parts.append(Grid(visible_columns(table), rows, table.split))
    hidden = len(table.rows) - len(rows)
    if hidden:
        parts.append(Text(counted(hidden, "more row")))
    for line in notes_below(table):
        parts.append(Text(disarmed(line)))
    return Group(*parts)


_WORD = 30
"""Columns of a terminal that a word takes if there is no room; a longer one goes on in the next
line.
"""


_LEAST = 8
"""Columns of a terminal that a text has at least."""

_GAP = 2
"""Columns of a terminal between two columns of a table."""

_NAME = 34
"""Columns of a terminal that the name of a row takes at most in a table that is drawn in parts."""


def terminal_width(table: Table) -> int:
    """Return how many columns of a terminal a table takes if nothing folds."""
    widths = _widths(visible_columns(table), cell_texts(table))
    return sum(widths) + _GAP * (len(widths) - 1)


def _widths(columns: Sequence[Column], cells: Sequence[Sequence[str]]) -> list[int]:
    """Return how wide each column is if nothing folds."""
    from rich.cells import cell_len

    widths = []
    for index, column in enumerate(columns):
        width = cell_len(safe(heading(column)))
        for row in cells:
            for line in row[index].split("\n"):
                width = max(width, cell_len(line))
        widths.append(width)
    return widths


@dataclass(frozen=True)
class Grid:
    """Draw the cells of a table in a terminal. Texts fold if there is no room, behind a sign if
    they have one.

    ``split``: as in :class:`Table`.
    """

    columns: Sequence[Column]
    rows: Sequence[Sequence[str]]
    split: int = 0

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> Iterator[RenderableType]:
        """Yield what rich draws in the width that there is."""
        if self.split:
            yield from self._parts(options.max_width)
            return
        cells = self.rows
        widths = _widths(self.columns, cells)
        spare = options.max_width - sum(widths) - _GAP * (len(widths) - 1)
        if spare < 0:
            cells = [self._folded(row) for row in cells]
            widths = self._narrow(widths, cells, options.max_width)

        grid = _borderless()
        for column, width in zip(self.columns, widths, strict=True):
            if is_text(column):
                grid.add_column(safe(heading(column)), overflow="fold", width=width)
            else:
                grid.add_column(safe(heading(column)), justify="right", no_wrap=True)
        for row in cells:
            grid.add_row(*row)
        yield grid

    def _parts(self, width: int) -> Iterator[RenderableType]:
        """Yield a grid for as many columns as there is room for, of much the same size."""
        from rich.cells import cell_len

        names, *values = self.columns
        widest_name = max(cell_len(row[0]) for row in self.rows)
        room = width - min(_NAME, widest_name + _GAP)
        most = max(1, room // self.split)
        count = math.ceil(len(values) / most)
        size = math.ceil(len(values) / max(1, count))
        for start in range(0, len(values), max(1, size)):
            part = values[start : start + size]
            widest = room // len(part) - _GAP
            grid = _borderless()
            grid.add_column(safe(heading(names)), overflow="fold")
            for column in part:
                title = "\n".join(broken(safe(heading(column)), widest))
                grid.add_column(title, justify="right", overflow="fold", max_width=widest)
            for name, *cells in self.rows:
                grid.add_row(name, *cells[start : start + size])
            yield grid

    def _narrow(
        self, widths: Sequence[int], cells: Sequence[Sequence[str]], most: int
    ) -> list[int]:
        """Return the widths in ``most`` columns of a terminal: a text has its widest word, and more
        if there is room.

        If there is no room for the words, texts have less; a number always stands whole.
        """
        from rich.cells import cell_len

        narrow = list(widths)
        for index, column in enumerate(self.columns):
            if is_text(column):
                words = " ".join(row[index] for row in cells).split()
                widest = max(map(cell_len, [safe(heading(column)), *words]))
                narrow[index] = min(widest, _WORD)
        spare = most - sum(narrow) - _GAP * (len(narrow) - 1)
        texts = [index for index, column in enumerate(self.columns) if is_text(column)]
        while spare < 0 and texts:
            widest_text = max(texts, key=lambda index: narrow[index])
            if narrow[widest_text] <= _LEAST:
                break
            narrow[widest_text] -= 1
            spare += 1
        lacks = [width - least for width, least in zip(widths, narrow, strict=True)]
        for index in sorted(range(len(lacks)), key=lambda index: lacks[index]):
            widening = min(max(spare, 0), lacks[index])
            narrow[index] += widening
            spare -= widening
        return narrow

    def _folded(self, row: Sequence[str]) -> list[str]:
        texts = list(row)
        for index, column in enumerate(self.columns):
            # A cell of several lines is narrow enough: only its longest lines fold.
            if is_text(column) and column.kind != "lines":
                words = []
                for word in texts[index].split(" "):
                    if len(word) > _WORD:
                        word = "\n".join(broken(word, _WORD))
                    words.append(word)
                texts[index] = " ".join(words)
        return texts


def _borderless() -> RichTable:
    from rich.table import Table as RichTable

    return RichTable(box=None, pad_edge=False, header_style="bold")


def as_json(table: Table) -> JsonDict:
    """Return the values of all columns by name, with None for NaN and infinity, and facts and notes
    beside them.
    """
    names = [column.name for column in table.columns]
    rows = []
    for row in table.rows:
        rows.append(dict(zip(names, json_value(list(row)), strict=True)))
    return {
        "table": table.name,
        "title": table.title,
        **json_value(dict(table.facts)),
        "rows": rows,
        "notes": list(table.notes),
    }


def table_csv(columns: Sequence[str], rows: Iterable[JsonMapping]) -> str:
    """Return the values of ``columns`` in ``rows`` as CSV with a header. A text that a spreadsheet
    would compute begins with an apostrophe.
    """
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\r\n")
    writer.writerow(columns)
    for row in rows:
        writer.writerow([_field(row.get(name)) for name in columns])
    return file.getvalue()


def spreadsheet_text(value: str) -> str:
    """Return ``value`` on one line, after an apostrophe if a spreadsheet would compute it."""
    text = safe(value)
    if text.startswith(("=", "+", "-", "@")):
        return f"'{text}"
    return text


def _field(value: Any) -> str:
    if not has_value(value):
        return ""
    if isinstance(value, list | tuple):
        value = " ".join(map(str, value))
    if isinstance(value, str):
        return spreadsheet_text(value)
    return str(value)


def as_html(table: Table) -> str:
    """Return a table element with its caption, and a paragraph for each sentence below.

    The lines of a heading and of a number after the first are small. A number has its value as an
    attribute, by which a script sorts the rows.
    """
    columns = visible_columns(table)
    lines = ["<table>"]
    if table.title:
        lines.append(f"<caption>{_html(table.title)}</caption>")
    heads = []
    for column in columns:
        kind = "" if is_text(column) else ' class="number"'
        heads.append(f'<th scope="col"{kind}>{_html_lines(heading(column))}</th>')
    lines.append(f"<thead><tr>{''.join(heads)}</tr></thead>")
    lines.append("<tbody>")
    positions = [table.columns.index(column) for column in columns]
    for row, (name, *texts) in zip(table.rows, cell_texts(table), strict=True):
        cells = [f'<th scope="row">{_html(name)}</th>']
        for column, position, text in zip(columns[1:], positions[1:], texts, strict=True):
            cells.append(_html_cell(column, row[position], text))
        lines.append(f"<tr>{''.join(cells)}</tr>")
    lines.append("</tbody></table>")
    for line in notes_below(table):
        lines.append(f"<p>{_html(line)}</p>")
    return "\n".join(lines)


def _html_cell(column: Column, value: Any, text: str) -> str:
    if is_text(column):
        return f"<td>{_html(text)}</td>"
    if not has_value(value):
        return f'<td class="number">{"" if column.blank else "–"}</td>'
    number = value.low if isinstance(value, Span) else value
    return f'<td class="number" data-value="{number}">{_html_lines(text)}</td>'


def _html_lines(text: str) -> str:
    first, *others = text.split("\n")
    html = _html(first)
    for line in others:
        # The name of a variant, such as mmlu/helm@shots=0,choices=any, may break behind its parts.
        breakable = _html(line).replace(",", ",<wbr>").replace("@", "<wbr>@").replace(":", "<wbr>:")
        html += f"<small>{breakable}</small>"
    return html


def _html(text: str) -> str:
    return escape(disarmed(text))
