"""Running a command, which is imported when it is called."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperOption

from choicewise.cli.listing import ABOUT, COMMANDS, VERSION_HELP
from choicewise.cli.terminal import refuse_typed_secrets, tell
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


def application(names: Iterable[str] = COMMANDS) -> typer.Typer:
    """The commands of these names."""
    app = typer.Typer(
        help=ABOUT, add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None, callback=_options
    )
    for name in names:
        file, function, summary = COMMANDS[name]
        module = import_module(f"choicewise.cli.{file}")
        command = getattr(module, function)
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name, short_help=summary)
        elif name == "lm-eval":
            app.command(name, short_help=summary, context_settings=module.PASSED_ON)(command)
        else:
            app.command(name, short_help=summary, cls=Command)(command)
    return app


def invoke(arguments: Sequence[str]) -> int:
    """Run the command that ``arguments`` spell, and return its exit code."""
    warnings.showwarning = lambda message, *_, **__: tell(f"note: {message}")
    refuse_typed_secrets(arguments)
    known = arguments[:1] if arguments and arguments[0] in COMMANDS else COMMANDS
    try:
        command = typer.main.get_command(application(known))
        with command.make_context("choicewise", [*arguments]) as context:
            command.invoke(context)
    except typer.Exit as end:
        return end.exit_code
    except typer.TyperException as error:  # a command line that can't be read
        context_of = getattr(error, "ctx", None)
        where = "choicewise" if context_of is None else context_of.command_path
        near = sorted(getattr(error, "possibilities", None) or ())
        said = f"{error.message}. Did you mean {' or '.join(near)}?" if near else error.format_message()
        tell(f"error: {said}", f"`{where} --help` says what is known")
        return error.exit_code
    return 0


def _options(version: bool = typer.Option(False, "--version", help=VERSION_HELP)) -> None: ...
