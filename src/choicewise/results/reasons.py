"""Why items are missing, counted: reasons that differ in their numbers and quoted texts alone are one."""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

_VARYING = re.compile(
    r"""(?<!\w)'(?:[^'\\]|\\.)*'(?!\w)|(?<!\w)"(?:[^"\\]|\\.)*"(?!\w)|(?<![\w.#])\d+(?:\.\d+)?(?![\w#])"""
)
"""A quoted text or a number, which can differ from item to item."""

ANY = "…"
"""Stands for texts that differ."""


@dataclass(frozen=True, slots=True)
class MissingReason:
    """A reason, the ``count`` of items (or rows of the data) it holds for, and one of them.

    Where they have other numbers, ``reason`` says from which to which.
    """

    reason: str
    count: int
    example: str


class Reasons:
    """Numbers for reasons, counted from 0."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[str, ...], int] = {}
        self._varying: list[list[tuple[str, str]]] = []

    def number(self, reason: str, item: str = "") -> int:
        """The number of ``reason``, in which the id of its own ``item`` does not count."""
        text = reason.replace(item, ANY) if item else reason
        values = _VARYING.findall(text)
        number = self._numbers.setdefault(tuple(_VARYING.split(text)), len(self._numbers))
        if number == len(self._varying):
            self._varying.append([(value, value) for value in values])
        else:
            self._varying[number] = [
                _widened(*edges, value) for edges, value in zip(self._varying[number], values, strict=True)
            ]
        return number

    def text(self, number: int) -> str:
        """The reason of that number, with the range of every number in it that differs."""
        fixed = next(parts for parts, other in self._numbers.items() if other == number)
        shown = [low if low == high else f"{low} to {high}" for low, high in self._varying[number]]
        return "".join(part + value for part, value in zip(fixed, [*shown, ""], strict=True))


def counted(reasons: Iterable[tuple[str, str]]) -> tuple[MissingReason, ...]:
    """From (reason, which row) to the reasons, the most common first."""
    numbers, examples, counts = Reasons(), dict[int, str](), Counter[int]()
    for reason, row in reasons:
        number = numbers.number(reason)
        counts[number] += 1
        examples.setdefault(number, row)
    return tuple(MissingReason(numbers.text(number), count, examples[number]) for number, count in counts.most_common())


def _widened(low: str, high: str, value: str) -> tuple[str, str]:
    if value[0] in "'\"" or low == ANY:
        return (low, high) if value == low else (ANY, ANY)
    return (value if float(value) < float(low) else low), (value if float(value) > float(high) else high)
