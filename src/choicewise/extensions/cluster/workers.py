"""Have replicas answer the blocks of a run, while further blocks are prepared in this process."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import takewhile
from time import monotonic
from typing import Any, Self, TypeAlias

import pyarrow as pa

from choicewise.engine import Shard, cut_shards
from choicewise.errors import MachinesLost, ModelError, UsageError
from choicewise.extensions.cluster.replica import (
    DEATHS,
    Answered,
    Identity,
    Replica,
    ReplicaDied,
    process_replicas,
)
from choicewise.models.kinds import kind_of, shard_tokens_of
from choicewise.models.model import Model, Recipe, SelfCheck
from choicewise.ports import Sharing
from choicewise.requests.blocks import Block
from choicewise.requests.request import BlockPrompt
from choicewise.running.answer import BlockResult, Pool, Preparation, Ready, Respondent, Upcoming
from choicewise.running.shards import Assignment

PATIENCE = 60.0
"""Seconds to wait for the first replica if nothing is free for it."""

PAUSE = 10.0
"""Seconds between two lines on what a run waits for."""

BEAT = 0.5
"""Seconds to wait at most for something to happen."""

AHEAD = 2
"""Shards that a replica has at most: the one that it computes, and the next, so that it never
waits.
"""

LATE = 16
"""Answered shards per replica that may wait until those before them are answered."""


@dataclass
class _Asked:
    shard: Shard
    deaths: int = 0


Started: TypeAlias = tuple[Sequence[Replica], Callable[[], str | None]]
"""Replicas, and a function that says which resources the first of them waits for; it returns None
if one loads its model.
"""


class ReplicaPool:
    """Hold the replicas that ``begin`` makes when a model gets its first shard; they end with the
    ``with``.

    ``others``: the pools of other models; while one of them computes, a model waits for its first
    replica as long as it takes. ``safe_point`` is called while the pool waits for answers, and may
    raise.
    """

    def __init__(
        self,
        begin: Callable[[Model], Started],
        others: Collection[Pool] = (),
        safe_point: Callable[[], None] = lambda: None,
    ) -> None:
        self.answered: dict[int, Answered] = {}
        self._replicas_of = begin
        self._others = others
        self._safe_point = safe_point
        self._loaded: list[Replica] = []
        self._model: Model | None = None
        self._replicas: list[Replica] = []
        self._started = False
        self._submitted = 0
        self._begin(lambda line: None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def respondent(
        self, preparation: Preparation, say: Callable[[str], None]
    ) -> AbstractContextManager[Respondent]:
        """Open a respondent for the model; ``say`` gets lines about replicas that die or are waited for."""
        if self._model is not preparation.model:
            # Another model may need what the replicas of the last one hold.
            self._end()
            replicas, self._lacking = self._replicas_of(preparation.model)
            self._replicas = [*replicas]
            self._model = preparation.model
        self._begin(say)
        return nullcontext(_Distributed(preparation, self))

    def start(self) -> None:
        """Have the replicas load their models, if they have not begun to."""
        if not self._started:
            self._loading |= {replica.load(): replica for replica in self._replicas}
            self._started = True

    @property
    def computes(self) -> bool:
        """Return whether a replica has its model loaded."""
        return bool(self._loaded)

    @property
    def wants(self) -> bool:
        """Return whether further shards should be submitted, so that no replica has to wait."""
        size = len(self._replicas)
        return len(self._waiting) < AHEAD * size and len(self.answered) < LATE * size

    def submit(self, shard: Shard) -> int:
        """Have a shard answered, and return its number."""
        number = self._submitted
        self._submitted += 1
        self._shards[number] = _Asked(shard)
        self._waiting.append(number)
        return number

    def advance(self, seconds: float = BEAT) -> None:
        """Hand out shards, and wait at most so long for something to happen.

        Raises ModelError if no replica can be had, or a shard can't be answered.
        """
        self._safe_point()
        self.start()
        self._hand_out()
        done, _ = wait([*self._loading, *self._asked], seconds, FIRST_COMPLETED)
        for future in done:
            if (replica := self._loading.pop(future, None)) is not None:
                self._take_loaded(replica, future)
            elif future in self._asked:
                # A shard whose replica has died since is not there.
                self._take_answer(future, *self._asked.pop(future))
        self._hand_out()
        if self._loaded:
            self._waited = self._said = monotonic()
        else:
            self._complain()

    def _begin(self, say: Callable[[str], None]) -> None:
        """Begin a run, without the shards that an earlier one submitted and did not wait for."""
        if not self._started:
            self._loading: dict[Future[Any], Replica] = {}
            self._loaded = []
        self._asked: dict[Future[Any], tuple[Replica, int]] = {}
        self._shards: dict[int, _Asked] = {}
        self._waiting = deque[int]()
        self.answered.clear()
        self._say = say
        self._waited = monotonic()
        self._said = self._waited

    def _end(self) -> None:
        for replica in self._replicas:
            replica.end()
        self._replicas = []
        self._loaded = []
        self._model = None
        self._started = False

    def _hand_out(self) -> None:
        # One for every replica before a second for any, and none if few are left.
        for round_ in range(AHEAD):
            for replica in self._loaded:
                count = sum(other is replica for other, _ in self._asked.values())
                if len(self._waiting) > round_ * len(self._loaded) and count <= round_:
                    number = self._waiting.popleft()
                    self._asked[replica.answer(self._shards[number].shard)] = replica, number

    def _take_loaded(self, replica: Replica, future: Future[Any]) -> None:
        """Take a replica into use, or go on without it if it can't be loaded: another in its place
        could not be either.
        """
        match future.exception():
            case None:
                self._loaded.append(replica)
                return
            case ReplicaDied() as died:
                text = (
                    f"{DEATHS} replicas died before they had loaded the model; the last one: {died}"
                )
                error: BaseException = MachinesLost(text)
            case refused:
                error = refused
        self._replicas.remove(replica)
        replica.end()
        if not self._replicas:
            raise error
        self._say(f"{error}; the run goes on without it")

    def _take_answer(self, future: Future[Any], replica: Replica, number: int) -> None:
        error = future.exception()
        if error is None:
            self.answered[number] = future.result()
            del self._shards[number]
            return
        if not isinstance(error, ReplicaDied):
            raise error
        lost = [number]
        for later, (other, later_number) in list(self._asked.items()):
            if other is replica:
                later.cancel()
                del self._asked[later]
                lost.append(later_number)
        # In their order; the first of all may be what killed it.
        lost.sort()
        self._waiting.extendleft(reversed(lost))
        first = self._shards[lost[0]]
        first.deaths += 1
        if first.deaths >= DEATHS:
            raise MachinesLost(
                f"{DEATHS} replicas died over the same questions; the last one: {error}"
            )
        self._say(f"a replica died ({error}); what it was asked is asked again")
        self._loaded.remove(replica)
        self._loading[replica.load()] = replica

    def _complain(self) -> None:
        """Say what the pool waits for, and raise MachinesLost if that has taken too long."""
        now = monotonic()
        if now - self._said < PAUSE:
            return
        self._said = now
        lacking = self._lacking()
        if lacking is None or any(pool.computes for pool in self._others):
            # A replica is being loaded, which may take long, or what it needs will become free.
            self._waited = now
        if lacking is None:
            return
        if now - self._waited >= PATIENCE:
            raise MachinesLost(f"no replica could start within {PATIENCE:.0f} s: {lacking}")
        self._say(f"waiting for the first replica: {lacking}")


def process_pool(workers: int, sharing: Sharing) -> ReplicaPool:
    """Return so many replicas on this machine, in processes of their own."""
    return ReplicaPool(partial(_processes, workers=workers), sharing.others, sharing.safe_point)


def _processes(model: Model, workers: int) -> Started:
    recipe, driver = copied(model)
    return process_replicas(recipe, workers, _devices(model), driver), lambda: None


def copied(model: Model) -> tuple[Recipe, Identity]:
    """Return how replicas load ``model``, and the identity that they compare theirs with.

    Raises UsageError for a model that another program computes, and ModelError for one that is in
    memory alone.
    """
    reason = kind_of(model).workers
    if reason:
        raise UsageError(f"{model.name} {reason}; leave them out")
    recipe = model.recipe
    if recipe is None:
        raise ModelError(
            f"{model.name} is in memory alone; pass a folder or a name, so that workers can load it"
        )
    products = getattr(model, "products", None)
    if products is not None:
        # Every copy must multiply the same way, whatever its processor.
        recipe = replace(recipe, options={**recipe.options, "products": products})
    return recipe, Identity.of(model)


def _devices(model: Model) -> list[str]:
    """Return all devices of this machine that are like that of ``model``, if nobody named a device."""
    if model.recipe is None or model.recipe.options.get("device"):
        return []
    if not model.device.startswith("cuda"):
        return []
    import torch

    return [f"cuda:{index}" for index in range(torch.cuda.device_count())]


@dataclass
class _Open:
    """Hold a block under way, and the numbers of its shards that were not taken yet."""

    ready: Ready
    questions: int
    numbers: deque[int]


@dataclass
class _Distributed:
    """Prepare blocks by ``preparation``, so far ahead that the replicas of a ``pool`` are never
    idle.

    The tokens of shards that died with their replica are not counted.
    """

    preparation: Preparation
    pool: ReplicaPool
    computed: int | None = 0
    selfcheck: SelfCheck | None = None
    requests: int = 0
    unique: int = 0
    planned: int | None = None
    _depth: int = 0
    _open: deque[_Open] = field(default_factory=deque)

    def run(
        self, blocks: Sequence[Block], assignment: Assignment
    ) -> Generator[BlockResult, None, None]:
        """Yield one result per block, in their order; later blocks are prepared and answered
        meanwhile.
        """
        if not blocks:
            return
        # Replicas load their models while the first block is prepared.
        self.pool.start()
        with self.preparation.ready(blocks, assignment) as upcoming:
            while self._open or self._submit(upcoming.take(), assignment):
                block = self._open[0]
                rows = block.ready.prepared
                yield BlockResult(
                    block.ready.block,
                    rows.inputs,
                    rows.requests,
                    rows.spans,
                    block.questions,
                    self._answers(block, upcoming, assignment),
                )
                self._open.popleft()

    def observe(self, questions: Mapping[str, BlockPrompt]) -> Iterator[pa.Table]:
        """Yield one observation per question, a shard at a time."""
        waiting = iter(list(cut_shards(questions, shard_tokens_of(self.preparation.model))))
        numbers: deque[int] = deque()
        shard = next(waiting, None)
        while shard is not None or numbers:
            while shard is not None and self.pool.wants:
                numbers.append(self._send(shard))
                shard = next(waiting, None)
            yield from self._taken(numbers)

    def _submit(self, ready: Ready | None, assignment: Assignment) -> bool:
        """Submit the shards of a block, which count as taken from now on; return False without a
        block.
        """
        if ready is None:
            return False
        assigned = assignment.take(ready.block, ready.shards)
        self._depth = max(self._depth, ready.prepared.deepest if assigned.new else 0)
        self._open.append(
            _Open(ready, sum(map(len, assigned.shards)), deque(map(self._send, assigned.shards)))
        )
        return True

    def _send(self, shard: Mapping[str, BlockPrompt]) -> int:
        self._depth = max(self._depth, *(question.inputs for question in shard.values()))
        return self.pool.submit(Shard(shard, self._depth))

    def _answers(
        self, block: _Open, upcoming: Upcoming, assignment: Assignment
    ) -> Iterator[pa.Table]:
        while block.numbers:
            if self.pool.wants:
                self._submit(upcoming.take(wait=False), assignment)
            yield from self._taken(block.numbers, in_order=assignment.share is not None)

    def _taken(self, numbers: deque[int], in_order: bool = False) -> Iterator[pa.Table]:
        """Yield the answers to some of ``numbers``, after a short wait if there are none."""

        some = takewhile if in_order else filter
        self.pool.advance(0 if list(some(self.pool.answered.__contains__, numbers)) else BEAT)
        for number in list(some(self.pool.answered.__contains__, numbers)):
            numbers.remove(number)
            answered = self.pool.answered.pop(number)
            self._count(answered)
            yield answered.observations

    def _count(self, answered: Answered) -> None:
        if answered.computed is None or self.computed is None:
            self.computed = None
        else:
            self.computed += answered.computed
        checks = [check for check in (self.selfcheck, answered.selfcheck) if check is not None]
        if checks:
            # The deepest, with the most noise that a replica saw.
            deepest = max(checks, key=lambda check: check.depth)
            self.selfcheck = replace(deepest, noise=max(check.noise for check in checks))
