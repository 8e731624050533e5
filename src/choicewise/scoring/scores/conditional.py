"""Scores that set a continuation's log-likelihood against the one it has after a null context.

``null`` holds the same rows as ``observed``, scored after the null context.  Float64 [rows], NaN where either is
missing.
"""

from __future__ import annotations

import numpy as np

from choicewise.scoring.continuations import Continuations
from choicewise.scoring.ragged import Floats
from choicewise.scoring.scores.means import per


def pmi(observed: Continuations, null: Continuations) -> Floats:
    """log P(continuation | context) - log P(continuation | null context), in nats."""
    with np.errstate(invalid="ignore"):  # two impossible continuations have no difference: NaN, missing
        return observed.sums - null.sums


def normalised_pmi(observed: Continuations, null: Continuations) -> Floats:
    """PMI / -log P(continuation | null context): the share of the surprise that the context takes away, at most 1."""
    return per(pmi(observed, null), -null.sums)


def domain_conditional(observed: Continuations, null: Continuations) -> Floats:
    """log P(continuation | null context) alone, in nats: what the choices score without the question."""
    return np.where(np.isnan(observed.sums), np.nan, null.sums)
