"""What every axis of the protocols does: a row per axis, a tick per pair of protocols that differ in it alone."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from choicewise.report.table import percent
from choicewise.web import labels
from choicewise.web.charts.frame import (
    DESCRIPTION,
    NARROW,
    POINTS_AXIS,
    WIDTH,
    Record,
    Records,
    around_zero,
    frame,
    hairline,
    lane,
    layer,
    number,
    row_words,
)
from choicewise.web.number import count, points
from choicewise.web.theme import INK, NORMAL, PAPER, SOFT

if TYPE_CHECKING:
    from choicewise.results.main_effects import Effect, ValueChange

_STEP, _TALL = 38, 58
"""Pixels of a row, and of one with its words above its marks."""

_NAME = 18
"""Width of what stands beside a row, in sizes of its font."""

CAPTION = (
    "A tick is a pair of protocols that differ in this axis alone: by how many points the second is above the first. "
    "Dot and line: mean and standard deviation of the pairs. Size: mean change without its sign."
)


def values(effects: Sequence["Effect"]) -> list[Record]:
    """Records of the kinds ``effect`` (a row) and ``pair`` (a tick in it); changes are shares of 1."""
    records: list[Record] = []
    for place, effect in enumerate(effects):
        records.append(_effect(effect, place))
        records += [tick for change in effect.changes for tick in _ticks(change, place)]
    return records


def spec(values: Records, width: int = WIDTH) -> dict[str, Any]:
    """The chart of such values."""
    narrow = width < NARROW
    left, right = (12, 28) if narrow else (_NAME * NORMAL + 24, 148)
    at = lane("lane", bandPosition=0.75 if narrow else 0.5)
    reaches = ("change", "low", "high")
    scale = around_zero(0.05, (record[name] for record in values for name in reaches if name in record))
    across = number("mean", scale=scale, axis=POINTS_AXIS)
    edges = {"x": {"value": -left}, "x2": {"value": width - left}, "y": lane("lane", bandPosition=0)}
    tick = {"type": "point", "shape": "M0,-1L0,1", "size": 256, "stroke": SOFT, "strokeWidth": 1, "opacity": 0.45}
    bar = {"type": "rule", "color": INK, "strokeWidth": 1.5}
    point = {"type": "point", "shape": "circle", "fill": INK, "stroke": PAPER, "strokeWidth": 1, "opacity": 1}
    known = {"field": "low", "valid": True}
    layers = [
        layer("effect", hairline(), **edges),
        layer(
            "effect",
            hairline(color=SOFT),
            x={"datum": 0},
            y=lane(bandPosition=0),
            y2={"field": "lane", "bandPosition": 1},
        ),
        layer("pair", tick, x=number("change"), y=at, description=DESCRIPTION),
        layer("effect", bar, known, x=number("low"), x2={"field": "high"}, y=at),
        layer("effect", {**point, "size": 64}, x=across, y=at, description=DESCRIPTION),
    ]
    layers += row_words("effect", ("axis", "detail", "result", "size"), left, width)
    return frame(
        values,
        layers,
        width=width,
        left=left,
        right=right,
        top=8,
        bottom=42,
        height={"step": _TALL if narrow else _STEP},
        about=f"What each of {count(len({record['lane'] for record in values}), 'axis', 'axes')} of the protocols does",
    )


def _effect(effect: "Effect", place: int) -> Record:
    spread = effect.spread
    low, high = (math.nan, math.nan) if math.isnan(spread.sd) else (spread.mean - spread.sd, spread.mean + spread.sd)
    detail = count(len(effect.changes), "change of its value", "changes of its value")
    if len(effect.changes) == 1:
        detail = labels.change(effect.changes[0].axes[0], _NAME)
    sd = "" if math.isnan(spread.sd) else f", standard deviation {percent(spread.sd)}"
    return {
        "kind": "effect",
        "axis": labels.cut(effect.axis, _NAME),
        "lane": place,
        "mean": spread.mean,
        "sd": spread.sd,
        "low": low,
        "high": high,
        "absolute": effect.absolute,
        "pairs": spread.pairs,
        "detail": detail,
        "result": points(spread.mean),
        "size": f"size {percent(effect.absolute)}, {count(spread.pairs, 'pair')}",
        "description": f"{effect.axis}: mean change {points(spread.mean)} points over {count(spread.pairs, 'pair')} of "
        f"protocols{sd}, mean size {percent(effect.absolute)}",
    }


def _ticks(change: "ValueChange", place: int) -> list[Record]:
    axis = change.axes[0]
    what = f"{axis.axis} {labels.cut(axis.left, 12)} → {labels.cut(axis.right, 12)}"
    return [
        {
            "kind": "pair",
            "lane": place,
            "start": pair.start,
            "end": pair.end,
            "change": pair.change,
            "n": pair.n,
            "description": f"{what}, {labels.cut(pair.start, 30)} to {labels.cut(pair.end, 30)}: {points(pair.change)}",
        }
        for pair in change.pairs
    ]
