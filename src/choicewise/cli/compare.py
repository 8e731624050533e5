"""Compare two numbers: ``choicewise compare``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from choicewise.cli import options
from choicewise.cli.report import Scored
from choicewise.cli.terminal import print_json, print_parts, show, tell
from choicewise.errors import ProtocolError, UsageError

if TYPE_CHECKING:
    from choicewise.protocols.protocol import Protocol
    from choicewise.results.compare import Comparison
    from choicewise.results.run import Run


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
    from choicewise.report.comparison import (
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
    from choicewise.results.compare import comparisons, credit_comparisons
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
    from choicewise.report.comparison import published_lines
    from choicewise.results.compare import published_comparisons
    from choicewise.results.summary import summarize

    compared = published_comparisons(run, summarize(run.folder).rows, recipes, value)
    if json:
        print_json([comparison.as_json() for comparison in compared])
    else:
        show(*published_lines(compared))
