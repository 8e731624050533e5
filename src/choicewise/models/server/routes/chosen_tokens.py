"""The log-probabilities of chosen next tokens: one generated token a request, so that the server's cache is used."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

import numpy as np

from choicewise.models.server.faults import Unanswerable
from choicewise.models.server.json_answer import JSON
from choicewise.models.server.routes import fields
from choicewise.models.server.routes.nodes import nodes
from choicewise.models.server.routes.route import Call, Part
from choicewise.questions import NOT_FIRST, UNKNOWN, Mass, Question, Span, TokenScores

MOST: Final = 20
"""Tokens that a request may choose: vLLM takes no more than its ``--max-logprobs``, by default 20 (and 128 at most)."""

MOST_MEMBERS: Final = 2048
"""Tokens of a set whose probability is asked for, in chunks."""

PLAIN: Final = {"temperature": 0, "top_p": 1, "repetition_penalty": 1, "presence_penalty": 0, "frequency_penalty": 0}
"""The most likely token of the model's own distribution, whatever the server's defaults are."""


class ChosenTokens:
    """vLLM's ``logprob_token_ids``: every prefix that is read is one request, with all next tokens wanted there.

    Prefixes come in depth-first order, so that the server computes little more than every unique token once.  The
    likeliest token comes with them: whether a token is that one is known, and no other rank.
    """

    name = "chosen next tokens"
    cost = "one request for every place in the token tree that is read; the server's prefix cache works"
    supports: frozenset[type] = frozenset({Span, Mass})

    def __init__(self, model: str) -> None:
        """``model``: its name at the server."""
        self._model = model

    def objection(self, question: Question) -> str | None:
        """None for spans, and for masses of at most ``MOST_MEMBERS`` tokens."""
        if isinstance(question, Mass) and not 0 < len(question.members.ids) <= MOST_MEMBERS:
            return (
                f"the total probability of {len(question.members.ids)} tokens takes more than {MOST_MEMBERS // MOST}"
                f" requests, as the server gives {MOST} log-probabilities at once"
            )
        return None

    def parts(self, question: Question) -> int:
        """A part for every token of a span, or for every chunk of a set."""
        if isinstance(question, Mass):
            return math.ceil(len(question.members.ids) / MOST)
        assert isinstance(question, Span)
        return len(question.continuation)

    def calls(self, questions: Sequence[tuple[int, Question]]) -> Iterator[Call]:
        """One request for every prefix, or more where more than ``MOST`` tokens are wanted there."""
        for node in nodes([(index, question) for index, question in questions if isinstance(question, Span | Mass)]):
            for ids in _chunks(sorted(node.tokens)):
                wanted = [(part, token) for token in ids for part in node.tokens[token]]
                yield self._call(node.prefix, ids, [part for part, _ in wanted], [token for _, token in wanted])
            for members, masses in node.sets:
                for number, ids in enumerate(_chunks(members.ids.tolist())):
                    yield self._call(node.prefix, ids, [Part(question, number) for question, _ in masses], None)

    def joined(self, question: Question, parts: Sequence[TokenScores]) -> TokenScores:
        """The tokens of a span one after another; of a set the likeliest member, and the log of the sum of all."""
        scores = TokenScores.joined(parts)
        if not isinstance(question, Mass):
            return scores
        best = int(scores.logprobs.argmax())
        mass = np.logaddexp.reduce(scores.logprobs.astype(np.float64))
        return TokenScores.of([scores.tokens[best]], [min(mass, 0.0)], [scores.ranks[best]])

    def _call(self, prefix: list[int], ids: Sequence[int], parts: list[Part], targets: list[int] | None) -> Call:
        body: dict[str, Any] = {"model": self._model, "prompt": prefix, "max_tokens": 1, **PLAIN}
        body |= {"logprobs": len(ids), "logprob_token_ids": list(ids), "return_tokens_as_token_ids": True}
        return Call("completions", body, parts, partial(_read, len(prefix), tuple(ids), targets, len(parts)))


def _read(
    inputs: int, ids: Sequence[int], targets: Sequence[int] | None, parts: int, answer: JSON
) -> list[TokenScores]:
    """The scores of ``targets``; where there are none, those of all ``ids`` for every one of the ``parts``."""
    fields.check_prompt(answer, inputs)
    given = fields.part(fields.choice(answer), "logprobs")
    generated, places = fields.items(given, "tokens"), fields.items(given, "top_logprobs")
    if len(places) != 1 or len(generated) != 1:
        raise Unanswerable(f"the server gives log-probabilities at {len(places)} places in place of 1")
    listed = fields.named_logprobs(places[0])
    return chosen_scores(ids, targets, parts, listed, fields.named_id(str(generated[0])))


def chosen_scores(
    ids: Sequence[int], targets: Sequence[int] | None, parts: int, listed: Mapping[int, Any], generated: int | None
) -> list[TokenScores]:
    """The scores of ``targets``; where there are none, those of all ``ids`` for every one of the ``parts``.

    ``listed``: what the server gives as log-probabilities; ``generated``: the token that it found likeliest.  Raises
    Unanswerable where one of ``ids`` is not listed.
    """
    if lacking := [token for token in ids if token not in listed]:
        raise Unanswerable(f"the server gives no log-probability of token {lacking[0]}, though it was asked for")
    logprobs = {token: fields.number(value) for token, value in listed.items()}
    highest = max(logprobs.values())
    first = 0 if generated is not None and logprobs.get(generated) == highest else UNKNOWN
    ranks = {token: first if logprob >= highest else NOT_FIRST for token, logprob in logprobs.items()}
    if targets is None:
        return [TokenScores.of(ids, [logprobs[token] for token in ids], [ranks[token] for token in ids])] * parts
    return [TokenScores.of([token], [logprobs[token]], [ranks[token]]) for token in targets]


def _chunks(ids: Sequence[int]) -> Iterator[Sequence[int]]:
    return (ids[start : start + MOST] for start in range(0, len(ids), MOST))
