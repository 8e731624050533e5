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
    """One row per item and choice: ``item, subject, choice, score, softmax, winner, human``.

    ``human`` is the number of people, null where the data gives none.  Raises UsageError for a protocol that reads
    generated text and has no scores.
    """
    softmax, winner = links(measured, temperature)
    evidence = measured.evidence
    item, people = row_of(evidence.item_offsets), human_counts(evidence)
    count = np.full(len(item), np.nan) if people is None else people
    return pa.table(
        {
            "item": pa.array(np.asarray(evidence.ids, dtype=object)[item], pa.string()),
            "subject": pa.array(np.asarray(evidence.subjects, dtype=object)[item], pa.string()),
            "choice": pa.array(np.arange(len(item)) - evidence.item_offsets[:-1][item], pa.int16()),
            "score": pa.array(measured.scores, pa.float64()),
            "softmax": pa.array(softmax, pa.float64()),
            "winner": pa.array(winner, pa.float64()),
            "human": pa.array(count, pa.float64(), mask=np.isnan(count)),
        }
    )
