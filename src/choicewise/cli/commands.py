"""Build the command line of typer, write its help, and run the command that is named."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping, Sequence
from textwrap import wrap
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption

from choicewise.cli.listing import ABOUT, VERSION_HELP, KernelCommand, all_commands, find_command
from choicewise.cli.terminal import refuse_typed_secrets, show, tell
from choicewise.errors import UsageError
from choicewise.ports import Command as AddedCommand

FIRST = ("--model", "--data", "--protocol", "--out", "--shots", "--limit", "--dtype", "--device")
"""Options that the short help of a command shows, in this order, after required ones."""

# The short help of a command with so many options is its whole help.
MANY = 12

# With fewer options than this among the first, all are shown.
FEW = 4

ALL_OPTIONS = "--help-all"
"""The option that prints the whole help of a command."""

# The end of a sentence and all after it; three dots are none.
_SENTENCE = re.compile(r"(?<!\.)\.(?= |$).*", re.DOTALL)


class Command(TyperCommand):
    """A command that refuses repeated options, and whose short help has the first options."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the command line; UsageError for an option that is given twice and takes one value."""
        if ALL_OPTIONS in args and len(self.params) > MANY:
            formatter = ctx.make_formatter()
            self.format_usage(ctx, formatter)
            self.format_help_text(ctx, formatter)
            self._write_options(ctx, formatter, self._options(ctx))
            show(*formatter.getvalue().splitlines())
            ctx.exit()
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
        """Write arguments and first options, and the names of the others."""
        options = self._options(ctx)
        first = []
        for name in FIRST:
            first += [option for option in options if name in option.opts]
        required = [option for option in options if getattr(option, "required", False)]
        first = [option for option in required if option not in first] + first
        if len(options) <= MANY or len(first) < FEW:
            first = options
        self._write_options(ctx, formatter, first)
        others = [option.opts[0] for option in options if option not in first]
        if others:
            title = f"More options (described by `{ctx.command_path} {ALL_OPTIONS}`)"
            with formatter.section(title):
                indent = " " * formatter.current_indent
                lines = wrap(
                    " ".join(others),
                    formatter.width,
                    initial_indent=indent,
                    subsequent_indent=indent,
                    break_on_hyphens=False,
                )
                formatter.write("\n".join(lines) + "\n")

    def _options(self, ctx: Any) -> list[Any]:
        options = []
        for parameter in self.get_params(ctx):
            is_visible = parameter.get_help_record(ctx) is not None
            if is_visible and parameter.param_type_name == "option":
                options.append(parameter)
        return options

    def _write_options(self, ctx: Any, formatter: Any, options: Sequence[Any]) -> None:
        arguments = []
        for parameter in self.params:
            if parameter.param_type_name == "argument":
                arguments.append(parameter)
        _write(ctx, formatter, "Arguments", arguments)
        _write(ctx, formatter, "Options", options)


def _write(ctx: Any, formatter: Any, title: str, parameters: Sequence[Any]) -> None:
    if parameters:
        with formatter.section(title):
            formatter.write_dl([help_record(parameter, ctx) for parameter in parameters])


def help_record(parameter: Any, ctx: Any) -> tuple[str, str]:
    """Return how an option or argument is written, and its help."""
    spelled, text = parameter.get_help_record(ctx)
    # A repeatable option takes one value each time; a range is in the help.
    spelled = re.sub(r"<list\[(\w+)\]>", lambda kind: f"<{kind[1].lower()}>", spelled)
    return spelled.replace(" range>", ">"), text


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
            group = command.info.cls
            if not isinstance(group, type):
                group = Group
            app.add_typer(command, name=name, cls=group, short_help=summary)
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
        tell(f"error: {problem}", f"see `{path} --help`")
        return error.exit_code
    return 0


def _options(version: bool = typer.Option(False, "--version", help=VERSION_HELP)) -> None: ...
