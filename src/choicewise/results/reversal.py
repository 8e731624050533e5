"""Two models that change places between two protocols, by more than chance would give."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Protocol

import numpy as np

from choicewise.protocols.signature import signature
from choicewise.results.finding import guess
from choicewise.results.outcome import Outcome, Outcomes
from choicewise.results.pairing import shared_items
from choicewise.results.row import Row
from choicewise.scoring.statistics.holm import holm
from choicewise.scoring.statistics.sign_flip import SignFlip, sign_flip

LEVEL = 0.05
"""Of significance, after Holm's correction for all tests."""


class Measured(Protocol):
    """A run's numbers: its rows, and the credit of every item."""

    @property
    def rows(self) -> Sequence[Row]:
        """One per protocol and group."""

    @property
    def outcomes(self) -> Outcomes:
        """Of every protocol."""


@dataclass(frozen=True, slots=True)
class Contest:
    """Two models under one protocol: the share of the ``n`` items both scored that each has right; the paired test.

    ``first``: of the numbers of its prompt.  ``guessed``: neither number is better than guessing.  ``p``: of the test,
    after Holm's correction.
    """

    protocol: str
    left: float
    right: float
    n: int
    first: bool
    guessed: bool
    test: SignFlip
    p: float

    @property
    def difference(self) -> float:
        """Left minus right."""
        return self.left - self.right


@dataclass(frozen=True, slots=True)
class Reversal:
    """Left is better than right under the protocol of ``start``, and worse under that of ``end``.

    ``tests``: how many the p values are corrected for.
    """

    dataset: str
    left: str
    right: str
    start: Contest
    end: Contest
    tests: int


def reversal(runs: Sequence[Measured]) -> Reversal | None:
    """Of all pairs of models and protocols the clearest: the smaller of the two differences is the greatest there is.

    Every model is tested against every other one under every protocol that asks both the same, on the items both
    scored.  None where no two change places significantly, each time with the better one better than guessing.  A
    prompt's first number comes before its others: two ways to ask say more than two ways to count.
    """
    pairs = [
        (one, other, _contests(one, other))
        for one, other in combinations(runs, 2)
        if one.outcomes.digest == other.outcomes.digest
    ]
    adjusted = iter(holm([contest.p for *_, contests in pairs for contest in contests]).tolist())
    tests = sum(len(contests) for *_, contests in pairs)
    reversals = []
    for one, other, contests in pairs:
        corrected = [replace(contest, p=next(adjusted)) for contest in contests]
        clear = [each for each in corrected if each.p <= LEVEL and not each.guessed]
        names = one.outcomes.dataset, one.outcomes.model, other.outcomes.model
        for chosen in ([each for each in clear if each.first], clear):
            start = max(chosen, key=lambda each: each.difference, default=None)
            end = min(chosen, key=lambda each: each.difference, default=None)
            if start and end and start.difference > 0 > end.difference:
                reversals.append(Reversal(*names, start, end, tests))
    return max(reversals, key=_clarity, default=None)


def _clarity(each: Reversal) -> tuple[bool, float]:
    return each.start.first and each.end.first, min(each.start.difference, -each.end.difference)


def _contests(one: Measured, other: Measured) -> list[Contest]:
    """One per protocol whose values are shares of 1 and that sent both models the same texts; p is not corrected."""
    theirs = {each.protocol.digest: each for each in other.outcomes.shares.outcomes}
    own, others = ({(row.signature, row.i): row for row in each.rows} for each in (one, other))
    guessed = {key[0]: guess(own[key]) and guess(others[key]) for key in own.keys() & others.keys()}
    firsts = {each.protocol.prompt_digest: each.name for each in reversed(one.outcomes.outcomes)}
    contests = [
        _contest(
            each,
            theirs[each.protocol.digest],
            each.name == firsts[each.protocol.prompt_digest],
            guessed[signature(each.protocol)],
        )
        for each in one.outcomes.shares.outcomes
        if each.protocol.digest in theirs and signature(each.protocol) in guessed
    ]
    return [each for each in contests if not math.isnan(each.p)]


def _contest(one: Outcome, other: Outcome, first: bool, guessed: bool) -> Contest:
    _, places = shared_items((one, other))
    credits = np.array([each.credit[place] for each, place in zip((one, other), places, strict=True)])
    known = credits[:, ~np.isnan(credits).any(axis=0)]
    test = sign_flip(*known)
    left, right = known.mean(axis=1).tolist() if known.size else (math.nan, math.nan)
    return Contest(one.name, left, right, known.shape[1], first, guessed, test, test.p)
