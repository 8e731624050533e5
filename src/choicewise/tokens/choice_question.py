"""One choice as it is asked: its question to the model, its corrections, and what is doubtful about it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TypeVar

from choicewise.questions import Mass, Span
from choicewise.tokens.byte_probability import ByteProbability
from choicewise.tokens.tokenizer import Tokenizer

Asked = TypeVar("Asked", bound=Span | Mass | ByteProbability)


@dataclass(frozen=True, slots=True)
class ChoiceQuestion:
    """One choice as it is asked.

    ``span`` is None exactly when ``missing`` says why.  ``merged``: the context's tokens are no prefix of the tokens of
    the whole text.  ``unknown``: unknown tokens among the scored ones.  ``tokens_dropped``: tokens cut off to fit the
    window.  ``before`` is subtracted (how the context goes on anyway), ``after`` added (what may follow).
    ``noncanonical``: context and continuation together are not the tokenizer's own tokens of the whole text.
    ``lossy``: the scored tokens do not spell the end of the text.  ``bos``: BOS tokens among all of them.
    ``parts``: what else a reading asks about the choice, None where it is not needed here.
    """

    span: Span | ByteProbability | None
    merged: bool = False
    unknown: int = 0
    missing: str | None = None
    tokens_dropped: int = 0
    before: Mass | ByteProbability | None = None
    after: Mass | None = None
    noncanonical: bool = False
    lossy: bool = False
    bos: int = 0
    parts: tuple[Span | None, ...] = ()

    def questions(self) -> Iterator[Span | Mass | ByteProbability]:
        """All that the model must be asked."""
        yield from (question for question in (self.span, self.before, self.after) if question is not None)

    def scored_bytes(self, tokenizer: Tokenizer) -> bytes:
        """What the scored tokens spell; nothing where the choice is missing."""
        if not isinstance(self.span, Span):
            return b""
        return b"".join(tokenizer.token_bytes[token] for token in self.span.continuation.tolist())

    def refused(self, reason: str) -> ChoiceQuestion:
        """The same as a choice that can't be scored, and why."""
        return replace(self, span=None, before=None, after=None, parts=(), missing=reason)

    def without(self, dropped: int) -> ChoiceQuestion:
        """The same after a context that lacks its first ``dropped`` tokens."""
        return replace(
            self,
            span=self.span and without(self.span, dropped),
            before=self.before and without(self.before, dropped),
            after=self.after and without(self.after, dropped),
            tokens_dropped=dropped,
        )


def without(question: Asked, dropped: int) -> Asked:
    """The same question after a context that lacks its first ``dropped`` tokens."""
    return replace(question, context=question.context[dropped:])
