"""Continuations after a null context, in the groups in which they are asked after the context of their request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from choicewise.protocols.boundary import APART, COUNTING
from choicewise.requests.readings.choice_group import ChoiceGroup
from choicewise.tokens.choice_question import ChoiceQuestion
from choicewise.tokens.tokenizer import Tokenizer

OTHER_TEXT = "a token straddles the end of the context or of the null context, so that they have other text scored"


class NullGroup(NamedTuple):
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

    def may_differ(self, choices: Sequence[ChoiceQuestion]) -> bool:
        """Whether ``choices``, as they are asked after the null context, may score other text than after their own.

        Tokens do not reach over the space that a continuation begins with, so few requests must be looked at again.
        """
        spaces = all(text[:1].isspace() for text in self.continuations)
        return not self.spaced and (not spaces or any(choice.merged for choice in choices))

    def policy(self, boundary: str) -> str:
        """How the continuations are located: one that lacks its space has the tokens that it has by itself."""
        return APART if self.spaced and boundary in COUNTING else boundary


def comparable(
    own: Sequence[ChoiceQuestion], null: Sequence[ChoiceQuestion], tokenizer: Tokenizer
) -> list[ChoiceQuestion]:
    """``null``, those refused that score other text after their null context than after their ``own`` context.

    For the policies :data:`~choicewise.protocols.boundary.COUNTING`, where a token that straddles the end of one of the
    contexts takes text away from the choice.
    """
    merged = [one.merged or other.merged for one, other in zip(own, null, strict=True)]
    return [
        other.refused(OTHER_TEXT) if differ and one.scored_bytes(tokenizer) != other.scored_bytes(tokenizer) else other
        for one, other, differ in zip(own, null, merged, strict=True)
    ]
