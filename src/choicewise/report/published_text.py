"""A run beside published numbers, as lines of text."""

from collections.abc import Iterator, Sequence
from textwrap import wrap

from choicewise.report.table import percent
from choicewise.report.visible_text import safe
from choicewise.results.published_comparison import PublishedComparison, PublishedNumber
from choicewise.results.row import Row

BROUGHT = "the published number"
"""What a number is called that a reader brings."""


def published_lines(compared: Sequence[PublishedComparison]) -> Iterator[str]:
    """The run's numbers that have the same protocols; where there are none, what keeps the nearest one apart."""
    shown = [each for each in compared if each.comparable]
    lacking = sorted((each for each in compared if not each.comparable), key=_distance)
    if shown:
        yield from _comparable(shown)
    else:
        yield from _nearest(lacking.pop(0))
    if lacking:
        names = ", ".join(safe(each.protocol) for each in lacking[:3]) + (", ..." if len(lacking) > 3 else "")
        yield from _wrapped(f"the run was not asked what {len(lacking)} more ask{'s' * (len(lacking) == 1)}: {names}")


def _distance(compared: PublishedComparison) -> int:
    return len(compared.nearest.axes) if compared.nearest else 0


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
    width = max((len(safe(each.model or BROUGHT)) for each in numbers), default=0)
    for each in numbers:
        source = f"  {safe(each.source)}" if each.source else ""
        place = f"  {each.place:<6}" if each.place else ""
        yield f"  {percent(each.value):>5} %{place}  {safe(each.model or BROUGHT):<{width}}{source}".rstrip()


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


def _wrapped(text: str) -> list[str]:
    return wrap(text, 79, subsequent_indent="  ")
