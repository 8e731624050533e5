"""Write how far retrievals of the same options agree as tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from choicewise.extensions.analyses.agreement import CAUSES, Agreement, agreement
from choicewise.results.run import Run
from choicewise.table import Column, Table

PAIRS = (
    Column("left", heading="retrievals"),
    Column("right", joined=", "),
    Column("n", "count"),
    Column("missing", "count", data=True),
    Column("median", "nats"),
    Column("largest", "nats"),
    Column("tolerance", "size", data=True),
    Column("beyond", "count", heading="differ"),
    Column("causes", "names", heading="because of"),
    Column(
        "same",
        "count",
        heading="alike",
        meaning="items that both decide alike; otherwise: why the other items are not",
    ),
    Column("items", "count", joined="/"),
    Column("decided", "names", heading="otherwise"),
)

WORST = (
    Column("item"),
    Column("choice", "count", joined=" "),
    Column("text", "excerpt"),
    Column("left", heading="retrievals"),
    Column("right", joined=", "),
    Column("left_sum", "distance", heading="sums"),
    Column("right_sum", "distance", joined=", "),
    Column("difference", "nats"),
    Column("cause"),
)

COUNTS = (
    Column("left"),
    Column("right"),
    Column("of"),
    Column("cause"),
    Column("count", "count"),
)


def run_tables(run: Run) -> Iterator[Table]:
    """Yield the pairs of retrievals of a run, the options on which they differ most, and the counts
    of causes.
    """
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
