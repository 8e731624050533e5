"""Report: what runs say."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from choicewise.cli import options
from choicewise.cli.analysis import CHOSEN, ChosenAnalysis, ReportCommand
from choicewise.cli.terminal import print_json, print_parts, show, tell
from choicewise.errors import UsageError
from choicewise.util.text import command_line

if TYPE_CHECKING:
    from choicewise.protocols.protocol import Protocol
    from choicewise.results.finding import Finding
    from choicewise.results.number import Number
    from choicewise.results.outcomes import Outcomes, Summary
    from choicewise.results.run import Run
    from choicewise.results.sweep import Average


By = StrEnum("By", ["micro", "macro", "subjects", "subcategories", "categories"])
"""Groups a report can be split into, instead of each protocol's own aggregation."""

Interval = StrEnum(
    "Interval",
    [("wilson", "wilson"), ("beta_binomial", "beta-binomial"), ("clustered", "clustered")],
)
"""Ways to compute a 95 % interval."""


@dataclass(frozen=True)
class Scored:
    """What is scored of the observations: the run's own protocols where nothing is given."""

    protocol: Annotated[
        list[str] | None,
        typer.Option("--protocol", help="Score under these instead of the run's own. Repeatable."),
    ] = None
    score: options.Score = None
    metric: options.Metrics = None
    temperature_from: Annotated[
        Path | None,
        typer.Option(
            "--temperature-from",
            metavar="RUN",
            help="With --metric: the temperature that fits this run, of other items.",
        ),
    ] = None

    @property
    def given(self) -> bool:
        """Whether the run's own numbers are not enough."""
        return bool(self.protocol or self.score or self.metric)

    def runs(self, folders: Sequence[Path]) -> list[Run]:
        """The runs in the folders, without the metrics; says which are not complete."""
        from choicewise.protocols.catalogue import having_score
        from choicewise.results.run import open_run
        from choicewise.results.sweep import run_folders

        runs = [open_run(folder).choose(self.protocol) for folder in run_folders(folders)]
        if (score := self.score) is not None:
            runs = [run.under(having_score(run.protocols, score)) for run in runs]
        _tell_state(runs)
        return runs

    def parts(self, run: Run, together: bool = False) -> Iterator[Run]:
        """The run under each of the metrics, or ``together`` under all; with the temperatures that fit another run.

        Says which of its protocols can't have which.
        """
        from choicewise.protocols.between import apply_metrics, refuse_metrics
        from choicewise.protocols.metrics import METRICS
        from choicewise.results.outcomes import read_together
        from choicewise.results.reliability import with_temperature
        from choicewise.results.run import open_run

        if self.metric is None:
            yield run
            return
        fitted_on = None if self.temperature_from is None else open_run(self.temperature_from)
        softmax = False
        before: set[Protocol] = set()
        asked = [self.metric] if together else [[metric] for metric in self.metric]
        applied = [apply_metrics(run.protocols, metrics) for metrics in asked]
        for each in applied:
            refuse_metrics([each])
            tell(*(f"note: {run.folder}: {line}" for line in each.lines))
        if not together:
            read_together(run, [run.under(each.protocols).protocols for each in applied])
        for made in (each.protocols for each in applied):
            part = run.under(
                {name: protocol for name, protocol in made.items() if protocol not in before}
            )
            before.update(made.values())
            if fitted_on is not None and any(
                METRICS[each.metric].softmax for each in part.protocols.values()
            ):
                part, lines = with_temperature(part, fitted_on)
                tell(*lines)
                softmax = True
            yield part
        if fitted_on is not None and not softmax:
            raise UsageError(
                "a temperature is of a softmax; name a metric that has one: --metric brier,log-score,ece"
            )


@options.grouped
def report(
    *,
    context: typer.Context,
    folders: options.RunFolders,
    by: Annotated[
        By | None, typer.Option("--by", help="Aggregate this way instead of the protocol's own.")
    ] = None,
    scored: Scored,
    interval: Annotated[
        Interval | None,
        typer.Option("--interval", help="The 95 % interval; clustered takes subjects as drawn."),
    ] = None,
    output: options.Output,
) -> None:
    """Print what runs say: of one run in nine lines, of several a table of models by benchmarks.

    With --all a row per model, dataset, protocol and metric: value, interval, n, rank, warnings. No model is needed:
    --protocol computes further scores from the same observations, if the prompts are the same. An analysis answers
    one question about the runs, instead: `report DIR signal`; a folder of that name is `./signal`.
    """
    chosen: ChosenAnalysis | None = context.meta.get(CHOSEN)
    if chosen is not None:
        name = chosen.analysis.name
        options.refuse_without_use(f"{name} has", by=by, interval=interval, ids=output.ids)
    output.check()
    options.refuse_without_use(
        "without --metric there is",
        temperature_from=scored.temperature_from if scored.metric is None else None,
    )
    if chosen is not None:
        chosen.show(_analysed(chosen, scored, folders), output)
    elif not (scored.given or by or interval):
        print_folders(folders, output)
    else:
        output = replace(output, every=output.every or (by is not None and not output.json))
        print_runs([*_summaries(scored, folders, by, interval)], folders, output, by=by)


def _analysed(
    chosen: ChosenAnalysis, scored: Scored, folders: Sequence[Path]
) -> Sequence[Run] | Sequence[Summary]:
    """Return the runs in the folders as the analysis needs them."""
    if chosen.analysis.needs == "runs":
        return [part for run in scored.runs(folders) for part in scored.parts(run, together=True)]
    if scored.given:
        return list(_summaries(scored, folders))
    return _read_summaries(folders)


def print_folders(folders: Sequence[Path], output: options.Output, above: int = 0) -> None:
    """All runs in the folders, and the averages of the suites that they were asked for; ``above`` as of print_runs."""
    from choicewise.results.sweep import averages, sweeps

    runs = {run.folder: run for run in _read_summaries(folders)}
    whole = [
        average for folder, sweep in sweeps(folders) for average in averages(folder, sweep, runs)
    ]
    print_runs([*runs.values()], folders, output, averages=whole, above=above)


def print_runs(
    runs: Sequence[Summary],
    folders: Sequence[Path],
    output: options.Output,
    *,
    by: str | None = None,
    averages: Sequence[Average] = (),
    above: int = 0,
) -> None:
    """The numbers of the ``runs`` in ``folders``: in short, with what to run next on stderr, or all, or as JSON.

    ``by``: the groups that their rows are of.  ``averages``: of the suites.  ``above``: lines that were printed before,
    which count among the nine.  Of runs that are samples, estimates for all items where the other runs allow them.
    """
    from choicewise.report.estimates import estimate_lines, estimate_table
    from choicewise.report.tables import average_tables, serious_warnings
    from choicewise.results.outcomes import bounded, ranked
    from choicewise.results.sample import sample_estimates

    outcomes = [run.outcomes for run in runs]
    rows = bounded(ranked([row for run in runs for row in run.rows]), outcomes, by)
    estimates = sample_estimates(runs)
    tell(*(f"note: {note}" for note in estimates.notes))
    if output.json:
        tell(*serious_warnings(rows))
        numbers = [*(row.as_json() for row in rows), *(each.as_json() for each in averages)]
        print_json([*numbers, *(each.as_json() for each in estimates.rows)])
        return
    if output.every or output.ids:
        if rows:
            from choicewise.results.finding import finding

            print_numbers(rows, finding(rows), output.ids)
        print_parts(average_tables(averages))
        if estimates.rows:
            print_parts([estimate_table(estimates.rows)])
        tell(*serious_warnings(rows, guesses=False))
        return
    from choicewise.report.brief import FEWEST, LINES, first_lines, height
    from choicewise.results.finding import unchanged

    own = unchanged(rows)
    names, changed = {row.identity.protocol for row in own}, len(own) < len(rows)
    outcomes = [
        replace(each, outcomes=tuple(one for one in each.outcomes if one.name in names))
        for each in outcomes
    ]
    following = next_lines(
        own, folders, [run.folder for run in runs], LINES - FEWEST - above, changed
    )
    print_parts(average_tables(averages))
    show(
        *first_lines(own, outcomes, bool(averages), max(FEWEST, LINES - height(following) - above))
    )
    show(*estimate_lines(estimates.rows, rows))
    tell(*following)


def print_numbers(rows: Sequence[Number], shown: Finding, ids: bool = False) -> None:
    """What the rows say in sentences (``shown``); the range of each family where they are many; every row; the words.

    ``ids``: with those of every row.
    """
    from choicewise.report.findings import sentences
    from choicewise.report.tables import family_tables, legend, long, report_tables

    print_parts([" ".join(sentences(shown))])
    if long(rows):
        print_parts(family_tables([row for row in rows if row.share]))
    print_parts(report_tables(rows, ids=ids))
    show(*legend(rows, ids))


FOLDERS, BESIDE = 4, "  |  "
"""Run folders that the commands to run next name at most; what parts two commands on one line."""


def next_lines(
    rows: Sequence[Number],
    folders: Sequence[Path],
    runs: Sequence[Path],
    most: int,
    changed: bool = False,
) -> list[str]:
    """The commands to run next with the ``runs`` in ``folders``, at most three, in two lines where paths are not long.

    ``rows``: of the runs.  ``changed``: whether there are others of changed questions.  Further commands than the first
    are left out where they take more than ``most`` lines.
    """
    from choicewise.protocols.protocol import parse_signature
    from choicewise.report.brief import WIDTH, extremes, height

    if len(folders) > FOLDERS:
        return []
    others = (
        []
        if any(row.share for row in rows)
        else [*dict.fromkeys(row.identity.metric for row in rows)]
    )
    metrics = ["--metric", ",".join(others)] if others and "perplexity" not in others else []
    commands = [
        command_line("report", *folders, *metrics, "--all"),
        command_line("page", *folders, *metrics, "--out", "page.html"),
    ]
    ends = extremes(rows) if len(runs) == 1 else None
    if changed:
        commands.insert(1, command_line("report", *folders, "invariance"))
    elif (
        ends
        and ends[0].value < ends[1].value
        and len({parse_signature(row.identity.signature).kind for row in ends}) == 1
    ):
        commands.append(command_line("ladder", *(row.identity.protocol for row in ends), *runs))
    lines = [f"next  {commands[0]}"]
    for command in commands[1:]:
        if len(lines[-1]) + len(BESIDE) + len(command) <= WIDTH:
            lines[-1] += BESIDE + command
        else:
            lines.append(f"      {command}")
    while len(lines) > 1 and height(lines) > most:
        lines.pop()
    return lines


def _tell_state(runs: Sequence[Run] | Sequence[Summary]) -> None:
    from choicewise.models.kinds import answering_kind
    from choicewise.results.run import refused_lines
    from choicewise.store.shards import not_complete

    for run in runs:
        kind = answering_kind(run.manifest)
        if kind is not None:
            tell(*(f"note: {note}" for note in kind.notes(run.folder, run.manifest)))
        if not run.manifest.complete:
            tell(not_complete(run.folder, run.manifest))
        tell(*(f"note: {line}" for line in refused_lines(run.manifest.refused)))


def _read_summaries(folders: Sequence[Path]) -> list[Summary]:
    """The summaries of all runs in the folders; says which are not complete."""
    from choicewise.results.summary import summarize
    from choicewise.results.sweep import run_folders

    runs = [*map(summarize, run_folders(folders))]
    _tell_state(runs)
    return runs


def _summaries(
    scored: Scored, folders: Sequence[Path], by: str | None = None, interval: str | None = None
) -> Iterator[Summary]:
    """What remains of each of the runs in the folders, in these groups, with these intervals, a metric at a time."""
    from choicewise.results.outcomes import OutcomeKeeper, Summary

    keeper = OutcomeKeeper()
    for run in scored.runs(folders):
        rows: list[Number] = []
        kept: list[Outcomes] = []
        for part in scored.parts(run):
            rows += part.rows(by, interval)
            kept.append(keeper.keep(part))
        outcomes = replace(kept[0], outcomes=tuple(each for part in kept for each in part.outcomes))
        yield Summary(folder=run.folder, manifest=run.manifest, rows=tuple(rows), outcomes=outcomes)
        run.release()


report.command_class = ReportCommand  # type: ignore[attr-defined]  # commands.application makes it of this class
