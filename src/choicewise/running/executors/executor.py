"""Where the work of a run is done: an executor answers blocks and returns rows; only the caller writes them."""

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import pyarrow as pa

from choicewise.models.selfcheck import SelfCheck
from choicewise.records.rows import ObservationRow, RequestRow, SpanRow
from choicewise.requests.blocks import Block
from choicewise.requests.prompt_rows import BlockQuestion
from choicewise.store.block_writer import TokenCounter
from choicewise.store.keys import Keys

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
