"""Continuations after a null context, in the groups in which they are asked after the context of their request."""

from __future__ import annotations

from dataclasses import dataclass

from choicewise.requests.readings.choice_group import ChoiceGroup


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

    def after(self, null: str) -> ChoiceGroup:
        """The same as a group to locate; nothing in it is right, as an oracle knows nothing without the question."""
        return ChoiceGroup(null, False, self.continuations, self.places, ())
