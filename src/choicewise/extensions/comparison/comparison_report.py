"""Write comparisons of two numbers, and of a number with published ones, for a terminal."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from textwrap import wrap
from typing import Any

from choicewise.extensions.comparison.compare import VERDICTS
from choicewise.extensions.comparison.published import PublishedComparison
from choicewise.ports import PairStatistic, all_of
from choicewise.protocols.metrics import METRICS
from choicewise.report.axes import axes_names
from choicewise.results.comparison import Comparison, Side
from choicewise.results.outcomes import Axis
from choicewise.results.published import PublishedNumber
from choicewise.scoring.significance import FEWEST, SignFlip, holm, is_significant
from choicewise.scoring.significance import LEVEL as LEVEL_OF_TESTS
from choicewise.table import Column, Table
from choicewise.util.text import (
    are,
    counted,
    interval,
    percent,
    plain,
    probability,
    safe,
    visible_line,
)

SCREEN = 100
"""Columns of what is shown in short."""

LISTED = 18
"""Protocols that the comparison of two runs lists, unless the reader asks for all."""

_ROUNDING = 1e-9
"""Means that differ by less are equal."""


def comparison_lines(comparison: Comparison) -> Iterator[str]:
    """Yield the verdict, the two numbers, what differs, the paired difference, and the items that
    flip.
    """
    yield from _wrapped(comparison_sentence(comparison))
    yield from _side_lines("A", comparison.left)
    yield from _side_lines("B", comparison.right)
    yield from _wrapped(f"{comparison.verdict}: {_meaning(comparison)}")
    yield from _coverage_lines(comparison)
    yield from _wrapped(_token_sentence(comparison))
    if comparison.axes:
        yield "what differs"
        yield from _axis_lines(comparison.axes, "A", "B")
    parting = comparison.parting
    if parting is not None:
        start = f"{parting.part} of item {safe(parting.item)}, after {parting.place:,} characters"
        texts = f"{parting.items:,} of {comparison.flips.shared:,} items"
        yield from _wrapped(f"texts differ in {texts}, first in the {start}:")
        yield f"  A  {visible_line(parting.left)}"
        yield f"  B  {visible_line(parting.right)}"
    if comparison.flips.shared:
        yield from _difference_lines(comparison)
        yield from _wrapped(_flip_sentence(comparison))
    for statistic in all_of(PairStatistic):
        figure = comparison.figures.get(statistic.name)
        if figure is not None:
            yield from statistic.lines(comparison, figure)


def short_lines(comparison: Comparison) -> Iterator[str]:
    """Yield the verdict, the two numbers, why they differ, their difference, and the items that
    flip.
    """
    yield from _wrapped(comparison_sentence(comparison), SCREEN)
    for name, side in (("A", comparison.left), ("B", comparison.right)):
        value = _value_text(side, side.value)
        yield f"{name}  {value:>7}  {safe(side.model)}, {side.protocol}, {safe(side.folder)}"
    line = f"{comparison.verdict}: {_meaning(comparison)}"
    # That two models differ in name and digest is no news.
    axes = [axis for axis in comparison.axes if axis.axis not in ("model name", "model digest")]
    if axes:
        line += f" ({axes_names(axes)})"
    yield from _wrapped(line, SCREEN)
    yield from _coverage_lines(comparison)
    if not comparison.flips.shared:
        return
    yield from _wrapped(_difference_text(comparison), SCREEN)
    yield from _wrapped(_cut_sentence(comparison), SCREEN)
    if comparison.verdict == "same measurement":
        yield from _wrapped(_repetition(comparison), SCREEN)
    elif comparison.verdict == "comparable":
        yield from _wrapped(_sensitivity(comparison), SCREEN)
    else:
        yield from _wrapped(_flip_sentence(comparison), SCREEN)


def protocols_table(comparisons: Sequence[Comparison], every: bool) -> Table:
    """Return a row for each comparison of two runs, the largest differences first.

    ``every``: whether all rows are there, or only the first :data:`LISTED`.
    """
    first = comparisons[0]
    share = all(comparison.left.share for comparison in comparisons)
    value, change = kinds(share)
    unit = " %" if share else ""
    columns = [
        Column("protocol"),
        Column("A", value, heading=f"A{unit}"),
        Column("B", value, heading=f"B{unit}"),
        Column("difference", change, heading="A - B"),
        Column("p", "p", optional=True),
    ]
    verdicts_differ = len({comparison.verdict for comparison in comparisons}) > 1
    if verdicts_differ:
        columns.append(Column("verdict"))
    ordered = sorted(comparisons, key=_size_for_order, reverse=True)
    if not every:
        ordered = ordered[:LISTED]
    rows = []
    for comparison in ordered:
        left = comparison.left
        right = comparison.right
        p = comparison.test.p if comparison.verdict == "comparable" else None
        row: list[Any] = [left.protocol, left.value, right.value, comparison.difference.value, p]
        if verdicts_differ:
            row.append(comparison.verdict)
        rows.append(row)
    items = counted(first.flips.shared, "shared item")
    names = []
    for letter, side in (("A", first.left), ("B", first.right)):
        names.append(f"{letter} {safe(side.model)} ({safe(side.folder)})")
    return Table(
        name="protocols",
        title=f"{', '.join(names)}, {items}",
        columns=columns,
        rows=rows,
    )


def kinds(share: bool) -> tuple[str, str]:
    """Return the kinds of columns that hold values, and differences of values."""
    if share:
        return "share", "points"
    return "number", "change"


def _size_for_order(comparison: Comparison) -> float:
    # NaN can't be ordered: these protocols come last.
    size = abs(comparison.difference.value)
    return -1 if math.isnan(size) else size


def protocols_sentence(comparisons: Sequence[Comparison]) -> str:
    """Return under how many protocols A or B is better, of those that can be tested.

    p values are corrected for all tests (Holm).
    """
    count = len(comparisons)
    verdicts = {comparison.verdict for comparison in comparisons}
    if verdicts == {"same measurement"}:
        moved = sum(bool(comparison.moved) for comparison in comparisons)
        agreement = f"scores differ under {moved}" if moved else "all scores agree"
        return f"A and B are the same measurement under all {count} protocols: {agreement}."
    tested = [comparison for comparison in comparisons if _is_testable(comparison)]
    if not tested:
        return f"A and B can't be compared under any of the {count} protocols."
    most = max(comparison.difference.n for comparison in tested)
    if most < FEWEST:
        items = counted(most, "item")
        return f"{items} {are(most)} too few to tell A and B apart."
    wins = _wins(tested)
    tests = f"{len(tested)} protocols"
    level = f"p ≤ {LEVEL_OF_TESTS}, Holm"
    rest = "" if len(tested) == count else f" {count - len(tested)} more can't be compared."
    if not any(wins.values()):
        return f"No significant difference between A and B under any of {tests}.{rest}"
    if wins["A"] and wins["B"]:
        wins_text = f"A is better under {wins['A']} and B under {wins['B']} of {tests}"
        return f"It depends on the protocol: {wins_text} ({level}).{rest}"
    better, worse = ("A", "B") if wins["A"] else ("B", "A")
    wins_text = f"{better} is better than {worse} under {wins[better]} of {tests}"
    return f"{wins_text} ({level}), and worse under none.{rest}"


def _wins(tested: Sequence[Comparison]) -> dict[str, int]:
    """Count under how many protocols A and B are significantly better, corrected for all tests."""
    wins = {"A": 0, "B": 0}
    adjusted = holm([comparison.test.p for comparison in tested]).tolist()
    for comparison, p in zip(tested, adjusted, strict=True):
        if not is_significant(p, comparison.difference.n) or comparison.open:
            continue
        better, _ = _ranking(comparison)
        wins[better] += 1
    return wins


def _is_testable(comparison: Comparison) -> bool:
    is_comparable = comparison.verdict == "comparable"
    is_pooled = METRICS[comparison.left.metric].pooled
    return is_comparable and not is_pooled and not math.isnan(comparison.test.p)


def _side_lines(name: str, side: Side) -> Iterator[str]:
    ids = f"{side.p} {side.i} {side.t} {side.r}"
    yield f"{name}  {_value_text(side, side.value):>7}  {safe(side.model)}, {side.protocol}  {ids}"
    selection = f" ({safe(side.selection)})" if side.selection else ""
    yield f"   {safe(side.folder)}{selection}"


def _axis_lines(axes: Sequence[Axis], left: str, right: str) -> Iterator[str]:
    """Yield two lines for each axis: its values on the sides that are called ``left`` and
    ``right``.
    """
    width = max(len(axis.axis) for axis in axes)
    for axis in axes:
        yield f"  {axis.axis:<{width}}  {left}  {safe(axis.left)}"
        yield f"  {'':<{width}}  {right}  {safe(axis.right)}"


def comparison_sentence(comparison: Comparison) -> str:
    """Return if A and B can be compared, which of them scores more, and if these items can tell
    them apart.
    """
    difference = comparison.difference
    if math.isnan(difference.value):
        return "A and B can't be compared: no item was scored on both sides."
    metric = METRICS[comparison.left.metric]
    scores = _score_clause(comparison)
    if comparison.verdict == "same measurement":
        return f"A and B are the same measurement: {scores}."
    if comparison.verdict != "comparable":
        return _confounded(comparison, scores)
    if _are_equal(comparison) or metric.pooled:
        return f"{scores}."
    items = counted(difference.n, "item")
    if difference.n < FEWEST:
        return f"{items} {are(difference.n)} too few to tell A and B apart: {scores}."
    p = probability(comparison.test.p)
    if not is_significant(comparison.test.p, difference.n):
        return f"These items can't tell A and B apart: {scores} ({p})."
    if comparison.open:
        return _left_open(comparison, scores)
    better, worse = _ranking(comparison)
    return f"{better} is better than {worse} by {_size(comparison)} on {items} ({p})."


def _score_clause(comparison: Comparison) -> str:
    """Return which side scores more, and by how much."""
    difference = comparison.difference
    items = counted(difference.n, "item")
    if _are_equal(comparison):
        clause = f"A and B score the same on {items}"
    else:
        higher, lower = _order(comparison)
        clause = f"{higher} scores {_size(comparison)} more than {lower} on {items}"
    if METRICS[comparison.left.metric].credited:
        return clause
    return f"{clause} (less is better)"


def _are_equal(comparison: Comparison) -> bool:
    return abs(comparison.difference.value) <= _ROUNDING


def _order(comparison: Comparison) -> tuple[str, str]:
    """Return the side with the higher number, and the other one."""
    if comparison.difference.value > 0:
        return "A", "B"
    return "B", "A"


def _ranking(comparison: Comparison) -> tuple[str, str]:
    """Return the better side, and the other one."""
    higher, lower = _order(comparison)
    # Of a loss, such as brier, less is better.
    if not METRICS[comparison.left.metric].credited:
        return lower, higher
    return higher, lower


def _size(comparison: Comparison) -> str:
    factor, unit = _unit(comparison.left)
    size = factor * abs(comparison.difference.value)
    return f"{size:.{_digits(comparison)}f} {unit}"


def _digits(comparison: Comparison) -> int:
    return 1 if comparison.left.share else 3


def _confounded(comparison: Comparison, scores: str) -> str:
    """Return what a difference says if protocols, prompts or right answers differ."""
    agree = comparison.agree
    if comparison.verdict == "not comparable":
        reason = "protocols"
    elif agree.t:
        reason = "right answers"
    else:
        reason = "prompts"
    if agree.r:
        return f"{scores}: same model, different {reason}."
    return f"{scores}, but the {reason} differ, so the models can't be compared."


def _left_open(comparison: Comparison, scores: str) -> str:
    """Return that answers which were cut could turn a significant difference round."""
    counts = []
    for side, count in zip(("A", "B"), comparison.cut, strict=True):
        if count:
            counts.append(f"{count:,} of {side}")
    factor, unit = _unit(comparison.left)
    digits = _digits(comparison)
    bounds = (
        f"{factor * comparison.low:+.{digits}f} and {factor * comparison.high:+.{digits}f} {unit}"
    )
    return (
        f"Undecided: {scores} that both answered to the end, but answers were cut "
        f"({' and '.join(counts)}). Over all items the difference is between {bounds}."
    )


def published_lines(comparisons: Sequence[PublishedComparison]) -> Iterator[str]:
    """Yield the run's numbers that have the same protocols.

    If none has, what the nearest one differs in.
    """
    comparable = []
    others = []
    for comparison in comparisons:
        if comparison.comparable:
            comparable.append(comparison)
        else:
            others.append(comparison)
    others.sort(key=_distance)
    if comparable:
        yield from _comparable_lines(comparable)
    else:
        yield from _nearest_lines(others.pop(0))
    if not others:
        return
    names = ", ".join(safe(comparison.protocol) for comparison in others[:3])
    if len(others) > 3:
        names += ", ..."
    yield from _wrapped(f"not in the run: {len(others)} more, {names}")


def _distance(comparison: PublishedComparison) -> int:
    """Return in how many axes the nearest protocol of the run differs."""
    if comparison.nearest is None:
        return 0
    return len(comparison.nearest.axes)


def _comparable_lines(comparisons: Sequence[PublishedComparison]) -> Iterator[str]:
    first = comparisons[0].rows[0]
    selection = f" ({safe(first.identity.selection)})" if first.identity.selection else ""
    yield from _wrapped(
        "comparable: same protocol. Only meaningful if the published numbers are for the "
        f"same questions, {safe(first.identity.dataset)} "
        f"{first.identity.data}{selection}. Below, inside and above refer to the run's 95 "
        "% interval"
    )
    for comparison in comparisons:
        for row in comparison.rows:
            value = "no item scored"
            if row.counts.n:
                bounds = interval(row.interval.low, row.interval.high)
                value = f"{percent(row.value)} % [{bounds}, {row.counts.n:,} items]"
            name = f"{safe(row.identity.model)}, {row.identity.protocol}"
            if len(comparison.rows) > 1:
                name += f", {safe(row.identity.subject)}"
            yield (
                f"{value}  {name}  {row.identity.id} {row.identity.i} "
                f"{row.identity.t} {row.identity.r}"
            )
        yield from _number_lines(comparison.numbers)


def _number_lines(numbers: Sequence[PublishedNumber]) -> Iterator[str]:
    names = [safe(number.model or "the published number") for number in numbers]
    width = max(map(len, names), default=0)
    for name, number in zip(names, numbers, strict=True):
        line = f"  {percent(number.value):>5} %"
        if number.place:
            line += f"  {number.place:<6}"
        line += f"  {name:<{width}}"
        if number.source:
            line += f"  {safe(number.source)}"
        yield line.rstrip()


def _nearest_lines(comparison: PublishedComparison) -> Iterator[str]:
    name = f"{safe(comparison.protocol)} {comparison.p}"
    yield from _wrapped(f"not comparable: no score of this run has the protocol {name}")
    yield from _number_lines(comparison.numbers)
    nearest = comparison.nearest
    if nearest is not None:
        axes = counted(len(nearest.axes), "axis", "axes")
        yield from _wrapped(
            f"the nearest protocol of the run, {safe(nearest.protocol)}, differs in {axes}"
        )
        if nearest.axes:
            yield from _axis_lines(nearest.axes, "run      ", "published")
    if comparison.advice:
        yield from _wrapped(safe(comparison.advice))


def _value_text(side: Side, value: float) -> str:
    if side.share:
        return f"{percent(value)} %"
    return plain(value)


def _unit(side: Side) -> tuple[int, str]:
    """Return by what a difference of credits is multiplied, and in which unit people read it."""
    metric = METRICS[side.metric]
    if side.share:
        return 100, "points"
    if metric.exponential:
        return 1, "nats of log-likelihood"
    return 1, metric.unit or side.metric


def _meaning(comparison: Comparison) -> str:
    """Return what follows from the verdict."""
    if comparison.verdict == "not comparable" and comparison.agree.r:
        return "same model, different protocols"
    has_texts = comparison.left.texts and comparison.right.texts
    if comparison.verdict == "comparable" and not has_texts:
        return "same protocol, items and right answers, so a paired test is valid"
    return VERDICTS[comparison.verdict]


def _coverage_lines(comparison: Comparison) -> Iterator[str]:
    """Yield the paired values if they differ from the two numbers: they are means over other items,
    or over items.
    """
    flips = comparison.flips
    left = comparison.left
    right = comparison.right
    values = f"A {_value_text(left, left.paired)}, B {_value_text(right, right.paired)}"
    if flips.left_only or flips.right_only:
        line = (
            f"A covers {left.items:,} items, B {right.items:,} (only in A: "
            f"{flips.left_only:,}, only in B: {flips.right_only:,})"
        )
        if not math.isnan(left.paired):
            line += f"; on the {flips.shared:,} in both: {values}"
        yield from _wrapped(line)
    elif _is_weighted(left) or _is_weighted(right):
        items = counted(comparison.difference.n, "item")
        means = "compared item by item, as means"
        if comparison.test.weighted:
            means = "compared as means of the subjects' means"
        yield from _wrapped(f"{means} over the {items} that both score: {values}")


def _is_weighted(side: Side) -> bool:
    """Tell if a number is no plain mean over the items."""
    return abs(side.paired - side.value) > _ROUNDING


def _token_sentence(comparison: Comparison) -> str:
    """Return what follows if texts and tokens agree, or one of them; an empty text if neither does."""
    agree = comparison.agree
    left = comparison.left
    right = comparison.right
    if not comparison.flips.shared or not (agree.i or agree.t):
        return ""
    if not (left.texts and right.texts):
        return (
            "same items and right answers; texts can't be compared, because the logs don't have "
            "all of them"
        )
    if not agree.i:
        return "same tokens; only right answers, or choices that are not scored, differ"
    if agree.t:
        return "same texts, same tokens"
    if left.logged or right.logged:
        return "same texts; an imported log has no tokens to compare"
    if agree.p:
        return (
            "same texts, different tokens (tokenizer or window): per-token scores are not on "
            "the same scale"
        )
    tokenizers = "" if agree.r else " or tokenizers"
    return f"same texts, but the protocols{tokenizers} ask or score different tokens"


def _difference_lines(comparison: Comparison) -> Iterator[str]:
    difference = comparison.difference
    yield from _wrapped(_difference_text(comparison))
    if math.isnan(difference.value):
        return
    yield from _wrapped(_cut_sentence(comparison))
    if comparison.test.differing:
        yield from _wrapped(_test_sentence(comparison.test))
    if comparison.verdict == "same measurement":
        yield from _wrapped(_repetition(comparison))
    else:
        yield from _wrapped(_sensitivity(comparison))


def _sensitivity(comparison: Comparison) -> str:
    """Return the smallest difference that these items can show, or why none is known.

    The first line of the comparison says so if the items are too few.
    """
    metric = comparison.left.metric
    if METRICS[metric].pooled:
        return (
            f"{metric} is biased in small samples, differently for each model, so there is no "
            "test. Compare brier or acc."
        )
    if math.isnan(comparison.detectable) and comparison.difference.n < FEWEST:
        return ""
    if math.isnan(comparison.detectable):
        return (
            "all items differ by the same amount, so the smallest detectable difference is unknown"
        )
    factor, unit = _unit(comparison.left)
    items = counted(comparison.difference.n, "item")
    size = f"{factor * comparison.detectable:.2f} {unit}"
    return f"smallest detectable difference with {items} (80 % power): {size}"


def _difference_text(comparison: Comparison) -> str:
    """Return the difference with its interval, and how many items it leaves out."""
    difference = comparison.difference
    if math.isnan(difference.value):
        return "no item was scored on both sides: there is no difference to test"
    factor, unit = _unit(comparison.left)
    value = factor * difference.value
    if _are_equal(comparison):
        value = 0.0
    line = f"A - B = {value:+.2f} {unit} over {counted(difference.n, 'item')}"
    if not math.isnan(difference.ci_low) and comparison.verdict != "same measurement":
        low = factor * difference.ci_low
        high = factor * difference.ci_high
        line += f", 95 % interval {low:+.2f} to {high:+.2f}"
    if difference.missing:
        line += f" ({difference.missing} missing on one side, left out)"
    return line


def _cut_sentence(comparison: Comparison) -> str:
    """Return how many answers were cut, and what that leaves open; an empty text if none was."""
    left_cut, right_cut = comparison.cut
    if not (left_cut or right_cut):
        return ""
    factor, unit = _unit(comparison.left)
    low = factor * comparison.low
    high = factor * comparison.high
    return (
        f"cut answers: {left_cut:,} items in A, {right_cut:,} in B. They are in no test; "
        f"over all items the difference is between {low:+.2f} and {high:+.2f} {unit}"
    )


def _repetition(comparison: Comparison) -> str:
    """Return how far a measurement agrees with its repetition."""
    shared = comparison.flips.shared
    if comparison.moved:
        size = ""
        if not math.isnan(comparison.furthest):
            size = f" by up to {comparison.furthest:.3g}"
        return f"not deterministic: scores of {comparison.moved:,} of {shared:,} items differ{size}"
    answers = max(comparison.flips.predicted_differently, comparison.test.differing)
    if answers:
        return f"not deterministic: answers to {answers:,} of {shared:,} items differ"
    # Generated answers have no scores to compare.
    compared = "answers" if comparison.moved is None else "scores"
    return f"deterministic here: {compared} of all {shared:,} items agree exactly"


def _test_sentence(test: SignFlip) -> str:
    if test.is_mcnemar:
        name = "McNemar's exact test"
    elif test.exact:
        name = "paired sign-flip test of the credits, exact"
    else:
        name = "paired sign-flip test of the credits, in the normal limit"
    if test.weighted:
        name += ", weighted by subject"
    ties = f"{test.by_tie} differ by part of a credit, " if test.by_tie else ""
    return (
        f"{name}: only A right {test.left_only}, only B right {test.right_only}, {ties}p = "
        f"{test.p:.4g}"
    )


def _flip_sentence(comparison: Comparison) -> str:
    flips = comparison.flips
    shared = counted(flips.shared, "item")
    line = (
        f"{flips.predicted_differently} of {shared} {are(flips.predicted_differently)} "
        "predicted differently"
    )
    if flips.near_ties:
        line += f", {flips.near_ties} of them within the numeric noise"
    return f"{line}; A is better on {flips.left_better}, B on {flips.right_better}"


def _wrapped(text: str, width: int = 79) -> list[str]:
    return wrap(text, width, subsequent_indent="  ")
