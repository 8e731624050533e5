"""One number for each model and benchmark: the headline protocols, and the table of models by benchmarks."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from choicewise.protocols.catalogue import is_headline
from choicewise.protocols.protocol import short_signature
from choicewise.results.measurement import paired_credits, same_items
from choicewise.results.outcomes import Outcome, Outcomes, distinct, left_open, mean_bounds, measured_as, ranks_among
from choicewise.results.rows import Row
from choicewise.scoring.significance import LEVEL, holm, sign_flip

PREFERRED = ("original", "harness", "olmes-cf", "olmes-mcf")
"""Variants whose number is the best known of a benchmark, the first of them first."""


def headline(rows: Sequence[Row], families: Collection[str] = ()) -> Row | None:
    """The row of one run whose number stands for the others; None where none has a number that is a share of 1.

    Of ``families`` where some are named.  The first of :data:`PREFERRED`, else the first headline of an entry of the
    catalogue, else the first row.
    """
    known = [
        row for row in rows if row.share and not math.isnan(row.value) and (not families or row.family in families)
    ]
    return min(known, key=lambda row: _preference(row.protocol), default=None)


@dataclass(frozen=True, slots=True)
class Benchmark:
    """A column: the ``protocol`` of the numbers on one part of a dataset; ``data``: the short id of the dataset."""

    dataset: str
    data: str
    selection: str
    protocol: str
    signature: str


@dataclass(frozen=True, slots=True)
class Standing:
    """A model: its row under every benchmark, None where there is none; their plain ``mean``, NaN where one lacks.

    ``rank``: by the mean among the models that have all; ``rank_low`` and ``rank_high`` bound it over draws of items,
    None where that is not known.
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
            f"{name} {each.data}" if name in twice else name for name, each in zip(names, self.benchmarks, strict=True)
        )


@dataclass(frozen=True, slots=True)
class AgainstBest:
    """By model and benchmark whether a number is the best of its column or not shown to be worse than that.

    None where there is no number, or no test: other texts were sent about the same items, or no item is scored by both.
    ``tests``: how many the p values are corrected for.
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
    lines = {model: tuple(cells.get((model, measured_as(first))) for first in chosen.values()) for model in models}
    means = {model: _mean(line) for model, line in lines.items()}
    placed = dict(zip(models, ranks_among([means[model] for model in models], ["all"] * len(models)), strict=True))
    bounds = _bounds([model for model in models if placed[model]], list(chosen.values()), outcomes)
    standings = [
        Standing(model, lines[model], means[model], placed[model], *bounds.get(model, (None, None)))
        for model in sorted(models, key=lambda model: (lines[model].count(None), placed[model] or math.inf))
    ]
    columns = (Benchmark(row.dataset, row.data, row.selection, row.protocol, row.signature) for row in chosen.values())
    return Matrix(tuple(columns), tuple(standings))


def against_best(table: Matrix, outcomes: Sequence[Outcomes]) -> AgainstBest:
    """Every number against the best of its column, by the paired test over the items that both score.

    A number is worse where it is less over these items, and p, after Holm's correction for all tests of the table, is
    at most :data:`~choicewise.scoring.significance.LEVEL`.
    """
    known = _by_row(outcomes)
    level: list[list[bool | None]] = [[None] * len(table.benchmarks) for _ in table.standings]
    ps: dict[tuple[int, int], float] = {}
    less: set[tuple[int, int]] = set()
    for column in range(len(table.benchmarks)):
        rows = [standing.rows[column] for standing in table.standings]
        best = max((row for row in rows if row is not None), key=lambda row: row.value)
        for place, row in enumerate(rows):
            if row is not None and (row.value == best.value or left_open(row, best)):
                level[place][column] = True  # the best, or cut so that it may be
            elif row is not None and _key(row) in known and _key(best) in known:
                difference, p = _test(best, row, known)
                if not math.isnan(p):
                    ps[place, column] = p
                    less |= {(place, column)} if difference > 0 else set()
    for (place, column), p in zip(ps, holm(list(ps.values())).tolist(), strict=True):
        level[place][column] = p > LEVEL or (place, column) not in less
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


def _test(best: Row, row: Row, known: _Known) -> tuple[float, float]:
    """By how much ``best`` is better over the shared items, and p; NaN where there is no test."""
    pair = known[_key(best)], known[_key(row)]
    if same_items(*pair) and best.i != row.i:
        return math.nan, math.nan
    _, credits = paired_credits(pair)
    shared = credits[:, ~np.isnan(credits).any(axis=0)]
    difference = float((shared[0] - shared[1]).sum())
    return difference, sign_flip(*credits).p


def _preference(protocol: str) -> tuple[bool, int]:
    variant = protocol.partition("/")[2]
    for mark in ":@+":
        variant = variant.partition(mark)[0]
    return not is_headline(protocol), PREFERRED.index(variant) if variant in PREFERRED else len(PREFERRED)


def _mean(line: Sequence[Row | None]) -> float:
    known = [row.value for row in line if row is not None]
    return math.fsum(known) / len(known) if known and len(known) == len(line) else math.nan


def _bounds(
    models: Sequence[str], chosen: Sequence[Row], outcomes: Sequence[Outcomes]
) -> Mapping[str, tuple[int, int]]:
    """The bounds of the ranks of ``models``, where the outcomes of all under every one of ``chosen`` are there."""
    known = _by_row(outcomes)
    keys = [[(model, *_key(row)[1:]) for model in models] for row in chosen]
    if len(models) < 2 or not all(key in known for part in keys for key in part):
        return {}
    edges = mean_bounds([[known[key] for key in part] for part in keys], [row.population for row in chosen])
    return dict(zip(models, edges, strict=True))
