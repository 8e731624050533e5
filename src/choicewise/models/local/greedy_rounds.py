"""Greedy generation by scoring alone: every round reads one more token of every prompt from their tree."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Protocol

import numpy as np

from choicewise.models.local.causal_lm import GREEDY
from choicewise.questions.generation import Generation
from choicewise.questions.mass import Mass
from choicewise.questions.span import Span
from choicewise.questions.token_scores import TokenScores

LIKELIEST = np.asarray([GREEDY], dtype=np.int32)
"""The continuation of a span that asks for the token with the greatest logit."""


class Scorer(Protocol):
    """What scores spans."""

    def score(self, spans: Sequence[Span | Mass]) -> Iterator[tuple[int, TokenScores]]:
        """(index into ``spans``, what was seen)."""
        ...


def greedy_rounds(
    path: Scorer, prompts: Sequence[Generation], ends: Collection[int]
) -> Iterator[tuple[int, TokenScores]]:
    """(index into ``prompts``, the greedy tokens), as generations end: behind a token of ``ends``, or at their length.

    Log-probabilities are those of the raw logits.
    """
    seen: list[list[TokenScores]] = [[] for _ in prompts]
    contexts = {index: prompt.context for index, prompt in enumerate(prompts)}
    while contexts:
        running = list(contexts)
        for place, scores in path.score([Span(contexts[index], LIKELIEST) for index in running]):
            index = running[place]
            seen[index].append(scores)
            if len(seen[index]) == prompts[index].limit or int(scores.tokens[0]) in ends:
                del contexts[index]
                yield index, _joined(seen[index])
            else:
                contexts[index] = np.concatenate([contexts[index], scores.tokens])


def _joined(parts: list[TokenScores]) -> TokenScores:
    return TokenScores(
        tokens=np.concatenate([part.tokens for part in parts]),
        logprobs=np.concatenate([part.logprobs for part in parts]),
        ranks=np.concatenate([part.ranks for part in parts]),
    )
