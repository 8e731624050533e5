"""Write the ladder between two protocols for a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from choicewise.extensions.comparison.comparison_report import kinds
from choicewise.protocols.metrics import METRICS
from choicewise.report.axes import axes_text
from choicewise.report.tables import described
from choicewise.results.ladder import EXACT, LEVEL, BothWays, Ladder, Step, Turn
from choicewise.scoring.intervals import two_sided
from choicewise.table import Column, Table, written
from choicewise.util.text import counted, percent, plain

_ONE_BY_ONE = " *"
"""What follows the name of axes that the run did not change one by one."""


def ladder_table(both: BothWays) -> Table:
    """Return the two numbers, a row for every axis that changes something on either way, and how to
    read them.
    """
    unmoved: list[str] = []
    steps: list[Step] = []
    rows = []
    for turn in both.turns:
        early = _steps_of(turn, both.in_order)
        late = _steps_of(turn, both.in_reverse)
        if not any(map(_moves, early + late)):
            unmoved += turn.axes
            continue
        steps += early + late
        difference = None
        difference_error = None
        if turn.differ:
            difference = abs(turn.difference)
            difference_error = turn.se
        rows.append(
            [
                _axes_cell(both, turn, early),
                *_step_cells(early, turn.in_order),
                early[-1].value,
                *_step_cells(late, turn.in_reverse),
                difference,
                difference_error,
            ]
        )
    notes = _ladder_notes(both, steps)
    if unmoved:
        notes.insert(0, f"no effect: {', '.join(unmoved)}")
    share = METRICS[both.in_order.metric].share
    return Table(
        name="ladder",
        title=_ladder_title(both.in_order),
        columns=_ladder_columns(share),
        rows=rows,
        notes=notes,
    )


def _ladder_columns(share: bool) -> list[Column]:
    value, change = kinds(share)
    heading = "%" if share else "value"
    return [
        Column("axis"),
        Column("in_order", change, heading="forward"),
        Column("in_order_se", value, joined=" ± "),
        Column("gained", "count", heading="items", before="+", blank=True),
        Column("lost", "count", joined=" -"),
        Column("value", value, heading=heading),
        Column("in_reverse", change, heading="backward"),
        Column("in_reverse_se", value, joined=" ± "),
        Column("reverse_gained", "count", heading="items", before="+", blank=True),
        Column("reverse_lost", "count", joined=" -"),
        Column("differ", value, before="by ", blank=True),
        Column("differ_se", value, joined=" ± "),
    ]


def _steps_of(turn: Turn, ladder: Ladder) -> list[Step]:
    steps = []
    for step in ladder.steps:
        if any(axis.axis in turn.axes for axis in step.axes):
            steps.append(step)
    return steps


def _moves(step: Step) -> bool:
    # A change that is NaN moves, too: it is not known to be 0.
    return bool(step.gained or step.lost) or not abs(step.change) <= EXACT


def _axes_cell(both: BothWays, turn: Turn, steps: Sequence[Step]) -> str:
    axis_of = {}
    for step in steps:
        for axis in step.axes:
            axis_of[axis.axis] = axis
    text = axes_text([axis_of[name] for name in turn.axes])
    for axes in both.coarse:
        if not set(axes).isdisjoint(turn.axes):
            return text + _ONE_BY_ONE
    return text


def _step_cells(steps: Sequence[Step], change: float) -> list[Any]:
    """Return the change, its error, and the items that one step gains and loses.

    ``change``: that of several steps together, which have no common error.
    """
    if len(steps) > 1:
        return [change, None, None, None]
    (step,) = steps
    if step.gained or step.lost:
        return [step.change, step.se, step.gained, step.lost]
    return [step.change, step.se, None, None]


def _ladder_title(ladder: Ladder) -> str:
    metric = METRICS[ladder.metric]
    change = ladder.end_value - ladder.start_value
    if metric.share:
        start = f"{percent(ladder.start_value)} %"
        end = f"{percent(ladder.end_value)} %"
        move = f"{written(change, 'points')} points"
    else:
        start = plain(ladder.start_value)
        end = plain(ladder.end_value)
        move = f"{written(change, 'change')} {metric.unit}".rstrip()
    return (
        f"{ladder.model} on {ladder.dataset}: "
        f"from {ladder.start} {start} of {counted(ladder.start_n, 'item')} "
        f"to {ladder.end} {end} of {counted(ladder.end_n, 'item')}, {move}"
    )


def _ladder_notes(both: BothWays, steps: Sequence[Step]) -> list[str]:
    counts = [step.n for step in both.in_order.steps + both.in_reverse.steps]
    fewest = min(counts)
    most = max(counts)
    items = f"of {most}"
    if fewest < most:
        items = f"of the {fewest} to {most} that both score"
    metric = both.in_order.metric
    unit = described(metric)
    value = "value"
    turn = "get better, and worse"
    if METRICS[metric].share:
        unit = "points"
        value = "%"
        turn = "turn right, and wrong"
    notes = [
        f"{unit} ± standard error, paired by items; +2 -1: items that {turn}, {items}",
        (
            f"forward: changes applied top to bottom, with the running {value}; backward: "
            "bottom to top"
        ),
        (
            f"differ: forward and backward changes are more than {two_sided(LEVEL):.2f} "
            "standard errors apart"
        ),
    ]
    if any(step.together for step in steps):
        notes.append("axes in one line change together: no protocol changes only one of them")
    if both.coarse:
        notes.append(f"{_ONE_BY_ONE.strip()} combined: the run has no protocols between")
    return notes
