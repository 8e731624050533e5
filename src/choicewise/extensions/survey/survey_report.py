"""Write what was recognised in a dataset, what to check in it, and what its runs showed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any

from choicewise.data.dataset import Columns
from choicewise.data.decisions import KIND
from choicewise.data.items import BLANK, Item
from choicewise.data.rows import LETTERS
from choicewise.extensions.survey.patterns import AnswerPattern
from choicewise.extensions.survey.survey import FAULTS, Double, Doubles, SplitSurvey, Survey
from choicewise.table import Column, Table
from choicewise.util.text import NAME, are, counted, percent, safe, short

_COLUMN_OPTIONS = ("answer_is", "labels", "rename", "drop_empty", "choices_split")
"""Keys of a mapping that say how a column is read, and name none."""

_ANSWER_KINDS = {
    "any": "label, index or text, whichever fits every row",
    "flags": "a 1 or 0 for each choice",
    "number": "number from 1",
}
"""What ``answer_is`` means, if its name does not say it."""

_UNLIKELY = 0.001
"""A pattern of the right answers is marked if it is less probable than this."""

_LONG = 150
"""Characters of a question or a reason that are shown."""


def recognised(survey: Survey) -> Iterator[str]:
    """Yield the dataset's name and digest, its shape, and what each column was read as."""
    yield f"{safe(survey.name)}, data {survey.digest[:12]}"
    if survey.columns is not None:
        yield f"shape     {survey.shape or 'declared'}"
        yield from _column_lines(survey.columns)
    elif KIND in survey.fields:
        yield "shape     typed questions about states (decisions)"
        return
    else:
        yield "shape     MMLU layout: question, choices and letter, without column names"
        return
    if survey.fields:
        names = []
        for name in survey.fields:
            names.append(f"{name} (content)" if name in survey.content else name)
        yield safe(f"{'fields':<9} {', '.join(names)}")
    if BLANK in survey.content:
        yield f"{'blank':<9} {BLANK} in the question, filled by the choices"


def _column_lines(columns: Columns) -> Iterator[str]:
    for spec in fields(columns):
        if not spec.init or spec.name in _COLUMN_OPTIONS:
            continue
        declared = getattr(columns, spec.name)
        # The question is shown even if its column has the name that it has by default.
        if declared == spec.default and spec.name != "question":
            continue
        text = _declared_text(declared)
        if not text:
            continue
        if spec.name == "answer":
            text += f" (read as {_ANSWER_KINDS.get(columns.answer_is, columns.answer_is)}"
            if columns.labels:
                text += f", labels {', '.join(columns.labels)}"
            text += ")"
        if spec.name == "choices" and columns.choices_split:
            text += f" (split at {columns.choices_split})"
        yield safe(f"{spec.name:<9} {text}")


def _declared_text(declared: object) -> str:
    """Return what a key of a mapping declares; an empty text if it declares nothing."""
    if isinstance(declared, str):
        return declared
    if isinstance(declared, tuple | Mapping):
        return ", ".join(declared)
    if isinstance(declared, bool):
        return "yes" if declared else "no"
    return "" if declared is None else str(declared)


def data_warnings(survey: Survey) -> list[str]:
    """Return a line for everything that should be checked."""
    lines = []
    for reason, count in survey.skipped.items():
        rows = counted(count, "row")
        lines.append(
            safe(f"{rows} can't be used; a run stops there unless it skips bad items: {reason}")
        )
    for name, split in survey.splits.items():
        lines += _answer_warnings(name, split.answers, survey.columns)
    lines += _double_lines(survey.doubles)
    lines += _fault_lines(survey.splits)
    return lines


def _answer_warnings(name: str, pattern: AnswerPattern, columns: Columns | None) -> Iterator[str]:
    """Yield the patterns of the right answers that nobody declared.

    ``columns``: those that declare a right choice, which comes first, or choices that are the same
    for all items.
    """
    is_placed = columns is not None and columns.right is not None
    is_fixed = columns is not None and bool(columns.fixed or columns.fixed_of)
    if is_placed:
        yield (
            f"{name}: the right choices come first, by their columns; shuffle choices that "
            "are shown together"
        )
    elif pattern.constant:
        yield (
            f"{name}: the right answer is at the same position in every item; check the "
            "answers, or shuffle the choices"
        )
    for rule, guess in pattern.guesses.items():
        if guess.p >= _UNLIKELY or guess.score <= guess.chance:
            continue
        is_explained = is_fixed
        if rule in ("first", "last"):
            is_explained = is_placed or pattern.constant
        if not is_explained:
            score = percent(guess.score)
            yield (
                f"{name}: always choosing the {rule} choice scores {score} %; chance is "
                f"{percent(guess.chance)} %"
            )


def _double_lines(doubles: Doubles) -> Iterator[str]:
    for split, count in doubles.within.items():
        pair = _example(doubles, split, split)
        same = f"{count:,} {are(count)} a repeated question with the same choices"
        yield safe(f"{split}: {same}, such as {pair.other} and {pair.item}")
    for (split, other), count in doubles.across.items():
        pair = _example(doubles, split, other)
        items = f"{counted(count, 'item')} {are(count)} also in {other}"
        yield safe(f"{split}: {items}, such as {pair.item}: {pair.other}")
    if doubles.disagreeing:
        yield f"{counted(doubles.disagreeing, 'pair')} of these have different right answers"


def _example(doubles: Doubles, split: str, other: str) -> Double:
    for pair in doubles.examples:
        if pair.split == split and pair.other_split == other:
            return pair
    raise AssertionError(f"no double of {split} and {other} is named")


def _fault_lines(splits: Mapping[str, SplitSurvey]) -> Iterator[str]:
    for name, meaning in FAULTS.items():
        counts = []
        example = ""
        for split, surveyed in splits.items():
            fault = surveyed.faults.get(name)
            if fault is not None:
                counts.append(f"{split} {fault.count:,}")
                example = example or fault.example
        if counts:
            yield safe(f"{meaning}: {', '.join(counts)} (such as {example})")


def data_tables(survey: Survey) -> Iterator[Table]:
    """Yield the splits, the patterns of their answers, and some items."""
    yield _split_table(survey.splits)
    answers = {}
    for name, split in survey.splits.items():
        if max(split.answers.counts) > 1:
            answers[name] = split.answers
    if answers:
        yield _answer_table(answers)
    yield Table(
        name="items",
        title=f"{len(survey.rows)} items of {survey.evaluated}; [ ]: right",
        notes=[_item_text(item, survey.content) for item in survey.rows],
    )


def _split_table(splits: Mapping[str, SplitSurvey]) -> Table:
    columns = [
        Column("split"),
        Column("items", "count"),
        Column("subjects", "count", optional=True),
        Column("largest", heading="largest subject", optional=True),
        Column("largest_items", "count", joined=" (", closed=")"),
        Column("smallest", optional=True),
        Column("smallest_items", "count", joined=" (", closed=")"),
        Column("choices", "tally"),
    ]
    has_subjects = any(any(split.subjects) for split in splits.values())
    rows: list[list[Any]] = []
    for name, split in splits.items():
        row: list[Any] = [name, split.items]
        if not has_subjects:
            row += [None] * 5
        else:
            sizes = sorted(split.subjects.items(), key=lambda size: (-size[1], size[0]))
            largest, largest_items = sizes[0]
            smallest, smallest_items = sizes[-1]
            row += [len(sizes), short(largest, 40), largest_items]
            row += [short(smallest, 40), smallest_items]
        rows.append([*row, split.answers.counts])
    return Table(name="splits", title="splits", columns=columns, rows=rows)


def _answer_table(patterns: Mapping[str, AnswerPattern]) -> Table:
    rules: dict[str, None] = {}
    for pattern in patterns.values():
        rules.update(dict.fromkeys(pattern.guesses))
    columns = [Column("split"), Column("right position")]
    for rule in rules:
        columns.append(Column(rule, "share"))
        columns.append(Column(f"{rule}_mark", joined=" "))
    columns.append(Column("chance", "share"))
    has_several = any(pattern.several for pattern in patterns.values())
    if has_several:
        columns.append(Column("several right", "count"))
    rows = []
    for name, pattern in patterns.items():
        row: list[Any] = [name, short(_position_text(pattern), 90)]
        for rule in rules:
            guess = pattern.guesses[rule]
            row += [guess.score, "!" if guess.p < _UNLIKELY else None]
        # Guessing has the same chance under every rule.
        row.append(guess.chance)
        if has_several:
            row.append(pattern.several)
        rows.append(row)
    return Table(
        name="answers",
        title="position of right answers, and scores of simple guesses, in %",
        columns=columns,
        rows=rows,
        notes=[f"!: probability below {_UNLIKELY} if right answers are placed at random"],
    )


def _position_text(pattern: AnswerPattern) -> str:
    """Return the letter and share in % of every position, for the number of choices that most items
    have.
    """
    if not pattern.positions:
        return ""
    choices = max(pattern.positions, key=lambda choices: sum(pattern.positions[choices]))
    counts = pattern.positions[choices]
    total = sum(counts)
    shares = []
    for index, count in enumerate(counts):
        shares.append(f"{_letter(index)} {percent(count / total)}")
    text = ", ".join(shares)
    if len(pattern.counts) > 1:
        text += f" (of {choices})"
    if pattern.p_positions < _UNLIKELY:
        text += " !"
    return text


def _letter(index: int) -> str:
    return LETTERS[index % len(LETTERS)]


def _item_text(item: Item, content: Sequence[str]) -> str:
    lines = [f"{short(item.id, 40)}  {short(item.question, _LONG)}"]
    for name in content:
        if name in item.fields:
            lines.append(f"   {name}: {short(item.fields[name], _LONG)}")
    for index, choice in enumerate(item.choices):
        letter = f" {_letter(index)} "
        if index in item.gold:
            letter = f"[{_letter(index)}]"
        lines.append(f"   {letter} {short(choice, NAME)}")
    return "\n".join(lines)
