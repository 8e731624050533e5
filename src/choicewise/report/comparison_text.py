"""A comparison as lines of text."""

import math
from collections.abc import Iterator
from textwrap import wrap

from choicewise.report.comparison_sentence import comparison_sentence
from choicewise.report.table import percent, plain
from choicewise.report.visible_text import safe, visible_line
from choicewise.report.words import are, count
from choicewise.results.comparison import VERDICTS, Comparison, Side
from choicewise.scoring.statistics.sign_flip import SignFlip

ROUNDING = 1e-9
"""Means that differ by less are the same."""


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
        where = f"the {parting.part} of item {safe(parting.item)}, after {parting.place:,} characters"
        yield from _wrapped(f"texts differ for {parting.items:,} of {compared.flips.shared:,} items; first {where}:")
        yield f"  A  {visible_line(parting.left)}"
        yield f"  B  {visible_line(parting.right)}"
    if compared.flips.shared:
        yield from _difference(compared)
        yield from _flips(compared)


def _number(side: Side, value: float) -> str:
    return f"{percent(value)} %" if side.share else plain(value)


def _meaning(compared: Comparison) -> str:
    """What follows from the verdict."""
    if compared.verdict == "not comparable" and compared.agree.r:
        return "the protocols differ; the model is the same, so the difference comes from them alone"
    if compared.verdict == "comparable" and not (compared.left.texts and compared.right.texts):
        return "protocol, items and right answers agree: a paired test is allowed"
    return VERDICTS[compared.verdict]


def _coverage(compared: Comparison) -> Iterator[str]:
    """What the paired values are, where they are not those above: of other items, or not of all items alike."""
    flips, left, right = compared.flips, compared.left, compared.right
    if not (flips.left_only or flips.right_only):
        if any(abs(side.paired - side.value) > ROUNDING for side in (left, right)):
            values = f"A {_number(left, left.paired)}, B {_number(right, right.paired)}"
            over = f"the {count(compared.difference.n, 'item')} that both score"
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
    unit, what = (100, "points") if compared.left.share else (1, "nats of log-likelihood")
    line = f"A - B = {unit * difference.value:+.2f} {what} over {count(difference.n, 'item')}"
    if not math.isnan(difference.se):
        line += f", 95 % interval {unit * difference.ci_low:+.2f} to {unit * difference.ci_high:+.2f}"
    if compared.clusters and not math.isnan(difference.se):
        line += f", clustered by {compared.clusters} subjects"
    yield from _wrapped(line + (f" ({difference.missing} missing on a side excluded)" if difference.missing else ""))
    if compared.test.differing:
        yield from _wrapped(_test(compared.test))
    line = f"these items would show a difference of {unit * compared.detectable:.2f} {what} with probability 0.8"
    if math.isnan(compared.detectable):
        alike = "all items differ by the same" if compared.test.differing else "no item differs in its credit"
        line = f"{alike}, so nothing can be said about what difference these items would show"
    yield from _wrapped(line)
    if compared.verdict == "same measurement":
        yield from _wrapped(_repetition(compared))


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
    name = f"paired sign-flip test of the credits, {way}" if test.by_tie or not test.exact else "McNemar's exact test"
    ties = f"{test.by_tie} differ by part of a credit, " if test.by_tie else ""
    return f"{name}: only A right {test.left_only}, only B right {test.right_only}, {ties}p = {test.p:.4g}"


def _flips(compared: Comparison) -> Iterator[str]:
    flips = compared.flips
    shared = count(flips.shared, "item")
    line = f"{flips.predicted_differently} of {shared} {are(flips.predicted_differently)} predicted differently"
    if flips.near_ties:
        line += f", {flips.near_ties} of them within the numeric noise"
    yield from _wrapped(f"{line}; A is better on {flips.left_better}, B on {flips.right_better}")


def _wrapped(text: str) -> list[str]:
    return wrap(text, 79, subsequent_indent="  ")
