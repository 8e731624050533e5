"""What columns may mean: guesses and proposals for an unknown shape.

A guess is read by where it alone fits every row; else it only becomes the text of a mapping that a person checks.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice, product
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from choicewise.data.dataset import GAP, RESERVED, Columns, Items, mapping_table
from choicewise.data.files import ROW_READERS, RowPlace, list_in, text
from choicewise.data.options import FEW, SEVERAL, WRONG, Member, Source, names_of, paths, words_of
from choicewise.data.rows import (
    LETTERS,
    Answer,
    CountingOpen,
    RowDraft,
    draft,
    lettered,
    shape_of_columns,
    split_choices,
)
from choicewise.errors import DataError, NoAnswer, UnknownShape, UnusableRow
from choicewise.util.jsonio import exact_json

_COPY = "save these lines as mapping.toml, and check them:"
_TRIED: Final = 200  # combinations of columns that are tried
_Ints = npt.NDArray[np.int64]
_LONGEST_LABEL: Final = 3  # characters of a label such as (A)
_LOWER: Final = tuple(LETTERS.lower())
_ENCLOSED: Final = tuple(f"({letter})" for letter in LETTERS)
_DOTTED: Final = tuple(f"{letter}." for letter in LETTERS)
_SEPARATORS: Final = (
    "|",
    "\n",
    "\t",
    ";",
    "；",
    "、",
)  # what parts choices in one cell, and stands in none
_COMMAS: Final = (
    " , ",
    ", ",
    ",",
    "，",
    "،",
    "/",
)  # what parts choices, and may stand in one; the longest first
_CHOICES: Final = (
    "choices",
    "options",
    "endings",
    "answers",
    "candidates",
    "alternatives",
    "targets",
)
_RIGHT: Final = ("correct", "right", "good", "true", "gold")
_BAD: Final = WRONG | {"bad"}
_LISTS: Final = SEVERAL | {"answers", "distractors", "foils", "decoys"}
_REMARKS: Final = frozenset(
    ("explanation", "rationale", "reason", "reasoning", "feedback", "source", "comment", "note")
)
ID: Final = ("id", "uid", "qid", "guid", "uuid", "number")
Floats = npt.NDArray[np.float64]
SAMPLE: Final = 200  # rows that a proposal is tried on


def unknown_shape(file: Path, rows: Sequence[Mapping[str, Any]]) -> UnknownShape:
    """The error about a file whose columns are of no known shape; ``rows``: its first ones."""
    why = f"{file} has the columns {', '.join(rows[0])}, which are no known shape"
    return UnknownShape(f"{why}; {_COPY}", proposal(rows, file=file))


def unanswered(file: Path, rows: Sequence[Mapping[str, Any]]) -> DataError | None:
    """The error about a file none of whose ``rows`` has an answer, where all else can be read; None for others."""
    answer = None
    for columns in islice(_candidates(_Cells(rows)), _TRIED):
        drafts, count = _read(rows, columns)
        if drafts:
            return None
        if count == len(rows) and answer is None:
            answer = columns.answer
    if answer is None:
        return None
    cell = _at(rows[0], answer)
    spelled = "empty" if cell in (None, "") else str(cell)
    return DataError(
        f"{file} has no answers: {answer} is {spelled} in row after row; name a file whose answers are published,"
        " such as that of the split validation"
    )


def ragged_shape(
    file: Path, rows: Sequence[Mapping[str, Any]], columns: Columns
) -> UnknownShape | None:
    """The error about a file of a known shape whose ``rows`` leave their last choices empty; None for others."""
    if not isinstance(columns.choices, tuple) or columns.answer in columns.choices:
        return None
    dropping = replace(columns, drop_empty=True)
    count = len(_read(rows, dropping)[0]) - len(_read(rows, columns)[0])
    if not count:
        return None
    why = f"{file}: {count} of the first {len(rows)} rows have fewer choices than columns for them"
    return UnknownShape(f"{why}; {_COPY}", [_FEWER, *mapping_lines(dropping)])


_ADD: Final = "put it among the choices if it holds one"

_FEWER: Final = "# drop_empty: rows have fewer choices where their last cells are empty; check that no text was lost"


def open_counting(
    file: Path, rows: Sequence[Mapping[str, Any]], columns: Columns, error: CountingOpen
) -> UnknownShape:
    """Return the error about answers that do not count as ``columns``, those of a known shape, say."""
    message = error.message if error.message.startswith(str(file)) else f"{file}: {error.message}"
    return UnknownShape(f"{message}; {_COPY}", [*_counting_lines(rows, columns, error.answer_is)])


def _counting_lines(
    rows: Sequence[Mapping[str, Any]], columns: Columns, answer_is: str
) -> Iterator[str]:
    """Yield the lines of the mapping ``columns`` with answers that count otherwise."""
    if columns.fixed:
        yield f"# put the labels of {' and '.join(columns.fixed)} in place of ..."
        yield from _lines({"labels": ["...", "..."]}, columns)
    elif answer_is == "...":
        yield _FROM_0_OR_1
        yield from _lines({"answer_is": answer_is}, columns)
    else:
        counting = replace(columns, answer_is=answer_is, labels=())
        drafts, _ = _read(rows, counting)
        yield f"# fits {len(drafts)} of the first {len(rows)} rows; check it before you use it"
        yield from mapping_lines(counting)


_FROM_0_OR_1: Final = (
    '# no answer is 0: put "number" in place of ... if they count from 1, "index" if from 0'
)


def option_left_out(column: str, message: str, rows: Sequence[Mapping[str, Any]]) -> UnknownShape:
    """Return the error about a ``column`` with an option that is not read; ``rows``: the first ones of its file."""
    return UnknownShape(f"{message}; {_COPY}", proposal(rows, option=column))


def misread_shape(
    file: Path, rows: Sequence[Mapping[str, Any]], columns: Columns, error: DataError
) -> UnknownShape | None:
    """The error about a file of a known shape none of whose ``rows`` fit, where another mapping does fit them."""
    drafts, _ = _read(rows, columns)
    if drafts or not (lines := proposal(rows))[0].startswith("# fits"):
        return None
    if columns.answer is not None and columns.answer not in _Cells(rows).columns:
        return unknown_shape(file, rows)
    why = f"{file} has the columns of {shape_of_columns(columns)}, and no row can be read so: {error.parts[0]}"
    return UnknownShape(f"{why}; {_COPY}", lines)


def proposal(
    rows: Sequence[Mapping[str, Any]], file: Path | None = None, option: str = ""
) -> list[str]:
    """The lines of a mapping in TOML that fits nine of ten ``rows``, or of one with gaps where none does.

    ``rows``: the first ones of a file, at least one; where the ``file`` is given, a row that does not fit is named.
    ``option``: a column that seems to hold one more choice.
    The lines begin with what is to be checked, as comments.  What the rows leave open stands as ``...``, with which no
    mapping can be used: so none reads other answers than are meant.
    """
    cells = _Cells(rows)
    by_name = list(islice(_candidates(cells), _TRIED))
    by_cells = islice(_unnamed_candidates(cells), _TRIED)
    for columns in chain(by_name, by_cells):
        drafts, unanswered = _read(rows, columns)
        count = len(drafts) + unanswered
        if not drafts or count < _MOSTLY * len(rows):
            continue
        lines = [f"# fits {count} of the first {len(rows)} rows; check it before you use it"]
        if unanswered:
            lines.append(f"# {unanswered} of them have no answer")
        if file is not None and (misfit := _first_misfit(file, rows, columns)):
            lines.append(f"# it does not fit {misfit}")
        if columns.drop_empty:
            lines.append(_FEWER)
        answers = {
            str(drafted.answer.cell) for drafted in drafts if isinstance(drafted.answer, Answer)
        }
        if columns.answer_is == "number" and len(answers) == 1:
            lines.append("# all answers are the same: check that they count from 1")
        further = cells.further_choices(columns)
        if option and option not in columns.used and option not in further:
            further.append(option)
        if further:
            lines.append(f"# not used: {', '.join(map(_in_comment, further))}; {_ADD}")
        opened, comments = _opened_where_rivals_fit(columns, by_name, rows)
        most = max(len(drafted.choices) for drafted in drafts)
        if isinstance(columns.choices, tuple):
            most = len(columns.choices)
        return [*lines, *comments, *_lines({"labels": columns.labels[:most], **opened}, columns)]
    return [*_gaps(cells, file)]


_MOSTLY: Final = 0.9  # share of the rows that a proposal fits


def _opened_where_rivals_fit(
    columns: Columns, candidates: Sequence[Columns], rows: Sequence[Mapping[str, Any]]
) -> tuple[dict[str, object], list[str]]:
    """Return the keys of a mapping that the ``rows`` leave open, with ..., and a comment on each.

    They do so where another of the ``candidates`` fits as well, and other choices are asked or right by it.
    """
    opened: dict[str, object] = {}
    comments = []
    if columns.labels in _TRUTHS and not columns.fixed:
        opened["labels"] = ["...", "..."]
        comments.append(
            f"# put {' and '.join(columns.labels)} in place of ..., in the order of the choices they mean"
        )
    if columns.choices_split in _COMMAS and not _are_lettered(rows, columns):
        opened["choices_split"] = "..."
        comments.append(
            f"# cells seem to hold several choices: put {_toml(columns.choices_split)} in place of ...,"
        )
        comments.append(_ONE_CHOICE)
    if columns.choices_split == GAP:
        comments.append(
            "# cells seem to hold several choices: put what stands between them in place of ...,"
        )
        comments.append(_ONE_CHOICE)
    meanings = _meanings(rows, columns)
    kinds = {columns.answer_is: None}
    names = {columns.answer: None}
    sources = {columns.choices or (): None}
    for rival in candidates:
        is_alike = rival.question == columns.question or rival.question in (columns.choices or ())
        if not is_alike or bool(rival.choices) != bool(columns.choices):
            continue
        if not _differ(meanings, _meanings(rows, rival)):
            continue
        if rival.question != columns.question:
            opened["question"] = GAP
        if rival.choices != columns.choices:
            sources[rival.choices or ()] = None
        elif rival.answer == columns.answer:
            kinds[rival.answer_is] = None
        else:
            names[rival.answer] = None
    if len(sources) > 1:
        opened["choices"] = "..."
        comments.append(
            f"# {' or '.join(map(_named, sources))} can be the choices: put one in place of ..."
        )
    if set(kinds) == {"index", "number"}:
        opened["answer_is"] = "..."
        comments.append(_FROM_0_OR_1)
    elif len(kinds) > 1:
        opened["answer_is"] = "..."
        comments.append(
            f"# answers can be read as {' or '.join(kinds)}: put what is meant in place of ..."
        )
    if len(names) > 1:
        opened["answer"] = "..."
        comments.append(
            f"# {' or '.join(map(_in_comment, names))} can be the answer: put one in place of ..."
        )
    return opened, comments


_ONE_CHOICE: Final = (
    "# or leave the line out, and name the column in a list, if each cell is one choice"
)


def _are_lettered(rows: Sequence[Mapping[str, Any]], columns: Columns) -> bool:
    """Whether letters number the choices in each cell, so that it is parted as meant."""
    source = columns.choices if columns.choices is not None else columns.wrong
    for row in rows:
        parts = [part.strip() for part in str(_at(row, str(source))).split(columns.choices_split)]
        if lettered(parts) is None:
            return False
    return True


_Meanings = list[tuple[tuple[str, ...], tuple[int, ...]] | None]


def _meanings(rows: Sequence[Mapping[str, Any]], columns: Columns) -> _Meanings | None:
    """Return choices and right ones of each row, None for one that can't be read; None if more than a tenth can't."""
    meanings: _Meanings = []
    misfits = 0
    for row in rows:
        try:
            _, choices, gold = _meant(row, columns)
            meanings.append((choices, gold))
        except UnusableRow as error:
            meanings.append(None)
            misfits += not isinstance(error, NoAnswer)
        if misfits > (1 - _MOSTLY) * len(rows):
            return None
    return meanings


def _differ(meanings: _Meanings | None, others: _Meanings | None) -> bool:
    """Whether two readings of the same rows ask other choices, or name other right ones, in one of them."""
    if meanings is None or others is None:
        return False
    pairs = zip(meanings, others, strict=True)
    return any(None not in (meaning, other) and meaning != other for meaning, other in pairs)


def _gaps(cells: _Cells, file: Path | None) -> Iterator[str]:
    """Yield the lines of a mapping with ... for what can't be found, below comments that say why."""
    yield "# no columns fit by their names and values: put theirs in place of ..."
    yield f"# the columns are {', '.join(map(_toml, cells.columns))}"
    if file is not None and file.suffix in (".csv", ".tsv") and cells.header_is_row():
        yield "# the first row looks like a question: write a header above it, such as question,A,B,C,D,answer"
    for name in cells.chats():
        yield f"# {_in_comment(name)} holds chats: copy the question out of them into a column of its own"
    for name in cells.objects_with_answers():
        shown = _in_comment(name)
        yield f"# {shown} holds objects that say which is right: write their letters into a column of its own"
    for name in cells.questions_with_choices():
        yield f"# {_in_comment(name)} holds the choices, too: move them into columns A, B, C, ... of their own"
    yield f"question = {_toml(next(iter(cells.questions()), '...'))}"
    choices = next(cells.choices(), None)
    if choices is None:
        yield 'choices = ["...", "..."]'
    else:
        yield f"choices = {_toml(choices.columns)}"
    yield 'answer = "..."'


def guessed_columns(files: Sequence[Path]) -> Columns | None:
    """What the columns of ``files`` mean where all guesses that fit every row agree, and there is one; else None.

    Guesses differ where a row has other choices or another answer by one than by the other, as digits have that may
    count from 0 or from 1.
    """
    rows = chain.from_iterable(ROW_READERS[file.suffix](file) for file in files)
    sample = [row for row in islice(rows, SAMPLE) if isinstance(row, dict)]
    cells = _Cells(sample)
    left = {
        number: each
        for number, each in enumerate(islice(_candidates(cells), _TRIED))
        if cells.alone(each)
    }
    if any(not each.fixed for each in left.values()):
        left = {number: each for number, each in left.items() if not each.fixed or each.choices}
    read = dict.fromkeys(left, 0)
    golds: dict[int, set[tuple[int, ...]]] = {number: set() for number in left}
    most = 0
    ids, repeats = set[int](), False
    for row in chain.from_iterable(ROW_READERS[file.suffix](file) for file in files):
        if not isinstance(row, dict):
            return None
        for number, columns in [*left.items()]:
            try:
                id, choices, gold = _meant(row, columns)
            except UnusableRow:
                del left[number]
                continue
            most = max(most, len(choices))
            read[number] = hash((read[number], choices, gold))
            golds[number] |= {gold} if len(golds[number]) < 2 else set()
            if number == min(left) and id:
                repeats |= hash(id) in ids
                ids.add(hash(id))
        if not left:
            return None
    best = left[min(left)]
    if len({read[number] for number in left}) > 1 or (
        best.answer_is == "number" and len(golds[min(left)]) == 1
    ):
        return None
    return replace(best, labels=best.labels[:most], id=None if repeats else best.id)


def subject_note(file: Path, columns: Columns) -> str:
    """What columns of ``file`` could name the subject and were passed by, on a line; empty for none."""
    if columns.subject is not None:
        return ""
    rows = [row for row in islice(ROW_READERS[file.suffix](file), SAMPLE) if isinstance(row, dict)]
    passed = []
    for name, count in _Cells(rows).subjects().items():
        if name not in columns.used:
            passed.append(f"{name} ({count} values in {len(rows)} rows)")
    if not passed:
        return ""
    return f"{file.name}: no column is read as the subject: {', '.join(passed)}; a mapping with subject = changes it"


def reading_line(file: Path, columns: Columns) -> str:
    """What the columns of ``file`` were guessed to mean, on a line."""
    kinds = {"index": "index from 0", "number": "number from 1"}
    parts = [
        f"{name} = {_named(value)}"
        for name, value in _sources(columns).items()
        if value and name != "answer"
    ]
    answer = []
    if columns.answer is not None:
        answer.append(
            f"answer = {columns.answer.strip()} ({kinds.get(columns.answer_is, columns.answer_is)})"
        )
    after = [
        f"{name} = {value}"
        for name, value in {"subject": columns.subject, "id": columns.id}.items()
        if value
    ]
    return f"{file.name}: {', '.join([*parts, *answer, *after])}"


def _named(source: Source) -> str:
    """The columns of a source; of those that are named alike the first, and the label of the last."""
    if isinstance(source, str):
        return source.strip()
    stems = {Member.of(name).stem for name in source}
    last = Member.of(source[-1])
    if len(stems) > 1 or len(source) < 3 or not last.label:
        return ", ".join(map(str.strip, source))
    return f"{source[0].strip()}..{last.label}"


def _first_misfit(file: Path, rows: Sequence[Mapping[str, Any]], columns: Columns) -> str:
    """The place of the first of the ``rows`` that the mapping does not fit, and why; empty where it fits all."""
    for row in rows:
        try:
            _meant(row, columns)
        except UnusableRow as reason:
            numbers = (
                number for number, each in enumerate(ROW_READERS[file.suffix](file)) if each == row
            )
            return f"{RowPlace(file, next(numbers))}: {reason}"
    return ""


def _meant(
    row: Mapping[str, Any], columns: Columns
) -> tuple[str, tuple[str, ...], tuple[int, ...]]:
    """Id, choices and right ones of a row; UnusableRow where it can't be asked as ``columns`` say."""
    drafted = draft(row, columns)
    gold = (
        drafted.answer.gold(columns.answer_is)
        if isinstance(drafted.answer, Answer)
        else drafted.answer
    )
    if len(drafted.choices) < 2 or not all(map(str.strip, drafted.choices)):
        raise UnusableRow(
            f"it has not two choices or more, all with a text: {', '.join(map(repr, drafted.choices))}"
        )
    return drafted.id, drafted.choices, gold


@dataclass(frozen=True)
class Guess:
    """What choosing by a simple rule would score, among items that chance would score ``chance`` on.

    ``score`` and ``chance`` are shares of 1; several choices that the rule names share the guess.  ``p``: how probable
    a score at least as far from chance is where the rule says nothing about the answer (normal approximation, two
    sides).
    """

    score: float
    chance: float
    p: float


@dataclass(frozen=True)
class AnswerPattern:
    """The right answers of one split.

    ``counts``: number of choices → items; ``positions``: number of choices → how often each position, from 0, is the
    right one, for items with one right choice; ``several``: items with several right choices.  ``p_positions``: how
    probable positions at least as uneven are where all are equally likely (chi-squared over all numbers of choices),
    NaN where there are too few items.  ``constant``: whether the same positions are right in every item, where an item
    has several choices.
    ``guesses``: rule → what it scores.
    """

    counts: Mapping[int, int]
    positions: Mapping[int, tuple[int, ...]]
    several: int
    p_positions: float
    constant: bool
    guesses: Mapping[str, Guess]


def answer_pattern(items: Items) -> AnswerPattern:
    """The pattern of ``items``, each with a right choice; computed column by column."""
    sums = {rule: np.zeros(3) for rule in ("first", "last", "longest", "shortest")}
    counts: dict[int, int] = {}
    positions: dict[int, _Ints] = {}
    several, golds = 0, set[tuple[int, ...]]()
    for choices, gold in _ragged(items):
        right, number = choices.flags(gold), choices.number
        for rule, mask in choices.rules().items():
            sums[rule] += _scored(choices, mask, right)
        single = gold.number == 1
        several += int((~single).sum())
        first = gold.values[gold.starts]
        for count, items_with in zip(
            *map(np.ndarray.tolist, np.unique(number, return_counts=True)), strict=True
        ):
            counts[count] = counts.get(count, 0) + items_with
            places = np.bincount(first[single & (number == count)], minlength=count)
            positions[count] = positions.get(count, np.zeros(count, np.int64)) + places
        if (
            len(golds) < 2
        ):  # the item with the fewest right choices and the one with the most say whether all are alike
            golds |= {
                gold.row(0),
                *(gold.row(int(row)) for row in np.flatnonzero(gold.differs())[:1]),
            }
    total = sum(counts.values())
    return AnswerPattern(
        dict(sorted(counts.items())),
        {
            count: tuple(places.tolist())
            for count, places in sorted(positions.items())
            if places.any()
        },
        several,
        _even(positions.values()),
        len(golds) == 1 and total > 1 and max(counts) > 1,
        {rule: _guess(values, total) for rule, values in sums.items()} if total else {},
    )


_TRUTHS: Final = (("false", "true"), ("no", "yes"))
"""Answers of two kinds, in the order in which an index of 0 or 1 would count them."""


def _candidates(cells: _Cells) -> Iterator[Columns]:
    id, subject = cells.id(), cells.subject()
    questions: list[str | None] = [*cells.questions()]
    for right, wrong in cells.pairs():
        used = {*right.names, *wrong.names}
        question = next((name for name in questions if name not in used), None)
        yield _renamed(
            cells,
            question=question,
            right=right.columns,
            wrong=wrong.columns,
            drop_empty=wrong.drop_empty,
            choices_split=wrong.split,
            id=id,
            subject=subject,
        )
    for choices in cells.choices():
        for answer, question in product(cells.answers(), questions):
            if len({question, answer, *choices.names}) != len(choices.names) + 2:
                continue
            common = choices.mapping(question, answer, id, subject)
            names = choices.columns if isinstance(choices.columns, tuple) else ()
            spelled = [
                ("label", ()),
                ("text", ()),
                ("label", _LOWER),
                ("label", _ENCLOSED),
                ("label", _DOTTED),
            ]
            spelled += [("label", names), ("index", ()), ("flags", ()), ("number", ())]
            spelled += [("label", truth) for truth in _TRUTHS]
            for kind, labels in spelled:
                yield _renamed(cells, **common, answer_is=kind, labels=labels)
    for answer, question in product(cells.answers(), questions):
        for no, yes in _TRUTHS if answer != question else ():
            common = {
                "question": question,
                "fixed": ("yes", "no"),
                "answer": answer,
                "id": id,
                "subject": subject,
            }
            yield _renamed(cells, **common, answer_is="label", labels=(yes, no))


def _unnamed_candidates(cells: _Cells) -> Iterator[Columns]:
    """Yield mappings by the cells of columns whose names say nothing, such as those of another language.

    Only where a single column can be the answer, and holds letters: digits could mean anything.
    """
    for choices in cells.choices():
        for question in cells.longest_texts():
            most = max(len(choices.names), 2) if isinstance(choices.columns, tuple) else FEW
            answers = cells.possible_answers({question, *choices.names}, most)
            if question in choices.names or len(answers) != 1:
                continue
            common = choices.mapping(question, answers[0], None, None)
            for labels in ((), _LOWER, _ENCLOSED):
                yield _renamed(cells, **common, answer_is="label", labels=labels)


def _renamed(cells: _Cells, **named: Any) -> Columns:
    columns = Columns(**named)
    tops = {path.split(".")[0] for path in columns.used}
    return Columns(
        **named,
        rename={
            name: f"{name}_" for name in RESERVED if name in cells.columns and name not in tops
        },
    )


def _read(rows: Sequence[Mapping[str, Any]], columns: Columns) -> tuple[list[RowDraft], int]:
    """The drafts of the rows that the mapping fits, and how many more it would fit if they had answers."""
    drafts, unanswered = [], 0
    for row in rows:
        try:
            drafted = draft(row, columns)
            if isinstance(drafted.answer, Answer) and columns.answer_is != "any":
                drafted.answer.gold(columns.answer_is)
            elif isinstance(drafted.answer, Answer) and not drafted.answer.readings():
                drafted.answer.gold("label")
                continue
            if len(drafted.choices) > 1 and all(map(str.strip, drafted.choices)):
                drafts.append(drafted)
        except NoAnswer:
            unanswered += 1
        except UnusableRow:
            continue
    return drafts, unanswered


def mapping_lines(columns: Columns) -> Iterator[str]:
    """The lines of the mapping ``columns`` in TOML."""
    yield from _lines({}, columns)


def _lines(opened: Mapping[str, object], columns: Columns) -> Iterator[str]:
    """Yield the lines of the mapping ``columns`` in TOML, with the values of the keys ``opened`` in place of its."""
    values = mapping_table(columns)
    if columns.answer is not None:
        values["answer_is"] = columns.answer_is
    values.update((key, value) for key, value in opened.items() if value)
    rename = values.pop("rename", {})
    yield from (f"{name} = {_toml(value)}" for name, value in values.items())
    if rename:
        yield from chain(
            [""], ["[rename]"], (f"{old} = {_toml(new)}" for old, new in rename.items())
        )


def _sources(columns: Columns) -> dict[str, Source | None]:
    return {
        name: getattr(columns, name)
        for name in ("question", "choices", "fixed", "right", "wrong", "answer")
    }


def _toml(value: object) -> str:
    """Texts and lists of them as TOML spells them: as JSON does, but no character as two halves, and none deleted."""
    return exact_json(value).replace("\x7f", "\\u007f")


def _in_comment(column: object) -> str:
    """Return a column's name for a comment in TOML, which holds no control characters."""
    name = str(column)
    return name if name.isprintable() else _toml(name)


_QUESTION: Final = (
    *(
        "question",
        "query",
        "problem",
        "stem",
        "ask",
        "prompt",
        "goal",
        "sentence",
        "premise",
        "instruction",
    ),
    *("input", "ctx", "text", "context", "q"),
)


_ANSWER: Final = (
    *(
        "answer",
        "label",
        "gold",
        "correct",
        "target",
        "key",
        "solution",
        "right",
        "cop",
        "idx",
        "index",
    ),
    *("choice", "option", "truth", "true"),
)


SUBJECT: Final = ("subject", "category", "topic", "area", "domain", "task", "subset")
"""Words of columns' names, those that say most first."""


@dataclass(frozen=True)
class _Choices:
    """Columns that hold choices: a list, one text each, or, with ``split``, several texts in one cell."""

    columns: Source
    drop_empty: bool = False
    split: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """The columns' names."""
        return names_of(self.columns)

    def mapping(
        self, question: str | None, answer: str, id: str | None, subject: str | None
    ) -> dict[str, Any]:
        """Return the keys of a mapping with these choices; a column has one use."""
        used = {question, answer, *self.names}
        return {
            "question": question,
            "choices": self.columns,
            "drop_empty": self.drop_empty,
            "choices_split": self.split,
            "answer": answer,
            "id": None if id in used else id,
            "subject": None if subject in used else subject,
        }


class _Cells:
    """The cells of sample rows by column; parts of nested columns under their paths."""

    def __init__(self, rows: Sequence[Mapping[str, Any]]) -> None:
        names = dict.fromkeys(chain.from_iterable(map(paths, rows)))
        self.columns: dict[str, list[object]] = {
            name: [_at(row, name) for row in rows] for name in names
        }

    def questions(self) -> list[str]:
        """Columns of texts whose names could be a question's, the likeliest first; those last that are all the same."""
        names = self._ranked(
            _QUESTION, [name for name in self.columns if self._all(name, _is_text)]
        )
        return sorted(names, key=lambda name: len({*self.columns[name]}) == 1)

    def longest_texts(self) -> list[str]:
        """The two columns with the longest texts."""
        lengths = {}
        for name in self.columns:
            if self._all(name, _is_text):
                lengths[name] = sum(len(str(cell)) for cell in self.columns[name])
        return sorted(lengths, key=lambda name: lengths[name], reverse=True)[:2]

    def possible_answers(self, used: Collection[str], most: int) -> list[str]:
        """The columns beside those ``used`` that have few values, as answers do: short ones, ``most`` at most."""
        answers = []
        for name, cells in self.columns.items():
            values = {str(cell) for cell in cells}
            is_short = max(map(len, values)) <= _LONGEST_LABEL
            if name not in used and is_short and 1 < len(values) <= most:
                answers.append(name)
        return answers

    def choices(self) -> Iterator[_Choices]:
        """Columns that hold lists, and groups of columns named alike, the likeliest first."""
        lists = [name for name in self.columns if self._all(name, _is_list)]
        for name in self._ranked(_CHOICES, lists):
            yield self._list(name)
        for names in sorted(self._groups(), key=len, reverse=True):
            yield _Choices(names, drop_empty=self._has_empty(names))
        for name in self._ranked(
            _CHOICES, [name for name in self.columns if self._all(name, _is_text)]
        ):
            if separator := self._separator(name):
                yield _Choices(name, split=separator)
        for name in lists:
            if not _rank(name, _CHOICES):
                yield self._list(name)

    def _list(self, name: str) -> _Choices:
        """Return the choices of a column of lists; its labels are none where they repeat the texts."""
        for cell in self.columns[name]:
            if not isinstance(cell, Mapping) or cell.get("label") != cell.get("text"):
                return _Choices(name)
        return _Choices(f"{name}.text")

    def _groups(self) -> Iterator[tuple[str, ...]]:
        """Yield columns of texts that are named alike, up to the first gap in their numbers or letters."""
        groups: dict[tuple[str, str], dict[int, str]] = {}
        for name in self.columns:
            member = Member.of(name)
            if member.label and self._may_hold_choices(name):
                groups.setdefault((member.stem, member.kind), {}).setdefault(member.number, name)
        for (_, kind), names in groups.items():
            first = min(names)
            start = first if kind == "0" else 0
            run: list[str] = []
            while start + len(run) in names:
                run.append(names[start + len(run)])
            if len(run) > 1 and first <= 1:
                yield tuple(run)

    def alone(self, columns: Columns) -> bool:
        """Whether no other column could as well be the question, or be one more choice, and labels say their order.

        Empty choices and several in a cell are left to a mapping: a text may be lost there, or be no list.
        """
        if columns.drop_empty or columns.choices_split:
            return False
        used = columns.used - {columns.id, columns.subject, ""}
        free = [name for name in self.questions() if name == columns.question or name not in used]
        ranks = [_rank(name, _QUESTION) for name in free]
        if columns.question is not None and (
            free[0] != columns.question or ranks.count(ranks[0]) > 1
        ):
            return False
        ordered = bool(columns.fixed) or columns.labels not in _TRUTHS
        return ordered and not self.further_choices(columns)

    def further_choices(self, columns: Columns) -> list[str]:
        """Columns that are not used and, by their names, may hold one more choice."""
        choices = columns.choices if isinstance(columns.choices, tuple) else ()
        stems = {member.stem for member in map(Member.of, choices) if member.label}
        used = columns.used - {columns.id, columns.subject}
        further = []
        for name in self.columns:
            member = Member.of(name)
            if name not in used and member.stem in stems and member.may_be_choice(len(choices)):
                further.append(name)
        return further

    def pairs(self) -> Iterator[tuple[_Choices, _Choices]]:
        """A source of the right choices and one of the wrong, where names say which is which."""
        right = []
        wrong = []
        for name in self.columns:
            words = set(words_of(name))
            if not self._may_hold_choices(name) and not self._all(name, _is_list):
                continue
            if not words.isdisjoint(_REMARKS):
                continue
            if not words.isdisjoint(_BAD):
                wrong.append(name)
            elif not words.isdisjoint(_RIGHT):
                right.append(name)
        if right and wrong and not self._are_labels(right[0], {*right, *wrong}):
            first, *others = right
            numbered = [
                name for name in others if Member.of(name).stem in (first, Member.of(first).stem)
            ]
            yield self._pair([first, *numbered], wrong)

    def _are_labels(self, name: str, pair: Collection[str]) -> bool:
        """Whether a column called right holds labels of choices that are in columns beside that ``pair``."""
        cells = map(str, self.columns[name])
        if not all(cell in LETTERS or cell.isdigit() for cell in cells):
            return False
        return any(not {*choices.names} & {*pair} for choices in self.choices())

    def _pair(self, rights: Sequence[str], wrong: Sequence[str]) -> tuple[_Choices, _Choices]:
        right = rights[0]
        if self._all(right, _is_list):
            right_choices = _Choices(right)
        else:
            right_choices = _Choices(tuple(rights))
        if len(wrong) > 1 or len(rights) > 1:
            return right_choices, _Choices(
                tuple(wrong), drop_empty=self._has_empty([*rights, *wrong])
            )
        (name,) = wrong
        if self._all(name, _is_list):
            return right_choices, _Choices(name)
        for separator in (*_SEPARATORS, *_COMMAS):
            count = self._count(name, separator)
            right_count = self._count(right, separator)
            # Commas in the right answers as well are those of sentences.
            is_list = separator in _SEPARATORS or 2 * right_count <= count
            if is_list and 2 * count >= len(self.columns[name]):
                if right_count:
                    right_choices = _Choices(right)
                ends = [
                    str(cell).rstrip().endswith(separator)
                    for cell in self.columns[name] + self.columns[right]
                ]
                return right_choices, _Choices(name, drop_empty=any(ends), split=separator)
        if _is_plural(name):
            if _is_plural(right):
                right_choices = _Choices(right)
            return right_choices, _Choices(name, split=GAP)
        return right_choices, _Choices((name,))

    def _count(self, name: str, separator: str) -> int:
        """Count the cells that ``separator`` parts into several texts."""
        return sum(_is_split(cell, separator) for cell in self.columns[name])

    def _separator(self, name: str) -> str:
        """Return what parts nearly every cell of a column into choices, empty for nothing."""
        for separator in (*_SEPARATORS, *_COMMAS):
            if self._count(name, separator) >= 0.9 * len(self.columns[name]):
                return separator
        return ""

    def answers(self) -> list[str]:
        return self._ranked(_ANSWER, [*self.columns])

    def id(self) -> str | None:
        names = self._ranked(ID, [name for name in self.columns if self._all(name, _is_filled)])
        return next(
            (
                name
                for name in names
                if len({*map(str, self.columns[name])}) == len(self.columns[name])
            ),
            None,
        )

    def subject(self) -> str | None:
        """The column called subject or category, else the first by its name whose values mostly repeat."""
        subjects = self.subjects()
        for name in subjects:
            if words_of(name) in (["subject"], ["category"]):
                return name
        for name, count in subjects.items():
            if 2 * count < len(self.columns[name]):
                return name
        return None

    def subjects(self) -> dict[str, int]:
        """Columns whose names could be a subject's, with how many values each has, the likeliest first."""
        names = self._ranked(SUBJECT, [name for name in self.columns if self._all(name, _is_text)])
        return {name: len(set(self.columns[name])) for name in names}

    def header_is_row(self) -> bool:
        """Whether the header looks like one more row: its last name is a letter, and so are all cells below it."""
        *_, last = self.columns
        return {last, *self.columns[last]} <= set(LETTERS)

    def chats(self) -> list[str]:
        """Columns that hold lists of messages."""
        return [name for name in self.columns if self._all(name, _is_chat)]

    def objects_with_answers(self) -> list[str]:
        """Columns that hold lists of choices of which each says whether it is right."""
        return [name for name in self.columns if self._all(name, _says_right)]

    def questions_with_choices(self) -> list[str]:
        """Columns of questions below which their choices are listed."""
        return [name for name in self.questions() if self._all(name, _lists_choices)]

    def _all(self, name: str, holds: Any) -> bool:
        cells = [cell for cell in self.columns[name] if cell is not None]
        return bool(cells) and all(map(holds, cells))

    def _has_empty(self, names: Iterable[str]) -> bool:
        return any(not _is_filled(cell) for name in names for cell in self.columns[name])

    def _may_hold_choices(self, name: str) -> bool:
        """Whether all cells of a column are texts, numbers or empty."""
        return all(
            _is_filled(cell) or cell is None or not str(cell).strip() for cell in self.columns[name]
        )

    @staticmethod
    def _ranked(words: Sequence[str], names: Sequence[str]) -> list[str]:
        ranks = {name: rank for name in names if (rank := _rank(name, words))}
        return sorted(ranks, key=lambda name: ranks[name])


def _rank(name: str, words: Sequence[str]) -> tuple[int, int] | None:
    """How near a name is to the ``words``: its best word, then how many others it has."""
    own = words_of(name)
    places = [words.index(word) for word in own if word in words]
    return (min(places), len(own)) if places else None


def _is_plural(name: str) -> bool:
    """Check that a column is called ``distractors`` or ``wrong_answers``, so that a cell holds several."""
    return words_of(name)[-1] in _LISTS


def _at(row: object, path: str) -> object:
    if isinstance(row, Mapping) and path in row:
        return row[path]
    first, _, rest = path.partition(".")
    return _at(row.get(first), rest) if rest and isinstance(row, Mapping) else None


def _is_text(cell: object) -> bool:
    return isinstance(cell, str) and not _is_list(cell)


def _is_split(cell: object, separator: str) -> bool:
    """Whether ``separator`` parts a text into several choices; a printed list or object is none."""
    if not _is_text(cell) or str(cell).lstrip().startswith(("[", "{")):
        return False
    try:
        parts = split_choices(str(cell), separator)
    except UnusableRow:
        return False
    if not parts[-1]:  # the separator also ends the cell
        parts = parts[:-1]
    return len(parts) > 1 and all(parts)


def _is_chat(cell: object) -> bool:
    return (
        isinstance(cell, list)
        and bool(cell)
        and all(isinstance(part, Mapping) and "role" in part for part in cell)
    )


def _says_right(cell: object) -> bool:
    if not isinstance(cell, list):
        return False
    return all(
        isinstance(part, Mapping) and not {*_RIGHT}.isdisjoint(part) for part in cell
    ) and bool(cell)


def _lists_choices(cell: object) -> bool:
    return re.search(r"\n\s*\(?[Aa][).:].*\n\s*\(?[Bb][).:]", str(cell)) is not None


def _is_filled(cell: object) -> bool:
    try:
        return text(cell, "").strip() != "" and not _is_list(cell)
    except UnusableRow:
        return False


def _is_list(cell: object) -> bool:
    if isinstance(cell, Mapping):
        return isinstance(cell.get("text"), list)
    if isinstance(cell, str) and cell.startswith("["):
        try:
            cell = list_in(cell, "")
        except UnusableRow:
            return False
    return isinstance(cell, list) and len(cell) > 1


@dataclass(frozen=True)
class _Ragged:
    """Values of all items in one array, with where each item's begin and how many it has."""

    values: Any
    starts: _Ints
    number: _Ints

    def flags(self, gold: _Ragged) -> npt.NDArray[np.bool_]:
        flags = np.zeros(int(self.number.sum()), bool)
        flags[np.repeat(self.starts, gold.number) + gold.values] = True
        return flags

    def rules(self) -> dict[str, npt.NDArray[np.bool_]]:
        """Rule of guessing → the choices that it names; of texts by their lengths in characters."""
        size = len(self.values)
        first, last = np.zeros(size, bool), np.zeros(size, bool)
        first[self.starts] = last[self.starts + self.number - 1] = True
        longest, shortest = (
            self.values == np.repeat(reduce.reduceat(self.values, self.starts), self.number)
            for reduce in (np.maximum, np.minimum)
        )
        return {"first": first, "last": last, "longest": longest, "shortest": shortest}

    def row(self, number: int) -> tuple[int, ...]:
        start = self.starts[number]
        return tuple(self.values[start : start + self.number[number]].tolist())

    def differs(self) -> npt.NDArray[np.bool_]:
        first = self.values[: self.number[0]]
        same = self.number == len(first)
        for place, value in enumerate(first):
            same &= self.values[np.minimum(self.starts + place, len(self.values) - 1)] == value
        return ~same


def _ragged(items: Items) -> Iterator[tuple[_Ragged, _Ragged]]:
    for batch in items.table().to_batches():
        values = pc.utf8_length(batch["choices"].flatten()), batch["gold"].flatten()
        offsets = (batch[name].offsets.to_numpy().astype(np.int64) for name in ("choices", "gold"))
        choices, gold = (
            _Ragged(each.to_numpy().astype(np.int64), at[:-1] - at[0], np.diff(at))
            for each, at in zip(values, offsets, strict=True)
        )
        yield choices, gold


def _scored(choices: _Ragged, mask: npt.NDArray[np.bool_], right: npt.NDArray[np.bool_]) -> Floats:
    """(score, expectation, variance) of guessing among the choices of ``mask``, summed over the items.

    Where the right choices are any of the item's, equally likely, their number among the named is hypergeometric.
    """
    named, both, all_right = (
        np.add.reduceat(part.astype(np.int64), choices.starts)
        for part in (mask, mask & right, right)
    )
    chance = all_right / choices.number
    variance = (
        chance
        * (1 - chance)
        * (choices.number - named)
        / (named * np.maximum(choices.number - 1, 1))
    )
    return np.array([(both / named).sum(), chance.sum(), variance.sum()])


def _guess(sums: Floats, total: int) -> Guess:
    score, expected, variance = sums.tolist()
    distance = abs(score - expected)
    p = math.erfc(distance / math.sqrt(2 * variance)) if variance > 0 else float(distance < 1e-9)
    return Guess(score / total, expected / total, p)


_LEAST_EXPECTED: Final = 5
"""Right answers that each position needs on average for the test of positions, the usual rule for chi-squared."""


def _even(positions: Iterable[_Ints]) -> float:
    from scipy.special import gammaincc

    statistic, freedom = 0.0, 0
    for counts in positions:
        expected = counts.sum() / len(counts)
        if expected >= _LEAST_EXPECTED:
            statistic += float(((counts - expected) ** 2 / expected).sum())
            freedom += len(counts) - 1
    return float(gammaincc(freedom / 2, statistic / 2)) if freedom else math.nan
