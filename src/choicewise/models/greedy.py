"""Scores and greedy generations from as few trees as possible."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import numpy as np

from choicewise.engine.span import Mass, Prompt, Span, TokenScores
from choicewise.models.ladder import Path
from choicewise.models.rounds import LIKELIEST


def answer(
    path: Path, questions: Sequence[Span | Mass | Prompt], ends: Collection[int]
) -> Iterator[tuple[int, TokenScores]]:
    """(index into ``questions``, the scores of a span or mass or the greedy tokens of a prompt), as they are there.

    All spans, masses and generations of one token come from one tree, longer generations from another.  A generation
    ends behind the first token of ``ends`` (which is kept) or after ``new_tokens``.  Log-probabilities are those of
    the raw logits.
    """
    one: dict[int, Span | Mass] = {}
    more: dict[int, Prompt] = {}
    for index, question in enumerate(questions):
        if not isinstance(question, Prompt):
            one[index] = question
        elif question.new_tokens == 1:
            one[index] = Span(question.context, LIKELIEST)
        elif question.new_tokens > 1:
            more[index] = question
        else:
            yield index, TokenScores(LIKELIEST[:0], np.empty(0, dtype=np.float32), LIKELIEST[:0])
    places = list(one)
    yield from ((places[place], scores) for place, scores in path.score(list(one.values())))
    places = list(more)
    yield from ((places[place], scores) for place, scores in path.generate(list(more.values()), ends))
