"""What a log itself says of its items, held against what follows from its log-likelihoods or its text."""

from __future__ import annotations

import math
from collections import Counter

from choicewise.errors import DataError
from choicewise.interchange.logs.log import Log
from choicewise.interchange.logs.log_item import KeptItem
from choicewise.interchange.logs.verdicts import expected, is_known

ROUNDING = 1e-5
"""By how much a share may differ that another tool computed of the same numbers."""


class Checks:
    """Counts where a log says something else of its items."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._checked: Counter[str] = Counter()
        self._wrong: Counter[str] = Counter()
        self._first: dict[str, str] = {}
        self._unknown: dict[str, None] = {}

    def add(self, kept: KeptItem) -> None:
        """Check one item; what is missing has nothing to be checked against."""
        item = kept.item
        if kept.missing:
            return
        for name, said in item.recorded.items():
            follows = expected(self._log, name, item)
            if not is_known(self._log, name):
                self._unknown.setdefault(name)
            if math.isnan(follows) or math.isnan(said):
                continue
            self._checked[name] += 1
            if abs(said - follows) > ROUNDING:
                self._wrong[name] += 1
                self._first.setdefault(name, f"{item.id}: the log says {said:g}, its answers {follows:g}")

    def notes(self) -> tuple[str, ...]:
        """What differs, in words.

        Raises DataError where that is ``acc``: then the right choices were read otherwise than the tool knew them.
        """
        differing = {
            name: f"{name} of {count:,} of {self._checked[name]:,} items is another than its own answers give, "
            f"such as {self._first[name]}"
            for name, count in self._wrong.items()
        }
        if "acc" in differing:
            raise DataError(
                f"the {self._log.tool} log of {self._log.model} on {self._log.task} does not agree with itself: "
                f"{differing['acc']}"
            )
        return tuple(differing.values())

    def unused(self) -> tuple[str, ...]:
        """The log's values of items that are not imported, in words."""
        unknown = ", ".join(sorted(self._unknown))
        return (f"values {unknown}, of which it is not known how they follow from the answers",) if unknown else ()
