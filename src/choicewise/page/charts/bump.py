"""The bump chart: models over protocols, by rank or value."""

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
from choicewise.util.text import counted


def caption(values: Records, rank: bool = True) -> str:
    """How to read a chart of such values, of ranks or of values: it names what is drawn, and nothing else."""
    edge = "rank_low" if rank else "ci_low"
    bounds = (record.get(edge) for record in values if record["kind"] == "place")
    drawn = {record["kind"] for record in values}
    parts = ["Every column is a protocol; neighbours order the models alike."]
    if "crossing" in drawn:
        parts.append(
            "Lines are thick where two models change places and each is significantly ahead on its side (paired test, "
            "Holm's correction over protocols)."
        )
    parts += (
        ["Pale bars: 95 % intervals."]
        if any(each is not None and each == each for each in bounds)
        else []
    )
    parts += ["Grey: the other models."] if "line" in drawn else []
    return " ".join([*parts, "τ: Kendall's rank agreement with the first column."])


def spec(values: Records, rank: bool = True, width: int = chart.WIDTH) -> dict[str, Any]:
    """The chart of such values, of ranks or of values; wider than ``width`` where that leaves columns too little room.

    Its data differ from ``values`` in the places of the models' names, which must not lie on each other.
    """
    columns = sum(record["kind"] == "column" for record in values)
    lines = {
        (record["kind"], record.get("slot", record.get("line")))
        for record in values
        if "place" in record
    }
    models = max(sum(kind in ("place", "line") for kind, _ in lines), 1)
    height = min(max(models * _RANK, _LOWEST), _HIGHEST) if rank else _VALUE
    right = MODEL * chart.NORMAL + 48
    width = max(width, _LEFT + right + columns * _COLUMN)
    at = "place" if rank else "value"
    scale: dict[str, Any] = (
        {"domain": [0.5, models + 0.5], "reverse": True} if rank else {"domain": [0, 1]}
    )
    scale |= {"nice": False, "zero": False}
    up = chart.number(
        at,
        scale=scale,
        axis={**chart.rank_axis(models), "title": None} if rank else chart.PERCENT_AXIS,
    )
    across = chart.number(
        "column",
        axis=None,
        scale={"domain": [-0.5, max(columns, 1) - 0.5], "nice": False, "zero": False},
    )
    pixels = height / models if rank else height
    longest = max(
        (chart.em(record["label"]) for record in values if record["kind"] == "column"), default=0.0
    )
    return chart.frame(
        _with_room(values, at, _DISTANCE / pixels, (0.5, models + 0.5) if rank else (0.0, 1.0)),
        [
            *_bump_columns(across, "rank" if rank else ""),
            *_lines(across, up, rank, columns, models),
            *_names(up),
        ],
        width=width,
        left=_LEFT,
        right=right,
        top=24,
        bottom=round(longest * chart.SMALL) + _NAME + 8,
        height=height,
        description=_about(models, columns, rank),
    )


SHOWN = len(chart.MODELS)
"""Models that have a colour and a shape; of more, the others are grey."""

MODEL, PROTOCOL = 11, 13
"""Widths of the names of models and protocols, in sizes of the font."""

Column = Mapping[str, Number]
"""What was measured the same way, by model."""


def values(
    rows: Sequence[Number],
    significant: Collection[Lead] = (),
    highlight: Sequence[str] = (),
    first: str | None = None,
) -> list[Record]:
    """Records of the kinds ``column``, ``place`` and ``line`` (a model under a protocol, in colour or grey),
    ``crossing`` and ``model`` (a name).

    ``rows``: ranked, of several models (or of one).  A column holds what was measured the same way, if two models were.
    ``significant``: two lines between neighbouring columns are thick where they cross and each of the two orders is
    among these.  ``highlight``: models in colour, unless given those with the best median rank.  ``first``: protocol of
    the first column, unless given the one whose order agrees best with all others.
    """
    models = list(dict.fromkeys(row.identity.model for row in rows))
    columns = _bump_values_columns(rows, min(len(models), 2))
    table = np.array([[_value(column, model) for model in models] for column in columns])
    table = table.reshape(len(columns), len(models))
    names = [next(iter(column.values())).identity.protocol for column in columns]
    order = seriated(table, names.index(first) if first in names else None)
    columns, names, table = (
        [columns[each] for each in order],
        [names[each] for each in order],
        table[order],
    )
    shown = shown_models(rows, highlight)
    drawn = [_places(column, models) for column in columns]
    agreement = order_agreement(table)[0].tolist() if columns else []
    prefix = chart.shared_prefix(names)
    labels = chart.cut_distinct([name.removeprefix(prefix) for name in names], PROTOCOL)
    records = [
        _column(at, name, labels[name.removeprefix(prefix)], tau)
        for at, (name, tau) in enumerate(zip(names, agreement, strict=True))
    ]
    for line, model in enumerate(models):
        if model not in shown:
            records += _grey(model, line, columns, drawn)
            continue
        slot = shown.index(model)
        for at, column in enumerate(columns):
            place = drawn[at].get(model, math.nan)
            beside = at + ((slot + 0.5) / len(shown) - 0.5) * min(_BESIDE, len(columns) / _FEW)
            records.append(_place(column.get(model), model, len(models), slot, at, beside, place))
    records += _crossings(columns, names, drawn, shown, significant)
    named = models if len(models) <= _NAMED else shown
    return records + _models(columns, drawn, named, shown)


def shown_models(rows: Sequence[Number], highlight: Sequence[str] = ()) -> list[str]:
    """The models in colour, in the order of all models: of ``highlight``, else of all, those with the best ranks."""
    ranks: dict[str, list[float]] = {}
    for row in rows:
        ranks.setdefault(row.identity.model, []).append(
            math.inf if row.ranks.rank is None else row.ranks.rank
        )
    chosen = [model for model in ranks if model in highlight] if highlight else list(ranks)
    best = sorted(chosen, key=lambda model: median(ranks[model]))[:SHOWN]
    return [model for model in ranks if model in best]


_LEFT, _COLUMN = 64, 12  # pixels left of the columns, and of a column at least

_RANK, _LOWEST, _HIGHEST, _VALUE = 44, 190, 640, 380
"""Pixels of a rank, of all ranks at least and at most, and from 0 to 100 %."""

_MANY = 40  # with more models, the grey lines are hairlines
_DISTANCE = 15  # pixels between two names of models
_TAU, _NAME = (
    8,
    48,
)  # pixels below the columns at which Kendall's τ and the names of protocols begin


def _bump_columns(across: Mapping[str, Any], what: str) -> list[dict[str, Any]]:
    """A line, Kendall's τ and the name of the protocol for every column, and what the figures are."""
    below = {"x": across, "y": {"value": "height"}}
    turned = {"angle": 270, "align": "right"}
    heading = chart.layer(
        "column", chart.note(align="right"), {"field": "column", "equal": 0}, x={"value": -10}
    )
    texts = {what: (0, -10), "τ": ("height", _TAU + 12), "protocol": ("height", _NAME + 22)}
    return [
        chart.layer(
            "column", chart.hairline(opacity=0.6), x=across, y={"value": 0}, y2={"value": "height"}
        ),
        chart.layer(
            "column", chart.note(**turned, dx=-_TAU), **below, text=chart.words("agreement")
        ),
        chart.layer(
            "column",
            chart.note(**turned, dx=-_NAME),
            **below,
            text=chart.words("label"),
            description=chart.DESCRIPTION,
        ),
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
    coloured = {"color": chart.slots(chart.MODELS)}
    size = 60 if columns <= 20 else 36
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
    known = {"field": low, "valid": True}
    path = {"type": "line", "strokeWidth": 1.75, "strokeJoin": "round"}
    grey = (
        {"color": chart.LINE, "strokeWidth": 0.5}
        if models > _MANY
        else {"color": chart.MARK, "strokeWidth": 1}
    )
    detail = {"field": "line", "type": "nominal"}
    return [
        chart.layer(
            "line", {**path, **grey}, x=across, y=up, detail=detail, description=chart.DESCRIPTION
        ),
        chart.layer(
            "place",
            bar,
            known,
            x=chart.number("beside", axis=None),
            y=chart.number(low),
            y2={"field": high},
            **coloured,
        ),
        chart.layer("place", path, x=across, y=up, **coloured),
        chart.layer(
            "crossing",
            {"type": "rule", "strokeWidth": 5},
            **ends,
            **coloured,
            description=chart.DESCRIPTION,
        ),
        chart.layer(
            "place",
            dot,
            x=across,
            y=up,
            **coloured,
            shape=chart.slots(chart.SHAPES),
            description=chart.DESCRIPTION,
        ),
    ]


def _names(up: Mapping[str, Any]) -> list[dict[str, Any]]:
    beside = chart.number("label_at")
    sign = {"type": "point", "filled": True, "opacity": 1, "size": 60, "xOffset": 7}
    text = {
        "type": "text",
        "align": "left",
        "baseline": "middle",
        "color": chart.INK,
        "limit": MODEL * chart.NORMAL + 8,
    }
    coloured, grey = {"field": "slot", "valid": True}, {"field": "slot", "valid": False}
    place = {"x": {"value": "width"}, "y": beside}
    return [
        chart.layer(
            "model",
            sign,
            coloured,
            **place,
            color=chart.slots(chart.MODELS),
            shape=chart.slots(chart.SHAPES),
        ),
        chart.layer("model", {**text, "dx": 17}, coloured, **place, text=chart.words("label")),
        chart.layer(
            "model",
            {**text, "dx": 17, "color": chart.SOFT},
            grey,
            **place,
            text=chart.words("label"),
        ),
    ]


def _with_room(
    values: Records, at: str, distance: float, bounds: tuple[float, float]
) -> list[Record]:
    """The records, those of names with the place ``label_at``: ``distance`` from each other or more, in ``bounds``."""
    names = sorted(
        (record for record in values if record["kind"] == "model"), key=lambda record: record[at]
    )
    places: list[float] = []
    for record in names:
        places.append(max(record[at], places[-1] + distance if places else bounds[0]))
    limit = bounds[1]
    for number_ in reversed(range(len(places))):
        places[number_] = min(places[number_], limit)
        limit = places[number_] - distance
    shifted = [{**record, "label_at": place} for record, place in zip(names, places, strict=True)]
    return [*(record for record in values if record["kind"] != "model"), *shifted]


def _about(models: int, columns: int, rank: bool) -> str:
    what = "ranks" if rank else "values"
    return f"The {what} of {models} models under {columns} protocols, sorted by the similarity of their orders"


_BESIDE, _FEW = 0.5, 70
"""Part of a column over which the intervals of the models stand beside each other, less where columns are few."""

_NAMED = 20  # with more models, only those in colour have their names beside their lines
_TIED = 0.3  # how far apart lines of equal rank are, in ranks


def _bump_values_columns(rows: Sequence[Number], fewest: int) -> list[Column]:
    columns: dict[tuple[str, ...], dict[str, Number]] = {}
    for row in rows:
        columns.setdefault(measured_as(row), {})[row.identity.model] = row
    return [
        column
        for column in columns.values()
        if sum(not math.isnan(row.value) for row in column.values()) >= max(fewest, 1)
    ]


def _value(column: Column, model: str) -> float:
    return column[model].value if model in column else math.nan


def _places(column: Column, models: Sequence[str]) -> dict[str, float]:
    """Where the lines go: at the rank; those of equal rank beside each other at the middle of the ranks they share."""
    tied: dict[int, list[str]] = {}
    for model in models:
        if model in column and (rank := column[model].ranks.rank) is not None:
            tied.setdefault(rank, []).append(model)
    return {
        model: rank + (len(own) - 1) / 2 + (number - (len(own) - 1) / 2) * _TIED
        for rank, own in tied.items()
        for number, model in enumerate(own)
    }


def _column(at: int, name: str, label: str, tau: float) -> Record:
    agreement = "" if math.isnan(tau) else f"{tau:.2f}".replace("-", "−")
    about = f"{chart.cut(name, chart.SAID)}: Kendall's τ with the first column {agreement or 'is not defined'}"
    text = {"label": label, "agreement": agreement or "–", "description": about}
    return {"kind": "column", "column": at, "protocol": name, "tau": tau, **text}


def _grey(
    model: str, line: int, columns: Sequence[Column], drawn: Sequence[Mapping[str, float]]
) -> list[Record]:
    """The places of a line without colour; what is said of it stands with the first, since the line is one mark."""
    ranks = [
        rank
        for column in columns
        if model in column and (rank := column[model].ranks.rank) is not None
    ]
    under = counted(len(ranks), "protocol")
    said = f"rank {min(ranks)} to {max(ranks)} under {under}" if ranks else "no item was scored"
    records: list[Record] = [
        {
            "kind": "line",
            "line": line,
            "column": at,
            "place": own.get(model, math.nan),
            "value": _value(column, model),
        }
        for at, (column, own) in enumerate(zip(columns, drawn, strict=True))
    ]
    records[0] |= {"model": model, "description": f"{chart.cut(model, chart.SAID)}: {said}"}
    return records


def _place(
    row: Number | None, model: str, models: int, slot: int, at: int, beside: float, place: float
) -> Record:
    record: Record = {
        "kind": "place",
        "model": model,
        "slot": slot,
        "column": at,
        "place": place,
        "beside": beside,
    }
    if row is None or math.isnan(row.value):
        name = chart.cut(model, chart.SAID)
        return {
            **record,
            "value": math.nan,
            "rank": None,
            "description": f"{name}: no item was scored",
        }
    bounds = "" if row.ranks.low is None else f" (95 %: {row.ranks.low} to {row.ranks.high})"
    about = f"{chart.cut(model, chart.SAID)} under {chart.cut(row.identity.protocol, chart.SAID)}: "
    about += f"rank {row.ranks.rank} of {models}{bounds}, {chart.share(row.value)} of {counted(row.counts.n, 'item')}"
    about += chart.bounds(row.interval.low, row.interval.high)
    return {
        **record,
        "protocol": row.identity.protocol,
        "value": row.value,
        "ci_low": row.interval.low,
        "ci_high": row.interval.high,
        "rank": row.ranks.rank,
        "rank_low": row.ranks.low,
        "rank_high": row.ranks.high,
        "n": row.counts.n,
        "description": about,
    }


def _crossings(
    columns: Sequence[Column],
    names: Sequence[str],
    drawn: Sequence[Mapping[str, float]],
    shown: Sequence[str],
    significant: Collection[Lead],
) -> list[Record]:
    """The stretches of lines that are thick."""
    records = []
    for at in range(len(columns) - 1):
        here, there = names[at], names[at + 1]
        crossed = {
            model: (one, other)
            for one, other in combinations(shown, 2)
            for model in (one, other)
            if {(here, one, other), (there, other, one)} <= set(significant)
            or {(here, other, one), (there, one, other)} <= set(significant)
        }
        for model, pair in crossed.items():
            both = " and ".join(chart.cut(each, chart.SAID) for each in pair)
            between = f"{chart.cut(here, chart.SAID)} and {chart.cut(there, chart.SAID)}"
            records.append(
                {
                    "kind": "crossing",
                    "model": model,
                    "slot": shown.index(model),
                    "column": at,
                    "next": at + 1,
                    "place": drawn[at][model],
                    "next_place": drawn[at + 1][model],
                    "value": columns[at][model].value,
                    "next_value": columns[at + 1][model].value,
                    "description": f"{both} change places between {between}: significantly ahead under each",
                }
            )
    return records


def _models(
    columns: Sequence[Column],
    drawn: Sequence[Mapping[str, float]],
    named: Sequence[str],
    shown: Sequence[str],
) -> list[Record]:
    """The names of the models, where their lines end."""
    records: list[Record] = []
    short = chart.cut_distinct(named, MODEL)
    for model in named:
        ends = [at for at in range(len(columns)) if model in drawn[at]]
        if ends:
            end = {
                "column": ends[-1],
                "place": drawn[ends[-1]][model],
                "value": columns[ends[-1]][model].value,
            }
            about = {"model": model, "slot": shown.index(model) if model in shown else None}
            records.append({"kind": "model", **about, "label": short[model], **end})
    return records
