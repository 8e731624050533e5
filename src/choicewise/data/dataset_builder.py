"""From rows to a dataset: a row that can't be used is an error or is recorded as skipped, never silently dropped."""

from pathlib import Path

from choicewise.data.cell import UnusableRow
from choicewise.data.dataset import Dataset
from choicewise.data.item import Item
from choicewise.errors import DataError, UsageError
from choicewise.records.manifest import SkippedRow


class DatasetBuilder:
    """Collects the items of every split in order.  Rows are counted from 0, as in ids."""

    def __init__(self, on_bad_item: str) -> None:
        if on_bad_item not in ("error", "skip"):
            raise UsageError(f"on_bad_item is {on_bad_item!r}; it must be error or skip")
        self._skip = on_bad_item == "skip"
        self._splits: dict[str, dict[str, Item]] = {}
        self._rows: dict[tuple[str, str], str] = {}
        self._skipped: list[SkippedRow] = []

    def reject(self, file: Path, row: int, reason: UnusableRow) -> None:
        """Record the row as skipped, or raise DataError unless bad items are to be skipped."""
        if not self._skip:
            raise DataError(f"{place(file, row)}: {reason}; correct the row, or skip bad items") from reason
        self._skipped.append(SkippedRow(str(file), row, str(reason)))

    def accept(self, file: Path, row: int, split: str, item: Item) -> None:
        """Add the item, or reject its row when it is no valid question.  Raises DataError for a repeated id."""
        try:
            check_item(item)
        except UnusableRow as reason:
            return self.reject(file, row, reason)
        key = (split, item.id)
        if key in self._rows:
            raise DataError(f"{self._rows[key]} and {place(file, row)} have the same id {item.id!r}; ids must differ")
        self._rows[key] = place(file, row)
        self._splits.setdefault(split, {})[item.id] = item

    def dataset(self, name: str) -> Dataset:
        """The dataset of all accepted items.  Raises DataError when there are none."""
        if not self._splits:
            why = f"; every row was skipped, the first because {self._skipped[0].reason}" if self._skipped else ""
            raise DataError(f"{name} holds no questions that can be used{why}")
        splits = {split: tuple(items.values()) for split, items in self._splits.items()}
        return Dataset(name, splits, tuple(self._skipped))


def check_item(item: Item) -> None:
    """Raises UnusableRow for fewer than two choices, a blank one, or gold outside them."""
    if len(item.choices) < 2:
        raise UnusableRow(f"a question with {len(item.choices)} choice{'s' * (len(item.choices) != 1)} asks nothing")
    if blank := [index for index, choice in enumerate(item.choices) if not choice.strip()]:
        raise UnusableRow(f"choice {blank[0]} (counted from 0) is {item.choices[blank[0]]!r}, nothing to score")
    if not item.gold or item.gold[0] < 0 or item.gold[-1] >= len(item.choices):
        raise UnusableRow(f"the right choices {list(item.gold)} are not among the {len(item.choices)} choices")


def place(file: Path, row: int) -> str:
    """The place of a row, for messages."""
    return f"{file}, row {row} (counted from 0)"
