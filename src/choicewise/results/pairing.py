"""The items that measurements share, so that they can be compared one by one."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from choicewise.scoring.ragged import Floats, Integers


class Decided(Protocol):
    """What a protocol decided of every item: a measurement, or what is kept of one."""

    @property
    def ids(self) -> pa.ChunkedArray:
        """The items' ids."""

    @property
    def subjects(self) -> list[str]:
        """The subject of every item."""

    @property
    def credit(self) -> Floats:
        """The credit of every item, NaN where it is missing."""

    @property
    def prediction(self) -> Integers:
        """The predicted choice of every item, -1 for none."""


def same_items(one: Decided, other: Decided) -> bool:
    """Whether both have the same items in the same order."""
    return one.ids is other.ids or one.ids.equals(other.ids)


def shared_items(measured: Sequence[Decided]) -> tuple[pa.ChunkedArray, list[Integers]]:
    """The ids of the items all of ``measured`` hold, in the order of the first, and where each measurement has them."""
    first = measured[0]
    if all(same_items(first, each) for each in measured):  # the usual case, and quick
        return first.ids, [np.arange(len(first.ids))] * len(measured)
    places = [pc.fill_null(pc.index_in(first.ids, each.ids), -1).to_numpy().astype(np.int64) for each in measured]
    shared = np.flatnonzero(np.all([place >= 0 for place in places], axis=0))
    return first.ids.take(pa.array(shared)), [place[shared] for place in places]


def paired_credits(measured: Sequence[Decided]) -> tuple[list[str], Floats]:
    """The subjects and credits of the shared items, the latter float64 [measured, items] with NaN for missing."""
    _, places = shared_items(measured)
    credits = [each.credit[place] for each, place in zip(measured, places, strict=True)]
    subjects = measured[0].subjects
    return [subjects[place] for place in places[0].tolist()], np.array(credits).reshape(len(measured), -1)


def paired_predictions(measured: Sequence[Decided]) -> Integers:
    """The predictions for the shared items, int64 [measured, items] with -1 for none."""
    _, places = shared_items(measured)
    predictions = [each.prediction[place] for each, place in zip(measured, places, strict=True)]
    return np.array(predictions).reshape(len(measured), -1)
