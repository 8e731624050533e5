"""Choose the few-shot examples of every item, by a sampler or from a curated set.

A set is named by its path here, ``olmes/arc-easy``, on the axis ``shot_split`` of a protocol with
the sampler ``curated``.  The name is part of the protocol's identity and stands for these texts: a
set that changes gets a new name.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from importlib.resources import files
from itertools import cycle
from random import Random
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from choicewise.data.dataset import Dataset, Items
from choicewise.data.items import Item, draw_hash
from choicewise.errors import DataError, did_you_mean
from choicewise.protocols.protocol import Protocol
from choicewise.protocols.readings import STREAMS, Stream
from choicewise.util.cache import BoundedCache

Shots = tuple[Item, ...]

Positions = npt.NDArray[np.int64]
"""Rows of a pool, counted from 0."""


_SHARE = 0.05
"""The share of items that is drawn, of each number of choices, at least one (Zheng et al. 2024)."""

_KEYS = ("id", "question", "choices", "answer", "subject")

FRESH = tuple(STREAMS)
"""Samplers that draw other shots for every item."""


def sample(
    protocol: Protocol, dataset: Dataset, subject: str, positions: Sequence[int] | None = None
) -> list[Shots]:
    """Return the shots of a subject's items in the protocol's split, in file order.

    ``positions``: only those of the items there.  Shots are drawn for all items of the subject, so
    that no item's shots change if only a part is asked.  Raises DataError if the subject has no
    items, too few rows to draw shots from, or no such curated set.
    """
    items = dataset.rows(protocol.split or dataset.evaluated, subject)
    if not items:
        raise DataError(
            f"{_called(subject)} has no rows in split {protocol.split!r}; the dataset's splits are "
            f"{', '.join(sorted(dataset.splits))}: choose another subject, or a protocol file with "
            "another split"
        )
    wanted = range(len(items)) if positions is None else positions
    if not protocol.shots:
        return [()] * len(wanted)
    count = protocol.shots
    if protocol.sampler == "curated":
        examples = curated((protocol.shot_split or "").replace("{subject}", subject))
        if len(examples) < count:
            raise DataError(
                f"the curated set {protocol.shot_split} has {len(examples)} examples, and the "
                f"protocol asks for {count} shots; use a protocol file with fewer shots or another sampler"
            )
        return [examples[:count]] * len(wanted)
    pool = _pool(protocol, dataset, subject)
    stream = STREAMS.get(protocol.sampler)
    # Rows are drawn once for all items of the subject.
    seed = protocol.seed
    key = (protocol.sampler, protocol.split, protocol.shot_split, subject, count, seed)
    if stream is None and protocol.sampler != "helm":
        if key not in dataset.drawn:
            dataset.drawn[key] = tuple(pool[:count])
        return [dataset.drawn[key]] * len(wanted)
    if key not in dataset.drawn:
        if stream is None:
            drawn = draw_helm(pool.right_texts(), count, seed)
        else:
            drawn = draw(stream, len(items), len(pool), count, seed)
        dataset.drawn[key] = drawn
    rows = dataset.drawn[key]
    if stream is None:
        return [tuple(pool.take(rows))] * len(wanted)
    indices = np.fromiter(wanted, dtype=np.int64, count=len(wanted))
    return _drawn(items.take(indices), pool, rows[indices], count)


def has_examples(protocol: Protocol, dataset: Dataset) -> bool:
    """Check that there is a split, or a curated set, for the shots of ``protocol``.

    The protocol names its split.  Whether there are enough examples for every subject is checked by
    :func:`sample`.
    """
    split = protocol.shot_split or ""
    if protocol.sampler == "curated":
        return _has_curated(split, dataset.subjects(protocol.split or ""))
    if not dataset.splits.get(split):
        return False
    return split != protocol.split or _spare(protocol) > 0


def _has_curated(name: str, subjects: Iterable[str]) -> bool:
    for subject in subjects:
        try:
            return len(curated(name.replace("{subject}", subject))) > 0
        except DataError:
            continue
    return False


def _spare(protocol: Protocol) -> int:
    """Return how many rows are drawn besides, so that the item can be left out of its shots."""
    stream = STREAMS.get(protocol.sampler)
    return stream.spare if stream is not None else 0


def shown_to_themselves(
    protocol: Protocol,
    dataset: Dataset,
    subject: str,
    items: Sequence[Item],
    positions: Sequence[int],
) -> Iterator[Item]:
    """Yield the ``items``, at these ``positions`` of the subject, that are among their shots.

    Raises DataError if :func:`sample` does.
    """
    if not protocol.shots or not items:
        return
    pool = dataset.rows(protocol.shot_split or "", subject)
    # Without a stream all items have the same shots.
    if protocol.sampler not in STREAMS:
        pool = Items.of(sample(protocol, dataset, subject, range(1))[0])
    questions = Items.of(items).table()["question"]
    pool_questions = pool.table()["question"].combine_chunks()
    # Drawing shots is slow, so it is done only for questions that are in the pool as well.
    is_in_pool = pc.is_in(questions, value_set=pool_questions)
    for index in np.flatnonzero(is_in_pool).tolist():
        (shots,) = sample(protocol, dataset, subject, positions[index : index + 1])
        if any(is_same(items[index], shot) for shot in shots):
            yield items[index]


def is_same(item: Item, other: Item) -> bool:
    """Check that two items have the same question, choices, answer and further texts.

    A further text is a field of several words.
    """
    # Nearly all differ in their question.
    if item.question != other.question:
        return False
    if item.choices != other.choices or item.gold != other.gold:
        return False
    return _further_texts(item) == _further_texts(other)


@cache
def curated(name: str) -> tuple[Item, ...]:
    """Return the examples of a set, in their published order; DataError if there is no such set."""
    sets = {}
    for source in (files("choicewise.protocols") / "curated").iterdir():
        if source.is_dir():
            for file in source.iterdir():
                sets[f"{source.name}/{file.name.removesuffix('.jsonl')}"] = file
    if name not in sets:
        raise DataError(
            f"there are no curated examples called {name!r}; {did_you_mean(name, sorted(sets))}"
        )
    lines = sets[name].read_text(encoding="utf-8").splitlines()
    return tuple(_item(json.loads(line)) for line in lines)


# Every block of items asks for the items that were drawn last.
_drawn_last = BoundedCache[tuple[str, str, int], frozenset[str]](1)


def drawn_items(data: Dataset, split: str, seed: int) -> frozenset[str]:
    """Return the ids of the drawn items of ``split``.

    Of the items with equally many choices, those with the smallest hashes by ``seed`` are drawn, so
    neither the order of the items nor a selection of them changes the draw.
    """
    key = data.digest, split, seed
    latest = _drawn_last.get(key)
    if latest is not None:
        return latest
    hashes: dict[int, list[tuple[bytes, str]]] = {}
    for item in data.splits.get(split, ()):
        hashes.setdefault(len(item.choices), []).append((draw_hash(seed, item.id), item.id))
    drawn: set[str] = set()
    for hashes_of_count in hashes.values():
        number = max(1, math.floor(_SHARE * len(hashes_of_count)))
        drawn.update(item_id for _, item_id in sorted(hashes_of_count)[:number])
    _drawn_last.put(key, frozenset(drawn))
    return frozenset(drawn)


def draw_helm(answers: pa.StringArray, count: int, seed: int | None) -> Positions:
    """Draw rows as HELM's ``sample_examples``: one of each answer in turn, frequent answers first.

    ``answers``: the text of the first right choice of every row of the pool.  Answers with equally
    many examples are shuffled.  stanford-crfm/helm@cab5d89,
    src/helm/benchmark/adaptation/adapters/in_context_learning_adapter.py.
    """
    random = Random(seed)
    coded = answers.dictionary_encode()
    codes = coded.indices.to_numpy()
    sizes = np.bincount(codes)
    # Arrow sorts by UTF-8, which is Python's order, too.
    alphabetical = pc.sort_indices(coded.dictionary).to_numpy()
    order: list[int] = []
    for size in np.unique(sizes)[::-1]:
        tied = alphabetical[sizes[alphabetical] == size].tolist()
        random.shuffle(tied)
        order += tied
    groups: dict[int, list[int]] = {}
    chosen: list[int] = []
    for answer in cycle(order):
        if len(chosen) == min(count, len(codes)):
            break
        if answer not in groups:
            groups[answer] = np.flatnonzero(codes == answer).tolist()
        group = groups[answer]
        if group:
            chosen.append(group.pop(random.randrange(len(group))))
    return np.array(chosen, dtype=np.int64)


def draw(stream: Stream, items: int, pool: int, count: int, seed: int | None) -> Positions:
    """Draw rows of a pool of ``pool`` for each of ``items``, (items, count + spare) positions."""
    random = Random(seed)
    order = list(range(items))
    if stream.shuffled:
        random.shuffle(order)
    drawn = np.empty((items, count + stream.spare), dtype=np.int64)
    for index in order:
        drawn[index] = random.sample(range(pool), count + stream.spare)
    return drawn


def _further_texts(item: Item) -> set[str]:
    return {text for text in item.fields.values() if " " in text}


def _drawn(items: Iterable[Item], pool: Items, drawn: Positions, count: int) -> list[Shots]:
    """Return for each item the first ``count`` drawn rows; of spare ones, none that is the item."""
    indices = np.unique(drawn)
    row_at = dict(zip(indices.tolist(), pool.take(indices), strict=True))
    shots = []
    for item, positions in zip(items, drawn.tolist(), strict=True):
        rows = [row_at[position] for position in positions]
        if len(rows) > count:
            rows = [row for row in rows if not is_same(item, row)]
        shots.append(tuple(rows[:count]))
    return shots


def _called(subject: str) -> str:
    return f"subject {subject!r}" if subject else "the dataset"


def _pool(protocol: Protocol, dataset: Dataset, subject: str) -> Items:
    split = protocol.shot_split or ""
    pool = dataset.rows(split, subject)
    # The same rows for every subject.
    if protocol.sampler == "first-overall":
        pool = Items.of(dataset.splits.get(split, ()))
    spare = _spare(protocol)
    needed = protocol.shots + spare
    advice = (
        "add rows, ask with fewer shots (NAME@shots=N), or use a protocol file with another "
        "shot_split"
    )
    if len(pool) < needed:
        raise DataError(
            f"{_called(subject)} has {len(pool)} rows in split {split!r}; {protocol.shots} shots "
            "by the sampler "
            f"{protocol.sampler} need {needed}; the dataset's splits are "
            f"{', '.join(sorted(dataset.splits))}: {advice}"
        )
    if split == protocol.split and not spare:
        raise DataError(
            f"shots from split {split!r}, which is also the one tested, would show answers: "
            f"{advice}"
        )
    return pool


def _item(row: dict[str, Any]) -> Item:
    return Item(
        id=row["id"],
        question=row["question"],
        choices=tuple(row["choices"]),
        gold=(row["answer"],),
        subject=row.get("subject", ""),
        fields={key: value for key, value in row.items() if key not in _KEYS},
    )
