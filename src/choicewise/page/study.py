"""Several runs as one study, its pairs of models, and its numbers as files."""

from __future__ import annotations

import io
import math
from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from choicewise.protocols.between import Applied, refuse_metrics
from choicewise.protocols.metrics import METRICS
from choicewise.protocols.protocol import Protocol
from choicewise.records import Manifest
from choicewise.results.measurement import same_items, shared_items
from choicewise.results.outcomes import (
    Outcome,
    OutcomeKeeper,
    Outcomes,
    Summary,
    alike,
    bounded,
    comparable,
    left_open,
    macro_weights,
    ranked,
)
from choicewise.results.rows import Row, chosen_part, run_id
from choicewise.results.run import Run
from choicewise.results.summary import read_summary, summarize
from choicewise.results.sweep import Average, averages, run_folders, sweeps
from choicewise.scoring.intervals import ALIKE
from choicewise.scoring.observed import Floats, Integers
from choicewise.scoring.significance import (
    Difference,
    SignFlip,
    detectable_difference,
    holm,
    is_significant,
    paired_difference,
    sign_flip,
)
from choicewise.store.folder import is_sweep
from choicewise.store.tables import Damage, damaged_blocks
from choicewise.table import table_csv
from choicewise.util.tables import write_parquet

MOST_RUNS = 24
"""Runs of which a page holds the ladders, the answers to every item (a bit for every item and protocol) and every pair;
with more, the page says which command compares two."""

Lead = tuple[str, str, str]
"""(protocol, model, model): the first is significantly ahead of the second."""


@dataclass(frozen=True, slots=True)
class Contest:
    """A under one protocol against B; ``detectable``: the difference that so many items show with probability 0.8.

    ``other_texts``: the two were sent other texts about the same items, so that no test is made.  ``other_items``: one
    scored too few of the other's items, so that the two have no order.  ``p_holm``: corrected for all protocols that
    can differ; of those that can't (:mod:`choicewise.results.outcomes`) the first is tested.  ``ahead_by``: how far A
    is ahead under the protocol's own mean.
    """

    protocol: str
    difference: Difference
    test: SignFlip
    detectable: float
    other_texts: bool
    other_items: bool
    p_holm: float
    ahead_by: float

    @property
    def lead(self) -> int:
        """1 where A is ahead, -1 where B is, 0 where they are level over the shared items."""
        return 0 if abs(self.ahead_by) <= ALIKE else int(math.copysign(1, self.ahead_by))

    @property
    def significant(self) -> bool:
        """Whether the lead is, after Holm's correction."""
        return self.lead != 0 and is_significant(self.p_holm, self.difference.n)


@dataclass(frozen=True, slots=True)
class Pair:
    """Two runs by their places; ``reason``: why they can't be compared, nothing where they can; ``tests``: how many."""

    left: int
    right: int
    reason: str
    contests: tuple[Contest, ...] = ()
    tests: int = 0

    @property
    def ordered(self) -> list[Contest]:
        """The contests over the same items and texts, which say who leads."""
        return [
            contest
            for contest in self.contests
            if not (
                contest.other_texts or contest.other_items or math.isnan(contest.difference.value)
            )
        ]

    @property
    def ahead(self) -> tuple[int, int]:
        """Protocols under which the left, and the right, is significantly better after Holm's correction."""
        clear = [contest.lead for contest in self.ordered if contest.significant]
        return clear.count(1), clear.count(-1)


def pairs(study: Study) -> list[Pair]:
    """Every pair of the first runs, the earlier one on the left."""
    credits = _Credits()
    return [
        _pair(study, left, right, credits)
        for left, right in combinations(range(len(study.runs))[:MOST_RUNS], 2)
    ]


def leads(study: Study, compared: Sequence[Pair]) -> frozenset[Lead]:
    """Who is significantly ahead of whom under which protocol, of pairs of the runs of ``study``."""
    return frozenset(
        (each.protocol, *(names if each.lead > 0 else names[::-1]))
        for pair in compared
        for names in [(study.labels[pair.left], study.labels[pair.right])]
        for each in pair.ordered
        if each.significant
    )


def turned(pair: Pair) -> Pair:
    """The same pair with B on the left."""
    contests = []
    for each in pair.contests:
        difference, test = each.difference, each.test
        low, high = -difference.ci_high, -difference.ci_low
        other = replace(difference, value=-difference.value, ci_low=low, ci_high=high)
        flipped = replace(test, left_only=test.right_only, right_only=test.left_only)
        contests.append(replace(each, difference=other, test=flipped, ahead_by=-each.ahead_by))
    reason = pair.reason.replace("A: ", "\0").replace("B: ", "A: ").replace("\0", "B: ")
    return Pair(pair.right, pair.left, reason, tuple(contests), pair.tests)


@dataclass(frozen=True)
class ShownRun:
    """One run.  ``label``: its name here, no other run has it; rows and outcomes have it as their model's name.

    ``rows``: one per protocol and group, with ranks and their intervals where other runs measured the same.
    ``other_metrics``: the rows whose values are no shares of 1, which few charts hold; nor are they among ``outcomes``,
    but among ``recipes``, all its protocols by name.  ``damages``: blocks that are left out because their files are not
    those that were written.  ``applied``: the metrics that were asked of it later.
    """

    label: str
    folder: Path
    manifest: Manifest
    rows: tuple[Row, ...]
    outcomes: Outcomes
    recipes: Mapping[str, Protocol]
    damages: tuple[Damage, ...] = ()
    other_metrics: tuple[Row, ...] = ()
    applied: Applied | None = None

    @property
    def location(self) -> str:
        """What its folder is called in a line: from the folder of several runs on, where it is in one."""
        return (
            "/".join(self.folder.parts[-3:])
            if is_sweep(self.folder.parent.parent)
            else self.folder.name
        )

    @cached_property
    def row_of(self) -> dict[str, Row]:
        """The row of each protocol, by its name; the first where it has several groups."""
        return {row.protocol: row for row in reversed(self.rows)}

    @property
    def protocols(self) -> dict[str, Protocol]:
        """The protocols by name whose numbers are shares of 1; all where none is."""
        return {each.name: each.protocol for each in self.outcomes.outcomes} or dict(self.recipes)

    @property
    def run_protocols(self) -> dict[str, Protocol]:
        """The protocols that the run itself was asked, by name."""
        return {
            name: each for name, each in self.recipes.items() if name in self.manifest.protocols
        }

    @property
    def leading(self) -> tuple[Row, ...]:
        """The rows whose values are shares of 1; all where none is."""
        return self.rows or self.other_metrics

    @property
    def items(self) -> int:
        """The most items that one of its numbers is about."""
        return max((row.n + row.missing for row in (*self.rows, *self.other_metrics)), default=0)


@dataclass(frozen=True)
class Study:
    """Everything a page shows, in the order of the runs.

    ``averages``: of the suites that folders of several runs were asked for.
    """

    runs: tuple[ShownRun, ...]
    averages: tuple[Average, ...] = ()

    @property
    def rows(self) -> list[Row]:
        """The rows of all runs."""
        return [row for run in self.runs for row in run.rows]

    @property
    def other_metrics(self) -> list[Row]:
        """The rows of all runs whose values are no shares of 1."""
        return [row for run in self.runs for row in run.other_metrics]

    @property
    def leading(self) -> list[Row]:
        """The rows of all runs whose values are shares of 1; all where no run has any."""
        return self.rows or self.other_metrics

    @property
    def named_rows(self) -> list[Row]:
        """The rows of all runs, with the names of models alone where the data tell the runs apart."""
        every = (*self.rows, *self.other_metrics)
        return [replace(row, model=row.model.removesuffix(f" on {row.dataset}")) for row in every]

    @property
    def labels(self) -> list[str]:
        """The names of the runs."""
        return [run.label for run in self.runs]

    @property
    def notes(self) -> tuple[str, ...]:
        """Which of the metrics that were asked later which protocols can't have, in words."""
        return tuple(
            f"{run.label}: {line}" for run in self.runs if run.applied for line in run.applied.lines
        )

    @cached_property
    def datasets(self) -> dict[str, list[int]]:
        """Digest of a dataset → the places of its runs."""
        places: dict[str, list[int]] = {}
        for place, run in enumerate(self.runs):
            places.setdefault(run.manifest.dataset.digest, []).append(place)
        return places

    @cached_property
    def protocols(self) -> dict[str, Protocol]:
        """Every protocol of a run by its name, in the order of the runs.

        Where two runs give one name to different protocols, the name stands for that of the first.
        """
        named: dict[str, Protocol] = {}
        for run in self.runs:
            for name, protocol in run.protocols.items():
                named.setdefault(name, protocol)
        return named


def read_study(
    folders: Iterable[str | Path],
    metrics: Sequence[str] = (),
    *,
    alone: bool = False,
    needed: bool = False,
) -> Study:
    """The study of the runs in ``folders``, each named once, those on the same data together.

    ``metrics``: with their numbers as well, or ``alone``.  StoreError for what holds no run, UsageError for a metric
    that nobody knows, and where they are ``needed`` for one that no protocol can have.
    """
    named = [Path(folder).resolve() for folder in folders]
    summaries = {path: summarize(path, metrics, alone) for path in run_folders(named)}
    refuse_metrics(
        [each.applied for each in summaries.values() if needed and each.applied is not None]
    )
    data = list(dict.fromkeys(each.manifest.dataset.digest for each in summaries.values()))
    together = sorted(summaries.values(), key=lambda each: data.index(each.manifest.dataset.digest))
    study = make_study(together, {path: _damages(each) for path, each in summaries.items()})
    shown = [
        average for folder, sweep in sweeps(named) for average in averages(folder, sweep, summaries)
    ]
    return replace(study, averages=tuple(shown))


def study_of(runs: Sequence[Run]) -> Study:
    """The study of ``runs`` under the protocols that each was opened with."""
    keeper = OutcomeKeeper()
    return make_study(
        [
            Summary(
                folder=run.folder,
                manifest=run.manifest,
                rows=tuple(run.rows()),
                outcomes=keeper.keep(run),
            )
            for run in runs
        ]
    )


def make_study(
    summaries: Sequence[Summary], damages: Mapping[Path, Sequence[Damage]] | None = None
) -> Study:
    """The study of these runs: their rows ranked together, with the interval of each rank.

    ``damages``: of the runs in these folders.
    """
    labels = _labels(summaries)
    outcomes = [
        replace(each.outcomes, model=label) for label, each in zip(labels, summaries, strict=True)
    ]
    own = [
        [replace(row, model=label) for row in each.rows]
        for label, each in zip(labels, summaries, strict=True)
    ]
    rows = ranked([row for each in own for row in each])
    if len(summaries) > 1:
        rows = bounded(rows, outcomes)
    runs, start = [], 0
    for label, each, outcome, mine in zip(labels, summaries, outcomes, own, strict=True):
        damaged = tuple((damages or {}).get(each.folder, ()))
        of_run = rows[start : start + len(mine)]
        shares, other_metrics = (
            tuple(row for row in of_run if row.share == kind) for kind in (True, False)
        )
        recipes = {one.name: one.protocol for one in outcome.outcomes}
        about = label, each.folder, each.manifest, shares, outcome.shares, recipes
        runs.append(ShownRun(*about, damaged, other_metrics, each.applied))
        start += len(mine)
    return Study(tuple(runs))


class Compared(NamedTuple):
    """Hold what two outcomes over the same items say of each other.

    ``difference``, ``test`` and ``detectable``: of means over the items.  ``lead`` and ``p``: how far the first is
    ahead under the protocol's own mean, and p of that.
    """

    difference: Difference
    test: SignFlip
    detectable: float
    lead: float
    p: float


def _lead(credits: Floats) -> tuple[float, float]:
    """Return how far the first of two models is ahead, and p of that; ``credits``: float64 [2, items]."""
    scored = credits[:, ~np.isnan(credits).any(axis=0)]
    if not scored.size:
        return math.nan, math.nan
    return float(scored[0].mean() - scored[1].mean()), sign_flip(*scored).p


@dataclass
class _Credits:
    """Compares outcomes; which items are shared is worked out once for all protocols."""

    _aligned: dict[tuple[int, int], list[Integers]] = field(default_factory=dict)

    def compare(self, one: Outcome, other: Outcome) -> Compared:
        key = id(one.items), id(other.items)
        if key not in self._aligned:
            self._aligned[key] = shared_items((one, other))[1]
        places = self._aligned[key]
        left, right = (
            each.credit
            if len(place) == len(each.ids) and same_items(one, other)
            else each.credit[place]
            for each, place in zip((one, other), places, strict=True)
        )
        counted = METRICS[one.protocol.metric].counted
        difference = paired_difference(left, right, counted)
        detectable = detectable_difference(left, right, counted)
        credits = np.array([left, right])
        if one.protocol.aggregation == "macro":
            subjects = np.array(one.subjects, dtype=str)[places[0]]
            credits = credits * macro_weights(subjects, credits)
        return Compared(difference, sign_flip(left, right), detectable, *_lead(credits))


_ADDITIONS: Sequence[Callable[[Summary], str]] = (
    lambda each: f" on {each.manifest.dataset.name}",
    lambda each: f" #D{each.manifest.dataset.digest[:6]}",
    lambda each: f", {part}" if (part := chosen_part(each.manifest.selection)) else "",
    lambda each: f", {each.manifest.model.dtype}",
    lambda each: f" {run_id(each.manifest)}",
    lambda each: f" in {each.folder.name}",
)
"""What is added to the names of models until no two runs are called the same."""


@dataclass(frozen=True, slots=True)
class Download:
    """A file as an address that holds it whole; no address where it would be too long."""

    name: str
    what: str
    address: str


def downloads(study: Study) -> list[Download]:
    """The rows of all runs, of other metrics too, as CSV, without the signatures, and as Parquet."""
    table = rows_table([*study.rows, *study.other_metrics])
    text = table_csv([name for name in _COLUMNS if name != "signature"], table.to_pylist())
    named = ("choicewise.csv", "CSV"), ("choicewise.parquet", "Parquet, with the signatures")
    inside = text if len(text) <= _LONGEST_CSV else ""
    addresses = (
        _address("text/csv;charset=utf-8", inside.encode()),
        _address("application/vnd.apache.parquet", parquet_bytes(table)),
    )
    return [Download(*name, address) for name, address in zip(named, addresses, strict=True)]


def rows_table(rows: Sequence[Row]) -> pa.Table:
    """The rows as a table: shares of 1 or in the unit of the metric, null for what is not known, flags in one text."""
    content = [each.as_json() for each in rows]
    for each in content:
        each["flags"] = " ".join(each["flags"])
    return pa.Table.from_pylist([{name: each[name] for name in _COLUMNS} for each in content])


def parquet_bytes(table: pa.Table) -> bytes:
    """The table as a file of Parquet."""
    out = io.BytesIO()
    write_parquet(out, table)
    return out.getvalue()


_LONGEST_CSV = 1_000_000
"""Characters of a table that a page holds as CSV; of a longer one there is Parquet, and a command that writes CSV."""

_COLUMNS = (
    *(
        "model",
        "dataset",
        "data",
        "selection",
        "subject",
        "family",
        "protocol",
        "id",
        "i",
        "t",
        "r",
        "metric",
    ),
    *(
        "value",
        "se",
        "interval",
        "ci_low",
        "ci_high",
        "low",
        "high",
        "n",
        "missing",
        "chance",
        "calibrated",
    ),
    *("rank", "rank_low", "rank_high", "flags", "invalid", "ties", "near_ties", "noise", "skipped"),
    *("shots_dropped", "truncated", "merged", "noncanonical", "lossy", "unknown"),
    *("model_source", "dataset_source", "signature"),
)
"""Of the downloads, in this order."""


def file_address(text: str) -> str:
    """An address that holds a text whole, for a link that saves it."""
    return _address("text/plain;charset=utf-8", text.encode())


def _address(kind: str, content: bytes) -> str:
    return f"data:{kind};base64,{b64encode(content).decode()}" if content else ""


def _pair(study: Study, left: int, right: int, credits: _Credits) -> Pair:
    one, other = study.runs[left], study.runs[right]
    if reason := _incomparable(one, other):
        return Pair(left, right, reason)
    if not (one.rows and other.rows):
        lacks = next(run.label for run in (one, other) if not run.rows)
        return Pair(
            left, right, f"no number of {lacks} is a share of 1, and others are not compared here"
        )
    of_other = {each.protocol.digest: each for each in other.outcomes.outcomes}
    own = [each for each in one.outcomes.outcomes if each.protocol.digest in of_other]
    shared = [(each, of_other[each.protocol.digest]) for each in own]
    if not shared:
        named = next(iter(one.protocols), "-"), next(iter(other.protocols), "-")
        return Pair(left, right, f"they share no protocol; A has {named[0]}, B has {named[1]}")
    compared = [(mine, theirs, credits.compare(mine, theirs)) for mine, theirs in shared]
    differing = [
        same_items(mine, theirs) and one.row_of[mine.name].i != other.row_of[theirs.name].i
        for mine, theirs in shared
    ]
    first = {
        digest: equal[0]
        for equal in alike([one.outcomes.firsts, other.outcomes.firsts])
        for digest in equal
    }
    rows = [(one.row_of[mine.name], other.row_of[theirs.name]) for mine, theirs in shared]
    too_few = [not all(comparable(pair)) for pair in rows]
    ps: dict[str, float] = {}
    for (mine, _, numbers), pair, *excluded in zip(compared, rows, differing, too_few, strict=True):
        digest = mine.protocol.digest
        if first[digest] == digest and not any(excluded) and not math.isnan(numbers.p):
            ps[digest] = 1.0 if left_open(*pair) else numbers.p
    adjusted = dict(zip(ps, holm(np.array(list(ps.values()))).tolist(), strict=True))
    contests = [
        Contest(
            mine.name,
            numbers.difference,
            numbers.test,
            numbers.detectable,
            other_texts,
            other_items,
            math.nan
            if other_texts or other_items
            else adjusted.get(first[mine.protocol.digest], math.nan),
            numbers.lead,
        )
        for (mine, _, numbers), other_texts, other_items in zip(
            compared, differing, too_few, strict=True
        )
    ]
    return Pair(left, right, "", tuple(contests), len(ps))


def _incomparable(one: ShownRun, other: ShownRun) -> str:
    mine, theirs = one.manifest.dataset, other.manifest.dataset
    if mine.digest == theirs.digest:
        return ""
    names = (f"{each.name} #D{each.digest[:6]}" for each in (mine, theirs))
    return "the data differ, A: {}, B: {}".format(*names)


def _damages(summary: Summary) -> list[Damage]:
    """Nothing is read again where a summary is kept: none is kept of a damaged run."""
    if read_summary(summary.folder, summary.manifest) is not None:
        return []
    return damaged_blocks(summary.folder, summary.manifest.blocks)


def _labels(summaries: Sequence[Summary]) -> list[str]:
    labels = [each.manifest.model.name for each in summaries]
    for addition in _ADDITIONS:
        added = [label + addition(each) for label, each in zip(labels, summaries, strict=True)]
        times = Counter(labels)
        alike = {label for label in labels if times[label] > 1}
        tells = {
            label
            for label in alike
            if len({b for a, b in zip(labels, added, strict=True) if a == label}) > 1
        }
        labels = [
            new if label in tells else label for label, new in zip(labels, added, strict=True)
        ]
    times = Counter(labels)
    return [
        f"{label} ({place + 1})" if times[label] > 1 else label
        for place, label in enumerate(labels)
    ]
