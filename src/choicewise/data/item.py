"""One multiple-choice question."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from choicewise.data.cell import UnusableRow, has_half_character

NO_FIELDS: Final[Mapping[str, str]] = MappingProxyType({})
"""The further fields of an item that has none."""


@dataclass(frozen=True, slots=True)
class Item:
    """A question with its choices, all text exactly as the source has it.

    ``gold`` holds the indices of the right choices, one or several, in increasing order.  ``fields`` keeps further
    columns of the source (an activity label, a passage) under their own names, so that a protocol can render them.

    Raises UnusableRow for a text that holds half a character (a lone surrogate), which no file can store.
    """

    id: str
    question: str
    choices: tuple[str, ...]
    gold: tuple[int, ...]
    subject: str = ""
    fields: Mapping[str, str] = field(default_factory=lambda: NO_FIELDS, hash=False)

    def __post_init__(self) -> None:
        for name in ("choices", "gold"):  # given as lists, the item could be no key of a cache
            object.__setattr__(self, name, tuple(getattr(self, name)))
        texts = (self.id, self.subject, self.question, *self.choices, *self.fields, *self.fields.values())
        if has_half_character("".join(texts)):
            raise UnusableRow("a text holds a lone surrogate, half a character that no file can store")


_SET_ID, _SET_QUESTION, _SET_CHOICES, _SET_GOLD, _SET_SUBJECT, _SET_FIELDS = (
    getattr(Item, name).__set__ for name in Item.__dataclass_fields__
)


def checked_item(
    id: str, question: str, choices: tuple[str, ...], gold: tuple[int, ...], subject: str, fields: Mapping[str, str]
) -> Item:
    """The item of parts that have been checked before; six times faster than ``Item``."""
    item = object.__new__(Item)
    _SET_ID(item, id)
    _SET_QUESTION(item, question)
    _SET_CHOICES(item, choices)
    _SET_GOLD(item, gold)
    _SET_SUBJECT(item, subject)
    _SET_FIELDS(item, fields)
    return item


def duplicate_choices(item: Item) -> bool:
    """Whether two choices have the same text.  Published data has such items, so they are kept and reported."""
    return len(set(item.choices)) < len(item.choices)
