"""Draw the bump chart: models over protocols, by rank or value."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from itertools import combinations
from statistics import median
from typing import Any

import numpy as np

from choicewise.page.charts import chart
from choicewise.page.charts.chart import Record, Records
from choicewise.page.study import Lead
from choicewise.results.ladder import order_agreement, seriated
from choicewise.results.number import Number
from choicewise.results.outcomes import measured_as
from choicewise.util.jsonio import JsonDict, JsonMapping
from choicewise.util.text import counted

SHOWN = len(chart.MODELS)
"""Models that have a colour and a shape; of more, the others are grey."""

MODEL = 14
"""Width of the names of models, in sizes of the font."""

PROTOCOL = 18
"""Width of the names of protocols, in sizes of the font."""

_LEFT = 64
"""Pixels left of the columns."""

_COLUMN = 12
"""Pixels of a column at least."""

_RANK = 44
"""Pixels of a rank."""

_LOWEST = 190
"""Pixels of all ranks at least."""

_HIGHEST = 640
"""Pixels of all ranks at most."""

_VALUE = 380
"""Pixels from 0 to 100 %."""

_MANY = 40
"""Models from which on the grey lines are hairlines."""

_DISTANCE = 15
"""Pixels between two names of models."""

_TAU = 8
"""Pixels below the columns at which Kendall's τ begins."""

_NAME = 48
"""Pixels below the columns at which the names of protocols begin."""

_BESIDE = 0.5
"""Part of a column over which the intervals of the models are side by side."""

_FEW = 70
"""Columns from which on intervals take that part; with fewer they take less."""

_NAMED = 20
"""Models that all have their names beside their lines; of more, only those in colour."""

_TIED = 0.3
"""How far apart lines of equal rank are, in ranks."""

Column = Mapping[str, Number]
"""What was measured the same way, by model."""


def caption(values: Records, rank: bool = True) -> str:
    """Return how to read a chart of such values, of ranks or of values: it names what is drawn, and
    nothing else.
    """
    edge = "rank_low" if rank else "ci_low"
    kinds = {record["kind"] for record in values}
    parts = ["One column per protocol, similar orders side by side."]
    if "crossing" in kinds:
        parts.append("Thick: two models change places, each significantly ahead on its side.")
    for record in values:
        bound = record.get(edge) if record["kind"] == "place" else None
        if bound is not None and not math.isnan(bound):
            parts.append("Pale bars: 95 % intervals.")
            break
    if "line" in kinds:
        parts.append("Grey: the other models.")
    parts.append("τ: Kendall's rank agreement with the first column.")
    return " ".join(parts)


def spec(values: Records, rank: bool = True, width: int = chart.WIDTH) -> JsonDict:
    """Return the chart of such values, of ranks or of values; it is wider than ``width`` if columns
    need more room.

    Its data differ from ``values`` in the positions of the models' names, which must not lie on
    each other.
    """
    lines = set()
    label_widths = [0.0]
    name_widths = [0.0]
    for record in values:
        if record["kind"] in ("place", "line"):
            lines.add((record["kind"], record.get("slot", record.get("line"))))
        elif record["kind"] == "column":
            label_widths.append(chart.em(record["label"]))
        elif record["kind"] == "model":
            name_widths.append(chart.em(record["label"]))
    columns = len(label_widths) - 1
    models = max(len(lines), 1)
    at = "value"
    domain = (0.0, 1.0)
    height = _VALUE
    pixels: float = height
    scale: JsonDict = {"domain": [0, 1]}
    axis: JsonDict = dict(chart.PERCENT_AXIS)
    if rank:
        at = "place"
        domain = (0.5, models + 0.5)
        height = min(max(models * _RANK, _LOWEST), _HIGHEST)
        # Names keep their distance in pixels, however many ranks share the height.
        pixels = height / models
        scale = {"domain": [0.5, models + 0.5], "reverse": True}
        axis = {**chart.rank_axis(models), "title": None}
    scale |= {"nice": False, "zero": False}
    across = chart.number(
        "column",
        axis=None,
        scale={"domain": [-0.5, max(columns, 1) - 0.5], "nice": False, "zero": False},
    )
    up = chart.number(at, scale=scale, axis=axis)
    right = round(max(name_widths) * chart.NORMAL) + 24
    title = "rank" if rank else ""
    return chart.frame(
        _with_room(values, at, _DISTANCE / pixels, domain),
        [
            *_bump_columns(across, title),
            *_lines(across, up, rank, columns, models),
            *_names(up),
        ],
        width=max(width, _LEFT + right + columns * _COLUMN),
        left=_LEFT,
        right=right,
        top=24,
        bottom=round(max(label_widths) * chart.SMALL) + _NAME + 8,
        height=height,
        description=_description(models, columns, rank),
    )


def values(
    rows: Sequence[Number],
    significant: Collection[Lead] = (),
    highlight: Sequence[str] = (),
    first: str | None = None,
) -> list[Record]:
    """Return records of the kinds ``column``, ``place`` and ``line`` (a model under a protocol, in
    colour or grey), ``crossing`` and ``model`` (a name).

    ``rows``: ranked, of several models (or of one). A column holds what was measured the same way,
    if two models were. ``significant``: two lines between neighbouring columns are thick if they
    cross and each of the two orders is among these. ``highlight``: models in colour, by default
    those with the best median rank. ``first``: protocol of the first column, by default the one
    whose order agrees best with all others.
    """
    models = list(dict.fromkeys(row.identity.model for row in rows))
    # A column with one model would order nothing.
    columns = _measured_columns(rows, min(len(models), 2))
    table = np.array([[_value(column, model) for model in models] for column in columns])
    table = table.reshape(len(columns), len(models))
    names = list(map(_protocol, columns))
    # Side by side, similar orders make lines cross rarely.
    order = seriated(table, names.index(first) if first in names else None)
    columns = [columns[index] for index in order]
    names = [names[index] for index in order]
    coloured = shown_models(rows, highlight)
    heights = [_heights(column, models) for column in columns]
    records = _column_records(names, order_agreement(table[order])[0].tolist() if columns else [])
    intervals_width = min(_BESIDE, len(columns) / _FEW)
    for line, model in enumerate(models):
        if model not in coloured:
            records += _grey(model, line, columns, heights)
            continue
        slot = coloured.index(model)
        # The intervals of models would hide each other at the middle of a column.
        shift = ((slot + 0.5) / len(coloured) - 0.5) * intervals_width
        for number, column in enumerate(columns):
            record = {
                "kind": "place",
                "model": model,
                "slot": slot,
                "column": number,
                "place": heights[number].get(model, math.nan),
                "beside": number + shift,
            }
            records.append(record | _number_fields(column.get(model), model, len(models)))
    records += _crossings(columns, heights, coloured, significant)
    # Names of very many models would lie on each other.
    named = models if len(models) <= _NAMED else coloured
    return records + _models(columns, heights, named, coloured)


def shown_models(rows: Sequence[Number], highlight: Sequence[str] = ()) -> list[str]:
    """Return the models in colour, in the order of all models: those of ``highlight``, or with the
    best ranks.
    """
    ranks: dict[str, list[float]] = {}
    for row in rows:
        rank = math.inf if row.ranks.rank is None else row.ranks.rank
        ranks.setdefault(row.identity.model, []).append(rank)
    candidates = list(ranks)
    if highlight:
        candidates = [model for model in ranks if model in highlight]
    best = sorted(candidates, key=lambda model: median(ranks[model]))[:SHOWN]
    return [model for model in ranks if model in best]


def _bump_columns(across: JsonMapping, title: str) -> list[JsonDict]:
    """Return a line, Kendall's τ and the name of the protocol for every column, and titles of the
    figures.
    """
    below = {"x": across, "y": {"value": "height"}}
    turned = {"angle": 270, "align": "right"}
    whole = {"x": across, "y": {"value": 0}, "y2": {"value": "height"}}
    line = chart.hairline(opacity=0.6)
    agreement = chart.note(**turned, dx=-_TAU)
    name = chart.note(**turned, dx=-_NAME)
    named = {"text": chart.words("label"), "description": chart.DESCRIPTION}
    return [
        chart.layer("column", line, **whole),
        chart.layer("column", agreement, **below, text=chart.words("agreement")),
        chart.layer("column", name, **below, **named),
        _heading(title, 0, -10),
        _heading("τ", "height", _TAU + 12),
        _heading("protocol", "height", _NAME + 22),
    ]


def _heading(text: str, y: Any, dy: int) -> JsonDict:
    """Return a text left of the first column, ``dy`` pixels below ``y``."""
    mark = chart.note(align="right", dy=dy)
    first = chart.where("column", 0)
    position = {"x": {"value": -10}, "y": {"value": y}}
    return chart.layer("column", mark, first, **position, text={"value": text})


def _lines(
    across: JsonMapping, up: JsonMapping, rank: bool, columns: int, models: int
) -> list[JsonDict]:
    at = "place" if rank else "value"
    low = "rank_low" if rank else "ci_low"
    high = "rank_high" if rank else "ci_high"
    coloured = {"color": chart.slots(chart.MODELS)}
    # Dots of many columns would touch.
    size = 60 if columns <= 20 else 36
    grey: JsonDict = {"color": chart.MARK, "strokeWidth": 1}
    # So many lines would be a grey area.
    if models > _MANY:
        grey = {"color": chart.LINE, "strokeWidth": 0.5}
    dot = {
        "type": "point",
        "filled": True,
        "opacity": 1,
        "stroke": chart.PAPER,
        "strokeWidth": 1,
        "size": size,
    }
    bar = {"type": "rule", "strokeWidth": 2, "opacity": 0.28}
    ends = {"x": across, "x2": {"field": "next"}, "y": up, "y2": {"field": f"next_{at}"}}
    has_bounds = {"field": low, "valid": True}
    path = {"type": "line", "strokeWidth": 1.75, "strokeJoin": "round"}
    lines: JsonDict = {"x": across, "y": up}
    lines["detail"] = {"field": "line", "type": "nominal"}
    bounds: JsonDict = {"x": chart.number("beside", axis=None)}
    bounds["y"] = chart.number(low)
    bounds["y2"] = {"field": high}
    thick = {"type": "rule", "strokeWidth": 5}
    shape = chart.slots(chart.SHAPES)
    described = {"description": chart.DESCRIPTION}
    return [
        chart.layer("line", {**path, **grey}, **lines, **described),
        chart.layer("place", bar, has_bounds, **bounds, **coloured),
        chart.layer("place", path, x=across, y=up, **coloured),
        chart.layer("crossing", thick, **ends, **coloured, **described),
        chart.layer("place", dot, x=across, y=up, **coloured, shape=shape, **described),
    ]


def _names(up: JsonMapping) -> list[JsonDict]:
    beside = chart.number("label_at")
    # The shape at the end of a line spares a legend, and works without colours.
    sign = {"type": "point", "filled": True, "opacity": 1, "size": 60, "xOffset": 7}
    text = {
        "type": "text",
        "align": "left",
        "baseline": "middle",
        "color": chart.INK,
        "limit": MODEL * chart.NORMAL + 8,
        "dx": 17,
    }
    coloured = {"field": "slot", "valid": True}
    grey = {"field": "slot", "valid": False}
    position = {"x": {"value": "width"}, "y": beside}
    color = chart.slots(chart.MODELS)
    shape = chart.slots(chart.SHAPES)
    label = chart.words("label")
    pale = {**text, "color": chart.SOFT}
    return [
        chart.layer("model", sign, coloured, **position, color=color, shape=shape),
        chart.layer("model", text, coloured, **position, text=label),
        chart.layer("model", pale, grey, **position, text=label),
    ]


def _with_room(
    values: Records, at: str, distance: float, bounds: tuple[float, float]
) -> list[Record]:
    """Return the records, those of names with ``label_at``: ``distance`` from each other or more,
    in ``bounds``.
    """
    names = []
    records = []
    for record in values:
        if record["kind"] == "model":
            names.append(record)
        else:
            records.append(record)
    # From the top down, a name moves only if the one above it needs the room.
    names.sort(key=lambda record: record[at])
    lowest, limit = bounds
    positions: list[float] = []
    for record in names:
        positions.append(max(record[at], lowest))
        lowest = positions[-1] + distance
    # Names that were pushed beyond the edge go back, and push those before them.
    for index in reversed(range(len(positions))):
        positions[index] = min(positions[index], limit)
        limit = positions[index] - distance
    for record, position in zip(names, positions, strict=True):
        records.append({**record, "label_at": position})
    return records


def _description(models: int, columns: int, rank: bool) -> str:
    numbers = "ranks" if rank else "values"
    return (
        f"The {numbers} of {models} models under {columns} protocols, sorted by the similarity of "
        "their orders"
    )


def _measured_columns(rows: Sequence[Number], fewest: int) -> list[Column]:
    """Return what was measured the same way on ``fewest`` models, and on one at least."""
    columns: dict[tuple[str, ...], dict[str, Number]] = {}
    for row in rows:
        columns.setdefault(measured_as(row), {})[row.identity.model] = row
    kept: list[Column] = []
    for column in columns.values():
        scored = sum(not math.isnan(row.value) for row in column.values())
        if scored >= max(fewest, 1):
            kept.append(column)
    return kept


def _protocol(column: Column) -> str:
    return next(iter(column.values())).identity.protocol


def _value(column: Column, model: str) -> float:
    return column[model].value if model in column else math.nan


def _heights(column: Column, models: Sequence[str]) -> dict[str, float]:
    """Return the rank of each model; lines of equal rank are side by side at the middle of the
    ranks they share.
    """
    tied: dict[int, list[str]] = {}
    for model in models:
        rank = column[model].ranks.rank if model in column else None
        if rank is not None:
            tied.setdefault(rank, []).append(model)
    heights = {}
    for rank, group in tied.items():
        middle = (len(group) - 1) / 2
        for number, model in enumerate(group):
            heights[model] = rank + middle + (number - middle) * _TIED
    return heights


def _column_records(names: Sequence[str], agreement: Sequence[float]) -> list[Record]:
    short_names = chart.without_shared(names)
    labels = chart.cut_distinct(short_names.values(), PROTOCOL)
    records = []
    for number, (name, tau) in enumerate(zip(names, agreement, strict=True)):
        text = "" if math.isnan(tau) else f"{tau:.2f}".replace("-", "−")
        records.append(
            {
                "kind": "column",
                "column": number,
                "protocol": name,
                "tau": tau,
                "label": labels[short_names[name]],
                "agreement": text or "–",
                "description": (
                    f"{chart.cut(name, chart.SAID)}: Kendall's τ with the first column "
                    f"{text or 'is not defined'}"
                ),
            }
        )
    return records


def _grey(
    model: str, line: int, columns: Sequence[Column], heights: Sequence[Mapping[str, float]]
) -> list[Record]:
    """Return the points of a line without colour; the first has its description, since the line is
    one mark.
    """
    ranks = []
    records: list[Record] = []
    for number, (column, height) in enumerate(zip(columns, heights, strict=True)):
        rank = column[model].ranks.rank if model in column else None
        if rank is not None:
            ranks.append(rank)
        records.append(
            {
                "kind": "line",
                "line": line,
                "column": number,
                "place": height.get(model, math.nan),
                "value": _value(column, model),
            }
        )
    text = "no item was scored"
    if ranks:
        text = f"rank {min(ranks)} to {max(ranks)} under {counted(len(ranks), 'protocol')}"
    records[0] |= {"model": model, "description": f"{chart.cut(model, chart.SAID)}: {text}"}
    return records


def _number_fields(row: Number | None, model: str, models: int) -> Record:
    name = chart.cut(model, chart.SAID)
    if row is None or math.isnan(row.value):
        return {"value": math.nan, "rank": None, "description": f"{name}: no item was scored"}
    ranks = row.ranks
    bounds = "" if ranks.low is None else f" (95 %: {ranks.low} to {ranks.high})"
    description = (
        f"{name} under {chart.cut(row.identity.protocol, chart.SAID)}: rank {ranks.rank} of "
        f"{models}{bounds}, {chart.share(row.value)} of {counted(row.counts.n, 'item')}"
        f"{chart.bounds(row.interval.low, row.interval.high)}"
    )
    return {**chart.number_fields(row), "description": description}


def _crossings(
    columns: Sequence[Column],
    heights: Sequence[Mapping[str, float]],
    coloured: Sequence[str],
    significant: Collection[Lead],
) -> list[Record]:
    """Return the stretches of lines that are thick."""
    leads = set(significant)
    records = []
    for at in range(len(columns) - 1):
        left = columns[at]
        right = columns[at + 1]
        here = _protocol(left)
        there = _protocol(right)
        # A model may cross several others: the last of them is named.
        crossed = {}
        for one, other in combinations(coloured, 2):
            # Lines that cross by chance must not look like a finding.
            falls = {(here, one, other), (there, other, one)}
            rises = {(here, other, one), (there, one, other)}
            if falls <= leads or rises <= leads:
                crossed[one] = (one, other)
                crossed[other] = (one, other)
        between = f"{chart.cut(here, chart.SAID)} and {chart.cut(there, chart.SAID)}"
        for model, (one, other) in crossed.items():
            both = f"{chart.cut(one, chart.SAID)} and {chart.cut(other, chart.SAID)}"
            records.append(
                {
                    "kind": "crossing",
                    "model": model,
                    "slot": coloured.index(model),
                    "column": at,
                    "next": at + 1,
                    "place": heights[at][model],
                    "next_place": heights[at + 1][model],
                    "value": left[model].value,
                    "next_value": right[model].value,
                    "description": f"{both} change places between {between}: significantly ahead under each",
                }
            )
    return records


def _models(
    columns: Sequence[Column],
    heights: Sequence[Mapping[str, float]],
    named: Sequence[str],
    coloured: Sequence[str],
) -> list[Record]:
    """Return the names of the models, at the ends of their lines."""
    records: list[Record] = []
    labels = chart.cut_distinct(named, MODEL)
    for model in named:
        # A line ends early if a model lacks the last protocols.
        ends = [number for number, height in enumerate(heights) if model in height]
        if not ends:
            continue
        last = ends[-1]
        records.append(
            {
                "kind": "model",
                "model": model,
                "slot": coloured.index(model) if model in coloured else None,
                "label": labels[model],
                "column": last,
                "place": heights[last][model],
                "value": columns[last][model].value,
            }
        )
    return records
