"""Worker processes (futures).

They are started as programs, not forked or spawned, so that a script that evaluates is not run again in each of them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import Any, Self

import pyarrow as pa

from choicewise.errors import ModelError, UsageError
from choicewise.models.model import SERVER, Model, SelfCheck
from choicewise.requests.blocks import Block
from choicewise.requests.prepared import BlockQuestion
from choicewise.running.executor import (
    BlockResult,
    Executor,
    InProcess,
    Preparation,
    Ready,
    Shard,
    Upcoming,
    cut_shards,
    shard_tokens,
)
from choicewise.running.replica import Answered, Crew, Happened, Identity, LocalCrew, Lost, Refused
from choicewise.store.folder import Keys

PATIENCE = 60.0
"""Seconds to wait for the first replica where nothing is free for it."""


class Workforce:
    """The replicas that ``parallel`` asks for, started when a model is first asked; they end with the ``with``.

    ``models``: so many share a cluster, each with an equal part of it where ``parallel`` does not say how many replicas
    there are; with several, a model waits for the first replica as long as it takes, as others will end.  ``memory``:
    bytes that a replica needs, if somebody said so.  ``safe_point`` is called while answers are waited for, and may
    raise.
    """

    def __init__(
        self,
        parallel: Parallel,
        models: int = 1,
        memory: int | None = None,
        safe_point: Callable[[], None] = lambda: None,
    ) -> None:
        self.parallel = parallel
        self._models, self._memory, self._safe_point = models, memory, safe_point
        self._patience = PATIENCE if models == 1 else None
        self._model: Model | None = None
        self._replicas: Replicas | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    @contextmanager
    def executor(self, asked: Preparation, say: Callable[[str], None]) -> Iterator[Executor]:
        """Who answers for the model of ``asked``; ``say`` gets a line about replicas that die or are waited for."""
        if self.parallel.here:
            yield InProcess(asked)
            return
        if self._model is not asked.model:
            self._end()  # what it holds, another model may need
            self._replicas = Replicas(self._crew(asked.model), Identity.of(asked.model), self._patience)
            self._model = asked.model
        assert self._replicas is not None
        self._replicas.begin(say, self._safe_point)
        yield Distributed(asked, self._replicas)

    def _end(self) -> None:
        if self._replicas is not None:
            self._replicas.crew.end()
        self._replicas = self._model = None

    def _crew(self, model: Model) -> Crew:
        workers = self.parallel.workers
        if model.device == SERVER:
            raise UsageError(f"{model.name} is computed by its server, which needs no further workers; leave them out")
        if (recipe := model.recipe) is None:
            raise ModelError(f"{model.name} is in memory alone; pass a folder or a name, so that workers can load it")
        if self.parallel.kind == "ray":
            from choicewise.running.ray import RayCrew

            return RayCrew.of(model, recipe, workers, self._models, self._memory)
        return LocalCrew(recipe, workers or 1, _devices(model))


def _devices(model: Model) -> list[str]:
    """All devices of this machine that are like the one that was taken for ``model`` because nobody named one."""
    if model.recipe is None or model.recipe.options.get("device") or not model.device.startswith("cuda"):
        return []
    import torch

    return [f"cuda:{index}" for index in range(torch.cuda.device_count())]


@dataclass
class _Open:
    """A block under way, and its shards that were not taken yet, by number."""

    ready: Ready
    questions: int
    numbers: deque[int]


BEAT = 0.5
"""Seconds to wait for something to happen, at most."""


@dataclass
class _Asked:
    shard: Shard
    deaths: int = 0


@dataclass
class Replicas:
    """Hands shards to the replicas of a ``crew``, and keeps their answers until they are taken.

    ``own``: what the driver itself knows of the model; a replica that loaded another one gets nothing to answer.
    ``patience``: seconds to wait for the first replica where the crew lacks something; None: for as long as it takes.
    """

    crew: Crew
    own: Identity
    patience: float | None = PATIENCE
    answered: dict[int, Answered] = field(default_factory=dict)
    _shards: dict[int, _Asked] = field(default_factory=dict)
    _waiting: deque[int] = field(default_factory=deque)
    _members: dict[int, list[int]] = field(default_factory=dict)
    """Of every replica that is there, or being started, the shards that it has."""
    _loaded: set[int] = field(default_factory=set)
    _started: int = 0
    _refused: int = 0
    _submitted: int = 0
    _deaths: int = 0
    _stillborn: int = 0

    def begin(self, say: Callable[[str], None], safe_point: Callable[[], None] = lambda: None) -> None:
        """Begin a run, without what an earlier one asked and did not wait for.

        ``say`` gets a line when a replica dies, is refused or is waited for.  ``safe_point`` is called now and then,
        and may raise.
        """
        self.answered.clear()
        self._waiting.clear()
        self._shards.clear()
        self._say, self._safe_point = say, safe_point
        self._began = self._said = monotonic()

    @property
    def wants(self) -> bool:
        """Whether further shards should be submitted, so that no replica has to wait."""
        return len(self._waiting) < AHEAD * self.crew.size and len(self.answered) < LATE * self.crew.size

    def submit(self, shard: Shard) -> int:
        """Have a shard answered; its number."""
        number, self._submitted = self._submitted, self._submitted + 1
        self._shards[number] = _Asked(shard)
        self._waiting.append(number)
        return number

    def advance(self, seconds: float = BEAT) -> None:
        """Start replicas that are missing, hand out shards, and wait at most so long for something to happen.

        ModelError where no replica can be had, or a shard can't be answered.
        """
        self._safe_point()
        self.staff()
        self._hand_out()
        for member, happened in self.crew.wait(seconds):
            if member in self._members:
                self._take(member, happened)
        self._hand_out()
        if self._loaded:
            self._began = self._said = monotonic()
        else:
            self._complain()

    def staff(self) -> None:
        """Start replicas until there are as many as there should be."""
        while len(self._members) < self.crew.size - self._refused:
            self._members[self._started] = []
            self.crew.start(self._started)
            self._started += 1

    def _hand_out(self) -> None:
        for round_ in range(AHEAD):  # one for each before a second for any, and none where few are left
            for member in sorted(self._loaded):
                if len(self._waiting) > round_ * len(self._loaded) and len(self._members[member]) <= round_:
                    number = self._waiting.popleft()
                    self._members[member].append(number)
                    self.crew.ask(member, number, self._shards[number].shard)

    def _take(self, member: int, happened: Happened) -> None:
        match happened:
            case Identity():
                if differences := happened.differences(self.own):
                    reason = f"has another model under the same name ({'; '.join(differences)})"
                    self._refuse(member, ReplicasLost(f"the replica on {happened.host} {reason}"))
                else:
                    self._loaded.add(member)
                    self._stillborn = 0
            case Answered(number=number):
                self._deaths = 0
                self._members[member].remove(number)
                if self._shards.pop(number, None) is not None:
                    self.answered[number] = happened
            case Refused(error=error):
                if member in self._loaded:
                    raise error
                self._refuse(member, error)
            case Lost(reason=reason):
                self._lose(member, reason)

    def _refuse(self, member: int, error: Exception) -> None:
        """Go on without a replica that could not be used, and without another in its place."""
        self._refused += 1
        self._drop(member)
        if not self._members:
            raise error
        self._say(f"{error}; the run goes on without it")

    def _lose(self, member: int, reason: str) -> None:
        """Put back what a dead replica had; the first of it may be what killed it."""
        asked = [number for number in self._members[member] if number in self._shards]
        self._waiting.extendleft(reversed(asked))
        self._stillborn += member not in self._loaded
        self._deaths += 1
        if asked:
            first = self._shards[asked[0]]
            first.deaths += 1
            if first.deaths >= DEATHS:
                raise ReplicasLost(f"{DEATHS} replicas died over the same questions; the last one: {reason}")
        if self._deaths >= max(DEATHS, 2 * self.crew.size):
            raise ReplicasLost(f"{self._deaths} replicas died one after the other; the last one: {reason}")
        if self._stillborn >= DEATHS:
            self._stillborn = 0
            start = f"{DEATHS} replicas died before they had loaded the model"
            self._refuse(member, ReplicasLost(f"{start}; the last one: {reason}"))
        else:
            self._drop(member)
            self._say(f"a replica died ({reason}); what it was asked is asked again")

    def _drop(self, member: int) -> None:
        self._loaded.discard(member)
        del self._members[member]
        self.crew.end_member(member)

    def _complain(self) -> None:
        """Say what is waited for, and end where that has taken too long."""
        now = monotonic()
        if now - self._said < PAUSE:
            return
        self._said = now
        if (lacking := self.crew.lacking()) is None:
            self._began = now  # a replica is being loaded, which may take long
            return
        if self.patience is not None and now - self._began >= self.patience:
            raise ReplicasLost(f"no replica could start within {self.patience:.0f} s: {lacking}")
        self._say(f"waiting for the first replica: {lacking}")


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


AHEAD = 2
"""Shards that a replica has at most: the one that it computes, and the next, so that it never waits."""

DEATHS = 3
"""Replicas that may die over one shard, or before any answer, until the run ends with the reason.  After so many that
died before they had loaded the model there is one fewer: it would be started on the same bad node for ever."""

PAUSE = 10.0
"""Seconds between two lines that say what is waited for."""

LATE = 16
"""Answered shards per replica that may wait until those before them are answered."""


class ReplicasLost(ModelError):
    """The machines are the reason that nothing is answered, or the model is too much for them."""


KINDS = ("local", "ray")


@dataclass(frozen=True)
class Parallel:
    """``kind``: ``local`` for this machine, ``ray`` for a Ray cluster.  ``workers``: replicas of the model.

    None: one that is this process, or on a cluster as many as it has room for.  UsageError for what there is not.
    """

    kind: str = "local"
    workers: int | None = None

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise UsageError(f"executor is {self.kind!r}; it must be one of {', '.join(KINDS)}")
        if self.workers is not None and self.workers < 1:
            raise UsageError(f"workers is {self.workers}; it must be at least 1, or left out")

    @property
    def here(self) -> bool:
        """Whether this process is the one that computes."""
        return self.kind == "local" and self.workers in (None, 1)

    def loading(self, device: str | None) -> dict[str, Any]:
        """Options of load_model for a model that is to compute on ``device``, or on what there is."""
        if self.kind == "local":
            return {"device": device}
        from choicewise.running.ray import cluster_device

        return {"device": device or cluster_device(), "elsewhere": True}


ONE_PROCESS = Parallel()
"""All work in this process."""
