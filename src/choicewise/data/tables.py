"""Read a dataset from tables: by their columns, or in the layout of MMLU.

Columns of that layout: question, the choices, the letter of the right one; four choices in MMLU
itself.  Source: the data.tar of github.com/hendrycks/test and the way its ``evaluate.py`` reads it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, islice
from pathlib import Path
from random import Random
from typing import NamedTuple

from choicewise.data.dataset import Columns, Dataset
from choicewise.data.decisions import decision_drafts, is_decisions
from choicewise.data.files import ROW_READERS, Row, RowPlace, cells, first_row, json_remedy
from choicewise.data.intake import IntakeRow, build_dataset
from choicewise.data.items import Item
from choicewise.data.rows import (
    SHAPES,
    Answer,
    AnswerReader,
    CountingOpen,
    RowDraft,
    choices_of,
    draft,
    has_column,
    option_watch,
    recognise,
    shape_of_columns,
)
from choicewise.data.splits import SPLITS, converted_files
from choicewise.errors import DataError, UnknownShape, UnusableRow

_FOLDERS = ("dev", "val", "test")
_FEWEST_COLUMNS = 4  # of a question with two choices
_LARGEST_SAMPLE = 2000  # rows that a mapping is tried on within a second or two


def is_mmlu(folder: Path) -> bool:
    """Check that the folder has a split folder of the layout, and no files of another layout in it."""
    if not any((folder / name).is_dir() for name in _FOLDERS):
        return False
    return not converted_files(folder)


def read_mmlu(folder: Path, *, on_bad_item: str = "error") -> Dataset:
    """Read every split, subjects in alphabetical order.

    Ids are ``<subject>/<split>/<row>``, from 0.

    Raises DataError if the test folder is missing or empty, a file is not named after its split or
    holds no rows, and, unless ``on_bad_item`` is ``skip``, for a row without an answer among at
    least two choices.
    """
    if not (folder / "test").is_dir():
        raise DataError(
            f"{folder} has no folder test/; the MMLU layout is dev/, val/ and test/ with one CSV "
            "per subject"
        )
    return build_dataset(folder.resolve().name, _mmlu_rows(folder), on_bad_item)


def _mmlu_rows(folder: Path) -> Iterator[IntakeRow]:
    widths: Counter[int] = Counter()
    for _, _, path in _mmlu_files(folder):
        widths_of_file: Counter[int] = Counter()
        are_numbers = True
        for row in cells(path):
            widths_of_file[len(row)] += 1
            are_numbers = are_numbers and row[0].isdecimal()
        if not widths_of_file:
            raise DataError(f"{path} is empty; remove it, or fetch the data again")
        if are_numbers and widths_of_file.total() > 1:
            # The question would be read as the first choice.
            raise DataError(f"{path}: all questions are numbers; write it without an index")
        widths += widths_of_file
    # The width of most rows: in a row with a cell too few, a choice would be taken as the question.
    [(width, _)] = widths.most_common(1)
    for split, subject, path in _mmlu_files(folder):
        for number, row in enumerate(cells(path)):
            location = RowPlace(path, number, header=0)
            make = partial(_mmlu_item, f"{subject}/{split}/{number}", subject, row, width)
            yield IntakeRow(location, split, make)


def _mmlu_files(folder: Path) -> Iterator[tuple[str, str, Path]]:
    """Yield split, subject and path of each file."""
    for name in _FOLDERS:
        files = [file for file in (folder / name).glob("*.csv") if not file.name.startswith(".")]
        if name == "test" and not files:
            raise DataError(f"{folder / name} has no <subject>_test.csv")
        for file in sorted(files):
            subject = file.stem.removesuffix(f"_{name}")
            if subject == file.stem:
                raise DataError(f"{file} must be named <subject>_{name}.csv; rename or remove it")
            yield SPLITS[name], subject, file


def _mmlu_item(id: str, subject: str, row: list[str], width: int) -> Item:
    if len(row) < _FEWEST_COLUMNS:
        raise UnusableRow(
            f"{len(row)} columns; it needs {_FEWEST_COLUMNS}: a question, two or more choices, a "
            "letter"
        )
    if len(row) != width:
        raise UnusableRow(
            f"{len(row)} columns; most rows have {width}: a question, {width - 2} choices and a "
            "letter"
        )
    question, *texts, letter = row
    if not question.strip():
        raise UnusableRow(f"the question is {question!r}")
    choices = tuple(texts)
    return Item(id, question, choices, Answer(letter, choices).gold("label"), subject)


def read_tabular(
    name: str,
    files: Mapping[str, list[Path]],
    *,
    on_bad_item: str = "error",
    columns: Columns | None = None,
    subjects: Mapping[Path, str] | None = None,
) -> Dataset:
    """Read the dataset whose splits are in ``files``.

    Without ``columns`` the shape is recognised, file by file.  Of columns of no known shape the
    guess that alone fits every row is taken, if there is one; the dataset says it.
    ``subjects``: the subject of each file, if files hold one each; empty if its rows say it.

    An item without an id is ``<subject>/<split>/<n>``, n counted from 0 within the subject, so that
    a benchmark has the same ids in every layout; without a subject it is ``<split>/<n>``.  Ids in
    the rows need only differ within their file if files have ``subjects``: the item is
    ``<subject>/<id>``.

    Raises DataError for an empty file, an unknown shape, an answer that can be read in several
    ways, an id given twice, and, unless ``on_bad_item`` is ``skip``, for any row that can't be
    used.
    """
    if columns is not None:
        tables = _Tables(files, columns, subjects, is_declared=True)
        try:
            return replace(_read(name, tables, on_bad_item), columns=columns)
        except CountingOpen as error:
            remedy = 'in the mapping, answer_is = "number" counts from 1 and "index" from 0'
            raise DataError(f"{error.message}; {remedy}") from error
    paths = list(chain.from_iterable(files.values()))
    first = paths[0]
    head = first_row(first)
    if is_decisions(head):
        return build_dataset(name, _decision_rows(files), on_bad_item)
    guess = None
    if head and not _is_recognised(head):
        from choicewise.data.guess import guessed_columns

        guess = guessed_columns(paths)
    if guess is None:
        try:
            dataset = _read(name, _Tables(files, None, subjects), on_bad_item)
        except UnknownShape:
            raise
        except DataError as error:
            refusal = _refusal(first, error, None)
            if refusal is None:
                raise
            if not isinstance(error, CountingOpen):
                from choicewise.data.guess import guessed_columns

                guess = guessed_columns(paths)
            if guess is None:
                raise refusal from error
        else:
            return _with_shape(dataset, first)
    return _read_guessed(name, _Tables(files, guess, subjects), on_bad_item, guess)


def _with_shape(dataset: Dataset, first: Path) -> Dataset:
    """Return the dataset with the shape of its ``first`` file, and what that leaves unsaid."""
    from choicewise.data.guess import SAMPLE, answer_note

    mapping, rows = _opened(first, None)
    notes = dataset.notes
    note = answer_note(first.name, list(_dicts(islice(rows, SAMPLE))), mapping)
    if note:
        notes = (*notes, note)
    return replace(dataset, columns=mapping, notes=notes)


def _read_guessed(name: str, tables: _Tables, on_bad_item: str, guess: Columns) -> Dataset:
    """Read tables by a guess, which the dataset says."""
    from choicewise.data.guess import SAMPLE, reading_line, subject_note

    first = next(iter(tables.files.values()))[0]
    try:
        dataset = _read(name, tables, on_bad_item)
    except (CountingOpen, _OptionLeftOut) as error:
        raise _refusal(first, error, guess) or error from error
    notes = dataset.notes
    note = subject_note(first.name, _first_rows(first, SAMPLE), guess)
    if note:
        notes = (*notes, note)
    return replace(dataset, columns=guess, guess=reading_line(first, guess), notes=notes)


def _refusal(file: Path, error: DataError, guess: Columns | None) -> UnknownShape | None:
    """Return the error with a mapping for a ``file`` that does not fit its ``guess``, else its
    shape.

    None if ``error`` is about single rows.
    """
    from choicewise.data.guess import (
        SAMPLE,
        misread_shape,
        open_counting,
        option_left_out,
        ragged_shape,
    )

    if isinstance(error, _OptionLeftOut):
        # The sample goes on to the option, so that the mapping asks it.
        count = min(max(SAMPLE, error.location.row + 1), _LARGEST_SAMPLE)
        sample = _first_rows(error.location.file, count)
        return option_left_out(error.column, f"{error.location}: {error.message}", sample)
    sample = _first_rows(file, SAMPLE)
    mapping, _ = _opened(file, guess)
    if isinstance(error, CountingOpen):
        return open_counting(file, sample, mapping, error)
    return ragged_shape(file, sample, mapping) or misread_shape(file, sample, mapping, error)


def _is_recognised(row: Row) -> bool:
    """Check that a row is of a known shape and has an answer, which a test split may lack."""
    columns = recognise(row)
    if columns is None:
        return False
    return columns.answer is None or has_column(row, columns.answer)


def _read(name: str, tables: _Tables, on_bad_item: str) -> Dataset:
    answers = AnswerReader(tables.open_answers(), is_declared=tables.is_declared)
    has_target = tables.columns is not None and tables.columns.target is not None
    # The only choice of a text that goes on is scored alone.
    fewest = 1 if has_target else 2
    dataset = build_dataset(name, tables.intake_rows(answers), on_bad_item, fewest)
    note = answers.counting.check()
    if not note:
        return dataset
    first_files = next(iter(tables.files.values()))
    return replace(dataset, notes=(f"{first_files[0].name}: {note}", *dataset.notes))


class _OptionLeftOut(DataError):
    """A row has an option in a ``column`` that a mapping which nobody has declared leaves out."""

    def __init__(self, location: RowPlace, column: str) -> None:
        super().__init__(f"column {column} seems to have one more option")
        self.location = location
        self.column = column


class _RowWatch:
    """Refuse rows that a mapping, recognised or guessed by other rows, would read wrongly."""

    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        self._options = option_watch(columns)
        self._shape = SHAPES.get(shape_of_columns(columns))

    def check(self, location: RowPlace, row: Row, drafted: RowDraft | UnusableRow) -> None:
        choices: Sequence[str] | None
        if isinstance(drafted, RowDraft):
            choices = drafted.choices
        else:
            choices = choices_of(row, self._columns)
        name = self._options.left_out(row, choices)
        if name:
            raise _OptionLeftOut(location, name)
        if self._shape is None:
            return
        name = self._shape.other_value(row)
        if name:
            allowed = " nor ".join(map(repr, self._shape.values[name]))
            raise DataError(
                f"{location}: column {name} is neither {allowed}, unlike earlier rows;"
                " correct the row, or add a mapping"
            )


class _DraftedRow(NamedTuple):
    """A row as its file has it, and its draft, or why there is none."""

    location: RowPlace
    row: Row | UnusableRow
    subject: str
    drafted: RowDraft | UnusableRow


@dataclass(frozen=True)
class _Tables:
    """Files of rows by split, and what is said of them.

    ``columns``: None if the shape of each file is recognised; ``is_declared``: a person has said
    what they mean.  ``subjects``: as of :func:`read_tabular`.
    """

    files: Mapping[str, list[Path]]
    columns: Columns | None
    subjects: Mapping[Path, str] | None
    is_declared: bool = False

    def open_answers(self) -> Iterator[tuple[RowPlace, Answer]]:
        """Yield the answers that may be of any kind."""
        for file in chain.from_iterable(self.files.values()):
            mapping, rows = self._opened(file)
            if mapping.answer is None or mapping.answer_is != "any":
                continue
            for row in self._drafts(file, mapping, rows):
                if isinstance(row.drafted, RowDraft) and isinstance(row.drafted.answer, Answer):
                    yield row.location, row.drafted.answer

    def intake_rows(self, answers: AnswerReader) -> Iterator[IntakeRow]:
        """Yield all rows; ``answers`` reads those that may be of any kind.

        Raises DataError after the last one if no row has a column of choices, and CountingOpen if
        answers seem to count from another number.
        """
        columns = self.columns
        # Columns of choices that a row may lack, but not all rows.
        lacking: Sequence[str] = ()
        if columns is not None and columns.drop_empty and isinstance(columns.choices, tuple):
            lacking = columns.choices
        for split, paths in self.files.items():
            counts: Counter[str] = Counter()
            for file in paths:
                mapping, rows = self._opened(file)
                draws = None if mapping.shuffled is None else Random(mapping.shuffled)
                for location, row, subject, drafted in self._drafts(file, mapping, rows):
                    if lacking and isinstance(row, dict):
                        lacking = [path for path in lacking if not has_column(row, path)]
                    prefix = f"{subject}/{split}" if subject else split
                    id = f"{prefix}/{counts[prefix]}"
                    counts[prefix] += 1
                    if isinstance(drafted, UnusableRow):
                        yield IntakeRow(location, split, partial(_raise, drafted))
                        continue
                    if draws is not None:
                        drafted = drafted.shuffled(draws)
                    yield IntakeRow(location, split, partial(drafted.item, id, location, answers))
        if lacking:
            raise DataError(
                f"no row has the column {lacking[0]!r} of the mapping; correct its choices"
            )
        # Before the bad rows are listed: none of them must be skipped if all answers are one off.
        answers.counting.check()

    def _opened(self, file: Path) -> tuple[Columns, Iterator[Row | UnusableRow]]:
        files = list(chain.from_iterable(self.files.values()))
        return _opened(file, self.columns, files[files.index(file) + 1 :])

    def _drafts(
        self, file: Path, mapping: Columns, rows: Iterable[Row | UnusableRow]
    ) -> Iterator[_DraftedRow]:
        """Yield the draft of each row of a file."""
        subject_of_file = "" if self.subjects is None else self.subjects[file]
        mapping = mapping.of_subject(subject_of_file)
        watch = None if self.is_declared else _RowWatch(mapping)
        for number, row in enumerate(rows):
            location = RowPlace(file, number)
            subject = ""
            drafted: RowDraft | UnusableRow
            if isinstance(row, UnusableRow):
                drafted = row
            else:
                try:
                    drafted = draft(row, mapping)
                    subject = drafted.subject
                except UnusableRow as reason:
                    drafted = reason
                    # It is counted under a readable subject, so that later rows keep their ids.
                    readable = row.get(mapping.subject or "")
                    if isinstance(readable, str):
                        subject = readable
                if watch is not None:
                    watch.check(location, row, drafted)
            if self.subjects is not None:
                subject = subject_of_file or subject
                if isinstance(drafted, RowDraft):
                    id = f"{subject}/{drafted.id}" if drafted.id else ""
                    drafted = drafted._replace(subject=subject, id=id)
            yield _DraftedRow(location, row, subject, drafted)


def _decision_rows(files: Mapping[str, list[Path]]) -> Iterator[IntakeRow]:
    for split, paths in files.items():
        for file in paths:
            for number, row in enumerate(_rows(file)):
                location = RowPlace(file, number)
                try:
                    if isinstance(row, UnusableRow):
                        raise row
                    for make in decision_drafts(row, f"{split}/{number}"):
                        yield IntakeRow(location, split, make)
                except UnusableRow as reason:
                    yield IntakeRow(location, split, partial(_raise, reason))


def _raise(error: UnusableRow) -> Item:
    raise error


def _opened(
    file: Path, columns: Columns | None, later_files: Iterable[Path] = ()
) -> tuple[Columns, Iterator[Row | UnusableRow]]:
    """Return the mapping of a file and its rows; without ``columns`` its shape is recognised.

    ``later_files``: those that the mapping to propose is also to fit.
    """
    rows = _rows(file)
    head: list[Row | UnusableRow] = []
    for row in rows:
        head.append(row)
        if isinstance(row, UnusableRow):
            continue
        mapping = columns or recognise(row)
        all_rows = chain(head, rows)
        if mapping is None:
            from choicewise.data.guess import SAMPLE, unanswered, unknown_shape

            sample = list(_dicts(islice(all_rows, SAMPLE)))
            raise unanswered(file, sample) or unknown_shape(file, sample, later_files)
        return mapping, all_rows
    if not head:
        raise DataError(f"{file} has no rows; remove it, or fetch the data again")
    if columns is None:
        remedy = json_remedy(file) if file.suffix == ".jsonl" else ""
        raise DataError(
            f"{RowPlace(file, 0)}: {head[0]}; no row can be read{remedy and '; '}{remedy}"
        )
    return columns, iter(head)


def _rows(file: Path) -> Iterator[Row | UnusableRow]:
    return ROW_READERS[file.suffix](file)


def _first_rows(file: Path, count: int) -> list[Row]:
    return list(_dicts(islice(_rows(file), count)))


def _dicts(rows: Iterable[Row | UnusableRow]) -> Iterator[Row]:
    return (row for row in rows if isinstance(row, dict))
