"""Datasets in files of rows with named columns, under a declared or a recognised mapping."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import chain, islice
from pathlib import Path
from random import Random
from typing import Any, Final

from choicewise.data.answer import Answer
from choicewise.data.answer_reader import AnswerReader, CountingOpen
from choicewise.data.cell import UnusableRow
from choicewise.data.columns import Columns
from choicewise.data.csv_reader import csv_rows
from choicewise.data.dataset import Dataset
from choicewise.data.intake import IntakeRow, build_dataset
from choicewise.data.item import Item
from choicewise.data.jsonl_reader import jsonl_rows
from choicewise.data.parquet_reader import parquet_rows
from choicewise.data.proposal import SAMPLE
from choicewise.data.row_draft import Draft, draft
from choicewise.data.row_place import RowPlace
from choicewise.data.shapes import recognise
from choicewise.data.unknown_shape import misread_shape, open_counting, unknown_shape
from choicewise.errors import DataError

Row = dict[str, Any]


ROW_READERS: Final[Mapping[str, Callable[[Path], Iterator[Row | UnusableRow]]]] = {
    ".jsonl": jsonl_rows,
    ".csv": csv_rows,
    ".parquet": parquet_rows,
}
"""File suffix → what reads the file's rows: each by the columns' names, or why it can't be read."""


def read_tabular(
    name: str,
    files: Mapping[str, list[Path]],
    *,
    on_bad_item: str = "error",
    columns: Columns | None = None,
    subjects: Mapping[Path, str] | None = None,
) -> Dataset:
    """The dataset whose splits are in ``files``; without ``columns`` the shape is recognised, file by file.

    ``subjects``: the subject of each file, where each holds one; empty where its rows say it.

    An item without an id of its own is ``<subject>/<split>/<n>``, n counted from 0 within the subject, so that a
    benchmark has the same ids in every layout; without a subject it is ``<split>/<n>``.  An id of its own need only
    differ within its file where files have ``subjects``: the item is ``<subject>/<id>``.

    Raises DataError for an empty file, an unknown shape, an answer that can be read in several ways, an id given
    twice, and, unless ``on_bad_item`` is ``skip``, for any row that can't be used.
    """
    answers = AnswerReader(_open_answers(files, columns))
    fewest = 2 if columns is None or columns.target is None else 1
    first = next(chain.from_iterable(files.values()))
    try:
        dataset = build_dataset(name, _rows(files, columns, answers, subjects), on_bad_item, fewest)
    except DataError as error:
        mapping, rows = _opened(first, columns)
        if columns is None and isinstance(error, CountingOpen):
            raise open_counting(first, _sample(rows), error) from error
        if columns is None and (misread := misread_shape(first, _sample(rows), mapping, error)):
            raise misread from error
        raise
    return replace(dataset, columns=columns or _opened(first, None)[0])


def _rows(
    files: Mapping[str, list[Path]],
    columns: Columns | None,
    answers: AnswerReader,
    subjects: Mapping[Path, str] | None,
) -> Iterator[IntakeRow]:
    for split, paths in files.items():
        counts: Counter[str] = Counter()
        for file in paths:
            mapping, rows = _opened(file, columns)
            mapping = mapping.of_subject((subjects or {}).get(file, ""))
            draws = None if mapping.shuffled is None else Random(mapping.shuffled)
            for number, row in enumerate(rows):
                subject, drafted = _draft(row, mapping)
                if draws is not None and isinstance(drafted, Draft):
                    drafted = drafted.shuffled(draws)
                if subjects is not None:
                    subject, drafted = _within(subjects[file] or subject, drafted)
                prefix = f"{subject}/{split}" if subject else split
                place, id = RowPlace(file, number), f"{prefix}/{counts[prefix]}"
                yield place, split, partial(_item, drafted, id, place, answers)
                counts[prefix] += 1
    answers.check_counting()


def _item(row: Draft | UnusableRow, id: str, place: RowPlace, answers: AnswerReader) -> Item:
    if isinstance(row, UnusableRow):
        raise row
    return row.item(id, place, answers)


def _within(subject: str, row: Draft | UnusableRow) -> tuple[str, Draft | UnusableRow]:
    """The same row as one of the subject's own file."""
    if isinstance(row, UnusableRow):
        return subject, row
    return subject, row._replace(subject=subject, id=f"{subject}/{row.id}" if row.id else "")


def _open_answers(files: Mapping[str, list[Path]], columns: Columns | None) -> Iterator[tuple[RowPlace, Answer]]:
    """The answers that may be of any kind."""
    for file in chain.from_iterable(files.values()):
        mapping, rows = _opened(file, columns)
        if mapping.answer is not None and mapping.answer_is == "any":
            for number, row in enumerate(rows):
                _, drafted = _draft(row, mapping)
                if isinstance(drafted, Draft) and isinstance(drafted.answer, Answer):
                    yield RowPlace(file, number), drafted.answer


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


def _opened(file: Path, columns: Columns | None) -> tuple[Columns, Iterator[Row | UnusableRow]]:
    """The mapping of a file, and all its rows."""
    rows = ROW_READERS[file.suffix](file)
    head: list[Row | UnusableRow] = []
    for row in rows:
        head.append(row)
        if isinstance(row, dict):
            mapping = columns or recognise(row)
            if mapping is None:
                raise unknown_shape(file, _sample(chain(head, rows)))
            return mapping, chain(head, rows)
    if not head:
        raise DataError(f"{file} holds no rows; remove it, or fetch the data again")
    if columns is None:
        raise DataError(f"{RowPlace(file, 0)}: {head[0]}; no other row can be read either")
    return columns, iter(head)


def _sample(rows: Iterator[Row | UnusableRow]) -> list[Row]:
    return [row for row in islice(rows, SAMPLE) if isinstance(row, dict)]
