"""How far a piece of work is, in words: share done, time passed, time left."""

import sys
import time
from collections.abc import Callable
from threading import Lock

from choicewise.running.time_left import TimeLeft

EVERY = 5.0, 60.0
"""Seconds between two lines: the fewest, at the beginning, and the most; in between, a tenth of the time passed."""

LIVE = 0.1
"""Seconds between two changes of a line that is replaced in its place."""

_BAR = 20


def print_line(line: str) -> None:
    """``line`` on stderr, with escapes for what can't be seen."""
    shown = (each if each.isprintable() else each.encode("unicode_escape").decode() for each in line)
    print("".join(shown), file=sys.stderr, flush=True)


class ProgressReport:
    """Is called with (done, total) units of work, as often as anybody likes and from any thread, and shows a line.

    ``show`` gets the lines, by default those of a log.  ``live``: it replaces its last line by each, so that they may
    come often, and have a bar.  Another total, or little done after everything was, begins another piece of the work.
    ``computed``: how many input tokens the model computed, which checks itself before the first answer.
    """

    def __init__(
        self,
        title: str,
        show: Callable[[str], None] = print_line,
        *,
        live: bool = False,
        computed: Callable[[], int | None] = lambda: None,
    ) -> None:
        self._title, self._show, self._live, self._computed = title, show, live, computed
        self._lock = Lock()
        self._start = self._shown = time.monotonic()
        self._done = self._total = -1
        self._left = TimeLeft(0, 0)

    def __call__(self, done: int, total: int) -> None:
        with self._lock:
            now = time.monotonic()
            if total != self._total or 2 * done < self._done == total:
                self._begin(now, done, total)
            done = max(done, self._done)  # threads may call out of order
            finishes = self._done < done == total
            self._left.add(now, done)
            self._done = done
            if finishes or (done < total and now - self._shown >= self._pause(now)):
                self._shown = now
                self._show(self._line(now))

    def _begin(self, now: float, done: int, total: int) -> None:
        if self._total >= 0:
            self._start = self._shown = now
        self._done, self._total, self._left = done, total, TimeLeft(done, total)
        if done and not self._live:
            self._show(f"{self._title}: {100 * done // total} % done before")

    def _pause(self, now: float) -> float:
        return LIVE if self._live else min(max(EVERY[0], (now - self._start) / 10), EVERY[1])

    def _line(self, now: float) -> str:
        share = self._done / self._total
        bar = "█" * int(_BAR * share) + "░" * (_BAR - int(_BAR * share)) + " " if self._live else ""
        parts = [f"{100 * self._done // self._total} %", duration(now - self._start)]
        if self._done < self._total:
            left = self._left.seconds(now)
            parts += [f"about {duration(left)} left"] if left is not None else []
            parts += [] if self._left.answered else [self._waiting()]
        return f"{self._title}: {bar}{', '.join(parts)}"

    def _waiting(self) -> str:
        tokens = self._computed()
        return f"checking the model, {tokens:,} tokens so far" if tokens else "waiting for the first answer"


def duration(seconds: float) -> str:
    """``seconds`` in words."""
    if seconds < 90:
        return f"{seconds:.0f} s" if seconds >= 1 else "under 1 s"
    minutes = seconds / 60
    return f"{minutes:.0f} min" if minutes < 90 else f"{minutes / 60:.1f} h"
