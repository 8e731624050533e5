"""A column of the board: numbers that can be compared, because all of them answer the same question."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property

from choicewise.protocols.catalogue import entries
from choicewise.protocols.signature import signature
from choicewise.results.published import published
from choicewise.web.board.slug import short


@dataclass(frozen=True, slots=True)
class Part:
    """The data that numbers are about: the sha256 of the dataset, and in words the part of it that was asked."""

    data: str
    selection: str

    @property
    def id(self) -> str:
        """For addresses."""
        return short(self.data, self.selection)


@dataclass(frozen=True, slots=True)
class Key:
    """What two numbers must agree in to stand in one column.

    ``texts`` is the id ``#I`` of the texts that were sent, empty where no complete run says it.
    """

    part: Part
    signature: str
    texts: str
    metric: str
    subject: str


@dataclass(frozen=True)
class Column:
    """A column, and what is said about it.

    ``p`` is the short id of the protocol, ``n`` the items, ``chance`` the expected value of guessing.  ``measured``
    counts the numbers in it.
    """

    key: Key
    dataset: str
    protocol: str
    p: str
    family: str
    n: int
    chance: float
    measured: int

    @cached_property
    def id(self) -> str:
        """For addresses."""
        key = self.key
        parts = (key.part.data, key.part.selection, key.signature, key.texts, key.metric, key.subject)
        return short(*parts, digits=10)

    @property
    def group(self) -> str:
        """The group of items within the data; nothing where it is all of them."""
        return "" if self.key.subject == "all" else self.key.subject

    @property
    def headline(self) -> bool:
        """Whether it is the first number of its entry in the catalogue, or one that the catalogue does not know."""
        return self.key.signature not in _further()


@cache
def _further() -> frozenset[str]:
    """The signatures of the catalogue that are not the headline of their entry."""
    protocols = {signature(each): place for entry in entries() for place, each in enumerate(entry.protocols.values())}
    return frozenset(text for text, place in protocols.items() if place > 0)


def handful(columns: Sequence[Column], most: int) -> tuple[Column, ...]:
    """At most so many of ``columns``, in their order: headlines, of every part of the data and family in turn.

    Of the headlines of a family those measured most often come first, then those under which numbers were published.
    """
    headlines = [column for column in columns if column.headline] or list(columns)
    turns: dict[tuple[Part, str], int] = {}
    order: list[tuple[int, int, Column]] = []
    for column in sorted(headlines, key=lambda each: (-each.measured, each.p not in published())):
        turn = turns[column.key.part, column.family] = turns.get((column.key.part, column.family), 0) + 1
        order.append((turn, len(order), column))
    chosen = {column.id for _, _, column in sorted(order, key=lambda each: each[:2])[:most]}
    return tuple(column for column in columns if column.id in chosen)
