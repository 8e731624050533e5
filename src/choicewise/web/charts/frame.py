"""What the specifications of all charts share: the frame around the marks, and layers of one kind of records."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from choicewise.results.json_value import json_value
from choicewise.web.labels import harmless
from choicewise.web.theme import CONFIG, INK, LINE, PAPER, SMALL, SOFT

Record = dict[str, Any]
"""One row of a chart's data: its ``kind`` says which layer draws it, NaN is null."""

Records = Sequence[Record]

WIDTH = 760
"""Pixels of a chart unless the caller says otherwise."""

NARROW = 560
"""Below so many pixels, names stand above their rows instead of beside them."""

_SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"

PERCENT_AXIS: Mapping[str, Any] = {
    "values": [0, 0.25, 0.5, 0.75, 1],
    "labelExpr": "format(100 * datum.value, '.0f') + ' %'",
    "title": None,
}

POINTS_AXIS: Mapping[str, Any] = {
    "labelExpr": "(datum.value > 0 ? '+' : datum.value < 0 ? '−' : '') + format(100 * abs(datum.value), '.0f')",
    "tickCount": 7,
    "title": "points",
}


def rank_axis(models: int) -> dict[str, Any]:
    """The axis of ranks: whole numbers, the first and the last among them."""
    step = next(size for size in (1, 2, 5, 10, 20, 25, 50, 100, 10**6) if models / size <= 12)
    between = [rank for rank in range(step, models, step) if rank > 1 and models - rank >= step / 2]
    return {"values": list(dict.fromkeys([1, *between, models])), "format": "d", "title": "rank (1 is the best)"}


def frame(
    values: Records,
    layers: Sequence[Mapping[str, Any]],
    *,
    width: int,
    left: int,
    right: int,
    top: int,
    bottom: int,
    height: Any,
    about: str,
) -> dict[str, Any]:
    """The specification of a chart that is ``width`` pixels wide with its margins, whatever the texts in them.

    ``about``: what it shows, in words, for those who hear it.
    """
    return {
        "$schema": _SCHEMA,
        "description": about,
        "width": max(width - left - right, 40),
        "height": height,
        "autosize": {"type": "none"},
        "padding": {"left": left, "right": right, "top": top, "bottom": bottom},
        "config": dict(CONFIG),
        "data": {"values": [_harmless(record) for record in values]},
        "layer": list(layers),
    }


def _harmless(record: Record) -> Record:
    """The record as JSON can hold it."""
    return {name: harmless(value) if isinstance(value, str) else json_value(value) for name, value in record.items()}


def layer(kind: str, mark: Mapping[str, Any], *filters: Any, **encoding: Any) -> dict[str, Any]:
    """A layer that draws the records of one ``kind``; marks without a description are hidden from screen readers."""
    alike = {"field": "kind", "equal": kind}
    return {
        "transform": [{"filter": each} for each in (alike, *filters)],
        "mark": {"aria": "description" in encoding, **mark},
        "encoding": encoding,
    }


def where(field: str, value: Any) -> dict[str, Any]:
    """A filter of records."""
    return {"field": field, "equal": value}


def number(field: str, **more: Any) -> dict[str, Any]:
    """A channel for a number."""
    return {"field": field, "type": "quantitative", **more}


def lane(field: str = "lane", last: int | None = None, **more: Any) -> dict[str, Any]:
    """The vertical channel of charts in lanes, which are counted from 0 at the top.

    ``last``: the last lane, to be given in one layer where there are empty ones.
    """
    scale: dict[str, Any] = {"type": "band", "paddingInner": 0, "paddingOuter": 0}
    if last is not None:
        scale["domain"] = list(range(last + 1))
    return {"field": field, "type": "ordinal", "axis": None, "scale": scale, **more}


def around_zero(least: float, edges: Iterable[float]) -> dict[str, Any]:
    """The scale of differences: from the lowest to the highest of ``edges``, at least ``least`` either side of zero."""
    known = [edge for edge in edges if not math.isnan(edge)]
    domain = [min([-least, *known]), max([least, *known])]
    return {"domain": domain, "nice": True, "zero": True}


def words(field: str) -> dict[str, Any]:
    """A channel for text."""
    return {"field": field, "type": "nominal"}


def note(**more: Any) -> dict[str, Any]:
    """A mark for small grey text."""
    return {"type": "text", "fontSize": SMALL, "color": SOFT, "baseline": "middle", **more}


def named(kind: str, mark: Mapping[str, Any], *filters: Any, **encoding: Any) -> list[dict[str, Any]]:
    """Layers of text that stays readable on lines: a rim in the colour of the paper, and the text on it."""
    rim = {**mark, "stroke": PAPER, "strokeWidth": 4, "strokeJoin": "round", "color": PAPER}
    return [layer(kind, rim, *filters, **encoding), layer(kind, mark, *filters, **encoding)]


def row_words(kind: str, fields: Sequence[str], left: int, width: int, **look: Any) -> list[dict[str, Any]]:
    """Two lines of text on either side of a row's marks, or above them where the chart is narrow.

    ``fields``: upper and lower on the left, then on the right; ``look``: of the upper ones.
    """
    narrow = width < NARROW
    first, second = (0.17, 0.42) if narrow else (0.32, 0.68)
    beside, edge = {"value": 0 if narrow else 12 - left}, {"value": "width" if narrow else width - left - 12}
    upper, lower = lane("lane", bandPosition=first), lane("lane", bandPosition=second)
    name = {"type": "text", "baseline": "middle", "color": INK, **look}
    title, detail, result, size = map(words, fields)
    return [
        *named(kind, {**name, "align": "left"}, x=beside, y=upper, text=title),
        *named(kind, note(align="left"), x=beside, y=lower, text=detail),
        *named(kind, {**name, "align": "right"}, x=edge, y=upper, text=result),
        *named(kind, note(align="right"), x=edge, y=lower, text=size),
    ]


def hairline(**more: Any) -> dict[str, Any]:
    """A mark for a thin grey line."""
    return {"type": "rule", "color": LINE, "strokeWidth": 1, **more}


DESCRIPTION: Mapping[str, Any] = words("description")
"""What a screen reader says about a mark."""
