"""The effects of single axes as a table."""

import math
from collections.abc import Sequence

from rich.console import Group

from choicewise.report.axis_text import change_text
from choicewise.report.table import percent, points, table, titled
from choicewise.report.words import count
from choicewise.results.main_effects import Effect, Spread

SHOWN = 3
"""Changes of value that are shown for each axis, those of most pairs; JSON has them all."""


def effects_table(model: str, dataset: str, effects: Sequence[Effect]) -> Group:
    """A line for every axis, the greatest changes first, and under it the changes of its values."""
    shown = table("axis", "size", "mean", "sd", "lowest", "highest", "pairs")
    for effect in effects:
        shown.add_row(effect.axis, percent(effect.absolute), *_cells(effect.spread))
        for change in effect.changes[:SHOWN]:
            names = [change_text(axis) for axis in change.axes]
            shown.add_row(f"  {', '.join(names)}", "", *_cells(change.spread))
        if len(effect.changes) > SHOWN:
            shown.add_row(f"  ... {count(len(effect.changes) - SHOWN, 'more change')} of value")
    counts = [pair.n for effect in effects for change in effect.changes for pair in change.pairs]
    few, many = min(counts), max(counts)
    items = count(many, "item") if few == many else f"{few} to {many} items"
    return titled(
        f"{model} on {dataset}: what one axis changes, in points, of {items}",
        shown,
        "pairs of protocols that differ in this axis alone, or in axes that only change together; size: mean absolute "
        "change",
    )


def _cells(spread: Spread) -> tuple[str, ...]:
    sd = "-" if math.isnan(spread.sd) else percent(spread.sd)
    return points(spread.mean), sd, points(spread.low), points(spread.high), str(spread.pairs)
