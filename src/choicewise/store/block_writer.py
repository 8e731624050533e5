"""Observations of one block on their way to disk."""

from collections.abc import Sequence
from time import perf_counter
from typing import Protocol, Self

import pyarrow as pa

from choicewise.records.manifest import Place, Spent
from choicewise.records.rows import ObservationRow, RequestRow, SpanRow
from choicewise.records.tables import OBSERVATIONS
from choicewise.store.folder import RunFolder
from choicewise.store.tables import make_table

FLUSH = 60.0
"""Seconds between two writes of the observations of a long block: what a kill loses at most."""


class TokenCounter(Protocol):
    """Who answers, and counts what it computes."""

    @property
    def computed(self) -> int | None:
        """Input tokens computed so far; None where they are not counted."""

    @property
    def requests(self) -> int:
        """Requests to a server so far; 0 where none is asked."""


class BlockWriter:
    """Writes observations every minute, with :meth:`write`, and when the ``with`` ends, however it ends.

    The tokens that ``counter`` counts, and the time, are added to what the run spent with every write; without a count
    nothing is.  ``count``: observations so far.
    """

    def __init__(self, folder: RunFolder, place: Place, counter: TokenCounter) -> None:
        self.count = 0
        self._folder = folder
        self._place = place
        self._counter = counter
        self._rows: list[ObservationRow] = []
        self._tables: list[pa.Table] = []
        self._since, self._computed, self._requests = perf_counter(), counter.computed, counter.requests

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._rows or self._tables:
            self.write()

    def add(self, observed: ObservationRow | pa.Table) -> None:
        """Keep one more, or a table of them; it is written at the latest with the first that comes after a minute."""
        if isinstance(observed, pa.Table):
            self.count += observed.num_rows
            self._tables.append(observed)
        else:
            self.count += 1
            self._rows.append(observed)
        if perf_counter() - self._since > FLUSH:
            self.write()

    def write(
        self,
        asks: Sequence[str] = (),
        tokens_asked: int = 0,
        requests: Sequence[RequestRow] = (),
        spans: Sequence[SpanRow] = (),
    ) -> None:
        """Write what there is, and that the block was asked in the ways ``asks``, which are ``tokens_asked`` tokens."""
        now, computed, sent = perf_counter(), self._counter.computed, self._counter.requests
        spent = None
        if computed is not None and self._computed is not None:
            seconds = now - self._since
            spent = Spent(tokens_asked, computed - self._computed, seconds, sent - self._requests)
        observations = pa.concat_tables([*self._tables, make_table(OBSERVATIONS, self._rows)])
        tables = {"requests": requests, "spans": spans, "observations": observations}
        self._folder.add_block(self._place, asks, tables, spent)
        self._tables = []
        self._rows, self._since, self._computed, self._requests = [], now, computed, sent
