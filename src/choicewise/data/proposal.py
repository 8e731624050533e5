"""A mapping to copy for rows of no known shape, proposed from the names and values of their columns."""

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice, product
from typing import Any, Final

from choicewise.data.answer import Answer
from choicewise.data.answer_reader import DOUBTFUL
from choicewise.data.cell import NoAnswer, UnusableRow
from choicewise.data.column_guess import Cells, Source
from choicewise.data.columns import RESERVED, Columns
from choicewise.data.row_draft import Draft, draft
from choicewise.data.shapes import LETTERS

SAMPLE: Final = 200
"""Rows that a proposal is tried on."""

TRIED: Final = 200
"""Combinations of columns that are tried."""

_MOST: Final = 10
"""Choices for which labels are guessed."""

_LOWER, _ENCLOSED = tuple(LETTERS[:_MOST].lower()), tuple(f"({letter})" for letter in LETTERS[:_MOST])
_TRUTHS: Final = (("false", "true"), ("no", "yes"))
"""Answers of two kinds, in the order in which an index of 0 or 1 would count them."""


def proposal(rows: Sequence[Mapping[str, Any]], doubtful: int = DOUBTFUL) -> list[str]:
    """The lines of a mapping in TOML that fits nine of ten ``rows``, or of one with gaps where none does.

    ``rows``: the first ones of a file, at least one.  The lines begin with what is to be checked, as comments.  From
    ``doubtful`` digits up of which none is 0, the mapping leaves open whether they count from 0 or from 1.
    """
    cells = Cells.of(rows)
    for columns in islice(_candidates(cells), TRIED):
        drafts, unanswered = _read(rows, columns)
        if len(drafts) + unanswered >= 0.9 * len(rows) and drafts:
            fits = f"# fits {len(drafts) + unanswered} of the first {len(rows)} rows; check it before you use it"
            answers = [each.answer for each in drafts if isinstance(each.answer, Answer)]
            no_zero = columns.answer_is == "index" and not any("0" in map(str, each.cells) for each in answers)
            counting_open = no_zero and len(answers) >= doubtful
            doubts = _doubts(columns, answers, unanswered, no_zero, counting_open)
            return [fits, *doubts, *_spelled(columns, counting_open)]
    columns_there = [f"# the columns are {', '.join(map(_toml, cells.columns))}"]
    question = next(iter(cells.questions()), "...")
    return [
        "# no columns fit by their names and values: put theirs in place of ...",
        *columns_there,
        f"question = {_toml(question)}",
        'choices = ["...", "..."]',
        'answer = "..."',
    ]


def none_fits(rows: Sequence[Mapping[str, Any]], columns: Columns) -> bool:
    """Whether ``columns`` fit none of the ``rows``, not even those without an answer."""
    drafts, unanswered = _read(rows, columns)
    return not drafts and not unanswered


def _candidates(cells: Cells) -> Iterator[Columns]:
    id, subject = cells.id(), cells.subject()
    questions: list[str | None] = [*cells.questions()]
    for right, wrong in cells.pairs():
        for question in (*(name for name in questions if name not in (right, *right, wrong, *wrong)), None):
            yield _renamed(cells, question=question, right=right, wrong=wrong, id=id, subject=subject)
            break
    for choices in cells.choices():
        parts = {choices} if isinstance(choices, str) else {*choices}
        for answer, question in product(cells.answers(), questions):
            if len({question, answer} | parts) != len(parts) + 2:
                continue
            common = {"question": question, "choices": choices, "answer": answer, "id": id, "subject": subject}
            used = {question, answer, *parts}
            common |= {name: None for name in ("id", "subject") if common[name] in used}
            names = choices if isinstance(choices, tuple) else ()
            spelled = [("label", ()), ("text", ()), ("label", _LOWER), ("label", _ENCLOSED), ("label", names)]
            spelled += [("index", ()), ("flags", ()), ("number", ()), *(("label", truth) for truth in _TRUTHS)]
            for kind, labels in spelled:
                yield _renamed(cells, **common, answer_is=kind, labels=labels)
    for answer, question in product(cells.answers(), questions):
        for no, yes in _TRUTHS if answer != question else ():
            common = {"question": question, "fixed": ("yes", "no"), "answer": answer, "id": id, "subject": subject}
            yield _renamed(cells, **common, answer_is="label", labels=(yes, no))


def _renamed(cells: Cells, **named: Any) -> Columns:
    columns = Columns(**named)
    tops = {path.split(".")[0] for path in columns.used}
    return Columns(
        **named, rename={name: f"{name}_" for name in RESERVED if name in cells.columns and name not in tops}
    )


def _read(rows: Sequence[Mapping[str, Any]], columns: Columns) -> tuple[list[Draft], int]:
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
            if len(drafted.choices) > 1:
                drafts.append(drafted)
        except NoAnswer:
            unanswered += 1
        except UnusableRow:
            continue
    return drafts, unanswered


def _doubts(
    columns: Columns, answers: Sequence[Answer], unanswered: int, no_zero: bool, counting_open: bool
) -> Iterator[str]:
    if unanswered:
        yield f"# {unanswered} of them have no answer"
    if counting_open:
        yield '# no answer is 0: put "number" in place of ... if they count from 1, "index" if from 0'
    elif no_zero:
        yield '# no answer is 0: if they count from 1, answer_is = "number"'
    if columns.labels in _TRUTHS and not columns.fixed:
        yield f"# check that {columns.labels[0]} means the first choice"
    if columns.answer_is == "number" and len({str(each.cell) for each in answers}) == 1:
        yield "# all answers are the same: check that they count from 1"


def _spelled(columns: Columns, counting_open: bool) -> Iterator[str]:
    values: dict[str, Source | None] = {"question": columns.question or ""}
    values |= {name: getattr(columns, name) or None for name in ("choices", "fixed", "right", "wrong", "answer")}
    if columns.answer is not None:
        values["answer_is"] = "..." if counting_open else columns.answer_is
    labels = columns.labels
    if isinstance(columns.choices, tuple):
        labels = labels[: len(columns.choices)]
    values |= {"labels": labels or None, "id": columns.id, "subject": columns.subject}
    for name, value in values.items():
        if value is not None:
            yield f"{name} = {_toml(value)}"
    if columns.rename:
        yield from chain([""], ["[rename]"], (f"{old} = {_toml(new)}" for old, new in columns.rename.items()))


def _toml(value: object) -> str:
    """Texts and lists of them as TOML spells them: as JSON does, but no character as two halves, and none deleted."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
