"""Ranks of unlikely labels, which chosen next tokens do not say.

Whether a letter is among the 100 likeliest tokens counts in the original MMLU script.  A token of probability 1/100 or
more is; of one below, whose rank is not known, the prompt's own log-probabilities say it.  They cost a prompt without
the server's cache, so only labels are asked for: continuations of one visible character.  So the rule looks at one
question and its answer alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from choicewise.models.server.asking import ask
from choicewise.models.server.client import Client
from choicewise.models.server.routes.call import Route
from choicewise.questions import Answers, Question, Span, TokenScores

COUNTED: Final = 100
"""Tokens among which a label counts."""


def with_label_ranks(
    client: Client,
    whole: Route,
    answers: Answers,
    questions: Mapping[int, Question],
    model: str,
    token_bytes: Sequence[bytes],
) -> Answers:
    """``answers`` to ``questions`` (by index), those of unlikely labels last, with the ranks that ``whole`` gives."""
    unranked = dict[int, TokenScores]()
    for index, answer in answers:
        if isinstance(questions[index], Span) and _is_unranked(answer, token_bytes):
            unranked[index] = answer
        else:
            yield index, answer
    asked = [(index, questions[index]) for index in unranked]
    for index, answer in ask(client, whole, asked, model):
        yield index, unranked[index] if answer.missing else replace(unranked[index], ranks=answer.ranks)


def _is_unranked(answer: TokenScores, token_bytes: Sequence[bytes]) -> bool:
    """Whether it is about a label of which a token is unlikely and has no known rank."""
    if answer.missing is not None or not ((answer.ranks < 0) & (answer.logprobs < -math.log(COUNTED))).any():
        return False
    spelled = b"".join(token_bytes[token] if token < len(token_bytes) else b"" for token in answer.tokens)
    return len(spelled.decode(errors="replace").strip()) == 1
