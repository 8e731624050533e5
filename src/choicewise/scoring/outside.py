"""Log-probabilities of tokens that an API does not return, because it returns the most likely ones alone.

The original MMLU script reads the letters from the 100 most likely tokens and gives a letter that is not among them
the log-probability -100 (hendrycks/test evaluate.py@4450500), so four absent letters tie and the first one wins.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np

from choicewise.scoring.continuations import Continuations


def limited(observed: Continuations, top: int, logprob: float) -> Continuations:
    """The continuations with ``logprob`` (nats) for every token to which ``top`` or more are strictly likelier.

    Rows observed without tokens have no ranks, and are missing.
    """
    logprobs = np.where(observed.ranks >= top, np.float32(logprob), observed.logprobs)
    return replace(observed, logprobs=logprobs, totals=None, token_counts=None, all_greedy=None)


OUTSIDE: dict[str, Callable[[Continuations], Continuations]] = {
    "keep": lambda observed: observed,
    "top100=-100": partial(limited, top=100, logprob=-100.0),
}
