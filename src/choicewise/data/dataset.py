"""A dataset: its items in columns, what the columns of its files mean, its digest."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from html import escape
from itertools import accumulate, chain, pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, overload

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from choicewise.data.files import read_toml
from choicewise.data.items import (
    _NO_FIELDS,
    Item,
    _checked_item,
    categories_of,
    content_fields,
    draw_hash,
)
from choicewise.errors import DataError, UsageError, did_you_mean
from choicewise.records import ITEMS, SkippedRow
from choicewise.util.files import SETTINGS, read_text
from choicewise.util.jsonio import exact_json, lines_digest
from choicewise.util.text import listed

_ANSWER_IS: Final = ("any", "label", "index", "number", "text", "flags")
_Places = range | npt.NDArray[np.int64]
CHUNK: Final = 2048  # items that are Python values at a time while all of them are gone through


COLUMNS: Final = pa.schema(
    [ITEMS.field(name) for name in ("item", "subject", "question", "choices", "gold", "fields")]
)
"""What an item fills of the table ``items`` of a run folder."""


@dataclass(frozen=True, slots=True)
class Columns:
    """A declared mapping from the columns of a file to items; a nested column is named by its path, ``question.stem``.

    The choices come from one of four places: ``choices``, either one column that holds a list (of texts, of
    ``{"text", "label"}`` objects, or ``{"text": [...], "label": [...]}``) or several columns with one text each;
    ``fixed``, the same texts for every row, or ``fixed_of``, those for every row of a subject; ``right`` and ``wrong``,
    columns of the same two kinds that hold the right and the wrong choices, in this order; or ``target``, the column of
    the only one, which is right, where the question is how a text goes on.  With ``last_word`` the target is the last
    word of that column, after its last space, and what stands before is the question.

    ``answer`` is the column of the answer, or of a list of answers, and ``answer_is`` what it holds: a ``label`` (of
    the choice's own labels, else of ``labels``, else A, B, C, ...), an ``index`` from 0, a ``number`` from 1, the
    ``text`` of a choice, ``flags`` (a 1 or 0 for every choice), or ``any``: a label, an index or a text, which is an
    error where the file is ambiguous.

    ``single`` is for questions with several right choices of which one is the best, and asked for alone elsewhere: the
    column of its text, or the columns of the choices and the flags of the question that asks for it.  It becomes the
    first choice; where a wrong one stands before it, the item's further field ``best_after_wrong`` says so.

    ``last_of`` is a column with a list of questions, or with the text of one in Python: the last of them is asked, and
    its keys are columns like the others.

    ``shuffled`` is the seed by which the choices of the rows of a file are put into another order, row after row.

    ``choices_split`` parts the text of a single column of choices, such as ``|`` in ``"red | green"``: white space
    around each part goes, and so do letters that number all of them (``A) red | B) green``).

    Without ``id`` items are named by subject, split and position.  Every other column is kept in ``Item.fields`` under
    its own name or the one that ``rename`` gives it, and so is a used column that ``rename`` names; without ``others``
    only those are that it names.  ``drop_empty`` ignores empty texts and nulls of ``right`` and ``wrong``, and those of
    ``choices`` after the last text of a row.
    """

    question: str | None = "question"
    choices: str | tuple[str, ...] | None = None
    fixed: tuple[str, ...] = ()
    fixed_of: Mapping[str, tuple[str, ...]] = field(
        default_factory=lambda: MappingProxyType({}), hash=False
    )
    right: str | tuple[str, ...] | None = None
    wrong: str | tuple[str, ...] | None = None
    target: str | None = None
    last_word: bool = False
    answer: str | None = None
    answer_is: str = "any"
    labels: tuple[str, ...] = ()
    single: str | tuple[str, ...] | None = None
    id: str | None = None
    subject: str | None = None
    rename: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}), hash=False)
    drop_empty: bool = False
    choices_split: str = ""
    last_of: str | None = None
    shuffled: int | None = None
    others: bool = True
    used: frozenset[str] = field(init=False, repr=False, compare=False)
    """Every column, or path into one, that an item is made of."""

    def __post_init__(self) -> None:
        sources = (self.question, self.choices, self.right, self.wrong, self.target, self.answer)
        others = (self.single, self.id, self.subject)
        named = (
            (source,) if isinstance(source, str) else source or () for source in (*sources, *others)
        )
        object.__setattr__(self, "used", frozenset(chain.from_iterable(named)))
        if problems := [*_problems(self)]:
            raise DataError.about(problems)

    def of_subject(self, subject: str) -> Columns:
        """The mapping of the rows of one subject.  Raises DataError for a subject without choices."""
        if not self.fixed_of:
            return self
        if subject not in self.fixed_of:
            raise DataError(
                f"the mapping has no choices for the subject {subject!r}; {did_you_mean(subject, self.fixed_of)}"
            )
        return replace(self, fixed=self.fixed_of[subject], fixed_of=MappingProxyType({}))


@dataclass(frozen=True)
class Dataset:
    """The items of every split, in file order, and the rows that were skipped.

    ``splits`` maps a split's name (``test``, ``dev``, ``validation``, ``train``) to its items; they are kept in
    columns (:class:`~choicewise.data.items.Items`), so that a million of them fit into little memory.
    ``columns``: as what the columns of its (first) file were read; None where they have no names, or there is no file.
    ``guess``: that on a line, where it was neither declared nor of a known shape; else empty.  ``notes``: what else to
    know of how it was read.
    ``source``: the repository on the Hub and the commit that they were read from, nothing for local files.
    ``read_with``: the release of another tool that read them, and which of its tasks they are; empty for none.
    """

    name: str
    splits: Mapping[str, Sequence[Item]]
    skipped: tuple[SkippedRow, ...] = ()
    columns: Columns | None = None
    source: str = ""
    read_with: str = ""
    guess: str = ""
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "splits", {split: Items.of(items) for split, items in self.splits.items()}
        )

    def __repr__(self) -> str:
        sizes = ", ".join(f"{len(items)} {split}" for split, items in self.splits.items())
        return f"<Dataset {self.name!r}: {sizes or 'no'} items, {len(self.skipped)} rows skipped>"

    def _repr_html_(self) -> str:
        sizes = {f"{split} items": len(items) for split, items in self.splits.items()}
        return html_table(
            self.name, sizes | {"rows skipped": len(self.skipped), "digest": self.digest[:12]}
        )

    @cached_property
    def digest(self) -> str:
        """sha256 (64 hex) over every item of every split: the same content gives the same digest in any file format."""
        return lines_digest(
            [
                split,
                item.id,
                item.subject,
                item.question,
                item.choices,
                item.gold,
                dict(item.fields),
            ]
            for split in sorted(self.splits)
            for item in self.splits[split]
        )

    @cached_property
    def drawn(self) -> dict[tuple[Any, ...], Any]:
        """What was drawn from it at random, by all that the draw goes by, so that nobody draws it again."""
        return {}

    def subjects(self, split: str) -> tuple[str, ...]:
        """The subjects of a split in order of first appearance."""
        return tuple(self._by_subject.get(split, ()))

    @cached_property
    def categories(self) -> dict[str, dict[str, list[str]]]:
        """The published categories of its subjects, each with its subcategories; empty where the subjects have none."""
        return categories_of(
            {subject for subjects in self._by_subject.values() for subject in subjects}
        )

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
        raise DataError(
            f"{self.name} has neither test nor validation, only {splits}; name a split in a protocol file"
        )

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
                raise UsageError(
                    f"{self.name} has no subject {subject!r} in split {split!r}; {hint}"
                )
        return tuple(subject for subject in known if subjects is None or subject in subjects)

    def sample(
        self, split: str, count: int, seed: int, subjects: Sequence[str] | None = None
    ) -> dict[str, tuple[int, ...]]:
        """Subject → positions of its items in a sample of ``count`` items of the split, or of the named subjects.

        Every subject has its share (:func:`shares`), of the items whose hashes with ``seed`` are the smallest: so
        neither the order of the files nor another library changes the draw, and with a greater share the same items
        are drawn and more.  Raises as :meth:`choose`.
        """
        chosen = self.choose(split, subjects)
        key = "sample", split, count, seed, chosen
        if (drawn := self.drawn.get(key)) is None:
            sizes = {subject: len(self.rows(split, subject)) for subject in chosen}
            own = shares(sizes, count, seed)
            drawn = {
                subject: _smallest(self.rows(split, subject), subject, own[subject], seed)
                for subject in chosen
            }
            self.drawn[key] = drawn
        return dict(drawn)

    @cached_property
    def _by_subject(self) -> dict[str, dict[str, Items]]:
        return {split: Items.of(items).by_subject() for split, items in self.splits.items()}

    def rows(self, split: str, subject: str) -> Items:
        """The items of one subject in one split, in file order; empty when there are none."""
        return self._by_subject.get(split, {}).get(subject, Items.of(()))


def shares(sizes: Mapping[str, int], count: int, seed: int) -> dict[str, int]:
    """How many of ``count`` items each subject of these ``sizes`` gets: in proportion, by largest remainder.

    Of equal remainders those come first whose subjects have the smaller hashes with ``seed``.
    """
    total = sum(sizes.values())
    if count >= total:
        return dict(sizes)
    parts = {subject: divmod(count * size, total) for subject, size in sizes.items()}
    left = count - sum(whole for whole, _ in parts.values())
    order = sorted(parts, key=lambda subject: (-parts[subject][1], draw_hash(seed, subject)))
    return {subject: parts[subject][0] + (subject in order[:left]) for subject in sizes}


def _smallest(items: Items, subject: str, count: int, seed: int) -> tuple[int, ...]:
    if count >= len(items):
        return tuple(range(len(items)))
    names = items.table()["item"].to_pylist()
    order = sorted(
        range(len(names)), key=lambda place: (draw_hash(seed, subject, names[place]), place)
    )
    return tuple(sorted(order[:count]))


def read_mapping(path: Path) -> Columns:
    """The mapping a TOML file declares; its keys are the fields of `Columns`.

    Raises DataError for a missing or malformed file, an unknown key, or a value of the wrong kind.
    """
    try:
        declared = read_toml(read_text(path, SETTINGS))
    except (OSError, ValueError) as error:
        raise DataError(f"{path} can't be read as a mapping in TOML: {error}") from error
    return columns_of(declared, str(path))


_WORDS: Final = {
    "str": "a text",
    "str | None": "a text",
    "str | tuple[str, ...] | None": "a text or a list of texts",
    "tuple[str, ...]": "a list of texts",
    "Mapping[str, str]": "a table of names",
    "Mapping[str, tuple[str, ...]]": "a table of lists of texts",
    "int | None": "a whole number",
    "bool": "true or false",
}
"""Annotation of a field of `Columns` → what a TOML file has to hold there."""


GAP: Final = "..."
"""What stands in a proposed mapping where a person has to decide."""


def columns_of(declared: Mapping[str, Any], where: str) -> Columns:
    """The mapping that a table declares; its keys are the fields of `Columns`.

    Raises DataError, saying ``where``, for an unknown key or a value of the wrong kind.
    """
    unfilled = [
        key
        for key, value in declared.items()
        if value == GAP or (isinstance(value, list) and GAP in value)
    ]
    if unfilled:
        raise DataError(f"{where} has {GAP} for {listed(unfilled)}; put what is meant in its place")
    kinds = {spec.name: str(spec.type) for spec in fields(Columns) if spec.init}
    problems = [
        f"{key!r} is no key of a mapping; {did_you_mean(key, kinds)}"
        for key in declared
        if key not in kinds
    ]
    values = {key: _read(value, kinds[key]) for key, value in declared.items() if key in kinds}
    unread = [key for key, value in values.items() if value is None]
    problems += [f"{key} is {declared[key]!r}; it must be {_WORDS[kinds[key]]}" for key in unread]
    if not problems:  # else what is missing may be what is misspelled
        try:
            return Columns(**{**values, "question": values.get("question", "question") or None})
        except DataError as error:
            problems = [*error.parts]
    else:
        problems += _wrong_values(values.get("answer_is") or "any", values.get("labels") or ())
    known = f"the keys of a mapping are {', '.join(kinds)}"
    raise DataError(f"{where}: {problems[0]}", [*problems[1:], known])


def mapping_table(columns: Columns) -> dict[str, Any]:
    """The table of which :func:`columns_of` makes ``columns``: the question and what differs from the defaults."""
    values: dict[str, Any] = {"question": columns.question or ""}
    usual = Columns(target="")
    for spec in fields(columns):
        value = getattr(columns, spec.name)
        if (
            not spec.init
            or spec.name == "question"
            or (value == getattr(usual, spec.name) and spec.name != "target")
        ):
            continue
        if isinstance(value, Mapping):
            value = {
                key: list(part) if isinstance(part, tuple) else part for key, part in value.items()
            }
        if value is not None:
            values[spec.name] = list(value) if isinstance(value, tuple) else value
    return values


def html_table(title: str, facts: Mapping[str, object]) -> str:
    """A small table in HTML, everything escaped: a row per fact, the ``title`` above."""
    cells = ((escape(name), escape(str(value))) for name, value in facts.items())
    rows = "".join(
        f"<tr><th style='text-align:left'>{name}</th><td>{value}</td></tr>" for name, value in cells
    )
    return f"<table><caption>{escape(title)}</caption>{rows}</table>"


class Items(Sequence[Item]):
    """Items in file order; slices and selections share the columns of the whole.

    A million items of 100 bytes take about 150 MB.  One item takes some microseconds to be made, all of them in a row
    about one each.
    """

    __slots__ = ("_batches", "_places", "_starts")

    def __init__(self, batches: Sequence[pa.RecordBatch], places: _Places | None = None) -> None:
        """The rows at ``places`` of all ``batches``, which have the schema ``COLUMNS``; every row when None."""
        self._batches = batches
        self._starts = [0, *accumulate(batch.num_rows for batch in batches)]
        self._places: _Places = range(self._starts[-1]) if places is None else places

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
        row, columns = place - self._starts[number], self._batches[number].columns
        id, subject, question, choices, gold, fields = (column[row].as_py() for column in columns)
        return _checked_item(id, question, tuple(choices), tuple(gold), subject, _fields(fields))

    def __iter__(self) -> Iterator[Item]:
        for start in range(0, len(self), CHUNK):
            for batch in self._rows(self._places[start : start + CHUNK]):
                ids, subjects, questions, choices, gold, fields = batch.columns
                parts = (
                    _list(ids),
                    _list(questions),
                    _tuples(choices),
                    _tuples(gold),
                    _list(subjects),
                )
                yield from map(_checked_item, *parts, map(_fields, _list(fields)))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence):
            return NotImplemented
        return len(self) == len(other) and all(
            mine == theirs for mine, theirs in zip(self, other, strict=True)
        )

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
        parts = (
            batch for start in starts for batch in self._rows(self._places[start : start + CHUNK])
        )
        return pa.Table.from_batches(parts, COLUMNS)

    def by_subject(self) -> dict[str, Items]:
        """Subject → its items, in file order; subjects in order of first appearance."""
        if not len(self):
            return {}
        coded = self.table()["subject"].combine_chunks().dictionary_encode()
        codes = coded.indices.to_numpy()
        order = np.argsort(codes, kind="stable")
        ends = np.cumsum(np.bincount(codes, minlength=len(coded.dictionary)))
        groups = (
            Items(self._batches, _shortest(self.take(group)._places))
            for group in np.split(order, ends[:-1])
        )
        return dict(zip(coded.dictionary.to_pylist(), groups, strict=True))

    def right_texts(self) -> pa.StringArray:
        """The text of the first right choice of each item."""
        parts = []
        for batch in self.table().to_batches():
            choices = batch["choices"]
            starts = pc.subtract(choices.offsets[:-1], choices.offsets[0])
            parts.append(choices.flatten().take(pc.add(starts, pc.list_element(batch["gold"], 0))))
        return pa.chunked_array(parts, pa.string()).combine_chunks()

    def _rows(self, places: _Places) -> Iterator[pa.RecordBatch]:
        numbers = np.searchsorted(self._starts, places, side="right") - 1
        bounds = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(places)]
        for start, stop in pairwise(bounds):
            batch, inside = self._batches[numbers[start]], _shortest(places[start:stop])
            first = self._starts[numbers[start]]
            if isinstance(inside, range) and inside.step == 1:
                yield batch.slice(inside.start - first, len(inside))
            else:
                yield batch.take(pa.array(np.asarray(inside) - first))


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
        pool = (
            pa.system_memory_pool()
        )  # the default one takes twice the memory for many arrays of this size
        spelled = (
            exact_json(dict(item.fields), sort=True) if item.fields else "{}"
            for item in self._waiting
        )
        rows = [
            (i.id, i.subject, i.question, i.choices, i.gold, f)
            for i, f in zip(self._waiting, spelled, strict=True)
        ]
        columns = zip(zip(*rows, strict=True), COLUMNS.types, strict=True)
        arrays = [pa.array(values, kind, memory_pool=pool) for values, kind in columns]
        self._batches.append(pa.record_batch(arrays, schema=COLUMNS))
        self._waiting.clear()


def _wrong_values(answer_is: str, labels: Sequence[str]) -> Iterator[str]:
    if answer_is not in _ANSWER_IS:
        yield f"answer_is is {answer_is!r} in a mapping; it must be one of {', '.join(_ANSWER_IS)}"
    if len(set(labels)) < len(labels):
        yield "the labels of a mapping must differ"


def _problems(columns: Columns) -> Iterator[str]:
    yield from _wrong_values(columns.answer_is, columns.labels)
    both, target = (
        columns.right is not None and columns.wrong is not None,
        columns.target is not None,
    )
    if (columns.right is None) != (columns.wrong is None):
        yield "a mapping names both right and wrong, or neither"
    elif (columns.choices is not None) + bool(
        columns.fixed or columns.fixed_of
    ) + both + target != 1:
        yield "a mapping names its choices once: by choices, by fixed, by right and wrong, or by target"
    if (both or target) == (columns.answer is not None):
        yield "a mapping needs the column answer, except with right and wrong, or target, which say the answer"
    if columns.choices_split and not any(
        isinstance(source, str) for source in (columns.choices, columns.wrong)
    ):
        yield "choices_split parts the text of one column; name that column in choices or wrong, without a list"


def _read(value: object, kind: str) -> Any:
    """The value as a field of this kind holds it; None when it can't."""
    if isinstance(value, str) and kind.startswith("str"):
        return value
    if isinstance(value, bool) and kind == "bool":
        return value
    if isinstance(value, int) and not isinstance(value, bool) and kind.startswith("int"):
        return value
    if isinstance(value, dict) and kind == "Mapping[str, tuple[str, ...]]":
        lists = {key: _read(part, "tuple[str, ...]") for key, part in value.items()}
        return None if None in lists.values() else lists
    if (
        isinstance(value, list)
        and "tuple" in kind
        and value
        and all(isinstance(part, str) for part in value)
    ):
        return tuple(value)
    if (
        isinstance(value, dict)
        and kind.startswith("Mapping")
        and all(isinstance(v, str) for v in value.values())
    ):
        return value
    return None


RESERVED: Final = ("question", "options", "subject")
"""Names with a meaning in a protocol's templates; another column of such a name has to be renamed."""


def _shortest(places: _Places) -> _Places:
    """_Places that follow each other as a range, which takes no memory."""
    if isinstance(places, range) or not len(places) or (np.diff(places) != 1).any():
        return places
    return range(int(places[0]), int(places[-1]) + 1)


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
    return _NO_FIELDS if spelled == "{}" else MappingProxyType(json.loads(spelled))
