"""Demo."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from choicewise.cli import options
from choicewise.cli.terminal import print_finding, print_parts, print_tables, progress, show, tell
from choicewise.util.text import command_line

if TYPE_CHECKING:
    from choicewise.results.finding import Reversal
    from choicewise.results.outcomes import Summary
    from choicewise.results.rows import Row


ITEMS = 60
"""Items that the page has in full: as many as are made in some seconds."""


def demo(
    out: Annotated[Path, typer.Option("--out", readable=False, help="A folder for the runs, one per model.")] = Path(
        "choicewise-demo"
    ),
    every: options.All = False,
) -> None:
    """Score the bundled models on the bundled questions under every published MMLU protocol.

    Shows how values and ranks move between protocols, beside the table of eight models published in June 2023, and
    ends with what that shows and with a page about it.
    """
    from choicewise.bundled import BENCHMARK, MODELS, PREFIX
    from choicewise.data.open import open_dataset
    from choicewise.models.load import load_model
    from choicewise.protocols.catalogue import resolve
    from choicewise.report.comparison import published_table
    from choicewise.report.findings import reversal_table
    from choicewise.results.finding import reversal
    from choicewise.results.outcomes import ranked
    from choicewise.results.summary import keep_summary
    from choicewise.running.evaluate import evaluate
    from choicewise.running.job import job_of

    dataset, protocols = open_dataset(BENCHMARK), resolve("mmlu")
    runs = []
    for folder in MODELS:
        where = out / folder.name
        with progress(folder.name) as report:
            model = load_model(str(folder))
            table = {"models": [PREFIX + folder.name], "data": [PREFIX + BENCHMARK.name], "protocols": ["mmlu"]}
            job = job_of(table)
            runs.append(evaluate(model=model, data=dataset, protocols=protocols, out=where, progress=report, job=job))
    summaries = [keep_summary(run) for run in runs]
    rows = ranked([row for each in summaries for row in each.rows])
    print_finding(rows)
    print_tables(rows, every)
    print_parts(["", published_table()])
    wrote = [run.folder for run in runs]
    tell(f"wrote {' '.join(map(str, wrote))}", f"`{command_line('report', out)}` shows the tables again")
    page = _write_page(wrote, out / "page.html")
    turned = reversal(summaries)
    if turned is not None:
        print_parts([reversal_table(turned, rows)])
    show(*_discovered(rows, summaries, turned), page)


def _discovered(rows: Sequence[Row], summaries: Sequence[Summary], turned: Reversal | None) -> list[str]:
    """What the runs show, a line each."""
    from choicewise.report.data import discovery_lines
    from choicewise.results.compare import striking_pair
    from choicewise.results.finding import finding

    shown = finding(rows)
    best = next(each for each in summaries if each.manifest.model.name == shown.leads[0].models[0])
    pair = striking_pair(best.outcomes)
    if pair is not None:
        chosen = ("--item", pair.example, "--protocol", pair.start, "--protocol", pair.end)
        tell(f"one of the answers that go wrong: `{command_line('explain', best.folder, *chosen)}`")
    return [*discovery_lines(shown, turned, pair)]


def _write_page(folders: Sequence[Path], out: Path) -> str:
    """Write the page of the runs; the line that says where it is, or what it lacks."""
    if lacking := [name for name in ("jinja2", "vl_convert") if find_spec(name) is None]:
        steps = f"`pip install 'choicewise[page]'`, then `{command_line('page', *folders, '--out', out)}`"
        return f"For a page that shows why the numbers differ, {' and '.join(lacking)} must be installed: {steps}"
    from choicewise.page.document import write_page

    write_page(folders, out, ITEMS)
    return f"Look at {out} in a browser: why the numbers differ, and which answers flip."
