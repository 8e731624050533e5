"""Build the command line of typer, write its help, and run the command that is named."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping, Sequence
from textwrap import shorten
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption

from choicewise.cli.listing import ABOUT, VERSION_HELP, KernelCommand, all_commands, find_command
from choicewise.cli.terminal import refuse_typed_secrets, tell
from choicewise.errors import UsageError
from choicewise.ports import Command as AddedCommand

FIRST = ("--model", "--data", "--protocol", "--out", "--shots", "--limit", "--dtype", "--device")
"""The options that the help of a command with more than MANY shows in full, in this order, after required ones."""

# So many options are all shown in full.
MANY = 12

# With fewer options than this among the first, all are shown in full.
FEW = 4

# The end of a sentence and all after it; three dots are none.
_SENTENCE = re.compile(r"(?<!\.)\.(?= |$).*", re.DOTALL)


class Command(TyperCommand):
    """A command that refuses repeated options and writes the help of the first ones in full."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the command line; UsageError for an option that is given twice and takes one value."""
        _, _, parameters = self.make_parser(ctx).parse_args(args=list(args))
        names = []
        for option in parameters:
            if isinstance(option, TyperOption) and not option.multiple and not option.is_flag:
                names.append(option.opts[0])
        repeated = sorted({name for name in names if names.count(name) > 1})
        if repeated:
            raise UsageError(
                f"{' and '.join(repeated)} is given twice, and only the last one would count"
            )
        return super().parse_args(ctx, args)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write arguments and first options in full, and a line for each of the others."""
        arguments = []
        options = []
        for parameter in self.get_params(ctx):
            if parameter.get_help_record(ctx) is None:
                continue
            if parameter.param_type_name == "argument":
                arguments.append(parameter)
            elif parameter.param_type_name == "option":
                options.append(parameter)
        first = _first_options(options)
        _write_in_full(ctx, formatter, "Arguments", arguments)
        _write_in_full(ctx, formatter, "Options", first)
        others = [option for option in options if option not in first]
        if others:
            with formatter.section("More (in full in docs/reference/commands.md)"):
                _write_shortened(formatter, others)


def _first_options(options: Sequence[Any]) -> list[Any]:
    first = []
    for name in FIRST:
        first += [option for option in options if name in option.opts]
    required = [option for option in options if getattr(option, "required", False)]
    first = [option for option in required if option not in first] + first
    if len(options) <= MANY or len(first) < FEW:
        return list(options)
    return first


def _write_in_full(ctx: Any, formatter: Any, title: str, parameters: Sequence[Any]) -> None:
    if parameters:
        with formatter.section(title):
            formatter.write_dl([parameter.get_help_record(ctx) for parameter in parameters])


def _write_shortened(formatter: Any, options: Sequence[Any]) -> None:
    indent = " " * formatter.current_indent
    left = 2 + max(len(option.opts[0]) for option in options)
    room = formatter.width - formatter.current_indent - left
    for option in options:
        sentence = _SENTENCE.sub("", str(getattr(option, "help", "")))
        text = shorten(sentence, room, placeholder=" …")
        formatter.write(f"{indent}{option.opts[0]:{left}}{text}\n")


class Group(TyperGroup):
    """A command with commands of its own."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the first sentence of each command, however long it is."""
        rows = []
        for name, command in self.commands.items():
            text = " ".join(str(command.help).split())
            rows.append((name, _SENTENCE.sub(".", text)))
        with formatter.section("Commands"):
            formatter.write_dl(rows)


PASSED_ON = {
    "ignore_unknown_options": True,
    "allow_interspersed_args": False,
    "help_option_names": [],
}
"""Settings of a command whose arguments, ``--help`` among them, are all for another program."""


def application(commands: Mapping[str, KernelCommand | AddedCommand] | None = None) -> typer.Typer:
    """Return the application with the ``commands`` by name, or with all commands."""
    app = typer.Typer(
        help=ABOUT,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        callback=_options,
    )
    if commands is None:
        commands = all_commands()
    for name, declared in commands.items():
        command = declared.app()
        summary = declared.summary
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name, cls=Group, short_help=summary)
        elif isinstance(declared, AddedCommand) and declared.passes_on:
            app.command(name, short_help=summary, context_settings=PASSED_ON)(command)
        else:
            kind = getattr(command, "command_class", Command)
            # Wider help is hard to read.
            settings = {"max_content_width": 100}
            app.command(name, short_help=summary, cls=kind, context_settings=settings)(command)
    return app


def invoke(arguments: Sequence[str]) -> int:
    """Run the command that ``arguments`` spell, and return its exit code."""
    warnings.showwarning = lambda message, *_, **__: tell(f"note: {message}")
    refuse_typed_secrets(arguments)
    # Only the command that is named is imported.
    commands = None
    if arguments and not arguments[0].startswith("-"):
        named = find_command(arguments[0])
        if named is not None:
            commands = {arguments[0]: named}
    try:
        command = typer.main.get_command(application(commands))
        with command.make_context("choicewise", list(arguments), obj=tuple(arguments)) as context:
            command.invoke(context)
    except typer.Exit as end:
        return end.exit_code
    except typer.TyperException as error:
        # The command line can't be read.
        context_of = getattr(error, "ctx", None)
        path = "choicewise" if context_of is None else context_of.command_path
        problem = error.format_message()
        near = sorted(getattr(error, "possibilities", None) or ())
        if near:
            problem = f"{error.message}. Did you mean {' or '.join(near)}?"
        tell(f"error: {problem}", f"`{path} --help` says what is known")
        return error.exit_code
    return 0


def _options(version: bool = typer.Option(False, "--version", help=VERSION_HELP)) -> None: ...
