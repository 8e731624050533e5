"""Running a command, which is imported when it is called."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping, Sequence
from textwrap import shorten
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption

from choicewise import ports
from choicewise.cli.listing import ABOUT, VERSION_HELP, KernelCommand, all_commands, find_command
from choicewise.cli.terminal import refuse_typed_secrets, tell
from choicewise.errors import UsageError

FIRST = ("--model", "--data", "--protocol", "--out", "--shots", "--limit", "--dtype", "--device")
"""The options that the help of a command shows in full, in this order, where it has more than :data:`MANY`; before
them all others that must be given."""

MANY, FEW = 12, 4
"""Options that are all shown in full: no more than these in all, or fewer than these among the first."""

_SENTENCE = re.compile(
    r"(?<!\.)\.(?= |$).*", re.DOTALL
)  # its end and all after it; three dots are none


class Command(TyperCommand):
    """What every command of ours is."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the command line; UsageError for an option that is given twice and takes one value."""
        _, _, given = self.make_parser(ctx).parse_args(args=[*args])
        once = [
            each
            for each in given
            if isinstance(each, TyperOption) and not each.multiple and not each.is_flag
        ]
        if twice := {each.opts[0] for each in once if once.count(each) > 1}:
            raise UsageError(
                f"{' and '.join(sorted(twice))} is given twice, and only the last one would count"
            )
        return super().parse_args(ctx, args)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the options that most people need in full, and a line for each of the others where there are many."""
        given = [each for each in self.get_params(ctx) if each.get_help_record(ctx) is not None]
        arguments = [each for each in given if each.param_type_name == "argument"]
        options = [each for each in given if each.param_type_name == "option"]
        first = [each for name in FIRST for each in options if name in each.opts]
        first = [
            each for each in options if getattr(each, "required", False) and each not in first
        ] + first
        if len(options) <= MANY or len(first) < FEW:
            first = options
        for title, chosen in (("Arguments", arguments), ("Options", first)):
            if chosen:
                with formatter.section(title):
                    formatter.write_dl([each.get_help_record(ctx) for each in chosen])
        if more := [each for each in options if each not in first]:
            with formatter.section("More (in full in docs/reference/commands.md)"):
                names = {
                    each.opts[0]: _SENTENCE.sub("", str(getattr(each, "help", ""))) for each in more
                }
                left = 2 + max(map(len, names))
                for name, help in names.items():
                    room = formatter.width - formatter.current_indent - left
                    formatter.write(
                        f"{'':{formatter.current_indent}}{name:{left}}{shorten(help, room, placeholder=' …')}\n"
                    )


class Group(TyperGroup):
    """What a command with commands of its own is."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the first sentence of each, however long it is."""
        texts = {name: " ".join(str(each.help).split()) for name, each in self.commands.items()}
        with formatter.section("Commands"):
            formatter.write_dl([(name, _SENTENCE.sub(".", text)) for name, text in texts.items()])


PASSED_ON = {
    "ignore_unknown_options": True,
    "allow_interspersed_args": False,
    "help_option_names": [],
}
"""Nothing on the line is for us, ``--help`` neither."""


def application(commands: Mapping[str, KernelCommand | ports.Command] | None = None) -> typer.Typer:
    """The ``commands`` by name, or all that there are."""
    app = typer.Typer(
        help=ABOUT,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        callback=_options,
    )
    for name, declared in (all_commands() if commands is None else commands).items():
        command, summary = declared.app(), declared.summary
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name, cls=Group, short_help=summary)
        elif isinstance(declared, ports.Command) and declared.passes_on:
            app.command(name, short_help=summary, context_settings=PASSED_ON)(command)
        else:
            kind = getattr(command, "command_class", Command)
            app.command(
                name, short_help=summary, cls=kind, context_settings={"max_content_width": 100}
            )(command)
    return app


def invoke(arguments: Sequence[str]) -> int:
    """Run the command that ``arguments`` spell, and return its exit code."""
    warnings.showwarning = lambda message, *_, **__: tell(f"note: {message}")
    refuse_typed_secrets(arguments)
    first = next(iter(arguments), "-")
    named = None if first.startswith("-") else find_command(first)
    try:
        command = typer.main.get_command(application(None if named is None else {first: named}))
        with command.make_context("choicewise", [*arguments], obj=tuple(arguments)) as context:
            command.invoke(context)
    except typer.Exit as end:
        return end.exit_code
    except typer.TyperException as error:  # a command line that can't be read
        context_of = getattr(error, "ctx", None)
        where = "choicewise" if context_of is None else context_of.command_path
        near = sorted(getattr(error, "possibilities", None) or ())
        said = (
            f"{error.message}. Did you mean {' or '.join(near)}?"
            if near
            else error.format_message()
        )
        tell(f"error: {said}", f"`{where} --help` says what is known")
        return error.exit_code
    return 0


def _options(version: bool = typer.Option(False, "--version", help=VERSION_HELP)) -> None: ...
