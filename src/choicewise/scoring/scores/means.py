"""Log-likelihood per unit of length.  All in nats per unit, float64 [rows], NaN where missing."""

from __future__ import annotations

import numpy as np

from choicewise.scoring.continuations import Continuations
from choicewise.scoring.ragged import Floats
from choicewise.scoring.scores import lengths


def total(observed: Continuations) -> Floats:
    """log P(continuation | context), not divided by anything."""
    return observed.sums


def token_mean(observed: Continuations) -> Floats:
    """Per scored token; minus the loss a model returns for labels that mask everything else."""
    return per(observed.sums, lengths.tokens(observed))


def byte_mean(observed: Continuations) -> Floats:
    """Per byte of the scored tokens, the leading space counted."""
    return per(observed.sums, lengths.token_bytes(observed))


def byte_mean_bare(observed: Continuations) -> Floats:
    """Per byte of the text without its leading space."""
    return per(observed.sums, lengths.bytes_bare(observed))


def char_mean(observed: Continuations) -> Floats:
    """Per character of the text, the leading space counted."""
    return per(observed.sums, lengths.chars(observed))


def char_mean_bare(observed: Continuations) -> Floats:
    """Per character of the text without its leading space."""
    return per(observed.sums, lengths.chars_bare(observed))


def word_mean(observed: Continuations) -> Floats:
    """Per word between whitespace."""
    return per(observed.sums, lengths.words(observed))


def token_power(observed: Continuations, alpha: float) -> Floats:
    """S / tokens^alpha: the sum at alpha 0, the token mean at alpha 1 (Wu et al. 2016)."""
    return per(observed.sums, lengths.tokens(observed) ** alpha)


def gnmt(observed: Continuations, alpha: float) -> Floats:
    """S / ((5 + tokens) / 6)^alpha, the length penalty of Google's translation system (Wu et al. 2016)."""
    return per(observed.token_sums, ((5 + lengths.tokens(observed)) / 6) ** alpha)


def per(sums: Floats, length: Floats) -> Floats:
    """``sums / length``; NaN where the length is 0, since a mean over nothing must not win."""
    with np.errstate(invalid="ignore"):  # infinite over infinite is NaN, missing
        return np.divide(sums, length, out=np.full(len(sums), np.nan), where=length > 0)
