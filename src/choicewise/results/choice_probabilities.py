"""From the scores of an item's choices to how often each would be chosen."""

import math

import numpy as np
import pyarrow as pa

from choicewise.errors import UsageError
from choicewise.results.human_counts import human_counts
from choicewise.results.measurement import Measurement
from choicewise.scoring.distribution import choice_distribution
from choicewise.scoring.ragged import Floats, reduce_rows, row_of


def links(measured: Measurement, temperature: float) -> tuple[Floats, Floats]:
    """(softmax, winner takes all), both float64 [rows]; NaN for an item with a missing choice.

    Raises UsageError when the temperature is not above 0, or when there are no scores.
    """
    if measured.scores is None:
        raise UsageError(f"{measured.name} reads generated text and has no scores to make probabilities of")
    if not (math.isfinite(temperature) and temperature > 0):
        raise UsageError(f"temperature is {temperature}; it must be above 0 (near 0, the best choice takes all)")
    offsets, scores = measured.evidence.item_offsets, measured.scores
    item = row_of(offsets)
    best = reduce_rows(np.maximum, scores, offsets)[item]
    at_top = np.where(np.isnan(best), np.nan, scores == best)
    return choice_distribution(scores, offsets, temperature), at_top / reduce_rows(np.add, at_top, offsets)[item]


def choice_probabilities(measured: Measurement, temperature: float) -> pa.Table:
    """The table of :meth:`choicewise.results.run.Run.distribution`; UsageError as :func:`links`."""
    softmax, winner = links(measured, temperature)
    people = human_counts(measured.evidence)
    count = np.full(len(softmax), np.nan) if people is None else people
    numbers = {"score": measured.scores, "softmax": softmax, "winner": winner}
    human = pa.array(count, pa.float64(), mask=np.isnan(count))
    return pa.table({**measured.evidence.choices, **numbers, "human": human}, schema=_COLUMNS)


_COLUMNS = pa.schema(
    {"item": pa.string(), "subject": pa.string(), "choice": pa.int16()}
    | dict.fromkeys(("score", "softmax", "winner", "human"), pa.float64())
)
