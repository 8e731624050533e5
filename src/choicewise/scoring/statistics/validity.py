"""Signs that an accuracy does not measure what it seems to."""

import math
from dataclasses import dataclass

import numpy as np

from choicewise.scoring.credits import guess
from choicewise.scoring.decisions import Decisions
from choicewise.scoring.ragged import Floats, Integers, Mask, reduce_rows
from choicewise.scoring.statistics.clustered import standard_error
from choicewise.scoring.statistics.position_bias import SIGNIFICANT, constant_p

HALF = 0.5
"""Below so much probability an item's labels hold little of it."""


@dataclass(frozen=True, slots=True)
class Validity:
    """Checks of one protocol's decisions that need no model call.

    ``chance``: expected accuracy of guessing evenly.  ``at_chance``: the accuracy is within one standard error of it.
    ``constant``: every prediction is the same position, which a model without a preference would do with p < 0.01
    (:func:`~.position_bias.constant_p`).  ``most_common``: the greatest share any position has among
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
    known = decisions.prediction >= 0
    predicted = decisions.prediction[known]
    most_common = float(np.bincount(predicted).max() / len(predicted)) if len(predicted) else math.nan
    choices, right = np.diff(item_offsets)[known], reduce_rows(np.add, gold, item_offsets)[known]
    hit = gold[item_offsets[:-1][known] + predicted]
    constant = most_common == 1.0 and constant_p(choices, right, hit) < SIGNIFICANT
    return Validity(chance, at_chance, constant, most_common, float(decisions.tied[scored].mean()))


def guessing_p(credit: Floats, chance: Floats) -> float:
    """At most how likely guessing gives as much ``credit``; ``chance``: of each item, float64 [items] both.

    The tail of a binomial distribution of the same mean: that of items with different chances is no heavier (Hoeffding
    1956).  A part of a right answer counts for nothing; NaN without items, or where an item can't be guessed.
    """
    if not len(credit) or np.isnan(chance).any():
        return math.nan
    from scipy.special import bdtrc

    right = math.floor(float(credit.sum()) + 1e-9)
    return float(bdtrc(right - 1, len(credit), float(chance.mean()))) if right else 1.0


def low_mass_rate(mass: Floats, threshold: float = HALF) -> float:
    """Share of items whose choices hold less than ``threshold`` of the model's probability (``option_mass`` [items]).

    Where it is high the model prefers to say something else, and the order of the choices says little.
    """
    known = mass[~np.isnan(mass)]
    return float((known < threshold).mean()) if len(known) else math.nan
