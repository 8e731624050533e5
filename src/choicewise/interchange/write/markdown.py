"""Tables in Markdown, as GitHub, the Hub and notebooks show it."""

import re
from collections.abc import Sequence
from pathlib import Path

from choicewise.interchange.place import begins_with, one_file
from choicewise.interchange.write import Export, Writer
from choicewise.interchange.write.paper_layout import paper_tables
from choicewise.interchange.write.paper_table import Cell, Note, PaperTable
from choicewise.interchange.write.shown_runs import shown_runs
from choicewise.report.visible_text import safe

FIRST = "<!-- tables of `choicewise export` -->"
"""The first line of every such file, which says whose it is; a reader doesn't see it."""

_SPECIAL = re.compile(r"[\\`*_\[\]<>|~&$^@!]|#(?=\d)|:(?=//|\w+:)|(?<=\bwww)\.")
"""What could begin markup within a line of text: emphasis, code, links, HTML, cells, mathematics, mentions."""

_RAISED = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


def escape(text: str) -> str:
    r"""``text`` as one line that shows as it is; hidden characters and line ends as escapes (``\n``)."""
    return _SPECIAL.sub(r"\\\g<0>", safe(text))


def code(text: str) -> str:
    """``text`` as code, whatever backticks it has."""
    shown = safe(text)
    fence = "`" * (max(map(len, re.findall("`+", shown)), default=0) + 1)
    pad = " " if shown[:1] in ("`", " ", "") or shown[-1:] in ("`", " ") else ""
    return f"{fence}{pad}{shown}{pad}{fence}"


def markdown(tables: Sequence[PaperTable]) -> str:
    """All ``tables``, each with its caption above and its notes below."""
    return "\n\n".join([FIRST, *map(_table, tables)]) + "\n"


def _table(table: PaperTable) -> str:
    rule = [":--" if place in table.texts else "--:" for place in range(len(table.heads))]
    lines = [map(escape, table.heads), rule, *(map(_cell, row) for row in table.rows)]
    grid = "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
    notes = "\n".join(map(_note, table.notes))
    return f"**{escape(table.caption)}**\n\n{grid}\n\n{notes}".rstrip()


def _cell(cell: Cell) -> str:
    texts = [escape(cell.text) + _marks(cell.marks), cell.interval]
    return " ".join(filter(None, texts))


def _note(note: Note) -> str:
    marks = _marks((note.mark,)) if note.mark else ""
    return "- " + " ".join(filter(None, (marks, escape(note.text), code(note.code) if note.code else "")))


def _marks(numbers: Sequence[int]) -> str:
    return " ".join(str(number).translate(_RAISED) for number in numbers)


def _write(export: Export, out: Path) -> Sequence[str]:
    out.write_text(markdown(paper_tables(shown_runs(export))), encoding="utf-8")
    return ()


WRITER = Writer(
    "tables in Markdown for a README or an issue: models by protocols, 95 % intervals, signatures below",
    _write,
    one_file(begins_with(FIRST)),
)
