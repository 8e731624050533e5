"""The log-probabilities of a prompt's own tokens, by vLLM's ``prompt_logprobs``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from choicewise.models.server.faults import Unanswerable
from choicewise.models.server.json_answer import JSON
from choicewise.models.server.routes import reading
from choicewise.models.server.routes.call import Call
from choicewise.models.server.routes.chosen_tokens import PLAIN
from choicewise.models.server.routes.whole_spans import Whole, whole_spans
from choicewise.questions import Question, Span, TokenScores


class PromptLogprobs:
    """Every span that is no prefix of another is a prompt, and its tokens' log-probabilities and ranks come back.

    vLLM does not use its prefix cache for them, so that every prompt is computed from its beginning.
    """

    name = "prompt log-probabilities"
    cost = "one request for every span, computed from its first token on, as they switch the prefix cache off"
    supports: frozenset[type] = frozenset({Span})

    def __init__(self, model: str) -> None:
        """``model``: its name at the server."""
        self._model = model

    def objection(self, question: Question) -> str | None:
        """None: every span can be asked."""
        return None

    def parts(self, question: Question) -> int:
        """One: a span comes whole."""
        return 1

    def calls(self, questions: Sequence[tuple[int, Question]]) -> Iterator[Call]:
        """One request for every span that is no prefix of another."""
        for whole in whole_spans([(index, span) for index, span in questions if isinstance(span, Span)]):
            body: dict[str, Any] = {"model": self._model, "prompt": whole.tokens, "max_tokens": 1, **PLAIN}
            body["prompt_logprobs"] = 1
            yield Call("completions", body, whole.parts, partial(_read, whole))

    def joined(self, question: Question, parts: Sequence[TokenScores]) -> TokenScores:
        """The one part."""
        return parts[0]


def _read(whole: Whole, answer: JSON) -> list[TokenScores]:
    reading.check_prompt(answer, len(whole.tokens))
    given = reading.items(reading.choices(answer)[0], "prompt_logprobs")
    if len(given) != len(whole.tokens):
        raise Unanswerable(
            f"the server gives log-probabilities of {len(given)} tokens where {len(whole.tokens)} were sent"
        )
    logprobs, ranks = [0.0], [0]
    for token, place in zip(whole.tokens[whole.first :], given[whole.first :], strict=True):
        listed = place.get(str(token)) if isinstance(place, dict) else None
        if not isinstance(listed, dict):
            raise Unanswerable(f"the server gives no log-probability of token {token} of the prompt")
        rank = listed.get("rank")
        if isinstance(rank, bool) or not isinstance(rank, int) or rank < 1:
            raise Unanswerable(f"the server gives {rank!r} as the rank of token {token}")
        logprobs.append(reading.number(listed.get("logprob")))
        ranks.append(rank - 1)
    return whole.scores(logprobs[1:], ranks[1:])
