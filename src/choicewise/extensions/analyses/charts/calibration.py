"""The reliability diagram: how sure a model is, and how often it is right."""

from __future__ import annotations

from typing import Any

from choicewise.errors import UsageError
from choicewise.extensions.analyses.charts.probabilities import (
    Calibrated,
    errors_in_words,
    stated_probabilities,
)
from choicewise.page.charts import chart
from choicewise.page.charts.chart import Chart, Record, Records
from choicewise.page.charts.choices import Choices, about_run, chosen_run
from choicewise.page.study import Study
from choicewise.util.text import counted, interval, percent, safe

CAPTION = (
    "A dot: items with about the same confidence (the highest share of a choice in the softmax of the scores), and how "
    "many of them are right; its area says how many items these are, the line is the 95 % interval. A calibrated model "
    "is on the dashed line, one below it is too sure. Calibration error: the mean distance from it, in ten bins of "
    "equal width."
)
"""How to read it."""


def draw(study: Study, choices: Choices) -> Chart:
    """Draw the diagram of one model; UsageError if no item has scores of its choices."""
    run = chosen_run(study, choices)
    calibrated = [
        of_model for each in stated_probabilities(Study((run,))) for of_model in each.calibrated
    ]
    if not calibrated:
        raise UsageError("no item has scores of its choices under a protocol of letters")
    first = calibrated[0]
    title = f"{about_run(run)}: calibration under {safe(first.protocol)}"
    caption = " ".join([*errors_in_words(first), CAPTION])
    return Chart("calibration", title, spec(values(first), choices.width), caption)


def values(each: Calibrated) -> list[Record]:
    """Records of the kinds ``even`` (the line of a calibrated model) and ``bin``."""
    items = sum(bin.n for bin in each.bins)
    records: list[Record] = [{"kind": "even", "start": 0, "end": 1}]
    for bin in each.bins:
        right = f"{percent(bin.right)} % of {counted(bin.n, 'item')} right"
        bounds = f"95 % interval {interval(bin.right_low, bin.right_high)}"
        name = (
            f"{chart.cut(each.model, chart.SAID)}, confidence {interval(bin.lowest, bin.highest)} %"
        )
        records.append(
            {
                "kind": "bin",
                "n": bin.n,
                "share": bin.n / items,
                "confidence": bin.confidence,
                "right": bin.right,
                "low": bin.right_low,
                "high": bin.right_high,
                "description": f"{name}: {right}, {bounds}; mean confidence {percent(bin.confidence)} %",
            }
        )
    return records


def spec(values: Records, width: int = chart.WIDTH) -> dict[str, Any]:
    """The diagram of such values, a square with room on its right where the chart is wide."""
    side = min(width - _LEFT - _RIGHT, _MOST)
    axis = {**chart.PERCENT_AXIS, "titleFontWeight": "normal"}
    scale = {"domain": [0, 1], "nice": False}
    x = chart.number("confidence", scale=scale, axis={**axis, "title": "confidence"})
    y = chart.number("right", scale=scale, axis={**axis, "title": "right"})
    area = {
        "field": "share",
        "type": "quantitative",
        "legend": None,
        "scale": {"domain": [0, 1], "range": [20, 300]},
    }
    point = {
        "type": "point",
        "shape": "circle",
        "fill": chart.INK,
        "stroke": chart.PAPER,
        "strokeWidth": 1,
    }
    layers = [
        chart.layer(
            "even",
            chart.hairline(color=chart.SOFT, strokeDash=[4, 3]),
            x=chart.number("start"),
            x2={"field": "end"},
            y=chart.number("start"),
            y2={"field": "end"},
        ),
        chart.layer(
            "bin",
            {"type": "rule", "color": chart.SOFT, "strokeWidth": 1.5},
            x=x,
            y=chart.number("low"),
            y2={"field": "high"},
        ),
        chart.layer(
            "bin", {**point, "opacity": 1}, x=x, y=y, size=area, description=chart.DESCRIPTION
        ),
    ]
    bins = counted(sum(record["kind"] == "bin" for record in values), "bin")
    return chart.frame(
        values,
        layers,
        width=width,
        left=_LEFT,
        right=width - _LEFT - side,
        top=14,
        bottom=46,
        height=side,
        about=f"How often a model is right by how sure it is, in {bins}",
    )


SIDE = 270
"""Pixels of a diagram on a page, where several stand beside each other."""

_LEFT, _RIGHT, _MOST = 54, 24, 420  # pixels beside the square, and of its side at most
