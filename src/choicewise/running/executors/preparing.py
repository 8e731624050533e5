"""Blocks rendered and tokenized ahead of their answers, in a thread of their own."""

from collections.abc import Generator, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Event
from typing import Self

from choicewise.data.dataset import Dataset
from choicewise.models.model import Model
from choicewise.requests.blocks import Block
from choicewise.requests.prepared_block import PreparedBlock, prepare_block
from choicewise.requests.prompt_rows import BlockQuestion
from choicewise.requests.rendered import RenderedRequests
from choicewise.running.executors.shards import cut_shards, shard_tokens
from choicewise.tokens.tokenizer import Tokenizer


@dataclass(frozen=True)
class Ready:
    """A block rendered and tokenized, and its questions in ``shards``, by key."""

    block: Block
    prepared: PreparedBlock
    shards: Sequence[Mapping[str, BlockQuestion]]


@dataclass(frozen=True)
class Preparation:
    """What blocks are prepared from, as :func:`~choicewise.requests.prepared_block.prepare_block` takes it."""

    model: Model
    data: Dataset
    rendered: Sequence[RenderedRequests]
    skip_bad_items: bool

    @contextmanager
    def ready(self, blocks: Sequence[Block]) -> Generator["Upcoming", None, None]:
        """The blocks, each prepared while the one before it is used; the first one is begun at once.

        When the ``with`` ends nobody waits any more, and the thread stops at its next prompt.
        """
        with ThreadPoolExecutor(1) as thread, _Awaited(self.model) as awaited:
            yield Upcoming(thread.submit(self._prepare, block, awaited) for block in blocks)

    def _prepare(self, block: Block, awaited: "_Awaited") -> Ready:
        prepared = prepare_block(self.data, block, awaited, self.skip_bad_items, self.rendered)
        return Ready(block, prepared, list(cut_shards(prepared.wanted, shard_tokens(self.model.device))))


class Upcoming:
    """Blocks that are prepared one ahead of the one that is taken; ``jobs`` are begun when they are drawn."""

    def __init__(self, jobs: Iterator["Future[Ready]"]) -> None:
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
