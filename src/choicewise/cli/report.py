"""Print the numbers of runs, or the answer of an analysis: ``choicewise report``."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from choicewise.cli import options
from choicewise.cli.analysis import CHOSEN, ChosenAnalysis, ReportCommand
from choicewise.cli.terminal import print_json, print_parts, show, tell
from choicewise.errors import ProtocolError, UsageError
from choicewise.ports import Estimates, Estimator, all_of
from choicewise.util.text import command_line, safe, wrapped

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
    """Options that choose what is scored of the observations, by default the run's protocols."""

    protocol: Annotated[
        list[str] | None,
        typer.Option(
            "--protocol", help="Score under these protocols instead of the run's. Repeatable."
        ),
    ] = None
    score: options.Score = None
    metric: options.Metrics = None
    temperature_from: Annotated[
        Path | None,
        typer.Option(
            "--temperature-from",
            metavar="RUN",
            help="With --metric: use the temperature that fits this other run.",
        ),
    ] = None

    @property
    def given(self) -> bool:
        """Return whether other numbers than the stored ones are wanted."""
        return bool(self.protocol or self.score or self.metric)

    def runs(self, folders: Sequence[Path]) -> list[Run]:
        """Open the runs in the folders, without the metrics; tell which are not complete."""
        from choicewise.protocols.catalogue import having_score
        from choicewise.results.run import choose_in_all, open_run
        from choicewise.results.sweep import run_folders

        runs = choose_in_all(list(map(open_run, run_folders(folders))), self.protocol)
        if self.score is not None:
            runs = [run.under(having_score(run.protocols, self.score)) for run in runs]
        _tell_state(runs)
        return runs

    def parts(self, run: Run, together: bool = False) -> Iterator[Run]:
        """Yield the run under each of the metrics, or ``together`` under all.

        Tell which protocols can't have which.

        If another run names temperatures, they are applied to metrics of a softmax.
        """
        from choicewise.protocols.between import apply_metrics, refuse_metrics
        from choicewise.results.outcomes import read_together
        from choicewise.results.run import open_run

        if self.metric is None:
            yield run
            return
        fitted_on = None
        if self.temperature_from is not None:
            fitted_on = open_run(self.temperature_from)
        groups = [self.metric] if together else [[metric] for metric in self.metric]
        applied = [apply_metrics(run.protocols, metrics) for metrics in groups]
        for changes in applied:
            refuse_metrics([changes])
            tell(*(f"note: {run.folder}: {line}" for line in changes.lines))
        if not together:
            read_together(run, [run.under(changes.protocols).protocols for changes in applied])
        is_fitted = False
        yielded: set[Protocol] = set()
        for changes in applied:
            # Several metrics may leave a protocol as it is.
            new = {}
            for name, protocol in changes.protocols.items():
                if protocol not in yielded:
                    new[name] = protocol
            yielded.update(new.values())
            part = run.under(new)
            if fitted_on is not None:
                fitted = _with_temperature(part, fitted_on)
                is_fitted |= fitted is not part
                part = fitted
            yield part
        if fitted_on is not None and not is_fitted:
            raise UsageError(
                "--temperature-from needs a metric with a softmax: --metric brier,log-score,ece"
            )


def _with_temperature(run: Run, fitted_on: Run) -> Run:
    """Return the run with temperatures that fit another one; itself if no metric has a softmax."""
    from choicewise.protocols.metrics import METRICS
    from choicewise.results.temperature import with_temperature

    if not any(METRICS[protocol.metric].softmax for protocol in run.protocols.values()):
        return run
    run, lines = with_temperature(run, fitted_on)
    tell(*lines)
    return run


@options.grouped
def report(
    *,
    context: typer.Context,
    folders: options.RunFolders,
    by: Annotated[
        By | None,
        typer.Option("--by", help="Group the scores this way (default: the protocol's own)."),
    ] = None,
    scored: Scored,
    interval: Annotated[
        Interval | None,
        typer.Option(
            "--interval", help="Kind of 95 % interval; clustered treats subjects as a sample."
        ),
    ] = None,
    output: options.Output,
) -> None:
    """Print one run in nine lines, or several as a table of models and benchmarks.

    With --all it prints every score with its interval, rank and warnings. No model is needed:
    --protocol computes more scores from the stored answers if the prompts are the same. An analysis
    answers one question about the runs: `report DIR signal` (write `./signal` for a folder of that
    name).
    """
    chosen: ChosenAnalysis | None = context.meta.get(CHOSEN)
    if chosen is not None:
        name = chosen.analysis.name
        options.refuse_without_use(f"the analysis {name}", by=by, interval=interval, ids=output.ids)
    output.check()
    _refuse_protocols(folders)
    if scored.metric is None:
        options.refuse_without_use(
            "a report without --metric", temperature_from=scored.temperature_from
        )
    if chosen is not None:
        chosen.show(_analysed(chosen, scored, folders), output)
    elif not (scored.given or by or interval):
        print_folders(folders, output)
    else:
        # Groups have a row each, which the short form has no room for.
        if by is not None and not output.json:
            output = replace(output, every=True)
        print_runs(list(_summaries(scored, folders, by, interval)), folders, output, by=by)


def _analysed(
    chosen: ChosenAnalysis, scored: Scored, folders: Sequence[Path]
) -> Sequence[Run] | Sequence[Summary]:
    """Return the runs in the folders as the analysis needs them."""
    if chosen.analysis.needs == "runs":
        parts: list[Run] = []
        for run in scored.runs(folders):
            parts += scored.parts(run, together=True)
        return parts
    if scored.given:
        return list(_summaries(scored, folders))
    return _read_summaries(folders)


def print_folders(folders: Sequence[Path], output: options.Output, above: int = 0) -> None:
    """Print all runs in the folders, and the averages of their suites.

    ``above`` as in :func:`print_runs`.
    """
    from choicewise.results.sweep import averages, sweeps

    runs = {run.folder: run for run in _read_summaries(folders)}
    suites: list[Average] = []
    for folder, sweep in sweeps(folders):
        suites += averages(folder, sweep, runs)
    print_runs(list(runs.values()), folders, output, averages=suites, above=above)


def print_runs(
    runs: Sequence[Summary],
    folders: Sequence[Path],
    output: options.Output,
    *,
    by: str | None = None,
    averages: Sequence[Average] = (),
    above: int = 0,
) -> None:
    """Print the numbers of the ``runs`` in ``folders``: in short, with commands to run next, or
    all, or as JSON.

    ``by``: the groups that their rows are of. ``averages``: of the suites. ``above``: lines that
    were printed before, which count among the nine. Runs of samples have estimates for all items
    if the other runs allow them.
    """
    from choicewise.report.tables import average_tables, serious_warnings
    from choicewise.results.outcomes import bounded, ranked

    all_rows: list[Number] = []
    for run in runs:
        all_rows += run.rows
    # Ranks are of all runs together, so they are computed here and not in a summary.
    rows = bounded(ranked(all_rows), [run.outcomes for run in runs], by)
    estimates = _estimated(runs, rows)
    if output.json:
        tell(*serious_warnings(rows))
        numbers: list[Mapping[str, Any]] = [row.as_json() for row in rows]
        numbers += [average.as_json() for average in averages]
        for estimated in estimates:
            numbers += estimated.records
        print_json(numbers)
        return
    logged = _log_lines(runs)
    if output.every or output.ids:
        show(*logged)
        if rows:
            from choicewise.results.finding import finding

            print_numbers(rows, finding(rows), output.ids)
        print_parts(average_tables(averages))
        for estimated in estimates:
            print_parts(estimated.tables)
        tell(*serious_warnings(rows, guesses=False))
        return
    # A table of many models has no room for them.
    if len(runs) == 1:
        show(*logged)
        above += len(logged)
    following = _print_short(runs, folders, rows, averages, above)
    for estimated in estimates:
        show(*estimated.lines)
    tell(*following)


def _estimated(runs: Sequence[Summary], rows: Sequence[Number]) -> list[Estimates]:
    """Return the estimates of extensions if a run has only a sample; tell their notes."""
    if not any(run.manifest.selection.sample for run in runs):
        return []
    estimates = [estimator.estimates(runs, rows) for estimator in all_of(Estimator)]
    for estimated in estimates:
        tell(*(f"note: {note}" for note in estimated.notes))
    return estimates


def _log_lines(runs: Sequence[Summary]) -> list[str]:
    """Return the numbers in the logs of imported runs, beside those of their answers."""
    from choicewise.report.brief import WIDTH
    from choicewise.report.logged import log_line

    lines = []
    for run in runs:
        line = log_line(run.manifest.imported)
        if not line:
            continue
        if len(runs) > 1:
            line = f"{run.manifest.model.name} on {run.manifest.dataset.name}: {line}"
        lines += wrapped(safe(line), WIDTH)
    return lines


def _print_short(
    runs: Sequence[Summary],
    folders: Sequence[Path],
    rows: Sequence[Number],
    averages: Sequence[Average],
    above: int,
) -> list[str]:
    """Print the averages and the first lines about items that were not changed.

    Return the commands to run next.
    """
    from choicewise.report.brief import FEWEST, LINES, first_lines, height
    from choicewise.results.finding import unchanged

    plain_rows = unchanged(rows)
    names = {row.identity.protocol for row in plain_rows}
    outcomes = []
    for run in runs:
        kept = tuple(outcome for outcome in run.outcomes.outcomes if outcome.name in names)
        outcomes.append(replace(run.outcomes, outcomes=kept))
    following = next_lines(
        plain_rows,
        folders,
        [run.folder for run in runs],
        LINES - FEWEST - above,
        changed=len(plain_rows) < len(rows),
    )
    room = max(FEWEST, LINES - height(following) - above)
    if averages:
        from choicewise.report.tables import average_tables

        print_parts(average_tables(averages))
    show(*first_lines(plain_rows, outcomes, bool(averages), room))
    return following


def print_numbers(rows: Sequence[Number], numbers: Finding, ids: bool = False) -> None:
    """Print what rows show in sentences, the range of each family if they are many, every row, and
    the legend.

    ``ids``: whether every row has its ids.
    """
    from choicewise.report.findings import sentences
    from choicewise.report.tables import family_tables, legend, long, report_tables

    print_parts([" ".join(sentences(numbers))])
    if long(rows):
        print_parts(family_tables([row for row in rows if row.share]))
    print_parts(report_tables(rows, ids=ids))
    show(*legend(rows, ids))


# Run folders that the commands to run next name at most.
FOLDERS = 4

# What separates two commands on one line.
BESIDE = "  |  "


def next_lines(
    rows: Sequence[Number],
    folders: Sequence[Path],
    runs: Sequence[Path],
    most: int,
    changed: bool = False,
) -> list[str]:
    """Return at most three commands to run next with the ``runs`` in ``folders``, in two lines if
    paths are not long.

    ``rows``: of the runs. ``changed``: whether there are others of changed items. Further
    commands than the first are left out if they take more than ``most`` lines.
    """
    from choicewise.report.brief import WIDTH, height

    # A command with many folders would fill the screen.
    if len(folders) > FOLDERS:
        return []
    metrics: list[str] = []
    if not any(row.share for row in rows):
        names = list(dict.fromkeys(row.identity.metric for row in rows))
        if names and "perplexity" not in names:
            metrics = ["--metric", ",".join(names)]
    commands = [
        command_line("report", *folders, *metrics, "--all"),
        command_line("page", *folders, *metrics, "--out", "page.html"),
    ]
    # Runs with changed items answer another question first.
    if changed:
        commands.insert(1, command_line("report", *folders, "invariance"))
    elif len(runs) == 1:
        protocols = _ends_of_ladder(rows)
        if protocols:
            commands.append(command_line("ladder", *protocols, *runs))
    lines = [f"next  {commands[0]}"]
    for command in commands[1:]:
        if len(lines[-1]) + len(BESIDE) + len(command) <= WIDTH:
            lines[-1] += BESIDE + command
        else:
            lines.append(f"      {command}")
    while len(lines) > 1 and height(lines) > most:
        lines.pop()
    return lines


def _ends_of_ladder(rows: Sequence[Number]) -> list[str]:
    """Return the headline protocols of labels and of texts, or the only two protocols.

    Nothing if they are not of one kind.
    """
    from choicewise.protocols.protocol import parse_signature
    from choicewise.report.brief import headlines

    ends = [row for row in rows if row.share]
    if len(ends) != 2:
        ends = headlines(rows)
    kinds = {parse_signature(row.identity.signature).kind for row in ends}
    if len(ends) < 2 or len(kinds) > 1:
        return []
    return [row.identity.protocol for row in ends]


def _refuse_protocols(folders: Sequence[Path]) -> None:
    """Raise UsageError if one of the ``folders`` is missing and has the name of a protocol."""
    from choicewise.protocols.catalogue import resolve

    for folder in folders:
        # A folder that can't be looked at is refused when it is opened.
        if os.path.exists(folder):
            continue
        with suppress(ProtocolError):
            resolve(str(folder))
            raise UsageError(f"{folder} is a protocol and no folder; write --protocol {folder}")


def _tell_state(runs: Sequence[Run] | Sequence[Summary]) -> None:
    from choicewise.models.kinds import answering_kind
    from choicewise.results.run import refused_lines
    from choicewise.store.folder import not_complete

    for run in runs:
        kind = answering_kind(run.manifest)
        if kind is not None:
            tell(*(f"note: {note}" for note in kind.notes(run.folder, run.manifest)))
        if not run.manifest.complete:
            tell(not_complete(run.folder, run.manifest))
        tell(*(f"note: {line}" for line in refused_lines(run.manifest.refused)))


def _read_summaries(folders: Sequence[Path]) -> list[Summary]:
    """Read the summaries of all runs in the folders; tell which are not complete."""
    from choicewise.results.summary import summarize
    from choicewise.results.sweep import run_folders

    runs = list(map(summarize, run_folders(folders)))
    _tell_state(runs)
    return runs


def _summaries(
    scored: Scored, folders: Sequence[Path], by: str | None = None, interval: str | None = None
) -> Iterator[Summary]:
    """Yield the summary of each run in the folders, in these groups, with these intervals, a metric at a time."""
    from choicewise.results.outcomes import Summary, outcomes_of

    for run in scored.runs(folders):
        rows: list[Number] = []
        kept: list[Outcomes] = []
        for part in scored.parts(run):
            rows += part.rows(by, interval)
            kept.append(outcomes_of(part))
        every = tuple(outcome for outcomes in kept for outcome in outcomes.outcomes)
        outcomes = replace(kept[0], outcomes=every)
        yield Summary(folder=run.folder, manifest=run.manifest, rows=tuple(rows), outcomes=outcomes)
        run.release()


# commands.application makes it a command of this class.
report.command_class = ReportCommand  # type: ignore[attr-defined]
