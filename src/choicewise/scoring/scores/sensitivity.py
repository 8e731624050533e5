"""How far a score moves when the log-likelihoods it is made of are off."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from choicewise.scoring.continuations import Continuations
from choicewise.scoring.ragged import Floats, row_of
from choicewise.scoring.scores.score import Score

WHOLE: dict[str, float] = {
    "first_token": 1.0,
    "first_divergent": 1.0,
    "least_likely": 1.0,
    "arithmetic_mean": 1.0,
    "harmonic_mean": 1.0,
    "locally_renormalised": 2.0,
    "greedy": np.nan,
    "constrained_greedy": np.nan,
}
"""Scores that do not depend on a continuation as a whole: where one token can carry all of the error, where the other
choices have a share in it (2), and where a yes or no has no size (NaN)."""

_STEP = 1e-3


def sensitivity(name: str, score: Score, observed: Continuations, null: Continuations | None) -> Floats:
    """Units of the score per nat of error in a continuation's log-likelihood, float64 [rows]; NaN where not known.

    1 for a sum, 1 / tokens for a mean over tokens, 2 for PMI, where both likelihoods can be off.
    """
    if name in WHOLE:
        return np.where(observed.counts > 0, WHOLE[name], np.nan)
    moved = score(_moved(observed, -_STEP), None if null is None else _moved(null, _STEP))
    with np.errstate(invalid="ignore"):  # an impossible continuation stays impossible: not known
        return np.abs(moved - score(_moved(observed, 0.0), None if null is None else _moved(null, 0.0))) / _STEP


def _moved(observed: Continuations, nats: float) -> Continuations:
    """Every continuation less or more likely by ``nats``, spread evenly over its tokens; float64."""
    step = nats / np.maximum(observed.counts, 1)
    moved = observed.logprobs.astype(np.float64) + step[row_of(observed.offsets)]
    totals = None if observed.totals is None else observed.totals + nats
    return replace(observed, logprobs=moved, totals=totals)  # type: ignore[arg-type]  # float32 would round the step away
