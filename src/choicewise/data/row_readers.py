"""The file formats that hold rows with named columns: a new one is its reader and one line here."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from choicewise.data.cell import UnusableRow
from choicewise.data.csv_reader import csv_rows
from choicewise.data.jsonl_reader import jsonl_rows
from choicewise.data.parquet_reader import parquet_rows

ROW_READERS: Final[Mapping[str, Callable[[Path], Iterator[dict[str, Any] | UnusableRow]]]] = {
    ".jsonl": jsonl_rows,
    ".csv": csv_rows,
    ".parquet": parquet_rows,
}
"""File suffix → what reads the file's rows: each by the columns' names, or why it can't be read."""
