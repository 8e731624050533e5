"""One multiple-choice question."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class Item:
    """A question with its choices, all text exactly as the source has it.

    ``gold`` holds the indices of the right choices, one or several, in increasing order.  ``fields`` keeps further
    columns of the source (an activity label, a passage) under their own names, so that a protocol can render them.
    """

    id: str
    question: str
    choices: tuple[str, ...]
    gold: tuple[int, ...]
    subject: str = ""
    fields: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}), hash=False)

    def __post_init__(self) -> None:
        for name in ("choices", "gold"):  # a list would do, but for a shot's place in a cache
            object.__setattr__(self, name, tuple(getattr(self, name)))


def duplicate_choices(item: Item) -> bool:
    """Whether two choices have the same text.  Published data has such items, so they are kept and reported."""
    return len(set(item.choices)) < len(item.choices)
