"""Ranks of unlikely tokens, which chosen next tokens do not say.

Whether a letter is among the 100 likeliest tokens counts in the original MMLU script.  A token of probability 1/100 or
more is; of one below, whose rank is not known, the prompt's own log-probabilities say it.  They cost a whole prompt
without the server's cache, so they are asked for where a protocol scores by ranks (:attr:`Span.ranked`) and nowhere
else.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from choicewise.models.server.asking import ask
from choicewise.models.server.client import Client
from choicewise.models.server.routes.route import Route
from choicewise.questions import Answers, Question, Span, TokenScores

COUNTED: Final = 100
"""Tokens among which a label counts."""


def with_label_ranks(
    client: Client, whole: Route, answers: Answers, questions: Mapping[int, Question], model: str
) -> Answers:
    """``answers`` to ``questions`` (by index), those that need ranks last, with the ranks that ``whole`` gives."""
    unranked = dict[int, TokenScores]()
    for index, answer in answers:
        if _is_unranked(questions[index], answer):
            unranked[index] = answer
        else:
            yield index, answer
    asked = [(index, questions[index]) for index in unranked]
    for index, answer in ask(client, whole, asked, model):
        yield index, unranked[index] if answer.missing else replace(unranked[index], ranks=answer.ranks)


def _is_unranked(question: Question, answer: TokenScores) -> bool:
    """Whether the ranks of its tokens matter, and one of them is unlikely and has no known rank."""
    if not isinstance(question, Span) or not question.ranked or answer.missing is not None:
        return False
    return bool(((answer.ranks < 0) & (answer.logprobs < -math.log(COUNTED))).any())
