"""`choicewise data`: what was recognised, doubles, text faults."""

from __future__ import annotations

import re
import unicodedata
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, is_dataclass
from itertools import combinations
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from choicewise.data.dataset import Columns, Dataset, Items
from choicewise.data.items import BLANK, Item
from choicewise.data.patterns import AnswerPattern, answer_pattern
from choicewise.data.rows import shape_of_columns

_SHOWN: Final = 10  # items that are shown
LISTED: Final = 10  # doubles that are named, of each kind; all are counted
_LATIN = "\u0080-\u00bf\u0152\u0153\u0160\u0161\u0178\u017d\u017e\u0192\u02c6\u02dc\u2013-\u203a\u20ac\u2122"
_Key = tuple[str, ...]
_Right = frozenset[str]
_Repeat = tuple[_Key, str, _Right]


@dataclass(frozen=True)
class Fault:
    """How many items have a fault, and the id of the first."""

    count: int
    example: str


@dataclass(frozen=True)
class SplitSurvey:
    """One split: its items, their subjects with how many each has, what its answers have in common, and its faults."""

    items: int
    subjects: Mapping[str, int]
    answers: AnswerPattern
    faults: Mapping[str, Fault]


@dataclass(frozen=True)
class Double:
    """Two items that are the same question: their splits and ids, and whether they have other right answers."""

    split: str
    item: str
    other_split: str
    other: str
    disagree: bool


@dataclass(frozen=True)
class Doubles:
    """Questions that are there again, of which the first ``LISTED`` are named.

    ``within``: split → items that are the same question as one before them in the split.  ``across``: two splits → how
    many items of the first are in the other as well.  ``disagreeing``: pairs, counted in these, with other right
    answers.
    """

    within: Mapping[str, int]
    across: Mapping[tuple[str, str], int]
    disagreeing: int
    examples: tuple[Double, ...]


@dataclass(frozen=True)
class Survey:
    """A dataset in numbers.

    ``shape``: the name of the known shape, ``guessed``, nothing where the columns were declared or have no names;
    ``columns``: what each column was read as, None for that layout.  ``evaluated``: the split that is scored unless a
    protocol names another, nothing where there are several others.  ``rows``: ``_SHOWN`` items of it, evenly spread.
    ``skipped``: why rows were skipped → how many.  ``fields``: the further columns, and ``content`` those of them that
    belong to the question.
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
        """The survey in dicts and lists; the items in columns of their own names."""
        own = {
            name: getattr(self, name)
            for name in ("name", "digest", "shape", "evaluated", "fields", "content")
        }
        columns = (
            None
            if self.columns is None
            else {key: _plain(value) for key, value in _fields(self.columns)}
        )
        splits = {
            split: {**dict(_fields(each)), "answers": dict(_fields(each.answers))}
            for split, each in self.splits.items()
        }
        across = [
            {"split": one, "other": other, "items": n}
            for (one, other), n in self.doubles.across.items()
        ]
        return {
            **own,
            "columns": columns,
            "splits": _plain(splits),
            "doubles": _plain(dict(_fields(self.doubles))) | {"across": across},
            "skipped": dict(self.skipped),
            "rows": [_plain(dict(_fields(item))) for item in self.rows],
        }


def survey(dataset: Dataset) -> Survey:
    """The survey of ``dataset``; a million items take some ten seconds, and no more memory than they have."""
    splits = {}
    for split, each in dataset.splits.items():
        items = Items.of(each)
        subjects = {subject: len(own) for subject, own in items.by_subject().items()}
        splits[split] = SplitSurvey(len(items), subjects, answer_pattern(items), text_faults(items))
    evaluated = next((split for split in ("test", "validation", *splits) if split in splits), "")
    items = Items.of(dataset.splits.get(evaluated, ()))
    spread = np.unique(
        np.linspace(0, max(len(items) - 1, 0), min(_SHOWN, len(items)), dtype=np.int64)
    )
    rows = tuple(items.take(spread))
    return Survey(
        name=dataset.name,
        digest=dataset.digest,
        shape="guessed"
        if dataset.guess
        else ""
        if dataset.columns is None
        else shape_of_columns(dataset.columns),
        columns=dataset.columns,
        splits=splits,
        evaluated=evaluated,
        fields=tuple(sorted({name for item in rows for name in item.fields})),
        content=dataset.content,
        doubles=doubles(dataset),
        skipped=dict(Counter(row.reason for row in dataset.skipped).most_common()),
        rows=rows,
    )


def doubles(dataset: Dataset) -> Doubles:
    """The doubles of all splits: the same question, the same content fields and the same choices in any order."""
    content = [name for name in dataset.content if name != BLANK]
    firsts = {
        split: _first(items, suspects, content)
        for (split, items), suspects in _suspects(dataset, content)
    }
    within, across, disagreeing = {}, {}, 0
    examples: list[Double] = []
    for split, (first, repeats) in firsts.items():
        within[split] = len(repeats)
        pairs = [
            Double(split, first[key][0], split, id, first[key][1] != right)
            for key, id, right in repeats
        ]
        disagreeing += sum(pair.disagree for pair in pairs)
        examples += pairs[:LISTED]
    order = (
        "test",
        "validation",
        "dev",
        "train",
    )  # those that are tested before those that shots come from
    by_use = sorted(firsts, key=lambda split: order.index(split) if split in order else len(order))
    for one, other in combinations(by_use, 2):
        (mine, again), (theirs, _) = firsts[one], firsts[other]
        pairs = [
            Double(one, id, other, theirs[key][0], theirs[key][1] != right)
            for key, id, right in [*((key, *mine[key]) for key in mine), *again]
            if key in theirs
        ]
        across[one, other] = len(pairs)
        disagreeing += sum(pair.disagree for pair in pairs)
        examples += pairs[:LISTED]
    counts = {splits: count for splits, count in across.items() if count}
    return Doubles(
        {split: count for split, count in within.items() if count},
        counts,
        disagreeing,
        tuple(examples),
    )


FAULTS: Final = {
    "same choices": "two choices have the same text",
    "same choices but for case or spaces": "two choices differ in case or white space alone",
    "spaces at an edge": "a choice begins or ends with white space",
    "control characters": "a text has control or invisible characters",
    "mojibake": "a text was read in the wrong encoding, such as Ã© for é",
    "replacement character": "a text has U+FFFD in place of a character that was lost",
    "not NFC": "a text spells letters and their marks apart (not Unicode NFC)",
}
"""What can be wrong with an item's texts, and what that means."""


def text_faults(items: Items) -> Mapping[str, Fault]:
    """Fault → items that have it, in the order of ``FAULTS``; in the question, the choices and the further fields."""
    faults: dict[str, Fault] = {}
    for batch in items.table().to_batches():
        for name, rows in _faults(batch):
            if rows:
                earlier = faults.get(name)
                example = batch["item"][min(rows)].as_py() if earlier is None else earlier.example
                faults[name] = Fault(len(rows) + (earlier.count if earlier else 0), example)
    return {name: faults[name] for name in FAULTS if name in faults}


_MOJIBAKE = re.compile(f"[ÂÃÅÐÑ][{_LATIN}]|[âï][{_LATIN}]{{2}}|ð[{_LATIN}]{{3}}")
"""UTF-8 read as Windows-1252: the first bytes of Latin, Cyrillic, punctuation and emoji, and what can follow them."""


def is_mojibake(text: str) -> bool:
    """Whether a part of ``text`` is UTF-8 that was read as Windows-1252."""
    for part in _MOJIBAKE.finditer(text):
        with suppress(UnicodeError):
            b"".join(
                letter.encode("latin-1" if letter <= "\xff" else "cp1252") for letter in part[0]
            ).decode()
            return True
    return False


def _fields(value: Any) -> Iterator[tuple[str, Any]]:
    return ((spec.name, getattr(value, spec.name)) for spec in fields(value) if spec.init)


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        value = dict(_fields(value))
    if isinstance(value, Mapping):
        return {key: _plain(inner) for key, inner in value.items() if not isinstance(key, tuple)}
    return [_plain(inner) for inner in value] if isinstance(value, list | tuple) else value


def _key(item: Item, content: Sequence[str]) -> _Key:
    return (item.question, *sorted(item.choices), *(item.fields.get(name, "") for name in content))


def _suspects(
    dataset: Dataset, content: Sequence[str]
) -> list[tuple[tuple[str, Sequence[Item]], list[int]]]:
    """For every split the positions of items whose hash another item has, too; a hash takes 8 bytes."""
    hashes = {}
    for split, items in dataset.splits.items():
        hashes[split] = np.frombuffer(
            array("q", (hash(_key(item, content)) for item in items)), np.int64
        )
    values, counts = np.unique(
        np.concatenate([*hashes.values(), np.zeros(0, np.int64)]), return_counts=True
    )
    repeated = values[counts > 1]
    return [
        ((split, dataset.splits[split]), np.flatnonzero(np.isin(own, repeated)).tolist())
        for split, own in hashes.items()
    ]


def _first(
    items: Sequence[Item], suspects: Sequence[int], content: Sequence[str]
) -> tuple[dict[_Key, tuple[str, _Right]], list[_Repeat]]:
    first: dict[_Key, tuple[str, _Right]] = {}
    repeats = []
    for position in suspects:
        item = items[position]
        key, right = _key(item, content), frozenset(item.choices[index] for index in item.gold)
        if key in first:
            repeats.append((key, item.id, right))
        else:
            first[key] = item.id, right
    return first, repeats


_CONTROL = "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u200b\u200e\u200f\u202a-\u202e\u2060-\u2064\ufeff]"
"""What no text needs; soft hyphens and joiners are not among them."""


def _faults(batch: pa.RecordBatch) -> Iterator[tuple[str, set[int]]]:
    choices = batch["choices"]
    flat, owner = choices.flatten(), pc.list_parent_indices(choices)
    same = _twice(owner, flat)
    yield "same choices", same
    yield (
        "same choices but for case or spaces",
        _twice(owner, pc.utf8_lower(pc.utf8_trim_whitespace(flat))) - same,
    )
    trimmed = pc.not_equal(pc.utf8_length(pc.utf8_trim_whitespace(flat)), pc.utf8_length(flat))
    yield "spaces at an edge", {*owner.filter(trimmed).to_pylist()}
    rows = pa.array(range(batch.num_rows), owner.type)
    texts = pa.concat_arrays([batch["question"], flat, batch["fields"]])
    owners = pa.concat_arrays([rows, owner, rows])
    yield (
        "control characters",
        {*owners.filter(pc.match_substring_regex(texts, _CONTROL)).to_pylist()},
    )
    wide = pc.invert(pc.string_is_ascii(texts))
    texts, owners = texts.filter(wide), owners.filter(wide)
    yield "replacement character", {*owners.filter(pc.match_substring(texts, "\ufffd")).to_pylist()}
    pairs = [*zip(texts.to_pylist(), owners.to_pylist(), strict=True)]
    yield "mojibake", {row for text, row in pairs if is_mojibake(text)}
    yield "not NFC", {row for text, row in pairs if not unicodedata.is_normalized("NFC", text)}


def _twice(owner: pa.Array, texts: pa.Array) -> set[int]:
    table = pa.table({"row": owner, "text": texts})
    counts = table.group_by(["row", "text"], use_threads=False).aggregate([([], "count_all")])
    return {*counts.filter(pc.greater(counts["count_all"], 1))["row"].to_pylist()}
