"""Tell by names and cells of a table's first rows what its columns may hold."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any

from choicewise.data.dataset import GAP, Columns
from choicewise.data.files import list_in, text
from choicewise.data.options import SEVERAL, WRONG, Member, Source, names_of, paths, words_of
from choicewise.data.rows import LETTERS, split_choices
from choicewise.errors import UnusableRow

# Words of columns' names, those that say most first.
QUESTION = (
    *("question", "query", "problem", "stem", "ask", "prompt", "goal", "sentence", "premise"),
    *("instruction", "input", "ctx", "text", "context", "q"),
)
_ANSWER = (
    *("answer", "label", "gold", "correct", "target", "key", "solution", "right", "cop", "idx"),
    *("index", "choice", "option", "truth", "true"),
)
SUBJECT = ("subject", "category", "topic", "area", "domain", "task", "subset")
ID = ("id", "uid", "qid", "guid", "uuid", "number")
_CHOICES = (*("choices", "options", "endings", "answers", "candidates", "alternatives", "targets"),)

_RIGHT = frozenset(("correct", "right", "good", "true", "gold"))
_BAD = WRONG | {"bad"}
_LISTS = SEVERAL | {"answers", "distractors", "foils", "decoys"}
# Words of a column with an answer that someone gave, right or wrong.
_GIVEN = frozenset(
    (
        *("predicted", "prediction", "predictions", "pred", "student", "user", "participant"),
        *("model", "llm", "gpt", "chatgpt", "claude", "gemini", "llama"),
    )
)
# Words of a column with a text that yes and no may judge.
_JUDGED = frozenset(
    ("answer", "answers", "choice", "option", "candidate", "response", "reply", "hypothesis")
)
_COUNTING_WORDS = frozenset(
    ("one", "two", "three", "four", "first", "second", "third", "fourth", *LETTERS.lower()[:10])
)
_REMARKS = frozenset(
    ("explanation", "rationale", "reason", "reasoning", "feedback", "source", "comment", "note")
)

# Signs that part choices in one cell and occur in no choice.
_SEPARATORS = ("|", "\n", "\t", ";", "；", "、")
# Signs that part choices, and may occur in one; a longer one comes before those that it begins
# with.
COMMAS = (" , ", ", ", ",", "，", "،", "/")
_NUMBER = re.compile(r"[0-9]+([.,][0-9]+)?")
_LONGEST_LABEL = 3  # characters of a label such as (A)


@dataclass(frozen=True)
class Choices:
    """Name columns of choices: a list, one text each, or, with ``split``, several texts in a cell."""

    columns: Source
    drop_empty: bool = False
    split: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """Return the columns' names."""
        return names_of(self.columns)

    def mapping(
        self, question: str | None, answer: str, id: str | None, subject: str | None
    ) -> dict[str, Any]:
        """Return the keys of a mapping with these choices; a column has one use."""
        used = {question, answer, *self.names}
        if id in used:
            id = None
        if subject in used:
            subject = None
        return {
            "question": question,
            "choices": self.columns,
            "drop_empty": self.drop_empty,
            "choices_split": self.split,
            "answer": answer,
            "id": id,
            "subject": subject,
        }


class Cells:
    """Cells of sample rows by column; parts of nested columns under their paths."""

    def __init__(self, rows: Sequence[Mapping[str, Any]]) -> None:
        self.columns: dict[str, list[object]] = {}
        for name in dict.fromkeys(chain.from_iterable(map(paths, rows))):
            self.columns[name] = [cell_at(row, name) for row in rows]

    @cached_property
    def questions(self) -> list[str]:
        """Return columns of texts that may be the question, the likeliest first.

        Those of single words, such as ids or kinds of questions, come after those of sentences, and
        those whose cells are all the same come last.
        """
        names = _ranked(QUESTION, self.columns_of(_is_text))
        names = sorted(names, key=self._are_words)
        return sorted(names, key=lambda name: len(set(self.columns[name])) == 1)

    @cached_property
    def answers(self) -> list[str]:
        """Return columns that may be the answer by their names, the likeliest first.

        Answers that a model or a student gave are none.
        """
        names = [name for name in self.columns if _GIVEN.isdisjoint(words_of(name))]
        return _ranked(_ANSWER, names)

    @cached_property
    def id(self) -> str | None:
        """Return the likeliest column of ids whose cells all differ."""
        for name in _ranked(ID, self.columns_of(_is_filled)):
            cells = self.columns[name]
            if len(set(map(str, cells))) == len(cells):
                return name
        return None

    @cached_property
    def subject(self) -> str | None:
        """Return the column called subject or category, else the likeliest whose values repeat."""
        subjects = self.subjects()
        for name in subjects:
            if words_of(name) in (["subject"], ["category"]):
                return name
        for name, count in subjects.items():
            if 2 * count < len(self.columns[name]):
                return name
        return None

    def subjects(self) -> dict[str, int]:
        """Count the values of columns that may be the subject by their names, the likeliest first."""
        names = _ranked(SUBJECT, self.columns_of(_is_text))
        return {name: len(set(self.columns[name])) for name in names}

    def columns_of(self, holds: Callable[[object], bool]) -> list[str]:
        """Return the columns of which ``holds`` is true for each cell that is not null."""
        return [name for name in self.columns if self._are_all(name, holds)]

    def longest_texts(self) -> list[str]:
        """Return the two columns with the longest texts."""
        lengths = {}
        for name in self.columns_of(_is_text):
            lengths[name] = sum(len(str(cell)) for cell in self.columns[name])
        return sorted(lengths, key=lambda name: lengths[name], reverse=True)[:2]

    def possible_answers(self, used: Collection[str], most: int) -> list[str]:
        """Return columns not ``used`` that have ``most`` values at most, and short ones."""
        answers = []
        for name, cells in self.columns.items():
            values = set(map(str, cells))
            is_short = max(map(len, values)) <= _LONGEST_LABEL
            if name not in used and is_short and 1 < len(values) <= most:
                answers.append(name)
        return answers

    def choices(self) -> Iterator[Choices]:
        """Yield columns that hold lists, and groups of columns named alike, the likeliest first."""
        lists = self.columns_of(is_list)
        lists_by_name = _ranked(_CHOICES, lists)
        for name in lists_by_name:
            yield self._list(name)
        for names in sorted(self._groups(), key=len, reverse=True):
            yield Choices(names, drop_empty=self._has_empty(names))
        for name in _ranked(_CHOICES, self.columns_of(_is_text)):
            separator = self._separator(name)
            if separator:
                yield Choices(name, split=separator)
        for name in lists:
            if name not in lists_by_name:
                yield self._list(name)

    def _list(self, name: str) -> Choices:
        """Return the choices of a column of lists, without its labels if they repeat the texts."""
        for cell in self.columns[name]:
            if not isinstance(cell, Mapping) or cell.get("label") != cell.get("text"):
                return Choices(name)
        return Choices(f"{name}.text")

    def _groups(self) -> Iterator[tuple[str, ...]]:
        """Yield columns of texts named alike, up to the first gap in their numbers or letters.

        Wrong choices alone are not those of a question.
        """
        groups: dict[tuple[str, str], dict[int, str]] = {}
        for name in self.columns:
            member = Member.of(name)
            is_wrong = not _BAD.isdisjoint(words_of(name))
            if member.label and not is_wrong and self._may_hold_choices(name):
                groups.setdefault((member.stem, member.kind), {}).setdefault(member.number, name)
        for (_, kind), names in groups.items():
            first = min(names)
            # Numbers begin with 0 or 1, letters with A.
            number = first if kind == "0" else 0
            group: list[str] = []
            while number in names:
                group.append(names[number])
                number += 1
            if len(group) > 1 and first <= 1:
                yield tuple(group)

    def further_choices(self, columns: Columns) -> list[str]:
        """Return columns that the mapping does not use and that, by their names, may be a choice."""
        choices: tuple[str, ...] = ()
        if isinstance(columns.choices, tuple):
            choices = columns.choices
        stems = set()
        for name in choices:
            member = Member.of(name)
            if member.label:
                stems.add(member.stem)
        used = columns.used - {columns.id, columns.subject}
        further = []
        for name in self.columns:
            member = Member.of(name)
            if name not in used and member.stem in stems and member.may_be_choice(len(choices)):
                further.append(name)
        return further

    def judged(self, used: Collection[str]) -> list[str]:
        """Return columns not ``used`` whose text may be what a yes or no in the same row judges."""
        names = []
        for name in self.columns_of(_is_filled):
            words = set(words_of(name))
            is_judged = not words.isdisjoint(_JUDGED) and words.isdisjoint(_REMARKS)
            if name not in used and is_judged:
                names.append(name)
        return names

    def pairs(self) -> Iterator[tuple[Choices, Choices]]:
        """Yield right choices and wrong ones if columns' names say which is which."""
        right, wrong = self._right_and_wrong
        if not right or not wrong or self._are_labels(right[0], {*right, *wrong}):
            return
        first = right[0]
        stems = (first, Member.of(first).stem)
        numbered = [name for name in right[1:] if Member.of(name).stem in stems]
        yield self._pair([first, *numbered], wrong)

    def has_clear_pair(self) -> bool:
        """Check that right columns are named alike, and wrong ones: then none is a remark."""
        right, wrong = self._right_and_wrong
        return _are_alike(right) and _are_alike(wrong)

    @cached_property
    def _right_and_wrong(self) -> tuple[list[str], list[str]]:
        """Return the columns that are called right and those that are called wrong."""
        right = []
        wrong = []
        for name in self.columns:
            words = set(words_of(name))
            if not self._may_hold_choices(name) and not self._are_all(name, is_list):
                continue
            if not words.isdisjoint(_REMARKS):
                continue
            if not words.isdisjoint(_BAD):
                wrong.append(name)
            elif not words.isdisjoint(_RIGHT):
                right.append(name)
        return right, wrong

    def _are_labels(self, name: str, pair: Collection[str]) -> bool:
        """Check that cells are labels of choices that are in columns other than that ``pair``.

        Numbers of any kind may be labels, or shares of people.
        """
        for cell in map(str, self.columns[name]):
            if cell not in LETTERS and not _NUMBER.fullmatch(cell):
                return False
        return any(set(choices.names).isdisjoint(pair) for choices in self.choices())

    def _pair(self, right: Sequence[str], wrong: Sequence[str]) -> tuple[Choices, Choices]:
        """Return the right choices and the wrong ones in columns that are called so."""
        right_list = Choices(right[0])
        right_choices = Choices(tuple(right))
        if self._are_all(right[0], is_list):
            right_choices = right_list
        if len(wrong) > 1 or len(right) > 1:
            drop_empty = self._has_empty([*right, *wrong])
            return right_choices, Choices(tuple(wrong), drop_empty=drop_empty)
        wrong_cells = self.columns[wrong[0]]
        right_cells = self.columns[right[0]]
        if self._are_all(wrong[0], is_list):
            return right_choices, Choices(wrong[0])
        separator = _pair_separator(right_cells, wrong_cells)
        if separator:
            if _split_count(right_cells, separator):
                right_choices = right_list
            # The last choice is empty if the separator also ends a cell.
            cells = wrong_cells + right_cells
            drop_empty = any(str(cell).rstrip().endswith(separator) for cell in cells)
            return right_choices, Choices(wrong[0], drop_empty=drop_empty, split=separator)
        if not _is_plural(wrong[0]):
            return right_choices, Choices((wrong[0],))
        if _is_plural(right[0]):
            right_choices = right_list
        return right_choices, Choices(wrong[0], split=GAP)

    def _separator(self, name: str) -> str:
        """Return the sign that parts nearly every cell into choices, or an empty text."""
        cells = self.columns[name]
        for separator in (*_SEPARATORS, *COMMAS):
            if _split_count(cells, separator) >= 0.9 * len(cells):
                return separator
        return ""

    def separators(self, name: str) -> list[str]:
        """Return the signs that part all cells of a column, without commas."""
        cells = self.columns[name]
        return [sign for sign in _SEPARATORS if _split_count(cells, sign) == len(cells)]

    def exceeds_usual(self, name: str, separator: str) -> bool:
        """Check that nine of ten cells have as many parts, and another one more.

        A choice of that one may hold the separator.
        """
        counts = Counter(str(cell).count(separator) for cell in self.columns[name])
        [(usual, often)] = counts.most_common(1)
        return often >= 0.9 * counts.total() and max(counts) > usual

    def header_is_row(self) -> bool:
        """Check that the header looks like a row: its last name and the cells below are letters."""
        last = list(self.columns)[-1]
        return {last, *self.columns[last]} <= set(LETTERS)

    def _are_words(self, name: str) -> bool:
        """Check that all cells are single words, of a script that has spaces between words."""
        return all(
            str(cell).isascii() and len(str(cell).split()) < 2 for cell in self.columns[name]
        )

    def _are_all(self, name: str, holds: Callable[[object], bool]) -> bool:
        cells = [cell for cell in self.columns[name] if cell is not None]
        return bool(cells) and all(map(holds, cells))

    def _has_empty(self, names: Iterable[str]) -> bool:
        return any(not all(map(_is_filled, self.columns[name])) for name in names)

    def _may_hold_choices(self, name: str) -> bool:
        """Check that all cells of a column are texts, numbers or empty."""
        return all(map(_is_filled_or_empty, self.columns[name]))


def rank(name: str, words: Sequence[str]) -> tuple[int, int] | None:
    """Return how near a name is to ``words``: its best word, then how many words it has.

    None if it has none of them.
    """
    words_of_name = words_of(name)
    indices = [words.index(word) for word in words_of_name if word in words]
    if not indices:
        return None
    return min(indices), len(words_of_name)


def _are_alike(names: Iterable[str]) -> bool:
    """Check that names differ in numbers and letters alone, as those of choices do."""
    stems = set()
    for name in names:
        words = set(words_of(name)) - _COUNTING_WORDS
        stems.add(frozenset(word for word in words if not word.isdigit()))
    return len(stems) < 2


def _ranked(words: Sequence[str], names: Iterable[str]) -> list[str]:
    """Return the names that hold one of ``words``, the nearest first."""
    ranks = {}
    for name in names:
        nearness = rank(name, words)
        if nearness is not None:
            ranks[name] = nearness
    return sorted(ranks, key=lambda name: ranks[name])


def cell_at(row: object, path: str) -> object:
    """Return the cell of a row under a column's name or a path into nested columns, or None."""
    if not isinstance(row, Mapping):
        return None
    if path in row:
        return row[path]
    first, _, rest = path.partition(".")
    if not rest:
        return None
    return cell_at(row.get(first), rest)


def _pair_separator(right: Sequence[object], wrong: Sequence[object]) -> str:
    """Return the sign that parts at least half of the ``wrong`` cells, or an empty text."""
    for separator in (*_SEPARATORS, *COMMAS):
        count = _split_count(wrong, separator)
        # Commas in the right answers as well are those of sentences.
        is_comma = separator in COMMAS and 2 * _split_count(right, separator) > count
        if not is_comma and 2 * count >= len(wrong):
            return separator
    return ""


def _split_count(cells: Iterable[object], separator: str) -> int:
    """Count the cells that ``separator`` parts into several texts."""
    return sum(_is_split(cell, separator) for cell in cells)


def _is_split(cell: object, separator: str) -> bool:
    """Check that ``separator`` parts a text into several choices; a printed list is not parted."""
    if not _is_text(cell) or str(cell).lstrip().startswith(("[", "{")):
        return False
    try:
        parts = split_choices(str(cell), separator)
    except UnusableRow:
        return False
    if not parts[-1]:
        # The separator also ends the cell.
        parts = parts[:-1]
    return len(parts) > 1 and all(parts)


def _is_plural(name: str) -> bool:
    """Check that a column is called ``distractors`` or ``wrong_answers``: a cell holds several."""
    return words_of(name)[-1] in _LISTS


def is_chat(cell: object) -> bool:
    """Check that a cell is a list of messages."""
    if not isinstance(cell, list) or not cell:
        return False
    return all(isinstance(part, Mapping) and "role" in part for part in cell)


def names_right_choice(cell: object) -> bool:
    """Check that a cell is a list of choices each of which says if it is right."""
    if not isinstance(cell, list) or not cell:
        return False
    return all(isinstance(part, Mapping) and not _RIGHT.isdisjoint(part) for part in cell)


def lists_choices(cell: object) -> bool:
    """Check that choices A and B are listed in a text, on lines of their own."""
    return re.search(r"\n\s*\(?[Aa][).:].*\n\s*\(?[Bb][).:]", str(cell)) is not None


def _is_text(cell: object) -> bool:
    return isinstance(cell, str) and not is_list(cell)


def _is_filled(cell: object) -> bool:
    try:
        return text(cell, "").strip() != "" and not is_list(cell)
    except UnusableRow:
        return False


def _is_filled_or_empty(cell: object) -> bool:
    return cell is None or not str(cell).strip() or _is_filled(cell)


def is_list(cell: object) -> bool:
    """Check that a cell holds several choices: as a list, in JSON, or beside their labels."""
    if isinstance(cell, Mapping):
        return isinstance(cell.get("text"), list)
    if isinstance(cell, str) and cell.startswith("["):
        try:
            cell = list_in(cell, "")
        except UnusableRow:
            return False
    return isinstance(cell, list) and len(cell) > 1
