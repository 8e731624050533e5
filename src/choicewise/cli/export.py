"""``choicewise export``: the numbers of runs in the formats of other tools."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from choicewise.cli import options
from choicewise.cli.output import print_json, show, tell


def export(
    folders: Annotated[
        list[Path], typer.Argument(metavar="DIR...", readable=False, help="Run folders, or folders that hold runs.")
    ],
    form: Annotated[
        str, typer.Option("--format", metavar="FORMAT", help="The format; docs/export.md says what each is for.")
    ],
    out: Annotated[
        Path, typer.Option("--out", readable=False, help="A new folder, or a file where the format is one file.")
    ],
    protocol: Annotated[
        list[str] | None, typer.Option("--protocol", help="Only these, or further ones the runs can score. Repeatable.")
    ] = None,
    incomplete: Annotated[
        bool, typer.Option("--incomplete", help="Export runs that are not complete as they are, marked as such.")
    ] = False,
    url: Annotated[
        str, typer.Option("--url", help="Where the evaluation can be looked at, for formats that have a place for it.")
    ] = "",
    organization: Annotated[str, typer.Option("--organization", help="Who evaluated, in the same way.")] = "",
    json: options.Json = False,
) -> None:
    """Write the numbers of runs for other tools: the harness, Every Eval Ever, the Hub, tables, logs.

    No model is needed. Every file that was written is a line of the output. An earlier export of the same runs is
    replaced in one step; anything else at --out is left alone, and refused.
    """
    from choicewise.interchange.export import export as write

    filled = write(folders, form, out, protocols=protocol, incomplete=incomplete, url=url, organization=organization)
    tell(*(f"note: {note}" for note in filled.notes))
    if json:
        files = [{"path": str(file), "bytes": file.stat().st_size} for file in filled.files]
        print_json({"format": form, "out": str(out), "files": files, "notes": filled.notes})
    else:
        show(*map(str, filled.files))
