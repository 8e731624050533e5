"""Score the bundled models on the bundled questions: ``choicewise demo``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from choicewise.cli import options
from choicewise.cli.report import print_numbers
from choicewise.cli.terminal import print_parts, progress, show, show_dim, tell
from choicewise.errors import install_line
from choicewise.util.text import command_line

if TYPE_CHECKING:
    from choicewise.models.model import Model
    from choicewise.protocols.protocol import Protocol, Protocols
    from choicewise.results.number import Number
    from choicewise.results.outcomes import Summary
    from choicewise.results.run import Run
    from choicewise.running.job import Job


ITEMS = 60
"""Items that the page has in full: as many as are made in some seconds."""


def demo(
    out: Annotated[
        Path, typer.Option("--out", readable=False, help="A folder for the runs, one per model.")
    ] = Path("choicewise-demo"),
    every: options.All = False,
) -> None:
    """Score a published model and four tiny bundled ones the way three implementations of MMLU do.

    The published model (SmolLM2-135M-Instruct) answers 120 bundled school questions. If its file is
    missing, the demo prints the command that downloads it, and goes on. The bundled models answer
    questions about an invented place. With --all it uses all 49 protocols and prints every score.
    """
    from choicewise.bundled import BENCHMARK, COMMONS, MODELS, PREFIX
    from choicewise.models.load import load_model
    from choicewise.protocols.catalogue import resolve
    from choicewise.results.outcomes import bounded, ranked
    from choicewise.results.summary import keep_summary

    protocols = resolve("mmlu")
    bundled = []
    for folder in MODELS:
        job = _job(PREFIX + folder.name, PREFIX + BENCHMARK.name, ["mmlu"])
        bundled.append(
            _evaluate(load_model(str(folder)), BENCHMARK, protocols, job, out / folder.name)
        )
    summaries = [keep_summary(run) for run in bundled]
    rows: list[Number] = []
    for summary in summaries:
        rows += summary.rows
    # The bundled models answer the same questions: only here do ranks mean something.
    rows = bounded(ranked(rows), [summary.outcomes for summary in summaries])

    # The published model answers other questions, so its numbers have a table of their own.
    published_rows: Sequence[Number] = ()
    # A page of a model that people use interests them more than one of toys.
    runs_on_page = bundled
    file = _published_file()
    if file is not None:
        # It takes seconds a protocol: without --all it answers what its table prints.
        wanted = protocols if every else _of_published_table(protocols)
        model = load_model(file)
        job = _job(str(file), PREFIX + COMMONS.name, list(wanted))
        published = _evaluate(model, COMMONS, wanted, job, out / model.name)
        published_rows = keep_summary(published).rows
        runs_on_page = [published]

    if every:
        _show_all(rows, summaries, out, published_rows)
    else:
        _show_published(rows, summaries, published_rows)
    show(_write_page(out, [run.folder for run in runs_on_page]))
    next_commands = [command_line("report", out, "--all")]
    if not every:
        next_commands.append(command_line("demo", "--out", out, "--all"))
    tell(f"next  {'  |  '.join(next_commands)}")


def _job(model: str, data: str, protocols: list[str]) -> Job:
    """Return the job that a command line with these names would make."""
    from choicewise.running.job import job_of

    return job_of({"models": [model], "data": [data], "protocols": protocols})


def _evaluate(model: Model, data: Path, protocols: Protocols, job: Job, out: Path) -> Run:
    """Return the run of ``model`` on ``data`` in the folder ``out``, with progress on stderr."""
    from choicewise.data.open import open_dataset
    from choicewise.running.evaluate import evaluate

    with progress(model.name) as report:
        return evaluate(
            model=model,
            data=open_dataset(data),
            protocols=protocols,
            out=out,
            progress=report,
            job=job,
        )


def _published_file() -> Path | None:
    """Return the published model's file.

    None, with the command that makes it usable, if something is missing.
    """
    from choicewise.extensions.demo.published_model import fetch_command, published_model

    file = published_model()
    if file is None:
        tell(f"To add a published model (93 MB): {fetch_command()}")
        return None
    if find_spec("gguf") is None or find_spec("accelerate") is None:
        tell(f"To add the published model: {install_line('gguf')}")
        return None
    return file


def _of_published_table(protocols: Protocols) -> Protocols:
    """Return the protocols that the published table has."""
    chosen = {}
    for name, protocol in protocols.items():
        if _is_published(protocol):
            chosen[name] = protocol
    return chosen


def _is_published(protocol: Protocol) -> bool:
    """Check that the published table has the protocol."""
    from choicewise.protocols.protocol import short_signature
    from choicewise.results.published import published

    return short_signature(protocol) in published()


def _show_published(
    rows: Sequence[Number], summaries: Sequence[Summary], published_rows: Sequence[Number]
) -> None:
    """Print the models under the protocols of the published table, and what that table has for
    LLaMA-65B.
    """
    from choicewise.extensions.demo.tables import scores_beside_published
    from choicewise.results.finding import reversal

    # Two models change places on the screen only if they do so in columns that it prints.
    chosen = []
    for summary in summaries:
        kept = []
        for outcome in summary.outcomes.outcomes:
            if _is_published(outcome.protocol):
                kept.append(outcome)
        outcomes = replace(summary.outcomes, outcomes=tuple(kept))
        chosen.append(replace(summary, outcomes=outcomes))
    drawn = scores_beside_published(rows, reversal(chosen), published_rows)
    if drawn is None:
        return
    show(*drawn.table)
    show_dim(drawn.publication)
    show(*drawn.order)


def _show_all(
    rows: Sequence[Number],
    summaries: Sequence[Summary],
    out: Path,
    published_rows: Sequence[Number],
) -> None:
    """Print every number, the ``published_rows`` first, the whole published table, and what the
    numbers show.
    """
    from choicewise.extensions.demo.tables import (
        discovery_lines,
        published_table,
        reversal_table,
        striking_pair,
    )
    from choicewise.results.finding import finding, reversal

    if published_rows:
        print_numbers(published_rows, finding(published_rows))
    numbers = finding(rows)
    print_numbers(rows, numbers)
    print_parts(["", published_table()])
    tell(
        f"wrote {' '.join(str(summary.folder) for summary in summaries)}",
        f"`{command_line('report', out)}` shows less",
    )
    turned = reversal(summaries)
    if turned is not None:
        print_parts([reversal_table(turned, rows)])

    leader = numbers.leads[0].models[0]
    summary_of = {summary.manifest.model.name: summary for summary in summaries}
    # The leader knows the most answers, so what goes wrong there is the protocol's doing.
    best = summary_of[leader]
    pair = striking_pair(best.outcomes)
    if pair is not None:
        chosen = ("--item", pair.example, "--protocol", pair.start, "--protocol", pair.end)
        tell(f"an answer that goes wrong: `{command_line('explain', best.folder, *chosen)}`")
    show(*discovery_lines(numbers, turned, pair))


def _write_page(out: Path, folders: Sequence[Path]) -> str:
    """Write the page of the runs in ``out``.

    Return the line that says where it is, or what it lacks.
    """
    from choicewise.page.embed import lacking_libraries

    page = out / "page.html"
    lacking = lacking_libraries()
    if lacking:
        steps = f"`{install_line('page')}`, then `{command_line('page', out, '--out', page)}`"
        return (
            "To write a page that shows why the numbers differ, install "
            f"{' and '.join(lacking)}: {steps}"
        )
    from choicewise.page.document import write_page

    write_page(folders, page, ITEMS)
    return f"Open {page} in a browser: why the numbers differ, and which answers flip."
