"""Computes the observations of a run block by block, while the next block is prepared."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from dataclasses import dataclass
from threading import Event
from typing import Any

import pyarrow as pa

from choicewise.engine import SERVED_TOKENS
from choicewise.errors import UsageError
from choicewise.models.kinds import model_kind, shard_tokens_of
from choicewise.models.model import Model
from choicewise.ports import Executor, all_of, find
from choicewise.records import OBSERVATIONS, ObservationRow
from choicewise.requests.blocks import Block
from choicewise.requests.request import BlockPrompt
from choicewise.running.observe import observe
from choicewise.running.prepare import BlockProcess, Preparer, ReadyBlock, shares_the_lock
from choicewise.running.shards import Assignment, Share
from choicewise.running.work import Work
from choicewise.store.tables import make_table
from choicewise.tokens.tokenizer import Tokenizer


@dataclass(frozen=True)
class BlockResult:
    """Hold a ``prepared`` block, and its observations as they are computed.

    An observation is a row; in a part of a run a table has those of a shard.  ``shards``: the
    number of observations in each shard, which are computed one after the other.
    """

    block: Block
    prepared: ReadyBlock
    observations: Iterator[ObservationRow | pa.Table]
    shards: Sequence[int]


HERE = "local"
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


def answer_blocks(
    model: Model, work: Work, blocks: Sequence[Block], assignment: Assignment
) -> Generator[BlockResult, None, None]:
    """Yield a result for each block; take all its observations before the next result.

    A block is rendered and tokenized in a thread, while the one before it is computed; the model is
    loaded while the first one is rendered.  If a GPU computes, the thread has another process do
    it.  Closing the generator ends all that is under way.  ``assignment`` selects prompts of
    blocks.
    """
    if not blocks:
        return
    awaited = _Awaited(model)
    preparer = Preparer(
        data=work.data,
        rendered=work.rendered,
        skip_bad_items=work.skip_bad_items,
        shard_tokens=least_shard_tokens(model, assignment.share),
    )
    process = None
    if shares_the_lock(model):
        process = BlockProcess.of(preparer, model)

    def prepare(block: Block) -> ReadyBlock:
        ready = None
        # The model is loaded during the first block, and launches nothing.
        if process is not None and block is not blocks[0]:
            ready = process.prepare(block)
        if ready is None:
            ready = preparer.prepare(block, awaited)
        return ready

    with ThreadPoolExecutor(1) as thread:
        try:
            upcoming = thread.submit(prepare, blocks[0])
            model.check(0)  # loads the model
            for number, block in enumerate(blocks, 1):
                prepared = upcoming.result()
                # One block is prepared ahead, and no more are in memory.
                if number < len(blocks):
                    upcoming = thread.submit(prepare, blocks[number])
                assigned = assignment.take(block, prepared.shards)
                # A part of a run checks as deeply as the whole run would.
                model.check(prepared.deepest if assigned.new else 0)
                observations = _observations(model, assigned.shards, assignment.share)
                sizes = [len(shard) for shard in assigned.shards]
                yield BlockResult(block, prepared, observations, sizes)
        finally:
            awaited.ended.set()
            if process is not None:
                process.close()


def least_shard_tokens(model: Model, share: Share | None) -> int | None:
    """Return the least tokens of a shard; None if the blocks of the model are not cut."""
    tokens = shard_tokens_of(model)
    if share is not None:
        # A server answers a block at once; shards of it go to different processes.
        tokens = tokens or SERVED_TOKENS
    return tokens


def _observations(
    model: Model, shards: Sequence[Mapping[str, BlockPrompt]], share: Share | None
) -> Iterator[ObservationRow | pa.Table]:
    for shard in shards:
        if share is None:
            yield from observe(model, shard)
        else:
            # Written whole, so that the merge finds where a shard ends.
            yield make_table(OBSERVATIONS, list(observe(model, shard)))
