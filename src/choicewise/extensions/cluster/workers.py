"""Who answers the blocks of a run: the model of this process, or its replicas, while blocks are prepared."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import takewhile
from threading import Event
from time import monotonic
from typing import Any, Protocol, Self, TypeAlias

import pyarrow as pa

from choicewise.data.dataset import Dataset
from choicewise.engine import DEVICE_TOKENS, ENGINE, SERVER, Shard, cut_shards, shard_tokens
from choicewise.errors import ModelError, UsageError
from choicewise.extensions.cluster.replica import DEATHS, Answered, Identity, Replica, ReplicaDied, process_replicas
from choicewise.extensions.cluster.shards import Assignment
from choicewise.models.model import Model, SelfCheck
from choicewise.records import OBSERVATIONS, ObservationRow, RequestRow, SpanRow
from choicewise.requests.blocks import Block, prepare_block
from choicewise.requests.render import RenderedRequests
from choicewise.requests.request import BlockQuestion, PreparedBlock
from choicewise.running.observe import observe
from choicewise.store.folder import TokenCounter
from choicewise.store.tables import make_table
from choicewise.tokens.tokenizer import Tokenizer

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


@dataclass(frozen=True)
class Preparation:
    """What blocks are prepared from, as :func:`~choicewise.requests.blocks.prepare_block` takes it."""

    model: Model
    data: Dataset
    rendered: Sequence[RenderedRequests]
    skip_bad_items: bool

    @contextmanager
    def ready(self, blocks: Sequence[Block], tokens: int | None) -> Generator[_Upcoming, None, None]:
        """The blocks, each prepared while the one before it is used; the first one is begun at once.

        ``tokens``: of a shard at least.  When the ``with`` ends nobody waits any more, and the thread stops at its
        next prompt.
        """
        with ThreadPoolExecutor(1) as thread, _Awaited(self.model) as awaited:
            yield _Upcoming(thread.submit(self._prepare, block, awaited, tokens) for block in blocks)

    def _prepare(self, block: Block, awaited: _Awaited, tokens: int | None) -> _Ready:
        prepared = prepare_block(self.data, block, awaited, self.skip_bad_items, self.rendered)
        return _Ready(block, prepared, list(cut_shards(prepared.wanted, tokens)))


def rows_of(observed: Observed) -> Iterator[ObservationRow]:
    """The rows of a table, or the one row."""
    if isinstance(observed, pa.Table):
        columns = [column.to_pylist() for column in observed.columns]
        yield from (ObservationRow(*values) for values in zip(*columns, strict=True))
    else:
        yield observed


Observed: TypeAlias = ObservationRow | pa.Table
"""One observation, or those of a whole shard as a table."""


@dataclass(frozen=True)
class BlockResult:
    """The rows of one block.

    ``tokens_asked``: input tokens when every choice of every protocol is a sequence of its own.  ``observations`` come
    as they are answered, one per question; ``questions`` counts them, and ``shards`` in each part that is asked at
    once, where the parts are asked one after the other.
    """

    block: Block
    tokens_asked: int
    requests: Sequence[RequestRow]
    spans: Sequence[SpanRow]
    questions: int
    observations: Iterator[Observed]
    shards: Sequence[int] = ()


class Executor(TokenCounter, Protocol):
    """Who answers the blocks of a run, in this process or elsewhere."""

    @property
    def planned(self) -> int | None:
        """Input tokens to compute for all that was asked so far; None where they are not counted."""

    @property
    def selfcheck(self) -> SelfCheck | None:
        """The deepest self-check that was made so far; None before the first, and where there is none."""

    def run(self, blocks: Sequence[Block], assignment: Assignment) -> Generator[BlockResult, None, None]:
        """One result per block; its observations are used up before the next result is taken.

        Who takes no more results closes the generator, which ends all that is under way.  ``assignment`` says what of a
        block is asked.
        """

    def observe(self, questions: Mapping[str, BlockQuestion]) -> Iterator[Observed]:
        """One observation per question, as they are answered."""


@dataclass
class _Asked:
    shard: Shard
    deaths: int = 0


class Pool:
    """The replicas that ``parallel`` asks for, started when a model is first asked; they end with the ``with``.

    ``models``: so many share a cluster, each with an equal part of it where ``parallel`` does not say how many replicas
    there are.  ``others``: their pools; while one of them computes, a model waits for its first replica as long as it
    takes.  ``memory``: bytes that a replica needs, if somebody said so.  ``safe_point`` is called while answers are
    waited for, and may raise.
    """

    def __init__(
        self,
        parallel: Parallel,
        models: int = 1,
        others: Collection[Pool] = (),
        memory: int | None = None,
        safe_point: Callable[[], None] = lambda: None,
    ) -> None:
        self.parallel = parallel
        self.answered: dict[int, Answered] = {}
        self._models, self._others, self._memory, self._safe_point = models, others, memory, safe_point
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

    @contextmanager
    def executor(self, asked: Preparation, say: Callable[[str], None]) -> Iterator[Executor]:
        """Who answers for the model of ``asked``; ``say`` gets a line about replicas that die or are waited for."""
        if self.parallel.here:
            yield _InProcess(asked)
            return
        if self._model is not asked.model:
            self._end()  # what it holds, another model may need
            self._replicas, self._lacking = self.replicas_of(asked.model)
            self._model = asked.model
        self._begin(say)
        yield _Distributed(asked, self)

    def replicas_of(self, model: Model) -> tuple[list[Replica], Callable[[], str | None]]:
        """The replicas of ``model``, and what tells which resources the first of them waits for, in words."""
        workers = self.parallel.workers
        if model.device == SERVER:
            raise UsageError(f"{model.name} is computed by its server, which needs no further workers; leave them out")
        if model.device == ENGINE:
            raise UsageError(
                f"{model.name} is computed by vLLM, which has workers of its own: leave them out, and name"
                " tensor_parallel_size in the model, as vllm:NAME,tensor_parallel_size=2"
            )
        if (recipe := model.recipe) is None:
            raise ModelError(f"{model.name} is in memory alone; pass a folder or a name, so that workers can load it")
        driver = Identity.of(model)
        if self.parallel.kind == "ray":
            from choicewise.extensions.cluster.ray import ray_replicas

            return ray_replicas(model, recipe, driver, workers, self._models, self._memory)
        return process_replicas(recipe, workers or 1, _devices(model), driver), lambda: None

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
        for round_ in range(AHEAD):  # one for each before a second for any, and none where few are left
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
                text = f"{DEATHS} replicas died before they had loaded the model; the last one: {died}"
                error: BaseException = ReplicasLost(text)
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
            raise ReplicasLost(f"{DEATHS} replicas died over the same questions; the last one: {error}")
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
            raise ReplicasLost(f"no replica could start within {PATIENCE:.0f} s: {lacking}")
        self._say(f"waiting for the first replica: {lacking}")


def _devices(model: Model) -> list[str]:
    """All devices of this machine that are like the one that was taken for ``model`` because nobody named one."""
    if model.recipe is None or model.recipe.options.get("device") or not model.device.startswith("cuda"):
        return []
    import torch

    return [f"cuda:{index}" for index in range(torch.cuda.device_count())]


@dataclass
class _InProcess:
    """Asks the model that ``asked`` names."""

    asked: Preparation

    @property
    def selfcheck(self) -> SelfCheck | None:
        """The model's own, as measured so far."""
        return self._model.check(0)

    @property
    def _model(self) -> Model:
        return self.asked.model

    @property
    def computed(self) -> int | None:
        """Input tokens computed so far; None where they are not counted."""
        return self._model.computed

    @property
    def requests(self) -> int:
        """Requests to a server so far; 0 for a model that runs here."""
        return getattr(self._model, "requests", 0)

    @property
    def unique(self) -> int:
        """Input tokens of the tree of all that was asked; 0 of models whose engine does not compute by it."""
        return getattr(self._model, "unique", 0)

    @property
    def planned(self) -> int | None:
        """Input tokens to compute for all that was asked so far; None where they are not counted."""
        return self._model.planned

    def run(self, blocks: Sequence[Block], assignment: Assignment) -> Generator[BlockResult, None, None]:
        """One result per block; the model is loaded while the first block is rendered."""
        if not blocks:
            return
        with self.asked.ready(blocks, _tokens(self._model, assignment)) as upcoming:
            self._model.check(0)
            for ready in upcoming:
                prepared = ready.prepared
                assigned = assignment.take(ready.block, ready.shards)
                self._model.check(prepared.deepest if assigned.new else 0)  # as if this process asked all of the run
                rows = prepared.inputs, prepared.requests, prepared.spans
                answers = self._answers(assigned.shards)
                if assignment.share is not None:  # a shard is written whole, so that a later one finds where it ends
                    answers = (make_table(OBSERVATIONS, list(observe(self._model, each))) for each in assigned.shards)
                sizes = [len(shard) for shard in assigned.shards]
                yield BlockResult(ready.block, *rows, sum(sizes), answers, sizes)

    def observe(self, questions: Mapping[str, BlockQuestion]) -> Iterator[Observed]:
        """One observation per question, as they are answered."""
        return self._answers(cut_shards(questions, shard_tokens(self._model.device)))

    def _answers(self, shards: Iterable[Mapping[str, BlockQuestion]]) -> Iterator[Observed]:
        for shard in shards:
            yield from observe(self._model, shard)


@dataclass(frozen=True)
class _Ready:
    """A block rendered and tokenized, and its questions in ``shards``, by key."""

    block: Block
    prepared: PreparedBlock
    shards: Sequence[Mapping[str, BlockQuestion]]


class _Upcoming:
    """Blocks that are prepared one ahead of the one that is taken; ``jobs`` are begun when they are drawn."""

    def __init__(self, jobs: Iterator[Future[_Ready]]) -> None:
        self._jobs = jobs
        self._job = next(jobs, None)

    def __iter__(self) -> Iterator[_Ready]:
        while (ready := self.take()) is not None:
            yield ready

    def take(self, wait: bool = True) -> _Ready | None:
        """The next block; None where there is none, or without ``wait`` where it is still being prepared."""
        if (job := self._job) is None or not (wait or job.done()):
            return None
        ready = job.result()
        self._job = next(self._jobs, None)
        return ready


class _Awaited:
    """What preparing needs to know of a model, for as long as somebody waits for what is prepared.

    After an error nobody does, and the thread that still renders and tokenizes stops at its next prompt.
    """

    def __init__(self, model: Model) -> None:
        self.window = model.window
        self._model = model
        self._ended = Event()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()

    @property
    def tokenizer(self) -> Tokenizer:
        """From texts to the model's tokens; CancelledError where nobody waits any more."""
        if self._ended.is_set():
            raise CancelledError
        return self._model.tokenizer


@dataclass
class _Open:
    """A block under way, and its shards that were not taken yet, by number."""

    ready: _Ready
    questions: int
    numbers: deque[int]


@dataclass
class _Distributed:
    """Prepares blocks as ``asked`` says, so far ahead that the replicas of a ``pool`` have always something to do.

    The tokens of shards that died with their replica are not counted.
    """

    asked: Preparation
    pool: Pool
    computed: int | None = 0
    selfcheck: SelfCheck | None = None
    requests: int = 0
    unique: int = 0
    planned: int | None = None
    _depth: int = 0
    _open: deque[_Open] = field(default_factory=deque)

    def run(self, blocks: Sequence[Block], assignment: Assignment) -> Generator[BlockResult, None, None]:
        """One result per block, in their order; later blocks are prepared and answered meanwhile."""
        if not blocks:
            return
        self.pool.start()  # they load their models while the first block is prepared
        with self.asked.ready(blocks, _tokens(self.asked.model, assignment)) as upcoming:
            while self._open or self._submit(upcoming.take(), assignment):
                block = self._open[0]
                rows = block.ready.prepared
                more = rows.inputs, rows.requests, rows.spans
                yield BlockResult(block.ready.block, *more, block.questions, self._answers(block, upcoming, assignment))
                self._open.popleft()

    def observe(self, questions: Mapping[str, BlockQuestion]) -> Iterator[pa.Table]:
        """One observation per question, a shard at a time."""
        waiting = iter(list(cut_shards(questions, shard_tokens(self.asked.model.device))))
        numbers: deque[int] = deque()
        more = True
        while more or numbers:
            while more and self.pool.wants:
                shard = next(waiting, None)
                more = shard is not None
                if shard is not None:
                    numbers.append(self._send(shard))
            yield from self._taken(numbers)

    def _submit(self, ready: _Ready | None, assignment: Assignment) -> bool:
        """Send what is to be asked of a block, which counts as asked from now on; False without a block."""
        if ready is None:
            return False
        assigned = assignment.take(ready.block, ready.shards)
        self._depth = max(self._depth, ready.prepared.deepest if assigned.new else 0)
        self._open.append(_Open(ready, sum(map(len, assigned.shards)), deque(map(self._send, assigned.shards))))
        return True

    def _send(self, shard: Mapping[str, BlockQuestion]) -> int:
        self._depth = max(self._depth, *(question.inputs for question in shard.values()))
        return self.pool.submit(Shard(shard, self._depth))

    def _answers(self, block: _Open, upcoming: _Upcoming, assignment: Assignment) -> Iterator[pa.Table]:
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
            self.selfcheck = replace(max(checks, key=lambda each: each.depth), noise=max(each.noise for each in checks))


def _tokens(model: Model, assignment: Assignment) -> int | None:
    """How many unique tokens a shard has at least; of a server, too, where several processes share the blocks."""
    return shard_tokens(model.device) or (None if assignment.share is None else DEVICE_TOKENS)


class ReplicasLost(ModelError):
    """The machines are the reason that nothing is answered, or the model is too much for them."""


_KINDS = ("local", "ray")


@dataclass(frozen=True)
class Parallel:
    """``kind``: ``local`` for this machine, ``ray`` for a Ray cluster.  ``workers``: replicas of the model.

    None: one that is this process, or on a cluster as many as it has room for.  UsageError for what there is not.
    """

    kind: str = "local"
    workers: int | None = None

    def __post_init__(self) -> None:
        if self.kind not in _KINDS:
            raise UsageError(f"executor is {self.kind!r}; it must be one of {', '.join(_KINDS)}")
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
        from choicewise.extensions.cluster.ray import cluster_device

        return {"device": device or cluster_device(), "elsewhere": True}


ONE_PROCESS = Parallel()
"""All work in this process."""
