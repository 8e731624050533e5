"""Ways of asking that send a prompt whole: echo, prompt log-probabilities, generated completions and chats."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from choicewise.models.server.faults import JSON, Unanswerable
from choicewise.models.server.routes import (
    ONE_TOKEN,
    PLAIN,
    SGLANG_PATH,
    Call,
    Part,
    Prompts,
    Route,
    chat_messages,
    chat_objection,
    check_finished,
    check_prompt,
    choice,
    field,
    is_text,
    logprobs_of,
    named_id,
    number,
    rank,
    settings,
    sglang_entry,
    sglang_meta,
    text_scores,
)
from choicewise.questions import UNKNOWN, Generation, Question, Sampling, Span, TokenScores
from choicewise.tokens.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class Whole:
    """``tokens`` that are sent, of which those from ``first`` on are scored.

    ``spans``: (index of a question, its first scored token, the end of its tokens), all within these tokens.
    """

    tokens: list[int]
    first: int
    spans: Sequence[tuple[int, int, int]]

    @property
    def parts(self) -> list[Part]:
        """The questions that are answered, which have one part each."""
        return [Part(index) for index, _, _ in self.spans]

    def scores(self, logprobs: Sequence[float], ranks: Sequence[int]) -> list[TokenScores]:
        """The scores of the spans from those of all tokens from ``first`` on."""
        scores = []
        for _, start, end in self.spans:
            own = slice(start - self.first, end - self.first)
            scores.append(TokenScores.of(self.tokens[start:end], logprobs[own], ranks[own]))
        return scores


class WholeSpans(Route):
    """A way of asking in which every span that is no prefix of another is one request."""

    path = "completions"

    def calls(self, questions: Sequence[tuple[int, Question]]) -> Iterator[Call]:
        """One request for every span that is no prefix of another."""
        for whole in whole_spans([(index, span) for index, span in questions if isinstance(span, Span)]):
            yield Call(self.path, self._body(whole), whole.parts, partial(self._read, whole))

    @abstractmethod
    def _body(self, whole: Whole) -> dict[str, Any]: ...

    @abstractmethod
    def _read(self, whole: Whole, answer: JSON) -> list[TokenScores]: ...


class Echo(WholeSpans):
    """Every span that is no prefix of another is a prompt that the server echoes, with a token's log-probability each.

    One token is generated after it, as there are servers to which none means as many as fit; it is not read.
    """

    cost = "one request for every span, computed from its first token on"

    def __init__(self, model: str, tokenizer: Tokenizer, prompts: Prompts) -> None:
        """``model``: its name at the server."""
        self._model, self._tokenizer, self._prompts = model, tokenizer, prompts
        self.name = f"echo, prompts as {prompts.name}"

    def objection(self, question: Question) -> str | None:
        """Why not: no text gives these tokens."""
        assert isinstance(question, Span)
        return self._prompts.objection([*question.context.tolist(), *question.continuation.tolist()])

    def _body(self, whole: Whole) -> dict[str, Any]:
        body = {"model": self._model, "prompt": self._prompts.prompt(whole.tokens), "max_tokens": 1, "temperature": 0}
        return body | {"echo": True, "logprobs": 1}

    def _read(self, whole: Whole, answer: JSON) -> list[TokenScores]:
        given = logprobs_of(answer, len(whole.tokens))
        tokens, logprobs = field(given, "tokens", list), field(given, "token_logprobs", list)
        if len(tokens) != len(logprobs):
            raise Unanswerable(f"the server echoes {len(tokens)} tokens with {len(logprobs)} log-probabilities")
        hidden = self._hidden(tokens, whole.tokens)
        top = given.get("top_logprobs")
        scores, ranks = list[float](), list[int]()
        for place in range(whole.first - hidden, len(whole.tokens) - hidden):
            if place < 0 or (place == 0 and logprobs[0] is None):
                raise Unanswerable("the server gives no log-probability of the first token after its own BOS")
            scores.append(number(logprobs[place]))
            ranks.append(rank(scores[-1], top[place] if isinstance(top, list) and place < len(top) else None))
        return whole.scores(scores, ranks)

    def _hidden(self, tokens: Sequence[Any], sent: Sequence[int]) -> int:
        """How many of the ``sent`` tokens, at their front, are not echoed; Unanswerable where others are echoed."""
        for hidden in sorted({0, len(self._prompts.front)}):
            shown = sent[hidden:]
            if len(shown) <= len(tokens) <= len(shown) + 1 and all(map(self._is, tokens, shown)):
                return hidden
        raise Unanswerable(f"the server echoes {len(tokens)} tokens that are not the {len(sent)} sent and one more")

    def _is(self, shown: Any, token: int) -> bool:
        """Whether ``shown`` is how the server writes ``token``; of bytes that are no text nobody knows."""
        table = self._tokenizer.token_bytes
        spelled = table[token] if token < len(table) else b""
        text = spelled.decode(errors="replace")
        return not text or not is_text(spelled) or shown in (text, text.removeprefix(" "))


class PromptLogprobs(WholeSpans):
    """Every span that is no prefix of another is a prompt, and its tokens' log-probabilities and ranks come back.

    vLLM does not use its prefix cache for them, so that every prompt is computed from its beginning.
    """

    name = "prompt log-probabilities"
    cost = "one request for every span, computed from its first token on, as they switch the prefix cache off"

    def __init__(self, model: str) -> None:
        """``model``: its name at the server."""
        self._model = model

    def _body(self, whole: Whole) -> dict[str, Any]:
        return {"model": self._model, "prompt": whole.tokens, "max_tokens": 1, **PLAIN, "prompt_logprobs": 1}

    def _read(self, whole: Whole, answer: JSON) -> list[TokenScores]:
        check_prompt(answer, len(whole.tokens))
        given = field(choice(answer), "prompt_logprobs", list)
        if len(given) != len(whole.tokens):
            raise Unanswerable(
                f"the server gives log-probabilities of {len(given)} tokens where {len(whole.tokens)} were sent"
            )
        logprobs, ranks = list[float](), list[int]()
        for token, place in zip(whole.tokens[whole.first :], given[whole.first :], strict=True):
            listed = place.get(str(token)) if isinstance(place, dict) else None
            if not isinstance(listed, dict):
                raise Unanswerable(f"the server gives no log-probability of token {token} of the prompt")
            place_of = listed.get("rank")
            if isinstance(place_of, bool) or not isinstance(place_of, int) or not 1 <= place_of < 2**31:
                raise Unanswerable(f"the server gives {place_of!r:.40} as the rank of token {token}")
            logprobs.append(number(listed.get("logprob")))
            ranks.append(place_of - 1)
        return whole.scores(logprobs, ranks)


class SglangPrompts(WholeSpans):
    """Every span that is no prefix of another is a prompt of which only the end has log-probabilities.

    SGLang reads what comes before that end from its cache.
    """

    name = "SGLang's input log-probabilities"
    cost = "one request for every span, of which what comes before the continuation may be in the server's cache"
    path = SGLANG_PATH

    def _body(self, whole: Whole) -> dict[str, Any]:
        body = {"input_ids": whole.tokens, "sampling_params": ONE_TOKEN, "return_logprob": True}
        return body | {"logprob_start_len": whole.first - 1}  # the first token there has none

    def _read(self, whole: Whole, answer: JSON) -> list[TokenScores]:
        given = [*map(sglang_entry, field(sglang_meta(answer, len(whole.tokens)), "input_token_logprobs", list))]
        sent = whole.tokens[whole.first - 1 :]
        if len(given) != len(sent):
            raise Unanswerable(
                f"the server gives log-probabilities of {len(given)} tokens where {len(sent)} were asked for"
            )
        for place, ((_, one), other) in enumerate(zip(given, sent, strict=True)):
            if one != other:
                raise Unanswerable(f"the server gives a log-probability of token {one}, not {other}, at {place}")
        logprobs = [number(logprob) for logprob, _ in given[1:]]
        return whole.scores(logprobs, [UNKNOWN] * len(logprobs))


class Completions(Route):
    """One request for every generation.  Stops are applied here again, by tokens where the server names them.

    ``named``: whether it gives tokens by id and their log-probabilities; without that the answer is a text.
    ``unchanged``: whether it takes the settings that leave the model's distribution as it is.
    """

    cost = "one request for every generation"
    supports = frozenset({Generation, Sampling})
    path = "completions"

    def __init__(self, model: str, tokenizer: Tokenizer, prompts: Prompts, named: bool, unchanged: bool = True) -> None:
        """``model``: its name at the server."""
        self._model, self._tokenizer, self._prompts = model, tokenizer, prompts
        self._named, self._unchanged = named, unchanged
        self.name = f"generated {'tokens' if named else 'text'}, prompts as {prompts.name}"

    def objection(self, question: Question) -> str | None:
        """Why not: no text gives the context."""
        assert isinstance(question, Generation)
        return self._prompts.objection(question.context.tolist())

    def calls(self, questions: Sequence[tuple[int, Question]]) -> Iterator[Call]:
        """One request for every generation, those with a common beginning one after another."""
        asked = [(index, question) for index, question in questions if isinstance(question, Generation)]
        for index, generation in sorted(asked, key=lambda each: each[1].context.astype(">i4").tobytes()):
            body = {"model": self._model, **self._sent(generation), **settings(generation, self._unchanged)}
            yield Call(self.path, body, [Part(index)], partial(self._read, generation))

    def _sent(self, generation: Generation) -> dict[str, Any]:
        named = {"logprobs": 1, "return_tokens_as_token_ids": True} if self._named else {}
        return {"prompt": self._prompts.prompt(generation.context.tolist()), **named}

    def _read(self, generation: Generation, answer: JSON) -> list[TokenScores]:
        check_prompt(answer, len(generation.context))
        given_choice = choice(answer)
        check_finished(given_choice)
        if not self._named:
            return [text_scores(generation, field(given_choice, "text", str))]
        given = field(given_choice, "logprobs", dict)
        ids = [named_id(str(name)) for name in field(given, "tokens", list)]
        logprobs, top = field(given, "token_logprobs", list), field(given, "top_logprobs", list)
        if not len(ids) == len(logprobs) == len(top):
            raise Unanswerable(f"the server gives {len(logprobs)} log-probabilities of {len(ids)} generated tokens")
        tokens = [token for token in ids if token is not None]
        if len(tokens) < len(ids):
            raise Unanswerable("the server names tokens by their text though asked to name them by id")
        if len(tokens) > generation.limit:
            raise Unanswerable(f"the server generates {len(tokens)} tokens where {generation.limit} were asked for")
        numbers = [*map(number, logprobs)]
        table = self._tokenizer.token_bytes
        scores = TokenScores.of(tokens, numbers, [*map(rank, numbers, top)])
        scores = scores.first(generation.before_stop(tokens, table))
        if generation.sampling is not None and len(scores.tokens) and given_choice.get("finish_reason") == "stop":
            last = int(scores.tokens[-1])
            if last >= len(table) or not table[last]:  # a sampled text ends before the token that ends it
                scores = scores.first(len(scores.tokens) - 1)
        return [scores]


class ChatGeneration(Completions):
    """One request for every generation; the answer is a text."""

    path = "chat/completions"

    def __init__(self, model: str, tokenizer: Tokenizer, unchanged: bool = False) -> None:
        """``model``: its name at the server.  ``unchanged``: as in :class:`Completions`."""
        super().__init__(model, tokenizer, Prompts(), named=False, unchanged=unchanged)
        self.name = "text generated in a chat"

    def objection(self, question: Question) -> str | None:
        """Why not: no chat, or one that the assistant is to go on with."""
        assert isinstance(question, Generation)
        return chat_objection(self._tokenizer, question.context)

    def _sent(self, generation: Generation) -> dict[str, Any]:
        return {"messages": chat_messages(self._tokenizer, generation.context)}

    def _read(self, generation: Generation, answer: JSON) -> list[TokenScores]:
        given = choice(answer)
        check_finished(given)
        return [text_scores(generation, field(field(given, "message", dict), "content", str))]


def whole_spans(questions: Sequence[tuple[int, Span]]) -> Iterator[Whole]:
    """The tokens to send for ``questions`` (index, span), in depth-first order, each sequence once."""
    sequences = [
        (np.concatenate([span.context, span.continuation]).astype(">i4").tobytes(), len(span.context), index)
        for index, span in questions
    ]
    sequences.sort(key=lambda each: each[0])  # big-endian bytes sort as ids do, a prefix before what it begins
    group: list[tuple[int, int, int]] = []
    for place, (tokens, start, index) in enumerate(sequences):
        group.append((index, start, len(tokens) // 4))
        if place + 1 == len(sequences) or not sequences[place + 1][0].startswith(tokens):
            yield Whole(np.frombuffer(tokens, dtype=">i4").tolist(), min(first for _, first, _ in group), group)
            group = []
