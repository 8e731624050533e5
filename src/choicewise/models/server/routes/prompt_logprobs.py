"""The log-probabilities of a prompt's own tokens, by vLLM's ``prompt_logprobs``."""

from __future__ import annotations

from functools import partial
from typing import Any

from choicewise.models.server.faults import Unanswerable
from choicewise.models.server.json_answer import JSON
from choicewise.models.server.routes import fields
from choicewise.models.server.routes.chosen_tokens import PLAIN
from choicewise.models.server.routes.route import Call
from choicewise.models.server.routes.whole_spans import Whole, WholeSpans
from choicewise.questions import TokenScores


class PromptLogprobs(WholeSpans):
    """Every span that is no prefix of another is a prompt, and its tokens' log-probabilities and ranks come back.

    vLLM does not use its prefix cache for them, so that every prompt is computed from its beginning.
    """

    name = "prompt log-probabilities"
    cost = "one request for every span, computed from its first token on, as they switch the prefix cache off"

    def __init__(self, model: str) -> None:
        """``model``: its name at the server."""
        self._model = model

    def _call(self, whole: Whole) -> Call:
        body: dict[str, Any] = {"model": self._model, "prompt": whole.tokens, "max_tokens": 1, **PLAIN}
        body["prompt_logprobs"] = 1
        return Call("completions", body, whole.parts, partial(_read, whole))


def _read(whole: Whole, answer: JSON) -> list[TokenScores]:
    fields.check_prompt(answer, len(whole.tokens))
    given = fields.items(fields.choice(answer), "prompt_logprobs")
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
        if isinstance(rank, bool) or not isinstance(rank, int) or not 1 <= rank < 2**31:
            raise Unanswerable(f"the server gives {rank!r:.40} as the rank of token {token}")
        logprobs.append(fields.number(listed.get("logprob")))
        ranks.append(rank - 1)
    return whole.scores(logprobs[1:], ranks[1:])
