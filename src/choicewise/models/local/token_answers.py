"""Scores and greedy generations from as few trees as possible."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import numpy as np

from choicewise.models.local.greedy_rounds import LIKELIEST
from choicewise.models.local.ladder import ComputePath
from choicewise.questions.generation import Generation
from choicewise.questions.mass import Mass
from choicewise.questions.span import Span
from choicewise.questions.token_scores import TokenScores


def answer_tokens(
    path: ComputePath, questions: Sequence[Span | Mass | Generation], ends: Collection[int]
) -> Iterator[tuple[int, TokenScores]]:
    """(index into ``questions``, the scores of a span or mass or the greedy tokens of a prompt), as they are there.

    All spans, masses and generations of one token come from one tree, longer generations from another.  A generation
    ends behind the first token of ``ends`` (which is kept) or after ``new_tokens``.  Log-probabilities are those of
    the raw logits.
    """
    one: dict[int, Span | Mass] = {}
    more: dict[int, Generation] = {}
    for index, question in enumerate(questions):
        if not isinstance(question, Generation):
            one[index] = question
        elif question.limit == 1:
            one[index] = Span(question.context, LIKELIEST)
        elif question.limit > 1:
            more[index] = question
        else:
            yield index, TokenScores(LIKELIEST[:0], np.empty(0, dtype=np.float32), LIKELIEST[:0])
    places = list(one)
    yield from ((places[place], scores) for place, scores in path.score(list(one.values())))
    places = list(more)
    yield from ((places[place], scores) for place, scores in path.generate(list(more.values()), ends))
