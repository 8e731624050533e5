"""The command line: results on stdout, notes and progress on stderr.

Exit codes: 0 done, 1 another Choicewise error, 2 wrong use, 3 data, 4 protocol, 5 model, 6 run folder, 7 a sweep that
lacks something or a run that lacks dropped blocks, 8 a damaged run folder, 130 interrupted.
"""

from __future__ import annotations

import atexit
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
    """Entry point: run the command, and end the process with its exit code.

    All output is written by then.  An ordinary end would destroy C++ threads that libraries left behind while they
    still run, and now and then abort with "terminate called without an active exception".
    """
    code = 1

    def leave() -> None:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.flush()
        os._exit(code)

    atexit.register(leave)  # the first to be registered runs last, after those of libraries
    code = run_command(sys.argv[1:])
    sys.exit(code)


def run_command(arguments: Sequence[str]) -> int:
    """Run the command that ``arguments`` spell, without the program's name; its exit code.

    An error that a user is meant to read becomes a line on stderr.  Ctrl-C ends the process.
    """
    try:
        return _run(arguments)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0


def _run(arguments: Sequence[str]) -> int:
    open_streams()
    if "TORCHELASTIC_RUN_ID" in os.environ:  # several processes, of which one reads the command
        from choicewise.models.load import follow

        follow()
    os.environ.setdefault(
        "TRANSFORMERS_VERBOSITY", "error"
    )  # it gives advice on settings that this command lacks
    try:
        watch()
        try:
            match arguments[:1]:
                case [] | ["--help"] as asked:
                    from choicewise.cli.listing import help_lines

                    code = 0 if asked else 2
                    (show if asked else tell)(*help_lines())
                case ["--version"]:
                    code = 0
                    show(f"choicewise {__version__}")
                case _:
                    from choicewise.cli.commands import invoke

                    code = invoke(arguments)
            sys.stdout.flush()
        finally:
            check_interrupt()  # also where the interrupt became another exception, as in the middle of defining a class
    except KeyboardInterrupt:
        end_watch()
        tell(
            "interrupted; a run that was under way keeps what it observed. Run the same command again to resume"
        )
        os._exit(
            130
        )  # an ordinary end would wait for threads, and may end by signal instead of with this code
    except ChoicewiseError as error:
        fail(error)
    except ModuleNotFoundError:
        raise
    except ImportError as error:  # a package is there, and its compiled part can't be loaded
        reason = str(error).strip().partition("\n")[0]
        advice = "give the process more memory where that is limited (ulimit -v, a container), or reinstall the package"
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
