"""The decisions of many runs, as many at once as fit in a budget of memory."""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from threading import RLock

import pyarrow as pa

from choicewise.results.outcome import Outcomes

BUDGET = 384_000_000
"""Bytes of all decisions together: 200 runs of 14,042 items under 47 protocols take 265 million."""


class DecisionsKept:
    """The outcomes of runs by their id; those not asked for the longest go first.  Several threads may use it.

    ``read`` gets those that are not there (any more).  Runs on the same items share one table of them.
    """

    def __init__(self, read: Callable[[str], Outcomes | None], budget: int = BUDGET) -> None:
        self._read, self._budget, self._bytes = read, budget, 0
        self._kept: OrderedDict[str, tuple[Outcomes, int]] = OrderedDict()
        self._tables: list[pa.Table] = []
        self._lock = RLock()

    def keep(self, run: str, outcomes: Outcomes) -> None:
        """Remember the outcomes of a run, and forget others where there is no room."""
        with self._lock:
            self.forget({run})
            self._add(run, outcomes)

    def get(self, run: str) -> Outcomes | None:
        """The outcomes of a run, read again where they were forgotten; None where they can't be read any more."""
        with self._lock:
            if run in self._kept:
                self._kept.move_to_end(run)
                return self._kept[run][0]
            outcomes = self._read(run)
            return None if outcomes is None else self._add(run, outcomes)

    def forget(self, runs: set[str]) -> None:
        """Let go of runs that are not there any more, or that changed."""
        with self._lock:
            for run in runs & self._kept.keys():
                self._bytes -= self._kept.pop(run)[1]
            used = {id(each.items) for outcomes, _ in self._kept.values() for each in outcomes.outcomes}
            self._tables = [table for table in self._tables if id(table) in used]

    def _add(self, run: str, outcomes: Outcomes) -> Outcomes:
        shared = tuple(replace(each, items=self._items(each.items)) for each in outcomes.outcomes)
        size = sum(each.codes.nbytes + each.predicted.nbytes for each in shared)
        kept = replace(outcomes, outcomes=shared)
        self._kept[run] = kept, size
        self._bytes += size
        while self._bytes > self._budget and len(self._kept) > 1:
            _, (_, size) = self._kept.popitem(last=False)
            self._bytes -= size
        return kept

    def _items(self, items: pa.Table) -> pa.Table:
        for table in self._tables:
            if table is items or table.equals(items):
                return table
        self._tables.append(items)
        return items
