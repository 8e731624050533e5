"""Ways of asking by next tokens: chosen ones, the likeliest ones, those of chats; and SGLang's own routes."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import Any, Final

import numpy as np

from choicewise.models.server import routes
from choicewise.models.server.faults import JSON, Unanswerable
from choicewise.models.server.routes import (
    PLAIN,
    Call,
    Chats,
    OnePart,
    Part,
    Prompts,
    Route,
    TokenPrompts,
    Whole,
    WholeSpans,
    check_finished,
    nodes,
    settings,
    text_scores,
)
from choicewise.questions import NOT_FIRST, UNKNOWN, Generation, Mass, Question, Sampling, Span, TokenScores
from choicewise.tokens.tokenizer import Tokenizer

MOST: Final = 20
"""Tokens that a request may choose: vLLM takes no more than its ``--max-logprobs``, by default 20 (and 128 at most)."""

MOST_MEMBERS: Final = 2048
"""Tokens of a set whose probability is asked for, in chunks."""

_ROUNDING: Final = 1e-6
"""By how much the sum of listed probabilities may be too great, as they are rounded."""

_REQUEST: Final = 24
"""What a request for next tokens costs, in tokens that a server computes: half a block of its cache, and 16."""

_CHAT_PATH = "chat/completions"
_SGLANG_PATH = "/generate"
_ONE = {"max_new_tokens": 1, "temperature": 0}


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
        return Call("completions", body, parts, self._reader(prefix, ids, targets, parts))

    def _reader(
        self, prefix: list[int], ids: Sequence[int], targets: list[int] | None, parts: list[Part]
    ) -> Callable[[JSON], list[TokenScores]]:
        """How an answer is read: the scores of ``targets``, or where there are none, of all ``ids`` for every part."""

        def read(answer: JSON) -> list[TokenScores]:
            listed, generated = self._listed(answer, len(prefix))
            return _chosen_scores(ids, targets, len(parts), listed, generated)

        return read

    def _listed(self, answer: JSON, inputs: int) -> tuple[Mapping[int, Any], int | None]:
        """What the server gives as log-probabilities after ``inputs`` tokens, and the token that it generated."""
        routes.check_prompt(answer, inputs)
        given = routes.part(routes.choice(answer), "logprobs")
        generated, places = routes.items(given, "tokens"), routes.items(given, "top_logprobs")
        _check_places(places, generated)
        return routes.named_logprobs(places[0]), routes.named_id(str(generated[0]))


class SglangChosen(ChosenTokens):
    """``token_ids_logprob``: as vLLM's ``logprob_token_ids``."""

    name = "SGLang's chosen next tokens"

    def _call(self, prefix: list[int], ids: Sequence[int], parts: list[Part], targets: list[int] | None) -> Call:
        body: dict[str, Any] = {"input_ids": prefix, "sampling_params": _ONE, "return_logprob": True}
        body["token_ids_logprob"] = list(ids)
        return Call(_SGLANG_PATH, body, parts, self._reader(prefix, ids, targets, parts))

    def _listed(self, answer: JSON, inputs: int) -> tuple[Mapping[int, Any], int | None]:
        """As of vLLM; the generated token's own log-probability comes beside the list."""
        meta = _checked(answer, inputs)
        places, generated = routes.items(meta, "output_token_ids_logprobs"), routes.items(meta, "output_token_logprobs")
        _check_places(places if all(isinstance(each, list) for each in places) else [], generated)
        listed = {token: logprob for logprob, token in map(_triple, [*places[0], generated[0]])}
        return listed, _triple(generated[0])[1]


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
        routes.check_prompt(answer, inputs)
        places = routes.items(routes.part(routes.choice(answer), "logprobs"), "top_logprobs")
        if len(places) != 1 or not isinstance(places[0], dict):
            raise Unanswerable(f"the server lists next tokens at {len(places)} places in place of 1")
        named = routes.named_logprobs(places[0]) if self._by_id else places[0]
        listed = {_bytes(name): routes.number(value) for name, value in named.items()}
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
        return {name: token for name, token in named if name and count[name] == 1 and routes.is_text(table[token])}

    def _names(self, token: int) -> list[bytes]:
        """What the server may call ``token``; bytes that are no text are U+FFFD there."""
        table = self._tokenizer.token_bytes
        name = (table[token] if token < len(table) else b"").decode(errors="replace")
        bare = name.removeprefix(" ")
        names = {True: [bare], False: [name], None: [name, bare] if bare and bare != name else [name]}
        return [each.encode() for each in names[self._spaceless]]


class ChatTopTokens(TopTokens):
    """``top_logprobs`` of the first token that the assistant says; tokens come by their bytes."""

    cost = "one request for every chat; what is not among the likeliest tokens gets an upper bound"

    def __init__(self, model: str, tokenizer: Tokenizer, count: int) -> None:
        """``model``: its name at the server; ``count``: how many tokens it lists."""
        super().__init__(model, tokenizer, TokenPrompts(), count)
        self._chats = Chats(tokenizer)

    @property
    def name(self) -> str:
        """How many tokens are listed."""
        return f"top {self._count} first tokens in a chat"

    def objection(self, question: Question) -> str | None:
        """Why not: no chat, several tokens, or a token without a text of its own."""
        assert isinstance(question, Span)
        return self._chats.objection(question.context) or self.token_objection(question)

    def calls(self, questions: Sequence[tuple[int, Question]]) -> Iterator[Call]:
        """One request for every chat."""
        spans = [(index, question) for index, question in questions if isinstance(question, Span)]
        chats = defaultdict[bytes, list[tuple[int, Span]]](list)
        for index, span in spans:
            chats[span.context.astype(">i4").tobytes()].append((index, span))
        for context in sorted(chats):
            asked = chats[context]
            body: dict[str, Any] = {"model": self._model, "messages": self._chats.messages(asked[0][1].context)}
            body |= {"max_tokens": 1, "temperature": 0, "top_p": 1, "logprobs": True, "top_logprobs": self._count}
            targets = [int(span.continuation[0]) for _, span in asked]
            yield Call(_CHAT_PATH, body, [Part(index) for index, _ in asked], partial(self._read_chat, targets))

    def _read_chat(self, targets: Sequence[int], answer: JSON) -> list[TokenScores]:
        places = routes.items(routes.part(routes.choice(answer), "logprobs"), "content")
        if len(places) != 1:
            raise Unanswerable(f"the server lists tokens at {len(places)} places in place of 1")
        entries = routes.items(places[0], "top_logprobs")
        listed = {_spelled(entry): routes.number(entry["logprob"]) for entry in map(_entry, entries)}
        if len(listed) < len(entries):
            raise Unanswerable("the server lists several tokens with the same text")
        check_listed(listed)
        return [self.scores(token, listed) for token in targets]


class ChatGeneration(OnePart):
    """One request for every generation; the answer is a text."""

    name = "text generated in a chat"
    cost = "one request for every generation"
    supports: frozenset[type] = frozenset({Generation, Sampling})

    def __init__(self, model: str, tokenizer: Tokenizer, unchanged: bool = False) -> None:
        """``model``: its name at the server.  ``unchanged``: as in :class:`~.generation.Completions`."""
        self._model, self._chats, self._unchanged = model, Chats(tokenizer), unchanged

    def objection(self, question: Question) -> str | None:
        """Why not: no chat, or one that the assistant is to go on with."""
        assert isinstance(question, Generation)
        return self._chats.objection(question.context)

    def calls(self, questions: Sequence[tuple[int, Question]]) -> Iterator[Call]:
        """One request for every generation."""
        for index, generation in questions:
            assert isinstance(generation, Generation)
            body: dict[str, Any] = {"model": self._model, "messages": self._chats.messages(generation.context)}
            body |= settings(generation, self._unchanged)
            yield Call(_CHAT_PATH, body, [Part(index)], partial(_read_chat, generation))


class SglangPrompts(WholeSpans):
    """Every span that is no prefix of another is a prompt of which only the end has log-probabilities.

    SGLang reads what comes before that end from its cache.
    """

    name = "SGLang's input log-probabilities"
    cost = "one request for every span, of which what comes before the continuation may be in the server's cache"

    def _call(self, whole: Whole) -> Call:
        body: dict[str, Any] = {"input_ids": whole.tokens, "sampling_params": _ONE, "return_logprob": True}
        body["logprob_start_len"] = whole.first - 1  # the first token there has none
        return Call(_SGLANG_PATH, body, whole.parts, partial(_read_sglang, whole))


class ByLength:
    """Spans go to ``whole`` where that computes less, everything else to ``chosen``.

    Asked by next tokens, a continuation of ``n`` tokens takes ``n`` requests. The server reads the prompt from its
    cache up to the last full block of 16 tokens, so each of them computes 8 tokens on average, and costs besides
    about as much as 16 tokens: scheduling, a sampled token, the way there and back. Asked whole, it takes one request
    that computes all ``c + n`` tokens of context and continuation, as the cache is off. So a span is asked whole
    where

        (n - 1) * 24 > c + n

    A continuation of one token never is. The rule looks at one span alone, so that the same question is always asked
    in the same way, whatever else is asked.

    ``longest``: tokens that a prompt of ``whole`` may have.  A server that reads what precedes a continuation from its
    cache (``cached``) is asked for single tokens only by next tokens.
    """

    def __init__(self, chosen: Route, whole: Route, longest: int | None = None, cached: bool = False) -> None:
        self._chosen, self._whole, self._longest, self._cached = chosen, whole, longest, cached
        self.name, self.supports = f"{chosen.name}, {whole.name} of long continuations", chosen.supports
        self.cost = f"{chosen.cost}; of long continuations {whole.cost}"

    def ranking(self, longest: int) -> Route | None:
        """The way that gives ranks of next tokens, where prompts of ``longest`` tokens can be asked so."""
        fits = self._longest is None or longest <= self._longest
        return self._whole if fits and not self._cached else None

    def objection(self, question: Question) -> str | None:
        """What the way of asking that is chosen objects."""
        return self._of(question).objection(question)

    def parts(self, question: Question) -> int:
        """As many as that way of asking has."""
        return self._of(question).parts(question)

    def calls(self, questions: Sequence[tuple[int, Question]]) -> Iterator[Call]:
        """First everything asked by next tokens, then what is asked whole."""
        for route in (self._chosen, self._whole):
            yield from route.calls([(index, question) for index, question in questions if self._of(question) is route])

    def joined(self, question: Question, parts: Sequence[TokenScores]) -> TokenScores:
        """As that way of asking does it."""
        return self._of(question).joined(question, parts)

    def _of(self, question: Question) -> Route:
        if not isinstance(question, Span):
            return self._chosen
        before, scored = len(question.context), len(question.continuation)
        if self._longest is not None and before + scored > self._longest:
            return self._chosen
        whole = scored > 1 if self._cached else (scored - 1) * _REQUEST > before + scored
        return self._whole if whole else self._chosen


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
        raise Unanswerable(f"the server gives log-probabilities at {len(places)} places in place of 1")


def _chosen_scores(
    ids: Sequence[int], targets: Sequence[int] | None, parts: int, listed: Mapping[int, Any], generated: int | None
) -> list[TokenScores]:
    """The scores of ``targets``; where there are none, those of all ``ids`` for every one of the ``parts``.

    ``listed``: what the server gives as log-probabilities; ``generated``: the token that it found likeliest.  Raises
    Unanswerable where one of ``ids`` is not listed.
    """
    if lacking := [token for token in ids if token not in listed]:
        raise Unanswerable(f"the server gives no log-probability of token {lacking[0]}, though it was asked for")
    logprobs = {token: routes.number(value) for token, value in listed.items()}
    highest = max(logprobs.values())
    first = 0 if generated is not None and logprobs.get(generated) == highest else UNKNOWN
    ranks = {token: first if logprob >= highest else NOT_FIRST for token, logprob in logprobs.items()}
    if targets is None:
        return [TokenScores.of(ids, [logprobs[token] for token in ids], [ranks[token] for token in ids])] * parts
    return [TokenScores.of([token], [logprobs[token]], [ranks[token]]) for token in targets]


def _chunks(ids: Sequence[int]) -> Iterator[Sequence[int]]:
    return (ids[start : start + MOST] for start in range(0, len(ids), MOST))


def _read_sglang(whole: Whole, answer: JSON) -> list[TokenScores]:
    meta = _checked(answer, len(whole.tokens))
    given = [_triple(each) for each in routes.items(meta, "input_token_logprobs")]
    sent = whole.tokens[whole.first - 1 :]
    routes.check_ids([token for _, token in given], sent)
    logprobs = [routes.number(logprob) for logprob, _ in given[1:]]
    return whole.scores(logprobs, [UNKNOWN] * len(logprobs))


def _checked(answer: JSON, inputs: int) -> Any:
    meta = routes.part(answer, "meta_info")
    routes.check_prompt({"usage": meta}, inputs)
    return meta


def _triple(entry: Any) -> tuple[Any, Any]:
    """(log-probability, token) of ``[log-probability, token, text]``."""
    if not isinstance(entry, list) or len(entry) < 2 or isinstance(entry[1], bool) or not isinstance(entry[1], int):
        raise Unanswerable("the server gives no token with a log-probability")
    return entry[0], entry[1]


def _bytes(name: Any) -> Any:
    return name.encode(errors="replace") if isinstance(name, str) else name


def _read_chat(generation: Generation, answer: JSON) -> list[TokenScores]:
    choice = routes.choice(answer)
    check_finished(choice)
    return [text_scores(generation, routes.text(routes.part(choice, "message"), "content"))]


def _entry(entry: Any) -> dict[str, Any]:
    if not isinstance(entry, dict) or "logprob" not in entry:
        raise Unanswerable("the server lists a token without a log-probability")
    return entry


def _spelled(entry: dict[str, Any]) -> bytes:
    """The bytes of a listed token: as the server gives them, or of its text."""
    given = entry.get("bytes")
    if isinstance(given, list) and all(isinstance(byte, int) and 0 <= byte < 256 for byte in given):
        return bytes(given)
    return routes.text(entry, "token").encode(errors="replace")
