"""The versions of one item that a model is shown: as given, with its options in other orders, or without content."""

from collections.abc import Callable, Mapping
from itertools import permutations

Order = tuple[int, ...]
"""For every label the option that stands under it."""

CONTENT_FREE = ("N/A", "", "[MASK]")
"""Texts that say nothing, in place of the question and of every option (Zhao et al. 2021)."""

MOST = 4
"""Options at most that are shown in every order: there are 24 of 4, and 120 of 5."""


def _given(options: int, drawn: bool) -> list[Order]:
    return [tuple(range(options))]


def _cyclic(options: int, drawn: bool) -> list[Order]:
    return [tuple((turn + label) % options for label in range(options)) for turn in range(options)]


VIEWS: Mapping[str, Callable[[int, bool], list[Order]]] = {
    "given": _given,
    "cyclic": _cyclic,
    "cyclic-5%": lambda options, drawn: (_cyclic if drawn else _given)(options, drawn),
    "full": lambda options, drawn: list(permutations(range(options))),
    "content-free": _given,
}
"""Name → the orders of so many options, for an item that is drawn or not; the first is the order as given.

``content-free`` shows the ``CONTENT_FREE`` texts besides.
"""

DRAWING = ("cyclic-5%",)
"""Views that draw items at random, and need a seed."""

PERMUTED = ("cyclic", "full")
"""Views that show every item in several orders of its options."""

CALIBRATIONS: Mapping[str, tuple[str, ...]] = {
    "none": tuple(VIEWS),
    "batch": tuple(VIEWS),
    "contextual": ("content-free",),
    "pride": ("cyclic", "cyclic-5%"),
    "permutation": PERMUTED,
}
"""What is made of the labels' probabilities → the views that it can be made of."""
