"""Say what is damaged in run folders, and drop damaged blocks: ``choicewise doctor``."""

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
    from choicewise.extensions.doctor.examine import Examined


LACKING = 7
"""The exit code if blocks were dropped and a printed line has to run again."""

DAMAGED = 8
"""The exit code if something is damaged."""


def doctor(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="DIR", readable=False, help="A run folder, or a folder that holds runs."
        ),
    ],
    drop: Annotated[
        bool, typer.Option("--drop", help="Drop damaged blocks (default: change nothing).")
    ] = False,
    json: options.Json = False,
) -> None:
    """Find damage in run folders, and drop damaged blocks with --drop.

    After a drop, the printed `choicewise run` command asks the lost questions again. It also
    rewrites a damaged item table and removes leftovers of killed writes. No model is needed. Runs
    that another process is writing are not touched.

    Exit codes: 0 no damage, 7 dropped (run the printed command), 8 damaged.
    """
    from choicewise.extensions.doctor.examine import drop_damaged_blocks, examine_runs

    if drop:
        runs = list(drop_damaged_blocks(folder, options.line_of))
    else:
        runs = list(examine_runs(folder))
    if json:
        print_json([{**asdict(run), "damaged": len(run.harmed)} for run in runs])
    else:
        for run in runs:
            show(*_lines(run))
        if any(fault.remedy == "drop" for run in runs for fault in run.harmed):
            tell(f"`{command_line('doctor', folder, '--drop')}` drops the damaged blocks")
    # Damage that is left weighs more than blocks that were dropped.
    if any(run.harmed for run in runs):
        raise typer.Exit(DAMAGED)
    if any(run.dropped for run in runs):
        raise typer.Exit(LACKING)


def _lines(run: Examined) -> Iterator[str]:
    if run.state == "running":
        yield f"{run.folder}: another process is writing to it; not examined"
        return
    blocks = ""
    if run.state not in ("sweep", "lost"):
        blocks = f", {run.blocks:,} blocks about {run.items:,} items"
    damage = "no damage found"
    if run.harmed:
        damage = f"{len(run.harmed)} damaged"
    yield f"{run.folder}: {run.state}{blocks}; {damage}"
    for fault in run.faults:
        if fault.harmful:
            yield f"  damaged: {fault.path} {fault.problem} [{fault.remedy}]"
        else:
            yield f"  note: {fault.path} {fault.problem}"
    if run.unanswered:
        yield (
            f"  note: {run.unanswered:,} questions have no answer; resume the run to ask them again"
        )
    for line in run.dropped:
        yield f"  dropped {line}"
    if run.line:
        yield f"  to ask again what was lost: {run.line}"
