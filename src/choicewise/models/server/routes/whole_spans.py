"""Spans that are asked whole: those that are a prefix of another are read from it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from choicewise.models.server.routes.route import Call, OnePart, Part
from choicewise.questions import Question, Span, TokenScores


@dataclass(frozen=True, slots=True)
class Whole:
    """``tokens`` that are sent, of which those from ``first`` on are scored.

    ``spans``: (index of a question, its first scored token, the end of its tokens), all within these tokens.
    """

    tokens: list[int]
    first: int
    spans: Sequence[tuple[int, int, int]]

    @property
    def parts(self) -> list[Part]:
        """The questions that are answered, which have one part each."""
        return [Part(index) for index, _, _ in self.spans]

    def scores(self, logprobs: Sequence[float], ranks: Sequence[int]) -> list[TokenScores]:
        """The scores of the spans from those of all tokens from ``first`` on."""
        scores = []
        for _, start, end in self.spans:
            own = slice(start - self.first, end - self.first)
            scores.append(TokenScores.of(self.tokens[start:end], logprobs[own], ranks[own]))
        return scores


class WholeSpans(OnePart, ABC):
    """A way of asking in which every span that is no prefix of another is one request."""

    supports: frozenset[type] = frozenset({Span})

    def objection(self, question: Question) -> str | None:
        """None: every span can be asked."""
        return None

    def calls(self, questions: Sequence[tuple[int, Question]]) -> Iterator[Call]:
        """One request for every span that is no prefix of another."""
        spans = [(index, span) for index, span in questions if isinstance(span, Span)]
        yield from map(self._call, whole_spans(spans))

    @abstractmethod
    def _call(self, whole: Whole) -> Call:
        """The request for these tokens."""


def whole_spans(questions: Sequence[tuple[int, Span]]) -> Iterator[Whole]:
    """The tokens to send for ``questions`` (index, span), in depth-first order, each sequence once."""
    sequences = [
        (np.concatenate([span.context, span.continuation]).astype(">i4").tobytes(), len(span.context), index)
        for index, span in questions
    ]
    sequences.sort(
        key=lambda each: each[0]
    )  # bytes of big-endian ids sort as the ids do, a prefix before what it begins
    group: list[tuple[bytes, int, int]] = []
    for place, each in enumerate(sequences):
        group.append(each)
        if place + 1 == len(sequences) or not sequences[place + 1][0].startswith(each[0]):
            yield _whole(each[0], group)
            group = []


def _whole(longest: bytes, group: Sequence[tuple[bytes, int, int]]) -> Whole:
    spans = [(index, start, len(tokens) // 4) for tokens, start, index in group]
    return Whole(np.frombuffer(longest, dtype=">i4").tolist(), min(start for _, start, _ in spans), spans)
