"""Survey a dataset for ``choicewise data``: its splits, doubles, and faults of its texts."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from choicewise.data.dataset import Columns, Dataset, Items
from choicewise.data.items import BLANK, Item
from choicewise.data.rows import shape_of_columns
from choicewise.extensions.survey.patterns import AnswerPattern, answer_pattern

LISTED = 10  # doubles of each kind that are named; all are counted
_PRINTED = 10  # items
# Splits that are tested before those that shots come from.
_ORDER = ("test", "validation", "dev", "train")

# What can be wrong with the texts of an item, and what that means.
FAULTS = {
    "same choices": "two choices have the same text",
    "same choices but for case or spaces": "two choices differ only in case or white space",
    "spaces at an edge": "a choice begins or ends with white space",
    "control characters": "a text has control or invisible characters",
    "mojibake": "a text was read in the wrong encoding, such as Ã© for é",
    "replacement character": "a text has U+FFFD for a lost character",
    "not NFC": "a text has letters and accents as separate characters (not Unicode NFC)",
}

_LATIN = "\u0080-\u00bf\u0152\u0153\u0160\u0161\u0178\u017d\u017e\u0192\u02c6\u02dc\u2013-\u203a\u20ac\u2122"
# UTF-8 read as Windows-1252: the first bytes of Latin, Cyrillic, punctuation and emoji, and what
# can follow them.
_MOJIBAKE = re.compile(f"[ÂÃÅÐÑ][{_LATIN}]|[âï][{_LATIN}]{{2}}|ð[{_LATIN}]{{3}}")
# What no text needs; soft hyphens and joiners are not among them.
_CONTROL = "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u200b\u200e\u200f\u202a-\u202e\u2060-\u2064\ufeff]"


@dataclass(frozen=True)
class Fault:
    """Count the items that have a fault, and give the id of the first."""

    count: int
    example: str


@dataclass(frozen=True)
class SplitSurvey:
    """Describe one split; ``subjects``: subject → its number of items."""

    items: int
    subjects: Mapping[str, int]
    answers: AnswerPattern
    faults: Mapping[str, Fault]


@dataclass(frozen=True, kw_only=True)
class Double:
    """Two items that are the same question; ``disagree``: they have other right answers."""

    split: str
    item: str
    other_split: str
    other: str
    disagree: bool


@dataclass(frozen=True)
class Doubles:
    """Count repeated questions, of which the first ``LISTED`` of each kind are examples.

    ``within``: split → items that are the same question as one before them in the split.
    ``across``: two splits → how many items of the first are in the other as well.
    ``disagreeing``: pairs, counted in these, with other right answers.
    """

    within: Mapping[str, int]
    across: Mapping[tuple[str, str], int]
    disagreeing: int
    examples: tuple[Double, ...]


@dataclass(frozen=True, kw_only=True)
class Survey:
    """A dataset in numbers.

    ``shape``: the name of the known shape, ``guessed``, or empty if the columns were declared or
    have no names; ``columns``: what each column was read as, None if they have no names.
    ``evaluated``: the split that is scored unless a protocol names another, or the first.
    ``rows``: items of it, evenly spread.  ``skipped``: why rows were skipped → how many.
    ``fields``: the further columns, and ``content`` those of them that belong to the question.
    """

    name: str
    digest: str
    shape: str
    columns: Columns | None
    splits: Mapping[str, SplitSurvey]
    evaluated: str
    fields: tuple[str, ...]
    content: tuple[str, ...]
    doubles: Doubles
    skipped: Mapping[str, int]
    rows: tuple[Item, ...]

    def as_json(self) -> dict[str, Any]:
        """Return the survey in dicts and lists; the items in columns of their own names."""
        # Keys of JSON are single texts, so that pairs of splits become a list.
        across = []
        for (split, other), count in self.doubles.across.items():
            across.append({"split": split, "other": other, "items": count})
        return {
            "name": self.name,
            "digest": self.digest,
            "shape": self.shape,
            "evaluated": self.evaluated,
            "fields": self.fields,
            "content": self.content,
            "columns": _plain(self.columns),
            "splits": _plain(self.splits),
            "doubles": _plain(self.doubles) | {"across": across},
            "skipped": dict(self.skipped),
            "rows": _plain(self.rows),
        }


def _plain(value: Any) -> Any:
    """Return dataclasses as dicts, of which keys that are pairs are left out, and tuples as lists."""
    if is_dataclass(value):
        value = {spec.name: getattr(value, spec.name) for spec in fields(value) if spec.init}
    if isinstance(value, Mapping):
        return {key: _plain(part) for key, part in value.items() if not isinstance(key, tuple)}
    if isinstance(value, list | tuple):
        return list(map(_plain, value))
    return value


def survey(dataset: Dataset) -> Survey:
    """Survey ``dataset``; a million items take some ten seconds, and no more memory than they have."""
    splits = {}
    for split, sequence in dataset.splits.items():
        items = Items.of(sequence)
        subjects = {name: len(of_subject) for name, of_subject in items.by_subject().items()}
        splits[split] = SplitSurvey(len(items), subjects, answer_pattern(items), text_faults(items))
    evaluated = _evaluated(splits)
    items = Items.of(dataset.splits.get(evaluated, ()))
    last = max(len(items) - 1, 0)
    positions = np.linspace(0, last, min(_PRINTED, len(items)), dtype=np.int64)
    rows = tuple(items.take(np.unique(positions)))
    names: set[str] = set()
    for item in rows:
        names.update(item.fields)
    reasons = Counter(row.reason for row in dataset.skipped)
    return Survey(
        name=dataset.name,
        digest=dataset.digest,
        shape=_shape(dataset),
        columns=dataset.columns,
        splits=splits,
        evaluated=evaluated,
        fields=tuple(sorted(names)),
        content=dataset.content,
        doubles=doubles(dataset),
        skipped=dict(reasons.most_common()),
        rows=rows,
    )


def _evaluated(splits: Mapping[str, SplitSurvey]) -> str:
    for split in ("test", "validation", *splits):
        if split in splits:
            return split
    return ""


def _shape(dataset: Dataset) -> str:
    if dataset.guess:
        return "guessed"
    if dataset.columns is None:
        return ""
    return shape_of_columns(dataset.columns)


class _Question(NamedTuple):
    """An item as a question; its ``key`` is the same for all its doubles."""

    key: tuple[str, ...]
    id: str
    right: frozenset[str]


@dataclass
class _Questions:
    """Questions of a split that may have doubles: the first of each, and the others."""

    firsts: dict[tuple[str, ...], _Question] = field(default_factory=dict)
    repeats: list[_Question] = field(default_factory=list)


def doubles(dataset: Dataset) -> Doubles:
    """Find the doubles of all splits.

    Items are doubles if they have the same question, the same content fields and the same choices
    in any order.
    """
    content = [name for name in dataset.content if name != BLANK]
    questions = _questions(dataset, content)
    within: dict[str, list[Double]] = {}
    for split, of_split in questions.items():
        within[split] = [
            _double(split, of_split.firsts[repeat.key], split, repeat)
            for repeat in of_split.repeats
        ]
    across: dict[tuple[str, str], list[Double]] = {}
    for split, other in combinations(sorted(questions, key=_use), 2):
        firsts = questions[split].firsts
        other_firsts = questions[other].firsts
        across[split, other] = [
            _double(split, question, other, other_firsts[question.key])
            for question in [*firsts.values(), *questions[split].repeats]
            if question.key in other_firsts
        ]

    disagreeing = 0
    examples: list[Double] = []
    for pairs in [*within.values(), *across.values()]:
        disagreeing += sum(pair.disagree for pair in pairs)
        examples.extend(pairs[:LISTED])
    return Doubles(
        {split: len(pairs) for split, pairs in within.items() if pairs},
        {splits: len(pairs) for splits, pairs in across.items() if pairs},
        disagreeing,
        tuple(examples),
    )


def _questions(dataset: Dataset, content: Sequence[str]) -> dict[str, _Questions]:
    """Return the questions of each split that may have doubles."""
    questions = {}
    for split, positions in _suspects(dataset, content).items():
        of_split = questions[split] = _Questions()
        for position in positions:
            item = dataset.splits[split][position]
            right = frozenset(item.choices[index] for index in item.gold)
            question = _Question(_key(item, content), item.id, right)
            if of_split.firsts.setdefault(question.key, question) is not question:
                of_split.repeats.append(question)
    return questions


def _use(split: str) -> int:
    if split not in _ORDER:
        return len(_ORDER)
    return _ORDER.index(split)


def _double(split: str, question: _Question, other_split: str, other: _Question) -> Double:
    return Double(
        split=split,
        item=question.id,
        other_split=other_split,
        other=other.id,
        disagree=question.right != other.right,
    )


def _key(item: Item, content: Sequence[str]) -> tuple[str, ...]:
    values = [item.fields.get(name, "") for name in content]
    return (item.question, *sorted(item.choices), *values)


def _suspects(dataset: Dataset, content: Sequence[str]) -> dict[str, list[int]]:
    """Return split → the positions of items whose hash another item has as well.

    A hash takes 8 bytes, so that the questions themselves need not be kept.
    """
    hashes = {}
    for split, items in dataset.splits.items():
        keys = (hash(_key(item, content)) for item in items)
        hashes[split] = np.fromiter(keys, np.int64, len(items))
    none = np.zeros(0, np.int64)
    values, counts = np.unique(np.concatenate([none, *hashes.values()]), return_counts=True)
    repeated = values[counts > 1]
    suspects = {}
    for split, hashes_of_split in hashes.items():
        suspects[split] = np.flatnonzero(np.isin(hashes_of_split, repeated)).tolist()
    return suspects


def text_faults(items: Items) -> Mapping[str, Fault]:
    """Return fault → items that have it, in the order of ``FAULTS``.

    Faults are those of the question, the choices and the further fields.
    """
    faults: dict[str, Fault] = {}
    for batch in items.table().to_batches():
        for name, rows in _faults(batch):
            if not rows:
                continue
            if name in faults:
                first = faults[name]
                faults[name] = Fault(first.count + len(rows), first.example)
            else:
                faults[name] = Fault(len(rows), batch["item"][min(rows)].as_py())
    return {name: faults[name] for name in FAULTS if name in faults}


def is_mojibake(text: str) -> bool:
    """Check that a part of ``text`` is UTF-8 that was read as Windows-1252."""
    for part in _MOJIBAKE.finditer(text):
        try:
            b"".join(map(_windows_byte, part[0])).decode()
        except UnicodeError:
            continue
        return True
    return False


def _windows_byte(letter: str) -> bytes:
    # Python's cp1252 has no letters for five bytes, which programs read as Latin-1.
    if letter <= "\xff":
        return letter.encode("latin-1")
    return letter.encode("cp1252")


def _faults(batch: pa.RecordBatch) -> Iterator[tuple[str, set[int]]]:
    """Yield the name of a fault and the rows of the batch that have it."""
    lists = batch["choices"]
    choices = lists.flatten()
    rows_of_choices = pc.list_parent_indices(lists)
    trimmed = pc.utf8_trim_whitespace(choices)
    same = _rows_with_repeats(rows_of_choices, choices)
    same_but_for_case = _rows_with_repeats(rows_of_choices, pc.utf8_lower(trimmed))
    yield "same choices", same
    yield "same choices but for case or spaces", same_but_for_case - same
    is_spaced = pc.not_equal(pc.utf8_length(trimmed), pc.utf8_length(choices))
    yield "spaces at an edge", set(rows_of_choices.filter(is_spaced).to_pylist())

    texts = pa.concat_arrays([batch["question"], choices, batch["fields"]])
    all_rows = pa.array(range(batch.num_rows), rows_of_choices.type)
    rows = pa.concat_arrays([all_rows, rows_of_choices, all_rows])
    has_control = pc.match_substring_regex(texts, _CONTROL)
    yield "control characters", set(rows.filter(has_control).to_pylist())

    # The other faults need a character beyond ASCII, which few texts have.
    is_wide = pc.invert(pc.string_is_ascii(texts))
    texts = texts.filter(is_wide)
    rows = rows.filter(is_wide)
    is_lossy = pc.match_substring(texts, "\ufffd")
    yield "replacement character", set(rows.filter(is_lossy).to_pylist())
    mojibake = set()
    not_composed = set()
    for text, row in zip(texts.to_pylist(), rows.to_pylist(), strict=True):
        if is_mojibake(text):
            mojibake.add(row)
        if not unicodedata.is_normalized("NFC", text):
            not_composed.add(row)
    yield "mojibake", mojibake
    yield "not NFC", not_composed


def _rows_with_repeats(rows: pa.Array, texts: pa.Array) -> set[int]:
    """Return the rows that have one text more than once; ``rows`` holds the row of each text."""
    table = pa.table({"row": rows, "text": texts})
    counts = table.group_by(["row", "text"], use_threads=False).aggregate([([], "count_all")])
    repeated = counts.filter(pc.greater(counts["count_all"], 1))
    return set(repeated["row"].to_pylist())
