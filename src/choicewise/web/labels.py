"""Words on charts: names that stay visible, short and harmless, and numbers as people read them."""

import math
import re
import unicodedata
from functools import lru_cache

from choicewise.report.table import percent
from choicewise.report.visible_text import safe

_NO_CHARACTERS = re.compile("[\ufdd0-\ufdef\ufffe\uffff]")
"""What no XML file may hold."""

_NARROW, _WIDE = frozenset("fijlrtI.,:;'|!()[]-/ "), frozenset("mwMW@%")


def em(text: str) -> float:
    """About how wide ``text`` is, in sizes of its font; rather too wide than too narrow."""
    return sum(map(_em, text))


def _em(char: str) -> float:
    if unicodedata.east_asian_width(char) in "WF":
        return 1.05
    if char in _NARROW:
        return 0.36
    return 0.9 if char in _WIDE else 0.7 if char.isupper() else 0.58


def cut(text: str, most: float) -> str:
    """``text`` on one line with nothing hidden in it, at most ``most`` sizes of its font wide.

    The middle is left out: names of models and protocols differ at their beginning and at their end.
    """
    return _cut(text if len(text) <= 400 else text[:200] + "…" + text[-200:], most)


@lru_cache(maxsize=4096)
def _cut(text: str, most: float) -> str:
    shown = _NO_CHARACTERS.sub("\ufffd", safe(text))
    if em(shown) <= most:
        return shown
    room, head, tail = (most - 1.0) / 2, "", ""
    for char in shown:
        if em(head + char) > room:
            break
        head += char
    for char in reversed(shown):
        if em(char + tail) > room:
            break
        tail = char + tail
    return f"{head}…{tail}"


def share(value: float) -> str:
    """A share of 1 as ``21.7 %``; ``no number`` for NaN."""
    return "no number" if math.isnan(value) else f"{percent(value)} %"


def points(change: float) -> str:
    """A difference of shares in points with its sign, ``+61.2`` or ``−0.9``; ``0.0`` has none."""
    if math.isnan(change):
        return "no number"
    text = percent(abs(change))
    return text if text == "0.0" else f"{'+' if change > 0 else '−'}{text}"


def error(se: float) -> str:
    """A standard error as `` ± 2.4``; nothing where it is not known."""
    return "" if math.isnan(se) else f" ± {percent(se)}"


def counted(number: int, one: str, many: str | None = None) -> str:
    """``1 item``, ``322 items``."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def interval(low: float, high: float) -> str:
    """``, 95 % interval 17.6 to 26.6``; nothing where there is none."""
    return "" if math.isnan(low) or math.isnan(high) else f", 95 % interval {percent(low)} to {percent(high)}"
