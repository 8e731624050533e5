"""The log-likelihood S = log P(continuation | context), and S per unit of length.

All in nats (per unit), float64 [rows], NaN where missing.
"""

import numpy as np

from choicewise.scoring.continuations import Continuations
from choicewise.scoring.ragged import Floats
from choicewise.scoring.scores import lengths


def sum(observed: Continuations) -> Floats:
    """S, not divided by anything (lm-evaluation-harness acc; Hendrycks et al. 2021)."""
    return observed.sums


def token_mean(observed: Continuations) -> Floats:
    """S / scored tokens (Brown et al. 2020, GPT-3, section 2.4).

    Minus the loss that a model returns when the labels mask everything else.
    """
    return per(observed.sums, lengths.tokens(observed))


def byte_mean(observed: Continuations) -> Floats:
    """S / bytes of the scored tokens, the leading space counted (Gao 2021, blog.eleuther.ai)."""
    return per(observed.sums, lengths.token_bytes(observed))


def byte_mean_bare(observed: Continuations) -> Floats:
    """S / bytes of the text without its leading space (lm-evaluation-harness acc_bytes, PR 3368)."""
    return per(observed.sums, lengths.bytes_bare(observed))


def char_mean(observed: Continuations) -> Floats:
    """S / characters of the text, the leading space counted (Gu et al. 2024, OLMES acc_per_char)."""
    return per(observed.sums, lengths.chars(observed))


def char_mean_bare(observed: Continuations) -> Floats:
    """S / characters of the text without its leading space (lm-evaluation-harness acc_norm)."""
    return per(observed.sums, lengths.chars_bare(observed))


def word_mean(observed: Continuations) -> Floats:
    """S / words between whitespace (the unit of lm-evaluation-harness word_perplexity)."""
    return per(observed.sums, lengths.words(observed))


def token_power(observed: Continuations, alpha: float) -> Floats:
    """S / tokens^alpha: the sum at alpha 0, the token mean at alpha 1 (Wu et al. 2016)."""
    return per(observed.sums, lengths.tokens(observed) ** alpha)


def gnmt(observed: Continuations, alpha: float) -> Floats:
    """S / ((5 + tokens) / 6)^alpha, the length penalty of Google's translation system (Wu et al. 2016)."""
    return per(observed.sums, ((5 + lengths.tokens(observed)) / 6) ** alpha)


def per(sums: Floats, length: Floats) -> Floats:
    """``sums / length``; NaN where the length is 0, because a mean over nothing must not win."""
    with np.errstate(invalid="ignore"):  # infinite over infinite is NaN, missing
        return np.divide(sums, length, out=np.full(len(sums), np.nan), where=length > 0)
