"""The question what the model's own loss on a continuation is."""

from dataclasses import dataclass

import numpy as np

from choicewise.questions.span import Span, question_key
from choicewise.questions.token_scores import TokenScores


@dataclass(frozen=True, slots=True, eq=False)
class MaskedLoss:
    """The model's own loss on ``span``, with the labels of all tokens but the continuation's set to -100.

    That is the mean negative log-likelihood per token of the continuation, in nats.  The loss needs the last token as
    an input, too, so ``span`` has at most as many tokens as the model's window.
    """

    span: Span

    @property
    def key(self) -> str:
        """32 hex digits: the same tokens masked the same way have the same key."""
        return question_key(b"masked", self.span.context, self.span.continuation)

    @property
    def inputs(self) -> int:
        """How many tokens are inputs."""
        return self.span.inputs + 1

    def answer(self, loss: float) -> TokenScores:
        """The answer that gives every token of the continuation the mean that ``loss`` is; ranks are unknown."""
        tokens = self.span.continuation
        logprobs = np.full(len(tokens), -loss, dtype=np.float32)
        return TokenScores(tokens, logprobs, np.full(len(tokens), -1, dtype=np.int32), loss)
