"""Progress of a run: lines with a bar and the time left."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock
from time import perf_counter

from choicewise.util.background import Every

EVERY = (5.0, 60.0)
"""Seconds between two lines of a log: a tenth of the time so far, within these bounds."""

LIVE = 0.1
"""Seconds between two changes of a line that is replaced in its place."""

_BAR = 20


def print_line(line: str) -> None:
    """Print ``line`` on stderr, with escapes for invisible characters."""
    characters = [
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in line
    ]
    print("".join(characters), file=sys.stderr, flush=True)


class ProgressReport:
    """Show a line about the progress, when called with (done, total) units of work.

    It may be called at any rate and from any thread.  ``show`` gets the lines, by default those of
    a log.  ``live``: True if each line replaces the last, so that lines may come often and have a
    bar.  A new total begins another piece of work, and so does a small ``done`` after everything
    was done.  ``computed``: the input tokens so far; the model checks itself before the first
    answer.
    """

    def __init__(
        self,
        title: str,
        show: Callable[[str], None] = print_line,
        *,
        live: bool = False,
        computed: Callable[[], int | None] = lambda: None,
    ) -> None:
        self._title = title
        self._show = show
        self._live = live
        self._computed = computed
        self._lock = Lock()
        self._start = time.monotonic()
        self._last_line = self._start
        self._done = -1
        self._total = -1
        self._left = TimeLeft(0, 0)

    def __call__(self, done: int, total: int) -> None:
        with self._lock:
            now = time.monotonic()
            begins_anew = self._done == total and 2 * done < self._done
            if total != self._total or begins_anew:
                self._begin(now, done, total)
            done = max(done, self._done)  # threads may call out of order
            finishes = self._done < done == total
            self._left.add(now, done)
            self._done = done
            is_due = done < total and now - self._last_line >= self._pause(now)
            if finishes or is_due:
                self._last_line = now
                self._show(self._line(now))

    def _begin(self, now: float, done: int, total: int) -> None:
        if self._total >= 0:
            self._start = now
            self._last_line = now
        self._done = done
        self._total = total
        self._left = TimeLeft(done, total)
        # A resumed run: a bar shows it anyway.
        if done and not self._live:
            self._show(f"{self._title}: {100 * done // total} % done before")

    def _pause(self, now: float) -> float:
        if self._live:
            return LIVE
        shortest, longest = EVERY
        return min(max(shortest, (now - self._start) / 10), longest)

    def _line(self, now: float) -> str:
        bar = ""
        if self._live:
            filled = int(_BAR * (self._done / self._total))
            bar = "█" * filled + "░" * (_BAR - filled) + " "
        parts = [f"{100 * self._done // self._total} %", duration(now - self._start)]
        if self._done < self._total:
            left = self._left.seconds(now)
            if left is not None:
                rounded = "about " if left >= 1 else ""
                parts.append(f"{rounded}{duration(left)} left")
            if not self._left.answered:
                tokens = self._computed()
                waiting = "waiting for the first answer"
                if tokens:
                    waiting = f"checking the model, {tokens:,} tokens so far"
                parts.append(waiting)
        return f"{self._title}: {bar}{', '.join(parts)}"


def duration(seconds: float) -> str:
    """Return ``seconds`` in words."""
    if seconds < 1:
        return "under 1 s"
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = seconds / 60
    if minutes < 90:
        return f"{minutes:.0f} min"
    return f"{minutes / 60:.1f} h"


ENOUGH = 0.02
"""Share of the work that must be done since the first answer before a speed says anything."""

THIN = 500
"""The newest moment is replaced if it is younger than this part of the time, to bound their number.
"""


@dataclass(frozen=True, slots=True)
class _Moment:
    """Hold a time in seconds, and the work done by then."""

    time: float
    done: int


class TimeLeft:
    """Estimate the seconds left of a work of ``total`` units, from moments at which some were done.

    The speed is that of the later half of the work since the first answer: loading and checking
    come before it, and caches are cold in a first block.  Answers come in packs, so only moments
    with news count, and the time since the last one is subtracted.
    """

    def __init__(self, done: int, total: int) -> None:
        self._before = done
        self._total = total
        self._first: int | None = None
        self._moments: deque[_Moment] = deque()

    @property
    def answered(self) -> bool:
        """Return True after the first answer."""
        return self._first is not None

    def add(self, now: float, done: int) -> None:
        """Note that ``done`` units are done at ``now`` (seconds), if it is more than before."""
        moments = self._moments
        last = moments[-1].done if moments else self._before
        if done <= last:
            return
        if self._first is None:
            self._first = done
        # The first moment is kept, as the speed counts from it.
        elif len(moments) > 2:
            newest = moments[-1].time - moments[-2].time
            if newest < (now - moments[0].time) / THIN:
                moments.pop()
        moments.append(_Moment(now, done))
        while len(moments) > 2 and moments[1].done <= (self._first + done) / 2:
            moments.popleft()

    def seconds(self, now: float) -> float | None:
        """Return the estimated seconds left at ``now``; None before there is enough news."""
        if self._first is None:
            return None
        first = self._moments[0]
        last = self._moments[-1]
        if last.done - self._first < ENOUGH * (self._total - self._before):
            return None
        elapsed = last.time - first.time
        if elapsed <= 0:
            return None
        pause = elapsed / (len(self._moments) - 1)
        left = (self._total - last.done) * elapsed / (last.done - first.done)
        return max(left - min(now - last.time, pause), 0.0)


Progress = Callable[[int, int], None]
"""A function that is called with (done, total) of the work, now and then from another thread.

The work grows with the computation.  A resumed run starts above 0.
"""

SHORTEST = 0.1
LONGEST = 1.0
"""Seconds between two reports."""


class PeriodicReport(Every):
    """Call ``report`` with ticks, but not too often, and from a thread if no tick comes for long.

    An error of ``report`` in the thread is raised by the next tick.
    """

    def __init__(self, report: Callable[[], None]) -> None:
        super().__init__(LONGEST, self._report_late, "choicewise-progress")
        self._report = report
        self._last = perf_counter()
        self._lock = Lock()
        self._error: BaseException | None = None

    def tick(self) -> None:
        """Note that the work has gone on."""
        if self._error is not None:
            raise self._error
        if perf_counter() - self._last >= SHORTEST:
            self._call()

    def _call(self) -> None:
        with self._lock:
            self._last = perf_counter()
            self._report()

    def _report_late(self) -> None:
        try:
            if perf_counter() - self._last >= LONGEST:
                self._call()
        except BaseException as error:
            # Nobody sees an error of this thread, and a progress that can stop the run must.
            self._error = error
            self._ended.set()
