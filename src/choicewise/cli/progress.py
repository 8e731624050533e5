"""Progress on stderr: a live bar in a terminal, a plain line every few seconds elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

EVERY = 5.0
"""Seconds between two plain lines."""

ENOUGH = 0.02
"""The share of the work that says how long the rest takes: the first answers wait for all that they have in common."""


class Progress(Protocol):
    """Told how many of the ``total`` requests are done; the first report of a resumed run starts above zero."""

    def __call__(self, done: int, total: int) -> None:
        """Take note of the state."""
        ...


@contextmanager
def progress(title: str) -> Iterator[Progress]:
    """A progress reporter for one long piece of work; it shows rate and estimated time left."""
    if sys.stderr.isatty():
        with _bar(title) as bar:
            yield bar
    else:
        yield _Lines(title)


class _Lines:
    def __init__(self, title: str) -> None:
        self._title = title
        self._start = self._last = time.monotonic()
        self._first = self._told = -1
        self._total = -1

    def __call__(self, done: int, total: int) -> None:
        now = time.monotonic()
        if total != self._total:  # another piece of the work
            self._first = self._told = done
            self._start, self._total = now, total
            if done:
                print(f"{self._title}: {done}/{total} requests done before", file=sys.stderr, flush=True)
        if done == self._told or (now - self._last < EVERY and done < total):
            return
        self._last, self._told = now, done
        rate = (done - self._first) / max(now - self._start, 1e-9)
        told = f", {rate:.1f}/s" if done - self._first >= ENOUGH * (total - self._first) else ""
        left = f", {(total - done) / rate:.0f} s left" if told and done < total else ""
        print(f"{self._title}: {done}/{total} requests{told}{left}", file=sys.stderr, flush=True)


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
