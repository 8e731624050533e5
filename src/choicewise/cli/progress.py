"""Progress on stderr: one line that is replaced in a terminal, a line now and then elsewhere."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from shutil import get_terminal_size

from choicewise.cli.interrupt import check_interrupt
from choicewise.cli.output import tell, tell_live
from choicewise.report.visible_text import safe
from choicewise.running.progress import ProgressReport

Progress = Callable[[int, int], None]
"""Is called with (done, total) units of work; a resumed run starts above zero."""


@contextmanager
def progress(title: str, computed: Callable[[], int | None] = lambda: None) -> Iterator[Progress]:
    """A progress reporter for one long piece of work; each call is a safe point for Ctrl-C.

    ``computed``: how many input tokens a model has computed, which shows until it answers.
    """
    live = sys.stderr.isatty()
    report = ProgressReport(title, _fit if live else tell, live=live, computed=computed)

    def update(done: int, total: int) -> None:
        check_interrupt()
        report(done, total)

    try:
        yield update
    finally:
        if live:
            tell_live("")


def _fit(line: str) -> None:
    line, width = safe(line), get_terminal_size().columns - 1
    tell_live(line if len(line) <= width else f"{line[: width - 1]}…")
