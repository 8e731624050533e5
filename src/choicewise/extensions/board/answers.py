"""Prepare the answers of a server in a bounded number of threads, and keep them."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, TypeVar

from choicewise.util.cache import BoundedCache

if TYPE_CHECKING:
    from asyncio import Task

    from anyio import CapacityLimiter

Result = TypeVar("Result")
_ANSWER_BYTES = 64_000_000


class Busy(Exception):
    """Too much waits already; try again later."""


class Threads:
    """Run at most ``most`` calls at once.

    ``waiting`` others wait without a thread, and further ones are refused.

    Without a number as many wait as there are connections.
    """

    def __init__(self, most: int, waiting: float = math.inf) -> None:
        self._most = most
        self._waiting = waiting
        self._calls = 0
        self._limiter: CapacityLimiter | None = None

    async def run(self, make: Callable[[], Result]) -> Result:
        """Return what ``make`` returns; it runs to its end even if nobody waits for it any more.

        Raises Busy if too many calls wait, and what ``make`` raises.
        """
        from anyio import CapacityLimiter, to_thread

        if self._limiter is None:
            self._limiter = CapacityLimiter(self._most)
        if self._calls >= self._most + self._waiting:
            raise Busy
        self._calls += 1
        try:
            return await to_thread.run_sync(make, limiter=self._limiter)
        finally:
            self._calls -= 1


class Answers:
    """Keep the answers of a server, which threads prepare.  For one event loop."""

    def __init__(self) -> None:
        self._cache = BoundedCache[Hashable, bytes](_ANSWER_BYTES, len)
        self._running: dict[Hashable, Task[bytes]] = {}

    async def get(
        self,
        key: Hashable,
        threads: Threads,
        make: Callable[[], bytes],
        wait: float | None = None,
        keep: bool = True,
    ) -> bytes | None:
        """Return the answer for ``key``: at once if it is cached, else from ``make`` in one of the
        ``threads``.

        None if it is not there within ``wait`` seconds; it is prepared all the same, for the next
        request.  ``keep``: whether it is cached.  Raises Busy if too much waits, and what ``make``
        raises.
        """
        import asyncio

        answer = self._cache.get(key)
        if answer is not None:
            return answer
        task = self._running.get(key)
        if task is None:
            task = asyncio.create_task(self._prepare(key, threads, make, keep))
            self._running[key] = task
            # If nobody waits for it any more, its error is read here: asyncio would print it.
            task.add_done_callback(lambda task: task.cancelled() or task.exception())
        done, _ = await asyncio.wait([task], timeout=wait)
        return task.result() if done else None

    async def _prepare(
        self, key: Hashable, threads: Threads, make: Callable[[], bytes], keep: bool
    ) -> bytes:
        try:
            answer = await threads.run(make)
            if keep:
                self._cache.put(key, answer)
            return answer
        finally:
            del self._running[key]
