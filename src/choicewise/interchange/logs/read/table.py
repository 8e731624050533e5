"""Plain tables of log-likelihoods: a row for every choice of every item, as CSV, TSV, Parquet or JSON Lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from choicewise.errors import DataError
from choicewise.interchange.logs.log import Log, LoggedChoice, LoggedItem
from choicewise.interchange.logs.read import Reader
from choicewise.interchange.logs.read.cells import flag, index
from choicewise.interchange.logs.read.golds import Golds, golds_of
from choicewise.interchange.logs.read.lines import HEAD, first_object
from choicewise.interchange.logs.read.table_columns import NEEDED, Table, read_table, sorted_rows

BATCH = 10_000
"""Rows that become items at once."""

SUFFIXES = (".csv", ".tsv", ".parquet")


def _recognises(path: Path) -> bool:
    if not path.is_file():
        return False
    if path.suffix.lower() == ".parquet":
        return _has_columns(path)
    if path.suffix.lower() in SUFFIXES:
        try:
            with path.open("rb") as file:
                head = file.read(HEAD).decode(errors="replace").removeprefix("\ufeff").partition("\n")[0]
        except OSError:
            return False
        return sum(name in head.lower() for name in NEEDED) >= 2
    return {"item", "loglikelihood"} <= {name.strip().lower() for name in first_object(path)}


def _has_columns(path: Path) -> bool:
    import pyarrow.parquet as pq

    try:
        names = {name.strip().lower() for name in pq.read_schema(path).names}
    except (pa.ArrowException, OSError):
        return False
    return len(names & set(NEEDED)) >= 2


def _read(paths: Sequence[Path], results: Path | None) -> Iterator[Log]:
    if results is not None:
        raise DataError(f"{results}: a table of log-likelihoods has no file of results beside it; leave it out")
    for path in paths:
        table = read_table(path)
        for model, task, rows in table.parts():
            part = sorted_rows(table, rows)
            golds = golds_of(part)
            settings = {"file": path.name, "gold": golds.about}
            unused = (f"columns {', '.join(table.unused)}",) if table.unused else ()
            null = "" if "unconditional" in part.columns.column_names else None
            yield Log("a table", model or path.stem, task or "log", _Items(part, golds), settings, null, {}, unused)


@dataclass(frozen=True)
class _Items:
    """The items of rows that are sorted by item and choice."""

    table: Table
    golds: Golds

    def __iter__(self) -> Iterator[LoggedItem]:
        rows: list[dict[str, Any]] = []
        for start in range(0, len(self.table.columns), BATCH):
            for row in self.table.columns.slice(start, BATCH).to_pylist():
                if rows and row["item"] != rows[0]["item"]:
                    yield self._item(rows)
                    rows = []
                rows.append(row)
        if rows:
            yield self._item(rows)

    def _item(self, rows: Sequence[dict[str, Any]]) -> LoggedItem:
        name = rows[0]["item"]
        where = f"{self.table.path}, item {name!r}"
        by_choice: dict[str, dict[str, Any]] = {}
        for row in rows:
            if row["choice"] in by_choice:
                raise DataError(
                    f"{where} has two rows for choice {row['choice']}; is it of two models? A column `model` "
                    "tells them apart"
                )
            by_choice[row["choice"]] = row
        labels = self._labels(list(by_choice), where)
        choices = tuple(
            _choice(by_choice.get(label), f"{where}, choice {label}", self.table.first == 0) for label in labels
        )
        shared = _shared(rows, "context")
        own = shared is None and any(row.get("context") is not None for row in rows)
        if own:
            contexts = [by_choice[label].get("context") if label in by_choice else None for label in labels]
            choices = tuple(_with_context(choice, context) for choice, context in zip(choices, contexts, strict=True))
        gold = self.golds.of(rows, labels, where)
        subject = _shared(rows, "subject") or ""
        return LoggedItem(name, gold, choices, shared, subject, _shared(rows, "question"))

    def _labels(self, present: list[str], where: str) -> list[str]:
        """The choices of an item in order; numbered ones without gaps."""
        if self.table.first is None:
            return present
        numbers = [int(label) for label in present]
        if min(numbers) < self.table.first or max(numbers) > self.table.first + 10_000:
            raise DataError(f"{where} has choice {min(numbers)} to {max(numbers)}; they count from 0 or from 1")
        return [str(number) for number in range(self.table.first, max(numbers) + 1)]


def _shared(rows: Sequence[dict[str, Any]], column: str) -> str | None:
    """The text that all rows of an item have in a column; None where they differ, or have none."""
    first = rows[0].get(column)
    return first if first is not None and all(row.get(column) == first for row in rows) else None


def _choice(row: dict[str, Any] | None, where: str, from_zero: bool) -> LoggedChoice:
    if row is None:
        return LoggedChoice(None, missing="the log has no row for it")
    count = row.get("tokens")
    tokens = index(count) if count not in (None, "") else None
    if count not in (None, "") and (tokens is None or tokens < 1):
        raise DataError(f"{where}: tokens is {count!r}, which is no number of tokens from 1 up")
    greedy = flag(row.get("is_greedy"), f"{where}, is_greedy")
    numbers = row["loglikelihood"], row.get("unconditional")
    return LoggedChoice(numbers[0], row.get("text"), None, tokens, greedy, numbers[1])


def _with_context(choice: LoggedChoice, context: str | None) -> LoggedChoice:
    from dataclasses import replace

    return replace(choice, context=context)


READER = Reader("a table of log-likelihoods with the columns item, choice, loglikelihood, gold", _recognises, _read)
