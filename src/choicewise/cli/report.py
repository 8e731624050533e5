"""``choicewise report``: the numbers of run folders."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from enum import StrEnum
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from choicewise.cli import options

if TYPE_CHECKING:
    from choicewise.report.rows import Row


class By(StrEnum):
    """Groups a report can be split into, instead of each protocol's own aggregation."""

    micro = "micro"
    macro = "macro"
    subjects = "subjects"
    subcategories = "subcategories"
    categories = "categories"


def report(
    folders: Annotated[list[Path], typer.Argument(metavar="DIR...", help="Run folders.")],
    by: Annotated[By | None, typer.Option("--by", help="Aggregate this way instead of the protocol's own.")] = None,
    json: options.Json = False,
) -> None:
    """Print one row per model, dataset, protocol and metric: value, interval, n, rank, signature."""
    from choicewise.report.rows import ranked
    from choicewise.run import open_run

    runs = [open_run(folder) for folder in folders]
    for run in runs:
        if not run.manifest.complete:
            print(f"{run.folder} is not complete; repeat its `choicewise run` line to finish it", file=sys.stderr)
    print_rows(ranked([row for run in runs for row in run.rows(by)]), json)


def print_rows(rows: Sequence[Row], json: bool) -> None:
    """The rows on stdout, as a JSON list or as tables."""
    from choicewise.report.table import console, report_tables

    if json:
        print(dumps([row.as_json() for row in rows], ensure_ascii=False, indent=1))
        return
    out = console()
    for table in report_tables(rows):
        out.print(table)
        out.print()
    out.print("id: short digest of the signature; `--json` prints the signature itself")
