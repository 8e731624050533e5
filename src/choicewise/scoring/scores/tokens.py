"""Scores that look at the tokens of a continuation one by one.  All float64 [rows], NaN where missing."""

import numpy as np

from choicewise.questions import UNKNOWN
from choicewise.scoring.continuations import Continuations
from choicewise.scoring.ragged import Floats

SENSITIVITY = {
    "arithmetic_mean": 1.0,
    "harmonic_mean": 1.0,
    "least_likely": 1.0,
    "first_token": 1.0,
    "greedy": np.nan,
}
"""Units of the score per nat of error in the log-likelihood, all of which one token can carry; NaN for a yes or no."""


def arithmetic_mean(observed: Continuations) -> Floats:
    """log of the mean token probability, log (1/n) Σ exp ℓ (Tsvilodub et al. 2024; lm-scorer's mean)."""
    return observed.reduce(np.logaddexp, observed.logprobs) - np.log(np.maximum(observed.counts, 1))


def harmonic_mean(observed: Continuations) -> Floats:
    """log of the harmonic mean token probability, log n - log Σ exp -ℓ (lm-scorer's hmean)."""
    negative = -np.asarray(observed.logprobs, dtype=np.float64)
    return np.log(np.maximum(observed.counts, 1)) - observed.reduce(np.logaddexp, negative)


def least_likely(observed: Continuations) -> Floats:
    """min log P(token), in nats: the weakest link of the continuation."""
    return observed.reduce(np.minimum, observed.logprobs)


def first_token(observed: Continuations) -> Floats:
    """log P(first token), in nats (MediaPipe firstTokenOnly); choices with the same first token tie."""
    scores = np.full(len(observed.text), np.nan)
    present = observed.counts > 0
    scores[present] = observed.logprobs[observed.offsets[:-1][present]]
    return scores


def greedy(observed: Continuations) -> Floats:
    """1 where every token is the most likely one, so that greedy decoding produces the continuation, else 0.

    NaN where a rank is not known (lm-evaluation-harness exact_match).
    """
    greedy = observed.reduce(np.minimum, np.where(observed.ranks == UNKNOWN, np.nan, observed.ranks == 0))
    return greedy if observed.all_greedy is None else np.where(observed.counts > 0, greedy, observed.all_greedy)
