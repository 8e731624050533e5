"""stdout and stderr as a command needs them: any text can be written, and what can't be written is not lost unsaid."""

import codecs
import os
import sys
from io import TextIOWrapper

_ASCII = {
    **{"–": "-", "─": "-", "×": "x", "τ": "tau", "…": "...", "█": "#", "░": "."},
    **{"⏎": "\\n", "␠": "_", "␉": "\\t", "→": "->"},
}
"""What stands for the characters of tables and texts where the terminal lacks them; others are shown as escapes."""


def open_streams() -> None:
    """Make stdout and stderr accept every text, also where the shell closed them or the terminal has few characters.

    Writing to a stdout that was closed raises OSError; what goes to a stderr that was closed is dropped.
    """
    if sys.stdout is None:  # its descriptor must be taken, else the next file that is opened would be stdout
        sys.stdout = os.fdopen(os.open(os.devnull, os.O_RDONLY), "w", encoding="utf-8")
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 (it stays open)
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
    return "".join(_ASCII.get(each) or each.encode("ascii", "backslashreplace").decode() for each in text), error.end
