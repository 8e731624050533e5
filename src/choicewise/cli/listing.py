"""The commands: where each lies, what it does in a line, and the page that lists them.

Importing typer takes longer than all of this, so the page is written without it.
"""

from __future__ import annotations

from textwrap import wrap
from typing import Final, NamedTuple

from choicewise.cli.terminal import columns


class Command(NamedTuple):
    """``file`` of this folder, the name of the ``function`` or application in it, and what it does."""

    file: str
    function: str
    summary: str


COMMANDS: Final = {
    "run": Command("run", "run", "Evaluate a model on a dataset under every named protocol."),
    "sweep": Command("run", "sweep", "Evaluate several models under protocols and suites."),
    "merge": Command("run", "merge", "Put the shards of a run together."),
    "report": Command("report", "report", "Print what runs say: one in nine lines, several in a table."),
    "compare": Command("compare", "compare", "Say whether two numbers can be compared, and why they differ."),
    "ladder": Command("run", "ladder", "Show from one protocol to another what each axis changes."),
    "explain": Command("compare", "explain", "Show one item: its prompts, and what every protocol decides."),
    "page": Command("page", "page", "Write a page that shows why the numbers differ, or a board."),
    "plot": Command("page", "plot", "Draw a chart of run folders into a file, as the page shows it."),
    "serve": Command("serve", "serve", "Show models by protocols of all runs in a browser."),
    "work": Command("serve", "work", "Evaluate the models that are submitted to a board."),
    "export": Command("interchange", "export", "Write the numbers of runs for other tools."),
    "prompts": Command("catalogue", "prompts", "Print each request as a JSON line."),
    "data": Command("data", "data", "Show what a dataset is, and which protocols can ask it."),
    "fetch": Command("data", "fetch", "Fetch the data of benchmarks, and models, into a folder."),
    "score": Command("check", "score", "Score each choice as a continuation of the context."),
    "check": Command("check", "check", "Measure how much ways of computing a score differ on a model."),
    "doctor": Command("doctor", "doctor", "Say what is damaged in run folders, and repair it."),
    "demo": Command("demo", "demo", "Score the bundled models on the bundled questions."),
    "requests": Command("interchange", "requests", "Freeze what protocols ask, in tokens, for another engine."),
    "import": Command("interchange", "import_logs", "Make run folders of other tools' logs, or of answers."),
    "lm-eval": Command("interchange", "lm_eval", "Run lm-evaluation-harness with one more model: choicewise."),
    "protocols": Command("catalogue", "protocols", "List the published protocols; show one; compare two."),
}

ABOUT: Final = "Score multiple-choice questions with a language model in every published way at once."

VERSION_HELP: Final = "Print the version."


def help_lines() -> list[str]:
    """What ``choicewise --help`` prints, as typer prints the help of a command."""
    width = min(columns(), 80) - 2
    options = {"--version": VERSION_HELP, "--help": "Show this message and exit."}
    return [
        "Usage: choicewise [OPTIONS] COMMAND [ARGS]...",
        "",
        *wrap(ABOUT, width, initial_indent="  ", subsequent_indent="  "),
        "",
        "Options:",
        *_rows(options, width),
        "",
        "Commands:",
        *_rows({name: command.summary for name, command in COMMANDS.items()}, width),
    ]


def _rows(texts: dict[str, str], width: int) -> list[str]:
    left = max(map(len, texts)) + 4
    return [
        line
        for name, text in texts.items()
        for line in wrap(
            text, max(width, left + 20), initial_indent=f"  {name}".ljust(left), subsequent_indent=" " * left
        )
    ]
