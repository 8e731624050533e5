"""Scores that set an item's choices against each other where their tokens part.  Float64 [rows], NaN where missing.

The choices of an item form a trie of tokens.  Every token on it was scored by some choice, so what decoding
restricted to the choices would do follows from the observations.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise, takewhile

import numpy as np
import numpy.typing as npt

from choicewise.scoring.continuations import Continuations
from choicewise.scoring.ragged import Floats

Branches = dict[int, list[int]]
"""At one node of the trie: next token to the choices that go on with it."""


def first_divergent(observed: Continuations) -> Floats:
    """log P of the token at which the item's choices first part, in nats; NaN for a choice that ends before it."""
    scores = np.full(len(observed.text), np.nan)
    for start, end in pairwise(observed.item_offsets.tolist()):
        rows = [row for row in range(start, end) if observed.counts[row]]
        shared = _shared([_tokens(observed, row) for row in rows])
        for row in rows:
            if observed.counts[row] > shared:
                scores[row] = observed.logprobs[observed.offsets[row] + shared]
    return scores


def locally_renormalised(observed: Continuations) -> Floats:
    """Σ log (P(token) / Σ P(tokens the choices allow there)): the probability of drawing the choice token by token
    from a model restricted to the choices, in nats.

    Distinct choices sum to 1.  NaN for the whole item when a choice is missing or begins another: whether it would
    have stopped there was not observed.
    """
    scores = np.full(len(observed.text), np.nan)
    for start, end in pairwise(observed.item_offsets.tolist()):
        choices = [_tokens(observed, row) for row in range(start, end)]
        if np.isnan(observed.token_sums[start:end]).any() or _one_begins_another(choices):
            continue
        scores[start:end] = 0.0
        for depth, branches in _nodes(choices):
            logprobs = _at(observed, start, depth, branches)
            total = np.logaddexp.reduce(logprobs)
            for logprob, members in zip(logprobs, branches.values(), strict=True):
                # Of several tokens that are all impossible none would be drawn.
                scores[start + np.array(members)] += -np.inf if total == -np.inf else logprob - total
    return scores


def constrained_greedy(observed: Continuations) -> Floats:
    """1 for the choice that greedy decoding restricted to the choices produces, else 0 (guidance's select).

    Differs from the most likely choice when that one starts with a less likely token.  Tokens that tie share the 1.
    NaN for the whole item as for ``locally_renormalised``.
    """
    scores = np.full(len(observed.text), np.nan)
    for start, end in pairwise(observed.item_offsets.tolist()):
        choices = [_tokens(observed, row) for row in range(start, end)]
        if np.isnan(observed.token_sums[start:end]).any() or _one_begins_another(choices):
            continue
        scores[start:end] = 1.0
        for depth, branches in _nodes(choices):
            logprobs = _at(observed, start, depth, branches)
            for logprob, members in zip(logprobs, branches.values(), strict=True):
                if logprob < logprobs.max():
                    scores[start + np.array(members)] = 0.0
    return scores


def _tokens(observed: Continuations, row: int) -> list[int]:
    tokens: list[int] = observed.tokens[observed.offsets[row] : observed.offsets[row + 1]].tolist()
    return tokens


def _shared(choices: Sequence[list[int]]) -> int:
    """How many tokens all choices begin with; ``zip`` ends with the shortest."""
    same = (len(set(column)) == 1 for column in zip(*choices, strict=False))
    return sum(1 for _ in takewhile(bool, same))


def _one_begins_another(choices: Sequence[list[int]]) -> bool:
    """Some choice goes on where a different one ends; in sorted order two such choices stand side by side."""
    return any(a != b and b[: len(a)] == a for a, b in pairwise(sorted(choices)))


def _nodes(choices: Sequence[list[int]]) -> Iterator[tuple[int, Branches]]:
    """(depth, branches) of every inner node of the trie."""
    waiting = [(0, list(range(len(choices))))]
    while waiting:
        depth, members = waiting.pop()
        branches: Branches = {}
        for member in members:
            if depth < len(choices[member]):
                branches.setdefault(choices[member][depth], []).append(member)
        if branches:
            yield depth, branches
            waiting.extend((depth + 1, below) for below in branches.values())


def _at(observed: Continuations, start: int, depth: int, branches: Branches) -> npt.NDArray[np.float64]:
    """log P of each branch's token, as the first choice that goes on with it saw it; float64 [branches]."""
    rows = start + np.array([members[0] for members in branches.values()])
    return observed.logprobs[observed.offsets[rows] + depth].astype(np.float64)
