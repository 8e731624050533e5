"""Scores and generations from as few trees as possible."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TypeVar

from choicewise.models.local.causal_lm import LIKELIEST
from choicewise.models.local.compute_path import ComputePath
from choicewise.questions import Answers, Generation, Mass, Span, TokenScores

Part = TypeVar("Part")


def answer_part(part: Mapping[int, Part], answer: Callable[[Sequence[Part]], Answers]) -> Answers:
    """The answers to the questions that ``part`` holds by index; ``answer`` counts them from 0."""
    indexes = list(part)
    if indexes:
        for number, scores in answer(list(part.values())):
            yield indexes[number], scores


def answer_tokens(
    path: ComputePath,
    questions: Sequence[Span | Mass | Generation],
    ends: Collection[int],
    token_bytes: Sequence[bytes],
) -> Answers:
    """The scores of every span and mass, and the tokens of every generation.

    All spans, masses and greedy generations of one token come from one tree, other generations from another.  What
    ends a generation, by ``ends`` and ``token_bytes``: :class:`choicewise.models.local.draft.Draft`.
    """
    scored: dict[int, Span | Mass] = {}
    generated: dict[int, Generation] = {}
    for index, question in enumerate(questions):
        if not isinstance(question, Generation):
            scored[index] = question
        elif question.limit == 1 and not question.stops and question.sampling is None:
            scored[index] = Span(question.context, LIKELIEST)
        elif question.limit:
            generated[index] = question
        else:
            yield index, TokenScores.of()
    yield from answer_part(scored, path.score)
    yield from answer_part(generated, lambda part: path.generate(part, ends, token_bytes))
