"""Which examples an item is shown before it is asked."""

from collections.abc import Sequence
from itertools import cycle
from operator import attrgetter
from random import Random

from choicewise.data.dataset import Dataset
from choicewise.data.item import Item
from choicewise.errors import DataError
from choicewise.protocols.protocol import Protocol

Shots = tuple[Item, ...]


def sample(protocol: Protocol, dataset: Dataset, subject: str) -> list[Shots]:
    """The shots of every item of ``subject`` in the protocol's split, in file order.

    Always for all items of the subject, so that a limit on the items changes no item's shots.  Raises DataError when
    the subject has no items, or too few rows to draw shots from.
    """
    items = dataset.rows(protocol.split or dataset.evaluated, subject)
    if not items:
        raise DataError(
            f"subject {subject!r} has no rows in split {protocol.split!r}; the dataset's splits are "
            f"{', '.join(sorted(dataset.splits))}: choose another subject, or a protocol file with another split"
        )
    if not protocol.shots:
        return [()] * len(items)
    pool, count = _pool(protocol, dataset, subject), protocol.shots
    if protocol.sampler == "harness-v0":
        return harness_v0(items, pool, count, protocol.seed)
    return [helm(pool, count, protocol.seed) if protocol.sampler == "helm" else pool[:count]] * len(items)


def helm(pool: Sequence[Item], count: int, seed: int | None) -> Shots:
    """HELM's ``sample_examples``: one example of each answer in turn, frequent answers first.

    An answer is the text of the first right choice; answers with equally many examples are shuffled.
    stanford-crfm/helm@cab5d89, src/helm/benchmark/adaptation/adapters/in_context_learning_adapter.py.
    """
    random = Random(seed)
    groups: dict[str, list[Item]] = {}
    for item in pool:
        groups.setdefault(item.choices[item.gold[0]], []).append(item)
    order: list[str] = []
    for size in sorted({len(group) for group in groups.values()}, reverse=True):
        tied = sorted(answer for answer, group in groups.items() if len(group) == size)
        random.shuffle(tied)
        order += tied
    chosen: list[Item] = []
    for answer in cycle(order):
        if len(chosen) == min(count, len(pool)):
            break
        if group := groups[answer]:
            chosen.append(group.pop(random.randrange(len(group))))
    return tuple(chosen)


def harness_v0(items: Sequence[Item], pool: Sequence[Item], count: int, seed: int | None) -> list[Shots]:
    """The early harness: fresh shots for every item, one random stream per subject.

    The items are shuffled; then, in that order, ``count + 1`` rows are drawn for each, the item itself is removed, and
    the first ``count`` are kept.  EleutherAI/lm-evaluation-harness@e47e01b, lm_eval/{evaluator,base}.py.
    """
    random = Random(seed)
    order = list(range(len(items)))
    random.shuffle(order)
    drawn = {index: random.sample(pool, count + 1) for index in order}
    content = attrgetter("question", "choices", "gold")
    return [
        tuple(row for row in drawn[index] if content(row) != content(item))[:count] for index, item in enumerate(items)
    ]


def _pool(protocol: Protocol, dataset: Dataset, subject: str) -> Shots:
    """The rows that shots are drawn from; DataError where they are too few or show answers."""
    split = protocol.shot_split or ""
    pool = dataset.rows(split, subject)
    needed = protocol.shots + (protocol.sampler == "harness-v0")
    advice = "add rows, or use a protocol file with fewer shots or another shot_split"
    if len(pool) < needed:
        raise DataError(
            f"subject {subject!r} has {len(pool)} rows in split {split!r}; {protocol.shots} shots by the sampler "
            f"{protocol.sampler} need {needed}; the dataset's splits are {', '.join(sorted(dataset.splits))}: {advice}"
        )
    if split == protocol.split and protocol.sampler != "harness-v0":
        raise DataError(f"shots from split {split!r}, which is also the one tested, would show answers: {advice}")
    return pool
