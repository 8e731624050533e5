"""Texts as they were sent, with their white space visible in the fonts that browsers have."""

from functools import lru_cache

from choicewise.report.visible_text import visible, visible_line

_SIGNS = str.maketrans("␠␉", "␣⇥")
"""The terminal's signs for a space and a tab, of which many fonts have no picture."""


def shown(text: str) -> str:
    """``text`` over as many lines as it has: ⏎ ends a line, ␣ is a space at an edge or beside another, ⇥ a tab."""
    return visible(text).translate(_SIGNS)


@lru_cache(maxsize=4096)
def shown_line(text: str) -> str:
    """The same on one line."""
    return visible_line(text).translate(_SIGNS)
