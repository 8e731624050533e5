"""Scores and greedy generations from one tree: a generation's next token is one more row that is read."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import numpy as np

from choicewise.engine.span import Prompt, Span, TokenScores
from choicewise.models.causal import GREEDY
from choicewise.models.ladder import Path

LIKELIEST = np.asarray([GREEDY], dtype=np.int32)


def answer(path: Path, questions: Sequence[Span | Prompt], ends: Collection[int]) -> Iterator[tuple[int, TokenScores]]:
    """(index into ``questions``, the scores of a span or the greedy tokens of a prompt), as results become available.

    All spans and all first tokens come from one tree; every further token is a round over the prompts still going.
    A generation ends behind the first token of ``ends`` (which is kept) or after ``new_tokens``.  Log-probabilities
    are those of the raw logits.
    """
    generated: dict[int, list[TokenScores]] = {}
    contexts: dict[int, Span] = {}
    for index, question in enumerate(questions):
        if isinstance(question, Span):
            contexts[index] = question
        elif question.new_tokens > 0:
            contexts[index] = Span(question.context, LIKELIEST)
            generated[index] = []
    while contexts:
        running, asked = list(contexts), list(contexts.values())
        contexts = {}
        for place, scores in path.score(asked):
            index, question = running[place], questions[running[place]]
            if isinstance(question, Span):
                yield index, scores
                continue
            generated[index].append(scores)
            if len(generated[index]) == question.new_tokens or int(scores.tokens[0]) in ends:
                yield index, _joined(generated.pop(index))
            else:
                contexts[index] = Span(np.concatenate([asked[place].context, scores.tokens]), LIKELIEST)


def _joined(parts: list[TokenScores]) -> TokenScores:
    return TokenScores(
        tokens=np.concatenate([part.tokens for part in parts]),
        logprobs=np.concatenate([part.logprobs for part in parts]),
        ranks=np.concatenate([part.ranks for part in parts]),
    )
