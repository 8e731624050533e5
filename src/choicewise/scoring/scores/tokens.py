"""Scores that look at the tokens of a continuation one by one.  All float64 [rows], NaN where missing."""

from __future__ import annotations

import numpy as np

from choicewise.scoring.continuations import Continuations
from choicewise.scoring.ragged import Floats


def arithmetic_mean(observed: Continuations) -> Floats:
    """log of the mean token probability, log (1/n) Σ exp ℓ (Tsvilodub et al. 2024; lm-scorer's mean)."""
    return observed.reduce(np.logaddexp, observed.logprobs) - np.log(np.maximum(observed.counts, 1))


def harmonic_mean(observed: Continuations) -> Floats:
    """log of the harmonic mean token probability, log n - log Σ exp -ℓ (lm-scorer's hmean)."""
    negative = -np.asarray(observed.logprobs, dtype=np.float64)
    return np.log(np.maximum(observed.counts, 1)) - observed.reduce(np.logaddexp, negative)


def least_likely(observed: Continuations) -> Floats:
    """The log-probability of the least likely token, in nats."""
    return observed.reduce(np.minimum, observed.logprobs)


def first(observed: Continuations) -> Floats:
    """The log-probability of the first token, in nats (MediaPipe firstTokenOnly); choices that begin alike tie."""
    scores = np.full(len(observed.text), np.nan)
    seen = observed.counts > 0
    scores[seen] = observed.logprobs[observed.offsets[:-1][seen]]
    return scores


def greedy(observed: Continuations) -> Floats:
    """1 where greedy decoding would produce the continuation (no token has a likelier rival), else 0; NaN unknown."""
    return observed.reduce(np.minimum, np.where(observed.ranks < 0, np.nan, observed.ranks == 0))
