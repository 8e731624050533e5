"""Item, items as columns, one cell of a row."""

from __future__ import annotations

import json
import re
import tomllib
from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from itertools import accumulate, pairwise
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeVar, overload

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from choicewise.errors import DataError
from choicewise.records import ITEMS

Places = range | npt.NDArray[np.int64]

_INTEGER = re.compile("0|-?[1-9][0-9]*")


class UnusableRow(DataError):
    """Why one row can't become an item; the reader adds the file and the row."""


class Number(str):
    """A JSON number as it is spelled (``1e5`` stays ``1e5``), and no text of the same spelling."""

    __slots__ = ()


def has_half_character(text: str) -> bool:
    """Whether the text holds a lone surrogate, half a character, which no file can store and no tokenizer reads."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def text(cell: object, column: str) -> str:
    """The cell as text, unchanged; an integer has only one.

    Raises UnusableRow for null, true/false, anything nested, and other numbers: 1.50 or 1e5 become another text in the
    next tool, and in a binary file their spelling is lost.
    """
    if isinstance(cell, Number):
        if not _INTEGER.fullmatch(cell):
            raise UnusableRow(f"column {column} holds the number {cell}, which other tools spell otherwise; quote it")
        return str(cell)
    if isinstance(cell, str | int) and not isinstance(cell, bool):
        return str(cell)
    if cell is None:
        raise UnusableRow(f"column {column} is null where a text is needed")
    if isinstance(cell, float):
        raise UnusableRow(f"column {column} holds the binary number {cell!r}, whose spelling is lost; store it as text")
    kinds = {bool: "true or false", list: "a list", dict: "a nested object", bytes: "bytes"}
    kind = kinds.get(type(cell), f"a {type(cell).__name__}")
    raise UnusableRow(f"column {column} holds {kind} where a text is needed")


NO_FIELDS: Final[Mapping[str, str]] = MappingProxyType({})
"""The further fields of an item that has none."""


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
    fields: Mapping[str, str] = field(default_factory=lambda: NO_FIELDS, hash=False)

    def __post_init__(self) -> None:
        for name in ("choices", "gold"):  # given as lists, the item could be no key of a cache
            object.__setattr__(self, name, tuple(getattr(self, name)))
        texts = (self.id, self.subject, self.question, *self.choices, *self.fields, *self.fields.values())
        if has_half_character("".join(texts)):
            raise UnusableRow("a text holds a lone surrogate, half a character that no file can store")


class Items(Sequence[Item]):
    """Items in file order; slices and selections share the columns of the whole.

    A million items of 100 bytes take about 150 MB.  One item takes some microseconds to be made, all of them in a row
    about one each.
    """

    __slots__ = ("_batches", "_places", "_starts")

    def __init__(self, batches: Sequence[pa.RecordBatch], places: Places | None = None) -> None:
        """The rows at ``places`` of all ``batches``, which have the schema ``COLUMNS``; every row when None."""
        self._batches = batches
        self._starts = [0, *accumulate(batch.num_rows for batch in batches)]
        self._places: Places = range(self._starts[-1]) if places is None else places

    @classmethod
    def of(cls, items: Iterable[Item]) -> Items:
        """The ``items``, kept in columns; they are taken one by one."""
        if isinstance(items, Items):
            return items
        columns = ItemColumns()
        for item in items:
            columns.add(item)
        return cls(columns.batches())

    def __len__(self) -> int:
        return len(self._places)

    @overload
    def __getitem__(self, index: int) -> Item: ...
    @overload
    def __getitem__(self, index: slice) -> Items: ...
    def __getitem__(self, index: int | slice) -> Item | Items:
        if isinstance(index, slice):
            return Items(self._batches, self._places[index])
        place = int(self._places[index])
        number = bisect_right(self._starts, place) - 1
        return item_at(self._batches[number], place - self._starts[number])

    def __iter__(self) -> Iterator[Item]:
        for start in range(0, len(self), CHUNK):
            for batch in self._rows(self._places[start : start + CHUNK]):
                yield from items_of(batch)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence):
            return NotImplemented
        return len(self) == len(other) and all(mine == theirs for mine, theirs in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]  # as long as a list, and compared as one

    def __repr__(self) -> str:
        return f"<{len(self)} items>"

    def take(self, positions: npt.NDArray[np.int64]) -> Items:
        """The items at ``positions``, counted from 0, in that order."""
        if isinstance(self._places, range):
            return Items(self._batches, self._places.start + self._places.step * positions)
        return Items(self._batches, self._places[positions])

    def table(self) -> pa.Table:
        """The items in the columns ``COLUMNS``, without a Python value for each."""
        starts = range(0, len(self), CHUNK)
        parts = (batch for start in starts for batch in self._rows(self._places[start : start + CHUNK]))
        return pa.Table.from_batches(parts, COLUMNS)

    def by_subject(self) -> dict[str, Items]:
        """Subject → its items, in file order; subjects in order of first appearance."""
        if not len(self):
            return {}
        coded = self.table()["subject"].combine_chunks().dictionary_encode()
        codes = coded.indices.to_numpy()
        order = np.argsort(codes, kind="stable")
        ends = np.cumsum(np.bincount(codes, minlength=len(coded.dictionary)))
        groups = (Items(self._batches, _shortest(self.take(group)._places)) for group in np.split(order, ends[:-1]))
        return dict(zip(coded.dictionary.to_pylist(), groups, strict=True))

    def right_texts(self) -> pa.StringArray:
        """The text of the first right choice of each item."""
        return pa.chunked_array(map(_right, self.table().to_batches()), pa.string()).combine_chunks()

    def _rows(self, places: Places) -> Iterator[pa.RecordBatch]:
        """The rows at ``places``, batch by batch."""
        numbers = np.searchsorted(self._starts, places, side="right") - 1
        bounds = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(places)]
        for start, stop in pairwise(bounds):
            batch, inside = self._batches[numbers[start]], _shortest(places[start:stop])
            first = self._starts[numbers[start]]
            if isinstance(inside, range) and inside.step == 1:
                yield batch.slice(inside.start - first, len(inside))
            else:
                yield batch.take(pa.array(np.asarray(inside) - first))


def _shortest(places: Places) -> Places:
    """Places that follow each other as a range, which takes no memory."""
    if isinstance(places, range) or not len(places) or (np.diff(places) != 1).any():
        return places
    return range(int(places[0]), int(places[-1]) + 1)


def _right(batch: pa.RecordBatch) -> pa.StringArray:
    choices = batch["choices"]
    starts = pc.subtract(choices.offsets[:-1], choices.offsets[0])
    return choices.flatten().take(pc.add(starts, pc.list_element(batch["gold"], 0)))


CHUNK: Final = 2048
"""Items that are Python values at a time while all of them are gone through."""

COLUMNS: Final = pa.schema([ITEMS.field(name) for name in ("item", "subject", "question", "choices", "gold", "fields")])
"""What an item fills of the table ``items`` of a run folder."""


class ItemColumns:
    """Takes items one by one; only the last ones wait as Python values."""

    def __init__(self) -> None:
        self._batches: list[pa.RecordBatch] = []
        self._waiting: list[Item] = []

    def add(self, item: Item) -> None:
        """Keep ``item`` after those before it."""
        self._waiting.append(item)
        if len(self._waiting) == CHUNK:
            self._turn()

    def batches(self) -> list[pa.RecordBatch]:
        """All items that were added, with the schema ``COLUMNS``."""
        if self._waiting:
            self._turn()
        return self._batches

    def _turn(self) -> None:
        pool = pa.system_memory_pool()  # the default one takes twice the memory for many arrays of this size
        rows = [(i.id, i.subject, i.question, i.choices, i.gold, _spelled(i.fields)) for i in self._waiting]
        columns = zip(zip(*rows, strict=True), COLUMNS.types, strict=True)
        arrays = [pa.array(values, kind, memory_pool=pool) for values, kind in columns]
        self._batches.append(pa.record_batch(arrays, schema=COLUMNS))
        self._waiting.clear()


def item_at(batch: pa.RecordBatch, row: int) -> Item:
    """One item; where several rows are wanted, :func:`items_of` is several times faster."""
    id, subject, question, choices, gold, fields = (column[row].as_py() for column in batch.columns)
    return checked_item(id, question, tuple(choices), tuple(gold), subject, _fields(fields))


def items_of(batch: pa.RecordBatch) -> Iterator[Item]:
    """The items of all rows, which are at least one."""
    ids, subjects, questions, choices, gold, fields = batch.columns
    parts = _list(ids), _list(questions), _tuples(choices), _tuples(gold), _list(subjects), map(_fields, _list(fields))
    return map(checked_item, *parts)


def _list(column: pa.Array) -> list[Any]:
    """The column's values; for texts several times faster than ``to_pylist``."""
    values: list[Any] = column.to_numpy(zero_copy_only=False).tolist()
    return values


def _tuples(lists: pa.ListArray) -> Iterable[tuple[Any, ...]]:
    values, offsets = _list(lists.flatten()), lists.offsets.to_numpy()
    width = int(offsets[1] - offsets[0])
    if width and (np.diff(offsets) == width).all():
        return zip(*[iter(values)] * width, strict=True)
    return [tuple(values[start:stop]) for start, stop in pairwise((offsets - offsets[0]).tolist())]


def _fields(spelled: str) -> Mapping[str, str]:
    return NO_FIELDS if spelled == "{}" else MappingProxyType(json.loads(spelled))


def _spelled(fields: Mapping[str, str]) -> str:
    return json.dumps(dict(fields), ensure_ascii=False, sort_keys=True) if fields else "{}"


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


_SET_ID, _SET_QUESTION, _SET_CHOICES, _SET_GOLD, _SET_SUBJECT, _SET_FIELDS = (
    getattr(Item, name).__set__ for name in Item.__dataclass_fields__
)


def checked_item(
    id: str, question: str, choices: tuple[str, ...], gold: tuple[int, ...], subject: str, fields: Mapping[str, str]
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


def duplicate_choices(item: Item) -> bool:
    """Whether two choices have the same text.  Published data has such items, so they are kept and reported."""
    return len(set(item.choices)) < len(item.choices)


class Single(NamedTuple):
    """The same question with one right choice: its text, and the texts of all its choices where the source has them."""

    best: str
    choices: tuple[str, ...] = ()

    def arrange(self, choices: Sequence[str], gold: Sequence[int]) -> tuple[tuple[str, ...], tuple[int, ...]]:
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
            raise UnusableRow("the question with one right choice does not have the same wrong choices as the other")
        order = [place, *(index for index in range(len(choices)) if index != place)]
        return tuple(choices[index] for index in order), tuple(i for i, index in enumerate(order) if index in gold)


Value = TypeVar("Value")


class NoAnswer(UnusableRow):
    """A row whose answer is not published: the cell is missing, null, empty or -1."""


def is_number(cell: object) -> bool:
    """Whether the source holds a number here, rather than a text that looks like one."""
    return isinstance(cell, Number | int | float) and not isinstance(cell, bool)


def spell(cell: object, column: str) -> str:
    """Any other cell as text: texts as they are, everything else as JSON, numbers in their own spelling.

    Raises UnusableRow for bytes, which are no text.
    """
    return str(cell) if isinstance(cell, str) else _json(cell, column)


def value_at(row: Mapping[str, Any], path: str) -> object:
    """The row's cell under a column's name, or under a path into nested columns (``question.stem``).

    Raises UnusableRow when this row has no such column.
    """
    if path in row:
        return row[path]
    value: object = row
    for part in path.split("."):
        if not isinstance(value, Mapping) or part not in value:
            raise UnusableRow(f"column {path} is missing")
        value = value[part]
    return value


def repeated(values: Sequence[Value]) -> Value | None:
    """The first value that is there more than once; None when all differ."""
    return next((value for value, count in Counter(values).items() if count > 1), None)


def _json(cell: object, column: str) -> str:
    if isinstance(cell, bytes):
        raise UnusableRow(f"column {column} holds bytes, which are no text; write the file without that column")
    if isinstance(cell, Number):
        return str(cell)
    if isinstance(cell, list | tuple):
        return "[" + ", ".join(_json(part, column) for part in cell) + "]"
    if isinstance(cell, dict):
        return "{" + ", ".join(f"{_json(key, column)}: {_json(part, column)}" for key, part in cell.items()) + "}"
    return json.dumps(cell, ensure_ascii=False, default=str)


Categories = Mapping[str, Mapping[str, Sequence[str]]]
"""Category → its subcategories → their subjects, in the order in which reports print them."""


@cache
def mmlu_categories() -> dict[str, dict[str, list[str]]]:
    """All 57 subjects of MMLU in their categories and subcategories."""
    return tomllib.loads((files("choicewise.data") / "mmlu_categories.toml").read_text(encoding="utf-8"))


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
