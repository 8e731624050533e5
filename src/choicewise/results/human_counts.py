"""How many people chose each choice, where the data says so."""

import json
import math
from typing import Any

import numpy as np

from choicewise.errors import DataError
from choicewise.results.evidence import Evidence
from choicewise.scoring.ragged import Floats

FIELD = "human_counts"
"""The field of an item that holds the counts, a JSON list in the order of the choices."""


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
    return [json.loads(fields) for fields in evidence.about["fields"].to_pylist()]


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
