"""Test every number of a table of models against all others of its column."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from choicewise.results.headline import Matrix
from choicewise.results.measurement import paired_credits, same_items
from choicewise.results.number import Number
from choicewise.results.outcomes import (
    Outcome,
    Outcomes,
    comparable,
    left_open,
    number_key,
    outcomes_by_key,
    shared_credits,
)
from choicewise.scoring.significance import FEWEST, LEVEL, holm, sign_flip


@dataclass(frozen=True)
class AgainstBest:
    """Mark by model and benchmark if no other model of the column is significantly better.

    None: there is no number, or no test, because other texts were sent about the same items, or
    because too different or too few items were scored.  ``tests``: the number of tests that the p
    values are corrected for.
    """

    level: tuple[tuple[bool | None, ...], ...]
    tests: int


def against_best(table: Matrix, outcomes: Sequence[Outcomes]) -> AgainstBest:
    """Test every number against all others of its column, over the items that both score.

    A number is worse than another if it is less over these items, and if p, after Holm's correction
    for all pairs of the table, is at most :data:`~choicewise.scoring.significance.LEVEL`.
    """
    by_key = outcomes_by_key(outcomes)
    level: list[list[bool | None]] = [[None] * len(table.benchmarks) for _ in table.standings]
    losers: list[tuple[int, int]] = []
    ps: list[float] = []
    for column in range(len(table.benchmarks)):
        rows: dict[int, Number] = {}
        for line, standing in enumerate(table.standings):
            row = standing.rows[column]
            if row is not None:
                rows[line] = row
        is_comparable = dict(zip(rows, comparable(list(rows.values())), strict=True))
        if len(rows) == 1:
            (line,) = rows
            level[line][column] = True  # there is no other model
        for one, other in combinations(rows, 2):
            if not (is_comparable[one] and is_comparable[other]):
                continue
            difference, p = _test(rows[one], rows[other], by_key)
            if math.isnan(p):
                continue
            level[one][column] = True
            level[other][column] = True
            loser = other if difference > 0 else one
            losers.append((loser, column))
            ps.append(p)
    # A loser of one pair is marked, however many others it beats.
    for (line, column), p in zip(losers, holm(ps).tolist(), strict=True):
        if p <= LEVEL:
            level[line][column] = False
    return AgainstBest(tuple(tuple(line) for line in level), len(ps))


_OutcomesByKey = Mapping[tuple[str, ...], Sequence[Outcome]]
"""The outcomes of rows, by :func:`number_key`."""


def _test(one: Number, other: Number, by_key: _OutcomesByKey) -> tuple[float, float]:
    """Return how much better ``one`` is over the shared items, and p.

    Both are NaN if there is no test, such as of few items.  If answers that were cut leave the
    order open, p is 1.
    """
    key = number_key(one)
    other_key = number_key(other)
    if key not in by_key or other_key not in by_key:
        return math.nan, math.nan
    pair = by_key[key][-1], by_key[other_key][-1]
    # The same items in other texts: the difference could be that of the texts.
    if same_items(*pair) and one.identity.i != other.identity.i:
        return math.nan, math.nan
    subjects, credits = paired_credits(pair)
    left, right = shared_credits(subjects, credits, pair[0].protocol.aggregation)
    if len(left) < FEWEST:
        return math.nan, math.nan
    difference = float((left - right).sum())
    if left_open(one, other):
        return difference, 1.0
    return difference, sign_flip(left, right).p
