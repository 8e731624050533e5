"""Signs that an accuracy does not measure what it seems to."""

import math
from dataclasses import dataclass

import numpy as np

from choicewise.scoring.decisions import Decisions
from choicewise.scoring.ragged import Floats, Integers, Mask, reduce_rows


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


def validity(decisions: Decisions, item_offsets: Integers, gold: Mask) -> Validity:
    """The checks of one protocol's decisions; ``gold`` bool [rows], of which item i has
    ``item_offsets[i]:item_offsets[i + 1]``."""
    scored = ~decisions.missing
    n = int(scored.sum())
    if not n:
        return Validity(math.nan, False, False, math.nan, math.nan)
    credit = decisions.credit[scored]
    chance = float((reduce_rows(np.add, gold, item_offsets) / np.diff(item_offsets))[scored].mean())
    se = float(credit.std(ddof=1)) / math.sqrt(n) if n > 1 else math.inf
    predicted = decisions.prediction[decisions.prediction >= 0]
    most_common = float(np.bincount(predicted).max() / len(predicted)) if len(predicted) else math.nan
    return Validity(
        chance=chance,
        at_chance=abs(float(credit.mean()) - chance) <= se,
        constant=most_common == 1.0 and len(predicted) > 1,
        most_common=most_common,
        tie_rate=float(decisions.tied[scored].mean()),
    )


def low_mass_rate(mass: Floats, threshold: float = 0.5) -> float:
    """Share of items whose choices hold less than ``threshold`` of the model's probability (``option_mass`` [items]).

    Where it is high the model prefers to say something else, and the order of the choices says little.
    """
    known = mass[~np.isnan(mass)]
    return float((known < threshold).mean()) if len(known) else math.nan
