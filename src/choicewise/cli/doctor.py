"""Doctor."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from choicewise.cli import options
from choicewise.cli.terminal import print_json, show, tell
from choicewise.util.text import command_line

if TYPE_CHECKING:
    from choicewise.data.dataset import Dataset
    from choicewise.records import Manifest
    from choicewise.store.faults import Examined


LACKING, DAMAGED = 7, 8
"""Exit codes: repaired, and the printed lines ask again what was lost; damaged."""


def doctor(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", readable=False, help="A run folder, or a folder that holds runs.")
    ],
    repair: Annotated[
        bool, typer.Option("--repair", help="Repair what can be; without it nothing is changed.")
    ] = False,
    json: options.Json = False,
) -> None:
    """Say what is damaged in a run folder, or in every run of a folder, and with --repair repair it.

    Damaged blocks are set aside in DIR/damaged, and the printed `choicewise run` line asks again what they held; a lost
    manifest is put back from its copy; the item table is written again from the data; leftovers of killed writes are
    removed. No model is needed, nothing observed is deleted, and a run that another process writes to is not touched.

    Exit codes: 0 nothing is damaged, 7 repaired, but a printed line has to ask again what was lost, 8 damaged.
    """
    from choicewise.running import doctor

    if repair:
        write = partial(doctor.rewrite_items, open_data=_open_data)
        runs = list(doctor.repair_runs(folder, write, options.line_of))
    else:
        runs = list(doctor.examine_runs(folder))
    if json:
        print_json([{**asdict(run), "damaged": len(run.harmed)} for run in runs])
    else:
        for run in runs:
            show(*_lines(run))
        if any(run.harmed for run in runs) and not repair:
            tell(f"`{command_line('doctor', folder, '--repair')}` repairs what can be")
    if any(run.harmed for run in runs):
        raise typer.Exit(DAMAGED)
    if any(run.line and run.done for run in runs):
        raise typer.Exit(LACKING)


def _lines(run: Examined) -> Iterator[str]:
    if run.state == "running":
        yield f"{run.folder}: another process is writing to it; it was not examined"
        return
    held = "" if run.state in ("sweep", "lost") else f", {run.blocks:,} blocks about {run.items:,} items"
    count = len(run.harmed)
    yield f"{run.folder}: {run.state}{held}; {f'{count} damaged' if count else 'nothing is damaged'}"
    for fault in run.faults:
        remedy = f" [{fault.remedy}]" if fault.harmful else ""
        yield f"  {'damaged' if fault.harmful else 'note'}: {fault.path} {fault.problem}{remedy}"
    if run.unanswered:
        yield f"  note: {run.unanswered:,} questions have no answer; the run's own line asks them again"
    for line in run.done:
        yield f"  repaired: {line}"
    if run.line:
        yield f"  this line asks what is not there: {run.line}"


def _open_data(run: Path, manifest: Manifest) -> Dataset:
    """The data of a run, where its job says that they lie."""
    from choicewise.errors import StoreError
    from choicewise.running.job import job_of

    if manifest.job:
        job = job_of({**manifest.job, "protocols": options.selectors_of(run, manifest)})
        sources = options.sources_of(job)
        for source in sources:
            if len(sources) == 1 or source.name == manifest.dataset.name:
                return source.open()
    raise StoreError(f"its manifest does not say where {manifest.dataset.name} lies")
