"""The items on which two measurements differ: in what they decide, and in their scores."""

import math
from dataclasses import dataclass

import numpy as np

from choicewise.results.measurement import Measurement
from choicewise.results.pairing import paired_credits, paired_predictions, shared_items
from choicewise.scoring.ragged import Integers


@dataclass(frozen=True, slots=True)
class Flips:
    """Shared items by whose credit is greater, and by whether the predictions differ at all.

    ``near_ties``: items predicted differently that numeric noise leaves open on either side; None: not known.
    """

    left_better: int
    right_better: int
    predicted_differently: int
    near_ties: int | None
    shared: int
    left_only: int
    right_only: int


def flips(pair: tuple[Measurement, Measurement]) -> Flips:
    """The shared items on which the two measurements decide differently."""
    ids, places = shared_items(pair)
    left, right = paired_predictions(pair)
    _, credits = paired_credits(pair)
    different = (left >= 0) & (right >= 0) & (left != right)
    noisy = pair[0].near_ties[places[0]] | pair[1].near_ties[places[1]]
    masks = (credits[0] > credits[1], credits[0] < credits[1], different, different & noisy)
    bounded = all(side.bounded[place].all() for side, place in zip(pair, places, strict=True))
    left_better, right_better, changed, near_ties = (int(mask.sum()) for mask in masks)
    left_only, right_only = (len(side.ids) - len(ids) for side in pair)
    return Flips(left_better, right_better, changed, near_ties if bounded else None, len(ids), left_only, right_only)


def movement(pair: tuple[Measurement, Measurement]) -> tuple[float, int | None]:
    """The largest difference of a score, and how many shared items have any; NaN and None where there are no scores.

    Scores of different protocols are not comparable: NaN and None as well.
    """
    left, right = (each.known_scores for each in pair)
    if left is None or right is None or pair[0].protocol != pair[1].protocol:
        return math.nan, None
    _, places = shared_items(pair)
    offsets = [each.evidence.item_offsets for each in pair]
    counts = [np.diff(each)[place] for each, place in zip(offsets, places, strict=True)]
    alike = counts[0] == counts[1]
    rows = [_rows(own[:-1][place[alike]], counts[0][alike]) for own, place in zip(offsets, places, strict=True)]
    one, other = left[rows[0]], right[rows[1]]
    with np.errstate(invalid="ignore"):  # equal infinities do not differ
        differences = np.where(one == other, 0.0, np.abs(one - other))
    known = differences[~np.isnan(differences)]
    moved = ~((one == other) | (np.isnan(one) & np.isnan(other)))
    item = np.repeat(np.arange(alike.sum()), counts[0][alike])
    return float(known.max()) if len(known) else math.nan, len(np.unique(item[moved])) + int((~alike).sum())


def _rows(starts: Integers, counts: Integers) -> Integers:
    """The rows of items that begin at ``starts`` and have so many each."""
    return np.repeat(starts - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())
