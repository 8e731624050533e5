"""Where the requests of a protocol come from: its templates, or a file of requests that were rendered elsewhere."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from choicewise.data.dataset import Dataset
from choicewise.data.item import Item
from choicewise.errors import DataError
from choicewise.protocols.protocol import Protocol as Recipe
from choicewise.protocols.shots import sample
from choicewise.requests.render import check_choices, render
from choicewise.requests.request import Request


@dataclass(frozen=True, slots=True)
class Refusal:
    """An item that can't be asked, and why."""

    item: Item
    reason: DataError


class RequestSource(Protocol):
    """Gives the requests for items of one subject."""

    def check(self, subject: str, items: Sequence[Item]) -> None:
        """DataError, naming the item, for what :meth:`requests` would refuse; cheaper than rendering."""

    def requests(self, subject: str, items: Sequence[Item], start: int) -> Iterator[Request | Refusal]:
        """A request or a refusal for each of ``items``, which begin at position ``start`` of the subject."""


@dataclass(frozen=True, slots=True)
class TemplateSource:
    """Requests rendered from the templates of ``protocol``, with shots from ``data``."""

    protocol: Recipe
    data: Dataset

    def check(self, subject: str, items: Sequence[Item]) -> None:
        """Too few rows for shots, or an item with the wrong choices."""
        sample(self.protocol, self.data, subject)
        for item in items:
            check_choices(self.protocol, item)

    def requests(self, subject: str, items: Sequence[Item], start: int = 0) -> Iterator[Request | Refusal]:
        """A request or a refusal for each item."""
        shots = sample(self.protocol, self.data, subject)[start : start + len(items)]
        for position, (item, examples) in enumerate(zip(items, shots, strict=True), start=start):
            try:
                yield render(self.protocol, item, examples, position)
            except DataError as reason:
                yield Refusal(item, reason)


def requests(protocol: Recipe, data: Dataset, subject: str) -> Iterator[Request]:
    """The requests of every item of one subject in the protocol's split, in file order; DataError at a refused one."""
    items = data.rows(protocol.split or data.evaluated, subject)
    for request in TemplateSource(protocol, data).requests(subject, items):
        if isinstance(request, Refusal):
            raise request.reason
        yield request
