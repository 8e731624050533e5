"""Rows of a Parquet file."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from choicewise.data.cell import UnusableRow
from choicewise.errors import DataError

BUFFER: Final = 1 << 18
"""Bytes of a column that are read at a time; else whole columns of a million rows are."""

CHUNK: Final = 2048
"""Rows that are Python values at a time."""


def parquet_rows(path: Path) -> Iterator[dict[str, Any] | UnusableRow]:
    """Every row by the columns' names.  Raises DataError for a damaged file or a column that holds broken text."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path, buffer_size=BUFFER, pre_buffer=False) as file:
            for batch in file.iter_batches(CHUNK, use_threads=False):  # each thread would keep memory of its own
                names = batch.schema.names
                columns = [_cells(path, name, column) for name, column in zip(names, batch.columns, strict=True)]
                yield from (dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True))
        pa.default_memory_pool().release_unused()
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path} can't be read as Parquet: {error}") from error


def _cells(path: Path, name: str, column: Any) -> list[Any]:
    try:
        return column.to_pylist()
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: column {name} holds bytes that are not UTF-8: {error}") from error
