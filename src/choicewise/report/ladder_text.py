"""The ladder between two protocols as a table: what every axis changes early, and what it changes late."""

from collections.abc import Sequence

from rich.console import Group

from choicewise.report.axis_text import axes_text
from choicewise.report.table import percent, points, table, titled
from choicewise.report.words import count
from choicewise.results.both_ways import EXACT, LEVEL, BothWays, Turn
from choicewise.results.ladder import Ladder, Step
from choicewise.scoring.statistics.quantile import two_sided

_STAR = " *"
"""After axes that the run did not change one by one."""


def ladder_table(both: BothWays) -> Group:
    """The two numbers, a line for every axis that changes something, on either way, and how to read it."""
    shown = table("axis", "in order", "items", "%", "in reverse", "items", "differ")
    still, moved = list[str](), list[Step]()
    for turn in both.turns:
        early, late = (_within(turn, side.steps) for side in (both.in_order, both.in_reverse))
        if not any(map(_moves, (*early, *late))):
            still += turn.axes
            continue
        moved += (*early, *late)
        cells = *_cells(early, turn.in_order), percent(early[-1].value), *_cells(late, turn.in_reverse)
        shown.add_row(_axes(both, turn, early), *cells, _difference(turn) if turn.differ else "")
    unmoved = [f"no item and no value changes with {', '.join(still)}"] if still else []
    return titled(_title(both.in_order), shown, *unmoved, *_notes(both, moved))


def _moves(step: Step) -> bool:
    return bool(step.gained or step.lost) or not abs(step.change) <= EXACT


def _title(climbed: Ladder) -> str:
    ends = (climbed.start, climbed.start_value, climbed.start_n), (climbed.end, climbed.end_value, climbed.end_n)
    one, other = (f"{name} {percent(value)} % of {count(n, 'item')}" for name, value, n in ends)
    change = points(climbed.end_value - climbed.start_value)
    return f"{climbed.model} on {climbed.dataset}: from {one} to {other}, {change} points"


def _within(turn: Turn, steps: Sequence[Step]) -> list[Step]:
    return [step for step in steps if {axis.axis for axis in step.axes} & set(turn.axes)]


def _axes(both: BothWays, turn: Turn, early: Sequence[Step]) -> str:
    axes = {axis.axis: axis for step in early for axis in step.axes}
    coarse = any(set(axes) & set(turn.axes) for axes in both.coarse)
    return axes_text([axes[name] for name in turn.axes]) + (_STAR if coarse else "")


def _cells(steps: Sequence[Step], change: float) -> tuple[str, str]:
    """The change, with its error and items where it is that of one step."""
    if len(steps) > 1:
        return points(change), ""
    (step,) = steps
    return points(step.change, step.se), f"+{step.gained} -{step.lost}" if step.gained or step.lost else ""


def _difference(turn: Turn) -> str:
    return f"by {points(abs(turn.difference), turn.se).removeprefix('+')}"


def _notes(both: BothWays, moved: Sequence[Step]) -> list[str]:
    steps = (*both.in_order.steps, *both.in_reverse.steps)
    fewest, most = min(step.n for step in steps), max(step.n for step in steps)
    of = f"of {most}" if fewest == most else f"of the {fewest} to {most} that both score"
    notes = [
        f"points ± standard error, paired by items; +2 -1: items that turn right, and wrong, {of}",
        "in order: the first axes change first, and give the % beside; in reverse: the last ones first",
        f"differ: the changes are apart by more than {two_sided(LEVEL):.2f} paired standard errors of their difference",
    ]
    if any(step.together for step in moved):
        notes.append("axes in one line change together: no protocol has the value of one without the others'")
    if both.coarse:
        notes.append(f"{_STAR.strip()} not one by one: the run did not ask the protocols between")
    return notes
