"""Build the tables and values of the sections of a page, without its items and warnings."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, zip_longest
from statistics import median
from typing import Any

from choicewise.errors import UsageError
from choicewise.page.charts import bump, lanes
from choicewise.page.charts.chart import Record
from choicewise.page.item_views import words
from choicewise.page.metrics import interval_columns, rank_cells, rank_columns, row_ids
from choicewise.page.reproduce import published_protocol
from choicewise.page.study import MOST_RUNS, Contest, Lead, Pair, ShownRun, Study, leads
from choicewise.page.tables import PageTable, page_table
from choicewise.protocols.between import split_changes
from choicewise.protocols.catalogue import Entry, entry
from choicewise.protocols.protocol import (
    Protocol,
    Protocols,
    axis_differences,
    family,
    short_signature,
    signature,
)
from choicewise.protocols.readings import READINGS
from choicewise.report.brief import extremes as extreme_rows
from choicewise.report.findings import lead_sentences, reversal_sentence
from choicewise.report.tables import ranked_cells, ranked_columns, scored_cells
from choicewise.results.finding import finding, reversal
from choicewise.results.headline import headline
from choicewise.results.ladder import Effect, Ladder, ValueChange, ladders, main_effects
from choicewise.results.number import Number
from choicewise.results.outcomes import Axis
from choicewise.results.run import count_items
from choicewise.results.summary import MANY
from choicewise.running.front import climb
from choicewise.table import Column, Span, Table
from choicewise.util.text import counted, listed, percent, points, shortened, shown

MOST_COLUMNS = 12
"""Protocols that a chart of several models shows unless the reader asks for all of them."""

STEP_COLUMNS = (
    ("what changes", "breaks"),
    ("points", "number"),
    ("gained, lost", "number"),
    ("items", "number"),
    ("reaches", ""),
    ("%", "number"),
)
"""Headings and classes of the table of a ladder."""


_RANGE_COLUMNS = (
    Column("model"),
    Column("median rank", "tokens"),
    Column("ranks", "ranks"),
    Column("possible (95 %)", "ranks"),
    Column("first under", "integer"),
    Column("last under", "integer"),
    Column("protocols", "integer"),
)
"""Columns of the ranks of each model."""

_PAIR_COLUMNS = (
    Column("protocol"),
    Column("difference", "difference", heading="A − B"),
    Column("ci_low", "difference", heading="95 % interval"),
    Column("ci_high", "difference", joined=" to "),
    Column("exact p", "p value", blank=True),
    Column("only A right", "count"),
    Column("only B right", "count"),
    Column("could show", "share"),
    Column("items", "count"),
    Column("remarks", heading=" "),
)
"""Columns of A against B under every protocol."""

_EFFECT_COLUMNS = (
    Column("axis"),
    Column("mean change", "difference"),
    Column("sd", "share", joined=" ± "),
    Column("size", "share"),
    Column("from – to", "difference"),
    Column("to", "difference", joined=" – "),
    Column("pairs", "count"),
    Column("most common change"),
)
"""Columns of the effects of axes."""

_NUMBER_COLUMNS = (
    Column("protocol"),
    Column("family"),
    Column("%", "share"),
    Column("scored", "count", joined=" ("),
    Column("of", "count", joined=" of ", closed=")"),
    *interval_columns("share"),
    Column("items", "count"),
    *rank_columns(optional=False),
    Column("warnings"),
    Column("ids"),
)
"""Columns of the numbers of a run."""


def about(study: Study, day: str) -> str:
    """Return what was measured, in a line."""
    datasets = list(dict.fromkeys(run.manifest.dataset.name for run in study.runs))
    parts = [listed([shortened(name, 40) for name in datasets])]
    number_counts = [len(run.rows) + len(run.other_metrics) for run in study.runs]
    numbers = counted(max(number_counts), "number")
    if min(number_counts) < max(number_counts):
        numbers = f"{min(number_counts)} to {max(number_counts)} numbers"
    if len(study.runs) == 1:
        parts.append(shortened(study.labels[0]))
        parts.append(numbers)
    else:
        models = len(study.runs)
        if len(datasets) > 1:
            # A model has a run for each dataset.
            models = len({run.manifest.model.name for run in study.runs})
        parts.append(counted(models, "model"))
        parts.append(f"{numbers} each")
    item_counts = [run.items for run in study.runs]
    items = counted(max(item_counts), "item")
    if min(item_counts) < max(item_counts):
        items = f"{min(item_counts):,} to {max(item_counts):,} items"
    return " · ".join([*parts, items, day])


# All numbers


def table(run: ShownRun) -> PageTable:
    """Return the numbers in rows, the families in the order of the chart and their numbers from the
    greatest.
    """
    rows_of_family: dict[str, list[Number]] = {}
    for row in run.rows:
        rows_of_family.setdefault(row.identity.family, []).append(row)
    # Groups of items share the name of their protocol.
    has_groups = len({row.identity.subject for row in run.rows}) > 1
    cells = []
    for rows in rows_of_family.values():
        for row in sorted(rows, key=_greatest_first):
            name = (
                f"{row.identity.protocol}, {row.identity.subject}"
                if has_groups
                else row.identity.protocol
            )
            cells.append(
                [
                    name,
                    row.identity.family,
                    row.value,
                    *scored_cells(row),
                    row.interval.low,
                    row.interval.high,
                    row.counts.n,
                    *rank_cells(row),
                    words(row),
                    row_ids(row),
                ]
            )
    return page_table(
        Table(name="numbers", title="All numbers", columns=_NUMBER_COLUMNS, rows=cells)
    )


def _greatest_first(row: Number) -> float:
    return 1.0 if math.isnan(row.value) else -row.value


# Orders of models


@dataclass(frozen=True, kw_only=True)
class Order:
    """The models measured on one dataset: the values of the chart, and the tables of all orders and
    of the ranks.

    ``dataset``: its name, with its id if another dataset has that name. ``sentences``: who leads,
    and which two of them change places if any do. ``values``: of few protocols, ``all_values``: of
    all. Two models have no chart, as their differences are one.
    """

    dataset: str
    sentences: tuple[str, ...]
    values: list[Record]
    all_values: list[Record]
    table: PageTable
    ranges: PageTable


def orders(study: Study, pairs: Sequence[Pair]) -> list[Order]:
    """Return one for each dataset with two models or more."""
    significant_leads = leads(study, pairs)
    several = {}
    for digest, positions in study.datasets.items():
        if len(positions) > 1:
            several[digest] = [study.runs[position] for position in positions]
    # Two datasets of one name are told apart by their ids.
    names = [runs[0].manifest.dataset.name for runs in several.values()]
    orders_of_datasets = []
    for (digest, runs), name in zip(several.items(), names, strict=True):
        title = name if names.count(name) == 1 else f"{name} #D{digest[:6]}"
        orders_of_datasets.append(_order(title, runs, significant_leads))
    return orders_of_datasets


def few_protocols(runs: Sequence[ShownRun]) -> frozenset[str]:
    """Return the protocols that charts of several models show: one per family and score, at most
    :data:`MOST_COLUMNS`.

    Families take turns, each beginning with its headline.
    """
    rows_of_family: dict[str, list[Number]] = {}
    scores: dict[str, str] = {}
    for run in runs:
        for row in run.row_of.values():
            rows_of_family.setdefault(row.identity.family, []).append(row)
        for name, protocol in run.protocols.items():
            scores[name] = protocol.score
    queues = [_headlines_of_scores(rows, scores) for rows in rows_of_family.values()]
    few: list[str] = []
    # A family with many scores must not crowd out the others.
    for turn in zip_longest(*queues):
        few += [name for name in turn if name is not None]
    return frozenset(few[:MOST_COLUMNS])


def _headlines_of_scores(rows: Sequence[Number], scores: Mapping[str, str]) -> list[str]:
    """Return the headline of all rows, then those of the other scores; ``scores``: by protocol."""
    names: list[str] = []
    remaining = list(rows)
    while (first := headline(remaining)) is not None:
        name = first.identity.protocol
        names.append(name)
        remaining = [row for row in remaining if scores[row.identity.protocol] != scores[name]]
    return names


def _order(
    dataset: str,
    runs: Sequence[ShownRun],
    significant_leads: Collection[Lead],
) -> Order:
    rows = [row for run in runs for row in run.rows]
    few = few_protocols(runs)
    few_rows = [row for row in rows if row.identity.protocol in few]
    all_values = bump.values(rows, significant_leads)
    values: list[Record] = []
    if len(runs) > 2:
        values = bump.values(few_rows, significant_leads)
    sentences = lead_sentences(finding(rows))
    # All pairs of very many models take minutes.
    turned = reversal(runs[:MOST_RUNS])
    if turned is not None:
        sentences.append(reversal_sentence(turned))
    return Order(
        dataset=dataset,
        sentences=tuple(sentences),
        values=values,
        all_values=all_values,
        table=_model_table(runs, all_values),
        ranges=_range_table(runs),
    )


def _model_table(runs: Sequence[ShownRun], values: Sequence[Record]) -> PageTable:
    """Return the numbers and ranks of models in columns, for the protocols that the chart has."""
    columns = [Column("protocol")]
    for run in runs:
        columns += ranked_columns(run.label, "share")
    protocols = [record["protocol"] for record in values if record["kind"] == "column"]
    cells = []
    for protocol in dict.fromkeys(protocols):
        row: list[Any] = [protocol]
        for run in runs:
            row += ranked_cells(run.row_of.get(protocol))
        cells.append(row)
    return page_table(Table(name="order", title="", columns=columns, rows=cells))


def _range_table(runs: Sequence[ShownRun]) -> PageTable:
    """Return the ranks of each model that has some, the best median first."""
    cells: list[list[Any]] = []
    for run in runs:
        ranks = []
        possible = []
        for row in run.rows:
            if (
                row.ranks.rank is not None
                and row.ranks.low is not None
                and row.ranks.high is not None
            ):
                ranks.append(row.ranks.rank)
                possible += [row.ranks.low, row.ranks.high]
        if ranks:
            cells.append(
                [
                    run.label,
                    median(ranks),
                    Span(min(ranks), max(ranks)),
                    Span(min(possible), max(possible)),
                    ranks.count(1),
                    ranks.count(len(runs)),
                    len(ranks),
                ]
            )
    cells.sort(key=lambda row: row[1])
    return page_table(Table(name="ranges", title="", columns=_RANGE_COLUMNS, rows=cells))


# Two models


def pair_data(study: Study, pair: Pair) -> dict[str, Any]:
    """Return the sentence about a pair, and the rows of its table."""
    if pair.reason:
        return {"said": f"Not comparable: {pair.reason}.", "rows": []}
    left, right = pair.ahead
    leads_of_contests = [contest.lead for contest in pair.ordered]
    text = (
        f"{shortened(study.labels[pair.left])} (A) is ahead of "
        f"{shortened(study.labels[pair.right])} (B) under "
        f"{leads_of_contests.count(1)} of {counted(len(leads_of_contests), 'protocol')}, behind "
        f"under {leads_of_contests.count(-1)}, level under {leads_of_contests.count(0)}. "
        "Significant by the sign-flip test, after Holm's correction for "
        f"{counted(pair.tests, 'test')} at 5 %: "
        f"A is better under {left}, B under {right}; the others can't tell them apart."
    )
    # Each clause is there only if it counts something.
    other_texts = 0
    too_few = 0
    for contest in pair.contests:
        if contest.other_texts:
            other_texts += 1
        elif contest.other_items:
            too_few += 1
    if other_texts:
        text += f" Not comparable under {counted(other_texts, 'protocol')}: other texts were sent."
    if too_few:
        text += (
            f" No order under {counted(too_few, 'protocol')}: one scored too few of the other's "
            "questions."
        )
    return {"said": text, "rows": pair_table(pair.contests).rows}


def pair_table(contests: Sequence[Contest]) -> PageTable:
    """Return A against B under every protocol, with the paired interval and test."""
    cells = []
    for contest in contests:
        difference = contest.difference
        p = contest.test.p
        cells.append(
            [
                contest.protocol,
                difference.value,
                difference.ci_low,
                difference.ci_high,
                None if math.isnan(p) else p,
                contest.test.left_only,
                contest.test.right_only,
                contest.detectable,
                difference.n,
                ", ".join(_remarks(contest)),
            ]
        )
    return page_table(Table(name="pair", title="", columns=_PAIR_COLUMNS, rows=cells))


def _remarks(contest: Contest) -> list[str]:
    remarks = []
    if contest.other_texts:
        remarks.append("not comparable: other texts were sent")
    elif contest.other_items:
        remarks.append("no order: one scored too few of the other's questions")
    if not contest.test.exact:
        remarks.append("in the normal limit")
    if contest.significant:
        remarks.append("A is better" if contest.lead > 0 else "B is better")
    return remarks


# Protocols


@dataclass(frozen=True)
class Variant:
    """One protocol of a sheet: how it differs from the first one there, in words of the axes."""

    name: str
    id: str
    signature: str
    differs: str


@dataclass(frozen=True, kw_only=True)
class Sheet:
    """Protocols that one source published together; ``entry`` is None for protocols of one's own.

    ``parts``: (what it is, the template with its white space visible), in the order in which a
    prompt is made of them.
    """

    name: str
    entry: Entry | None
    family: str
    reading: str
    shots: str
    parts: tuple[tuple[str, str], ...]
    variants: tuple[Variant, ...]


def sheets(study: Study) -> list[Sheet]:
    """Return a sheet per entry of the catalogue, and one per other protocol, in the order of the
    runs.
    """
    protocols_of_sheet: dict[str, dict[str, Protocol]] = {}
    sources: dict[str, Entry] = {}
    for name, protocol in study.protocols.items():
        source = _source(name, protocol)
        sheet_name = name
        if source is not None:
            _, changes = split_changes(name)
            sheet_name = f"{source.name}@{changes}" if changes else source.name
            sources[sheet_name] = source
        protocols_of_sheet.setdefault(sheet_name, {})[name] = protocol
    return [
        sheet(name, protocols, sources.get(name)) for name, protocols in protocols_of_sheet.items()
    ]


def sheet(name: str, protocols: Protocols, published: Entry | None) -> Sheet:
    """Return the sheet of protocols that share their templates; ``published``: their entry of the
    catalogue.
    """
    # Protocols of a sheet share their templates and differ in the axes below.
    first = next(iter(protocols.values()))
    variants = []
    for variant, protocol in protocols.items():
        differences = []
        for axis, _, value in axis_differences(first, protocol):
            differences.append(f"{axis} {_axis_value(value)}")
        variants.append(
            Variant(
                name=variant,
                id=short_signature(protocol),
                signature=signature(protocol),
                differs=", ".join(differences),
            )
        )
    return Sheet(
        name=name,
        entry=published,
        family=family(first),
        reading=READINGS[first.reading].description,
        shots=_shots(first),
        parts=tuple(_parts(first)),
        variants=tuple(variants),
    )


def _source(name: str, protocol: Protocol) -> Entry | None:
    """Return the entry of the catalogue that has this protocol under this name, or with the changes
    in it.
    """
    if published_protocol(name, protocol) is None:
        return None
    return entry(name)


def _axis_value(text: str) -> str:
    if text == "-":
        return "none"
    return text or "(empty)"


def _shots(protocol: Protocol) -> str:
    if not protocol.shots:
        return "none"
    seed = "" if protocol.seed is None else f", seed {protocol.seed}"
    return (
        f"{protocol.shots} from {protocol.shot_split or 'nowhere'}, chosen by "
        f"{protocol.sampler}{seed}"
    )


def _parts(protocol: Protocol) -> list[tuple[str, str]]:
    if protocol.requests is not None:
        return [("rendered elsewhere", f"requests with the digest {protocol.requests}")]
    # In the order in which a prompt is put together.
    parts = [("begins with", protocol.header)]
    if protocol.shots:
        example = protocol.question + protocol.answer + protocol.separator
        parts.append((f"each of {protocol.shots} examples", example))
    parts.append(("the question", protocol.question + protocol.proposal))
    if protocol.lists_options:
        parts.append(("each of its options", protocol.option))
    parts.append(("what is scored", protocol.continuation))
    return [(name, shown(text)) for name, text in parts if text]


# Why numbers differ


@dataclass(frozen=True)
class Steps:
    """All ways from one number of a run to another.

    ``ways``: (start, end) → the protocols on the way, both included; ``steps``: (from, to) → the
    chart's record of that step; ``ends``: protocol → its records as the start and as the end of a
    way.
    """

    ways: dict[tuple[str, str], list[str]]
    steps: dict[tuple[str, str], Record]
    ends: dict[str, tuple[Record, Record]]

    def add(self, ladder: Ladder) -> None:
        """Add the way of ``ladder``, in place of the one between its ends."""
        way = [ladder.start, *(step.name for step in ladder.steps)]
        self.ways[ladder.start, ladder.end] = way
        # Most ways are made of steps that other ways have: their records are made once.
        if self.steps.keys() >= set(pairwise(way)) and self.ends.keys() >= {way[0], way[-1]}:
            return
        first, *step_records, last = lanes.ladder_values(ladder)
        self.ends.setdefault(ladder.start, (first, _turned(first, "to")))
        self.ends.setdefault(ladder.end, (_turned(last, "from") | {"lane": 0, "above": 0}, last))
        for pair, record, step in zip(pairwise(way), step_records, ladder.steps, strict=True):
            if pair not in self.steps:
                changes = spelled(step.axes)
                self.steps[pair] = record | {"changes": changes, "reached": percent(step.value)}

    def records(self, start: str, end: str) -> list[Record]:
        """Return what the chart shows of the way from one protocol to another; the page's script
        does the same.
        """
        way = self.ways[start, end]
        records = [self.ends[start][0]]
        for lane, step in enumerate(pairwise(way), 1):
            records.append({**self.steps[step], "lane": lane, "above": lane - 1})
        records.append({**self.ends[end][1], "lane": len(way), "above": len(way) - 1})
        return records

    def data(self, numbers: Mapping[str, int]) -> dict[str, Any]:
        """Return the ways, steps and ends for the script, with numbers for protocols.

        Those that are in no other part of the page get numbers after ``numbers``.
        """
        numbers = dict(numbers)
        for way in self.ways.values():
            for name in way:
                numbers.setdefault(name, len(numbers))
        ways = {}
        for (start, end), way in self.ways.items():
            if len(way) > 2:
                between = [numbers[name] for name in way[1:-1]]
                ways[f"{numbers[start]}>{numbers[end]}"] = between
        steps = {}
        for (start, end), record in self.steps.items():
            steps[f"{numbers[start]}>{numbers[end]}"] = record
        ends = {numbers[name]: records for name, records in self.ends.items()}
        return {"ways": ways, "steps": steps, "ends": ends}


def steps(run: ShownRun) -> Steps:
    """Return all ways between the numbers of ``run``; none if it has a single protocol.

    The way that is drawn first (:func:`telling`), there and back, is that of ``choicewise ladder``.
    """
    all_ways = Steps({}, {}, {})
    for ladder in ladders(run.outcomes).values():
        all_ways.add(ladder)
    first = telling(run, all_ways)
    if first is not None and first in all_ways.ways:
        for ladder in _split_ladders(run, *first):
            all_ways.add(ladder)
    return all_ways


def _split_ladders(run: ShownRun, start: str, end: str) -> list[Ladder]:
    """Return the ladders from ``start`` to ``end`` and back, with the protocols between that only
    the stored answers give.
    """
    # Reading the answers of a large run takes too long, and damage would be reported twice.
    if run.damages or count_items(run.manifest.blocks) >= MANY:
        return []
    # The page may have protocols under further metrics, which the run lacks.
    if not {start, end} <= run.run_protocols.keys():
        return []
    opened = run.open()
    try:
        there = climb(opened, start, end).in_order
        back = climb(opened, end, start).in_order
    except UsageError:
        # Rounding may leave a number between the two open.
        return []
    return [there, back]


def _turned(record: Record, side: str) -> Record:
    """Return a number at the other end of a way."""
    text = f"{side}{record['description'].removeprefix(record['side'])}"
    return {**record, "side": side, "detail": side, "description": text}


def extremes(run: ShownRun) -> tuple[str, str] | None:
    """Return the protocols of the lowest and the highest number; None if there are not two that
    differ.
    """
    ends = extreme_rows(run.rows)
    if ends is None or ends[0].identity.signature == ends[1].identity.signature:
        return None
    return ends[0].identity.protocol, ends[1].identity.protocol


def step_table(records: Sequence[Record]) -> list[list[str]]:
    """Return the records of a way as rows under :data:`STEP_COLUMNS`."""
    rows = []
    for record in records:
        change = [record["detail"], "", ""]
        if record["kind"] != "end":
            change = [record["changes"], record["result"], record["items"]]
        rows.append([*change, f"{record['n']:,}", record["protocol"], percent(record["after"])])
    return rows


def telling(run: ShownRun, steps: Steps) -> tuple[str, str] | None:
    """Return the two numbers whose ladder is drawn first, the lower one first; None if there are
    not two.

    They are headlines of two families if there are some: two that differ, with the fewest axes in
    one step.
    """
    values = {row.identity.protocol: row.value for row in run.rows if not math.isnan(row.value)}
    headlines = set()
    for family_name in {row.identity.family for row in run.rows}:
        first = headline(run.rows, (family_name,))
        if first is not None:
            headlines.add(first.identity.protocol)
    best = None
    best_key = (False, False, 0, 0, 0.0)
    for (start, end), way in steps.ways.items():
        if start not in values or end not in values or values[start] > values[end]:
            continue
        most_axes = max(len(steps.steps[step]["axes"]) for step in pairwise(way))
        # Ways of more steps than a reader follows are not better.
        length = min(len(way), 4)
        difference = values[end] - values[start]
        key = ({start, end} <= headlines, difference > 0, -most_axes, length, difference)
        if best is None or key > best_key:
            best = (start, end)
            best_key = key
    return best or extremes(run)


def effects(run: ShownRun) -> list[Effect]:
    """Return the effects of axes, the greatest first; none if no two protocols differ in one axis
    alone.
    """
    try:
        return main_effects(run.outcomes)
    except UsageError:
        return []


def spelled(axes: Sequence[Axis]) -> str:
    """Return what changes in full: ``score: sum → char_mean; ties: first → wrong``."""
    texts = []
    for axis in axes:
        texts.append(f"{axis.axis}: {axis.left or '(empty)'} → {axis.right or '(empty)'}")
    return "; ".join(texts)


def effect_table(effects: Sequence[Effect]) -> PageTable:
    """Return a row for each effect."""
    cells = []
    for effect in effects:
        spread = effect.spread
        changes = list(map(_change, effect.changes[:2]))
        if len(effect.changes) > 2:
            changes.append(counted(len(effect.changes) - 2, "other change"))
        cells.append(
            [
                effect.axis,
                spread.mean,
                spread.sd,
                effect.absolute,
                spread.low,
                spread.high,
                spread.pairs,
                "; ".join(changes),
            ]
        )
    return page_table(Table(name="effects", title="", columns=_EFFECT_COLUMNS, rows=cells))


def _change(change: ValueChange) -> str:
    values = spelled(change.axes[:1]).partition(": ")[2]
    return f"{values}: {points(change.spread.mean)} over {counted(change.spread.pairs, 'pair')}"
