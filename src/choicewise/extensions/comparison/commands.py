"""Compare numbers: ``choicewise compare`` and ``choicewise ladder``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from choicewise.cli import options
from choicewise.cli.options import Loading, Part, grouped, resuming_command
from choicewise.cli.report import Scored
from choicewise.cli.terminal import print_json, print_parts, show, tell
from choicewise.errors import ProtocolError, UsageError
from choicewise.extensions.run.commands import do_sweep, token_savings
from choicewise.util.text import command_line

if TYPE_CHECKING:
    from choicewise.ports import PairAnalysis
    from choicewise.protocols.between import End
    from choicewise.protocols.protocol import Protocol
    from choicewise.results.comparison import Comparison
    from choicewise.results.ladder import Ladder
    from choicewise.results.run import Run

    LastRung = tuple[PairAnalysis, list[Any]]


def compare(
    left: Annotated[Path, typer.Argument(metavar="A", readable=False, help="A run folder.")],
    right: Annotated[
        str | None,
        typer.Argument(
            metavar="[B]",
            help="Another run folder, or a published protocol's name. Leave it out to compare "
            "two protocols of A.",
        ),
    ] = None,
    protocol: Annotated[
        list[str] | None,
        typer.Option(
            "--protocol",
            help="Compare only this protocol. Give two to compare A's first with B's second.",
        ),
    ] = None,
    metric: options.Metrics = None,
    value: Annotated[
        float | None,
        typer.Option("--value", help="A published score under protocol B, as a fraction (0.637)."),
    ] = None,
    items: Annotated[
        bool,
        typer.Option(
            "--items",
            help="List all items, the largest difference first (decision endpoints only).",
        ),
    ] = False,
    every: Annotated[
        bool, typer.Option("--all", help="List every protocol that both runs share.")
    ] = False,
    ids: Annotated[
        bool, typer.Option("--ids", help="Print everything: ids, values of axes, texts, tests.")
    ] = False,
    json: options.Json = False,
) -> None:
    """Show whether two scores can be compared, and why they differ.

    Two runs are compared under every protocol they share, a line each, or under one --protocol. One
    run and two protocols: what the protocol changes. One run and a protocol's name: whether scores
    published under it can be compared with the run. A decision endpoint and a run of the same
    weights here: what the layout does not explain.
    """
    from choicewise.results.run import open_run
    from choicewise.results.sweep import one_run

    published = None
    if right is not None:
        published = _published(right)
    if published is not None:
        options.refuse_without_use("a published number", metric=metric, items=items)
        if value is not None and not 0 <= value <= 1:
            raise UsageError(f"--value is {value:g}; write it as a share of 1, such as 0.637")
        run = open_run(one_run(left)).choose(protocol)
        _compare_published(run, published, value, json)
        return
    options.refuse_without_use("a comparison of runs", value=value)
    pairs = list(_pairs(left, right))
    if _compared_by_kind(pairs, protocol or [], items, json, metric):
        return
    options.refuse_without_use("a comparison without a decision endpoint", items=items)
    if metric is not None:
        pairs = [
            (_measured(first, metric), second and _measured(second, metric))
            for first, second in pairs
        ]
    _compare_runs(pairs, protocol or [], options.Output(every=every, ids=ids, json=json))


def _measured(run: Run, metrics: Sequence[str]) -> Run:
    (part,) = Scored(metric=list(metrics)).parts(run, together=True)
    return part


def _published(name: str) -> dict[str, Protocol] | None:
    """Return the protocols that ``name`` means to the catalogue, None if it is a run folder."""
    from choicewise.protocols.catalogue import resolve
    from choicewise.records import MANIFEST
    from choicewise.results.sweep import sweeps

    if (Path(name) / MANIFEST).exists() or sweeps([name]):
        return None
    try:
        return resolve(name)
    except ProtocolError as error:
        # The fault of a folder is told when it is opened.
        if Path(name).exists() and not name.endswith(".toml"):
            return None
        raise UsageError(f"{name} is neither a run folder nor a protocol: {error}") from error


def _pairs(left: Path, right: str | None) -> Iterator[tuple[Run, Run | None]]:
    """Yield the runs to compare: if the folders hold several runs, pairs on the same data."""
    from choicewise.results.run import open_run
    from choicewise.results.sweep import one_run, run_folders

    if right is None:
        yield open_run(one_run(left)), None
        return
    left_folders = run_folders([left])
    right_folders = run_folders([right])
    if len(left_folders) == len(right_folders) == 1:
        yield open_run(left_folders[0]), open_run(right_folders[0])
        return
    # Runs on other data measure other things, so pairs are made by the digest of the data.
    left_runs = _by_data(left, left_folders)
    right_runs = _by_data(right, right_folders)
    shared = [digest for digest in left_runs if digest in right_runs]
    if not shared:
        raise UsageError(f"{left} and {right} have no runs on the same data")
    for digest in shared:
        yield left_runs[digest], right_runs[digest]


def _by_data(folder: str | Path, run_folders: Sequence[Path]) -> dict[str, Run]:
    """Open runs by the digest of their data; UsageError if two are on the same."""
    from choicewise.results.run import open_run

    by_data = {}
    for run in map(open_run, run_folders):
        by_data[run.manifest.dataset.digest] = run
    if len(by_data) < len(run_folders):
        raise UsageError(
            f"{folder} holds several runs on the same data; name the folder of one model",
            list(map(str, run_folders)),
        )
    return by_data


def _compared_by_kind(
    pairs: Sequence[tuple[Run, Run | None]],
    protocols: Sequence[str],
    items: bool,
    json: bool,
    metric: object,
) -> bool:
    """Print the comparison of an extension for runs of these kinds; return whether there is one."""
    from choicewise.ports import PairAnalysis, all_of

    for analysis in all_of(PairAnalysis):
        results: list[object] = []
        applies = False
        for left, right in pairs:
            sides = None if right is None else analysis.sides(left, right)
            if sides is None:
                continue
            applies = True
            options.refuse_without_use(analysis.summary, metric=metric)
            results += analysis.compare(*sides, protocols, items)
        if not applies:
            continue
        if json:
            print_json(results)
        else:
            print_parts(analysis.tables(results))
        return True
    return False


def _compare_runs(
    pairs: list[tuple[Run, Run | None]], protocols: list[str], output: options.Output
) -> None:
    """Print comparisons of two runs under all their protocols, or of two protocols of a run."""
    from choicewise.extensions.comparison.comparison_report import (
        LISTED,
        comparison_lines,
        protocols_sentence,
        protocols_table,
        short_lines,
    )

    compared = [_compared(left, right, protocols, output) for left, right in pairs]
    if output.json:
        print_json([comparison.as_json() for comparison in chain.from_iterable(compared)])
        return
    for number, of_pair in enumerate(compared):
        if number:
            show("")
        if len(of_pair) == 1:
            lines = comparison_lines if output.ids else short_lines
            show(*lines(of_pair[0]))
        elif output.ids:
            for comparison in of_pair:
                show(*comparison_lines(comparison), "")
        else:
            show(protocols_sentence(of_pair))
            print_parts([protocols_table(of_pair, output.every)])
            if len(of_pair) > LISTED and not output.every:
                tell(f"{len(of_pair) - LISTED} more: --all; details: --protocol NAME")


def _compared(
    left: Run, right: Run | None, protocols: list[str], output: options.Output
) -> list[Comparison]:
    from choicewise.extensions.comparison.compare import comparisons, credit_comparisons
    from choicewise.results.summary import summarize

    # For a line each, summaries suffice, which are read in no time.
    in_lines = not (protocols or output.ids or output.json)
    if in_lines and right is not None and left.is_whole and right.is_whole:
        by_credit = credit_comparisons(summarize(left.folder), summarize(right.folder))
        if by_credit is not None and len(by_credit) > 1:
            return by_credit
    return comparisons(left, right, protocols)


def _compare_published(
    run: Run, recipes: dict[str, Protocol], value: float | None, json: bool
) -> None:
    from choicewise.extensions.comparison.comparison_report import published_lines
    from choicewise.extensions.comparison.published import published_comparisons
    from choicewise.results.summary import summarize

    compared = published_comparisons(run, summarize(run.folder).rows, recipes, value)
    if json:
        print_json([comparison.as_json() for comparison in compared])
    else:
        show(*published_lines(compared))


_HELP = (
    "A protocol (with several scores: its main one), one of its scores, a signature or a TOML file."
)


@grouped
def ladder(
    *,
    start: Annotated[str, typer.Argument(metavar="P", help=_HELP)],
    end: Annotated[str, typer.Argument(metavar="Q", help="The same for the end of the ladder.")],
    folder: Annotated[
        Path | None,
        typer.Argument(
            metavar="[DIR]", readable=False, help="A run folder (leave it out with --model)."
        ),
    ] = None,
    model: Annotated[
        str | None, typer.Option("--model", help="Run this model, as in `choicewise run`.")
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option("--data", readable=False, help="Data for --model, as in `choicewise run`."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            readable=False,
            help="With --model: the run folder; if it exists, the run resumes.",
        ),
    ] = None,
    served: Annotated[
        Path | None,
        typer.Option(
            "--served",
            metavar="RUN",
            readable=False,
            help="A decision endpoint's run, as the last step after Q.",
        ),
    ] = None,
    metric: options.Metrics = None,
    part: Part,
    loading: Loading,
    json: options.Json = False,
) -> None:
    """Show how the score changes from protocol P to Q, one axis at a time.

    Each step has its points, their paired error, and how many items turn right or wrong. With a run
    folder, missing steps are named with the command that adds them. With --model, --data and --out,
    all steps are run. With --metric, each metric has a ladder.
    """
    needed = {"model": model, "data": data, "out": out}
    if folder is not None:
        given = {**needed, **part.given, "mapping": part.mapping, **loading.given}
        options.refuse_without_use("a run folder", **given)
        _show_run(start, end, folder, served, metric, json)
        return
    advice = "name a run folder after the protocols, or give all three"
    options.refuse_lacking(needed, advice)
    assert model is not None
    assert out is not None
    options.refuse_foreign(model, **loading.given)
    options.refuse_without_use("a run that is not yet evaluated", metric=metric, served=served)
    table = {"models": [model], **part.given, **part.data(data), **loading.given}
    _evaluate(start, end, table, out, json)


def _show_run(
    start: str,
    end: str,
    folder: Path,
    served: Path | None,
    metrics: Sequence[str] | None,
    json: bool,
) -> None:
    from choicewise.protocols.between import MARK
    from choicewise.results.run import open_run
    from choicewise.results.sweep import one_run
    from choicewise.running.front import named_end, refuse_same
    from choicewise.store.folder import not_complete

    folder = one_run(folder)
    run = open_run(folder)
    first, first_word = named_end(start, run)
    last, last_word = named_end(end, run)
    refuse_same(first, last)

    def line() -> str:
        """Return the command that adds all protocols between the two.

        Tells on stderr if it lacks paths.
        """
        return resuming_command(run.manifest, run.folder, [f"{first_word}{MARK}{last_word}"])

    lacking = run.lacking({first.name: first.protocol, last.name: last.protocol})
    if lacking:
        raise UsageError(
            f"{folder} has no {' and '.join(lacking)}; to add it and all protocols "
            f"between, run `{line()}`"
        )
    if not run.manifest.complete:
        tell(not_complete(folder, run.manifest))
    # Names of protocols between the ends begin with both of them.
    between = f"{first.label}{MARK}{last.label}:"
    has_between = any(name.startswith(between) for name in run.protocols)
    rung = None
    if served is not None:
        rung = _last_rung(run, last, open_run(one_run(served)))
    _print(run, first, last, metrics, json, None if has_between else line, rung)


def _last_rung(run: Run, last: End, served: Run) -> LastRung:
    """Return the step from the end of a ladder to the endpoint that has its layout."""
    from choicewise.ports import PairAnalysis, all_of

    for analysis in all_of(PairAnalysis):
        if analysis.sides(served, run) == (served, run):
            results = analysis.compare(
                served, run.under({last.name: last.protocol}), [], items=False
            )
            return analysis, results
    raise UsageError(
        "--served needs a decision endpoint's run and a run that is none: "
        f"{served.folder}, {run.folder}"
    )


def _evaluate(start: str, end: str, table: Mapping[str, Any], out: Path, json: bool) -> None:
    from choicewise.protocols.between import MARK
    from choicewise.protocols.catalogue import one
    from choicewise.results.run import open_run
    from choicewise.running.front import refuse_same
    from choicewise.running.job import job_of
    from choicewise.running.work import check_all

    first = one(start)
    last = one(end)
    refuse_same(first, last)
    # Without examples the ends would be other protocols than those that are named, so that is an error.
    job = job_of({**table, "protocols": [f"{start}{MARK}{end}"], "shots": "error"})
    ends = {first.name: first.protocol, last.name: last.protocol}
    sources = options.sources_of(job)
    title = job.choices[0].folder
    do_sweep(
        job,
        sources,
        out,
        title,
        alone=True,
        ready=lambda model, source, _: check_all(model, source.data, ends),
    )
    run = open_run(out)
    _print(run, first, last, None, json)
    if run.manifest.engine.spent is not None:
        tell(token_savings(run.manifest.engine.spent))
    tell(f"wrote {out}; `{command_line('ladder', start, end, out)}` shows this again")


def _print(
    run: Run,
    start: End,
    end: End,
    metrics: Sequence[str] | None,
    json: bool,
    line: Callable[[], str] | None = None,
    rung: LastRung | None = None,
) -> None:
    """Print the ladder, or that of each metric.

    If the run lacks protocols between, with the ``line`` that adds them.

    ``rung``: the step from its end to the run of an endpoint.
    """
    from choicewise.extensions.comparison.ladder_report import ladder_table
    from choicewise.protocols.catalogue import names
    from choicewise.results.ladder import both_ways
    from choicewise.running.front import measured

    if metrics is None:
        ladders = [both_ways(run, start, end, names())]
    else:
        ladders = [both_ways(*measured(run, start, end, metric), names()) for metric in metrics]
    rest = None
    if line is not None and ladders[0].coarse:
        rest = line()
    if json:
        content = []
        for ladder in ladders:
            record = {
                "in_order": ladder.in_order,
                "in_reverse": ladder.in_reverse,
                "turns": ladder.turns,
            }
            if rung is not None:
                record["served"] = rung[1]
            content.append({**record, "rest": rest})
        print_json(content[0] if metrics is None else content)
        return
    print_parts(map(ladder_table, ladders))
    # The step to an endpoint is measured between two runs, so it is no row of the ladder.
    if rung is not None:
        analysis, results = rung
        print_parts(analysis.tables(results))
    if metrics is None:
        _tell_example(run, ladders[0].in_order)
    if rest is not None:
        show("to add the protocols between:", rest)


def _tell_example(run: Run, climbed: Ladder) -> None:
    """Tell the command that shows an item which the greatest step turns right, or wrong."""
    steps = [step for step in climbed.steps if step.gained_items or step.lost_items]
    if not steps:
        return
    greatest = max(steps, key=lambda step: abs(step.change))
    turns = "wrong"
    items = greatest.lost_items
    if greatest.gained_items:
        turns = "right"
        items = greatest.gained_items
    line = command_line("explain", run.folder, "--item", items[0])
    tell(f"an item that {greatest.axes[0].axis} turns {turns}: `{line}`")
