"""Every item of a dataset in a line: how many protocols get it right, and which ones."""

from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from choicewise.results.item_table import item_batches
from choicewise.scoring.ragged import Integers, Mask
from choicewise.web.number import shortened
from choicewise.web.study import ShownRun

QUESTION = 72
"""Characters of a question that stand in the list."""


@dataclass(frozen=True)
class Answered:
    """What one run answered: ``right`` and ``measured``, bool [protocols, items] in the order of the index."""

    protocols: tuple[str, ...]
    right: Mask
    measured: Mask

    @cached_property
    def rights(self) -> Integers:
        """Protocols under which each item is right, int64 [items]."""
        return np.asarray(self.right.sum(axis=0), dtype=np.int64)

    @cached_property
    def measures(self) -> Integers:
        """Protocols under which each item was scored, int64 [items]."""
        return np.asarray(self.measured.sum(axis=0), dtype=np.int64)

    @property
    def flips(self) -> Integers:
        """Protocols in the minority about each item, int64 [items]: 0 where all agree whether it is right."""
        return np.minimum(self.rights, self.measures - self.rights)


@dataclass(frozen=True)
class ItemIndex:
    """The items that ``runs`` on one dataset asked, in the order of the data; ``answered`` has an entry per run."""

    ids: tuple[str, ...]
    subjects: tuple[str, ...]
    questions: tuple[str, ...]
    golds: tuple[tuple[int, ...], ...]
    answered: tuple[Answered, ...]

    @cached_property
    def flips(self) -> Integers:
        """The flips of all runs together, int64 [items]."""
        return np.sum([each.flips for each in self.answered], axis=0, dtype=np.int64)

    @cached_property
    def order(self) -> list[int]:
        """Places of the items, those that flip most first."""
        return [int(place) for place in np.argsort(-self.flips, kind="stable")]


def index_items(runs: Sequence[ShownRun]) -> ItemIndex:
    """The index of the items of ``runs``, which are about one dataset."""
    about: dict[str, tuple[str, str, tuple[int, ...]]] = {}
    for run in runs:
        asked = pa.array(sorted(_asked(run) - about.keys()), pa.string())
        for batch in item_batches(run.folder, ("item", "subject", "question", "gold")) if len(asked) else ():
            for row in batch.filter(pc.is_in(batch["item"], asked)).to_pylist():
                about.setdefault(row["item"], (row["subject"], row["question"], tuple(row["gold"])))
    ids = pa.array(about, pa.string())
    return ItemIndex(
        tuple(about),
        tuple(subject for subject, _, _ in about.values()),
        tuple(shortened(" ".join(question[: 4 * QUESTION].split()), QUESTION) for _, question, _ in about.values()),
        tuple(gold for _, _, gold in about.values()),
        tuple(_answered(run, ids) for run in runs),
    )


def packed(items: Mask) -> str:
    """A bit per item, the first one the highest of the first byte, in base64."""
    return b64encode(np.packbits(items).tobytes()).decode()


def _asked(run: ShownRun) -> set[str]:
    tables = {id(each.items): each.items for each in run.outcomes.outcomes}
    return {item for table in tables.values() for item in table["item"].to_pylist()}


def _answered(run: ShownRun, ids: pa.Array) -> Answered:
    outcomes = run.outcomes.outcomes
    right = np.zeros((len(outcomes), len(ids)), dtype=np.bool_)
    measured = np.zeros_like(right)
    places: dict[int, Integers] = {}
    for number, each in enumerate(outcomes):
        if id(each.items) not in places:
            places[id(each.items)] = pc.index_in(each.ids.combine_chunks(), ids).to_numpy().astype(np.int64)
        at = places[id(each.items)]
        right[number, at] = (each.values > 0.5)[each.codes]  # NaN is not greater
        measured[number, at] = (~np.isnan(each.values))[each.codes]
    return Answered(tuple(each.name for each in outcomes), right, measured)
