"""Charts in lanes (effects, ladder, pair, ranks): values and, from one builder, specifications."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING, Any

from choicewise.page.charts import chart
from choicewise.page.charts.chart import Record, Records
from choicewise.page.study import Contest
from choicewise.report.tables import value_text
from choicewise.results.number import Number
from choicewise.results.outcomes import measured_as
from choicewise.util.text import counted, error, percent, points, probability

if TYPE_CHECKING:
    from choicewise.results.ladder import Effect, Ladder, Step, ValueChange
    from choicewise.results.outcomes import Axis

LADDER_CAPTION = (
    "From one number to the other, one change at a time: points, standard error paired by items (the thin line), and "
    "how many items turn right (gained) and wrong (lost)."
)
RANKS_CAPTION = (
    "How many protocols give each model each rank: the area of a dot, and the number beside it."
)
CAPTION_ONE = (
    "Rank under this protocol, and the ranks that paired tests of all models leave open (95 %)."
)
"""How to read each chart; the last one: ranks under one protocol."""


def effects_caption(values: Records) -> str:
    """How to read a chart of effects: it names what is drawn, and nothing else."""
    spread = any(record["kind"] == "effect" and not math.isnan(record["sd"]) for record in values)
    return (
        "A tick is a pair of protocols that differ in this axis alone: by how many points the second is above the "
        f"first. Dot{' and line: mean and standard deviation' if spread else ': mean'} of the pairs. Size: mean change "
        "without its sign."
    )


def pair_caption(values: Records) -> str:
    """How to read the chart of a pair: it names what is drawn, and nothing else."""
    rows = [record for record in values if record["kind"] == "difference"]
    known = [record for record in rows if not math.isnan(record["value"])]
    interval = (
        " with its 95 % interval" if any(not math.isnan(record["low"]) for record in known) else ""
    )
    told = [f"Difference in points{interval}, paired by items."]
    if any(record["significant"] for record in known):
        told.append("Filled: significant after Holm's correction for all protocols.")
    if not all(record["significant"] for record in known):
        told.append("Hollow: these items can't tell the two apart.")
    return " ".join(told)


def effects_values(effects: Sequence[Effect]) -> list[Record]:
    """Records of the kinds ``effect`` (a row) and ``pair`` (a tick in it); changes are shares of 1."""
    records: list[Record] = []
    for place, effect in enumerate(effects):
        records.append(_effect(effect, place))
        records += [tick for change in effect.changes for tick in _ticks(change, place)]
    return records


def effects_spec(values: Records, width: int = chart.WIDTH) -> dict[str, Any]:
    """The chart of :func:`effects_values`."""
    lanes = _Lanes(width, (_NAME * chart.NORMAL + 24, 12), (148, 28), (38, 58), (0.5, 0.75))
    reaches = ("change", "low", "high")
    scale = chart.around_zero(
        0.05, (record[name] for record in values for name in reaches if name in record)
    )
    lanes.edges("effect")
    lanes.zero("effect")
    lanes.ticks(
        "pair", chart.number("change"), size=256, opacity=0.45, description=chart.DESCRIPTION
    )
    lanes.reach("effect", chart.INK, 1.5)
    lanes.dots("effect", chart.number("mean", scale=scale, axis=chart.POINTS_AXIS), size=64)
    lanes.words("effect", "axis", "detail", "result", "size")
    count_of_axes = counted(len({record["lane"] for record in values}), "axis", "axes")
    return lanes.spec(values, 8, 42, f"What each of {count_of_axes} of the protocols does")


def ladder_values(climbed: Ladder) -> list[Record]:
    """Records of the kinds ``end`` (the first and the last number) and ``step`` (one per step), from the top.

    ``before`` and ``after`` are the numbers on both sides of a step, ``low`` and ``high`` one standard error around
    the second.
    """
    records, before = (
        [_end(climbed.start, climbed.start_value, climbed.start_n, 0, "from")],
        climbed.start_value,
    )
    for place, step in enumerate(climbed.steps, 1):
        records.append(_step(step, before, place))
        before = step.value
    records.append(
        _end(climbed.end, climbed.end_value, climbed.end_n, len(climbed.steps) + 1, "to")
    )
    return records


def ladder_spec(values: Records, width: int = chart.WIDTH) -> dict[str, Any]:
    """The chart of :func:`ladder_values`."""
    lanes = _Lanes(width, (_NAME * chart.NORMAL + 24, 12), (132, 28), (38, 58), (0.5, 0.74))
    known = {"field": "after", "valid": True}
    down = {
        "y": chart.lane("above", bandPosition=lanes.bar),
        "y2": {"field": "lane", "bandPosition": lanes.bar},
    }
    lanes.edges("end")
    lanes.edges("step")
    lanes.add("step", chart.hairline(color=chart.SOFT), x=chart.number("before"), **down)
    lanes.add(
        "end",
        chart.hairline(color=chart.SOFT),
        chart.where("side", "to"),
        x=chart.number("after"),
        **down,
    )
    for colour, change in ((chart.SOFT, "lt"), (chart.ACCENT, "gte")):
        thick = {"type": "rule", "strokeWidth": 10, "color": colour}
        sign = {"field": "change", change: 0}
        lanes.add("step", thick, sign, x=chart.number("before"), x2={"field": "after"}, y=lanes.at)
    lanes.add(
        "step",
        chart.hairline(color=chart.INK),
        _KNOWN_LOW,
        x=chart.number("low"),
        x2={"field": "high"},
        y=lanes.at,
    )
    across = chart.number("after", scale={"domain": [0, 1]}, axis=chart.PERCENT_AXIS)
    lanes.dots("step", across, known, size=24, stroke=None)
    lanes.dots("end", chart.number("after"), known, size=40, stroke=None)
    for kind, weight in (("end", 600), ("step", "normal")):
        lanes.words(kind, "title", "detail", "result", "items", fontWeight=weight)
    start, *steps, end = values
    ways = f"{start['title']} ({start['result']}) to {end['title']} ({end['result']})"
    return lanes.spec(
        values,
        8,
        26,
        f"The way from {ways} in {counted(len(steps), 'step')}, one changed axis a step",
    )


def pair_values(left: str, right: str, contests: Sequence[Contest]) -> list[Record]:
    """Records of the kinds ``difference`` (a row per protocol, the greatest first) and ``side`` (the two models)."""
    prefix = chart.shared_prefix([contest.protocol for contest in contests])
    known = sorted(
        contests,
        key=lambda each: math.inf if math.isnan(each.difference.value) else -each.difference.value,
    )
    models = [chart.cut(model, _PAIR_MODEL) for model in (left, right)]
    names = [contest.protocol.removeprefix(prefix) for contest in known]
    labels, shorter = (chart.cut_distinct(names, most) for most in (_PROTOCOL, _PAIR_SHORT))
    sides = {"left": (right, f"← {models[1]} ahead"), "right": (left, f"{models[0]} ahead →")}
    return [
        *(
            _difference(contest, place, (labels[name], shorter[name]), models)
            for place, (contest, name) in enumerate(zip(known, names, strict=True))
        ),
        *(
            {"kind": "side", "side": side, "model": model, "label": text}
            for side, (model, text) in sides.items()
        ),
    ]


def pair_spec(values: Records, width: int = chart.WIDTH) -> dict[str, Any]:
    """The chart of :func:`pair_values`."""
    lanes = _Lanes(
        width, (_PROTOCOL * chart.SMALL + 24, _PAIR_SHORT * chart.SMALL + 24), (76, 28), (14, 14)
    )
    rows = [record for record in values if record["kind"] == "difference"]
    scale = chart.around_zero(
        0.02, (record[name] for record in rows for name in ("value", "low", "high"))
    )
    lanes.zero("difference")
    lanes.reach("difference", chart.SOFT, 1.25)
    for significant, fill in ((False, chart.PAPER), (True, chart.INK)):
        filters = ({"field": "value", "valid": True}, chart.where("significant", significant))
        across = chart.number("value", scale=scale, axis=chart.POINTS_AXIS)
        lanes.dots(
            "difference", across, *filters, size=44, fill=fill, stroke=chart.INK, strokeWidth=1.25
        )
    label = chart.note(align="left", color=chart.INK)
    lanes.add("difference", label, x={"value": 12 - lanes.left}, y=chart.lane(), text=lanes.name)
    lanes.beside("difference", "result")
    above = {"left": (0, -27 if lanes.narrow else -12), "right": ("width", -12)}
    for side, (x, y) in above.items():
        place = {"x": {"value": x}, "y": {"value": y}}
        lanes.add(
            "side",
            chart.note(align=side),
            chart.where("side", side),
            **place,
            text=chart.words("label"),
        )
    about = f"The difference between two models under {counted(len(rows), 'protocol')}, in points"
    return lanes.spec(values, 40 if lanes.narrow else 28, 42, about)


def ranks_values(rows: Sequence[Number], protocol: str | None = None) -> list[Record]:
    """Records of the kinds ``model`` (a row each, the best first) and ``rank`` (a dot).

    ``rows``: ranked, of several models; a rank without a rival is none.  ``protocol``: of this one alone, with the
    interval of each rank.
    """
    known = [
        row
        for row in rows
        if row.ranks.rank is not None and protocol in (None, row.identity.protocol)
    ]
    rivals = Counter(map(measured_as, known))
    ranks: dict[str, list[Number]] = {}
    for row in known:
        if rivals[measured_as(row)] > 1:
            ranks.setdefault(row.identity.model, []).append(row)
    of = {model: [row.ranks.rank or 0 for row in own] for model, own in ranks.items()}
    ordered = sorted(ranks, key=lambda model: (median(of[model]), sum(of[model]) / len(of[model])))
    records: list[Record] = []
    for place, model in enumerate(ordered):
        if protocol is None:
            records += _over_protocols(model, of[model], place, len(ordered))
        else:
            records += _under_one(ranks[model][0], place, len(ordered))
    names, shorter = (
        chart.cut_distinct(ordered, _RANKS_MODEL),
        chart.cut_distinct(ordered, _RANKS_SHORT),
    )
    for record in records:
        if record["kind"] == "model":
            record |= {"label": names[record["model"]], "short": shorter[record["model"]]}
    return records


def ranks_spec(values: Records, width: int = chart.WIDTH) -> dict[str, Any]:
    """The chart of :func:`ranks_values`."""
    models = sum(record["kind"] == "model" for record in values)
    dense = models > _MANY
    step = 15 if dense else 44
    lanes = _Lanes(
        width,
        (_RANKS_MODEL * chart.NORMAL + 24, _RANKS_SHORT * chart.NORMAL + 24),
        (150, 28),
        (step, step),
    )
    scale = {"domain": [1, max(models, 2)], "nice": False, "zero": False}
    across = chart.number(
        "rank", scale=scale, axis={**chart.rank_axis(max(models, 1)), "offset": 4}
    )
    lanes.add("model", chart.hairline(), x={"value": 0}, x2={"value": "width"}, y=chart.lane())
    lanes.reach("model", chart.SOFT, 0.75 if dense else 1.5)
    if dense:  # a faint tick per rank, and a dot at the median
        lanes.ticks("rank", across, size=49, opacity=0.5)
        lanes.dots("model", chart.number("median"), size=40)
    else:  # a dot per rank, its area the share of the protocols, with how many these are
        area_scale = {"domain": [0, 1], "range": [0, step * step / 4]}
        area = {"field": "share", "type": "quantitative", "legend": None, "scale": area_scale}
        lanes.dots("rank", across, encoded_size=area)
        above = chart.note(align="center", dy=-step * 0.29, baseline="bottom")
        if models <= _COUNTED:
            lanes.layers += chart.named(
                "rank", above, x=chart.number("rank"), y=chart.lane(), text=chart.words("label")
            )
    name = {"type": "text", "align": "left", "baseline": "middle", "color": chart.INK}
    left = {"value": 12 - lanes.left}
    lanes.add("model", name, x=left, y=chart.lane(), text=lanes.name, description=chart.DESCRIPTION)
    lanes.beside("model", "detail")
    return lanes.spec(values, 20, 50, f"The ranks of {counted(models, 'model')}")


_NAME = 18  # width of what stands beside a row of effects or of a ladder, in sizes of its font

_PROTOCOL, _PAIR_SHORT, _PAIR_MODEL = 14, 10, 12
"""Widths of the names of protocols (also on narrow charts) and models, in sizes of the font."""

_RANKS_MODEL, _RANKS_SHORT = (
    13,
    9,
)  # widths of the names of models, on wide and narrow charts, in sizes of the font

_MANY, _COUNTED = 30, 12
"""With more models, rows of ranks are dense; with more ranks, the counts are not written beside the dots."""

_KNOWN_LOW = {"field": "low", "valid": True}


class _Lanes:
    """Collects the layers of a chart in lanes, from the lowest up."""

    def __init__(
        self,
        width: int,
        left: tuple[int, int],
        right: tuple[int, int],
        step: tuple[int, int],
        bar: tuple[float, float] | None = None,
    ) -> None:
        self.narrow = width < chart.NARROW
        self.left, self.right, self.step = left[self.narrow], right[self.narrow], step[self.narrow]
        self.width, self.bar = width, None if bar is None else bar[self.narrow]
        self.at = chart.lane() if bar is None else chart.lane("lane", bandPosition=self.bar)
        self.name = chart.words("short" if self.narrow else "label")
        self.layers: list[dict[str, Any]] = []

    def add(self, kind: str, mark: Mapping[str, Any], *filters: Any, **encoding: Any) -> None:
        self.layers.append(chart.layer(kind, mark, *filters, **encoding))

    def edges(self, kind: str) -> None:
        """A line above every row, from margin to margin."""
        ends = {"x": {"value": -self.left}, "x2": {"value": self.width - self.left}}
        self.add(kind, chart.hairline(), **ends, y=chart.lane("lane", bandPosition=0))

    def zero(self, kind: str) -> None:
        """A line at zero, down every row."""
        down = {"y": chart.lane(bandPosition=0), "y2": {"field": "lane", "bandPosition": 1}}
        self.add(kind, chart.hairline(color=chart.SOFT), x={"datum": 0}, **down)

    def reach(self, kind: str, colour: str, thick: float) -> None:
        """A line from low to high, where these are known."""
        line = {"type": "rule", "color": colour, "strokeWidth": thick}
        self.add(kind, line, _KNOWN_LOW, x=chart.number("low"), x2={"field": "high"}, y=self.at)

    def ticks(self, kind: str, across: Any, *, size: int, opacity: float, **encoding: Any) -> None:
        tick = {"type": "point", "shape": "M0,-1L0,1", "stroke": chart.SOFT, "strokeWidth": 1}
        self.add(kind, {**tick, "size": size, "opacity": opacity}, x=across, y=self.at, **encoding)

    def dots(
        self,
        kind: str,
        across: Any,
        *filters: Any,
        size: int | None = None,
        encoded_size: Any = None,
        fill: str = chart.INK,
        stroke: str | None = chart.PAPER,
        strokeWidth: float = 1,
    ) -> None:
        """A described dot; its size is given, or encoded."""
        point: dict[str, Any] = {
            "type": "point",
            "shape": "circle",
            "fill": fill,
            "stroke": stroke,
            "opacity": 1,
        }
        point |= {} if stroke is None else {"strokeWidth": strokeWidth}
        point |= {} if size is None else {"size": size}
        more = {} if encoded_size is None else {"size": encoded_size}
        self.add(kind, point, *filters, x=across, y=self.at, **more, description=chart.DESCRIPTION)

    def words(self, kind: str, *fields: str, **look: Any) -> None:
        self.layers += chart.row_words(kind, fields, self.left, self.width, **look)

    def beside(self, kind: str, field: str) -> None:
        """What stands right of the rows of wide charts."""
        if not self.narrow:
            edge = {"value": self.width - self.left - 12}
            self.add(
                kind, chart.note(align="right"), x=edge, y=chart.lane(), text=chart.words(field)
            )

    def spec(self, values: Records, top: int, bottom: int, about: str) -> dict[str, Any]:
        margins = {"left": self.left, "right": self.right, "top": top, "bottom": bottom}
        return chart.frame(
            values,
            self.layers,
            width=self.width,
            **margins,
            height={"step": self.step},
            description=about,
        )


def _effect(effect: Effect, place: int) -> Record:
    spread = effect.spread
    detail = counted(len(effect.changes), "change of its value", "changes of its value")
    if len(effect.changes) == 1:
        detail = chart.change(effect.changes[0].axes[0], _NAME)
    sd = "" if math.isnan(spread.sd) else f", standard deviation {percent(spread.sd)}"
    pairs = counted(spread.pairs, "pair")
    return {
        "kind": "effect",
        "axis": chart.cut(effect.axis, _NAME),
        "lane": place,
        "mean": spread.mean,
        "sd": spread.sd,
        "low": spread.mean - spread.sd,
        "high": spread.mean + spread.sd,
        "absolute": effect.absolute,
        "pairs": spread.pairs,
        "detail": detail,
        "result": points(spread.mean),
        "size": f"size {percent(effect.absolute)}, {pairs}",
        "description": f"{effect.axis}: mean change {points(spread.mean)} points over {pairs} of protocols{sd}, "
        f"mean size {percent(effect.absolute)}",
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
        "items": counted(n, "item"),
        "description": f"{side} {shown}: {chart.share(value)} of {counted(n, 'item')}",
    }


def _step(step: Step, before: float, place: int) -> Record:
    title, detail = _changed(step.axes)
    result, items = (
        f"{points(step.change)} {error(step.se)}".strip(),
        f"{step.gained:,} gained, {step.lost:,} lost",
    )
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
        "low": step.value - step.se,
        "high": step.value + step.se,
        "n": step.n,
        "gained": step.gained,
        "lost": step.lost,
        "title": title,
        "detail": detail,
        "result": result,
        "items": items,
        "description": f"{title} {detail}: {result} points over {counted(step.n, 'item')}, {items}; "
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


def _difference(
    contest: Contest, place: int, labels: tuple[str, str], models: Sequence[str]
) -> Record:
    difference = contest.difference
    low, high = points(difference.ci_low), points(difference.ci_high)
    bounds = "" if math.isnan(difference.ci_low) else f", 95 % interval {low} to {high}"
    test = (
        f", {probability(contest.p_holm)} after Holm's correction"
        if not math.isnan(contest.p_holm)
        else ""
    )
    said = f"{points(difference.value)} points over {counted(difference.n, 'item')}{bounds}{test}"
    return {
        "kind": "difference",
        "protocol": contest.protocol,
        "lane": place,
        "value": difference.value,
        "low": difference.ci_low,
        "high": difference.ci_high,
        "n": difference.n,
        "p_holm": contest.p_holm,
        "significant": contest.significant,
        "label": labels[0],
        "short": labels[1],
        "result": points(difference.value) if difference.n else "no item",
        "description": f"{chart.cut(contest.protocol, chart.SAID)}: {models[0]} minus {models[1]} {said}"
        if difference.n
        else f"{chart.cut(contest.protocol, chart.SAID)}: no item was scored with both",
    }


def _over_protocols(model: str, ranks: Sequence[int], place: int, models: int) -> list[Record]:
    counts = Counter(ranks)
    low, high = min(ranks), max(ranks)
    shown = chart.cut(model, chart.SAID)
    first = f"first under {counts[1]} of {len(ranks)}"
    row = _model(model, place, low, high, median(ranks), first)
    row["description"] = (
        f"{shown}: rank {low} to {high} over {counted(len(ranks), 'protocol')}, {first}"
    )
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
                "description": f"{shown}: rank {rank} of {models} under {number_} of {counted(len(ranks), 'protocol')}",
            }
            for rank, number_ in sorted(counts.items())
        ),
    ]


def _under_one(row: Number, place: int, models: int) -> list[Record]:
    low, high = (math.nan if each is None else each for each in (row.ranks.low, row.ranks.high))
    bounds = (
        "" if row.ranks.low is None else f", between {row.ranks.low} and {row.ranks.high} (95 %)"
    )
    value = value_text(row, row.value)
    about = f"{chart.cut(row.identity.model, chart.SAID)}: rank {row.ranks.rank} of {models}{bounds}, {value}"
    shown = {
        **_model(row.identity.model, place, low, high, row.ranks.rank or 0, value),
        "description": about,
    }
    dot = {
        "kind": "rank",
        "model": row.identity.model,
        "lane": place,
        "rank": row.ranks.rank,
        "count": 1,
        "share": 0.25,
        "label": "",
    }
    return [shown, {**dot, "description": about}]


def _model(model: str, place: int, low: float, high: float, middle: float, detail: str) -> Record:
    place_of = {"kind": "model", "model": model, "lane": place}
    return {**place_of, "low": low, "high": high, "median": middle, "detail": detail}
