"""Charts in lanes (effects, ladder, pair, ranks) on one builder."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING, Any, Protocol

from choicewise.page.charts import chart
from choicewise.page.charts.chart import (
    ACCENT,
    DESCRIPTION,
    INK,
    NARROW,
    NORMAL,
    PAPER,
    PERCENT_AXIS,
    POINTS_AXIS,
    SMALL,
    SOFT,
    WIDTH,
    Record,
    Records,
    around_zero,
    frame,
    hairline,
    lane,
    layer,
    named,
    note,
    number,
    rank_axis,
    row_words,
    where,
    words,
)
from choicewise.results.outcomes import measured_as
from choicewise.results.rows import Row
from choicewise.scoring.significance import Difference
from choicewise.util.text import count, error, percent, points, probability

if TYPE_CHECKING:
    from choicewise.results.compare import Axis
    from choicewise.results.ladder import Effect, Ladder, Step, ValueChange


_EFFECTS_STEP, _EFFECTS_TALL = 38, 58
"""Pixels of a row, and of one with its words above its marks."""

_NAME = 18
"""Width of what stands beside a row, in sizes of its font."""

EFFECTS_CAPTION = (
    "A tick is a pair of protocols that differ in this axis alone: by how many points the second is above the first. "
    "Dot and line: mean and standard deviation of the pairs. Size: mean change without its sign."
)


def effects_values(effects: Sequence[Effect]) -> list[Record]:
    """Records of the kinds ``effect`` (a row) and ``pair`` (a tick in it); changes are shares of 1."""
    records: list[Record] = []
    for place, effect in enumerate(effects):
        records.append(_effect(effect, place))
        records += [tick for change in effect.changes for tick in _ticks(change, place)]
    return records


def effects_spec(values: Records, width: int = WIDTH) -> dict[str, Any]:
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
        height={"step": _EFFECTS_TALL if narrow else _EFFECTS_STEP},
        about=f"What each of {count(len({record['lane'] for record in values}), 'axis', 'axes')} of the protocols does",
    )


def _effect(effect: Effect, place: int) -> Record:
    spread = effect.spread
    low, high = (math.nan, math.nan) if math.isnan(spread.sd) else (spread.mean - spread.sd, spread.mean + spread.sd)
    detail = count(len(effect.changes), "change of its value", "changes of its value")
    if len(effect.changes) == 1:
        detail = chart.change(effect.changes[0].axes[0], _NAME)
    sd = "" if math.isnan(spread.sd) else f", standard deviation {percent(spread.sd)}"
    return {
        "kind": "effect",
        "axis": chart.cut(effect.axis, _NAME),
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


def _ticks(change: ValueChange, place: int) -> list[Record]:
    axis = change.axes[0]
    what = f"{axis.axis} {chart.cut(axis.left, 12)} → {chart.cut(axis.right, 12)}"
    return [
        {
            "kind": "pair",
            "lane": place,
            "start": pair.start,
            "end": pair.end,
            "change": pair.change,
            "n": pair.n,
            "description": f"{what}, {chart.cut(pair.start, 30)} to {chart.cut(pair.end, 30)}: {points(pair.change)}",
        }
        for pair in change.pairs
    ]


_LADDER_STEP, _LADDER_TALL = 38, 58
"""Pixels of a row, and of one with its words above its bar."""

LADDER_CAPTION = (
    "From one number to the other, one change at a time: points, standard error paired by items (the thin line), and "
    "how many items turn right (gained) and wrong (lost)."
)


def ladder_values(climbed: Ladder) -> list[Record]:
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


def ladder_spec(values: Records, width: int = WIDTH) -> dict[str, Any]:
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
        height={"step": _LADDER_TALL if narrow else _LADDER_STEP},
        about=_about(values),
    )


def _end(name: str, value: float, n: int, place: int, side: str) -> Record:
    shown = chart.cut(name, _NAME)
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
        "result": chart.share(value),
        "items": count(n, "item"),
        "description": f"{side} {shown}: {chart.share(value)} of {count(n, 'item')}",
    }


def _step(step: Step, before: float, place: int) -> Record:
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
        f"reaches {chart.cut(step.name, chart.SAID)} with {chart.share(step.value)}",
    }


def _changed(axes: tuple[Axis, ...]) -> tuple[str, str]:
    """What a step changes: the axes, and from what to what."""
    if len(axes) == 1:
        return axes[0].axis, chart.change(axes[0], _NAME)
    return _names([axis.axis for axis in axes]), f"{len(axes)} axes together"


def _names(axes: Sequence[str]) -> str:
    """As many names as there is room for."""
    text = ""
    for rest in range(len(axes)):
        text = ", ".join([*axes[: len(axes) - rest], *([f"{rest} more"] if rest else [])])
        if chart.em(text) <= _NAME:
            break
    return text


def _about(values: Records) -> str:
    start, *steps, end = values
    return (
        f"The way from {start['title']} ({start['result']}) to {end['title']} ({end['result']}) in "
        f"{count(len(steps), 'step')}, one changed axis a step"
    )


_PAIR_STEP = 14
"""Pixels of a row."""

_PROTOCOL, _PAIR_SHORT, _PAIR_MODEL = 14, 10, 12
"""Widths of the names of protocols (on narrow charts) and models, in sizes of the font."""

LEVEL = 0.05

PAIR_CAPTION = (
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


def pair_values(left: str, right: str, contests: Sequence[Contest]) -> list[Record]:
    """Records of the kinds ``difference`` (a row per protocol, the greatest first) and ``side`` (the two models)."""
    prefix = chart.shared_prefix([contest.protocol for contest in contests])
    known = sorted(contests, key=lambda each: math.inf if math.isnan(each.difference.value) else -each.difference.value)
    models = [chart.cut(model, _PAIR_MODEL) for model in (left, right)]
    sides = {"left": (right, f"← {models[1]} ahead"), "right": (left, f"{models[0]} ahead →")}
    return [
        *(_difference(contest, place, prefix, models) for place, contest in enumerate(known)),
        *({"kind": "side", "side": side, "model": model, "label": text} for side, (model, text) in sides.items()),
    ]


def pair_spec(values: Records, width: int = WIDTH) -> dict[str, Any]:
    """The chart of such values."""
    narrow = width < NARROW
    left = (_PAIR_SHORT if narrow else _PROTOCOL) * SMALL + 24
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
        height={"step": _PAIR_STEP},
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
        "label": chart.cut(name, _PROTOCOL),
        "short": chart.cut(name, _PAIR_SHORT),
        "result": points(difference.value) if difference.n else "no item",
        "description": f"{chart.cut(contest.protocol, chart.SAID)}: {models[0]} minus {models[1]} {said}"
        if difference.n
        else f"{chart.cut(contest.protocol, chart.SAID)}: no item was scored with both",
    }


_ROOMY, _DENSE, _MANY = 44, 15, 30
"""Pixels of a row, and of one where there are more models than this."""

_RANKS_MODEL, _RANKS_SHORT = 13, 9
"""Widths of the names of models, on wide and narrow charts, in sizes of the font."""

_COUNTED = 12
"""With more ranks, the counts are not written beside the dots."""

RANKS_CAPTION = "How many protocols give each model each rank: the area of a dot, and the number beside it."
CAPTION_ONE = "Rank under this protocol, and the ranks in 95 % of draws of items."


def ranks_values(rows: Sequence[Row], protocol: str | None = None) -> list[Record]:
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
    names, shorter = chart.cut_apart(ordered, _RANKS_MODEL), chart.cut_apart(ordered, _RANKS_SHORT)
    for record in records:
        if record["kind"] == "model":
            record |= {"label": names[record["model"]], "short": shorter[record["model"]]}
    return records


def ranks_spec(values: Records, width: int = WIDTH) -> dict[str, Any]:
    """The chart of such values."""
    narrow = width < NARROW
    models = sum(record["kind"] == "model" for record in values)
    dense = models > _MANY
    step = _DENSE if dense else _ROOMY
    left = (_RANKS_SHORT if narrow else _RANKS_MODEL) * NORMAL + 24
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
    shown = chart.cut(model, chart.SAID)
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
    value = f"{chart.share(row.value)}"
    shown = _model(row.model, place, low, high, row.rank or 0, value)
    about = f"{chart.cut(row.model, chart.SAID)}: rank {row.rank} of {models}{bounds}, {value}"
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
