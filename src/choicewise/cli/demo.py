"""``choicewise demo``: the main job on the bundled models and questions."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from choicewise.cli.output import print_parts
from choicewise.cli.progress import progress


def demo(
    out: Annotated[Path, typer.Option("--out", help="A folder for the runs, one per model.")] = Path("choicewise-demo"),
) -> None:
    """Score the bundled models on the bundled questions under every published MMLU protocol.

    Shows how values and ranks move between protocols, beside the table of eight models published in June 2023.
    """
    from choicewise.bundled import BENCHMARK, MODELS
    from choicewise.data.open_dataset import open_dataset
    from choicewise.models.load import load_model
    from choicewise.protocols.catalogue import resolve
    from choicewise.report.published import published_table
    from choicewise.report.table import console, report_tables
    from choicewise.results.ranks import ranked
    from choicewise.running.evaluate import evaluate

    dataset, protocols = open_dataset(BENCHMARK), resolve("mmlu")
    runs = []
    for folder in MODELS:
        where = out / folder.name
        with progress(folder.name) as report:
            model = load_model(str(folder))
            runs.append(evaluate(model=model, data=dataset, protocols=protocols, out=where, progress=report))
    print_parts(report_tables(ranked([row for run in runs for row in run.rows()])))
    console().print(published_table())
    wrote = " ".join(str(run.folder) for run in runs)
    print(f"\nwrote {wrote}\n`choicewise report {wrote}` shows the tables again", file=sys.stderr)
