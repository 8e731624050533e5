"""A portion of a run: items with everything that was asked about them, few enough that their tokens fit in memory."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import numpy as np

from choicewise.errors import StoreError
from choicewise.records.manifest import BlockRecord
from choicewise.records.tables import OBSERVATIONS, SPANS
from choicewise.results.item_table import Subject
from choicewise.scoring.ragged import Integers
from choicewise.store.tables import block_file, read_metadata

MOST = 64_000_000
"""Bytes that the spans and tokens of a portion take, about; more only where a single block has more."""

_SPAN, _TOKEN = 256, 32
"""Bytes of a span with its texts and its observation, and of a token laid out."""

_MOST_OF_USUAL = 4
"""How many times as many bytes the tables of a block may take before they count themselves."""


@dataclass(frozen=True, slots=True)
class Portion:
    """``items``: rows of the item table, int64; ``blocks``: those that hold what was observed of them.

    ``inside``: names of the blocks that hold nothing about other items.
    """

    items: Integers
    blocks: tuple[BlockRecord, ...]
    inside: frozenset[str] = frozenset()


@dataclass(slots=True)
class _Growing:
    """A portion that takes more items until it is heavy."""

    items: list[Integers] = field(default_factory=list)
    blocks: dict[str, BlockRecord] = field(default_factory=dict)
    weight: int = 0
    covered: Counter[str] = field(default_factory=Counter)

    def portion(self, order: Mapping[str, int]) -> Portion:
        """The portion, with its blocks in the order of the run."""
        blocks = tuple(sorted(self.blocks.values(), key=lambda block: order[block.name]))
        inside = frozenset(block.name for block in blocks if self.covered[block.name] == block.stop - block.start)
        return Portion(np.concatenate(self.items), blocks, inside)


def list_portions(folder: Path, blocks: Sequence[BlockRecord], places: Mapping[Subject, Integers]) -> list[Portion]:
    """The portions of the run in ``folder`` that has these blocks, and items of every subject at ``places``.

    A continued run can have blocks that begin and end elsewhere than its earlier ones: such a block is in several
    portions, each of which takes the rows of its own items.
    """
    order = {block.name: number for number, block in enumerate(blocks)}
    weights = {block.name: _weight(folder, block) for block in blocks}
    portions, growing = list[_Growing](), _Growing()
    for rows, covering in segments(blocks, places):
        new = [block for block in covering if block.name not in growing.blocks]
        weight = sum(weights[block.name] for block in new)
        if growing.items and growing.weight + weight > MOST:
            portions.append(growing)
            growing, new, weight = _Growing(), covering, sum(weights[block.name] for block in covering)
        growing.items.append(rows)
        growing.blocks.update((block.name, block) for block in new)
        growing.weight += weight
        for block in covering:
            growing.covered[block.name] += len(rows)
    if growing.items:
        portions.append(growing)
    return [each.portion(order) for each in portions]


def segments(
    blocks: Sequence[BlockRecord], places: Mapping[Subject, Integers]
) -> Iterator[tuple[Integers, list[BlockRecord]]]:
    """The items between two places at which a block begins or ends, with the blocks that cover them."""
    by_subject: dict[Subject, list[BlockRecord]] = {}
    for block in blocks:
        by_subject.setdefault((block.split, block.subject), []).append(block)
    for (split, name), own in by_subject.items():
        if max(block.stop for block in own) > len(places.get((split, name), ())):
            raise StoreError(
                f"block {own[-1].name} is about other items than the item table has of {name} ({split}); "
                "evaluate again into a new folder"
            )
    for subject in sorted(by_subject, key=lambda subject: int(places[subject][0])):
        own = by_subject[subject]
        waiting = sorted(own, key=lambda block: block.start, reverse=True)
        covering: list[BlockRecord] = []
        for start, stop in pairwise(sorted({edge for block in own for edge in (block.start, block.stop)})):
            covering = [block for block in covering if block.stop > start]
            while waiting and waiting[-1].start <= start:
                covering.append(waiting.pop())
            if covering:
                yield places[subject][start:stop], list(covering)


def covering_portion(
    blocks: Sequence[BlockRecord], places: Mapping[Subject, Integers], items: Sequence[int]
) -> Portion:
    """The portion of these ``items``, which are places of the item table in its order."""
    wanted, names = np.array(items, dtype=np.int64), set[str]()
    for rows, covering in segments(blocks, places):
        if np.isin(wanted, rows).any():
            names.update(block.name for block in covering)
    return Portion(wanted, tuple(block for block in blocks if block.name in names))


def _weight(folder: Path, block: BlockRecord) -> int:
    spans, span_bytes = read_metadata(block_file(folder, block, "spans"), SPANS)
    observations, observed_bytes = read_metadata(block_file(folder, block, "observations"), OBSERVATIONS)
    groups = (observations.row_group(number) for number in range(observations.num_row_groups))
    tokens = sum(group.column(1).num_values for group in groups)
    usual = _SPAN * (spans.num_rows + observations.num_rows) + _TOKEN * tokens
    return max(usual, (span_bytes + observed_bytes) // _MOST_OF_USUAL)
