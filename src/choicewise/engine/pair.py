"""The question how much alike the model finds two texts."""

from __future__ import annotations

from dataclasses import dataclass

from choicewise.engine.span import Ids, question_key


@dataclass(frozen=True, slots=True, eq=False)
class Pair:
    """The cosine of the last hidden states of ``left`` and ``right`` at their last tokens.

    Each is a sequence of its own, of at least one token.  ``gold`` as in a span.
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
