"""What the specifications of all charts share: the frame around the marks, and layers of one kind of records."""

from collections.abc import Mapping, Sequence
from typing import Any

from choicewise.results.json_value import json_value
from choicewise.web.theme import CONFIG, LINE, PAPER, SMALL, SOFT

Record = dict[str, Any]
"""One row of a chart's data: its ``kind`` says which layer draws it, NaN is null."""

WIDTH = 760
"""Pixels of a chart unless the caller says otherwise."""

NARROW = 560
"""Below so many pixels, names stand above their rows instead of beside them."""

_SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"

PERCENT_AXIS: Mapping[str, Any] = {
    "values": [0, 0.25, 0.5, 0.75, 1],
    "labelExpr": "format(100 * datum.value, '.0f') + ' %'",
    "labelFlush": False,
    "title": None,
}


def frame(
    values: Sequence[Record],
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
        "data": {"values": json_value(list(values))},
        "layer": list(layers),
    }


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


def lane(field: str = "lane", **more: Any) -> dict[str, Any]:
    """The vertical channel of charts in lanes, which are counted from 0 at the top."""
    scale = {"type": "band", "paddingInner": 0, "paddingOuter": 0}
    return {"field": field, "type": "ordinal", "axis": None, "scale": scale, **more}


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


def hairline(**more: Any) -> dict[str, Any]:
    """A mark for a thin grey line."""
    return {"type": "rule", "color": LINE, "strokeWidth": 1, **more}


DESCRIPTION: Mapping[str, Any] = words("description")
"""What a screen reader says about a mark."""
