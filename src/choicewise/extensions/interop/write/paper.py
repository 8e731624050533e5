"""Lay out numbers as tables of a paper, and spell them in LaTeX and Markdown."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from choicewise import __version__
from choicewise.extensions.interop.write.common import export_study
from choicewise.extensions.interop.write.markup import (
    OTHER,
    latex_code,
    latex_escape,
    markdown_code,
    markdown_escape,
)
from choicewise.page.study import Study
from choicewise.ports import Export
from choicewise.protocols.metrics import METRICS
from choicewise.report.tables import average_tables, shown_value
from choicewise.results.number import Number
from choicewise.results.rows import chosen_part
from choicewise.table import Table, cell_texts, heading, visible_columns
from choicewise.util.text import counted, percent, plain, safe

NONE = "–"
"""The text of a cell without a number."""


@dataclass(frozen=True)
class Cell:
    """Hold a cell: its ``text``, the 95 % ``interval`` below or after it, and the numbers of its
    notes.

    ``bold``: of a number, whose text is no name.
    """

    text: str
    interval: str = ""
    marks: tuple[int, ...] = ()
    bold: bool = False

    @property
    def width(self) -> int:
        """Return about how many characters wide the cell is; those of intervals are small."""
        return max(len(self.text) + bool(self.marks), len(self.interval) * 3 // 4)


@dataclass(frozen=True)
class Note:
    """Hold a line below a table. ``mark``: the number that cells have for it, 0 for none. ``code``,
    such as a signature, is set letter by letter.
    """

    text: str
    mark: int = 0
    code: str = ""


@dataclass(frozen=True, kw_only=True)
class PaperTable:
    """Hold one table.

    ``name``: a word of a-z, 0-9 and hyphens to refer to it. ``heads``: of the columns. ``texts``:
    the indices of columns that hold texts; the others hold numbers. ``feet``: how many of the last
    rows describe the columns.
    """

    name: str
    caption: str
    heads: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[Note, ...]
    texts: frozenset[int] = frozenset((0,))
    feet: int = 0


class Marks:
    """Number the remarks on values in the order in which they are met."""

    def __init__(self) -> None:
        self._mark_of: dict[str, int] = {}

    def of(self, texts: Iterable[str]) -> tuple[int, ...]:
        """Return the number of each remark."""
        return tuple(self._mark_of.setdefault(text, len(self._mark_of) + 1) for text in texts)

    def notes(self) -> list[Note]:
        """Return a note for each remark."""
        return [Note(text, mark) for text, mark in self._mark_of.items()]


LATEX_FIRST = "% tables of `choicewise export`"
"""The beginning of the first line of every such file, by which it is known."""

LINES = 36
SIGNATURES = 5
"""Lines and signatures of a table that fits on a page; one with more runs over several."""

_CAPTION_SPACE = r"\setlength{\belowcaptionskip}{4pt}"
_SMALL = r"\small\setlength{\tabcolsep}{4pt}" + _CAPTION_SPACE
"""The face in which four columns of values with their intervals fit between margins of an inch."""

_SMALLER = r"\footnotesize\setlength{\tabcolsep}{2.5pt}" + _CAPTION_SPACE
"""The face in which six columns of values with their errors, the mean and the rank fit."""

_WIDE = 90
_WIDER = 100
"""Characters of a line, without what separates its columns: with more than the first the table is
smaller, with more than the second long names break too.
"""

HEAD = 12
NAME = 20
"""Characters of a head, and of a name that may break, on one line."""

_HEAD = r"""%s: in the preamble, \usepackage{booktabs,longtable}
\providecommand{%s}[2]{\ifdefined\Umathchar#1\else#2\fi}%% a character, or its name where pdfTeX does not have it
"""


def latex(tables: Sequence[PaperTable]) -> str:
    """Spell ``tables`` in LaTeX: floats if they fit on a page, else tables that run over several."""
    return "\n".join([_HEAD % (LATEX_FIRST, OTHER), *map(_latex_table, tables)])


def _latex_table(table: PaperTable) -> str:
    width = _width(table)
    face = _SMALL if width <= _WIDE else _SMALLER
    name_width = NAME if width > _WIDER else None
    sides = _sides(table, "l", "r")
    columns = "".join(sides)
    caption = rf"\caption{{{latex_escape(table.caption)}.}}\label{{tab:{table.name}}}"
    head = [r"\toprule", _line(map(_stack, table.heads, sides)), r"\midrule"]
    body = _body(table, name_width)
    signature_count = sum(1 for note in table.notes if note.code)
    if len(body) <= LINES and signature_count <= SIGNATURES:
        # A float stays on one page, with its notes.
        lines = [
            r"\begin{table}[tbp]",
            r"\centering" + face,
            caption,
            rf"\begin{{tabular}}{{{columns}}}",
            *head,
            *body,
            r"\bottomrule",
            r"\end{tabular}",
            r"\par\medskip",
            r"\begin{minipage}{\linewidth}",
            _latex_notes(table.notes),
            r"\end{minipage}",
            r"\end{table}",
        ]
    else:
        # A long table repeats its head on every page.
        lines = [
            "{" + face,
            rf"\begin{{longtable}}{{{columns}}}",
            caption + r"\\",
            *head,
            r"\endfirsthead",
            *head,
            r"\endhead",
            *body,
            r"\bottomrule",
            r"\end{longtable}",
            _latex_notes(table.notes),
            r"\par}",
        ]
    return "\n".join(lines) + "\n"


def _sides(table: PaperTable, text: str, number: str) -> list[str]:
    """Return how each column is aligned: as a ``text`` or as a ``number``."""
    sides = [number] * len(table.heads)
    for column in table.texts:
        sides[column] = text
    return sides


def _width(table: PaperTable) -> int:
    """Return the characters of the widest line that the columns can make."""
    width = 0
    for column, head in enumerate(table.heads):
        widest = max(map(len, _broken(head, HEAD)))
        for row in table.rows:
            widest = max(widest, row[column].width)
        width += widest
    return width


def _broken(text: str, most: int) -> list[str]:
    """Return ``text`` in lines of at most ``most`` characters, each of which ends after a hyphen, a
    slash or the like; a piece without one is not broken.
    """
    lines = [""]
    for piece in re.findall(r"[^-/:_ ]*[-/:_ ]?", safe(text)):
        if piece and lines[-1] and len(lines[-1] + piece) > most:
            lines.append("")
        lines[-1] += piece
    return lines


def _stack(text: str, side: str, most: int | None = HEAD) -> str:
    """Set ``text`` in lines of at most ``most`` characters, one above the other; None: in one."""
    lines = [text] if most is None else _broken(text, most)
    separator = r"\\\enspace " if side == "l" else r"\\"
    stack = separator.join(_guarded(latex_escape(line)) for line in lines)
    if len(lines) == 1:
        return stack
    return rf"\shortstack[{side}]{{{stack}}}"


def _body(table: PaperTable, name_width: int | None) -> list[str]:
    """Return the lines of the body. ``name_width``: characters of a name on one line."""
    lines = []
    first_foot = len(table.rows) - table.feet
    for number, row in enumerate(table.rows):
        if table.feet and number == first_foot:
            lines.append(r"\midrule")
        cells = []
        for column, cell in enumerate(row):
            most = name_width if column in table.texts else None
            cells.append(_latex_cell(cell, most))
        line = _line(cells)
        if not any(cell.interval for cell in row):
            lines.append(line)
            continue
        # The star: no page ends between a value and its interval.
        lines.append(f"{line}*")
        intervals = []
        for cell in row:
            interval = ""
            if cell.interval:
                interval = rf"{{\scriptsize {latex_escape(cell.interval)}}}"
            intervals.append(interval)
        lines.append(_line(intervals))
    return lines


def _line(cells: Iterable[str]) -> str:
    return _guarded(" & ".join(cells)) + r" \\"


def _guarded(line: str) -> str:
    r"""Keep the ``\\`` before a line from taking its first character for an option."""
    if line.startswith(("[", "*")):
        return f"{{}}{line}"
    return line


def _latex_cell(cell: Cell, most: int | None) -> str:
    text = _stack(cell.text, "l", most)
    if cell.bold:
        text = rf"\textbf{{{text}}}"
    if cell.marks:
        marks = ",".join(map(str, cell.marks))
        text += rf"\textsuperscript{{{marks}}}"
    return text


def _latex_notes(notes: Sequence[Note]) -> str:
    lines = [r"\footnotesize\raggedright\frenchspacing"]
    for note in notes:
        mark = rf"\textsuperscript{{{note.mark}}}"
        lines.append(f"{_note_text(note, mark, latex_escape, latex_code)}\\par")
    return "\n".join(lines)


def _note_text(
    note: Note, mark: str, escape: Callable[[str], str], spell_code: Callable[[str], str]
) -> str:
    parts = []
    if note.mark:
        parts.append(mark)
    if note.text:
        parts.append(escape(note.text))
    if note.code:
        parts.append(spell_code(note.code))
    return " ".join(parts)


MARKDOWN_FIRST = "<!-- tables of `choicewise export` -->"
"""The first line of every such file, by which it is known; a reader doesn't see it."""

_RAISED = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


def markdown(tables: Sequence[PaperTable]) -> str:
    """Spell ``tables`` in Markdown, each with its caption above and its notes below."""
    return "\n\n".join([MARKDOWN_FIRST, *map(_markdown_table, tables)]) + "\n"


def _markdown_table(table: PaperTable) -> str:
    rule = _markdown_line(_sides(table, ":--", "--:"))
    lines = [_markdown_line(map(markdown_escape, table.heads)), rule]
    for row in table.rows:
        lines.append(_markdown_line(map(_markdown_cell, row)))
    grid = "\n".join(lines)
    notes = []
    for note in table.notes:
        text = _note_text(note, _raised(note.mark), markdown_escape, markdown_code)
        notes.append(f"- {text}")
    below = "\n".join(notes)
    return f"**{markdown_escape(table.caption)}**\n\n{grid}\n\n{below}".rstrip()


def _markdown_line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _markdown_cell(cell: Cell) -> str:
    text = markdown_escape(cell.text)
    if cell.bold:
        text = f"**{text}**"
    text += " ".join(map(_raised, cell.marks))
    if not text or not cell.interval:
        return text or cell.interval
    return f"{text} {cell.interval}"


def _raised(number: int) -> str:
    return str(number).translate(_RAISED)


@dataclass(frozen=True)
class PaperForm:
    """Spell tables in one language. ``first``: the beginning of every file, by which it is known."""

    first: str
    spell: Callable[[Sequence[PaperTable]], str]

    def write(self, tables: Sequence[PaperTable], out: Path) -> None:
        """Write the ``tables`` to the file ``out``."""
        out.write_text(self.spell(tables), encoding="utf-8")


FORMS = {"latex": PaperForm(LATEX_FIRST, latex), "markdown": PaperForm(MARKDOWN_FIRST, markdown)}
"""The forms by the names of their writers."""


def write_numbers(form: PaperForm, export: Export, out: Path) -> None:
    """Write a table of every number: models by protocols."""
    form.write(paper_tables(export_study(export)), out)


MOST = 4
"""Columns of values with their intervals that fit on a page; more of them make further tables."""


def paper_tables(study: Study) -> list[PaperTable]:
    """Return every table: shares of 1 in %, one for each other metric, then a table per suite of
    averages.
    """
    part_of_model = {run.label: chosen_part(run.manifest.selection) for run in study.runs}
    rows = [*study.rows, *study.other_metrics]
    names = {}
    for row in rows:
        # A label ends in the dataset if the model has runs on several, which columns name.
        model = row.identity.model
        names[model] = model.removesuffix(f" on {row.identity.dataset}")
    # Shares of all metrics have one unit, and one table before the others.
    rows_of_kind: dict[str, list[Number]] = {}
    for row in sorted(rows, key=lambda row: not row.share):
        kind = "" if row.share else row.identity.metric
        rows_of_kind.setdefault(kind, []).append(row)
    tables: list[PaperTable] = []
    for kind_rows in rows_of_kind.values():
        tables += _tables(kind_rows, part_of_model, names)
    tables += map(_average, average_tables(study.averages))
    return tables


def _label_parts(row: Number, part: str) -> tuple[str, ...]:
    """Return the protocol, then what may follow it in a label, the most telling first.

    All of them together identify a value among those of its model. ``part``: of the data, that the
    run chose.
    """
    identity = row.identity
    return (
        identity.protocol,
        f", {identity.subject}",
        f" on {identity.dataset}",
        f" ({part or 'all'})",
        f" {identity.data}",
        f" {identity.id}",
        f" {identity.metric}",
    )


def _labels(keys: Iterable[tuple[str, ...]]) -> dict[tuple[str, ...], str]:
    """Return a label for each of the label parts: the protocol, and what distinguishes it from the
    others.
    """
    labels = {key: key[0] for key in keys}
    for index in range(1, 7):
        additions_of: dict[str, set[str]] = {}
        for key, label in labels.items():
            additions_of.setdefault(label, set()).add(key[index])
        for key, label in labels.items():
            # Labels that are equal and stay equal with this addition need another one.
            if len(additions_of[label]) > 1:
                labels[key] = label + key[index]
    return labels


def _tables(
    rows: Sequence[Number], part_of_model: Mapping[str, str], names: Mapping[str, str]
) -> Iterator[PaperTable]:
    """Yield the tables of rows with one unit. ``names``: of the models, by the rows' models."""
    keys = [_label_parts(row, part_of_model[row.identity.model]) for row in rows]
    labels = _labels(keys)
    row_at: dict[tuple[str, str], Number] = {}
    for key, row in zip(keys, rows, strict=True):
        row_at[labels[key], names[row.identity.model]] = row
    spelled, unit = digits(rows)
    cells = _Cells(rows=rows, part_of_model=part_of_model, spelled=spelled, unit=unit)
    with_row = {model for _, model in row_at}
    models = [model for model in dict.fromkeys(names.values()) if model in with_row]
    if len(models) == 1:
        yield _one_model(cells, models[0], {label: row for (label, _), row in row_at.items()})
        return
    down = list(labels.values())
    across = models
    # A page has more room for lines than for columns.
    by_protocol = len(models) <= len(labels)
    if not by_protocol:
        down, across = across, down
        row_at = {(model, label): row for (label, model), row in row_at.items()}
    parts = column_parts(len(across), MOST)
    for number, columns in enumerate(parts, start=1):
        piece = f" (part {number} of {len(parts)})" if len(parts) > 1 else ""
        names_across = [across[column] for column in columns]
        yield _matrix(cells, row_at, down, names_across, by_protocol, piece)


def column_parts(count: int, most: int) -> list[range]:
    """Return the columns of each part of a table that has ``count`` of them, at most ``most`` in a
    part and much the same number in all.
    """
    size = math.ceil(count / math.ceil(count / most))
    return [range(start, min(start + size, count)) for start in range(0, count, size)]


@dataclass(frozen=True, kw_only=True)
class _Cells:
    """Spell the values of ``rows``, which have one unit. ``part_of_model``: of the data."""

    rows: Sequence[Number]
    part_of_model: Mapping[str, str]
    spelled: Callable[[float], str]
    unit: str

    def cell(self, row: Number | None, marks: Marks) -> Cell:
        """Return the value of ``row`` with its interval and the marks of its remarks."""
        if row is None:
            return Cell("")
        numbers = marks.of(remarks(row, self.part_of_model[row.identity.model]))
        if math.isnan(row.value) and not row.open:
            return Cell(NONE, marks=numbers)
        interval = ""
        if not math.isnan(row.interval.low):
            low = self.spelled(row.interval.low)
            high = self.spelled(row.interval.high)
            interval = f"[{low}, {high}]"
        return Cell(shown_value(row, self.spelled), interval, numbers)

    def caption(self, models: str) -> str:
        """Return the metrics with their unit, the ``models`` and the data."""
        data = f"{len(self._datasets)} datasets"
        if len(self._datasets) == 1:
            data = self._datasets[0]
        return f"{', '.join(self._metrics)}{self.unit}{models} on {data}"

    def name(self, piece: str = "") -> str:
        """Return a word to refer to the table by."""
        words = list(self._metrics)
        if len(self._datasets) == 1:
            words = [self._datasets[0], *words]
        return _slug(f"{' '.join(words)} {piece}", "table")

    @property
    def _metrics(self) -> list[str]:
        return list(dict.fromkeys(row.identity.metric for row in self.rows))

    @property
    def _datasets(self) -> list[str]:
        return list(dict.fromkeys(row.identity.dataset for row in self.rows))


def _slug(text: str, default: str) -> str:
    return re.sub("[^a-z0-9]+", "-", text.lower()).strip("-") or default


def _one_model(cells: _Cells, model: str, rows: Mapping[str, Number]) -> PaperTable:
    """Return a table of one model: a line per protocol."""
    has_missing = any(row.counts.missing for row in rows.values())
    heads = ["protocol", cells.unit.removeprefix(" in ") or "value", "95 % interval", "n"]
    if has_missing:
        heads.append("missing")
    heads.append("id")
    marks = Marks()
    lines = []
    for label, row in rows.items():
        value = cells.cell(row, marks)
        # In a column alone an interval needs no brackets.
        interval = value.interval.strip("[]").replace(", ", NONE) or NONE
        line = [Cell(label), Cell(value.text, marks=value.marks), Cell(interval)]
        line.append(Cell(f"{row.counts.n:,}"))
        if has_missing:
            line.append(Cell(f"{row.counts.missing:,}"))
        line.append(Cell(row.identity.id))
        lines.append(tuple(line))
    return PaperTable(
        name=cells.name(),
        caption=cells.caption(f" of {model}"),
        heads=tuple(heads),
        rows=tuple(lines),
        notes=(*marks.notes(), *table_notes(list(rows.values()))),
        texts=frozenset((0, len(heads) - 1)),
    )


def _matrix(
    cells: _Cells,
    rows: Mapping[tuple[str, str], Number],
    down: Sequence[str],
    across: Sequence[str],
    by_protocol: bool,
    piece: str,
) -> PaperTable:
    """Return the values of ``rows``, by their names ``down`` and ``across``, as a table.

    ``by_protocol``: the lines are protocols and not models. n and id are at the edge of the
    protocols.
    """
    marks = Marks()
    lines = []
    for name in down:
        rows_of_line = [rows.get((name, column)) for column in across]
        line = [Cell(name), *(cells.cell(row, marks) for row in rows_of_line)]
        if by_protocol:
            line += [Cell(counts(rows_of_line)), Cell(ids(rows_of_line))]
        lines.append(tuple(line))
    heads = ["protocol", *across, "n", "id"]
    if not by_protocol:
        heads = ["model", *across]
        for title, spell in (("n", counts), ("id", ids)):
            foot = [Cell(title)]
            for column in across:
                foot.append(Cell(spell([rows.get((name, column)) for name in down])))
            lines.append(tuple(foot))
    rows_of_part = [row for (_, column), row in rows.items() if column in across]
    model_count = len({row.identity.model for row in rows_of_part})
    return PaperTable(
        name=cells.name(piece),
        caption=cells.caption(f" of {model_count} models") + piece,
        heads=tuple(heads),
        rows=tuple(lines),
        notes=(*marks.notes(), *table_notes(rows_of_part)),
        feet=len(lines) - len(down),
    )


def _average(table: Table) -> PaperTable:
    """Return the table of a suite: a line per model, a column per part."""
    lines = []
    for texts in cell_texts(table):
        # A name of a model is a cell too, and may be a dash; it is drawn in the same way.
        lines.append(tuple(Cell(NONE) if text == "-" else Cell(text) for text in texts))
    return PaperTable(
        name=f"{_slug(table.title.partition(':')[0], 'suite')}-average",
        caption=table.title,
        heads=tuple(map(heading, visible_columns(table))),
        rows=tuple(lines),
        notes=tuple(Note(f"{note}.") for note in table.notes),
    )


def digits(rows: Sequence[Number]) -> tuple[Callable[[float], str], str]:
    """Return the function that spells the values of ``rows``, and their unit.

    Shares are percentages with one decimal, or with as many as the narrowest interval has.
    """
    if not rows[0].share:
        unit = METRICS[rows[0].identity.metric].unit
        if unit:
            unit = f" in {unit}"
        return plain, unit
    widths = [row.interval.high - row.interval.low for row in rows]
    # Fewer digits than the half of the narrowest interval has would hide that values differ.
    halves = [50 * width for width in widths if width > 0]
    narrowest = min(halves, default=1)
    decimals = min(max(1, math.ceil(-math.log10(narrowest))), 4)
    if decimals == 1:
        return percent, " in %"

    def with_decimals(share: float) -> str:
        return f"{100 * share:.{decimals}f}"

    return with_decimals, " in %"


def counts(rows: Sequence[Number | None]) -> str:
    """Return the least and the greatest n of all rows, or one number if they are equal."""
    counts = [row.counts.n for row in rows if row is not None]
    if not counts:
        return ""
    least = min(counts)
    most = max(counts)
    if least == most:
        return f"{least:,}"
    return f"{least:,}–{most:,}"


def ids(rows: Sequence[Number | None]) -> str:
    """Return the short ids of the protocols, without repetition."""
    return " ".join(dict.fromkeys(row.identity.id for row in rows if row is not None))


def remarks(row: Number, part: str) -> list[str]:
    """Return what must be said beside a value. ``part``: of the data, that the run chose."""
    texts = []
    counts = row.counts
    # A selection names the part that was chosen, then what is lacking of it.
    lacking = row.identity.selection.removeprefix(part).strip(", ")
    if lacking:
        texts.append(lacking)
    if counts.missing:
        text = f"{counts.missing:,} of {counts.n + counts.missing:,} items could not be scored"
        if row.missing_reasons:
            text += f": {row.missing_reasons[0].reason}"
        texts.append(text)
    if counts.invalid:
        texts.append(f"{counts.invalid:,} of {counts.n:,} texts name no option and count as wrong")
    if "gold-constant" in row.diagnosis.warnings:
        texts.append(
            "ties, and the right choice is always in one position: the tie rule decides the score"
        )
    return texts


def table_notes(rows: Sequence[Number]) -> list[Note]:
    """Return the notes that every table of these rows has, whatever its layout."""
    intervals = dict.fromkeys(row.interval.name for row in rows)
    text = f"Intervals: 95 %, {', '.join(intervals)}. n: the number of items averaged."
    return [metric_note(rows), Note(text), *origins(rows)]


def metric_note(rows: Sequence[Number]) -> Note:
    """Return a note that describes the metrics of these rows."""
    texts = {}
    for row in rows:
        name = row.identity.metric
        metric = METRICS[name]
        direction = "" if row.share else f" ({metric.direction})"
        texts[name] = f"{name}{direction}: {metric.description}"
    return Note(f"{'; '.join(texts.values())}.")


def origins(rows: Sequence[Number]) -> list[Note]:
    """Return notes on the origin of the numbers: models, data, program, and protocols with their
    ids and signatures.
    """
    models: dict[str, None] = {}
    data: dict[str, None] = {}
    for row in rows:
        identity = row.identity
        model = identity.model.removesuffix(f" on {identity.dataset}")
        models[f"{model} {identity.r}{_source(identity.model_source)}"] = None
        origin = f"{identity.dataset} {identity.data}{_source(identity.dataset_source)}"
        if row.counts.skipped:
            origin += f" (without {counted(row.counts.skipped, 'row')} that can't be asked)"
        data[origin] = None
    return [
        Note(f"Models: {'; '.join(models)}."),
        Note(f"Data: {'; '.join(data)}."),
        Note(
            f"Scored with Choicewise {__version__}. A signature states every axis of its protocol "
            "and can be run again."
        ),
        *_signatures(rows),
    ]


def _source(source: str) -> str:
    return f" ({source})" if source else ""


def _signatures(rows: Sequence[Number]) -> list[Note]:
    """Return a note per protocol: its ids, its names and its signature; #I if all rows sent the
    same texts.
    """
    rows_of_id: dict[str, list[Number]] = {}
    for row in rows:
        rows_of_id.setdefault(row.identity.id, []).append(row)
    notes = []
    for id, rows_of_protocol in rows_of_id.items():
        names = dict.fromkeys(row.identity.protocol for row in rows_of_protocol)
        # One protocol may have sent other texts about other data.
        texts = {row.identity.i for row in rows_of_protocol}
        shared_ids = id if len(texts) > 1 else f"{id} {texts.pop()}"
        code = rows_of_protocol[0].identity.signature
        notes.append(Note(f"{shared_ids} {', '.join(names)}", code=code))
    return notes
