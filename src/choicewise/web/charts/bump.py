"""The order of several models under every protocol, drawn: a line per model over columns sorted by similarity."""

from collections.abc import Mapping, Sequence
from typing import Any

from choicewise.web.charts.bump_values import MODEL, SHOWN, values
from choicewise.web.charts.frame import (
    DESCRIPTION,
    PERCENT_AXIS,
    WIDTH,
    Record,
    Records,
    frame,
    hairline,
    layer,
    note,
    number,
    rank_axis,
    words,
)
from choicewise.web.labels import em
from choicewise.web.theme import INK, LINE, MARK, MODELS, NORMAL, PAPER, SHAPES, SMALL, SOFT

__all__ = ["spec", "values"]

_LEFT, _COLUMN = 64, 12
"""Pixels left of the columns, and of a column at least."""

_RANK, _LOWEST, _HIGHEST, _VALUE = 44, 190, 640, 380
"""Pixels of a rank, of all ranks at least and at most, and from 0 to 100 %."""

_MANY = 40
"""With more models, the grey lines are hairlines."""

_APART = 15
"""Pixels between two names of models."""

_TAU, _NAME = 8, 48
"""Pixels below the columns at which Kendall's τ and the names of protocols begin."""

CAPTION = (
    "Every column is a protocol; neighbours order the models alike. Lines are thick where two models change places and "
    "each is significantly ahead on its side (paired test, Holm's correction over protocols). Pale bars: 95 % "
    "intervals. τ: Kendall's rank agreement with the first column."
)


def spec(values: Records, rank: bool = True, width: int = WIDTH) -> dict[str, Any]:
    """The chart of such values, of ranks or of values; wider than ``width`` where that leaves columns too little room.

    Its data differ from ``values`` in the places of the models' names, which must not lie on each other.
    """
    columns = sum(record["kind"] == "column" for record in values)
    lines = {(record["kind"], record.get("slot", record.get("line"))) for record in values if "place" in record}
    models = max(sum(kind in ("place", "line") for kind, _ in lines), 1)
    height = min(max(models * _RANK, _LOWEST), _HIGHEST) if rank else _VALUE
    right = MODEL * NORMAL + 48
    width = max(width, _LEFT + right + columns * _COLUMN)
    at = "place" if rank else "value"
    scale: dict[str, Any] = {"domain": [0.5, models + 0.5], "reverse": True} if rank else {"domain": [0, 1]}
    scale |= {"nice": False, "zero": False}
    up = number(at, scale=scale, axis={**rank_axis(models), "title": None} if rank else PERCENT_AXIS)
    across = number("column", axis=None, scale={"domain": [-0.5, max(columns, 1) - 0.5], "nice": False, "zero": False})
    pixels = height / models if rank else height
    longest = max((em(record["label"]) for record in values if record["kind"] == "column"), default=0.0)
    return frame(
        _with_room(values, at, _APART / pixels, (0.5, models + 0.5) if rank else (0.0, 1.0)),
        [*_columns(across, "rank" if rank else ""), *_lines(across, up, rank, columns, models), *_names(up)],
        width=width,
        left=_LEFT,
        right=right,
        top=24,
        bottom=round(longest * SMALL) + _NAME + 8,
        height=height,
        about=_about(models, columns, rank),
    )


def _columns(across: Mapping[str, Any], what: str) -> list[dict[str, Any]]:
    """A line, Kendall's τ and the name of the protocol for every column, and what the figures are."""
    below = {"x": across, "y": {"value": "height"}}
    turned = {"angle": 270, "align": "right"}
    heading = layer("column", note(align="right"), {"field": "column", "equal": 0}, x={"value": -10})
    texts = {what: (0, -10), "τ": ("height", _TAU + 12), "protocol": ("height", _NAME + 22)}
    return [
        layer("column", hairline(opacity=0.6), x=across, y={"value": 0}, y2={"value": "height"}),
        layer("column", note(**turned, dx=-_TAU), **below, text=words("agreement")),
        layer("column", note(**turned, dx=-_NAME), **below, text=words("label"), description=DESCRIPTION),
        *(
            {
                **heading,
                "mark": {**heading["mark"], "dy": dy},
                "encoding": {**heading["encoding"], "y": {"value": y}, "text": {"value": text}},
            }
            for text, (y, dy) in texts.items()
        ),
    ]


def _lines(
    across: Mapping[str, Any], up: Mapping[str, Any], rank: bool, columns: int, models: int
) -> list[dict[str, Any]]:
    at, low, high = ("place", "rank_low", "rank_high") if rank else ("value", "ci_low", "ci_high")
    coloured = {"color": _slots(MODELS)}
    size = 60 if columns <= 20 else 36
    dot = {"type": "point", "filled": True, "opacity": 1, "stroke": PAPER, "strokeWidth": 1, "size": size}
    bar = {"type": "rule", "strokeWidth": 2, "opacity": 0.28}
    ends = {"x": across, "x2": {"field": "next"}, "y": up, "y2": {"field": f"next_{at}"}}
    known = {"field": low, "valid": True}
    path = {"type": "line", "strokeWidth": 1.75, "strokeJoin": "round"}
    grey = {"color": LINE, "strokeWidth": 0.5} if models > _MANY else {"color": MARK, "strokeWidth": 1}
    detail = {"field": "line", "type": "nominal"}
    return [
        layer("line", {**path, **grey}, x=across, y=up, detail=detail, description=DESCRIPTION),
        layer("place", bar, known, x=number("beside", axis=None), y=number(low), y2={"field": high}, **coloured),
        layer("place", path, x=across, y=up, **coloured),
        layer("crossing", {"type": "rule", "strokeWidth": 5}, **ends, **coloured, description=DESCRIPTION),
        layer("place", dot, x=across, y=up, **coloured, shape=_slots(SHAPES), description=DESCRIPTION),
    ]


def _names(up: Mapping[str, Any]) -> list[dict[str, Any]]:
    beside = number("label_at")
    sign = {"type": "point", "filled": True, "opacity": 1, "size": 60, "xOffset": 7}
    text = {"type": "text", "align": "left", "baseline": "middle", "color": INK, "limit": MODEL * NORMAL + 8}
    coloured, grey = {"field": "slot", "valid": True}, {"field": "slot", "valid": False}
    place = {"x": {"value": "width"}, "y": beside}
    return [
        layer("model", sign, coloured, **place, color=_slots(MODELS), shape=_slots(SHAPES)),
        layer("model", {**text, "dx": 17}, coloured, **place, text=words("label")),
        layer("model", {**text, "dx": 17, "color": SOFT}, grey, **place, text=words("label")),
    ]


def _slots(range_: Sequence[str]) -> dict[str, Any]:
    scale = {"domain": list(range(SHOWN)), "range": list(range_)}
    return {"field": "slot", "type": "nominal", "scale": scale, "legend": None}


def _with_room(values: Records, at: str, apart: float, bounds: tuple[float, float]) -> list[Record]:
    """The records, those of names with the place ``label_at`` at least ``apart`` from each other, within ``bounds``."""
    names = sorted((record for record in values if record["kind"] == "model"), key=lambda record: record[at])
    places: list[float] = []
    for record in names:
        places.append(max(record[at], places[-1] + apart if places else bounds[0]))
    limit = bounds[1]
    for number_ in reversed(range(len(places))):
        places[number_] = min(places[number_], limit)
        limit = places[number_] - apart
    shifted = [{**record, "label_at": place} for record, place in zip(names, places, strict=True)]
    return [*(record for record in values if record["kind"] != "model"), *shifted]


def _about(models: int, columns: int, rank: bool) -> str:
    what = "ranks" if rank else "values"
    return f"The {what} of {models} models under {columns} protocols, sorted by the similarity of their orders"
