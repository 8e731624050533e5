"""Section B: why two numbers of a model differ, step by step, and what every axis changes on average."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from choicewise.errors import UsageError
from choicewise.report.table import percent
from choicewise.results.comparison import Axis
from choicewise.results.ladder import ladders
from choicewise.results.main_effects import Effect, ValueChange, main_effects
from choicewise.web.charts import effects as effects_chart
from choicewise.web.charts import ladder as chart
from choicewise.web.number import count, points
from choicewise.web.page.figure import Record
from choicewise.web.study import ShownRun

STEP_COLUMNS = (
    ("what changes", "breaks"),
    ("points", "number"),
    ("gained, lost", "number"),
    ("items", "number"),
    ("reaches", ""),
    ("%", "number"),
)

EFFECT_COLUMNS = (
    ("axis", ""),
    ("mean change", "number"),
    ("size", "number"),
    ("from – to", "number"),
    ("pairs", "number"),
    ("most common change", "breaks"),
)


@dataclass(frozen=True)
class Steps:
    """All ways from one number of a run to another.

    ``ways``: (start, end) → the protocols on the way, both included; ``steps``: (from, to) → the chart's record of that
    step; ``ends``: protocol → its records as the start and as the end of a way.
    """

    ways: dict[tuple[str, str], list[str]]
    steps: dict[tuple[str, str], Record]
    ends: dict[str, tuple[Record, Record]]

    def records(self, start: str, end: str) -> list[Record]:
        """What the chart shows of the way from one protocol to another; the page's script does the same."""
        way = self.ways[start, end]
        walked = enumerate(pairwise(way), 1)
        climbed = [{**self.steps[pair], "lane": place, "above": place - 1} for place, pair in walked]
        return [self.ends[start][0], *climbed, {**self.ends[end][1], "lane": len(way), "above": len(way) - 1}]

    def data(self, numbers: dict[str, int]) -> dict[str, Any]:
        """The same for the script, protocols by their places."""
        named = {
            f"{numbers[start]}>{numbers[end]}": [numbers[name] for name in way[1:-1]]
            for (start, end), way in self.ways.items()
            if len(way) > 2
        }
        steps = {f"{numbers[start]}>{numbers[end]}": record for (start, end), record in self.steps.items()}
        return {"ways": named, "steps": steps, "ends": {numbers[name]: ends for name, ends in self.ends.items()}}


def steps(run: ShownRun) -> Steps:
    """All ways between the numbers of ``run``; none where it has a single protocol."""
    ways: dict[tuple[str, str], list[str]] = {}
    records: dict[tuple[str, str], Record] = {}
    ends: dict[str, tuple[Record, Record]] = {}
    for (start, end), climbed in ladders(run.outcomes).items():
        way = [start, *(step.name for step in climbed.steps)]
        ways[start, end] = way
        if records.keys() >= {*pairwise(way)} and ends.keys() >= {start, end}:
            continue
        first, *drawn, last = chart.values(climbed)
        ends.setdefault(start, (first, _end(first)))
        ends.setdefault(end, (_start(last), last))
        for pair, record, step in zip(pairwise(way), drawn, climbed.steps, strict=True):
            if pair not in records:
                records[pair] = {**record, "changes": spelled(step.axes), "reached": percent(step.value)}
    return Steps(ways, records, ends)


def extremes(run: ShownRun) -> tuple[str, str] | None:
    """The protocols of the lowest and the highest number; None where there are not two that differ."""
    known = [row for row in run.rows if not math.isnan(row.value)]
    low, high = (extreme(known, key=lambda row: row.value, default=None) for extreme in (min, max))
    if low is None or high is None or low.signature == high.signature:
        return None
    return low.protocol, high.protocol


def step_table(records: list[Record]) -> list[list[str]]:
    """The records of a way as rows of a table."""
    rows = []
    for record in records:
        end = record["kind"] == "end"
        changes = record["detail"] if end else record["changes"]
        rows.append(
            [
                changes,
                "" if end else record["result"],
                "" if end else record["items"],
                f"{record['n']:,}",
                record["protocol"],
                percent(record["after"]),
            ]
        )
    return rows


def telling(run: ShownRun, known: Steps) -> tuple[str, str] | None:
    """Two numbers that differ for several reasons, the most steps apart and then the most points.

    The extremes where no way has two steps, None where there are not two numbers.
    """
    values = {row.protocol: row.value for row in run.rows if not math.isnan(row.value)}
    ways = [(start, end) for start, end in known.ways if start in values and end in values]
    rising = [(start, end) for start, end in ways if values[start] < values[end]]
    if not rising or max(len(known.ways[way]) for way in rising) < 3:
        return extremes(run)
    return max(rising, key=lambda way: (min(len(known.ways[way]), 4), values[way[1]] - values[way[0]]))


def effects(run: ShownRun) -> list[Effect]:
    """The axis that changes most first; none where no two protocols differ in one axis alone."""
    try:
        return main_effects(run.outcomes)
    except UsageError:
        return []


def effect_values(effects: Sequence[Effect]) -> list[Record]:
    """What the chart of the effects shows."""
    return effects_chart.values(effects)


def effect_table(effects: Sequence[Effect]) -> list[list[str]]:
    """A row per axis."""
    return [_effect(each) for each in effects]


def spelled(axes: tuple[Axis, ...]) -> str:
    """What changes in full: ``score: sum → char_mean; ties: first → wrong``."""
    return "; ".join(f"{each.axis}: {each.left or '(empty)'} → {each.right or '(empty)'}" for each in axes)


def _effect(effect: Effect) -> list[str]:
    spread = effect.spread
    sd = "" if math.isnan(spread.sd) else f" ± {percent(spread.sd)}"
    return [
        effect.axis,
        f"{points(spread.mean)}{sd}",
        percent(effect.absolute),
        f"{points(spread.low)} – {points(spread.high)}",
        f"{spread.pairs:,}",
        "; ".join(map(_change, effect.changes[:2])) + _more(len(effect.changes) - 2),
    ]


def _change(change: ValueChange) -> str:
    values = spelled(change.axes[:1]).partition(": ")[2]
    return f"{values}: {points(change.spread.mean)} over {count(change.spread.pairs, 'pair')}"


def _more(others: int) -> str:
    return f"; {count(others, 'other change')}" if others > 0 else ""


def _end(start: Record) -> Record:
    """The same number where a way ends."""
    return {**start, "side": "to", "detail": "to", "description": f"to{start['description'].removeprefix('from')}"}


def _start(end: Record) -> Record:
    """The same number where a way starts."""
    about = f"from{end['description'].removeprefix('to')}"
    return {**end, "side": "from", "detail": "from", "lane": 0, "above": 0, "description": about}
