"""Ask for log-probabilities of next tokens: of chosen ones, or of the likeliest, also in chats."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property, partial
from operator import itemgetter
from typing import Any

import numpy as np

from choicewise.extensions.endpoints.server.faults import JSON, Unanswerable
from choicewise.extensions.endpoints.server.routes import (
    ONE_TOKEN,
    PLAIN,
    SGLANG_PATH,
    Call,
    NextTokens,
    Numbered,
    Prompts,
    Route,
    chat_body,
    chat_objection,
    choice,
    field,
    is_text,
    logprobs_of,
    named_id,
    named_logprobs,
    nodes,
    number,
    only_position,
    requested,
    sglang_entry,
    sglang_meta,
    thought_in,
)
from choicewise.questions import NOT_FIRST, UNKNOWN, Ids, Mass, Prompt, Span, TokenScores
from choicewise.tokens.tokenizer import Tokenizer

MOST = 20
"""Tokens that a request may choose: vLLM's ``--max-logprobs`` is 20 by default, and 128 at most."""

MOST_MEMBERS = 2048
"""Tokens of a set whose probability is asked for, in chunks."""

# By how much rounding may lift the sum of listed probabilities.
_ROUNDING = 1e-6


class ChosenTokens(Route):
    """Ask for chosen next tokens (vLLM's ``logprob_token_ids``) after every prefix that is read.

    Prefixes come in depth-first order, so that the server computes little more than every unique
    token once.  The likeliest token comes with them, so a token is known to be that one or not, and
    no other rank is known.
    """

    name = "chosen next tokens"
    cost = "one request per scored position, with its prefix in the server's cache"
    supports = frozenset({Span, Mass})
    path = "completions"

    def objection(self, question: Prompt) -> str | None:
        """Return that a mass has more than ``MOST_MEMBERS`` tokens, or None."""
        if isinstance(question, Mass) and not 0 < len(question.members.ids) <= MOST_MEMBERS:
            return (
                f"the total probability of {len(question.members.ids)} tokens takes more than "
                f"{MOST_MEMBERS // MOST} requests of {MOST} log-probabilities each"
            )
        return None

    def parts(self, question: Prompt) -> int:
        """Return the number of tokens of a span, or of chunks of a set."""
        if isinstance(question, Mass):
            return math.ceil(len(question.members.ids) / MOST)
        assert isinstance(question, Span)
        return len(question.continuation)

    def calls(self, questions: Sequence[Numbered]) -> Iterator[Call]:
        """Yield a request for every prefix, or several if over ``MOST`` tokens are wanted there."""
        for node in nodes(questions):
            for wanted in node.requests(MOST):
                body = self._body(node.prefix, wanted.ids)
                read = partial(self._read, len(node.prefix), wanted)
                yield Call(self.path, body, wanted.parts, read)

    def _read(self, inputs: int, wanted: NextTokens, answer: JSON) -> list[TokenScores]:
        listed, generated = self._listed(answer, inputs)
        logprobs = {token: number(value) for token, value in listed.items()}
        highest = max(logprobs.values())
        # The server lists its likeliest token too.
        has_first = generated is not None and logprobs.get(generated) == highest
        rank_of_highest = 0 if has_first else UNKNOWN
        scores = []
        for tokens in wanted.targets:
            nats = [requested(logprobs, token) for token in tokens]
            ranks = np.where(np.array(nats) >= highest, rank_of_highest, NOT_FIRST)
            scores.append(TokenScores.of(tokens, nats, ranks))
        return scores

    def _body(self, prefix: list[int], ids: Sequence[int]) -> JSON:
        return {
            "model": self._model,
            "prompt": prefix,
            "max_tokens": 1,
            **PLAIN,
            "logprobs": len(ids),
            "logprob_token_ids": list(ids),
            "return_tokens_as_token_ids": True,
        }

    def _listed(self, answer: JSON, inputs: int) -> tuple[Mapping[int, Any], int | None]:
        """Return what the server lists after ``inputs`` tokens, and the token that it generated."""
        content = logprobs_of(answer, inputs)
        generated = field(content, "tokens", list)
        listed = only_position(field(content, "top_logprobs", list))
        return named_logprobs(listed), named_id(str(only_position(generated)))


class SglangChosen(ChosenTokens):
    """Ask SGLang for chosen next tokens (``token_ids_logprob``)."""

    name = "SGLang's chosen next tokens"
    path = SGLANG_PATH

    def _body(self, prefix: list[int], ids: Sequence[int]) -> JSON:
        return {
            "input_ids": prefix,
            "sampling_params": ONE_TOKEN,
            "return_logprob": True,
            "token_ids_logprob": list(ids),
        }

    def _listed(self, answer: JSON, inputs: int) -> tuple[Mapping[int, Any], int | None]:
        """Return what the server lists, with the generated token, which is not in its list."""
        meta = sglang_meta(answer, inputs)
        places = field(meta, "output_token_ids_logprobs", list)
        generated = field(meta, "output_token_logprobs", list)
        if not all(isinstance(entries, list) for entries in places):
            places = []
        listed = {}
        for entry in [*only_position(places), only_position(generated)]:
            logprob, token = sglang_entry(entry)
            listed[token] = logprob
        return listed, token


class TopTokens(Route):
    """Ask for the ``count`` likeliest next tokens after every context; spans of one token alone.

    ``by_id``: True if the server names tokens by id; else they come by their text, and a token that
    may have the name of another one can't be told from it.  ``spaceless``: True if the names lack
    the space that a token begins with, None if that is not known.
    """

    cost = "one request per context; a token that the server does not list gets an upper bound"
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
        """Ask ``model``, by its name at the server."""
        super().__init__(model)
        self._tokenizer = tokenizer
        self.prompts = prompts
        self._count = count
        self._by_id = by_id
        self._spaceless = spaceless
        self.name = f"top {count} next tokens, prompts as {prompts.name}"

    def objection(self, question: Prompt) -> str | None:
        """Return why the server can't be asked, or None.

        There are several tokens, one has no text of its own, or no text gives the context.
        """
        assert isinstance(question, Span)
        if len(question.continuation) > 1:
            return (
                "the server lists next tokens only, not longer continuations; use a protocol that "
                "scores letters"
            )
        token = int(question.continuation[0])
        owners = {self._token_of.get(name) for name in self._names(token)}
        if not self._by_id and owners != {token}:
            spaces = ""
            if self._spaceless:
                spaces = " without the space that they begin with"
            elif self._spaceless is None:
                spaces = ", maybe without the space in front"
            return (
                f"the server names tokens by their text{spaces}, and other tokens share the text "
                f"of token {token}"
            )
        return self.prompts.objection(question.context.tolist())

    def calls(self, questions: Sequence[Numbered]) -> Iterator[Call]:
        """Yield a request for every context."""
        for node in nodes(questions):
            parts = []
            targets = []
            for token, parts_of_token in node.tokens.items():
                parts += parts_of_token
                targets += [token] * len(parts_of_token)
            read = partial(self._read, len(node.prefix), targets)
            yield Call(self.path, self._body(node.prefix), parts, read)

    def call(self, prefix: Ids) -> Call:
        """Return the request for what comes after ``prefix``."""
        return next(self.calls([(0, Span(prefix, np.zeros(1, np.int32)))]))

    def scores(self, token: int, listed: Mapping[Any, float]) -> TokenScores:
        """Return the score of ``token`` from the ``listed`` likeliest ones (id or bytes → nats).

        A token that is not among them has an upper bound.
        """
        names: Sequence[Any] = [token] if self._by_id else self._names(token)
        for name in names:
            if name in listed:
                rank = sum(logprob > listed[name] for logprob in listed.values())
                return TokenScores.of([token], [listed[name]], [rank])
        scores = TokenScores.of([token], [bound(listed.values())], [-1 - len(listed)])
        scores.at_most = True
        return scores

    def _body(self, prefix: list[int]) -> JSON:
        body = {
            "model": self._model,
            "prompt": self.prompts.prompt(prefix),
            "max_tokens": 1,
            "temperature": 0,
            "top_p": 1,
            "logprobs": self._count,
        }
        if self._by_id:
            body["return_tokens_as_token_ids"] = True
        return body

    def _read(self, inputs: int, targets: Sequence[int], answer: JSON) -> list[TokenScores]:
        listed = self.listed(answer, inputs)
        return [self.scores(token, listed) for token in targets]

    def listed(self, answer: JSON, inputs: int) -> dict[Any, float]:
        """Return what an answer to a prompt of ``inputs`` tokens lists: id or bytes → nats."""
        named = only_position(field(logprobs_of(answer, inputs), "top_logprobs", list))
        if self._by_id:
            named = named_logprobs(named)
        elif not isinstance(named, dict):
            raise Unanswerable("the server lists no next tokens")
        listed: dict[Any, float] = {}
        for name, value in named.items():
            key = name if self._by_id else name.encode(errors="replace")
            listed[key] = number(value)
        check_listed(listed)
        return listed

    def identified(self, listed: Mapping[Any, float]) -> list[tuple[int, float]]:
        """Return (token, nats) of those ``listed`` whose name no other has, the likeliest first."""
        tokens = []
        for name, nats in sorted(listed.items(), key=itemgetter(1), reverse=True):
            token = name if self._by_id else self._token_of.get(name)
            if token is not None and token < len(self._tokenizer.token_bytes):
                tokens.append((token, nats))
        return tokens

    @cached_property
    def _token_of(self) -> dict[bytes, int]:
        """Return name → token of the names that one token alone has, if it is a text by itself."""
        table = self._tokenizer.token_bytes
        named = [(name, token) for token in range(len(table)) for name in self._names(token)]
        counts = Counter(map(itemgetter(0), named))
        tokens = {}
        for name, token in named:
            if name and counts[name] == 1 and is_text(table[token]):
                tokens[name] = token
        return tokens

    def _names(self, token: int) -> list[bytes]:
        """Return the server's possible names of ``token``; bytes that are no text are U+FFFD."""
        table = self._tokenizer.token_bytes
        spelled = table[token] if token < len(table) else b""
        name = spelled.decode(errors="replace")
        bare = name.removeprefix(" ")
        if self._spaceless:
            return [bare.encode()]
        names = [name.encode()]
        if self._spaceless is None and bare and bare != name:
            names.append(bare.encode())
        return names


class ChatTopTokens(TopTokens):
    """Ask for ``top_logprobs`` of the assistant's first token; tokens come by their bytes."""

    cost = "one request per chat; a token that the server does not list gets an upper bound"
    path = "chat/completions"

    def __init__(self, model: str, tokenizer: Tokenizer, count: int) -> None:
        """Ask ``model``, by its name at the server, for ``count`` tokens."""
        super().__init__(model, tokenizer, Prompts(), count)
        self.name = f"top {count} first tokens in a chat"

    def objection(self, question: Prompt) -> str | None:
        """Return that it is no chat, has several tokens, or one without a text, or None."""
        assert isinstance(question, Span)
        return chat_objection(self._tokenizer, question.context) or super().objection(question)

    def _body(self, prefix: list[int]) -> JSON:
        return {
            "model": self._model,
            **chat_body(self._tokenizer, np.asarray(prefix, dtype=np.int32)),
            "max_tokens": 1,
            "temperature": 0,
            "top_p": 1,
            "logprobs": True,
            "top_logprobs": self._count,
        }

    def listed(self, answer: JSON, inputs: int) -> dict[Any, float]:
        """Return what an answer lists: bytes → nats.  Nothing is scored inside a thought."""
        message = choice(answer).get("message")
        if isinstance(message, dict) and thought_in(message):
            raise Unanswerable(
                "the server's chat begins with a thought, where nothing can be scored. Turn "
                "thinking off (@template=enable_thinking=false), or use a protocol that generates "
                "answers"
            )
        position = only_position(field(logprobs_of(answer), "content", list))
        entries = field(position, "top_logprobs", list)
        listed: dict[Any, float] = {}
        for entry in entries:
            if not isinstance(entry, dict) or "logprob" not in entry:
                raise Unanswerable("the server lists a token without a log-probability")
            listed[_spelled(entry)] = number(entry["logprob"])
        if len(listed) < len(entries):
            raise Unanswerable("the server lists several tokens with the same text")
        check_listed(listed)
        return listed


def bound(listed: Collection[float]) -> float:
    """Return the most (nats) that a token may have that is not among the ``listed`` (nats)."""
    remaining = 1 - sum(map(math.exp, listed)) + _ROUNDING
    return min(*listed, math.log(max(remaining, _ROUNDING)), 0.0)


def check_listed(listed: Mapping[Any, float]) -> None:
    """Raise Unanswerable for a list that is empty, or has more than probability 1."""
    if not listed:
        raise Unanswerable("the server lists no next tokens")
    if sum(map(math.exp, listed.values())) > 1 + 1e-3:
        raise Unanswerable("the probabilities of the listed next tokens add up to more than 1")


def _spelled(entry: JSON) -> bytes:
    """Return the bytes of a listed token, as the server gives them or of its text."""
    spelled = entry.get("bytes")
    if isinstance(spelled, list):
        with suppress(TypeError, ValueError):
            return bytes(spelled)
    return field(entry, "token", str).encode(errors="replace")
