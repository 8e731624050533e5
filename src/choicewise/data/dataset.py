"""Items in their splits, and the digest that identifies them."""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from choicewise.data.categories import categories_of
from choicewise.data.cell import UnusableRow
from choicewise.data.item import Item
from choicewise.data.notebook import html_table
from choicewise.errors import DataError, UsageError, did_you_mean
from choicewise.records.manifest import SkippedRow


@dataclass(frozen=True)
class Dataset:
    """The items of every split, in file order, and the rows that were skipped.

    ``splits`` maps a split's name (``test``, ``dev``, ``validation``, ``train``) to its items.
    """

    name: str
    splits: Mapping[str, tuple[Item, ...]]
    skipped: tuple[SkippedRow, ...] = ()

    def __repr__(self) -> str:
        sizes = ", ".join(f"{len(items)} {split}" for split, items in self.splits.items())
        return f"<Dataset {self.name!r}: {sizes or 'no'} items, {len(self.skipped)} rows skipped>"

    def _repr_html_(self) -> str:
        sizes = {f"{split} items": len(items) for split, items in self.splits.items()}
        return html_table(self.name, sizes | {"rows skipped": len(self.skipped), "digest": self.digest[:12]})

    @cached_property
    def digest(self) -> str:
        """sha256 (64 hex) over every item of every split: the same content gives the same digest in any file format."""
        sha = hashlib.sha256()
        for split in sorted(self.splits):
            for item in self.splits[split]:
                record = [split, item.id, item.subject, item.question, item.choices, item.gold, dict(item.fields)]
                sha.update(json.dumps(record, sort_keys=True, ensure_ascii=True).encode() + b"\n")
        return sha.hexdigest()

    def subjects(self, split: str) -> tuple[str, ...]:
        """The subjects of a split in order of first appearance."""
        return tuple(dict.fromkeys(item.subject for item in self.splits.get(split, ())))

    @cached_property
    def categories(self) -> dict[str, dict[str, list[str]]]:
        """The published categories of its subjects, each with its subcategories; empty where the subjects have none."""
        return categories_of({item.subject for items in self.splits.values() for item in items})

    @property
    def evaluated(self) -> str:
        """The split that numbers are published for: test, else validation, else the only split.

        Raises DataError when there are several others, or none.
        """
        for split in ("test", "validation", *(self.splits if len(self.splits) == 1 else ())):
            if self.splits.get(split):
                return split
        splits = ", ".join(sorted(self.splits)) or "none"
        raise DataError(f"{self.name} has neither test nor validation, only {splits}; name a split in a protocol file")

    def choose(self, split: str, subjects: Sequence[str] | None = None) -> tuple[str, ...]:
        """The named subjects of the split, all when None, in the split's order.

        Raises DataError when there is no such split, and UsageError when it has no such subject.
        """
        known = self.subjects(split)
        if not known:
            splits = ", ".join(sorted(self.splits)) or "none"
            raise DataError(f'{self.name} has no split {split!r}, only {splits}; use a protocol file with split = "-"')
        for subject in subjects or ():
            if subject not in known:
                hint = did_you_mean(subject, known)
                raise UsageError(f"{self.name} has no subject {subject!r} in split {split!r}; {hint}")
        return tuple(subject for subject in known if subjects is None or subject in subjects)

    @cached_property
    def _by_subject(self) -> dict[tuple[str, str], tuple[Item, ...]]:
        groups: dict[tuple[str, str], list[Item]] = {}
        for split, items in self.splits.items():
            for item in items:
                groups.setdefault((split, item.subject), []).append(item)
        return {key: tuple(items) for key, items in groups.items()}

    def rows(self, split: str, subject: str) -> tuple[Item, ...]:
        """The items of one subject in one split, in file order; empty when there are none."""
        return self._by_subject.get((split, subject), ())


def build_dataset(
    name: str, rows: Iterable[tuple[Path, int, str, Callable[[], Item]]], on_bad_item: str = "error"
) -> Dataset:
    """The dataset of ``rows``: the file, the row in it from 0, the split, and what returns the item.

    A row whose item is no valid question, or raises UnusableRow, is an error, or is recorded as skipped where
    ``on_bad_item`` is ``skip``.  Raises DataError for such a row, for a repeated id, and when there are no items.
    """
    if on_bad_item not in ("error", "skip"):
        raise UsageError(f"on_bad_item is {on_bad_item!r}; it must be error or skip")
    splits: dict[str, list[Item]] = {}
    places: dict[tuple[str, str], str] = {}
    skipped: list[SkippedRow] = []
    for file, row, split, make in rows:
        try:
            item = make()
            check_item(item)
        except UnusableRow as reason:
            if on_bad_item == "error":
                raise DataError(f"{place(file, row)}: {reason}; correct the row, or skip bad items") from reason
            skipped.append(SkippedRow(str(file), row, str(reason)))
            continue
        key, where = (split, item.id), place(file, row)
        if key in places:
            raise DataError(f"{places[key]} and {where} have the same id {item.id!r}; ids must differ")
        places[key] = where
        splits.setdefault(split, []).append(item)
    if not splits:
        why = f"; every row was skipped, the first because {skipped[0].reason}" if skipped else ""
        raise DataError(f"{name} holds no questions that can be used{why}")
    return Dataset(name, {split: tuple(items) for split, items in splits.items()}, tuple(skipped))


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
