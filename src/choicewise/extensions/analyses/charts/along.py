"""The chart of answers along thoughts: how many are right, how probable, how many still change, by share."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from choicewise.errors import UsageError
from choicewise.extensions.analyses.along import AlongThought, along_thoughts
from choicewise.extensions.analyses.along_report import ENDED, along_lines, along_tables, tokens
from choicewise.page.charts import chart
from choicewise.page.charts.chart import Chart, Record, Records
from choicewise.page.charts.choices import Choices, chosen_run, protocol_of
from choicewise.page.study import MOST_RUNS, Study
from choicewise.page.tables import PageTable, page_table
from choicewise.protocols.readings import READINGS
from choicewise.results.run import open_run
from choicewise.util.text import counted, safe


@dataclass(frozen=True)
class Along:
    """What the page shows of one model: its answers along thoughts that ended in one way, under one protocol."""

    model: str
    dataset: str
    known: AlongThought

    @property
    def title(self) -> str:
        """Whose thoughts they are, and how many."""
        return f"{self.model} on {self.dataset}: {counted(self.known.n, 'thought')} {ENDED[self.known.ended]}"

    @property
    def lines(self) -> list[str]:
        """What the chart does not show."""
        return along_lines(self.known)

    @property
    def tables(self) -> list[PageTable]:
        """The same numbers as tables: by share, and by budget."""
        subject = f"{self.model} on {self.dataset}"
        return [page_table(table) for table in along_tables(subject, self.known, {})]


def asks_along(study: Study) -> bool:
    """Whether a run of the study was asked along thoughts.  Reads no run."""
    return any(
        READINGS[each.reading].along for run in study.runs for each in run.protocols.values()
    )


def shown_along(study: Study) -> list[Along]:
    """Of the first runs those that were asked along thoughts, with what can be drawn."""
    shown = []
    for run in study.runs[:MOST_RUNS]:
        if not any(READINGS[protocol.reading].along for protocol in run.protocols.values()):
            continue
        for each in along_thoughts(open_run(run.folder)):
            if each.n:
                shown.append(Along(run.label, run.manifest.dataset.name, each))
    return shown


def lacks(study: Study) -> str:
    """Return why there is no thought to draw.  Reads no run."""
    return "" if asks_along(study) else "no protocol has reading along-thought"


def draw(study: Study, choices: Choices) -> Chart:
    """Draw the answers along the thoughts of one model, under the chosen protocol or the first one."""
    run = chosen_run(study, choices)
    shown = shown_along(Study((run,)))
    if choices.protocol is not None:
        name = protocol_of(run, choices.protocol)
        shown = [each for each in shown if each.known.protocol == name]
    if not shown:
        raise UsageError("no item has a thought that was scored; `choicewise report DIR` says why")
    first = shown[0]
    records = values(first.known)
    title = f"{first.title}, {safe(first.known.protocol)}"
    return Chart("along", title, spec(records, choices.width), caption(records))


def caption(values: Records) -> str:
    """How to read a chart of such values: it names what is drawn, and nothing else."""
    sentences = [
        "Each thought is cut after these shares of its tokens and closed by the chat template's own text."
    ]
    if any(record["kind"] == "point" and not math.isnan(record["low"]) for record in values):
        sentences.append("Pale: 95 % intervals.")
    if any(record["kind"] == "chance" for record in values):
        sentences.append("Dashed: what guessing gives.")
    return " ".join(sentences)


def values(known: AlongThought) -> list[Record]:
    """Records of the kinds ``point``, ``series`` (its name) and ``chance``."""
    records = list[Record]()
    for slot, (name, what) in enumerate(_SERIES.items()):
        for point in known.points:
            value = getattr(point, name)
            low, high = (getattr(point, f"{name}_{end}", math.nan) for end in ("low", "high"))
            where = f"after {100 * (point.share or 0):.0f} % of the thought"
            said = f"{what}, {where} ({tokens(point.tokens)} tokens in the median): {chart.share(value)}"
            said += f"{chart.bounds(low, high)}, {counted(known.n, 'item')}"
            about = {
                "series": what,
                "slot": slot,
                "at": point.share,
                "value": value,
                "low": low,
                "high": high,
            }
            records.append({"kind": "point", **about, "description": said})
        records.append(
            {"kind": "series", "label": what, "slot": slot, "above": _LINE * (slot - len(_SERIES))}
        )
    if not math.isnan(known.chance):
        records.append(
            {
                "kind": "chance",
                "value": known.chance,
                "label": f"chance {chart.share(known.chance)}",
            }
        )
    return records


def spec(values: Records, width: int = chart.WIDTH) -> dict[str, Any]:
    """The chart of such values, all of one protocol."""
    ticks = [0, 0.25, 0.5, 0.75, 1]
    axis = {**chart.PERCENT_AXIS, "values": ticks}
    scale = {"domain": [0, 1], "nice": False}
    across = chart.number(
        "at", scale={**scale, "padding": 10}, axis={**axis, "title": "share of the thought"}
    )
    up = chart.number("value", scale=scale, axis=axis)
    coloured, shaped = chart.slots(chart.MODELS), chart.slots(chart.SHAPES)
    band = {"type": "area", "opacity": 0.18, "line": False}
    line = {"type": "line", "strokeWidth": 1.75, "strokeJoin": "round"}
    dot = {
        "type": "point",
        "filled": True,
        "opacity": 1,
        "stroke": chart.PAPER,
        "strokeWidth": 1,
        "size": 56,
    }
    own = {"x": across, "detail": {"field": "series", "type": "nominal"}, "color": coloured}
    ends = {"y": chart.number("low"), "y2": {"field": "high"}}
    place = {"x": {"value": 7}, "y": chart.number("above", scale=None)}
    sign = {"type": "point", "filled": True, "opacity": 1, "size": 60}
    text = {"type": "text", "align": "left", "baseline": "middle", "color": chart.INK, "dx": 10}
    layers = [
        chart.layer(
            "chance", chart.hairline(color=chart.SOFT, strokeDash=[4, 3]), y=chart.number("value")
        ),
        chart.layer("point", band, {"field": "low", "valid": True}, **own, **ends),
        chart.layer("point", line, **own, y=up),
        chart.layer("point", dot, **own, y=up, shape=shaped, description=chart.DESCRIPTION),
        *chart.named(
            "chance",
            chart.note(align="left", dy=-8, dx=2),
            x={"value": 0},
            y=chart.number("value"),
            text=chart.words("label"),
        ),
        chart.layer("series", sign, **place, color=coloured, shape=shaped),
        chart.layer("series", text, **place, text=chart.words("label")),
    ]
    margins = {"left": 52, "right": 24, "top": 16 + _LINE * len(_SERIES), "bottom": 44}
    about = "Accuracy, probability of the right choice and answers that still change, by share of the thought"
    return chart.frame(values, layers, width=width, **margins, height=_HEIGHT, about=about)


_SERIES = {
    "accuracy": "right",
    "probability": "probability of the right choice",
    "open": "answer still changes",
}
"""What is drawn: a field of a place, and its name."""

_LINE, _HEIGHT = 18, 280
"""Pixels of a name above the chart, and of the chart's height."""
