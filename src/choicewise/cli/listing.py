"""List the commands: the module of each, what it does in a line, and the page of ``choicewise
--help``.

Importing typer takes longer than all of this, so the page is written without it.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from textwrap import wrap
from typing import TYPE_CHECKING, Any, NamedTuple

from choicewise.cli.terminal import columns
from choicewise.ports import Command, all_of, find

if TYPE_CHECKING:
    import typer


class KernelCommand(NamedTuple):
    """A command of the kernel: ``file`` of this folder, the name of the ``function`` or application
    in it.
    """

    file: str
    function: str
    summary: str

    def app(self) -> typer.Typer | Callable[..., None]:
        """Return the typer application or the function."""
        module: Any = import_module(f"choicewise.cli.{self.file}")
        command: typer.Typer | Callable[..., None] = getattr(module, self.function)
        return command


COMMANDS = {
    "report": KernelCommand(
        "report", "report", "Print one run in nine lines, or several as a table."
    ),
    "page": KernelCommand(
        "page", "page", "Write a page that shows why the numbers differ, or a board."
    ),
}
"""The commands of the kernel. Those of extensions are additions to the port
:class:`choicewise.ports.Command`.
"""

ORDER = (
    "run",
    "sweep",
    "merge",
    "report",
    "compare",
    "ladder",
    "explain",
    "page",
    "plot",
    "serve",
    "work",
    "export",
    "prompts",
    "data",
    "fetch",
    "score",
    "check",
    "doctor",
    "demo",
    "requests",
    "import",
    "lm-eval",
    "protocols",
)
"""The order of the help; other commands come last."""


def find_command(name: str) -> KernelCommand | Command | None:
    """Return the command of that name, or None; other packages are searched only if we have none."""
    return COMMANDS.get(name) or find(Command, name)


def all_commands() -> dict[str, KernelCommand | Command]:
    """Return every command in the order of the help, those of other packages last."""
    # A package can't replace a command of the kernel.
    commands: dict[str, KernelCommand | Command] = {**COMMANDS}
    for command in all_of(Command):
        commands.setdefault(command.name, command)
    ordered = [name for name in ORDER if name in commands]
    return {name: commands[name] for name in dict.fromkeys([*ordered, *commands])}


ABOUT = "Score a language model on multiple-choice questions under every published protocol."

VERSION_HELP = "Print the version."


def help_lines() -> list[str]:
    """Return the lines of ``choicewise --help``, in the form of typer's help of a command."""
    width = min(columns(), 80) - 2
    options = {"--version": VERSION_HELP, "--help": "Show this message and exit."}
    summaries = {name: command.summary for name, command in all_commands().items()}
    return [
        "Usage: choicewise [OPTIONS] COMMAND [ARGS]...",
        "",
        *wrap(ABOUT, width, initial_indent="  ", subsequent_indent="  "),
        "",
        "Options:",
        *_rows(options, width),
        "",
        "Commands:",
        *_rows(summaries, width),
    ]


def _rows(texts: dict[str, str], width: int) -> list[str]:
    left = max(map(len, texts)) + 4
    # A narrow terminal shows long lines rather than a column of single words.
    width = max(width, left + 20)
    lines = []
    for name, text in texts.items():
        start = f"  {name}".ljust(left)
        lines += wrap(text, width, initial_indent=start, subsequent_indent=" " * left)
    return lines
