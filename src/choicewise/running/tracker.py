"""How much of a run's work is done."""

from collections.abc import Iterator
from contextlib import contextmanager

from choicewise.running.executors.executor import BlockResult, Executor


class Tracker:
    """Counts work in the units of :attr:`choicewise.requests.blocks.Block.work`, from ``done`` on.

    Within a block it goes by the input tokens computed of those planned, so that it moves within one long question, or
    where ``executor`` counts none by ``answered`` questions, which the caller counts.
    """

    def __init__(self, executor: Executor, done: int) -> None:
        self.answered = 0
        self._executor = executor
        self._finished = done
        self._result: BlockResult | None = None
        self._before = (0, 0)

    @contextmanager
    def block(self, result: BlockResult) -> Iterator[None]:
        """Meanwhile ``result`` is answered."""
        self.answered, self._before, self._result = 0, self._counts(), result
        yield
        self._finished, self._result = self._finished + result.block.work, None

    @property
    def done(self) -> int:
        """The work done so far; may be called from another thread."""
        if (result := self._result) is None:
            return self._finished
        computed, planned = (now - before for now, before in zip(self._counts(), self._before, strict=True))
        share = computed / planned if planned else self.answered / max(result.questions, 1)
        return self._finished + int(min(share, 1.0) * result.block.work)

    def _counts(self) -> tuple[int, int]:
        return self._executor.computed or 0, self._executor.planned or 0
