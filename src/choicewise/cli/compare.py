"""``choicewise compare``: two numbers, and what the difference is made of."""

from pathlib import Path
from typing import Annotated

import typer

from choicewise.cli import options
from choicewise.cli.output import print_json, show


def compare(
    left: Annotated[Path, typer.Argument(metavar="A", readable=False, help="A run folder.")],
    right: Annotated[
        Path | None, typer.Argument(metavar="[B]", readable=False, help="Another; none to compare two protocols.")
    ] = None,
    protocol: Annotated[
        list[str] | None,
        typer.Option("--protocol", help="Only this one; or twice, that of A against that of B. Repeatable."),
    ] = None,
    json: options.Json = False,
) -> None:
    """Say whether two numbers are the same measurement, comparable, or not, and why they differ.

    Without --protocol, every protocol that both runs share. One run and two protocols: what the protocol alone changes.
    """
    from choicewise.report.comparison_text import comparison_lines
    from choicewise.results.comparison import comparisons
    from choicewise.results.run import open_run

    compared = comparisons(open_run(left), None if right is None else open_run(right), protocol or [])
    if json:
        print_json(compared)
        return
    for number, comparison in enumerate(compared):
        show(*([""] if number else []), *comparison_lines(comparison))
