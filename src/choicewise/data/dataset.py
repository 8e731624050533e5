"""Hold a dataset: its items in columns, and what the columns of its files mean."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, fields, replace
from functools import cached_property
from html import escape
from itertools import accumulate, pairwise
from json.encoder import encode_basestring_ascii
from pathlib import Path
from types import MappingProxyType
from typing import Any, overload

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from choicewise.data.files import read_toml
from choicewise.data.items import (
    _NO_FIELDS,
    BLANK,
    Item,
    _checked_item,
    categories_of,
    content_fields,
    draw_hash,
)
from choicewise.errors import DataError, UsageError, did_you_mean
from choicewise.records import ITEMS, SkippedRow
from choicewise.util.files import SETTINGS, read_text
from choicewise.util.jsonio import JsonDict, JsonMapping, ascii_json, exact_json, spelled_digest
from choicewise.util.text import listed

GAP = "..."
"""What a proposed mapping holds where a person has to decide."""

RESERVED = ("question", "options", "subject")
"""Names with a meaning in a protocol's templates; another column of such a name is renamed."""

COLUMNS = pa.schema(
    [ITEMS.field(name) for name in ("item", "subject", "question", "choices", "gold", "fields")]
)
"""What an item fills of the table ``items`` of a run folder."""

CHUNK = 2048  # items that are Python values at a time while all of them are gone through
_ANSWER_IS = ("any", "label", "index", "number", "text", "flags")
_Positions = range | npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Columns:
    """Map the columns of a file to items; a nested column is named by its path, ``question.stem``.

    The choices come from one of four sources: ``choices``, either one column that holds a list (of
    texts, of ``{"text", "label"}`` objects, or ``{"text": [...], "label": [...]}``) or several
    columns with one text each; ``fixed``, the same texts for every row, or ``fixed_of``, those for
    every row of a subject; ``right`` and ``wrong``, columns of the same two kinds that hold the
    right and the wrong choices, in this order; or ``target``, the column of the only one, which is
    right, if the question is how a text goes on.  With ``last_word`` the target is the last word of
    that column, after its last space, and what comes before is the question.

    ``answer`` is the column of the answer, or of a list of answers, and ``answer_is`` what it
    holds: a ``label`` (of the choice's labels in the file, else of ``labels``, else A, B, C, ...),
    an ``index`` from 0, a ``number`` from 1, the ``text`` of a choice, ``flags`` (a 1 or 0 for
    every choice), or ``any``: a label, an index or a text, which is an error if the file is
    ambiguous.

    ``single`` is for questions with several right choices of which one is the best, and asked for
    alone elsewhere: the column of its text, or the columns of the choices and the flags of the
    question that asks for it.  It becomes the first choice; if a wrong one comes before it in the
    file, the item's further field ``best_after_wrong`` says so.

    ``last_of`` is a column with a list of questions, or with the text of one in Python: the last of
    them is asked, and its keys are columns like the others.

    ``shuffled`` is the seed by which the choices of the rows of a file are put into another order,
    row after row.

    ``choices_split`` parts the text of a single column of choices, such as ``|`` in
    ``"red | green"``: white space around each part goes, and so do letters that number all of them
    (``A) red | B) green``).

    Without ``id`` items are named by subject, split and position.  Every other column is kept in
    ``Item.fields`` under its name or the one that ``rename`` gives it, and so is a used column that
    ``rename`` names; without ``others`` only those are that it names.  ``drop_empty`` ignores empty
    texts and nulls of ``right`` and ``wrong``, and those of ``choices`` after the last text of a
    row.

    Raises DataError for fields that contradict each other.
    """

    question: str | None = "question"
    choices: str | tuple[str, ...] | None = None
    _: KW_ONLY
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
        used: set[str] = set()
        for source in (*sources, self.single, self.id, self.subject):
            if isinstance(source, str):
                used.add(source)
            elif source is not None:
                used.update(source)
        object.__setattr__(self, "used", frozenset(used))
        problems = list(_problems(self))
        if problems:
            raise DataError.of_problems(problems)

    def of_subject(self, subject: str) -> Columns:
        """Return the mapping of the rows of one subject.

        Raises DataError for a subject without choices.
        """
        if not self.fixed_of:
            return self
        if subject not in self.fixed_of:
            raise DataError(
                f"the mapping has no choices for subject {subject!r}; "
                f"{did_you_mean(subject, self.fixed_of)}"
            )
        return replace(self, fixed=self.fixed_of[subject], fixed_of=MappingProxyType({}))


def _problems(columns: Columns) -> Iterator[str]:
    """Yield what is wrong with a mapping."""
    yield from _wrong_values(columns.answer_is, columns.labels)
    has_pair = columns.right is not None and columns.wrong is not None
    has_target = columns.target is not None
    has_choices = columns.choices is not None
    is_fixed = bool(columns.fixed or columns.fixed_of)
    if (columns.right is None) != (columns.wrong is None):
        yield "a mapping needs both right and wrong, or neither"
    elif has_choices + is_fixed + has_pair + has_target != 1:
        yield "a mapping names its choices in one way: choices, fixed, right and wrong, or target"
    if (has_pair or has_target) == (columns.answer is not None):
        yield "a mapping needs answer, unless it has right and wrong, or target"
    if columns.choices_split:
        if not isinstance(columns.choices, str) and not isinstance(columns.wrong, str):
            yield (
                "choices_split splits the text of one column; name it in choices or wrong, without "
                "brackets"
            )


def _wrong_values(answer_is: str, labels: Sequence[str]) -> Iterator[str]:
    if answer_is not in _ANSWER_IS:
        yield f"answer_is is {answer_is!r}; it must be one of {', '.join(_ANSWER_IS)}"
    if len(set(labels)) < len(labels):
        yield "a mapping has a label twice; labels must differ"


def read_mapping(path: Path) -> Columns:
    """Read the mapping that a TOML file declares; its keys are the fields of :class:`Columns`.

    Raises DataError for a missing or malformed file, an unknown key, or a value of the wrong kind.
    """
    try:
        declared = read_toml(read_text(path, SETTINGS))
    except (OSError, ValueError) as error:
        raise DataError(f"can't read the mapping {path} as TOML: {error}") from error
    return columns_of(declared, str(path))


# Annotation of a field of `Columns` → what a TOML file has to hold there.
_KINDS = {
    "str": "a text",
    "str | None": "a text",
    "str | tuple[str, ...] | None": "a text or a list of texts",
    "tuple[str, ...]": "a list of texts",
    "Mapping[str, str]": "a table of names",
    "Mapping[str, tuple[str, ...]]": "a table of lists of texts",
    "int | None": "a whole number",
    "bool": "true or false",
}


def _is_kind(annotation: str, value: object) -> bool:
    """Check that a field of this ``annotation`` may have the ``value`` from a TOML file."""
    match annotation:
        case "str" | "str | None":
            return isinstance(value, str)
        case "tuple[str, ...]":
            are_texts = isinstance(value, list) and all(_is_kind("str", part) for part in value)
            return are_texts and value != []
        case "str | tuple[str, ...] | None":
            return _is_kind("str", value) or _is_kind("tuple[str, ...]", value)
        case "int | None":
            return isinstance(value, int) and not isinstance(value, bool)
        case "bool":
            return isinstance(value, bool)
    inner = annotation.removeprefix("Mapping[str, ").removesuffix("]")
    return isinstance(value, dict) and all(_is_kind(inner, part) for part in value.values())


def columns_of(declared: JsonMapping, where: str) -> Columns:
    """Return the mapping that a table declares; its keys are the fields of :class:`Columns`.

    Raises DataError, saying ``where``, for an unknown key or a value of the wrong kind.
    """
    unfilled = []
    for key, value in declared.items():
        if value == GAP or (isinstance(value, list) and GAP in value):
            unfilled.append(key)
    if unfilled:
        raise DataError(f"{where} has {GAP} for {listed(unfilled)}; fill it in")
    kinds = {spec.name: str(spec.type) for spec in fields(Columns) if spec.init}
    problems = []
    wrong = []
    values: JsonDict = {}
    for key, value in declared.items():
        if key not in kinds:
            problems.append(f"{key!r} is not a key of a mapping; {did_you_mean(key, kinds)}")
            continue
        if _is_kind(kinds[key], value):
            values[key] = _frozen(value)
        else:
            wrong.append(f"{key} is {value!r}; it must be {_KINDS[kinds[key]]}")
    problems += wrong
    if problems:
        # What is missing may be what is misspelled, so that only values are checked further.
        problems += _wrong_values(values.get("answer_is", "any"), values.get("labels", ()))
    else:
        # TOML has no null: an empty text says that no column holds the question.
        values["question"] = values.get("question", "question") or None
        try:
            return Columns(**values)
        except DataError as error:
            problems = list(error.parts)
    keys = f"the keys of a mapping are {', '.join(kinds)}"
    raise DataError(f"{where}: {problems[0]}", [*problems[1:], keys])


def _frozen(value: Any) -> Any:
    """Return lists as tuples, also those in a table."""
    if isinstance(value, list):
        return tuple(value)
    if isinstance(value, dict):
        return {key: _frozen(part) for key, part in value.items()}
    return value


def _thawed(value: Any) -> Any:
    """Return tuples as lists, also those in a table."""
    if isinstance(value, tuple):
        return list(value)
    if isinstance(value, Mapping):
        return {key: _thawed(part) for key, part in value.items()}
    return value


def mapping_table(columns: Columns) -> JsonDict:
    """Return the table of which :func:`columns_of` makes ``columns``.

    It holds the question and what differs from the defaults.
    """
    values: JsonDict = {"question": columns.question or ""}
    default = Columns(target="")
    for spec in fields(columns):
        if not spec.init or spec.name == "question":
            continue
        value = getattr(columns, spec.name)
        # A mapping without choices is refused, so that the default has a target.
        is_default = value == getattr(default, spec.name) and spec.name != "target"
        if value is not None and not is_default:
            values[spec.name] = _thawed(value)
    return values


@dataclass(frozen=True)
class Dataset:
    """The items of every split, in file order, and the rows that were skipped.

    ``splits`` maps a split's name (``test``, ``dev``, ``validation``, ``train``) to its items; they
    are kept in columns (:class:`~choicewise.data.dataset.Items`), so that a million of them fit
    into little memory.
    ``columns``: as what the columns of its (first) file were read; None if they have no names, or
    there is no file.
    ``guess``: that on a line, if it was neither declared nor of a known shape; else empty.
    ``notes``: what else to know of how it was read.
    ``source``: the repository on the Hub and the commit that they were read from, empty for local
    files.
    ``read_with``: the release of another tool that read them, and which of its tasks they are;
    empty if none did.
    """

    name: str
    splits: Mapping[str, Sequence[Item]]
    skipped: tuple[SkippedRow, ...] = ()
    _: KW_ONLY
    columns: Columns | None = None
    source: str = ""
    read_with: str = ""
    guess: str = ""
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        splits = {split: Items.of(items) for split, items in self.splits.items()}
        object.__setattr__(self, "splits", splits)

    def __repr__(self) -> str:
        sizes = ", ".join(f"{len(items)} {split}" for split, items in self.splits.items())
        return f"<Dataset {self.name!r}: {sizes or 'no'} items, {len(self.skipped)} rows skipped>"

    def _repr_html_(self) -> str:
        facts: dict[str, object] = {}
        for split, items in self.splits.items():
            facts[f"{split} items"] = len(items)
        facts["rows skipped"] = len(self.skipped)
        facts["digest"] = self.digest[:12]
        return html_table(self.name, facts)

    @cached_property
    def digest(self) -> str:
        """Return the sha256 (64 hex) over every item of every split.

        The same content gives the same digest in any file format.
        """
        return spelled_digest(self._digested_lines())

    def _digested_lines(self) -> Iterator[str]:
        """Yield the JSON of ``[split, id, subject, question, choices, gold, fields]`` of each item."""
        # Several times faster than to call the encoder of JSON for each line.
        spell = encode_basestring_ascii
        for split in sorted(self.splits):
            spelled_split = spell(split)
            for item in self.splits[split]:
                texts = f"{spell(item.id)}, {spell(item.subject)}, {spell(item.question)}"
                choices = ", ".join(map(spell, item.choices))
                fields = "{}"
                if item.fields:
                    fields = ascii_json(dict(item.fields))
                gold = ", ".join(map(str, item.gold))
                yield f"[{spelled_split}, {texts}, [{choices}], [{gold}], {fields}]"

    @cached_property
    def drawn(self) -> dict[tuple[Any, ...], Any]:
        """Return what was drawn from it at random, by all that a draw depends on.

        Whoever draws keeps the result here, so that nobody draws it again.
        """
        return {}

    def subjects(self, split: str) -> tuple[str, ...]:
        """Return the subjects of a split in order of first appearance."""
        return tuple(self._by_subject.get(split, ()))

    @cached_property
    def categories(self) -> dict[str, dict[str, list[str]]]:
        """Return the published categories of its subjects, each with its subcategories.

        It is empty if the subjects have none.
        """
        subjects: set[str] = set()
        for of_split in self._by_subject.values():
            subjects.update(of_split)
        return categories_of(subjects)

    @cached_property
    def content(self) -> tuple[str, ...]:
        """Return the further fields that hold content, which a protocol should show."""
        # Most data has none, and its columns tell that much faster than its items.
        if not any(_may_hold_content(Items.of(items)) for items in self.splits.values()):
            return ()
        return content_fields(item for items in self.splits.values() for item in items)

    @property
    def evaluated(self) -> str:
        """Return the split that numbers are published for.

        It is test, else validation, else the only split.  Raises DataError if there are several
        others, or none.
        """
        candidates = ["test", "validation"]
        if len(self.splits) == 1:
            candidates += self.splits
        for split in candidates:
            if self.splits.get(split):
                return split
        splits = ", ".join(sorted(self.splits)) or "none"
        raise DataError(
            f"{self.name} has no split test or validation, only {splits}; add @split=NAME to the "
            "protocol"
        )

    def choose(self, split: str, subjects: Sequence[str] | None = None) -> tuple[str, ...]:
        """Return the named subjects of the split, all if None, in the split's order.

        Raises DataError if there is no such split, and UsageError if it has no such subject.
        """
        of_split = self.subjects(split)
        if not of_split:
            splits = ", ".join(sorted(self.splits)) or "none"
            remedy = f"add @split={max(self.splits, default='test')} to the protocol"
            raise DataError(f"{self.name} has no split {split!r}, only {splits}; {remedy}")
        if subjects is None:
            return of_split
        for subject in subjects:
            if subject not in of_split:
                hint = did_you_mean(subject, of_split)
                raise UsageError(
                    f"{self.name} has no subject {subject!r} in split {split!r}; {hint}"
                )
        return tuple(subject for subject in of_split if subject in subjects)

    def sample(
        self, split: str, count: int, seed: int, subjects: Sequence[str] | None = None
    ) -> dict[str, tuple[int, ...]]:
        """Return subject → positions of its items in a sample of ``count`` items of the split.

        With ``subjects``, the sample is of these alone.  Every subject has its share
        (:func:`shares`), of the items whose hashes with ``seed`` are the smallest: so neither the
        order of the files nor another library changes the draw, and a greater share holds the same
        items and others.  Raises as :meth:`choose`.
        """
        chosen = self.choose(split, subjects)
        key = "sample", split, count, seed, chosen
        if key not in self.drawn:
            items = {subject: self.rows(split, subject) for subject in chosen}
            sizes = {subject: len(items[subject]) for subject in chosen}
            self.drawn[key] = {
                subject: _smallest(items[subject], subject, share, seed)
                for subject, share in shares(sizes, count, seed).items()
            }
        return dict(self.drawn[key])

    @cached_property
    def _by_subject(self) -> dict[str, dict[str, Items]]:
        return {split: Items.of(items).by_subject() for split, items in self.splits.items()}

    def rows(self, split: str, subject: str) -> Items:
        """Return the items of one subject in one split, in file order; there may be none."""
        return self._by_subject.get(split, {}).get(subject, Items.of(()))


def shares(sizes: Mapping[str, int], count: int, seed: int) -> dict[str, int]:
    """Share ``count`` items among subjects of these ``sizes``: in proportion, by largest remainder.

    Of equal remainders those come first whose subjects have the smaller hashes with ``seed``.
    """
    total = sum(sizes.values())
    if count >= total:
        return dict(sizes)
    whole = {subject: count * size // total for subject, size in sizes.items()}
    order = sorted(
        sizes, key=lambda subject: (-(count * sizes[subject] % total), draw_hash(seed, subject))
    )
    left = count - sum(whole.values())
    for subject in order[:left]:
        whole[subject] += 1
    return whole


def _smallest(items: Items, subject: str, count: int, seed: int) -> tuple[int, ...]:
    """Return the positions of the ``count`` items whose hashes are the smallest."""
    if count >= len(items):
        return tuple(range(len(items)))
    hashes = [draw_hash(seed, subject, name) for name in items.table()["item"].to_pylist()]
    order = sorted(range(len(hashes)), key=lambda position: (hashes[position], position))
    return tuple(sorted(order[:count]))


def html_table(title: str, facts: Mapping[str, object]) -> str:
    """Return a small table in HTML, everything escaped: a row per fact, the ``title`` above."""
    rows = []
    for name, value in facts.items():
        cells = f"<th style='text-align:left'>{escape(name)}</th><td>{escape(str(value))}</td>"
        rows.append(f"<tr>{cells}</tr>")
    return f"<table><caption>{escape(title)}</caption>{''.join(rows)}</table>"


class Items(Sequence[Item]):
    """Items in file order; slices and selections share the columns of the whole.

    A million items of 100 bytes take about 150 MB.  One item takes some microseconds to be made,
    all of them in a row about one each.
    """

    __slots__ = ("_batches", "_positions", "_starts")

    def __init__(
        self, batches: Sequence[pa.RecordBatch], positions: _Positions | None = None
    ) -> None:
        """Take the rows at ``positions`` of all ``batches``, every row if None.

        The batches have the schema ``COLUMNS``.
        """
        self._batches = batches
        self._starts = [0, *accumulate(batch.num_rows for batch in batches)]
        self._positions: _Positions = range(self._starts[-1])
        if positions is not None:
            self._positions = positions

    @classmethod
    def of(cls, items: Iterable[Item]) -> Items:
        """Keep ``items`` in columns; they are taken one by one."""
        if isinstance(items, Items):
            return items
        columns = ItemColumns()
        for item in items:
            columns.add(item)
        return cls(columns.batches())

    def __len__(self) -> int:
        return len(self._positions)

    @overload
    def __getitem__(self, index: int) -> Item: ...
    @overload
    def __getitem__(self, index: slice) -> Items: ...
    def __getitem__(self, index: int | slice) -> Item | Items:
        if isinstance(index, slice):
            return Items(self._batches, self._positions[index])
        position = int(self._positions[index])
        number = bisect_right(self._starts, position) - 1
        row = position - self._starts[number]
        cells = [column[row].as_py() for column in self._batches[number].columns]
        id, subject, question, choices, gold, fields = cells
        return _checked_item(id, question, tuple(choices), tuple(gold), subject, _fields(fields))

    def __iter__(self) -> Iterator[Item]:
        for batch in self._chunks():
            ids, subjects, questions, choices, gold, fields = batch.columns
            yield from map(
                _checked_item,
                _list(ids),
                _list(questions),
                _tuples(choices),
                _tuples(gold),
                _list(subjects),
                map(_fields, _list(fields)),
            )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence):
            return NotImplemented
        if len(self) != len(other):
            return False
        return all(item == of_other for item, of_other in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]  # as long as a list, and compared as one

    def __repr__(self) -> str:
        return f"<{len(self)} items>"

    def take(self, positions: npt.NDArray[np.int64]) -> Items:
        """Return the items at ``positions``, counted from 0, in that order."""
        if isinstance(self._positions, range):
            taken = self._positions.start + self._positions.step * positions
            return Items(self._batches, taken)
        return Items(self._batches, self._positions[positions])

    def table(self) -> pa.Table:
        """Return the items in the columns ``COLUMNS``, without making Python values of them."""
        return pa.Table.from_batches(self._chunks(), COLUMNS)

    def by_subject(self) -> dict[str, Items]:
        """Return subject → its items, in file order; subjects in order of first appearance."""
        if not len(self):
            return {}
        coded = self.table()["subject"].combine_chunks().dictionary_encode()
        codes = coded.indices.to_numpy()
        order = np.argsort(codes, kind="stable")
        ends = np.cumsum(np.bincount(codes, minlength=len(coded.dictionary)))
        groups = {}
        for subject, group in zip(
            coded.dictionary.to_pylist(), np.split(order, ends[:-1]), strict=True
        ):
            groups[subject] = Items(self._batches, _shortest(self.take(group)._positions))
        return groups

    def right_texts(self) -> pa.StringArray:
        """Return the text of the first right choice of each item."""
        parts = []
        for batch in self.table().to_batches():
            choices = batch["choices"]
            starts = pc.subtract(choices.offsets[:-1], choices.offsets[0])
            right = pc.add(starts, pc.list_element(batch["gold"], 0))
            parts.append(choices.flatten().take(right))
        return pa.chunked_array(parts, pa.string()).combine_chunks()

    def _chunks(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows in order, ``CHUNK`` of them or fewer at a time."""
        for start in range(0, len(self), CHUNK):
            positions = self._positions[start : start + CHUNK]
            numbers = np.searchsorted(self._starts, positions, side="right") - 1
            changes = (np.flatnonzero(np.diff(numbers)) + 1).tolist()
            for begin, end in pairwise([0, *changes, len(positions)]):
                first = self._starts[numbers[begin]]
                batch = self._batches[numbers[begin]]
                rows = _shortest(positions[begin:end])
                if isinstance(rows, range) and rows.step == 1:
                    yield batch.slice(rows.start - first, len(rows))
                else:
                    yield batch.take(pa.array(np.asarray(rows) - first))


def _may_hold_content(items: Items) -> bool:
    """Return whether any item has further fields, or nearly every question the sign of a blank."""
    table = items.table()
    has_fields = pc.any(pc.not_equal(table["fields"], "{}")).as_py()
    signs = pc.sum(pc.match_substring(table["question"], BLANK)).as_py() or 0
    return has_fields or signs >= 0.9 * len(table)


def _shortest(positions: _Positions) -> _Positions:
    """Return positions that follow each other as a range, which takes no memory."""
    if isinstance(positions, range) or not len(positions) or (np.diff(positions) != 1).any():
        return positions
    return range(int(positions[0]), int(positions[-1]) + 1)


def _list(column: pa.Array) -> list[Any]:
    """Return the column's values; for texts several times faster than ``to_pylist``."""
    values: list[Any] = column.to_numpy(zero_copy_only=False).tolist()
    return values


def _tuples(lists: pa.ListArray) -> Iterable[tuple[Any, ...]]:
    values = _list(lists.flatten())
    offsets = lists.offsets.to_numpy()
    width = int(offsets[1] - offsets[0])
    if width and (np.diff(offsets) == width).all():
        # Lists of one length, which most data has, are cut without a loop in Python.
        return zip(*[iter(values)] * width, strict=True)
    return [tuple(values[start:stop]) for start, stop in pairwise((offsets - offsets[0]).tolist())]


def _fields(spelled: str) -> Mapping[str, str]:
    if spelled == "{}":
        return _NO_FIELDS
    return MappingProxyType(json.loads(spelled))


class ItemColumns:
    """Take items one by one; only the last ones wait as Python values."""

    def __init__(self) -> None:
        self._batches: list[pa.RecordBatch] = []
        self._waiting: list[Item] = []

    def add(self, item: Item) -> None:
        """Keep ``item`` after those before it."""
        self._waiting.append(item)
        if len(self._waiting) == CHUNK:
            self._turn()

    def batches(self) -> list[pa.RecordBatch]:
        """Return all items that were added, with the schema ``COLUMNS``."""
        if self._waiting:
            self._turn()
        return self._batches

    def _turn(self) -> None:
        """Turn the waiting items into a batch."""
        rows = []
        for item in self._waiting:
            texts = (item.id, item.subject, item.question)
            rows.append((*texts, item.choices, item.gold, _spelled(item.fields)))
        # The default pool takes twice the memory for many arrays of this size.
        pool = pa.system_memory_pool()
        arrays = []
        for values, kind in zip(zip(*rows, strict=True), COLUMNS.types, strict=True):
            arrays.append(pa.array(values, kind, memory_pool=pool))
        self._batches.append(pa.record_batch(arrays, schema=COLUMNS))
        self._waiting.clear()


def _spelled(fields: Mapping[str, str]) -> str:
    if not fields:
        return "{}"
    return exact_json(dict(fields), sort=True)
