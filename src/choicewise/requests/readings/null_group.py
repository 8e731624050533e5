"""Continuations after a null context, in the groups in which they are asked after the context of their request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from choicewise.protocols.boundary import APART, COUNTING
from choicewise.requests.readings.choice_group import ChoiceGroup
from choicewise.tokens.choice_question import ChoiceQuestion
from choicewise.tokens.tokenizer import Tokenizer

OTHER_TEXT = "after the null context a token straddles its end, so that other text is scored than after the question"


@dataclass(frozen=True, slots=True)
class NullGroup:
    """Continuations that are asked together after a null context; equal groups are the same questions.

    ``spaced``: whether the null context holds the space that the continuations begin with after their own context.
    """

    continuations: tuple[str, ...]
    places: tuple[tuple[int, int], ...]
    spaced: bool

    @classmethod
    def of(cls, group: ChoiceGroup, null: str) -> NullGroup:
        """The continuations of ``group`` after ``null``.

        White space that ends ``null`` stands there instead of at the start of a continuation, so that both sides have
        the same text but for that space (Brown et al. 2020, "Answer: ").  Where the context of ``group`` ends with
        white space, too, the continuations stay as they are.
        """
        space = null[len(null.rstrip()) :]
        bare = group.context == group.context.rstrip()
        texts = tuple(text.removeprefix(space) for text in group.continuations) if bare else group.continuations
        return cls(texts, group.places, texts != group.continuations)

    def policy(self, boundary: str) -> str:
        """How the continuations are located: one that lacks its space has the tokens that it has by itself."""
        return APART if self.spaced and boundary in COUNTING else boundary


def comparable(
    own: Sequence[ChoiceQuestion], null: Sequence[ChoiceQuestion], tokenizer: Tokenizer
) -> list[ChoiceQuestion]:
    """``null``, those refused that score other text after their null context than after ``own`` context.

    For the policies :data:`~choicewise.protocols.boundary.COUNTING`.
    """
    return [
        after_null
        if not after_null.merged or asked.scored_bytes(tokenizer) == after_null.scored_bytes(tokenizer)
        else after_null.refused(OTHER_TEXT)
        for asked, after_null in zip(own, null, strict=True)
    ]
