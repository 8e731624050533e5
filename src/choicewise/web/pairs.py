"""Two models under every protocol that both were measured with, or why they can't be compared."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations

import numpy as np

from choicewise.results.distinct import alike
from choicewise.results.outcome import Outcome
from choicewise.results.pairing import same_items, shared_items
from choicewise.scoring.ragged import Floats, Integers
from choicewise.scoring.statistics.clustered import FEWEST
from choicewise.scoring.statistics.holm import holm
from choicewise.scoring.statistics.paired import Difference, minimum_detectable_effect, paired_difference
from choicewise.scoring.statistics.sign_flip import SignFlip, sign_flip
from choicewise.web.study import ShownRun, Study

MOST_RUNS = 24
"""Runs of which every pair is compared on a page; with more, the page says which command compares two."""

LEVEL = 0.05
"""Of significance, after Holm's correction for all protocols of a pair."""

Lead = tuple[str, str, str]
"""(protocol, model, model): the first is significantly ahead of the second."""


@dataclass(frozen=True, slots=True)
class Contest:
    """A under one protocol against B; ``detectable``: the difference that so many items show with probability 0.8.

    ``other_texts``: the two were sent other texts about the same items, so that no test is made.  ``p_holm``: corrected
    for all protocols that can differ; of those that can't (:mod:`choicewise.results.distinct`) the first is tested.
    """

    protocol: str
    difference: Difference
    test: SignFlip
    detectable: float
    other_texts: bool
    p_holm: float


@dataclass(frozen=True, slots=True)
class Pair:
    """Two runs by their places; ``reason``: why they can't be compared, nothing where they can; ``tests``: how many."""

    left: int
    right: int
    reason: str
    contests: tuple[Contest, ...] = ()
    tests: int = 0

    @property
    def ahead(self) -> tuple[int, int]:
        """Protocols under which the left, and the right, is significantly better after Holm's correction."""
        clear = [each.difference.value for each in self.contests if each.p_holm <= LEVEL]
        return sum(value > 0 for value in clear), sum(value < 0 for value in clear)


def pairs(study: Study) -> list[Pair]:
    """Every pair of the first runs, the earlier one on the left."""
    credits = _Credits()
    return [_pair(study, left, right, credits) for left, right in combinations(range(len(study.runs))[:MOST_RUNS], 2)]


def leads(study: Study, compared: Sequence[Pair]) -> frozenset[Lead]:
    """Who is significantly ahead of whom under which protocol, of pairs of the runs of ``study``."""
    return frozenset(
        (each.protocol, *(names if each.difference.value > 0 else names[::-1]))
        for pair in compared
        for names in [(study.labels[pair.left], study.labels[pair.right])]
        for each in pair.contests
        if each.p_holm <= LEVEL
    )


def turned(pair: Pair) -> Pair:
    """The same pair with B on the left."""
    contests = []
    for each in pair.contests:
        difference, test = each.difference, each.test
        low, high = -difference.ci_high, -difference.ci_low
        other = replace(difference, value=-difference.value, ci_low=low, ci_high=high)
        flipped = replace(test, left_only=test.right_only, right_only=test.left_only)
        contests.append(replace(each, difference=other, test=flipped))
    reason = pair.reason.replace("A: ", "\0").replace("B: ", "A: ").replace("\0", "B: ")
    return Pair(pair.right, pair.left, reason, tuple(contests), pair.tests)


def _pair(study: Study, left: int, right: int, credits: "_Credits") -> Pair:
    one, other = study.runs[left], study.runs[right]
    if reason := _incomparable(one, other):
        return Pair(left, right, reason)
    shared = _shared(one, other)
    if not shared:
        named = next(iter(one.protocols), "-"), next(iter(other.protocols), "-")
        return Pair(left, right, f"they share no protocol; A has {named[0]}, B has {named[1]}")
    compared = [(mine, theirs, credits.compare(mine, theirs)) for mine, theirs in shared]
    apart = [
        same_items(mine, theirs) and one.row_of[mine.name].i != other.row_of[theirs.name].i for mine, theirs in shared
    ]
    first = {digest: own[0] for own in alike([one.outcomes.firsts, other.outcomes.firsts]) for digest in own}
    ps = {
        mine.protocol.digest: test.p
        for (mine, _, (_, test, _)), other_texts in zip(compared, apart, strict=True)
        if first[mine.protocol.digest] == mine.protocol.digest and not other_texts and not math.isnan(test.p)
    }
    adjusted = dict(zip(ps, holm(np.array(list(ps.values()))).tolist(), strict=True))
    contests = [
        Contest(
            mine.name,
            *numbers,
            other_texts,
            math.nan if other_texts else adjusted.get(first[mine.protocol.digest], math.nan),
        )
        for (mine, _, numbers), other_texts in zip(compared, apart, strict=True)
    ]
    return Pair(left, right, "", tuple(contests), len(ps))


def _incomparable(one: ShownRun, other: ShownRun) -> str:
    mine, theirs = one.manifest.dataset, other.manifest.dataset
    if mine.digest == theirs.digest:
        return ""
    names = (f"{each.name} #D{each.digest[:6]}" for each in (mine, theirs))
    return "the data differ, A: {}, B: {}".format(*names)


def _shared(one: ShownRun, other: ShownRun) -> list[tuple[Outcome, Outcome]]:
    theirs: Mapping[str, Outcome] = {each.protocol.digest: each for each in other.outcomes.outcomes}
    return [(mine, theirs[mine.protocol.digest]) for mine in one.outcomes.outcomes if mine.protocol.digest in theirs]


@dataclass
class _Credits:
    """Compares outcomes; which items are shared, and their subjects, is worked out once for all protocols."""

    _aligned: dict[tuple[int, int], tuple[list[Integers], Integers | None]] = field(default_factory=dict)

    def compare(self, one: Outcome, other: Outcome) -> tuple[Difference, SignFlip, float]:
        key = id(one.items), id(other.items)
        if key not in self._aligned:
            self._aligned[key] = self._align(one, other)
        places, clusters = self._aligned[key]
        left, right = (
            each.credit if len(place) == len(each.ids) and same_items(one, other) else each.credit[place]
            for each, place in zip((one, other), places, strict=True)
        )
        difference = paired_difference(left, right, clusters)
        detectable = math.nan if math.isnan(difference.se) else _detectable(left - right)
        return difference, sign_flip(left, right), detectable

    @staticmethod
    def _align(one: Outcome, other: Outcome) -> tuple[list[Integers], Integers | None]:
        _, places = shared_items((one, other))
        subjects: Sequence[str] = one.subjects
        names, codes = np.unique(np.array(subjects, dtype=str)[places[0]], return_inverse=True)
        return places, codes.astype(np.int64) if len(names) >= FEWEST else None


def _detectable(differences: Floats) -> float:
    known = differences[~np.isnan(differences)]
    return minimum_detectable_effect(float(known.std(ddof=1)), len(known))
