"""The likeliest next tokens, as ``logprobs`` of completions lists them: what is not listed gets a bound."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import Any, Final

from choicewise.models.server.faults import Unanswerable
from choicewise.models.server.json_answer import JSON
from choicewise.models.server.prompts import Prompts
from choicewise.models.server.routes import fields
from choicewise.models.server.routes.nodes import nodes
from choicewise.models.server.routes.route import Call, OnePart, Part
from choicewise.questions import Question, Span, TokenScores
from choicewise.tokens.tokenizer import Tokenizer

ROUNDING: Final = 1e-6
"""By how much the sum of listed probabilities may be too great, as they are rounded."""


class TopTokens(OnePart):
    """One request for every context, for the ``count`` likeliest next tokens; continuations of one token alone.

    Tokens come by their text (``by_id`` where a server names them by id; ``spaceless`` where it leaves out the space
    that they begin with, None where that is not known): a token that may have the name of another one can't be
    distinguished from it.
    """

    cost = "one request for every context; what is not among the likeliest tokens gets an upper bound"
    supports: frozenset[type] = frozenset({Span})

    def __init__(
        self,
        model: str,
        tokenizer: Tokenizer,
        prompts: Prompts,
        count: int,
        by_id: bool = False,
        spaceless: bool | None = False,
    ) -> None:
        """``model``: its name at the server."""
        self._model, self._tokenizer = model, tokenizer
        self.prompts, self._count, self._by_id, self._spaceless = prompts, count, by_id, spaceless

    @property
    def name(self) -> str:
        """How many tokens are listed, and how prompts are sent."""
        return f"top {self._count} next tokens, prompts as {self.prompts.name}"

    def objection(self, question: Question) -> str | None:
        """Why not: several tokens, a token that has no text of its own, a context that no text gives."""
        assert isinstance(question, Span)
        if objection := self.token_objection(question):
            return objection
        return self.prompts.objection(question.context.tolist())

    def token_objection(self, span: Span) -> str | None:
        """Why the continuation can't be found among listed tokens."""
        if len(span.continuation) > 1:
            return "the server gives probabilities of the likeliest next tokens only, and a continuation has several"
        token = int(span.continuation[0])
        if not self._by_id and any(self._token_of.get(name) != token for name in self._names(token)):
            spaces = {True: " without the space that they begin with", None: ", maybe without the space in front"}
            said = spaces.get(self._spaceless, "")
            return f"the server names tokens by their text{said}, and token {token} has none of its own"
        return None

    def calls(self, questions: Sequence[tuple[int, Question]]) -> Iterator[Call]:
        """One request for every context."""
        for node in nodes([(index, question) for index, question in questions if isinstance(question, Span)]):
            wanted = [(part, token) for token, parts in node.tokens.items() for part in parts]
            yield self._call(node.prefix, [part for part, _ in wanted], [token for _, token in wanted])

    def scores(self, token: int, listed: Mapping[Any, float]) -> TokenScores:
        """The score of ``token`` from the ``listed`` likeliest ones (id or bytes → nats): its own, or a bound."""
        names = [token] if self._by_id else self._names(token)
        for name in (each for each in names if each in listed):
            rank = sum(logprob > listed[name] for logprob in listed.values())
            return TokenScores.of([token], [listed[name]], [rank])
        scores = TokenScores.of([token], [bound(listed.values())], [-1 - len(listed)])
        scores.at_most = True
        return scores

    def _call(self, prefix: list[int], parts: list[Part], targets: list[int]) -> Call:
        body: dict[str, Any] = {"model": self._model, "prompt": self.prompts.prompt(prefix), "max_tokens": 1}
        body |= {"temperature": 0, "top_p": 1, "logprobs": self._count}
        if self._by_id:
            body["return_tokens_as_token_ids"] = True
        return Call("completions", body, parts, partial(self._read, len(prefix), targets))

    def _read(self, inputs: int, targets: Sequence[int], answer: JSON) -> list[TokenScores]:
        listed = self.listed(answer, inputs)
        return [self.scores(token, listed) for token in targets]

    def listed(self, answer: JSON, inputs: int) -> dict[Any, float]:
        """What an answer to a prompt of ``inputs`` tokens lists: id or bytes → nats."""
        fields.check_prompt(answer, inputs)
        places = fields.items(fields.part(fields.choice(answer), "logprobs"), "top_logprobs")
        if len(places) != 1 or not isinstance(places[0], dict):
            raise Unanswerable(f"the server lists next tokens at {len(places)} places in place of 1")
        named = fields.named_logprobs(places[0]) if self._by_id else places[0]
        listed = {_bytes(name): fields.number(value) for name, value in named.items()}
        check_listed(listed)
        return listed

    def identified(self, listed: Mapping[Any, float]) -> list[tuple[int, float]]:
        """(token, nats) of those ``listed`` whose name no other token has, likeliest first."""
        ordered = sorted(listed.items(), key=lambda each: -each[1])
        if self._by_id:
            return [(name, nats) for name, nats in ordered if name < len(self._tokenizer.token_bytes)]
        return [(self._token_of[name], nats) for name, nats in ordered if name in self._token_of]

    @cached_property
    def _token_of(self) -> dict[bytes, int]:
        """Name → token, where only that one is named so and it is a text by itself."""
        table = self._tokenizer.token_bytes
        named = [(name, token) for token in range(len(table)) for name in self._names(token)]
        count = Counter(name for name, _ in named)
        return {name: token for name, token in named if name and count[name] == 1 and fields.is_text(table[token])}

    def _names(self, token: int) -> list[bytes]:
        """What the server may call ``token``; bytes that are no text are U+FFFD there."""
        table = self._tokenizer.token_bytes
        name = (table[token] if token < len(table) else b"").decode(errors="replace")
        bare = name.removeprefix(" ")
        names = {True: [bare], False: [name], None: [name, bare] if bare and bare != name else [name]}
        return [each.encode() for each in names[self._spaceless]]


def bound(listed: Any) -> float:
    """What the log-probability of a token that is not ``listed`` (nats) is at most, in nats."""
    logprobs = list(listed)
    remaining = 1 - sum(map(math.exp, logprobs)) + ROUNDING
    return min(*logprobs, math.log(max(remaining, ROUNDING)), 0.0)


def check_listed(listed: Mapping[Any, float]) -> None:
    """Raise Unanswerable for a list of next tokens that can't be one: empty, or of more than probability 1."""
    if not listed:
        raise Unanswerable("the server lists no next tokens")
    if sum(map(math.exp, listed.values())) > 1 + 1e-3:
        raise Unanswerable("the server lists next tokens whose probabilities add up to more than 1")


def _bytes(name: Any) -> Any:
    return name.encode(errors="replace") if isinstance(name, str) else name
