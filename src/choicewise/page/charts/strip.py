"""The strip chart: all numbers of one model, by family."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Any

from choicewise.page.charts import chart
from choicewise.page.charts.chart import Record, Records
from choicewise.page.item_views import words
from choicewise.results.compare import published
from choicewise.results.number import Number
from choicewise.util.text import counted


def caption(values: Records, rank: bool = False) -> str:
    """How to read a chart of such values, of the ranks where ``rank``: it names what is drawn, and nothing else."""
    numbers = [record for record in values if record["kind"] == "number"]
    if not numbers:
        return "No number of this model is a share of the items; its numbers stand under the other metrics."
    edge = "rank_low" if rank else "ci_low"
    bounded = any(record[edge] is not None and not math.isnan(record[edge]) for record in numbers)
    kinds = set() if rank else {record["kind"] for record in values}
    told = f"Every dot is {'the rank' if rank else 'a number'} of the model under one protocol"
    told += ", the line its 95 % interval." if bounded else "."
    told += " Dashed: what guessing gives." if "chance" in kinds else ""
    return told + " Hollow: numbers that others published for other models, on MMLU." * (
        "published" in kinds
    )


def spec(values: Records, rank: bool = False, width: int = chart.WIDTH) -> dict[str, Any]:
    """The chart of such values; ``rank``: of the rank among the models measured alike instead of the value."""
    narrow = width < chart.NARROW
    left, right = (12, 28) if narrow else (_FAMILY * chart.NORMAL + 24, 32)
    at, low, high = ("rank", "rank_low", "rank_high") if rank else ("value", "ci_low", "ci_high")
    across = chart.number(
        at,
        **(
            _rank_axis(values)
            if rank
            else {"scale": {"domain": [0, 1]}, "axis": chart.PERCENT_AXIS}
        ),
    )
    numbers = [record for record in values if record["kind"] == "number"]
    step = _lane_pixels(len(numbers))
    tops = chart.lane("top", max((record["lane"] for record in numbers), default=0), bandPosition=0)
    layers = [
        chart.layer("family", chart.hairline(), x={"value": -left}, x2={"value": "width"}, y=tops)
    ]
    layers += [] if rank else [*_chance_layers(), _published_layer()]
    for chosen, line, dot in ((False, chart.SOFT, chart.INK), (True, chart.ACCENT, chart.ACCENT)):
        own = ({"field": at, "valid": True}, chart.where("chosen", chosen))
        bar = {
            "type": "rule",
            "color": line,
            "strokeWidth": (2 if chosen else 1.25) * min(step / 5, 1),
        }
        point = {
            "type": "point",
            "fill": dot,
            "opacity": 1,
            "size": 40 if chosen else min(5 * step, 40),
        }
        point |= {"stroke": chart.PAPER, "strokeWidth": min(step / 9, 1)}
        layers.append(
            chart.layer(
                "number", bar, *own, x=chart.number(low), x2={"field": high}, y=chart.lane()
            )
        )
        layers.append(
            chart.layer(
                "number", point, *own, x=across, y=chart.lane(), description=chart.DESCRIPTION
            )
        )
    missing = {
        "x": {"value": 0},
        "y": chart.lane(),
        "text": chart.words("absent"),
        "description": chart.DESCRIPTION,
    }
    layers.append(
        chart.layer(
            "number", chart.note(align="left", dx=4), {"field": at, "valid": False}, **missing
        )
    )
    layers += _family_layers(left, narrow)
    layers += [] if rank else _name_layers(narrow)
    return chart.frame(
        values,
        layers,
        width=width,
        left=left,
        right=right,
        top=22,
        bottom=42 if rank else 26,
        height={"step": step},
        description=_about(values),
    )


def values(rows: Sequence[Number], chosen: Collection[str] = ()) -> list[Record]:
    """Records of the kinds ``family``, ``number``, ``name``, ``published`` and ``chance``, in lanes from the top.

    ``rows``: of one model, one per protocol and group.  Families stand in the order of their first row, their numbers
    from the greatest to the least, those without a value last.  ``chosen``: protocols to point out.
    """
    families: dict[str, list[Number]] = {}
    for row in rows:
        families.setdefault(row.identity.family, []).append(row)
    prefix = chart.shared_prefix([row.identity.protocol for row in rows])
    records: list[Record] = []
    above = math.ceil(_HEADING / _lane_pixels(len(rows)))
    top = 0
    for own in families.values():
        start = top + above + (len(own) == 1)  # the name of the family and its count take two lines
        ordered = sorted(own, key=lambda row: math.inf if math.isnan(row.value) else -row.value)
        records.append(_family(ordered, top, start))
        absent = [row.identity.protocol for row in ordered if math.isnan(row.value)]
        for place, row in enumerate(ordered, start):
            told = _absent(absent) if [row.identity.protocol] == absent[:1] else ""
            records += [
                _number(row, place, row.identity.protocol in chosen, told),
                *_published(row, place),
            ]
        records += _names(ordered, start, start - (above + 1) // 2, prefix, chosen)
        top = start + len(own)
    return records + _chances(records)


def _chance_layers() -> list[dict[str, Any]]:
    line = chart.hairline(color=chart.SOFT, strokeDash=[4, 3])
    edges = {"y": chart.lane("first", bandPosition=0), "y2": {"field": "last", "bandPosition": 1}}
    text = {"x": chart.number("chance"), "text": chart.words("label")}
    return [
        chart.layer("chance", line, x=chart.number("chance"), **edges),
        chart.layer("chance", chart.note(), chart.where("first", 0), y={"value": -10}, **text),
        chart.layer(
            "chance",
            chart.note(align="left", dx=4),
            {"field": "first", "gt": 0},
            y=chart.lane("first"),
            **text,
        ),
    ]


def _family_layers(left: int, narrow: bool) -> list[dict[str, Any]]:
    text = {"type": "text", "align": "left", "baseline": "middle", "color": chart.INK}
    if narrow:
        above = {
            "x": {"value": 0},
            "y": chart.lane("under_top", bandPosition=0),
            "text": chart.words("heading"),
        }
        return chart.named("family", text, **above, description=chart.DESCRIPTION)
    beside = {"x": {"value": 12 - left}, "y": chart.lane("middle")}
    limit = {"limit": left - 20}
    return [
        chart.layer(
            "family",
            {**text, **limit, "dy": -6},
            **beside,
            text=chart.words("label"),
            description=chart.DESCRIPTION,
        ),
        chart.layer("family", chart.note(align="left", dy=7), **beside, text=chart.words("count")),
    ]


def _published_layer() -> dict[str, Any]:
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


def _name_layers(narrow: bool) -> list[dict[str, Any]]:
    """The names; on narrow charts only what stands right of the middle, as the families' names stand on the left."""
    sides: dict[str, dict[str, Any]] = {
        "center": {"align": "center"},
        "left": {"align": "left"},
        "right": {"align": "right"},
    }
    sides |= {"before": {"align": "right", "dx": -6}, "after": {"align": "left", "dx": 8}}
    right_half = [{"field": "at", "gte": 0.6}] if narrow else []
    layers = []
    for side, place in sides.items():
        for chosen, colour in ((False, chart.SOFT), (True, chart.ACCENT)):
            filters = (chart.where("side", side), chart.where("chosen", chosen), *right_half)
            mark = chart.note(**place, color=colour)
            layers += chart.named(
                "name",
                mark,
                *filters,
                x=chart.number("at"),
                y=chart.lane(),
                text=chart.words("label"),
            )
    return layers


def _rank_axis(values: Records) -> dict[str, Any]:
    """The best rank on the right, as the greatest value is."""
    ranks = [
        record[name]
        for record in values
        if record["kind"] == "number"
        for name in ("rank", "rank_high")
    ]
    most = max((rank for rank in ranks if rank is not None), default=1)
    scale = {"domain": [1, max(most, 2)], "reverse": True, "zero": False, "nice": False}
    return {"scale": scale, "axis": chart.rank_axis(most)}


def _about(values: Records) -> str:
    shares = [
        record["value"]
        for record in values
        if record["kind"] == "number" and not math.isnan(record["value"])
    ]
    if not shares:
        return "All numbers of one model: no item was scored"
    return (
        f"All numbers of one model: {len(shares)}, from {chart.share(min(shares))} to {chart.share(max(shares))}, "
        "each with its 95 % interval, by family"
    )


_FAMILY, _PROTOCOL = 11, 14  # widths of the names of families and protocols, in sizes of the font

_PLOT = 38  # width of the area between 0 and 100 % that names of protocols can count on, in sizes of their font

_LANE, _TALL, _HEADING = 9, 1080, 18
"""Pixels of a lane, of all lanes together where there are many, and above the numbers of a family."""


def _lane_pixels(numbers: int) -> int:
    """Pixels of a lane, the fewer the more numbers there are."""
    return max(min(_LANE, _TALL // max(numbers, 1)), 1)


def _family(rows: Sequence[Number], top: int, start: int) -> Record:
    shares = [row.value for row in rows if not math.isnan(row.value)]
    spread = (
        f"{chart.share(min(shares))} to {chart.share(max(shares))}"
        if shares
        else "no item was scored"
    )
    name, numbers = chart.cut(rows[0].identity.family, _FAMILY), counted(len(rows), "number")
    numbers = numbers if len(shares) == len(rows) else f"{len(shares)} of {numbers}"
    return {
        "kind": "family",
        "family": rows[0].identity.family,
        "label": name,
        "count": numbers,
        "heading": f"{name}, {numbers}",
        "top": top,
        "under_top": (top + start) // 2,
        "middle": (top + start + len(rows)) // 2,
        "description": f"{name}: {numbers}, {spread}",
    }


def _number(row: Number, place: int, chosen: bool, absent: str) -> Record:
    name = chart.cut(row.identity.protocol, chart.SAID) + (
        f", {chart.cut(row.identity.subject, chart.SAID)}"
        if row.identity.subject not in ("", "all")
        else ""
    )
    parts = [
        f"{chart.share(row.value)} of {counted(row.counts.n, 'item')}",
        chart.bounds(row.interval.low, row.interval.high)[2:],
    ]
    if row.ranks.rank is not None and row.ranks.low is not None:  # else there is no rival
        parts.append(f"rank {row.ranks.rank} (95 %: {row.ranks.low} to {row.ranks.high})")
    parts.append(f"warnings: {warnings}" if (warnings := chart.harmless(words(row))) else "")
    lines = [part for part in parts if part]
    return {
        "kind": "number",
        "model": row.identity.model,
        "family": row.identity.family,
        "protocol": row.identity.protocol,
        "subject": row.identity.subject,
        "id": row.identity.id,
        "value": row.value,
        "ci_low": row.interval.low,
        "ci_high": row.interval.high,
        "n": row.counts.n,
        "chance": row.chance,
        "rank": row.ranks.rank,
        "rank_low": row.ranks.low,
        "rank_high": row.ranks.high,
        "lane": place,
        "chosen": chosen,
        "absent": absent,
        "lines": ["no item was scored"] if math.isnan(row.value) else lines,
        "description": f"{name}: no item was scored"
        if math.isnan(row.value)
        else f"{name}: {', '.join(lines)}",
    }


def _absent(protocols: Sequence[str]) -> str:
    """Words for those of a family under which nothing was measured; they stand where the first of them would be."""
    more = f" and {len(protocols) - 1} more" if len(protocols) > 1 else ""
    return f"{chart.cut(protocols[0], _PROTOCOL)}{more}: no item was scored"


def _names(
    rows: Sequence[Number], start: int, above: int, prefix: str, chosen: Collection[str]
) -> list[Record]:
    """Names where there is room: of the greatest above it, of the least on its left, of what was chosen."""
    known = [row for row in rows if not math.isnan(row.value)]
    if not known:
        return []
    names = [chart.cut(row.identity.protocol.removeprefix(prefix), _PROTOCOL) for row in known]
    best = known[0].value
    half = chart.em(names[0]) / 2 / _PLOT
    side = "left" if best < half else "right" if best > 1 - half else "center"
    at = {"left": 0.0, "center": best, "right": 1.0}[side]
    shown = [_name(known[0], names[0], above, at, side, chosen)]
    low = known[-1].value if math.isnan(known[-1].interval.low) else known[-1].interval.low
    if len(known) > 1 and low * _PLOT > chart.em(names[-1]) + 1:
        shown.append(_name(known[-1], names[-1], start + len(known) - 1, low, "before", chosen))
    for place, (row, name) in enumerate(list(zip(known, names, strict=True))[1:-1], start + 1):
        if row.identity.protocol in chosen:
            room = (1 - row.interval.high) * _PLOT > chart.em(name) + 1
            at, side = (row.interval.high, "after") if room else (row.interval.low, "before")
            shown.append(_name(row, name, place, at, side, chosen))
    return shown


def _name(
    row: Number, label: str, place: int, at: float, side: str, chosen: Collection[str]
) -> Record:
    return {
        "kind": "name",
        "label": label,
        "lane": place,
        "at": at,
        "side": side,
        "chosen": row.identity.protocol in chosen,
    }


def _published(row: Number, place: int) -> list[Record]:
    """The published numbers of a protocol, and the name of the greatest where it hides nothing."""
    numbers = published().get(row.identity.id, ())
    shown: list[Record] = [
        {
            "kind": "published",
            "protocol": row.identity.protocol,
            "lane": place,
            "published_model": each.model,
            "published": each.value,
            "url": each.url,
            "description": f"published: {each.model} {chart.share(each.value)} "
            f"under {row.identity.protocol}; {each.source}",
        }
        for each in numbers
    ]
    if numbers:
        best = max(numbers, key=lambda each: each.value)
        name = f"published: {chart.cut(best.model.rpartition('/')[2], 9)}"
        end = best.value + (chart.em(name) + 1) / _PLOT
        if row.interval.high < best.value or row.interval.low > end:
            shown.append(_name(row, name, place, best.value, "after", ()))
    return shown


def _chances(records: Records) -> list[Record]:
    """A line per stretch of families with the same chance of guessing, named at its top."""
    lines: list[Record] = []
    tops = {record["family"]: record["top"] for record in records if record["kind"] == "family"}
    for record in records:
        if record["kind"] != "number" or math.isnan(record["chance"]):
            continue
        if not lines or abs(lines[-1]["chance"] - record["chance"]) >= 5e-4:
            top = tops.get(record["family"], 0) if lines else 0
            label = f"chance {chart.share(record['chance'])}"
            lines.append(
                {"kind": "chance", "chance": record["chance"], "first": top, "label": label}
            )
        lines[-1]["last"] = record["lane"]
    return lines
