"""Scores that compare an item's choices at the tokens where they differ.  Float64 [rows], NaN where missing.

The choices of an item form a trie of tokens.  Every token in it was scored for some choice, so the observations give
what decoding restricted to the choices would produce.
"""

from collections.abc import Callable
from itertools import pairwise, takewhile
from typing import Any

import numpy as np
import numpy.typing as npt

from choicewise.scoring.continuations import Continuations
from choicewise.scoring.ragged import Floats

SENSITIVITY = {"first_divergent": 1.0, "locally_renormalised": 2.0, "constrained_greedy": np.nan}
"""Units of the score per nat of error in the log-likelihoods: all of it in one token, 2 where the errors of the other
choices count too, NaN for a yes or no."""


def first_divergent(observed: Continuations) -> Floats:
    """log P of the first token that not all choices of the item share, in nats (nanochat core_eval's span start).

    NaN for a choice that ends before it.
    """
    scores = np.full(len(observed.text), np.nan)
    for start, end in pairwise(observed.item_offsets.tolist()):
        rows = [row for row in range(start, end) if observed.counts[row]]
        columns = zip(*map(observed.token_ids, rows), strict=False)  # ends with the shortest
        shared = len(list(takewhile(lambda column: len(set(column)) == 1, columns)))
        for row in rows:
            if observed.counts[row] > shared:
                scores[row] = observed.logprobs[observed.offsets[row] + shared]
    return scores


def locally_renormalised(observed: Continuations) -> Floats:
    """Σ log (P(token) / Σ P(tokens the choices allow there)), in nats: the probability of drawing the choice token by
    token from a model restricted to the choices (decoding under a grammar: outlines, guidance).

    Distinct choices sum to 1.  NaN for all choices of an item where one is missing or is the start of another: whether
    the model would have stopped there was not observed.
    """

    def log_share(logprobs: Floats) -> Floats:
        total = np.logaddexp.reduce(logprobs)
        # Of several tokens that are all impossible none would be drawn.
        return np.full_like(logprobs, -np.inf) if total == -np.inf else logprobs - total

    return _sum_over_path(observed, log_share)


def constrained_greedy(observed: Continuations) -> Floats:
    """1 for the choice that greedy decoding restricted to the choices produces, else 0 (guidance's select).

    Differs from the most likely choice when that one starts with a less likely token.  Choices whose tokens tie all
    get 1.  NaN for all choices of an item as for ``locally_renormalised``.
    """
    refused = _sum_over_path(observed, lambda logprobs: logprobs < logprobs.max())
    return np.where(np.isnan(refused), np.nan, refused == 0)


def _sum_over_path(observed: Continuations, step: Callable[[Floats], npt.NDArray[Any]]) -> Floats:
    """Per choice the sum, over its tokens, of what ``step`` gives them among the tokens that the choices allow there.

    ``step``: from log P of the tokens at one node of the trie, float64 [branches], to a number for each.  NaN for the
    items with a missing choice, or with one that is the start of another.
    """
    scores = np.full(len(observed.text), np.nan)
    for start, end in pairwise(observed.item_offsets.tolist()):
        choices = [observed.token_ids(row) for row in range(start, end)]
        # In sorted order the first longer choice that a choice is the start of comes right after it.
        starts_another = any(a != b and b[: len(a)] == a for a, b in pairwise(sorted(choices)))
        if starts_another or np.isnan(observed.token_sums[start:end]).any():
            continue
        scores[start:end] = 0.0
        nodes = [(0, list(range(end - start)))]
        while nodes:
            depth, members = nodes.pop()
            branches: dict[int, list[int]] = {}  # next token to the choices that continue with it
            for member in members:
                if depth < len(choices[member]):
                    branches.setdefault(choices[member][depth], []).append(member)
            if branches:
                # Choices that share a branch have the same tokens up to it: the first one's log-probability is theirs.
                rows = start + np.array([members[0] for members in branches.values()])
                logprobs = observed.logprobs[observed.offsets[rows] + depth].astype(np.float64)
                for value, members in zip(step(logprobs), branches.values(), strict=True):
                    scores[start + np.array(members)] += value
                nodes.extend((depth + 1, members) for members in branches.values())
    return scores
