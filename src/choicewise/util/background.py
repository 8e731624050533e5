"""Run jobs in threads, periodically or within a time limit; and free memory."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Event, Lock, Thread
from typing import Self, TypeVar

Result = TypeVar("Result")
_lock = Lock()
_inside = 0
_before = gc.get_threshold()


class Every:
    """Call ``do`` every so many ``seconds`` in a thread while the ``with`` lasts."""

    def __init__(
        self, seconds: float, do: Callable[[], None], name: str = "choicewise-periodic"
    ) -> None:
        self._seconds = seconds
        self._do = do
        self._ended = Event()
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


def in_time(seconds: float, make: Callable[[], Result]) -> Result | None:
    """Return the result of ``make``, or None if that takes longer; its thread goes on then."""
    results: list[Result] = []
    thread = Thread(target=lambda: results.append(make()), daemon=True)
    thread.start()
    thread.join(seconds)
    return results[0] if results else None


THRESHOLD = 500_000
"""New objects between two collections of young ones.

Python's default of 700 costs a quarter of preparing.
"""


@contextmanager
def rare_collection() -> Iterator[None]:
    """Collect garbage rarely.

    Of several threads the last one to end restores the setting from before the first.
    """
    global _inside, _before
    with _lock:
        if not _inside:
            _before = gc.get_threshold()
            young, *older = _before
            # With 0 garbage is never collected, which is left so.
            if young:
                young = max(young, THRESHOLD)
            gc.set_threshold(young, *older)
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if not _inside:
                gc.set_threshold(*_before)


def give_memory_back() -> None:
    """Return freed memory to the system, so that other work after a run has it.

    After millions of small objects the C library keeps hundreds of megabytes; other C libraries
    than glibc do it by themselves, or not at all.  Garbage is not looked for: a run of any size
    leaves some dozens of objects in cycles, and beside torch the search takes a third of a second.
    """
    import pyarrow as pa

    pa.default_memory_pool().release_unused()
    with suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").malloc_trim(0)


def give_model_back() -> None:
    """Return the memory of models that are no longer used, also of those whose parts refer to each
    other.
    """
    gc.collect()
    give_memory_back()
