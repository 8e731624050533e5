"""Replicas that answer the blocks of a run, while blocks are prepared here."""

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
"""Seconds to wait for the first replica where nothing is free for it."""

PAUSE = 10.0
"""Seconds between two lines that say what is waited for."""

BEAT = 0.5
"""Seconds to wait for something to happen, at most."""

AHEAD = 2
"""Shards that a replica has at most: the one that it computes, and the next, so that it never waits."""

LATE = 16
"""Answered shards per replica that may wait until those before them are answered."""


@dataclass
class _Asked:
    shard: Shard
    deaths: int = 0


Started: TypeAlias = tuple[Sequence[Replica], Callable[[], str | None]]
"""Replicas, and what tells which resources the first of them waits for, in words; None where one loads its model."""


class ReplicaPool:
    """Replicas that ``begin`` makes when a model is first asked; they end with the ``with``.

    ``others``: the pools of other models; while one of them computes, a model waits for its first replica as long as it
    takes.  ``safe_point`` is called while answers are waited for, and may raise.
    """

    def __init__(
        self,
        begin: Callable[[Model], Started],
        others: Collection[Pool] = (),
        safe_point: Callable[[], None] = lambda: None,
    ) -> None:
        self.answered: dict[int, Answered] = {}
        self._replicas_of, self._others, self._safe_point = begin, others, safe_point
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
        self, asked: Preparation, say: Callable[[str], None]
    ) -> AbstractContextManager[Respondent]:
        """Who answers for the model of ``asked``; ``say`` gets a line about replicas that die or are waited for."""
        if self._model is not asked.model:
            self._end()  # what it holds, another model may need
            replicas, self._lacking = self._replicas_of(asked.model)
            self._replicas = [*replicas]
            self._model = asked.model
        self._begin(say)
        return nullcontext(_Distributed(asked, self))

    def start(self) -> None:
        """Have the replicas load their models, if they were not told to before."""
        if not self._started:
            self._loading |= {replica.load(): replica for replica in self._replicas}
            self._started = True

    @property
    def computes(self) -> bool:
        """Whether a replica of it has its model loaded."""
        return bool(self._loaded)

    @property
    def wants(self) -> bool:
        """Whether further shards should be submitted, so that no replica has to wait."""
        size = len(self._replicas)
        return len(self._waiting) < AHEAD * size and len(self.answered) < LATE * size

    def submit(self, shard: Shard) -> int:
        """Have a shard answered; its number."""
        number, self._submitted = self._submitted, self._submitted + 1
        self._shards[number] = _Asked(shard)
        self._waiting.append(number)
        return number

    def advance(self, seconds: float = BEAT) -> None:
        """Hand out shards, and wait at most so long for something to happen.

        ModelError where no replica can be had, or a shard can't be answered.
        """
        self._safe_point()
        self.start()
        self._hand_out()
        done, _ = wait([*self._loading, *self._asked], seconds, FIRST_COMPLETED)
        for future in done:
            if (replica := self._loading.pop(future, None)) is not None:
                self._take_loaded(replica, future)
            elif future in self._asked:  # it is not, where its replica has died since
                self._take_answer(future, *self._asked.pop(future))
        self._hand_out()
        if self._loaded:
            self._waited = self._said = monotonic()
        else:
            self._complain()

    def _begin(self, say: Callable[[str], None]) -> None:
        """Begin a run, without what an earlier one asked and did not wait for."""
        if not self._started:
            self._loading: dict[Future[Any], Replica] = {}
            self._loaded = []
        self._asked: dict[Future[Any], tuple[Replica, int]] = {}
        self._shards: dict[int, _Asked] = {}
        self._waiting = deque[int]()
        self.answered.clear()
        self._say, self._waited, self._said = say, monotonic(), monotonic()

    def _end(self) -> None:
        for replica in self._replicas:
            replica.end()
        self._replicas, self._loaded, self._model, self._started = [], [], None, False

    def _hand_out(self) -> None:
        for round_ in range(
            AHEAD
        ):  # one for each before a second for any, and none where few are left
            for replica in self._loaded:
                has = sum(each is replica for each, _ in self._asked.values())
                if len(self._waiting) > round_ * len(self._loaded) and has <= round_:
                    number = self._waiting.popleft()
                    self._asked[replica.answer(self._shards[number].shard)] = replica, number

    def _take_loaded(self, replica: Replica, future: Future[Any]) -> None:
        """Ask it from now on; or go on without one that can't be loaded, as another in its place could not be."""
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
        later = [(each, of) for each, (asked, of) in self._asked.items() if asked is replica]
        for each, _ in later:
            each.cancel()
            del self._asked[each]
        # in their order; the first of all may be what killed it
        lost = sorted([number, *(of for _, of in later)])
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
        """Say what is waited for, and end where that has taken too long."""
        now = monotonic()
        if now - self._said < PAUSE:
            return
        self._said = now
        lacking = self._lacking()
        if lacking is None or any(pool.computes for pool in self._others):
            self._waited = now  # a replica is being loaded, which may take long, or what it needs will become free
        if lacking is None:
            return
        if now - self._waited >= PATIENCE:
            raise MachinesLost(f"no replica could start within {PATIENCE:.0f} s: {lacking}")
        self._say(f"waiting for the first replica: {lacking}")


def process_pool(workers: int, sharing: Sharing) -> ReplicaPool:
    """So many replicas on this machine, each in a process of its own."""
    return ReplicaPool(partial(_processes, workers=workers), sharing.others, sharing.safe_point)


def _processes(model: Model, workers: int) -> Started:
    recipe, driver = copied(model)
    return process_replicas(recipe, workers, _devices(model), driver), lambda: None


def copied(model: Model) -> tuple[Recipe, Identity]:
    """How replicas load ``model``, and what they compare theirs with.

    Raises UsageError for a model that another program computes, and ModelError for one that is in memory alone.
    """
    reason = kind_of(model).workers
    if reason:
        raise UsageError(f"{model.name} {reason}; leave them out")
    if (recipe := model.recipe) is None:
        raise ModelError(
            f"{model.name} is in memory alone; pass a folder or a name, so that workers can load it"
        )
    products = getattr(model, "products", None)
    if products is not None:
        # Every copy must multiply the same way, whatever its processor.
        recipe = replace(recipe, options={**recipe.options, "products": products})
    return recipe, Identity.of(model)


def _devices(model: Model) -> list[str]:
    """All devices of this machine that are like the one that was taken for ``model`` because nobody named one."""
    if (
        model.recipe is None
        or model.recipe.options.get("device")
        or not model.device.startswith("cuda")
    ):
        return []
    import torch

    return [f"cuda:{index}" for index in range(torch.cuda.device_count())]


@dataclass
class _Open:
    """A block under way, and its shards that were not taken yet, by number."""

    ready: Ready
    questions: int
    numbers: deque[int]


@dataclass
class _Distributed:
    """Prepares blocks as ``asked`` says, so far ahead that the replicas of a ``pool`` have always something to do.

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
        """One result per block, in their order; later blocks are prepared and answered meanwhile."""
        if not blocks:
            return
        self.pool.start()  # they load their models while the first block is prepared
        with self.preparation.ready(blocks, assignment) as upcoming:
            while self._open or self._submit(upcoming.take(), assignment):
                block = self._open[0]
                rows = block.ready.prepared
                more = rows.inputs, rows.requests, rows.spans
                yield BlockResult(
                    block.ready.block,
                    *more,
                    block.questions,
                    self._answers(block, upcoming, assignment),
                )
                self._open.popleft()

    def observe(self, questions: Mapping[str, BlockPrompt]) -> Iterator[pa.Table]:
        """One observation per question, a shard at a time."""
        waiting = iter(list(cut_shards(questions, shard_tokens_of(self.preparation.model))))
        numbers: deque[int] = deque()
        more = True
        while more or numbers:
            while more and self.pool.wants:
                shard = next(waiting, None)
                more = shard is not None
                if shard is not None:
                    numbers.append(self._send(shard))
            yield from self._taken(numbers)

    def _submit(self, ready: Ready | None, assignment: Assignment) -> bool:
        """Send what is to be asked of a block, which counts as asked from now on; False without a block."""
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
        """The answers to some of ``numbers``, after waiting a moment where none is there."""

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
        if checks:  # the deepest, with the most noise that a replica saw
            self.selfcheck = replace(
                max(checks, key=lambda each: each.depth), noise=max(each.noise for each in checks)
            )
