"""Parts of a run: which shards a process computes that knows nothing of the others.

Every process prepares all of the run, and computes every n-th shard, with the prompts that a single
process would compute in it.  :mod:`choicewise.extensions.cluster.merge` joins the answers.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from choicewise.ports import TaskArray, all_of, find
from choicewise.records import ShardRecord
from choicewise.requests.blocks import Block
from choicewise.requests.request import BlockPrompt
from choicewise.store.tables import Keys

WANTED = "I/N, part I of N (N at most 9999)"
"""The form of a shard, for errors."""


@dataclass(frozen=True, slots=True)
class Share:
    """Name the part of process ``number`` (from 1 on) of ``of``."""

    number: int
    of: int

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"


def owner(shard: int, of: int) -> int:
    """Return the number of the process, from 1 on, that computes a shard of the run."""
    return shard % of + 1


def share_of(text: str, environment: Mapping[str, str] = os.environ) -> Share:
    """Read a part: ``2/4``, or the part of this task if ``text`` names a :class:`TaskArray`.

    Raises ValueError with the possible values.
    """
    fraction = re.fullmatch(r"([0-9]{1,4})/([0-9]{1,4})", text)
    if fraction:
        share = Share(int(fraction[1]), int(fraction[2]))
        if 1 <= share.number <= share.of:
            return share
        possible = f": 1/{share.of} to {share.of}/{share.of}" if share.of else ""
        raise ValueError(WANTED + possible)
    array = find(TaskArray, text)
    if array is None:
        names = " or ".join(array.name for array in all_of(TaskArray))
        raise ValueError(f"{WANTED}, such as 2/4; or {names}")
    number, of = array.part(environment)
    return Share(number, of)


class Assigned(NamedTuple):
    """Hold the prompts of a block to compute here, shard by shard.

    ``new``: True if the run has new prompts in the block, here or elsewhere.
    """

    new: bool
    shards: Sequence[Mapping[str, BlockPrompt]]


class Assignment:
    """Choose the prompts of each block to compute here: all new ones, or the part ``share`` of
    them.

    ``held``: keys of the observations in the folder.  A prompt belongs to the first block of the
    run that has it, so with a share every block must be taken, in order.
    """

    def __init__(self, held: Keys, share: Share | None = None) -> None:
        self.share = share
        self._observed = held
        self._named = held if share is None else Keys()
        self._counts: list[tuple[int, ...]] = []
        self._plan = hashlib.sha256()
        self._shards = 0

    def take(self, block: Block, shards: Sequence[Mapping[str, BlockPrompt]]) -> Assigned:
        """Choose from the next ``block``, whose prompts, by key, are cut into ``shards``."""
        keys = [key for shard in shards for key in shard]
        new = frozenset(self._named.without(keys))
        self._named.add(new)
        new_shards = [_part_of(shard, new) for shard in shards]
        chosen = new_shards
        if self.share is not None:
            self._counts.append(tuple(map(len, new_shards)))
            asks = [spec.name for spec in block.specs]
            self._plan.update(plan_of_block(block.extent, asks, new_shards))
            chosen = []
            for number, shard in enumerate(new_shards, self._shards):
                if owner(number, self.share.of) == self.share.number:
                    missing = frozenset(self._observed.without(list(shard)))
                    chosen.append(_part_of(shard, missing))
            self._shards += len(shards)
        return Assigned(bool(new), [shard for shard in chosen if shard])

    @property
    def record(self) -> ShardRecord | None:
        """Return the record for the manifest, after all blocks; None for the whole run."""
        if self.share is None:
            return None
        return ShardRecord(
            of=self.share.of,
            numbers=(self.share.number,),
            plan=self._plan.hexdigest(),
            counts=tuple(self._counts),
        )


def _part_of(shard: Mapping[str, BlockPrompt], keys: Collection[str]) -> dict[str, BlockPrompt]:
    return {key: question for key, question in shard.items() if key in keys}


def plan_of_block(
    extent: tuple[str, str, int, int], asks: Sequence[str], shards: Sequence[Iterable[str]]
) -> bytes:
    """Return what the digest of a run's plan contains of a block: position, requests, prompt keys.

    The order of keys in a shard does not matter.
    """
    return repr((extent, tuple(asks), [sorted(shard) for shard in shards])).encode()
