"""Run a command line: results go to stdout, notes and progress to stderr.

Exit codes: 0 done, 1 another Choicewise error, 2 wrong use, 3 data, 4 protocol, 5 model, 6 run
folder, 7 a sweep that lacks something or a run that lacks dropped blocks, 8 a damaged run folder,
130 interrupted.
"""

from __future__ import annotations

import atexit
import gc
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import NoReturn

from choicewise import __version__
from choicewise.cli.terminal import (
    abandon,
    check_interrupt,
    end_watch,
    fail,
    open_streams,
    show,
    tell,
    watch,
)
from choicewise.errors import ChoicewiseError


def __getattr__(name: str) -> object:
    if name != "app":
        raise AttributeError(f"module 'choicewise.cli' has no attribute {name!r}")

    from choicewise.cli.commands import application

    return application()


def main() -> NoReturn:
    """Run the command of the process, and end the process with its exit code.

    All output is written by then. An ordinary end would destroy C++ threads that libraries left
    behind while they still run, and now and then abort with "terminate called without an active
    exception".
    """
    code = 1

    def leave() -> None:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.flush()
        os._exit(code)

    # The first to be registered runs last, after those of libraries.
    atexit.register(leave)
    # Tables are millions of objects and hardly any garbage: to look for it after every 700 of them
    # takes a tenth of the time of a page.
    gc.set_threshold(50_000, 20, 100)
    code = run_command(sys.argv[1:])
    sys.exit(code)


def run_command(arguments: Sequence[str]) -> int:
    """Run the command that ``arguments`` spell, without the program's name; return its exit code.

    An error that a user is meant to read becomes a line on stderr. Ctrl-C ends the process.
    """
    try:
        return _run(arguments)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0


def _run(arguments: Sequence[str]) -> int:
    open_streams()
    # Of several processes that torchrun starts, one reads the command.
    if "TORCHELASTIC_RUN_ID" in os.environ:
        from choicewise.models.load import follow

        follow()
    # transformers gives advice on settings that this command lacks.
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    try:
        watch()
        try:
            code = _answer(arguments)
            sys.stdout.flush()
        finally:
            # An interrupt may have become another exception, for example in the middle of defining a class.
            check_interrupt()
    except KeyboardInterrupt:
        end_watch()
        tell("interrupted; the run keeps its answers. Run the same command again to resume")
        # An ordinary end would wait for threads, and may end by signal instead of with this code.
        os._exit(130)
    except ChoicewiseError as error:
        fail(error)
    except ModuleNotFoundError:
        raise
    except ImportError as error:
        # A package is there, and its compiled part can't be loaded.
        reason = str(error).strip().partition("\n")[0]
        advice = (
            "give the process more memory if it is limited (ulimit -v, a container), or "
            "reinstall the package"
        )
        fail(ChoicewiseError(f"{error.name or 'a package'} can't be loaded: {reason}; {advice}"))
    except BrokenPipeError:
        abandon(1)
        sys.exit(0)
    except OSError as error:
        if error.filename is not None:
            fail(ChoicewiseError(f"{error.filename}: {error.strerror}"))
        abandon(1)
        fail(ChoicewiseError(f"the output can't be written: {error.strerror}"))
    finally:
        end_watch()
    return code


def _answer(arguments: Sequence[str]) -> int:
    """Print help or version without importing typer, or run the command; return the exit code."""
    if arguments and arguments[0] not in ("--help", "--version"):
        from choicewise.cli.commands import invoke

        return invoke(arguments)
    if arguments and arguments[0] == "--version":
        show(f"choicewise {__version__}")
        return 0
    from choicewise.cli.listing import help_lines

    if arguments:
        show(*help_lines())
        return 0
    tell(*help_lines())
    return 2
