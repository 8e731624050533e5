"""Draw charts in lanes (effects, ladder, pair, ranks): their values and, from one builder, their
specifications.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from statistics import median
from typing import TYPE_CHECKING, Any

from choicewise.page.charts import chart
from choicewise.page.charts.chart import Record, Records
from choicewise.page.study import Contest
from choicewise.report.tables import value_text
from choicewise.results.number import Number
from choicewise.results.outcomes import measured_as
from choicewise.util.jsonio import JsonDict, JsonMapping
from choicewise.util.text import counted, error, percent, points, probability

if TYPE_CHECKING:
    from choicewise.results.ladder import Effect, Ladder, Step, ValueChange

LADDER_CAPTION = "Points ± standard error, and how many items turn right and wrong."
"""How to read the chart of a ladder."""

RANKS_CAPTION = (
    "How many protocols give each model each rank: the area of a dot, and the number beside it."
)
"""How to read the chart of ranks under all protocols."""

CAPTION_ONE = (
    "Rank under this protocol, and the ranks that paired tests of all models leave open (95 %)."
)
"""How to read the chart of ranks under one protocol."""

_NAME = 21
"""Width of the text beside a row of effects or of a ladder, in sizes of its font."""

_PROTOCOL = 18
"""Width of the names of protocols, in sizes of the font."""

_PAIR_SHORT = 14
"""Width of the names of protocols on narrow charts of pairs, in sizes of the font."""

_PAIR_MODEL = 15
"""Width of the names of models above a pair, in sizes of the font."""

_RANKS_MODEL = 16
"""Width of the names of models beside ranks, in sizes of the font."""

_RANKS_SHORT = 12
"""Width of the names of models beside ranks on narrow charts, in sizes of the font."""

_MANY = 30
"""Models from which on rows of ranks are dense."""

_COUNTED = 12
"""Models from which on the counts are not written beside the dots."""

_KNOWN_LOW = {"field": "low", "valid": True}


def ladder_caption(values: Records) -> str:
    """Return how to read the chart of a ladder, whatever is in it."""
    return LADDER_CAPTION


def effects_caption(values: Records) -> str:
    """Return how to read a chart of effects: it names what is drawn, and nothing else."""
    dot = "Dot: mean"
    for record in values:
        if record["kind"] == "effect" and not math.isnan(record["sd"]):
            dot = "Dot and line: mean and standard deviation"
            break
    return (
        f"Tick: a pair of protocols that differ only in this axis. {dot}. Size: mean without sign."
    )


def pair_caption(values: Records) -> str:
    """Return how to read the chart of a pair: it names what is drawn, and nothing else."""
    rows = []
    for record in values:
        if record["kind"] == "difference" and not math.isnan(record["value"]):
            rows.append(record)
    interval = ""
    if not all(math.isnan(record["low"]) for record in rows):
        interval = " with its 95 % interval"
    sentences = [f"Points ahead{interval}, one protocol per family and score."]
    significant = [record["significant"] for record in rows]
    if any(significant):
        sentences.append("Filled: significant after Holm's correction.")
    if not all(significant):
        sentences.append("Hollow: no significant difference.")
    return " ".join(sentences)


def effects_values(effects: Sequence[Effect]) -> list[Record]:
    """Return records of the kinds ``effect`` (a row) and ``pair`` (a tick in it); changes are
    shares of 1.
    """
    records: list[Record] = []
    for lane, effect in enumerate(effects):
        records.append(_effect(effect, lane))
        for change in effect.changes:
            records += _ticks(change, lane)
    return records


def effects_spec(values: Records, width: int = chart.WIDTH) -> JsonDict:
    """Return the chart of :func:`effects_values`."""
    lanes = _Lanes(width, (_NAME * chart.NORMAL + 24, 12), (148, 28), (38, 58), (0.5, 0.75))
    edges = []
    for record in values:
        if record["kind"] == "pair":
            edges.append(record["change"])
        else:
            edges += [record["low"], record["high"]]
    # With zero inside, the sign of a change is seen at once.
    scale = chart.around_zero(0.05, edges)
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


def ladder_values(ladder: Ladder) -> list[Record]:
    """Return records of the kinds ``end`` (the first and the last number) and ``step``, from the
    top.

    ``before`` and ``after`` are the numbers on both sides of a step, ``low`` and ``high`` one
    standard error around the second.
    """
    before = ladder.start_value
    records = [_end(ladder.start, before, ladder.start_n, lane=0, side="from")]
    for lane, step in enumerate(ladder.steps, 1):
        records.append(_step(step, before, lane))
        before = step.value
    last = len(ladder.steps) + 1
    records.append(_end(ladder.end, ladder.end_value, ladder.end_n, lane=last, side="to"))
    return records


def ladder_spec(values: Records, width: int = chart.WIDTH) -> JsonDict:
    """Return the chart of :func:`ladder_values`."""
    lanes = _Lanes(width, (_NAME * chart.NORMAL + 24, 12), (132, 28), (36, 58), (0.5, 0.74))
    has_value = {"field": "after", "valid": True}
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
    # A fall is paler than a rise; both have their sign in words.
    for colour, change in ((chart.MARK, "lt"), (chart.SOFT, "gte")):
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
    lanes.dots("step", across, has_value, size=24, stroke=None)
    lanes.dots("end", chart.number("after"), has_value, size=40, stroke=None)
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
    """Return records of the kinds ``difference`` (a protocol, the greatest first) and ``side`` (the
    two models).
    """
    ordered = sorted(contests, key=_greatest_first)
    names = chart.without_shared([contest.protocol for contest in ordered]).values()
    labels = chart.cut_distinct(names, _PROTOCOL)
    # Narrow charts leave the name half of the width.
    shorter = chart.cut_distinct(names, _PAIR_SHORT)
    left_name = chart.cut(left, _PAIR_MODEL)
    right_name = chart.cut(right, _PAIR_MODEL)
    records = []
    for lane, (contest, name) in enumerate(zip(ordered, names, strict=True)):
        record = _difference(contest, lane, f"{left_name} minus {right_name}")
        records.append(record | {"label": labels[name], "short": shorter[name]})
    left_label = f"← {right_name} ahead"
    right_label = f"{left_name} ahead →"
    records.append({"kind": "side", "side": "left", "model": right, "label": left_label})
    records.append({"kind": "side", "side": "right", "model": left, "label": right_label})
    return records


def _greatest_first(contest: Contest) -> float:
    value = contest.difference.value
    return math.inf if math.isnan(value) else -value


def pair_spec(values: Records, width: int = chart.WIDTH) -> JsonDict:
    """Return the chart of :func:`pair_values`."""
    lanes = _Lanes(
        width, (_PROTOCOL * chart.SMALL + 24, _PAIR_SHORT * chart.SMALL + 24), (76, 28), (14, 14)
    )
    rows = [record for record in values if record["kind"] == "difference"]
    edges = []
    for record in rows:
        edges += [record["value"], record["low"], record["high"]]
    # Differences of a tenth of a point must not fill the width.
    scale = chart.around_zero(0.02, edges)
    lanes.zero("difference")
    lanes.reach("difference", chart.SOFT, 1.25)
    # Filled dots are drawn last, so that hollow ones don't cover them.
    for significant, fill in ((False, chart.PAPER), (True, chart.INK)):
        filters = ({"field": "value", "valid": True}, chart.where("significant", significant))
        across = chart.number("value", scale=scale, axis=chart.POINTS_AXIS)
        lanes.dots(
            "difference", across, *filters, size=44, fill=fill, stroke=chart.INK, strokeWidth=1.25
        )
    label = chart.note(align="left", color=chart.INK)
    lanes.add("difference", label, x={"value": 12 - lanes.left}, y=chart.lane(), text=lanes.name)
    lanes.beside("difference", "result")
    top = 28
    heights = {"left": -12, "right": -12}
    if lanes.narrow:
        # The two names would lie on each other.
        top = 40
        heights["left"] = -27
    edges_of_plot = {"left": 0, "right": "width"}
    for side, height in heights.items():
        lanes.add(
            "side",
            chart.note(align=side),
            chart.where("side", side),
            x={"value": edges_of_plot[side]},
            y={"value": height},
            text=chart.words("label"),
        )
    description = (
        f"The difference between two models under {counted(len(rows), 'protocol')}, in points"
    )
    return lanes.spec(values, top, 42, description)


def ranks_values(rows: Sequence[Number], protocol: str | None = None) -> list[Record]:
    """Return records of the kinds ``model`` (a row each, the best first) and ``rank`` (a dot).

    ``rows``: ranked, of several models; a rank without a rival is none. ``protocol``: of this one
    alone, with the interval of each rank.
    """
    ranked = []
    for row in rows:
        if row.ranks.rank is not None and protocol in (None, row.identity.protocol):
            ranked.append(row)
    # A rank without a rival would always be the first.
    rivals = Counter(map(measured_as, ranked))
    rows_of_model: dict[str, list[Number]] = {}
    ranks_of_model: dict[str, list[int]] = {}
    for row in ranked:
        if rivals[measured_as(row)] > 1:
            model = row.identity.model
            rows_of_model.setdefault(model, []).append(row)
            ranks_of_model.setdefault(model, []).append(row.ranks.rank or 0)
    models = sorted(ranks_of_model, key=lambda model: _order_of_ranks(ranks_of_model[model]))
    labels = chart.cut_distinct(models, _RANKS_MODEL)
    shorter = chart.cut_distinct(models, _RANKS_SHORT)
    records: list[Record] = []
    for lane, model in enumerate(models):
        if protocol is None:
            row_record, *dots = _over_protocols(model, ranks_of_model[model], lane, len(models))
        else:
            row_record, *dots = _under_one(rows_of_model[model][0], lane, len(models))
        row_record |= {"label": labels[model], "short": shorter[model]}
        records += [row_record, *dots]
    return records


def _order_of_ranks(ranks: Sequence[int]) -> tuple[float, float]:
    return median(ranks), sum(ranks) / len(ranks)


def ranks_spec(values: Records, width: int = chart.WIDTH) -> JsonDict:
    """Return the chart of :func:`ranks_values`."""
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
    if dense:
        # A faint tick per rank, and a dot at the median.
        lanes.ticks("rank", across, size=49, opacity=0.5)
        lanes.dots("model", chart.number("median"), size=40)
    else:
        # A dot per rank, its area the share of the protocols, with how many these are.
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


class _Lanes:
    """Collect the layers of a chart in lanes, from the lowest up; pairs are for wide and narrow
    charts.
    """

    def __init__(
        self,
        width: int,
        left: tuple[int, int],
        right: tuple[int, int],
        step: tuple[int, int],
        bar: tuple[float, float] | None = None,
    ) -> None:
        self.width = width
        self.narrow = width < chart.NARROW
        self.left = left[self.narrow]
        self.right = right[self.narrow]
        self.step = step[self.narrow]
        self.bar: float | None = None
        self.at = chart.lane()
        if bar is not None:
            self.bar = bar[self.narrow]
            self.at = chart.lane("lane", bandPosition=self.bar)
        self.name = chart.words("label")
        if self.narrow:
            self.name = chart.words("short")
        self.layers: list[JsonDict] = []

    def add(self, kind: str, mark: JsonMapping, *filters: Any, **encoding: Any) -> None:
        self.layers.append(chart.layer(kind, mark, *filters, **encoding))

    def edges(self, kind: str) -> None:
        """Add a line above every row, from margin to margin."""
        ends = {"x": {"value": -self.left}, "x2": {"value": self.width - self.left}}
        self.add(kind, chart.hairline(), **ends, y=chart.lane("lane", bandPosition=0))

    def zero(self, kind: str) -> None:
        """Add a line at zero, down every row."""
        down = {"y": chart.lane(bandPosition=0), "y2": {"field": "lane", "bandPosition": 1}}
        self.add(kind, chart.hairline(color=chart.SOFT), x={"datum": 0}, **down)

    def reach(self, kind: str, colour: str, thick: float) -> None:
        """Add a line from low to high if these are known."""
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
        """Add a described dot; its size is given, or encoded."""
        point: JsonDict = {
            "type": "point",
            "shape": "circle",
            "fill": fill,
            "stroke": stroke,
            "opacity": 1,
        }
        if stroke is not None:
            point["strokeWidth"] = strokeWidth
        if size is not None:
            point["size"] = size
        encoding = {"x": across, "y": self.at}
        if encoded_size is not None:
            encoding["size"] = encoded_size
        self.add(kind, point, *filters, **encoding, description=chart.DESCRIPTION)

    def words(self, kind: str, *fields: str, **look: Any) -> None:
        self.layers += chart.row_words(kind, fields, self.left, self.width, **look)

    def beside(self, kind: str, field: str) -> None:
        """Add a text to the right of the rows of wide charts."""
        if not self.narrow:
            edge = {"value": self.width - self.left - 12}
            self.add(
                kind, chart.note(align="right"), x=edge, y=chart.lane(), text=chart.words(field)
            )

    def spec(self, values: Records, top: int, bottom: int, description: str) -> JsonDict:
        margins = {"left": self.left, "right": self.right, "top": top, "bottom": bottom}
        return chart.frame(
            values,
            self.layers,
            width=self.width,
            **margins,
            height={"step": self.step},
            description=description,
        )


def _effect(effect: Effect, lane: int) -> Record:
    spread = effect.spread
    detail = counted(len(effect.changes), "change of its value", "changes of its value")
    if len(effect.changes) == 1:
        detail = chart.change(effect.changes[0].axes[0], _NAME)
    # One pair has no deviation.
    deviation = "" if math.isnan(spread.sd) else f", standard deviation {percent(spread.sd)}"
    pairs = counted(spread.pairs, "pair")
    return {
        "kind": "effect",
        "axis": chart.cut(effect.axis, _NAME),
        "lane": lane,
        "mean": spread.mean,
        "sd": spread.sd,
        "low": spread.mean - spread.sd,
        "high": spread.mean + spread.sd,
        "absolute": effect.absolute,
        "pairs": spread.pairs,
        "detail": detail,
        "result": points(spread.mean),
        "size": f"size {percent(effect.absolute)}, {pairs}",
        "description": (
            f"{effect.axis}: mean change {points(spread.mean)} points over {pairs} of "
            f"protocols{deviation}, "
            f"mean size {percent(effect.absolute)}"
        ),
    }


def _ticks(change: ValueChange, lane: int) -> list[Record]:
    axis = change.axes[0]
    values = f"{axis.axis} {chart.cut(axis.left, 12)} → {chart.cut(axis.right, 12)}"
    records = []
    for pair in change.pairs:
        ends = f"{chart.cut(pair.start, 30)} to {chart.cut(pair.end, 30)}"
        records.append(
            {
                "kind": "pair",
                "lane": lane,
                "start": pair.start,
                "end": pair.end,
                "change": pair.change,
                "n": pair.n,
                "description": f"{values}, {ends}: {points(pair.change)}",
            }
        )
    return records


def _end(name: str, value: float, n: int, *, lane: int, side: str) -> Record:
    title = chart.cut(name, _NAME)
    items = counted(n, "item")
    return {
        "kind": "end",
        "side": side,
        "protocol": name,
        "lane": lane,
        "above": max(lane - 1, 0),
        "after": value,
        "n": n,
        "title": title,
        "detail": side,
        "result": chart.share(value),
        "items": items,
        "description": f"{side} {title}: {chart.share(value)} of {items}",
    }


def _step(step: Step, before: float, lane: int) -> Record:
    axes = [axis.axis for axis in step.axes]
    # The values of several axes would not fit beside their bar.
    title = _names(axes)
    detail = f"{len(axes)} axes together"
    if len(axes) == 1:
        title = axes[0]
        detail = chart.change(step.axes[0], _NAME)
    result = f"{points(step.change)} {error(step.se)}".strip()
    items = f"{step.gained:,} gained, {step.lost:,} lost"
    return {
        "kind": "step",
        "protocol": step.name,
        "axes": axes,
        "lane": lane,
        "above": lane - 1,
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
        "description": (
            f"{title} {detail}: {result} points over {counted(step.n, 'item')}, {items}; "
            f"reaches {chart.cut(step.name, chart.SAID)} with {chart.share(step.value)}"
        ),
    }


def _names(axes: Sequence[str]) -> str:
    """Return as many names as there is room for, one at least."""
    text = ", ".join(axes)
    for count in range(len(axes) - 1, 0, -1):
        if chart.em(text) <= _NAME:
            break
        text = ", ".join([*axes[:count], f"{len(axes) - count} more"])
    return text


def _difference(contest: Contest, lane: int, models: str) -> Record:
    difference = contest.difference
    protocol = chart.cut(contest.protocol, chart.SAID)
    result = "no item"
    description = f"{protocol}: no item was scored with both"
    if difference.n:
        result = points(difference.value)
        description = f"{protocol}: {models} {_difference_text(contest)}"
    return {
        "kind": "difference",
        "protocol": contest.protocol,
        "lane": lane,
        "value": difference.value,
        "low": difference.ci_low,
        "high": difference.ci_high,
        "n": difference.n,
        "p_holm": contest.p_holm,
        "significant": contest.significant,
        "result": result,
        "description": description,
    }


def _difference_text(contest: Contest) -> str:
    difference = contest.difference
    text = f"{points(difference.value)} points over {counted(difference.n, 'item')}"
    if not math.isnan(difference.ci_low):
        text += f", 95 % interval {points(difference.ci_low)} to {points(difference.ci_high)}"
    if not math.isnan(contest.p_holm):
        text += f", {probability(contest.p_holm)} after Holm's correction"
    return text


def _over_protocols(model: str, ranks: Sequence[int], lane: int, models: int) -> list[Record]:
    """Return the row of a model and a dot for each of its ranks."""
    counts = Counter(ranks)
    protocols = counted(len(ranks), "protocol")
    name = chart.cut(model, chart.SAID)
    low = min(ranks)
    high = max(ranks)
    # How often a model is first says more than its mean rank.
    first = f"first under {counts[1]} of {len(ranks)}"
    row = _model(model, lane, low, high)
    row |= {"median": median(ranks), "detail": first}
    row["description"] = f"{name}: rank {low} to {high} over {protocols}, {first}"
    records = [row]
    for rank, count in sorted(counts.items()):
        records.append(
            {
                "kind": "rank",
                "model": model,
                "lane": lane,
                "rank": rank,
                "count": count,
                "share": count / len(ranks),
                "label": str(count),
                "description": f"{name}: rank {rank} of {models} under {count} of {protocols}",
            }
        )
    return records


def _under_one(row: Number, lane: int, models: int) -> list[Record]:
    """Return the row of a model under one protocol, and its dot."""
    ranks = row.ranks
    model = row.identity.model
    low = math.nan
    high = math.nan
    bounds = ""
    if ranks.low is not None and ranks.high is not None:
        low = ranks.low
        high = ranks.high
        bounds = f", between {ranks.low} and {ranks.high} (95 %)"
    value = value_text(row, row.value)
    description = f"{chart.cut(model, chart.SAID)}: rank {ranks.rank} of {models}{bounds}, {value}"
    record = _model(model, lane, low, high)
    record |= {"median": ranks.rank or 0, "detail": value, "description": description}
    dot = {
        "kind": "rank",
        "model": model,
        "lane": lane,
        "rank": ranks.rank,
        "count": 1,
        "share": 0.25,
        "label": "",
        "description": description,
    }
    return [record, dot]


def _model(model: str, lane: int, low: float, high: float) -> Record:
    return {"kind": "model", "model": model, "lane": lane, "low": low, "high": high}
