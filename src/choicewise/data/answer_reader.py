"""How the answers of a dataset are spelled: decided once for all its rows, and never guessed."""

import re
from collections.abc import Iterable
from itertools import combinations
from typing import Final

from choicewise.data.answer import KINDS, Answer
from choicewise.data.cell import UnusableRow
from choicewise.errors import DataError

DOUBTFUL: Final = 8
"""Answers without a 0 from which an index is no longer taken to count from 0: four choices do so once in ten times."""

_DECLARE = (
    'declare answer_is = "number" in a mapping where they count from 1, answer_is = "index" where they count from 0'
)


class CountingOpen(DataError):
    """Answers that are digits, of which nothing says whether they count the choices from 0 or from 1."""


class AnswerReader:
    """Reads all answers of a dataset as one ``kind``, and keeps none of them."""

    def __init__(self, answers: Iterable[tuple[object, Answer]]) -> None:
        """Decide by ``answers`` and their places, of which only so many are taken as it needs to.

        Answers that can't be read at all are ignored.  Raises DataError when no kind fits all the others, or when
        several fit but mean different choices.
        """
        kinds: tuple[str, ...] = KINDS
        differing: dict[tuple[str, str], tuple[object, Answer]] = {}  # the first answer that two kinds read differently
        for where, answer in answers:
            if len(kinds) == 1:
                break
            if readings := answer.readings():
                kinds = _remaining(kinds, where, answer, readings)
            for pair in combinations(readings, 2):
                if readings[pair[0]] != readings[pair[1]]:
                    differing.setdefault(pair, (where, answer))
        for where, answer in (place for pair, place in differing.items() if {*pair} <= {*kinds}):
            readings = answer.readings()
            meanings = ", ".join(f"{kind} (choice {readings[kind][0]}, counted from 0)" for kind in kinds)
            raise DataError(
                f"{where}: the answer {answer.cell!r} can be read as {meanings};"
                ' declare answer_is = "label", "index", "number" or "text" in a mapping'
            )
        self.kind = kinds[0]
        self._only_index = kinds == ("index",)  # where they are texts of choices as well, both mean the same
        self._zero = False
        self._readable = 0
        self._beyond: object = None

    def gold(self, where: object, answer: Answer) -> tuple[int, ...]:
        """The indices of the right choices.

        Raises UnusableRow when the answer can't be read, and DataError when it can, but only as another kind.
        """
        try:
            gold = answer.gold(self.kind)
        except UnusableRow:
            gold = ()
        if not gold or self.kind not in answer.kinds:
            if readings := answer.readings():
                _remaining((self.kind,), where, answer, readings)
            self._watch(where, answer)
            return answer.gold(self.kind)
        self._readable += 1
        self._zero |= not gold[0]
        return gold

    def check_counting(self) -> None:
        """CountingOpen where, of all answers read, none is 0, and one is the number of choices or they are many.

        Skipping the row of that one would make all others wrong.
        """
        if self._zero:
            return
        if self._beyond is not None and (self.kind == "index" or not self._readable):
            raise CountingOpen(
                f"{self._beyond}: the answer is the number of choices, and no answer is 0: they seem to be counted"
                f" from 1; {_DECLARE}"
            )
        if self._only_index and self._readable >= DOUBTFUL:
            raise CountingOpen(
                f"none of {self._readable:,} answers is 0, so they may be counted from 1, where an index counts from"
                f" 0; {_DECLARE}"
            )

    def _watch(self, where: object, answer: Answer) -> None:
        for cell in map(str, () if answer.labels else answer.cells):
            if re.fullmatch("[0-9]{1,9}", cell):
                self._zero |= int(cell) == 0
                if self._beyond is None and int(cell) == len(answer.choices):
                    self._beyond = where


def _remaining(
    kinds: tuple[str, ...], where: object, answer: Answer, readings: dict[str, tuple[int, ...]]
) -> tuple[str, ...]:
    remaining = tuple(kind for kind in kinds if kind in readings)
    if not remaining:
        raise DataError(
            f"{where}: the answer {answer.cell!r} can only be read as {' or '.join(readings)}, those before it only"
            f" as {' or '.join(kinds)}; declare answer_is in a mapping (label, index, number or text)"
        )
    return remaining
