"""Progress on rich.progress, time left."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable
from threading import Lock
from time import perf_counter

from choicewise.util.background import Every

EVERY = 5.0, 60.0
"""Seconds between two lines: the fewest, at the beginning, and the most; in between, a tenth of the time passed."""

LIVE = 0.1
"""Seconds between two changes of a line that is replaced in its place."""

_BAR = 20


def print_line(line: str) -> None:
    """``line`` on stderr, with escapes for what can't be seen."""
    shown = (
        each if each.isprintable() else each.encode("unicode_escape").decode() for each in line
    )
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
        return (
            f"checking the model, {tokens:,} tokens so far"
            if tokens
            else "waiting for the first answer"
        )


def duration(seconds: float) -> str:
    """``seconds`` in words."""
    if seconds < 90:
        return f"{seconds:.0f} s" if seconds >= 1 else "under 1 s"
    minutes = seconds / 60
    return f"{minutes:.0f} min" if minutes < 90 else f"{minutes / 60:.1f} h"


class SweepProgress:
    """Tells ``report`` of ``total`` units of work how many are done, while runs report on their own."""

    def __init__(self, report: Progress, total: int) -> None:
        self._report, self._total = report, max(total, 1)
        self._parts: list[SweepPart] = []
        self._lock = Lock()

    def run(self, work: int, safe_point: Callable[[], None] = lambda: None) -> SweepPart:
        """The part of a run of so much ``work``, which reports to it; ``safe_point`` is called with every report."""
        part = SweepPart(self.tick, work, safe_point)
        with self._lock:
            self._parts.append(part)
        return part

    def tick(self) -> None:
        """Report what is done by now; one thread at a time, so that later reports never say less."""
        with self._lock:
            self._report(sum(part.done for part in self._parts), self._total)


class SweepPart:
    """One run of a sweep; it may begin anew, and then nothing moves for a while."""

    def __init__(self, tick: Callable[[], None], work: int, safe_point: Callable[[], None]) -> None:
        self.done = 0
        self._tick, self._work, self._safe_point = tick, work, safe_point

    def __call__(self, done: int, total: int) -> None:
        self._safe_point()
        self.done = max(self.done, int(self._work * done / total) if total else self._work)
        self._tick()

    def finish(self) -> None:
        """The run is over, whether it is complete or failed."""
        self.done = self._work
        self._tick()


ENOUGH = 0.02
"""Share of the work that must be done since the first answer before a speed says anything."""

THIN = 500
"""A moment replaces the last one where less than this part of the time lies in between, to bound their number."""


class TimeLeft:
    """Seconds that a work of ``total`` units still takes, from the moments at which ``done`` of them were done.

    The speed is that of the later half of what was done since the first answer: loading and checking come before it,
    and a first block may be slow because everything is cold.  Answers come in packs, so only moments at which
    something was done count, and the time since the last one is subtracted.
    """

    def __init__(self, done: int, total: int) -> None:
        self._before, self._total = done, total
        self._first: int | None = None
        self._moments: deque[tuple[float, int]] = deque()

    @property
    def answered(self) -> bool:
        """Whether anything was done since the beginning."""
        return self._first is not None

    def add(self, now: float, done: int) -> None:
        """At ``now`` (seconds) ``done`` units are done; a count that is no greater than the last is no news."""
        moments = self._moments
        if done <= (moments[-1][1] if moments else self._before):
            return
        if self._first is None:
            self._first = done
        elif len(moments) > 2 and moments[-1][0] - moments[-2][0] < (now - moments[0][0]) / THIN:
            moments.pop()
        moments.append((now, done))
        while len(moments) > 2 and moments[1][1] <= (self._first + done) / 2:
            moments.popleft()

    def seconds(self, now: float) -> float | None:
        """Estimated seconds left at ``now``; None where nothing can be said yet."""
        if self._first is None or self._moments[-1][1] - self._first < ENOUGH * (
            self._total - self._before
        ):
            return None
        (start, before), (end, done) = self._moments[0], self._moments[-1]
        if end <= start:
            return None
        pause = (end - start) / (len(self._moments) - 1)
        left = (self._total - done) * (end - start) / (done - before)
        return max(left - min(now - end, pause), 0.0)


Progress = Callable[[int, int], None]
"""Is called with (done, total) of the work, which grows with the computation, now and then from another thread.

A resumed run starts above 0.
"""

SHORTEST, LONGEST = 0.1, 1.0
"""Seconds between two reports."""


class PeriodicReport(Every):
    """Calls ``report`` with every :meth:`tick`, but not too often, and from a thread of its own when no tick comes.

    What ``report`` raises there, the next tick raises.
    """

    def __init__(self, report: Callable[[], None]) -> None:
        super().__init__(LONGEST, self._report_late, "choicewise-progress")
        self._report = report
        self._last = perf_counter()
        self._lock = Lock()
        self._error: BaseException | None = None

    def tick(self) -> None:
        """The work has gone on."""
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
            self._error = error
            self._ended.set()
