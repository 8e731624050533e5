"""Draw one panel for each metric from log-probability to accuracy, each on a scale of its own."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from choicewise.errors import UsageError
from choicewise.extensions.analyses.charts.probabilities import (
    CHAIN_TITLES,
    Chain,
    lacks_probabilities,
    stated_probabilities,
)
from choicewise.page.charts import chart
from choicewise.page.charts.chart import Chart, Record, Records, of_kind
from choicewise.page.charts.choices import Choices, about_runs, run_of, several_data
from choicewise.page.study import Study
from choicewise.protocols.metrics import METRICS
from choicewise.report.tables import value_text
from choicewise.results.number import Number
from choicewise.util.jsonio import JsonDict
from choicewise.util.text import counted, plain

# Panels are side by side, or one below the other if the chart is narrow. Every record has its
# position in both layouts: ``across`` and ``row`` in the wide one, ``along`` and ``line`` in the
# narrow one.

CAPTION = (
    "Left to right, each metric drops detail and tracks training less smoothly (Schaeffer et al. "
    "2024, arXiv 2406.04391)."
)
"""The meaning of the chain."""


def caption(values: Records) -> str:
    """Return how to read a chart of ``values``; it names only what is drawn."""
    dots = of_kind(values, "dot")
    sentences = [CAPTION, "Every panel has a scale of its own."]
    if any(not math.isnan(dot["across_low"]) for dot in dots):
        sentences.append("Line: 95 % interval.")
    if of_kind(values, "guess"):
        sentences.append("Dashed: what guessing gives.")
    models = max((group["models"] for group in of_kind(values, "group")), default=0)
    if models > len({dot["model"] for dot in dots}):
        sentences.append(
            f"{MOST} of {models} models, those with the highest accuracy; the table has all."
        )
    return " ".join(sentences)


def lacks(study: Study) -> str:
    """Return why the runs of ``study`` have no chain, or an empty text."""
    return several_data(study) or lacks_probabilities(study)


def draw(study: Study, choices: Choices) -> Chart:
    """Draw the chain of the chosen models, or of all; UsageError if no item has log-likelihoods."""
    if choices.models:
        study = Study(tuple(run_of(study, model) for model in choices.models))
    for stated in stated_probabilities(study):
        if stated.chains:
            records = values(stated.chains)
            title = f"{about_runs(study)}: from probability to accuracy"
            return Chart("chain", title, spec(records, choices.width), caption(records))
    raise UsageError("no item has log-likelihoods of its choices")


MOST = 12
"""Models that are drawn."""


def values(chains: Sequence[Chain]) -> list[Record]:
    """Return records of the kinds ``group`` (a protocol), ``panel``, ``tick``, ``guess``, ``name``
    and ``dot``.
    """
    records: list[Record] = []
    row = 0
    line = 0
    for chain in chains:
        models = _drawn_models(chain)
        names = [model for model, _ in models]
        wide_names = chart.cut_distinct(names, _NAME)
        slim_names = chart.cut_distinct(names, _SHORT)
        first_row = row + _ABOVE
        records.append(_group(chain, row, line))
        line += 1
        for index, name in enumerate(names):
            label = wide_names[name]
            records.append(
                {"kind": "name", "side": "wide", "label": label, "row": first_row + index}
            )
        for number, metric in enumerate(chain.metrics):
            by_model = [_row_of(metric, rows) for _, rows in models]
            # Metrics have different units, so that every panel has a scale of its own.
            panel = _Panel.of(
                metric,
                [row_of_model for row_of_model in by_model if row_of_model is not None],
                number=number,
                lanes=_Lanes(first_row=first_row, first_line=line + 1, count=len(models)),
            )
            records += panel.frame(row)
            for index, row_of_model in enumerate(by_model):
                if row_of_model is not None:
                    records.append(panel.dot(row_of_model, index))
            for index, name in enumerate(names):
                label = slim_names[name]
                records.append(
                    {"kind": "name", "side": "slim", "label": label, "line": line + 1 + index}
                )
            line += len(models) + 3  # its title above, its scale and some room below
        row = first_row + len(models) + 2
    return records


def _row_of(metric: str, rows: Sequence[Number]) -> Number | None:
    for row in rows:
        if row.identity.metric == metric:
            return row
    return None


def spec(values: Records, width: int = chart.WIDTH) -> JsonDict:
    """Return the specification of a chart of ``values``."""
    if width < chart.NARROW:
        layout = _Layout(x="along", y="line", names="slim", left=_SHORT, right=28, panels=1)
    else:
        layout = _Layout(x="across", y="row", names="wide", left=_NAME, right=24, panels=_PANELS)
    groups = of_kind(values, "group")
    models = {dot["model"] for dot in of_kind(values, "dot")}
    about = (
        f"The metrics from log-probability to accuracy of {counted(len(models), 'model')} under "
    )
    about += counted(len(groups), "protocol")
    return chart.frame(
        values,
        layout.layers(values),
        width=width,
        left=layout.margin,
        right=layout.right,
        top=8,
        bottom=8,
        height={"step": _LANE},
        description=about,
    )


@dataclass(frozen=True, kw_only=True)
class _Layout:
    """Describe one of the two layouts.

    ``x``, ``y``: the fields of the records' positions. ``names``: the side of the names of models.
    ``left``: the width of these names, in sizes of the font. ``right``: pixels on the right.
    ``panels``: how many are side by side.
    """

    x: str
    y: str
    names: str
    left: int
    right: int
    panels: int

    @property
    def margin(self) -> int:
        """Return the pixels on the left."""
        return self.left * chart.NORMAL + 24

    def across(self, name: str = "") -> JsonDict:
        end: float = 1
        if self.panels > 1:
            end = self.panels - _BETWEEN
        scale = {"domain": [0, end], "nice": False, "zero": False}
        return chart.number(f"{self.x}{name}", axis=None, scale=scale)

    def down(self, name: str = "", **channel: Any) -> JsonDict:
        return chart.lane(f"{self.y}{name}", **channel)

    def layers(self, values: Records) -> list[JsonDict]:
        x = self.across()
        y = self.down()
        label = chart.words("label")
        edge = {"value": 12 - self.margin}
        name = {"type": "text", "align": "left", "baseline": "middle", "color": chart.INK}
        # One layer has to name all lanes, also the empty ones.
        ticks = of_kind(values, "tick")
        last = max((tick[f"last_{self.y}"] for tick in ticks), default=0)
        bold = {**name, "fontWeight": 600}
        layers = [chart.layer("group", bold, x=edge, y=self.down(last=last), text=label)]

        ends = {
            "y": self.down("_first", bandPosition=0),
            "y2": {"field": f"{self.y}_last", "bandPosition": 1},
        }
        layers.append(chart.layer("tick", chart.hairline(), x=x, **ends))
        dash = chart.hairline(color=chart.SOFT, strokeDash=[4, 3])
        layers.append(chart.layer("guess", dash, x=x, **ends))
        rule = {"type": "rule", "color": chart.SOFT, "strokeWidth": 1.5}
        has_interval = {"field": f"{self.x}_low", "valid": True}
        interval = {"x": self.across("_low"), "x2": {"field": f"{self.x}_high"}}
        layers.append(chart.layer("dot", rule, has_interval, **interval, y=y))
        point: JsonDict = {"type": "point", "shape": "circle", "fill": chart.INK}
        point |= {"stroke": chart.PAPER, "strokeWidth": 1, "size": 48, "opacity": 1}
        layers.append(chart.layer("dot", point, x=x, y=y, description=chart.DESCRIPTION))
        of_side = chart.where("side", self.names)
        layers.append(chart.layer("name", name, of_side, x=edge, y=y, text=label))

        small = chart.note(align="left")
        if self.panels == 1:
            heading = {**small, "color": chart.INK}
            layers += chart.named("panel", heading, x=x, y=y, text=chart.words("heading"))
        else:
            title = {**name, "fontSize": chart.SMALL}
            layers.append(chart.layer("panel", title, x=x, y=y, text=chart.words("title")))
            under = self.down("_under")
            layers.append(chart.layer("panel", small, x=x, y=under, text=chart.words("better")))
        below = self.down("_below")
        for side in ("left", "center", "right"):
            at_side = chart.where("side", side)
            note = chart.note(align=side)
            layers.append(chart.layer("tick", note, at_side, x=x, y=below, text=label))
        return layers


_LANE = 17
"""Pixels of a lane."""

_ABOVE = 3
"""Lanes above the models: the protocol, the metric, which way is better."""

_PANELS = 5
"""Panels side by side."""

_BETWEEN = 0.16
"""Room between two panels, in panels."""

_NAME = 16
_SHORT = 12
"""Widths of the names of models, on wide and narrow charts, in sizes of the font."""

_PROTOCOL = 26
"""Width of the name of a protocol."""

_STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)
"""Round numbers at which a scale may end, times a power of ten."""


@dataclass(frozen=True, kw_only=True)
class _Lanes:
    """Hold where the lanes of ``count`` models begin in both layouts."""

    first_row: int
    first_line: int
    count: int

    def fields(self) -> Record:
        """Return the fields of the records that span these lanes."""
        return {
            "row_first": self.first_row,
            "row_last": self.first_row + self.count - 1,
            "line_first": self.first_line,
            "line_last": self.first_line + self.count - 1,
        }


@dataclass(frozen=True, kw_only=True)
class _Panel:
    """Draw one metric under one protocol; ``number``: counts the panels of the protocol.

    ``low``, ``high``: the ends of the scale. ``guess``: the number of guessing, NaN if it is
    unknown or differs.
    """

    metric: str
    share: bool
    number: int
    lanes: _Lanes
    low: float
    high: float
    guess: float

    @classmethod
    def of(cls, metric: str, rows: Sequence[Number], number: int, lanes: _Lanes) -> _Panel:
        chances = [row.chance for row in rows if not math.isnan(row.chance)]
        guess = math.nan
        # Models with different items have different chances, and no common line.
        if chances and max(chances) - min(chances) < 5e-4:
            guess = chances[0]
        edges = [guess]
        for row in rows:
            edges += [row.value, row.interval.low, row.interval.high]
        low, high = _scale(metric, [edge for edge in edges if math.isfinite(edge)])
        return cls(
            metric=metric,
            share=rows[0].share,
            number=number,
            lanes=lanes,
            low=low,
            high=high,
            guess=guess,
        )

    def frame(self, top: int) -> list[Record]:
        """Return the title, the ticks and the line of guessing; ``top``: the row of the protocol."""
        title = CHAIN_TITLES[self.metric]
        better = METRICS[self.metric].direction
        first_line = self.lanes.first_line
        head: Record = {
            "kind": "panel",
            "title": title,
            "better": better,
            "heading": f"{title}: {better}",
        }
        head |= {"row": top + 1, "row_under": top + 2, "line": first_line - 1}
        records: list[Record] = [{**head, **self._position(self.low)}]
        ticks = {"left": self.low, "right": self.high}
        if (self.low, self.high) == (0, 1):
            ticks["center"] = 0.5
        row_below = self.lanes.first_row + self.lanes.count
        line_below = first_line + self.lanes.count
        for side, value in ticks.items():
            tick: Record = {"kind": "tick", "side": side, "label": self._tick_label(value)}
            tick |= self.lanes.fields()
            tick |= {"row_below": row_below, "line_below": line_below}
            tick |= {"last_row": row_below, "last_line": line_below}
            records.append(tick | self._position(value))
        if not math.isnan(self.guess):
            guess = {"kind": "guess", "value": self.guess, **self.lanes.fields()}
            records.append(guess | self._position(self.guess))
        return records

    def _tick_label(self, value: float) -> str:
        number = value
        if self.share:
            number = 100 * value
        label = plain(number)
        if number == 0 or 1e-4 <= abs(number) < 1e4:
            label = f"{number:g}".replace("-", "−")
        if self.share:
            label += " %"
        return label

    def dot(self, row: Number, index: int) -> Record:
        """Return the dot of the model in the lane ``index``."""
        model = chart.cut(row.identity.model, chart.SAID)
        description = f"{model} under {chart.cut(row.identity.protocol, chart.SAID)}: "
        description += f"{CHAIN_TITLES[self.metric]} {value_text(row, row.value)}"
        if not math.isnan(row.interval.low):
            low = value_text(row, row.interval.low)
            description += f", 95 % interval {low} to {value_text(row, row.interval.high)}"
        description += f", {counted(row.counts.n, 'item')}"
        if not math.isnan(row.chance):
            description += f"; guessing has {value_text(row, row.chance)}"
        return {
            "kind": "dot",
            "model": row.identity.model,
            "protocol": row.identity.protocol,
            "metric": self.metric,
            "value": row.value,
            "row": self.lanes.first_row + index,
            "line": self.lanes.first_line + index,
            **self._position(row.value),
            **self._position(row.interval.low, "_low"),
            **self._position(row.interval.high, "_high"),
            "description": description,
        }

    def _position(self, value: float, name: str = "") -> Record:
        """Return the position of ``value`` on the scale, in both layouts."""
        along = math.nan
        if not math.isnan(value):
            along = (min(max(value, self.low), self.high) - self.low) / (self.high - self.low)
        return {f"across{name}": self.number + along * (1 - _BETWEEN), f"along{name}": along}


def _scale(metric: str, edges: Sequence[float]) -> tuple[float, float]:
    """Return the scale from zero to a round number beyond all of ``edges``; of shares of the
    choices from 0 to 1.
    """
    if metric in ("norm-prob", "acc"):
        return 0.0, 1.0
    furthest = max((abs(edge) for edge in edges), default=0.0) or 1.0
    size = 10.0 ** math.floor(math.log10(furthest))
    end = min(step * size for step in _STEPS if step * size >= furthest * (1 - 1e-9))
    if metric == "logprob":
        return -end, 0.0
    return 0.0, end


def _drawn_models(chain: Chain) -> list[tuple[str, tuple[Number, ...]]]:
    """Return the models with the highest accuracy, in their order."""
    accuracies = {}
    for model, rows in chain.models:
        accuracy = _row_of("acc", rows)
        accuracies[model] = -1.0
        if accuracy is not None:
            accuracies[model] = accuracy.value
    best = sorted(accuracies, key=lambda model: -accuracies[model])[:MOST]
    return [(model, rows) for model, rows in chain.models if model in best]


def _group(chain: Chain, row: int, line: int) -> Record:
    label = chart.cut(f"{chain.family}: {chain.protocol}", _PROTOCOL)
    group = {"kind": "group", "protocol": chain.protocol, "models": len(chain.models)}
    return group | {"label": label, "row": row, "line": line}
