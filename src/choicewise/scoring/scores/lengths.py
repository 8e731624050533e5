"""How long a continuation is: the denominators that published normalisations disagree about."""

from collections.abc import Callable

import numpy as np

from choicewise.scoring.continuations import Continuations
from choicewise.scoring.ragged import Floats


def bare(text: str) -> str:
    """``text`` without the one space that separates it from its context; further spaces belong to the choice."""
    return text.removeprefix(" ")


def tokens(observed: Continuations) -> Floats:
    """Scored tokens, float64 [rows]; 0 where missing, NaN where not known."""
    counts, given = observed.counts.astype(np.float64), observed.token_counts
    if observed.totals is None:
        return counts
    unseen = (counts == 0) & ~np.isnan(observed.totals)
    return np.where(unseen, np.nan if given is None else given, counts)


def token_bytes(observed: Continuations) -> Floats:
    """Bytes of the scored tokens, the leading space counted, float64 [rows]; NaN where missing.

    Of rows observed without tokens, bytes of the text, which its tokens spell.
    """
    sizes = observed.reduce(np.add, observed.sizes)
    if observed.totals is None:
        return sizes
    spelled = _measured(observed, lambda text: len(text.encode(errors="surrogatepass")))
    return np.where((observed.counts == 0) & ~np.isnan(observed.totals), spelled, sizes)


def bytes_bare(observed: Continuations) -> Floats:
    """UTF-8 bytes of the text without its leading space, float64 [rows]; NaN where it is not known, also below."""
    return _measured(observed, lambda text: len(bare(text).encode()))


def chars(observed: Continuations) -> Floats:
    """Characters (code points) of the text, the leading space counted, float64 [rows]."""
    return _measured(observed, lambda text: len(text))


def chars_bare(observed: Continuations) -> Floats:
    """Characters (code points) of the text without its leading space, float64 [rows]."""
    return _measured(observed, lambda text: len(bare(text)))


def words(observed: Continuations) -> Floats:
    """Runs of text between whitespace, float64 [rows]; the leading space makes none, and Chinese is one word."""
    return _measured(observed, lambda text: len(text.split()))


def _measured(observed: Continuations, length: Callable[[str], int]) -> Floats:
    """``length`` of every text, float64 [rows]; NaN where the text is not known."""
    return np.array([np.nan if text is None else length(text) for text in observed.text], dtype=np.float64)
