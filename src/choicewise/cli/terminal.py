"""Streams, output, interrupt, progress.

Texts of data, models and paths may hold line ends and escape sequences; people are shown a visible form of them
(:mod:`choicewise.util.text`), and JSON holds them as JSON's own escapes.
"""

from __future__ import annotations

import codecs
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from io import TextIOWrapper
from itertools import pairwise
from threading import Lock, RLock
from types import FrameType
from typing import Any, NoReturn

from choicewise.errors import ChoicewiseError, MissingData, UnknownShape
from choicewise.running.progress import LIVE, ProgressReport
from choicewise.util.text import check_name, command_line, json_safe, safe, size

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


def columns() -> int:
    """How wide the terminal is; 80 where there is none."""
    if (told := os.environ.get("COLUMNS", "")).isdigit() and int(told):
        return int(told)
    try:
        return os.get_terminal_size(1).columns or 80
    except (OSError, ValueError):
        return 80


def _fit(line: str) -> None:
    line, width = safe(line), columns() - 1
    tell_live(line if len(line) <= width else f"{line[: width - 1]}…")


EVERY = 10.0
"""Seconds between two lines about a download outside of a terminal."""


def show_download() -> Callable[[str, int, int], None]:
    """What is called with (name, bytes done, bytes in all) while files are downloaded, from any thread."""
    live, lock, shown = sys.stderr.isatty(), Lock(), 0.0

    def update(name: str, done: int, total: int) -> None:
        nonlocal shown
        stop_thread()
        with lock:
            now = time.monotonic()
            if done >= total:
                tell(f"downloaded {name}: {size(total)}")
            elif now - shown >= (LIVE if live else EVERY):
                shown = now
                (tell_live if live else tell)(f"downloading {name}: {size(done)} of {size(total)}")

    return update


_lock = RLock()
_live = False  # whether stderr ends in a line that is still being replaced


def show(*lines: str) -> None:
    """Each of ``lines``, a line of the result."""
    for line in lines:
        print(safe(line))


def show_dim(line: str) -> None:
    """Print ``line`` of the result in grey if a terminal shows it."""
    text = safe(line)
    if sys.stdout.isatty() and not os.environ.get("NO_COLOR"):
        text = f"\x1b[2m{text}\x1b[0m"
    print(text)


def print_json(content: object, indent: int | None = 1) -> None:
    """``content`` as JSON (:func:`choicewise.util.jsonio.json_value`), on one line without ``indent``."""
    from json import dumps

    from choicewise.util.jsonio import json_value

    narrow = (sys.stdout.encoding or "ascii").lower().replace("-", "") != "utf8"
    print(json_safe(dumps(json_value(content), ensure_ascii=narrow, indent=indent)))


def print_parts(parts: Iterable[object]) -> None:
    """Each part, a table or text, with an empty line after it."""
    from choicewise.report.tables import console
    from choicewise.table import Table, terminal

    out = console()
    for part in parts:
        out.print(terminal(part, most=None) if isinstance(part, Table) else part)
        out.print()


def tell(*lines: str) -> None:
    """Each of ``lines`` on stderr.  Where nobody can read it, nothing happens: talk must not end a run."""
    global _live
    with _lock, suppress(OSError, ValueError):
        start, _live = "\r\x1b[K" if _live else "", False
        sys.stderr.write(start + "".join(f"{safe(line)}\n" for line in lines))
        sys.stderr.flush()


def tell_live(line: str) -> None:
    """Replace the line at the end of a terminal's stderr by ``line``; :func:`tell` and an empty line take it away."""
    global _live
    with _lock, suppress(OSError, ValueError):
        sys.stderr.write(f"\r\x1b[K{safe(line)}")
        sys.stderr.flush()
        _live = bool(line)


def fail(error: ChoicewiseError) -> NoReturn:
    """End with an error: the message on a line, and each of its problems on one of its own."""
    tell(f"error: {error.message}", *(f"  {problem}" for problem in error.problems))
    if isinstance(error, MissingData):
        line = command_line("fetch", *error.benchmarks, "--to", "DIR")
        tell(
            f"  with network: `{line}`, then set CHOICEWISE_DATA=DIR, here or where DIR is copied to"
        )
    if isinstance(error, UnknownShape):
        tell("  then add `--mapping mapping.toml` to the command")
    sys.exit(error.exit_code)


_AGAIN = 0.02  # seconds after which an interrupt that a finaliser swallowed is raised once more, outside of it

_pressed = False


def watch() -> None:
    """Raise KeyboardInterrupt at Ctrl-C, and again for as long as finalisers swallow it; a second Ctrl-C ends at once.

    Does nothing where the shell asked to ignore Ctrl-C, as for jobs in the background.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        end_quietly()
    else:
        _watch(signal.SIGINT)


def watch_end() -> None:
    """Let SIGTERM, by which clusters and services end a process, and SIGHUP, by which a terminal does, do what Ctrl-C
    does.

    In a script's background as well, where the shell asked to ignore Ctrl-C alone; SIGHUP not under ``nohup``.
    """
    hangup = [] if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else [signal.SIGHUP]
    _watch(signal.SIGTERM, *hangup)


def check_interrupt() -> None:
    """A safe point: raises KeyboardInterrupt in the main thread when Ctrl-C was pressed and the command still runs."""
    if _pressed and threading.current_thread() is threading.main_thread():
        signal.setitimer(
            signal.ITIMER_REAL, 0
        )  # once is enough: what is now written must not be interrupted
        raise KeyboardInterrupt


def stop_thread() -> None:
    """A safe point of another thread, whose work ends as well when Ctrl-C was pressed: raises KeyboardInterrupt."""
    if _pressed:
        raise KeyboardInterrupt


def end_quietly() -> None:
    """Ctrl-C was what this command ends by, and it has ended: nothing was interrupted."""
    global _pressed
    signal.setitimer(signal.ITIMER_REAL, 0)
    _pressed = False


def end_watch() -> None:
    """Nothing is left that could be lost: from now on Ctrl-C ends the process at once."""
    if signal.getsignal(signal.SIGINT) is _press:
        signal.signal(signal.SIGINT, _end)


def _watch(*signals: signal.Signals) -> None:
    global _pressed
    _pressed = False
    for each in signals:
        signal.signal(each, _press)
    signal.signal(signal.SIGALRM, _raise)
    sys.unraisablehook = _unraisable


def _press(number: int, frame: FrameType | None) -> None:
    global _pressed
    if _pressed:
        _end(number, frame)
    _pressed = True
    raise KeyboardInterrupt


def _raise(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _end(number: int, frame: FrameType | None) -> None:
    os._exit(130)


def _unraisable(unraisable: Any) -> None:
    """Python tells this hook of exceptions that it ignores, such as one raised inside ``__del__``."""
    if unraisable.exc_type is KeyboardInterrupt and _pressed:
        signal.setitimer(signal.ITIMER_REAL, _AGAIN)
    else:
        sys.__unraisablehook__(unraisable)


_ASCII = {
    **{"–": "-", "─": "-", "×": "x", "τ": "tau", "…": "...", "█": "#", "░": "."},
    **{"⏎": "\\n", "␠": "_", "␉": "\\t", "→": "->"},
}
"""What stands for the characters of tables and texts where the terminal lacks them; others are shown as escapes."""


def open_streams() -> None:
    """Make stdout and stderr accept every text, also where the shell closed them or the terminal has few characters.

    Writing to a stdout that was closed raises OSError; what goes to a stderr that was closed is dropped.
    """
    if (
        sys.stdout is None
    ):  # its descriptor must be taken, else the next file that is opened would be stdout
        sys.stdout = os.fdopen(os.open(os.devnull, os.O_RDONLY), "w", encoding="utf-8")
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")
    codecs.register_error("choicewise", _replaced)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="choicewise")


def abandon(descriptor: int) -> None:
    """Send what is still buffered for ``descriptor`` nowhere: its reader is gone, or its disk is full."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)


def _replaced(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)
    text = error.object[error.start : error.end]
    return "".join(
        _ASCII.get(each) or each.encode("ascii", "backslashreplace").decode() for each in text
    ), error.end


_TEXTS = ("--system", "--context", "--choice", "--premise")
"""Options whose value is a text for the model, in which an address is like any other words."""

_PASSED_ON = "lm-eval"  # the command whose arguments are for another program


def refuse_typed_secrets(arguments: Sequence[str]) -> None:
    """UsageError naming the option, where one of ``arguments`` is an address with a login or a key in it."""
    if _PASSED_ON in arguments[:1]:
        return
    for before, word in pairwise(("", *arguments)):
        option, _, value = word.partition("=") if word.startswith("--") else (before, "", word)
        if option not in _TEXTS:
            check_name(value, option if option.startswith("--") else "an argument")
