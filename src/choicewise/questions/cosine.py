"""The question how similar two texts are to the model."""

from dataclasses import dataclass, replace

from choicewise.questions.span import Ids, question_key
from choicewise.questions.token_scores import TokenScores


@dataclass(frozen=True, slots=True, eq=False)
class Cosine:
    """The cosine of the last hidden states of ``left`` and ``right`` at their last tokens.

    Each is a sequence of its own, of at least one token.  ``gold`` as in :class:`~choicewise.questions.span.Span`.
    """

    left: Ids
    right: Ids
    gold: bool | None = None

    @property
    def key(self) -> str:
        """32 hex digits: the same two texts have the same key."""
        return question_key(b"cosine", self.left, self.right)

    @property
    def inputs(self) -> int:
        """How many tokens are inputs."""
        return len(self.left) + len(self.right)

    @staticmethod
    def answer(cosine: float) -> TokenScores:
        """The answer that holds ``cosine`` and no tokens."""
        return replace(TokenScores.of(), value=cosine)
