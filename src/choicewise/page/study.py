"""Read several runs as one study, compare its models pair by pair, and write its numbers as files."""

from __future__ import annotations

import io
import math
from base64 import b64encode
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from choicewise.protocols.between import Applied, refuse_metrics
from choicewise.protocols.metrics import METRICS
from choicewise.protocols.protocol import Protocol, Protocols
from choicewise.records import Manifest
from choicewise.results.finding import Finding, finding
from choicewise.results.measurement import (
    same_items,
    shared_items,
    subject_codes,
)
from choicewise.results.number import Number
from choicewise.results.outcomes import (
    Outcome,
    Outcomes,
    Summary,
    bounded,
    comparable,
    equivalent_groups,
    item_weights,
    left_open,
    ranked,
)
from choicewise.results.rows import chosen_part, run_id
from choicewise.results.run import Run, count_items, open_run
from choicewise.results.summary import summarize, summary_of
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
    weighted_flip,
)
from choicewise.store.folder import is_sweep
from choicewise.store.tables import Damage
from choicewise.table import table_csv
from choicewise.util.tables import write_parquet

MOST_RUNS = 24
"""Runs of which a page holds the ladders, the answers to every item (a bit for every item and
protocol) and every pair; with more, the page says which command compares two."""

MOST_KEPT = 2_000
"""Items of all runs together whose observations stay in memory while a page is made."""

_LONGEST_CSV = 1_000_000
"""Characters of a table that a page holds as CSV; of a longer one there is Parquet, and a command
that writes CSV.
"""

_COLUMNS = tuple(
    """
    model dataset data selection subject family protocol id i t r metric
    value se interval ci_low ci_high low high n missing chance calibrated
    rank rank_low rank_high flags invalid ties near_ties noise skipped
    shots_dropped truncated merged noncanonical lossy unknown
    model_source dataset_source signature
    """.split()
)
"""Columns of the downloads."""

Lead = tuple[str, str, str]
"""(protocol, model, model): the first is significantly ahead of the second."""


@dataclass(frozen=True, kw_only=True)
class Contest:
    """A under one protocol against B; ``detectable``: the difference that so many items show with
    probability 0.8.

    ``other_texts``: the two were sent other texts about the same items, so that no test is made.
    ``other_items``: one scored too few of the other's items, so that the two have no order.
    ``p_holm``: corrected for all protocols that can differ; of those that can't
    (:mod:`choicewise.results.outcomes`) the first is tested.
    """

    protocol: str
    difference: Difference
    test: SignFlip
    detectable: float
    other_texts: bool
    other_items: bool
    p_holm: float

    @property
    def lead(self) -> int:
        """Return 1 if A is ahead, -1 if B is, 0 if they are level over the shared items."""
        if abs(self.difference.value) <= ALIKE:
            return 0
        return int(math.copysign(1, self.difference.value))

    @property
    def significant(self) -> bool:
        """Tell if the lead is significant after Holm's correction."""
        return self.lead != 0 and is_significant(self.p_holm, self.difference.n)

    @property
    def is_ordered(self) -> bool:
        """Tell if both were asked the same, so that one of them can lead."""
        return not (self.other_texts or self.other_items or math.isnan(self.difference.value))


@dataclass(frozen=True)
class Pair:
    """Two runs by their positions in the study.

    ``reason``: why they can't be compared, or an empty text. ``tests``: how many the p values are
    corrected for.
    """

    left: int
    right: int
    reason: str
    contests: tuple[Contest, ...] = ()
    tests: int = 0

    @property
    def ordered(self) -> list[Contest]:
        """Return the contests over the same items and texts, which say who leads."""
        return [contest for contest in self.contests if contest.is_ordered]

    @property
    def ahead(self) -> tuple[int, int]:
        """Count the protocols under which the left, and the right, is significantly better."""
        leads = [contest.lead for contest in self.ordered if contest.significant]
        return leads.count(1), leads.count(-1)


def pairs(study: Study) -> list[Pair]:
    """Return every pair of the first runs, the earlier one on the left."""
    credits = _Credits()
    positions = range(len(study.runs))[:MOST_RUNS]
    return [_pair(study, left, right, credits) for left, right in combinations(positions, 2)]


def leads(study: Study, pairs: Sequence[Pair]) -> frozenset[Lead]:
    """Return who is significantly ahead of whom under which protocol, of pairs of the runs of
    ``study``.
    """
    significant_leads = set()
    for pair in pairs:
        left = study.labels[pair.left]
        right = study.labels[pair.right]
        for contest in pair.ordered:
            if not contest.significant:
                continue
            if contest.lead > 0:
                significant_leads.add((contest.protocol, left, right))
            else:
                significant_leads.add((contest.protocol, right, left))
    return frozenset(significant_leads)


def turned(pair: Pair) -> Pair:
    """Return the pair with B on the left."""
    contests = []
    for contest in pair.contests:
        difference = contest.difference
        test = contest.test
        contests.append(
            replace(
                contest,
                difference=replace(
                    difference,
                    value=-difference.value,
                    ci_low=-difference.ci_high,
                    ci_high=-difference.ci_low,
                ),
                test=replace(test, left_only=test.right_only, right_only=test.left_only),
            )
        )
    # The reason names both sides; a control character keeps the two replacements apart.
    reason = pair.reason.replace("A: ", "\0").replace("B: ", "A: ").replace("\0", "B: ")
    return Pair(pair.right, pair.left, reason, tuple(contests), pair.tests)


@dataclass(frozen=True, kw_only=True)
class ShownRun:
    """One run. ``label``: its name here, no other run has it; rows and outcomes have it as their
    model's name.

    ``rows``: one per protocol and group, with ranks and their intervals if other runs measured the
    same. ``other_metrics``: the rows whose values are no shares of 1, which few charts hold; nor
    are they among ``outcomes``, but among ``recipes``, all its protocols by name. ``damages``:
    blocks that are left out because their files are not those that were written. ``statistics``:
    what its summary holds beside numbers. ``applied``: the metrics that were asked of it later.
    ``is_kept``: its observations stay in memory once they are read.
    """

    label: str
    folder: Path
    manifest: Manifest
    rows: tuple[Number, ...]
    outcomes: Outcomes
    recipes: Protocols
    damages: tuple[Damage, ...] = ()
    statistics: Mapping[str, Any] = field(default_factory=dict)
    other_metrics: tuple[Number, ...] = ()
    applied: Applied | None = None
    is_kept: bool = False

    def open(self) -> Run:
        """Return the run itself; the same one each time if it ``is_kept``."""
        if not self.is_kept:
            return open_run(self.folder)
        return self._kept

    @cached_property
    def _kept(self) -> Run:
        run = open_run(self.folder)
        run.evidence.keeps = True
        return run

    @property
    def location(self) -> str:
        """Return the name of its folder, from the folder of several runs on if it is in one."""
        if is_sweep(self.folder.parent.parent):
            return "/".join(self.folder.parts[-3:])
        return self.folder.name

    @cached_property
    def row_of(self) -> dict[str, Number]:
        """Return the row of each protocol by its name; the first if it has several groups."""
        return {row.identity.protocol: row for row in reversed(self.rows)}

    @property
    def protocols(self) -> dict[str, Protocol]:
        """Return the protocols by name whose numbers are shares of 1; all if none is."""
        shares = {outcome.name: outcome.protocol for outcome in self.outcomes.outcomes}
        return shares or dict(self.recipes)

    @property
    def run_protocols(self) -> dict[str, Protocol]:
        """Return the protocols that the run itself was asked, by name."""
        names = self.manifest.protocols
        return {name: protocol for name, protocol in self.recipes.items() if name in names}

    @property
    def leading(self) -> tuple[Number, ...]:
        """Return the rows whose values are shares of 1; all if none is."""
        return self.rows or self.other_metrics

    @property
    def items(self) -> int:
        """Return the most items that one of its numbers is about."""
        counts = [row.counts.n + row.counts.missing for row in self.rows + self.other_metrics]
        return max(counts, default=0)


@dataclass(frozen=True)
class Study:
    """Everything a page shows, in the order of the runs.

    ``averages``: of the suites that folders of several runs were asked for.
    """

    runs: tuple[ShownRun, ...]
    averages: tuple[Average, ...] = ()

    @property
    def rows(self) -> list[Number]:
        """Return the rows of all runs."""
        return [row for run in self.runs for row in run.rows]

    @property
    def other_metrics(self) -> list[Number]:
        """Return the rows of all runs whose values are no shares of 1."""
        return [row for run in self.runs for row in run.other_metrics]

    @property
    def leading(self) -> list[Number]:
        """Return the rows of all runs whose values are shares of 1; all if no run has any."""
        return self.rows or self.other_metrics

    @property
    def named_rows(self) -> list[Number]:
        """Return the rows of all runs, with the names of models alone if the data tell the runs
        apart.
        """
        rows = []
        for row in (*self.rows, *self.other_metrics):
            rows.append(
                row.with_model(row.identity.model.removesuffix(f" on {row.identity.dataset}"))
            )
        return rows

    @cached_property
    def finding(self) -> Finding:
        """Return what all numbers together show."""
        return finding(self.named_rows)

    @property
    def labels(self) -> list[str]:
        """Return the names of the runs."""
        return [run.label for run in self.runs]

    @property
    def notes(self) -> tuple[str, ...]:
        """Return which of the metrics that were asked later which protocols can't have, in words."""
        notes = []
        for run in self.runs:
            if run.applied is not None:
                notes += [f"{run.label}: {line}" for line in run.applied.lines]
        return tuple(notes)

    @cached_property
    def datasets(self) -> dict[str, list[int]]:
        """Return the positions of the runs on each dataset, by its digest."""
        positions: dict[str, list[int]] = {}
        for position, run in enumerate(self.runs):
            positions.setdefault(run.manifest.dataset.digest, []).append(position)
        return positions

    @cached_property
    def protocols(self) -> dict[str, Protocol]:
        """Return every protocol of a run by its name, in the order of the runs.

        If two runs give one name to different protocols, the name stands for that of the first.
        """
        protocols: dict[str, Protocol] = {}
        for run in self.runs:
            for name, protocol in run.protocols.items():
                protocols.setdefault(name, protocol)
        return protocols


def read_study(
    folders: Iterable[str | Path],
    metrics: Sequence[str] = (),
    *,
    alone: bool = False,
    needed: bool = False,
) -> Study:
    """Return the study of the runs in ``folders``, each once, those on the same data together.

    ``metrics``: with their numbers as well, or ``alone``. Raises StoreError for a folder without a
    run, UsageError for a metric that nobody knows, and if they are ``needed`` for one that no
    protocol can have.
    """
    paths = [Path(folder).resolve() for folder in folders]
    summaries = {path: summarize(path, metrics, alone) for path in run_folders(paths)}
    if needed:
        applied = [summary.applied for summary in summaries.values()]
        refuse_metrics([metric for metric in applied if metric is not None])
    by_dataset: dict[str, list[Summary]] = {}
    for summary in summaries.values():
        by_dataset.setdefault(summary.manifest.dataset.digest, []).append(summary)
    together = [summary for group in by_dataset.values() for summary in group]
    study = make_study(together)
    of_sweeps: list[Average] = []
    for folder, sweep in sweeps(paths):
        of_sweeps += averages(folder, sweep, summaries)
    return replace(study, averages=tuple(of_sweeps))


def study_of(runs: Sequence[Run]) -> Study:
    """Return the study of ``runs`` under the protocols that each was opened with."""
    return make_study([summary_of(run) for run in runs])


def make_study(summaries: Sequence[Summary]) -> Study:
    """Return the study of these runs: their rows ranked together, with the interval of each rank."""
    outcomes = []
    rows = []
    for label, summary in zip(_labels(summaries), summaries, strict=True):
        outcomes.append(replace(summary.outcomes, model=label))
        rows += [row.with_model(label) for row in summary.rows]
    rows = ranked(rows)
    if len(summaries) > 1:
        rows = bounded(rows, outcomes)
    items = sum(count_items(summary.manifest.blocks) for summary in summaries)
    runs = []
    start = 0
    for outcomes_of_run, summary in zip(outcomes, summaries, strict=True):
        rows_of_run = rows[start : start + len(summary.rows)]
        start += len(summary.rows)
        shares = outcomes_of_run.shares
        runs.append(
            ShownRun(
                label=outcomes_of_run.model,
                folder=summary.folder,
                manifest=summary.manifest,
                rows=tuple(row for row in rows_of_run if row.share),
                outcomes=shares,
                recipes={outcome.name: outcome.protocol for outcome in outcomes_of_run.outcomes},
                damages=summary.damages,
                statistics=summary.statistics,
                other_metrics=tuple(row for row in rows_of_run if not row.share),
                applied=summary.applied,
                is_kept=items <= MOST_KEPT,
            )
        )
    return Study(tuple(runs))


class Compared(NamedTuple):
    """Hold what two outcomes over the same items say of each other.

    All are of the protocol's own mean.
    """

    difference: Difference
    test: SignFlip
    detectable: float


@dataclass
class _Credits:
    """Compares outcomes; which items are shared is worked out once for all protocols."""

    _aligned: dict[tuple[int, int], list[Integers]] = field(default_factory=dict)
    _subjects: dict[int, Integers] = field(default_factory=dict)

    def compare(self, one: Outcome, other: Outcome) -> Compared:
        key = id(one.items), id(other.items)
        if key not in self._aligned:
            self._aligned[key] = shared_items((one, other))[1]
        left_rows, right_rows = self._aligned[key]
        is_same = same_items(one, other)
        left = _shared_credit(one, left_rows, is_same)
        right = _shared_credit(other, right_rows, is_same)
        counted = METRICS[one.protocol.metric].counted
        # All protocols of a run share few tables of items, and numbers are grouped quickly.
        if id(one.items) not in self._subjects:
            self._subjects[id(one.items)] = subject_codes(one.items)
        subjects = self._subjects[id(one.items)][left_rows]
        credits = np.array([left, right])
        weights = item_weights(subjects, credits, one.protocol.aggregation)
        return Compared(
            difference=paired_difference(left, right, counted, weights=weights),
            test=weighted_flip(credits, weights),
            detectable=detectable_difference(left, right, counted, weights),
        )


def _shared_credit(outcome: Outcome, rows: Integers, is_same: bool) -> Floats:
    """Return the credit of the shared items; without a copy if they are all items in the same
    order.
    """
    if is_same and len(rows) == len(outcome.ids):
        return outcome.credit
    return outcome.credit[rows]


def _pair(study: Study, left: int, right: int, credits: _Credits) -> Pair:
    one = study.runs[left]
    other = study.runs[right]
    reason = _incomparable(one, other)
    if reason:
        return Pair(left, right, reason)
    outcomes_of_other = {outcome.protocol.digest: outcome for outcome in other.outcomes.outcomes}
    first_of_digest = {}
    sameness = (one.outcomes.firsts, other.outcomes.firsts, one.outcomes.macro)
    for equal in equivalent_groups(sameness):
        for digest in equal:
            first_of_digest[digest] = equal[0]
    contests = []
    tested: dict[str, float] = {}
    for outcome in one.outcomes.outcomes:
        digest = outcome.protocol.digest
        rival = outcomes_of_other.get(digest)
        if rival is None:
            continue
        numbers = credits.compare(outcome, rival)
        row = one.row_of[outcome.name]
        other_row = other.row_of[rival.name]
        contest = Contest(
            protocol=outcome.name,
            difference=numbers.difference,
            test=numbers.test,
            detectable=numbers.detectable,
            other_texts=same_items(outcome, rival) and row.identity.i != other_row.identity.i,
            other_items=not all(comparable((row, other_row))),
            p_holm=math.nan,
        )
        contests.append((first_of_digest[digest], contest))
        p = numbers.test.p
        is_allowed = not (contest.other_texts or contest.other_items or math.isnan(p))
        # Protocols that decide alike are tested once.
        if is_allowed and first_of_digest[digest] == digest:
            tested[digest] = 1.0 if left_open(row, other_row) else p
    adjusted = dict(zip(tested, holm(np.array(list(tested.values()))).tolist(), strict=True))
    corrected = []
    for first, contest in contests:
        if not (contest.other_texts or contest.other_items):
            contest = replace(contest, p_holm=adjusted.get(first, math.nan))
        corrected.append(contest)
    return Pair(left, right, "", tuple(corrected), len(tested))


def _incomparable(one: ShownRun, other: ShownRun) -> str:
    """Return why two runs can't be compared, or an empty text."""
    data = one.manifest.dataset
    other_data = other.manifest.dataset
    if data.digest != other_data.digest:
        return (
            f"the data differ, A: {data.name} #D{data.digest[:6]}, "
            f"B: {other_data.name} #D{other_data.digest[:6]}"
        )
    for run in (one, other):
        if not run.rows:
            return f"no number of {run.label} is a share of 1, and others are not compared here"
    digests = {outcome.protocol.digest for outcome in one.outcomes.outcomes}
    if digests.isdisjoint(outcome.protocol.digest for outcome in other.outcomes.outcomes):
        name = next(iter(one.protocols), "-")
        other_name = next(iter(other.protocols), "-")
        return f"they share no protocol; A has {name}, B has {other_name}"
    return ""


def _labels(summaries: Sequence[Summary]) -> list[str]:
    """Return the names of the models, with as few additions as make them different."""
    labels = [summary.manifest.model.name for summary in summaries]
    additions = list(zip(*map(_additions, summaries), strict=True))
    for column in additions:
        # An addition that is the same for all runs of a name would not tell them apart.
        endings_of_label: dict[str, set[str]] = {}
        for label, ending in zip(labels, column, strict=True):
            endings_of_label.setdefault(label, set()).add(ending)
        for index, ending in enumerate(column):
            if len(endings_of_label[labels[index]]) > 1:
                labels[index] += ending
    times = Counter(labels)
    for index, label in enumerate(labels):
        if times[label] > 1:
            labels[index] = f"{label} ({index + 1})"
    return labels


def _additions(summary: Summary) -> tuple[str, ...]:
    """Return what is added to the name of a model, one after the other, until no two runs have one
    name.
    """
    manifest = summary.manifest
    part = chosen_part(manifest.selection)
    return (
        f" on {manifest.dataset.name}",
        f" #D{manifest.dataset.digest[:6]}",
        f", {part}" if part else "",
        f", {manifest.model.dtype}",
        f" {run_id(manifest)}",
        f" in {summary.folder.name}",
    )


@dataclass(frozen=True)
class Download:
    """A file as an address that holds it whole; no address if it would be too long."""

    name: str
    what: str
    address: str


def downloads(study: Study) -> list[Download]:
    """Return the rows of all runs, of other metrics too, as CSV, without the signatures, and as
    Parquet.
    """
    table = rows_table([*study.rows, *study.other_metrics])
    text = table_csv([name for name in _COLUMNS if name != "signature"], table.to_pylist())
    if len(text) > _LONGEST_CSV:
        text = ""
    csv_address = _address("text/csv;charset=utf-8", text.encode())
    parquet_address = _address("application/vnd.apache.parquet", parquet_bytes(table))
    return [
        Download("choicewise.csv", "CSV", csv_address),
        Download("choicewise.parquet", "Parquet, with the signatures", parquet_address),
    ]


def rows_table(rows: Sequence[Number]) -> pa.Table:
    """Return the rows as a table: shares of 1 or in the unit of the metric, null if unknown, flags
    in one text.
    """
    records = []
    for row in rows:
        content = row.as_json()
        record = {name: content[name] for name in _COLUMNS}
        record["flags"] = " ".join(content["flags"])
        records.append(record)
    return pa.Table.from_pylist(records)


def parquet_bytes(table: pa.Table) -> bytes:
    """Return the table as a file of Parquet."""
    file = io.BytesIO()
    write_parquet(file, table)
    return file.getvalue()


def file_address(text: str) -> str:
    """Return an address that holds a text whole, for a link that saves it."""
    return _address("text/plain;charset=utf-8", text.encode())


def _address(kind: str, content: bytes) -> str:
    if not content:
        return ""
    return f"data:{kind};base64,{b64encode(content).decode()}"
