"""Blocks are prepared ahead, and answered by the model of this process."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence, Set
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Event
from typing import Protocol, Self, TypeAlias

import pyarrow as pa

from choicewise.data.dataset import Dataset
from choicewise.engine import cut_shards, shard_tokens
from choicewise.models.model import Model, SelfCheck
from choicewise.records import ObservationRow, RequestRow, SpanRow
from choicewise.requests.blocks import Block, prepare_block
from choicewise.requests.render import RenderedRequests
from choicewise.requests.request import BlockQuestion, PreparedBlock
from choicewise.running.work import observe
from choicewise.store.folder import Keys, TokenCounter
from choicewise.tokens.tokenizer import Tokenizer


@dataclass(frozen=True)
class Preparation:
    """What blocks are prepared from, as :func:`~choicewise.requests.blocks.prepare_block` takes it."""

    model: Model
    data: Dataset
    rendered: Sequence[RenderedRequests]
    skip_bad_items: bool

    @contextmanager
    def ready(self, blocks: Sequence[Block]) -> Generator[Upcoming, None, None]:
        """The blocks, each prepared while the one before it is used; the first one is begun at once.

        When the ``with`` ends nobody waits any more, and the thread stops at its next prompt.
        """
        with ThreadPoolExecutor(1) as thread, _Awaited(self.model) as awaited:
            yield Upcoming(thread.submit(self._prepare, block, awaited) for block in blocks)

    def _prepare(self, block: Block, awaited: _Awaited) -> Ready:
        prepared = prepare_block(self.data, block, awaited, self.skip_bad_items, self.rendered)
        return Ready(block, prepared, list(cut_shards(prepared.wanted, shard_tokens(self.model.device))))


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
    def planned(self) -> int | None:
        """Input tokens to compute for all that was asked so far; None where they are not counted."""
        return self._model.planned

    def run(self, blocks: Sequence[Block], observed: Keys) -> Generator[BlockResult, None, None]:
        """One result per block; the model is loaded while the first block is rendered."""
        if not blocks:
            return
        with self.asked.ready(blocks) as upcoming:
            self._model.check(0)
            for ready in upcoming:
                prepared = ready.prepared
                new = frozenset(observed.without(list(prepared.wanted)))
                self._model.check(prepared.deepest if new else 0)
                rows = prepared.inputs, prepared.requests, prepared.spans
                yield BlockResult(ready.block, *rows, len(new), self._answers(ready.shards, new))
                observed.add(new)

    def observe(self, questions: Mapping[str, BlockQuestion]) -> Iterator[ObservationRow]:
        """One observation per question, as they are answered."""
        return self._answers(cut_shards(questions, shard_tokens(self._model.device)), questions.keys())

    def _answers(self, shards: Iterable[Mapping[str, BlockQuestion]], wanted: Set[str]) -> Iterator[ObservationRow]:
        for shard in shards:
            yield from observe(self._model, {key: shard[key] for key in shard if key in wanted})


@dataclass(frozen=True)
class Ready:
    """A block rendered and tokenized, and its questions in ``shards``, by key."""

    block: Block
    prepared: PreparedBlock
    shards: Sequence[Mapping[str, BlockQuestion]]


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
    as they are answered, one per question; ``questions`` counts them.
    """

    block: Block
    tokens_asked: int
    requests: Sequence[RequestRow]
    spans: Sequence[SpanRow]
    questions: int
    observations: Iterator[Observed]


class Executor(TokenCounter, Protocol):
    """Who answers the blocks of a run, in this process or elsewhere."""

    @property
    def planned(self) -> int | None:
        """Input tokens to compute for all that was asked so far; None where they are not counted."""

    @property
    def selfcheck(self) -> SelfCheck | None:
        """The deepest self-check that was made so far; None before the first, and where there is none."""

    def run(self, blocks: Sequence[Block], observed: Keys) -> Generator[BlockResult, None, None]:
        """One result per block; its observations are used up before the next result is taken.

        Who takes no more results closes the generator, which ends all that is under way.  Questions whose keys are
        ``observed``, or that an earlier block asked, are not asked again.
        """

    def observe(self, questions: Mapping[str, BlockQuestion]) -> Iterator[Observed]:
        """One observation per question, as they are answered."""
