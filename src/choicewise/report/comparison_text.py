"""A comparison as lines of text."""

from __future__ import annotations

import math
from collections.abc import Iterator
from textwrap import wrap

from choicewise.report.table import percent
from choicewise.report.visible_text import safe, visible
from choicewise.results.comparison import VERDICTS, Comparison
from choicewise.scoring.statistics.sign_flip import SignFlip


def comparison_lines(found: Comparison) -> Iterator[str]:
    """The two numbers, the verdict, what differs, the paired difference, and the items that flip."""
    for name, side in (("A", found.left), ("B", found.right)):
        yield f"{name}  {percent(side.value):>5} %  {safe(side.model)}, {side.protocol}  {side.p} {side.i} {side.r}"
        yield f"   {safe(side.folder)}"
    yield from _wrapped(f"{found.verdict}: {VERDICTS[found.verdict]}")
    if found.axes:
        width = max(len(axis.axis) for axis in found.axes)
        yield "what differs"
        for axis in found.axes:
            yield f"  {axis.axis:<{width}}  A  {safe(axis.left)}"
            yield f"  {'':<{width}}  B  {safe(axis.right)}"
    if found.parting:
        yield f"the first text that differs, item {safe(found.parting.item)}"
        yield f"  A  {_line(found.parting.left)}"
        yield f"  B  {_line(found.parting.right)}"
    yield from _difference(found)
    yield from _flips(found)


def _difference(found: Comparison) -> Iterator[str]:
    difference = found.difference
    if math.isnan(difference.value):
        yield "no item was scored on both sides: there is no difference to test"
        return
    told = f"A - B = {100 * difference.value:+.2f} points over {difference.n} items"
    if not math.isnan(difference.se):
        told += f", 95 % interval {100 * difference.ci_low:+.2f} to {100 * difference.ci_high:+.2f}"
    if found.clusters and not math.isnan(difference.se):
        told += f", clustered by {found.clusters} subjects"
    yield from _wrapped(told + (f" ({difference.missing} missing on a side left out)" if difference.missing else ""))
    if found.test.differing:
        yield from _wrapped(_test(found.test))
    if math.isnan(found.detectable):
        alike = "all items differ alike" if found.test.differing else "no item differs in its credit"
        yield from _wrapped(f"{alike}, so nothing can be said about what difference these items would show")
    else:
        yield from _wrapped(
            f"these items would show a difference of {100 * found.detectable:.2f} points with probability 0.8"
        )
    if found.verdict == "same measurement" and (difference.value or found.furthest > 0):
        yield from _wrapped(
            f"the same was computed twice with different results: scores are up to {found.furthest:.3g} apart"
        )


def _test(test: SignFlip) -> str:
    way = "exact" if test.exact else "in the normal limit"
    name = f"paired sign-flip test of the credits, {way}" if test.by_tie or not test.exact else "McNemar's exact test"
    ties = f"{test.by_tie} differ only by a tie, " if test.by_tie else ""
    return f"{name}: only A right {test.left_only}, only B right {test.right_only}, {ties}p = {test.p:.4g}"


def _flips(found: Comparison) -> Iterator[str]:
    flips = found.flips
    told = f"{flips.predicted_differently} of {flips.shared} items are predicted differently"
    if flips.near_ties:
        told += f", {flips.near_ties} of them within the numeric noise"
    yield from _wrapped(f"{told}; A is better on {flips.left_better}, B on {flips.right_better}")
    if flips.left_only or flips.right_only:
        yield from _wrapped(f"{flips.left_only} items are only in A, {flips.right_only} only in B: left out")


def _line(text: str) -> str:
    return visible(text).replace("⏎\n", "⏎")


def _wrapped(text: str) -> list[str]:
    return wrap(text, 79, subsequent_indent="  ")
