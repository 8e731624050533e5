"""Commands as a user types them, run in the tests' own process: a process of its own costs two seconds more."""

import io
import signal
import sys
import warnings
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass

import pytest

from choicewise.cli import run_command

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM)


@dataclass(frozen=True)
class CommandResult:
    """What a command ended with and what it printed; ``words`` spelled it."""

    words: tuple[str, ...]
    code: int
    stdout: str
    stderr: str


def choicewise(*words: object, code: int | None = None, **environment: str) -> CommandResult:
    """What ``choicewise WORDS`` prints outside of a terminal, with ``environment`` added to this process's.

    Raises:
        AssertionError: it ended with another code than ``code``, where one is given.
    """
    asked = tuple(map(str, words))
    streams = [
        io.TextIOWrapper(io.BytesIO(), encoding="utf-8", newline="", write_through=True)
        for _ in range(2)
    ]
    handlers, hook = {each: signal.getsignal(each) for each in SIGNALS}, sys.unraisablehook
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("default")
        for name, value in {"TRANSFORMERS_VERBOSITY": "error", **environment}.items():
            patch.setenv(name, value)
        try:
            with redirect_stdout(streams[0]), redirect_stderr(streams[1]):
                ended = run_command(asked)
        finally:
            sys.unraisablehook = hook
            for each, handler in handlers.items():
                signal.signal(each, handler)
    told = CommandResult(
        asked, ended, *(each.buffer.getvalue().decode("utf-8") for each in streams)
    )
    assert code in (None, ended), f"{asked}: code {ended}, {told.stderr}"
    return told
