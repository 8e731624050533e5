"""What `report` prints of answers along thoughts: by share and by tokens, where they settle, which turn."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Group
from rich.text import Text

from choicewise.extensions.analyses.along import AlongThought, Point
from choicewise.report.tables import table, titled
from choicewise.util.text import counted, interval, percent, safe

ENDED = {"itself": "that the model ended", "limit": "closed at their limit"}
"""Which thoughts they are, in words."""


def along_tables(folder: str, known: Sequence[AlongThought]) -> Iterator[Group | Text]:
    """For each protocol of the run in ``folder`` the table of its thoughts, and what it does not show."""
    if not known:
        yield Text(
            f"{safe(folder)}: no protocol asks along thoughts; run one of letters with "
            "@chat=message,reading=along-thought,new_tokens=1024, on a model that thinks"
        )
    for each in known:
        what = f"{counted(each.n, 'thought')} {ENDED[each.ended]}, {safe(each.protocol)}"
        shown = table("after", "tokens", "right %", "95 % interval", "p %", "95 % interval", "changes %")
        for point in (*each.points, *each.budgets):
            shown.add_row(*point_cells(point))
        if each.n:
            yield titled(f"{folder}: {what}", shown, *along_lines(each), *_READING)
        else:
            yield Group(Text(f"{safe(folder)}: {what}"), *(Text(line) for line in along_lines(each)))


def point_cells(point: Point) -> list[str]:
    """The cells of a place: where it is, tokens, accuracy and probability with intervals, what still changes."""
    where = f"{100 * point.share:.0f} %" if point.share is not None else f"≤ {point.tokens:,.0f} tokens"
    return [
        where,
        tokens(point.tokens if point.share is not None else point.spent),
        percent(point.accuracy),
        interval(point.accuracy_low, point.accuracy_high),
        percent(point.probability),
        interval(point.probability_low, point.probability_high),
        percent(point.open),
    ]


def tokens(count: float) -> str:
    """A median or a mean of numbers of tokens."""
    return f"{count:,.1f}".removesuffix(".0")


def along_lines(each: AlongThought) -> list[str]:
    """Where answers settle, how many turn and how, and the items beside these."""
    lines = []
    if each.n:
        turns, after = each.turns, tokens(each.tokens_after)
        lines.append(
            f"In the median the answer stays the same from {100 * each.settled_share:.0f} % of the thought on; {after} "
            f"of {tokens(each.thought_tokens)} tokens follow."
        )
        places = (f"{100 * share:.0f} % {count:,}" for share, count in each.settled.items())
        lines.append(f"Items by the share from which theirs stays: {', '.join(places)}.")
        kinds = {
            "to a right answer": turns.gained,
            "to a wrong one": turns.lost,
            "to another as right as before": turns.other,
        }
        kinds["and back"] = turns.back
        how = ", ".join(f"{count:,} {kind}" for kind, count in kinds.items() if count)
        lines.append(f"{percent(turns.turned / each.n)} % of the answers turn" + (f": {how}." if how else "."))
    beside = {ENDED["itself"]: each.whole, ENDED["limit"]: each.closed}
    beside.pop(ENDED[each.ended])
    lines += [f"Not among these: {counted(count, 'thought')} {kind}." for kind, count in beside.items() if count]
    lines += [
        f"Not among these: {counted(reason.count, 'item')} ({reason.example}): {reason.reason}"
        for reason in each.missing
    ]
    return lines


_READING = (
    "p: mean probability of the right choice among the choices; changes: answers that still change after this place;",
    "tokens: the median after a share, the mean within a budget (each item at the last of its five places in it)",
)
