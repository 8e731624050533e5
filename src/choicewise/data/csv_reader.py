"""Rows of a CSV file, every cell the text it is."""

import csv
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from choicewise.data.cell import UnusableRow, repeated
from choicewise.data.text_file import read_text
from choicewise.errors import DataError


def cells(path: Path) -> list[list[str]]:
    """Every row that is not a blank line, header or not, as texts: no text becomes a number or a missing value.

    Raises DataError when the file is not UTF-8, or a quote is never closed or closed inside a cell: the cells after it
    can't be separated, so no row can be skipped.
    """
    source = read_text(path)
    limit = csv.field_size_limit()  # the csv module has one limit for the whole process
    try:
        csv.field_size_limit(max(limit, len(source)))
        reader = csv.reader(io.StringIO(source, newline=""), strict=True)
        return [row for row in reader if row]
    except csv.Error as error:
        raise DataError(f"{path} is no CSV, at line {reader.line_num} (from 1): {error}; check its quotes") from error
    finally:
        csv.field_size_limit(limit)


def csv_rows(path: Path) -> Iterator[dict[str, Any] | UnusableRow]:
    """Every row after the header by the header's names, or why its cells don't fit the header.

    Raises DataError as `cells` does, and when two columns of the header have the same name.
    """
    header, *rows = cells(path) or [[]]
    if (name := repeated(header)) is not None:
        raise DataError(f"{path}: the header names two columns {name!r}; rename one of them")
    for row in rows:
        if len(row) == len(header):
            yield dict(zip(header, row, strict=True))
        else:
            yield UnusableRow(f"{len(row)} cells under a header of {len(header)}")
