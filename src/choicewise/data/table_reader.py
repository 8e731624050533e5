"""Datasets in files of rows with named columns, under a declared or a recognised mapping."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

from choicewise.data.answer import Answer, answer_kind
from choicewise.data.cell import UnusableRow
from choicewise.data.columns import Columns
from choicewise.data.csv_reader import csv_rows
from choicewise.data.dataset import Dataset, build_dataset, place
from choicewise.data.item import Item
from choicewise.data.jsonl_reader import jsonl_rows
from choicewise.data.parquet_reader import parquet_rows
from choicewise.data.row_draft import Draft, draft
from choicewise.data.shapes import SHAPES, recognise
from choicewise.errors import DataError

Row = dict[str, Any]

ROW_READERS: Final[Mapping[str, Callable[[Path], Iterator[Row | UnusableRow]]]] = {
    ".jsonl": jsonl_rows,
    ".csv": csv_rows,
    ".parquet": parquet_rows,
}
"""File suffix → what reads the file's rows: each by the columns' names, or why it can't be read."""


def read_tabular(
    name: str, files: Mapping[str, list[Path]], *, on_bad_item: str = "error", columns: Columns | None = None
) -> Dataset:
    """The dataset whose splits are in ``files``; without ``columns`` the shape is recognised, file by file.

    An item without an id of its own is ``<subject>/<split>/<n>``, n counted from 0 within the subject, so that a
    benchmark has the same ids in every layout; without a subject it is ``<split>/<n>``.

    Raises DataError for an empty file, an unknown shape, an answer that can be read in several ways, an id given
    twice, and, unless ``on_bad_item`` is ``skip``, for any row that can't be used.
    """
    drafts = [(split, *drafted) for split, paths in files.items() for drafted in _drafts(split, paths, columns)]
    kind = answer_kind(
        (place(file, number), row.answer)
        for _, file, number, _, row in drafts
        if isinstance(row, Draft) and isinstance(row.answer, Answer) and row.answer_is == "any"
    )
    rows = ((file, number, split, partial(_item, row, id, kind)) for split, file, number, id, row in drafts)
    return build_dataset(name, rows, on_bad_item)


def _item(row: Draft | UnusableRow, id: str, kind: str) -> Item:
    if isinstance(row, UnusableRow):
        raise row
    return row.item(row.id or id, kind)


def _drafts(
    split: str, files: list[Path], columns: Columns | None
) -> Iterator[tuple[Path, int, str, Draft | UnusableRow]]:
    """(file, row, the id of its item where the file names none, the row) of every row of a split."""
    counts: Counter[str] = Counter()
    for file in files:
        rows = list(ROW_READERS[file.suffix](file))
        if not rows:
            raise DataError(f"{file} holds no rows; remove it, or fetch the data again")
        mapping = columns or _recognised(file, rows)
        for number, row in enumerate(rows):
            subject, drafted = _draft(row, mapping)
            prefix = f"{subject}/{split}" if subject else split
            yield file, number, f"{prefix}/{counts[prefix]}", drafted
            counts[prefix] += 1


def _draft(row: Row | UnusableRow, columns: Columns) -> tuple[str, Draft | UnusableRow]:
    """The subject, and the draft; a bad row with a readable subject is counted, so that later rows keep their ids."""
    if isinstance(row, UnusableRow):
        return "", row
    try:
        drafted = draft(row, columns)
    except UnusableRow as reason:
        subject = row.get(columns.subject or "")
        return subject if isinstance(subject, str) else "", reason
    return drafted.subject, drafted


def _recognised(file: Path, rows: list[Row | UnusableRow]) -> Columns:
    row = next((row for row in rows if isinstance(row, dict)), None)
    if row is None:
        raise DataError(f"{place(file, 0)}: {rows[0]}; no other row can be read either")
    columns = recognise(row)
    if columns is None:
        raise DataError(
            f"{file} has the columns {', '.join(row)}, which are no known shape; declare a mapping (TOML: question,"
            f" choices, answer, ...). Known shapes: {'; '.join(SHAPES)}"
        )
    return columns
