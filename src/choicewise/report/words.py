"""Words that sentences about results share: counts with nouns, p values, the ends of a sentence."""

import math
from collections.abc import Sequence

NAME, REASON = 60, 120
"""Characters that a line gives to a name, and to a reason; of longer ones the middle is left out."""

SEVERAL = 3
"""So many models, or datasets, are named one by one."""


def sentence(parts: Sequence[str]) -> str:
    """The parts, which begin with a word of ours and not with a name, as one sentence."""
    text = "; ".join(parts)
    return f"{text[:1].upper()}{text[1:]}."


def count(number: int, noun: str) -> str:
    """The number with its noun, which gets an s."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def size(bytes: int) -> str:
    """So many bytes, in the unit that suits them."""
    for unit, each in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if bytes >= each:
            return f"{bytes / each:.1f} {unit}"
    return count(bytes, "byte")


def are(number: int) -> str:
    """Is or are."""
    return "is" if number == 1 else "are"


def protocols(number: int, grouped: bool) -> str:
    """So many protocols, or so many pairs of a protocol and a group."""
    return count(number, "comparison" if grouped else "protocol")


def probability(p: float) -> str:
    """A p value: ``p = .003``, ``p < .001``, nothing where there was no test."""
    if math.isnan(p):
        return ""
    if p < 0.001:
        return "p < .001"
    return "p = 1" if p > 0.9995 else f"p = {p:.3f}".replace("0.", ".", 1)
