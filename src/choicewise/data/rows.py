"""Turn a row into an item: by a known shape or a mapping, with its answer read."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import combinations
from random import Random
from types import MappingProxyType
from typing import NamedTuple

from choicewise.data.dataset import RESERVED, Columns
from choicewise.data.files import (
    Number,
    is_number,
    list_in,
    read_list,
    repeated,
    spell,
    text,
    value_at,
)
from choicewise.data.items import BEST_AFTER_WRONG, Item, Single
from choicewise.data.options import OptionWatch, names_of, words_of
from choicewise.errors import DataError, NoAnswer, UnusableRow
from choicewise.util.jsonio import JsonMapping, exact_json
from choicewise.util.text import shortened

# How an answer may be spelled; if several fit every row of a file, they mean the same.
_KINDS = ("label", "index", "text")
# How an answer counts the choices → the number of the first choice; a number has to be declared.
_COUNTED = {"index": 0, "number": 1}
# Cells of an answer that is not published: in text columns, and in those of indices.
_NONE = ("", "-1")

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_labelled = partial(Columns, answer="answerKey", answer_is="label")
_indexed = partial(Columns, answer="label", answer_is="index")


class Answer(NamedTuple):
    """One row's answer cell with its choices.

    ``labels`` are those of the source, one per choice, or empty; ``numbers``: some choices are
    numbers.
    """

    cell: object
    choices: tuple[str, ...]
    labels: tuple[str, ...] = ()
    numbers: bool = False

    def readings(self) -> dict[str, tuple[int, ...]]:
        """Return every way to read the answer with the indices that it then means.

        Ways are ``label``, ``index`` and ``text``.  If the source has labels, they are the only
        way; if the choices are texts, a number can only be an index.
        """
        readings = {}
        for kind in self.kinds:
            with suppress(UnusableRow):
                readings[kind] = self.gold(kind)
        return readings

    def gold(self, kind: str) -> tuple[int, ...]:
        """Return the indices of the right choices, in increasing order, if read as ``kind``.

        Raises UnusableRow if it can't be read this way, or names no choice or one twice.
        """
        if self.cell is None:
            raise NoAnswer("the answer is null")
        answers = [_answer_text(cell) for cell in self.cells]
        if kind == "flags":
            return self._flagged(answers)
        if not answers:
            raise UnusableRow("the list of answers is empty")
        gold = sorted(self._index(answer, kind) for answer in answers)
        twice = repeated(gold)
        if twice is not None:
            raise UnusableRow(f"the answers name choice {twice} (counted from 0) twice")
        # Flags of more than two choices repeat, and so are refused above.
        if kind == "index" and len(self.choices) == len(gold) == 2:
            raise UnusableRow(
                'the answers name every choice; if they are a 1 or 0 for each, set answer_is = "flags"'
            )
        return tuple(gold)

    @property
    def kinds(self) -> tuple[str, ...]:
        """Return the ways in which the answer can be meant, readable or not."""
        if self.labels:
            return ("label",)
        if not self.numbers and all(map(is_number, self.cells)):
            return ("index",)
        return _KINDS

    @property
    def cells(self) -> list[object]:
        """Return the answers of a row that may have several."""
        if isinstance(self.cell, list | tuple):
            return list(self.cell)
        return [self.cell]

    def _flagged(self, answers: list[str]) -> tuple[int, ...]:
        """Return the indices of the choices whose flag is 1."""
        flags = [_FLAGS.get(answer, answer) for answer in answers]
        count = len(self.choices)
        if len(flags) != count or not set(flags) <= {"0", "1"} or "1" not in flags:
            raise UnusableRow(
                f"the answer must be 1 or 0 for each of {count} choices, and 1 at least once"
            )
        return tuple(index for index, flag in enumerate(flags) if flag == "1")

    def _index(self, answer: str, kind: str) -> int:
        """Return the index of the choice that one ``answer`` means."""
        if answer in _NONE and answer not in self.labels and answer not in self.choices:
            raise NoAnswer(f"the answer is {answer or 'empty'}")
        if kind in _COUNTED:
            return self._counted_index(answer, kind)
        if kind == "text":
            names = self.choices
            listed = "the texts of the choices"
        else:
            names = self.labels or tuple(LETTERS[: len(self.choices)])
            listed = ", ".join(names)
            if not self.labels and _are_letters_shuffled(self.choices):
                raise UnusableRow(
                    "the choices begin with letters in another order than A, B, C, ...; sort them "
                    "by their letters"
                )
        if answer not in names:
            raise UnusableRow(
                f"the answer {shortened(answer)!r} is not one of {listed}{_remedy(answer, names)}"
            )
        if names.count(answer) > 1:
            raise UnusableRow(f"the answer {answer!r} is the {kind} of several choices")
        return names.index(answer)

    def _counted_index(self, answer: str, kind: str) -> int:
        start = _COUNTED[kind]
        if not re.fullmatch(r"-?(0|[1-9][0-9]{0,8})", answer):
            problem = f"the answer {shortened(answer)!r} is no {kind} that counts from {start}"
            raise UnusableRow(problem + _remedy(answer, ()))
        index = int(answer) - start
        if not 0 <= index < len(self.choices):
            last = len(self.choices) - 1 + start
            raise UnusableRow(f"the answer is {kind} {answer}, outside {start} to {last}")
        return index


_FLAGS = {"true": "1", "false": "0"}


def _answer_text(cell: object) -> str:
    """Spell one answer, true and false as JSON does.

    Raises UnusableRow for what can't be spelled in one way.
    """
    if isinstance(cell, bool):
        return str(cell).lower()
    if isinstance(cell, float) and math.isnan(cell):
        raise NoAnswer("the answer is NaN")
    if is_number(cell) and "." in str(cell):
        raise UnusableRow(f"the answer is {cell}, not a whole number{_remedy(str(cell), ())}")
    return text(cell, "of the answer")


_DECIMAL = re.compile(r"([0-9]+)\.0+")
_LETTER_FIRST = re.compile(r"(option|choice|answer)?\W*(?P<letter>[A-Z])\b", re.IGNORECASE)


def _remedy(answer: str, names: Sequence[str]) -> str:
    """Return "; " and what to write for an ``answer`` that is none of ``names``, or ""."""
    decimal = _DECIMAL.fullmatch(answer)
    if decimal is not None:
        return f"; write {decimal[1]} (pandas made it a decimal; .astype(int) undoes it)"
    trimmed = answer.strip()
    if trimmed != answer and trimmed in names:
        return f"; remove the white space around {trimmed!r}"
    for name in names:
        if trimmed.lower() == name.lower():
            return f"; write {name!r}"
    if len(answer) < 4 and not answer[:1].isascii():
        name = unicodedata.name(answer[0], repr(answer[0]))
        return f"; this {answer[0]} is {name}; type the plain letter"
    letters = [part for part in re.split(r"[\s,;/|&+]+", answer) if part]
    if len(letters) == 1:
        letters = list(answer)
    if len(letters) > 1 and set(letters) <= set(names):
        return (
            f"; for several right choices write a list in JSONL or Parquet: {exact_json(letters)}"
        )
    letter = _LETTER_FIRST.match(answer)
    if letter is not None and letter["letter"] in names:
        return f"; write only the label: {letter['letter']}"
    return ""


class RowDraft(NamedTuple):
    """One row under a mapping.  ``id`` is empty if the file names none.

    ``answer`` is the answer, or the indices of the right choices if the columns say them.
    ``answer_is`` is how the mapping says the answer is spelled, or ``any``.  ``order``: the choice
    at each position, if they are not in the order of the source.
    """

    id: str
    question: str
    choices: tuple[str, ...]
    answer: Answer | tuple[int, ...]
    answer_is: str
    subject: str
    fields: Mapping[str, str]
    single: Single | None = None
    order: tuple[int, ...] = ()

    def item(self, id: str, where: object, answers: AnswerReader) -> Item:
        """Return the item; ``answers`` reads an answer that may be of any kind.

        Raises UnusableRow.
        """
        gold = self.answer
        if isinstance(gold, Answer):
            gold = answers.gold(where, gold, self.answer_is)
        choices = self.choices
        fields = self.fields
        if self.single is not None:
            if self.single.after_wrong(choices, gold):
                fields = {**fields, BEST_AFTER_WRONG: "true"}
            choices, gold = self.single.arrange(choices, gold)
        if self.order:
            choices = tuple(choices[index] for index in self.order)
            gold = tuple(new for new, index in enumerate(self.order) if index in gold)
        return Item(self.id or id, self.question, choices, gold, self.subject, fields)

    def shuffled(self, draws: Random) -> RowDraft:
        """Return the draft with the choices in an order that is drawn."""
        order = list(range(len(self.choices)))
        draws.shuffle(order)
        return self._replace(order=tuple(order))


def draft(row: JsonMapping, columns: Columns) -> RowDraft:
    """Read one row.  Raises UnusableRow if a column is missing or holds what it can't."""
    if columns.last_of is not None:
        parts = read_list(value_at(row, columns.last_of), columns.last_of)
        if not parts or not isinstance(parts[-1], Mapping):
            raise UnusableRow(f"column {columns.last_of} is not a list of objects")
        row = {**row, **parts[-1]}
    id = _text_at(row, columns.id)
    question = _text_at(row, columns.question)
    subject = _text_at(row, columns.subject)
    if columns.id is not None and not id:
        raise UnusableRow(f"column {columns.id} has no id")
    if columns.question is not None and not question.strip():
        raise UnusableRow(f"the question in column {columns.question} is {question!r}")
    if columns.last_word:
        question, _, _ = _text_at(row, columns.target).rpartition(" ")
    choices, answer = _choices_and_answer(row, columns)
    return RowDraft(
        id=id,
        question=question,
        choices=choices,
        answer=answer,
        answer_is=columns.answer_is,
        subject=subject,
        fields=_fields(row, columns),
        single=_single(row, columns),
    )


def _text_at(row: JsonMapping, name: str | None) -> str:
    """Return the text of a column; empty if no column is named."""
    if name is None:
        return ""
    return text(value_at(row, name), name)


def _single(row: JsonMapping, columns: Columns) -> Single | None:
    """Return the question with one right choice, if the mapping has it."""
    if columns.single is None:
        return None
    if isinstance(columns.single, str):
        return Single(_text_at(row, columns.single))
    name, flags = columns.single
    texts = _texts(row, name, _AS_STORED)
    best = Answer(value_at(row, flags), texts).gold("flags")
    if len(best) > 1:
        raise UnusableRow(f"column {flags} has {len(best)} right choices; it needs one")
    return Single(texts[best[0]], texts)


def _choices_and_answer(
    row: JsonMapping, columns: Columns
) -> tuple[tuple[str, ...], Answer | tuple[int, ...]]:
    """Return the choices of a row, and its answer or the indices of the right ones."""
    if columns.target is not None:
        target = text(value_at(row, columns.target), columns.target)
        if columns.last_word:
            _, _, target = target.rpartition(" ")
        return (target,), (0,)
    if columns.right is not None and columns.wrong is not None:
        right = _texts(row, columns.right, columns)
        wrong = _texts(row, columns.wrong, columns)
        if not right:
            raise UnusableRow("no choice is right")
        return right + wrong, tuple(range(len(right)))
    answer = _answer(row, columns)
    if isinstance(columns.choices, tuple) and columns.answer in columns.choices:
        # It is right even if another column holds the same text.
        return answer.choices, (columns.choices.index(columns.answer),)
    return answer.choices, answer


class CountingOpen(DataError):
    """Answers are digits, and seem to count the choices from another number, or may do so.

    ``answer_is``: what a mapping calls such answers, ``number`` or ``index``; ``...`` if it is
    open.
    """

    def __init__(self, message: str, answer_is: str) -> None:
        super().__init__(message)
        self.answer_is = answer_is


# Of so many answers that are no 0, an index is no longer taken to count from 0: of four choices
# they do so once in ten times.
DOUBTFUL = 8


class AnswerReader:
    """Read all answers of a dataset, those that may be of any kind as one ``kind``."""

    def __init__(
        self, answers: Iterable[tuple[object, Answer]], *, is_declared: bool = False
    ) -> None:
        """Decide on a kind by ``answers`` and where they are; no more are taken than it needs.

        Answers that can't be read at all are ignored.  Raises DataError if no kind fits all the
        others, or if several fit but mean different choices.  ``is_declared``: a person has said
        how the answers are spelled.
        """
        kinds: tuple[str, ...] = _KINDS
        # The first answer that two kinds read differently.
        differing: dict[tuple[str, str], tuple[object, Answer]] = {}
        for where, answer in answers:
            if len(kinds) == 1:
                break
            readings = answer.readings()
            if readings:
                kinds = _remaining(kinds, where, answer, readings)
            for first, second in combinations(readings, 2):
                if readings[first] != readings[second]:
                    differing.setdefault((first, second), (where, answer))
        for pair, (where, answer) in differing.items():
            if not set(pair) <= set(kinds):
                continue
            readings = answer.readings()
            meanings = ", ".join(
                f"{kind} (choice {readings[kind][0]}, counted from 0)" for kind in kinds
            )
            raise DataError(
                f"{where}: the answer {answer.cell!r} can be read as {meanings};"
                ' set answer_is = "label", "index", "number" or "text" in a mapping'
            )
        self.kind = kinds[0]
        self._is_declared = is_declared
        # No answer could be read.
        self._is_open = kinds == _KINDS
        # If they are texts of choices as well, both mean the same.
        self._only_index = kinds == ("index",)
        self.counting = _Counting()

    def gold(self, where: object, answer: Answer, kind: str = "any") -> tuple[int, ...]:
        """Return the indices of the right choices.

        Raises UnusableRow if the answer can't be read, and DataError if it can, but only as another
        kind.
        """
        if kind != "any":
            self.counting.add(where, answer, kind, is_proved=self._is_declared)
            return answer.gold(kind)
        kind = self.kind
        if self._is_open and not answer.labels:
            kind = "index"
        self.counting.add(where, answer, kind, is_proved=not self._only_index)
        try:
            gold = answer.gold(self.kind)
        except UnusableRow:
            gold = ()
        if not gold or self.kind not in answer.kinds:
            readings = answer.readings()
            if readings:
                _remaining((self.kind,), where, answer, readings)
            return answer.gold(self.kind)
        return gold


class _Counting:
    """Compare answers that are digits with the number that the choices are counted from."""

    def __init__(self) -> None:
        self._has_first = False
        self._has_last = False
        # What the first answer says that is one past the last choice.
        self._beyond = ""
        # What the first answer says that is one before the first choice.
        self._before = ""
        self._start = 0
        self._end = 0
        self._unproved = 0

    def add(self, where: object, answer: Answer, kind: str, *, is_proved: bool) -> None:
        """Add an answer that is read as ``kind``.

        ``is_proved``: something other than the digits says where they count from, as labels of the
        choices do.
        """
        start = _first_number(answer, kind)
        if start is None:
            return
        end = start + len(answer.choices) - 1
        for cell in map(str, answer.cells):
            if not re.fullmatch("[0-9]{1,9}", cell):
                continue
            number = int(cell)
            self._has_first |= number == start
            self._has_last |= number == end
            if number == end + 1 and not self._beyond:
                self._beyond = f"{where}: {_shifted(number, start, start, start + 1)}"
            if number == start - 1 and not self._before:
                self._before = f"{where}: {_shifted(number, end, start, start - 1)}"
            if start <= number <= end and not (is_proved or answer.labels):
                self._start = start
                self._end = end
                self._unproved += 1

    def check(self) -> str:
        """Return how a few answers are read that leave open where they count from, or "".

        Raises CountingOpen if they seem to count from another number, or if many of them leave it
        open.  No row is skipped then: the others would all be read wrongly.
        """
        if self._beyond and not self._has_first:
            raise CountingOpen(self._beyond, "number")
        if self._before and not self._has_last:
            raise CountingOpen(self._before, "index")
        if self._unproved == 0:
            return ""
        if self._start == 1 and not self._has_last:
            # Published labels from 1 are those of two benchmarks alone, so that what has their
            # columns is read as they are.
            return _note(self._end, 1, 0)
        if self._start == 0 and not self._has_first:
            if self._unproved >= DOUBTFUL:
                message = f"none of {self._unproved:,} answers is 0, so they may count from 1"
                raise CountingOpen(message, "...")
            return _note(0, 0, 1)
        return ""


def _note(absent: int, start: int, other: int) -> str:
    kind = "number" if other == 1 else "index"
    return (
        f"answers were read as counting from {start}, but none is {absent}."
        f' If they count from {other}, set answer_is = "{kind}" in a mapping'
    )


def _first_number(answer: Answer, kind: str) -> int | None:
    """Return the number of the first choice if the answer counts choices as ``kind``, else None."""
    if kind in _COUNTED:
        return _COUNTED[kind]
    is_label = kind == "label" and answer.labels
    if not is_label or not all(re.fullmatch("[0-9]{1,9}", label) for label in answer.labels):
        return None
    numbers = sorted(map(int, answer.labels))
    if numbers != list(range(numbers[0], numbers[0] + len(numbers))):
        return None
    return numbers[0]


def _shifted(number: int, absent: int, start: int, other: int) -> str:
    return (
        f"the answer is {number}, and no answer is {absent}: "
        f"answers seem to count from {other}, not from {start}"
    )


class Shape(NamedTuple):
    """A published layout: its mapping, and other columns that a file of this shape must have.

    ``values``: the columns that must hold one of a few texts, with these texts.
    """

    columns: Columns
    also: tuple[str, ...] = ()
    values: Mapping[str, tuple[str, ...]] = MappingProxyType({})

    def fits(self, row: JsonMapping, *, answered: bool = True) -> bool:
        """Check that ``row`` has all its columns, and no option beside them.

        Without ``answered`` the column of the answer must be missing.
        """
        if not self.has_columns(row, answered=answered) or self.other_value(row):
            return False
        return not option_watch(self.columns).left_out(row, choices_of(row, self.columns))

    def other_value(self, row: JsonMapping) -> str:
        """Return the first column that holds none of the texts it must hold, or ""."""
        for name, texts in self.values.items():
            if row.get(name) not in texts:
                return name
        return ""

    def has_columns(self, row: JsonMapping, *, answered: bool = True) -> bool:
        """Check that ``row`` has all its columns, whatever they hold; see :meth:`fits`."""
        columns = self.columns
        if columns.last_of is not None:
            # The others are in its elements.
            return answered and has_column(row, columns.last_of)
        needed = (columns.used - {columns.id, columns.subject}).union(self.also)
        if not answered:
            if columns.answer is None or columns.answer in names_of(columns.choices):
                return False
            if columns.choices is None or has_column(row, columns.answer):
                return False
            needed -= {columns.answer}
        return all(has_column(row, path) for path in needed)


def option_watch(columns: Columns) -> OptionWatch:
    """Return what finds the options of rows that the mapping ``columns`` leaves out."""
    sources = (columns.choices, columns.right, columns.wrong)
    # A question called option_3 is an option.
    used = columns.used - {columns.question}
    return OptionWatch(sources, used, is_fixed=bool(columns.fixed))


def choices_of(row: JsonMapping, columns: Columns) -> tuple[str, ...] | None:
    """Return the choices of a row, of which other columns may be bad; None if they can't be read."""
    try:
        choices, _ = _choices_and_answer(row, columns)
    except UnusableRow:
        return None
    return choices


def has_column(row: JsonMapping, path: str) -> bool:
    """Check that the row has a column of this name, or this path into nested columns."""
    if "." not in path:
        return path in row
    try:
        value_at(row, path)
    except UnusableRow:
        return False
    return True


# The first shape with all its columns in the file is used, so that a shape comes before those whose
# columns it includes.
SHAPES: Mapping[str, Shape] = {
    # allenai.org/data/arc as released, then the fields of allenai/openbookqa, allenai/ai2_arc,
    # tau/commonsense_qa
    "ARC, original": Shape(_labelled("question.stem", "question.choices")),
    "OpenBookQA": Shape(_labelled("question_stem", "choices")),
    "ARC, CommonsenseQA": Shape(_labelled("question", "choices")),
    "PIQA": Shape(_indexed("goal", ("sol1", "sol2"))),
    # COPA's column "question" says which relation is asked for; the original XML calls it asks-for.
    "COPA": Shape(
        _indexed("premise", ("choice1", "choice2"), id="idx", rename={"question": "asks_for"}),
        also=("question",),
        values={"question": ("cause", "effect")},
    ),
    "Social IQa": Shape(
        Columns(choices=("answerA", "answerB", "answerC"), answer="label", answer_is="number"),
        ("context",),
    ),
    "WinoGrande": Shape(
        Columns("sentence", ("option1", "option2"), answer="answer", answer_is="number")
    ),
    "HellaSwag, cleaned": Shape(_indexed("query", "endings", id="ind")),
    "HellaSwag": Shape(_indexed("ctx", "endings", id="ind")),
    # The choices of mc2 and, of the right ones, that of mc1 first, so that both metrics follow from
    # one run.
    "TruthfulQA, multiple choice": Shape(
        Columns(
            choices="mc2_targets.choices",
            answer="mc2_targets.labels",
            answer_is="flags",
            single=("mc1_targets.choices", "mc1_targets.labels"),
        )
    ),
    # Splitting at ";" gives an empty last answer if the sheet's cell ends in one; TruthfulQA's
    # reader (utilities.py, split_multi_answer) drops those.
    "TruthfulQA, generation": Shape(
        Columns(
            right="correct_answers",
            wrong="incorrect_answers",
            single="best_answer",
            rename={"best_answer": "best_answer"},
            drop_empty=True,
        )
    ),
    "BLiMP": Shape(
        Columns(None, right=("sentence_good",), wrong=("sentence_bad",), subject="UID", id="pairID")
    ),
    # The right answer comes last, as the harness lists them (lm_eval/tasks/sciq/sciq.yaml).
    "SciQ": Shape(
        Columns(
            choices=("distractor1", "distractor2", "distractor3", "correct_answer"),
            answer="correct_answer",
            answer_is="text",
        )
    ),
    "GPQA": Shape(
        Columns(
            "Question",
            right=("Correct Answer",),
            wrong=("Incorrect Answer 1", "Incorrect Answer 2", "Incorrect Answer 3"),
            id="Record ID",
        )
    ),
    "MMLU-Pro": Shape(
        _labelled("question", "options", answer="answer", id="question_id", subject="category"),
        also=("category",),
    ),
    "RACE": Shape(_labelled("question", "options", answer="answer"), also=("article",)),
    "MuSR": Shape(_indexed("question", "choices", answer="answer_index"), also=("narrative",)),
    "question, choices, answer (MMLU on the Hub)": Shape(
        Columns(choices="choices", answer="answer")
    ),
    **{
        f"question, A to {LETTERS[count - 1]}, answer": Shape(
            Columns(choices=tuple(LETTERS[:count]), answer="answer")
        )
        for count in range(10, 1, -1)
    },
    "CMMLU": Shape(_labelled("Question", tuple(LETTERS[:4]), answer="Answer")),
    # "yes" before "no", as OLMES prints the two as options (arXiv:2406.08446); SuperGLUE's labels
    # are 0 for false.
    "BoolQ": Shape(
        _labelled(fixed=("yes", "no"), answer="answer", labels=("true", "false")), also=("passage",)
    ),
    "BoolQ, SuperGLUE": Shape(
        _labelled(fixed=("yes", "no"), answer="label", labels=("1", "0"), id="idx"),
        also=("passage",),
    ),
}


def recognise(row: JsonMapping) -> Columns | None:
    """Return the mapping of the first shape whose columns are all in ``row``, or None.

    Columns named ``id`` and ``subject`` are the id and the subject, if the shape names no others.
    A row of a split without published answers may lack the column of the answer.
    """
    name = shape_of(row)
    if name is None:
        return None
    columns = SHAPES[name].columns
    return replace(
        columns,
        id=_present(row, columns.id, "id"),
        subject=_present(row, columns.subject, "subject"),
    )


def shape_of(row: JsonMapping) -> str | None:
    """Return the name of the first shape that fits ``row``, or None."""
    for name, shape in SHAPES.items():
        if shape.fits(row):
            return name
    if any(shape.has_columns(row) for shape in SHAPES.values()):
        # Its answer is there, so that it is no row of a split without answers.
        return None
    for name, shape in SHAPES.items():
        if shape.fits(row, answered=False):
            return name
    return None


def shape_of_columns(columns: Columns) -> str:
    """Return the name of the shape whose mapping is ``columns``, or "".

    The columns of ids and subjects may differ.
    """
    for name, shape in SHAPES.items():
        if columns == replace(shape.columns, id=columns.id, subject=columns.subject):
            return name
    return ""


def _answer(row: JsonMapping, columns: Columns) -> Answer:
    try:
        answer = value_at(row, columns.answer or "")
    except UnusableRow as reason:
        raise NoAnswer(*reason.args) from None
    if columns.choices is None:
        return Answer(answer, columns.fixed, columns.labels)
    cells, labels, name = _cells(row, columns.choices, columns)
    if labels is None and isinstance(columns.choices, str):
        labels = _letters_beside(row, columns, len(cells), answer)
    if labels is not None and len(labels) != len(cells):
        raise UnusableRow(f"column {name} has {len(labels)} labels for {len(cells)} choices")
    if columns.drop_empty:
        while cells and (cells[-1] is None or not str(cells[-1]).strip()):
            cells = cells[:-1]
    if labels is None:
        names = columns.labels[: len(cells)]
    else:
        names = tuple(text(label, f"{name} (label)") for label in labels[: len(cells)])
    if 0 < len(names) < len(cells):
        raise UnusableRow(f"{len(cells)} choices, but the mapping has {len(names)} labels")
    choices = tuple(text(cell, name) for cell in cells)
    return Answer(answer, choices, names, numbers=any(map(is_number, cells)))


# A mapping that neither drops nor parts a text.
_AS_STORED = Columns(target="")


def _texts(row: JsonMapping, source: str | tuple[str, ...], columns: Columns) -> tuple[str, ...]:
    cells, _, name = _cells(row, source, columns)
    if columns.drop_empty:
        cells = [cell for cell in cells if cell is not None and cell != ""]
    return tuple(text(cell, name) for cell in cells)


def _cells(
    row: JsonMapping, source: str | tuple[str, ...], columns: Columns
) -> tuple[list[object], list[object] | None, str]:
    """Return the cells of the choices, their labels if there are some, and the columns' name."""
    if isinstance(source, tuple):
        cells: list[object] = []
        for path in source:
            # A row of JSONL may lack the keys of the choices that it does not have.
            is_lacking = columns.drop_empty and not has_column(row, path)
            cells.append(None if is_lacking else value_at(row, path))
        return cells, None, ", ".join(source)
    cell = value_at(row, source)
    if isinstance(cell, str) and not isinstance(cell, Number):
        if columns.choices_split:
            return list(split_choices(cell, columns.choices_split)), None, source
        cell = list_in(cell, source)
    return *_cells_and_labels(cell, source), source


def _cells_and_labels(cell: object, column: str) -> tuple[list[object], list[object] | None]:
    """Return the choices in a cell with a list, of any of its three forms, and their labels."""
    if isinstance(cell, Mapping) and isinstance(cell.get("text"), list):
        if isinstance(cell.get("label"), list):
            return cell["text"], cell["label"]
        return cell["text"], _labels_among(cell)
    if not isinstance(cell, list):
        raise UnusableRow(f"column {column} is not a list of choices")
    if cell and all(isinstance(part, Mapping) for part in cell):
        texts = [value_at(part, "text") for part in cell]
        if "label" in cell[0]:
            return texts, [value_at(part, "label") for part in cell]
        return texts, _labels_among({name: [part.get(name) for part in cell] for name in cell[0]})
    return cell, None


# Words of the names under which labels lie beside the texts of choices, if not under ``label``.
_LABEL = frozenset(("label", "labels", "id", "ids", "key", "keys", "letter", "letters", "option"))


def _labels_among(lists: Mapping[str, object]) -> list[object] | None:
    """Return the first list that is called after labels, and holds them in some order, or None.

    Labels are letters from A or a, or numbers from 0 or 1.
    """
    for name, values in lists.items():
        if not isinstance(values, list) or _LABEL.isdisjoint(words_of(name)):
            continue
        count = len(values)
        letters = LETTERS[:count]
        numbers = [str(number) for number in range(count + 1)]
        for series in (letters, letters.lower(), numbers[:-1], numbers[1:]):
            if sorted(map(str, values)) == sorted(series):
                return values
    return None


def _letters_beside(
    row: JsonMapping, columns: Columns, count: int, answer: object
) -> list[object] | None:
    """Return the list of another column that has the letter of each choice, or None.

    Only if the answers are among them: numbers and texts do not need them.
    """
    if columns.labels:
        return None
    answers = Answer(answer, ()).cells
    lists = {}
    for name, cell in row.items():
        if name not in columns.used and isinstance(cell, list) and len(cell) == count:
            lists[name] = cell
    labels = _labels_among(lists)
    if labels is None or not all(map(_is_letter, labels)):
        return None
    if not all(answer in labels for answer in answers):
        return None
    return labels


def _is_letter(label: object) -> bool:
    return isinstance(label, str) and label.isalpha()


# How a choice begins that has its letter in its text: ``A) ``, ``(a)``, ``b. ``, ``c ) ``.
_LETTERED = re.compile(r"\(?(?P<letter>[A-Za-z])\s?[).:]\s*")


def lettered(choices: Sequence[str]) -> list[str] | None:
    """Return the ``choices`` without the letters from A that they begin with.

    None if one does not begin with its letter.
    """
    if not 1 < len(choices) <= len(LETTERS):
        return None
    texts = []
    for letter, choice in zip(LETTERS, choices, strict=False):
        beginning = _LETTERED.match(choice)
        if beginning is None or beginning["letter"].upper() != letter:
            return None
        texts.append(choice[beginning.end() :])
    return texts


def _are_letters_shuffled(choices: Sequence[str]) -> bool:
    """Check that the choices begin with the letters from A, in another order."""
    letters = []
    for choice in choices:
        beginning = _LETTERED.match(choice)
        if beginning is None:
            return False
        letters.append(beginning["letter"].upper())
    expected = list(LETTERS[: len(choices)])
    return letters != expected and sorted(letters) == expected


def split_choices(cell: str, separator: str) -> Sequence[str]:
    """Return the choices of a ``cell``, without white space around them and letters before them.

    Raises UnusableRow if the first part begins with the letter A, and others not with theirs: then
    the separator occurs in a choice, or is another one.
    """
    parts = [part.strip() for part in cell.split(separator)]
    texts = lettered(parts)
    if texts is not None:
        return texts
    first = _LETTERED.match(parts[0])
    if len(parts) > 1 and first is not None and first["letter"].upper() == "A":
        raise UnusableRow(
            f"split at {separator!r}, the choices don't begin with A, B, C, ...: {cell[:60]!r}; "
            "correct choices_split"
        )
    return parts


def _fields(row: JsonMapping, columns: Columns) -> Mapping[str, str]:
    """Return every other column as text.

    Nulls are left out: a protocol that needs the column then says that it is missing.
    """
    used = columns.used - set(columns.rename)
    kept: dict[str, str] = {}
    for name, cell in _leaves(row, used):
        if name in used or cell is None:
            continue
        if not columns.others and name not in columns.rename:
            continue
        new = columns.rename.get(name, name)
        if new in RESERVED or new in kept:
            raise UnusableRow(
                f"column {name} can't be kept as field {new!r}; rename it under rename"
            )
        kept[new] = spell(cell, name)
    return MappingProxyType(kept)


def _leaves(row: JsonMapping, used: frozenset[str]) -> Iterator[tuple[str, object]]:
    """Yield the columns of a row, and of a nested one of which a part is used all parts.

    These have names such as ``question.stem``.
    """
    opened = {path.split(".")[0] for path in used if path not in row}
    for name, cell in row.items():
        if name in opened and isinstance(cell, Mapping):
            for part, inner in cell.items():
                yield f"{name}.{part}", inner
        else:
            yield name, cell


def _remaining(
    kinds: tuple[str, ...], where: object, answer: Answer, readings: dict[str, tuple[int, ...]]
) -> tuple[str, ...]:
    """Return the ``kinds`` by which the answer can be read as well.  Raises DataError for none."""
    remaining = tuple(kind for kind in kinds if kind in readings)
    if not remaining:
        raise DataError(
            f"{where}: the answer {answer.cell!r} reads as {' or '.join(readings)}, earlier ones as"
            f" {' or '.join(kinds)}; set answer_is in a mapping (label, index, number or text)"
        )
    return remaining


def _present(row: JsonMapping, *names: str | None) -> str | None:
    for name in names:
        if name is not None and name in row:
            return name
    return None
