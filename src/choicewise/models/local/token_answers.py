"""Scores and greedy generations from as few trees as possible."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TypeVar

import numpy as np

from choicewise.models.local.causal_lm import LIKELIEST
from choicewise.models.local.compute_path import ComputePath
from choicewise.questions import Answers, Generation, Mass, Span, TokenScores

FIRST_TOKENS = 16
"""Tokens generated before stops are first looked for; then twice as many, and so on, so that few are in vain."""

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
    """The scores of every span and mass, and the greedy tokens of every generation.

    All spans, masses and generations of one token come from one tree, longer generations from another.  A generation
    ends after the first token of ``ends``, before a stop (found by ``token_bytes``), or at its limit.
    """
    scored: dict[int, Span | Mass] = {}
    generated: dict[int, Generation] = {}
    for index, question in enumerate(questions):
        if not isinstance(question, Generation):
            scored[index] = question
        elif question.limit == 1 and not question.stops:
            scored[index] = Span(question.context, LIKELIEST)
        elif question.limit:
            generated[index] = question
        else:
            yield index, TokenScores.of()
    yield from answer_part(scored, path.score)
    yield from answer_part(generated, lambda part: _generate(path, part, ends, token_bytes))


def _generate(
    path: ComputePath, generations: Sequence[Generation], ends: Collection[int], token_bytes: Sequence[bytes]
) -> Answers:
    """In one go where nothing stops a generation, else in parts that double, with a look for stops after each."""
    unfinished = {index: TokenScores.of() for index in range(len(generations))}
    step = FIRST_TOKENS
    while unfinished:
        indexes, parts = list(unfinished), []
        for index, scores in unfinished.items():
            generation, tokens = generations[index], scores.tokens
            remaining = generation.limit - len(tokens)
            context = np.concatenate([generation.context, tokens])
            parts.append(Generation(context, min(remaining, step) if generation.stops else remaining))
        for number, part in path.generate(parts, ends):
            index, generation = indexes[number], generations[indexes[number]]
            scores = TokenScores.joined([unfinished.pop(index), part])
            tokens = scores.tokens
            count = generation.before_stop(tokens.tolist(), token_bytes)
            if count < len(tokens) or len(tokens) == generation.limit or tokens[-1] in ends:
                yield index, scores.first(count)
            else:
                unfinished[index] = scores
        step *= 2
