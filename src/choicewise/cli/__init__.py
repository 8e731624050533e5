"""The command line: one thin file per command; results on stdout, notes and progress on stderr.

Exit codes: 0 done, 1 another Choicewise error, 2 wrong use, 3 data, 4 protocol, 5 model, 6 run folder, 130 interrupted.
"""

import atexit
import gc
import os
import sys
import warnings

import typer

from choicewise.cli.check import check
from choicewise.cli.compare import compare
from choicewise.cli.demo import demo
from choicewise.cli.explain import explain
from choicewise.cli.prompts import prompts
from choicewise.cli.protocols import protocols
from choicewise.cli.report import report
from choicewise.cli.run import run
from choicewise.cli.score import score
from choicewise.errors import ChoicewiseError

app = typer.Typer(
    help="Score multiple-choice questions with a language model in every published way at once.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
for command in (run, report, compare, explain, prompts, score, check, demo):
    app.command()(command)
app.add_typer(protocols, name="protocols")


def main() -> None:
    """Entry point: an error a user is meant to read becomes one line on stderr and its exit code."""
    warnings.formatwarning = lambda message, *_: f"note: {message}\n"
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")  # it gives advice on settings that this command lacks
    atexit.register(gc.freeze)  # else collecting garbage in all of torch and transformers takes a second at the end
    try:
        app(prog_name="choicewise")
    except ChoicewiseError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except SystemExit as end:
        if end.code == 130:  # typer's, when Ctrl-C was pressed
            advice = "a run that was under way keeps what it observed, and the same command continues it"
            print(f"interrupted; {advice}", file=sys.stderr)
        raise
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(0)
