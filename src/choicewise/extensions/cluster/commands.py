"""The command ``merge``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from choicewise.cli import options
from choicewise.cli.options import Output, grouped
from choicewise.cli.terminal import tell
from choicewise.errors import UsageError


@grouped
def merge(
    *,
    folders: Annotated[
        list[Path],
        typer.Argument(
            metavar="DIR...", readable=False, help="Shards, or a folder that holds them."
        ),
    ],
    out: Annotated[
        Path | None, typer.Option("--out", readable=False, help="A new run folder.")
    ] = None,
    allow_missing: Annotated[
        bool,
        typer.Option(
            "--allow-missing",
            help="Merge without missing shards; their questions are missing.",
        ),
    ] = False,
    output: Output,
) -> None:
    """Merge the shards of a run and print the report; scores are bit-identical to one process.

    Shards are folders of `choicewise run --shard I/N`, earlier merges of some of them, or folders of
    several benchmarks. Edited shards, shards of another run and contradicting answers are refused. For
    each missing or incomplete shard the command that runs it is printed.
    """
    if out is None:
        raise UsageError("--out is missing; name a new folder for the merged run")
    output.check()
    from choicewise.cli.report import print_folders
    from choicewise.extensions.cluster.merge import MissingShards, merge_all
    from choicewise.extensions.run.commands import token_savings

    try:
        merge_all(folders, out, options.line_of, allow_missing, tell)
    except MissingShards as error:
        advice = "--allow-missing merges without them; these commands run them"
        raise UsageError(f"{error.message}; {advice}", error.problems) from error
    from choicewise.results.sweep import run_folders
    from choicewise.store.folder import read_manifest

    for folder in run_folders([out]):
        spent = read_manifest(folder).engine.spent
        if spent is not None:
            tell(token_savings(spent))
    print_folders([out], output)
