"""Does the order hold: the ranks of every model over all protocols, or with their interval under one."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from choicewise.results.ranks import measured_as
from choicewise.results.row import Row
from choicewise.web import labels
from choicewise.web.charts.frame import (
    DESCRIPTION,
    NARROW,
    WIDTH,
    Record,
    Records,
    frame,
    hairline,
    lane,
    layer,
    named,
    note,
    number,
    rank_axis,
    words,
)
from choicewise.web.number import count
from choicewise.web.theme import INK, NORMAL, PAPER, SOFT

_ROOMY, _DENSE, _MANY = 44, 15, 30
"""Pixels of a row, and of one where there are more models than this."""

_MODEL, _SHORT = 13, 9
"""Widths of the names of models, on wide and narrow charts, in sizes of the font."""

_COUNTED = 12
"""With more ranks, the counts are not written beside the dots."""

CAPTION = "How many protocols give each model each rank: the area of a dot, and the number beside it."
CAPTION_ONE = "Rank under this protocol, and the ranks in 95 % of draws of items."


def values(rows: Sequence[Row], protocol: str | None = None) -> list[Record]:
    """Records of the kinds ``model`` (a row each, the best first) and ``rank`` (a dot).

    ``rows``: ranked, of several models; a rank without a rival is none.  ``protocol``: of this one alone, with the
    interval of each rank.
    """
    known = [row for row in rows if row.rank is not None and protocol in (None, row.protocol)]
    rivals = Counter(map(measured_as, known))
    ranks: dict[str, list[Row]] = {}
    for row in known:
        if rivals[measured_as(row)] > 1:
            ranks.setdefault(row.model, []).append(row)
    of = {model: [row.rank or 0 for row in own] for model, own in ranks.items()}
    ordered = sorted(ranks, key=lambda model: (median(of[model]), sum(of[model]) / len(of[model])))
    records: list[Record] = []
    for place, model in enumerate(ordered):
        if protocol is None:
            records += _over_protocols(model, of[model], place, len(ordered))
        else:
            records += _under_one(ranks[model][0], place, len(ordered))
    names, shorter = labels.cut_apart(ordered, _MODEL), labels.cut_apart(ordered, _SHORT)
    for record in records:
        if record["kind"] == "model":
            record |= {"label": names[record["model"]], "short": shorter[record["model"]]}
    return records


def spec(values: Records, width: int = WIDTH) -> dict[str, Any]:
    """The chart of such values."""
    narrow = width < NARROW
    models = sum(record["kind"] == "model" for record in values)
    dense = models > _MANY
    step = _DENSE if dense else _ROOMY
    left = (_SHORT if narrow else _MODEL) * NORMAL + 24
    right = 28 if narrow else 150
    scale = {"domain": [1, max(models, 2)], "nice": False, "zero": False}
    across = number("rank", scale=scale, axis={**rank_axis(max(models, 1)), "offset": 4})
    label = words("short" if narrow else "label")
    name = {"type": "text", "align": "left", "baseline": "middle", "color": INK}
    reach = {"type": "rule", "color": SOFT, "strokeWidth": 0.75 if dense else 1.5}
    layers = [
        layer("model", hairline(), x={"value": 0}, x2={"value": "width"}, y=lane()),
        layer("model", reach, {"field": "low", "valid": True}, x=number("low"), x2={"field": "high"}, y=lane()),
        *(_dense_dots(across) if dense else _dots(across, step, models <= _COUNTED)),
        layer("model", name, x={"value": 12 - left}, y=lane(), text=label, description=DESCRIPTION),
    ]
    if not narrow:
        edge = {"value": width - left - 12}
        layers.append(layer("model", note(align="right"), x=edge, y=lane(), text=words("detail")))
    return frame(
        values,
        layers,
        width=width,
        left=left,
        right=right,
        top=20,
        bottom=50,
        height={"step": step},
        about=f"The ranks of {count(models, 'model')}",
    )


def _dots(across: Mapping[str, Any], step: int, counted: bool) -> list[dict[str, Any]]:
    """A dot per rank, its area the share of the protocols, with how many these are."""
    scale = {"domain": [0, 1], "range": [0, step * step / 4]}
    area = {"field": "share", "type": "quantitative", "legend": None, "scale": scale}
    dot = {"type": "point", "shape": "circle", "fill": INK, "stroke": PAPER, "strokeWidth": 1, "opacity": 1}
    above = note(align="center", dy=-step * 0.29, baseline="bottom")
    return [
        layer("rank", dot, x=across, y=lane(), size=area, description=DESCRIPTION),
        *(named("rank", above, x=number("rank"), y=lane(), text=words("label")) if counted else []),
    ]


def _dense_dots(across: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A faint tick per rank, and a dot at the median."""
    tick = {"type": "point", "shape": "M0,-1L0,1", "size": 49, "stroke": SOFT, "strokeWidth": 1, "opacity": 0.5}
    dot = {"type": "point", "shape": "circle", "fill": INK, "stroke": PAPER, "strokeWidth": 1, "opacity": 1, "size": 40}
    return [
        layer("rank", tick, x=across, y=lane()),
        layer("model", dot, x=number("median"), y=lane(), description=DESCRIPTION),
    ]


def _over_protocols(model: str, ranks: Sequence[int], place: int, models: int) -> list[Record]:
    counts = Counter(ranks)
    low, high = min(ranks), max(ranks)
    shown = labels.cut(model, labels.SAID)
    first = f"first under {counts[1]} of {len(ranks)}"
    row = _model(model, place, low, high, median(ranks), first)
    row["description"] = f"{shown}: rank {low} to {high} over {count(len(ranks), 'protocol')}, {first}"
    return [
        row,
        *(
            {
                "kind": "rank",
                "model": model,
                "lane": place,
                "rank": rank,
                "count": number_,
                "share": number_ / len(ranks),
                "label": f"{number_}",
                "description": f"{shown}: rank {rank} of {models} under {number_} of {count(len(ranks), 'protocol')}",
            }
            for rank, number_ in sorted(counts.items())
        ),
    ]


def _under_one(row: Row, place: int, models: int) -> list[Record]:
    low, high = (math.nan if each is None else each for each in (row.rank_low, row.rank_high))
    bounds = "" if row.rank_low is None else f", between {row.rank_low} and {row.rank_high} in 95 % of draws of items"
    value = f"{labels.share(row.value)}"
    shown = _model(row.model, place, low, high, row.rank or 0, value)
    about = f"{labels.cut(row.model, labels.SAID)}: rank {row.rank} of {models}{bounds}, {value}"
    shown["description"] = about
    dot = {"kind": "rank", "model": row.model, "lane": place, "rank": row.rank, "count": 1, "share": 0.25, "label": ""}
    return [shown, {**dot, "description": about}]


def _model(model: str, place: int, low: float, high: float, middle: float, detail: str) -> Record:
    return {
        "kind": "model",
        "model": model,
        "lane": place,
        "low": low,
        "high": high,
        "median": middle,
        "detail": detail,
    }
