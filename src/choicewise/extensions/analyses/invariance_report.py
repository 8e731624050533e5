"""What `report --invariance` prints: how far answers change where the question stays the same."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Group
from rich.text import Text

from choicewise.extensions.analyses.invariance import Check, Panel, measure_of
from choicewise.protocols.panel import CHECKS
from choicewise.report.tables import table, titled
from choicewise.util.text import counted, interval, percent, safe

HEADS = (
    *("changed", "items", "flips %", "95 % interval", "net %", "uniform %"),
    *("change", "95 % interval", "uniform", "right %"),
)
"""The columns of a panel."""

READING = (
    "flips: another likeliest choice; of orders, over all pairs; ≤: none, and with 95 % confidence no more than this",
    "net: flips less those of the same request sent again; uniform: the same of a predictor that gives every choice "
    "the same probability, which agrees with itself and knows nothing: read flips beside right %",
)
"""What the columns mean."""


def invariance_tables(folder: str, panels: Sequence[Panel]) -> Iterator[Group | Text]:
    """For each protocol with a panel the table of its checks, and what stands beside it."""
    if not panels:
        yield Text(
            f"{safe(folder)}: no protocol was asked with changes; ask its panel, or one change: @prepare=reversed"
        )
    for each in panels:
        title = f"{folder}: the same questions, changed; {safe(each.protocol)}: {counted(each.n, 'item')}"
        if not each.checks:
            yield Text("\n".join([safe(title), *panel_lines(each)]))
            continue
        shown = table(*HEADS)
        for check in each.checks:
            shown.add_row(*check_cells(check))
        yield titled(f"{title}, {percent(each.accuracy)} % right", shown, *panel_lines(each))
    checks = dict.fromkeys((each.kind, check.check) for each in panels for check in each.checks)
    if checks:
        yield Text("\n".join([*READING, *(reading_of(*check) for check in checks)]))


def check_cells(check: Check) -> list[str]:
    """The cells of a check, as :data:`HEADS` has them."""
    flips, change = check.flips, check.change
    return [
        check.check,
        f"{check.n:,}",
        percent(flips.value),
        interval(flips.low, flips.high) if check.at_most is None else f"≤ {percent(check.at_most)}",
        "-" if check.net is None else percent(check.net),
        percent(flips.uniform),
        f"{change.value:.4f}",
        interval(change.low, change.high, lambda value: f"{value:.4f}"),
        f"{change.uniform:.4f}",
        percent(check.accuracy),
    ]


def panel_lines(panel: Panel) -> list[str]:
    """Repeats, places, the option that says none, and what each check changes and measures."""
    if not panel.checks:
        return ["no item has a number both as it is and changed; the run's own report says why"]
    lines = [f"a uniform predictor would have {percent(panel.uniform)} % right"]
    if panel.computed:
        lines.append("repeats: a prompt is computed once here, so that none flips")
    elif panel.repeat_flips is None:
        lines.append("repeats: not measured, as nothing was sent twice")
    else:
        lines.append(f"repeats: {percent(panel.repeat_flips)} % of {panel.repeated} requests sent twice flip")
    if panel.places:
        means = ", ".join(f"{place:.3f}" for place in panel.places)
        lines.append(f"mean probability by place, items with {len(panel.places)} options: {means}")
    if panel.none is not None and panel.none.added is not None:
        without = (
            "" if panel.none.for_right is None else f", {percent(panel.none.for_right)} % in place of the right one"
        )
        lines.append(f'"None of these" has {percent(panel.none.added)} % beside the right option{without}')
    if constant := [check.check for check in panel.checks if check.constant]:
        lines.append(
            f"no probability changes with {', '.join(constant)}: the server may sort or leave out what is changed"
        )
    return lines


def reading_of(kind: str, check: str) -> str:
    """What a check changes, and what its change is."""
    of_kind = f" of a {kind}" if kind != "choice" else ""
    return f"{check}{of_kind}: {CHECKS[check].changes}; change: {measure_of(kind, check)}"
