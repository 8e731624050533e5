"""Tables in LaTeX for a paper, with the rules of the package booktabs."""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from choicewise.interchange.place import begins_with, one_file
from choicewise.interchange.write import Export, Writer
from choicewise.interchange.write.paper_layout import paper_tables
from choicewise.interchange.write.paper_table import Cell, Note, PaperTable
from choicewise.interchange.write.shown_runs import shown_runs
from choicewise.report.visible_text import safe

FIRST = "% tables of `choicewise export`"
"""How the first line of every such file begins, which says whose it is."""

LINES, SIGNATURES = 36, 5
"""Lines and signatures of a table that fits on a page; one with more of them runs over several."""

HEAD = 12
"""Characters of a head on one line."""

_SMALL = r"\small\setlength{\tabcolsep}{4pt}"
"""So that four columns of values fit between margins of an inch."""

_SPECIAL = {
    **{char: f"\\{char}" for char in "{}$&#_%"},
    **{"\\": r"\textbackslash{}", "^": r"\textasciicircum{}", "~": r"\textasciitilde{}", "|": r"\textbar{}"},
    **{"<": r"\textless{}", ">": r"\textgreater{}", "`": r"\textasciigrave{}", "'": r"\textquotesingle{}"},
    **{'"': r"\char34{}", "\xa0": "~"},
}
"""What LaTeX would read as something else."""

_LIGATURES = re.compile("(?<=-)-|(?<=,),|(?<=<)<|(?<=>)>")
"""The second of two characters that fonts make one of."""

_TYPED = {char: f"\\char{ord(char)}{{}}" for char in "\\{}^~`'\""} | {char: f"\\{char}" for char in "$&#_%"}
"""The same for a typewriter face, where every character of ASCII has its own place."""

_KNOWN = frozenset(map(chr, range(0xA1, 0x180))) - frozenset("«»ÐÞðþĄąĐđĘęĦħĮįĸĿŀŉŊŋŦŧŲųſ") | frozenset("–—‘’“”†‡•…‰€™")
"""Characters beyond ASCII that pdfTeX sets without a further package (LaTeX of 2020 and later)."""

OTHER = r"\choicewisechar"
"""The command for all other characters, which takes the character and its name."""

_HEAD = r"""%s: in the preamble, \usepackage{booktabs,longtable}
\providecommand{%s}[2]{\ifdefined\Umathchar#1\else#2\fi}%% a character, or its name where pdfTeX does not have it
"""


def escape(text: str) -> str:
    r"""``text`` as one line that LaTeX sets as it is; hidden characters and line ends as escapes (``\n``)."""
    return _spelled(text, _SPECIAL)


def code(text: str) -> str:
    """``text`` in a typewriter face, which may go on in the next line after each bar, per cent sign and slash."""
    shown = re.sub(r"\||\\%|/", r"\g<0>\\allowbreak{}", _spelled(text, _TYPED))
    return rf"\texttt{{{shown}}}"


def latex(tables: Sequence[PaperTable]) -> str:
    """All ``tables``: floats where they fit on a page, else tables that run over several."""
    return "\n".join([_HEAD % (FIRST, OTHER), *map(_table, tables)])


def _table(table: PaperTable) -> str:
    signatures = sum(1 for note in table.notes if note.code)
    return _float(table) if len(_body(table)) <= LINES and signatures <= SIGNATURES else _long(table)


def _float(table: PaperTable) -> str:
    lines = [
        r"\begin{table}[tbp]",
        r"\centering" + _SMALL,
        _caption(table),
        r"\begin{tabular}{" + _columns(table) + "}",
    ]
    lines += [r"\toprule", _head(table), r"\midrule", *_body(table), r"\bottomrule", r"\end{tabular}"]
    lines += [r"\par\medskip", r"\begin{minipage}{\linewidth}", _notes(table.notes), r"\end{minipage}"]
    return "\n".join([*lines, r"\end{table}", ""])


def _long(table: PaperTable) -> str:
    head = [r"\toprule", _head(table), r"\midrule"]
    lines = ["{" + _SMALL, r"\begin{longtable}{" + _columns(table) + "}", _caption(table) + r"\\"]
    lines += [*head, r"\endfirsthead", *head, r"\endhead", *_body(table), r"\bottomrule", r"\end{longtable}"]
    return "\n".join([*lines, _notes(table.notes), r"\par}", ""])


def _caption(table: PaperTable) -> str:
    return rf"\caption{{{escape(table.caption)}.}}\label{{tab:{table.name}}}"


def _columns(table: PaperTable) -> str:
    return "".join("l" if place in table.texts else "r" for place in range(len(table.heads)))


def _head(table: PaperTable) -> str:
    return _line(_stack(head, "l" if place in table.texts else "r") for place, head in enumerate(table.heads))


def _stack(head: str, side: str) -> str:
    """A head over as many lines as keep its column narrow; it may end a line after a hyphen, a slash and the like."""
    lines = [""]
    for piece in re.findall(r"[^-/:_ ]*[-/:_ ]?", safe(head)):
        if lines[-1] and len(lines[-1] + piece) > HEAD:
            lines.append("")
        lines[-1] += piece
    whole = r"\\".join(_guarded(escape(line)) for line in lines)
    return whole if len(lines) == 1 else rf"\shortstack[{side}]{{{whole}}}"


def _body(table: PaperTable) -> list[str]:
    lines = []
    for row in table.rows:
        stacked = any(cell.interval for cell in row)
        lines.append(_line(map(_cell, row)) + ("*" if stacked else ""))  # no page ends between a value and its interval
        if stacked:
            lines.append(_line(map(_interval, row)))
    return lines


def _line(cells: Iterable[str]) -> str:
    return _guarded(" & ".join(cells)) + r" \\"


def _guarded(line: str) -> str:
    """``line`` so that the end of the line before does not take its first character for an option."""
    return f"{{}}{line}" if line.startswith(("[", "*")) else line


def _cell(cell: Cell) -> str:
    return escape(cell.text) + (rf"\textsuperscript{{{_marks(cell.marks)}}}" if cell.marks else "")


def _interval(cell: Cell) -> str:
    return rf"{{\scriptsize {escape(cell.interval)}}}" if cell.interval else ""


def _notes(notes: Sequence[Note]) -> str:
    return "\n".join([r"\footnotesize\raggedright", *(f"{_note(note)}\\par" for note in notes)])


def _note(note: Note) -> str:
    mark = rf"\textsuperscript{{{note.mark}}}" if note.mark else ""
    return " ".join(filter(None, (mark, escape(note.text), code(note.code) if note.code else "")))


def _marks(numbers: Sequence[int]) -> str:
    return ",".join(map(str, numbers))


def _spelled(text: str, special: Mapping[str, str]) -> str:
    apart = _LIGATURES.sub("\0\\g<0>", safe(text))
    return "".join("{}" if char == "\0" else special.get(char) or _char(char) for char in apart)


def _char(char: str) -> str:
    return char if char.isascii() or char in _KNOWN else f"{OTHER}{{{char}}}{{U+{ord(char):04X}}}"


def _write(export: Export, out: Path) -> Sequence[str]:
    out.write_text(latex(paper_tables(shown_runs(export))), encoding="utf-8")
    return ()


WRITER = Writer(
    "tables in LaTeX for a paper (booktabs): models by protocols, 95 % intervals, signatures below",
    _write,
    one_file(begins_with(FIRST)),
)
