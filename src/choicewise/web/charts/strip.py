"""All numbers of one model: a block per family, in it a dot with its 95 % interval for every protocol."""

import math
from typing import Any

from choicewise.web import labels
from choicewise.web.charts.frame import (
    DESCRIPTION,
    NARROW,
    PERCENT_AXIS,
    WIDTH,
    Records,
    frame,
    hairline,
    lane,
    layer,
    named,
    note,
    number,
    rank_axis,
    where,
    words,
)
from choicewise.web.charts.strip_values import FAMILY, lane_pixels, values
from choicewise.web.theme import ACCENT, INK, NORMAL, PAPER, SOFT

__all__ = ["CAPTION_OWN", "caption", "spec", "values"]

CAPTION_OWN = (
    "Every dot is a number of the model under one protocol, the line its 95 % interval. Dashed: what guessing gives."
)
CAPTION = f"{CAPTION_OWN} Hollow: numbers that others published for other models, on MMLU."
"""How to read it, without and with published numbers."""


def caption(values: Records) -> str:
    """How to read a chart of such values."""
    return CAPTION if any(record["kind"] == "published" for record in values) else CAPTION_OWN


def spec(values: Records, rank: bool = False, width: int = WIDTH) -> dict[str, Any]:
    """The chart of such values; ``rank``: of the rank among the models measured alike instead of the value."""
    narrow = width < NARROW
    left, right = (12, 28) if narrow else (FAMILY * NORMAL + 24, 32)
    at, low, high = ("rank", "rank_low", "rank_high") if rank else ("value", "ci_low", "ci_high")
    across = number(at, **(_rank_axis(values) if rank else {"scale": {"domain": [0, 1]}, "axis": PERCENT_AXIS}))
    numbers = [record for record in values if record["kind"] == "number"]
    step = lane_pixels(len(numbers))
    tops = lane("top", max((record["lane"] for record in numbers), default=0), bandPosition=0)
    layers = [layer("family", hairline(), x={"value": -left}, x2={"value": "width"}, y=tops)]
    layers += [] if rank else [*_chance_layers(), _published_layer()]
    for chosen, line, dot in ((False, SOFT, INK), (True, ACCENT, ACCENT)):
        own = ({"field": at, "valid": True}, where("chosen", chosen))
        bar = {"type": "rule", "color": line, "strokeWidth": (2 if chosen else 1.25) * min(step / 5, 1)}
        point = {"type": "point", "fill": dot, "opacity": 1, "size": 40 if chosen else min(5 * step, 40)}
        point |= {"stroke": PAPER, "strokeWidth": min(step / 9, 1)}
        layers.append(layer("number", bar, *own, x=number(low), x2={"field": high}, y=lane()))
        layers.append(layer("number", point, *own, x=across, y=lane(), description=DESCRIPTION))
    missing = {"x": {"value": 0}, "y": lane(), "text": words("absent"), "description": DESCRIPTION}
    layers.append(layer("number", note(align="left", dx=4), {"field": at, "valid": False}, **missing))
    layers += _family_layers(left, narrow)
    layers += [] if rank else _name_layers(narrow)
    return frame(
        values,
        layers,
        width=width,
        left=left,
        right=right,
        top=22,
        bottom=42 if rank else 26,
        height={"step": step},
        about=_about(values),
    )


def _chance_layers() -> list[dict[str, Any]]:
    line = hairline(color=SOFT, strokeDash=[4, 3])
    edges = {"y": lane("first", bandPosition=0), "y2": {"field": "last", "bandPosition": 1}}
    text = {"x": number("chance"), "text": words("label")}
    return [
        layer("chance", line, x=number("chance"), **edges),
        layer("chance", note(), where("first", 0), y={"value": -10}, **text),
        layer("chance", note(align="left", dx=4), {"field": "first", "gt": 0}, y=lane("first"), **text),
    ]


def _family_layers(left: int, narrow: bool) -> list[dict[str, Any]]:
    text = {"type": "text", "align": "left", "baseline": "middle", "color": INK}
    if narrow:
        above = {"x": {"value": 0}, "y": lane("under_top", bandPosition=0), "text": words("heading")}
        return named("family", text, **above, description=DESCRIPTION)
    beside = {"x": {"value": 12 - left}, "y": lane("middle")}
    limit = {"limit": left - 20}
    return [
        layer("family", {**text, **limit, "dy": -6}, **beside, text=words("label"), description=DESCRIPTION),
        layer("family", note(align="left", dy=7), **beside, text=words("count")),
    ]


def _published_layer() -> dict[str, Any]:
    look = {"size": 45, "fill": PAPER, "stroke": SOFT, "strokeWidth": 1.25, "opacity": 1}
    mark = {"type": "point", "shape": "diamond", **look}
    return layer("published", mark, x=number("published"), y=lane(), description=DESCRIPTION)


def _name_layers(narrow: bool) -> list[dict[str, Any]]:
    """The names; on narrow charts only what stands right of the middle, as the families' names stand on the left."""
    sides: dict[str, dict[str, Any]] = {
        "center": {"align": "center"},
        "left": {"align": "left"},
        "right": {"align": "right"},
    }
    sides |= {"before": {"align": "right", "dx": -6}, "after": {"align": "left", "dx": 8}}
    kept = [{"field": "at", "gte": 0.6}] if narrow else []
    layers = []
    for side, place in sides.items():
        for chosen, colour in ((False, SOFT), (True, ACCENT)):
            filters = (where("side", side), where("chosen", chosen), *kept)
            mark = note(**place, color=colour)
            layers += named("name", mark, *filters, x=number("at"), y=lane(), text=words("label"))
    return layers


def _rank_axis(values: Records) -> dict[str, Any]:
    """The best rank on the right, as the greatest value is."""
    ranks = [record[name] for record in values if record["kind"] == "number" for name in ("rank", "rank_high")]
    most = max((rank for rank in ranks if rank is not None), default=1)
    scale = {"domain": [1, max(most, 2)], "reverse": True, "zero": False, "nice": False}
    return {"scale": scale, "axis": rank_axis(most)}


def _about(values: Records) -> str:
    shares = [record["value"] for record in values if record["kind"] == "number" and not math.isnan(record["value"])]
    if not shares:
        return "All numbers of one model: no item was scored"
    return (
        f"All numbers of one model: {len(shares)}, from {labels.share(min(shares))} to {labels.share(max(shares))}, "
        "each with its 95 % interval, by family"
    )
