"""One number for each model and benchmark: the headline protocols, and the table of models by benchmarks."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from choicewise.protocols.catalogue import is_headline
from choicewise.protocols.protocol import short_signature
from choicewise.results.measurement import paired_credits, same_items
from choicewise.results.outcomes import (
    Outcome,
    Outcomes,
    comparable,
    distinct,
    left_open,
    measured_as,
    shared_credits,
    standing_ranks,
    undecided_pairs,
)
from choicewise.results.rows import Row
from choicewise.scoring.intervals import ranks
from choicewise.scoring.significance import FEWEST, LEVEL, holm, sign_flip

PREFERRED = ("original", "harness", "olmes-cf", "olmes-mcf")
"""Variants whose number is the best known of a benchmark, the first of them first."""


def headline(rows: Sequence[Row], families: Collection[str] = ()) -> Row | None:
    """The row of one run whose number stands for the others; None where none has a number that is a share of 1.

    Of ``families`` where some are named.  The first of :data:`PREFERRED`, else the first headline of an entry of the
    catalogue, else the first row.
    """
    known = [
        row
        for row in rows
        if row.share and not math.isnan(row.value) and (not families or row.family in families)
    ]
    return min(known, key=lambda row: _preference(row.protocol), default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Benchmark:
    """A column: the ``protocol`` of the numbers on one part of a dataset; ``data``: the short id of the dataset."""

    dataset: str
    data: str
    selection: str
    protocol: str
    signature: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """A model: its row under every benchmark, None where there is none; their plain ``mean``.

    The mean is NaN where a row lacks, or is over far fewer items than that of another model
    (:func:`~choicewise.results.outcomes.comparable`).  ``rank``: by the mean among the models that have one;
    ``rank_low`` and ``rank_high`` bound it by tests of all pairs of them, None where that is not known.
    """

    model: str
    rows: tuple[Row | None, ...]
    mean: float
    rank: int | None
    rank_low: int | None
    rank_high: int | None


@dataclass(frozen=True, slots=True)
class Matrix:
    """Models by benchmarks, one headline protocol each; the best model first, those that lack a number last."""

    benchmarks: tuple[Benchmark, ...]
    standings: tuple[Standing, ...]

    @property
    def part(self) -> str:
        """The part of the data that all columns are about, in words; nothing where it is all of it, or differs."""
        parts = {each.selection for each in self.benchmarks}
        return parts.pop() if len(parts) == 1 else ""

    @property
    def titles(self) -> tuple[str, ...]:
        """What each column is called, no two alike: its dataset, with the part and the id where they tell it apart."""
        names = [
            each.dataset + (f" ({each.selection})" if each.selection and not self.part else "")
            for each in self.benchmarks
        ]
        twice = {name for name, count in Counter(names).items() if count > 1}
        return tuple(
            f"{name} {each.data}" if name in twice else name
            for name, each in zip(names, self.benchmarks, strict=True)
        )


@dataclass(frozen=True, slots=True)
class AgainstBest:
    """By model and benchmark whether no other model of the column is significantly better.

    None where there is no number, or no test: other texts were sent about the same items, or too different or too few
    items were scored.  ``tests``: how many the p values are corrected for.
    """

    level: tuple[tuple[bool | None, ...], ...]
    tests: int


def matrix(rows: Sequence[Row], outcomes: Sequence[Outcomes] = ()) -> Matrix:
    """The table of ``rows``; ``outcomes``: of the same runs, without which the bounds of ranks are not known.

    The headline of a dataset is one that most models have: of them the first by :data:`PREFERRED`.  Numbers of groups
    of items have no place in it.
    """
    rows = distinct([row for row in rows if row.share and row.subject == "all"])
    models, chosen = list(dict.fromkeys(row.model for row in rows)), dict[tuple[str, str], Row]()
    datasets: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        datasets.setdefault((row.data, row.selection), []).append(row)
    for part, own in datasets.items():
        counts = Counter(measured_as(row) for row in own if not math.isnan(row.value))
        most = max(counts.values(), default=0)
        first = headline([row for row in own if counts[measured_as(row)] == most])
        if first is not None:
            chosen[part] = first
    cells = {(row.model, measured_as(row)): row for row in rows if not math.isnan(row.value)}
    lines = {
        model: tuple(cells.get((model, measured_as(first))) for first in chosen.values())
        for model in models
    }
    apart = _not_comparable(list(lines.values()))
    means = {model: math.nan if model in apart else _mean(line) for model, line in lines.items()}
    whole = [model for model in models if not math.isnan(means[model])]
    placed = {} if len(whole) == 1 and apart else _placed(whole, means, lines, outcomes)
    standings = []
    for model in sorted(
        models, key=lambda model: (lines[model].count(None), placed.get(model, _LAST)[0])
    ):
        rank, rank_low, rank_high = placed.get(model, (None, None, None))
        standings.append(
            Standing(
                model=model,
                rows=lines[model],
                mean=means[model],
                rank=rank,
                rank_low=rank_low,
                rank_high=rank_high,
            )
        )
    columns = (
        Benchmark(
            dataset=row.dataset,
            data=row.data,
            selection=row.selection,
            protocol=row.protocol,
            signature=row.signature,
        )
        for row in chosen.values()
    )
    return Matrix(tuple(columns), tuple(standings))


def against_best(table: Matrix, outcomes: Sequence[Outcomes]) -> AgainstBest:
    """Test every number against all others of its column, over the items that both score.

    A number is worse than another where it is less over these items, and p, after Holm's correction for all pairs of
    the table, is at most :data:`~choicewise.scoring.significance.LEVEL`.
    """
    known = _by_row(outcomes)
    level: list[list[bool | None]] = [[None] * len(table.benchmarks) for _ in table.standings]
    losers: list[tuple[int, int]] = []
    ps: list[float] = []
    for column in range(len(table.benchmarks)):
        rows = {
            place: row
            for place, standing in enumerate(table.standings)
            if (row := standing.rows[column])
        }
        scored = len(rows)
        alike = comparable(list(rows.values()))
        rows = {
            place: row for (place, row), whole in zip(rows.items(), alike, strict=True) if whole
        }
        if scored == 1:
            level[next(iter(rows))][column] = True  # there is no other model
        for one, other in combinations(rows, 2):
            difference, p = _test(rows[one], rows[other], known)
            if not math.isnan(p):
                level[one][column] = level[other][column] = True
                losers.append((other if difference > 0 else one, column))
                ps.append(p)
    for (place, column), p in zip(losers, holm(ps).tolist(), strict=True):
        if p <= LEVEL:
            level[place][column] = False
    return AgainstBest(tuple(map(tuple, level)), len(ps))


_Known = Mapping[tuple[str, ...], Outcome]


def _by_row(outcomes: Sequence[Outcomes]) -> _Known:
    """The outcome of every row, by :func:`_key`."""
    return {
        (run.model, f"#D{run.digest[:6]}", each.selection, short_signature(each.protocol)): each
        for run in outcomes
        for each in run.outcomes
    }


def _key(row: Row) -> tuple[str, ...]:
    return row.model, row.data, row.selection, row.id


def _test(one: Row, other: Row, known: _Known) -> tuple[float, float]:
    """By how much ``one`` is better over the shared items, and p; NaN where there is no test, as of few items.

    Where answers that were cut leave the order open, p is 1.
    """
    if _key(one) not in known or _key(other) not in known:
        return math.nan, math.nan
    pair = known[_key(one)], known[_key(other)]
    if same_items(*pair) and one.i != other.i:
        return math.nan, math.nan
    subjects, credits = paired_credits(pair)
    shared = shared_credits(subjects, credits, pair[0].protocol.aggregation)
    if shared.shape[1] < FEWEST:
        return math.nan, math.nan
    difference = float((shared[0] - shared[1]).sum())
    return difference, 1.0 if left_open(one, other) else sign_flip(*shared).p


def _preference(protocol: str) -> tuple[bool, int]:
    variant = protocol.partition("/")[2]
    for mark in ":@+":
        variant = variant.partition(mark)[0]
    return not is_headline(protocol), PREFERRED.index(variant) if variant in PREFERRED else len(
        PREFERRED
    )


def _mean(line: Sequence[Row | None]) -> float:
    known = [row.value for row in line if row is not None]
    return math.fsum(known) / len(known) if known and len(known) == len(line) else math.nan


_LAST = (math.inf,)
"""Where models without a rank stand."""


def _not_comparable(lines: Sequence[Sequence[Row | None]]) -> set[str]:
    """Name the models with a number over far fewer items than another model has under the same protocol."""
    apart: set[str] = set()
    for column in zip(*lines, strict=True):
        rows = [row for row in column if row is not None]
        apart |= {row.model for row, alike in zip(rows, comparable(rows), strict=True) if not alike}
    return apart


def _placed(
    models: Sequence[str],
    means: Mapping[str, float],
    lines: Mapping[str, Sequence[Row | None]],
    outcomes: Sequence[Outcomes],
) -> Mapping[str, tuple[int, int | None, int | None]]:
    """Rank ``models``, which have all numbers, by their ``means``; with the range where all outcomes are there."""
    ranked = {
        model: (rank, None, None)
        for model, rank in zip(
            models, ranks([means[model] for model in models]).tolist(), strict=True
        )
    }
    known = _by_row(outcomes)
    parts = [
        [row for row in column if row is not None]
        for column in zip(*(lines[model] for model in models), strict=True)
    ]
    if len(models) < 2 or not all(_key(row) in known for part in parts for row in part):
        return ranked
    undecided = np.any([undecided_pairs(part) for part in parts], axis=0)
    placed = standing_ranks([[known[_key(row)] for row in part] for part in parts], undecided)
    return dict(zip(models, placed, strict=True)) if placed else ranked
