"""What every item adds to a value, so that the errors of values over the same items can be compared and summed."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from choicewise.results.outcome import Outcome
from choicewise.scoring.ragged import Floats, Integers

SAME = 1e-9
"""Credits and influences that differ by less, relative to one item, differ by rounding."""


@dataclass(frozen=True, eq=False, slots=True)
class Influence:
    """A value under its protocol's own aggregation, and how it depends on its items.

    ``ids``: of the items.  ``credit``: float64 [items], NaN where an item is missing.  ``each``: float64 [items], 0
    where it is missing; their squares add up to the squared standard error of ``value``, and the squares of the
    differences from those of another value of the same items to that of the difference.
    """

    ids: pa.ChunkedArray
    credit: Floats
    value: float
    each: Floats

    @property
    def n(self) -> int:
        """How many items the value is a mean over."""
        return int((~np.isnan(self.credit)).sum())


def influence(outcome: Outcome) -> Influence:
    """The value of ``outcome`` (of categories: the mean over items) with the influence of every item.

    With items drawn one by one, an item of n moves their mean by (credit - mean) / n, and the mean of S subjects' means
    by (credit - its subject's mean) / (S · items of its subject); both times √(n / (n - 1)) of those that share the
    mean, as what varies around its own mean varies too little.  Subjects with one item each share a mean.
    """
    credit = outcome.credit
    scored = ~np.isnan(credit)
    each, value = np.zeros(len(credit)), math.nan
    if scored.any():
        alone = outcome.protocol.aggregation != "macro"
        groups = np.zeros(int(scored.sum()), dtype=np.int64) if alone else _subjects(outcome)[scored]
        value, each[scored] = _of_means(credit[scored], groups)
    return Influence(outcome.ids, credit, value, each)


def _of_means(credit: Floats, groups: Integers) -> tuple[float, Floats]:
    """The mean of the groups' means, and the influence of every credit on it."""
    groups = np.unique(groups, return_inverse=True)[1]
    sizes = np.bincount(groups)
    value = float((np.bincount(groups, weights=credit) / sizes).mean())
    weight = 1 / (len(sizes) * sizes)[groups]
    if (lone := sizes == 1).any():
        groups = np.where(lone[groups], len(sizes), groups)
    counts = np.bincount(groups)
    centre = np.bincount(groups, weights=credit) / np.maximum(counts, 1)
    if counts[-1] == 1:  # one item that has nothing of its kind to vary around
        centre[-1] = value
    freedom = np.maximum(counts - 1, 1)
    return value, (credit - centre[groups]) * weight * np.sqrt(counts / freedom)[groups]


def _subjects(outcome: Outcome) -> Integers:
    """A number per item, the same for items of one subject; int64 [items]."""
    subjects = outcome.items["subject"].combine_chunks()
    encoded = subjects if isinstance(subjects, pa.DictionaryArray) else subjects.dictionary_encode()
    return np.asarray(encoded.indices.to_numpy(zero_copy_only=False), dtype=np.int64)


def aligned(influences: Sequence[Influence]) -> tuple[pa.ChunkedArray, Floats, Floats]:
    """The ids of all items, and of each value their credits and influences, float64 [values, items].

    An item that a value does not know is missing there.
    """
    first = influences[0]
    if all(first.ids is each.ids or first.ids.equals(each.ids) for each in influences):
        return first.ids, np.array([each.credit for each in influences]), np.array([each.each for each in influences])
    ids = pa.chunked_array([pc.unique(pa.concat_arrays([part for each in influences for part in each.ids.chunks]))])
    credit = np.full((len(influences), len(ids)), np.nan)
    parts = np.zeros((len(influences), len(ids)))
    for row, each in enumerate(influences):
        places = pc.index_in(each.ids, ids).to_numpy()
        credit[row, places], parts[row, places] = each.credit, each.each
    return ids, credit, parts


def error(each: Floats) -> float:
    """The standard error that influences [items] make; NaN where all are the same and say nothing about how they vary.

    Of one item, too.
    """
    if len(each) < 2 or np.ptp(each) * len(each) < SAME:
        return math.nan
    return float(np.sqrt((each**2).sum()))
