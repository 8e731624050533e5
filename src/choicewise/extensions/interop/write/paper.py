"""LaTeX and Markdown from one table and two jinja templates."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from choicewise import __version__
from choicewise.extensions.interop.write.common import shown_runs
from choicewise.page.study import Study
from choicewise.ports import Export
from choicewise.protocols.metrics import METRICS
from choicewise.report.tables import average_tables, shown_value
from choicewise.results.number import Number
from choicewise.results.rows import chosen_part
from choicewise.table import Table, cell_texts, heading, visible_columns
from choicewise.util.markup import OTHER, latex_code, latex_escape, markdown_code, markdown_escape
from choicewise.util.text import percent, plain, safe

LATEX_FIRST = "% tables of `choicewise export`"
"""How the first line of every such file begins, which says whose it is."""

LINES, SIGNATURES = 36, 5
"""Lines and signatures of a table that fits on a page; one with more of them runs over several."""

_CAPTION_SPACE = r"\setlength{\belowcaptionskip}{4pt}"
_SMALL = r"\small\setlength{\tabcolsep}{4pt}" + _CAPTION_SPACE
"""So that four columns of values with their intervals fit between margins of an inch."""

_SMALLER = r"\footnotesize\setlength{\tabcolsep}{2.5pt}" + _CAPTION_SPACE
"""So that six columns of values with their errors, the mean and the rank do."""

_WIDE, _WIDER = 90, 100
"""Characters of a line, without what separates its columns: of more the table is smaller, of still more names break."""

HEAD, NAME = 12, 20
"""Characters of a head, and of a name that breaks, that stand on one line where there are places to break."""

_HEAD = r"""%s: in the preamble, \usepackage{booktabs,longtable}
\providecommand{%s}[2]{\ifdefined\Umathchar#1\else#2\fi}%% a character, or its name where pdfTeX does not have it
"""


def latex(tables: Sequence[PaperTable]) -> str:
    """All ``tables``: floats where they fit on a page, else tables that run over several."""
    return "\n".join([_HEAD % (LATEX_FIRST, OTHER), *map(_latex_table, tables)])


def _latex_table(table: PaperTable) -> str:
    signatures = sum(1 for note in table.notes if note.code)
    sides = ["l" if place in table.texts else "r" for place in range(len(table.heads))]
    caption = rf"\caption{{{latex_escape(table.caption)}.}}\label{{tab:{table.name}}}"
    head = [r"\toprule", _line(map(_stack, table.heads, sides)), r"\midrule"]
    width = _width(table)
    body = [*_body(table, NAME if width > _WIDER else None), r"\bottomrule"]
    notes, columns, face = (
        _notes(table.notes),
        "".join(sides),
        _SMALL if width <= _WIDE else _SMALLER,
    )
    if len(body) <= LINES + 1 and signatures <= SIGNATURES:
        lines = [
            r"\begin{table}[tbp]",
            r"\centering" + face,
            caption,
            rf"\begin{{tabular}}{{{columns}}}",
            *head,
            *body,
        ]
        lines += [
            r"\end{tabular}",
            r"\par\medskip",
            r"\begin{minipage}{\linewidth}",
            notes,
            r"\end{minipage}",
        ]
        return "\n".join([*lines, r"\end{table}", ""])
    lines = [
        "{" + face,
        rf"\begin{{longtable}}{{{columns}}}",
        caption + r"\\",
        *head,
        r"\endfirsthead",
    ]
    lines += [*head, r"\endhead", *body, r"\end{longtable}"]
    return "\n".join([*lines, notes, r"\par}", ""])


def _width(table: PaperTable) -> int:
    """Characters of the widest line that the columns can make; those of intervals, which are small, count less."""
    heads = [max(map(len, _lines_of(head, HEAD))) for head in table.heads]
    rows = [
        [max(len(cell.text) + bool(cell.marks), len(cell.interval) * 3 // 4) for cell in row]
        for row in table.rows
    ]
    return sum(max(column) for column in zip(heads, *rows, strict=True))


def _lines_of(text: str, most: int) -> list[str]:
    """``text`` over as many lines as keep it narrow; it may end a line after a hyphen, a slash and the like."""
    lines = [""]
    for piece in re.findall(r"[^-/:_ ]*[-/:_ ]?", safe(text)):
        if piece and lines[-1] and len(lines[-1] + piece) > most:
            lines.append("")
        lines[-1] += piece
    return lines


def _stack(text: str, side: str, most: int | None = HEAD) -> str:
    lines = [text] if most is None else _lines_of(text, most)
    indented = r"\\\enspace " if side == "l" else r"\\"
    whole = indented.join(_guarded(latex_escape(line)) for line in lines)
    return whole if len(lines) == 1 else rf"\shortstack[{side}]{{{whole}}}"


def _body(table: PaperTable, most: int | None) -> list[str]:
    """The lines of the body; ``most``: characters of a name that stand on one line."""
    lines = []
    for place, row in enumerate(table.rows):
        if table.feet and place == len(table.rows) - table.feet:
            lines.append(r"\midrule")
        stacked = any(cell.interval for cell in row)
        # the star: no page ends between a value and its interval
        cells = (
            _latex_cell(cell, most if column in table.texts else None)
            for column, cell in enumerate(row)
        )
        lines.append(_line(cells) + ("*" if stacked else ""))
        if stacked:
            lines.append(
                _line(
                    rf"{{\scriptsize {latex_escape(cell.interval)}}}" if cell.interval else ""
                    for cell in row
                )
            )
    return lines


def _line(cells: Iterable[str]) -> str:
    return _guarded(" & ".join(cells)) + r" \\"


def _guarded(line: str) -> str:
    """``line`` so that the end of the line before does not take its first character for an option."""
    return f"{{}}{line}" if line.startswith(("[", "*")) else line


def _latex_cell(cell: Cell, most: int | None) -> str:
    marks, text = ",".join(map(str, cell.marks)), _stack(cell.text, "l", most)
    return (rf"\textbf{{{text}}}" if cell.bold else text) + (
        rf"\textsuperscript{{{marks}}}" if marks else ""
    )


def _notes(notes: Sequence[Note]) -> str:
    return "\n".join(
        [
            r"\footnotesize\raggedright\frenchspacing",
            *(f"{_latex_note(note)}\\par" for note in notes),
        ]
    )


def _latex_note(note: Note) -> str:
    mark = rf"\textsuperscript{{{note.mark}}}" if note.mark else ""
    return " ".join(
        filter(None, (mark, latex_escape(note.text), latex_code(note.code) if note.code else ""))
    )


NONE = "–"
"""What stands where there is no number."""


class Key(NamedTuple):
    """What a value is about beside its model."""

    dataset: str
    data: str
    part: str
    protocol: str
    id: str
    metric: str
    subject: str


def paper_tables(study: Study) -> list[PaperTable]:
    """Every table: shares of 1 in %, one for each other metric, then a table per suite of averages."""
    own = {
        run.label: chosen_part(run.manifest.selection) for run in study.runs
    }  # the part of the data that it asks
    rows = [*study.rows, *study.other_metrics]
    bare = {
        row.identity.model: row.identity.model.removesuffix(f" on {row.identity.dataset}")
        for row in rows
    }
    tables: list[PaperTable] = []
    kinds: dict[str, list[Number]] = {}
    for row in sorted(rows, key=lambda row: not row.share):
        kinds.setdefault("" if row.share else row.identity.metric, []).append(row)
    for kind in kinds.values():
        tables += _tables(kind, own, bare)
    return [*tables, *map(_average, average_tables(study.averages))]


def _tables(
    rows: Sequence[Number], own: dict[str, str], bare: dict[str, str]
) -> Iterator[PaperTable]:
    spelled, unit = digits(rows)
    keys = [
        Key(
            row.identity.dataset,
            row.identity.data,
            own[row.identity.model],
            row.identity.protocol,
            row.identity.id,
            row.identity.metric,
            row.identity.subject,
        )
        for row in rows
    ]
    labels = _labels(list(dict.fromkeys(keys)))
    cells = {
        (labels[key], bare[row.identity.model]): row for key, row in zip(keys, rows, strict=True)
    }
    about = _About(rows, own, spelled, unit)
    models = [
        model for model in dict.fromkeys(bare.values()) if any(model == name for _, name in cells)
    ]
    if len(models) == 1:
        yield _lines(about, models[0], {label: row for (label, _), row in cells.items()})
        return
    names = list(labels.values())
    down, across = (models, names) if len(models) > len(names) else (names, models)
    flat = {
        (label, model) if down is names else (model, label): row
        for (label, model), row in cells.items()
    }
    # four columns of values fit on a page; more of them make further tables
    step = math.ceil(len(across) / math.ceil(len(across) / 4))
    starts = range(0, len(across), step)
    for start in starts:
        chosen = across[start : start + step]
        piece = f" (part {start // step + 1} of {len(starts)})" if len(starts) > 1 else ""
        shown = {key: row for key, row in flat.items() if key[1] in chosen}
        yield _matrix(about, down, chosen, shown, "model" if down is models else "protocol", piece)


class _About(NamedTuple):
    rows: Sequence[Number]
    own: dict[str, str]
    spelled: Callable[[float], str]
    unit: str

    def cell(self, row: Number, marks: dict[str, int]) -> Cell:
        """The value of ``row`` with its interval; ``marks`` numbers the notes of values in the order they are met."""
        said = remarks(row, self.own[row.identity.model])
        noted = tuple(marks.setdefault(remark, len(marks) + 1) for remark in said)
        if math.isnan(row.value) and not row.open:
            return Cell(NONE, marks=noted)
        known = not math.isnan(row.interval.low)
        interval = (
            f"[{self.spelled(row.interval.low)}, {self.spelled(row.interval.high)}]"
            if known
            else ""
        )
        return Cell(shown_value(row, self.spelled), interval, noted)

    def caption(self, about: str) -> str:
        """What is shown: metrics with their unit, ``about`` whom, on which data."""
        metrics = ", ".join(dict.fromkeys(row.identity.metric for row in self.rows))
        datasets = list(dict.fromkeys(row.identity.dataset for row in self.rows))
        data = datasets[0] if len(datasets) == 1 else f"{len(datasets)} datasets"
        return f"{metrics}{self.unit}{about} on {data}"

    def name(self, piece: str = "") -> str:
        """A word to refer to the table by."""
        metrics = dict.fromkeys(row.identity.metric for row in self.rows)
        datasets = dict.fromkeys(row.identity.dataset for row in self.rows)
        words = " ".join([*datasets, *metrics]) if len(datasets) == 1 else " ".join(metrics)
        return re.sub("[^a-z0-9]+", "-", f"{words} {piece}".lower()).strip("-") or "table"


def _lines(about: _About, model: str, rows: dict[str, Number]) -> PaperTable:
    """One model: a line per protocol."""
    marks: dict[str, int] = {}
    lines = []
    for label, row in rows.items():
        value = about.cell(row, marks)
        interval = value.interval.strip("[]").replace(", ", NONE) or NONE
        numbers = [
            Cell(value.text, marks=value.marks),
            Cell(interval),
            Cell(f"{row.counts.n:,}"),
            Cell(f"{row.counts.missing:,}"),
        ]
        lines.append((Cell(label), *numbers, Cell(row.identity.id)))
    heads = [
        "protocol",
        about.unit.removeprefix(" in ") or "value",
        "95 % interval",
        "n",
        "missing",
        "id",
    ]
    missing = any(row.counts.missing for row in rows.values())
    chosen = [place for place, head in enumerate(heads) if missing or head != "missing"]
    cells = tuple(tuple(line[place] for place in chosen) for line in lines)
    notes = (*map(Note, marks, marks.values()), *table_notes(list(rows.values())))
    shown = tuple(heads[place] for place in chosen)
    return PaperTable(
        about.name(),
        about.caption(f" of {model}"),
        shown,
        cells,
        notes,
        frozenset((0, len(shown) - 1)),
    )


def _matrix(
    about: _About,
    down: Sequence[str],
    across: Sequence[str],
    rows: dict[tuple[str, str], Number],
    corner: str,
    piece: str,
) -> PaperTable:
    """Values by the names ``down`` and ``across``, with n at the edge of the protocols."""
    marks: dict[str, int] = {}
    by_protocol = corner == "protocol"
    lines = []
    for name in down:
        own = [rows.get((name, column)) for column in across]
        cells = [Cell("") if row is None else about.cell(row, marks) for row in own]
        ends = [Cell(counts(own)), Cell(ids(own))] if by_protocol else []
        lines.append((Cell(name), *cells, *ends))
    heads = (corner, *across, *(("n", "id") if by_protocol else ()))
    if not by_protocol:
        columns = [[rows.get((name, column)) for name in down] for column in across]
        lines += [(Cell("n"), *(Cell(counts(own)) for own in columns))]
        lines += [(Cell("id"), *(Cell(ids(own)) for own in columns))]
    shown = list(rows.values())
    notes = (*map(Note, marks, marks.values()), *table_notes(shown))
    caption = (
        about.caption(f" of {len(dict.fromkeys(row.identity.model for row in shown))} models")
        + piece
    )
    return PaperTable(
        about.name(piece), caption, heads, tuple(lines), notes, feet=0 if by_protocol else 2
    )


def _average(shown: Table) -> PaperTable:
    """A suite: a line per model, a column per part."""
    rows = tuple(
        tuple(Cell(NONE if text == "-" else text) for text in row) for row in cell_texts(shown)
    )
    name = re.sub("[^a-z0-9]+", "-", shown.title.partition(":")[0].lower()).strip("-") or "suite"
    notes = tuple(Note(f"{note}.") for note in shown.notes)
    return PaperTable(
        f"{name}-average", shown.title, tuple(map(heading, visible_columns(shown))), rows, notes
    )


def _labels(keys: Sequence[Key]) -> dict[Key, str]:
    """What each key is called: its protocol, and what else tells it from the others."""
    labels = {key: key.protocol for key in keys}
    additions: list[Callable[[Key], str]] = [
        lambda key: f", {key.subject}",
        lambda key: f" on {key.dataset}",
        lambda key: f" ({key.part or 'all'})",
        lambda key: f" {key.data}",
        lambda key: f" {key.id}",
        lambda key: f" {key.metric}",
    ]
    for addition in additions:
        names = list(labels.values())
        alike = {name: [key for key in keys if labels[key] == name] for name in names}
        differ = {name for name, own in alike.items() if len({addition(key) for key in own}) > 1}
        labels = {
            key: name + addition(key) if name in differ else name for key, name in labels.items()
        }
    return labels


def digits(rows: Sequence[Number]) -> tuple[Callable[[float], str], str]:
    """How values are spelled, and their unit: one decimal of a percentage, or as many as the narrowest interval has;
    what is no share of 1 as reports spell it."""
    if not rows[0].share:
        unit = METRICS[rows[0].identity.metric].unit
        return plain, f" in {unit}" if unit else ""
    halves = [
        50 * (row.interval.high - row.interval.low)
        for row in rows
        if row.interval.high > row.interval.low
    ]
    decimals = min(max(1, math.ceil(-math.log10(min(halves, default=1)))), 4)
    return (
        lambda share: percent(share) if decimals == 1 else f"{100 * share:.{decimals}f}"
    ), " in %"


def counts(rows: Sequence[Number | None]) -> str:
    """The n of all rows, from the least to the most."""
    counts = sorted(row.counts.n for row in rows if row is not None)
    return (
        ""
        if not counts
        else f"{counts[0]:,}"
        if counts[0] == counts[-1]
        else f"{counts[0]:,}–{counts[-1]:,}"
    )


def ids(rows: Sequence[Number | None]) -> str:
    """The short ids of their protocols, each once."""
    return " ".join(dict.fromkeys(row.identity.id for row in rows if row is not None))


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell: its ``text``, the 95 % ``interval`` that stands below or after it, and the numbers of its notes.

    ``bold``: of a number, whose text is no name.
    """

    text: str
    interval: str = ""
    marks: tuple[int, ...] = ()
    bold: bool = False


@dataclass(frozen=True, slots=True)
class Note:
    """A line below a table: ``mark`` as cells have it, 0 for none; ``code``, such as a signature, is set as it is."""

    text: str
    mark: int = 0
    code: str = ""


@dataclass(frozen=True, slots=True)
class PaperTable:
    """One table.  ``name``: a word of a-z, 0-9 and hyphens to refer to it; ``heads``: of the columns; the first column
    is text, the others are numbers unless ``texts`` has their place; ``feet``: how many of the last rows are about the
    columns."""

    name: str
    caption: str
    heads: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[Note, ...]
    texts: frozenset[int] = frozenset((0,))
    feet: int = 0


def remarks(row: Number, part: str) -> list[str]:
    """What must be said of a value beside it.  ``part``: the part of the data that the run is to ask, in words."""
    parts = []
    if lacking := row.identity.selection.removeprefix(part).strip(", "):
        parts.append(lacking)
    if row.counts.missing:
        why = f": {row.missing_reasons[0].reason}" if row.missing_reasons else ""
        parts.append(
            f"{row.counts.missing:,} of {row.counts.n + row.counts.missing:,} items could not be scored{why}"
        )
    if row.counts.invalid:
        parts.append(
            f"{row.counts.invalid:,} of {row.counts.n:,} texts name no option and count as wrong"
        )
    if "gold-constant" in row.diagnosis.warnings:
        parts.append(
            "ties, and the right choice always in one place: the tie rule decides the number"
        )
    return parts


def table_notes(rows: Sequence[Number]) -> list[Note]:
    """The notes that every table of these rows has, whatever its layout."""
    intervals = dict.fromkeys(row.interval.name for row in rows)
    shown = f"Intervals: 95 %, {', '.join(intervals)}. n: the items that a value is a mean over."
    return [metric_note(rows), Note(shown), *origins(rows)]


def metric_note(rows: Sequence[Number]) -> Note:
    """What each metric of these rows is."""
    metrics = {
        row.identity.metric: "" if row.share else f" ({METRICS[row.identity.metric].direction})"
        for row in rows
    }
    return Note(
        f"{'; '.join(f'{name}{better}: {METRICS[name].description}' for name, better in metrics.items())}."
    )


def origins(rows: Sequence[Number]) -> list[Note]:
    """Where the numbers come from: models, data, program and protocols, with their ids and signatures."""
    sources = [
        [
            f" ({text})" if text else ""
            for text in (row.identity.model_source, row.identity.dataset_source)
        ]
        for row in rows
    ]
    named = list(zip(rows, sources, strict=True))
    models = dict.fromkeys(
        f"{row.identity.model.removesuffix(f' on {row.identity.dataset}')} {row.identity.r}{source}"
        for row, (source, _) in named
    )
    data = dict.fromkeys(
        f"{row.identity.dataset} {row.identity.data}{source}" for row, (_, source) in named
    )
    lines = [
        f"Models: {'; '.join(models)}.",
        f"Data: {'; '.join(data)}.",
        f"Scored with Choicewise {__version__}; the signatures state every axis of a protocol and parse back to it.",
    ]
    return [*map(Note, lines), *signatures(rows)]


def signatures(rows: Sequence[Number]) -> list[Note]:
    """A note per protocol: its ids, its name and its signature; #I where the same texts were sent throughout."""
    own: dict[str, list[Number]] = {}
    for row in rows:
        own.setdefault(row.identity.id, []).append(row)
    notes = []
    for identity, alike in own.items():
        texts, names = (
            {row.identity.i for row in alike},
            dict.fromkeys(row.identity.protocol for row in alike),
        )
        ids = f"{identity} {texts.pop()}" if len(texts) == 1 else identity
        notes.append(Note(f"{ids} {', '.join(names)}", code=alike[0].identity.signature))
    return notes


MARKDOWN_FIRST = "<!-- tables of `choicewise export` -->"
"""The first line of every such file, which says whose it is; a reader doesn't see it."""

_RAISED = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


def markdown(tables: Sequence[PaperTable]) -> str:
    """All ``tables``, each with its caption above and its notes below."""
    return "\n\n".join([MARKDOWN_FIRST, *map(_markdown_table, tables)]) + "\n"


def _markdown_table(table: PaperTable) -> str:
    rule = [":--" if place in table.texts else "--:" for place in range(len(table.heads))]
    lines = [
        map(markdown_escape, table.heads),
        rule,
        *(map(_markdown_cell, row) for row in table.rows),
    ]
    grid = "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
    notes = "\n".join(map(_markdown_note, table.notes))
    return f"**{markdown_escape(table.caption)}**\n\n{grid}\n\n{notes}".rstrip()


def _markdown_cell(cell: Cell) -> str:
    marks, text = " ".join(map(_raised, cell.marks)), markdown_escape(cell.text)
    return " ".join(filter(None, ((f"**{text}**" if cell.bold else text) + marks, cell.interval)))


def _markdown_note(note: Note) -> str:
    code = markdown_code(note.code) if note.code else ""
    return "- " + " ".join(
        filter(None, (_raised(note.mark) if note.mark else "", markdown_escape(note.text), code))
    )


def _raised(number: int) -> str:
    return str(number).translate(_RAISED)


@dataclass(frozen=True)
class PaperForm:
    """How tables are spelled.  ``first``: the first line of every file, which says whose it is."""

    first: str
    spell: Callable[[Sequence[PaperTable]], str]

    def write(self, tables: Sequence[PaperTable], out: Path) -> None:
        """Write the ``tables`` to the file ``out``."""
        out.write_text(self.spell(tables), encoding="utf-8")


FORMS = {"latex": PaperForm(LATEX_FIRST, latex), "markdown": PaperForm(MARKDOWN_FIRST, markdown)}
"""The forms by the names of their writers."""


def write_numbers(form: PaperForm, export: Export, out: Path) -> None:
    """Write a table of every number: models by protocols."""
    form.write(paper_tables(shown_runs(export)), out)
