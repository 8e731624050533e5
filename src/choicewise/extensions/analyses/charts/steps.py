"""Draw a number over the checkpoints of training runs, with its interval."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from choicewise.errors import UsageError, did_you_mean
from choicewise.extensions.analyses.signal import STEPS, Training, trainings
from choicewise.page.charts import chart
from choicewise.page.charts.chart import Chart, Record, Records, of_kind
from choicewise.page.charts.choices import Choices, several_data
from choicewise.page.study import ShownRun, Study
from choicewise.protocols.catalogue import variant_of
from choicewise.report.tables import interval_text, value_text
from choicewise.results.headline import headline
from choicewise.results.number import Number
from choicewise.util.jsonio import JsonDict
from choicewise.util.text import counted, safe


class Line(NamedTuple):
    """Hold the row of one protocol for each checkpoint of a training run, None for a checkpoint
    without one.
    """

    training: Training
    rows: Sequence[Number | None]

    @property
    def numbers(self) -> list[tuple[float, Number]]:
        """Return the checkpoints that have a number: their progress and their row."""
        numbers = []
        for at, row in zip(self.training.at, self.rows, strict=True):
            if row is not None and _is_number(row.value):
                numbers.append((at, row))
        return numbers


def lacks(study: Study) -> str:
    """Return why the runs of ``study`` are no checkpoints of a training run, or an empty text."""
    reason = several_data(study)
    if not reason and not over_steps(study.runs):
        reason = "too few model names hold a step, such as ORG/NAME@step1000"
    return reason


def draw(study: Study, choices: Choices) -> Chart:
    """Draw the chosen protocol's number at every checkpoint, or the first protocol's."""
    lines = over_steps(study.runs)
    name = choices.protocol
    if name is None:
        name = next(iter(lines))
    if name not in lines:
        name = variant_of(name, lines, "the training run") or name
    if name not in lines:
        few = f"no training run has enough checkpoints under {name!r}"
        raise UsageError(f"{few}; {did_you_mean(name, list(lines))}")
    records = values(lines[name])
    checkpoints = counted(len(of_kind(records, "point")), "checkpoint")
    title = f"{safe(name)} on {study.runs[0].manifest.dataset.name} over {checkpoints}"
    return Chart("steps", title, spec(records, choices.width), caption(records))


def caption(values: Records) -> str:
    """Return how to read a chart of ``values``; it names only what is drawn."""
    points = of_kind(values, "point")
    sentences = []
    if _unit(points) == "tokens":
        sentences.append("Every dot is a checkpoint, at the tokens that it was trained on.")
    else:
        sentences.append("Every dot is a checkpoint, at its step of training.")
    if any(_is_number(record["ci_low"]) for record in points):
        sentences.append("Pale: 95 % intervals.")
    if of_kind(values, "chance"):
        sentences.append("Dashed: what guessing gives.")
    ticks, _ = _progress_scale(points)
    if ticks:
        sentences.append("Marks are powers of ten.")
    if any(record.get("slot", 0) is None for record in points):
        sentences.append("Grey: further training runs.")
    return " ".join(sentences)


def spec(values: Records, width: int = chart.WIDTH) -> JsonDict:
    """Return the specification of a chart of ``values``, all of one protocol."""
    points = of_kind(values, "point")
    names = of_kind(values, "training")
    is_narrow = width < chart.NARROW
    is_named = len(names) > 1
    right = 24
    top = 16
    if is_named and is_narrow:
        top += _LINE * len(names)
    elif is_named:
        right = _NAME * chart.NORMAL + 40

    layers = [_chance_line()]
    # The line of guessing is below everything else, and its name above.
    layers += _lines_and_dots(values, points)
    edge = {"x": {"value": 0}, "y": chart.number("value")}
    chance_note = chart.note(align="left", dy=-8, dx=2)
    layers += chart.named("chance", chance_note, **edge, text=chart.words("label"))
    records = list(values)
    if is_named:
        layers += _name_layers(is_narrow)
        records = _with_name_positions(values, _HEIGHT)
    return chart.frame(
        records,
        layers,
        width=width,
        left=52,
        right=right,
        top=top,
        bottom=44,
        height=_HEIGHT,
        description=_description(points, names),
    )


def _chance_line() -> JsonDict:
    dash = chart.hairline(color=chart.SOFT, strokeDash=[4, 3])
    return chart.layer("chance", dash, y=chart.number("value"))


def _lines_and_dots(values: Records, points: Records) -> list[JsonDict]:
    """Return the layers of the training runs, those without a colour below those that have one."""
    ticks, scale = _progress_scale(points)
    marks: JsonDict = {"tickCount": 6}
    if ticks:
        marks = {"values": ticks}
    x_axis = {"format": "~s", "title": _unit(points), **marks}
    x = chart.number("at", scale=scale, axis=x_axis)
    y_axis: JsonDict = {"tickCount": 6, "title": None}
    if all(record["share"] for record in points):
        y_axis["labelExpr"] = "format(100 * datum.value, '~f') + ' %'"
    else:
        y_axis["format"] = "~g"
    y_scale = {"zero": False, "nice": True, "domain": _value_range(values)}
    y = chart.number("value", scale=y_scale, axis=y_axis)
    by_training = {"x": x, "detail": {"field": "training", "type": "nominal"}}
    ends = {"y": chart.number("ci_low"), "y2": {"field": "ci_high"}}
    has_value = {"field": "value", "valid": True}
    has_interval = {"field": "ci_low", "valid": True}
    band = {"type": "area", "opacity": 0.18, "line": False}
    line = {"type": "line", "strokeWidth": 1.75, "strokeJoin": "round"}
    dot: JsonDict = {"type": "point", "filled": True, "opacity": 1}
    dot |= {"stroke": chart.PAPER, "strokeWidth": 1, "size": 48}

    layers = []
    for has_slot in (False, True):
        color: JsonDict = {"value": chart.MARK}
        shape: JsonDict = {"value": "circle"}
        if has_slot:
            color = chart.slots(chart.MODELS)
            shape = chart.slots(chart.SHAPES)
        # Eight colours can be told apart; further training runs are grey, below the coloured ones.
        filters = ({"field": "slot", "valid": has_slot}, has_value)
        layers.append(
            chart.layer("point", band, *filters, has_interval, **by_training, **ends, color=color)
        )
        layers.append(chart.layer("point", line, *filters, **by_training, y=y, color=color))
        look = {"color": color, "shape": shape, "description": chart.DESCRIPTION}
        layers.append(chart.layer("point", dot, *filters, x=x, y=y, **look))
    return layers


def _name_layers(is_narrow: bool) -> list[JsonDict]:
    """Return the layers of the training runs' names, at the ends of their lines or above a narrow
    chart.
    """
    if is_narrow:
        position = {"x": {"value": 7}, "y": chart.number("above", scale=None)}
        offset = 0
    else:
        position = {"x": {"value": "width"}, "y": chart.number("label_at")}
        offset = 7
    sign = {"type": "point", "filled": True, "opacity": 1, "size": 60, "xOffset": offset}
    text: JsonDict = {"type": "text", "align": "left", "baseline": "middle"}
    text |= {"color": chart.INK, "dx": 10 + offset}
    has_slot = {"field": "slot", "valid": True}
    color = chart.slots(chart.MODELS)
    shape = chart.slots(chart.SHAPES)
    return [
        chart.layer("training", sign, has_slot, **position, color=color, shape=shape),
        chart.layer("training", text, **position, text=chart.words("label")),
    ]


MOST = 100
"""Protocols whose numbers a page shows over checkpoints; others can be plotted alone."""


@dataclass(frozen=True)
class Trained:
    """Hold the chart's values of the training runs on a dataset, by protocol; a page begins with
    the first one.
    """

    dataset: str
    values: Mapping[str, list[Record]]

    @property
    def first(self) -> list[Record]:
        """Return the values that a page begins with."""
        return next(iter(self.values.values()))

    @property
    def rows(self) -> dict[str, list[list[str]]]:
        """Return the numbers by protocol as rows of a table under :data:`COLUMNS`."""
        return {name: cells(records) for name, records in self.values.items()}


def trained(study: Study) -> list[Trained]:
    """Return the values on every dataset with the checkpoints of a training run."""
    datasets = []
    for run_numbers in study.datasets.values():
        runs = [study.runs[number] for number in run_numbers]
        lines = list(over_steps(runs).items())[:MOST]
        if lines:
            by_protocol = {name: values(of_protocol) for name, of_protocol in lines}
            datasets.append(Trained(runs[0].manifest.dataset.name, by_protocol))
    return datasets


def over_steps(runs: Sequence[ShownRun]) -> dict[str, list[Line]]:
    """Return the lines of the training runs among ``runs``, all on one dataset, by protocol.

    A line has :data:`STEPS` numbers or more. The headline's protocol comes first.
    """
    rows: list[dict[str, Number]] = []
    for run in runs:
        every = (*run.rows, *run.other_metrics)
        rows.append({row.identity.protocol: row for row in every if row.identity.subject == "all"})
    of_runs = trainings([run.manifest for run in runs])
    trained_rows: list[Number] = []
    for training in of_runs:
        for run_number in training.runs:
            trained_rows += rows[run_number].values()
    names = [row.identity.protocol for row in trained_rows]
    first = headline(trained_rows)
    if first is not None:
        names.insert(0, first.identity.protocol)

    by_protocol = {}
    for name in dict.fromkeys(names):
        lines = []
        for training in of_runs:
            line = Line(training, [rows[run_number].get(name) for run_number in training.runs])
            if len(line.numbers) >= STEPS:
                lines.append(line)
        if lines:
            by_protocol[name] = lines
    return by_protocol


def values(lines: Sequence[Line]) -> list[Record]:
    """Return records of the kinds ``point`` (a checkpoint), ``training`` (its name) and ``chance``.

    The first lines have colours.
    """
    records: list[Record] = []
    chances: set[float] = set()
    for number, line in enumerate(lines):
        slot = None
        if number < len(chart.MODELS):
            slot = number
        points = [_point(line.training, slot, at, row) for at, row in line.numbers]
        records += points
        if points:
            name = line.training.name
            named = {"kind": "training", "training": name, "slot": slot}
            records.append(named | {"label": chart.cut(name, _NAME), "value": points[-1]["value"]})
        for row in line.rows:
            if row is not None and _is_number(row.chance):
                chances.add(round(row.chance, 6))
    # Lines of data with different chances have no common line of guessing.
    if len(chances) == 1 and any(record.get("share") for record in records):
        chance = chances.pop()
        label = f"chance {chart.share(chance)}"
        records.append({"kind": "chance", "value": chance, "label": label})
    return records


COLUMNS = (
    ("training run", ""),
    ("step", "number"),
    ("value", "number"),
    ("95 % interval", "number"),
    ("items", "number"),
)
"""Headings and kinds of the columns that :func:`cells` fills."""


def cells(values: Records) -> list[list[str]]:
    """Return the numbers of a chart as rows of a table under :data:`COLUMNS`."""
    rows = []
    for point in of_kind(values, "point"):
        row = [point["training"], point["step_text"], point["value_text"]]
        row += [point["interval_text"], point["items_text"]]
        rows.append(row)
    return rows


_NAME = 12
"""Width of the names of training runs, in sizes of the font."""

_LINE = 18
"""Pixels of a name above the chart."""

_HEIGHT = 320
"""Pixels of the chart's height."""

_TENFOLD = 30.0
"""From so many times the first step on, marks are powers of ten."""

_DISTANCE = 15
"""Pixels between two names."""


def _point(training: Training, slot: int | None, at: float, row: Number) -> Record:
    progress = f"{at:.3g}"
    if training.unit == "step":
        progress = f"{at:,.0f}"
    value = value_text(row, row.value)
    interval = interval_text(row)
    name = chart.cut(training.name, chart.SAID)
    description = f"{name}, {training.unit} {progress}: {value} of {counted(row.counts.n, 'item')}"
    if _is_number(row.interval.low):
        description += f", 95 % interval {interval.replace(' – ', ' to ')}"
    return {
        "kind": "point",
        "training": training.name,
        "slot": slot,
        "unit": training.unit,
        "at": at,
        "share": row.share,
        "protocol": row.identity.protocol,
        "model": row.identity.model,
        "value": row.value,
        "ci_low": row.interval.low,
        "ci_high": row.interval.high,
        "n": row.counts.n,
        "step_text": progress,
        "value_text": value,
        "interval_text": interval,
        "items_text": f"{row.counts.n:,}",
        "description": description,
    }


def _is_number(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


def _unit(points: Records) -> str:
    if any(record["unit"] == "tokens" for record in points):
        return "tokens"
    return "step"


def _progress_scale(points: Records) -> tuple[list[float], JsonDict]:
    """Return the ticks and the scale of the progress of ``points``.

    Ticks are powers of ten if the last step is many times the first one; else there are none.
    """
    at = sorted({record["at"] for record in points})
    domain = [0.0, 1.0]
    if at:
        domain = [at[0], at[-1]]
    scale: JsonDict = {"nice": False, "padding": 8, "domain": domain}
    positive = [step for step in at if step > 0]
    if not positive or positive[-1] / positive[0] < _TENFOLD:
        return [], {**scale, "zero": False}
    first_power = math.ceil(math.log10(positive[0]))
    last_power = math.floor(math.log10(positive[-1]))
    ticks = [10.0**power for power in range(first_power, last_power + 1)]
    if at[0] == 0:
        # A logarithm has no room for step 0, which is left of the powers.
        return [0.0, *ticks], {**scale, "type": "symlog", "constant": positive[0]}
    return ticks, {**scale, "type": "log"}


def _value_range(values: Records) -> list[float]:
    """Return the least and the greatest of all values and intervals."""
    edges = []
    for record in values:
        for name in ("value", "ci_low", "ci_high"):
            edge = record.get(name)
            if edge is not None and math.isfinite(edge):
                edges.append(edge)
    low = min(edges, default=0.0)
    high = max(edges, default=1.0)
    if high > low:
        return [low, high]
    return [low - 0.5, high + 0.5]


def _with_name_positions(values: Records, height: int) -> list[Record]:
    """Return the records, those of names with positions at the end of their line but apart, and
    above the chart.
    """
    low, high = _value_range(values)
    names = of_kind(values, "training")
    names.sort(key=lambda record: -record["value"])
    pixels: list[float] = []
    for record in names:
        pixel = (high - record["value"]) / (high - low) * height
        if pixels:
            pixel = max(pixel, pixels[-1] + _DISTANCE)
        pixels.append(max(pixel, 0.0))
    # Names that were pushed below the chart push those above them up again.
    limit = float(height)
    for number in reversed(range(len(pixels))):
        pixels[number] = min(pixels[number], limit)
        limit = pixels[number] - _DISTANCE
    records = [record for record in values if record["kind"] != "training"]
    for number, record in enumerate(names):
        label_at = high - pixels[number] / height * (high - low)
        above = -_LINE * (len(names) - number)
        records.append({**record, "label_at": label_at, "above": above})
    return records


def _description(points: Records, names: Records) -> str:
    if not points:
        return "A number over checkpoints: no item was scored"
    checkpoints = counted(len(points), "checkpoint")
    return f"{points[0]['protocol']} over {checkpoints} of {counted(len(names), 'training run')}"
