"""Several jobs at once, each in a thread, which all end when one of them fails or Ctrl-C is pressed."""

from collections.abc import Callable
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from threading import Event

BEAT = 0.2
"""Seconds between two beats."""


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


def in_threads(jobs: int, threads: int, do: Callable[[int, Ending], None], beat: Callable[[], None]) -> None:
    """Call ``do`` with the number of each job, in their order, on so many ``threads``; ``beat`` is called meanwhile.

    What a job or ``beat`` raises is raised when all threads have ended; jobs that were not begun are left out then.
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
                beat()
        finally:
            ending.begin()
            for future in futures:
                future.cancel()
