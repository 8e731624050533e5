"""Draw the reliability diagram: how sure a model is, and how often it is right."""

from __future__ import annotations

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
from choicewise.util.jsonio import JsonDict
from choicewise.util.text import counted, interval, percent, safe

CAPTION = (
    "Dot: items of similar confidence, and how many of them are right. Below the dashed line: "
    "overconfident."
)
"""How to read a diagram."""


def draw(study: Study, choices: Choices) -> Chart:
    """Draw the diagram of one model; UsageError if no item has scores of its choices."""
    run = chosen_run(study, choices)
    for stated in stated_probabilities(Study((run,))):
        for calibrated in stated.calibrated:
            title = f"{about_run(run)}: calibration under {safe(calibrated.protocol)}"
            caption = " ".join([*errors_in_words(calibrated), CAPTION])
            return Chart("calibration", title, spec(values(calibrated), choices.width), caption)
    raise UsageError("no item has scores of its choices under a protocol of letters")


def values(calibrated: Calibrated) -> list[Record]:
    """Return records of the kinds ``even`` (the line of a calibrated model) and ``bin``."""
    items = sum(bin.n for bin in calibrated.bins)
    model = chart.cut(calibrated.model, chart.SAID)
    records: list[Record] = [{"kind": "even", "start": 0, "end": 1}]
    for bin in calibrated.bins:
        description = (
            f"{model}, confidence {interval(bin.lowest, bin.highest)} %: "
            f"{percent(bin.right)} % of {counted(bin.n, 'item')} right, "
            f"95 % interval {interval(bin.right_low, bin.right_high)}; "
            f"mean confidence {percent(bin.confidence)} %"
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
                "description": description,
            }
        )
    return records


def spec(values: Records, width: int = chart.WIDTH) -> JsonDict:
    """Return the specification of a diagram of ``values``, a square with room on its right if the
    chart is wide.
    """
    side = min(width - _LEFT - _RIGHT, _MOST)
    axis = {**chart.PERCENT_AXIS, "titleFontWeight": "normal"}
    scale = {"domain": [0, 1], "nice": False}
    x = chart.number("confidence", scale=scale, axis={**axis, "title": "confidence"})
    y = chart.number("right", scale=scale, axis={**axis, "title": "right"})

    start = chart.number("start")
    end = {"field": "end"}
    dash = chart.hairline(color=chart.SOFT, strokeDash=[4, 3])
    layers = [chart.layer("even", dash, x=start, x2=end, y=start, y2=end)]
    rule = {"type": "rule", "color": chart.SOFT, "strokeWidth": 1.5}
    layers.append(chart.layer("bin", rule, x=x, y=chart.number("low"), y2={"field": "high"}))
    # The area of a dot is its share of the items: a bin of three items must not look like one of a
    # hundred.
    point: JsonDict = {"type": "point", "shape": "circle", "fill": chart.INK}
    point |= {"stroke": chart.PAPER, "strokeWidth": 1, "opacity": 1}
    area = chart.number("share", legend=None, scale={"domain": [0, 1], "range": [20, 300]})
    layers.append(chart.layer("bin", point, x=x, y=y, size=area, description=chart.DESCRIPTION))

    bins = [record for record in values if record["kind"] == "bin"]
    return chart.frame(
        values,
        layers,
        width=width,
        left=_LEFT,
        right=width - _LEFT - side,
        top=14,
        bottom=46,
        height=side,
        description=f"How often a model is right by how sure it is, in {counted(len(bins), 'bin')}",
    )


SIDE = 270
"""Pixels of a diagram on a page, where several stand beside each other."""

_LEFT = 54
_RIGHT = 24
"""Pixels beside the square."""

_MOST = 420
"""Pixels of the square's side at most."""
