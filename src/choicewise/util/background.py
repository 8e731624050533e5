"""Threads: a periodic one, jobs, a question with a time limit, a bounded pool; and what they do about memory."""

from __future__ import annotations

import ctypes
import gc
import math
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING, Self, TypeVar

if TYPE_CHECKING:
    from anyio import CapacityLimiter

BEAT = 0.2  # seconds between two beats
Result = TypeVar("Result")
_lock = Lock()
_inside = 0
_before = gc.get_threshold()


class Ending:
    """Whether the jobs are to end; they see to it now and then."""

    def __init__(self) -> None:
        self._event = Event()

    def begin(self) -> None:
        """From now on they are."""
        self._event.set()

    def __call__(self) -> bool:
        return self._event.is_set()

    def safe_point(self) -> None:
        """Raises KeyboardInterrupt in the thread of a job where that is to end."""
        if self._event.is_set():
            raise KeyboardInterrupt


def in_threads(
    jobs: int, threads: int, do: Callable[[int, Ending], None], tick: Callable[[], None]
) -> None:
    """Call ``do`` with the number of each job, in their order, on so many ``threads``; ``tick`` is called meanwhile.

    What a job or ``tick`` raises is raised when all threads have ended; jobs that were not begun are left out then.
    """
    ending = Ending()
    with ThreadPoolExecutor(min(jobs, threads), "choicewise-model") as pool:
        futures = [pool.submit(do, number, ending) for number in range(jobs)]
        waiting = set(futures)
        try:
            while waiting:
                over, waiting = wait(waiting, BEAT, FIRST_EXCEPTION)
                for future in over:
                    future.result()
                tick()
        finally:
            ending.begin()
            for future in futures:
                future.cancel()


class Every:
    """Calls ``do`` every so many ``seconds`` in a thread while the ``with`` lasts."""

    def __init__(
        self, seconds: float, do: Callable[[], None], name: str = "choicewise-periodic"
    ) -> None:
        self._seconds, self._do, self._ended = seconds, do, Event()
        self._thread = Thread(target=self._run, name=name, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(self._seconds):
            self._do()


def in_time(seconds: float, ask: Callable[[], Result]) -> Result | None:
    """What ``ask`` returns within so many ``seconds``, else None; nobody waits for its thread then."""
    answers: list[Result] = []
    thread = Thread(target=lambda: answers.append(ask()), daemon=True)
    thread.start()
    thread.join(seconds)
    return answers[0] if answers else None


THRESHOLD = 500_000
"""New objects between two looks at the young ones; Python's own 700 costs a quarter of the time of preparing."""


@contextmanager
def rare_collection() -> Iterator[None]:
    """Meanwhile collect rarely; of several threads the last one to end sets back what was before the first."""
    global _inside, _before
    with _lock:
        if not _inside:
            _before = gc.get_threshold()
            gc.set_threshold(max(_before[0], THRESHOLD) if _before[0] else 0, *_before[1:])
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if not _inside:
                gc.set_threshold(*_before)


def give_memory_back() -> None:
    """Return freed memory to the system, so that what follows a run does not need its own on top.

    After millions of small objects the C library keeps hundreds of megabytes; other C libraries than glibc do it by
    themselves, or not at all.  Garbage is not looked for: a run of any size leaves some dozens of objects in cycles,
    and beside torch the search takes a third of a second.
    """
    import pyarrow as pa

    pa.default_memory_pool().release_unused()
    with suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").malloc_trim(0)


def give_model_back() -> None:
    """Return the memory of models that nobody uses any more, also of those whose parts refer to each other."""
    gc.collect()
    give_memory_back()


class Busy(Exception):
    """As much waits already as may; ask again later."""


class Threads:
    """At most ``most`` things at once; ``waiting`` others wait without a thread, and further ones are refused.

    Without a number as many wait as there are connections.
    """

    def __init__(self, most: int, waiting: float = math.inf) -> None:
        self._most, self._waiting, self._asked = most, waiting, 0
        self._limiter: CapacityLimiter | None = None

    async def run(self, make: Callable[[], Result]) -> Result:
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
