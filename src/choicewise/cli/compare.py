"""Compare two numbers, and explain one item."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from choicewise.cli import options
from choicewise.cli.report import Scored
from choicewise.cli.terminal import print_json, print_parts, show
from choicewise.errors import ProtocolError, UsageError

if TYPE_CHECKING:
    from choicewise.protocols.protocol import Protocol
    from choicewise.results.run import Run


def compare(
    left: Annotated[Path, typer.Argument(metavar="A", readable=False, help="A run folder.")],
    right: Annotated[
        str | None,
        typer.Argument(
            metavar="[B]",
            help="Another; or a protocol's name, to compare with numbers published under it; none for two protocols.",
        ),
    ] = None,
    protocol: Annotated[
        list[str] | None,
        typer.Option(
            "--protocol", help="Only this one; or twice, that of A against that of B. Repeatable."
        ),
    ] = None,
    metric: options.Metrics = None,
    value: Annotated[
        float | None,
        typer.Option("--value", help="A number published under protocol B, as a share of 1."),
    ] = None,
    items: Annotated[
        bool,
        typer.Option(
            "--items", help="List all items, the furthest first; of a decision endpoint alone."
        ),
    ] = False,
    json: options.Json = False,
) -> None:
    """Say whether two numbers are the same measurement, comparable, or not, and why they differ.

    Without --protocol, every protocol that both runs share. One run and two protocols: what the protocol alone changes.
    One run and a protocol's name: whether numbers published under it can be compared with those of the run. A run of a
    decision endpoint and one of the same weights computed here: what the layout does not explain.
    """
    from choicewise.results.run import open_run
    from choicewise.results.sweep import one_run

    published = None if right is None else _published(right)
    if published is None:
        options.refuse_without_use("a comparison of runs has", value=value)
        pairs = [*_pairs(left, right)]
        if _compared_by_kind(pairs, protocol or [], items, json, metric):
            return
        options.refuse_without_use(
            "a comparison without a decision endpoint on one side has", items=items
        )
        if metric is not None:
            pairs = [
                (_measured(one, metric), other and _measured(other, metric)) for one, other in pairs
            ]
        _compare_runs(pairs, protocol or [], json)
        return
    options.refuse_without_use("a published number has", metric=metric, items=items)
    if value is not None and not 0 <= value <= 1:
        raise UsageError(f"--value is {value:g}; write it as a share of 1, such as 0.637")
    _compare_published(open_run(one_run(left)).choose(protocol), published, value, json)


def _measured(run: Run, metrics: Sequence[str]) -> Run:
    (part,) = Scored(metric=[*metrics]).parts(run, together=True)
    return part


def _published(name: str) -> dict[str, Protocol] | None:
    """The protocols that ``name`` means to the catalogue; None where it is a run folder."""
    from choicewise.protocols.catalogue import resolve
    from choicewise.records import MANIFEST
    from choicewise.results.sweep import sweeps

    if (Path(name) / MANIFEST).exists() or sweeps([name]):
        return None
    try:
        return resolve(name)
    except ProtocolError as error:
        if Path(name).exists() and not name.endswith(".toml"):
            return None  # what is wrong with the folder is told when it is opened
        raise UsageError(f"{name} is neither a run folder nor a protocol: {error}") from error


def _pairs(left: Path, right: str | None) -> Iterator[tuple[Run, Run | None]]:
    """The runs to compare; where both folders hold several runs, those on the same data."""
    from choicewise.results.run import open_run
    from choicewise.results.sweep import one_run, run_folders

    if right is None:
        yield open_run(one_run(left)), None
        return
    sides = [run_folders([folder]) for folder in (left, right)]
    if [len(side) for side in sides] == [1, 1]:
        yield open_run(sides[0][0]), open_run(sides[1][0])
        return
    by_data: list[dict[str, Run]] = []
    for folder, side in zip((left, right), sides, strict=True):
        runs = [open_run(run) for run in side]
        by_data.append({run.manifest.dataset.digest: run for run in runs})
        if len(by_data[-1]) < len(runs):
            raise UsageError(
                f"{folder} holds several runs on the same data; name a model's folder",
                [*map(str, side)],
            )
    shared = [digest for digest in by_data[0] if digest in by_data[1]]
    if not shared:
        raise UsageError(f"{left} and {right} hold no runs on the same data")
    yield from ((by_data[0][digest], by_data[1][digest]) for digest in shared)


def _compared_by_kind(
    pairs: Sequence[tuple[Run, Run | None]],
    protocols: Sequence[str],
    items: bool,
    json: bool,
    metric: object,
) -> bool:
    """Whether an extension compares runs of these kinds in a way of its own; prints what it says then."""
    from choicewise.ports import PairAnalysis, all_of

    for analysis in all_of(PairAnalysis):
        sides = [analysis.sides(left, right) for left, right in pairs if right is not None]
        of_its_kinds = [both for both in sides if both is not None]
        if not of_its_kinds:
            continue
        options.refuse_without_use(f"{analysis.summary} has", metric=metric)
        results = [
            result
            for first, second in of_its_kinds
            for result in analysis.compare(first, second, protocols, items)
        ]
        print_json(results) if json else print_parts(analysis.tables(results))
        return True
    return False


def _compare_runs(pairs: list[tuple[Run, Run | None]], protocols: list[str], json: bool) -> None:
    from choicewise.report.comparison import comparison_lines
    from choicewise.results.compare import comparisons

    compared = [each for left, right in pairs for each in comparisons(left, right, protocols)]
    if json:
        print_json([comparison.as_json() for comparison in compared])
        return
    for number, comparison in enumerate(compared):
        show(*([""] if number else []), *comparison_lines(comparison))


def _compare_published(
    run: Run, recipes: dict[str, Protocol], value: float | None, json: bool
) -> None:
    from choicewise.report.comparison import published_lines
    from choicewise.results.compare import published_comparisons
    from choicewise.results.summary import summarize

    compared = published_comparisons(run, summarize(run.folder).rows, recipes, value)
    if json:
        print_json([each.as_json() for each in compared])
    else:
        show(*published_lines(compared))


def explain(
    folder: options.RunFolder,
    item: Annotated[str, typer.Option("--item", help="The item's id.")],
    protocol: Annotated[
        list[str] | None,
        typer.Option("--protocol", help="Only these protocols, or others that ask the same."),
    ] = None,
    tokens: Annotated[
        bool, typer.Option("--tokens", help="Show whole prompts, and every token that was scored.")
    ] = False,
    json: options.Json = False,
) -> None:
    """Show what every protocol decides, and the choices side by side under each prompt.

    In the prompt ⏎ ends a line, ␠ is a space at its edge or beside another, ␉ a tab. No model is needed.
    """
    if json:
        options.refuse_without_use("--json shows every token and has", tokens=tokens)
    from choicewise.models.kinds import answering_kind
    from choicewise.report.explain import explanation_lines
    from choicewise.results.explain import explain as explain_item
    from choicewise.results.run import open_run
    from choicewise.results.sweep import one_run

    run = open_run(one_run(folder))
    kind = answering_kind(run.manifest)
    explanation = explain_item(run.choose(protocol), item)
    if json:
        print_json(explanation)
    elif tokens:
        show(*explanation_lines(explanation, kind))
    else:
        from choicewise.report.explain import explanation_parts

        print_parts(explanation_parts(explanation, kind=kind))
        show(
            "S: sum of log-probabilities in nats; [ ]: chosen; whole prompts and every token: --tokens"
        )
