"""How far a score moves when the log-likelihoods it is made of are off."""

from dataclasses import replace

import numpy as np

from choicewise.scoring.continuations import Continuations
from choicewise.scoring.ragged import Floats, row_of
from choicewise.scoring.scores import Score, tokens, trie

FIXED: dict[str, float] = {**tokens.SENSITIVITY, **trie.SENSITIVITY}
"""Sensitivity of scores that look at single tokens: it can't be computed from an error spread over all tokens."""

_STEP = 1e-3


def sensitivity(name: str, score: Score, observed: Continuations, null: Continuations | None) -> Floats:
    """Units of the score per nat of noise in one token, float64 [rows]; NaN where not known.

    Errors of tokens are independent, so that of a sum over n tokens is √n times that of one: √n for a sum, 1 / √n for a
    mean over tokens, 2 √n for PMI, where both likelihoods can be off.
    """
    if name in FIXED:
        return np.where(observed.counts > 0, FIXED[name], np.nan)
    moved, still = (
        score(_moved(observed, -step), None if null is None else _moved(null, step)) for step in (_STEP, 0.0)
    )
    with np.errstate(invalid="ignore"):  # an impossible continuation stays impossible: not known
        return np.abs(moved - still) / _STEP


def _moved(observed: Continuations, nats: float) -> Continuations:
    """Every continuation with √tokens * ``nats`` more log-likelihood, spread evenly over its tokens; float64."""
    added = nats * np.sqrt(observed.counts)
    step = added / np.maximum(observed.counts, 1)
    moved = observed.logprobs.astype(np.float64) + step[row_of(observed.offsets)]
    # of how many tokens a total without tokens is the sum is not known
    totals = None if observed.totals is None else np.where(observed.counts > 0, observed.totals + added, np.nan)
    return replace(observed, logprobs=moved, totals=totals)  # type: ignore[arg-type]  # float32 would round the step away
