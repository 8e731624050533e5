"""How long a continuation is: the denominators that published normalisations disagree about."""

import numpy as np

from choicewise.scoring.continuations import Continuations
from choicewise.scoring.ragged import Floats


def bare(text: str) -> str:
    """``text`` without the one space that separates it from its context; further spaces belong to the choice."""
    return text.removeprefix(" ")


def tokens(observed: Continuations) -> Floats:
    """Scored tokens, float64 [rows]."""
    return observed.counts.astype(np.float64)


def token_bytes(observed: Continuations) -> Floats:
    """Bytes of the scored tokens, the leading space counted, float64 [rows]; NaN where missing."""
    return observed.reduce(np.add, observed.sizes)


def bytes_bare(observed: Continuations) -> Floats:
    """UTF-8 bytes of the text without its leading space, float64 [rows]."""
    return np.array([len(bare(text).encode()) for text in observed.text], dtype=np.float64)


def chars(observed: Continuations) -> Floats:
    """Characters (code points) of the text, the leading space counted, float64 [rows]."""
    return np.array([len(text) for text in observed.text], dtype=np.float64)


def chars_bare(observed: Continuations) -> Floats:
    """Characters (code points) of the text without its leading space, float64 [rows]."""
    return np.array([len(bare(text)) for text in observed.text], dtype=np.float64)


def words(observed: Continuations) -> Floats:
    """Runs of text between whitespace, float64 [rows]; the leading space makes none, and Chinese is one word."""
    return np.array([len(text.split()) for text in observed.text], dtype=np.float64)
