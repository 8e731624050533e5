"""The question how likely a continuation is after a text that the model has not generated yet."""

from dataclasses import dataclass

import numpy as np

from choicewise.questions.generation import Generation
from choicewise.questions.span import Ids, Span, question_key


@dataclass(frozen=True, slots=True, eq=False)
class Conclusion:
    """Score ``span.continuation`` after the text of ``generation`` followed by ``span.context``.

    Its tokens are known only once the text is generated, its key is known before: so a block is prepared without a
    model, and an interrupted run knows which answers it has.
    """

    generation: Generation
    span: Span

    @property
    def key(self) -> str:
        """32 hex digits: the same span after the same generation has the same key."""
        keys = (bytes.fromhex(question.key) for question in (self.generation, self.span))
        return question_key(b"conclusion", *(np.frombuffer(key, dtype=np.uint8).astype(np.int32) for key in keys))

    @property
    def inputs(self) -> int:
        """The most tokens that can be inputs."""
        return len(self.generation.context) + self.generation.limit + self.span.inputs

    def after(self, generated: Ids) -> Span:
        """The span to score once the generation is known to be ``generated``."""
        context = np.concatenate([self.generation.context, generated, self.span.context])
        return Span(context.astype(np.int32), self.span.continuation, self.span.gold)
