"""The tables and values of the sections of a page, without its items and warnings."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Any

from choicewise.errors import ProtocolError, UsageError
from choicewise.page.charts import bump, lanes
from choicewise.page.embed import Record
from choicewise.page.item_views import words
from choicewise.page.study import MOST_RUNS, Contest, Lead, Pair, ShownRun, Study, leads
from choicewise.protocols.catalogue import Entry, entry
from choicewise.protocols.protocol import (
    Protocol,
    axis_differences,
    family,
    short_signature,
    signature,
)
from choicewise.protocols.readings import READINGS
from choicewise.report.findings import reversal_sentence
from choicewise.results.finding import reversal
from choicewise.results.ladder import Effect, ValueChange, ladders, main_effects
from choicewise.results.outcomes import Axis
from choicewise.results.rows import Row
from choicewise.util import text
from choicewise.util.text import counted, percent, points, probability, ranks, shown


def about(study: Study, day: str) -> str:
    """What was measured, in a line."""
    datasets = list(dict.fromkeys(run.manifest.dataset.name for run in study.runs))
    least, most = (
        extreme(len(run.rows) + len(run.other_metrics) for run in study.runs)
        for extreme in (min, max)
    )
    asked = [run.items for run in study.runs]
    several = len(study.runs) > 1
    models = dict.fromkeys(run.manifest.model.name for run in study.runs)
    words = [
        text.listed([text.shortened(name, 40) for name in datasets]),
        text.counted(len(models) if len(datasets) > 1 else len(study.runs), "model")
        if several
        else text.shortened(study.labels[0]),
        (text.counted(most, "number") if least == most else f"{least} to {most} numbers")
        + " each" * several,
        text.counted(max(asked), "item")
        if min(asked) == max(asked)
        else f"{min(asked):,} to {max(asked):,} items",
        day,
    ]
    return " · ".join(words)


NUMBER_COLUMNS = (
    ("protocol", ""),
    ("family", ""),
    ("%", "number"),
    ("95 % interval", "number"),
    ("items", "number"),
    ("rank", "number"),
    ("warnings", "breaks"),
    ("ids", "code"),
)


def table(run: ShownRun) -> list[list[str]]:
    """The same numbers in rows, the families in the order of the chart and their numbers from the greatest."""
    families = list(dict.fromkeys(row.family for row in run.rows))
    ordered = sorted(
        run.rows,
        key=lambda row: (families.index(row.family), 1.0 if math.isnan(row.value) else -row.value),
    )
    grouped = len({row.subject for row in run.rows}) > 1
    cells = []
    for row in ordered:
        rank = "" if row.rank is None else f"{row.rank}"
        if row.rank is not None and row.rank_low is not None:
            rank += f" ({text.ranks(row.rank_low, row.rank_high)})"
        cells.append(
            [
                f"{row.protocol}, {row.subject}" if grouped else row.protocol,
                row.family,
                f"{percent(row.value)} {row.coverage}".rstrip(),
                text.interval(row.ci_low, row.ci_high),
                f"{row.n:,}",
                rank,
                words(row),
                f"{row.id} {row.i} {row.t} {row.r}",
            ]
        )
    return cells


RANGE_COLUMNS = (
    ("model", ""),
    ("median rank", "number"),
    ("ranks", "number"),
    ("possible (95 %)", "number"),
    ("first under", "number"),
    ("last under", "number"),
    ("protocols", "number"),
)


@dataclass(frozen=True, slots=True)
class Side:
    """Of two models the protocols under which one is ahead: ``words`` say which, ``protocols`` are (name, points,
    whether significantly), the most points first."""

    words: str
    protocols: tuple[tuple[str, str, bool], ...]


@dataclass(frozen=True)
class Order:
    """The models measured on one dataset: the values and tables of the two charts, of all orders and of the ranks.

    ``dataset``: its name, with its id where another dataset is called the same.  ``reversal``: says which two of them
    change places, nothing where none do.  ``sides``: of two models who is ahead where, in place of the charts.
    """

    dataset: str
    reversal: str
    values: list[Record]
    models: tuple[str, ...]
    table: list[list[str]]
    rank_values: list[Record]
    ranges: list[list[str]]
    sides: tuple[Side, ...] = ()


def orders(study: Study, compared: Sequence[Pair]) -> list[Order]:
    """One per dataset with two models or more."""
    ahead = leads(study, compared)
    several = {digest: places for digest, places in study.datasets.items() if len(places) > 1}
    names = {
        digest: study.runs[places[0]].manifest.dataset.name for digest, places in several.items()
    }
    called = list(names.values())
    told = {
        digest: name if called.count(name) == 1 else f"{name} #D{digest[:6]}"
        for digest, name in names.items()
    }
    pair_of = {(pair.left, pair.right): pair for pair in compared}
    return [
        _order(study, told[digest], places, ahead, pair_of.get((places[0], places[1])))
        for digest, places in several.items()
    ]


PAIR_COLUMNS = (
    ("protocol", ""),
    ("A − B", "number"),
    ("95 % interval", "number"),
    ("exact p", "number"),
    ("only A right", "number"),
    ("only B right", "number"),
    ("could show", "number"),
    ("items", "number"),
    ("", ""),
)


def pair_data(study: Study, pair: Pair) -> dict[str, Any]:
    """What the page says and shows of a pair."""
    one, other = study.runs[pair.left], study.runs[pair.right]
    if pair.reason:
        return {"said": f"Not comparable: {pair.reason}.", "rows": []}
    left, right = pair.ahead
    leads = [contest.lead for contest in pair.ordered]
    incomparable = sum(contest.other_texts for contest in pair.contests)
    too_few = sum(contest.other_items and not contest.other_texts for contest in pair.contests)
    said = (
        f"{text.shortened(one.label)} (A) is ahead of {text.shortened(other.label)} (B) under "
        f"{leads.count(1)} of {text.counted(len(leads), 'protocol')}, behind under "
        f"{leads.count(-1)}, level under {leads.count(0)}. "
        f"Significant by the sign-flip test, after Holm's correction for {text.counted(pair.tests, 'test')} at 5 %: "
        f"A is better under {left}, B under {right}; the others can't tell them apart."
    )
    if incomparable:
        said += f" Not comparable under {text.counted(incomparable, 'protocol')}: other texts were sent."
    if too_few:
        said += f" No order under {text.counted(too_few, 'protocol')}: one scored too few of the other's questions."
    return {"said": said, "rows": [_cells(each) for each in pair.contests]}


@dataclass(frozen=True, slots=True)
class Variant:
    """One protocol of a sheet: how it differs from the first one there, in words of the axes."""

    name: str
    id: str
    signature: str
    differs: str


@dataclass(frozen=True, slots=True)
class Sheet:
    """Protocols that one source published together; ``entry`` is None for protocols of one's own.

    ``parts``: (what it is, the template with its white space visible), in the order in which a prompt is made of them.
    """

    name: str
    entry: Entry | None
    family: str
    reading: str
    shots: str
    parts: tuple[tuple[str, str], ...]
    variants: tuple[Variant, ...]


def sheets(study: Study) -> list[Sheet]:
    """A sheet per entry of the catalogue, and one per other protocol, in the order of the runs."""
    chosen: dict[str, dict[str, Protocol]] = {}
    published: dict[str, Entry] = {}
    for name, protocol in study.protocols.items():
        source = _source(name, protocol)
        together = name if source is None else source.name
        if source is not None:
            published[together] = source
        chosen.setdefault(together, {})[name] = protocol
    return [sheet(name, own, published.get(name)) for name, own in chosen.items()]


def sheet(name: str, protocols: Mapping[str, Protocol], published: Entry | None) -> Sheet:
    """The sheet of these protocols, which share their templates; ``published``: their entry of the catalogue."""
    first = next(iter(protocols.values()))
    variants = (
        Variant(
            each,
            short_signature(protocol),
            signature(protocol),
            ", ".join(
                f"{axis} {_value(other)}" for axis, _, other in axis_differences(first, protocol)
            ),
        )
        for each, protocol in protocols.items()
    )
    reading = READINGS[first.reading].description
    return Sheet(
        name,
        published,
        family(first),
        reading,
        _shots(first),
        tuple(_parts(first)),
        tuple(variants),
    )


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
        climbed = [
            {**self.steps[pair], "lane": place, "above": place - 1} for place, pair in walked
        ]
        return [
            self.ends[start][0],
            *climbed,
            {**self.ends[end][1], "lane": len(way), "above": len(way) - 1},
        ]

    def data(self, numbers: dict[str, int]) -> dict[str, Any]:
        """The same for the script, protocols by their places."""
        named = {
            f"{numbers[start]}>{numbers[end]}": [numbers[name] for name in way[1:-1]]
            for (start, end), way in self.ways.items()
            if len(way) > 2
        }
        steps = {
            f"{numbers[start]}>{numbers[end]}": record
            for (start, end), record in self.steps.items()
        }
        return {
            "ways": named,
            "steps": steps,
            "ends": {numbers[name]: ends for name, ends in self.ends.items()},
        }


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
        first, *drawn, last = lanes.ladder_values(climbed)
        ends.setdefault(start, (first, _turned(first, "to")))
        ends.setdefault(end, (_turned(last, "from") | {"lane": 0, "above": 0}, last))
        for pair, record, step in zip(pairwise(way), drawn, climbed.steps, strict=True):
            if pair not in records:
                records[pair] = {
                    **record,
                    "changes": spelled(step.axes),
                    "reached": percent(step.value),
                }
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
        changed = (
            (record["detail"], "", "")
            if end
            else (record["changes"], record["result"], record["items"])
        )
        rows.append([*changed, f"{record['n']:,}", record["protocol"], percent(record["after"])])
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
    return max(
        rising, key=lambda way: (min(len(known.ways[way]), 4), values[way[1]] - values[way[0]])
    )


def effects(run: ShownRun) -> list[Effect]:
    """The axis that changes most first; none where no two protocols differ in one axis alone."""
    try:
        return main_effects(run.outcomes)
    except UsageError:
        return []


def spelled(axes: tuple[Axis, ...]) -> str:
    """What changes in full: ``score: sum → char_mean; ties: first → wrong``."""
    return "; ".join(
        f"{each.axis}: {each.left or '(empty)'} → {each.right or '(empty)'}" for each in axes
    )


def effect_cells(effect: Effect) -> list[str]:
    """A row of the table of effects."""
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


def _order(
    study: Study,
    dataset: str,
    places: Sequence[int],
    ahead: Collection[Lead],
    first_pair: Pair | None,
) -> Order:
    runs = [study.runs[place] for place in places]
    rows = [row for run in runs for row in run.rows]
    values = bump.values(rows, ahead)
    columns = [record["protocol"] for record in values if record["kind"] == "column"]
    models = tuple(run.label for run in runs)
    table = [
        [name, *(_cell(run.row_of.get(name)) for run in runs)] for name in dict.fromkeys(columns)
    ]
    ranges = [cells for run in runs if (cells := _range(run.label, run.rows, len(runs)))]
    ranges.sort(key=lambda cells: float(cells[1]))
    turned = reversal(runs[:MOST_RUNS])
    said = reversal_sentence(turned) if turned else ""
    sides = _sides(first_pair, models) if len(runs) == 2 and first_pair is not None else ()
    return Order(dataset, said, values, models, table, lanes.ranks_values(rows), ranges, sides)


def _sides(pair: Pair, labels: Sequence[str]) -> tuple[Side, ...]:
    """Under which protocols each of two models is ahead, and under which they are level; nobody where there is none."""
    one, other = labels
    sides = []
    for sign, leader in ((1, one), (-1, other), (0, "")):
        contests = [contest for contest in pair.ordered if contest.lead == sign]
        contests.sort(key=lambda contest: -abs(contest.difference.value))
        under = f"{len(contests):,} of {counted(len(pair.ordered), 'protocol')}"
        significant = sum(contest.significant for contest in contests)
        words = (
            f"{leader} leads under {under}, significantly under {significant}"
            if leader
            else f"Level under {under}"
        )
        protocols = [_ahead(contest) for contest in contests]
        if contests:
            sides.append(Side(words, tuple(protocols)))
    return tuple(sides)


def _ahead(contest: Contest) -> tuple[str, str, bool]:
    by = points(abs(contest.difference.value)) if contest.lead else ""
    return contest.protocol, by, contest.significant


def _cell(row: Row | None) -> str:
    if row is None:
        return ""
    if row.rank:
        return f"{percent(row.value)} ({row.rank})"
    return f"{percent(row.value)} {row.coverage}".rstrip()


def _range(label: str, rows: Sequence[Row], models: int) -> list[str]:
    """Nothing for a model without a rank."""
    known = [row for row in rows if row.rank is not None and row.rank_low is not None]
    places = [row.rank for row in known if row.rank is not None]
    if not places:
        return []
    low = min(row.rank_low for row in known if row.rank_low is not None)
    high = max(row.rank_high for row in known if row.rank_high is not None)
    middle = f"{median(places):g}"
    firsts, lasts = (sum(place == edge for place in places) for edge in (1, models))
    return [
        label,
        middle,
        ranks(min(places), max(places)),
        ranks(low, high),
        f"{firsts}",
        f"{lasts}",
        f"{len(places)}",
    ]


def _cells(contest: Contest) -> list[str]:
    difference, test = contest.difference, contest.test
    low, high = text.points(difference.ci_low), text.points(difference.ci_high)
    words = ["not comparable: other texts were sent"] if contest.other_texts else []
    if contest.other_items and not contest.other_texts:
        words.append("no order: one scored too few of the other's questions")
    words += ["in the normal limit"] if not test.exact else []
    words += ["A is better" if contest.lead > 0 else "B is better"] if contest.significant else []
    return [
        contest.protocol,
        text.points(difference.value),
        "-" if math.isnan(difference.ci_low) else f"{low} to {high}",
        probability(test.p),
        f"{test.left_only:,}",
        f"{test.right_only:,}",
        percent(contest.detectable),
        f"{difference.n:,}",
        ", ".join(words),
    ]


def _source(name: str, protocol: Protocol) -> Entry | None:
    """The entry of the catalogue that has this protocol under this name."""
    try:
        known = entry(name)
    except ProtocolError:
        return None
    return known if known.protocols.get(known.published.get(name, name)) == protocol else None


def _value(spelled: str) -> str:
    return "none" if spelled == "-" else spelled or "(empty)"


def _shots(protocol: Protocol) -> str:
    if not protocol.shots:
        return "none"
    seed = "" if protocol.seed is None else f", seed {protocol.seed}"
    return f"{protocol.shots} from {protocol.shot_split or 'nowhere'}, chosen by {protocol.sampler}{seed}"


def _parts(protocol: Protocol) -> list[tuple[str, str]]:
    if protocol.requests is not None:
        return [("rendered elsewhere", f"requests with the digest {protocol.requests}")]
    parts = [("begins with", protocol.header)]
    if protocol.shots:
        parts.append(
            (
                f"each of {protocol.shots} examples",
                protocol.question + protocol.answer + protocol.separator,
            )
        )
    parts.append(("the question", protocol.question + protocol.proposal))
    if "{options}" in protocol.header + protocol.question:
        parts.append(("each of its options", protocol.option))
    parts.append(("what is scored", protocol.continuation))
    return [(what, shown(text)) for what, text in parts if text]


def _change(change: ValueChange) -> str:
    values = spelled(change.axes[:1]).partition(": ")[2]
    return f"{values}: {points(change.spread.mean)} over {counted(change.spread.pairs, 'pair')}"


def _more(others: int) -> str:
    return f"; {counted(others, 'other change')}" if others > 0 else ""


def _turned(record: Record, side: str) -> Record:
    """The same number at the other end of a way."""
    about = f"{side}{record['description'].removeprefix(record['side'])}"
    return {**record, "side": side, "detail": side, "description": about}
