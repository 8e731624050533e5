"""All numbers of one model: a block per family, in it a dot with its 95 % interval for every protocol."""

import math
from collections.abc import Collection, Sequence
from typing import Any

from choicewise.results.row import Row
from choicewise.web import labels
from choicewise.web.charts.frame import (
    DESCRIPTION,
    NARROW,
    PERCENT_AXIS,
    WIDTH,
    Record,
    frame,
    hairline,
    lane,
    layer,
    named,
    note,
    number,
    where,
    words,
)
from choicewise.web.published import published
from choicewise.web.theme import ACCENT, INK, PAPER, SMALL, SOFT

_STEP, _DENSE, _MANY = 9, 5, 120
"""Pixels of a lane, and of one where there are more lanes than this."""

_FAMILY, _PROTOCOL = 22, 24
"""Widths of the names of families and protocols, in sizes of the font."""

_PLOT = 38
"""Width of the area between 0 and 100 % that names of protocols can count on, in sizes of their font."""


def values(rows: Sequence[Row], chosen: Collection[str] = ()) -> list[Record]:
    """Records of the kinds ``family``, ``number``, ``name``, ``published`` and ``chance``, in lanes from the top.

    ``rows``: of one model, one per protocol and group.  Families stand in the order of their first row, their numbers
    from the greatest to the least, those without a value last.  ``chosen``: protocols to point out.
    """
    families: dict[str, list[Row]] = {}
    for row in rows:
        families.setdefault(row.family, []).append(row)
    prefix = _shared_prefix(rows)
    records: list[Record] = []
    top = 0
    for own in families.values():
        start = top + 2
        ordered = sorted(own, key=lambda row: math.inf if math.isnan(row.value) else -row.value)
        records.append(_family(ordered, top, start))
        for place, row in enumerate(ordered, start):
            records += [_number(row, place, row.protocol in chosen), *_published(row, place)]
        records += _names(ordered, start, prefix, chosen)
        top = start + len(own)
    return records + _chances(records)


def spec(values: Sequence[Record], rank: bool = False, width: int = WIDTH) -> dict[str, Any]:
    """The chart of such values; ``rank``: of the rank among the models measured alike instead of the value."""
    narrow = width < NARROW
    left, right = (12, 28) if narrow else (_FAMILY * SMALL // 2 + 24, 32)
    at, low, high = ("rank", "rank_low", "rank_high") if rank else ("value", "ci_low", "ci_high")
    across = number(at, **(_rank_axis(values) if rank else {"scale": {"domain": [0, 1]}, "axis": PERCENT_AXIS}))
    layers = [layer("family", hairline(), x={"value": -left}, x2={"value": "width"}, y=lane("top", bandPosition=0))]
    layers += [] if rank else [*_chance_layers(), _published_layer()]
    for chosen, line, dot in ((False, SOFT, INK), (True, ACCENT, ACCENT)):
        own = ({"field": at, "valid": True}, where("chosen", chosen))
        bar = {"type": "rule", "color": line, "strokeWidth": 2 if chosen else 1.25}
        point = {"type": "point", "shape": "circle", "fill": dot, "stroke": PAPER, "strokeWidth": 1, "opacity": 1, "size": 40}
        layers.append(layer("number", bar, *own, x=number(low), x2={"field": high}, y=lane()))
        layers.append(layer("number", point, *own, x=across, y=lane(), description=DESCRIPTION))
    missing = {"x": {"value": 0}, "y": lane(), "text": words("absent"), "description": DESCRIPTION}
    layers.append(layer("number", note(align="left", dx=4), {"field": at, "valid": False}, **missing))
    layers += _family_layers(left, narrow)
    layers += [] if rank else _name_layers(narrow)
    lanes = sum(record["kind"] in ("number", "family") for record in values)
    return frame(
        values,
        layers,
        width=width,
        left=left,
        right=right,
        top=22,
        bottom=42 if rank else 26,
        height={"step": _DENSE if lanes > _MANY else _STEP},
        about=_about(values),
    )


def _shared_prefix(rows: Sequence[Row]) -> str:
    """``mmlu/`` where all protocols are of that benchmark, so that nothing is said by repeating it."""
    prefixes = {row.protocol.partition("/")[0] for row in rows if "/" in row.protocol}
    return f"{prefixes.pop()}/" if len(prefixes) == 1 and all("/" in row.protocol for row in rows) else ""


def _family(rows: Sequence[Row], top: int, start: int) -> Record:
    shares = [row.value for row in rows if not math.isnan(row.value)]
    spread = f"{labels.share(min(shares))} to {labels.share(max(shares))}" if shares else "no item was scored"
    name, count = labels.cut(rows[0].family, _FAMILY), labels.counted(len(rows), "number")
    return {
        "kind": "family",
        "family": rows[0].family,
        "label": name,
        "count": count,
        "heading": f"{name}, {count}",
        "top": top,
        "under_top": top + 1,
        "middle": (top + start + len(rows)) // 2,
        "description": f"{name}: {count}, {spread}",
    }


def _number(row: Row, place: int, chosen: bool) -> Record:
    name = labels.cut(row.protocol, 60) + (f", {labels.cut(row.subject, 40)}" if row.subject else "")
    about = f"{name}: {labels.share(row.value)} of {labels.counted(row.n, 'item')}"
    about += labels.interval(row.ci_low, row.ci_high)
    if row.rank is not None:
        bounds = "" if row.rank_low is None else f" (95 %: {row.rank_low} to {row.rank_high})"
        about += f", rank {row.rank}{bounds}"
    return {
        "kind": "number",
        "model": row.model,
        "family": row.family,
        "protocol": row.protocol,
        "subject": row.subject,
        "id": row.id,
        "lane": place,
        "value": row.value,
        "ci_low": row.ci_low,
        "ci_high": row.ci_high,
        "n": row.n,
        "chance": row.chance,
        "rank": row.rank,
        "rank_low": row.rank_low,
        "rank_high": row.rank_high,
        "chosen": chosen,
        "absent": f"{labels.cut(row.protocol, _PROTOCOL)}: no item was scored",
        "description": f"{name}: no item was scored" if math.isnan(row.value) else about,
    }


def _names(rows: Sequence[Row], start: int, prefix: str, chosen: Collection[str]) -> list[Record]:
    """Names where there is room: of the greatest above it, of the least on its left, of what was chosen."""
    known = [row for row in rows if not math.isnan(row.value)]
    if not known:
        return []
    names = [labels.cut(row.protocol.removeprefix(prefix), _PROTOCOL) for row in known]
    best = known[0].value
    half = labels.em(names[0]) / 2 / _PLOT
    side = "left" if best < half else "right" if best > 1 - half else "center"
    at = {"left": 0.0, "center": best, "right": 1.0}[side]
    shown = [_name(known[0], names[0], start - 1, at, side, chosen)]
    low = known[-1].value if math.isnan(known[-1].ci_low) else known[-1].ci_low
    if len(known) > 1 and low * _PLOT > labels.em(names[-1]) + 1:
        shown.append(_name(known[-1], names[-1], start + len(known) - 1, low, "before", chosen))
    for place, (row, name) in enumerate(list(zip(known, names, strict=True))[1:-1], start + 1):
        if row.protocol in chosen:
            room = (1 - row.ci_high) * _PLOT > labels.em(name) + 1
            shown.append(_name(row, name, place, row.ci_high if room else row.ci_low, "after" if room else "before", chosen))
    return shown


def _name(row: Row, label: str, place: int, at: float, side: str, chosen: Collection[str]) -> Record:
    return {"kind": "name", "label": label, "lane": place, "at": at, "side": side, "chosen": row.protocol in chosen}


def _published(row: Row, place: int) -> list[Record]:
    """The published numbers of a protocol, and the name of the greatest where it hides nothing."""
    numbers = published().get(row.id, ())
    shown: list[Record] = [
        {
            "kind": "published",
            "protocol": row.protocol,
            "lane": place,
            "published_model": each.model,
            "published": each.value,
            "url": each.url,
            "description": f"published: {each.model} {labels.share(each.value)} under {row.protocol}; {each.source}",
        }
        for each in numbers
    ]
    if numbers:
        best = max(numbers, key=lambda each: each.value)
        name = f"published: {labels.cut(best.model.rpartition('/')[2], 16)}"
        end = best.value + (labels.em(name) + 1) / _PLOT
        if row.ci_high < best.value or row.ci_low > end:
            shown.append(_name(row, name, place, best.value, "after", ()))
    return shown


def _chances(records: Sequence[Record]) -> list[Record]:
    """A line per stretch of families with the same chance of guessing, named at its top."""
    lines: list[Record] = []
    tops = {record["family"]: record["top"] for record in records if record["kind"] == "family"}
    for record in records:
        if record["kind"] != "number" or math.isnan(record["chance"]):
            continue
        if not lines or abs(lines[-1]["chance"] - record["chance"]) >= 5e-4:
            top = tops.get(record["family"], 0) if lines else 0
            label = f"chance {labels.share(record['chance'])}"
            lines.append({"kind": "chance", "chance": record["chance"], "first": top, "label": label})
        lines[-1]["last"] = record["lane"]
    return lines


def _chance_layers() -> list[dict[str, Any]]:
    line = hairline(color=SOFT, strokeDash=[4, 3])
    edges = {"y": lane("first", bandPosition=0), "y2": {"field": "last", "bandPosition": 1}}
    text = {"x": number("chance"), "text": words("label")}
    return [
        layer("chance", line, x=number("chance"), **edges),
        layer("chance", note(), where("first", 0), y={"value": -10}, **text),
        layer("chance", note(align="left", dx=4), {"field": "first", "gt": 0}, y=lane("first"), **text),
    ]


def _family_layers(left: int, narrow: bool) -> list[dict[str, Any]]:
    text = {"type": "text", "align": "left", "baseline": "middle", "color": INK}
    if narrow:
        above = {"x": {"value": 0}, "y": lane("under_top", bandPosition=0), "text": words("heading")}
        return named("family", text, **above, description=DESCRIPTION)
    beside = {"x": {"value": 12 - left}, "y": lane("middle")}
    limit = {"limit": left - 20}
    return [
        layer("family", {**text, **limit, "dy": -6}, **beside, text=words("label"), description=DESCRIPTION),
        layer("family", note(align="left", dy=7), **beside, text=words("count")),
    ]


def _published_layer() -> dict[str, Any]:
    look = {"size": 45, "fill": PAPER, "stroke": SOFT, "strokeWidth": 1.25, "opacity": 1}
    mark = {"type": "point", "shape": "diamond", **look}
    return layer("published", mark, x=number("published"), y=lane(), description=DESCRIPTION)


def _name_layers(narrow: bool) -> list[dict[str, Any]]:
    """The names; on narrow charts only what stands right of the middle, as the families' names stand on the left."""
    sides = {"center": {"align": "center"}, "left": {"align": "left"}, "right": {"align": "right"}}
    sides |= {"before": {"align": "right", "dx": -6}, "after": {"align": "left", "dx": 8}}
    kept = [{"field": "at", "gte": 0.6}] if narrow else []
    layers = []
    for side, place in sides.items():
        for chosen, colour in ((False, SOFT), (True, ACCENT)):
            filters = (where("side", side), where("chosen", chosen), *kept)
            mark = note(**place, color=colour)
            layers += named("name", mark, *filters, x=number("at"), y=lane(), text=words("label"))
    return layers


def _rank_axis(values: Sequence[Record]) -> dict[str, Any]:
    """The best rank on the right, as the greatest value is."""
    ranks = [record[name] for record in values if record["kind"] == "number" for name in ("rank", "rank_high")]
    most = max((rank for rank in ranks if rank is not None), default=1)
    ticks = {"format": "d", "tickMinStep": 1, "tickCount": min(most, 10)}
    scale = {"domain": [1, max(most, 2)], "reverse": True, "zero": False, "nice": False}
    return {"scale": scale, "axis": {**ticks, "title": "rank among the models (1 is the best)"}}


def _about(values: Sequence[Record]) -> str:
    shares = [record["value"] for record in values if record["kind"] == "number" and not math.isnan(record["value"])]
    if not shares:
        return "All numbers of one model: no item was scored"
    return (
        f"All numbers of one model: {len(shares)}, from {labels.share(min(shares))} to {labels.share(max(shares))}, "
        "each with its 95 % interval, by family"
    )
