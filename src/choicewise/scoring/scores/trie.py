"""Scores that compare an item's choices at the tokens where they differ.  Float64 [rows], NaN where missing.

The choices of an item form a trie of tokens.  Every token in it was scored for some choice, so the observations give
what decoding restricted to the choices would produce.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise, takewhile

import numpy as np
import numpy.typing as npt

from choicewise.scoring.continuations import Continuations
from choicewise.scoring.ragged import Floats

SENSITIVITY = {"first_divergent": 1.0, "locally_renormalised": 2.0, "constrained_greedy": np.nan}
"""Units of the score per nat of error in the log-likelihoods: all of it in one token, 2 where the errors of the other
choices count too, NaN for a yes or no."""

Branches = dict[int, list[int]]
"""At one node of the trie: next token to the choices that continue with it."""


def first_divergent(observed: Continuations) -> Floats:
    """log P of the first token that not all choices of the item share, in nats (nanochat core_eval's span start).

    NaN for a choice that ends before it.
    """
    scores = np.full(len(observed.text), np.nan)
    for start, end in pairwise(observed.item_offsets.tolist()):
        rows = [row for row in range(start, end) if observed.counts[row]]
        shared = _shared([_tokens(observed, row) for row in rows])
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
    scores = np.full(len(observed.text), np.nan)
    for start, choices in _tries(observed):
        scores[start : start + len(choices)] = 0.0
        for logprobs, branches in _nodes(observed, start, choices):
            total = np.logaddexp.reduce(logprobs)
            for logprob, members in zip(logprobs, branches.values(), strict=True):
                # Of several tokens that are all impossible none would be drawn.
                scores[start + np.array(members)] += -np.inf if total == -np.inf else logprob - total
    return scores


def constrained_greedy(observed: Continuations) -> Floats:
    """1 for the choice that greedy decoding restricted to the choices produces, else 0 (guidance's select).

    Differs from the most likely choice when that one starts with a less likely token.  Choices whose tokens tie all
    get 1.  NaN for all choices of an item as for ``locally_renormalised``.
    """
    scores = np.full(len(observed.text), np.nan)
    for start, choices in _tries(observed):
        scores[start : start + len(choices)] = 1.0
        for logprobs, branches in _nodes(observed, start, choices):
            for logprob, members in zip(logprobs, branches.values(), strict=True):
                if logprob < logprobs.max():
                    scores[start + np.array(members)] = 0.0
    return scores


def _tokens(observed: Continuations, row: int) -> list[int]:
    tokens: list[int] = observed.tokens[observed.offsets[row] : observed.offsets[row + 1]].tolist()
    return tokens


def _shared(choices: Sequence[list[int]]) -> int:
    """How many tokens all choices start with; ``zip`` ends with the shortest."""
    same = (len(set(column)) == 1 for column in zip(*choices, strict=False))
    return sum(1 for _ in takewhile(bool, same))


def _tries(observed: Continuations) -> Iterator[tuple[int, list[list[int]]]]:
    """(first row, tokens of each choice) of the items whose choices are all there and none the start of another."""
    for start, end in pairwise(observed.item_offsets.tolist()):
        choices = [_tokens(observed, row) for row in range(start, end)]
        # In sorted order the first longer choice that a choice is the start of comes right after it.
        starts_another = any(a != b and b[: len(a)] == a for a, b in pairwise(sorted(choices)))
        if not starts_another and not np.isnan(observed.token_sums[start:end]).any():
            yield start, choices


def _nodes(
    observed: Continuations, start: int, choices: Sequence[list[int]]
) -> Iterator[tuple[npt.NDArray[np.float64], Branches]]:
    """Every inner node of the trie: log P of each branch's token, float64 [branches], and the branches.

    Choices that share a branch have the same tokens up to it; the log-probability is that of the first of them.
    """
    nodes = [(0, list(range(len(choices))))]
    while nodes:
        depth, members = nodes.pop()
        branches: Branches = {}
        for member in members:
            if depth < len(choices[member]):
                branches.setdefault(choices[member][depth], []).append(member)
        if branches:
            rows = start + np.array([members[0] for members in branches.values()])
            yield observed.logprobs[observed.offsets[rows] + depth].astype(np.float64), branches
            nodes.extend((depth + 1, members) for members in branches.values())
