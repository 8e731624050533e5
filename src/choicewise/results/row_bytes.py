"""The rows of a column as bytes, for the digests of a million items."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from choicewise.scoring.ragged import Integers

_INT = np.dtype("<i4")


def row_bytes(column: pa.ChunkedArray) -> Iterator[bytes]:
    """Every row of a column of texts, of lists of texts or of lists of numbers: equal bytes for equal rows alone.

    A row is how many values it has (-1 for null), the bytes of each, and the values one after the other.
    """
    array = column.combine_chunks()
    if pa.types.is_list(array.type):
        counts, values = pc.fill_null(pc.list_value_length(array), -1).to_numpy(), pc.list_flatten(array)
    else:
        counts = np.where(pc.is_valid(array).to_numpy(zero_copy_only=False), 1, -1)
        values = pc.drop_null(array)
    counted = counts.astype(_INT).tobytes()
    ends = np.concatenate([[0], np.cumsum(np.maximum(counts, 0))])
    sized, data, places = _values(values)
    starts, sizes = places[ends].tolist(), (_INT.itemsize * ends).tolist()
    for row in range(len(counts)):
        count = counted[_INT.itemsize * row : _INT.itemsize * (row + 1)]
        yield count + sized[sizes[row] : sizes[row + 1]] + data[starts[row] : starts[row + 1]]


def _values(values: pa.Array) -> tuple[bytes, bytes, Integers]:
    """The bytes of each value counted in an int32, those of all values, and where each begins and the last one ends."""
    if pa.types.is_string(values.type):
        sizes, content = pc.binary_length(values).to_numpy(), values.cast(pa.binary())
        _, offsets, buffer = content.buffers()
        start = int(np.frombuffer(offsets, np.int32)[content.offset]) if len(values) else 0
        data = bytes(buffer or b"")[start:]
    else:
        numbers = values.to_numpy()
        sizes, data = np.full(len(numbers), numbers.itemsize), numbers.tobytes()
    places = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
    return sizes.astype(_INT).tobytes(), data, places
