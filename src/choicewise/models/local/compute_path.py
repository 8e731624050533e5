"""What every way to compute the same numbers offers."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence

import numpy as np

from choicewise.models.local import sampling
from choicewise.models.local.causal_lm import LIKELIEST, CausalLM
from choicewise.models.local.draft import Draft
from choicewise.questions import Answers, Generation, Mass, Span


class ComputePath(ABC):
    """One way to score and generate.  ``cost`` says in words how many tokens it sends through the model."""

    name: str
    cost: str

    def __init__(self, lm: CausalLM) -> None:
        self.lm = lm

    @abstractmethod
    def score(self, questions: Sequence[Span | Mass]) -> Answers:
        """The answer to every question."""

    def generate(
        self, generations: Sequence[Generation], ends: Collection[int], token_bytes: Sequence[bytes] = ()
    ) -> Answers:
        """The tokens of every generation, as they end (:class:`choicewise.models.local.draft.Draft`).

        Limits are at least 1.  Log-probabilities are those of the raw logits.  Here every round scores one more token
        of every greedy generation, and samples come one at a time with the model's own cache.
        """
        drafts = {index: Draft(generation, ends, token_bytes) for index, generation in enumerate(generations)}
        greedy = {index: draft for index, draft in drafts.items() if draft.generation.sampling is None}
        while greedy:
            contexts = [
                np.append(draft.generation.context, np.asarray(draft.tokens, np.int32)) for draft in greedy.values()
            ]
            indexes = list(greedy)
            for number, scores in self.score([Span(context, LIKELIEST) for context in contexts]):
                draft = greedy[indexes[number]]
                draft.add(int(scores.tokens[0]), float(scores.logprobs[0]), int(scores.ranks[0]))
                if draft.ended:
                    del greedy[indexes[number]]
                    yield indexes[number], draft.scores
        for index, generation in enumerate(generations):
            if generation.sampling is not None:
                with self.lm.work.expecting(2 * generation.inputs), self.lm.counting():
                    sampled = sampling.sample(self.lm.model, self.lm.vocabulary, generation, ends, token_bytes)
                yield index, sampled

    def objection(self) -> str | None:
        """After ``score``: why the numbers can't be trusted even where they agree, or None."""
        return None
