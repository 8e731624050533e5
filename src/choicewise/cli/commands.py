"""All commands, and how one is called."""

import warnings
from collections.abc import Sequence
from typing import cast

import typer

from choicewise import __version__
from choicewise.cli.check import check
from choicewise.cli.command import Command
from choicewise.cli.compare import compare
from choicewise.cli.data import data
from choicewise.cli.demo import demo
from choicewise.cli.doctor import doctor
from choicewise.cli.explain import explain
from choicewise.cli.export import export
from choicewise.cli.fetch import fetch
from choicewise.cli.import_logs import import_logs
from choicewise.cli.ladder import ladder
from choicewise.cli.lm_eval import PASSED_ON, lm_eval
from choicewise.cli.output import show, tell
from choicewise.cli.page import page
from choicewise.cli.plot import plot
from choicewise.cli.prompts import prompts
from choicewise.cli.protocols import protocols
from choicewise.cli.report import report
from choicewise.cli.run import run
from choicewise.cli.score import score
from choicewise.cli.serve import serve
from choicewise.cli.sweep import sweep
from choicewise.cli.typed_secret import refuse_typed_secrets
from choicewise.cli.work import work

app = typer.Typer(
    help="Score multiple-choice questions with a language model in every published way at once.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
for command in (
    *(run, sweep, report, compare, ladder, explain, page, plot, serve, work),
    *(export, prompts, data, fetch, score, check, doctor, demo),
):
    app.command(cls=Command)(command)
app.command("import", cls=Command)(import_logs)
app.command("lm-eval", context_settings=PASSED_ON)(lm_eval)
app.add_typer(protocols, name="protocols")

_WrongUse = cast(type[typer.BadParameter], typer.BadParameter.__bases__[0])
"""What typer raises for a command line that it can't read; it has no public name for the class."""


def _version(asked: bool) -> None:
    if asked:
        show(f"choicewise {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),
) -> None: ...


def invoke(arguments: Sequence[str]) -> int:
    """Run the command that ``arguments`` spell, and return its exit code."""
    warnings.showwarning = lambda message, *_, **__: tell(f"note: {message}")
    refuse_typed_secrets(arguments)
    try:
        command = typer.main.get_command(app)
        with command.make_context("choicewise", [*arguments]) as context:
            command.invoke(context)
    except typer.Exit as end:
        return end.exit_code
    except _WrongUse as error:
        if not arguments:
            tell(*error.format_message().split("\n"))  # the help
        else:
            where = "choicewise" if error.ctx is None else error.ctx.command_path
            tell(f"error: {error.format_message()}", f"`{where} --help` says what is known")
        return error.exit_code
    return 0
