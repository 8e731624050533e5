"""Which further fields of a dataset hold content: a passage, a context, a relation that the question is about."""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from choicewise.data.item import Item

BLANK: Final = "_"
"""Stands among the fields for a blank in the question that the choices fill, as in WinoGrande."""

METADATA: Final = frozenset(
    [
        *("id", "ids", "uid", "guid", "idx", "ind", "index", "number", "hash", "source", "url", "link", "license"),
        *("author", "category", "categories", "subcategory", "topic", "subject", "field", "domain", "type", "kind"),
        *("task", "dataset", "split", "version", "lang", "language", "answer", "answers", "gold", "target", "cot"),
        *("explanation", "explanations", "rationale", "solution", "comment", "comments", "date", "year", "score"),
        *("rating", "difficulty", "level", "count", "counts", "term", "method"),
    ]
)
"""Last words of names under which data says something about a question, and not what is asked."""

_WORD = re.compile("[A-Z]?[a-z]+|[A-Z]+")
_BLANK = re.compile(r"(?<!\w)_+(?!\w)")

_MANY: Final = 1000
"""Values whose difference shows that they are names of the items."""


def content_fields(items: Iterable[Item]) -> tuple[str, ...]:
    """The further fields that hold content, and ``BLANK`` where nine questions of ten have a blank; sorted.

    A field holds content unless its last word is one of ``METADATA``, its values are all the same, or numbers, true or
    false, or objects, or names (without white space, another for every item), or most of them stand in the question or
    in a choice.  The last word ``label`` is metadata, too, where no value has white space.
    """
    columns: dict[str, _Column] = {}
    blanks = count = 0
    for item in items:
        count += 1
        blanks += BLANK in item.question and _BLANK.search(item.question) is not None
        for name, value in item.fields.items():
            if name not in columns:
                columns[name] = _Column(value)
            columns[name].add(value, item)
    names = [name for name, column in columns.items() if _is_content(name, column, count)]
    return tuple(sorted([*names, *([BLANK] if count and blanks >= 0.9 * count else [])]))


@dataclass(slots=True)
class _Column:
    first: str
    constant: bool = True
    text: bool = False
    spaced: bool = False
    shown: int = 0
    empty: int = 0
    count: int = 0
    values: set[str] = field(default_factory=set)

    def add(self, value: str, item: Item) -> None:
        self.count += 1
        self.empty += not value.strip()
        self.constant &= value == self.first
        self.text = self.text or _is_text(value)
        self.spaced = self.spaced or any(map(str.isspace, value.strip()))
        stripped = value.strip().lower()
        self.shown += stripped != "" and any(stripped in text.lower() for text in (item.question, *item.choices))
        if self.count <= _MANY:
            self.values.add(value)

    @property
    def names_items(self) -> bool:
        return not self.spaced and len(self.values) == min(self.count, _MANY)


def _is_content(name: str, column: _Column, count: int) -> bool:
    word = (_WORD.findall(name) or [name])[-1].lower()
    constant = column.constant and count > 1 and column.count == count
    about = word in METADATA or (word in ("label", "labels") and not column.spaced)
    named = column.names_items and count > 1
    return column.text and not (about or constant or named or column.shown > (column.count - column.empty) / 2)


def _is_text(value: str) -> bool:
    """Whether a field, which is a text or spelled as JSON, says something in words."""
    if not value.strip():
        return False
    try:
        parsed = json.loads(value)
    except (ValueError, RecursionError):
        return True
    return isinstance(parsed, str) or (isinstance(parsed, list) and any(isinstance(part, str) for part in parsed))
