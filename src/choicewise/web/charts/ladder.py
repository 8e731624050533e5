"""The way from one number to another: a row per step, with what it changes and what that does."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from choicewise.web import labels
from choicewise.web.charts.frame import (
    DESCRIPTION,
    NARROW,
    PERCENT_AXIS,
    WIDTH,
    Record,
    Records,
    frame,
    hairline,
    lane,
    layer,
    number,
    row_words,
    where,
)
from choicewise.web.number import count, error, points
from choicewise.web.theme import ACCENT, INK, NORMAL, SOFT

if TYPE_CHECKING:
    from choicewise.results.comparison import Axis
    from choicewise.results.ladder import Ladder, Step

_STEP, _TALL = 38, 58
"""Pixels of a row, and of one with its words above its bar."""

_NAME = 18
"""Width of what stands beside a row, in sizes of its font."""

CAPTION = (
    "From one number to the other, one change at a time: points, standard error paired by items (the thin line), and "
    "how many items turn right (gained) and wrong (lost)."
)


def values(climbed: "Ladder") -> list[Record]:
    """Records of the kinds ``end`` (the first and the last number) and ``step`` (one per step), from the top.

    ``before`` and ``after`` are the numbers on both sides of a step, ``low`` and ``high`` one standard error around
    the second.
    """
    records, before = [_end(climbed.start, climbed.start_value, climbed.start_n, 0, "from")], climbed.start_value
    for place, step in enumerate(climbed.steps, 1):
        records.append(_step(step, before, place))
        before = step.value
    records.append(_end(climbed.end, climbed.end_value, climbed.end_n, len(climbed.steps) + 1, "to"))
    return records


def spec(values: Records, width: int = WIDTH) -> dict[str, Any]:
    """The chart of such values."""
    narrow = width < NARROW
    left, right = (12, 28) if narrow else (_NAME * NORMAL + 24, 132)
    bar = 0.74 if narrow else 0.5
    across = {"scale": {"domain": [0, 1]}, "axis": PERCENT_AXIS}
    at = lane("lane", bandPosition=bar)
    known = {"field": "after", "valid": True}
    thick = {"type": "rule", "strokeWidth": 10}
    point = {"type": "point", "shape": "circle", "opacity": 1, "size": 40, "fill": INK, "stroke": None}
    edges = {"x": {"value": -left}, "x2": {"value": width - left}, "y": lane("lane", bandPosition=0)}
    down = {"y": lane("above", bandPosition=bar), "y2": {"field": "lane", "bandPosition": bar}}
    layers = [layer(kind, hairline(), **edges) for kind in ("end", "step")]
    layers += [
        layer("step", hairline(color=SOFT), x=number("before"), **down),
        layer("end", hairline(color=SOFT), where("side", "to"), x=number("after"), **down),
    ]
    for colour, change in ((SOFT, "lt"), (ACCENT, "gte")):
        sign = {"field": "change", change: 0}
        layers.append(layer("step", {**thick, "color": colour}, sign, x=number("before"), x2={"field": "after"}, y=at))
    layers += [
        layer(
            "step", hairline(color=INK), {"field": "low", "valid": True}, x=number("low"), x2={"field": "high"}, y=at
        ),
        layer("step", {**point, "size": 24}, known, x=number("after", **across), y=at, description=DESCRIPTION),
        layer("end", point, known, x=number("after"), y=at, description=DESCRIPTION),
    ]
    for kind, weight in (("end", 600), ("step", "normal")):
        layers += row_words(kind, ("title", "detail", "result", "items"), left, width, fontWeight=weight)
    return frame(
        values,
        layers,
        width=width,
        left=left,
        right=right,
        top=8,
        bottom=26,
        height={"step": _TALL if narrow else _STEP},
        about=_about(values),
    )


def _end(name: str, value: float, n: int, place: int, side: str) -> Record:
    shown = labels.cut(name, _NAME)
    return {
        "kind": "end",
        "side": side,
        "protocol": name,
        "lane": place,
        "above": max(place - 1, 0),
        "after": value,
        "n": n,
        "title": shown,
        "detail": side,
        "result": labels.share(value),
        "items": count(n, "item"),
        "description": f"{side} {shown}: {labels.share(value)} of {count(n, 'item')}",
    }


def _step(step: "Step", before: float, place: int) -> Record:
    title, detail = _changed(step.axes)
    low, high = (math.nan, math.nan) if math.isnan(step.se) else (step.value - step.se, step.value + step.se)
    result, items = f"{points(step.change)} {error(step.se)}".strip(), f"{step.gained:,} gained, {step.lost:,} lost"
    return {
        "kind": "step",
        "protocol": step.name,
        "axes": [each.axis for each in step.axes],
        "lane": place,
        "above": place - 1,
        "before": before,
        "after": step.value,
        "change": step.change,
        "se": step.se,
        "low": low,
        "high": high,
        "n": step.n,
        "gained": step.gained,
        "lost": step.lost,
        "title": title,
        "detail": detail,
        "result": result,
        "items": items,
        "description": f"{title} {detail}: {result} points over {count(step.n, 'item')}, {items}; "
        f"reaches {labels.cut(step.name, labels.SAID)} with {labels.share(step.value)}",
    }


def _changed(axes: "tuple[Axis, ...]") -> tuple[str, str]:
    """What a step changes: the axes, and from what to what."""
    if len(axes) == 1:
        return axes[0].axis, labels.change(axes[0], _NAME)
    return _names([axis.axis for axis in axes]), f"{len(axes)} axes together"


def _names(axes: Sequence[str]) -> str:
    """As many names as there is room for."""
    text = ""
    for rest in range(len(axes)):
        text = ", ".join([*axes[: len(axes) - rest], *([f"{rest} more"] if rest else [])])
        if labels.em(text) <= _NAME:
            break
    return text


def _about(values: Records) -> str:
    start, *steps, end = values
    return (
        f"The way from {start['title']} ({start['result']}) to {end['title']} ({end['result']}) in "
        f"{count(len(steps), 'step')}, one changed axis a step"
    )
