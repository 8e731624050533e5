"""Rows of a CSV file, every cell the text it is."""

import csv
import io
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Final

from choicewise.data.cell import UnusableRow, repeated
from choicewise.data.text_file import text_lines
from choicewise.errors import DataError

CHUNK: Final = 1000
"""Rows that are read at a time."""


def cells(path: Path) -> Iterator[list[str]]:
    """Every row that is not a blank line, header or not, as texts: no text becomes a number or a missing value.

    Raises DataError when the file is not UTF-8, or a quote is never closed or closed inside a cell: the cells after it
    can't be separated, so no row can be skipped.
    """
    reader = csv.reader(_lines(path), strict=True)
    while rows := _next_rows(path, reader):
        yield from filter(None, rows)


def _lines(path: Path) -> Iterator[str]:
    r"""The lines of a file, which may also end in ``\r``, as files of old Macintoshes do."""
    for line in text_lines(path):
        if "\r" in line:
            yield from io.StringIO(line, newline="")
        else:
            yield line


def _next_rows(path: Path, reader: Any) -> list[list[str]]:
    limit = csv.field_size_limit()  # the csv module has one limit for the whole process
    try:
        csv.field_size_limit(max(limit, path.stat().st_size))
        return list(islice(reader, CHUNK))
    except csv.Error as error:
        raise DataError(f"{path} is no CSV, at line {reader.line_num} (from 1): {error}; check its quotes") from error
    finally:
        csv.field_size_limit(limit)


def csv_rows(path: Path) -> Iterator[dict[str, Any] | UnusableRow]:
    """Every row after the header by the header's names, or why its cells don't fit the header.

    Raises DataError as `cells` does, and when two columns of the header have the same name.
    """
    rows = cells(path)
    header = next(rows, [])
    if (name := repeated(header)) is not None:
        raise DataError(f"{path}: the header names two columns {name!r}; rename one of them")
    for row in rows:
        if len(row) == len(header):
            yield dict(zip(header, row, strict=True))
        else:
            yield UnusableRow(f"{len(row)} cells under a header of {len(header)}")
