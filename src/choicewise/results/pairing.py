"""The items that measurements share, so that they can be compared one by one."""

from collections.abc import Sequence

import numpy as np

from choicewise.results.measurement import Measurement
from choicewise.scoring.ragged import Floats, Integers


def shared_items(measured: Sequence[Measurement]) -> tuple[list[str], list[Integers]]:
    """The items all of ``measured`` hold, in the order of the first, and where each measurement has them."""
    every = [each.evidence.ids for each in measured]
    if all(ids == every[0] for ids in every):  # the usual case, and quick
        return every[0], [np.arange(len(every[0]))] * len(measured)
    places = [{item: place for place, item in enumerate(ids)} for ids in every]
    shared = [item for item in every[0] if all(item in place for place in places)]
    return shared, [np.array([place[item] for item in shared], dtype=np.int64) for place in places]


def paired_credits(measured: Sequence[Measurement]) -> tuple[list[str], Floats]:
    """The subjects and credits of the shared items, the latter float64 [measured, items] with NaN for missing."""
    _, places = shared_items(measured)
    credits = [each.decisions.credit[place] for each, place in zip(measured, places, strict=True)]
    return [measured[0].evidence.subjects[place] for place in places[0]], np.array(credits).reshape(len(measured), -1)


def paired_predictions(measured: Sequence[Measurement]) -> Integers:
    """The predictions for the shared items, int64 [measured, items] with -1 for none."""
    _, places = shared_items(measured)
    predictions = [each.decisions.prediction[place] for each, place in zip(measured, places, strict=True)]
    return np.array(predictions).reshape(len(measured), -1)
