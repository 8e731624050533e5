"""Hold observed continuations as ragged arrays of tokens, rows and items, and reduce them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import blake2b
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from choicewise.errors import StoreError

Floats = npt.NDArray[np.float64]

Integers = npt.NDArray[np.int64]

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False, kw_only=True)
class Continuations:
    """Hold one row of tokens for each (item, choice), the choices of an item next to each other.

    Flat over tokens: ``tokens`` (ids), ``logprobs`` (nats), ``sizes`` (bytes that a token stands
    for) and ``ranks`` (vocabulary entries with a strictly greater logit).  Row r has the tokens
    ``offsets[r]:offsets[r + 1]``, and item i the rows ``item_offsets[i]:item_offsets[i + 1]``;
    items may differ in their number of choices.  ``text``: the continuation of each row as it was
    scored, with the space it starts with, or None if it was not recorded.

    Three arrays, float64 [rows], describe rows that were observed without tokens, such as those of
    other tools' logs: ``totals`` (log-likelihood in nats), ``token_counts``, and ``all_greedy`` (1
    if every token was the likeliest, else 0).  They are NaN for rows with tokens and for unknown
    values, and None if no row has a value.  A row without tokens and without a total is missing.

    ``at_most``: rows whose log-probabilities are only upper bounds, bool [rows], or None if no row
    is.

    Raises StoreError if the arrays don't fit together.
    """

    tokens: npt.NDArray[np.int32]
    logprobs: npt.NDArray[np.float32]
    sizes: npt.NDArray[np.int32]
    ranks: npt.NDArray[np.int32]
    offsets: Integers
    text: Sequence[str | None]
    item_offsets: Integers
    totals: Floats | None = None
    token_counts: Floats | None = None
    all_greedy: Floats | None = None
    at_most: Mask | None = None

    def __post_init__(self) -> None:
        token_count = len(self.tokens)
        row_count = len(self.text)
        _check_length("logprobs", self.logprobs, token_count, "tokens")
        _check_length("sizes", self.sizes, token_count, "tokens")
        _check_length("ranks", self.ranks, token_count, "tokens")
        _check_offsets("offsets", self.offsets, token_count)
        _check_offsets("item_offsets", self.item_offsets, row_count)
        if len(self.offsets) != row_count + 1:
            raise StoreError(
                f"{row_count} continuation texts but {len(self.offsets) - 1} rows of tokens"
            )
        _check_length("totals", self.totals, row_count, "continuation texts")
        _check_length("token_counts", self.token_counts, row_count, "continuation texts")
        _check_length("all_greedy", self.all_greedy, row_count, "continuation texts")
        _check_length("at_most", self.at_most, row_count, "continuation texts")

    @cached_property
    def sums(self) -> Floats:
        """Return log P(continuation | context) in nats, float64 [rows]; NaN if missing."""
        if self.totals is None:
            return self.token_sums
        return np.where(self.counts > 0, self.token_sums, self.totals)

    @cached_property
    def token_sums(self) -> Floats:
        """Sum the log-probabilities of each row's tokens, float64 [rows]; NaN without tokens.

        Scores that need single tokens use it, since it is NaN where only the total was observed.
        """
        return self.reduce(np.add, self.logprobs)

    @cached_property
    def counts(self) -> Integers:
        """Count the tokens of each row, int64 [rows]; 0 if missing or observed without tokens."""
        return np.diff(self.offsets)

    @cached_property
    def digests(self) -> npt.NDArray[np.uint64]:
        """Digest the tokens of each row to one number, uint64 [rows]; 0 without tokens."""
        ids = np.ascontiguousarray(self.tokens, dtype=np.int32)
        digests = []
        for start, end in pairwise(self.offsets.tolist()):
            if start == end:
                digests.append(bytes(8))
            else:
                digests.append(blake2b(ids[start:end].tobytes(), digest_size=8).digest())
        return np.frombuffer(b"".join(digests), dtype=np.uint64)

    def token_ids(self, row: int) -> list[int]:
        """Return the token ids of one row."""
        return self.tokens[self.offsets[row] : self.offsets[row + 1]].tolist()

    def corrected(self, first: Floats, last: Floats) -> Continuations:
        """Return a copy with ``first`` and ``last`` added to the first and last token of each row.

        Both are nats, float64 [rows].  Every score computed from the copy then contains the
        correction of a boundary policy.  A NaN correction makes the row's sum NaN.
        """
        if not (first.any() or last.any()):
            return self
        present = self.counts > 0
        first_tokens = self.offsets[:-1][present]
        last_tokens = self.offsets[1:][present] - 1
        logprobs = self.logprobs.astype(np.float64)
        logprobs[first_tokens] += first[present]
        logprobs[last_tokens] += last[present]
        totals = self.totals
        if totals is not None:
            totals = totals + first + last
        return replace(self, logprobs=logprobs.astype(np.float32), totals=totals)

    def lowest(self) -> Continuations:
        """Return a copy in which every upper bound has its lowest possible value, log 0."""
        if self.at_most is None:
            return self
        token_at_most = self.at_most[row_of(self.offsets)]
        logprobs = np.where(token_at_most, np.float32(-np.inf), self.logprobs)
        totals = self.totals
        if totals is not None:
            totals = np.where(self.at_most, -np.inf, totals)
        return replace(self, logprobs=logprobs, totals=totals, at_most=None)

    def reduce(self, ufunc: np.ufunc, values: npt.ArrayLike) -> Floats:
        """Reduce ``values`` [tokens] with ``ufunc`` to float64 [rows]; NaN without tokens."""
        return reduce_rows(ufunc, values, self.offsets)


@dataclass(frozen=True, eq=False)
class Lows:
    """Keep the lowest possible values of those scores that are only upper bounds.

    Of ``count`` scores, those at the indices ``places`` are bounds, and ``values`` are the lowest
    values they may have.  The scores themselves hold the highest.
    """

    count: int
    places: Integers
    values: Floats

    @classmethod
    def of(cls, low: Floats, high: Floats) -> Lows:
        """Keep the scores of ``low`` that are below those of ``high``, float64 [rows] both."""
        places = np.flatnonzero(low < high)
        return cls(len(high), places, low[places])

    @classmethod
    def joined(cls, parts: Sequence[Lows]) -> Lows:
        """Return the values of all parts, in order."""
        count = 0
        places = []
        for part in parts:
            places.append(part.places + count)
            count += part.count
        values = [part.values for part in parts]
        return cls(count, np.concatenate(places), np.concatenate(values))

    def filled(self, scores: Floats) -> Floats:
        """Return the lowest values that all ``scores`` [rows] may have."""
        if not len(self.places):
            return scores
        low = scores.copy()
        low[self.places] = self.values
        return low


Range = tuple[Floats, Floats]
"""The lowest and the highest value of every score, float64 [rows] each; equal if it is exact."""


def without_bounds(scores: Floats, bounds: Mask) -> Range:
    """Return the range of ``scores`` [rows] with NaN for those that ``bounds`` [rows] marks.

    For scores that don't rise or fall with a log-probability, an upper bound tells nothing.
    """
    exact = np.where(bounds, np.nan, scores)
    return exact, exact


def known_range(low: Floats, high: Floats) -> Range:
    """Return the range with NaN at both ends if one end is NaN."""
    either = np.isnan(low) | np.isnan(high)
    return np.where(either, np.nan, low), np.where(either, np.nan, high)


def reduce_rows(ufunc: np.ufunc, values: npt.ArrayLike, offsets: Integers) -> Floats:
    """Reduce the values of each row with ``ufunc`` in float64; NaN for an empty row.

    ``offsets`` starts at 0, never falls and ends at ``len(values)``.  Returns float64
    [len(offsets) - 1].
    """
    starts = offsets[:-1]
    filled = np.diff(offsets) > 0
    reduced = np.full(len(starts), np.nan)
    if filled.any():
        # reduceat misreads empty rows, but they hold no values: a filled row ends where the next
        # filled one starts.
        numbers = np.asarray(values)
        # The greatest and the least are the same in any type, and quicker in a smaller one.
        if ufunc not in (np.maximum, np.minimum):
            numbers = numbers.astype(np.float64, copy=False)
        with np.errstate(invalid="ignore"):
            reduced[filled] = ufunc.reduceat(numbers, starts[filled])
    return reduced


def item_sum(rows: npt.ArrayLike, item_offsets: Integers) -> Floats:
    """Sum (or count, if bool) the rows of each item, float64 [items]; NaN if one is NaN."""
    return reduce_rows(np.add, rows, item_offsets)


def item_max(rows: npt.ArrayLike, item_offsets: Integers) -> Floats:
    """Return the greatest row of each item, float64 [items]; NaN if one is NaN."""
    return reduce_rows(np.maximum, rows, item_offsets)


def item_any(rows: Mask, item_offsets: Integers) -> Mask:
    """Mark the items of which a row is marked, bool [items]; an item without rows is not."""
    return np.nan_to_num(item_max(rows, item_offsets)) > 0


def item_first(rows: Mask, item_offsets: Integers) -> Floats:
    """Return the index among all rows of each item's first marked row, inf if none is."""
    index = np.where(rows, np.arange(len(rows)), np.inf)
    return reduce_rows(np.minimum, index, item_offsets)


def mean_of_present(values: Floats) -> float:
    """Return the mean of the values that are not NaN; NaN without any."""
    present = values[~np.isnan(values)]
    if not len(present):
        return math.nan
    return float(present.mean())


def offsets_from(sizes: npt.ArrayLike) -> Integers:
    """Return where each part begins and the last one ends if they are laid end to end.

    ``sizes``: the length of each part.  Int64 [parts + 1].
    """
    return np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])


def row_of(offsets: Integers) -> Integers:
    """Return for every value the row it lies in, int64 [values]."""
    return np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))


def by_length(offsets: Integers) -> Iterator[tuple[Integers, Integers]]:
    """Yield the rows of each length but 0, int64 [rows], and where their values are.

    The second array has shape [rows, length] and indexes the flat values.
    """
    lengths = np.diff(offsets)
    for length in np.unique(lengths[lengths > 0]).tolist():
        rows = np.flatnonzero(lengths == length)
        starts = offsets[:-1][rows]
        yield rows, starts[:, None] + np.arange(length)


def _check_length(name: str, values: npt.NDArray[np.generic] | None, count: int, unit: str) -> None:
    if values is not None and len(values) != count:
        raise StoreError(f"{count} {unit} but {len(values)} {name}; check the run folder")


def _check_offsets(name: str, offsets: Integers, end: int) -> None:
    from_zero_to_end = len(offsets) > 0 and offsets[0] == 0 and offsets[-1] == end
    if not from_zero_to_end or (np.diff(offsets) < 0).any():
        raise StoreError(
            f"{name} of the observed continuations must rise from 0 to {end}; check the run folder"
        )
