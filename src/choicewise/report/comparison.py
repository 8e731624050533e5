"""What `compare` prints: two numbers with what tells them apart, or those that were published."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from textwrap import wrap

from rich.console import Group

from choicewise.bundled import PUBLISHED_MMLU
from choicewise.report.tables import plain, rank_table
from choicewise.results.compare import VERDICTS, Comparison, PublishedComparison, PublishedNumber, Side
from choicewise.results.outcomes import Axis
from choicewise.results.rows import Row
from choicewise.scoring.intervals import ranks
from choicewise.scoring.significance import SignFlip
from choicewise.util.text import are, counted, percent, probability, safe, shortened, visible_line


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


LEVEL = 0.05
"""p below which a difference is told from none; the test is named where p stands."""


def comparison_sentence(compared: Comparison) -> str:
    """Whether A and B can be compared, which of them scores more, and whether these items can tell them apart."""
    difference = compared.difference
    if math.isnan(difference.value):
        return "A and B can't be compared: no item was scored on both sides."
    on = f"on {counted(difference.n, 'item')}"
    points = f"{percent(abs(difference.value))} points"
    if not compared.left.share:
        points = f"{abs(difference.value):.2f} nats of log-likelihood"
    higher, lower = ("A", "B") if difference.value > 0 else ("B", "A")
    scores = f"{higher} scores {points} more than {lower} {on}" if difference.value else f"A and B score the same {on}"
    if compared.verdict == "same measurement":
        return f"A and B are the same measurement: {scores}."
    if compared.verdict != "comparable":
        inputs = "right answers" if compared.agree.t else "prompts"
        reason = "protocols" if compared.verdict == "not comparable" else inputs
        if compared.agree.r:
            return f"{scores}: the model is the same, their {reason} differ."
        return f"{scores}, which says nothing about the models alone: their {reason} differ."
    if not difference.value:
        return f"{scores}."
    if compared.test.p < LEVEL:
        return f"{higher} is better than {lower} by {points} {on} ({probability(compared.test.p)})."
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
        same = next((place for place, (one, other) in enumerate(pairs) if one != other), min(len(left), len(right)))
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
        names = ", ".join(safe(each.protocol) for each in lacking[:3]) + (", ..." if len(lacking) > 3 else "")
        yield from _wrapped(f"the run was not asked what {len(lacking)} more ask{'s' * (len(lacking) == 1)}: {names}")


def published_table() -> Group:
    """The bundled table (Hugging Face blog, June 2023) with the rank of every model in every column."""
    content = json.loads(PUBLISHED_MMLU.read_text(encoding="utf-8"))
    names = {column: f"{column} = {about['protocol']}" for column, about in content["columns"].items()}
    cells: dict[str, dict[str, tuple[float, int]]] = {row["model"]: {} for row in content["rows"]}
    for column, name in names.items():
        values = [row[column] for row in content["rows"]]
        for model, value, rank in zip(cells, values, ranks(values).tolist(), strict=True):
            cells[model][name] = value, rank
    return rank_table(f"published {content['date']}: MMLU accuracy in % and rank, {content['url']}", cells)


_ROUNDING = 1e-9  # means that differ by less are the same


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
    unit, what = (100, "points") if compared.left.share else (1, "nats of log-likelihood")
    line = f"A - B = {unit * difference.value:+.2f} {what} over {counted(difference.n, 'item')}"
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
    shared = counted(flips.shared, "item")
    line = f"{flips.predicted_differently} of {shared} {are(flips.predicted_differently)} predicted differently"
    if flips.near_ties:
        line += f", {flips.near_ties} of them within the numeric noise"
    yield from _wrapped(f"{line}; A is better on {flips.left_better}, B on {flips.right_better}")


def _wrapped(text: str) -> list[str]:
    return wrap(text, 79, subsequent_indent="  ")


WIDTH = 44
"""Characters for an axis with its two values."""

_BEFORE = 4  # characters shown before the first one that differs, where there is no room for all


def _edged(text: str) -> str:
    """In quotes where its ends would not be seen."""
    return f'"{text}"' if text.strip() != text or not text else text


_BROUGHT = "the published number"  # what a number is called that a reader brings


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
    return f"{percent(row.value)} % [{percent(row.ci_low)} – {percent(row.ci_high)}, {row.n:,} items]"


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
