"""From the answer as a file spells it to the indices of the right choices, without guessing."""

import re
from contextlib import suppress
from typing import Final, NamedTuple

from choicewise.data.cell import NoAnswer, UnusableRow, is_number, repeated, text
from choicewise.data.shapes import LETTERS

KINDS: Final = ("label", "index", "text")
"""How an answer may be spelled; where several fit every row of a file, they mean the same."""

COUNTED: Final = {"index": 0, "number": 1}
"""How an answer says a choice's place → the number of the first choice.  A ``number`` has to be declared."""


NONE: Final = ("", "-1")
"""What stands in place of an answer that is not published: in text columns, and in those of indices."""


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
        readings = {}
        for kind in self.kinds:
            with suppress(UnusableRow):
                readings[kind] = self.gold(kind)
        return readings

    def gold(self, kind: str) -> tuple[int, ...]:
        """The indices of the right choices, in increasing order, with the answer read as ``kind``.

        Raises UnusableRow when it can't be read this way, or names no choice or one twice.
        """
        if self.cell is None:
            raise NoAnswer("the answer is null")
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
        if kind == "index" and 1 < count == len(gold):
            raise UnusableRow(
                'the answers are indices of every choice; where they are a 1 or 0 for each, declare answer_is = "flags"'
            )
        return tuple(gold)

    @property
    def kinds(self) -> tuple[str, ...]:
        """The ways in which the answer can be meant, readable or not."""
        if self.labels:
            return ("label",)
        return ("index",) if not self.numbers and all(map(is_number, self.cells)) else KINDS

    @property
    def cells(self) -> list[object]:
        """The answers of a row that may have several."""
        return list(self.cell) if isinstance(self.cell, list | tuple) else [self.cell]

    def _index(self, answer: str, kind: str) -> int:
        if answer in NONE and answer not in self.labels and answer not in self.choices:
            raise NoAnswer(f"the answer is {answer or 'empty'}")
        if (start := COUNTED.get(kind)) is not None:
            if not re.fullmatch(r"-?(0|[1-9][0-9]{0,8})", answer):
                raise UnusableRow(f"the answer {answer!r} is no {kind}, which counts the choices from {start}")
            if not 0 <= int(answer) - start < len(self.choices):
                last = len(self.choices) - 1 + start
                raise UnusableRow(f"the answer is {kind} {answer}, outside {start} to {last}")
            return int(answer) - start
        names = self.choices if kind == "text" else self.labels or tuple(LETTERS[: len(self.choices)])
        if answer not in names:
            known = "the texts of the choices" if kind == "text" else ", ".join(names)
            raise UnusableRow(f"the answer {answer!r} is none of {known}")
        if names.count(answer) > 1:
            raise UnusableRow(f"the answer {answer!r} is the {kind} of more than one choice")
        return names.index(answer)
