"""Greedy generation by scoring alone: every round reads one more token of every generation from their tree."""

from collections.abc import Collection, Iterator, Sequence
from typing import Protocol

import numpy as np

from choicewise.models.local.causal_lm import GREEDY
from choicewise.questions import Generation, Mass, Span, TokenScores

LIKELIEST = np.asarray([GREEDY], dtype=np.int32)
"""The continuation of a span that asks for the token with the greatest logit."""


class Scorer(Protocol):
    """What scores spans."""

    def score(self, questions: Sequence[Span | Mass]) -> Iterator[tuple[int, TokenScores]]:
        """(index into ``questions``, the answer) of every one."""
        ...


def greedy_rounds(
    path: Scorer, generations: Sequence[Generation], ends: Collection[int]
) -> Iterator[tuple[int, TokenScores]]:
    """(index into ``generations``, its greedy tokens), as they end: after one of ``ends``, or at their limits.

    Log-probabilities are those of the raw logits.
    """
    tokens: list[list[TokenScores]] = [[] for _ in generations]
    contexts = {index: generation.context for index, generation in enumerate(generations)}
    while contexts:
        indexes = list(contexts)
        for number, scores in path.score([Span(context, LIKELIEST) for context in contexts.values()]):
            index = indexes[number]
            tokens[index].append(scores)
            if len(tokens[index]) == generations[index].limit or int(scores.tokens[0]) in ends:
                del contexts[index]
                yield index, TokenScores.joined(tokens[index])
            else:
                contexts[index] = np.concatenate([contexts[index], scores.tokens])
