"""Scores that set a continuation's log-likelihood against the one it has after a null context.

``null`` holds the same rows as ``observed``, scored after the null context.  Float64 [rows], NaN where either is
missing.
"""

from __future__ import annotations

import numpy as np

from choicewise.scoring.continuations import Continuations
from choicewise.scoring.ragged import Floats


def pmi(observed: Continuations, null: Continuations) -> Floats:
    """log P(continuation | context) - log P(continuation | null context), in nats."""
    with np.errstate(invalid="ignore"):  # two impossible continuations have no difference: NaN, missing
        return observed.sums - null.sums
