"""Read tables of log-likelihoods (CSV, Parquet, JSON Lines), with a row for each choice."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from choicewise.data.files import csv_rows, parquet_rows
from choicewise.errors import DataError, UnusableRow, did_you_mean
from choicewise.extensions.interop.logs.files import (
    NOTHING,
    first_object,
    flag,
    head,
    index,
    number,
    objects,
)
from choicewise.logs import AVERAGES, Log, LoggedChoice, LoggedItem, Reread
from choicewise.util.files import TABLE, open_file
from choicewise.util.jsonio import JsonDict, JsonMapping
from choicewise.util.tables import open_parquet

BATCH = 10_000
"""Rows that become items at once."""


def recognises(path: Path) -> bool:
    """Return whether ``path`` is a table with some of the columns that are read."""
    if not path.is_file():
        return False
    suffix = path.suffix.lower()
    if suffix in _SHEETS:
        columns = head(path).partition("\n")[0].lower()
        return sum(name in columns for name in NEEDED) >= 2
    if suffix == ".parquet":
        try:
            with open_file(path, TABLE) as file:
                names = _plain_names(open_parquet(file).schema_arrow.names)
        except (pa.ArrowException, OSError):
            return False
        return len(set(names).intersection(NEEDED)) >= 2
    return {"item", "loglikelihood"}.issubset(_plain_names(first_object(path)))


def _plain_names(names: Iterable[str]) -> list[str]:
    return [name.strip().lower() for name in names]


def read_logs(paths: Sequence[Path], results: Path | None) -> Iterator[Log]:
    """Yield a log for each model and task.  Raises DataError for ``results``."""
    if results is not None:
        raise DataError(
            f"{results}: a table of log-likelihoods needs no file of results; leave it out"
        )
    for path in paths:
        table = read_table(path)
        unused: tuple[str, ...] = ()
        if table.unused:
            unused = (f"columns {', '.join(table.unused)}",)
        null = None
        if "unconditional" in table.columns.column_names:
            null = ""
        for model, task_or_none, rows_of_part in table.parts():
            task = task_or_none or "log"
            rows = sorted_rows(table, rows_of_part)
            gold, golds = golds_of(rows)
            yield Log(
                tool="a table",
                model=model or path.stem,
                task=task,
                items=Reread(partial(_items, rows, golds)),
                settings={"file": path.name, "gold": gold},
                null=null,
                unused=unused,
                aggregations=_aggregations(rows.columns, f"{path}, task {task}"),
            )


@dataclass(frozen=True)
class Table:
    """Hold the rows of ``path``.

    ``columns``: texts and numbers, those of ``KNOWN`` that the file has.  ``unused``: the names of
    other columns.  ``first``: the number of the first choice (0 or 1), None if choices are labels.
    """

    path: Path
    columns: pa.Table
    unused: tuple[str, ...]
    first: int | None = None

    def parts(self) -> Iterator[tuple[str | None, str | None, pa.Array | None]]:
        """Yield every model and task, None if the table lacks them, and their rows, None for all."""
        names = [name for name in ("model", "task") if name in self.columns.column_names]
        if not names:
            yield None, None, None
            return
        numbers = pa.array(range(len(self.columns)))
        numbered = self.columns.select(names).append_column("row", numbers)
        groups = numbered.group_by(names, use_threads=False).aggregate([("row", "list")])
        for group in groups.to_pylist():
            yield group.get("model"), group.get("task"), pa.array(group["row_list"])


Golds = Callable[[Sequence[JsonDict], Sequence[str], str], tuple[int, ...]]
"""Returns the indices of the right choices, given an item's rows, its choices and its name."""


def _items(table: Table, golds: Golds) -> Iterator[LoggedItem]:
    """Yield the items of rows that are sorted by item and choice."""
    rows: list[JsonDict] = []
    for start in range(0, len(table.columns), BATCH):
        for row in table.columns.slice(start, BATCH).to_pylist():
            if rows and row["item"] != rows[0]["item"]:
                yield _item(table, golds, rows)
                rows = []
            rows.append(row)
    if rows:
        yield _item(table, golds, rows)


def _item(table: Table, golds: Golds, rows: Sequence[JsonDict]) -> LoggedItem:
    name = rows[0]["item"]
    where = f"{table.path}, item {name!r}"
    row_of_choice: dict[str, JsonDict] = {}
    for row in rows:
        if row["choice"] in row_of_choice:
            raise DataError(
                f"{where} has two rows for choice {row['choice']}; if they are of two models, add "
                "a column `model`"
            )
        row_of_choice[row["choice"]] = row
    labels = list(row_of_choice)
    if table.first is not None:
        labels = _without_gaps(labels, table.first, where)
    context = _shared(rows, "context")
    has_contexts = context is None and "context" in rows[0]
    choices = []
    for label in labels:
        row_or_none = row_of_choice.get(label)
        choice = _choice(row_or_none, f"{where}, choice {label}")
        if has_contexts and row_or_none is not None:
            choice = replace(choice, context=row_or_none.get("context"))
        choices.append(choice)
    return LoggedItem(
        id=name,
        gold=golds(rows, labels, where),
        choices=tuple(choices),
        context=context,
        subject=_shared(rows, "subject") or "",
        question=_shared(rows, "question"),
    )


def _without_gaps(labels: Sequence[str], first: int, where: str) -> list[str]:
    """Return the numbers of all choices: the choice of a gap is missing."""
    numbers = list(map(int, labels))
    last = max(numbers)
    if min(numbers) < first or last > first + 10_000:
        raise DataError(f"{where} has choice {min(numbers)} to {last}; they count from 0 or from 1")
    return list(map(str, range(first, last + 1)))


def _shared(rows: Sequence[JsonDict], column: str) -> str | None:
    """Return the text of a column that all rows of an item have, None if they differ."""
    text: str | None = rows[0].get(column)
    if any(row.get(column) != text for row in rows):
        return None
    return text


def _choice(row: JsonDict | None, where: str) -> LoggedChoice:
    if row is None:
        return LoggedChoice(missing="the log has no row for it")
    tokens = None
    cell = row.get("tokens")
    if cell not in (None, ""):
        tokens = index(cell)
        if tokens is None or tokens < 1:
            raise DataError(f"{where}: tokens is {cell!r}; it must be a whole number from 1")
    return LoggedChoice(
        loglikelihood=row["loglikelihood"],
        text=row.get("text"),
        tokens=tokens,
        greedy=flag(row.get("is_greedy"), f"{where}, is_greedy"),
        unconditional=row.get("unconditional"),
    )


NEEDED = ("item", "choice", "loglikelihood", "gold")
"""Columns that every table has."""

KNOWN = (
    *NEEDED,
    "text",
    "context",
    "subject",
    "question",
    "tokens",
    "is_greedy",
    "unconditional",
    "model",
    "task",
    "aggregation",
)
"""All columns that are read; others are named as unused."""

_SHEETS = (".csv", ".tsv")
_CHUNK = 100_000


def read_table(path: Path) -> Table:
    """Read the rows of ``path``.

    Raises DataError if columns are missing, a cell is no number, or the file can't be read.
    """
    table = _text_columns(path)
    names = _plain_names(table.column_names)
    # Two columns may differ in capitals and white space alone.
    _check_names(path, names, table.column_names)
    unused = []
    for name, plain in zip(table.column_names, names, strict=True):
        if plain not in KNOWN:
            unused.append(name)
    table = table.rename_columns(names).select([name for name in KNOWN if name in names])
    columns = {}
    for name in table.column_names:
        column = table[name]
        if name in ("loglikelihood", "unconditional"):
            column = _numbers(column, path, name)
        elif name in ("item", "choice", "gold", "tokens"):
            # In names and counts the white space at the ends means nothing.
            column = _plain(column)
        columns[name] = column
    for name in ("item", "choice"):
        empty = pc.equal(pc.fill_null(columns[name], ""), "")
        row = pc.index(empty, True).as_py()
        if row >= 0:
            raise DataError(
                f"{path}, row {row + 1} (counted from 1, without the header) has no {name}"
            )
    return Table(path, pa.table(columns), tuple(unused), _first(columns["choice"], path))


def _check_names(path: Path, names: Sequence[str], spelled: Sequence[str]) -> None:
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise DataError(f"{path} has two columns {repeated[0]!r}")
    absent = [name for name in NEEDED if name not in names]
    if absent:
        hint = did_you_mean(absent[0], spelled)
        raise DataError(
            f"{path} has no column {', '.join(absent)}; it needs {', '.join(NEEDED)} ({hint})"
        )


def sorted_rows(table: Table, rows: pa.Array | None) -> Table:
    """Return the table of ``rows`` (None: all), sorted by item and choice, numbers as numbers."""
    columns = table.columns
    if rows is not None:
        columns = columns.take(rows)
    keys = {name: _sortable(columns[name]) for name in ("item", "choice")}
    order = pc.sort_indices(pa.table(keys), [("item", "ascending"), ("choice", "ascending")])
    return replace(table, columns=columns.take(order))


def _sortable(column: pa.ChunkedArray) -> pa.ChunkedArray:
    # "10" comes after "9" only as a number, but "007" is a name.
    if not pc.all(pc.match_substring_regex(column, "^(0|[1-9][0-9]{0,17})$")).as_py():
        return column
    return column.cast(pa.int64())


def _first(choices: pa.ChunkedArray, path: Path) -> int | None:
    """Return the number from which choices are counted, None if they are labels."""
    if not pc.all(pc.match_substring_regex(choices, "^(0|[1-9][0-9]{0,8})$")).as_py():
        return None
    least = pc.min(choices.cast(pa.int64())).as_py()
    if least > 1:
        raise DataError(
            f"{path}: the choices are counted from {least}; they must begin with 0 or 1"
        )
    return int(least)


def _text_columns(path: Path) -> pa.Table:
    """Return all columns as texts.  Raises DataError for a file without rows."""
    tables = []
    rows = _rows(path)
    # Rows are Python values for a moment only, as there may be millions.
    while portion := list(islice(rows, _CHUNK)):
        names: dict[str, None] = {}
        for row in portion:
            names.update(dict.fromkeys(row))
        columns = {}
        for name in names:
            columns[name] = pa.array([_spelled(row.get(name)) for row in portion], pa.string())
        tables.append(pa.table(columns))
    if not any(table.column_names for table in tables):
        raise DataError(f"{path} has no rows")
    return pa.concat_tables(tables, promote_options="default")


def _rows(path: Path) -> Iterator[JsonMapping]:
    suffix = path.suffix.lower()
    if suffix == ".parquet":
        rows = parquet_rows(path)
    elif suffix in _SHEETS:
        rows = csv_rows(path)
    else:
        rows = (row for _, _, row in objects(path))
    for row_number, row in enumerate(rows, start=1):
        if isinstance(row, UnusableRow):
            raise DataError(
                f"{path}, row {row_number} (counted from 1, without the header): {row.message}; "
                "correct it"
            )
        if suffix == ".parquet":
            row = {name: _stored(cell) for name, cell in row.items()}
        yield row


def _stored(cell: Any) -> Any:
    """Return a cell of a Parquet file: whole numbers lose the point of a float, and NaN is none."""
    if not isinstance(cell, float):
        return cell
    if math.isnan(cell):
        return None
    return f"{cell:.0f}" if cell.is_integer() else cell


def _spelled(value: Any) -> str | None:
    return None if value is None else str(value)


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Strip the cells; whole numbers such as ``1.0`` lose their point if all are whole."""
    trimmed = pc.utf8_trim_whitespace(column)
    is_whole = pc.match_substring_regex(trimmed, r"^([0-9]+\.0+)?$")
    if not pc.all(is_whole, min_count=0).as_py():
        return trimmed
    return pc.replace_substring_regex(trimmed, r"\.0+$", "")


def _numbers(column: pa.ChunkedArray, path: Path, name: str) -> pa.ChunkedArray:
    """Return the column as numbers, null for cells without one; NaN is none."""
    texts = pc.utf8_trim_whitespace(column)
    is_nothing = pc.is_in(pc.utf8_lower(texts), pa.array(sorted(NOTHING)))
    texts = pc.if_else(is_nothing, None, texts)
    try:
        numbers = texts.cast(pa.float64())
    except pa.ArrowException:
        # Python reads some more spellings of numbers, and the error names the row.
        cells = []
        for row, cell in enumerate(texts.to_pylist(), start=1):
            where = f"{path}, row {row} (counted from 1, without the header): {name}"
            cells.append(number(cell, where))
        numbers = pa.chunked_array([pa.array(cells, pa.float64())])
    return pc.if_else(pc.is_nan(numbers), None, numbers)


_TRUE = ("true", "1", "1.0")
_FALSE = ("false", "0", "0.0")


def _aggregations(columns: pa.Table, where: str) -> tuple[str, ...]:
    """Return how the numbers of a task average the subjects, the first for every score.

    Raises DataError if the column ``aggregation`` has an unknown value, or two.
    """
    if "aggregation" not in columns.column_names:
        return ("micro",)
    cells = pc.fill_null(columns["aggregation"], "")
    cell, *others = pc.unique(pc.utf8_lower(pc.utf8_trim_whitespace(cells))).to_pylist()
    if others:
        raise DataError(
            f"{where}: aggregation is {cell!r} and {others[0]!r}; write one value on all of its rows"
        )
    if not cell:
        return ("micro",)
    names = dict.fromkeys(name.strip() for name in cell.split(","))
    for name in names:
        if name not in AVERAGES:
            raise DataError(f"{where}: aggregation is {name!r}; it must be {' or '.join(AVERAGES)}")
    return tuple(names)


def golds_of(table: Table) -> tuple[str, Golds]:
    """Return how the column ``gold`` is read, in words, and a function that reads it.

    It names the right choice, or a list of them, on every row of its item, by the numbers or labels
    of the column ``choice``.  If its cells differ within an item, or are true and false and no
    labels, they are flags: whether the choice of their row is right.
    """
    items = table.columns["item"].combine_chunks()
    golds = pc.utf8_lower(pc.utf8_trim_whitespace(table.columns["gold"])).combine_chunks()
    # A comparison with null is neither true nor false: an empty cell differs from a filled one.
    golds = pc.fill_null(golds, "")
    # A column of 0 and 1 may hold flags or indices of two choices.
    cells = set(pc.unique(golds).to_pylist())
    row = _differing_row(items, golds)
    if cells <= {"true", "false"}:
        # Of a question with yes or no these may be the labels of its choices.
        labels = set(pc.unique(pc.utf8_lower(table.columns["choice"])).to_pylist())
        if row is not None or labels.isdisjoint(cells):
            return ("true on the rows of right choices", _flagged)
    if row is None:
        return ("the right choices of the item, on each of its rows", _named)
    if cells.issubset(_TRUE + _FALSE) and _differs_everywhere(table):
        return ("1 on the rows of right choices, 0 on the others", _flagged)
    raise DataError(
        f"{table.path}, item {items[row].as_py()!r}: gold differs between its rows, "
        "but not in other items, or is not 0 or 1; write the right choice on every row of an item, "
        "or true and false on all"
    )


def _differing_row(items: pa.Array, golds: pa.Array) -> int | None:
    """Return a row whose gold differs from the row before it of the same item, or None."""
    if len(items) < 2:
        return None
    is_same_item = pc.equal(items[1:], items[:-1])
    is_other_gold = pc.not_equal(golds[1:], golds[:-1])
    row = int(pc.index(pc.and_(is_same_item, is_other_gold), True).as_py())
    if row < 0:
        return None
    return row + 1


def _differs_everywhere(table: Table) -> bool:
    """Return whether every item has a row with 1 and another one with 0."""
    is_right = pc.is_in(pc.utf8_trim_whitespace(table.columns["gold"]), pa.array(_TRUE))
    flags = pa.table({"item": table.columns["item"], "right": is_right.cast(pa.int8())})
    items = flags.group_by("item").aggregate([("right", "min"), ("right", "max")])
    return bool(pc.all(pc.not_equal(items["right_min"], items["right_max"])).as_py())


def _flagged(rows: Sequence[JsonDict], labels: Sequence[str], where: str) -> tuple[int, ...]:
    right = {row["choice"] for row in rows if str(row["gold"]).strip().lower() in _TRUE}
    if len(right) == len(rows) > 1:
        raise DataError(
            f"{where}: gold is true on all of its rows; write true on the rows of right choices alone"
        )
    return tuple(choice for choice, label in enumerate(labels) if label in right)


def _named(rows: Sequence[JsonDict], labels: Sequence[str], where: str) -> tuple[int, ...]:
    names = _list(rows[0]["gold"], where)
    for name in names:
        if name not in labels:
            raise DataError(
                f"{where}: gold is {name!r}, but its choices are "
                f"{', '.join(labels)}; write it as in the column choice"
            )
    return tuple(map(labels.index, names))


def _list(cell: str | None, where: str) -> list[str]:
    """Return the choices in a cell: one, a JSON list of them, or none if it is empty."""
    text = (cell or "").strip()
    if not text:
        return []
    if not text.startswith("["):
        return [text]
    try:
        # Python spells a list of texts with single quotes.
        values = json.loads(text.replace("'", '"'))
    except (ValueError, RecursionError) as error:
        raise DataError(f"{where}: gold is {text[:60]!r}, not a list") from error
    return [str(value).strip() for value in values]
