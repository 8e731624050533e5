"""Where the requests of a protocol come from: its templates, or a file of requests that were rendered elsewhere."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from choicewise.data.dataset import Dataset
from choicewise.data.item import Item
from choicewise.errors import DataError
from choicewise.protocols.drawn_items import drawn_items
from choicewise.protocols.option_orders import DRAWING
from choicewise.protocols.preparations import PREPARATIONS
from choicewise.protocols.protocol import Protocol as Recipe
from choicewise.protocols.shots import is_same, sample, shown_to_themselves
from choicewise.requests.render import check_choices, render
from choicewise.requests.request import Request
from choicewise.tokens.chat_template import ChatTemplate


@dataclass(frozen=True, slots=True)
class Refusal:
    """An item that can't be asked, and why."""

    item: Item
    reason: DataError


class RequestSource(Protocol):
    """Gives the requests for items of one subject."""

    def problems(self, subject: str, items: Sequence[Item], start: int) -> Iterator[tuple[str, DataError]]:
        """What :meth:`requests` would refuse, after the name of the item or subject that it is about; cheaper."""

    def requests(self, subject: str, items: Sequence[Item], start: int) -> Iterator[Request | Refusal]:
        """A request or a refusal for each of ``items``, which begin at position ``start`` of the subject."""


@dataclass(frozen=True, slots=True)
class TemplateSource:
    """Requests rendered from the templates of ``protocol``, with shots from ``data``, in chats with ``template``."""

    protocol: Recipe
    data: Dataset
    template: ChatTemplate | None = None

    def problems(self, subject: str, items: Sequence[Item], start: int = 0) -> Iterator[tuple[str, DataError]]:
        """Too few rows for shots, and every item that is its own shot, has the wrong choices or can't be prepared."""
        try:
            sample(self.protocol, self.data, subject, range(0))
            for item in shown_to_themselves(self.protocol, self.data, subject, items, start):
                yield item.id, self._shown_to_itself(item)
        except DataError as problem:
            yield subject, problem
        for item in items:
            try:
                check_choices(self.protocol, item)
                PREPARATIONS[self.protocol.prepare](item)
            except DataError as problem:
                yield item.id, problem

    def requests(self, subject: str, items: Sequence[Item], start: int = 0) -> Iterator[Request | Refusal]:
        """A request or a refusal for each item."""
        shots = sample(self.protocol, self.data, subject, range(start, start + len(items)))
        drawn: frozenset[str] = frozenset()
        if self.protocol.views in DRAWING:
            drawn = drawn_items(self.data, self.protocol.split or self.data.evaluated, self.protocol.seed or 0)
        for item, examples in zip(items, shots, strict=True):
            if any(is_same(item, shot) for shot in examples):
                yield Refusal(item, self._shown_to_itself(item))
                continue
            try:
                yield render(self.protocol, item, examples, item.id in drawn, self.template)
            except DataError as reason:
                yield Refusal(item, reason)

    def _shown_to_itself(self, item: Item) -> DataError:
        return DataError(
            f"item {item.id} is one of its own shots: split {self.protocol.shot_split!r} has the same question, "
            "choices and answer, which would be shown; remove the row there, or skip bad items"
        )


def requests(
    protocol: Recipe, data: Dataset, subject: str, limit: int | None = None, template: ChatTemplate | None = None
) -> Iterator[Request]:
    """The requests of the items of one subject in the protocol's split, in file order; DataError at a refused one.

    ``limit``: of the first ones alone.  ``template``: of chats.
    """
    items = data.rows(protocol.split or data.evaluated, subject)[:limit]
    return unrefused(TemplateSource(protocol, data, template).requests(subject, items))


def unrefused(given: Iterable[Request | Refusal]) -> Iterator[Request]:
    """The requests ``given``; the first refusal among them raises its reason."""
    for request in given:
        if isinstance(request, Refusal):
            raise request.reason
        yield request
