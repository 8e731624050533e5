"""Scores that compare a continuation's log-likelihood S with the one it has after a null context.

``null`` holds the same rows as ``observed``, scored after the null context.  Float64 [rows], NaN where either is
missing.
"""

import numpy as np

from choicewise.scoring.continuations import Continuations
from choicewise.scoring.ragged import Floats
from choicewise.scoring.scores.means import per


def pmi(observed: Continuations, null: Continuations) -> Floats:
    """S(context) - S(null context), in nats (Brown et al. 2020; OLMES acc_uncond)."""
    with np.errstate(invalid="ignore"):  # two impossible continuations have no difference: NaN, missing
        return observed.sums - null.sums


dc_pmi = pmi
"""PMI with a domain premise as the null context: S(context) - S(domain premise) (Holtzman et al. 2021, DC-PMI)."""


def normalised_pmi(observed: Continuations, null: Continuations) -> Floats:
    """PMI / -S(null context), at most 1: the share of surprisal that the context removes (Cho et al. 2025, ANPMI)."""
    return per(pmi(observed, null), -null.sums)


def domain_conditional(observed: Continuations, null: Continuations) -> Floats:
    """S(domain premise) alone, in nats: the choices without the question (Holtzman et al. 2021, baseline)."""
    return np.where(np.isnan(observed.sums), np.nan, null.sums)
