"""``choicewise compare``: two numbers, and what the difference is made of."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from choicewise.cli import options
from choicewise.cli.output import print_json, show
from choicewise.errors import ProtocolError, UsageError

if TYPE_CHECKING:
    from choicewise.protocols.protocol import Protocol
    from choicewise.results.run import Run


def compare(
    left: Annotated[Path, typer.Argument(metavar="A", readable=False, help="A run folder.")],
    right: Annotated[
        str | None,
        typer.Argument(
            metavar="[B]",
            help="Another; or a protocol's name, to compare with numbers published under it; none for two protocols.",
        ),
    ] = None,
    protocol: Annotated[
        list[str] | None,
        typer.Option("--protocol", help="Only this one; or twice, that of A against that of B. Repeatable."),
    ] = None,
    value: Annotated[
        float | None, typer.Option("--value", help="A number published under protocol B, as a share of 1.")
    ] = None,
    json: options.Json = False,
) -> None:
    """Say whether two numbers are the same measurement, comparable, or not, and why they differ.

    Without --protocol, every protocol that both runs share. One run and two protocols: what the protocol alone changes.
    One run and a protocol's name: whether numbers published under it can be compared with those of the run.
    """
    from choicewise.results.run import open_run

    published = None if right is None else _published(right)
    if published is None:
        options.refuse_without_use("a comparison of runs has", value=value)
        _compare_runs(open_run(left), None if right is None else open_run(right), protocol or [], json)
        return
    if value is not None and not 0 <= value <= 1:
        raise UsageError(f"--value is {value:g}; write it as a share of 1, such as 0.637")
    _compare_published(open_run(left).choose(protocol), published, value, json)


def _published(name: str) -> dict[str, Protocol] | None:
    """The protocols that ``name`` means to the catalogue; None where it is a run folder."""
    from choicewise.protocols.catalogue import resolve
    from choicewise.records.format import MANIFEST

    if (Path(name) / MANIFEST).exists():
        return None
    try:
        return resolve(name)
    except ProtocolError as error:
        if Path(name).exists() and not name.endswith(".toml"):
            return None  # what is wrong with the folder is told when it is opened
        raise UsageError(f"{name} is neither a run folder nor a protocol: {error}") from error


def _compare_runs(left: Run, right: Run | None, protocols: list[str], json: bool) -> None:
    from choicewise.report.comparison_text import comparison_lines
    from choicewise.results.comparison import comparisons

    compared = comparisons(left, right, protocols)
    if json:
        print_json(compared)
        return
    for number, comparison in enumerate(compared):
        show(*([""] if number else []), *comparison_lines(comparison))


def _compare_published(run: Run, recipes: dict[str, Protocol], value: float | None, json: bool) -> None:
    from choicewise.report.published_text import published_lines
    from choicewise.results.published_comparison import published_comparisons

    compared = published_comparisons(run, recipes, value)
    if json:
        print_json([each.as_json() for each in compared])
    else:
        show(*published_lines(compared))
