"""The question how likely a continuation is after a text that the model has yet to generate."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from choicewise.questions.generation import Generation
from choicewise.questions.span import Ids, Span, question_key


@dataclass(frozen=True, slots=True, eq=False)
class Conclusion:
    """Score ``span.continuation`` after the text of ``generation`` followed by ``span.context``.

    Its tokens are not known before the generation is there, but its key is: so a block is prepared without a model, and
    an interrupted run knows which answers it has.
    """

    generation: Generation
    span: Span

    @property
    def key(self) -> str:
        """32 hex digits: the same span after the same generation has the same key."""
        where = np.frombuffer(bytes.fromhex(self.generation.key), dtype=np.uint8).astype(np.int32)
        what = np.frombuffer(bytes.fromhex(self.span.key), dtype=np.uint8).astype(np.int32)
        return question_key(b"conclusion", where, what)

    @property
    def inputs(self) -> int:
        """How many tokens are inputs at most."""
        return len(self.generation.context) + self.generation.limit + self.span.inputs

    def after(self, generated: Ids) -> Span:
        """The whole span, the generation being ``generated``."""
        context = np.concatenate([self.generation.context, generated, self.span.context])
        return Span(context.astype(np.int32), self.span.continuation, self.span.gold)
