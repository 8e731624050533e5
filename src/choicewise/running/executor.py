"""Blocks, shards, in-process executor.

The parts follow from the questions alone, not from how many replicas there are: so one process and a cluster compute
the same trees, and their numbers agree to the bit.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence, Set
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from threading import Event
from typing import Protocol, Self, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from choicewise.data.dataset import Dataset
from choicewise.engine import Sequences
from choicewise.models.model import SERVER, Model, SelfCheck
from choicewise.questions import Blanks, Conclusion, Cosine, Generation, Ids, MaskedLoss, Mass, Rendition, Span
from choicewise.records import ObservationRow, RequestRow, SpanRow
from choicewise.requests.blocks import Block, prepare_block
from choicewise.requests.prepared import BlockQuestion, PreparedBlock
from choicewise.requests.render import RenderedRequests
from choicewise.running.work import observe
from choicewise.store.folder import Keys, TokenCounter
from choicewise.tokens.byte_coverings import ByteProbability
from choicewise.tokens.tokenizer import Tokenizer, vocabulary


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


SHARD_TOKENS = {"cpu": 32_768, SERVER: None}
"""Unique tokens of a shard at least, by device: a few packs, so that few of them are small.  None: all of a block, as a
server divides the work itself."""

DEVICE_TOKENS = 131_072
"""The same on all other devices, whose packs are larger."""

SHARE = 64
"""A cut costs the tokens of the path that both sides share; the shard before it has so many times as many."""

WINDOW = 16
"""A cut is made where the path is shortest, within this part of a shard's tokens after those it has at least."""

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Shard:
    """``questions`` by key, whose answers need no other shard.

    ``depth``: input tokens of the longest question of the run so far, up to which the model checks itself.
    """

    questions: Mapping[str, BlockQuestion]
    depth: int

    def complete(self, tokenizer: Tokenizer) -> dict[str, BlockQuestion]:
        """The questions where they are answered: vocabularies are too large to be sent, and are there already."""
        asked = dict(self.questions)
        for key, question in asked.items():
            if isinstance(question, ByteProbability):
                asked[key] = replace(question, vocabulary=vocabulary(tokenizer))
        return asked


def shard_tokens(device: str) -> int | None:
    """How many tokens a shard has at least where a model computes on ``device``; None: all of a block."""
    return SHARD_TOKENS.get(device.partition(":")[0], DEVICE_TOKENS)


def cut_shards(questions: Mapping[str, BlockQuestion], tokens: int | None) -> Iterator[dict[str, BlockQuestion]]:
    """The ``questions`` in shards of at least ``tokens`` unique tokens, but for the last, in the order of their tree.

    A generation and what follows it are in one shard, as are all questions with the same input.  A shard is longer
    where questions share a long context: cutting there would have it computed twice.
    """
    asked = list(questions.values())
    if tokens is None or sum(question.inputs for question in asked) <= tokens:
        if asked:
            yield dict(questions)
        return
    sequences = Sequences([_shared(question) for question in asked])
    lengths = sequences.context_lengths + sequences.inputs
    own = np.zeros(len(sequences), dtype=np.int64)
    np.add.at(own, sequences.span_of, [question.inputs for question in asked] - lengths[sequences.span_of])
    starts = _starts(sequences.common, lengths - sequences.common + np.maximum(own, 0), tokens)
    keys, order = list(questions), np.argsort(sequences.span_of, kind="stable")
    edges = np.searchsorted(sequences.span_of[order], [*starts, len(sequences)])
    for first, end in pairwise(edges):
        places = np.sort(order[first:end])  # in the order in which they were asked
        yield {keys[place]: asked[place] for place in places.tolist()}


def _starts(common: Integers, new: Integers, tokens: int) -> list[int]:
    """The first sequence of every shard; sequences have ``common`` tokens with the one before, and ``new`` ones."""
    before = np.cumsum(new) - new
    worth = before - SHARE * common  # a cut is worth its cost where this is no less than the tokens before the shard
    starts = [0]
    while True:
        least = int(np.searchsorted(before, before[starts[-1]] + tokens))
        most = int(np.searchsorted(before, before[starts[-1]] + tokens + tokens // WINDOW))
        if least >= len(new):
            return starts
        place = least + int(common[least : most + 1].argmin())
        if worth[place] < before[starts[-1]]:
            later = np.flatnonzero(worth[least:] >= before[starts[-1]])
            if not len(later):
                return starts
            place = least + int(later[0])
        starts.append(place)


def _shared(question: BlockQuestion) -> Span:
    """A span whose inputs are those tokens of ``question`` that other questions may begin with, too."""
    match question:
        case Span():
            return question
        case MaskedLoss():
            return question.span
        case Conclusion():
            return _input(question.generation.context)
        case Mass() | ByteProbability() | Generation():
            return _input(question.context)
        case Cosine():
            return _input(question.left)
        case Blanks():
            return _input(question.text)
        case Rendition():
            return _input(question.source)


def _input(text: Ids) -> Span:
    return Span(text, text[:1])
