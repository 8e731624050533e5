"""Progress reports at a steady pace, whatever the main thread waits for."""

from collections.abc import Callable
from threading import Event, Lock, Thread
from time import perf_counter
from typing import Self

Progress = Callable[[int, int], None]
"""Is called with (done, total) of the work, which grows with the computation, now and then from another thread.

A resumed run starts above 0; rescoring in float32 counts again from 0.
"""

SHORTEST, LONGEST = 0.1, 1.0
"""Seconds between two reports."""


class Pulse:
    """Calls ``report`` with every :meth:`beat`, but not too often, and from a thread of its own when no beat comes.

    What ``report`` raises there, the next beat raises.
    """

    def __init__(self, report: Callable[[], None]) -> None:
        self._report = report
        self._last = perf_counter()
        self._lock, self._ended = Lock(), Event()
        self._error: BaseException | None = None
        self._thread = Thread(target=self._wait, name="choicewise-progress", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def beat(self) -> None:
        """The work has gone on."""
        if self._error is not None:
            raise self._error
        if perf_counter() - self._last >= SHORTEST:
            self._call()

    def _call(self) -> None:
        with self._lock:
            self._last = perf_counter()
            self._report()

    def _wait(self) -> None:
        try:
            while not self._ended.wait(LONGEST):
                if perf_counter() - self._last >= LONGEST:
                    self._call()
        except BaseException as error:
            self._error = error
