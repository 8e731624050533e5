"""SGLang's own ``/generate``: log-probabilities of the end of a prompt, and of chosen next tokens."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from choicewise.models.server.faults import Unanswerable
from choicewise.models.server.json_answer import JSON
from choicewise.models.server.routes import fields
from choicewise.models.server.routes.chosen_tokens import ChosenTokens, chosen_scores
from choicewise.models.server.routes.route import Call, Part
from choicewise.models.server.routes.whole_spans import Whole, WholeSpans
from choicewise.questions import UNKNOWN, TokenScores

PATH = "/generate"
_ONE = {"max_new_tokens": 1, "temperature": 0}


class SglangPrompts(WholeSpans):
    """Every span that is no prefix of another is a prompt of which only the end has log-probabilities.

    SGLang reads what comes before that end from its cache.
    """

    name = "SGLang's input log-probabilities"
    cost = "one request for every span, of which what comes before the continuation may be in the server's cache"

    def _call(self, whole: Whole) -> Call:
        body: dict[str, Any] = {"input_ids": whole.tokens, "sampling_params": _ONE, "return_logprob": True}
        body["logprob_start_len"] = whole.first - 1  # the first token there has none
        return Call(PATH, body, whole.parts, partial(_read, whole))


class SglangChosen(ChosenTokens):
    """``token_ids_logprob``: as vLLM's ``logprob_token_ids``."""

    name = "SGLang's chosen next tokens"

    def _call(self, prefix: list[int], ids: Sequence[int], parts: list[Part], targets: list[int] | None) -> Call:
        body: dict[str, Any] = {"input_ids": prefix, "sampling_params": _ONE, "return_logprob": True}
        body["token_ids_logprob"] = list(ids)
        return Call(PATH, body, parts, partial(_read_chosen, len(prefix), tuple(ids), targets, len(parts)))


def _read(whole: Whole, answer: JSON) -> list[TokenScores]:
    meta = _checked(answer, len(whole.tokens))
    given = [_triple(each) for each in fields.items(meta, "input_token_logprobs")]
    sent = whole.tokens[whole.first - 1 :]
    fields.check_ids([token for _, token in given], sent)
    logprobs = [fields.number(logprob) for logprob, _ in given[1:]]
    return whole.scores(logprobs, [UNKNOWN] * len(logprobs))


def _read_chosen(
    inputs: int, ids: Sequence[int], targets: Sequence[int] | None, parts: int, answer: JSON
) -> list[TokenScores]:
    meta = _checked(answer, inputs)
    places, generated = fields.items(meta, "output_token_ids_logprobs"), fields.items(meta, "output_token_logprobs")
    if len(places) != 1 or len(generated) != 1 or not isinstance(places[0], list):
        raise Unanswerable(f"the server gives log-probabilities at {len(places)} places in place of 1")
    listed = {token: logprob for logprob, token in [_triple(each) for each in [*places[0], generated[0]]]}
    return chosen_scores(ids, targets, parts, listed, _triple(generated[0])[1])


def _checked(answer: JSON, inputs: int) -> Any:
    meta = fields.part(answer, "meta_info")
    fields.check_prompt({"usage": meta}, inputs)
    return meta


def _triple(entry: Any) -> tuple[Any, Any]:
    """(log-probability, token) of ``[log-probability, token, text]``."""
    if not isinstance(entry, list) or len(entry) < 2 or isinstance(entry[1], bool) or not isinstance(entry[1], int):
        raise Unanswerable("the server gives no token with a log-probability")
    return entry[0], entry[1]
