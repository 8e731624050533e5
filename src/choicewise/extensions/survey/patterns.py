"""Find what right answers have in common: their positions, and what simple rules of guessing score."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from choicewise.data.dataset import Items

_Ints = npt.NDArray[np.int64]
_Floats = npt.NDArray[np.float64]
_Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Guess:
    """Say what choosing by a simple rule scores, and what chance would score.

    ``score`` and ``chance`` are shares of 1; several choices that the rule names share the guess.
    ``p``: how probable a score at least as far from chance is if the rule says nothing about the
    answer (normal approximation, two sides).
    """

    score: float
    chance: float
    p: float


@dataclass(frozen=True, kw_only=True)
class AnswerPattern:
    """Describe the right answers of one split.

    ``counts``: number of choices → items; ``positions``: number of choices → how often each
    position, from 0, is the right one, for items with one right choice; ``several``: items with
    several right choices.  ``p_positions``: how probable positions at least as uneven are if all
    are equally likely (chi-squared over all numbers of choices), NaN if there are too few items.
    ``constant``: True if the same positions are right in every item, and an item has several
    choices.  ``guesses``: rule → what it scores.
    """

    counts: Mapping[int, int]
    positions: Mapping[int, tuple[int, ...]]
    several: int
    p_positions: float
    constant: bool
    guesses: Mapping[str, Guess]


def answer_pattern(items: Items) -> AnswerPattern:
    """Compute the pattern of ``items``, each with a right choice, column by column."""
    sums = {rule: np.zeros(3) for rule in ("first", "last", "longest", "shortest")}
    counts: dict[int, int] = {}
    positions: dict[int, _Ints] = {}
    several = 0
    first_golds: set[tuple[int, ...]] = set()  # of the batches
    differs = False
    for choices, gold in _lists(items):
        right = choices.flags(gold)
        for rule, mask in choices.rules().items():
            sums[rule] += _scored(choices, mask, right)
        has_one = gold.number == 1
        several += int((~has_one).sum())
        first = gold.values[gold.starts]
        for count in np.unique(choices.number).tolist():
            has_count = choices.number == count
            counts[count] = counts.get(count, 0) + int(has_count.sum())
            right_counts = np.bincount(first[has_one & has_count], minlength=count)
            positions[count] = positions.get(count, np.zeros(count, np.int64)) + right_counts
        first_gold = gold.values[: gold.number[0]]
        first_golds.add(tuple(first_gold.tolist()))
        repeated = np.resize(first_gold, len(gold.values))
        if (gold.number != len(first_gold)).any() or (gold.values != repeated).any():
            differs = True
    total = sum(counts.values())
    guesses = {}
    if total:
        guesses = {rule: _guess(values, total) for rule, values in sums.items()}
    return AnswerPattern(
        counts=dict(sorted(counts.items())),
        positions={
            count: tuple(right_counts.tolist())
            for count, right_counts in sorted(positions.items())
            if right_counts.any()
        },
        several=several,
        p_positions=_even(positions.values()),
        constant=len(first_golds) == 1 and not differs and total > 1 and max(counts) > 1,
        guesses=guesses,
    )


@dataclass(frozen=True)
class _Lists:
    """Lists of all items in one array, with where the list of each item begins and its length."""

    values: Any
    starts: _Ints
    number: _Ints

    @classmethod
    def of(cls, lists: pa.ListArray, values: pa.Array) -> _Lists:
        """Take the ``lists`` with ``values``, one for each of their elements."""
        offsets = lists.offsets.to_numpy().astype(np.int64)
        starts = offsets[:-1] - offsets[0]
        return cls(values.to_numpy().astype(np.int64), starts, np.diff(offsets))

    def flags(self, gold: _Lists) -> _Mask:
        """Mark the elements that ``gold`` names by their indices."""
        flags = np.zeros(int(self.number.sum()), bool)
        flags[np.repeat(self.starts, gold.number) + gold.values] = True
        return flags

    def rules(self) -> dict[str, _Mask]:
        """Return rule of guessing → the choices that it names; ``values`` are their characters."""
        first = np.zeros(len(self.values), bool)
        first[self.starts] = True
        last = np.zeros(len(self.values), bool)
        last[self.starts + self.number - 1] = True
        longest = np.repeat(np.maximum.reduceat(self.values, self.starts), self.number)
        shortest = np.repeat(np.minimum.reduceat(self.values, self.starts), self.number)
        return {
            "first": first,
            "last": last,
            "longest": self.values == longest,
            "shortest": self.values == shortest,
        }


def _lists(items: Items) -> Iterator[tuple[_Lists, _Lists]]:
    """Yield the lengths of choices in characters, and the right ones, batch by batch."""
    for batch in items.table().to_batches():
        choices = batch["choices"]
        gold = batch["gold"]
        lengths = pc.utf8_length(choices.flatten())
        yield _Lists.of(choices, lengths), _Lists.of(gold, gold.flatten())


def _scored(choices: _Lists, mask: _Mask, right: _Mask) -> _Floats:
    """Return score, expectation and variance of guessing by ``mask``, summed over the items.

    If the right choices are any of the item's, equally likely, their number among those that the
    rule names is hypergeometric.
    """
    named = np.add.reduceat(mask.astype(np.int64), choices.starts)
    named_and_right = np.add.reduceat((mask & right).astype(np.int64), choices.starts)
    all_right = np.add.reduceat(right.astype(np.int64), choices.starts)
    chance = all_right / choices.number
    draws = named * np.maximum(choices.number - 1, 1)
    variance = chance * (1 - chance) * (choices.number - named) / draws
    return np.array([(named_and_right / named).sum(), chance.sum(), variance.sum()])


def _guess(sums: _Floats, total: int) -> Guess:
    score, expected, variance = sums.tolist()
    distance = abs(score - expected)
    if variance > 0:
        p = math.erfc(distance / math.sqrt(2 * variance))
    else:
        p = float(distance < 1e-9)
    return Guess(score / total, expected / total, p)


# Right answers that each position needs on average: the usual rule for chi-squared.
_LEAST_EXPECTED = 5


def _even(positions: Iterable[_Ints]) -> float:
    """Return how probable positions at least as uneven are if all are equally likely."""
    from scipy.special import gammaincc

    statistic = 0.0
    freedom = 0
    for counts in positions:
        expected = counts.sum() / len(counts)
        if expected >= _LEAST_EXPECTED:
            statistic += float(((counts - expected) ** 2 / expected).sum())
            freedom += len(counts) - 1
    if not freedom:
        return math.nan
    return float(gammaincc(freedom / 2, statistic / 2))
