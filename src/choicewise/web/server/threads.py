"""Some threads for what waits for a disk or a process, so that it never takes those that answer others."""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from anyio import CapacityLimiter

Made = TypeVar("Made")


class Busy(Exception):
    """As much waits already as may; ask again later."""


class Threads:
    """At most ``most`` things at once; ``waiting`` others wait without a thread, and further ones are refused.

    Without a number as many wait as there are connections.
    """

    def __init__(self, most: int, waiting: float = math.inf) -> None:
        self._most, self._waiting, self._asked = most, waiting, 0
        self._limiter: CapacityLimiter | None = None

    async def run(self, make: Callable[[], Made]) -> Made:
        """What ``make`` returns or raises; it runs to its end even where nobody waits for it any more.

        Raises Busy where too much waits.
        """
        from anyio import CapacityLimiter, to_thread

        if self._limiter is None:
            self._limiter = CapacityLimiter(self._most)
        if self._asked >= self._most + self._waiting:
            raise Busy
        self._asked += 1
        try:
            return await to_thread.run_sync(make, limiter=self._limiter)
        finally:
            self._asked -= 1
