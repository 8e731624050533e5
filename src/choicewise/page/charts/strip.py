"""Draw the strip chart: all numbers of one model, by family."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

from choicewise.page.charts import chart
from choicewise.page.charts.chart import Record, Records, of_kind
from choicewise.page.item_views import words
from choicewise.results.number import Number
from choicewise.results.published import published
from choicewise.util.jsonio import JsonDict
from choicewise.util.text import counted

_FAMILY = 11
"""Width of the names of families, in sizes of the font."""

_PROTOCOL = 20
"""Width of the names of protocols, in sizes of the font."""

_PLOT = 38
"""Width of the area between 0 and 100 % that names of protocols can count on, in sizes of their
font.
"""

_LANE = 8
"""Pixels of a lane."""

_TALL = 1080
"""Pixels of all lanes together if there are many."""

_HEADING = 18
"""Pixels above the numbers of a family."""


def caption(values: Records, rank: bool = False) -> str:
    """Return how to read a chart of such values, or of ranks: it names what is drawn, and nothing
    else.
    """
    numbers = of_kind(values, "number")
    if not numbers:
        return "No accuracy of this model; its numbers are under the other metrics."
    edge = "rank_low" if rank else "ci_low"
    dot = "rank" if rank else "score"
    text = f"Dot: {dot} under one protocol"
    bounds = [record[edge] for record in numbers if record[edge] is not None]
    text += "." if all(map(math.isnan, bounds)) else ", with its 95 % interval."
    if not rank and of_kind(values, "chance"):
        text += " Lines that touch the dashed one: no better than guessing."
    if not rank and of_kind(values, "published"):
        text += " Hollow: published for other models, on MMLU."
    return text


def spec(values: Records, rank: bool = False, width: int = chart.WIDTH) -> JsonDict:
    """Return the chart of such values, or of the ranks among the models measured alike."""
    narrow = width < chart.NARROW
    # Narrow charts have the names of families above their dots.
    left = 12 if narrow else _FAMILY * chart.NORMAL + 24
    right = 28 if narrow else 32
    numbers = of_kind(values, "number")
    step = _lane_pixels(len(numbers))
    last_lane = max((record["lane"] for record in numbers), default=0)
    tops = chart.lane("top", last_lane, bandPosition=0)
    layers = [
        chart.layer("family", chart.hairline(), x={"value": -left}, x2={"value": "width"}, y=tops)
    ]
    if not rank:
        layers += [*_chance_layers(), _published_layer()]
    layers += _number_layers(values, rank, step)
    layers += _family_layers(left, narrow)
    if not rank:
        layers += _name_layers(narrow)
    return chart.frame(
        values,
        layers,
        width=width,
        left=left,
        right=right,
        top=22,
        bottom=42 if rank else 26,
        height={"step": step},
        description=_description(numbers),
    )


def _number_layers(values: Records, rank: bool, step: int) -> list[JsonDict]:
    """Return the dots with their intervals, and words for what has no number."""
    at = "value"
    low = "ci_low"
    high = "ci_high"
    scale: JsonDict = {"scale": {"domain": [0, 1]}, "axis": chart.PERCENT_AXIS}
    if rank:
        at = "rank"
        low = "rank_low"
        high = "rank_high"
        scale = _rank_axis(values)
    across = chart.number(at, **scale)
    layers = []
    # Chosen numbers are drawn last, so that no other number covers them.
    for chosen in (False, True):
        filters = ({"field": at, "valid": True}, chart.where("chosen", chosen))
        bar = {"type": "rule", "color": chart.SOFT, "strokeWidth": 1.25 * min(step / 5, 1)}
        point = {
            "type": "point",
            "fill": chart.INK,
            "opacity": 1,
            # Dots shrink with their lanes, or neighbours would touch.
            "size": min(5 * step, 40),
            "stroke": chart.PAPER,
            "strokeWidth": min(step / 9, 1),
        }
        if chosen:
            bar |= {"color": chart.ACCENT, "strokeWidth": 2 * min(step / 5, 1)}
            point |= {"fill": chart.ACCENT, "size": 40}
        layers.append(
            chart.layer(
                "number", bar, *filters, x=chart.number(low), x2={"field": high}, y=chart.lane()
            )
        )
        layers.append(
            chart.layer(
                "number", point, *filters, x=across, y=chart.lane(), description=chart.DESCRIPTION
            )
        )
    layers.append(
        chart.layer(
            "number",
            chart.note(align="left", dx=4),
            {"field": at, "valid": False},
            x={"value": 0},
            y=chart.lane(),
            text=chart.words("absent"),
            description=chart.DESCRIPTION,
        )
    )
    return layers


def values(rows: Sequence[Number], chosen: Collection[str] = ()) -> list[Record]:
    """Return records of the kinds ``family``, ``number``, ``name``, ``published`` and ``chance``,
    from the top.

    ``rows``: of one model, one per protocol and group. Families are in the order of their first
    row, their numbers from the greatest to the least, those without a value last. ``chosen``:
    protocols to point out.
    """
    families: dict[str, list[Number]] = {}
    for row in rows:
        families.setdefault(row.identity.family, []).append(row)
    names = chart.without_shared([row.identity.protocol for row in rows])
    records: list[Record] = []
    above = math.ceil(_HEADING / _lane_pixels(len(rows)))
    top = 0
    for family in families.values():
        start = top + above
        if len(family) == 1:
            # The name of the family and its count take two lines.
            start += 1
        ordered = sorted(family, key=_greatest_first)
        records.append(_family(ordered, top, start))
        empty = [row.identity.protocol for row in ordered if math.isnan(row.value)]
        for lane, row in enumerate(ordered, start):
            # One line names all protocols without a number, where the first of them would be.
            absent = _absent(empty) if [row.identity.protocol] == empty[:1] else ""
            records.append(_number(row, lane, row.identity.protocol in chosen, absent))
            records += _published(row, lane)
        family_names = _names(ordered, start, start - (above + 1) // 2, names, chosen)
        records = _without_covered(records, family_names) + family_names
        top = start + len(family)
    return records + _chances(records)


def _greatest_first(row: Number) -> float:
    return math.inf if math.isnan(row.value) else -row.value


def _chance_layers() -> list[JsonDict]:
    line = chart.hairline(color=chart.SOFT, strokeDash=[4, 3])
    edges = {"y": chart.lane("first", bandPosition=0), "y2": {"field": "last", "bandPosition": 1}}
    across = chart.number("chance")
    text = {"x": across, "text": chart.words("label")}
    is_first = chart.where("first", 0)
    is_later = {"field": "first", "gt": 0}
    beside = chart.note(align="left", dx=4)
    lane = chart.lane("first")
    return [
        chart.layer("chance", line, x=across, **edges),
        chart.layer("chance", chart.note(), is_first, y={"value": -10}, **text),
        chart.layer("chance", beside, is_later, y=lane, **text),
    ]


def _family_layers(left: int, narrow: bool) -> list[JsonDict]:
    text = {"type": "text", "align": "left", "baseline": "middle", "color": chart.INK}
    if narrow:
        above = {
            "x": {"value": 0},
            "y": chart.lane("under_top", bandPosition=0),
            "text": chart.words("heading"),
        }
        return chart.named("family", text, **above, description=chart.DESCRIPTION)
    beside = {"x": {"value": 12 - left}, "y": chart.lane("middle")}
    # A reader's font may be wider than the one that was measured.
    name = {**text, "limit": left - 20, "dy": -6}
    named = {"text": chart.words("label"), "description": chart.DESCRIPTION}
    count = chart.note(align="left", dy=7)
    return [
        chart.layer("family", name, **beside, **named),
        chart.layer("family", count, **beside, text=chart.words("count")),
    ]


def _published_layer() -> JsonDict:
    look = {
        "size": 45,
        "fill": chart.PAPER,
        "stroke": chart.SOFT,
        "strokeWidth": 1.25,
        "opacity": 1,
    }
    mark = {"type": "point", "shape": "diamond", **look}
    return chart.layer(
        "published",
        mark,
        x=chart.number("published"),
        y=chart.lane(),
        description=chart.DESCRIPTION,
    )


def _name_layers(narrow: bool) -> list[JsonDict]:
    """Return the names; on narrow charts those right of the middle alone, as the families' names
    are on the left.
    """
    # Where a name is beside its dot depends on the room that the values leave.
    looks: dict[str, JsonDict] = {
        "center": {"align": "center"},
        "left": {"align": "left"},
        "right": {"align": "right"},
        "before": {"align": "right", "dx": -6},
        "after": {"align": "left", "dx": 8},
    }
    # The left half of a narrow chart belongs to the names of families.
    right_half = [{"field": "at", "gte": 0.6}] if narrow else []
    layers = []
    for side, look in looks.items():
        for chosen, colour in ((False, chart.SOFT), (True, chart.ACCENT)):
            filters = (chart.where("side", side), chart.where("chosen", chosen), *right_half)
            layers += chart.named(
                "name",
                chart.note(**look, color=colour),
                *filters,
                x=chart.number("at"),
                y=chart.lane(),
                text=chart.words("label"),
            )
    return layers


def _rank_axis(values: Records) -> JsonDict:
    """Return the axis with the best rank on the right, as the greatest value is."""
    most = 1
    for record in of_kind(values, "number"):
        most = max(most, record["rank"] or 1, record["rank_high"] or 1)
    # The best rank is on the right, as the greatest value is.
    scale = {"domain": [1, max(most, 2)], "reverse": True, "zero": False, "nice": False}
    return {"scale": scale, "axis": chart.rank_axis(most)}


def _description(numbers: Records) -> str:
    shares = [record["value"] for record in numbers if not math.isnan(record["value"])]
    if not shares:
        return "All numbers of one model: no item was scored"
    return (
        f"All numbers of one model: {len(shares)}, from {chart.share(min(shares))} to "
        f"{chart.share(max(shares))}, "
        "each with its 95 % interval, by family"
    )


def _lane_pixels(numbers: int) -> int:
    """Return the pixels of a lane, the fewer the more numbers there are."""
    return max(min(_LANE, _TALL // max(numbers, 1)), 1)


def _family(rows: Sequence[Number], top: int, start: int) -> Record:
    family = rows[0].identity.family
    name = chart.cut(family, _FAMILY)
    shares = [row.value for row in rows if not math.isnan(row.value)]
    spread = "no item was scored"
    if shares:
        spread = f"{chart.share(min(shares))} to {chart.share(max(shares))}"
    numbers = counted(len(rows), "number")
    if len(shares) < len(rows):
        numbers = f"{len(shares)} of {numbers}"
    return {
        "kind": "family",
        "family": family,
        "label": name,
        "count": numbers,
        "heading": f"{name}, {numbers}",
        "top": top,
        "under_top": (top + start) // 2,
        "middle": (top + start + len(rows)) // 2,
        "description": f"{name}: {numbers}, {spread}",
    }


def _number(row: Number, lane: int, chosen: bool, absent: str) -> Record:
    name = chart.cut(row.identity.protocol, chart.SAID)
    if row.identity.subject not in ("", "all"):
        name += f", {chart.cut(row.identity.subject, chart.SAID)}"
    lines = ["no item was scored"]
    if not math.isnan(row.value):
        lines = _number_lines(row)
    return {
        "kind": "number",
        "model": row.identity.model,
        "family": row.identity.family,
        "subject": row.identity.subject,
        "id": row.identity.id,
        "chance": row.chance,
        **chart.number_fields(row),
        "lane": lane,
        "chosen": chosen,
        "absent": absent,
        "lines": lines,
        "description": f"{name}: {', '.join(lines)}",
    }


def _number_lines(row: Number) -> list[str]:
    lines = [f"{chart.share(row.value)} of {counted(row.counts.n, 'item')}"]
    bounds = chart.bounds(row.interval.low, row.interval.high).removeprefix(", ")
    if bounds:
        lines.append(bounds)
    # Without a rival there are no bounds of the rank.
    if row.ranks.rank is not None and row.ranks.low is not None:
        lines.append(f"rank {row.ranks.rank} (95 %: {row.ranks.low} to {row.ranks.high})")
    warnings = chart.harmless(words(row))
    if warnings:
        lines.append(f"warnings: {warnings}")
    return lines


def _absent(protocols: Sequence[str]) -> str:
    """Return words for the protocols of a family under which nothing was measured."""
    others = f" and {len(protocols) - 1} more" if len(protocols) > 1 else ""
    return f"{chart.cut(protocols[0], _PROTOCOL)}{others}: no item was scored"


def _names(
    rows: Sequence[Number],
    start: int,
    above: int,
    short_names: Mapping[str, str],
    chosen: Collection[str],
) -> list[Record]:
    """Return names if there is room: of the greatest above it, of the least on its left, of what
    was chosen.
    """
    scored = [row for row in rows if not math.isnan(row.value)]
    if not scored:
        return []
    names = [chart.cut(short_names[row.identity.protocol], _PROTOCOL) for row in scored]
    best = scored[0]
    side = "center"
    at = best.value
    # A name that is centred near an edge would leave the plot.
    half = chart.em(names[0]) / 2 / _PLOT
    if best.value < half:
        side = "left"
        at = 0.0
    elif best.value > 1 - half:
        side = "right"
        at = 1.0
    records = [_name(best, names[0], above, at, side, chosen)]
    if len(scored) == 1:
        return records
    worst = scored[-1]
    # The least number has room on its left, where no other number of the family is.
    low = worst.value if math.isnan(worst.interval.low) else worst.interval.low
    if low * _PLOT > chart.em(names[-1]) + 1:
        lane = start + len(scored) - 1
        records.append(_name(worst, names[-1], lane, low, "before", chosen))
    for index in range(1, len(scored) - 1):
        row = scored[index]
        if row.identity.protocol not in chosen:
            continue
        side = "before"
        at = row.interval.low
        if (1 - row.interval.high) * _PLOT > chart.em(names[index]) + 1:
            side = "after"
            at = row.interval.high
        records.append(_name(row, names[index], start + index, at, side, chosen))
    return records


def _without_covered(records: Records, names: Records) -> list[Record]:
    """Return the records without the names of published numbers that a name of their lane covers."""
    spans = {}
    for name in names:
        width = (chart.em(name["label"]) + 1) / _PLOT
        begin = name["at"] - width if name["side"] == "before" else name["at"]
        spans[name["lane"]] = (begin, begin + width)
    kept = []
    for record in records:
        if record["kind"] == "name" and record["lane"] in spans:
            begin, end = spans[record["lane"]]
            width = (chart.em(record["label"]) + 1) / _PLOT
            if record["at"] < end and record["at"] + width > begin:
                continue
        kept.append(record)
    return kept


def _name(
    row: Number, label: str, lane: int, at: float, side: str, chosen: Collection[str]
) -> Record:
    return {
        "kind": "name",
        "label": label,
        "lane": lane,
        "at": at,
        "side": side,
        "chosen": row.identity.protocol in chosen,
    }


def _published(row: Number, lane: int) -> list[Record]:
    """Return the published numbers of a protocol, and the name of the greatest if it hides nothing."""
    protocol = row.identity.protocol
    numbers = published().get(row.identity.id, ())
    records: list[Record] = []
    for number in numbers:
        value = f"{number.model} {chart.share(number.value)} under {protocol}"
        records.append(
            {
                "kind": "published",
                "protocol": protocol,
                "lane": lane,
                "published_model": number.model,
                "published": number.value,
                "url": number.url,
                "description": f"published: {value}; {number.source}",
            }
        )
    if not numbers:
        return []
    best = max(numbers, key=lambda number: number.value)
    name = f"published: {chart.cut(str(best.model).rpartition('/')[2], 9)}"
    # On an interval the name could not be read.
    end = best.value + (chart.em(name) + 1) / _PLOT
    if row.interval.high < best.value or row.interval.low > end:
        records.append(_name(row, name, lane, best.value, "after", ()))
    return records


def _chances(records: Records) -> list[Record]:
    """Return a line per stretch of families with the same chance of guessing, named at its top."""
    lines: list[Record] = []
    tops = {record["family"]: record["top"] for record in of_kind(records, "family")}
    for record in of_kind(records, "number"):
        chance = record["chance"]
        if math.isnan(chance):
            continue
        if not lines or abs(lines[-1]["chance"] - chance) >= 5e-4:
            lines.append(
                {
                    "kind": "chance",
                    "chance": chance,
                    # The first line begins above all families.
                    "first": tops.get(record["family"], 0) if lines else 0,
                    "label": f"chance {chart.share(chance)}",
                }
            )
        lines[-1]["last"] = record["lane"]
    return lines
