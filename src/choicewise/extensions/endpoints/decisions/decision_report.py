"""A decision endpoint's numbers beside our own computation, as tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from choicewise.extensions.endpoints.decisions.minus_own import ServedMinusOwn
from choicewise.report.tables import nats
from choicewise.table import Column, Table
from choicewise.util.text import counted, interval, percent

LAYOUTS: Final = (
    Column(name="own", heading="own layout"),
    Column(name="n", kind="count"),
    Column(name="flips", kind="count"),
    Column(name="open", kind="count", joined=" (", closed=" open)"),
    Column(name="mean", heading="mean |Δp|", kind="size"),
    Column(name="most", heading="largest", kind="size"),
    Column(name="tv", heading="TV", kind="size"),
    Column(name="kl", heading="KL", kind="size"),
    Column(name="verdict"),
)

ITEMS: Final = (
    *(Column(name="item"), Column(name="served", kind="count"), Column(name="own", kind="count")),
    Column(name="most", heading="largest |Δp|", kind="size"),
)


def served_tables(compared: Sequence[ServedMinusOwn]) -> Iterator[Table]:
    """Yield what each layout leaves of an endpoint's answers, a table for each kind of question, then the items.

    Layouts of one kind stand in one table, under the kind's noise.
    """
    by_kind: dict[str, list[ServedMinusOwn]] = {}
    for layout in compared:
        by_kind.setdefault(layout.kind, []).append(layout)
    for layouts in by_kind.values():
        first = layouts[0]
        yield Table(
            name="served-minus-own",
            title=f"{first.served} minus own computation",
            columns=LAYOUTS,
            rows=[_layout_row(layout) for layout in layouts],
            notes=[*_noise(first), *map(_intervals, layouts)],
        )
        for layout in layouts:
            if layout.items:
                yield _item_table(layout)


def _layout_row(layout: ServedMinusOwn) -> list[Any]:
    numbers = [layout.mean, layout.most, layout.tv.value, layout.kl.value]
    return [layout.own, layout.n, layout.flips, layout.open or None, *numbers, layout.verdict]


def _noise(each: ServedMinusOwn) -> Iterator[str]:
    rounding = (
        "no rounding" if each.step is None else f"rounding to {each.step:g} ({each.step / 2:g})"
    )
    twice = f"{counted(each.repeats.repeated, 'question')} sent twice ({_small(each.repeats.most)} at most)"
    noise = (
        "noise of our computation not measured"
        if each.noise is None
        else f"noise {each.noise:.2g} nats"
    )
    yield f"explained: {rounding}, {twice}, {noise}: |Δp| up to {_small(each.allowed)}"
    if not each.repeats.repeated:
        yield "no question was sent twice: what the endpoint itself changes is not known, and looks unexplained"
    if each.missing:
        yield f"{counted(each.missing, 'question')} without probabilities on one side"
    yield "KL(served ‖ own) in nats an item; open: flips within the rounding"


def _intervals(each: ServedMinusOwn) -> str:
    share = f"flips {percent(each.flips / each.n)} % [{interval(each.flips_low, each.flips_high)}]"
    return f"{each.own}: {share}, TV {nats(each.tv)}, KL {nats(each.kl)}"


def _item_table(layout: ServedMinusOwn) -> Table:
    return Table(
        name="items",
        title=f"{layout.served} minus {layout.own}, by item",
        columns=ITEMS,
        rows=[[item.item, item.served, item.own, item.most] for item in layout.items],
        notes=["served, own: the place of the likeliest option"],
    )


def _small(number: float) -> str:
    return f"{number:.2g}"
