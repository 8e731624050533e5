"""Demo."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from choicewise.cli import options
from choicewise.cli.report import print_numbers
from choicewise.cli.terminal import print_parts, progress, show, tell
from choicewise.errors import install_line
from choicewise.util.text import command_line

if TYPE_CHECKING:
    from choicewise.results.finding import Finding, Reversal
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

    Shows in nine lines how values and ranks move between the three protocols of a table that was published in June
    2023, and writes a page about it. With --all every number, and what else the numbers show.
    """
    from choicewise.bundled import BENCHMARK, MODELS, PREFIX
    from choicewise.data.open import open_dataset
    from choicewise.models.load import load_model
    from choicewise.protocols.catalogue import resolve
    from choicewise.results.outcomes import bounded, ranked
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
    rows = bounded(rows, [each.outcomes for each in summaries])
    if every:
        _show_all(rows, summaries, out)
    else:
        _show_published(rows, summaries)
    show(_write_page(out, [run.folder for run in runs]))
    tell(f"next  {command_line('report', out, '--all')}  |  {command_line('demo', '--out', out, '--all')}")


def _show_published(rows: Sequence[Row], summaries: Sequence[Summary]) -> None:
    """The bundled models under the protocols of the published table, below a model of that table."""
    from choicewise.protocols.protocol import short_signature
    from choicewise.report.brief import published_lines
    from choicewise.results.compare import published
    from choicewise.results.finding import reversal

    chosen = []
    for each in summaries:
        own = [one for one in each.outcomes.outcomes if short_signature(one.protocol) in published()]
        chosen.append(replace(each, outcomes=replace(each.outcomes, outcomes=tuple(own))))
    show(*published_lines(rows, reversal(chosen)))


def _show_all(rows: Sequence[Row], summaries: Sequence[Summary], out: Path) -> None:
    """Every number, the whole published table, and what the numbers show."""
    from choicewise.report.comparison import published_table
    from choicewise.report.findings import reversal_table
    from choicewise.results.finding import finding, reversal

    shown = finding(rows)
    print_numbers(rows, shown)
    print_parts(["", published_table()])
    tell(f"wrote {' '.join(str(each.folder) for each in summaries)}", f"`{command_line('report', out)}` shows less")
    turned = reversal(summaries)
    if turned is not None:
        print_parts([reversal_table(turned, rows)])
    show(*_discovered(shown, summaries, turned))


def _discovered(shown: Finding, summaries: Sequence[Summary], turned: Reversal | None) -> list[str]:
    """What the runs show, a line each."""
    from choicewise.report.data import discovery_lines
    from choicewise.results.compare import striking_pair

    best = next(each for each in summaries if each.manifest.model.name == shown.leads[0].models[0])
    pair = striking_pair(best.outcomes)
    if pair is not None:
        chosen = ("--item", pair.example, "--protocol", pair.start, "--protocol", pair.end)
        tell(f"one of the answers that go wrong: `{command_line('explain', best.folder, *chosen)}`")
    return [*discovery_lines(shown, turned, pair)]


def _write_page(out: Path, folders: Sequence[Path]) -> str:
    """Write the page of the runs in ``out``; the line that says where it is, or what it lacks."""
    page = out / "page.html"
    from choicewise.page.embed import lacking_libraries

    lacking = lacking_libraries()
    if lacking:
        steps = f"`{install_line('page')}`, then `{command_line('page', out, '--out', page)}`"
        return f"For a page that shows why the numbers differ, {' and '.join(lacking)} must be installed: {steps}"
    from choicewise.page.document import write_page

    write_page(folders, page, ITEMS)
    return f"Look at {page} in a browser: why the numbers differ, and which answers flip."
