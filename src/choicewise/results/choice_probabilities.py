"""How often each choice would be chosen, from the scores, and how many people chose it, where the data says so."""

import json
import math
from typing import Any

import numpy as np
import pyarrow as pa

from choicewise.errors import DataError, UsageError
from choicewise.results.evidence import Evidence
from choicewise.results.measurement import Measurement
from choicewise.scoring.distribution import choice_distribution
from choicewise.scoring.ragged import Floats, reduce_rows, row_of

FIELD = "human_counts"
"""The field of an item that holds the counts, a JSON list in the order of the choices."""


def links(measured: Measurement, temperature: float) -> tuple[Floats, Floats]:
    """(softmax, winner takes all), both float64 [rows]; NaN for an item with a missing choice.

    An item with a choice that is known as an upper bound alone has no softmax, and a winner where that is sure.

    Raises UsageError when the temperature is not above 0, or when there are no scores.
    """
    if measured.scores is None:
        raise UsageError(f"{measured.name} reads generated text and has no scores to make probabilities of")
    if not (math.isfinite(temperature) and temperature > 0):
        raise UsageError(f"temperature is {temperature}; it must be above 0 (near 0, the best choice takes all)")
    offsets, scores, low = measured.evidence.item_offsets, measured.known_scores, measured.low_scores
    assert scores is not None
    assert low is not None
    item = row_of(offsets)
    best = reduce_rows(np.maximum, low, offsets)[item]
    undecided = (measured.decisions.missing & measured.unlisted)[item]
    at_top = np.where(np.isnan(best) | undecided, np.nan, low == best)
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


def human_counts(evidence: Evidence) -> Floats | None:
    """How many people chose each choice, float64 [rows], NaN for items without counts; None when no item has any.

    Raises DataError naming the item whose counts do not match its choices.
    """
    people = np.full(int(evidence.item_offsets[-1]), np.nan)
    for place, (item, fields) in enumerate(zip(evidence.ids, item_fields(evidence), strict=True)):
        if FIELD in fields:
            start, end = evidence.item_offsets[place], evidence.item_offsets[place + 1]
            people[start:end] = _counts(item, fields[FIELD], int(end - start))
    return None if np.isnan(people).all() else people


def item_fields(evidence: Evidence) -> list[dict[str, str]]:
    """The further fields of every item."""
    return [json.loads(fields) for fields in evidence.fields()]


def _counts(item: str, text: str, choices: int) -> list[float]:
    where = f"item {item}: {FIELD} is {text[:60]!r}"
    try:
        counts = json.loads(text)
    except ValueError as error:
        raise DataError(f"{where}, which is no JSON list; write one count per choice, as in [3, 7]") from error
    numbers: list[Any] = counts if isinstance(counts, list) else [None]
    if not all(type(number) in (int, float) and math.isfinite(number) and number >= 0 for number in numbers):
        raise DataError(f"{where}; it must be a list of counts, none below 0, as in [3, 7]")
    if len(counts) != choices:
        raise DataError(f"{where}: {len(counts)} counts for {choices} choices; give one count per choice")
    return [float(count) for count in counts]
