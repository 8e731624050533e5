"""Guess what the columns of an unknown table mean, or propose a mapping for a person to check."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, islice, product
from pathlib import Path
from typing import Any, NamedTuple

from choicewise.data.cells import (
    COMMAS,
    QUESTION,
    Cells,
    cell_at,
    is_chat,
    lists_choices,
    names_right_choice,
    rank,
)
from choicewise.data.dataset import GAP, RESERVED, Columns, mapping_table
from choicewise.data.files import ROW_READERS, RowPlace
from choicewise.data.options import FEW, Member, Source, names_of
from choicewise.data.rows import (
    LETTERS,
    Answer,
    CountingOpen,
    RowDraft,
    draft,
    lettered,
    shape_of_columns,
)
from choicewise.errors import DataError, NoAnswer, UnfitRow, UnknownShape, UnusableRow
from choicewise.util.jsonio import exact_json

SAMPLE = 200  # rows that a proposal is tried on
_TRIED = 200  # combinations of columns that are tried
_MOSTLY = 0.9  # share of the rows that a proposal fits
_FEWEST = 3  # rows of which a proposal may miss one, so that two agree

_COPY = "save this as mapping.toml and edit it:"
_ADD = "add it to the choices if it is one"
_CORRECT = "# correct the row, or skip bad items with this mapping"
_FEWER = "# drop_empty: empty cells at the end of a row are no choices; check that no text was lost"
_MORE = "where a choice holds the separator, replace it there"
_FROM_0_OR_1 = (
    '# no answer is 0: replace ... by "number" if they count from 1, by "index" if from 0'
)
_ONE_CHOICE = "# or, if each cell is one choice, delete the line and name the column in a list"

_LOWER = tuple(LETTERS.lower())
_ENCLOSED = tuple(f"({letter})" for letter in LETTERS)
_DOTTED = tuple(f"{letter}." for letter in LETTERS)
# Signs at which a guess may part a cell into choices; all others may occur in a choice.
_SURE_SEPARATORS = ("|", ";")
# Answers of two kinds, in the order in which an index of 0 or 1 would count them.
_TRUTHS = (("false", "true"), ("no", "yes"))

_Row = Mapping[str, Any]


def unknown_shape(
    file: Path, rows: Sequence[_Row], later_files: Iterable[Path] = ()
) -> UnknownShape:
    """Return the error about a file whose columns are of no known shape.

    ``rows``: its first ones; ``later_files``: those that the mapping is also to fit.
    """
    names = ", ".join(rows[0])
    why = f"can't tell which columns of {file} are question, choices and answer: {names}"
    lines = proposal(rows, files=[file, *later_files])
    if _CORRECT in lines:
        return UnfitRow(f"{why}; {_COPY}", lines)
    return UnknownShape(f"{why}; {_COPY}", lines)


def unanswered(file: Path, rows: Sequence[_Row]) -> DataError | None:
    """Return the error about a file that lacks nothing but the answers of ``rows``, or None."""
    answer = None
    for columns in islice(_candidates(Cells(rows)), _TRIED):
        drafts, count = _read(rows, columns)
        if drafts:
            return None
        if count == len(rows) and answer is None:
            answer = columns.answer
    if answer is None:
        return None
    cell = cell_at(rows[0], answer)
    spelled = "empty" if cell in (None, "") else str(cell)
    return DataError(
        f"{file} has no answers: {answer} is {spelled} in every row; use a split with published "
        "answers,"
        " such as validation"
    )


def ragged_shape(file: Path, rows: Sequence[_Row], columns: Columns) -> UnknownShape | None:
    """Return the error about a file of a known shape whose rows leave their last choices empty.

    None if they don't.
    """
    if not isinstance(columns.choices, tuple) or columns.answer in columns.choices:
        return None
    dropping = replace(columns, drop_empty=True)
    drafts, _ = _read(rows, columns)
    dropping_drafts, _ = _read(rows, dropping)
    count = len(dropping_drafts) - len(drafts)
    if not count:
        return None
    why = f"{file}: {count} of the first {len(rows)} rows have empty columns of choices"
    return UnknownShape(f"{why}; {_COPY}", [_FEWER, *mapping_lines(dropping)])


def open_counting(
    file: Path, rows: Sequence[_Row], columns: Columns, error: CountingOpen
) -> UnknownShape:
    """Return the error about answers that count choices otherwise than a known shape says."""
    message = error.message
    if not message.startswith(str(file)):
        message = f"{file}: {message}"
    lines = list(_counting_lines(rows, columns, error.answer_is))
    return UnknownShape(f"{message}; {_COPY}", lines)


def _counting_lines(rows: Sequence[_Row], columns: Columns, answer_is: str) -> Iterator[str]:
    """Yield the lines of the mapping ``columns`` with answers that count otherwise."""
    if columns.fixed:
        yield f"# replace ... by the labels of {' and '.join(columns.fixed)}"
        yield from mapping_lines(columns, {"labels": [GAP, GAP]})
    elif answer_is == GAP:
        yield _FROM_0_OR_1
        yield from mapping_lines(columns, {"answer_is": answer_is})
    else:
        counting = replace(columns, answer_is=answer_is, labels=())
        drafts, _ = _read(rows, counting)
        yield _fits(len(drafts), rows)
        yield from mapping_lines(counting)


def option_left_out(column: str, message: str, rows: Sequence[_Row]) -> UnknownShape:
    """Return the error about a ``column`` with an option that is not read.

    ``rows``: the first ones of its file.
    """
    return UnknownShape(f"{message}; {_COPY}", proposal(rows, option=column))


def misread_shape(
    file: Path, rows: Sequence[_Row], columns: Columns, error: DataError
) -> UnknownShape | None:
    """Return the error about a file of a known shape if no row fits it, but another mapping."""
    drafts, _ = _read(rows, columns)
    if drafts:
        return None
    lines = proposal(rows)
    if not lines[0].startswith("# fits"):
        return None
    if columns.answer is not None and columns.answer not in Cells(rows).columns:
        return unknown_shape(file, rows)
    why = f"{file} looks like {shape_of_columns(columns)}, but no row can be read: {error.parts[0]}"
    return UnknownShape(f"{why}; {_COPY}", lines)


def proposal(rows: Sequence[_Row], files: Sequence[Path] = (), option: str = "") -> list[str]:
    """Return the lines of a mapping in TOML that fits nine of ten ``rows``, or of one with gaps.

    Of a few rows, all but one are enough if nothing fits more.  ``rows``: the first ones of a file,
    at least one; in the ``files``, of which that is the first, a row that does not fit is named.
    ``option``: a column that seems to hold one more choice.

    The lines begin with what is to be checked, as comments.  If the rows leave something open, it
    is written as ``...``, with which no mapping can be used: so none reads other answers than are
    meant.
    """
    cells = Cells(rows)
    by_name = list(islice(_candidates(cells), _TRIED))
    by_cells = islice(_unnamed_candidates(cells), _TRIED)
    columns = _likeliest(chain(by_name, by_cells), rows)
    if columns is None:
        return list(_gaps(cells, files))
    drafts, unanswered = _read(rows, columns)
    count = len(drafts) + unanswered
    always_full = replace(columns, drop_empty=False)
    if columns.drop_empty and len(_read(rows, always_full)[0]) == len(drafts):
        # The rows with empty choices fit neither way.
        columns = always_full
    lines = [_fits(count, rows)]
    if unanswered:
        lines.append(f"# {unanswered} of them without an answer")
    open_keys = _open_where_rivals_fit(columns, by_name, rows, len(rows) - count)
    searched: int | None = None
    if open_keys.values:
        # What replaces a gap may fit later rows.
        searched = SAMPLE
    misfit = _first_misfit(files, columns, searched)
    if misfit:
        lines += [f"# it does not fit {_in_comment(misfit)}", _CORRECT]
    lines += _doubts(columns, cells, drafts)
    further = cells.further_choices(columns)
    if option and option not in columns.used and option not in further:
        further.append(option)
    if further:
        lines.append(f"# not used: {', '.join(map(_in_comment, further))}; {_ADD}")
    # Labels of letters are cut to those that a row can need.
    most = max(len(drafted.choices) for drafted in drafts)
    if isinstance(columns.choices, tuple):
        most = len(columns.choices)
    values = {"labels": columns.labels[:most], **open_keys.values}
    return [*lines, *open_keys.comments, *mapping_lines(columns, values)]


def _likeliest(candidates: Iterable[Columns], rows: Sequence[_Row]) -> Columns | None:
    """Return the first mapping that fits nine of ten ``rows``, else all but one, or None.

    One that fits all but one, only because its question is empty there, comes before one with
    another question.
    """
    nearly = None
    for columns in candidates:
        drafts, unanswered = _read(rows, columns)
        count = len(drafts) + unanswered
        if not drafts:
            continue
        if count >= _MOSTLY * len(rows):
            if nearly is None or nearly.question == columns.question:
                return columns
            if (nearly.choices, nearly.answer) != (columns.choices, columns.answer):
                return columns
            return nearly
        if nearly is None and count == len(rows) - 1 and len(rows) >= _FEWEST:
            nearly = columns
    return nearly


def _fits(count: int, rows: Sequence[_Row]) -> str:
    return f"# fits {count} of the first {len(rows)} rows; check it before use"


def _doubts(columns: Columns, cells: Cells, drafts: Sequence[RowDraft]) -> Iterator[str]:
    """Yield comments on what rows that fit may still hide."""
    if columns.drop_empty:
        yield _FEWER
    if columns.answer_is == "number" and len(_spelled_answers(drafts)) == 1:
        yield "# all answers are equal: check that they count from 1"
    source = columns.choices or columns.wrong
    if columns.choices_split and cells.exceeds_usual(str(source), columns.choices_split):
        yield f"# some cells have more choices than most: {_MORE}"


def _spelled_answers(drafts: Iterable[RowDraft]) -> set[str]:
    answers = [drafted.answer for drafted in drafts]
    return {str(answer.cell) for answer in answers if isinstance(answer, Answer)}


@dataclass
class _OpenKeys:
    """Keys of a mapping that rows leave open, each with a comment."""

    values: dict[str, object] = field(default_factory=dict)
    comments: list[str] = field(default_factory=list)

    def leave(self, key: str, comment: str, value: object = GAP) -> None:
        """Leave ``key`` open, with a ``comment`` that says what to put there."""
        self.values[key] = value
        self.comments.append(comment)


def _open_where_rivals_fit(
    columns: Columns, candidates: Sequence[Columns], rows: Sequence[_Row], misfits: int
) -> _OpenKeys:
    """Return the keys that the ``rows`` leave open; ``misfits``: rows that ``columns`` do not fit.

    A key is open if another of the ``candidates`` fits as well, and has other choices or answers.
    """
    open_keys = _OpenKeys()
    if columns.labels in _TRUTHS and not columns.fixed:
        labels = " and ".join(columns.labels)
        comment = f"# replace ... by {labels}, in the order of the choices they mean"
        open_keys.leave("labels", comment, [GAP, GAP])
    if columns.choices_split in COMMAS and not _are_lettered(rows, columns):
        separator = _toml(columns.choices_split)
        comment = f"# cells seem to hold several choices: replace ... by {separator},"
        open_keys.leave("choices_split", comment)
        open_keys.comments.append(_ONE_CHOICE)
    if columns.choices_split == GAP:
        open_keys.comments.append(
            "# cells seem to hold several choices: replace ... by what separates them,"
        )
        open_keys.comments.append(_ONE_CHOICE)
    # Dictionaries keep the order in which rivals are met, and each of their names once.
    kinds = {columns.answer_is: None}
    answers = {columns.answer: None}
    sources = {columns.choices or (): None}
    for rival in _rivals(columns, candidates, rows, misfits):
        if rival.question != columns.question:
            open_keys.values["question"] = GAP
        if rival.choices != columns.choices:
            sources[rival.choices or ()] = None
        elif rival.answer == columns.answer:
            kinds[rival.answer_is] = None
        else:
            answers[rival.answer] = None
    if len(sources) > 1:
        named = " or ".join(map(_named, sources))
        open_keys.leave("choices", f"# {named} can be the choices: replace ... by one")
    if set(kinds) == {"index", "number"}:
        open_keys.leave("answer_is", _FROM_0_OR_1)
    elif len(kinds) > 1:
        comment = f"# answers can be read as {' or '.join(kinds)}: replace ... by one"
        open_keys.leave("answer_is", comment)
    if len(answers) > 1:
        named = " or ".join(map(_in_comment, answers))
        open_keys.leave("answer", f"# {named} can be the answer: replace ... by one")
    return open_keys


def _rivals(
    columns: Columns, candidates: Sequence[Columns], rows: Sequence[_Row], misfits: int
) -> Iterator[Columns]:
    """Yield the ``candidates`` by which ``rows`` mean something else than by ``columns``."""
    meanings = _meanings(rows, columns, misfits)
    questions = (columns.question, *names_of(columns.choices))
    for rival in candidates:
        if rival.question not in questions or bool(rival.choices) != bool(columns.choices):
            continue
        if _differ(meanings, _meanings(rows, rival, misfits)):
            yield rival


def _are_lettered(rows: Sequence[_Row], columns: Columns) -> bool:
    """Check that letters number the choices in each cell, so that it is parted as meant."""
    source = columns.choices if columns.choices is not None else columns.wrong
    for row in rows:
        parts = str(cell_at(row, str(source))).split(columns.choices_split)
        if lettered([part.strip() for part in parts]) is None:
            return False
    return True


class _Meaning(NamedTuple):
    """Id, choices and right ones of a row under a mapping."""

    id: str
    choices: tuple[str, ...]
    gold: tuple[int, ...]


def _meaning(row: _Row, columns: Columns) -> _Meaning:
    """Read a row.  Raises UnusableRow if no question can be made of it as ``columns`` say."""
    drafted = draft(row, columns)
    gold = drafted.answer
    if isinstance(gold, Answer):
        gold = gold.gold(columns.answer_is)
    if not _has_choices(drafted):
        raise UnusableRow(
            f"it needs two or more choices, none empty: {', '.join(map(repr, drafted.choices))}"
        )
    return _Meaning(drafted.id, drafted.choices, gold)


def _has_choices(drafted: RowDraft) -> bool:
    return len(drafted.choices) > 1 and all(map(str.strip, drafted.choices))


def _meanings(
    rows: Sequence[_Row], columns: Columns, allowed: int = 0
) -> list[_Meaning | None] | None:
    """Return the meaning of each row, None for one that can't be read.

    None if a tenth can't, and more than ``allowed``.
    """
    most = max(allowed, (1 - _MOSTLY) * len(rows))
    meanings: list[_Meaning | None] = []
    misfits = 0
    for row in rows:
        try:
            meanings.append(_meaning(row, columns))
        except UnusableRow as error:
            meanings.append(None)
            misfits += not isinstance(error, NoAnswer)
        if misfits > most:
            return None
    return meanings


def _differ(
    meanings: Sequence[_Meaning | None] | None, others: Sequence[_Meaning | None] | None
) -> bool:
    """Check that two readings of the same rows differ in choices or right ones, in one row at
    least.
    """
    if meanings is None or others is None:
        return False
    for meaning, other in zip(meanings, others, strict=True):
        if meaning is None or other is None:
            continue
        if (meaning.choices, meaning.gold) != (other.choices, other.gold):
            return True
    return False


def _gaps(cells: Cells, files: Sequence[Path]) -> Iterator[str]:
    """Yield the lines of a mapping with ... for what can't be found, below comments that say why."""
    yield "# no columns fit by names and values: replace each ... by a name"
    yield f"# columns: {', '.join(map(_toml, cells.columns))}"
    if files and files[0].suffix in (".csv", ".tsv") and cells.header_is_row():
        yield "# row 1 looks like a question: add a header, such as question,A,B,C,D,answer"
    for name in map(_in_comment, cells.columns_of(is_chat)):
        yield f"# {name} holds chats: copy the questions to a column of their own"
    for name in map(_in_comment, cells.columns_of(names_right_choice)):
        yield (
            f"# {name} marks the right choice inside objects: write its letter to a column of its "
            "own"
        )
    listing = cells.columns_of(lists_choices)
    for name in cells.questions:
        if name in listing:
            yield f"# {_in_comment(name)} also holds the choices: move them to columns A, B, C, ..."
    question = cells.questions[0] if cells.questions else GAP
    yield f"question = {_toml(question)}"
    choices = next(cells.choices(), None)
    barred = cells.columns_of(_has_bar)
    if choices is not None:
        yield f"choices = {_toml(choices.columns)}"
    elif barred:
        yield f"choices = {_toml(barred[0])}"
        yield 'choices_split = "|"'
    else:
        yield 'choices = ["...", "..."]'
    yield 'answer = "..."'


def _has_bar(cell: object) -> bool:
    return isinstance(cell, str) and "|" in cell


@dataclass(kw_only=True)
class _Trial:
    """Read all rows by one guess, and keep only what tells it from others."""

    columns: Columns
    id: str = ""  # of the last row
    most: int = 0  # choices of a row
    meaning: int = 0  # hash of choices and right ones of all rows
    golds: set[tuple[int, ...]] = field(default_factory=set)  # of the first two rows that differ

    def fits(self, row: _Row) -> bool:
        """Read a row; return False if it has no meaning by this guess."""
        try:
            self.id, choices, gold = _meaning(row, self.columns)
        except UnusableRow:
            return False
        self.most = max(self.most, len(choices))
        self.meaning = hash((self.meaning, choices, gold))
        if len(self.golds) < 2:
            self.golds.add(gold)
        return True

    def is_doubtful(self) -> bool:
        """Check that all answers are the same, and could be meant otherwise.

        Numbers could count from 0 as well.  A cell whose first text is always right may list the
        spellings of one answer.
        """
        kind = self.columns.answer_is
        may_be_spellings = kind == "text" and self.columns.choices_split != ""
        return len(self.golds) == 1 and (kind == "number" or may_be_spellings)


def guessed_columns(files: Sequence[Path]) -> Columns | None:
    """Return what the columns of ``files`` mean if all guesses that fit every row agree, else None.

    Guesses differ if a row has other choices or another answer by one than by the other, as digits
    have that may count from 0 or from 1.
    """
    sample = [row for row in islice(_rows(files), SAMPLE) if isinstance(row, dict)]
    trials = [_Trial(columns=guess) for guess in _guesses(Cells(sample))]
    ids: set[int] = set()  # as hashes: a million ids are kept
    repeats = False
    for row in _rows(files):
        if not isinstance(row, dict):
            return None
        trials = [trial for trial in trials if trial.fits(row)]
        if not trials:
            return None
        id = trials[0].id
        if id:
            repeats = repeats or hash(id) in ids
            ids.add(hash(id))
    best = trials[0]
    if best.is_doubtful() or any(trial.meaning != best.meaning for trial in trials):
        return None
    columns = replace(best.columns, labels=best.columns.labels[: best.most])
    if repeats:
        return replace(columns, id=None)
    return columns


def _guesses(cells: Cells) -> list[Columns]:
    """Return the mappings to which no other column is a rival; with choices if there is one."""
    candidates = list(islice(_candidates(cells), _TRIED))
    guesses = [columns for columns in candidates if _is_alone(columns, cells)]
    # Cells are split only if no other columns can hold the choices.
    if any(not columns.fixed and not columns.choices_split for columns in candidates):
        guesses = [guess for guess in guesses if not guess.choices_split]
    with_choices = [guess for guess in guesses if not guess.fixed]
    return with_choices or guesses


def _rows(files: Iterable[Path]) -> Iterator[_Row | UnusableRow]:
    for file in files:
        yield from ROW_READERS[file.suffix](file)


def _is_alone(columns: Columns, cells: Cells) -> bool:
    """Check that no other column may be the question or a choice, and labels say their order.

    Empty choices are left to a mapping: a text may be lost there.  So are several in a cell, unless
    one sure sign parts all cells of choices, wrong choices under names of several kinds, and yes or
    no beside a text that it may judge.
    """
    if columns.drop_empty:
        return False
    if columns.choices_split and not _is_surely_split(columns, cells):
        return False
    used = columns.used - {columns.id, columns.subject, "", columns.question}
    free = [name for name in cells.questions if name not in used]
    if columns.question is not None:
        ranks = [rank(name, QUESTION) for name in free]
        if free[0] != columns.question or ranks.count(ranks[0]) > 1:
            return False
    if columns.fixed and cells.judged(columns.used):
        return False
    if columns.wrong is not None and not cells.has_clear_pair():
        return False
    is_ordered = bool(columns.fixed) or columns.labels not in _TRUTHS
    return is_ordered and not cells.further_choices(columns)


def _is_surely_split(columns: Columns, cells: Cells) -> bool:
    """Check that a sure sign parts the cells of choices, and is the only one that parts them all.

    It must not be one of a choice.
    """
    if columns.choices_split not in _SURE_SEPARATORS or not isinstance(columns.choices, str):
        return False
    if cells.exceeds_usual(columns.choices, columns.choices_split):
        return False
    return cells.separators(columns.choices) == [columns.choices_split]


def subject_note(file: str, rows: Sequence[_Row], columns: Columns) -> str:
    """Return a line about columns of ``rows`` that may be the subject but are not read so, or "".

    ``file``: the name of their file.
    """
    if columns.subject is not None:
        return ""
    passed = []
    for name, count in Cells(rows).subjects().items():
        if name not in columns.used:
            passed.append(f"{name} ({count} values in {len(rows)} rows)")
    if not passed:
        return ""
    return (
        f"{file}: no column is used as the subject; candidates: {', '.join(passed)}. Set "
        "subject = in a mapping"
    )


def answer_note(file: str, rows: Sequence[_Row], columns: Columns) -> str:
    """Return a line about a column of ``rows`` that says other answers than the one used, or "".

    ``file``: the name of their file.
    """
    if columns.answer is None or columns.choices is None:
        return ""
    cells = Cells(rows)
    for name in cells.answers:
        has_repeats = len(set(map(str, cells.columns[name]))) < len(rows)
        if name in columns.used or not has_repeats:
            continue
        readings = list(_readings(rows, replace(columns, answer=name, answer_is="any")))
        pairs = list(product(_readings(rows, columns), readings))
        if pairs and all(_differ(used, other) for used, other in pairs):
            return (
                f"{file}: column {name} says other answers than {columns.answer}, which is "
                "used. Set answer = in a mapping"
            )
    return ""


def _readings(rows: Sequence[_Row], columns: Columns) -> Iterator[list[_Meaning | None]]:
    """Yield the meanings of ``rows`` by each way in which their answers can be read."""
    kinds = [columns.answer_is]
    if columns.answer_is == "any":
        kinds = ["label", "index", "number", "text"]
    for kind in kinds:
        meanings = _meanings(rows, replace(columns, answer_is=kind))
        if meanings is not None:
            yield meanings


_COUNTING = {"index": "index from 0", "number": "number from 1"}


def reading_line(file: Path, columns: Columns) -> str:
    """Return a line that says what the columns of ``file`` were guessed to mean."""
    sources = {
        "question": columns.question,
        "choices": columns.choices,
        "fixed": columns.fixed,
        "right": columns.right,
        "wrong": columns.wrong,
    }
    named = {key: _named(source) for key, source in sources.items() if source}
    if columns.choices_split:
        named["choices"] += f" (split at {columns.choices_split})"
    parts = [f"{key} = {names}" for key, names in named.items()]
    if columns.answer is not None:
        kind = _COUNTING.get(columns.answer_is, columns.answer_is)
        parts.append(f"answer = {columns.answer.strip()} ({kind})")
    if columns.subject:
        parts.append(f"subject = {columns.subject}")
    if columns.id:
        parts.append(f"id = {columns.id}")
    return f"{file.name}: {', '.join(parts)}"


def _named(source: Source) -> str:
    """Return the columns of a source; of those named alike the first, and the label of the last."""
    if isinstance(source, str):
        return source.strip()
    stems = {Member.of(name).stem for name in source}
    last = Member.of(source[-1])
    if len(stems) > 1 or len(source) < 3 or not last.label:
        return ", ".join(map(str.strip, source))
    return f"{source[0].strip()}..{last.label}"


def _first_misfit(files: Iterable[Path], columns: Columns, count: int | None) -> str:
    """Return where the first row is that the mapping does not fit, and why, or "".

    Of the ``files`` the first ``count`` rows are read, or all.
    """
    for location, row in islice(_located_rows(files), count):
        try:
            if isinstance(row, UnusableRow):
                raise row
            _meaning(row, columns)
        except UnusableRow as reason:
            return f"{location}: {reason}"
    return ""


def _located_rows(files: Iterable[Path]) -> Iterator[tuple[RowPlace, _Row | UnusableRow]]:
    for file in files:
        for number, row in enumerate(_rows([file])):
            yield RowPlace(file, number), row


def _candidates(cells: Cells) -> Iterator[Columns]:
    """Yield the mappings that the names of the columns allow, the likeliest first."""
    yield from _right_and_wrong(cells)
    yield from _choices_with_answer(cells)
    for answer, question in product(cells.answers, cells.questions):
        if answer == question:
            continue
        for no, yes in _TRUTHS:
            yield _renamed(
                cells,
                question=question,
                fixed=("yes", "no"),
                answer=answer,
                answer_is="label",
                labels=(yes, no),
            )


def _right_and_wrong(cells: Cells) -> Iterator[Columns]:
    for right, wrong in cells.pairs():
        used = {*right.names, *wrong.names}
        free = [name for name in cells.questions if name not in used]
        yield _renamed(
            cells,
            question=free[0] if free else None,
            right=right.columns,
            wrong=wrong.columns,
            drop_empty=wrong.drop_empty,
            choices_split=wrong.split,
        )


def _choices_with_answer(cells: Cells) -> Iterator[Columns]:
    for choices in cells.choices():
        names: tuple[str, ...] = ()
        if isinstance(choices.columns, tuple):
            names = choices.columns
        spellings: list[tuple[str, tuple[str, ...]]] = [
            ("label", ()),
            ("text", ()),
            ("label", _LOWER),
            ("label", _ENCLOSED),
            ("label", _DOTTED),
            ("label", names),
            ("index", ()),
            ("flags", ()),
            ("number", ()),
        ]
        spellings += [("label", truth) for truth in _TRUTHS]
        for answer, question in product(cells.answers, cells.questions):
            if len({question, answer, *choices.names}) != len(choices.names) + 2:
                continue
            mapping = choices.mapping(question, answer, cells.id, cells.subject)
            for kind, labels in spellings:
                yield _renamed(cells, **mapping, answer_is=kind, labels=labels)


def _unnamed_candidates(cells: Cells) -> Iterator[Columns]:
    """Yield mappings by the cells of columns whose names say nothing, as those of other languages.

    Only a single column that can be the answer, and holds letters, is taken: digits could mean
    anything.
    """
    for choices in cells.choices():
        most = FEW
        if isinstance(choices.columns, tuple):
            most = max(len(choices.names), 2)
        for question in cells.longest_texts():
            answers = cells.possible_answers({question, *choices.names}, most)
            if question in choices.names or len(answers) != 1:
                continue
            mapping = choices.mapping(question, answers[0], None, None)
            for labels in ((), _LOWER, _ENCLOSED):
                yield _renamed(cells, **mapping, answer_is="label", labels=labels)


def _renamed(cells: Cells, **keys: Any) -> Columns:
    """Return a mapping in which columns with a reserved name, if it does not use them, get another.

    The id and the subject are the likeliest, unless ``keys`` name them.
    """
    columns = Columns(**{"id": cells.id, "subject": cells.subject, **keys})
    used = {path.split(".")[0] for path in columns.used}
    reserved = [name for name in RESERVED if name in cells.columns and name not in used]
    return replace(columns, rename={name: f"{name}_" for name in reserved})


def _read(rows: Iterable[_Row], columns: Columns) -> tuple[list[RowDraft], int]:
    """Return drafts of the rows that the mapping fits, and the number of those that lack an answer."""
    drafts = []
    unanswered = 0
    for row in rows:
        try:
            drafted = draft(row, columns)
            answer = drafted.answer
            if isinstance(answer, Answer):
                if columns.answer_is != "any":
                    answer.gold(columns.answer_is)
                elif not answer.readings():
                    # Raises the reason.
                    answer.gold("label")
        except NoAnswer:
            unanswered += 1
            continue
        except UnusableRow:
            continue
        if _has_choices(drafted):
            drafts.append(drafted)
    return drafts, unanswered


def mapping_lines(columns: Columns, values: Mapping[str, object] | None = None) -> Iterator[str]:
    """Yield the lines of a mapping in TOML; ``values`` replace those of ``columns``."""
    table = mapping_table(columns)
    if columns.answer is not None:
        table["answer_is"] = columns.answer_is
    for key, value in (values or {}).items():
        if value:
            table[key] = value
    rename = table.pop("rename", {})
    for key, value in table.items():
        yield f"{key} = {_toml(value)}"
    if rename:
        yield ""
        yield "[rename]"
        for old, new in rename.items():
            yield f"{old} = {_toml(new)}"


def _toml(value: object) -> str:
    """Spell texts and lists of them in TOML: as JSON, but no character is deleted or in halves."""
    return exact_json(value).replace("\x7f", "\\u007f")


def _in_comment(column: object) -> str:
    """Return a column's name for a comment in TOML, which holds no control characters."""
    name = str(column)
    return name if name.isprintable() else _toml(name)
