"""Do longer choices score better or worse, whatever they say?"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from choicewise.scoring.ragged import Floats, Integers
from choicewise.scoring.statistics.spearman import spearman_rho


def length_correlation(scores: Floats, lengths: Floats, items: Integers) -> float:
    """Mean over items of Spearman's correlation between score and length among the item's choices.

    All choices are compared within their item, never across items.  Items with a missing choice, or whose choices all
    have the same length or score, say nothing and are left out; NaN when none is left.
    """
    rhos = (spearman_rho(scores[a:b], lengths[a:b]) for a, b in pairwise(items) if b > a and _known(scores[a:b]))
    known = [rho for rho in rhos if not np.isnan(rho)]
    return float(np.mean(known)) if known else float("nan")


def _known(scores: Floats) -> bool:
    return not bool(np.isnan(scores).any())
