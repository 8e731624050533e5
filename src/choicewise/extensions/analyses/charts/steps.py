"""The chart of a number over the checkpoints of training runs, with its band."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from choicewise.errors import UsageError, did_you_mean
from choicewise.extensions.analyses.signal import STEPS, Training, trainings
from choicewise.page.charts import chart
from choicewise.page.charts.chart import Chart, Record, Records
from choicewise.page.charts.choices import Choices, several_data
from choicewise.page.study import ShownRun, Study
from choicewise.report.tables import interval_text, value_text
from choicewise.results.headline import headline
from choicewise.results.rows import Row
from choicewise.util.text import counted, safe


def lacks(study: Study) -> str:
    """Return why the runs of ``study`` are no checkpoints of a training run."""
    if reason := several_data(study):
        return reason
    return (
        ""
        if over_steps(study.runs)
        else "no names of models say so many steps, as ORG/NAME@step1000 does"
    )


def draw(study: Study, choices: Choices) -> Chart:
    """Draw the chosen protocol's number at every checkpoint, or the first protocol's."""
    known = over_steps(study.runs)
    if choices.protocol is not None and choices.protocol not in known:
        few = f"no training run has enough checkpoints under {choices.protocol!r}"
        raise UsageError(f"{few}; {did_you_mean(choices.protocol, list(known))}")
    name = next(iter(known)) if choices.protocol is None else choices.protocol
    records = values(known[name])
    checkpoints = counted(sum(record["kind"] == "point" for record in records), "checkpoint")
    title = f"{safe(name)} on {study.runs[0].manifest.dataset.name} over {checkpoints}"
    return Chart("steps", title, spec(records, choices.width), caption(records))


def caption(values: Records) -> str:
    """How to read a chart of such values: it names what is drawn, and nothing else."""
    points = [record for record in values if record["kind"] == "point"]
    parts = ["Every dot is a checkpoint, at its step of training."]
    if any(record["unit"] == "tokens" for record in points):
        parts = ["Every dot is a checkpoint, at the tokens that it was trained on."]
    parts += ["Pale: 95 % intervals."] if any(_known(record["ci_low"]) for record in points) else []
    parts += (
        ["Dashed: what guessing gives."]
        if any(record["kind"] == "chance" for record in values)
        else []
    )
    parts += ["Marks are powers of ten."] if _across(values)[0] else []
    parts += (
        ["Grey: further training runs."]
        if any(record.get("slot", 0) is None for record in points)
        else []
    )
    return " ".join(parts)


def spec(values: Records, width: int = chart.WIDTH) -> dict[str, Any]:
    """The chart of such values, all of one protocol."""
    points = [record for record in values if record["kind"] == "point"]
    names = [record for record in values if record["kind"] == "training"]
    narrow, several = width < chart.NARROW, len(names) > 1
    right = _NAME * chart.NORMAL + 40 if several and not narrow else 24
    top = 16 + _LINE * len(names) if several and narrow else 16
    shares = all(record["share"] for record in points)
    ticks, scale = _across(values)
    marks = {"values": ticks} if ticks else {"tickCount": 6}
    across = chart.number("at", scale=scale, axis={"format": "~s", "title": _unit(points), **marks})
    axis: dict[str, Any] = {"tickCount": 6, "title": None}
    axis |= {"labelExpr": "format(100 * datum.value, '~f') + ' %'"} if shares else {"format": "~g"}
    up = chart.number(
        "value", scale={"zero": False, "nice": True, "domain": _up(values)}, axis=axis
    )
    beside = {"x": across, "detail": {"field": "training", "type": "nominal"}}
    coloured, shaped = chart.slots(chart.MODELS), chart.slots(chart.SHAPES)
    layers = [
        chart.layer(
            "chance", chart.hairline(color=chart.SOFT, strokeDash=[4, 3]), y=chart.number("value")
        ),
    ]
    for among, colour, shape in (
        ({"field": "slot", "valid": False}, {"value": chart.MARK}, {"value": "circle"}),
        ({"field": "slot", "valid": True}, coloured, shaped),
    ):
        own = (among, {"field": "value", "valid": True})
        band = {"type": "area", "opacity": 0.18, "line": False}
        line = {"type": "line", "strokeWidth": 1.75, "strokeJoin": "round"}
        dot = {
            "type": "point",
            "filled": True,
            "opacity": 1,
            "stroke": chart.PAPER,
            "strokeWidth": 1,
            "size": 48,
        }
        ends = {"y": chart.number("ci_low"), "y2": {"field": "ci_high"}}
        layers += [
            chart.layer(
                "point",
                band,
                *own,
                {"field": "ci_low", "valid": True},
                **beside,
                **ends,
                color=colour,
            ),
            chart.layer("point", line, *own, **beside, y=up, color=colour),
            chart.layer(
                "point",
                dot,
                *own,
                x=across,
                y=up,
                color=colour,
                shape=shape,
                description=chart.DESCRIPTION,
            ),
        ]
    edge = {"x": {"value": 0}, "y": chart.number("value")}
    layers += chart.named(
        "chance", chart.note(align="left", dy=-8, dx=2), **edge, text=chart.words("label")
    )
    if several:
        place = (
            {"x": {"value": 7}, "y": chart.number("above", scale=None)}
            if narrow
            else {"x": {"value": "width"}}
        )
        place |= {} if narrow else {"y": chart.number("label_at")}
        sign = {
            "type": "point",
            "filled": True,
            "opacity": 1,
            "size": 60,
            "xOffset": 0 if narrow else 7,
        }
        text = {
            "type": "text",
            "align": "left",
            "baseline": "middle",
            "color": chart.INK,
            "dx": 10 if narrow else 17,
        }
        layers += [
            chart.layer(
                "training",
                sign,
                {"field": "slot", "valid": True},
                **place,
                color=coloured,
                shape=shaped,
            ),
            chart.layer("training", text, **place, text=chart.words("label")),
        ]
    margins = {"left": 52, "right": right, "top": top, "bottom": 44}
    drawn = _with_room(values, _HEIGHT) if several else values
    return chart.frame(
        drawn, layers, width=width, **margins, height=_HEIGHT, about=_about(points, names)
    )


MOST = 100
"""Protocols whose numbers a page shows over checkpoints; others can be plotted alone."""


@dataclass(frozen=True)
class Trained:
    """The training runs on a dataset: the chart's values by protocol, those that stand there at first before others."""

    dataset: str
    values: Mapping[str, list[Record]]

    @property
    def first(self) -> list[Record]:
        """What stands there at first."""
        return next(iter(self.values.values()))

    @property
    def rows(self) -> dict[str, list[list[str]]]:
        """The same numbers by protocol as rows of a table under :data:`COLUMNS`."""
        return {name: cells(own) for name, own in self.values.items()}


def trained(study: Study) -> list[Trained]:
    """One per dataset with the checkpoints of a training run."""
    shown = []
    for places in study.datasets.values():
        runs = [study.runs[place] for place in places]
        if known := dict(list(over_steps(runs).items())[:MOST]):
            drawn = {name: values(lines) for name, lines in known.items()}
            shown.append(Trained(runs[0].manifest.dataset.name, drawn))
    return shown


def over_steps(runs: Sequence[ShownRun]) -> dict[str, list[tuple[Training, list[Row | None]]]]:
    """The training runs among ``runs``, which are on one dataset, under every protocol with enough of their numbers.

    The protocol whose number is the best known comes first.
    """
    known = trainings([run.manifest for run in runs])
    rows = [
        {row.protocol: row for row in (*run.rows, *run.other_metrics) if row.subject == "all"}
        for run in runs
    ]
    own = [place for each in known for place in each.runs]
    first = headline([row for place in own for row in rows[place].values()])
    names = dict.fromkeys(
        [*([] if first is None else [first.protocol]), *(name for n in own for name in rows[n])]
    )
    shown = {}
    for name in names:
        every = [(each, [rows[place].get(name) for place in each.runs]) for each in known]
        counts = [sum(row is not None and _known(row.value) for row in line) for _, line in every]
        lines = [line for line, count in zip(every, counts, strict=True) if count >= STEPS]
        if lines:
            shown[name] = lines
    return shown


def values(known: Sequence[tuple[Training, Sequence[Row | None]]]) -> list[Record]:
    """Records of the kinds ``point`` (a checkpoint), ``training`` (its name) and ``chance``.

    ``known``: training runs, each with the row of one protocol for every checkpoint, None where there is none.  The
    first of them have colours.
    """
    records = list[Record]()
    for place, (training, rows) in enumerate(known):
        slot = place if place < len(chart.MODELS) else None
        own = [
            _point(training, slot, at, row)
            for at, row in zip(training.at, rows, strict=True)
            if row is not None and _known(row.value)
        ]
        records += own
        if own:
            about = {
                "training": training.name,
                "slot": slot,
                "label": chart.cut(training.name, _NAME),
            }
            records.append({"kind": "training", **about, "value": own[-1]["value"]})
    chances = {
        round(row.chance, 6)
        for _, rows in known
        for row in rows
        if row is not None and _known(row.chance)
    }
    if len(chances) == 1 and any(record.get("share") for record in records):
        (value,) = chances
        records.append({"kind": "chance", "value": value, "label": f"chance {chart.share(value)}"})
    return records


COLUMNS = (
    ("training run", ""),
    ("step", "number"),
    ("value", "number"),
    ("95 % interval", "number"),
    ("items", "number"),
)
"""Of the table of the same numbers."""


def cells(values: Records) -> list[list[str]]:
    """The numbers of a chart as rows of a table under :data:`COLUMNS`."""
    points = [record for record in values if record["kind"] == "point"]
    return [
        [
            record[name]
            for name in ("training", "step_text", "value_text", "interval_text", "items_text")
        ]
        for record in points
    ]


_NAME, _LINE, _HEIGHT = 12, 18, 320
"""Width of the names of training runs, in sizes of the font; pixels of their lines above, and of the chart."""

_TENFOLD = 30.0
"""From so many times the first step on, marks are powers of ten."""

_DISTANCE = 15  # pixels between two names


def _point(training: Training, slot: int | None, at: float, row: Row) -> Record:
    step, value, between = (
        f"{at:,.0f}" if training.unit == "step" else f"{at:.3g}",
        value_text(row, row.value),
        interval_text(row),
    )
    name = chart.cut(training.name, chart.SAID)
    said = f"{name}, {training.unit} {step}: {value} of {counted(row.n, 'item')}"
    said += f", 95 % interval {between.replace(' – ', ' to ')}" if _known(row.ci_low) else ""
    return {
        "kind": "point",
        "training": training.name,
        "slot": slot,
        "unit": training.unit,
        "at": at,
        "share": row.share,
        "protocol": row.protocol,
        "model": row.model,
        "value": row.value,
        "ci_low": row.ci_low,
        "ci_high": row.ci_high,
        "n": row.n,
        "step_text": step,
        "value_text": value,
        "interval_text": between,
        "items_text": f"{row.n:,}",
        "description": said,
    }


def _known(number: float | None) -> bool:
    return number is not None and math.isfinite(number)


def _unit(points: Records) -> str:
    return "tokens" if any(record["unit"] == "tokens" for record in points) else "step"


def _across(values: Records) -> tuple[list[float], dict[str, Any]]:
    """The marks and the scale of steps; powers of ten where the last step is many times the first one, else no marks.

    A step 0 stands left of them.
    """
    at = sorted({record["at"] for record in values if record["kind"] == "point"})
    positive = [each for each in at if each > 0]
    scale: dict[str, Any] = {
        "nice": False,
        "padding": 8,
        "domain": [at[0], at[-1]] if at else [0.0, 1.0],
    }
    if not positive or positive[-1] / positive[0] < _TENFOLD:
        return [], {**scale, "zero": False}
    powers = range(math.ceil(math.log10(positive[0])), math.floor(math.log10(positive[-1])) + 1)
    ticks = [10.0**power for power in powers]
    if at[0] == 0:
        return [0.0, *ticks], {**scale, "type": "symlog", "constant": positive[0]}
    return ticks, {**scale, "type": "log"}


def _up(values: Records) -> list[float]:
    """From the least to the greatest of all values and intervals."""
    names = ("value", "ci_low", "ci_high")
    edges = [record[name] for record in values for name in names if _known(record.get(name))]
    low, high = min(edges, default=0.0), max(edges, default=1.0)
    return [low, high] if high > low else [low - 0.5, high + 0.5]


def _with_room(values: Records, height: int) -> list[Record]:
    """The records, those of names with their places: at the end of the line but apart, or above the chart."""
    low, high = _up(values)
    names = sorted(
        (record for record in values if record["kind"] == "training"),
        key=lambda record: -record["value"],
    )
    places = list[float]()
    for record in names:
        at = (high - record["value"]) / (high - low) * height
        places.append(max(at, places[-1] + _DISTANCE if places else 0.0))
    limit = float(height)
    for number in reversed(range(len(places))):
        places[number] = min(places[number], limit)
        limit = places[number] - _DISTANCE
    above = {
        record["training"]: -_LINE * (number + 1) for number, record in enumerate(reversed(names))
    }
    shifted: list[Record] = [
        {
            **record,
            "label_at": high - place / height * (high - low),
            "above": above[record["training"]],
        }
        for record, place in zip(names, places, strict=True)
    ]
    return [*(record for record in values if record["kind"] != "training"), *shifted]


def _about(points: Records, names: Records) -> str:
    if not points:
        return "A number over checkpoints: no item was scored"
    protocol: Mapping[str, Any] = points[0]
    return f"{protocol['protocol']} over {counted(len(points), 'checkpoint')} of {counted(len(names), 'training run')}"
