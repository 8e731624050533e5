"""The question that the model's own loss answers."""

from __future__ import annotations

from dataclasses import dataclass

from choicewise.engine.span import Span, question_key


@dataclass(frozen=True, slots=True, eq=False)
class Masked:
    """The model's own loss on ``span``, all labels but the continuation's at -100.

    That is the mean negative log-likelihood per token of the continuation, in nats.  As usually run, the last token is
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
