"""Item, items as columns, one cell of a row."""

from __future__ import annotations

import hashlib
import json
import math
import re
import tomllib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from choicewise.errors import DataError, UnusableRow
from choicewise.util.jsonio import read_json
from choicewise.util.text import has_half_character

_NO_FIELDS: Final[Mapping[str, str]] = MappingProxyType(
    {}
)  # the further fields of an item that has none
BLANK: Final = "_"  # stands among the fields for a blank in the question that the choices fill, as in WinoGrande
_BLANK = re.compile(r"(?<!\w)_+(?!\w)")
_MANY: Final = 1000  # values whose difference shows that they are names of the items
_WORD = re.compile("[A-Z]?[a-z]+|[A-Z]+")


def draw_hash(seed: int, *names: str) -> bytes:
    """What stands for chance where something is drawn by ``seed``: of the things so named, the smallest are drawn."""
    return hashlib.blake2b(
        "|".join((str(seed), *names)).encode(errors="surrogatepass"), digest_size=8
    ).digest()


@dataclass(frozen=True, slots=True)
class Item:
    """A question with its choices, all text exactly as the source has it.

    ``gold`` holds the indices of the right choices, one or several, in increasing order.  ``fields`` keeps further
    columns of the source (an activity label, a passage) under their own names, so that a protocol can render them.

    Raises UnusableRow for a text that holds half a character (a lone surrogate), which no file can store.
    """

    id: str
    question: str
    choices: tuple[str, ...]
    gold: tuple[int, ...]
    subject: str = ""
    fields: Mapping[str, str] = field(default_factory=lambda: _NO_FIELDS, hash=False)

    def __post_init__(self) -> None:
        for name in ("choices", "gold"):  # given as lists, the item could be no key of a cache
            object.__setattr__(self, name, tuple(getattr(self, name)))
        texts = (
            self.id,
            self.subject,
            self.question,
            *self.choices,
            *self.fields,
            *self.fields.values(),
        )
        if has_half_character("".join(texts)):
            raise UnusableRow(
                "a text holds a lone surrogate, half a character that no file can store"
            )


def content_fields(items: Iterable[Item]) -> tuple[str, ...]:
    """The further fields that hold content, and ``BLANK`` where nine questions of ten have a blank; sorted.

    A field holds content unless its last word is one of ``_METADATA``, its values are all the same, or numbers, true or
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
    names = []
    for name, column in columns.items():
        word = (_WORD.findall(name) or [name])[-1].lower()
        constant = column.constant and count > 1 and column.count == count
        about = word in _METADATA or (word in ("label", "labels") and not column.spaced)
        named = count > 1 and not column.spaced and len(column.values) == min(column.count, _MANY)
        shown = column.shown > (column.count - column.empty) / 2
        if column.text and not (about or constant or named or shown):
            names.append(name)
    return tuple(sorted([*names, *([BLANK] if count and blanks >= 0.9 * count else [])]))


def duplicate_choices(item: Item) -> bool:
    """Whether two choices have the same text.  Published data has such items, so they are kept and reported."""
    return len(set(item.choices)) < len(item.choices)


PEOPLE: Final = "human_counts"
"""The field of an item with how many people chose each choice, or their shares: a JSON list in the choices' order."""


MOST_PEOPLE: Final = 10**12
"""How many people may choose a choice."""


def people_counts(item: str, text: str, choices: int) -> list[float]:
    """What ``text``, the field :data:`PEOPLE` of the ``item`` of that id, says of each of so many ``choices``.

    Raises DataError naming the item where it is no list of as many counts, or of shares that sum to 1.
    """
    where = f"item {item}: {PEOPLE} is {text[:60]!r}"
    try:
        counts = read_json(text)
    except ValueError as error:
        raise DataError(
            f"{where}, which is no JSON list; write one count per choice, as in [3, 7]"
        ) from error
    numbers: list[Any] = counts if isinstance(counts, list) else [None]
    if not all(type(number) in (int, float) and 0 <= number <= MOST_PEOPLE for number in numbers):
        raise DataError(
            f"{where}; it must be a list of counts from 0 to {MOST_PEOPLE:,}, as in [3, 7]"
        )
    if len(counts) != choices:
        raise DataError(
            f"{where}: {len(counts)} counts for {choices} choices; give one count per choice"
        )
    total = math.fsum(counts)
    shares = max(counts) <= 1 and not all(float(count).is_integer() for count in counts)
    if shares and abs(total - 1) > SHARES_ROUNDED:
        raise DataError(
            f"{where}, which looks like shares and sums to {total:.4g}, not 1; correct it, or give counts"
        )
    return [float(count) for count in counts]


BEST_AFTER_WRONG: Final = "best_after_wrong"
"""The further field of an item whose first choice, the best answer, stands after a wrong one in its file."""


class Single(NamedTuple):
    """The same question with one right choice: its text, and the texts of all its choices where the source has them."""

    best: str
    choices: tuple[str, ...] = ()

    def after_wrong(self, choices: Sequence[str], gold: Sequence[int]) -> bool:
        """Check whether the best one stands after a wrong one; metric mc2-split follows the order of the file."""
        for index, choice in enumerate(choices):
            if index not in gold:
                return True
            if choice == self.best:
                return False
        return False

    def arrange(
        self, choices: Sequence[str], gold: Sequence[int]
    ) -> tuple[tuple[str, ...], tuple[int, ...]]:
        """The choices with the best one first, the others in their order, and which of them are right.

        A choice that is right here and wrong in the question with one right choice stays right, and that question is
        asked without it.  Raises UnusableRow where the best one is not among the right ones, or where the question with
        one right choice has other wrong ones in any other way.
        """
        place = next((index for index in gold if choices[index] == self.best), None)
        if place is None:
            raise UnusableRow(f"the best answer {self.best!r} is none of the right choices")
        wrong = {choice for index, choice in enumerate(choices) if index not in gold}
        right = {choices[index] for index in gold}
        if self.choices and {*self.choices} - right != wrong - right:
            raise UnusableRow(
                "the question with one right choice does not have the same wrong choices as the other"
            )
        order = [place, *(index for index in range(len(choices)) if index != place)]
        return tuple(choices[index] for index in order), tuple(
            i for i, index in enumerate(order) if index in gold
        )


@cache
def mmlu_categories() -> dict[str, dict[str, list[str]]]:
    """All 57 subjects of MMLU in their categories and subcategories."""
    return tomllib.loads(
        (files("choicewise.data") / "mmlu_categories.toml").read_text(encoding="utf-8")
    )


def categories_of(subjects: Collection[str]) -> dict[str, dict[str, list[str]]]:
    """The part of MMLU's categories that holds some of ``subjects``; empty when none of them is MMLU's."""
    present = {
        category: {
            name: [subject for subject in members if subject in subjects]
            for name, members in subcategories.items()
            if not set(members).isdisjoint(subjects)
        }
        for category, subcategories in mmlu_categories().items()
    }
    return {category: subcategories for category, subcategories in present.items() if subcategories}


SHARES_ROUNDED: Final = 1e-3 + 1e-9
"""By how much the shares of people may miss a sum of 1."""


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
        self.shown += stripped != "" and any(
            stripped in text.lower() for text in (item.question, *item.choices)
        )
        if self.count <= _MANY:
            self.values.add(value)


_METADATA: Final = frozenset(
    [
        *(
            "id",
            "ids",
            "uid",
            "guid",
            "idx",
            "ind",
            "index",
            "number",
            "hash",
            "source",
            "url",
            "link",
            "license",
        ),
        *(
            "author",
            "category",
            "categories",
            "subcategory",
            "topic",
            "subject",
            "field",
            "domain",
            "type",
            "kind",
        ),
        *(
            "task",
            "dataset",
            "split",
            "version",
            "lang",
            "language",
            "answer",
            "answers",
            "gold",
            "target",
            "cot",
        ),
        *(
            "explanation",
            "explanations",
            "rationale",
            "solution",
            "comment",
            "comments",
            "date",
            "year",
            "score",
        ),
        *(
            "rating",
            "difficulty",
            "level",
            "count",
            "counts",
            "term",
            "method",
            "workflow",
            "family",
            "tier",
        ),
    ]
)
"""Last words of names under which data says something about a question, and not what is asked."""


def _is_text(value: str) -> bool:
    """Whether a field, which is a text or spelled as JSON, says something in words."""
    if not value.strip():
        return False
    try:
        parsed = json.loads(value)
    except (ValueError, RecursionError):
        return True
    return isinstance(parsed, str) or (
        isinstance(parsed, list) and any(isinstance(part, str) for part in parsed)
    )


_SET_ID, _SET_QUESTION, _SET_CHOICES, _SET_GOLD, _SET_SUBJECT, _SET_FIELDS = (
    getattr(Item, name).__set__ for name in Item.__dataclass_fields__
)


def _checked_item(
    id: str,
    question: str,
    choices: tuple[str, ...],
    gold: tuple[int, ...],
    subject: str,
    fields: Mapping[str, str],
) -> Item:
    """The item of parts that have been checked before; six times faster than ``Item``."""
    item = object.__new__(Item)
    _SET_ID(item, id)
    _SET_QUESTION(item, question)
    _SET_CHOICES(item, choices)
    _SET_GOLD(item, gold)
    _SET_SUBJECT(item, subject)
    _SET_FIELDS(item, fields)
    return item


Categories = Mapping[str, Mapping[str, Sequence[str]]]
"""Category → its subcategories → their subjects, in the order in which reports print them."""
