"""Which shots an item gets; curated sets.

A set is named by its path here, ``olmes/arc-easy``, on the axis ``shot_split`` of a protocol with the sampler
``curated``.  The name is part of the protocol's identity and stands for these texts: a set that changes gets a
new name.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from importlib.resources import files
from itertools import cycle, islice
from operator import attrgetter
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
Positions = npt.NDArray[np.int64]  # which rows of a pool, counted from 0
_CONTENT = attrgetter("question", "choices", "gold")
_SHARE = 0.05  # of the items with as many choices each, at least one (5 %: Zheng et al. 2024)
_KEYS = ("id", "question", "choices", "answer", "subject")
FRESH = tuple(STREAMS)  # samplers that draw other shots for every item


def sample(
    protocol: Protocol, dataset: Dataset, subject: str, asked: Sequence[int] | None = None
) -> list[Shots]:
    """The shots of the items of ``subject`` in the protocol's split, in file order, or of those at positions ``asked``.

    They are drawn for all items of the subject, so that no item's shots change when only a part is asked.  Raises
    DataError when the subject has no items, too few rows to draw shots from, or no such curated set.
    """
    items = dataset.rows(protocol.split or dataset.evaluated, subject)
    if not items:
        raise DataError(
            f"{_called(subject)} has no rows in split {protocol.split!r}; the dataset's splits are "
            f"{', '.join(sorted(dataset.splits))}: choose another subject, or a protocol file with another split"
        )
    asked = range(len(items)) if asked is None else asked
    if not protocol.shots:
        return [()] * len(asked)
    if protocol.sampler == "curated":
        return [_chosen(protocol, subject)] * len(asked)
    pool, count, seed = _pool(protocol, dataset, subject), protocol.shots, protocol.seed
    stream = STREAMS.get(protocol.sampler)
    if stream is None and protocol.sampler != "helm":
        return [tuple(pool[:count])] * len(asked)
    key = (protocol.sampler, protocol.split, protocol.shot_split, subject, count, seed)
    if (drawn := dataset.drawn.get(key)) is None:
        drawn = (
            draw(stream, len(items), len(pool), count, seed)
            if stream
            else draw_helm(pool.right_texts(), count, seed)
        )
        dataset.drawn[key] = drawn
    if stream is None:
        return [tuple(pool.take(drawn))] * len(asked)
    positions = np.fromiter(asked, dtype=np.int64, count=len(asked))
    return _drawn(items.take(positions), pool, drawn[positions], count)


def has_examples(protocol: Protocol, dataset: Dataset) -> bool:
    """Whether there is a split, or a curated set, that the shots of ``protocol``, which names its split, can come from.

    Whether it has enough of them for every subject is another question (:func:`sample`).
    """
    split = protocol.shot_split or ""
    if protocol.sampler != "curated":
        spare = protocol.sampler in STREAMS and STREAMS[protocol.sampler].spare
        return bool(dataset.splits.get(split)) and (split != protocol.split or bool(spare))
    for subject in dataset.subjects(protocol.split or ""):
        with suppress(DataError):
            return bool(curated(split.replace("{subject}", subject)))
    return False


def shown_to_themselves(
    protocol: Protocol,
    dataset: Dataset,
    subject: str,
    items: Sequence[Item],
    positions: Sequence[int],
) -> Iterator[Item]:
    """Those of ``items``, which stand at these ``positions`` of the subject, that are among their own shots.

    Only where a question stands in the pool as well are shots looked at.  Raises DataError as :func:`sample`.
    """
    if not protocol.shots or not items:
        return
    pool = dataset.rows(protocol.shot_split or "", subject)
    if protocol.sampler not in STREAMS:  # all items have the same shots
        pool = Items.of(sample(protocol, dataset, subject, range(1))[0])
    asked, shown = Items.of(items).table()["question"], pool.table()["question"]
    for place in np.flatnonzero(pc.is_in(asked, value_set=shown.combine_chunks())).tolist():
        (shots,) = sample(protocol, dataset, subject, positions[place : place + 1])
        if any(is_same(items[place], shot) for shot in shots):
            yield items[place]


def is_same(item: Item, other: Item) -> bool:
    """Whether two items ask the same: question, choices, answer, and every further text of more than one word."""
    return _CONTENT(item) == _CONTENT(other) and _further_texts(item) == _further_texts(other)


@cache
def curated(name: str) -> tuple[Item, ...]:
    """The examples of the set ``name``, in their published order.  Raises DataError if there is no such set."""
    sources = [
        source
        for source in (files("choicewise.protocols") / "curated").iterdir()
        if source.is_dir()
    ]
    sets = {
        f"{source.name}/{file.name.removesuffix('.jsonl')}": file
        for source in sources
        for file in source.iterdir()
    }
    if name not in sets:
        raise DataError(
            f"no set of curated examples is called {name!r}; {did_you_mean(name, sorted(sets))}"
        )
    return tuple(
        _item(json.loads(line)) for line in sets[name].read_text(encoding="utf-8").splitlines()
    )


_drawn_last = BoundedCache[tuple[str, str, int], frozenset[str]](
    1
)  # every block of items asks for it again


def drawn_items(data: Dataset, split: str, seed: int) -> frozenset[str]:
    """The ids of the drawn items of ``split``: those whose hashes with ``seed`` are the smallest of their kind.

    So neither the order of the items nor which of them a run is about changes the draw.
    """
    key = data.digest, split, seed
    if (latest := _drawn_last.get(key)) is None:
        hashes: dict[int, list[tuple[bytes, str]]] = {}
        for item in data.splits.get(split, ()):
            hashes.setdefault(len(item.choices), []).append((draw_hash(seed, item.id), item.id))
        drawn = (sorted(kind)[: max(1, math.floor(_SHARE * len(kind)))] for kind in hashes.values())
        latest = frozenset(id_ for kind in drawn for _, id_ in kind)
        _drawn_last.put(key, latest)
    return latest


def draw_helm(answers: pa.StringArray, count: int, seed: int | None) -> Positions:
    """HELM's ``sample_examples``: one example of each answer in turn, frequent answers first.

    ``answers``: the text of the first right choice of every row of the pool.  Answers with equally many examples are
    shuffled.
    stanford-crfm/helm@cab5d89, src/helm/benchmark/adaptation/adapters/in_context_learning_adapter.py.
    """
    random, coded = Random(seed), answers.dictionary_encode()
    codes = coded.indices.to_numpy()
    sizes = np.bincount(codes)
    alphabetical = pc.sort_indices(
        coded.dictionary
    ).to_numpy()  # by UTF-8, which is Python's order too
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
        if group := groups[answer]:
            chosen.append(group.pop(random.randrange(len(group))))
    return np.array(chosen, dtype=np.int64)


def draw(stream: Stream, items: int, pool: int, count: int, seed: int | None) -> Positions:
    """Rows of a pool of ``pool`` for each of ``items``: ``(items, count + spare)`` positions."""
    random, order = Random(seed), list(range(items))
    if stream.shuffled:
        random.shuffle(order)
    drawn = np.empty((items, count + stream.spare), dtype=np.int64)
    for index in order:
        drawn[index] = random.sample(range(pool), count + stream.spare)
    return drawn


def _chosen(protocol: Protocol, subject: str) -> Shots:
    """The first examples of the curated set that the protocol names; DataError where it has too few."""
    examples = curated((protocol.shot_split or "").replace("{subject}", subject))
    if len(examples) < protocol.shots:
        raise DataError(
            f"the curated set {protocol.shot_split} has {len(examples)} examples, and the protocol asks for "
            f"{protocol.shots} shots; use a protocol file with fewer shots or another sampler"
        )
    return examples[: protocol.shots]


def _further_texts(item: Item) -> set[str]:
    return {text for text in item.fields.values() if " " in text}


def _drawn(items: Iterable[Item], pool: Items, drawn: Positions, count: int) -> list[Shots]:
    """For each item the first ``count`` drawn rows; of spare ones, those that are not the item itself."""
    wanted = np.unique(drawn)
    rows = dict(zip(wanted.tolist(), pool.take(wanted), strict=True))
    shots = []
    for item, positions in zip(items, drawn.tolist(), strict=True):
        spare = len(positions) > count
        others = (
            row for row in map(rows.__getitem__, positions) if not (spare and is_same(item, row))
        )
        shots.append(tuple(islice(others, count)))
    return shots


def _called(subject: str) -> str:
    return f"subject {subject!r}" if subject else "the dataset"


def _pool(protocol: Protocol, dataset: Dataset, subject: str) -> Items:
    split = protocol.shot_split or ""
    pool = dataset.rows(split, subject)
    if protocol.sampler == "first-overall":  # the same rows for every subject
        pool = Items.of(dataset.splits.get(split, ()))
    spare = STREAMS[protocol.sampler].spare if protocol.sampler in STREAMS else 0
    needed = protocol.shots + spare
    advice = "add rows, ask with fewer shots (NAME@shots=N), or use a protocol file with another shot_split"
    if len(pool) < needed:
        raise DataError(
            f"{_called(subject)} has {len(pool)} rows in split {split!r}; {protocol.shots} shots by the sampler "
            f"{protocol.sampler} need {needed}; the dataset's splits are {', '.join(sorted(dataset.splits))}: {advice}"
        )
    if split == protocol.split and not spare:
        raise DataError(
            f"shots from split {split!r}, which is also the one tested, would show answers: {advice}"
        )
    return pool


def _item(row: dict[str, Any]) -> Item:
    fields = {key: value for key, value in row.items() if key not in _KEYS}
    return Item(
        row["id"],
        row["question"],
        tuple(row["choices"]),
        (row["answer"],),
        row.get("subject", ""),
        fields,
    )
