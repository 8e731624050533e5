"""Files of rows to a dataset: tables by their columns, and the layout of MMLU.

Columns: question, the choices, the letter of the right one; four choices in MMLU itself.  Source: the data.tar of
github.com/hendrycks/test and the way its ``evaluate.py`` reads it.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, islice
from pathlib import Path
from random import Random
from typing import Final

import numpy as np

from choicewise.data.dataset import Columns, Dataset, ItemColumns, Items
from choicewise.data.decisions import STATE, decision_drafts, is_decisions
from choicewise.data.files import ROW_READERS, Row, RowPlace, cells, json_remedy, repeated
from choicewise.data.guess import (
    SAMPLE,
    guessed_columns,
    misread_shape,
    open_counting,
    option_left_out,
    ragged_shape,
    reading_line,
    subject_note,
    unanswered,
    unknown_shape,
)
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
    lettered,
    option_watch,
    recognise,
    shape_of_columns,
)
from choicewise.data.splits import SPLITS, converted_files
from choicewise.errors import DataError, NoAnswer, UnknownShape, UnusableRow, UsageError
from choicewise.records import SkippedRow
from choicewise.util.text import listed

_FOLDERS: Final = ("dev", "val", "test")
LISTED: Final = 24  # problems that an error lists; it counts the others
_IntakeRow = tuple[
    RowPlace, str, Callable[[], Item]
]  # the place of a row, its split, and what returns the item
_NAMED: Final = 3  # pairs of rows with the same content that are named
FEWEST: Final = 4  # columns of a question with two choices


def is_mmlu(folder: Path) -> bool:
    """Whether the folder has one of the layout's split folders, and not with the files of another layout in it."""
    return any((folder / name).is_dir() for name in _FOLDERS) and not converted_files(folder)


def read_mmlu(folder: Path, *, on_bad_item: str = "error") -> Dataset:
    """Every split, subjects in alphabetical order; ids are ``<subject>/<split>/<row>``, row from 0.

    Raises DataError when the test folder is missing or empty, a file is not named after its split or holds no rows,
    and, unless ``on_bad_item`` is ``skip``, for a row without an answer among at least two choices.
    """
    if not (folder / "test").is_dir():
        raise DataError(
            f"{folder} has no folder test/; the MMLU layout is dev/, val/ and test/ with one CSV a subject"
        )
    return build_dataset(folder.resolve().name, _mmlu_rows(folder), on_bad_item)


def read_tabular(
    name: str,
    files: Mapping[str, list[Path]],
    *,
    on_bad_item: str = "error",
    columns: Columns | None = None,
    subjects: Mapping[Path, str] | None = None,
) -> Dataset:
    """The dataset whose splits are in ``files``; without ``columns`` the shape is recognised, file by file.

    Of columns of no known shape the one guess that fits every row is taken, where there is one; the dataset says it.
    ``subjects``: the subject of each file, where each holds one; empty where its rows say it.

    An item without an id of its own is ``<subject>/<split>/<n>``, n counted from 0 within the subject, so that a
    benchmark has the same ids in every layout; without a subject it is ``<split>/<n>``.  An id of its own need only
    differ within its file where files have ``subjects``: the item is ``<subject>/<id>``.

    Raises DataError for an empty file, an unknown shape, an answer that can be read in several ways, an id given
    twice, and, unless ``on_bad_item`` is ``skip``, for any row that can't be used.
    """
    paths = [*chain.from_iterable(files.values())]
    if columns is not None:
        try:
            dataset = _read(name, files, on_bad_item, columns, subjects, is_declared=True)
        except CountingOpen as error:
            remedy = 'in the mapping, answer_is = "number" counts from 1 and "index" from 0'
            raise DataError(f"{error.message}; {remedy}") from error
        return replace(dataset, columns=columns)
    head = _head(paths[0])
    if head is not None and is_decisions(head):
        return build_dataset(name, _decision_rows(files), on_bad_item)
    guessed = None
    if head is not None and not _is_recognised(head):
        guessed = guessed_columns(paths)
    if guessed is None:
        try:
            dataset = _read(name, files, on_bad_item, None, subjects)
        except UnknownShape:
            raise
        except DataError as error:
            refusal = _refusal(paths[0], error, None)
            if refusal is None:
                raise
            if not isinstance(error, CountingOpen):
                guessed = guessed_columns(paths)
            if guessed is None:
                raise refusal from error
        else:
            return replace(dataset, columns=_opened(paths[0], None)[0])
    try:
        dataset = _read(name, files, on_bad_item, guessed, subjects)
    except (CountingOpen, _OptionLeftOut) as error:
        raise _refusal(paths[0], error, guessed) or error from error
    notes = list(dataset.notes)
    if note := subject_note(paths[0], guessed):
        notes.append(note)
    return replace(
        dataset, columns=guessed, guess=reading_line(paths[0], guessed), notes=tuple(notes)
    )


def _refusal(file: Path, error: DataError, guessed: Columns | None) -> UnknownShape | None:
    """Return the error with a mapping for a ``file`` that does not fit what was ``guessed``, else its shape.

    None if ``error`` is about single rows.
    """
    if isinstance(error, _OptionLeftOut):
        # The sample goes on to the option, so that the mapping asks it.
        count = min(max(SAMPLE, error.place.row + 1), _LARGEST_SAMPLE)
        sample = _sample(_rows(error.place.file), count)
        return option_left_out(error.column, f"{error.place}: {error.message}", sample)
    sample = _sample(_rows(file))
    mapping, _ = _opened(file, guessed)
    if isinstance(error, CountingOpen):
        return open_counting(file, sample, mapping, error)
    return ragged_shape(file, sample, mapping) or misread_shape(file, sample, mapping, error)


def _is_recognised(row: Row) -> bool:
    """Whether a row is of a known shape with its answer; that of a test split without answers is not."""
    columns = recognise(row)
    return columns is not None and (columns.answer is None or has_column(row, columns.answer))


def _read(
    name: str,
    files: Mapping[str, list[Path]],
    on_bad_item: str,
    columns: Columns | None,
    subjects: Mapping[Path, str] | None,
    *,
    is_declared: bool = False,
) -> Dataset:
    answers = AnswerReader(_open_answers(files, columns, is_declared), is_declared=is_declared)
    fewest = 2 if columns is None or columns.target is None else 1
    rows = _table_rows(files, columns, answers, subjects, is_declared)
    dataset = build_dataset(name, rows, on_bad_item, fewest)
    note = answers.check_counting()
    if not note:
        return dataset
    file = next(iter(files.values()))[0]
    return replace(dataset, notes=(f"{file.name}: {note}", *dataset.notes))


class _OptionLeftOut(DataError):
    """A row with an option in a ``column`` that the mapping of its file, which nobody has declared, leaves out."""

    def __init__(self, place: RowPlace, column: str) -> None:
        super().__init__(
            f"column {column} seems to hold one more option, which is not among those read"
        )
        self.place = place
        self.column = column


class _RowWatch:
    """Refuses rows that a mapping, which was recognised or guessed by other rows, would read wrongly."""

    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        self._options = option_watch(columns)
        self._shape = SHAPES.get(shape_of_columns(columns))

    def check(self, place: RowPlace, row: Row, drafted: RowDraft | UnusableRow) -> None:
        if isinstance(drafted, RowDraft):
            choices: Sequence[str] | None = drafted.choices
        else:
            choices = choices_of(row, self._columns)
        if name := self._options.left_out(row, choices):
            raise _OptionLeftOut(place, name)
        if self._shape is not None and (name := self._shape.other_value(row)):
            allowed = " nor ".join(map(repr, self._shape.values[name]))
            raise DataError(
                f"{place}: column {name} holds neither {allowed}, as rows before it do;"
                " correct the row, or declare a mapping"
            )


def build_dataset(
    name: str, rows: Iterable[_IntakeRow], on_bad_item: str = "error", fewest: int = 2
) -> Dataset:
    """The dataset of ``rows``, which are taken one by one.

    A row whose item is no valid question (:func:`check_item`), or raises UnusableRow, is an error, or is recorded as
    skipped where ``on_bad_item`` is ``skip``.  Raises DataError for such rows and for repeated ids, all of them
    together after the last row, and when there are no items.
    """
    if on_bad_item not in ("error", "skip"):
        raise UsageError(f"on_bad_item is {on_bad_item!r}; it must be error or skip")
    splits: dict[str, _Split] = {}
    bad: list[tuple[RowPlace, SkippedRow]] = []
    unanswered: Counter[str] = Counter()
    first_unanswered: dict[str, str] = {}
    count = 0
    for place, split, make in rows:
        try:
            item = make()
            check_item(item, fewest)
        except UnusableRow as reason:
            if isinstance(reason, NoAnswer):
                unanswered[split] += 1
                first_unanswered.setdefault(split, f"{place}: {reason}")
            else:
                count += 1
            if on_bad_item == "skip" or (count <= LISTED and not isinstance(reason, NoAnswer)):
                bad.append((place, SkippedRow(str(place.file), place.row, str(reason))))
            continue
        splits.setdefault(split, _Split()).add(place, item)
    problems: list[str] = []
    if on_bad_item == "error":
        problems += [
            _unanswered(split, first_unanswered[split], number, split in splits)
            for split, number in unanswered.items()
        ]
    if bad and on_bad_item == "error":
        reasons = [f"{place}: {each.reason}" for place, each in bad]
        problems += _together(
            reasons, count, "rows can't be used", "correct the row, or skip bad items"
        )
    repeats = [repeat for taken in splits.values() for repeat in taken.repeats()]
    if repeats:
        problems += _together(
            repeats[:LISTED], len(repeats), "rows repeat an id", "ids must differ"
        )
    if problems:
        raise DataError(problems[0], problems[1:])
    if not splits:
        why = f"; every row was skipped, the first because {bad[0][1].reason}" if bad else ""
        raise DataError(f"{name} holds no questions that can be used{why}")
    skipped = tuple(row for _, row in bad)
    notes = []
    for taken in splits.values():
        notes += [*taken.twice(), *taken.telling_choices()]
    return Dataset(
        name, {split: taken.items for split, taken in splits.items()}, skipped, notes=tuple(notes)
    )


def check_item(item: Item, fewest: int = 2) -> None:
    """Raises UnusableRow for fewer than ``fewest`` choices, a blank one, gold outside them, or NUL in a text."""
    if len(item.choices) < fewest:
        raise UnusableRow(
            f"a question with {len(item.choices)} choice{'s' * (len(item.choices) != 1)} asks nothing"
        )
    if not all(map(str.strip, item.choices)):
        blank = next(index for index, choice in enumerate(item.choices) if not choice.strip())
        problem = f"choice {blank} (counted from 0) is {item.choices[blank]!r}, nothing to score"
        if not any(map(str.strip, item.choices[blank:])):
            problem += "; with drop_empty = true in a mapping a row may end in empty choices"
        raise UnusableRow(problem)
    if not item.gold or item.gold[0] < 0 or item.gold[-1] >= len(item.choices):
        raise UnusableRow(
            f"the right choices {list(item.gold)} are not among the {len(item.choices)} choices"
        )
    texts = (item.id, item.subject, item.question, *item.choices, *item.fields.values())
    if "\0" in "".join(texts):
        text = next(text for text in texts if "\0" in text)
        quoted = repr(text) if len(text) <= 60 else f"{text[:60]!r}..."
        raise UnusableRow(
            f"the text {quoted} holds a NUL character, which is no text; the file is damaged"
        )


def _mmlu_rows(folder: Path) -> Iterator[_IntakeRow]:
    widths: Counter[int] = Counter()
    for _, _, file in _mmlu_files(folder):
        own = Counter(map(len, cells(file)))
        if not own:
            raise DataError(f"{file} is empty; remove it, or fetch the data again")
        widths += own
    width = widths.most_common(1)[0][
        0
    ]  # that of most rows, else one too few would be one choice too few
    for name, subject, file in _mmlu_files(folder):
        split = SPLITS[name]
        for number, row in enumerate(cells(file)):
            id = f"{subject}/{split}/{number}"
            yield (
                RowPlace(file, number, header=0),
                split,
                partial(_mmlu_item, id, subject, row, width),
            )


def _mmlu_files(folder: Path) -> Iterator[tuple[str, str, Path]]:
    """(split's folder, subject, file) of every file."""
    for name in _FOLDERS:
        files = sorted(
            file for file in (folder / name).glob("*.csv") if not file.name.startswith(".")
        )
        if name == "test" and not files:
            raise DataError(f"{folder / name} holds no <subject>_test.csv")
        for file in files:
            subject = file.stem.removesuffix(f"_{name}")
            if subject == file.stem:
                raise DataError(
                    f"{file} is not named <subject>_{name}.csv, so its subject is unknown; rename or remove it"
                )
            yield name, subject, file


def _mmlu_item(id: str, subject: str, row: list[str], width: int) -> Item:
    if len(row) < FEWEST:
        raise UnusableRow(
            f"{len(row)} columns; a question, at least two choices and a letter need {FEWEST}"
        )
    if len(row) != width:
        raise UnusableRow(
            f"{len(row)} columns, where most rows here have {width}: a question, {width - 2} choices and a letter"
        )
    question, *choices, letter = row
    if not question.strip():
        raise UnusableRow(f"the question is {question!r}")
    return Item(id, question, tuple(choices), Answer(letter, tuple(choices)).gold("label"), subject)


def _raise(error: UnusableRow) -> Item:
    raise error


def _table_rows(
    files: Mapping[str, list[Path]],
    columns: Columns | None,
    answers: AnswerReader,
    subjects: Mapping[Path, str] | None,
    is_declared: bool,
) -> Iterator[_IntakeRow]:
    lacking = _columns_that_rows_may_lack(columns)
    for split, paths in files.items():
        counts: Counter[str] = Counter()
        for file in paths:
            mapping, rows = _opened(file, columns)
            mapping = mapping.of_subject((subjects or {}).get(file, ""))
            watch = None if is_declared else _RowWatch(mapping)
            draws = None if mapping.shuffled is None else Random(mapping.shuffled)
            for number, row in enumerate(rows):
                if isinstance(row, dict):
                    lacking = [path for path in lacking if not has_column(row, path)]
                subject, drafted = _draft(row, mapping)
                if watch is not None and isinstance(row, dict):
                    watch.check(RowPlace(file, number), row, drafted)
                if draws is not None and isinstance(drafted, RowDraft):
                    drafted = drafted.shuffled(draws)
                if subjects is not None:  # the row is of the subject's own file
                    subject = subjects[file] or subject
                    if isinstance(drafted, RowDraft):
                        own = f"{subject}/{drafted.id}" if drafted.id else ""
                        drafted = drafted._replace(subject=subject, id=own)
                prefix = f"{subject}/{split}" if subject else split
                place, id = RowPlace(file, number), f"{prefix}/{counts[prefix]}"
                if isinstance(drafted, RowDraft):
                    yield place, split, partial(drafted.item, id, place, answers)
                else:
                    yield place, split, partial(_raise, drafted)
                counts[prefix] += 1
    if lacking:
        raise DataError(
            f"no row has the column {lacking[0]!r}, which the mapping names among the choices; correct it"
        )
    answers.check_counting()  # before the bad rows are listed: none of them must be skipped if all answers are one off


def _columns_that_rows_may_lack(columns: Columns | None) -> Sequence[str]:
    """Return the columns of choices that a row may lack; one that all rows lack is misspelled in the mapping."""
    if columns is None or not columns.drop_empty or not isinstance(columns.choices, tuple):
        return ()
    return columns.choices


def _decision_rows(files: Mapping[str, list[Path]]) -> Iterator[_IntakeRow]:
    for split, paths in files.items():
        for file in paths:
            for number, row in enumerate(ROW_READERS[file.suffix](file)):
                place = RowPlace(file, number)
                try:
                    if isinstance(row, UnusableRow):
                        raise row
                    yield from (
                        (place, split, make) for make in decision_drafts(row, f"{split}/{number}")
                    )
                except UnusableRow as reason:
                    yield place, split, partial(_raise, reason)


def _open_answers(
    files: Mapping[str, list[Path]], columns: Columns | None, is_declared: bool
) -> Iterator[tuple[RowPlace, Answer]]:
    for file in chain.from_iterable(files.values()):
        mapping, rows = _opened(file, columns)
        if mapping.answer is not None and mapping.answer_is == "any":
            watch = None if is_declared else _RowWatch(mapping)
            for number, row in enumerate(rows):
                _, drafted = _draft(row, mapping)
                if watch is not None and isinstance(row, dict):
                    watch.check(RowPlace(file, number), row, drafted)
                if isinstance(drafted, RowDraft) and isinstance(drafted.answer, Answer):
                    yield RowPlace(file, number), drafted.answer


def _draft(row: Row | UnusableRow, columns: Columns) -> tuple[str, RowDraft | UnusableRow]:
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
    rows = _rows(file)
    head: list[Row | UnusableRow] = []
    for row in rows:
        head.append(row)
        if isinstance(row, dict):
            mapping = columns or recognise(row)
            if mapping is None:
                sample = _sample(chain(head, rows))
                raise unanswered(file, sample) or unknown_shape(file, sample)
            return mapping, chain(head, rows)
    if not head:
        raise DataError(f"{file} holds no rows; remove it, or fetch the data again")
    if columns is None:
        remedy = json_remedy(file) if file.suffix == ".jsonl" else ""
        raise DataError(
            f"{RowPlace(file, 0)}: {head[0]}; no other row can be read either{remedy and '; '}{remedy}"
        )
    return columns, iter(head)


def _rows(file: Path) -> Iterator[Row | UnusableRow]:
    return ROW_READERS[file.suffix](file)


def _head(file: Path) -> Row | None:
    return next((row for row in _rows(file) if isinstance(row, dict)), None)


_LARGEST_SAMPLE: Final = 2000  # rows that a mapping is tried on within a second or two


def _sample(rows: Iterator[Row | UnusableRow], count: int = SAMPLE) -> list[Row]:
    return [row for row in islice(rows, count) if isinstance(row, dict)]


def _unanswered(split: str, first: str, count: int, partly: bool) -> str:
    """What is wrong with the ``count`` rows of a split that have no answers, where others have some if ``partly``."""
    if not partly:
        remedy = "skip bad items to leave it out, or move its file away"
        return f"the split {split} has no answers ({first}), so it can't be scored; {remedy}"
    if count == 1:
        return f"{first}, so none is published; correct the row, or skip bad items"
    return f"{count:,} rows of the split {split} have no answer, the first {first}; correct them, or skip bad items"


_OFTEN: Final = 10
"""Of so many questions one with a choice twice is no slip."""


class _Split:
    """The items of a split with their places, in some 12 bytes besides the items' own columns."""

    def __init__(self) -> None:
        self._columns = ItemColumns()
        self._hashes, self._rows, self._contents = array("q"), array("q"), array("q")
        self._files: list[tuple[int, Path, int]] = []
        self._lettered = 0
        self._spaced = 0
        self._repeating = 0
        self._repeated = ""  # the first choice that its question has twice

    def add(self, place: RowPlace, item: Item) -> None:
        if not self._files or self._files[-1][1] != place.file:
            self._files.append((len(self._rows), place.file, place.header))
        self._rows.append(place.row)
        self._hashes.append(hash(item.id))
        self._contents.append(hash(_content(item)))
        self._lettered += lettered(item.choices) is not None
        self._spaced += _is_marked_by_space(item)
        if len(set(item.choices)) < len(item.choices):
            self._repeating += 1
            self._repeated = self._repeated or repeated(item.choices) or ""
        self._columns.add(item)

    @property
    def items(self) -> Items:
        return Items(self._columns.batches())

    def repeats(self) -> Iterator[str]:
        items = self.items
        first: dict[str, int] = {}
        for position in _repeated(self._hashes):
            id = items[position].id
            if (before := first.setdefault(id, position)) != position:
                yield f"{self._place(before)} and {self._place(position)} have the same id {id!r}"

    def twice(self) -> Iterator[str]:
        """A line that names the rows with the same question and choices, where there are any."""
        items, groups = self.items, dict[object, list[int]]()
        for position in _repeated(self._contents):
            groups.setdefault(_content(items[position]), []).append(position)
        alike = [positions for positions in groups.values() if len(positions) > 1]
        if not alike:
            return
        told, first = [], self._place(alike[0][0])
        for positions in alike[:_NAMED]:
            places = [self._place(each) for each in positions[: 2 * _NAMED]]
            numbers = [
                f"{each.number}{'' if each.file == first.file else f' of {each.file.name}'}"
                for each in places
            ]
            numbers += [""] * (len(positions) - len(places))
            differ = (
                " (with other answers)" if len({items[each].gold for each in positions}) > 1 else ""
            )
            told.append(f"{listed(numbers, 2 * _NAMED - 1)}{differ}")
        noun = "lines" if first.file.suffix == ".jsonl" else "rows"
        more = f", and {len(alike) - _NAMED} more questions" if len(alike) > _NAMED else ""
        yield f"{first.file.name}: {noun} {', '.join(told)}{more} have the same question and choices; each counts"

    def telling_choices(self) -> Iterator[str]:
        """Yield a line for each fault of many choices: letters before them, a space at the right one, the same text."""
        count = len(self._rows)
        file = self._files[0][1].name
        if 2 * self._lettered > count:
            yield (
                f"{file}: choices begin with their letters ({self.items[0].choices[0]!r}); prompts that show letters"
                " show both. Remove them from the file."
            )
        if _OFTEN * self._repeating >= count:
            yield (
                f"{file}: {self._repeating:,} of {count:,} questions have a choice twice, such as {self._repeated!r}."
                " If it stands for no choice, leave its cell empty, and declare drop_empty = true in a mapping"
            )
        if 2 * self._spaced > count:
            yield (
                f"{file}: white space at an edge tells the right choice in {self._spaced:,} of {count:,} questions;"
                " remove it from the file"
            )

    def _place(self, position: int) -> RowPlace:
        number = bisect_right(self._files, position, key=lambda start: start[0]) - 1
        _, file, header = self._files[number]
        return RowPlace(file, self._rows[position], header)


def _is_marked_by_space(item: Item) -> bool:
    """Whether the right choices begin or end with white space and the wrong ones do not, or the other way round."""
    is_spaced = [choice != choice.strip() for choice in item.choices]
    if not any(is_spaced):
        return False
    is_right = [index in item.gold for index in range(len(item.choices))]
    return is_spaced == is_right or is_spaced == [not right for right in is_right]


def _content(item: Item) -> tuple[object, ...]:
    """What makes two rows the same question: its texts, its state, and further ones of several words, as a passage."""
    further = sorted(text for text in item.fields.values() if " " in text)
    return item.question, item.choices, item.fields.get(STATE), *further


def _repeated(hashes: array[int]) -> list[int]:
    """The positions whose hash another position has, too."""
    own = np.frombuffer(hashes, np.int64)
    values, counts = np.unique(own, return_counts=True)
    repeated: list[int] = np.flatnonzero(np.isin(own, values[counts > 1])).tolist()
    return repeated


def _together(problems: list[str], count: int, what: str, remedy: str) -> list[str]:
    if count == 1:
        return [f"{problems[0]}; {remedy}"]
    more = [f"and {count - len(problems)} more"] if count > len(problems) else []
    return [f"{count} {what}; {remedy.replace('the row', 'them')}:", *problems, *more]
