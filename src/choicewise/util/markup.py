"""Texts as LaTeX and Markdown set them: every character as it is, on one line."""

from __future__ import annotations

import re
from collections.abc import Mapping

from choicewise.util.text import safe

_LATEX_SPECIAL = {
    **{char: f"\\{char}" for char in "{}$&#_%"},
    **{
        "\\": r"\textbackslash{}",
        "^": r"\textasciicircum{}",
        "~": r"\textasciitilde{}",
        "|": r"\textbar{}",
    },
    **{
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        "`": r"\textasciigrave{}",
        "'": r"\textquotesingle{}",
    },
    **{'"': r"\char34{}", "\xa0": "~"},
}
"""What LaTeX would read as something else."""

_LIGATURES = re.compile("(?<=-)-|(?<=,),|(?<=<)<|(?<=>)>")
"""The second of two characters that fonts make one of."""

_TYPED = {char: f"\\char{ord(char)}{{}}" for char in "\\{}^~`'\""} | {
    char: f"\\{char}" for char in "$&#_%"
}
"""The same for a typewriter face, where every character of ASCII has its own place."""

_KNOWN = frozenset(map(chr, range(0xA1, 0x180))) - frozenset(
    "«»ÐÞðþĄąĐđĘęĦħĮįĸĿŀŉŊŋŦŧŲųſ"
) | frozenset("–—‘’“”†‡•…‰€™")
"""Characters beyond ASCII that pdfTeX sets without a further package (LaTeX of 2020 and later)."""

OTHER = r"\choicewisechar"
"""The command for all other characters, which takes the character and its name."""

_MARKDOWN_SPECIAL = re.compile(r"[\\`*_\[\]<>|~&$^@!]|#(?=\d)|:(?=//|\w+:)|(?<=\bwww)\.")
"""What could begin markup within a line of text: emphasis, code, links, HTML, cells, mathematics, mentions."""


def latex_escape(text: str) -> str:
    r"""``text`` as one line that LaTeX sets as it is; hidden characters and line ends as escapes (``\n``)."""
    return _spelled(text, _LATEX_SPECIAL)


def latex_code(text: str) -> str:
    """``text`` in a typewriter face, which may go on in the next line after each bar, per cent sign and slash."""
    shown = re.sub(r"\||\\%|/", r"\g<0>\\allowbreak{}", _spelled(text, _TYPED))
    shown = re.sub("(?<= ) ", r"\\ ", shown)
    return rf"\texttt{{{shown}}}"


def markdown_escape(text: str) -> str:
    r"""``text`` as one line that shows as it is; hidden characters and line ends as escapes (``\n``)."""
    return _MARKDOWN_SPECIAL.sub(r"\\\g<0>", safe(text))


def markdown_code(text: str) -> str:
    """``text`` as code, whatever backticks it has."""
    shown = safe(text)
    fence = "`" * (max(map(len, re.findall("`+", shown)), default=0) + 1)
    pad = " " if shown[:1] in ("`", " ", "") or shown[-1:] in ("`", " ") else ""
    return f"{fence}{pad}{shown}{pad}{fence}"


def _spelled(text: str, special: Mapping[str, str]) -> str:
    def char(each: str) -> str:
        plain = each.isascii() or each in _KNOWN
        return special.get(each) or (each if plain else f"{OTHER}{{{each}}}{{U+{ord(each):04X}}}")

    separated = _LIGATURES.sub("\0\\g<0>", safe(text))
    return "".join("{}" if each == "\0" else char(each) for each in separated)
