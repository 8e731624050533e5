"""A plain reader of the tables that exports write as LaTeX, where no LaTeX is installed."""

import re

NASTY = (
    r"a_b*c*|d [x](http://y) <b>&amp; $1$ `q` ~~s~~ \cmd{50%} #1 ^2 www.x.com 'q' --, „Ü 模 é"
    + "\n\u202e"
)
"""A name with everything that a markup language could take for its own."""

_ESCAPED = re.compile(r"(\\\\)|\\[{}$&#_% ]")  # the end of a line, which stays, or a character


def faults(text: str) -> list[str]:
    """Environments and braces that do not match, tables whose lines have more or fewer cells than columns, and
    characters of names that are still markup."""
    return [*_nesting(text), *_cells(text), *_markup(text)]


def _nesting(text: str) -> list[str]:
    found, opened, depth = [], list[str](), 0
    for match in re.finditer(r"\\(begin|end)\{(\w+)\}|[{}]", _ESCAPED.sub(r"\1", text)):
        if match[1] == "begin":
            opened.append(match[2])
        elif match[1] == "end":
            last = opened.pop() if opened else "nothing"
            found += [] if last == match[2] else [f"{last} ends as {match[2]}"]
        else:
            depth += 1 if match[0] == "{" else -1
            found += ["a brace closes nothing"] if depth < 0 else []
    found += [f"{name} does not end" for name in opened]
    return found + ([f"{depth} braces are open"] if depth > 0 else [])


def _cells(text: str) -> list[str]:
    found = []
    for columns, body in re.findall(
        r"\\begin\{(?:tabular|longtable)\}\{(\w+)\}(.*?)\\bottomrule", text, re.DOTALL
    ):
        for line in body.splitlines():
            plain = _ESCAPED.sub(r"\1", line)
            if re.search(r" \\\\\*?$", plain) and plain.count("&") != len(columns) - 1:
                found.append(f"{plain.count('&') + 1} cells in {len(columns)} columns: {line}")
            if r"{\\" in plain or r"\\}" in plain or re.match(r"[\[*]", line):
                found.append(f"a line that breaks at nothing: {line}")
    return found


def _markup(text: str) -> list[str]:
    """Special characters outside of what the tables themselves are made of."""
    own = re.sub(r"(?m)^\\providecommand.*$|^% tables of.*$| & |\\label\{[^}]*\}", " ", text)
    left = _ESCAPED.sub(r"\1", own)
    return [f"{char} in {line}" for line in left.splitlines() for char in "&#_%$" if char in line]
