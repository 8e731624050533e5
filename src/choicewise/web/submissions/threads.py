"""Some threads for what waits for a disk, so that it never takes those that answer readers."""

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from anyio import CapacityLimiter

Made = TypeVar("Made")


class Threads:
    """At most ``most`` things at once; the others wait without a thread."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._limiter: CapacityLimiter | None = None

    async def run(self, make: Callable[[], Made]) -> Made:
        """What ``make`` returns or raises; it runs to its end even where nobody waits for it any more."""
        from anyio import CapacityLimiter, to_thread

        if self._limiter is None:
            self._limiter = CapacityLimiter(self._most)
        return await to_thread.run_sync(make, limiter=self._limiter)
