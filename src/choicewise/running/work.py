"""What a run has to do."""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Self

from choicewise.data.dataset import Dataset
from choicewise.models.model import Model
from choicewise.protocols.protocol import Protocol
from choicewise.requests.blocks import Block, Section, cut_blocks, list_sections
from choicewise.requests.problems import Problems
from choicewise.requests.rendered import RenderedRequests
from choicewise.requests.schedule import Ask, collect_problems, list_asks, with_split
from choicewise.results.refused import refused_lines
from choicewise.running.refusals import refusals, refuse_all
from choicewise.store.folder import RunFolder

Stretch = tuple[Section, int, int, list[Ask]]
"""Items ``start`` to ``stop`` (exclusive) of a section, and the ways in which they are still to be asked."""


@dataclass(frozen=True)
class Work:
    """The items of ``sections`` under ``protocols``, each of which names its split.

    ``refused``: protocols that the model can't be asked under, with the reason.
    """

    data: Dataset
    protocols: Mapping[str, Protocol]
    sections: Sequence[Section]
    rendered: Sequence[RenderedRequests] = ()
    skip_bad_items: bool = False
    refused: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        model: Model,
        data: Dataset,
        protocols: Mapping[str, Protocol],
        subjects: Sequence[str] | None = None,
        limit: int | None = None,
        rendered: Sequence[RenderedRequests] = (),
        skip_bad_items: bool = False,
    ) -> Self:
        """All of ``data``, or the named subjects, or the first ``limit`` items of each.

        Warns of protocols that the model can't be asked under, which are no part of the work.  Raises ModelError where
        that is all of them, DataError and UsageError for a selection that there is not.
        """
        recipes = {name: with_split(recipe, data) for name, recipe in protocols.items()}
        refused = refusals(model, data, recipes, list_sections(data, recipes, subjects, limit), rendered)
        if recipes and len(refused) == len(recipes):
            refuse_all(model, refused)
        for line in refused_lines(refused):
            warnings.warn(f"{line}; the other protocols are asked", stacklevel=3)
        recipes = {name: recipe for name, recipe in recipes.items() if name not in refused}
        return cls(data, recipes, list_sections(data, recipes, subjects, limit), rendered, skip_bad_items, refused)

    @cached_property
    def asks(self) -> Sequence[Ask]:
        """All ways of asking, each once."""
        return list_asks(self.protocols)

    @property
    def questions(self) -> int:
        """Items times the ways of asking about them."""
        return sum((stop - start) * len(asks) for _, start, stop, asks in self.stretches())

    def stretches(self, folder: RunFolder | None = None) -> Iterator[Stretch]:
        """Everything that ``folder`` lacks."""
        for section in self.sections:
            asks = {ask.name: ask for ask in self.asks if ask.protocol.split == section.split}
            count = len(section.items)
            whole = iter([(0, count, list(asks))])
            lacking = whole if folder is None else folder.missing(section.split, section.subject, count, asks)
            for start, stop, names in lacking:
                yield section, start, stop, [asks[name] for name in names]

    def check(self, stretches: Sequence[Stretch]) -> None:
        """DataError for all items that can't be asked, unless they are to be skipped."""
        problems = Problems()
        for section, start, stop, asks in () if self.skip_bad_items else stretches:
            items = section.items[start:stop]
            collect_problems(problems, self.data, asks, section.subject, items, self.rendered, start)
        problems.refuse(self.data.name)

    def blocks(self, stretches: Sequence[Stretch]) -> list[Block]:
        """The same in blocks that fit in memory."""
        return [block for stretch in stretches for block in cut_blocks(*stretch, self.data, self.rendered)]
