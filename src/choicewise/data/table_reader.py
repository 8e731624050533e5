"""Datasets kept as JSON Lines, CSV with a header, or Parquet, under a declared or a recognised mapping."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from choicewise.data.answer import answer_kind
from choicewise.data.cell import UnusableRow
from choicewise.data.columns import Columns
from choicewise.data.csv_reader import csv_rows
from choicewise.data.dataset import Dataset
from choicewise.data.dataset_builder import DatasetBuilder, place
from choicewise.data.jsonl_reader import jsonl_rows
from choicewise.data.parquet_reader import parquet_rows
from choicewise.data.row_draft import Draft, draft
from choicewise.data.shapes import SHAPES, recognise
from choicewise.errors import DataError

READERS: Final[Mapping[str, Callable[[Path], Iterator[dict[str, Any] | UnusableRow]]]] = {
    ".jsonl": jsonl_rows,
    ".csv": csv_rows,
    ".parquet": parquet_rows,
}
"""How the rows of a file are read, by the ending of its name."""


class _Drafted(NamedTuple):
    file: Path
    row: int
    split: str
    draft: Draft | UnusableRow
    id: str


def read_tabular(
    name: str, files: Mapping[str, list[Path]], *, on_bad_item: str = "error", columns: Columns | None = None
) -> Dataset:
    """The dataset whose splits lie in ``files``; without ``columns`` the shape is recognised, file by file.

    An item without an id of its own is ``<subject>/<split>/<n>``, n counted from 0 within the subject, so that a
    benchmark has the same ids in every layout; without a subject it is ``<split>/<n>``.

    Raises DataError for an empty file, an unknown shape, an answer that can be read in several ways, an id given
    twice, and, unless ``on_bad_item`` is ``skip``, for any row that can't be used.
    """
    intake = DatasetBuilder(on_bad_item)
    drafts = [drafted for split, paths in files.items() for drafted in _drafts(split, paths, columns)]
    settled = answer_kind(
        (place(file, row), found.answer)
        for file, row, _, found, _ in drafts
        if isinstance(found, Draft) and found.answer is not None and found.answer_is == "any"
    )
    for file, row, split, found, id in drafts:
        try:
            if isinstance(found, UnusableRow):
                raise found
            item = found.item(found.id or id, settled)
        except UnusableRow as reason:
            intake.reject(file, row, reason)
        else:
            intake.accept(file, row, split, item)
    return intake.dataset(name)


def _drafts(split: str, files: list[Path], columns: Columns | None) -> Iterator[_Drafted]:
    seen: Counter[str] = Counter()
    for file in files:
        rows = list(READERS[file.suffix](file))
        if not rows:
            raise DataError(f"{file} holds no rows; remove it, or fetch the data again")
        mapping = columns or _recognised(file, rows)
        for number, row in enumerate(rows):
            found = _draft(row, mapping)
            subject = found.subject if isinstance(found, Draft) else _subject(row, mapping)
            prefix = f"{subject}/{split}" if subject else split
            yield _Drafted(file, number, split, found, f"{prefix}/{seen[prefix]}")
            seen[prefix] += 1


def _draft(row: dict[str, Any] | UnusableRow, columns: Columns) -> Draft | UnusableRow:
    if isinstance(row, UnusableRow):
        return row
    try:
        return draft(row, columns)
    except UnusableRow as reason:
        return reason


def _subject(row: dict[str, Any] | UnusableRow, columns: Columns) -> str:
    """The subject a bad row belongs to as far as can be told: it keeps its place, so that later ids don't move."""
    held = row.get(columns.subject or "") if isinstance(row, dict) else ""
    return held if isinstance(held, str) else ""


def _recognised(file: Path, rows: list[dict[str, Any] | UnusableRow]) -> Columns:
    row = next((row for row in rows if isinstance(row, dict)), None)
    if row is None:
        raise DataError(f"{place(file, 0)}: {rows[0]}; no other row can be read either")
    found = recognise(row)
    if found is None:
        raise DataError(
            f"{file} has the columns {', '.join(row)}, which are no known shape; declare a mapping (TOML: question,"
            f" choices, answer, ...). Known shapes: {'; '.join(SHAPES)}"
        )
    return found
