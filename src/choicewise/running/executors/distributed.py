"""The executor whose shards are answered by replicas; blocks are prepared here, and their results come in order."""

from collections import deque
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from choicewise.models.selfcheck import SelfCheck
from choicewise.requests.blocks import Block
from choicewise.requests.prompt_rows import BlockQuestion
from choicewise.running.executors.executor import BlockResult
from choicewise.running.executors.preparing import Preparation, Ready, Upcoming
from choicewise.running.executors.replica import Answered
from choicewise.running.executors.replicas import BEAT, Replicas
from choicewise.running.executors.shards import Shard, cut_shards, shard_tokens
from choicewise.store.keys import Keys


@dataclass
class _Open:
    """A block under way, and its shards that were not taken yet, by number."""

    ready: Ready
    questions: int
    numbers: deque[int]


@dataclass
class Distributed:
    """Prepares blocks as ``asked`` says, so far ahead that ``replicas`` have always something to do.

    The tokens of shards that died with their replica are not counted.
    """

    asked: Preparation
    replicas: Replicas
    computed: int | None = 0
    selfcheck: SelfCheck | None = None
    requests: int = 0
    planned: int | None = None
    _depth: int = 0
    _open: deque[_Open] = field(default_factory=deque)

    def run(self, blocks: Sequence[Block], observed: Keys) -> Generator[BlockResult, None, None]:
        """One result per block, in their order; later blocks are prepared and answered meanwhile."""
        if not blocks:
            return
        self.replicas.staff()  # they load their models while the first block is prepared
        with self.asked.ready(blocks) as upcoming:
            while self._open or self._submit(upcoming.take(), observed):
                block = self._open[0]
                rows = block.ready.prepared
                more = rows.inputs, rows.requests, rows.spans
                yield BlockResult(block.ready.block, *more, block.questions, self._answers(block, upcoming, observed))
                self._open.popleft()

    def observe(self, questions: Mapping[str, BlockQuestion]) -> Iterator[pa.Table]:
        """One observation per question, a shard at a time."""
        waiting = iter(list(cut_shards(questions, shard_tokens(self.asked.model.device))))
        numbers: deque[int] = deque()
        more = True
        while more or numbers:
            while more and self.replicas.wants:
                shard = next(waiting, None)
                more = shard is not None
                if shard is not None:
                    numbers.append(self._send(shard))
            yield from self._taken(numbers)

    def _submit(self, ready: Ready | None, observed: Keys) -> bool:
        """Send what a block asks and nobody asked before, which counts as asked from now on; False without a block."""
        if ready is None:
            return False
        new = frozenset(observed.without(list(ready.prepared.wanted)))
        observed.add(new)
        lacking = ({key: shard[key] for key in shard if key in new} for shard in ready.shards)
        self._depth = max(self._depth, ready.prepared.deepest if new else 0)
        self._open.append(_Open(ready, len(new), deque(self._send(shard) for shard in lacking if shard)))
        return True

    def _send(self, shard: Mapping[str, BlockQuestion]) -> int:
        self._depth = max(self._depth, *(question.inputs for question in shard.values()))
        return self.replicas.submit(Shard(shard, self._depth))

    def _answers(self, block: _Open, upcoming: Upcoming, observed: Keys) -> Iterator[pa.Table]:
        while block.numbers:
            if self.replicas.wants:
                self._submit(upcoming.take(wait=False), observed)
            yield from self._taken(block.numbers)

    def _taken(self, numbers: deque[int]) -> Iterator[pa.Table]:
        """The answers to some of ``numbers``, after waiting a moment where none is there."""
        self.replicas.advance(0 if any(number in self.replicas.answered for number in numbers) else BEAT)
        for number in [number for number in numbers if number in self.replicas.answered]:
            numbers.remove(number)
            answered = self.replicas.answered.pop(number)
            self._count(answered)
            yield answered.observations

    def _count(self, answered: Answered) -> None:
        if answered.computed is None or self.computed is None:
            self.computed = None
        else:
            self.computed += answered.computed
        checks = [check for check in (self.selfcheck, answered.selfcheck) if check is not None]
        if checks:  # the deepest, with the most noise that a replica saw
            self.selfcheck = replace(max(checks, key=lambda each: each.depth), noise=max(each.noise for each in checks))
