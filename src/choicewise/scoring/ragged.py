"""Rows of differing length in one flat array: row r is ``values[offsets[r]:offsets[r + 1]]``."""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


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
