"""Ctrl-C: the command ends at the next safe point, whatever swallows the exception that Python raises for it."""

import os
import signal
import sys
import threading
from types import FrameType
from typing import Any

_AGAIN = 0.02
"""Seconds after which an interrupt that a finaliser swallowed is raised once more, outside of it."""

_pressed = False


def watch() -> None:
    """Raise KeyboardInterrupt at Ctrl-C, and again for as long as finalisers swallow it; a second Ctrl-C ends at once.

    Does nothing where the shell asked to ignore Ctrl-C, as for jobs in the background.
    """
    global _pressed
    _pressed = False
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        return
    signal.signal(signal.SIGINT, _press)
    signal.signal(signal.SIGALRM, _raise)
    sys.unraisablehook = _unraisable


def watch_end() -> None:
    """Let SIGTERM, by which clusters and services end a process, and SIGHUP, by which a terminal does, do what Ctrl-C
    does.

    In a script's background as well, where the shell asked to ignore Ctrl-C alone; SIGHUP not under ``nohup``.
    """
    global _pressed
    _pressed = False
    signal.signal(signal.SIGTERM, _press)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signal.signal(signal.SIGHUP, _press)
    signal.signal(signal.SIGALRM, _raise)
    sys.unraisablehook = _unraisable


def check_interrupt() -> None:
    """A safe point: raises KeyboardInterrupt in the main thread when Ctrl-C was pressed and the command still runs."""
    if _pressed and threading.current_thread() is threading.main_thread():
        signal.setitimer(signal.ITIMER_REAL, 0)  # once is enough: what is now written must not be interrupted
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
