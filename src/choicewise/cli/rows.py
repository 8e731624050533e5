"""The rows of a report on stdout: what they say in short, and tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from choicewise.cli.output import command_line, print_json, print_parts, show, tell

if TYPE_CHECKING:
    from choicewise.results.average import Average
    from choicewise.results.finding import Finding
    from choicewise.results.row import Row

FEW = 4
"""Folders that a line names; more of them are those of the line before."""


def print_rows(
    rows: Sequence[Row], folders: Sequence[Path], json: bool, every: bool, averages: Sequence[Average] = ()
) -> None:
    """The rows of the runs in ``folders``: a JSON list, or finding and tables; alarms and what to do next on stderr.

    ``averages``: of the suites, which come last.
    """
    from choicewise.report.average_table import average_tables, printed
    from choicewise.report.family_table import long
    from choicewise.report.table import alarms

    if json:
        tell(*alarms(rows))
        print_json([*(row.as_json() for row in rows), *(each.as_json() for each in averages)])
        return
    if rows:
        shown = print_finding(rows)
        print_tables(rows, every)
        tell(*alarms(rows, guesses_shown=shown.count > 0 and shown.guesses == shown.count))
    print_parts(map(printed, average_tables(averages)))
    tell(*(_next_steps(rows, folders) if long(rows) else ()))


def print_finding(rows: Sequence[Row]) -> Finding:
    """What the rows say in short, which is returned."""
    from choicewise.report.finding_text import sentences
    from choicewise.results.finding import finding

    shown = finding(rows)
    print_parts([" ".join(sentences(shown))])
    return shown


def print_tables(rows: Sequence[Row], every: bool) -> None:
    """The rows and what their words mean: all of them where they are few or ``every``, else their families."""
    from choicewise.report.family_table import doubts, family_tables, long, short_legend
    from choicewise.report.table import legend, report_tables

    if every or not long(rows):
        print_parts(report_tables(rows))
        show(*legend(rows))
        return
    print_parts(family_tables([row for row in rows if row.share]))
    print_parts(report_tables([row for row in rows if not row.share]))
    if doubted := doubts(rows):
        print_parts([f"doubts, with the number of protocols: {doubted}"])
    show(*short_legend(rows), "every number with its interval, doubts and ids: the same line with --all")


def _next_steps(rows: Sequence[Row], folders: Sequence[Path]) -> Iterator[str]:
    """What to do next with the runs in ``folders``, a line each."""
    from choicewise.results.finding import finding
    from choicewise.results.sweep import run_folders

    runs = run_folders(folders)
    own = next(iter(finding(rows).numbers), None)
    if len(runs) == 1 and own and own.lowest and own.highest and own.lowest.value < own.highest.value:
        ladder = command_line("ladder", own.lowest.protocol, own.highest.protocol, *runs)
        yield f"why the lowest and the highest differ: `{ladder}`"
    if len(folders) <= FEW:
        yield f"all of it on one page: `{command_line('page', *folders, '--out', 'page.html')}`"
