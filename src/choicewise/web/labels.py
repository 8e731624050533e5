"""Words on charts: names that stay visible, short and harmless, and numbers as people read them."""

import math
import re
import unicodedata
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from choicewise.report.axis_text import change_text
from choicewise.report.table import percent
from choicewise.report.visible_text import disarmed, safe

_NO_CHARACTERS = re.compile("[\ufdd0-\ufdef\ufffe\uffff]")
"""What no XML file may hold."""

_LAST_WORD = re.compile(r"[^-_/: ]*$")

if TYPE_CHECKING:
    from choicewise.results.comparison import Axis

SAID = 60
"""Width of a name in what is said of a mark, in sizes of its font."""

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


def cut_apart(names: Iterable[str], most: float) -> dict[str, str]:
    """Every name :func:`cut`; where several would look the same, what all of these begin with is left out first."""
    groups: dict[str, list[str]] = {}
    for name in dict.fromkeys(names):
        groups.setdefault(cut(name, most), []).append(name)
    shown = {}
    for text, alike in groups.items():
        prefix = len(_LAST_WORD.sub("", _shared_start(alike))) if len(alike) > 1 else 0
        for name in alike:
            shown[name] = cut(f"…{name[prefix:]}", most) if prefix else text
    return shown


def _shared_start(names: Sequence[str]) -> str:
    first, last = min(names), max(names)
    same = (place for place, chars in enumerate(zip(first, last, strict=False)) if chars[0] != chars[1])
    return first[: next(same, len(first))]


def harmless(text: str) -> str:
    """``text`` in full, with escapes for hidden characters and without those that no file may hold."""
    return _NO_CHARACTERS.sub("\ufffd", disarmed(text))


@lru_cache(maxsize=4096)
def _cut(text: str, most: float) -> str:
    shown = safe(harmless(text))
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


def shared_prefix(protocols: Sequence[str]) -> str:
    """``mmlu/`` where all protocols are of that benchmark, so that nothing is said by repeating it; else nothing."""
    prefixes = {name.partition("/")[0] for name in protocols}
    return f"{prefixes.pop()}/" if len(prefixes) == 1 and all("/" in name for name in protocols) else ""


def folded(text: str, most: float) -> list[str]:
    """Words on lines at most ``most`` sizes of their font wide."""
    lines: list[str] = []
    for word in text.split():
        if lines and em(f"{lines[-1]} {word}") <= most:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines


def change(axis: "Axis", most: float) -> str:
    """From what to what an axis changes, ``sum → char_mean``, at most ``most`` sizes of the font wide."""
    text = change_text(axis).removeprefix(f"{axis.axis} ")
    if em(text) <= most:
        return text
    left, arrow, right = text.partition(" → ")
    room = most - em(arrow)
    shorter = min(em(left), em(right), room / 2)
    return arrow.join(cut(side, shorter if em(side) <= shorter else room - shorter) for side in (left, right))


def share(value: float) -> str:
    """A share of 1 as ``21.7 %``; ``no number`` for NaN."""
    return "no number" if math.isnan(value) else f"{percent(value)} %"


def bounds(low: float, high: float) -> str:
    """``, 95 % interval 17.6 to 26.6``; nothing where there is none."""
    return "" if math.isnan(low) or math.isnan(high) else f", 95 % interval {percent(low)} to {percent(high)}"
