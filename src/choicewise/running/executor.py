"""Where the work of a run is done: an executor answers blocks and returns rows; only the caller writes them."""

from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from dataclasses import dataclass
from threading import Event
from typing import Protocol, Self

from choicewise.data.dataset import Dataset
from choicewise.models.model import Model
from choicewise.models.selfcheck import SelfCheck
from choicewise.records.rows import ObservationRow, RequestRow, SpanRow
from choicewise.requests.blocks import Block
from choicewise.requests.prepared_block import prepare_block
from choicewise.requests.rendered import RenderedRequests
from choicewise.running.observe import observe
from choicewise.store.block_writer import TokenCounter
from choicewise.store.keys import Keys
from choicewise.tokens.tokenizer import Tokenizer


@dataclass(frozen=True)
class BlockResult:
    """The rows of one block, from a model with this ``selfcheck``.

    ``tokens_asked``: input tokens when every choice of every protocol is a sequence of its own.  ``observations`` come
    as they are answered, one per question; ``questions`` counts them.
    """

    block: Block
    selfcheck: SelfCheck | None
    tokens_asked: int
    requests: Sequence[RequestRow]
    spans: Sequence[SpanRow]
    questions: int
    observations: Iterator[ObservationRow]


class Executor(TokenCounter, Protocol):
    """Who answers the blocks of a run, in this process or elsewhere."""

    @property
    def planned(self) -> int | None:
        """Input tokens to compute for all that was asked so far; None where they are not counted."""

    def run(self, blocks: Sequence[Block], observed: Keys) -> Generator[BlockResult, None, None]:
        """One result per block; its observations are used up before the next result is taken.

        Who takes no more results closes the generator, which ends all that is under way.  Questions whose keys are
        ``observed``, or that an earlier block asked, are not asked again.
        """


@dataclass(frozen=True)
class InProcess:
    """The executor in this process: one block after the other, the next one rendered and tokenized meanwhile."""

    model: Model
    data: Dataset
    rendered: Sequence[RenderedRequests]
    skip_bad_items: bool

    @property
    def computed(self) -> int | None:
        """Input tokens computed so far; None where they are not counted."""
        return self.model.computed

    @property
    def requests(self) -> int:
        """Requests to a server so far; 0 for a model that runs here."""
        return getattr(self.model, "requests", 0)

    @property
    def planned(self) -> int | None:
        """Input tokens to compute for all that was asked so far; None where they are not counted."""
        return self.model.planned

    def run(self, blocks: Sequence[Block], observed: Keys) -> Generator[BlockResult, None, None]:
        """One result per block; the model is loaded while the first block is rendered."""
        if not blocks:
            return
        with ThreadPoolExecutor(1) as thread, _Awaited(self.model) as awaited:
            jobs = (  # submitted when taken
                thread.submit(prepare_block, self.data, block, awaited, self.skip_bad_items, self.rendered)
                for block in blocks
            )
            job = next(jobs)
            self.model.check(0)
            for block in blocks:
                prepared = job.result()
                job = next(jobs, job)
                new = observed.without(list(prepared.wanted))
                wanted = {key: prepared.wanted[key] for key in new}
                selfcheck = self.model.check(prepared.deepest if wanted else 0)
                rows = prepared.inputs, prepared.requests, prepared.spans
                yield BlockResult(block, selfcheck, *rows, len(wanted), observe(self.model, wanted))
                observed.add(new)


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
