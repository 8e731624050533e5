"""Answers that were made, for the next one who asks the same."""

from collections import OrderedDict
from collections.abc import Hashable
from threading import Lock

BUDGET = 64_000_000
"""Bytes of all answers together."""


class AnswersKept:
    """Answers by what was asked; those not asked for the longest go first.  Several threads may use it."""

    def __init__(self, budget: int = BUDGET) -> None:
        self._budget, self._bytes = budget, 0
        self._kept: OrderedDict[Hashable, bytes] = OrderedDict()
        self._lock = Lock()

    def get(self, asked: Hashable) -> bytes | None:
        """The answer, if it is there."""
        with self._lock:
            if asked in self._kept:
                self._kept.move_to_end(asked)
            return self._kept.get(asked)

    def keep(self, asked: Hashable, answer: bytes) -> None:
        """Remember an answer, and forget others where there is no room."""
        with self._lock:
            self._bytes += len(answer) - len(self._kept.pop(asked, b""))
            self._kept[asked] = answer
            while self._bytes > self._budget and self._kept:
                self._bytes -= len(self._kept.popitem(last=False)[1])
