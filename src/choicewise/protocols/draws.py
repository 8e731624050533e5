"""Published random draws (harness, HELM), option orders."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import cycle, permutations
from random import Random
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import pyarrow as pa

Positions = npt.NDArray[np.int64]
"""Which rows of a pool, counted from 0."""


def draw_helm(answers: pa.StringArray, count: int, seed: int | None) -> Positions:
    """HELM's ``sample_examples``: one example of each answer in turn, frequent answers first.

    ``answers``: the text of the first right choice of every row of the pool.  Answers with equally many examples are
    shuffled.
    stanford-crfm/helm@cab5d89, src/helm/benchmark/adaptation/adapters/in_context_learning_adapter.py.
    """
    import pyarrow.compute as pc

    random, coded = Random(seed), answers.dictionary_encode()
    codes = coded.indices.to_numpy()
    sizes = np.bincount(codes)
    alphabetical = pc.sort_indices(coded.dictionary).to_numpy()  # by UTF-8, which is Python's order too
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


@dataclass(frozen=True, slots=True)
class Stream:
    """One random stream of a task: new examples for every item, drawn in the order in which the items are asked.

    ``shuffled``: whether the items are shuffled first, by the same stream.  ``spare``: how many rows more than asked
    for are drawn, so that the item itself can be left out.
    """

    shuffled: bool
    spare: int


Order = tuple[int, ...]
"""For every label the option that stands under it."""


def _given(options: int, drawn: bool) -> list[Order]:
    return [tuple(range(options))]


def _cyclic(options: int, drawn: bool) -> list[Order]:
    return [tuple((turn + label) % options for label in range(options)) for turn in range(options)]


STREAMS: Mapping[str, Stream] = {
    "harness-v0": Stream(shuffled=True, spare=1),
    "harness-v0-train": Stream(shuffled=True, spare=0),
    "harness": Stream(shuffled=False, spare=0),
    "harness-spare": Stream(shuffled=False, spare=1),
}
"""Every sampler of the harness by name.

``harness-v0``: 2023, tasks without training rows.  ``harness-v0-train``: 2023, tasks with them
(EleutherAI/lm-evaluation-harness@e47e01b and @b281b09, lm_eval/{evaluator,base}.py; seed 42).
``harness``: today, tasks that name a test split.  ``harness-spare``: today, tasks that name neither a test split nor
one for shots, or the same for both; the two are compared, and None equals None, so that one row more is drawn for
HellaSwag or PIQA, although their shots come from train (@4e7e0d4, lm_eval/api/{samplers,task}.py; seed 1234).

The harness has one stream per task; here there is one per subject, which is the same where a task has one subject.
Today's harness run on several processes has one stream in each, and so other shots; these are those of one process.
"""

CONTENT_FREE = ("N/A", "", "[MASK]")
"""Texts that say nothing, in place of the question and of every option (Zhao et al. 2021)."""

MOST = 4
"""Options at most that are shown in every order: there are 24 of 4, and 120 of 5."""

VIEWS: Mapping[str, Callable[[int, bool], list[Order]]] = {
    "given": _given,
    "cyclic": _cyclic,
    "cyclic-5%": lambda options, drawn: (_cyclic if drawn else _given)(options, drawn),
    "full": lambda options, drawn: list(permutations(range(options))),
    "content-free": _given,
}
"""Name → the orders of so many options, for an item that is drawn or not; the first is the order as given.

``content-free`` shows the ``CONTENT_FREE`` texts besides.
"""

DRAWING = ("cyclic-5%",)
"""Views that draw items at random, and need a seed."""

PERMUTED = ("cyclic", "full")
"""Views that show every item in several orders of its options."""

CALIBRATIONS: Mapping[str, tuple[str, ...]] = {
    "none": tuple(VIEWS),
    "batch": tuple(VIEWS),
    "contextual": ("content-free",),
    "pride": ("cyclic", "cyclic-5%"),
    "permutation": PERMUTED,
}
"""What is made of the labels' probabilities → the views that it can be made of."""
