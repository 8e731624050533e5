"""Datasets in files of rows with named columns, under a declared or a recognised mapping."""

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from choicewise.data.answer import answer_kind
from choicewise.data.cell import UnusableRow
from choicewise.data.columns import Columns
from choicewise.data.dataset import Dataset
from choicewise.data.dataset_builder import DatasetBuilder, place
from choicewise.data.row_draft import Draft, draft
from choicewise.data.row_readers import ROW_READERS
from choicewise.data.shapes import SHAPES, recognise
from choicewise.errors import DataError


class _Place(NamedTuple):
    """Where a row stands, and the id of its item where the file names none."""

    file: Path
    row: int
    split: str
    id: str


def read_tabular(
    name: str, files: Mapping[str, list[Path]], *, on_bad_item: str = "error", columns: Columns | None = None
) -> Dataset:
    """The dataset whose splits are in ``files``; without ``columns`` the shape is recognised, file by file.

    An item without an id of its own is ``<subject>/<split>/<n>``, n counted from 0 within the subject, so that a
    benchmark has the same ids in every layout; without a subject it is ``<split>/<n>``.

    Raises DataError for an empty file, an unknown shape, an answer that can be read in several ways, an id given
    twice, and, unless ``on_bad_item`` is ``skip``, for any row that can't be used.
    """
    builder = DatasetBuilder(on_bad_item)
    drafts = [drafted for split, paths in files.items() for drafted in _drafts(split, paths, columns)]
    kind = answer_kind(
        (place(at.file, at.row), row.answer)
        for at, row in drafts
        if isinstance(row, Draft) and row.answer is not None and row.answer_is == "any"
    )
    for at, row in drafts:
        try:
            if isinstance(row, UnusableRow):
                raise row
            item = row.item(row.id or at.id, kind)
        except UnusableRow as reason:
            builder.reject(at.file, at.row, reason)
        else:
            builder.accept(at.file, at.row, at.split, item)
    return builder.dataset(name)


def _drafts(split: str, files: list[Path], columns: Columns | None) -> Iterator[tuple[_Place, Draft | UnusableRow]]:
    counts: Counter[str] = Counter()
    for file in files:
        rows = list(ROW_READERS[file.suffix](file))
        if not rows:
            raise DataError(f"{file} holds no rows; remove it, or fetch the data again")
        mapping = columns or _recognised(file, rows)
        for number, row in enumerate(rows):
            drafted = _draft(row, mapping)
            subject = drafted.subject if isinstance(drafted, Draft) else _subject(row, mapping)
            prefix = f"{subject}/{split}" if subject else split
            yield _Place(file, number, split, f"{prefix}/{counts[prefix]}"), drafted
            counts[prefix] += 1


def _draft(row: dict[str, Any] | UnusableRow, columns: Columns) -> Draft | UnusableRow:
    if isinstance(row, UnusableRow):
        return row
    try:
        return draft(row, columns)
    except UnusableRow as reason:
        return reason


def _subject(row: dict[str, Any] | UnusableRow, columns: Columns) -> str:
    """The subject of a bad row where it is readable: the row is counted, so that later rows keep their ids."""
    subject = row.get(columns.subject or "") if isinstance(row, dict) else ""
    return subject if isinstance(subject, str) else ""


def _recognised(file: Path, rows: list[dict[str, Any] | UnusableRow]) -> Columns:
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
