"""The columns of a table of log-likelihoods, whatever file it is in."""

from __future__ import annotations

import math
from collections.abc import Iterator
from csv import Error as CsvError
from csv import reader
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from choicewise.data.text_file import text_lines
from choicewise.errors import DataError, did_you_mean
from choicewise.interchange.logs.read.cells import NOTHING, number
from choicewise.interchange.logs.read.lines import objects
from choicewise.store.files import TABLE, open_file
from choicewise.store.unpacked import open_parquet, unpacked

NEEDED = ("item", "choice", "loglikelihood", "gold")
"""The columns that every table has."""

KNOWN = (*NEEDED, "text", "context", "subject", "question", "tokens", "is_greedy", "unconditional", "model", "task")
"""All columns that are read; the others are named as unused."""

NUMBERS = ("loglikelihood", "unconditional")
"""Columns of numbers in nats."""

PLAIN = ("item", "choice", "gold", "tokens")
"""Columns whose cells are names or counts, so that space around them means nothing."""

_SEPARATORS = {".csv": ",", ".tsv": "\t"}
_CHUNK = 100_000


@dataclass(frozen=True)
class Table:
    """Rows of ``path``.

    ``columns``: those of ``KNOWN`` that it has; texts, but for the numbers.  ``unused``: the names of the others.
    ``first``: where choices that are numbers are counted from (0 or 1), None where they are labels.
    """

    path: Path
    columns: pa.Table
    unused: tuple[str, ...]
    first: int | None = None

    def parts(self) -> Iterator[tuple[str | None, str | None, pa.Array | None]]:
        """(model, task, rows) for every model and task that it names; None and all rows where it names none."""
        names = [name for name in ("model", "task") if name in self.columns.column_names]
        if not names:
            yield None, None, None
            return
        groups = self.columns.select(names).group_by(names, use_threads=False).aggregate([]).to_pylist()
        for group in groups:
            masks = [_equal(self.columns[name], group[name]) for name in names]
            rows = pc.indices_nonzero(masks[0] if len(masks) == 1 else pc.and_(*masks))
            yield group.get("model"), group.get("task"), rows


def _equal(column: pa.ChunkedArray, value: str | None) -> pa.ChunkedArray:
    return pc.is_null(column) if value is None else pc.fill_null(pc.equal(column, value), False)


def read_table(path: Path) -> Table:
    """The rows of ``path``.  Raises DataError where columns are missing, a cell is no number, or it can't be read."""
    suffix = path.suffix.lower()
    if suffix == ".parquet":
        table = _parquet(path)
    elif suffix in _SEPARATORS:
        table = _separated(path, _SEPARATORS[suffix])
    else:
        table = _json_lines(path)
    names = [name.strip().lower() for name in table.column_names]
    if doubled := sorted({name for name in names if names.count(name) > 1}):
        raise DataError(f"{path} has two columns {doubled[0]!r}")
    if lacking := [name for name in NEEDED if name not in names]:
        hint = did_you_mean(lacking[0], table.column_names)
        raise DataError(f"{path} has no column {', '.join(lacking)}; it needs {', '.join(NEEDED)} ({hint})")
    unused = tuple(name for name, plain in zip(table.column_names, names, strict=True) if plain not in KNOWN)
    table = table.rename_columns(names).select([name for name in KNOWN if name in names])
    if not len(table):
        raise DataError(f"{path} has no rows")
    for place, name in enumerate(table.column_names):
        column = _numbers(table[name], path, name) if name in NUMBERS else _texts(table[name])
        table = table.set_column(place, name, _plain(column) if name in PLAIN else column)
    for name in ("item", "choice"):
        empty = pc.equal(pc.fill_null(table[name], ""), "")
        if (row := pc.index(empty, True).as_py()) >= 0:
            raise DataError(f"{path}, row {row + 1} (counted from 1, without the header) has no {name}")
    return Table(path, table, unused, _first(table["choice"], path))


def sorted_rows(table: Table, rows: pa.Array | None) -> Table:
    """The same with those ``rows`` alone (None: all), by item and choice; what is a number is sorted as a number."""
    columns = table.columns if rows is None else table.columns.take(rows)
    keys = {name: _sortable(columns[name]) for name in ("item", "choice")}
    order = pc.sort_indices(pa.table(keys), [("item", "ascending"), ("choice", "ascending")])
    if pc.all(pc.equal(order, pa.array(range(len(order)), pa.uint64()))).as_py():
        return replace(table, columns=columns)
    return replace(table, columns=columns.take(order))


def _sortable(column: pa.ChunkedArray) -> pa.ChunkedArray:
    plain = pc.all(pc.match_substring_regex(column, "^(0|[1-9][0-9]{0,17})$")).as_py()
    return column.cast(pa.int64()) if plain else column


def _first(choices: pa.ChunkedArray, path: Path) -> int | None:
    """Where the choices are counted from; None where they are labels."""
    if not pc.all(pc.match_substring_regex(choices, "^(0|[1-9][0-9]{0,8})$")).as_py():
        return None
    least = pc.min(choices.cast(pa.int64())).as_py()
    if least > 1:
        raise DataError(f"{path}: the choices are counted from {least}; they must begin with 0 or 1")
    return int(least)


def _parquet(path: Path) -> pa.Table:
    try:
        with open_file(path, TABLE) as file:
            table = open_parquet(file)
            unpacked(file)
            return table.read(use_threads=False)
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path} can't be read as Parquet: {error}") from error


def _separated(path: Path, separator: str) -> pa.Table:
    from pyarrow import csv

    _check_text(path)
    try:
        names = next(iter(reader(text_lines(path), delimiter=separator)))
        if separator == "," and len(names) == 1 and ";" in names[0]:
            separator = ";"
            names = next(iter(reader(text_lines(path), delimiter=separator)))
    except CsvError as error:
        raise DataError(f"{path} can't be read as a table: {error}") from error
    options = csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=False)
    parsing = csv.ParseOptions(delimiter=separator, newlines_in_values=True)
    try:
        return csv.read_csv(path, csv.ReadOptions(use_threads=False), parsing, options)
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path} can't be read as a table: {error}") from error


def _check_text(path: Path) -> None:
    """DataError where the file is empty, not UTF-8, or has a quote that is never closed."""
    empty, quotes, opened = True, 0, 0
    for place, line in enumerate(text_lines(path), start=1):
        empty = empty and not line.strip()
        if line.count('"') % 2:
            quotes += 1
            opened = place if quotes % 2 else opened
    if quotes % 2:
        raise DataError(
            f"{path}: the quote that opens in line {opened} or before is never closed; was the file cut off?"
        )
    if empty:
        raise DataError(f"{path} is empty")


def _json_lines(path: Path) -> pa.Table:
    names: dict[str, None] = {}
    parts: list[pa.Table] = []
    rows: list[dict[str, Any]] = []

    def filled() -> pa.Table:
        columns = {name: pa.array([_spelled(row.get(name)) for row in rows], pa.string()) for name in names}
        return pa.table(columns)

    for _, _, row in objects(path):
        names.update(dict.fromkeys(row))
        rows.append(row)
        if len(rows) == _CHUNK:
            parts.append(filled())
            rows = []
    parts.append(filled())
    if not names:
        raise DataError(f"{path} is empty")
    return pa.concat_tables(parts, promote_options="default")


def _spelled(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return str(value)


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The cells without the space around them; whole numbers alone, as ``1.0``, without their point."""
    trimmed = pc.utf8_trim_whitespace(column)
    whole = pc.all(pc.match_substring_regex(trimmed, r"^([0-9]+\.0+)?$"), min_count=0).as_py()
    return pc.replace_substring_regex(trimmed, r"\.0+$", "") if whole else trimmed


def _texts(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The column as texts; whole numbers that are stored as floats are spelled as such."""
    if pa.types.is_dictionary(column.type):
        column = pc.cast(column, column.type.value_type)
    if pa.types.is_floating(column.type):
        return pa.chunked_array([pa.array(map(_whole, column.to_pylist()), pa.string())])
    if pa.types.is_string(column.type):
        return column
    if pa.types.is_large_string(column.type) or pa.types.is_integer(column.type) or pa.types.is_boolean(column.type):
        return column.cast(pa.string())
    return pa.chunked_array([pa.array([_spelled(value) for value in column.to_pylist()], pa.string())])


def _whole(value: float | None) -> str | None:
    if value is None or math.isnan(value):
        return None
    return str(int(value)) if value.is_integer() else repr(value)


def _numbers(column: pa.ChunkedArray, path: Path, name: str) -> pa.ChunkedArray:
    """The column as numbers, null where there is none; NaN is none."""
    if pa.types.is_floating(column.type) or pa.types.is_integer(column.type):
        numbers = column.cast(pa.float64())
    else:
        texts = pc.utf8_trim_whitespace(_texts(column))
        given = pc.if_else(pc.is_in(pc.utf8_lower(texts), pa.array(sorted(NOTHING))), None, texts)
        try:
            numbers = given.cast(pa.float64())
        except pa.ArrowException:
            numbers = pa.chunked_array([pa.array(_one_by_one(given, path, name), pa.float64())])
    return pc.if_else(pc.is_nan(numbers), None, numbers)


def _one_by_one(column: pa.ChunkedArray, path: Path, name: str) -> Iterator[float | None]:
    for row, cell in enumerate(column.to_pylist(), start=1):
        yield number(cell, f"{path}, row {row} (counted from 1, without the header): {name}")
