"""Observed continuations as ragged arrays, bounds."""

from __future__ import annotations

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
    """One row per (item, choice), the choices of an item next to each other; each row a run of tokens.

    Flat over tokens: ``tokens`` (ids), ``logprobs`` (nats), ``sizes`` (bytes each token stands for) and ``ranks``
    (vocabulary entries with a strictly greater logit).  Row r has the tokens ``offsets[r]:offsets[r + 1]``.  ``text``:
    each row's continuation as it was scored, with the space it starts with, None where it is not known.  Item i has the
    rows ``item_offsets[i]:item_offsets[i + 1]``; items may differ in how many choices they have.

    Of the rows observed without tokens, as in other tools' logs: ``totals``, their log-likelihood (nats),
    ``token_counts``, how many tokens they had, and ``all_greedy``, whether each of those was the likeliest (1 or 0);
    float64 [rows], NaN elsewhere and where it is not known, None where no row has any.  A row without tokens and
    without a total is missing.

    ``at_most``: the rows whose log-probabilities are no more than upper bounds, bool [rows]; None where there are none.

    Raises StoreError when the arrays don't fit together.
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
        for name in ("logprobs", "sizes", "ranks"):
            if (length := len(getattr(self, name))) != len(self.tokens):
                raise StoreError(
                    f"{len(self.tokens)} tokens but {length} {name}; check the run folder"
                )
        _check_offsets("offsets", self.offsets, len(self.tokens))
        _check_offsets("item_offsets", self.item_offsets, len(self.text))
        if len(self.offsets) != len(self.text) + 1:
            raise StoreError(
                f"{len(self.text)} continuation texts but {len(self.offsets) - 1} rows of tokens"
            )
        for name in ("totals", "token_counts", "all_greedy", "at_most"):
            given = getattr(self, name)
            if given is not None and len(given) != len(self.text):
                raise StoreError(
                    f"{len(self.text)} continuation texts but {len(given)} {name}; check the run folder"
                )

    @cached_property
    def sums(self) -> Floats:
        """log P(continuation | context) of each row in nats, float64 [rows]; NaN where missing."""
        return (
            self.token_sums
            if self.totals is None
            else np.where(self.counts > 0, self.token_sums, self.totals)
        )

    @cached_property
    def token_sums(self) -> Floats:
        """The same, but NaN also where only the total was observed: for scores that need the tokens."""
        return self.reduce(np.add, self.logprobs)

    @cached_property
    def counts(self) -> Integers:
        """Tokens of each row, int64 [rows]; 0 where missing or observed without tokens."""
        return np.diff(self.offsets)

    @cached_property
    def digests(self) -> npt.NDArray[np.uint64]:
        """A number for the tokens of each row, uint64 [rows]: the same for the same tokens, 0 for none."""
        ids = np.ascontiguousarray(self.tokens, dtype=np.int32)
        rows = (ids[start:end].tobytes() for start, end in pairwise(self.offsets.tolist()))
        digests = [blake2b(row, digest_size=8).digest() if row else bytes(8) for row in rows]
        return np.frombuffer(b"".join(digests), dtype=np.uint64)

    def token_ids(self, row: int) -> list[int]:
        """The tokens of one row."""
        return self.tokens[self.offsets[row] : self.offsets[row + 1]].tolist()

    def corrected(self, first: Floats, last: Floats) -> Continuations:
        """The same with ``first`` and ``last`` (nats, [rows]) added at the first and the last token of each row.

        So every score has the correction of a boundary policy; where it is NaN the row's sum is NaN.
        """
        if not (first.any() or last.any()):
            return self
        present = self.counts > 0
        logprobs = self.logprobs.astype(np.float64)
        logprobs[self.offsets[:-1][present]] += first[present]
        logprobs[self.offsets[1:][present] - 1] += last[present]
        totals = None if self.totals is None else self.totals + first + last
        return replace(self, logprobs=logprobs.astype(np.float32), totals=totals)

    def lowest(self) -> Continuations:
        """The same with every upper bound at the lowest that it allows: impossible."""
        if self.at_most is None:
            return self
        logprobs = np.where(self.at_most[row_of(self.offsets)], np.float32(-np.inf), self.logprobs)
        totals = None if self.totals is None else np.where(self.at_most, -np.inf, self.totals)
        return replace(self, logprobs=logprobs, totals=totals, at_most=None)

    def reduce(self, ufunc: np.ufunc, values: npt.ArrayLike) -> Floats:
        """``ufunc.reduce`` of each row's share of ``values`` [tokens], float64 [rows]; NaN where missing."""
        return reduce_rows(ufunc, values, self.offsets)


@dataclass(frozen=True, eq=False)
class Lows:
    """Of ``count`` scores those that are not known: ``values`` [unknown], the lowest that they may be, at ``places``.

    The scores themselves are the highest that they may be.
    """

    count: int
    places: Integers
    values: Floats

    @classmethod
    def of(cls, low: Floats, high: Floats) -> Lows:
        """The scores of ``high`` that ``low`` has lower, [rows] each."""
        places = np.flatnonzero(low < high)
        return cls(len(high), places, low[places])

    @classmethod
    def joined(cls, parts: Sequence[Lows]) -> Lows:
        """Those of all parts, in order."""
        starts = np.cumsum([0, *(part.count for part in parts)])
        places = [part.places + start for part, start in zip(parts, starts, strict=False)]
        return cls(
            int(starts[-1]), np.concatenate(places), np.concatenate([part.values for part in parts])
        )

    def filled(self, scores: Floats) -> Floats:
        """The lowest that all ``scores`` [rows] may be."""
        if not len(self.places):
            return scores
        low = scores.copy()
        low[self.places] = self.values
        return low


Range = tuple[Floats, Floats]
"""The lowest and the highest that every score may be, float64 [rows] each: the same where it is known."""


def not_known(scores: Floats, bounds: Floats) -> Range:
    """The scores but for those where ``bounds`` (bool or 0 and 1, [rows]) says that they are made of upper bounds."""
    known = np.where(bounds, np.nan, scores)
    return known, known


def reduce_rows(ufunc: np.ufunc, values: npt.ArrayLike, offsets: Integers) -> Floats:
    """One number per row: ``ufunc.reduce`` of it in float64, NaN for an empty row.

    ``offsets`` starts at 0, never falls and ends at ``len(values)``; returns float64 [len(offsets) - 1].
    """
    starts, filled = offsets[:-1], np.diff(offsets) > 0
    reduced = np.full(len(starts), np.nan)
    if filled.any():
        # reduceat misreads empty rows, but they hold no values: each filled row ends where the next filled one starts.
        with np.errstate(invalid="ignore"):  # a value that is not a number gives a row that is none
            reduced[filled] = ufunc.reduceat(np.asarray(values, dtype=np.float64), starts[filled])
    return reduced


def row_of(offsets: Integers) -> Integers:
    """For every value the row it lies in; int64 [values]."""
    return np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))


def by_length(offsets: Integers) -> Iterator[tuple[Integers, Integers]]:
    """(rows, places of their values) for every length that rows have but 0, int64 [rows] and [rows, length]."""
    lengths = np.diff(offsets)
    for length in np.unique(lengths[lengths > 0]).tolist():
        rows = np.flatnonzero(lengths == length)
        yield rows, offsets[:-1][rows][:, None] + np.arange(length)


def _check_offsets(name: str, offsets: Integers, end: int) -> None:
    if len(offsets) == 0 or offsets[0] != 0 or offsets[-1] != end or (np.diff(offsets) < 0).any():
        raise StoreError(
            f"{name} of the observed continuations must rise from 0 to {end}; check the run folder"
        )
