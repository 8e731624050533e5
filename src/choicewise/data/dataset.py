"""Items in their splits, and the digest that identifies them."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from choicewise.data.categories import categories_of
from choicewise.data.columns import Columns
from choicewise.data.content import content_fields
from choicewise.data.item import Item
from choicewise.data.items import Items
from choicewise.data.notebook import html_table
from choicewise.errors import DataError, UsageError, did_you_mean
from choicewise.records.manifest import SkippedRow


@dataclass(frozen=True)
class Dataset:
    """The items of every split, in file order, and the rows that were skipped.

    ``splits`` maps a split's name (``test``, ``dev``, ``validation``, ``train``) to its items; they are kept in
    columns (:class:`~choicewise.data.items.Items`), so that a million of them fit into little memory.
    ``columns``: as what the columns of its (first) file were read; None where they have no names, or there is no file.
    ``source``: the repository on the Hub and the commit that they were read from, nothing for local files.
    ``read_with``: the release of another tool that read them, and which of its tasks they are; empty for none.
    """

    name: str
    splits: Mapping[str, Sequence[Item]]
    skipped: tuple[SkippedRow, ...] = ()
    columns: Columns | None = None
    source: str = ""
    read_with: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "splits", {split: Items.of(items) for split, items in self.splits.items()})

    def __repr__(self) -> str:
        sizes = ", ".join(f"{len(items)} {split}" for split, items in self.splits.items())
        return f"<Dataset {self.name!r}: {sizes or 'no'} items, {len(self.skipped)} rows skipped>"

    def _repr_html_(self) -> str:
        sizes = {f"{split} items": len(items) for split, items in self.splits.items()}
        return html_table(self.name, sizes | {"rows skipped": len(self.skipped), "digest": self.digest[:12]})

    @cached_property
    def digest(self) -> str:
        """sha256 (64 hex) over every item of every split: the same content gives the same digest in any file format."""
        sha, spell = hashlib.sha256(), json.JSONEncoder(sort_keys=True).encode
        for split in sorted(self.splits):
            for item in self.splits[split]:
                record = [split, item.id, item.subject, item.question, item.choices, item.gold, dict(item.fields)]
                sha.update(spell(record).encode() + b"\n")
        return sha.hexdigest()

    @cached_property
    def drawn(self) -> dict[tuple[Any, ...], Any]:
        """What samplers of few-shot examples drew from it, by all that they go by, so that no block draws it again."""
        return {}

    def subjects(self, split: str) -> tuple[str, ...]:
        """The subjects of a split in order of first appearance."""
        return tuple(self._by_subject.get(split, ()))

    @cached_property
    def categories(self) -> dict[str, dict[str, list[str]]]:
        """The published categories of its subjects, each with its subcategories; empty where the subjects have none."""
        return categories_of({subject for subjects in self._by_subject.values() for subject in subjects})

    @cached_property
    def content(self) -> tuple[str, ...]:
        """The further fields that hold content, which a protocol should show (:func:`content_fields`)."""
        return content_fields(item for items in self.splits.values() for item in items)

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
            remedy = f"ask another one by the protocol's name with @split={max(self.splits, default='test')}"
            raise DataError(f"{self.name} has no split {split!r}, only {splits}; {remedy}")
        for subject in subjects or ():
            if subject not in known:
                hint = did_you_mean(subject, known)
                raise UsageError(f"{self.name} has no subject {subject!r} in split {split!r}; {hint}")
        return tuple(subject for subject in known if subjects is None or subject in subjects)

    @cached_property
    def _by_subject(self) -> dict[str, dict[str, Items]]:
        return {split: Items.of(items).by_subject() for split, items in self.splits.items()}

    def rows(self, split: str, subject: str) -> Items:
        """The items of one subject in one split, in file order; empty when there are none."""
        return self._by_subject.get(split, {}).get(subject, Items.of(()))
