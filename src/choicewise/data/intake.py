"""Make a dataset of items that are taken row by row, and report rows that can't be used."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from choicewise.data.dataset import Dataset, ItemColumns, Items
from choicewise.data.decisions import STATE
from choicewise.data.files import RowPlace, repeated
from choicewise.data.items import Item
from choicewise.data.rows import lettered
from choicewise.errors import DataError, NoAnswer, UnusableRow, UsageError
from choicewise.records import SkippedRow
from choicewise.util.text import listed

_LISTED = 24  # problems that an error lists; it counts the others
_NAMED = 3  # groups of rows with the same content that are named
_OFTEN = 10  # of so many questions one with a choice twice is no slip


class IntakeRow(NamedTuple):
    """A row of a split, and what returns its item or raises UnusableRow."""

    location: RowPlace
    split: str
    make: Callable[[], Item]


def build_dataset(
    name: str, rows: Iterable[IntakeRow], on_bad_item: str = "error", fewest: int = 2
) -> Dataset:
    """Return the dataset of ``rows``, which are taken one by one.

    A row whose item is no valid question (:func:`check_item`), or raises UnusableRow, is an error,
    or is recorded as skipped if ``on_bad_item`` is ``skip``.  Raises DataError for such rows and
    for repeated ids, all of them together after the last row, and if there are no items.
    """
    if on_bad_item not in ("error", "skip"):
        raise UsageError(f"on_bad_item is {on_bad_item!r}; it must be error or skip")
    splits: dict[str, _Split] = {}
    refused = _RefusedRows(skips=on_bad_item == "skip")
    for row in rows:
        try:
            item = row.make()
            check_item(item, fewest)
        except UnusableRow as reason:
            refused.add(row, reason)
        else:
            splits.setdefault(row.split, _Split()).add(row.location, item)
    problems = refused.problems(splits)
    repeats: list[str] = []
    for taken in splits.values():
        repeats += taken.repeats()
    if repeats:
        problems += _together(
            repeats[:_LISTED], len(repeats), "rows repeat an id", "ids must differ"
        )
    if problems:
        raise DataError(problems[0], problems[1:])
    if not splits:
        why = ""
        if refused.rows:
            why = f"; all rows were skipped, the first because {refused.rows[0][1]}"
        raise DataError(f"{name} has no usable questions{why}")
    notes = []
    for taken in splits.values():
        notes += [*taken.twice(), *taken.telling_choices()]
    items = {split: taken.items for split, taken in splits.items()}
    skipped = []
    for location, why in refused.rows:
        skipped.append(SkippedRow(str(location.file), location.row, why))
    return Dataset(name, items, tuple(skipped), notes=tuple(notes))


def check_item(item: Item, fewest: int = 2) -> None:
    """Check that a question can be asked.

    Raises UnusableRow for fewer than ``fewest`` choices, a blank one, gold outside them, or NUL in
    a text.
    """
    count = len(item.choices)
    if count < fewest:
        raise UnusableRow(f"{count} choice{'s' * (count != 1)}; a question needs at least {fewest}")
    if not all(map(str.strip, item.choices)):
        raise UnusableRow(_blank_choice(item.choices))
    if not item.gold or item.gold[0] < 0 or item.gold[-1] >= count:
        raise UnusableRow(f"the right choices {list(item.gold)} are not among the {count} choices")
    texts = (item.id, item.subject, item.question, *item.choices, *item.fields.values())
    if "\0" not in "".join(texts):
        return
    text = next(text for text in texts if "\0" in text)
    spelled = repr(text)
    if len(text) > 60:
        spelled = f"{text[:60]!r}..."
    raise UnusableRow(f"the text {spelled} has a NUL character; the file is damaged")


def _blank_choice(choices: tuple[str, ...]) -> str:
    """Return what is wrong with choices of which one is blank."""
    blank = next(index for index, choice in enumerate(choices) if not choice.strip())
    problem = f"choice {blank} (counted from 0) is {choices[blank]!r}, which can't be scored"
    if not any(map(str.strip, choices[blank:])):
        problem += "; set drop_empty = true in a mapping to allow empty choices at the end"
    return problem


class _RefusedRows:
    """Rows that can't be used: all of them to be skipped, or the first to be listed in an error."""

    def __init__(self, *, skips: bool) -> None:
        self._skips = skips
        self.rows: list[tuple[RowPlace, str]] = []  # with the reason
        # Without those that only lack an answer.
        self._count = 0
        # Split → rows without an answer, and where the first is, and why.
        self._unanswered: Counter[str] = Counter()
        self._first_unanswered: dict[str, str] = {}

    def add(self, row: IntakeRow, reason: UnusableRow) -> None:
        is_kept = self._skips
        if isinstance(reason, NoAnswer):
            # The location of a row is read from its file, so that it is spelled once.
            if row.split not in self._unanswered:
                self._first_unanswered[row.split] = f"{row.location}: {reason}"
            self._unanswered[row.split] += 1
        else:
            self._count += 1
            is_kept = is_kept or self._count <= _LISTED
        if is_kept:
            self.rows.append((row.location, str(reason)))

    def problems(self, answered: Iterable[str]) -> list[str]:
        """Return the lines of an error about the rows; ``answered``: splits that have items."""
        if self._skips:
            return []
        problems = []
        for split, count in self._unanswered.items():
            first = self._first_unanswered[split]
            remedy = "correct the row, or skip bad items"
            if split not in answered:
                first = f"split {split} has no answers and can't be scored ({first})"
                remedy = (
                    "skip bad items, move its file away, or name the column of its answers in a "
                    "mapping"
                )
            elif count > 1:
                first = f"{count:,} rows of split {split} have no answer, first {first}"
                remedy = "correct them, or skip bad items"
            problems.append(f"{first}; {remedy}")
        if self.rows:
            reasons = [f"{location}: {reason}" for location, reason in self.rows]
            remedy = "correct the row, or skip bad items"
            problems += _together(reasons, self._count, "rows can't be used", remedy)
        return problems


class _FileStart(NamedTuple):
    """The first row of a file among those of its split."""

    position: int
    file: Path
    header: int


class _Split:
    """The items of a split with their places, in some 12 bytes besides the items' columns."""

    def __init__(self) -> None:
        self._columns = ItemColumns()
        self._hashes = array("q")
        self._rows = array("q")
        self._contents = array("q")
        self._files: list[_FileStart] = []
        self._lettered = 0
        self._spaced = 0
        self._edged = 0
        self._repeating = 0
        # The first choice that its question has twice.
        self._repeated = ""

    def add(self, location: RowPlace, item: Item) -> None:
        if not self._files or self._files[-1].file != location.file:
            self._files.append(_FileStart(len(self._rows), location.file, location.header))
        self._rows.append(location.row)
        self._hashes.append(hash(item.id))
        self._contents.append(hash(_content(item)))
        self._lettered += lettered(item.choices) is not None
        self._spaced += _is_marked_by_space(item)
        self._edged += all(choice != choice.strip() for choice in item.choices)
        if len(set(item.choices)) < len(item.choices):
            self._repeating += 1
            self._repeated = self._repeated or repeated(item.choices) or ""
        self._columns.add(item)

    @property
    def items(self) -> Items:
        return Items(self._columns.batches())

    def repeats(self) -> Iterator[str]:
        """Yield a line for each row whose id a row before it has."""
        items = self.items
        first: dict[str, int] = {}
        for position in _repeated(self._hashes):
            id = items[position].id
            before = first.setdefault(id, position)
            if before != position:
                yield f"{self._place(before)} and {self._place(position)} have the id {id!r}"

    def twice(self) -> Iterator[str]:
        """Yield a line that names the rows with the same question and choices, if there are any."""
        items = self.items
        groups: dict[object, list[int]] = {}
        for position in _repeated(self._contents):
            groups.setdefault(_content(items[position]), []).append(position)
        repeating = [positions for positions in groups.values() if len(positions) > 1]
        if not repeating:
            return
        first = self._place(repeating[0][0])
        named = []
        for positions in repeating[:_NAMED]:
            golds = {items[position].gold for position in positions}
            differ = " (with other answers)" if len(golds) > 1 else ""
            named.append(f"{self._numbers(positions, first.file)}{differ}")
        noun = "lines" if first.file.suffix == ".jsonl" else "rows"
        others = len(repeating) - _NAMED
        more = f", and {others} more questions" if others > 0 else ""
        yield (
            f"{first.file.name}: {noun} {', '.join(named)}{more} have the same question and "
            "choices; all are scored"
        )

    def _numbers(self, positions: list[int], first_file: Path) -> str:
        """Return the numbers of some rows, of many the first ones; other files are named."""
        most = 2 * _NAMED
        # A number is read from the file, so that only those that are shown are looked up.
        numbers = [""] * len(positions)
        for index, position in enumerate(positions[:most]):
            location = self._place(position)
            numbers[index] = str(location.number)
            if location.file != first_file:
                numbers[index] += f" of {location.file.name}"
        return listed(numbers, most - 1)

    def telling_choices(self) -> Iterator[str]:
        """Yield a line for each fault of many choices.

        Faults are letters before them, spaces at their edges, and the same text twice.
        """
        count = len(self._rows)
        file = self._files[0].file.name
        if 2 * self._lettered > count:
            yield (
                f"{file}: choices begin with letters ({self.items[0].choices[0]!r}), so prompts "
                "may show"
                " them twice. Remove them from the file."
            )
        if _OFTEN * self._repeating >= count:
            yield (
                f"{file}: {self._repeating:,} of {count:,} questions repeat a choice, such as "
                f"{self._repeated!r}."
                " If it means no choice, empty the cell and set drop_empty = true in a mapping"
            )
        if 2 * self._spaced > count:
            yield (
                f"{file}: spaces at an edge give away the right choice in {self._spaced:,} of "
                f"{count:,} questions;"
                " remove them from the file"
            )
        if 2 * self._edged > count:
            yield (
                f"{file}: choices have spaces at an edge ({self.items[0].choices[0]!r}), which "
                "prompts show. Remove them from the file."
            )

    def _place(self, position: int) -> RowPlace:
        number = bisect_right(self._files, position, key=lambda start: start.position) - 1
        start = self._files[number]
        return RowPlace(start.file, self._rows[position], start.header)


def _is_marked_by_space(item: Item) -> bool:
    """Check that white space at an edge parts the right choices from the wrong ones."""
    is_spaced = [choice != choice.strip() for choice in item.choices]
    if not any(is_spaced):
        return False
    is_right = [index in item.gold for index in range(len(item.choices))]
    return is_spaced == is_right or is_spaced == [not right for right in is_right]


def _content(item: Item) -> tuple[object, ...]:
    """Return what makes two rows the same question.

    It is the texts, the state, and further texts of several words, as a passage.
    """
    further = sorted(text for text in item.fields.values() if " " in text)
    return item.question, item.choices, item.fields.get(STATE), *further


def _repeated(hashes: array[int]) -> list[int]:
    """Return the positions whose hash another position has as well."""
    of_rows = np.frombuffer(hashes, np.int64)
    values, counts = np.unique(of_rows, return_counts=True)
    repeated: list[int] = np.flatnonzero(np.isin(of_rows, values[counts > 1])).tolist()
    return repeated


def _together(problems: list[str], count: int, what: str, remedy: str) -> list[str]:
    """Return the lines about ``count`` problems, of which the first are in ``problems``."""
    if count == 1:
        return [f"{problems[0]}; {remedy}"]
    lines = [f"{count} {what}; {remedy.replace('the row', 'them')}:", *problems]
    if count > len(problems):
        lines.append(f"and {count - len(problems)} more")
    return lines
