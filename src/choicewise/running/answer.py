"""Who answers the blocks of a run, and how blocks are prepared meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from threading import Event
from typing import Any, Final, Protocol, Self, TypeAlias

import pyarrow as pa

from choicewise.data.dataset import Dataset
from choicewise.engine import DEVICE_TOKENS, cut_shards
from choicewise.errors import UsageError
from choicewise.models.kinds import model_kind, shard_tokens_of
from choicewise.models.model import Model, SelfCheck
from choicewise.ports import Executor, Sharing, all_of, find
from choicewise.records import OBSERVATIONS, ObservationRow, RequestRow, SpanRow
from choicewise.requests.blocks import Block, prepare_block
from choicewise.requests.render import RenderedRequests
from choicewise.requests.request import BlockPrompt, PreparedBlock
from choicewise.running.observe import observe
from choicewise.running.shards import Assignment
from choicewise.store.folder import TokenCounter
from choicewise.store.tables import make_table
from choicewise.tokens.tokenizer import Tokenizer

Observed: TypeAlias = ObservationRow | pa.Table
"""One observation, or those of a whole shard as a table."""


def rows_of(observed: Observed) -> Iterator[ObservationRow]:
    """The rows of a table, or the one row."""
    if isinstance(observed, pa.Table):
        columns = [column.to_pylist() for column in observed.columns]
        yield from (ObservationRow(*values) for values in zip(*columns, strict=True))
    else:
        yield observed


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


class Respondent(TokenCounter, Protocol):
    """Who answers the blocks of a run, in this process or elsewhere."""

    @property
    def planned(self) -> int | None:
        """Input tokens to compute for all that was asked so far; None where they are not counted."""

    @property
    def selfcheck(self) -> SelfCheck | None:
        """The deepest self-check that was made so far; None before the first, and where there is none."""

    def run(
        self, blocks: Sequence[Block], assignment: Assignment
    ) -> Generator[BlockResult, None, None]:
        """One result per block; its observations are used up before the next result is taken.

        Who takes no more results closes the generator, which ends all that is under way.  ``assignment`` says what of a
        block is asked.
        """

    def observe(self, questions: Mapping[str, BlockPrompt]) -> Iterator[Observed]:
        """One observation per question, as they are answered."""


class Pool(AbstractContextManager["Pool"], Protocol):
    """Where the runs of one model are answered, one after the other; all that it started ends with the ``with``."""

    @property
    def computes(self) -> bool:
        """Whether the model is loaded somewhere else than in this process."""

    def respondent(
        self, asked: Preparation, say: Callable[[str], None]
    ) -> AbstractContextManager[Respondent]:
        """Who answers for the model of ``asked``; ``say`` gets lines about waits and failures."""


class OneProcess:
    """The pool that is this process alone."""

    computes: Final = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """There is nothing to end."""

    def respondent(
        self, asked: Preparation, say: Callable[[str], None]
    ) -> AbstractContextManager[Respondent]:
        """The model of this process."""
        return nullcontext(InProcess(asked))


class ThisProcess(Executor):
    """The executor that needs no extension."""

    name = "local"

    def pool(self, workers: int | None, sharing: Sharing) -> Pool:
        """Return this process."""
        return OneProcess()


def executor_of(name: str, workers: int | None) -> Executor:
    """Return the executor of that name: this process where one worker is enough, else that of an extension.

    Raises UsageError where there is none of that name, and for less than one worker.
    """
    if workers is not None and workers < 1:
        raise UsageError(f"workers is {workers}; it must be at least 1, or left out")
    if name == ThisProcess.name and workers in (None, 1):
        return ThisProcess()
    try:
        return _find_executor(name)
    except ValueError as error:
        raise UsageError(f"executor is {name!r}; it must be {error}") from None


def loading_options(executor: Executor, model: str, device: str | None) -> dict[str, Any]:
    """Return the options with which this process loads ``model`` for the executor.

    An executor names a device for every model; it is left out for a kind of models that has none.
    """
    options = executor.loading(device)
    if "device" not in model_kind(model).takes:
        options.pop("device", None)
    return options


def checked_executor(name: str) -> str:
    """Return the name of an executor; ValueError, whose message says what it must be, where there is none of it."""
    if name != ThisProcess.name:
        _find_executor(name)
    return name


def _find_executor(name: str) -> Executor:
    executor = find(Executor, name)
    if executor is None:
        names = dict.fromkeys([ThisProcess.name, *(each.name for each in all_of(Executor))])
        raise ValueError(f"one of {', '.join(names)}")
    return executor


@dataclass(frozen=True)
class Preparation:
    """What blocks are prepared from, as :func:`~choicewise.requests.blocks.prepare_block` takes it."""

    model: Model
    data: Dataset
    rendered: Sequence[RenderedRequests]
    skip_bad_items: bool

    @contextmanager
    def ready(
        self, blocks: Sequence[Block], assignment: Assignment
    ) -> Generator[Upcoming, None, None]:
        """The blocks, each prepared while the one before it is used; the first one is begun at once.

        They are cut as ``assignment`` needs it.  When the ``with`` ends nobody waits any more, and the thread stops at
        its next prompt.
        """
        tokens = shard_tokens_of(self.model)
        if assignment.share is not None:
            tokens = (
                tokens or DEVICE_TOKENS
            )  # several processes share what a server is asked at once
        with ThreadPoolExecutor(1) as thread, _Awaited(self.model) as awaited:
            yield Upcoming(thread.submit(self._prepare, block, awaited, tokens) for block in blocks)

    def _prepare(self, block: Block, awaited: _Awaited, tokens: int | None) -> Ready:
        prepared = prepare_block(self.data, block, awaited, self.skip_bad_items, self.rendered)
        return Ready(block, prepared, list(cut_shards(prepared.wanted, tokens)))


@dataclass(frozen=True)
class Ready:
    """A block rendered and tokenized, and its questions in ``shards``, by key."""

    block: Block
    prepared: PreparedBlock
    shards: Sequence[Mapping[str, BlockPrompt]]


class Upcoming:
    """Blocks that are prepared one ahead of the one that is taken; ``jobs`` are begun when they are drawn."""

    def __init__(self, jobs: Iterator[Future[Ready]]) -> None:
        self._jobs = jobs
        self._job = next(jobs, None)

    def __iter__(self) -> Iterator[Ready]:
        while (ready := self.take()) is not None:
            yield ready

    def take(self, wait: bool = True) -> Ready | None:
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
class InProcess:
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

    def run(
        self, blocks: Sequence[Block], assignment: Assignment
    ) -> Generator[BlockResult, None, None]:
        """One result per block; the model is loaded while the first block is rendered."""
        if not blocks:
            return
        with self.asked.ready(blocks, assignment) as upcoming:
            self._model.check(0)
            for ready in upcoming:
                prepared = ready.prepared
                assigned = assignment.take(ready.block, ready.shards)
                self._model.check(
                    prepared.deepest if assigned.new else 0
                )  # as if this process asked all of the run
                rows = prepared.inputs, prepared.requests, prepared.spans
                answers = self._answers(assigned.shards)
                if (
                    assignment.share is not None
                ):  # a shard is written whole, so that a later one finds where it ends
                    answers = (
                        make_table(OBSERVATIONS, list(observe(self._model, each)))
                        for each in assigned.shards
                    )
                sizes = [len(shard) for shard in assigned.shards]
                yield BlockResult(ready.block, *rows, sum(sizes), answers, sizes)

    def observe(self, questions: Mapping[str, BlockPrompt]) -> Iterator[Observed]:
        """One observation per question, as they are answered."""
        return self._answers(cut_shards(questions, shard_tokens_of(self._model)))

    def _answers(self, shards: Iterable[Mapping[str, BlockPrompt]]) -> Iterator[Observed]:
        for shard in shards:
            yield from observe(self._model, shard)
