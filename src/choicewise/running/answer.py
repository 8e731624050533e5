"""Computes the observations of a run block by block, while the next block is prepared."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Event
from typing import Any, Final, TypeAlias

import pyarrow as pa

from choicewise.engine import DEVICE_TOKENS, cut_shards
from choicewise.errors import UsageError
from choicewise.models.kinds import model_kind, shard_tokens_of
from choicewise.models.model import Model, SelfCheck
from choicewise.ports import Executor, all_of, find
from choicewise.records import OBSERVATIONS, ObservationRow, RequestRow, SpanRow
from choicewise.requests.blocks import Block, prepare_block
from choicewise.requests.request import BlockPrompt, PreparedBlock
from choicewise.running.observe import observe
from choicewise.running.shards import Assignment
from choicewise.running.work import Work
from choicewise.store.tables import make_table
from choicewise.tokens.tokenizer import Tokenizer

Observed: TypeAlias = ObservationRow | pa.Table
"""An observation, or a table of all observations of a shard."""


def rows_of(observed: Observed) -> Iterator[ObservationRow]:
    """Yield the row, or the rows of the table."""
    if isinstance(observed, ObservationRow):
        yield observed
        return
    columns = [column.to_pylist() for column in observed.columns]
    for values in zip(*columns, strict=True):
        yield ObservationRow._make(values)


@dataclass(frozen=True)
class BlockResult:
    """Hold the rows of a block.

    ``tokens_asked``: input tokens if every choice of every protocol were a sequence of its own.
    ``observations`` come as they are computed, one for each question.  ``questions`` counts them,
    and ``shards`` those of each shard, if the shards are computed one after the other.
    """

    block: Block
    tokens_asked: int
    requests: Sequence[RequestRow]
    spans: Sequence[SpanRow]
    questions: int
    observations: Iterator[Observed]
    shards: Sequence[int] = ()


HERE: Final = "local"
"""The executor of this machine; with one process it is this one, which no extension adds."""


def executor_of(name: str, workers: int | None) -> Executor | None:
    """Return the executor of that name; None if this process computes.

    Raises UsageError for an unknown name, and for less than one worker.
    """
    if workers is not None and workers < 1:
        raise UsageError(f"workers is {workers}; it must be at least 1, or left out")
    if name == HERE and workers in (None, 1):
        return None
    try:
        return _find_executor(name)
    except ValueError as error:
        raise UsageError(f"executor is {name!r}; it must be {error}") from None


def loading_options(executor: Executor | None, model: str, device: str | None) -> dict[str, Any]:
    """Return the options with which this process opens ``model``."""
    if executor is None:
        return {"device": device}
    options: dict[str, Any] = {"elsewhere": True}
    # An executor names a device for all models, also for those of a kind that takes none.
    if "device" in model_kind(model).takes:
        options["device"] = device or executor.device()
    return options


def checked_executor(name: str) -> str:
    """Return ``name``; ValueError with the possible names if no executor has it."""
    if name != HERE:
        _find_executor(name)
    return name


def _find_executor(name: str) -> Executor:
    executor = find(Executor, name)
    if executor is None:
        # This process is no port's, and needs no extension to be loaded.
        names = [HERE]
        names += [executor.name for executor in all_of(Executor)]
        raise ValueError(f"one of {', '.join(dict.fromkeys(names))}")
    return executor


@dataclass(frozen=True)
class _Ready:
    """Hold a rendered and tokenized block, with its questions in ``shards``, by key."""

    block: Block
    prepared: PreparedBlock
    shards: Sequence[Mapping[str, BlockPrompt]]


def _one_ahead(job: Future[_Ready] | None, others: Iterator[Future[_Ready]]) -> Iterator[_Ready]:
    """Yield the block of ``job``, then those of ``others``; a job begins when it is drawn."""
    while job is not None:
        ready = job.result()
        # One block is prepared ahead, and no more are in memory.
        job = next(others, None)
        yield ready


class _Awaited:
    """Lend a model's tokenizer to the preparation of blocks, until they are awaited no more.

    After an error nothing waits for the thread that renders and tokenizes; it stops at its next
    prompt.
    """

    def __init__(self, model: Model) -> None:
        self.window = model.window
        self.ended = Event()
        self._model = model

    @property
    def tokenizer(self) -> Tokenizer:
        """Return the model's tokenizer; CancelledError if the preparation has ``ended``."""
        if self.ended.is_set():
            raise CancelledError
        return self._model.tokenizer


class Respondent:
    """Compute the blocks of ``work`` by calling ``model``."""

    def __init__(self, model: Model, work: Work) -> None:
        self._model = model
        self._work = work

    @property
    def selfcheck(self) -> SelfCheck | None:
        """Return the model's self-check so far."""
        return self._model.check(0)

    @property
    def computed(self) -> int | None:
        """Count the input tokens computed so far; None if they are not counted."""
        return self._model.computed

    @property
    def requests(self) -> int:
        """Count the requests to a server so far; 0 for a local model."""
        return getattr(self._model, "requests", 0)

    @property
    def unique(self) -> int:
        """Count the input tokens of the token trees so far; 0 if the engine has none."""
        return getattr(self._model, "unique", 0)

    @property
    def planned(self) -> int | None:
        """Count the input tokens to compute for all prompts so far; None if they are not counted."""
        return self._model.planned

    def run(
        self, blocks: Sequence[Block], assignment: Assignment
    ) -> Generator[BlockResult, None, None]:
        """Yield a result for each block; take all its observations before the next result.

        The model is loaded while the first block is rendered.  Closing the generator ends all that
        is under way.  ``assignment`` selects prompts of blocks.
        """
        if not blocks:
            return
        model = self._model
        whole = assignment.share is not None
        with self._prepared(blocks, assignment) as upcoming:
            # This loads the model, while the thread renders the first block.
            model.check(0)
            for ready in upcoming:
                prepared = ready.prepared
                assigned = assignment.take(ready.block, ready.shards)
                # A part of a run checks as deeply as the whole run would.
                depth = prepared.deepest if assigned.new else 0
                model.check(depth)
                sizes = [len(shard) for shard in assigned.shards]
                yield BlockResult(
                    block=ready.block,
                    tokens_asked=prepared.inputs,
                    requests=prepared.requests,
                    spans=prepared.spans,
                    questions=sum(sizes),
                    observations=self._observations(assigned.shards, whole),
                    shards=sizes,
                )

    @contextmanager
    def _prepared(
        self, blocks: Sequence[Block], assignment: Assignment
    ) -> Generator[Iterator[_Ready], None, None]:
        """Prepare blocks in a thread, each while the one before it is computed.

        The first one is begun at once.  After the ``with`` the thread stops at its next prompt.
        """
        tokens = shard_tokens_of(self._model)
        if assignment.share is not None:
            # A server answers a block at once; shards of it go to different processes.
            tokens = tokens or DEVICE_TOKENS
        awaited = _Awaited(self._model)
        with ThreadPoolExecutor(1) as thread:
            jobs = (thread.submit(self._prepare, block, awaited, tokens) for block in blocks)
            try:
                yield _one_ahead(next(jobs, None), jobs)
            finally:
                awaited.ended.set()

    def _prepare(self, block: Block, awaited: _Awaited, tokens: int | None) -> _Ready:
        work = self._work
        prepared = prepare_block(work.data, block, awaited, work.skip_bad_items, work.rendered)
        return _Ready(block, prepared, list(cut_shards(prepared.wanted, tokens)))

    def _observations(
        self, shards: Iterable[Mapping[str, BlockPrompt]], whole: bool = False
    ) -> Iterator[Observed]:
        for shard in shards:
            if whole:
                # Written whole, so that the merge finds where a shard ends.
                yield make_table(OBSERVATIONS, list(observe(self._model, shard)))
            else:
                yield from observe(self._model, shard)
