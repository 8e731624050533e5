"""Numbers as people read them on pages: one decimal for percentages, and a dash where there is no number."""

import math
from collections.abc import Sequence

from choicewise.report.table import percent

LONGEST_NAME = 60
"""Characters of a name that a page shows where there is little room."""


def error(share: float) -> str:
    """A standard error (share of 1) as ``± 2.4``; nothing where it is not known."""
    return "" if math.isnan(share) else f"± {percent(share)}"


def points(share: float) -> str:
    """A difference (share of 1) in points, with its sign: ``+61.2``, ``−0.9``."""
    text = percent(abs(share))
    if math.isnan(share) or text == "0.0":
        return text
    return f"{'−' if share < 0 else '+'}{text}"


def interval(low: float, high: float) -> str:
    """Two shares of 1 in percent: ``20.1 – 25.6``; a dash when there are none."""
    return "-" if math.isnan(low) else f"{percent(low)} – {percent(high)}"


def ranks(low: int | None, high: int | None) -> str:
    """A range of ranks: ``2–4``, or ``2`` where it is one."""
    if low is None or high is None:
        return ""
    return f"{low}" if low == high else f"{low}–{high}"


def count(number: int, noun: str, plural: str | None = None) -> str:
    """``1 item``, ``14,042 items``."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def listed(words: Sequence[str], most: int = 3) -> str:
    """``a``, ``a and b``, ``a, b and c``; of more than ``most`` the first ones and how many others there are."""
    shown = [*words[:most], f"{len(words) - most} more"] if len(words) > most + 1 else [*words]
    return " and ".join(filter(None, (", ".join(shown[:-1]), *shown[-1:])))


def shortened(text: str, most: int = LONGEST_NAME) -> str:
    """``text`` in at most so many characters, with … for what is left out."""
    return text if len(text) <= most else f"{text[: most - 1].rstrip()}…"
