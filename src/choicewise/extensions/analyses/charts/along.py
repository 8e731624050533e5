"""Draw answers along thoughts by share: how many are right, how probable the right choice is, how
many still change.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from choicewise.errors import UsageError
from choicewise.extensions.analyses.along import AlongThought, Point, along_thoughts
from choicewise.extensions.analyses.along_report import ENDED, along_lines, along_tables, tokens
from choicewise.page.charts import chart
from choicewise.page.charts.chart import Chart, Record, Records
from choicewise.page.charts.choices import Choices, chosen_run, protocol_of
from choicewise.page.study import MOST_RUNS, Study
from choicewise.page.tables import PageTable, page_table
from choicewise.protocols.protocol import Protocols
from choicewise.protocols.readings import READINGS
from choicewise.results.run import open_run
from choicewise.util.jsonio import JsonDict
from choicewise.util.text import counted, safe


@dataclass(frozen=True)
class Along:
    """Hold the answers along the thoughts of one model that the page shows."""

    model: str
    dataset: str
    answers: AlongThought

    @property
    def title(self) -> str:
        """Return whose thoughts they are, and how many."""
        thoughts = counted(self.answers.n, "thought")
        return f"{self.model} on {self.dataset}: {thoughts} {ENDED[self.answers.ended]}"

    @property
    def lines(self) -> list[str]:
        """Return what the chart does not show."""
        return along_lines(self.answers)

    @property
    def tables(self) -> list[PageTable]:
        """Return the numbers of the chart as tables: by share, and by budget."""
        subject = f"{self.model} on {self.dataset}"
        return [page_table(table) for table in along_tables(subject, self.answers, {})]


def thoughts_of(study: Study) -> list[Along]:
    """Return the answers along thoughts of the first runs that can be drawn."""
    thoughts = []
    for run in study.runs[:MOST_RUNS]:
        if not _reads_along(run.protocols):
            continue
        for answers in along_thoughts(open_run(run.folder)):
            if answers.n:
                thoughts.append(Along(run.label, run.manifest.dataset.name, answers))
    return thoughts


def _reads_along(protocols: Protocols) -> bool:
    return any(READINGS[protocol.reading].along for protocol in protocols.values())


def lacks(study: Study) -> str:
    """Return why there is no thought to draw, or an empty text; no run is read."""
    if any(_reads_along(run.protocols) for run in study.runs):
        return ""
    return "no protocol has reading along-thought"


def draw(study: Study, choices: Choices) -> Chart:
    """Draw the answers along the thoughts of one model, under the chosen protocol or the first one."""
    run = chosen_run(study, choices)
    thoughts = thoughts_of(Study((run,)))
    if choices.protocol is not None:
        name = protocol_of(run, choices.protocol)
        thoughts = [thought for thought in thoughts if thought.answers.protocol == name]
    if not thoughts:
        raise UsageError("no thought was scored; `choicewise report DIR` gives the reason")
    first = thoughts[0]
    records = values(first.answers)
    title = f"{first.title}, {safe(first.answers.protocol)}"
    return Chart("along", title, spec(records, choices.width), caption(records))


def caption(values: Records) -> str:
    """Return how to read a chart of ``values``; it names only what is drawn."""
    sentences = [
        "Each thought is cut after these shares of its tokens and closed by the chat template's "
        "own text."
    ]
    if any(record["kind"] == "point" and not math.isnan(record["low"]) for record in values):
        sentences.append("Pale: 95 % intervals.")
    if any(record["kind"] == "chance" for record in values):
        sentences.append("Dashed: what guessing gives.")
    return " ".join(sentences)


def values(answers: AlongThought) -> list[Record]:
    """Return records of the kinds ``point``, ``series`` (its name) and ``chance``."""
    records: list[Record] = []
    for slot, series in enumerate(_SERIES):
        for point in answers.points:
            records.append(_point_record(slot, point, answers.n))
        above = _LINE * (slot - len(_SERIES))
        records.append({"kind": "series", "label": series, "slot": slot, "above": above})
    if not math.isnan(answers.chance):
        label = f"chance {chart.share(answers.chance)}"
        records.append({"kind": "chance", "value": answers.chance, "label": label})
    return records


_SERIES = ("right", "probability of the right choice", "answer still changes")
"""The drawn numbers of a point."""


def _point_record(slot: int, point: Point, n: int) -> Record:
    # Whether an answer still changes is known, so that it has no interval.
    low = high = math.nan
    match slot:
        case 0:
            value, low, high = point.accuracy, point.accuracy_low, point.accuracy_high
        case 1:
            value, low, high = point.probability, point.probability_low, point.probability_high
        case _:
            value = point.open
    series = _SERIES[slot]
    share = 100 * (point.share or 0)
    description = (
        f"{series}, after {share:.0f} % of the thought ({tokens(point.tokens)} tokens in the "
        f"median): {chart.share(value)}{chart.bounds(low, high)}, {counted(n, 'item')}"
    )
    return {
        "kind": "point",
        "series": series,
        "slot": slot,
        "at": point.share,
        "value": value,
        "low": low,
        "high": high,
        "description": description,
    }


def spec(values: Records, width: int = chart.WIDTH) -> JsonDict:
    """Return the specification of a chart of ``values``, all of one protocol."""
    axis = {**chart.PERCENT_AXIS, "values": [0, 0.25, 0.5, 0.75, 1]}
    scale = {"domain": [0, 1], "nice": False}
    share_axis = {**axis, "title": "share of the thought"}
    series = {
        "x": chart.number("at", scale={**scale, "padding": 10}, axis=share_axis),
        "detail": {"field": "series", "type": "nominal"},
        "color": chart.slots(chart.MODELS),
    }
    y = chart.number("value", scale=scale, axis=axis)
    shape = chart.slots(chart.SHAPES)
    dash = chart.hairline(color=chart.SOFT, strokeDash=[4, 3])
    layers = [chart.layer("chance", dash, y=chart.number("value"))]

    band = {"type": "area", "opacity": 0.18, "line": False}
    has_interval = {"field": "low", "valid": True}
    ends = {"y": chart.number("low"), "y2": {"field": "high"}}
    layers.append(chart.layer("point", band, has_interval, **series, **ends))
    line = {"type": "line", "strokeWidth": 1.75, "strokeJoin": "round"}
    layers.append(chart.layer("point", line, **series, y=y))
    dot: JsonDict = {"type": "point", "filled": True, "opacity": 1}
    dot |= {"stroke": chart.PAPER, "strokeWidth": 1, "size": 56}
    description = chart.DESCRIPTION
    layers.append(chart.layer("point", dot, **series, y=y, shape=shape, description=description))

    chance_note = chart.note(align="left", dy=-8, dx=2)
    left = {"x": {"value": 0}, "y": chart.number("value")}
    layers += chart.named("chance", chance_note, **left, text=chart.words("label"))
    key = {"x": {"value": 7}, "y": chart.number("above", scale=None)}
    sign = {"type": "point", "filled": True, "opacity": 1, "size": 60}
    layers.append(chart.layer("series", sign, **key, color=series["color"], shape=shape))
    text = {"type": "text", "align": "left", "baseline": "middle", "color": chart.INK, "dx": 10}
    layers.append(chart.layer("series", text, **key, text=chart.words("label")))
    return chart.frame(
        values,
        layers,
        width=width,
        height=_HEIGHT,
        left=52,
        right=24,
        top=16 + _LINE * len(_SERIES),
        bottom=44,
        description=(
            "Accuracy, probability of the right choice and answers that still change, by share of "
            "the thought"
        ),
    )


_LINE = 18
"""Pixels of a name above the chart."""

_HEIGHT = 280
"""Pixels of the chart's height."""
