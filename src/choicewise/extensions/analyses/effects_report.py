"""Write what each axis of a protocol changes as tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from choicewise.report.axes import change_text
from choicewise.results.ladder import Effect, Spread, main_effects
from choicewise.results.outcomes import outcomes_of
from choicewise.results.run import Run
from choicewise.table import Column, Table
from choicewise.util.text import counted

_SPREAD = (
    Column("mean", "points"),
    Column("sd", "share"),
    Column("low", "points", heading="lowest"),
    Column("high", "points", heading="highest"),
    Column("pairs", "count"),
)

AXES = (
    Column("axis"),
    Column("absolute", "share", heading="size", meaning="mean absolute change"),
    *_SPREAD,
)

CHANGES = (
    Column("axis", data=True),
    Column("change", "names"),
    Column("axes", "names", data=True),
    Column("left", "names", data=True),
    Column("right", "names", data=True),
    *_SPREAD,
)

PAIRS = (
    Column("axis"),
    Column("change", "names"),
    Column("start"),
    Column("end"),
    Column("difference", "points"),
    Column("n", "count"),
)


def run_tables(run: Run) -> list[Table]:
    """Return the axes of a run, those that change most first, and the changes of their values."""
    manifest = run.manifest
    effects = main_effects(outcomes_of(run))
    # The numbers are computed, and the observations of a large run fill the memory.
    run.release()
    facts = {
        "run": str(run.folder),
        "model": manifest.model.name,
        "dataset": manifest.dataset.name,
    }
    return list(effects_tables(effects, facts))


def effects_tables(effects: Sequence[Effect], facts: dict[str, str]) -> Iterator[Table]:
    """Yield the axes, those that change most first, then the changes of their values, and every
    pair of protocols.

    ``facts``: run, model and dataset, for programs.
    """
    pairs = list(_pair_rows(effects))
    counts = [row[-1] for row in pairs]
    items = counted(max(counts), "item")
    if min(counts) < max(counts):
        items = f"{min(counts)} to {max(counts)} items"
    yield Table(
        name="effects",
        title=f"{facts['model']} on {facts['dataset']}: what one axis changes, in points, of {items}",
        columns=AXES,
        rows=[[effect.axis, effect.absolute, *_spread(effect.spread)] for effect in effects],
        notes=[
            "pairs of protocols that differ in this axis alone, or in axes that only change "
            "together"
        ],
        facts=facts,
    )
    rows = list(_change_rows(effects))
    yield Table(name="changes", title="by change of value", columns=CHANGES, rows=rows)
    yield Table(name="pairs", title="by pair of protocols", columns=PAIRS, rows=pairs, data=True)


def _change_rows(effects: Sequence[Effect]) -> Iterator[list[Any]]:
    for effect in effects:
        for change in effect.changes:
            names = [change_text(axis) for axis in change.axes]
            axes = [axis.axis for axis in change.axes]
            left = [axis.left for axis in change.axes]
            right = [axis.right for axis in change.axes]
            yield [effect.axis, names, axes, left, right, *_spread(change.spread)]


def _pair_rows(effects: Sequence[Effect]) -> Iterator[list[Any]]:
    for effect in effects:
        for change in effect.changes:
            names = [change_text(axis) for axis in change.axes]
            for pair in change.pairs:
                yield [effect.axis, names, pair.start, pair.end, pair.change, pair.n]


def _spread(spread: Spread) -> list[float]:
    return [spread.mean, spread.sd, spread.low, spread.high, spread.pairs]
