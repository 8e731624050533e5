"""Where the work of a run is done: an executor answers blocks and returns rows; only the caller writes them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from choicewise.data.dataset import Dataset
from choicewise.records.rows import ObservationRow, RequestRow, SpanRow
from choicewise.requests.prepared_block import PreparedBlock
from choicewise.requests.rendered import RenderedRequests
from choicewise.requests.schedule import Ask, Block, prepare_block
from choicewise.running.observe import observe

if TYPE_CHECKING:
    from choicewise.models.model import Model
    from choicewise.models.selfcheck import SelfCheck


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


class Executor(Protocol):
    """Who answers the blocks of a run, in this process or elsewhere."""

    @property
    def computed(self) -> int | None:
        """Input tokens computed so far; None where they are not counted."""
        ...

    def run(self, work: Sequence[BlockWork], observed: Set[str]) -> Iterator[BlockResult]:
        """One result per block; its observations are used up before the next result is taken.

        Questions whose keys are ``observed``, or that an earlier block asked, are not asked again.
        """
        ...


class InProcess:
    """The executor in this process: one block after the other, the next one rendered and tokenized meanwhile."""

    def __init__(self, model: Model, data: Dataset, rendered: Sequence[RenderedRequests], skip_bad_items: bool) -> None:
        self._model = model
        self._data = data
        self._rendered = rendered
        self._skip_bad_items = skip_bad_items

    @property
    def computed(self) -> int | None:
        """As :attr:`Executor.computed`."""
        return self._model.computed

    def run(self, work: Sequence[BlockWork], observed: Set[str]) -> Iterator[BlockResult]:
        """As :meth:`Executor.run`; the model checks itself while the first block is rendered."""
        if not work:
            return
        observed = set(observed)
        with ThreadPoolExecutor(1) as thread:
            jobs = (thread.submit(self._prepare, block_work) for block_work in work)  # submitted when taken
            job = next(jobs)
            selfcheck = self._model.selfcheck
            for current in work:
                block = job.result()
                job = next(jobs, job)
                wanted = {key: question for key, question in block.wanted.items() if key not in observed}
                observations = observe(self._model, wanted)
                yield BlockResult(
                    current, selfcheck, block.inputs, block.requests, block.spans, len(wanted), observations
                )
                observed.update(wanted)

    def _prepare(self, work: BlockWork) -> PreparedBlock:
        return prepare_block(self._data, work.block, work.asks, self._model, self._skip_bad_items, self._rendered)
