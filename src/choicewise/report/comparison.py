"""Comparisons for a terminal: two numbers and what tells them apart, published ones, protocols and their ladders."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from textwrap import wrap

from rich.console import Group

from choicewise.bundled import PUBLISHED_MMLU
from choicewise.ports import PairStatistic, all_of
from choicewise.protocols.metrics import METRICS
from choicewise.report.tables import described, rank_table, table, titled
from choicewise.results.compare import (
    VERDICTS,
    Comparison,
    PublishedComparison,
    PublishedNumber,
    Side,
)
from choicewise.results.ladder import EXACT, LEVEL, BothWays, Ladder, Step, Turn
from choicewise.results.outcomes import Axis
from choicewise.results.rows import Row
from choicewise.scoring.intervals import ranks, two_sided
from choicewise.scoring.significance import FEWEST, SignFlip, is_significant
from choicewise.util.text import (
    are,
    counted,
    error,
    percent,
    plain,
    points,
    probability,
    safe,
    shortened,
    visible_line,
)


def comparison_lines(compared: Comparison) -> Iterator[str]:
    """The verdict in a sentence, the two numbers, what differs, the paired difference, and the items that flip."""
    yield from _wrapped(comparison_sentence(compared))
    for name, side in (("A", compared.left), ("B", compared.right)):
        ids = f"{side.p} {side.i} {side.t} {side.r}"
        yield f"{name}  {_number(side, side.value):>7}  {safe(side.model)}, {side.protocol}  {ids}"
        yield f"   {safe(side.folder)}" + (f" ({safe(side.selection)})" if side.selection else "")
    yield from _wrapped(f"{compared.verdict}: {_meaning(compared)}")
    yield from _coverage(compared)
    yield from _wrapped(_tokens(compared))
    if compared.axes:
        width = max(len(axis.axis) for axis in compared.axes)
        yield "what differs"
        for axis in compared.axes:
            yield f"  {axis.axis:<{width}}  A  {safe(axis.left)}"
            yield f"  {'':<{width}}  B  {safe(axis.right)}"
    if parting := compared.parting:
        where = (
            f"the {parting.part} of item {safe(parting.item)}, after {parting.place:,} characters"
        )
        yield from _wrapped(
            f"texts differ for {parting.items:,} of {compared.flips.shared:,} items; first {where}:"
        )
        yield f"  A  {visible_line(parting.left)}"
        yield f"  B  {visible_line(parting.right)}"
    if compared.flips.shared:
        yield from _difference(compared)
        yield from _flips(compared)
    for statistic in all_of(PairStatistic):
        figure = compared.figures.get(statistic.name)
        if figure is not None:
            yield from statistic.lines(compared, figure)


def comparison_sentence(compared: Comparison) -> str:
    """Whether A and B can be compared, which of them scores more, and whether these items can tell them apart."""
    difference = compared.difference
    if math.isnan(difference.value):
        return "A and B can't be compared: no item was scored on both sides."
    on = f"on {counted(difference.n, 'item')}"
    factor, unit = _unit(compared.left)
    digits = 1 if compared.left.share else 3
    points = f"{factor * abs(difference.value):.{digits}f} {unit}"
    higher, lower = ("A", "B") if difference.value > 0 else ("B", "A")
    scores = (
        f"{higher} scores {points} more than {lower} {on}"
        if difference.value
        else f"A and B score the same {on}"
    )
    credited = METRICS[compared.left.metric].credited
    scores += "" if credited else " (less is better)"
    if compared.verdict == "same measurement":
        return f"A and B are the same measurement: {scores}."
    if compared.verdict != "comparable":
        inputs = "right answers" if compared.agree.t else "prompts"
        reason = "protocols" if compared.verdict == "not comparable" else inputs
        if compared.agree.r:
            return f"{scores}: the model is the same, their {reason} differ."
        return f"{scores}, which says nothing about the models alone: their {reason} differ."
    if not difference.value or METRICS[compared.left.metric].pooled:
        return f"{scores}."
    if difference.n < FEWEST:
        return f"{counted(difference.n, 'item')} {are(difference.n)} too few to tell A and B apart: {scores}."
    is_clear = is_significant(compared.test.p, difference.n)
    if is_clear and compared.open:
        sides = zip(("A", "B"), compared.cut, strict=True)
        cut = " and ".join(f"{count:,} of {side}" for side, count in sides if count)
        low, high = factor * compared.low, factor * compared.high
        return (
            f"Not shown: {scores} that both answered to the end, but answers were cut ({cut}), and over all items the "
            f"difference lies between {low:+.{digits}f} and {high:+.{digits}f} {unit}."
        )
    if is_clear:
        better, worse = (higher, lower) if credited else (lower, higher)
        return f"{better} is better than {worse} by {points} {on} ({probability(compared.test.p)})."
    return f"These items can't tell A and B apart: {scores} ({probability(compared.test.p)})."


def axes_text(axes: Sequence[Axis]) -> str:
    """One axis with its values; of several the names alone, but the first three where there are more than four."""
    if len(axes) == 1:
        return change_text(axes[0])
    names = [axis.axis for axis in axes]
    shown = names if len(names) <= 4 else [*names[:3], f"{len(names) - 3} more"]
    return safe(", ".join(shown))


def change_text(axis: Axis) -> str:
    """``ties first → split``; long texts from shortly before they differ."""
    left, right, room = axis.left, axis.right, WIDTH - len(axis.axis) - 4
    if len(left) + len(right) > room:
        pairs = zip(left, right, strict=False)
        same = next(
            (place for place, (one, other) in enumerate(pairs) if one != other),
            min(len(left), len(right)),
        )
        left, right = (shortened(text, room // 2, max(0, same - _BEFORE)) for text in (left, right))
    return safe(f"{axis.axis} {_edged(left)} → {_edged(right)}")


def published_lines(compared: Sequence[PublishedComparison]) -> Iterator[str]:
    """The run's numbers that have the same protocols; where there are none, what keeps the nearest one apart."""
    shown = [each for each in compared if each.comparable]
    lacking = sorted(
        (each for each in compared if not each.comparable),
        key=lambda each: len(each.nearest.axes) if each.nearest else 0,
    )
    if shown:
        yield from _comparable(shown)
    else:
        yield from _nearest(lacking.pop(0))
    if lacking:
        names = ", ".join(safe(each.protocol) for each in lacking[:3]) + (
            ", ..." if len(lacking) > 3 else ""
        )
        yield from _wrapped(
            f"the run was not asked what {len(lacking)} more ask{'s' * (len(lacking) == 1)}: {names}"
        )


def published_table() -> Group:
    """The bundled table (Hugging Face blog, June 2023) with the rank of every model in every column."""
    content = json.loads(PUBLISHED_MMLU.read_text(encoding="utf-8"))
    names = {
        column: f"{column} = {about['protocol']}" for column, about in content["columns"].items()
    }
    cells: dict[str, dict[str, tuple[float, int]]] = {row["model"]: {} for row in content["rows"]}
    for column, name in names.items():
        values = [row[column] for row in content["rows"]]
        for model, value, rank in zip(cells, values, ranks(values).tolist(), strict=True):
            cells[model][name] = value, rank
    return rank_table(
        f"published {content['date']}: MMLU accuracy in % and rank, {content['url']}", cells
    )


_ROUNDING = 1e-9  # means that differ by less are the same


WIDTH = 44
"""Characters for an axis with its two values."""

_BEFORE = 4  # characters shown before the first one that differs, where there is no room for all


_BROUGHT = "the published number"  # what a number is called that a reader brings


def ladder_table(both: BothWays) -> Group:
    """The two numbers, a line for every axis that changes something, on either way, and how to read it."""
    share = METRICS[both.in_order.metric].share
    shown = table(
        "axis", "in order", "items", "%" if share else "value", "in reverse", "items", "differ"
    )
    still, moved = list[str](), list[Step]()
    for turn in both.turns:
        early, late = (_within(turn, side.steps) for side in (both.in_order, both.in_reverse))
        if not any(map(_moves, (*early, *late))):
            still += turn.axes
            continue
        moved += (*early, *late)
        reached = (percent if share else plain)(early[-1].value)
        cells = (
            *_step_cells(early, turn.in_order, share),
            reached,
            *_step_cells(late, turn.in_reverse, share),
        )
        apart = (
            f"by {_points(abs(turn.difference), turn.se, share).removeprefix('+')}"
            if turn.differ
            else ""
        )
        shown.add_row(_axes(both, turn, early), *cells, apart)
    unmoved = [f"no item and no value changes with {', '.join(still)}"] if still else []
    return titled(_title(both.in_order), shown, *unmoved, *_notes(both, moved))


_STAR = " *"  # after axes that the run did not change one by one


def _moves(step: Step) -> bool:
    return bool(step.gained or step.lost) or not abs(step.change) <= EXACT


def _title(climbed: Ladder) -> str:
    ends = (
        (climbed.start, climbed.start_value, climbed.start_n),
        (climbed.end, climbed.end_value, climbed.end_n),
    )
    metric = METRICS[climbed.metric]
    spelled, unit = (
        (lambda value: f"{percent(value)} %", " points")
        if metric.share
        else (plain, f" {metric.unit}")
    )
    one, other = (f"{name} {spelled(value)} of {counted(n, 'item')}" for name, value, n in ends)
    change = _points(climbed.end_value - climbed.start_value, share=metric.share) + unit.rstrip()
    return f"{climbed.model} on {climbed.dataset}: from {one} to {other}, {change}"


def _within(turn: Turn, steps: Sequence[Step]) -> list[Step]:
    return [step for step in steps if {axis.axis for axis in step.axes} & set(turn.axes)]


def _axes(both: BothWays, turn: Turn, early: Sequence[Step]) -> str:
    axes = {axis.axis: axis for step in early for axis in step.axes}
    coarse = any(set(axes) & set(turn.axes) for axes in both.coarse)
    return axes_text([axes[name] for name in turn.axes]) + (_STAR if coarse else "")


def _step_cells(steps: Sequence[Step], change: float, share: bool) -> tuple[str, str]:
    """The change, with its error and items where it is that of one step."""
    if len(steps) > 1:
        return _points(change, share=share), ""
    (step,) = steps
    return _points(
        step.change, step.se, share
    ), f"+{step.gained} -{step.lost}" if step.gained or step.lost else ""


def _points(change: float, se: float = math.nan, share: bool = True) -> str:
    """A difference in points, or of numbers that are no shares, and its standard error where there is one."""
    if share or math.isnan(change):
        return "-" if math.isnan(change) else f"{points(change, '-')} {error(se)}".strip()
    return f"{'+' * (change > 0)}{plain(change)}" + ("" if math.isnan(se) else f" ± {plain(se)}")


def _notes(both: BothWays, moved: Sequence[Step]) -> list[str]:
    steps = (*both.in_order.steps, *both.in_reverse.steps)
    fewest, most = min(step.n for step in steps), max(step.n for step in steps)
    of = f"of {most}" if fewest == most else f"of the {fewest} to {most} that both score"
    what, value, turn = "points", "%", "turn right, and wrong"
    if not METRICS[both.in_order.metric].share:
        what, value, turn = described(both.in_order.metric), "value", "become better, and worse"
    notes = [
        f"{what} ± standard error, paired by items; +2 -1: items that {turn}, {of}",
        f"in order: the first axes change first, and give the {value} beside; in reverse: the last ones first",
        f"differ: the changes are apart by more than {two_sided(LEVEL):.2f} paired standard errors of their difference",
    ]
    if any(step.together for step in moved):
        notes.append(
            "axes in one line change together: no protocol has the value of one without the others'"
        )
    if both.coarse:
        notes.append(f"{_STAR.strip()} not one by one: the run did not ask the protocols between")
    return notes


def _number(side: Side, value: float) -> str:
    return f"{percent(value)} %" if side.share else plain(value)


def _unit(side: Side) -> tuple[int, str]:
    """By what a difference of credits is multiplied, and in what it is then told."""
    metric = METRICS[side.metric]
    if side.share:
        return 100, "points"
    return 1, "nats of log-likelihood" if metric.exponential else metric.unit or side.metric


def _meaning(compared: Comparison) -> str:
    """What follows from the verdict."""
    if compared.verdict == "not comparable" and compared.agree.r:
        return (
            "the protocols differ; the model is the same, so the difference comes from them alone"
        )
    if compared.verdict == "comparable" and not (compared.left.texts and compared.right.texts):
        return "protocol, items and right answers agree: a paired test is allowed"
    return VERDICTS[compared.verdict]


def _coverage(compared: Comparison) -> Iterator[str]:
    """What the paired values are, where they are not those above: of other items, or not of all items alike."""
    flips, left, right = compared.flips, compared.left, compared.right
    if not (flips.left_only or flips.right_only):
        if any(abs(side.paired - side.value) > _ROUNDING for side in (left, right)):
            values = f"A {_number(left, left.paired)}, B {_number(right, right.paired)}"
            over = f"the {counted(compared.difference.n, 'item')} that both score"
            yield from _wrapped(f"compared item by item, as means over {over}: {values}")
        return
    only = f"{flips.left_only:,} only in A, {flips.right_only:,} only in B"
    line = f"A covers {left.items:,} items, B {right.items:,} ({only})"
    if not math.isnan(left.paired):
        values = f"A {_number(left, left.paired)}, B {_number(right, right.paired)}"
        line += f"; compared on the {flips.shared:,} that both have: {values}"
    yield from _wrapped(line)


def _tokens(compared: Comparison) -> str:
    """What it means that texts and tokens agree, or one of them alone."""
    agree, sides = compared.agree, (compared.left, compared.right)
    if not compared.flips.shared or not (agree.i or agree.t):
        return ""
    if not all(side.texts for side in sides):
        return "the same items and right answers; the logs do not have all texts, so that these can't be compared"
    if agree.i and not agree.t and any(side.logged for side in sides):
        return "the same texts; an imported log does not say in which tokens"
    if not agree.i:
        return "the same tokens were asked: only the right answers or choices that are not scored differ"
    if agree.t:
        return "the same texts in the same tokens"
    if agree.p:
        return "the same texts in other tokens: another tokenizer or window; means over tokens are in other units"
    tokenizers = "" if agree.r else " or by the tokenizers"
    return f"the same texts, but other tokens are asked or scored: by the protocols{tokenizers}"


def _difference(compared: Comparison) -> Iterator[str]:
    difference = compared.difference
    if math.isnan(difference.value):
        yield "no item was scored on both sides: there is no difference to test"
        return
    unit, what = _unit(compared.left)
    line = f"A - B = {unit * difference.value:+.2f} {what} over {counted(difference.n, 'item')}"
    is_same = compared.verdict == "same measurement"

    if not math.isnan(difference.ci_low) and not is_same:
        line += (
            f", 95 % interval {unit * difference.ci_low:+.2f} to {unit * difference.ci_high:+.2f}"
        )
    yield from _wrapped(
        line + (f" ({difference.missing} missing on a side excluded)" if difference.missing else "")
    )
    if any(compared.cut):
        low, high = unit * compared.low, unit * compared.high
        cut = f"answers of {compared.cut[0]:,} items were cut in A, of {compared.cut[1]:,} in B"
        bounds = f"over all items the difference lies between {low:+.2f} and {high:+.2f} {what}"
        yield from _wrapped(f"{cut}: they are in no test, and {bounds}")
    if compared.test.differing:
        yield from _wrapped(_test(compared.test))
    if is_same:
        yield from _wrapped(_repetition(compared))
    elif METRICS[compared.left.metric].pooled:
        yield from _wrapped(
            f"{compared.left.metric} of a sample is off to one side, more for some models than for others: "
            "there is no test. Compare brier or acc."
        )
    elif math.isnan(compared.detectable):
        yield "all items differ by the same, so nothing can be said about what difference these items would show"
    else:
        size = f"{unit * compared.detectable:.2f} {what}"
        yield from _wrapped(f"these items would show a difference of {size} with probability 0.8")


def _repetition(compared: Comparison) -> str:
    """How far a measurement agrees with its repetition."""
    moved, shared = compared.moved, compared.flips.shared
    if moved:
        far = "" if math.isnan(compared.furthest) else f" by up to {compared.furthest:.3g}"
        return f"not deterministic: the scores of {moved:,} of {shared:,} items differ{far}"
    if answers := max(compared.flips.predicted_differently, compared.test.differing):
        return f"not deterministic: the answers to {answers:,} of {shared:,} items differ"
    return f"deterministic here: the {'answers' if moved is None else 'scores'} of all {shared:,} items agree exactly"


def _test(test: SignFlip) -> str:
    way = "exact" if test.exact else "in the normal limit"
    name = (
        f"paired sign-flip test of the credits, {way}"
        if test.by_tie or not test.exact
        else "McNemar's exact test"
    )
    ties = f"{test.by_tie} differ by part of a credit, " if test.by_tie else ""
    return f"{name}: only A right {test.left_only}, only B right {test.right_only}, {ties}p = {test.p:.4g}"


def _flips(compared: Comparison) -> Iterator[str]:
    flips = compared.flips
    shared = counted(flips.shared, "item")
    line = f"{flips.predicted_differently} of {shared} {are(flips.predicted_differently)} predicted differently"
    if flips.near_ties:
        line += f", {flips.near_ties} of them within the numeric noise"
    yield from _wrapped(f"{line}; A is better on {flips.left_better}, B on {flips.right_better}")


def _wrapped(text: str) -> list[str]:
    return wrap(text, 79, subsequent_indent="  ")


def _edged(text: str) -> str:
    """In quotes where its ends would not be seen."""
    return f'"{text}"' if text.strip() != text or not text else text


def _comparable(shown: Sequence[PublishedComparison]) -> Iterator[str]:
    first = shown[0].rows[0]
    part = f" ({safe(first.selection)})" if first.selection else ""
    yield from _wrapped(
        "comparable: numbers published under the same protocol. Their data and texts are not known here: they must be "
        f"about what this run is about, {safe(first.dataset)} {first.data}{part}. "
        "Below, inside and above are of the run's 95 % interval"
    )
    for each in shown:
        for row in each.rows:
            group = f", {safe(row.subject)}" if len(each.rows) > 1 else ""
            yield f"{_value(row)}  {safe(row.model)}, {row.protocol}{group}  {row.id} {row.i} {row.t} {row.r}"
        yield from _numbers(each.numbers)


def _value(row: Row) -> str:
    """A number of the run with its interval."""
    if not row.n:
        return "no item scored"
    return (
        f"{percent(row.value)} % [{percent(row.ci_low)} – {percent(row.ci_high)}, {row.n:,} items]"
    )


def _numbers(numbers: Sequence[PublishedNumber]) -> Iterator[str]:
    width = max((len(safe(each.model or _BROUGHT)) for each in numbers), default=0)
    for each in numbers:
        source = f"  {safe(each.source)}" if each.source else ""
        place = f"  {each.place:<6}" if each.place else ""
        yield f"  {percent(each.value):>5} %{place}  {safe(each.model or _BROUGHT):<{width}}{source}".rstrip()


def _nearest(compared: PublishedComparison) -> Iterator[str]:
    yield from _wrapped(
        f"not comparable: numbers published under {safe(compared.protocol)} {compared.p} are of another protocol than "
        "every number of the run"
    )
    yield from _numbers(compared.numbers)
    if nearest := compared.nearest:
        axes = "1 axis" if len(nearest.axes) == 1 else f"{len(nearest.axes)} axes"
        yield from _wrapped(f"the nearest of the run, {safe(nearest.protocol)}, differs in {axes}")
        width = max((len(axis.axis) for axis in nearest.axes), default=0)
        for axis in nearest.axes:
            yield f"  {axis.axis:<{width}}  run        {safe(axis.left)}"
            yield f"  {'':<{width}}  published  {safe(axis.right)}"
    if compared.advice:
        yield from _wrapped(safe(compared.advice))
