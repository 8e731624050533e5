"""Observations of one block on their way to disk."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter

from choicewise.records.rows import ObservationRow
from choicewise.store.folder import RunFolder
from choicewise.store.table import Rows

FLUSH = 60.0
"""Seconds between two writes of what a long block has shown so far: what a kill loses at most."""


class BlockWriter:
    """Observations that are written every minute, by :meth:`write`, and when the ``with`` is left, however that is.

    ``place``: split, subject, start and stop of the block.  ``model``: whose ``computed`` tokens and time are counted
    as spent with every write; nothing is where it does not count.
    """

    def __init__(self, folder: RunFolder, place: tuple[str, str, int, int], model: object) -> None:
        self.count = 0
        self._folder = folder
        self._place = place
        self._model = model
        self._rows: list[ObservationRow] = []
        self._since, self._computed = perf_counter(), self._tokens()

    def __enter__(self) -> BlockWriter:
        return self

    def __exit__(self, *_: object) -> None:
        if self._rows:
            self.write()

    def add(self, observation: ObservationRow) -> None:
        """One more, at the latest on disk with the first that comes after a minute."""
        self.count += 1
        self._rows.append(observation)
        if perf_counter() - self._since > FLUSH:
            self.write()

    def write(self, asks: Sequence[str] = (), asked: int = 0, requests: Rows = (), spans: Rows = ()) -> None:
        """Write what is there, and that the block was asked in the ways ``asks``, which came to ``asked`` tokens."""
        now, computed = perf_counter(), self._tokens()
        spent = None
        if computed is not None and self._computed is not None:
            spent = {"asked": asked, "computed": computed - self._computed, "seconds": now - self._since}
        tables = {"requests": requests, "spans": spans, "observations": self._rows}
        self._folder.add_block(*self._place, asks, tables, spent)
        self._rows, self._since, self._computed = [], now, computed

    def _tokens(self) -> int | None:
        return getattr(self._model, "computed", None)
