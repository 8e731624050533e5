"""The only bounded cache (bytes or entries), used by board and templates."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock

from choicewise.util.background import Threads

BUDGET = 64_000_000
"""Bytes of all answers together."""


class AnswersKept:
    """Answers by what was asked; those not asked for the longest go first.  Several threads may use it."""

    def __init__(self, budget: int = BUDGET) -> None:
        self._budget, self._bytes = budget, 0
        self._kept: OrderedDict[Hashable, bytes] = OrderedDict()
        self._lock = Lock()

    def get(self, asked: Hashable) -> bytes | None:
        """The answer, if it is there."""
        with self._lock:
            if asked in self._kept:
                self._kept.move_to_end(asked)
            return self._kept.get(asked)

    def keep(self, asked: Hashable, answer: bytes) -> None:
        """Remember an answer, and forget others where there is no room."""
        with self._lock:
            self._bytes += len(answer) - len(self._kept.pop(asked, b""))
            self._kept[asked] = answer
            while self._bytes > self._budget and self._kept:
                self._bytes -= len(self._kept.popitem(last=False)[1])


class Answers:
    """Answers that threads make.  For one event loop."""

    def __init__(self) -> None:
        self._kept = AnswersKept()
        self._making: dict[Hashable, asyncio.Task[bytes]] = {}

    async def get(
        self, asked: Hashable, threads: Threads, make: Callable[[], bytes], wait: float | None = None, keep: bool = True
    ) -> bytes | None:
        """The answer to ``asked``: at once where it is kept, else from ``make`` in one of the ``threads``.

        None where it is not made within ``wait`` seconds; it is made all the same, for the next who asks.  ``keep``:
        whether it is kept.  Raises Busy where too much waits, and what ``make`` raises.
        """
        if (answer := self._kept.get(asked)) is not None:
            return answer
        task = self._making.get(asked)
        if task is None:
            task = self._making[asked] = asyncio.create_task(self._make(asked, threads, make, keep))
            task.add_done_callback(lambda task: task.cancelled() or task.exception())  # nobody may wait for it any more
        done, _ = await asyncio.wait([task], timeout=wait)
        return task.result() if done else None

    async def _make(self, asked: Hashable, threads: Threads, make: Callable[[], bytes], keep: bool) -> bytes:
        try:
            answer = await threads.run(make)
            if keep:
                self._kept.keep(asked, answer)
            return answer
        finally:
            del self._making[asked]
