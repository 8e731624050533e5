"""Two models: the difference of their values with its interval, a row per protocol."""

import math
from collections.abc import Sequence
from typing import Any, Protocol

from choicewise.report.words import probability
from choicewise.scoring.statistics.paired import Difference
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
    note,
    number,
    where,
    words,
)
from choicewise.web.number import count, points
from choicewise.web.theme import INK, PAPER, SMALL, SOFT

_STEP = 14
"""Pixels of a row."""

_PROTOCOL, _SHORT, _MODEL = 14, 10, 12
"""Widths of the names of protocols (on narrow charts) and models, in sizes of the font."""

LEVEL = 0.05

CAPTION = (
    "Difference in points with its 95 % interval, paired by items. Filled: significant after Holm's correction for all "
    "protocols; hollow: these items can't tell the two apart."
)


class Contest(Protocol):
    """Two models under one protocol: left minus right, and its p value after Holm's correction."""

    @property
    def protocol(self) -> str:
        """Its name."""

    @property
    def difference(self) -> Difference:
        """Left minus right, a share of 1."""

    @property
    def p_holm(self) -> float:
        """NaN where there was no test."""


def values(left: str, right: str, contests: Sequence[Contest]) -> list[Record]:
    """Records of the kinds ``difference`` (a row per protocol, the greatest first) and ``side`` (the two models)."""
    prefix = labels.shared_prefix([contest.protocol for contest in contests])
    known = sorted(contests, key=lambda each: math.inf if math.isnan(each.difference.value) else -each.difference.value)
    models = [labels.cut(model, _MODEL) for model in (left, right)]
    sides = {"left": (right, f"← {models[1]} ahead"), "right": (left, f"{models[0]} ahead →")}
    return [
        *(_difference(contest, place, prefix, models) for place, contest in enumerate(known)),
        *({"kind": "side", "side": side, "model": model, "label": text} for side, (model, text) in sides.items()),
    ]


def spec(values: Records, width: int = WIDTH) -> dict[str, Any]:
    """The chart of such values."""
    narrow = width < NARROW
    left = (_SHORT if narrow else _PROTOCOL) * SMALL + 24
    right = 28 if narrow else 76
    rows = [record for record in values if record["kind"] == "difference"]
    scale = around_zero(0.02, (record[name] for record in rows for name in ("value", "low", "high")))
    across = number("value", scale=scale, axis=POINTS_AXIS)
    known = {"field": "value", "valid": True}
    point = {"type": "point", "shape": "circle", "opacity": 1, "size": 44, "stroke": INK, "strokeWidth": 1.25}
    layers = [
        layer(
            "difference",
            hairline(color=SOFT),
            x={"datum": 0},
            y=lane(bandPosition=0),
            y2={"field": "lane", "bandPosition": 1},
        ),
        layer(
            "difference",
            {"type": "rule", "color": SOFT, "strokeWidth": 1.25},
            {"field": "low", "valid": True},
            x=number("low"),
            x2={"field": "high"},
            y=lane(),
        ),
    ]
    for significant, fill in ((False, PAPER), (True, INK)):
        filters = (known, where("significant", significant))
        layers.append(
            layer("difference", {**point, "fill": fill}, *filters, x=across, y=lane(), description=DESCRIPTION)
        )
    name, edge = {"value": 12 - left}, {"value": width - left - 12}
    label = words("short" if narrow else "label")
    layers.append(layer("difference", note(align="left", color=INK), x=name, y=lane(), text=label))
    if not narrow:
        layers.append(layer("difference", note(align="right"), x=edge, y=lane(), text=words("result")))
    above = {"left": (0, -27 if narrow else -12), "right": ("width", -12)}
    for side, (x, y) in above.items():
        place = {"x": {"value": x}, "y": {"value": y}}
        layers.append(layer("side", note(align=side), where("side", side), **place, text=words("label")))
    return frame(
        values,
        layers,
        width=width,
        left=left,
        right=right,
        top=40 if narrow else 28,
        bottom=42,
        height={"step": _STEP},
        about=f"The difference between two models under {count(len(rows), 'protocol')}, in points",
    )


def _difference(contest: Contest, place: int, prefix: str, models: Sequence[str]) -> Record:
    difference = contest.difference
    significant = contest.p_holm <= LEVEL
    bounds = (
        ""
        if math.isnan(difference.ci_low)
        else (f", 95 % interval {points(difference.ci_low)} to {points(difference.ci_high)}")
    )
    test = f", {probability(contest.p_holm)} after Holm's correction" if not math.isnan(contest.p_holm) else ""
    said = f"{points(difference.value)} points over {count(difference.n, 'item')}{bounds}{test}"
    name = contest.protocol.removeprefix(prefix)
    return {
        "kind": "difference",
        "protocol": contest.protocol,
        "lane": place,
        "value": difference.value,
        "low": difference.ci_low,
        "high": difference.ci_high,
        "n": difference.n,
        "p_holm": contest.p_holm,
        "significant": significant,
        "label": labels.cut(name, _PROTOCOL),
        "short": labels.cut(name, _SHORT),
        "result": points(difference.value) if difference.n else "no item",
        "description": f"{labels.cut(contest.protocol, labels.SAID)}: {models[0]} minus {models[1]} {said}"
        if difference.n
        else f"{labels.cut(contest.protocol, labels.SAID)}: no item was scored with both",
    }
