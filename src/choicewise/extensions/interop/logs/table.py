"""CSV/Parquet tables."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from csv import Error as CsvError
from csv import reader
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from choicewise.data.files import text_lines
from choicewise.errors import DataError, did_you_mean
from choicewise.extensions.interop.logs.files import (
    NOTHING,
    first_object,
    flag,
    head,
    index,
    number,
    objects,
)
from choicewise.logs import Log, LoggedChoice, LoggedItem, Reread
from choicewise.util.files import TABLE, open_file
from choicewise.util.tables import open_parquet, unpacked

BATCH = 10_000
"""Rows that become items at once."""


def recognises(path: Path) -> bool:
    """Return whether ``path`` is of this tool, or holds files of it."""
    if not path.is_file():
        return False
    suffix = path.suffix.lower()
    if suffix in _SEPARATORS:
        columns = head(path).partition("\n")[0].lower()
        return sum(name in columns for name in NEEDED) >= 2
    if suffix == ".parquet":
        try:
            with open_file(path, TABLE) as file:
                names = {name.strip().lower() for name in open_parquet(file).schema_arrow.names}
        except (pa.ArrowException, OSError):
            return False
        return len(names & set(NEEDED)) >= 2
    return {"item", "loglikelihood"} <= {name.strip().lower() for name in first_object(path)}


def read_logs(paths: Sequence[Path], results: Path | None) -> Iterator[Log]:
    """Yield a log for each model and task."""
    if results is not None:
        raise DataError(
            f"{results}: a table of log-likelihoods has no file of results beside it; leave it out"
        )
    for path in paths:
        table = read_table(path)
        for model, task, rows in table.parts():
            part = sorted_rows(table, rows)
            about, golds = golds_of(part)
            settings = {"file": path.name, "gold": about}
            unused = (f"columns {', '.join(table.unused)}",) if table.unused else ()
            null = "" if "unconditional" in part.columns.column_names else None
            yield Log(
                tool="a table",
                model=model or path.stem,
                task=task or "log",
                items=Reread(partial(_items, part, golds)),
                settings=settings,
                null=null,
                unused=unused,
            )


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
        numbered = self.columns.select(names).append_column(
            "row", pa.array(range(len(self.columns)))
        )
        groups = numbered.group_by(names, use_threads=False).aggregate([("row", "list")])
        for group in groups.to_pylist():
            yield group.get("model"), group.get("task"), pa.array(group["row_list"])


Golds = Callable[[Sequence[dict[str, Any]], Sequence[str], str], tuple[int, ...]]
"""From an item's rows, its choices and where it stands to the indices of the right choices."""


def _items(table: Table, golds: Golds) -> Iterator[LoggedItem]:
    """The items of rows that are sorted by item and choice."""
    rows: list[dict[str, Any]] = []
    for start in range(0, len(table.columns), BATCH):
        for row in table.columns.slice(start, BATCH).to_pylist():
            if rows and row["item"] != rows[0]["item"]:
                yield _item(table, golds, rows)
                rows = []
            rows.append(row)
    if rows:
        yield _item(table, golds, rows)


def _item(table: Table, golds: Golds, rows: Sequence[dict[str, Any]]) -> LoggedItem:
    name = rows[0]["item"]
    where = f"{table.path}, item {name!r}"
    by_choice: dict[str, dict[str, Any]] = {}
    for row in rows:
        if row["choice"] in by_choice:
            raise DataError(
                f"{where} has two rows for choice {row['choice']}; is it of two models? A column `model` "
                "tells them apart"
            )
        by_choice[row["choice"]] = row
    labels = list(by_choice)
    if table.first is not None:  # numbered ones without gaps
        numbers = [int(label) for label in labels]
        if min(numbers) < table.first or max(numbers) > table.first + 10_000:
            raise DataError(
                f"{where} has choice {min(numbers)} to {max(numbers)}; they count from 0 or from 1"
            )
        labels = [str(number) for number in range(table.first, max(numbers) + 1)]
    choices = [_choice(by_choice.get(label), f"{where}, choice {label}") for label in labels]
    shared = _shared(rows, "context")
    if shared is None and any(row.get("context") is not None for row in rows):
        contexts = [by_choice.get(label, {}).get("context") for label in labels]
        choices = [
            replace(choice, context=context)
            for choice, context in zip(choices, contexts, strict=True)
        ]
    subject = _shared(rows, "subject") or ""
    return LoggedItem(
        id=name,
        gold=golds(rows, labels, where),
        choices=tuple(choices),
        context=shared,
        subject=subject,
        question=_shared(rows, "question"),
    )


def _shared(rows: Sequence[dict[str, Any]], column: str) -> str | None:
    """The text that all rows of an item have in a column; None where they differ, or have none."""
    first = rows[0].get(column)
    return first if first is not None and all(row.get(column) == first for row in rows) else None


def _choice(row: dict[str, Any] | None, where: str) -> LoggedChoice:
    if row is None:
        return LoggedChoice(missing="the log has no row for it")
    count = row.get("tokens")
    tokens = index(count) if count not in (None, "") else None
    if count not in (None, "") and (tokens is None or tokens < 1):
        raise DataError(f"{where}: tokens is {count!r}, which is no number of tokens from 1 up")
    greedy = flag(row.get("is_greedy"), f"{where}, is_greedy")
    return LoggedChoice(
        loglikelihood=row["loglikelihood"],
        text=row.get("text"),
        tokens=tokens,
        greedy=greedy,
        unconditional=row.get("unconditional"),
    )


NEEDED = ("item", "choice", "loglikelihood", "gold")
"""The columns that every table has."""

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
)
"""All columns that are read; the others are named as unused."""

_SEPARATORS = {".csv": ",", ".tsv": "\t"}
_CHUNK = 100_000


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
        raise DataError(
            f"{path} has no column {', '.join(lacking)}; it needs {', '.join(NEEDED)} ({hint})"
        )
    unused = tuple(
        name for name, plain in zip(table.column_names, names, strict=True) if plain not in KNOWN
    )
    table = table.rename_columns(names).select([name for name in KNOWN if name in names])
    if not len(table):
        raise DataError(f"{path} has no rows")
    for place, name in enumerate(table.column_names):
        nats = name in ("loglikelihood", "unconditional")
        column = _numbers(table[name], path, name) if nats else _texts(table[name])
        if name in (
            "item",
            "choice",
            "gold",
            "tokens",
        ):  # names and counts: space around them means nothing
            column = _plain(column)
        table = table.set_column(place, name, column)
    for name in ("item", "choice"):
        empty = pc.equal(pc.fill_null(table[name], ""), "")
        if (row := pc.index(empty, True).as_py()) >= 0:
            raise DataError(
                f"{path}, row {row + 1} (counted from 1, without the header) has no {name}"
            )
    return Table(path, table, unused, _first(table["choice"], path))


def sorted_rows(table: Table, rows: pa.Array | None) -> Table:
    """The same with those ``rows`` alone (None: all), by item and choice; what is a number is sorted as a number."""
    columns = table.columns if rows is None else table.columns.take(rows)
    keys = {name: _sortable(columns[name]) for name in ("item", "choice")}
    order = pc.sort_indices(pa.table(keys), [("item", "ascending"), ("choice", "ascending")])
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
        raise DataError(
            f"{path}: the choices are counted from {least}; they must begin with 0 or 1"
        )
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
    options = csv.ConvertOptions(
        column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=False
    )
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
    tables = []
    rows = (row for _, _, row in objects(path))
    while portion := list(islice(rows, _CHUNK)):
        names = dict.fromkeys(name for row in portion for name in row)
        columns = {
            name: pa.array([_spelled(row.get(name)) for row in portion], pa.string())
            for name in names
        }
        tables.append(pa.table(columns))
    if not any(table.column_names for table in tables):
        raise DataError(f"{path} is empty")
    return pa.concat_tables(tables, promote_options="default")


def _spelled(value: Any) -> str | None:
    return None if value is None else str(value)


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
    if (
        pa.types.is_string(column.type)
        or pa.types.is_large_string(column.type)
        or pa.types.is_integer(column.type)
        or pa.types.is_boolean(column.type)
    ):
        return column.cast(pa.string())
    return pa.chunked_array(
        [pa.array([_spelled(value) for value in column.to_pylist()], pa.string())]
    )


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
            cells = [
                number(cell, f"{path}, row {row} (counted from 1, without the header): {name}")
                for row, cell in enumerate(given.to_pylist(), start=1)
            ]
            numbers = pa.chunked_array([pa.array(cells, pa.float64())])
    return pc.if_else(pc.is_nan(numbers), None, numbers)


_TRUE, _FALSE = ("true", "1", "1.0"), ("false", "0", "0.0")


def golds_of(table: Table) -> tuple[str, Golds]:
    """How the column ``gold`` is to be read, decided for the whole table: in words, and what reads it.

    It names the right choice, or a list of them, on every row of its item, in the numbers or labels of the column
    ``choice``.  Where its cells differ within an item, or are true and false, they are flags: whether the choice of
    their own row is right.
    """
    gold = table.columns["gold"]
    lower = pc.utf8_lower(pc.utf8_trim_whitespace(gold))
    known = pc.unique(lower.combine_chunks()).to_pylist()
    if set(known) <= {"true", "false"}:
        return ("true on the rows of right choices", _flagged)
    differs = _differs(table.columns["item"].combine_chunks(), lower.combine_chunks())
    if differs < 0:
        return ("the right choices of the item, on each of its rows", _named)
    if set(known) <= {*_TRUE, *_FALSE} and _differs_everywhere(table):
        return ("1 on the rows of right choices, 0 on the others", _flagged)
    item = table.columns["item"][differs].as_py()
    raise DataError(
        f"{table.path}, item {item!r}: gold differs between its rows, and in other items it does not, or it is "
        "something else than 0 and 1; write the right choice on every row of an item, or true and false on all"
    )


def _differs(items: pa.Array, golds: pa.Array) -> int:
    """A row whose gold is another than that of the row before, of the same item; -1 where there is none."""
    if len(items) < 2:
        return -1
    same = pc.equal(items[1:], items[:-1])
    other = pc.fill_null(pc.not_equal(golds[1:], golds[:-1]), False)
    place = pc.index(pc.and_(same, other), True).as_py()
    return int(place) + 1 if place >= 0 else -1


def _differs_everywhere(table: Table) -> bool:
    """Whether every item has a row with 1 and another one with 0."""
    right = pc.is_in(pc.utf8_trim_whitespace(table.columns["gold"]), pa.array(_TRUE)).cast(
        pa.int8()
    )
    flags = pa.table({"item": table.columns["item"], "right": right})
    each = flags.group_by("item").aggregate([("right", "min"), ("right", "max")])
    return bool(pc.all(pc.not_equal(each["right_min"], each["right_max"])).as_py())


def _flagged(rows: Sequence[dict[str, Any]], labels: Sequence[str], where: str) -> tuple[int, ...]:
    right = {row["choice"] for row in rows if str(row["gold"]).strip().lower() in _TRUE}
    return tuple(place for place, label in enumerate(labels) if label in right)


def _named(rows: Sequence[dict[str, Any]], labels: Sequence[str], where: str) -> tuple[int, ...]:
    named = _list(rows[0]["gold"], where)
    if wrong := [name for name in named if name not in labels]:
        raise DataError(
            f"{where}: gold is {wrong[0]!r}, which is none of its choices "
            f"{', '.join(labels)}; name it as the column choice does"
        )
    return tuple(labels.index(name) for name in named)


def _list(cell: str | None, where: str) -> list[str]:
    """The choices that a cell names: one, or a JSON list of them; none where it is empty."""
    text = (cell or "").strip()
    if not text.startswith("["):
        return [text] if text else []
    try:
        values = json.loads(text.replace("'", '"'))
    except (ValueError, RecursionError) as error:
        raise DataError(f"{where}: gold is {text[:60]!r}, which is no list") from error
    return [str(value).strip() for value in values]
