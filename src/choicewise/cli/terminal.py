"""Write results to stdout, notes and progress to stderr, and end at Ctrl-C without loss.

Texts of data, models and paths may hold line ends and escape sequences; people see a visible form
of them (:mod:`choicewise.util.text`), and JSON holds them as JSON's own escapes.
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

from choicewise.errors import ChoicewiseError, MissingData, NoProtocol, UnfitRow, UnknownShape
from choicewise.running.progress import LIVE, ProgressReport
from choicewise.util.text import check_name, command_line, json_safe, safe, size

Progress = Callable[[int, int], None]
"""Called with (done, total) units of work; a resumed run starts above zero."""


@contextmanager
def progress(title: str, computed: Callable[[], int | None] = lambda: None) -> Iterator[Progress]:
    """Yield a reporter of progress for one long piece of work.

    Each call is a safe point for Ctrl-C.

    ``computed``: returns how many input tokens a model has computed, which is shown until it
    answers.
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
    """Return the width of the terminal, 80 without one."""
    text = os.environ.get("COLUMNS", "")
    if text.isdigit() and int(text):
        return int(text)
    try:
        return os.get_terminal_size(1).columns or 80
    except (OSError, ValueError):
        return 80


def _fit(line: str) -> None:
    line = safe(line)
    width = columns() - 1
    if len(line) > width:
        line = f"{line[: width - 1]}…"
    tell_live(line)


EVERY = 10.0
"""Seconds between two lines about a download outside of a terminal."""


def show_download() -> Callable[[str, int, int], None]:
    """Return a function to be called with (name, bytes done, bytes in all) during downloads, from
    any thread.
    """
    live = sys.stderr.isatty()
    interval = LIVE if live else EVERY
    say = tell_live if live else tell
    lock = Lock()
    last = 0.0

    def update(name: str, done: int, total: int) -> None:
        nonlocal last
        # In any thread, so that its work ends as well.
        if _pressed:
            raise KeyboardInterrupt
        with lock:
            now = time.monotonic()
            if done >= total:
                tell(f"downloaded {name}: {size(total)}")
            elif now - last >= interval:
                last = now
                say(f"downloading {name}: {size(done)} of {size(total)}")

    return update


_lock = RLock()

# Whether stderr ends in a line that is still being replaced.
_live = False


def show(*lines: str) -> None:
    """Print ``lines`` of the result."""
    for line in lines:
        print(safe(line))


def show_dim(line: str) -> None:
    """Print ``line`` of the result in grey if a terminal shows it."""
    text = safe(line)
    if sys.stdout.isatty() and not os.environ.get("NO_COLOR"):
        text = f"\x1b[2m{text}\x1b[0m"
    print(text)


def print_json(content: object, indent: int | None = 1) -> None:
    """Print ``content`` as JSON (:func:`choicewise.util.jsonio.json_value`), on one line without
    ``indent``.
    """
    from json import dumps

    from choicewise.util.jsonio import json_value

    encoding = sys.stdout.encoding or "ascii"
    narrow = encoding.lower().replace("-", "") != "utf8"
    print(json_safe(dumps(json_value(content), ensure_ascii=narrow, indent=indent)))


def print_parts(parts: Iterable[object]) -> None:
    """Print each part, a table or a text, with an empty line after it."""
    from choicewise.report.tables import console
    from choicewise.table import Table, terminal

    out = console()
    for part in parts:
        if isinstance(part, Table):
            part = terminal(part, most=None)
        out.print(part)
        out.print()


def tell(*lines: str) -> None:
    """Write ``lines`` to stderr. If nobody can read it, nothing happens: talk must not end a run."""
    global _live
    with _lock, suppress(OSError, ValueError):
        if _live:
            sys.stderr.write("\r\x1b[K")
            _live = False
        sys.stderr.write("".join(f"{safe(line)}\n" for line in lines))
        sys.stderr.flush()


def tell_live(line: str) -> None:
    """Replace the line at the end of a terminal's stderr by ``line``.

    :func:`tell` and an empty line take it away.
    """
    global _live
    with _lock, suppress(OSError, ValueError):
        sys.stderr.write(f"\r\x1b[K{safe(line)}")
        sys.stderr.flush()
        _live = bool(line)


def fail(error: ChoicewiseError) -> NoReturn:
    """End with an error: its message on a line, then a line for each of its problems."""
    tell(f"error: {error.message}", *(f"  {problem}" for problem in error.problems))
    if isinstance(error, MissingData):
        line = command_line("fetch", *error.benchmarks, "--to", "DIR")
        tell(f"  with network: `{line}`, then set CHOICEWISE_DATA=DIR")
    if isinstance(error, NoProtocol) and error.instead:
        tell("  use: " + " ".join(f"--{option} {value}" for option, value in error.instead.items()))
    if isinstance(error, UnknownShape):
        tell("  then add `--mapping mapping.toml` to the command")
    if isinstance(error, UnfitRow):
        tell("  to leave out rows that do not fit, add `--mapping mapping.toml --on-bad-item skip`")
    sys.exit(error.exit_code)


# Seconds after which an interrupt that a finaliser swallowed is raised once more, outside of it.
_AGAIN = 0.02

_pressed = False


def watch() -> None:
    """Raise KeyboardInterrupt at Ctrl-C, and again for as long as finalisers swallow it.

    A second Ctrl-C ends at once.

    Does nothing if the shell asked to ignore Ctrl-C, which it does for jobs in the background.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        end_quietly()
    else:
        _watch(signal.SIGINT)


def watch_end() -> None:
    """Let SIGTERM (of clusters and services) and SIGHUP (of a terminal) do what Ctrl-C does.

    They do so in the background of a script as well, where the shell asked to ignore Ctrl-C alone.
    """
    signals = [signal.SIGTERM]
    # Under ``nohup`` the process outlives its terminal.
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signals.append(signal.SIGHUP)
    _watch(*signals)


def check_interrupt() -> None:
    """Raise KeyboardInterrupt in the main thread if Ctrl-C was pressed and the command still runs."""
    if _pressed and threading.current_thread() is threading.main_thread():
        # Once is enough: what is now written must not be interrupted.
        signal.setitimer(signal.ITIMER_REAL, 0)
        raise KeyboardInterrupt


def end_quietly() -> None:
    """Forget that Ctrl-C was pressed: it is how this command ends, so nothing was interrupted."""
    global _pressed
    signal.setitimer(signal.ITIMER_REAL, 0)
    _pressed = False


def end_watch() -> None:
    """Let Ctrl-C end the process at once from now on, as nothing is left that could be lost."""
    if signal.getsignal(signal.SIGINT) is _press:
        signal.signal(signal.SIGINT, _end)


def _watch(*signals: signal.Signals) -> None:
    global _pressed
    _pressed = False
    for number in signals:
        signal.signal(number, _press)
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
    """Raise an interrupt again that Python ignored, for example inside ``__del__``."""
    if unraisable.exc_type is KeyboardInterrupt and _pressed:
        signal.setitimer(signal.ITIMER_REAL, _AGAIN)
    else:
        sys.__unraisablehook__(unraisable)


_ASCII = str.maketrans(
    {
        "–": "-",
        "─": "-",
        "×": "x",
        "τ": "tau",
        "…": "...",
        "█": "#",
        "░": ".",
        "⏎": "\\n",
        "␠": "_",
        "␉": "\\t",
        "→": "->",
    }
)
"""Substitutes for characters of tables and texts that the terminal lacks; others become escapes."""


def open_streams() -> None:
    """Make stdout and stderr accept every text, also if the shell closed them or the terminal has
    few characters.

    Writing to a stdout that was closed raises OSError; what goes to a stderr that was closed is
    dropped.
    """
    # The descriptor must be taken, else the next file that is opened would be stdout.
    if sys.stdout is None:
        sys.stdout = os.fdopen(os.open(os.devnull, os.O_RDONLY), "w", encoding="utf-8")
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")
    codecs.register_error("choicewise", _replaced)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="choicewise")


def abandon(descriptor: int) -> None:
    """Send the rest of the output of ``descriptor`` nowhere: its reader is gone, or its disk is
    full.
    """
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)


def _replaced(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)
    text = error.object[error.start : error.end].translate(_ASCII)
    return text.encode("ascii", "backslashreplace").decode(), error.end


_TEXTS = ("--system", "--context", "--choice", "--premise")
"""Options whose value is a text for the model, which may hold any address."""

# The command whose arguments are for another program.
_PASSED_ON = "lm-eval"


def refuse_typed_secrets(arguments: Sequence[str]) -> None:
    """Raise UsageError, naming the option, if an argument is an address with a login or a key in
    it.
    """
    if _PASSED_ON in arguments[:1]:
        return
    for before, word in pairwise(("", *arguments)):
        option = before
        value = word
        if word.startswith("--"):
            option, _, value = word.partition("=")
        if option in _TEXTS:
            continue
        check_name(value, option if option.startswith("--") else "an argument")
