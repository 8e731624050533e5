"""The commands by name, each imported when it is called, and running one."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from typing import Any, Final, cast

import typer
from typer.core import TyperCommand, TyperOption

from choicewise import __version__
from choicewise.cli.terminal import (
    refuse_typed_secrets,
    show,
    tell,
    typed_words,
)
from choicewise.errors import UsageError


class Command(TyperCommand):
    """What every command of ours is."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the command line; UsageError for an option that is given twice and takes one value."""
        _, _, given = self.make_parser(ctx).parse_args(args=[*args])
        once = [each for each in given if isinstance(each, TyperOption) and not each.multiple and not each.is_flag]
        if twice := {each.opts[0] for each in once if once.count(each) > 1}:
            raise UsageError(f"{' and '.join(sorted(twice))} is given twice, and only the last one would count")
        return super().parse_args(ctx, args)


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


def _said(error: typer.BadParameter) -> str:
    """The message about a command line that can't be read, with the options that may be meant."""
    near = sorted(getattr(error, "possibilities", None) or ())
    return f"{error.message}. Did you mean {' or '.join(near)}?" if near else error.format_message()
