"""What every item adds to a value, so that the errors of values over the same items can be compared and summed."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from choicewise.results.outcome import Outcome
from choicewise.scoring.ragged import Floats, Integers

SAME = 1e-9
"""Credits and influences that differ by less, relative to one item, differ by rounding."""


@dataclass(frozen=True, eq=False)
class Influence:
    """A value under its protocol's own aggregation (of categories: the mean over items), and what it is made of.

    ``ids``: of the items.  ``credit`` and ``weight``: float64 [items], the value is the sum of their products; of an
    item that is missing the credit is NaN, the weight 0.  ``subjects``: int64 [items], a number each.  ``macro``:
    whether it is a mean of the subjects' means.
    """

    ids: pa.ChunkedArray
    credit: Floats
    weight: Floats
    subjects: Integers
    value: float
    macro: bool

    @property
    def n(self) -> int:
        """How many items the value is a mean over."""
        return int((~np.isnan(self.credit)).sum())

    def each(self, within: bool) -> Floats:
        """By how much every item moves the value away from what it would be expected to be, float64 [items].

        Their squares add up to the squared standard error of the value; the squares of the differences from those of
        another value over the same items to that of the difference.  An item is expected to be as the mean of all
        items, drawn one by one, or ``within`` subjects that are given, as the mean of its subject; subjects with one
        item each are taken together.  √(n / (n - 1)) makes up for the mean being that of the n items themselves.
        """
        return self._within if within else self._among_all

    @cached_property
    def _within(self) -> Floats:
        return self._moved(self.subjects)

    @cached_property
    def _among_all(self) -> Floats:
        return self._moved(np.zeros_like(self.subjects))

    def _moved(self, groups: Integers) -> Floats:
        moved, scored = np.zeros(len(self.credit)), ~np.isnan(self.credit)
        if scored.any():
            own = np.unique(groups[scored], return_inverse=True)[1]
            moved[scored] = _deviations(self.credit[scored], own) * self.weight[scored]
        return moved


def influence(outcome: Outcome) -> Influence:
    """The value of ``outcome``; under macro each of n items of one of S subjects weighs 1 / (S n)."""
    credit, subjects = outcome.credit, _subjects(outcome)
    scored, macro = ~np.isnan(credit), outcome.protocol.aggregation == "macro"
    weight, value = np.zeros(len(credit)), math.nan
    if scored.any():
        groups = np.unique(subjects[scored] * macro, return_inverse=True)[1]
        sizes = np.bincount(groups)
        weight[scored] = 1 / (len(sizes) * sizes)[groups]
        value = float((np.bincount(groups, weights=credit[scored]) / sizes).mean())
    return Influence(outcome.ids, credit, weight, subjects, value, macro)


def _deviations(credit: Floats, groups: Integers) -> Floats:
    """How far each credit is from the mean of its group, made up for its size."""
    sizes = np.bincount(groups)
    groups = np.where((sizes == 1)[groups], len(sizes), groups)  # each alone, they share one
    sizes = np.bincount(groups)
    centre = np.bincount(groups, weights=credit) / np.maximum(sizes, 1)
    if sizes[-1] == 1:  # the only one that has nothing of its kind to vary around
        centre[-1] = credit.mean()
    return (credit - centre[groups]) * np.sqrt(sizes / np.maximum(sizes - 1, 1))[groups]


def _subjects(outcome: Outcome) -> Integers:
    """A number per item, the same for items of one subject; int64 [items]."""
    subjects = outcome.items["subject"].combine_chunks()
    encoded = subjects if isinstance(subjects, pa.DictionaryArray) else subjects.dictionary_encode()
    return np.asarray(encoded.indices.to_numpy(zero_copy_only=False), dtype=np.int64)


def aligned(influences: Sequence[Influence]) -> tuple[pa.ChunkedArray, Floats, Floats]:
    """The ids of all items, and of each value their credits and influences, float64 [values, items].

    An item that a value does not know is missing there.  Within subjects, where one of the values is a mean of theirs.
    """
    within = any(known.macro for known in influences)
    first, moved = influences[0], [known.each(within) for known in influences]
    if all(first.ids is known.ids or first.ids.equals(known.ids) for known in influences):
        return first.ids, np.array([known.credit for known in influences]), np.array(moved)
    ids = pa.chunked_array([pc.unique(pa.concat_arrays([part for known in influences for part in known.ids.chunks]))])
    credit = np.full((len(influences), len(ids)), np.nan)
    each = np.zeros((len(influences), len(ids)))
    for row, known in enumerate(influences):
        places = pc.index_in(known.ids, ids).to_numpy()
        credit[row, places], each[row, places] = known.credit, moved[row]
    return ids, credit, each


def error(each: Floats) -> float:
    """The standard error that influences [items] make; NaN where all are the same and say nothing about how they vary.

    Of one item, too.
    """
    if len(each) < 2 or np.ptp(each) * len(each) < SAME:
        return math.nan
    return float(np.sqrt((each**2).sum()))
