"""The data of the strip: all numbers of one model, in lanes from the top, a block of lanes per family."""

import math
from collections.abc import Collection, Sequence

from choicewise.results.published import published
from choicewise.results.row import Row
from choicewise.web import labels
from choicewise.web.charts.frame import Record, Records
from choicewise.web.number import count

FAMILY, _PROTOCOL = 11, 14
"""Widths of the names of families and protocols, in sizes of the font."""

_PLOT = 38
"""Width of the area between 0 and 100 % that names of protocols can count on, in sizes of their font."""

_LANE, _TALL, _HEADING = 9, 1080, 18
"""Pixels of a lane, of all lanes together where there are many, and above the numbers of a family."""


def lane_pixels(numbers: int) -> int:
    """Pixels of a lane, the fewer the more numbers there are."""
    return max(min(_LANE, _TALL // max(numbers, 1)), 1)


def values(rows: Sequence[Row], chosen: Collection[str] = ()) -> list[Record]:
    """Records of the kinds ``family``, ``number``, ``name``, ``published`` and ``chance``, in lanes from the top.

    ``rows``: of one model, one per protocol and group.  Families stand in the order of their first row, their numbers
    from the greatest to the least, those without a value last.  ``chosen``: protocols to point out.
    """
    families: dict[str, list[Row]] = {}
    for row in rows:
        families.setdefault(row.family, []).append(row)
    prefix = labels.shared_prefix([row.protocol for row in rows])
    records: list[Record] = []
    above = math.ceil(_HEADING / lane_pixels(len(rows)))
    top = 0
    for own in families.values():
        start = top + above + (len(own) == 1)  # the name of the family and its count take two lines
        ordered = sorted(own, key=lambda row: math.inf if math.isnan(row.value) else -row.value)
        records.append(_family(ordered, top, start))
        absent = [row.protocol for row in ordered if math.isnan(row.value)]
        for place, row in enumerate(ordered, start):
            told = _absent(absent) if [row.protocol] == absent[:1] else ""
            records += [_number(row, place, row.protocol in chosen, told), *_published(row, place)]
        records += _names(ordered, start, start - (above + 1) // 2, prefix, chosen)
        top = start + len(own)
    return records + _chances(records)


def _family(rows: Sequence[Row], top: int, start: int) -> Record:
    shares = [row.value for row in rows if not math.isnan(row.value)]
    spread = f"{labels.share(min(shares))} to {labels.share(max(shares))}" if shares else "no item was scored"
    name, numbers = labels.cut(rows[0].family, FAMILY), count(len(rows), "number")
    numbers = numbers if len(shares) == len(rows) else f"{len(shares)} of {numbers}"
    return {
        "kind": "family",
        "family": rows[0].family,
        "label": name,
        "count": numbers,
        "heading": f"{name}, {numbers}",
        "top": top,
        "under_top": (top + start) // 2,
        "middle": (top + start + len(rows)) // 2,
        "description": f"{name}: {numbers}, {spread}",
    }


def _number(row: Row, place: int, chosen: bool, absent: str) -> Record:
    name = labels.cut(row.protocol, labels.SAID) + (
        f", {labels.cut(row.subject, labels.SAID)}" if row.subject not in ("", "all") else ""
    )
    about = f"{name}: {labels.share(row.value)} of {count(row.n, 'item')}"
    about += labels.bounds(row.ci_low, row.ci_high)
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
        "absent": absent,
        "description": f"{name}: no item was scored" if math.isnan(row.value) else about,
    }


def _absent(protocols: Sequence[str]) -> str:
    """Words for those of a family under which nothing was measured; they stand where the first of them would be."""
    more = f" and {len(protocols) - 1} more" if len(protocols) > 1 else ""
    return f"{labels.cut(protocols[0], _PROTOCOL)}{more}: no item was scored"


def _names(rows: Sequence[Row], start: int, above: int, prefix: str, chosen: Collection[str]) -> list[Record]:
    """Names where there is room: of the greatest above it, of the least on its left, of what was chosen."""
    known = [row for row in rows if not math.isnan(row.value)]
    if not known:
        return []
    names = [labels.cut(row.protocol.removeprefix(prefix), _PROTOCOL) for row in known]
    best = known[0].value
    half = labels.em(names[0]) / 2 / _PLOT
    side = "left" if best < half else "right" if best > 1 - half else "center"
    at = {"left": 0.0, "center": best, "right": 1.0}[side]
    shown = [_name(known[0], names[0], above, at, side, chosen)]
    low = known[-1].value if math.isnan(known[-1].ci_low) else known[-1].ci_low
    if len(known) > 1 and low * _PLOT > labels.em(names[-1]) + 1:
        shown.append(_name(known[-1], names[-1], start + len(known) - 1, low, "before", chosen))
    for place, (row, name) in enumerate(list(zip(known, names, strict=True))[1:-1], start + 1):
        if row.protocol in chosen:
            room = (1 - row.ci_high) * _PLOT > labels.em(name) + 1
            at, side = (row.ci_high, "after") if room else (row.ci_low, "before")
            shown.append(_name(row, name, place, at, side, chosen))
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
        name = f"published: {labels.cut(best.model.rpartition('/')[2], 9)}"
        end = best.value + (labels.em(name) + 1) / _PLOT
        if row.ci_high < best.value or row.ci_low > end:
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
            label = f"chance {labels.share(record['chance'])}"
            lines.append({"kind": "chance", "chance": record["chance"], "first": top, "label": label})
        lines[-1]["last"] = record["lane"]
    return lines
