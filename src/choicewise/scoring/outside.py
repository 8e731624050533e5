"""Log-probabilities of tokens that an API does not return, because it returns the most likely ones alone.

The original MMLU script reads the letters from the 100 most likely tokens and gives a letter that is not among them
the log-probability -100 (hendrycks/test evaluate.py@4450500), so four absent letters tie and the first one wins.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np

from choicewise.scoring.continuations import Continuations
from choicewise.scoring.ragged import row_of


def limited(observed: Continuations, top: int, logprob: float) -> Continuations:
    """The continuations with ``logprob`` (nats) for every token to which ``top`` or more are strictly likelier.

    Rows observed without tokens have no ranks, and are missing; so are tokens of which a server does not say whether
    so many are likelier, unless their own probability is too great for that.  A row known as an upper bound
    is one still, unless so many are known to be likelier than each of its tokens that has no rank.
    """
    ranks = observed.ranks
    outside = (ranks >= top) | (-1 - ranks >= top)
    open_ = (ranks < 0) & (observed.logprobs < -np.log(top))  # of tokens with 1 / top or more there are top at most
    given = np.where(open_, np.float32(np.nan), observed.logprobs)
    at_most = observed.at_most
    if at_most is not None:
        bound = at_most[row_of(observed.offsets)]
        given = np.where(bound, np.maximum(observed.logprobs, np.float32(logprob)), given)
        still, some = (observed.reduce(np.maximum, each) == 1 for each in ((ranks < 0) & ~outside, ranks < 0))
        at_most = at_most & (still | ~some)
    logprobs = np.where(outside, np.float32(logprob), given)
    return replace(observed, logprobs=logprobs, totals=None, token_counts=None, all_greedy=None, at_most=at_most)


OUTSIDE: dict[str, Callable[[Continuations], Continuations]] = {
    "keep": lambda observed: observed,
    "top100=-100": partial(limited, top=100, logprob=-100.0),
}
