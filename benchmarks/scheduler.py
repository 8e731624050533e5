"""The scheduler of the parallel executor, simulated: discrete events, no clock, the same result for the same seed.

One driver prepares the blocks of every job in order, one more than is asked for, and writes what comes back in the
same order, one thing at a time; replicas have two shards of a queue that it keeps filled; where replicas of several
jobs fit on the nodes they run at once.  A replica that dies loses what it had done of its shard, its shards go back to
the front of the queue, and it starts again.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from random import Random

from choicewise.extensions.cluster.workers import AHEAD

HOUR = 3600.0


@dataclass(frozen=True)
class Shard:
    """``tokens`` to compute, ``shared`` of which another shard computes too: the path from the root to its place."""

    tokens: int
    shared: int = 0


@dataclass(frozen=True)
class Job:
    """A model and what it is asked: ``blocks`` of shards, on at most ``replicas`` of so many ``gpus`` and ``memory``.

    A replica takes ``start`` seconds (importing, loading, the self-check), then ``speed`` tokens a second and
    ``overhead`` seconds a shard.  ``prepared``: tokens a second of this job that a driver prepares, its writing
    included.
    """

    name: str
    blocks: Sequence[Sequence[Shard]]
    replicas: int
    speed: float
    prepared: float
    start: float = 0.0
    overhead: float = 0.0
    gpus: int = 0
    memory: float = 0.0

    @property
    def tokens(self) -> int:
        """To compute where nothing dies."""
        return sum(shard.tokens for block in self.blocks for shard in block)

    @property
    def unique(self) -> int:
        """Those that no two shards have in common."""
        return sum(shard.tokens - shard.shared for block in self.blocks for shard in block)


@dataclass(frozen=True)
class Node:
    """A machine: GPUs and memory (GB) that replicas take; ``cpus`` bounds them where no GPU is asked for."""

    gpus: int = 0
    memory: float = float("inf")
    cpus: int = 10**6


@dataclass(frozen=True)
class Cluster:
    """``nodes``, and what the drivers and the replicas on them are like.

    ``begin``: seconds before a driver prepares its first block.  ``ahead``: shards for every replica that are prepared
    before they are needed; ``held``: those that it has at most, the one that it computes included.  ``writes``: part of
    a job's preparing time that its rows take on their way back.  ``sent``: bytes a token to a replica, over a link of
    ``bandwidth`` bytes a second.  ``failures``: deaths of one replica in an hour; ``restart``: seconds until its place
    is there again, before it starts.
    """

    nodes: Sequence[Node]
    begin: float = 0.0
    ahead: float = AHEAD
    held: int = AHEAD
    writes: float = 0.3
    sent: float = 8.0
    bandwidth: float = 1e9
    failures: float = 0.0
    restart: float = 30.0


@dataclass
class Outcome:
    """What became of it, in seconds and tokens.

    ``busy`` over all replicas, the lost work of dead ones left out; ``held``: from the moment a replica was given its
    place until it was taken back.  ``driver``: seconds that the driver worked.  ``lost``: tokens that died with a
    replica; ``shared``: those computed in more than one shard.
    """

    makespan: float = 0.0
    busy: float = 0.0
    held: float = 0.0
    driver: float = 0.0
    unique: int = 0
    shared: int = 0
    lost: float = 0.0
    deaths: int = 0
    most_waiting: int = 0
    finished: dict[str, float] = field(default_factory=dict)

    @property
    def utilisation(self) -> float:
        """Part of the replicas' time in which they compute what is kept."""
        return self.busy / self.held if self.held else 0.0

    @property
    def driver_share(self) -> float:
        """Part of the makespan in which the driver works; near 1 it is what the cluster waits for."""
        return self.driver / self.makespan if self.makespan else 0.0

    @property
    def computed(self) -> float:
        """Tokens computed over unique ones."""
        return (self.unique + self.shared + self.lost) / self.unique if self.unique else 1.0


class _Replica:
    """One model, loaded on a node; of its ``shards`` (block and shard) the first is under way since ``since``.

    ``life`` changes when it dies, so that what was to happen to it does not.
    """

    def __init__(self, work: _Work, node: int, given: float) -> None:
        self.work, self.node, self.given = work, node, given
        self.shards: deque[tuple[int, Shard]] = deque()
        self.since, self.takes = 0.0, 0.0
        self.life, self.loaded, self.gone = 0, False, False


class _Work:
    """A job under way: shards that wait (block and shard), how many of each block are missing, what is written.

    Blocks are ``prepared``, then ``submitted``: at most one lies between.
    """

    def __init__(self, job: Job) -> None:
        self.job = job
        self.waiting: deque[tuple[int, Shard]] = deque()
        self.missing = [len(block) for block in job.blocks]
        self.prepared = self.submitted = self.written = 0
        self.replicas: list[_Replica] = []


def simulate(jobs: Sequence[Job], cluster: Cluster, seed: int = 0) -> Outcome:
    """Run ``jobs`` in order, as many at once as fit.  ValueError for a replica that no node has room for."""
    return _Simulation(jobs, cluster, seed).run()


class _Simulation:
    def __init__(self, jobs: Sequence[Job], cluster: Cluster, seed: int) -> None:
        self.cluster, self.random = cluster, Random(seed)
        self.now, self._order = 0.0, count()
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._free = [[node.gpus, node.memory, node.cpus] for node in cluster.nodes]
        self._later = deque(_Work(job) for job in jobs)
        self._under_way: list[_Work] = []
        self._driving = True
        self.outcome = Outcome(unique=sum(job.unique for job in jobs))
        self.outcome.shared = sum(job.tokens for job in jobs) - self.outcome.unique
        for job in jobs:
            if not any(_fits(job, [node.gpus, node.memory, node.cpus]) for node in cluster.nodes):
                raise ValueError(
                    f"{job.name} needs {job.gpus} GPUs and {job.memory:g} GB, which no node has"
                )

    def run(self) -> Outcome:
        self._at(self.cluster.begin, self._begin)
        while self._events:
            self.now, _, happens = heapq.heappop(self._events)
            happens()
        self.outcome.makespan = max(self.outcome.finished.values(), default=0.0)
        return self.outcome

    def _at(self, after: float, happens: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self.now + after, next(self._order), happens))

    def _begin(self) -> None:
        self._driving = False
        self._place()

    # Places on the nodes

    def _place(self) -> None:
        """Give jobs under way, then the next ones, what is free; a job that does not fit holds up those after it."""
        for work in self._under_way:
            self._add_replicas(work)
        while self._later:
            self._add_replicas(self._later[0])
            if not self._later[0].replicas:
                break
            self._under_way.append(self._later.popleft())
        self._drive()

    def _add_replicas(self, work: _Work) -> None:
        for index, free in enumerate(self._free):
            while len(work.replicas) < work.job.replicas and _fits(work.job, free):
                _take(work.job, free, 1)
                replica = _Replica(work, index, self.now)
                work.replicas.append(replica)
                self._start(replica)

    def _start(self, replica: _Replica) -> None:
        if replica.gone:
            return
        life = replica.life
        self._at(replica.work.job.start, partial(self._is_loaded, replica, life))
        if self.cluster.failures:
            self._at(
                self.random.expovariate(self.cluster.failures / HOUR),
                partial(self._dies, replica, life),
            )

    def _is_loaded(self, replica: _Replica, life: int) -> None:
        if replica.life == life:
            replica.loaded = True
            self._hand_out(replica.work)

    def _dies(self, replica: _Replica, life: int) -> None:
        if replica.life != life:
            return
        replica.life, replica.loaded = replica.life + 1, False
        self.outcome.deaths += 1
        if replica.shards:
            done = min(1.0, (self.now - replica.since) / replica.takes)
            self.outcome.lost += done * replica.shards[0][1].tokens
            replica.work.waiting.extendleft(reversed(replica.shards))
            replica.shards.clear()
            self._hand_out(replica.work)
        self._at(self.cluster.restart, partial(self._start, replica))

    def _finish(self, work: _Work) -> None:
        """A job is written: its places go to others."""
        self.outcome.finished[work.job.name] = self.now
        self._under_way.remove(work)
        for replica in work.replicas:
            replica.life, replica.gone = replica.life + 1, True
            _take(work.job, self._free[replica.node], -1)
            self.outcome.held += self.now - replica.given
        self._place()

    # Shards

    def _hand_out(self, work: _Work) -> None:
        """A shard for every replica that has none, then a second one, so that none waits; not where few are left."""
        loaded = [replica for replica in work.replicas if replica.loaded]
        for held in range(self.cluster.held):
            for replica in loaded:
                if len(work.waiting) > held * len(loaded) and len(replica.shards) <= held:
                    replica.shards.append(work.waiting.popleft())
                    if len(replica.shards) == 1:
                        self._compute(replica)
        self._drive()

    def _compute(self, replica: _Replica) -> None:
        job, tokens, life = replica.work.job, replica.shards[0][1].tokens, replica.life
        carried = tokens * self.cluster.sent / self.cluster.bandwidth
        replica.since, replica.takes = self.now, job.overhead + carried + tokens / job.speed
        self._at(replica.takes, partial(self._answers, replica, life))

    def _answers(self, replica: _Replica, life: int) -> None:
        if replica.life != life:
            return
        block, _ = replica.shards.popleft()
        replica.work.missing[block] -= 1
        self.outcome.busy += replica.takes
        if replica.shards:
            self._compute(replica)
        self._hand_out(replica.work)

    # The driver

    def _drive(self) -> None:
        """Let an idle driver write the next block that is complete, or else prepare one."""
        for work in self._under_way:
            self._submit(work)
        if self._driving:
            return
        for work in self._under_way:
            if work.written < work.submitted and not work.missing[work.written]:
                self._busy(
                    self._seconds(work, work.written) * self.cluster.writes,
                    partial(self._is_written, work),
                )
                return
        open_ = [
            work for work in self._under_way if work.submitted == work.prepared < len(work.missing)
        ]
        if open_:
            work = min(open_, key=lambda each: len(each.waiting) / len(each.replicas))
            self._busy(
                self._seconds(work, work.prepared) * (1 - self.cluster.writes),
                partial(self._is_prepared, work),
            )

    @staticmethod
    def _seconds(work: _Work, block: int) -> float:
        return (
            sum(shard.tokens - shard.shared for shard in work.job.blocks[block]) / work.job.prepared
        )

    def _busy(self, seconds: float, then: Callable[[], None]) -> None:
        self._driving = True
        self.outcome.driver += seconds

        def ends() -> None:
            self._driving = False
            then()

        self._at(seconds, ends)

    def _is_prepared(self, work: _Work) -> None:
        work.prepared += 1
        self._drive()

    def _submit(self, work: _Work) -> None:
        """Queue the block that is prepared where too few shards wait."""
        if work.submitted < work.prepared and len(work.waiting) < self.cluster.ahead * len(
            work.replicas
        ):
            work.waiting += ((work.submitted, shard) for shard in work.job.blocks[work.submitted])
            work.submitted += 1
            waiting = sum(len(each.waiting) for each in self._under_way)
            self.outcome.most_waiting = max(self.outcome.most_waiting, waiting)
            self._hand_out(work)

    def _is_written(self, work: _Work) -> None:
        work.written += 1
        if work.written == len(work.missing):
            self._finish(work)
        self._drive()


def _fits(job: Job, free: Sequence[float]) -> bool:
    return free[0] >= job.gpus and free[1] >= job.memory and free[2] >= 1


def _take(job: Job, free: list[float], times: int) -> None:
    free[0] -= times * job.gpus
    free[1] -= times * job.memory
    free[2] -= times
