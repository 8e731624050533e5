"""Make tables of what our computation leaves of a decision endpoint's numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from choicewise.extensions.endpoints.decisions.minus_own import ServedMinusOwn
from choicewise.report.tables import nats
from choicewise.table import Column, Table, rows_of
from choicewise.util.text import counted, interval, percent

LAYOUTS = (
    Column("own", heading="own layout"),
    Column("n", "count"),
    Column("flips", "count"),
    Column("open", "count", joined=" (", closed=" open)"),
    Column("mean", "size", heading="mean |Δp|"),
    Column("most", "size", heading="largest"),
    Column("tv", "size", heading="TV"),
    Column("kl", "size", heading="KL"),
    Column("verdict"),
)

ITEMS = (
    Column("item"),
    Column("served", "count"),
    Column("own", "count"),
    Column("most", "size", heading="largest |Δp|"),
)


def served_tables(compared: Sequence[ServedMinusOwn]) -> Iterator[Table]:
    """Yield a table of the layouts of each kind of question, then one of the items of each layout.

    The notes of a table explain the noise of its kind.
    """
    by_kind: dict[str, list[ServedMinusOwn]] = {}
    for layout in compared:
        by_kind.setdefault(layout.kind, []).append(layout)
    for layouts in by_kind.values():
        first = layouts[0]
        yield Table(
            name="served-minus-own",
            title=f"{first.served} minus our computation",
            columns=LAYOUTS,
            rows=[_layout_row(layout) for layout in layouts],
            notes=[*_noise(first), *map(_intervals, layouts)],
        )
        for layout in layouts:
            if layout.items:
                yield Table(
                    name="items",
                    title=f"{layout.served} minus {layout.own}, by item",
                    columns=ITEMS,
                    rows=rows_of(ITEMS, layout.items),
                    notes=["served, own: position of the likeliest option"],
                )


def _layout_row(layout: ServedMinusOwn) -> list[Any]:
    return [
        layout.own,
        layout.n,
        layout.flips,
        layout.open or None,
        layout.mean,
        layout.most,
        layout.tv.value,
        layout.kl.value,
        layout.verdict,
    ]


def _noise(layout: ServedMinusOwn) -> Iterator[str]:
    rounding = "no rounding"
    if layout.step is not None:
        rounding = f"rounding to {layout.step:g} ({layout.step / 2:g})"
    noise = "noise of our computation not measured"
    if layout.noise is not None:
        noise = f"noise {layout.noise:.2g} nats"
    repeats = layout.repeats
    twice = f"{counted(repeats.repeated, 'question')} sent twice ({repeats.most:.2g} at most)"
    yield f"explained: {rounding}, {twice}, {noise}: |Δp| up to {layout.allowed:.2g}"
    if not repeats.repeated:
        yield "no question was sent twice, so the endpoint's own noise looks unexplained"
    if layout.missing:
        yield f"{counted(layout.missing, 'question')} without probabilities on one side"
    yield "KL(served ‖ own): nats per item; open: flips within the rounding"


def _intervals(layout: ServedMinusOwn) -> str:
    bounds = interval(layout.flips_low, layout.flips_high)
    flips = f"flips {percent(layout.flips / layout.n)} % [{bounds}]"
    return f"{layout.own}: {flips}, TV {nats(layout.tv)}, KL {nats(layout.kl)}"
