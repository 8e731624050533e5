"""One question with its choices, and what its further fields may hold."""

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
from typing import Any, NamedTuple

from choicewise.errors import DataError, UnusableRow
from choicewise.util.jsonio import read_json
from choicewise.util.text import has_half_character

_NO_FIELDS: Mapping[str, str] = MappingProxyType({})

# Stands among the names of fields for a blank in the question that the choices fill, as in
# WinoGrande.
BLANK = "_"
_BLANK = re.compile(r"(?<!\w)_+(?!\w)")
_MANY = 1000  # values whose difference shows that they are names of the items
_WORD = re.compile("[A-Z]?[a-z]+|[A-Z]+")

# The further field of an item whose first choice, the best answer, comes after a wrong one in its
# file.
BEST_AFTER_WRONG = "best_after_wrong"
# The field with how many people chose each choice, or their shares: a JSON list in the order of
# the choices.
PEOPLE = "human_counts"
MOST_PEOPLE = 10**12  # who may choose a choice
SHARES_ROUNDED = 1e-3 + 1e-9  # by which the shares of people may miss a sum of 1

# Category → its subcategories → their subjects, in the order in which reports print them.
Categories = Mapping[str, Mapping[str, Sequence[str]]]


def draw_hash(seed: int, *names: str) -> bytes:
    """Return a hash that serves as chance: of things with these names, the smallest are drawn."""
    text = "|".join((str(seed), *names))
    return hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=8).digest()


@dataclass(frozen=True, slots=True)
class Item:
    """A question with its choices, all text exactly as the source has it.

    ``gold`` holds the indices of the right choices, one or several, in increasing order.
    ``fields`` keeps further columns of the source (an activity label, a passage) under their own
    names, so that a protocol can render them.

    Raises UnusableRow for a text that holds half a character (a lone surrogate), which no file can
    store.
    """

    id: str
    question: str
    choices: tuple[str, ...]
    gold: tuple[int, ...]
    subject: str = ""
    fields: Mapping[str, str] = field(default_factory=lambda: _NO_FIELDS, hash=False)

    def __post_init__(self) -> None:
        # With lists, the item could be no key of a cache.
        object.__setattr__(self, "choices", tuple(self.choices))
        object.__setattr__(self, "gold", tuple(self.gold))
        texts = [self.id, self.subject, self.question, *self.choices]
        texts += [*self.fields, *self.fields.values()]
        if has_half_character("".join(texts)):
            raise UnusableRow("a text has a lone surrogate, which no file can store")


def content_fields(items: Iterable[Item]) -> tuple[str, ...]:
    """Return the further fields that hold content, sorted.

    ``BLANK`` is among them if nine questions of ten have a blank.
    """
    columns: dict[str, _Column] = {}
    blanks = 0
    count = 0
    for item in items:
        count += 1
        # The test of a character is several times faster than the pattern.
        if BLANK in item.question and _BLANK.search(item.question):
            blanks += 1
        for name, value in item.fields.items():
            if name not in columns:
                columns[name] = _Column(value)
            columns[name].add(value, item)
    names = [name for name, column in columns.items() if column.is_content(name, count)]
    if count and blanks >= 0.9 * count:
        names.append(BLANK)
    return tuple(sorted(names))


@dataclass(slots=True)
class _Column:
    """Counts of the values of a further field, by which content is told from metadata."""

    first: str
    is_constant: bool = True
    has_text: bool = False
    has_spaces: bool = False
    repeats: int = 0  # values that the question or a choice holds as well
    empty: int = 0
    count: int = 0
    values: set[str] = field(default_factory=set)

    def add(self, value: str, item: Item) -> None:
        """Count the ``value`` of one more item."""
        stripped = value.strip()
        self.count += 1
        if not stripped:
            self.empty += 1
        self.is_constant = self.is_constant and value == self.first
        self.has_text = self.has_text or _is_text(value)
        self.has_spaces = self.has_spaces or any(map(str.isspace, stripped))
        if stripped and _is_repeated(stripped.lower(), item):
            self.repeats += 1
        if self.count <= _MANY:
            self.values.add(value)

    def is_content(self, name: str, items: int) -> bool:
        """Check that the field of that ``name``, in a dataset of so many ``items``, holds content."""
        words = _WORD.findall(name) or [name]
        word = words[-1].lower()
        if not self.has_text or word in _METADATA:
            return False
        if word in ("label", "labels") and not self.has_spaces:
            return False
        if items > 1 and self.is_constant and self.count == items:
            return False
        # Values without spaces that differ for every item are names of the items.
        all_differ = len(self.values) == min(self.count, _MANY)
        if items > 1 and all_differ and not self.has_spaces:
            return False
        # What most items hold in their question or choices is asked without the field.
        return self.repeats <= (self.count - self.empty) / 2


def _is_repeated(value: str, item: Item) -> bool:
    if value in item.question.lower():
        return True
    return any(value in choice.lower() for choice in item.choices)


def _is_text(value: str) -> bool:
    """Check that a field, which is a text or spelled as JSON, says something in words."""
    if not value.strip():
        return False
    try:
        parsed = json.loads(value)
    except (ValueError, RecursionError):
        return True
    if isinstance(parsed, list):
        return any(isinstance(part, str) for part in parsed)
    return isinstance(parsed, str)


# Last words of names under which data says something about a question, and not what is asked.
_METADATA = frozenset(
    """
    id ids uid guid idx ind index number hash source url link license author category categories
    subcategory topic subject field domain type kind task dataset split version lang language
    answer answers gold target cot explanation explanations rationale solution comment comments
    date year score rating difficulty level count counts term method workflow family tier
    """.split()
)


def duplicate_choices(item: Item) -> bool:
    """Check that two choices have the same text.

    Published data has such items, so they are kept and reported.
    """
    return len(set(item.choices)) < len(item.choices)


def people_counts(item: str, text: str, choices: int) -> list[float]:
    """Read ``text``, the field :data:`PEOPLE` of an item: the people for each of its ``choices``.

    Raises DataError naming the ``item`` (its id) if it is no list of as many counts, or of shares
    that sum to 1.
    """
    where = f"item {item}: {PEOPLE} is {text[:60]!r}"
    try:
        counts = read_json(text)
    except ValueError as error:
        raise DataError(
            f"{where}, not a JSON list; write one count per choice, as in [3, 7]"
        ) from error
    if not isinstance(counts, list) or not all(map(_is_count, counts)):
        raise DataError(
            f"{where}; it must be a list of counts from 0 to {MOST_PEOPLE:,}, as in [3, 7]"
        )
    if len(counts) != choices:
        raise DataError(
            f"{where}: {len(counts)} counts for {choices} choices; give one count per choice"
        )
    total = math.fsum(counts)
    are_whole = all(float(count).is_integer() for count in counts)
    are_shares = max(counts) <= 1 and not are_whole
    if are_shares and abs(total - 1) > SHARES_ROUNDED:
        raise DataError(
            f"{where}; as shares they sum to {total:.4g}, not 1; correct them, or give counts"
        )
    return list(map(float, counts))


def _is_count(number: Any) -> bool:
    # The type is compared because True is an int.
    return type(number) in (int, float) and 0 <= number <= MOST_PEOPLE


class Single(NamedTuple):
    """The question with one right choice: its text, and all its choices if the source has them."""

    best: str
    choices: tuple[str, ...] = ()

    def after_wrong(self, choices: Sequence[str], gold: Sequence[int]) -> bool:
        """Check that the best one comes after a wrong one: metric mc2-split follows that order."""
        for index, choice in enumerate(choices):
            if index not in gold:
                return True
            if choice == self.best:
                return False
        return False

    def arrange(
        self, choices: Sequence[str], gold: Sequence[int]
    ) -> tuple[tuple[str, ...], tuple[int, ...]]:
        """Return the choices with the best one first, the others in their order, and the right
        ones.

        A choice that is right here and wrong in the question with one right choice stays right, and
        that question is asked without it.  Raises UnusableRow if the best one is not among the
        right ones, or if the question with one right choice has other wrong ones in any other way.
        """
        right = {choices[index] for index in gold}
        if self.best not in right:
            raise UnusableRow(f"the best answer {self.best!r} is not among the right choices")
        wrong = {choice for index, choice in enumerate(choices) if index not in gold}
        if self.choices and set(self.choices) - right != wrong - right:
            raise UnusableRow(
                "the questions with one and with several right choices have different wrong choices"
            )
        # A wrong choice may have the text of the best one, so that only right ones are looked at.
        best = next(index for index in gold if choices[index] == self.best)
        order = [best, *range(best), *range(best + 1, len(choices))]
        arranged = tuple(choices[index] for index in order)
        return arranged, tuple(index for index, old in enumerate(order) if old in gold)


@cache
def mmlu_categories() -> dict[str, dict[str, list[str]]]:
    """Return all 57 subjects of MMLU in their categories and subcategories."""
    file = files("choicewise.data") / "mmlu_categories.toml"
    return tomllib.loads(file.read_text(encoding="utf-8"))


def categories_of(subjects: Collection[str]) -> dict[str, dict[str, list[str]]]:
    """Return the part of MMLU's categories that holds some of ``subjects``; it may be empty."""
    categories: dict[str, dict[str, list[str]]] = {}
    for category, subcategories in mmlu_categories().items():
        for name, members in subcategories.items():
            present = [subject for subject in members if subject in subjects]
            if present:
                categories.setdefault(category, {})[name] = present
    return categories


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
    """Return the item of parts that have been checked before; six times faster than ``Item``."""
    item = object.__new__(Item)
    _SET_ID(item, id)
    _SET_QUESTION(item, question)
    _SET_CHOICES(item, choices)
    _SET_GOLD(item, gold)
    _SET_SUBJECT(item, subject)
    _SET_FIELDS(item, fields)
    return item
