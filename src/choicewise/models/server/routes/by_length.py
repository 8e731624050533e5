"""Two ways of asking about spans: next tokens for short continuations, the whole prompt for long ones.

Asked by next tokens, a continuation of ``n`` tokens takes ``n`` requests.  The server reads the prompt from its cache
up to the last full block of 16 tokens, so each of them computes 8 tokens on average, and costs besides about as much
as 16 tokens: scheduling, a sampled token, the way there and back.  Asked whole, it takes one request that computes all
``c + n`` tokens of context and continuation, as the cache is off.  So a span is asked whole where

    (n - 1) * 24 > c + n

A continuation of one token never is.  The rule looks at one span alone, so that the same question is always asked in
the same way, whatever else is asked.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from choicewise.models.server.routes.route import Call, Route
from choicewise.questions import Question, Span, TokenScores

REQUEST: Final = 24
"""What a request for next tokens costs, in tokens that a server computes: half a block of its cache, and 16."""


class ByLength:
    """Spans go to ``whole`` where that computes less (see the module), everything else to ``chosen``.

    ``longest``: tokens that a prompt of ``whole`` may have.  A server that reads what precedes a continuation from its
    cache (``cached``) is asked for single tokens only by next tokens.
    """

    def __init__(self, chosen: Route, whole: Route, longest: int | None = None, cached: bool = False) -> None:
        self._chosen, self._whole, self._longest, self._cached = chosen, whole, longest, cached
        self.name, self.supports = f"{chosen.name}, {whole.name} of long continuations", chosen.supports
        self.cost = f"{chosen.cost}; of long continuations {whole.cost}"

    def ranking(self, longest: int) -> Route | None:
        """The way that gives ranks of next tokens, where prompts of ``longest`` tokens can be asked so."""
        fits = self._longest is None or longest <= self._longest
        return self._whole if fits and not self._cached else None

    def objection(self, question: Question) -> str | None:
        """What the way of asking that is chosen objects."""
        return self._of(question).objection(question)

    def parts(self, question: Question) -> int:
        """As many as that way of asking has."""
        return self._of(question).parts(question)

    def calls(self, questions: Sequence[tuple[int, Question]]) -> Iterator[Call]:
        """First everything asked by next tokens, then what is asked whole."""
        for route in (self._chosen, self._whole):
            yield from route.calls([(index, question) for index, question in questions if self._of(question) is route])

    def joined(self, question: Question, parts: Sequence[TokenScores]) -> TokenScores:
        """As that way of asking does it."""
        return self._of(question).joined(question, parts)

    def _of(self, question: Question) -> Route:
        if not isinstance(question, Span):
            return self._chosen
        before, scored = len(question.context), len(question.continuation)
        if self._longest is not None and before + scored > self._longest:
            return self._chosen
        whole = scored > 1 if self._cached else (scored - 1) * REQUEST > before + scored
        return self._whole if whole else self._chosen
