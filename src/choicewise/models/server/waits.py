"""Says that a server is waited for, now and then, so that nobody takes a wait for a hang."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Lock
from typing import Final

from choicewise.models.server.faults import Passing, duration

SHORT: Final = 5.0
"""Seconds without an answer of which nothing is said."""

EVERY: Final = 30.0
"""Seconds between two lines, at least."""


class Waits:
    """Hears of answers and of faults that may heal, from any thread; ``say`` gets a line of these now and then.

    Nothing is said while other requests are answered.  ``clock``: seconds that only grow.  ``named``: who is waited
    for, and ``advice``: what Ctrl-C does meanwhile.
    """

    def __init__(
        self,
        say: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
        named: str = "the server",
        advice: str = "Ctrl-C keeps what was observed",
    ) -> None:
        self._say, self._clock, self._named, self._advice = say, clock, named, advice
        self._since: float | None = None
        self._said = float("-inf")
        self._lock = Lock()

    def answered(self) -> None:
        """The server answered."""
        with self._lock:
            self._since = None

    def hear(self, fault: Passing) -> None:
        """A request is about to be made again after ``fault``."""
        with self._lock:
            now = self._clock()
            if self._since is None:
                self._since = min(fault.begun or now, now)
            silent = now - self._since
            if silent + (fault.wait or 0.0) < SHORT or now - self._said < EVERY:
                return
            self._said = now
            parts = [f"no answer for {duration(silent)}"] if silent >= SHORT else []
            parts += [f"it asks to wait {duration(fault.wait)}"] if fault.wait else []
            self._say(f"waiting for {self._named}: {fault.reason} ({', '.join(parts)}); {self._advice}")
