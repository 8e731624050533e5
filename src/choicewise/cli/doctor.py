"""Doctor."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from choicewise.cli import options
from choicewise.cli.terminal import print_json, show, tell
from choicewise.util.text import command_line

if TYPE_CHECKING:
    from choicewise.running.doctor import Examined


LACKING, DAMAGED = 7, 8
"""Exit codes: dropped, and the printed lines ask again what was lost; damaged."""


def doctor(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="DIR", readable=False, help="A run folder, or a folder that holds runs."
        ),
    ],
    drop: Annotated[
        bool, typer.Option("--drop", help="Drop damaged blocks; without it nothing is changed.")
    ] = False,
    json: options.Json = False,
) -> None:
    """Say what is damaged in a run folder, or in every run of a folder; with --drop no damaged block counts any more.

    The printed `choicewise run` line asks again what they held. It also writes a damaged item table again, and removes
    what killed writes left. No model is needed here, and a run that another process writes to is not touched.

    Exit codes: 0 nothing is damaged, 7 dropped, and a printed line has to ask again what was lost, 8 damaged.
    """
    from choicewise.running import doctor

    runs = list(
        doctor.drop_damaged_blocks(folder, options.line_of) if drop else doctor.examine_runs(folder)
    )
    if json:
        print_json([{**asdict(run), "damaged": len(run.harmed)} for run in runs])
    else:
        for run in runs:
            show(*_lines(run))
        if any(fault.remedy == "drop" for run in runs for fault in run.harmed):
            tell(f"`{command_line('doctor', folder, '--drop')}` drops the damaged blocks")
    if any(run.harmed for run in runs):
        raise typer.Exit(DAMAGED)
    if any(run.dropped for run in runs):
        raise typer.Exit(LACKING)


def _lines(run: Examined) -> Iterator[str]:
    if run.state == "running":
        yield f"{run.folder}: another process is writing to it; it was not examined"
        return
    held = (
        ""
        if run.state in ("sweep", "lost")
        else f", {run.blocks:,} blocks about {run.items:,} items"
    )
    count = len(run.harmed)
    yield f"{run.folder}: {run.state}{held}; {f'{count} damaged' if count else 'nothing is damaged'}"
    for fault in run.faults:
        remedy = f" [{fault.remedy}]" if fault.harmful else ""
        yield f"  {'damaged' if fault.harmful else 'note'}: {fault.path} {fault.problem}{remedy}"
    if run.unanswered:
        yield f"  note: {run.unanswered:,} questions have no answer; the run's own line asks them again"
    for line in run.dropped:
        yield f"  dropped {line}"
    if run.line:
        yield f"  this line asks what is not there: {run.line}"
