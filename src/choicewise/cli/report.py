"""``choicewise report``: the numbers of run folders."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from choicewise.cli import options

if TYPE_CHECKING:
    from choicewise.results.row import Row
    from choicewise.results.run import Run


class By(StrEnum):
    """Groups a report can be split into, instead of each protocol's own aggregation."""

    micro = "micro"
    macro = "macro"
    subjects = "subjects"
    subcategories = "subcategories"
    categories = "categories"


class Interval(StrEnum):
    """Ways to compute a 95 % interval."""

    wilson = "wilson"
    beta_binomial = "beta-binomial"
    clustered = "clustered"


def report(
    folders: Annotated[list[Path], typer.Argument(metavar="DIR...", help="Run folders.")],
    by: Annotated[By | None, typer.Option("--by", help="Aggregate this way instead of the protocol's own.")] = None,
    protocol: Annotated[
        list[str] | None, typer.Option("--protocol", help="Score under these instead of the run's own. Repeatable.")
    ] = None,
    interval: Annotated[
        Interval | None, typer.Option("--interval", help="The 95 % interval; clustered takes subjects as drawn.")
    ] = None,
    multiverse: Annotated[
        bool, typer.Option("--multiverse", help="Show how results and conclusions vary over all protocols.")
    ] = False,
    agreement: Annotated[
        bool,
        typer.Option("--agreement", help="Show how far retrievals of the same options agree, and why they differ."),
    ] = False,
    distribution: Annotated[
        bool, typer.Option("--distribution", help="Show how often each choice would be chosen, and the fit to people.")
    ] = False,
    temperature: Annotated[float, typer.Option("--temperature", help="Of the softmax, with --distribution.")] = 1.0,
    condition: Annotated[
        str | None, typer.Option("--condition", help="Average over this field of the data, with --distribution.")
    ] = None,
    json: options.Json = False,
) -> None:
    """Print one row per model, dataset, protocol and metric: value, interval, n, rank, doubts, signature.

    No model is needed: `--protocol` computes further scores from the same observations, if the prompts are the same.
    """
    from choicewise.results.ranks import bounded, ranked
    from choicewise.results.run import open_run

    runs = [open_run(folder).choose(protocol) for folder in folders]
    for run in runs:
        if not run.manifest.complete:
            print(f"{run.folder} is not complete; repeat its `choicewise run` line to finish it", file=sys.stderr)
    if multiverse:
        _print_multiverse(runs, json)
    elif agreement:
        _print_agreement(runs, json)
    elif distribution:
        _print_distribution(runs, temperature, condition, json)
    else:
        rows = ranked([row for run in runs for row in run.rows(by, interval)])
        print_rows(bounded(rows, runs, by) if len(runs) > 1 else rows, json)


def print_rows(rows: Sequence[Row], json: bool) -> None:
    """The rows on stdout, as a JSON list or as tables; alarms on stderr."""
    from choicewise.report.table import alarms, legend, report_tables

    for alarm in alarms(rows):
        print(alarm, file=sys.stderr)
    _print([row.as_json() for row in rows] if json else None, [*_spaced(report_tables(rows)), *legend(rows)])


def _print_multiverse(runs: Sequence[Run], json: bool) -> None:
    from choicewise.report.multiverse_table import multiverse_tables
    from choicewise.results.multiverse import multiverse, multiverse_json

    panel = multiverse(runs)
    _print(multiverse_json(panel) if json else None, _spaced(multiverse_tables(panel)))


def _print_agreement(runs: Sequence[Run], json: bool) -> None:
    from choicewise.report.agreement_table import agreement_tables
    from choicewise.results.agreement import agreement

    agreements = [(str(run.folder), agreement(run)) for run in runs]
    listed = [{"run": folder, **pair.as_json()} for folder, pairs in agreements for pair in pairs]
    parts = [part for folder, pairs in agreements for part in (*agreement_tables(folder, pairs), "")]
    _print(listed if json else None, parts)


def _print_distribution(runs: Sequence[Run], temperature: float, condition: str | None, json: bool) -> None:
    from choicewise.report.distribution_table import distribution_table
    from choicewise.results.distribution import distributions

    computed = [distribution for run in runs for distribution in distributions(run, temperature, condition)]
    listed = [distribution.as_json() for distribution in computed]
    _print(listed if json else None, _spaced(map(distribution_table, computed)))


def _spaced(parts: Iterable[object]) -> Iterator[object]:
    """Each part with an empty line after it."""
    for part in parts:
        yield from (part, "")


def _print(content: object, parts: Iterable[object]) -> None:
    """The ``content`` as JSON, or without it the parts as tables and lines."""
    from choicewise.report.table import console

    if content is not None:
        print(dumps(content, ensure_ascii=False, indent=1))
        return
    out = console()
    for part in parts:
        out.print(part)
