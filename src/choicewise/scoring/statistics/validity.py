"""Signs that an accuracy does not measure what it seems to."""

import math
from dataclasses import dataclass

import numpy as np

from choicewise.scoring.credits import guess
from choicewise.scoring.decisions import Decisions
from choicewise.scoring.ragged import Floats, Integers, Mask
from choicewise.scoring.statistics.clustered import standard_error

HALF = 0.5
"""Below so much probability an item's labels hold little of it."""


@dataclass(frozen=True, slots=True)
class Validity:
    """Checks of one protocol's decisions that need no model call.

    ``chance``: expected accuracy of guessing evenly.  ``at_chance``: the accuracy is within one standard error of it.
    ``constant``: every prediction is the same position.  ``most_common``: the greatest share any position has among
    the predictions.  ``tie_rate``: share of scored items with a tie at the top.  NaN and False without scored items.
    """

    chance: float
    at_chance: bool
    constant: bool
    most_common: float
    tie_rate: float


def validity(decisions: Decisions, item_offsets: Integers, gold: Mask, metric: str = "acc") -> Validity:
    """The checks of one protocol's decisions; ``gold``: which rows are right choices, bool [rows].

    Items with one choice can't be guessed, nor predicted otherwise.
    """
    scored = ~decisions.missing
    credit = decisions.credit[scored]
    if not len(credit):
        return Validity(math.nan, False, False, math.nan, math.nan)
    chance = float(guess(item_offsets, gold, metric)[scored].mean())
    near = len(credit) < 2 or abs(float(credit.mean()) - chance) <= standard_error(credit)
    at_chance = near and not math.isnan(chance)
    predicted = decisions.prediction[decisions.prediction >= 0]
    most_common = float(np.bincount(predicted).max() / len(predicted)) if len(predicted) else math.nan
    constant = most_common == 1.0 and len(predicted) > 1 and bool((np.diff(item_offsets) > 1).any())
    return Validity(chance, at_chance, constant, most_common, float(decisions.tied[scored].mean()))


def low_mass_rate(mass: Floats, threshold: float = HALF) -> float:
    """Share of items whose choices hold less than ``threshold`` of the model's probability (``option_mass`` [items]).

    Where it is high the model prefers to say something else, and the order of the choices says little.
    """
    known = mass[~np.isnan(mass)]
    return float((known < threshold).mean()) if len(known) else math.nan
