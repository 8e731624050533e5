"""Which items a page holds in full, and the elements that hold them."""

from dataclasses import dataclass
from typing import Any

from choicewise.web.page import items
from choicewise.web.page.content import Content
from choicewise.web.page.embedded import Embedded, embedded

ROOM = 1_500_000
"""Characters that items in full may take inside the page."""


@dataclass(frozen=True)
class FullItems:
    """``chunks``: for each dataset the names of the elements and the places of the items in them."""

    chunks: list[list[tuple[str, list[int]]]]
    elements: list[Embedded]

    @property
    def count(self) -> int:
        """How many items there are."""
        return sum(len(places) for own in self.chunks for _, places in own)

    def rest(self, content: Content, most: int) -> list[list[int]]:
        """For each dataset the items among the ``most`` that flip most which are not there; nothing where there are
        none."""
        lacking = []
        for own, each in zip(self.chunks, content.listed, strict=True):
            here = {place for _, places in own for place in places}
            lacking.append([place for place in each.index.order[:most] if place not in here])
        return lacking if any(lacking) else []


def inside_items(content: Content, most: int | None = None) -> FullItems:
    """The items that flip most, as many as there is room for and at most so many of each dataset."""
    chunks: list[list[tuple[str, list[int]]]] = [[] for _ in content.listed]
    elements, room = list[Embedded](), ROOM
    for own, each in zip(chunks, content.listed, strict=True):
        for places, batch in items.details(content.study, each, items.inside(each)[:most]):
            kept, element = _fitting(f"full-{len(elements)}", batch, places, room)
            if element is None:
                break
            own.append((element.name, kept))
            elements.append(element)
            room -= len(element.text)
            if len(kept) < len(places):
                break
    return FullItems(chunks, elements)


def _fitting(name: str, batch: dict[str, Any], places: list[int], room: int) -> tuple[list[int], Embedded | None]:
    """As many items of the batch as have room, from its first one."""
    full = batch["items"]
    while full:
        element = embedded(name, {**batch, "items": full}, plain=True)
        if len(element.text) <= room:
            return places[: len(full)], element
        full = full[: int(0.9 * len(full) * room / len(element.text))]
    return [], None
