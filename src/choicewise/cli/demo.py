"""``choicewise demo``: the main job on the bundled models and questions."""

from pathlib import Path
from typing import Annotated

import typer

from choicewise.cli.output import command_line, print_parts, tell
from choicewise.cli.progress import progress


def demo(
    out: Annotated[Path, typer.Option("--out", readable=False, help="A folder for the runs, one per model.")] = Path(
        "choicewise-demo"
    ),
) -> None:
    """Score the bundled models on the bundled questions under every published MMLU protocol.

    Shows how values and ranks move between protocols, beside the table of eight models published in June 2023.
    """
    from choicewise.bundled import BENCHMARK, MODELS
    from choicewise.data.open_dataset import open_dataset
    from choicewise.models.load import load_model
    from choicewise.protocols.catalogue import resolve
    from choicewise.report.published import published_table
    from choicewise.report.table import report_tables
    from choicewise.results.ranks import ranked
    from choicewise.results.summary import keep_summary
    from choicewise.running.evaluate import evaluate

    dataset, protocols = open_dataset(BENCHMARK), resolve("mmlu")
    runs = []
    for folder in MODELS:
        where = out / folder.name
        with progress(folder.name) as report:
            model = load_model(str(folder))
            runs.append(evaluate(model=model, data=dataset, protocols=protocols, out=where, progress=report))
    print_parts(report_tables(ranked([row for run in runs for row in keep_summary(run).rows])))
    print_parts([published_table()])
    wrote = [run.folder for run in runs]
    tell(f"wrote {' '.join(map(str, wrote))}", f"`{command_line('report', *wrote)}` shows the tables again")
