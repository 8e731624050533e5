"""Find columns with options that a mapping leaves out."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import NamedTuple

from choicewise.data.files import Number, list_in, value_at
from choicewise.errors import UnusableRow
from choicewise.util.jsonio import JsonMapping

_MEMBER = re.compile(r"\s*(?P<stem>.*?)[ _.-]?(?P<label>[A-Z]|[a-z]|[0-9]{1,3})\s*")
_WORD = re.compile("[A-Z]?[a-z]+|[A-Z]+|[0-9]+")
# Choices up to which a letter after a name is that of a choice, whatever other letters there are.
FEW = 10
_LEVELS = 4  # of nested lists and tables in which columns and options are looked for
_ONE = frozenset(("option", "choice", "answer", "ending", "candidate", "alternative", "opt", "sol"))
SEVERAL = frozenset(("options", "choices", "endings", "candidates", "alternatives"))
WRONG = frozenset(
    ("wrong", "incorrect", "false", "distractor", "distractors", "foil", "foils", "decoy", "decoys")
)
_FURTHER = frozenset(
    ("extra", "other", "additional", "further", "all", "third", "fourth", "fifth", "sixth")
)


Source = str | tuple[str, ...]
"""A column that holds a list, or columns with one text each."""


def names_of(source: Source | None) -> tuple[str, ...]:
    """Return the columns of a source; none for None."""
    if source is None:
        return ()
    if isinstance(source, str):
        return (source,)
    return source


class Member(NamedTuple):
    """A column's name as one of several: ``option_3`` has the stem ``option`` and the label ``3``.

    ``kind`` is A, a or 0, after the label, and empty for a name without one; ``number`` is the
    label's, A being 0.
    """

    stem: str
    label: str = ""
    kind: str = ""
    number: int = 0

    @classmethod
    def of(cls, name: str) -> Member:
        """Return the parts of a ``name``; all of it is the stem where it has no label."""
        match = _MEMBER.fullmatch(name)
        if match is None:
            return cls(name)
        stem, label = match["stem"], match["label"]
        if label.isdigit():
            return cls(stem, label, "0", int(label))
        if label.isupper():
            return cls(stem, label, "A", ord(label) - ord("A"))
        return cls(stem, label, "a", ord(label) - ord("a"))

    def may_be_choice(self, count: int) -> bool:
        """Check that it may be a choice beside ``count`` of its stem; N is none beside A to D."""
        if not self.label:
            return False
        return self.kind == "0" or self.number < FEW or count >= FEW


class OptionWatch:
    """Find the options of rows that a mapping leaves out."""

    def __init__(self, sources: Iterable[Source | None], used: Set[str], *, is_fixed: bool) -> None:
        """Watch for options beside those in the columns of ``sources``.

        ``used``: all columns that are used.  ``is_fixed``: all rows have the same choices (yes and
        no), which are in no column.
        """
        # Columns of options of every series, by its stem and kind.
        self._series: Counter[tuple[str, str]] = Counter()
        for source in sources:
            for name in names_of(source):
                # A single column may begin a series of numbers or of letters.
                self._series.update([(name, "0"), (name, "A")])
                member = Member.of(name)
                if isinstance(source, tuple) and member.label:
                    self._series[member.stem, member.kind] += 1
        self._used = used
        self._is_fixed = is_fixed
        self._names: tuple[str, ...] = ()
        # Columns that are not used: those that continue a series, are called options, or may hold
        # them.
        self._further: list[str] = []
        self._options: list[str] = []
        self._others: list[str] = []

    def left_out(self, row: JsonMapping, choices: Sequence[str] | None) -> str:
        """Return the first column with an option that is not among ``choices``, or "".

        ``choices``: what the mapping reads of the row; None if the row can't be read.  A column
        whose name continues those of the choices is an option whatever its text.  If the choices
        are fixed, every list and every series of columns holds options of the row itself.
        """
        names = tuple(paths(row))
        if names != self._names:
            self._names = names
            self._sort_names()
        for name in self._further:
            if any(_texts_in(value_at(row, name))):
                return name
        if choices is None:
            return ""
        for name in self._options:
            if not set(_texts_in(value_at(row, name))) <= set(choices):
                return name
        for name in self._others:
            if _holds_several(value_at(row, name)):
                return name
        return self._in_series(row)

    def _sort_names(self) -> None:
        free = [name for name in self._names if name not in self._used]
        self._further = [name for name in free if self._continues(Member.of(name))]
        self._options = [name for name in free if _is_named_option(name)]
        self._others = free if self._is_fixed else []

    def _continues(self, member: Member) -> bool:
        """Check that the column continues a series of options.

        ``sol3`` continues ``sol1`` and ``sol2``, ``sentence_bad_2`` the single column
        ``sentence_bad``.
        """
        count = self._series.get((member.stem, member.kind), 0)
        if count > 0:
            return member.may_be_choice(count)
        # e beside A, B, C and D
        capitals = self._series.get((member.stem, "A"), 0)
        return member.kind == "a" and member.number == capitals and capitals > 1

    def _in_series(self, row: JsonMapping) -> str:
        """Return the first column of a series with two texts or more, or "".

        A series begins with A, 0 or 1.
        """
        series: dict[tuple[str, str], dict[int, str]] = {}
        for name in self._others:
            member = Member.of(name)
            if member.label and any(_texts_in(value_at(row, name))):
                series.setdefault((member.stem, member.kind), {})[member.number] = name
        for (_, kind), names in series.items():
            first = min(names)
            last_start = 1 if kind == "0" else 0
            if len(names) > 1 and first <= last_start:
                return names[first]
        return ""


def paths(row: JsonMapping, start: str = "") -> Iterator[str]:
    """Yield the columns of a row; of a table in a cell, unless it is a list with labels, its parts."""
    for name, cell in row.items():
        is_table = isinstance(cell, Mapping) and not isinstance(cell.get("text"), list)
        if is_table and start.count(".") < _LEVELS:
            yield from paths(cell, f"{start}{name}.")
        else:
            yield start + name


def words_of(name: str) -> list[str]:
    """Return the words and numbers of a column's name in lower case."""
    return [word.lower() for word in _WORD.findall(name)]


def _is_named_option(name: str) -> bool:
    """Check that a name is that of options.

    ``option_5``, ``wrong_answer`` and ``choices`` are, ``answer`` and ``choice`` are not.
    """
    member = Member.of(name)
    stem = set(words_of(member.stem))
    if stem and member.may_be_choice(1) and stem <= _ONE | SEVERAL | WRONG:
        return True
    all_words = set(words_of(name))
    letters = all_words & set("abcdefghij")
    if letters:
        # E_option, but not n_options.
        all_words = all_words - letters | {"extra"}
    if not all_words <= _ONE | SEVERAL | WRONG | _FURTHER | {"answers"}:
        return False
    if not all_words.isdisjoint(SEVERAL | WRONG):
        return True
    return not all_words.isdisjoint(_FURTHER) and not all_words.isdisjoint(_ONE - {"answer"})


def _texts_in(cell: object, levels: int = _LEVELS) -> Iterator[str]:
    """Return the texts of a cell that are not blank: of lists and tables, those of their parts."""
    for part in _parts(cell):
        if isinstance(part, str | int) and not isinstance(part, bool):
            if str(part).strip():
                yield str(part)
        elif isinstance(part, list | Mapping) and levels:
            yield from _texts_in(part, levels - 1)


def _parts(cell: object) -> Sequence[object]:
    if isinstance(cell, Mapping):
        return list(cell.values())
    if isinstance(cell, str) and not isinstance(cell, Number) and cell.startswith("["):
        try:
            cell = list_in(cell, "")
        except UnusableRow:
            return [cell]
    if isinstance(cell, list):
        return cell
    return [cell]


def _holds_several(cell: object) -> bool:
    """Check that a cell is a list or a table, also as a text, with more than one text."""
    is_nested = isinstance(cell, Mapping | list) or (isinstance(cell, str) and cell.startswith("["))
    return is_nested and len(list(_texts_in(cell))) > 1
