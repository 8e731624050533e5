"""What every way to compute the same numbers offers."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence

import numpy as np

from choicewise.models.local.causal_lm import LIKELIEST, CausalLM
from choicewise.questions import Answers, Generation, Mass, Span, TokenScores


class ComputePath(ABC):
    """One way to score and generate.  ``cost`` says in words how many tokens it sends through the model."""

    name: str
    cost: str

    def __init__(self, lm: CausalLM) -> None:
        self.lm = lm

    @abstractmethod
    def score(self, questions: Sequence[Span | Mass]) -> Answers:
        """The answer to every question."""

    def generate(self, generations: Sequence[Generation], ends: Collection[int]) -> Answers:
        """The greedy tokens of every generation, as they end: after one of ``ends``, or at their limits.

        Limits are at least 1; stops are not looked at.  Log-probabilities are those of the raw logits.  Here every
        round scores one more token of every generation.
        """
        tokens: list[list[TokenScores]] = [[] for _ in generations]
        contexts = {index: generation.context for index, generation in enumerate(generations)}
        while contexts:
            indexes = list(contexts)
            for number, scores in self.score([Span(context, LIKELIEST) for context in contexts.values()]):
                index = indexes[number]
                tokens[index].append(scores)
                if len(tokens[index]) == generations[index].limit or int(scores.tokens[0]) in ends:
                    del contexts[index]
                    yield index, TokenScores.joined(tokens[index])
                else:
                    contexts[index] = np.concatenate([contexts[index], scores.tokens])

    def objection(self) -> str | None:
        """After ``score``: why the numbers can't be trusted even where they agree, or None."""
        return None
