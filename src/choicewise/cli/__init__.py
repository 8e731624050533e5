"""Main, exit codes, lazily loaded commands (click LazyGroup).

Exit codes: 0 done, 1 another Choicewise error, 2 wrong use, 3 data, 4 protocol, 5 model, 6 run folder, 7 a sweep that
lacks something or a run that was repaired and lacks something, 8 a damaged run folder, 130 interrupted.
"""

from __future__ import annotations

import atexit
import os
import sys
import warnings
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any, Final, NoReturn, cast

import typer

from choicewise import __version__
from choicewise.cli.terminal import (
    Command,
    abandon,
    check_interrupt,
    end_watch,
    fail,
    open_streams,
    refuse_typed_secrets,
    show,
    tell,
    typed_words,
    watch,
)
from choicewise.errors import ChoicewiseError


def __getattr__(name: str) -> object:
    if name != "app":
        raise AttributeError(f"module 'choicewise.cli' has no attribute {name!r}")

    return application()


def main() -> NoReturn:
    """Entry point: run the command, and end the process with its exit code.

    All output is written by then.  An ordinary end would destroy C++ threads that libraries left behind while they
    still run, and now and then abort with "terminate called without an active exception".
    """
    try:
        code = _run()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def _run() -> int:
    """The exit code of the command; an error that a user is meant to read becomes a line on stderr."""
    open_streams()
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")  # it gives advice on settings that this command lacks
    try:
        watch()
        try:
            code = invoke(sys.argv[1:])
            sys.stdout.flush()
        finally:
            check_interrupt()  # also where the interrupt became another exception, as in the middle of defining a class
    except KeyboardInterrupt:
        end_watch()
        tell("interrupted; a run that was under way keeps what it observed, and the same command continues it")
        os._exit(130)  # an ordinary end would wait for threads, and may end by signal instead of with this code
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


_MODULES: Final = {
    "run": "run",
    "sweep": "run",
    "report": "report",
    "compare": "report",
    "ladder": "run",
    "explain": "report",
    "page": "page",
    "plot": "page",
    "serve": "serve",
    "work": "serve",
    "export": "interchange",
    "prompts": "catalogue",
    "data": "data",
    "fetch": "data",
    "score": "check",
    "check": "check",
    "doctor": "doctor",
    "demo": "demo",
    "import": "interchange",
    "lm-eval": "interchange",
    "protocols": "catalogue",
}
"""Name → its file in this folder, which has a function of the same name, or an application for several."""

_FUNCTIONS: Final = {"import": "import_logs", "lm-eval": "lm_eval"}
"""Where the function can't have the name of the command."""

_WrongUse = cast(type[typer.BadParameter], typer.BadParameter.__bases__[0])
"""What typer raises for a command line that it can't read; it has no public name for the class."""


def application(names: Iterable[str] = _MODULES, listed: bool = False) -> typer.Typer:
    """The commands of these names; ``listed``: without their options, which take a while, to be listed and no more."""
    made = typer.Typer(
        help="Score multiple-choice questions with a language model in every published way at once.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        callback=_options,
    )
    for name in names:
        module = import_module(f"choicewise.cli.{_MODULES[name]}")
        command = getattr(module, _FUNCTIONS.get(name, name))
        if isinstance(command, typer.Typer):
            made.add_typer(command, name=name)
        elif name == "lm-eval":
            made.command(name, context_settings=module.PASSED_ON)(command)
        else:
            made.command(name, cls=Command)(_without_options(command) if listed else command)
    return made


def _without_options(command: Callable[..., Any]) -> Callable[[], None]:
    def described() -> None: ...

    described.__doc__ = command.__doc__
    return described


def _version(asked: bool) -> None:
    if asked:
        show(f"choicewise {__version__}")
        raise typer.Exit


def _options(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),
) -> None: ...


def invoke(arguments: Sequence[str]) -> int:
    """Run the command that ``arguments`` spell, and return its exit code."""
    warnings.showwarning = lambda message, *_, **__: tell(f"note: {message}")
    refuse_typed_secrets(arguments)
    typed_words.set((*arguments,))
    try:
        command = typer.main.get_command(_needed(arguments))
        with command.make_context("choicewise", [*arguments]) as context:
            command.invoke(context)
    except typer.Exit as end:
        return end.exit_code
    except _WrongUse as error:
        if not arguments:
            tell(*error.format_message().split("\n"))  # the help
        else:
            where = "choicewise" if error.ctx is None else error.ctx.command_path
            tell(f"error: {_said(error)}", f"`{where} --help` says what is known")
        return error.exit_code
    return 0


def _needed(arguments: Sequence[str]) -> typer.Typer:
    """As much of the application as a command line can reach."""
    if arguments and arguments[0] in _MODULES:
        return application(arguments[:1])
    return application(listed=all(word.startswith("-") for word in arguments))


def _said(error: typer.BadParameter) -> str:
    """The message about a command line that can't be read, with the options that may be meant."""
    near = sorted(getattr(error, "possibilities", None) or ())
    return f"{error.message}. Did you mean {' or '.join(near)}?" if near else error.format_message()
