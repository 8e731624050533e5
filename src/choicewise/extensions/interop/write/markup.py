"""Escape texts so that LaTeX and Markdown show every character of them, on one line."""

from __future__ import annotations

import re
from collections.abc import Mapping

from choicewise.util.text import safe

_LATEX_SPECIAL = {
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "_": r"\_",
    "%": r"\%",
    "\\": r"\textbackslash{}",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "|": r"\textbar{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "`": r"\textasciigrave{}",
    "'": r"\textquotesingle{}",
    '"': r"\char34{}",
    "\xa0": "~",
}
"""Characters that LaTeX would read as something else."""

_LIGATURES = re.compile("(?<=-)-|(?<=,),|(?<=<)<|(?<=>)>")
"""The second of two characters that fonts make one of."""

_TYPED = {char: f"\\char{ord(char)}{{}}" for char in "\\{}^~`'\""}
_TYPED |= {char: f"\\{char}" for char in "$&#_%"}
"""Escapes in a typewriter face, which has every character of ASCII at its code."""

_PDFTEX = frozenset(map(chr, range(0xA1, 0x180))) - frozenset(
    "«»ÐÞðþĄąĐđĘęĦħĮįĸĿŀŉŊŋŦŧŲųſ"
) | frozenset("–—‘’“”†‡•…‰€™")
"""Characters beyond ASCII that pdfTeX sets without a further package (LaTeX of 2020 and later)."""

OTHER = r"\choicewisechar"
"""The command for all other characters, which takes the character and its name."""

_MARKDOWN_SPECIAL = re.compile(r"[\\`*_\[\]<>|~&$^@!]|#(?=\d)|:(?=//|\w+:)|(?<=\bwww)\.")
"""Characters that could begin emphasis, code, links, HTML, cells, mathematics or mentions in a line
of text.
"""


def latex_escape(text: str) -> str:
    r"""Escape ``text`` as one line for LaTeX; hidden characters and line ends become escapes
    (``\n``).
    """
    return _spelled(text, _LATEX_SPECIAL)


def latex_code(text: str) -> str:
    """Set ``text`` in a typewriter face; lines may break after a bar, a per cent sign and a slash."""
    code = re.sub(r"\||\\%|/", r"\g<0>\\allowbreak{}", _spelled(text, _TYPED))
    # LaTeX makes one of several spaces.
    code = re.sub("(?<= ) ", r"\\ ", code)
    return rf"\texttt{{{code}}}"


def markdown_escape(text: str) -> str:
    r"""Escape ``text`` as one line for Markdown; hidden characters and line ends become escapes
    (``\n``).
    """
    return _MARKDOWN_SPECIAL.sub(r"\\\g<0>", safe(text))


def markdown_code(text: str) -> str:
    """Set ``text`` as code, whatever backticks it has."""
    code = safe(text)
    longest = max(map(len, re.findall("`+", code)), default=0)
    fence = "`" * (longest + 1)
    # One space at both edges is taken off again, and keeps a backtick apart from the fence.
    if not code or code[0] in "` " or code[-1] in "` ":
        code = f" {code} "
    return f"{fence}{code}{fence}"


def _spelled(text: str, special: Mapping[str, str]) -> str:
    separated = _LIGATURES.sub("\0\\g<0>", safe(text))
    return "".join(_latex_character(char, special) for char in separated)


def _latex_character(char: str, special: Mapping[str, str]) -> str:
    # The mark between two characters that would become one.
    if char == "\0":
        return "{}"
    if char in special:
        return special[char]
    if char.isascii() or char in _PDFTEX:
        return char
    return f"{OTHER}{{{char}}}{{U+{ord(char):04X}}}"
