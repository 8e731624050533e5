"""Where the work of a run is done: an executor answers blocks and returns rows; only the caller writes them."""

from collections.abc import Iterator, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

from choicewise.data.dataset import Dataset
from choicewise.models.model import Model
from choicewise.models.selfcheck import SelfCheck
from choicewise.records.rows import ObservationRow, RequestRow, SpanRow
from choicewise.requests.rendered import RenderedRequests
from choicewise.requests.schedule import Ask, Block, prepare_block
from choicewise.running.observe import observe
from choicewise.store.block_writer import TokenCounter


@dataclass(frozen=True)
class BlockWork:
    """Items, and the ways of asking about them that the run folder lacks."""

    block: Block
    asks: Sequence[Ask]


@dataclass(frozen=True)
class BlockResult:
    """The rows of one block, from a model with this ``selfcheck``.

    ``tokens_asked``: input tokens when every choice of every protocol is a sequence of its own.  ``observations`` come
    as they are answered, one per question; ``questions`` counts them.
    """

    work: BlockWork
    selfcheck: SelfCheck | None
    tokens_asked: int
    requests: Sequence[RequestRow]
    spans: Sequence[SpanRow]
    questions: int
    observations: Iterator[ObservationRow]


class Executor(TokenCounter, Protocol):
    """Who answers the blocks of a run, in this process or elsewhere."""

    def run(self, work: Sequence[BlockWork], observed: Set[str]) -> Iterator[BlockResult]:
        """One result per block; its observations are used up before the next result is taken.

        Questions whose keys are ``observed``, or that an earlier block asked, are not asked again.
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

    def run(self, work: Sequence[BlockWork], observed: Set[str]) -> Iterator[BlockResult]:
        """One result per block; the model checks itself while the first block is rendered."""
        if not work:
            return
        observed = set(observed)
        with ThreadPoolExecutor(1) as thread:
            jobs = (  # submitted when taken
                thread.submit(
                    prepare_block, self.data, each.block, each.asks, self.model, self.skip_bad_items, self.rendered
                )
                for each in work
            )
            job = next(jobs)
            selfcheck = self.model.selfcheck
            for current in work:
                block = job.result()
                job = next(jobs, job)
                wanted = {key: question for key, question in block.wanted.items() if key not in observed}
                rows = block.inputs, block.requests, block.spans
                yield BlockResult(current, selfcheck, *rows, len(wanted), observe(self.model, wanted))
                observed.update(wanted)
