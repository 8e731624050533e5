"""Choose one number for each model and benchmark, and rank models by all benchmarks."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np

from choicewise.protocols.catalogue import is_headline
from choicewise.results.number import Number, NumberIdentity
from choicewise.results.outcomes import (
    Outcomes,
    comparable,
    distinct,
    joint_credits,
    measured_as,
    number_key,
    outcomes_by_key,
    standing_ranks,
    undecided_pairs,
)
from choicewise.scoring.intervals import ranks

PREFERRED = ("original", "harness", "olmes-cf", "olmes-mcf")
"""Variants of a benchmark whose number is the best known, the first of them first."""


def headline(rows: Sequence[Number], families: Collection[str] = ()) -> Number | None:
    """Return the row of one run whose number stands for the others.

    It is the first of :data:`PREFERRED`, else the first headline of an entry of the catalogue, else
    the first row.  ``families``: the only ones to choose from, unless empty.  None if no row has a
    number that is a share of 1.
    """
    candidates = []
    for row in rows:
        if families and row.identity.family not in families:
            continue
        if row.share and not math.isnan(row.value):
            candidates.append(row)
    return min(candidates, key=lambda row: preference(row.identity.protocol), default=None)


@dataclass(frozen=True, kw_only=True)
class Standing:
    """Hold a model's row under every benchmark (None for none), and its rank by their plain mean.

    ``mean``: NaN if a row lacks, or is over far fewer items than that of another model
    (:func:`choicewise.results.outcomes.comparable`).  ``rank``: among the models that have a mean.
    ``rank_low``, ``rank_high``: its bounds by tests of all pairs of them, None without tests.
    ``questions``: how many different ones the tests are over.
    """

    model: str
    rows: tuple[Number | None, ...]
    mean: float
    rank: int | None = None
    rank_low: int | None = None
    rank_high: int | None = None
    questions: int = 0


@dataclass(frozen=True)
class Matrix:
    """Hold models by benchmarks, each with the identity of its headline.

    The best model comes first, models that lack a number come last.
    """

    benchmarks: tuple[NumberIdentity, ...]
    standings: tuple[Standing, ...]

    @property
    def part(self) -> str:
        """The part of the data that all columns are about, in words; empty for all, or several."""
        parts = {benchmark.selection for benchmark in self.benchmarks}
        return parts.pop() if len(parts) == 1 else ""

    @property
    def titles(self) -> tuple[str, ...]:
        """The names of the columns, without duplicates.

        A name is the dataset, with its part and its id if the dataset alone is not enough.
        """
        names = []
        for benchmark in self.benchmarks:
            name = benchmark.dataset
            if benchmark.selection and not self.part:
                name += f" ({benchmark.selection})"
            names.append(name)
        counts = Counter(names)
        titles = []
        for name, benchmark in zip(names, self.benchmarks, strict=True):
            if counts[name] > 1:
                name += f" {benchmark.data}"
            titles.append(name)
        return tuple(titles)


def matrix(rows: Sequence[Number], outcomes: Sequence[Outcomes] = ()) -> Matrix:
    """Return the table of models by benchmarks.

    The headline of a dataset is one that most models have: of them the first by :data:`PREFERRED`.
    Numbers of groups of items have no place in it.  ``outcomes``: of the same runs, from which the
    bounds of ranks are computed.
    """
    rows = distinct([row for row in rows if row.share and row.identity.subject == "all"])
    headlines = _headlines(rows)
    lines = _lines(rows, headlines)
    apart = _not_comparable(list(lines.values()))
    standings = {}
    for model, line in lines.items():
        mean = math.nan if model in apart else _mean(line)
        standings[model] = Standing(model=model, rows=line, mean=mean)
    rankable = [standing for standing in standings.values() if not math.isnan(standing.mean)]
    # A model that no other can be compared with is not the first of one.
    if len(rankable) > 1 or not apart:
        for standing in _ranked(rankable, outcomes):
            standings[standing.model] = standing
    in_order = sorted(standings.values(), key=_position)
    return Matrix(tuple(row.identity for row in headlines), tuple(in_order))


def _headlines(rows: Sequence[Number]) -> list[Number]:
    """Return a headline for every part of a dataset that has one."""
    parts: dict[tuple[str, str], list[Number]] = {}
    for row in rows:
        parts.setdefault((row.identity.data, row.identity.selection), []).append(row)
    headlines = []
    for part in parts.values():
        counts = Counter(measured_as(row) for row in part if not math.isnan(row.value))
        # A number that few models have would leave most lines with a gap.
        most = max(counts.values(), default=0)
        first = headline([row for row in part if counts[measured_as(row)] == most])
        if first is not None:
            headlines.append(first)
    return headlines


def _lines(
    rows: Sequence[Number], headlines: Sequence[Number]
) -> dict[str, tuple[Number | None, ...]]:
    """Return by model its rows that were measured as the headlines; None if it has none."""
    cells: dict[tuple[str, tuple[str, ...]], Number] = {}
    models: dict[str, None] = {}
    for row in rows:
        models[row.identity.model] = None
        if not math.isnan(row.value):
            cells[row.identity.model, measured_as(row)] = row
    columns = [measured_as(first) for first in headlines]
    lines = {}
    for model in models:
        lines[model] = tuple(cells.get((model, column)) for column in columns)
    return lines


def preference(protocol: str) -> tuple[bool, int]:
    """Order names of protocols: headlines first, then the preferred variants in their order."""
    _, _, variant = protocol.partition("/")
    for mark in ":@+":
        variant, _, _ = variant.partition(mark)
    order = len(PREFERRED)
    if variant in PREFERRED:
        order = PREFERRED.index(variant)
    return not is_headline(protocol), order


def _mean(line: Sequence[Number | None]) -> float:
    """Return the plain mean of a line; NaN if it is empty or has a gap."""
    values = [row.value for row in line if row is not None]
    if not values or len(values) < len(line):
        return math.nan
    return math.fsum(values) / len(values)


def _not_comparable(lines: Sequence[Sequence[Number | None]]) -> set[str]:
    """Name the models with a number over far fewer items than another model under its protocol."""
    apart: set[str] = set()
    for column in zip(*lines, strict=True):
        rows = [row for row in column if row is not None]
        for row, is_comparable in zip(rows, comparable(rows), strict=True):
            if not is_comparable:
                apart.add(row.identity.model)
    return apart


def _position(standing: Standing) -> tuple[int, float]:
    """Put models without gaps first, by their ranks."""
    gaps = standing.rows.count(None)
    return gaps, standing.rank or math.inf


def _ranked(standings: Sequence[Standing], outcomes: Sequence[Outcomes]) -> list[Standing]:
    """Rank models that have all numbers by their means; with bounds if all rows have outcomes."""
    by_mean = ranks([standing.mean for standing in standings]).tolist()
    ranked = [
        replace(standing, rank=rank) for standing, rank in zip(standings, by_mean, strict=True)
    ]
    # Bounds come from tests, which need two models.
    if len(ranked) < 2:
        return ranked
    by_key = outcomes_by_key(outcomes)
    undecided = []
    parts = []
    for column in zip(*(standing.rows for standing in standings), strict=True):
        rows = [row for row in column if row is not None]
        keys = [number_key(row) for row in rows]
        if not by_key.keys() >= set(keys):
            return ranked
        undecided.append(undecided_pairs(rows))
        parts.append([by_key[key][-1] for key in keys])
    data = [row.identity.data for row in standings[0].rows if row is not None]
    credits, are_summed = joint_credits(parts, data)
    if not credits.size:
        return ranked
    placed = standing_ranks(credits, np.any(undecided, axis=0), are_summed)
    questions = credits.shape[1]
    bounded = []
    for standing, (rank, low, high) in zip(standings, placed, strict=True):
        bounds = replace(standing, rank=rank, rank_low=low, rank_high=high, questions=questions)
        bounded.append(bounds)
    return bounded
