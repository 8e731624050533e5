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
        Path | None, typer.Option("--out", readable=False, help="The run folder: a new one.")
    ] = None,
    allow_missing: Annotated[
        bool,
        typer.Option(
            "--allow-missing",
            help="Go on without shards that are not there; their questions are missing.",
        ),
    ] = False,
    output: Output,
) -> None:
    """Put the shards of a run together, and print what the numbers say: to the bit those of one process.

    Shards are folders that `choicewise run --shard I/N` wrote, or what was merged of some of them before; or folders of
    several benchmarks, each with its shards. Shards of another run, edited ones, and two answers to one question that
    differ are refused; for a shard that is missing or not complete the line is printed that asks it.
    """
    if out is None:
        raise UsageError("--out is missing: the folder of the whole run, a new one")
    output.check()
    from choicewise.cli.report import print_folders
    from choicewise.cli.run import token_savings
    from choicewise.extensions.cluster.merge import MissingShards, merge_all

    try:
        merge_all(folders, out, options.line_of, allow_missing, tell)
    except MissingShards as error:
        advice = "--allow-missing goes on without, and these commands ask what lacks"
        raise UsageError(f"{error.message}; {advice}", error.problems) from error
    from choicewise.results.sweep import run_folders
    from choicewise.store.folder import read_manifest

    for folder in run_folders([out]):
        spent = read_manifest(folder).engine.spent
        if spent is not None:
            tell(token_savings(spent))
    print_folders([out], output)
