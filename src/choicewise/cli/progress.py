"""Progress on stderr: a live bar in a terminal, a plain line every few seconds elsewhere."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

EVERY = 5.0
"""Seconds between two plain lines."""

ENOUGH = 0.02
"""Share of the work after which a rate is shown: the first answers wait for the computation that all share."""

Progress = Callable[[int, int], None]
"""Is called with how many requests are done, and of how many; a resumed run starts above zero."""


@contextmanager
def progress(title: str) -> Iterator[Progress]:
    """A progress reporter for one long piece of work; it shows rate and estimated remaining time."""
    if sys.stderr.isatty():
        with _bar(title) as bar:
            yield bar
    else:
        yield _Lines(title)


class _Lines:
    def __init__(self, title: str) -> None:
        self._title = title
        self._start = self._last = time.monotonic()
        self._first = self._shown = -1
        self._total = -1

    def __call__(self, done: int, total: int) -> None:
        now = time.monotonic()
        if total != self._total:  # another part of the work
            self._first = self._shown = done
            self._start, self._total = now, total
            if done:
                print(f"{self._title}: {done}/{total} requests done before", file=sys.stderr, flush=True)
        if done == self._shown or (now - self._last < EVERY and done < total):
            return
        self._last, self._shown = now, done
        rate = (done - self._first) / max(now - self._start, 1e-9)
        speed = f", {rate:.1f}/s" if done - self._first >= ENOUGH * (total - self._first) else ""
        remaining = f", {(total - done) / rate:.0f} s remaining" if speed and done < total else ""
        print(f"{self._title}: {done}/{total} requests{speed}{remaining}", file=sys.stderr, flush=True)


@contextmanager
def _bar(title: str) -> Iterator[Progress]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    rate = TextColumn("{task.fields[rate]}", justify="right")
    console = Console(stderr=True)
    with Bar(TextColumn(title), BarColumn(), MofNCompleteColumn(), rate, TimeRemainingColumn(), console=console) as bar:
        task = bar.add_task(title, rate="")

        def update(done: int, total: int) -> None:
            speed = bar.tasks[0].speed
            bar.update(task, completed=done, total=total, rate=f"{speed:.0f}/s" if speed else "")

        yield update
