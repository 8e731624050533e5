"""A comparison as lines of text."""

import math
from collections.abc import Iterator
from textwrap import wrap

from choicewise.report.table import percent
from choicewise.report.visible_text import safe, visible_line
from choicewise.results.comparison import VERDICTS, Comparison
from choicewise.scoring.statistics.sign_flip import SignFlip


def comparison_lines(compared: Comparison) -> Iterator[str]:
    """The two numbers, the verdict, what differs, the paired difference, and the items that flip."""
    for name, side in (("A", compared.left), ("B", compared.right)):
        ids = f"{side.p} {side.i} {side.t} {side.r}"
        yield f"{name}  {percent(side.value):>5} %  {safe(side.model)}, {side.protocol}  {ids}"
        yield f"   {safe(side.folder)}"
    yield from _wrapped(f"{compared.verdict}: {VERDICTS[compared.verdict]}")
    if compared.axes:
        width = max(len(axis.axis) for axis in compared.axes)
        yield "what differs"
        for axis in compared.axes:
            yield f"  {axis.axis:<{width}}  A  {safe(axis.left)}"
            yield f"  {'':<{width}}  B  {safe(axis.right)}"
    if compared.parting:
        yield f"the first text that differs, item {safe(compared.parting.item)}"
        yield f"  A  {visible_line(compared.parting.left)}"
        yield f"  B  {visible_line(compared.parting.right)}"
    yield from _difference(compared)
    yield from _flips(compared)


def _difference(compared: Comparison) -> Iterator[str]:
    difference = compared.difference
    if math.isnan(difference.value):
        yield "no item was scored on both sides: there is no difference to test"
        return
    line = f"A - B = {100 * difference.value:+.2f} points over {difference.n} items"
    if not math.isnan(difference.se):
        line += f", 95 % interval {100 * difference.ci_low:+.2f} to {100 * difference.ci_high:+.2f}"
    if compared.clusters and not math.isnan(difference.se):
        line += f", clustered by {compared.clusters} subjects"
    yield from _wrapped(line + (f" ({difference.missing} missing on a side excluded)" if difference.missing else ""))
    if compared.test.differing:
        yield from _wrapped(_test(compared.test))
    line = f"these items would show a difference of {100 * compared.detectable:.2f} points with probability 0.8"
    if math.isnan(compared.detectable):
        alike = "all items differ by the same" if compared.test.differing else "no item differs in its credit"
        line = f"{alike}, so nothing can be said about what difference these items would show"
    yield from _wrapped(line)
    if compared.verdict == "same measurement" and (difference.value or compared.furthest > 0):
        line = f"the same measurement gave different results: scores differ by up to {compared.furthest:.3g}"
        yield from _wrapped(line)


def _test(test: SignFlip) -> str:
    way = "exact" if test.exact else "in the normal limit"
    name = f"paired sign-flip test of the credits, {way}" if test.by_tie or not test.exact else "McNemar's exact test"
    ties = f"{test.by_tie} differ only by a tie, " if test.by_tie else ""
    return f"{name}: only A right {test.left_only}, only B right {test.right_only}, {ties}p = {test.p:.4g}"


def _flips(compared: Comparison) -> Iterator[str]:
    flips = compared.flips
    line = f"{flips.predicted_differently} of {flips.shared} items are predicted differently"
    if flips.near_ties:
        line += f", {flips.near_ties} of them within the numeric noise"
    yield from _wrapped(f"{line}; A is better on {flips.left_better}, B on {flips.right_better}")
    if flips.left_only or flips.right_only:
        yield from _wrapped(f"{flips.left_only} items are only in A, {flips.right_only} only in B: excluded")


def _wrapped(text: str) -> list[str]:
    return wrap(text, 79, subsequent_indent="  ")
