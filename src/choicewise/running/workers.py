"""Worker processes (futures).

They are started as programs, not forked or spawned, so that a script that evaluates is not run again in each of them.
"""

from __future__ import annotations

import os
import platform
import socket
import sys
import traceback
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, fields, replace
from multiprocessing.connection import Connection, wait
from pathlib import Path
from queue import SimpleQueue
from subprocess import DEVNULL, Popen, TimeoutExpired
from threading import Thread
from time import monotonic
from typing import Any, Protocol, Self

import pyarrow as pa

from choicewise import __version__
from choicewise.errors import ChoicewiseError, ModelError, UsageError
from choicewise.models.footprint import Footprint
from choicewise.models.load import load_model
from choicewise.models.local.devices import AUTO, devices_of
from choicewise.models.local.folder_model import footprint_of
from choicewise.models.model import SERVER, Model, Recipe, SelfCheck
from choicewise.records import OBSERVATIONS
from choicewise.requests.ask import BlockQuestion
from choicewise.requests.blocks import Block
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
from choicewise.running.work import observe
from choicewise.store.folder import Keys
from choicewise.store.tables import make_table

PATIENCE = 60.0
"""Seconds to wait for the first replica where nothing is free for it."""


class Workforce:
    """The replicas that ``parallel`` asks for, started when a model is first asked; they end with the ``with``.

    ``place``: that of the model, where several compute at once on a cluster.  ``patience``: seconds to wait for the
    first where nothing is free; None: for as long as it takes.  ``safe_point`` is called while answers are waited for,
    and may raise.
    """

    def __init__(
        self,
        parallel: Parallel,
        place: Place | None = None,
        patience: float | None = PATIENCE,
        safe_point: Callable[[], None] = lambda: None,
    ) -> None:
        self.parallel = parallel
        self._place, self._patience, self._safe_point = place, patience, safe_point
        self._model: Model | None = None
        self._placed: Model | None = None
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
            identity, patient = Identity.of(asked.model), self._is_patient
            self._replicas = Replicas(self._crew(asked.model), identity, self._patience, patient)
            self._model = asked.model
        assert self._replicas is not None
        self._replicas.begin(say, self._safe_point)
        yield Distributed(asked, self._replicas)

    def _is_patient(self) -> bool:
        return self._place is not None and self._place.patient

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

            self._placed = self._placed or model  # a copy of it in another dtype needs another place
            return RayCrew.of(model, recipe, workers, self._place if self._placed is model else None)

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


class Crew(Protocol):
    """Replicas by number, each in a process of its own."""

    @property
    def size(self) -> int:
        """How many there should be; it may change."""

    def start(self, member: int) -> None:
        """Begin to start replica ``member`` (a number that was not used before); what it loaded is reported later."""

    def ask(self, member: int, number: int, shard: Shard) -> None:
        """Send shard ``number`` to a replica, which answers one after the other."""

    def wait(self, seconds: float) -> Sequence[tuple[int, Happened]]:
        """What happened to which replicas since the last call; waits at most so long for something to happen."""

    def end_member(self, member: int) -> None:
        """Let one replica go."""

    def lacking(self) -> str | None:
        """What replicas wait for that were started, in words: resources that are not free; None where nothing."""

    def end(self) -> None:
        """Let all of them go; nothing more is reported."""


@dataclass(frozen=True)
class Identity:
    """What a replica loaded, and where: the driver compares it with its own."""

    digest: str
    dtype: str
    window: int
    version: str
    host: str = ""

    @classmethod
    def of(cls, model: Model) -> Identity:
        """That of ``model`` in this process."""
        return cls(model.digest, model.dtype, model.window, __version__, platform.node())

    def differences(self, own: Identity) -> list[str]:
        """What it is otherwise than ``own``, in words; the host may be another."""
        words = {"digest": "weights or configuration", "dtype": "dtype", "window": "window", "version": "Choicewise"}
        pairs = [(what, getattr(self, name), getattr(own, name)) for name, what in words.items()]
        return [f"{what}: {_short(there)} there, {_short(here)} here" for what, there, here in pairs if there != here]


@dataclass(frozen=True)
class Answered:
    """The ``observations`` of shard ``number``, as a table of the run folder.

    ``computed``: input tokens for it, without those of a self-check; None where they are not counted.
    """

    number: int
    observations: pa.Table
    computed: int | None
    selfcheck: SelfCheck | None


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
    While ``patient`` says so, waiting does not count.
    """

    crew: Crew
    own: Identity
    patience: float | None = PATIENCE
    patient: Callable[[], bool] = lambda: False
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
        if self.patient():
            self._began = now
        elif self.patience is not None and now - self._began >= self.patience:
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


_MODULE = "choicewise.running.workers"
_END_SECONDS = 5.0


class LocalCrew:
    """``size`` replicas of the model of a ``recipe``, spread over ``devices`` where any are named.

    Each gets its part of the cores, unless OMP_NUM_THREADS says how many.
    """

    def __init__(self, recipe: Recipe, size: int, devices: Sequence[str] = ()) -> None:
        self.size = size
        self._recipe, self._devices = recipe, devices
        self._processes: dict[int, Popen[bytes]] = {}
        self._connections: dict[int, Connection] = {}
        self._device: dict[int, str] = {}

    def start(self, member: int) -> None:
        """Begin to start replica ``member``."""
        ours, theirs = socket.socketpair()
        threads = str(max(1, (os.cpu_count() or 1) // self.size))
        own = os.pathsep.join(path for path in sys.path if path)  # it finds the same modules as this process
        environment = {"OMP_NUM_THREADS": threads, **os.environ, "PYTHONPATH": own}
        command = [sys.executable, "-P", "-m", _MODULE, str(theirs.fileno())]
        # In a session of its own: Ctrl-C is for the driver, which ends them.  What a model prints is no result.
        with theirs:
            process = Popen(
                command,
                stdin=DEVNULL,
                stdout=DEVNULL,
                env=environment,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
        self._processes[member] = process
        self._connections[member] = Connection(ours.detach())
        device = None
        if self._devices:
            taken = list(self._device.values())
            device = self._device[member] = min(self._devices, key=taken.count)
        self._send(member, (self._recipe, device))

    def ask(self, member: int, number: int, shard: Shard) -> None:
        """Send shard ``number`` to a replica."""
        self._send(member, (number, shard))

    def _send(self, member: int, message: object) -> None:
        with suppress(OSError):  # it is gone, as wait() says
            self._connections[member].send(message)

    def wait(self, seconds: float) -> list[tuple[int, Happened]]:
        """What happened to which replicas."""
        happened: list[tuple[int, Happened]] = []
        spoken = wait(list(self._connections.values()), seconds)
        for member, connection in self._connections.items():
            if connection not in spoken:
                continue
            try:
                happened.append((member, connection.recv()))
            except (EOFError, OSError):  # half a message as well
                happened.append((member, Lost(self._ending(member))))
        return happened

    def _ending(self, member: int) -> str:
        process = self._processes[member]
        try:
            code = process.wait(_END_SECONDS)
        except TimeoutExpired:
            return f"process {process.pid} hung up"
        how = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
        return f"process {process.pid} {how}"

    def end_member(self, member: int) -> None:
        """Let one replica go."""
        if (connection := self._connections.pop(member, None)) is not None:
            connection.close()
        self._device.pop(member, None)
        process = self._processes.pop(member)
        process.kill()  # it writes nothing
        process.wait()

    def lacking(self) -> str | None:
        """None: processes wait for nothing."""
        return None

    def end(self) -> None:
        """Let all of them go."""
        for member in list(self._processes):
            self.end_member(member)


def main() -> None:
    """Load the model that is named first, then answer shards until nobody is there to ask."""
    connection, inbox = Connection(int(sys.argv[1])), SimpleQueue[tuple[int, Shard]]()
    try:
        recipe, device = connection.recv()
    except (EOFError, OSError):
        return
    Thread(target=_read, args=(connection, inbox), daemon=True).start()
    with suppress(ConnectionError):  # the driver is gone
        try:
            replica = Replica(recipe, device)
            connection.send(replica.load())
            while True:
                connection.send(replica.answer(*inbox.get()))
        except ChoicewiseError as error:
            connection.send(Refused(error))
        except ConnectionError:
            raise
        except Exception as error:
            connection.send(Lost(last_words(error)))


def _read(connection: Connection, inbox: SimpleQueue[tuple[int, Shard]]) -> None:
    """Take what comes at once, so that the driver never waits until it is taken."""
    try:
        while True:
            inbox.put(connection.recv())
    except (EOFError, OSError):
        os._exit(0)  # the driver is gone: nobody waits for the answer that is being computed
    except BaseException:  # a shard that can't be read
        traceback.print_exc()
        os._exit(1)  # which the driver hears, and says


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


@dataclass(frozen=True)
class Lost:
    """A replica is gone, with all that it was asked; ``reason`` says in words what is known of it."""

    reason: str


@dataclass(frozen=True)
class Refused:
    """A replica said no, and would say so again: its model can't be loaded, or can't answer as asked."""

    error: ChoicewiseError


Happened = Identity | Answered | Refused | Lost
"""What a replica reports: first what it loaded, then answers; or why there will be none."""


class Replica:
    """The model of a ``recipe``, loaded here; errors as of load_model."""

    def __init__(self, recipe: Recipe, device: str | None = None) -> None:
        options: dict[str, Any] = dict(recipe.options)
        if device is not None:
            options["device"] = device
        self._model = load_model(recipe.name, **options)

    def load(self) -> Identity:
        """Have the weights in memory; what was loaded."""
        self._model.check(0)
        return Identity.of(self._model)

    def answer(self, number: int, shard: Shard) -> Answered:
        """The answers to all of a shard; errors as of the model."""
        self._model.check(shard.depth)  # whose tokens no run counts
        before = self._model.computed
        rows = list(observe(self._model, shard.complete(self._model.tokenizer)))
        computed = None if before is None else (self._model.computed or 0) - before
        return Answered(number, make_table(OBSERVATIONS, rows), computed, self._model.check(0))


def last_words(error: Exception) -> str:
    """What a replica died of that nobody foresaw, and where, in one line; the whole of it is printed."""
    traceback.print_exception(error)
    words = traceback.format_exception_only(error)[-1].strip()
    place = traceback.extract_tb(error.__traceback__)[-1:]
    return words + "".join(f", {Path(frame.filename).name} line {frame.lineno}" for frame in place)


def _short(value: object) -> object:
    return value[:12] if isinstance(value, str) else value


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

Node = Mapping[str, float]
"""What a node has, by the names that Ray has for it: CPU, GPU, memory (bytes)."""


@dataclass(frozen=True, order=True)
class Needs:
    """Of one node: cores, GPUs, and bytes of main ``memory``."""

    gpus: int
    cpus: int
    memory: int

    @property
    def amounts(self) -> dict[str, int]:
        """What is needed at all, by Ray's names."""
        own = {"CPU": self.cpus, "GPU": self.gpus, "memory": self.memory}
        return {name: amount for name, amount in own.items() if amount}

    def lacking(self, there: Node, state: str = "free") -> str:
        """Of what there is less than needed, in words; empty where there is enough."""
        short = {name: amount for name, amount in self.amounts.items() if there.get(name, 0) < amount}
        have = {name: _amount(name, there.get(name, 0), bare=True) for name in short}
        return " and ".join(f"{_amount(name, amount)} ({have[name]} {state})" for name, amount in short.items())

    def times(self, node: Node) -> int:
        """How many replicas a node has room for when nothing else is there."""
        return min((int(node.get(name, 0) // amount) for name, amount in self.amounts.items()), default=1)


class Place(Protocol):
    """What one of several models has of a cluster."""

    needs: Needs
    """Of one replica."""

    def replicas(self) -> int:
        """How many there may be at the moment."""

    def settle(self, there: bool) -> None:
        """Some replica has got what it needs and is ``there``, or none is any more."""

    @property
    def patient(self) -> bool:
        """Whether a replica should wait for room for as long as it takes, as others will make room."""


def slots_of(nodes: Sequence[Node]) -> int:
    """The GPUs of a cluster, or its cores where it has none: so many models can compute at once."""
    return max(1, int(_sum(nodes, "GPU") or _sum(nodes, "CPU")))


def in_words(nodes: Sequence[Node]) -> str:
    """What all nodes have together: ``2 nodes, 8 GPUs, 64 CPUs and 500.0 GB of memory``."""
    amounts = [_amount(name, amount) for name in ("GPU", "CPU", "memory") if (amount := _sum(nodes, name))]
    return " and ".join([", ".join([_amount("node", len(nodes)), *amounts[:-1]]), *amounts[-1:]])


def largest(replicas: Sequence[Needs]) -> Needs:
    """Of each the most that any of them needs."""
    return Needs(*(max(getattr(needs, field.name) for needs in replicas) for field in fields(Needs)))


def fit(replicas: Iterable[Needs], nodes: Iterable[Node]) -> bool:
    """Whether all ``replicas`` have room on ``nodes`` at once, the largest first, each where room is found first."""
    free = [dict(node) for node in nodes]
    for needs in sorted(replicas, reverse=True):
        node = next((node for node in free if needs.times(node)), None)
        if node is None:
            return False
        for name, amount in needs.amounts.items():
            node[name] -= amount
    return True


def needs_of(
    model: Model, nodes: Sequence[Node], workers: int | None, gpu_bytes: int | None, memory: int | None = None
) -> Needs:
    """What a replica of ``model`` takes of a cluster with these ``nodes``, where there are to be so many ``workers``.

    A model on GPUs takes as many as its device names, or as few as hold it; where a GPU's memory ``gpu_bytes`` is not
    known, one, or with the device ``auto`` all of a node.  On a CPU it takes its part of the cores.  ``memory``: bytes
    that it needs where it computes, if somebody said so; else they are known from its files.  UsageError where no node
    has room for it.
    """
    footprint = footprint_of(model)
    if model.device == "cpu":
        needs = Needs(0, _cores(nodes, workers), memory or footprint.host)
    else:
        gpus = _gpus(model, footprint, nodes, gpu_bytes, memory)
        needs = Needs(max(1, gpus), max(1, gpus), footprint.host)
    if not any(map(needs.times, nodes)):
        largest = max(nodes, key=lambda node: node.get("GPU" if needs.gpus else "CPU", 0), default={})
        raise UsageError(
            f"no node of the cluster has room for {model.name}: it needs {needs.lacking(largest, 'on the largest')}"
        )
    return needs


def _gpus(model: Model, footprint: Footprint, nodes: Sequence[Node], gpu_bytes: int | None, memory: int | None) -> int:
    """How many GPUs of one node a replica takes."""
    most = max((int(node.get("GPU", 0)) for node in nodes), default=0)
    if named := devices_of(model.device):
        return len(named)
    if gpu_bytes is None or not most:
        return max(1, most) if model.device == AUTO else 1
    gpus = footprint.devices(gpu_bytes, most) if memory is None else -(-memory // gpu_bytes)
    if gpus is None or gpus > most:
        has = "the GPU of a node has" if most == 1 else f"the {most} GPUs of a node have together"
        raise UsageError(
            f"{model.name} needs {_amount('memory', memory or footprint.device)}, more than {has}"
            f" ({_amount('memory', gpu_bytes * most, bare=True)}); take a narrower dtype, or nodes with more"
        )
    return gpus


def _cores(nodes: Sequence[Node], workers: int | None) -> int:
    """The most cores that each of so many ``workers`` can have at once; 1 where there are not even as many."""
    if workers is None:
        return 1
    cores = [int(node.get("CPU", 0)) for node in nodes]
    counts = range(max(cores, default=1), 1, -1)
    return next((most for most in counts if sum(own // most for own in cores) >= workers), 1)


def _sum(nodes: Iterable[Node], name: str) -> float:
    return sum(node.get(name, 0) for node in nodes)


def _amount(name: str, amount: float, bare: bool = False) -> str:
    """``12.0 GB of memory``, ``2 GPUs``; ``bare``: without what it is of."""
    if name == "memory":
        return f"{amount / 1e9:.1f} GB" + ("" if bare else " of memory")
    return f"{amount:g}" if bare else f"{amount:g} {name}" + ("" if amount == 1 else "s")


if __name__ == "__main__":
    main()
