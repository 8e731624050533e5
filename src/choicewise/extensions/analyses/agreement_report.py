"""Write how far retrievals of the same options agree as tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from choicewise.extensions.analyses.agreement import CAUSES, Agreement, agreement
from choicewise.results.run import Run
from choicewise.table import Column, Table

PAIRS: Final = (
    Column(name="left", heading="retrievals"),
    Column(name="right", joined=", "),
    Column(name="n", kind="count"),
    Column(name="missing", kind="count", data=True),
    Column(name="median", kind="nats"),
    Column(name="largest", kind="nats"),
    Column(name="tolerance", kind="size", data=True),
    Column(name="beyond", heading="differ", kind="count"),
    Column(name="causes", heading="because of", kind="names"),
    Column(
        name="same",
        heading="alike",
        kind="count",
        meaning="items that both decide alike; otherwise: why the other items are not",
    ),
    Column(name="items", kind="count", joined="/"),
    Column(name="decided", heading="otherwise", kind="names"),
)

WORST: Final = (
    Column(name="item"),
    Column(name="choice", kind="count", joined=" "),
    Column(name="text", kind="excerpt"),
    Column(name="left", heading="retrievals"),
    Column(name="right", joined=", "),
    Column(name="left_sum", heading="sums", kind="distance"),
    Column(name="right_sum", kind="distance", joined=", "),
    Column(name="difference", kind="nats"),
    Column(name="cause"),
)

COUNTS: Final = (
    Column(name="left"),
    Column(name="right"),
    Column(name="of"),
    Column(name="cause"),
    Column(name="count", kind="count"),
)


def run_tables(run: Run) -> Iterator[Table]:
    """Yield the pairs of retrievals of a run, the options on which they differ most, and the counts of causes."""
    facts = {"run": str(run.folder)}
    pairs = agreement(run)
    if not pairs:
        advice = "no two protocols retrieve the same texts in different ways; try options/quoted"
        yield Table(name="agreement", title=f"{run.folder}: {advice}", facts=facts)
        return
    # Only causes that are met are explained below the table.
    causes: set[str] = set()
    for pair in pairs:
        causes.update(pair.causes, pair.decided)
    beyond = (
        f"differ: by more than {pairs[0].tolerance:.1e} nats and than the noise of so many tokens"
    )
    meanings = [f"{cause}: {meaning}" for cause, meaning in CAUSES.items() if cause in causes]
    yield Table(
        name="agreement",
        title=f"{run.folder}: retrievals of the same options, differences of their sums in nats",
        columns=PAIRS,
        rows=[_pair_row(pair) for pair in pairs],
        notes=[beyond, *meanings],
        facts=facts,
    )
    worst = _worst_rows(pairs)
    if worst:
        yield Table(name="worst", title="where they differ most", columns=WORST, rows=worst)
    if causes:
        yield Table(
            name="causes",
            title="how often each cause is met",
            columns=COUNTS,
            rows=_counts(pairs),
            data=True,
        )


def _pair_row(pair: Agreement) -> list[Any]:
    row: list[Any] = [pair.left, pair.right, pair.n, pair.missing]
    row += [pair.median, pair.largest, pair.tolerance, pair.beyond, _counted(pair.causes)]
    row += [pair.same, pair.items, _counted(pair.decided)]
    return row


def _counted(causes: Mapping[str, int]) -> list[str]:
    return [f"{count} {cause}" for cause, count in causes.items()]


def _worst_rows(pairs: Sequence[Agreement]) -> list[list[Any]]:
    rows: list[list[Any]] = []
    for pair in pairs:
        for option in pair.worst:
            row = [option.item, option.choice, option.text, pair.left, pair.right]
            row += [option.left, option.right, option.difference, option.cause]
            rows.append(row)
    rows.sort(key=lambda row: -abs(row[-2]))
    return rows


def _counts(pairs: Sequence[Agreement]) -> list[list[Any]]:
    rows: list[list[Any]] = []
    for pair in pairs:
        for kind, causes in (("sum", pair.causes), ("decision", pair.decided)):
            for cause, count in causes.items():
                rows.append([pair.left, pair.right, kind, cause, count])
    return rows
