"""The items of a run in blocks that fit in memory."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil

import numpy as np
import numpy.typing as npt

from choicewise.data.dataset import Dataset
from choicewise.data.item import Item
from choicewise.errors import UsageError
from choicewise.protocols.protocol import Protocol
from choicewise.records.manifest import Place
from choicewise.requests.rendered import RenderedRequests
from choicewise.requests.request import Request
from choicewise.requests.schedule import Ask, request_source

BLOCK_TOKENS = 16_000_000
"""What the requests of a block hold in memory, by an estimate, in tokens of 8 bytes with their text: some 130 MB."""

CHARACTERS = 3
"""Of one token, in the estimate: few, so that blocks are rather too small."""

ROW_TOKENS, REQUEST_TOKENS = 175, 250
"""As many tokens take the memory of a choice (its question, key and row), and of a request beside its text."""


@dataclass(frozen=True)
class Section:
    """The selected items of one subject."""

    split: str
    subject: str
    items: Sequence[Item]


@dataclass(frozen=True)
class Block:
    """Items of one subject, from position ``start`` of the subject on, and the ways of asking about them.

    ``work`` grows with what is computed for them: the characters of the items, times the ways of asking.
    """

    split: str
    subject: str
    start: int
    items: Sequence[Item]
    asks: Sequence[Ask]
    work: int

    @property
    def place(self) -> Place:
        """Split, subject, start and stop: where the run folder keeps what was observed of it."""
        return self.split, self.subject, self.start, self.start + len(self.items)


def list_sections(
    data: Dataset, protocols: Mapping[str, Protocol], subjects: Sequence[str] | None, limit: int | None
) -> list[Section]:
    """The items of every split that the protocols test, or of the named subjects, or the first ``limit`` of each.

    Raises DataError when there is no such split, and UsageError when there is no such subject or the limit is below 1.
    """
    if limit is not None and limit < 1:
        raise UsageError(f"limit is {limit}; it must be at least 1, or left out for all questions")
    return [
        Section(split, subject, data.rows(split, subject)[:limit])
        for split in dict.fromkeys(each.split or data.evaluated for each in protocols.values())
        for subject in data.choose(split, subjects)
    ]


def cut_blocks(
    section: Section, start: int, stop: int, asks: Sequence[Ask], data: Dataset, rendered: Sequence[RenderedRequests]
) -> Iterator[Block]:
    """The items ``start`` to ``stop`` (exclusive) of a section in as few blocks of about one size as fit in memory."""
    items = section.items[start:stop]
    characters = np.fromiter((1 + len(item.question) + sum(map(len, item.choices)) for item in items), dtype=np.int64)
    held = _held(section, start, characters, asks, data, rendered)
    total = held.sum()
    number = (np.cumsum(held) - held / 2) * ceil(total / BLOCK_TOKENS) // total  # an item goes where its middle lies
    edges = [0, *(np.flatnonzero(np.diff(number)) + 1).tolist(), len(items)]
    for first, end in pairwise(edges):
        work = int(characters[first:end].sum()) * len(asks)
        yield Block(section.split, section.subject, start + first, items[first:end], asks, work)


def _held(
    section: Section,
    start: int,
    characters: npt.NDArray[np.int64],
    asks: Sequence[Ask],
    data: Dataset,
    rendered: Sequence[RenderedRequests],
) -> npt.NDArray[np.float64]:
    """The tokens that each item holds in memory, judged by the requests of the first one."""
    fixed, variable = 1.0, 0.0  # tokens of an item, and tokens for each of its characters
    for ask in asks:
        source = request_source(ask.protocol, data, rendered)
        for request in source.requests(section.subject, section.items[start : start + 1], start):
            if isinstance(request, Request):
                texts = (len(request.proposals) or 1) + len(request.views) if ask.null is None else 0
                around = max(len(request.context()) - int(characters[0]), 0)
                rows = sum(map(len, request.parts)) + sum(len(view.continuations) for view in request.views)
                fixed += texts * (around / CHARACTERS + REQUEST_TOKENS) + rows * ROW_TOKENS
                variable += texts / CHARACTERS
    return np.asarray(fixed + variable * characters, dtype=np.float64)
