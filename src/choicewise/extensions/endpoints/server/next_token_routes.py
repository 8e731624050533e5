"""Ways of asking by next tokens: chosen ones, the likeliest ones, those of chats."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import Any, Final

import numpy as np

from choicewise.extensions.endpoints.server.faults import JSON, Unanswerable
from choicewise.extensions.endpoints.server.routes import (
    ONE_TOKEN,
    PLAIN,
    SGLANG_PATH,
    Call,
    Part,
    Prompts,
    Route,
    chat_body,
    chat_objection,
    choice,
    field,
    is_text,
    joined_scores,
    logprobs_of,
    named_id,
    named_logprobs,
    nodes,
    number,
    sglang_entry,
    sglang_meta,
    thought_in,
)
from choicewise.questions import NOT_FIRST, UNKNOWN, Mass, Prompt, Span, TokenScores
from choicewise.tokens.tokenizer import Tokenizer

MOST: Final = 20  # tokens that a request may choose: vLLM's ``--max-logprobs`` is 20 by default, and 128 at most
MOST_MEMBERS: Final = 2048  # tokens of a set whose probability is asked for, in chunks
_ROUNDING: Final = (
    1e-6  # by how much the sum of listed probabilities may be too great, as they are rounded
)


class ChosenTokens(Route):
    """vLLM's ``logprob_token_ids``: every prefix that is read is one request, with all next tokens wanted there.

    Prefixes come in depth-first order, so that the server computes little more than every unique token once.  The
    likeliest token comes with them: whether a token is that one is known, and no other rank.
    """

    name = "chosen next tokens"
    cost = "one request for every place in the token tree that is read; the server's prefix cache works"
    supports = frozenset({Span, Mass})
    path = "completions"

    def objection(self, question: Prompt) -> str | None:
        """None for spans, and for masses of at most ``MOST_MEMBERS`` tokens."""
        if isinstance(question, Mass) and not 0 < len(question.members.ids) <= MOST_MEMBERS:
            return (
                f"the total probability of {len(question.members.ids)} tokens takes more than {MOST_MEMBERS // MOST}"
                f" requests, as the server gives {MOST} log-probabilities at once"
            )
        return None

    def parts(self, question: Prompt) -> int:
        """A part for every token of a span, or for every chunk of a set."""
        if isinstance(question, Mass):
            return math.ceil(len(question.members.ids) / MOST)
        assert isinstance(question, Span)
        return len(question.continuation)

    def calls(self, questions: Sequence[tuple[int, Prompt]]) -> Iterator[Call]:
        """One request for every prefix, or more where more than ``MOST`` tokens are wanted there."""
        for node in nodes(
            [
                (index, question)
                for index, question in questions
                if isinstance(question, Span | Mass)
            ]
        ):
            for ids in _chunks(sorted(node.tokens)):
                wanted = [(part, token) for token in ids for part in node.tokens[token]]
                yield self._call(
                    node.prefix, ids, [part for part, _ in wanted], [token for _, token in wanted]
                )
            for members, masses in node.sets:
                for chunk, ids in enumerate(_chunks(members.ids.tolist())):
                    yield self._call(
                        node.prefix, ids, [Part(question, chunk) for question, _ in masses], None
                    )

    def joined(self, question: Prompt, parts: Sequence[TokenScores]) -> TokenScores:
        """The tokens of a span one after another; of a set the likeliest member, and the log of the sum of all."""
        return joined_scores(question, parts)

    def _call(
        self, prefix: list[int], ids: Sequence[int], parts: list[Part], targets: list[int] | None
    ) -> Call:
        """The scores of ``targets`` after ``prefix``, or where there are none, of all ``ids`` for every part."""

        def read(answer: JSON) -> list[TokenScores]:
            listed, generated = self._listed(answer, len(prefix))
            if lacking := [token for token in ids if token not in listed]:
                raise Unanswerable(
                    f"the server gives no log-probability of token {lacking[0]}, though it was asked for"
                )
            logprobs = {token: number(value) for token, value in listed.items()}
            highest = max(logprobs.values())
            first = 0 if generated is not None and logprobs.get(generated) == highest else UNKNOWN
            ranks = {
                token: first if logprob >= highest else NOT_FIRST
                for token, logprob in logprobs.items()
            }
            wanted = [list(ids)] * len(parts) if targets is None else [[token] for token in targets]
            return [
                TokenScores.of(
                    each, [logprobs[token] for token in each], [ranks[token] for token in each]
                )
                for each in wanted
            ]

        return Call(self.path, self._body(prefix, ids), parts, read)

    def _body(self, prefix: list[int], ids: Sequence[int]) -> dict[str, Any]:
        body = {"model": self._model, "prompt": prefix, "max_tokens": 1, **PLAIN}
        return body | {
            "logprobs": len(ids),
            "logprob_token_ids": list(ids),
            "return_tokens_as_token_ids": True,
        }

    def _listed(self, answer: JSON, inputs: int) -> tuple[Mapping[int, Any], int | None]:
        """What the server gives as log-probabilities after ``inputs`` tokens, and the token that it found likeliest."""
        given = logprobs_of(answer, inputs)
        generated, places = field(given, "tokens", list), field(given, "top_logprobs", list)
        _check_places(places, generated)
        return named_logprobs(places[0]), named_id(str(generated[0]))


class SglangChosen(ChosenTokens):
    """``token_ids_logprob``: as vLLM's ``logprob_token_ids``."""

    name = "SGLang's chosen next tokens"
    path = SGLANG_PATH

    def _body(self, prefix: list[int], ids: Sequence[int]) -> dict[str, Any]:
        body = {"input_ids": prefix, "sampling_params": ONE_TOKEN, "return_logprob": True}
        return body | {"token_ids_logprob": list(ids)}

    def _listed(self, answer: JSON, inputs: int) -> tuple[Mapping[int, Any], int | None]:
        """As of vLLM; the generated token's own log-probability comes beside the list."""
        meta = sglang_meta(answer, inputs)
        places, generated = (
            field(meta, f"output_token{name}_logprobs", list) for name in ("_ids", "")
        )
        _check_places(places if all(isinstance(each, list) for each in places) else [], generated)
        listed = {
            token: logprob for logprob, token in map(sglang_entry, [*places[0], generated[0]])
        }
        return listed, sglang_entry(generated[0])[1]


class TopTokens(Route):
    """One request for every context, for the ``count`` likeliest next tokens; continuations of one token alone.

    Tokens come by their text (``by_id`` where a server names them by id; ``spaceless`` where it leaves out the space
    that they begin with, None where that is not known): a token that may have the name of another one can't be
    distinguished from it.
    """

    cost = (
        "one request for every context; what is not among the likeliest tokens gets an upper bound"
    )
    path = "completions"

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
        self.name = f"top {count} next tokens, prompts as {prompts.name}"

    def objection(self, question: Prompt) -> str | None:
        """Why not: several tokens, a token that has no text of its own, a context that no text gives."""
        assert isinstance(question, Span)
        if len(question.continuation) > 1:
            return "the server gives probabilities of the likeliest next tokens only, and a continuation has several"
        token = int(question.continuation[0])
        if not self._by_id and any(
            self._token_of.get(name) != token for name in self._names(token)
        ):
            spaces = {
                True: " without the space that they begin with",
                None: ", maybe without the space in front",
            }
            said = spaces.get(self._spaceless, "")
            return f"the server names tokens by their text{said}, and token {token} has none of its own"
        return self.prompts.objection(question.context.tolist())

    def calls(self, questions: Sequence[tuple[int, Prompt]]) -> Iterator[Call]:
        """One request for every context."""
        for node in nodes(
            [(index, question) for index, question in questions if isinstance(question, Span)]
        ):
            wanted = [(part, token) for token, parts in node.tokens.items() for part in parts]
            read = partial(self._read, len(node.prefix), [token for _, token in wanted])
            yield Call(self.path, self._body(node.prefix), [part for part, _ in wanted], read)

    def scores(self, token: int, listed: Mapping[Any, float]) -> TokenScores:
        """The score of ``token`` from the ``listed`` likeliest ones (id or bytes → nats): its own, or a bound."""
        names = [token] if self._by_id else self._names(token)
        for name in (each for each in names if each in listed):
            rank = sum(logprob > listed[name] for logprob in listed.values())
            return TokenScores.of([token], [listed[name]], [rank])
        scores = TokenScores.of([token], [bound(listed.values())], [-1 - len(listed)])
        scores.at_most = True
        return scores

    def _body(self, prefix: list[int]) -> dict[str, Any]:
        body = {"model": self._model, "prompt": self.prompts.prompt(prefix), "max_tokens": 1}
        body |= {"temperature": 0, "top_p": 1, "logprobs": self._count}
        return body | ({"return_tokens_as_token_ids": True} if self._by_id else {})

    def _read(self, inputs: int, targets: Sequence[int], answer: JSON) -> list[TokenScores]:
        listed = self.listed(answer, inputs)
        return [self.scores(token, listed) for token in targets]

    def listed(self, answer: JSON, inputs: int) -> dict[Any, float]:
        """What an answer to a prompt of ``inputs`` tokens lists: id or bytes → nats."""
        places = field(logprobs_of(answer, inputs), "top_logprobs", list)
        if len(places) != 1 or not isinstance(places[0], dict):
            raise Unanswerable(
                f"the server lists next tokens at {len(places)} places in place of 1"
            )
        if self._by_id:
            listed: dict[Any, float] = {
                token: number(value) for token, value in named_logprobs(places[0]).items()
            }
        else:
            listed = {
                name.encode(errors="replace"): number(value) for name, value in places[0].items()
            }
        check_listed(listed)
        return listed

    def identified(self, listed: Mapping[Any, float]) -> list[tuple[int, float]]:
        """(token, nats) of those ``listed`` whose name no other token has, likeliest first."""
        ordered = sorted(listed.items(), key=lambda each: -each[1])
        if self._by_id:
            return [
                (name, nats) for name, nats in ordered if name < len(self._tokenizer.token_bytes)
            ]
        return [(self._token_of[name], nats) for name, nats in ordered if name in self._token_of]

    @cached_property
    def _token_of(self) -> dict[bytes, int]:
        """Name → token, where only that one is named so and it is a text by itself."""
        table = self._tokenizer.token_bytes
        named = [(name, token) for token in range(len(table)) for name in self._names(token)]
        count = Counter(name for name, _ in named)
        return {
            name: token
            for name, token in named
            if name and count[name] == 1 and is_text(table[token])
        }

    def _names(self, token: int) -> list[bytes]:
        """What the server may call ``token``; bytes that are no text are U+FFFD there."""
        table = self._tokenizer.token_bytes
        name = (table[token] if token < len(table) else b"").decode(errors="replace")
        bare = name.removeprefix(" ")
        names = {
            True: [bare],
            False: [name],
            None: [name, bare] if bare and bare != name else [name],
        }
        return [each.encode() for each in names[self._spaceless]]


class ChatTopTokens(TopTokens):
    """``top_logprobs`` of the first token that the assistant says; tokens come by their bytes."""

    cost = "one request for every chat; what is not among the likeliest tokens gets an upper bound"
    path = "chat/completions"

    def __init__(self, model: str, tokenizer: Tokenizer, count: int) -> None:
        """``model``: its name at the server; ``count``: how many tokens it lists."""
        super().__init__(model, tokenizer, Prompts(), count)
        self.name = f"top {count} first tokens in a chat"

    def objection(self, question: Prompt) -> str | None:
        """Why not: no chat, several tokens, or a token without a text of its own."""
        assert isinstance(question, Span)
        return chat_objection(self._tokenizer, question.context) or super().objection(question)

    def _body(self, prefix: list[int]) -> dict[str, Any]:
        body = {
            "model": self._model,
            **chat_body(self._tokenizer, np.asarray(prefix, dtype=np.int32)),
        }
        return body | {
            "max_tokens": 1,
            "temperature": 0,
            "top_p": 1,
            "logprobs": True,
            "top_logprobs": self._count,
        }

    def listed(self, answer: JSON, inputs: int) -> dict[Any, float]:
        """What an answer lists: bytes → nats.  Nothing is scored inside a thought."""
        message = choice(answer).get("message")
        if isinstance(message, dict) and thought_in(message):
            raise Unanswerable(
                "the server's chat begins with a thought, inside which nothing is scored; tell its template not to "
                "think (template=enable_thinking=false), or use a protocol that generates an answer"
            )
        places = field(logprobs_of(answer), "content", list)
        if len(places) != 1:
            raise Unanswerable(f"the server lists tokens at {len(places)} places in place of 1")
        entries = field(places[0], "top_logprobs", list)
        listed = dict[Any, float]()
        for entry in entries:
            if not isinstance(entry, dict) or "logprob" not in entry:
                raise Unanswerable("the server lists a token without a log-probability")
            listed[_spelled(entry)] = number(entry["logprob"])
        if len(listed) < len(entries):
            raise Unanswerable("the server lists several tokens with the same text")
        check_listed(listed)
        return listed


def bound(listed: Any) -> float:
    """What the log-probability of a token that is not ``listed`` (nats) is at most, in nats."""
    logprobs = list(listed)
    remaining = 1 - sum(map(math.exp, logprobs)) + _ROUNDING
    return min(*logprobs, math.log(max(remaining, _ROUNDING)), 0.0)


def check_listed(listed: Mapping[Any, float]) -> None:
    """Raise Unanswerable for a list of next tokens that can't be one: empty, or of more than probability 1."""
    if not listed:
        raise Unanswerable("the server lists no next tokens")
    if sum(map(math.exp, listed.values())) > 1 + 1e-3:
        raise Unanswerable("the server lists next tokens whose probabilities add up to more than 1")


def _check_places(places: Sequence[Any], generated: Sequence[Any]) -> None:
    if len(places) != 1 or len(generated) != 1:
        raise Unanswerable(
            f"the server gives log-probabilities at {len(places)} places in place of 1"
        )


def _chunks(ids: Sequence[int]) -> Iterator[Sequence[int]]:
    return (ids[start : start + MOST] for start in range(0, len(ids), MOST))


def _spelled(entry: dict[str, Any]) -> bytes:
    """The bytes of a listed token: as the server gives them, or of its text."""
    given = entry.get("bytes")
    if isinstance(given, list) and all(isinstance(byte, int) and 0 <= byte < 256 for byte in given):
        return bytes(given)
    return field(entry, "token", str).encode(errors="replace")
