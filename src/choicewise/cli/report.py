"""``choicewise report``: the numbers of run folders."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from choicewise.cli import options
from choicewise.cli.output import print_json, print_parts, tell
from choicewise.cli.rows import print_rows
from choicewise.errors import UsageError
from choicewise.results.refused import refused_lines

if TYPE_CHECKING:
    from choicewise.records.manifest import Manifest
    from choicewise.results.row import Row
    from choicewise.results.run import Run

By = StrEnum("By", ["micro", "macro", "subjects", "subcategories", "categories"])
"""Groups a report can be split into, instead of each protocol's own aggregation."""

Interval = StrEnum("Interval", [("wilson", "wilson"), ("beta_binomial", "beta-binomial"), ("clustered", "clustered")])
"""Ways to compute a 95 % interval."""


def report(
    folders: Annotated[
        list[Path], typer.Argument(metavar="DIR...", readable=False, help="Run folders, or folders that hold runs.")
    ],
    by: Annotated[By | None, typer.Option("--by", help="Aggregate this way instead of the protocol's own.")] = None,
    protocol: Annotated[
        list[str] | None, typer.Option("--protocol", help="Score under these instead of the run's own. Repeatable.")
    ] = None,
    interval: Annotated[
        Interval | None, typer.Option("--interval", help="The 95 % interval; clustered takes subjects as drawn.")
    ] = None,
    multiverse: Annotated[
        bool, typer.Option("--multiverse", help="Show how results and conclusions vary over all protocols.")
    ] = False,
    effects: Annotated[
        bool, typer.Option("--effects", help="Show what each axis changes, over all protocols that differ in it alone.")
    ] = False,
    agreement: Annotated[
        bool, typer.Option("--agreement", help="Show how far retrievals of the same options agree, and why not.")
    ] = False,
    distribution: Annotated[
        bool, typer.Option("--distribution", help="Show how often each choice would be chosen, and the fit to people.")
    ] = False,
    temperature: Annotated[
        float | None, typer.Option("--temperature", help="Of the softmax, with --distribution; 1 unless given.")
    ] = None,
    condition: Annotated[
        str | None, typer.Option("--condition", help="Average over this field of the data, with --distribution.")
    ] = None,
    every: options.All = False,
    json: options.Json = False,
) -> None:
    """Print one row per model, dataset, protocol and metric: value, interval, n, rank, doubts, signature.

    No model is needed: `--protocol` computes further scores from the same observations, if the prompts are the same.
    """
    views = {"--multiverse": multiverse, "--effects": effects, "--agreement": agreement, "--distribution": distribution}
    chosen = [name for name, wanted in views.items() if wanted]
    if len(chosen) > 1:
        raise UsageError(f"{' and '.join(chosen)} are reports of their own; ask for one at a time")
    if chosen:
        options.refuse_without_use(f"{chosen[0]} has", by=by, interval=interval, all=every)
    if not distribution:
        options.refuse_without_use("without --distribution there is", temperature=temperature, condition=condition)
    if json:
        options.refuse_without_use("--json prints every number and has", all=every)

    if not (chosen or protocol or by or interval):
        print_folders(folders, json, every)
        return
    from choicewise.results.run import open_run
    from choicewise.results.sweep import run_folders

    folders = run_folders(folders)
    runs = [open_run(folder).choose(protocol) for folder in folders]
    _tell_state([run.manifest for run in runs], folders)
    if multiverse:
        _print_multiverse(runs, json)
    elif effects:
        _print_effects(runs, json)
    elif agreement:
        _print_agreement(runs, json)
    elif distribution:
        _print_distribution(runs, 1.0 if temperature is None else temperature, condition, json)
    else:
        _print_rows(runs, by, interval, json, every)


def print_folders(folders: Sequence[Path], json: bool, every: bool) -> None:
    """The rows of all runs in the folders, and the averages of the suites that they were asked for."""
    from choicewise.results.ranks import bounded, ranked
    from choicewise.results.suite_parts import averages
    from choicewise.results.summary import summarize
    from choicewise.results.sweep import run_folders, sweeps

    runs = run_folders(folders)
    summaries = {run: summarize(run) for run in runs}
    _tell_state([each.manifest for each in summaries.values()], runs)
    rows = ranked([row for each in summaries.values() for row in each.rows])
    rows = bounded(rows, [each.outcomes for each in summaries.values()])
    whole = [average for folder, sweep in sweeps(folders) for average in averages(folder, sweep, summaries)]
    print_rows(rows, folders, json, every, whole)


def _tell_state(manifests: Sequence[Manifest], folders: Sequence[Path]) -> None:
    for manifest, folder in zip(manifests, folders, strict=True):
        if not manifest.complete:
            tell(f"{folder} is not complete; repeat its `{manifest.writer}` line to finish it")
        tell(*(f"note: {line}" for line in refused_lines(manifest.refused)))


def _print_rows(runs: Sequence[Run], by: str | None, interval: str | None, json: bool, every: bool) -> None:
    from choicewise.results.outcome import OutcomeKeeper, Outcomes
    from choicewise.results.ranks import bounded, ranked

    rows: list[Row] = []
    keeper, kept = OutcomeKeeper(), list[Outcomes]()
    for run in runs:
        rows += run.rows(by, interval)
        if len(runs) > 1:
            kept.append(keeper.keep(run))
        run.release()
    print_rows(bounded(ranked(rows), kept, by), [run.folder for run in runs], json, every)


def _print_multiverse(runs: Sequence[Run], json: bool) -> None:
    from choicewise.report.multiverse_table import multiverse_tables
    from choicewise.results.multiverse import multiverse, multiverse_json

    panel = multiverse(runs)
    print_json(multiverse_json(panel)) if json else print_parts(multiverse_tables(panel))


def _print_effects(runs: Sequence[Run], json: bool) -> None:
    from choicewise.report.effects_table import effects_table
    from choicewise.results.main_effects import main_effects
    from choicewise.results.outcome import OutcomeKeeper

    keeper, shown = OutcomeKeeper(), []
    for run in runs:
        shown.append((run, main_effects(keeper.keep(run))))
        run.release()
    if json:
        named = [(str(run.folder), run.manifest.model.name, run.manifest.dataset.name, each) for run, each in shown]
        print_json([dict(zip(("run", "model", "dataset", "effects"), each, strict=True)) for each in named])
    else:
        print_parts(effects_table(run.manifest.model.name, run.manifest.dataset.name, each) for run, each in shown)


def _print_agreement(runs: Sequence[Run], json: bool) -> None:
    from rich.console import Group

    from choicewise.report.agreement_table import agreement_tables
    from choicewise.results.agreement import agreement

    agreements = {str(run.folder): agreement(run) for run in runs}
    if json:
        print_json([{"run": folder, **asdict(pair)} for folder, pairs in agreements.items() for pair in pairs])
    else:
        print_parts(Group(*agreement_tables(folder, pairs)) for folder, pairs in agreements.items())


def _print_distribution(runs: Sequence[Run], temperature: float, condition: str | None, json: bool) -> None:
    from choicewise.report.distribution_table import distribution_table
    from choicewise.results.distribution import distributions

    computed = [distribution for run in runs for distribution in distributions(run, temperature, condition)]
    print_json(computed) if json else print_parts(map(distribution_table, computed))
