"""The chain chart: one panel for each metric from log-probability to accuracy, each on a scale of its own.

Panels stand side by side, or one below the other where the chart is narrow; so every record has its place in both
layouts: ``across`` and ``row``, ``along`` and ``line``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from choicewise.errors import UsageError
from choicewise.extensions.analyses.charts.probabilities import (
    CHAIN_TITLES,
    Chain,
    lacks_probabilities,
    stated_probabilities,
)
from choicewise.page.charts import chart
from choicewise.page.charts.chart import Chart, Record, Records
from choicewise.page.charts.choices import Choices, about_runs, run_of, several_data
from choicewise.page.study import Study
from choicewise.protocols.metrics import METRICS
from choicewise.report.tables import value_text
from choicewise.results.rows import Row
from choicewise.util.text import counted, plain

CAPTION = (
    "Each step from the log-probability of the right answer to accuracy lets something else in, first the wrong "
    "choices, then a threshold, and follows the compute of training less closely (Schaeffer et al. 2024, arXiv "
    "2406.04391)."
)
"""What the chain is."""


def caption(values: Records) -> str:
    """How to read a chart of such values: it names what is drawn, and nothing else."""
    told = [CAPTION, "Every panel has a scale of its own."]
    if any(record["kind"] == "dot" and not math.isnan(record["across_low"]) for record in values):
        told.append("Line: 95 % interval.")
    if any(record["kind"] == "guess" for record in values):
        told.append("Dashed: what guessing gives.")
    shown = {record["model"] for record in values if record["kind"] == "dot"}
    models = max((record["models"] for record in values if record["kind"] == "group"), default=0)
    if models > len(shown):
        told.append(
            f"{MOST} of {models} models, those with the highest accuracy; the table has all."
        )
    return " ".join(told)


def lacks(study: Study) -> str:
    """Return why the runs of ``study`` have no chain."""
    return several_data(study) or lacks_probabilities(study)


def draw(study: Study, choices: Choices) -> Chart:
    """Draw the chain of the chosen models, or of all; UsageError if no item has log-likelihoods."""
    drawn = Study(tuple(run_of(study, model) for model in choices.models) or study.runs)
    stated = [each for each in stated_probabilities(drawn) if each.chains]
    if not stated:
        raise UsageError("no item has log-likelihoods of its choices")
    records = values(stated[0].chains)
    title = f"{about_runs(drawn)}: from probability to accuracy"
    return Chart("chain", title, spec(records, choices.width), caption(records))


MOST = 12
"""Models that are drawn."""


def values(chains: Sequence[Chain]) -> list[Record]:
    """Records of the kinds ``group`` (a protocol), ``panel``, ``tick``, ``guess``, ``name`` (a model) and ``dot``."""
    records: list[Record] = []
    row = line = 0
    for each in chains:
        models = _drawn(each)
        names = [model for model, _ in models]
        count, first = len(models), row + _ABOVE
        records.append(_group(each, row, line))
        line += 1
        wide, slim = (chart.cut_distinct(names, most) for most in (_NAME, _SHORT))
        records += [
            {"kind": "name", "side": "wide", "label": wide[name], "row": first + at}
            for at, name in enumerate(names)
        ]
        for place, metric in enumerate(each.metrics):
            own = [
                (at, row_)
                for at, (_, rows) in enumerate(models)
                for row_ in rows
                if row_.metric == metric
            ]
            panel = _Panel(place, metric, [row_ for _, row_ in own], first, line + 1, count)
            records += panel.frame(row)
            records += [panel.dot(row_, at) for at, row_ in own]
            records += [
                {"kind": "name", "side": "slim", "label": slim[name], "line": line + 1 + at}
                for at, name in enumerate(names)
            ]
            line += count + 3  # its title above, its scale and some room below
        row = first + count + 2
    return records


def spec(values: Records, width: int = chart.WIDTH) -> dict[str, Any]:
    """The chart of such values."""
    narrow = width < chart.NARROW
    left = (_SHORT if narrow else _NAME) * chart.NORMAL + 24
    x, y = ("along", "line") if narrow else ("across", "row")
    last = max(
        (
            record["last_line" if narrow else "last_row"]
            for record in values
            if "last_row" in record
        ),
        default=0,
    )
    domain = [0, 1] if narrow else [0, _PANELS - _BETWEEN]

    def across(name: str = "") -> dict[str, Any]:
        return chart.number(
            f"{x}{name}", axis=None, scale={"domain": domain, "nice": False, "zero": False}
        )

    def down(name: str = "", **more: Any) -> dict[str, Any]:
        return chart.lane(f"{y}{name}", **more)

    ends = {"y": down("_first", bandPosition=0), "y2": {"field": f"{y}_last", "bandPosition": 1}}
    edge = {"value": 12 - left}
    name = {"type": "text", "align": "left", "baseline": "middle", "color": chart.INK}
    point = {
        "type": "point",
        "shape": "circle",
        "fill": chart.INK,
        "stroke": chart.PAPER,
        "strokeWidth": 1,
    }
    small = chart.note(align="left")
    layers = [
        # one layer tells all lanes
        chart.layer(
            "group",
            {**name, "fontWeight": 600},
            x=edge,
            y=down(last=last),
            text=chart.words("label"),
        ),
        chart.layer("tick", chart.hairline(), x=across(), **ends),
        chart.layer(
            "guess", chart.hairline(color=chart.SOFT, strokeDash=[4, 3]), x=across(), **ends
        ),
        chart.layer(
            "dot",
            {"type": "rule", "color": chart.SOFT, "strokeWidth": 1.5},
            {"field": f"{x}_low", "valid": True},
            x=across("_low"),
            x2={"field": f"{x}_high"},
            y=down(),
        ),
        chart.layer(
            "dot",
            {**point, "size": 48, "opacity": 1},
            x=across(),
            y=down(),
            description=chart.DESCRIPTION,
        ),
        chart.layer(
            "name",
            name,
            chart.where("side", "slim" if narrow else "wide"),
            x=edge,
            y=down(),
            text=chart.words("label"),
        ),
    ]
    if narrow:
        heading = {"x": across(), "y": down(), "text": chart.words("heading")}
        layers += chart.named("panel", {**small, "color": chart.INK}, **heading)
    else:
        layers.append(
            chart.layer(
                "panel",
                {**name, "fontSize": chart.SMALL},
                x=across(),
                y=down(),
                text=chart.words("title"),
            )
        )
        layers.append(
            chart.layer("panel", small, x=across(), y=down("_under"), text=chart.words("better"))
        )
    for side in ("left", "center", "right"):
        layers.append(
            chart.layer(
                "tick",
                chart.note(align=side),
                chart.where("side", side),
                x=across(),
                y=down("_below"),
                text=chart.words("label"),
            )
        )
    groups = [record for record in values if record["kind"] == "group"]
    about = f"The metrics from log-probability to accuracy of {counted(_models(values), 'model')} under "
    about += counted(len(groups), "protocol")
    margins = {"left": left, "right": 28 if narrow else 24, "top": 8, "bottom": 8}
    return chart.frame(values, layers, width=width, **margins, height={"step": _LANE}, about=about)


_LANE = 17  # pixels
_ABOVE = 3  # lanes above the models: the protocol, the metric, which way is better
_PANELS, _BETWEEN = 5, 0.16  # panels side by side, and what is left between two of them, in panels
_NAME, _SHORT = (
    12,
    8,
)  # widths of the names of models, on wide and narrow charts, in sizes of the font
_PROTOCOL = 30
_STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)


class _Panel:
    """One metric under one protocol: its scale, and where its lanes begin in both layouts."""

    def __init__(
        self, place: int, metric: str, rows: Sequence[Row], row: int, line: int, count: int
    ) -> None:
        self.place, self.metric, self.row, self.line, self.count = place, metric, row, line, count
        self.first = rows[0]
        chances = [each.chance for each in rows if not math.isnan(each.chance)]
        self.guess = chances[0] if chances and max(chances) - min(chances) < 5e-4 else math.nan
        edges = [each for row_ in rows for each in (row_.value, row_.ci_low, row_.ci_high)]
        self.low, self.high = _scale(
            metric, [each for each in [*edges, self.guess] if math.isfinite(each)]
        )

    def frame(self, top: int) -> list[Record]:
        title, better = CHAIN_TITLES[self.metric], METRICS[self.metric].direction
        lanes = {"row_first": self.row, "row_last": self.row + self.count - 1}
        lanes |= {"line_first": self.line, "line_last": self.line + self.count - 1}
        below = {"row_below": self.row + self.count, "line_below": self.line + self.count}
        head = {"kind": "panel", "title": title, "better": better, "heading": f"{title}: {better}"}
        place = {"row": top + 1, "row_under": top + 2, "line": self.line - 1, **self._at(self.low)}
        records: list[Record] = [{**head, **place}]
        ticks = {"left": self.low, "right": self.high}
        ticks |= {"center": 0.5} if (self.low, self.high) == (0, 1) else {}
        for side, value in ticks.items():
            number = 100 * value if self.first.share else value
            label = (
                f"{number:g}".replace("-", "−")
                if not number or 1e-4 <= abs(number) < 1e4
                else plain(number)
            )
            label += " %" * self.first.share
            ends = {"last_row": below["row_below"], "last_line": below["line_below"]}
            records.append(
                {
                    "kind": "tick",
                    "side": side,
                    "label": label,
                    **lanes,
                    **below,
                    **ends,
                    **self._at(value),
                }
            )
        if not math.isnan(self.guess):
            records.append({"kind": "guess", "value": self.guess, **lanes, **self._at(self.guess)})
        return records

    def dot(self, row: Row, at: int) -> Record:
        known = not math.isnan(row.ci_low)
        low, high = value_text(row, row.ci_low), value_text(row, row.ci_high)
        interval = f", 95 % interval {low} to {high}" if known else ""
        guess = (
            f"; guessing has {value_text(row, row.chance)}" if not math.isnan(row.chance) else ""
        )
        said = f"{CHAIN_TITLES[self.metric]} {value_text(row, row.value)}{interval}, {counted(row.n, 'item')}{guess}"
        return {
            "kind": "dot",
            "model": row.model,
            "protocol": row.protocol,
            "metric": self.metric,
            "value": row.value,
            "row": self.row + at,
            "line": self.line + at,
            **self._at(row.value),
            **self._at(row.ci_low, "_low"),
            **self._at(row.ci_high, "_high"),
            "description": f"{chart.cut(row.model, chart.SAID)} under {chart.cut(row.protocol, chart.SAID)}: {said}",
        }

    def _at(self, value: float, name: str = "") -> Record:
        """The place on the scale, in both layouts."""
        along = (min(max(value, self.low), self.high) - self.low) / (self.high - self.low)
        along = math.nan if math.isnan(value) else along
        return {f"across{name}": self.place + along * (1 - _BETWEEN), f"along{name}": along}


def _scale(metric: str, edges: Sequence[float]) -> tuple[float, float]:
    """From zero to a round number beyond all of ``edges``; of shares of the choices from 0 to 1."""
    if metric in ("norm-prob", "acc"):
        return 0.0, 1.0
    far = max(map(abs, edges), default=0.0) or 1.0
    size = 10.0 ** math.floor(math.log10(far))
    end = next(step * size for step in _STEPS if step * size >= far * (1 - 1e-9))
    return (-end, 0.0) if metric == "logprob" else (0.0, end)


def _drawn(each: Chain) -> list[tuple[str, tuple[Row, ...]]]:
    """The models that are drawn, in their order: those with the highest accuracy."""
    right = {
        model: [row.value for row in rows if row.metric == "acc"] for model, rows in each.models
    }
    best = sorted(right, key=lambda model: -max(right[model], default=-1.0))[:MOST]
    return [(model, rows) for model, rows in each.models if model in best]


def _group(each: Chain, row: int, line: int) -> Record:
    label = chart.cut(f"{each.family}: {each.protocol}", _PROTOCOL)
    about = {"protocol": each.protocol, "models": len(each.models), "label": label}
    return {"kind": "group", **about, "row": row, "line": line}


def _models(values: Records) -> int:
    return len({record["model"] for record in values if record["kind"] == "dot"})
