"""Parts of a run in processes that know nothing of each other: which shards of the token tree are whose.

Every process prepares all of the run, and answers every n-th shard of it: so each asks what a single process asks in
that shard, whichever of them are computed, and :mod:`choicewise.extensions.cluster.merge` puts the answers together.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from choicewise.ports import TaskArray, all_of, find
from choicewise.records import ShardRecord
from choicewise.requests.blocks import Block
from choicewise.requests.request import BlockPrompt
from choicewise.store.tables import Keys

WANTED = "I/N, the I-th of N parts, I from 1 to N, N at most 9999"
"""What a shard must be, in words."""


@dataclass(frozen=True, slots=True)
class Share:
    """The part of process ``number`` (from 1 on) of ``of``."""

    number: int
    of: int

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"

    def owns(self, shard: int) -> bool:
        """Whether this process answers the shard of that number, counted from 0 over the whole run."""
        return owner(shard, self.of) == self.number


def owner(shard: int, of: int) -> int:
    """The number of the process, of so many, that answers a shard of a run."""
    return shard % of + 1


def share_of(text: str, environment: Mapping[str, str] = os.environ) -> Share:
    """The part that ``text`` says: ``2/4``, or that of this task where ``text`` names a :class:`TaskArray`.

    Raises ValueError, whose message says what it must be.
    """
    if match := re.fullmatch(r"([0-9]{1,4})/([0-9]{1,4})", text):
        share = Share(int(match[1]), int(match[2]))
        if not 1 <= share.number <= share.of:
            raise ValueError(
                WANTED + (f": 1/{share.of} to {share.of}/{share.of}" if share.of else "")
            )
        return share
    if (array := find(TaskArray, text)) is None:
        names = " or ".join(each.name for each in all_of(TaskArray))
        raise ValueError(f"{WANTED}, as in 2/4; or {names}")
    return Share(*array.part(environment))


class Assigned(NamedTuple):
    """Of a block: whether the run asks anything new in it, and what is to be asked here, shard by shard."""

    new: bool
    shards: Sequence[Mapping[str, BlockPrompt]]


class Assignment:
    """What of each block is asked in this process: all that nobody asked before, or the part ``share`` of it.

    ``held``: what the folder holds already.  The whole run asks a question in the first block that has it, whoever
    answers it: so every block has to be taken, in order, where there is a share.
    """

    def __init__(self, held: Keys, share: Share | None = None) -> None:
        self.share = share
        self._held, self._named = held, held if share is None else Keys()
        self._counts: list[tuple[int, ...]] = []
        self._digest = PlanDigest()
        self._shards = 0

    def take(self, block: Block, shards: Sequence[Mapping[str, BlockPrompt]]) -> Assigned:
        """What to ask of the next ``block``, whose questions, by key, are cut into ``shards``."""
        new = frozenset(self._named.without([key for shard in shards for key in shard]))
        self._named.add(new)
        asked = [{key: shard[key] for key in shard if key in new} for shard in shards]
        if self.share is not None:
            self._counts.append(tuple(map(len, asked)))
            self._digest.add(block.extent, [spec.name for spec in block.specs], asked)
            own = [
                shard for number, shard in enumerate(asked, self._shards) if self.share.owns(number)
            ]
            asked = [{key: shard[key] for key in self._held.without(list(shard))} for shard in own]
            self._shards += len(shards)
        return Assigned(bool(new), [shard for shard in asked if shard])

    @property
    def record(self) -> ShardRecord | None:
        """What the manifest says when all blocks were taken; None where this process asks the whole run."""
        if self.share is None:
            return None
        return ShardRecord(
            self.share.of, (self.share.number,), (), self._digest.text, tuple(self._counts)
        )


class PlanDigest:
    """sha256 of what a run asks: of each block in order its place, the ways of asking, and the keys of each shard."""

    def __init__(self) -> None:
        self._sha = hashlib.sha256()

    def add(
        self, place: tuple[str, str, int, int], asks: Sequence[str], shards: Sequence[Iterable[str]]
    ) -> None:
        """Add the next block; the keys of a shard may come in any order."""
        self._sha.update(repr((place, tuple(asks), [sorted(shard) for shard in shards])).encode())

    @property
    def text(self) -> str:
        """So far, 64 hexadecimal digits."""
        return self._sha.hexdigest()
