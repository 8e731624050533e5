"""From the answer as a file spells it to the indices of the right choices, without guessing."""

import re
from collections.abc import Iterable
from contextlib import suppress
from typing import NamedTuple

from choicewise.data.cell import UnusableRow, is_number, repeated, text
from choicewise.data.shapes import LETTERS
from choicewise.errors import DataError


class Answer(NamedTuple):
    """One row's answer cell with the choices it is about.

    ``labels`` are the source's own, one per choice, or empty; ``numbers`` says that some choices are numbers.
    """

    cell: object
    choices: tuple[str, ...]
    labels: tuple[str, ...] = ()
    numbers: bool = False

    def readings(self) -> dict[str, tuple[int, ...]]:
        """Every way to read the answer (``label``, ``index``, ``text``) with the indices it then means.

        Where the source has labels of its own, they are the only way; where the choices are texts, a number can only
        be an index.
        """
        kinds: tuple[str, ...] = ("label", "index", "text")
        if self.labels:
            kinds = ("label",)
        elif not self.numbers and all(map(is_number, self.cells)):
            kinds = ("index",)
        readings = {}
        for kind in kinds:
            with suppress(UnusableRow):
                readings[kind] = self.gold(kind)
        return readings

    def gold(self, kind: str) -> tuple[int, ...]:
        """The indices of the right choices, in increasing order, with the answer read as ``kind``.

        Raises UnusableRow when it can't be read this way, or names no choice or one twice.
        """
        # JSON's spelling, so that labels can name true and false.
        answers = [str(cell).lower() if isinstance(cell, bool) else text(cell, "of the answer") for cell in self.cells]
        count = len(self.choices)
        if kind == "flags":
            if len(answers) != count or not set(answers) <= {"0", "1"} or "1" not in answers:
                raise UnusableRow(f"the answer must be 1 or 0 for each of {count} choices, and 1 at least once")
            return tuple(index for index, flag in enumerate(answers) if flag == "1")
        if not answers:
            raise UnusableRow("the list of answers is empty")
        gold = sorted(self._index(answer, kind) for answer in answers)
        if (twice := repeated(gold)) is not None:
            raise UnusableRow(f"the answers name choice {twice} (counted from 0) twice")
        return tuple(gold)

    @property
    def cells(self) -> list[object]:
        """The answers of a row that may have several."""
        return list(self.cell) if isinstance(self.cell, list | tuple) else [self.cell]

    def _index(self, answer: str, kind: str) -> int:
        if answer == "":
            raise UnusableRow("the answer is empty; a split without published answers can't be scored")
        if kind == "index":
            if not re.fullmatch(r"-?(0|[1-9][0-9]{0,8})", answer):
                raise UnusableRow(f"the answer {answer!r} is no index, which counts the choices from 0")
            if not 0 <= int(answer) < len(self.choices):
                raise UnusableRow(f"the answer is index {answer}, outside 0 to {len(self.choices) - 1}")
            return int(answer)
        names = self.choices if kind == "text" else self.labels or tuple(LETTERS[: len(self.choices)])
        if answer not in names:
            known = "the texts of the choices" if kind == "text" else ", ".join(names)
            raise UnusableRow(f"the answer {answer!r} is none of {known}")
        if names.count(answer) > 1:
            raise UnusableRow(f"the answer {answer!r} is the {kind} of more than one choice")
        return names.index(answer)


def answer_kind(answers: Iterable[tuple[str, Answer]]) -> str:
    """How to read all the answers of a dataset, decided once for all rows; each answer comes with its place.

    Answers that can't be read at all are ignored.  Raises DataError when no kind fits all the others, when several fit
    but mean different choices, or when indices seem to be counted from 1.
    """
    answers, kinds = list(answers), ["label", "index", "text"]
    readable = [(where, answer, readings) for where, answer in answers if (readings := answer.readings())]
    for where, answer, readings in readable:
        remaining = [kind for kind in kinds if kind in readings]
        if not remaining:
            raise DataError(
                f"{where}: the answer {answer.cell!r} can only be read as {' or '.join(readings)}, those before it only"
                f" as {' or '.join(kinds)}; declare answer_is in a mapping (label, index or text)"
            )
        kinds = remaining
    for where, answer, readings in readable:
        if len({readings[kind] for kind in kinds}) > 1:
            meanings = ", ".join(f"{kind} (choice {readings[kind][0]}, counted from 0)" for kind in kinds)
            raise DataError(
                f"{where}: the answer {answer.cell!r} can be read as {meanings};"
                ' declare answer_is = "label", "index" or "text" in a mapping'
            )
    if "index" in kinds[:1] or not readable:
        _refuse_counting_from_one(answers)
    return kinds[0]


def _refuse_counting_from_one(answers: Iterable[tuple[str, Answer]]) -> None:
    """DataError where an index is the number of choices and none is 0: skipping its row would make the others wrong."""
    indices = [
        (where, len(answer.choices), int(cell))
        for where, answer in answers
        for cell in map(str, () if answer.labels else answer.cells)
        if re.fullmatch("[0-9]{1,9}", cell)
    ]
    beyond = next((where for where, count, index in indices if index == count), None)
    if beyond and all(index for _, _, index in indices):
        raise DataError(
            f"{beyond}: the answer is the number of choices, and no answer is 0: they seem to be counted from 1, where "
            'an index counts from 0; subtract 1, write letters, or declare answer_is = "index" in a mapping'
        )
