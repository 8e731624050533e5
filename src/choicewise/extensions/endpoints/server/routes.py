"""How a server is asked: the interface of a route, the ways that send a span whole, how an answer is read."""

from __future__ import annotations

import json
import math
import re
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np

from choicewise.engine import FIRST_SET, build
from choicewise.extensions.endpoints.server.faults import JSON, Unanswerable
from choicewise.questions import (
    NOT_FIRST,
    UNKNOWN,
    Answers,
    Ids,
    Mass,
    Prompt,
    Span,
    TokenScores,
    TokenSet,
)
from choicewise.tokens.chat_template import TOLD, ServedChat
from choicewise.tokens.tokenizer import Tokenizer

PLAIN: Final = {
    "temperature": 0,
    "top_p": 1,
    "repetition_penalty": 1,
    "presence_penalty": 0,
    "frequency_penalty": 0,
}
"""The most likely token of the model's own distribution, whatever the server's defaults are."""

SGLANG_PATH: Final = "/generate"
ONE_TOKEN: Final = {
    "max_new_tokens": 1,
    "temperature": 0,
}  # for SGLang where nothing is to be generated

_COUNTED: Final = 100
"""Tokens among which a label counts, in the original MMLU script.  A token of probability 1/100 or more is one of them;
of one below, whose rank is not known, the prompt's own log-probabilities say it.  They cost a whole prompt without the
server's cache, so they are asked for where a protocol scores by ranks (:attr:`Span.ranked`) and nowhere else."""
_THOUGHTS: Final = (
    "reasoning",
    "reasoning_content",
)  # where a message has its thought: of today, and as it was called
_ABOVE = 1e-6  # nats by which a log-probability may exceed 0, as rounding makes it
_STAND_IN = -9000.0  # at and below it for vLLM: minus infinity (-9999), or not known
_ID = re.compile("token_id:[0-9]{1,9}")  # so that an id fits into 32 bits
_Kind = TypeVar("_Kind")


class Part(NamedTuple):
    """Part ``number`` of question ``question``, an index among those asked."""

    question: int
    number: int = 0


class Call(NamedTuple):
    """What is posted to ``path``; ``read`` gives the scores of each of ``parts``, or raises Unanswerable."""

    path: str
    body: dict[str, Any]
    parts: Sequence[Part]
    read: Callable[[JSON], Sequence[TokenScores]]


class Route(ABC):
    """A way of asking.

    ``name``: how it asks, in a few words; ``cost``: what it costs, in words; ``supports``: the kinds of question that
    it answers.  An answer comes whole unless ``parts`` and ``joined`` say otherwise.
    """

    name: str
    cost: str
    supports: frozenset[type] = frozenset({Span})

    def __init__(self, model: str) -> None:
        """``model``: its name at the server."""
        self._model = model

    def objection(self, question: Prompt) -> str | None:
        """Why it can't answer ``question``, of a kind that it supports; None where it can."""
        return None

    def parts(self, question: Prompt) -> int:
        """Of how many parts the answer to ``question`` is put together."""
        return 1

    @abstractmethod
    def calls(self, questions: Sequence[tuple[int, Prompt]]) -> Iterator[Call]:
        """The requests for ``questions`` (index among those asked, question), in the order that is best for a cache.

        Every part of every question is in exactly one of them.
        """

    def joined(self, question: Prompt, parts: Sequence[TokenScores]) -> TokenScores:
        """The answer to ``question`` from its parts."""
        return parts[0]


class Assembly:
    """Answers to ``questions`` (index, question), put together from the parts that ``route`` asks for, in any order.

    ``read``: calls a reader with an answer.
    """

    def __init__(
        self,
        read: Callable[[Callable[[Any], Any], Any], Any],
        route: Route,
        questions: Sequence[tuple[int, Prompt]],
    ) -> None:
        self._read, self._route = read, route
        self._questions = dict(questions)
        self._known = {index: dict[int, TokenScores]() for index, _ in questions}

    def take(
        self, parts: Sequence[Part], reader: Callable[[Any], Sequence[TokenScores]], answer: object
    ) -> Answers:
        """The answers that are complete with this one, of ``parts``; an Unanswerable completes them without numbers."""
        try:
            if isinstance(answer, Unanswerable):
                raise answer
            scores = self._read(reader, answer)
        except Unanswerable as error:
            for index in {part.question for part in parts}:
                if self._known.pop(index, None) is not None:
                    yield index, unanswered(self._questions[index], error.reason)
            return
        for part, one in zip(parts, scores, strict=True):
            if (known := self._known.get(part.question)) is None:
                continue
            known[part.number] = one
            question = self._questions[part.question]
            if len(known) == self._route.parts(question):
                del self._known[part.question]
                yield (
                    part.question,
                    self._route.joined(question, [known[number] for number in sorted(known)]),
                )


def unanswered(question: Prompt, reason: str) -> TokenScores:
    """No answer to ``question``, for this ``reason``."""
    return TokenScores.unanswered(
        reason, question.continuation if isinstance(question, Span) else ()
    )


def joined_scores(question: Prompt, parts: Sequence[TokenScores]) -> TokenScores:
    """The tokens of a span one after another; of a set the likeliest member, and the log of the sum of all."""
    scores = TokenScores.joined(parts)
    if not isinstance(question, Mass) or scores.missing is not None:
        return scores
    best = int(scores.logprobs.argmax())
    mass = np.logaddexp.reduce(scores.logprobs.astype(np.float64))
    return TokenScores.of([scores.tokens[best]], [min(mass, 0.0)], [scores.ranks[best]])


def with_label_ranks(
    answers: Answers,
    questions: Mapping[int, Prompt],
    ask_ranked: Callable[[Sequence[tuple[int, Prompt]]], Answers],
) -> Answers:
    """``answers``; last those whose ranks matter, with an unlikely token whose rank ``ask_ranked`` has to give."""
    unranked = dict[int, TokenScores]()
    for index, answer in answers:
        question, unlikely = questions[index], answer.logprobs < -math.log(_COUNTED)
        matters = isinstance(question, Span) and question.ranked and answer.missing is None
        if matters and bool(((answer.ranks < 0) & unlikely).any()):
            unranked[index] = answer
        else:
            yield index, answer
    if unranked:
        for index, answer in ask_ranked([(index, questions[index]) for index in unranked]):
            yield (
                index,
                unranked[index] if answer.missing else replace(unranked[index], ranks=answer.ranks),
            )


class Node(NamedTuple):
    """The tokens of a ``prefix``, and what is wanted after it.

    ``tokens``: wanted next token → the parts of questions that ask for it; ``sets``: the same of sets of tokens.
    """

    prefix: list[int]
    tokens: dict[int, list[Part]]
    sets: list[tuple[TokenSet, list[Part]]]


def nodes(questions: Sequence[tuple[int, Span | Mass]]) -> Iterator[Node]:
    """Every prefix at which one of ``questions`` (index, question) reads, in depth-first order and each once.

    So a server that keeps the prompts it saw last has read most of every prefix before.  Part ``j`` of a span is its
    ``j``-th token; a mass is one part.
    """
    if not questions:
        return
    tree = build([question for _, question in questions])
    asked = defaultdict[int, list[int]](list)
    for (index, _), span in zip(questions, tree.span_of.tolist(), strict=True):
        asked[span].append(index)
    order = np.argsort(tree.rows, kind="stable")
    span_of = np.searchsorted(tree.starts, order, side="right") - 1
    path = np.empty(int(tree.depth.max()) + 1, dtype=np.int32)
    start = done = 0
    rows = tree.rows[order]
    while start < len(order):
        row = int(rows[start])
        stop = int(np.searchsorted(rows, row, side="right"))
        new = slice(done, row + 1)
        path[tree.depth[new]] = tree.tokens[
            new
        ]  # of several at one depth the last counts, an ancestor of the node
        done = row + 1
        node = Node(path[: tree.depth[row] + 1].tolist(), {}, [])
        for place, span in zip(
            order[start:stop].tolist(), span_of[start:stop].tolist(), strict=True
        ):
            target = int(tree.targets[place])
            parts = [Part(index, place - int(tree.starts[span])) for index in asked[span]]
            if target > FIRST_SET:
                node.tokens.setdefault(target, []).extend(parts)
            else:
                node.sets.append((tree.sets[FIRST_SET - target], parts))
        yield node
        start = stop


class Prompts:
    """Tokens are sent as they are.  ``front``: tokens that the server puts before every prompt."""

    name = "tokens"
    front: tuple[int, ...] = ()

    def prompt(self, tokens: Sequence[int]) -> list[int] | str | None:
        """What is sent for ``tokens``, those of ``front`` included; None where nothing gives just these."""
        return list(tokens)

    def objection(self, tokens: Sequence[int]) -> str | None:
        """Why nothing gives just these ``tokens``; None where something does."""
        return None


class TextPrompts(Prompts):
    """Texts are sent that ``tokenizer`` encodes to just these tokens; the server puts ``front`` before them.

    So a server with the same tokenizer reads the tokens that were meant, and what no text gives is not asked.
    """

    name = "texts"

    def __init__(self, tokenizer: Tokenizer, front: tuple[int, ...]) -> None:
        self._tokenizer, self.front = tokenizer, front

    def prompt(self, tokens: Sequence[int]) -> str | None:
        """The text of ``tokens`` after the front."""
        count = len(self.front)
        if tuple(tokens[:count]) != self.front:
            return None
        ids = np.asarray(tokens[count:], dtype=np.int32)
        text = b"".join(self._tokenizer.token_bytes[token] for token in ids).decode(
            errors="replace"
        )
        spellings = (
            [text, text[1:]] if text.startswith(" ") else [text]
        )  # some tokenizers put a space in front
        for spelling, encoded in zip(
            spellings, self._tokenizer.encode(spellings, special=False), strict=True
        ):
            if np.array_equal(encoded, ids):
                return spelling
        return None

    def objection(self, tokens: Sequence[int]) -> str | None:
        """Why no text gives just these ``tokens``."""
        if tuple(tokens[: len(self.front)]) != self.front:
            return (
                f"the server puts {list(self.front)} before every text (BOS), which these tokens do not begin with; use"
                " a protocol that begins with BOS, or a server that adds none"
            )
        if self.prompt(tokens) is None:
            return "the server takes prompts as texts, and no text has just these tokens"
        return None


def chat_messages(tokenizer: Tokenizer, context: Ids) -> list[dict[str, str]] | None:
    """The messages of which ServedChat made the text ``context``, as a server takes them; None where it is no chat."""
    if not isinstance(tokenizer.chat, ServedChat):
        return None
    messages = ServedChat.messages(tokenizer.decode(context).removeprefix(" "))
    return (
        None
        if messages is None
        else [message._asdict() for message in messages if message.role != TOLD]
    )


def chat_body(tokenizer: Tokenizer, context: Ids) -> dict[str, Any]:
    """The part of a request that says the chat ``context``: its messages, and what the server's template is told."""
    messages = ServedChat.messages(tokenizer.decode(context).removeprefix(" ")) or []
    told = next((json.loads(message.content) for message in messages if message.role == TOLD), None)
    body: dict[str, Any] = {"messages": chat_messages(tokenizer, context)}
    return body if told is None else {**body, "chat_template_kwargs": told}


def chat_objection(tokenizer: Tokenizer, context: Ids) -> str | None:
    """Why a chat endpoint can't be asked about ``context``; None where it can."""
    messages = chat_messages(tokenizer, context)
    if messages is None:
        return "the server takes chats only, and this is none; ask it as a chat"
    if messages[-1]["role"] != "user":
        return "the server's chat does not go on with what the assistant has begun to say"
    return None


def thought_in(message: Mapping[str, Any]) -> str:
    """The thought that a message has apart from its content; empty for none.

    In ``reasoning`` or ``reasoning_content``, else in parts of the content that are of such a kind.
    """
    for name in _THOUGHTS:
        if isinstance(text := message.get(name), str) and text:
            return text
    return "".join(text for kind, text in content_parts(message.get("content")) if kind != "text")


def content_parts(content: Any) -> Iterator[tuple[str, str]]:
    """(kind, text) of every part of a content that has parts."""
    for part in content if isinstance(content, list) else ():
        if isinstance(part, dict):
            kind = str(part.get("type", "text"))
            named = (part.get(name) for name in ("text", kind, *_THOUGHTS))
            yield (
                ("text" if kind in ("text", "output_text") else kind),
                next((text for text in named if isinstance(text, str)), ""),
            )


class Whole(NamedTuple):
    """``tokens`` that are sent, of which those from ``first`` on are scored.

    ``spans``: (index of a question, its first scored token, the end of its tokens), all within these tokens.
    """

    tokens: list[int]
    first: int
    spans: Sequence[tuple[int, int, int]]

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

    def calls(self, questions: Sequence[tuple[int, Prompt]]) -> Iterator[Call]:
        """One request for every span that is no prefix of another."""
        for whole in whole_spans(
            [(index, span) for index, span in questions if isinstance(span, Span)]
        ):
            parts = [Part(index) for index, _, _ in whole.spans]
            yield Call(self.path, self._body(whole), parts, partial(self._scores, whole))

    def _scores(self, whole: Whole, answer: JSON) -> list[TokenScores]:
        return whole.scores(*self._read(whole, answer))

    @abstractmethod
    def _body(self, whole: Whole) -> dict[str, Any]: ...

    @abstractmethod
    def _read(self, whole: Whole, answer: JSON) -> tuple[list[float], list[int]]: ...


class Echo(WholeSpans):
    """Every span that is no prefix of another is a prompt that the server echoes, with a token's log-probability each.

    One token is generated after it, as there are servers to which none means as many as fit; it is not read.
    """

    cost = "one request for every span, computed from its first token on"

    def __init__(self, model: str, tokenizer: Tokenizer, prompts: Prompts) -> None:
        """``model``: its name at the server."""
        super().__init__(model)
        self._tokenizer, self._prompts = tokenizer, prompts
        self.name = f"echo, prompts as {prompts.name}"

    def objection(self, question: Prompt) -> str | None:
        """Why not: no text gives these tokens."""
        assert isinstance(question, Span)
        return self._prompts.objection(
            [*question.context.tolist(), *question.continuation.tolist()]
        )

    def _body(self, whole: Whole) -> dict[str, Any]:
        body = {
            "model": self._model,
            "prompt": self._prompts.prompt(whole.tokens),
            "max_tokens": 1,
            "temperature": 0,
        }
        return body | {"echo": True, "logprobs": 1}

    def _read(self, whole: Whole, answer: JSON) -> tuple[list[float], list[int]]:
        given = logprobs_of(answer, len(whole.tokens))
        tokens, logprobs = field(given, "tokens", list), field(given, "token_logprobs", list)
        if len(tokens) != len(logprobs):
            raise Unanswerable(
                f"the server echoes {len(tokens)} tokens with {len(logprobs)} log-probabilities"
            )
        hidden = self._hidden(tokens, whole.tokens)
        top = given.get("top_logprobs")
        scores, ranks = list[float](), list[int]()
        for place in range(whole.first - hidden, len(whole.tokens) - hidden):
            if place < 0 or (place == 0 and logprobs[0] is None):
                raise Unanswerable(
                    "the server gives no log-probability of the first token after its own BOS"
                )
            scores.append(number(logprobs[place]))
            ranks.append(
                rank_among(
                    scores[-1], top[place] if isinstance(top, list) and place < len(top) else None
                )
            )
        return scores, ranks

    def _hidden(self, tokens: Sequence[Any], sent: Sequence[int]) -> int:
        """How many of the ``sent`` tokens, at their front, are not echoed; Unanswerable where others are echoed."""
        for hidden in sorted({0, len(self._prompts.front)}):
            shown = sent[hidden:]
            if len(shown) <= len(tokens) <= len(shown) + 1 and all(map(self._is, tokens, shown)):
                return hidden
        raise Unanswerable(
            f"the server echoes {len(tokens)} tokens that are not the {len(sent)} sent and one more"
        )

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

    def _body(self, whole: Whole) -> dict[str, Any]:
        return {
            "model": self._model,
            "prompt": whole.tokens,
            "max_tokens": 1,
            **PLAIN,
            "prompt_logprobs": 1,
        }

    def _read(self, whole: Whole, answer: JSON) -> tuple[list[float], list[int]]:
        sent = len(whole.tokens)
        check_prompt(answer, sent)
        given = field(choice(answer), "prompt_logprobs", list)
        if len(given) != sent:
            raise Unanswerable(
                f"the server gives log-probabilities of {len(given)} tokens where {sent} were sent"
            )
        logprobs, ranks = list[float](), list[int]()
        for token, place in zip(whole.tokens[whole.first :], given[whole.first :], strict=True):
            listed = place.get(str(token)) if isinstance(place, dict) else None
            if not isinstance(listed, dict):
                raise Unanswerable(
                    f"the server gives no log-probability of token {token} of the prompt"
                )
            place_of = listed.get("rank")
            if (
                isinstance(place_of, bool)
                or not isinstance(place_of, int)
                or not 1 <= place_of < 2**31
            ):
                raise Unanswerable(
                    f"the server gives {place_of!r:.40} as the rank of token {token}"
                )
            logprobs.append(number(listed.get("logprob")))
            ranks.append(place_of - 1)
        return logprobs, ranks


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

    def _read(self, whole: Whole, answer: JSON) -> tuple[list[float], list[int]]:
        given = [
            *map(
                sglang_entry,
                field(sglang_meta(answer, len(whole.tokens)), "input_token_logprobs", list),
            )
        ]
        sent = whole.tokens[whole.first - 1 :]
        count = len(sent)
        if len(given) != count:
            raise Unanswerable(
                f"the server gives log-probabilities of {len(given)} tokens where {count} were asked for"
            )
        for place, ((_, one), other) in enumerate(zip(given, sent, strict=True)):
            if one != other:
                raise Unanswerable(
                    f"the server gives a log-probability of token {one}, not {other}, at {place}"
                )
        logprobs = [number(logprob) for logprob, _ in given[1:]]
        return logprobs, [UNKNOWN] * len(logprobs)


def whole_spans(questions: Sequence[tuple[int, Span]]) -> Iterator[Whole]:
    """The tokens to send for ``questions`` (index, span), in depth-first order, each sequence once."""
    sequences = [
        (
            np.concatenate([span.context, span.continuation]).astype(">i4").tobytes(),
            len(span.context),
            index,
        )
        for index, span in questions
    ]
    sequences.sort(
        key=lambda each: each[0]
    )  # big-endian bytes sort as ids do, a prefix before what it begins
    group: list[tuple[int, int, int]] = []
    for place, (tokens, start, index) in enumerate(sequences):
        group.append((index, start, len(tokens) // 4))
        if place + 1 == len(sequences) or not sequences[place + 1][0].startswith(tokens):
            yield Whole(
                np.frombuffer(tokens, dtype=">i4").tolist(),
                min(first for _, first, _ in group),
                group,
            )
            group = []


def number(value: Any) -> float:
    """``value`` as a log-probability (nats, at most 0); raises Unanswerable where it can be none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Unanswerable(f"the server gives {_shown(value)} in place of a log-probability")
    if _STAND_IN < value <= _ABOVE:
        return min(float(value), 0.0)
    reason = ", which is above 0" if value > 0 else ", which stands for one that it does not know"
    finite = isinstance(value, int) or math.isfinite(value)
    raise Unanswerable(
        f"the server gives {_shown(value)} as a log-probability{reason if finite else ''}"
    )


def field(where: Any, name: str, kind: type[_Kind]) -> _Kind:
    """The value of this ``kind`` that the object ``where`` holds as ``name``; Unanswerable where there is none."""
    value = where.get(name) if isinstance(where, dict) else None
    if not isinstance(value, kind):
        raise Unanswerable(f"the server gives {_shown(value)} in place of {name}")
    return value


def choice(answer: JSON) -> dict[str, Any]:
    """The one choice of an answer; Unanswerable where there are more or none, or it has another ``index`` than 0."""
    given = field(answer, "choices", list)
    if len(given) != 1:
        raise Unanswerable(f"the server answers with {len(given)} choices in place of 1")
    index = given[0].get("index") if isinstance(given[0], dict) else None
    if isinstance(index, bool) or index != 0:
        raise Unanswerable(f"the server numbers its choices wrongly ({_shown(index)})")
    only: dict[str, Any] = given[0]
    return only


def logprobs_of(answer: JSON, inputs: int | None = None) -> dict[str, Any]:
    """``logprobs`` of the one choice of an answer to a prompt of so many ``inputs``; raises Unanswerable."""
    if inputs is not None:
        check_prompt(answer, inputs)
    return field(choice(answer), "logprobs", dict)


def check_prompt(answer: JSON, tokens: int) -> None:
    """Raise Unanswerable where the server says that it read another number of tokens than the ``tokens`` sent."""
    usage = answer.get("usage")
    counted = usage.get("prompt_tokens") if isinstance(usage, dict) else None
    if isinstance(counted, int) and not isinstance(counted, bool) and counted != tokens:
        more = (
            "an added BOS?"
            if counted == tokens + 1
            else "another tokenizer, or a text that it cuts?"
        )
        raise Unanswerable(
            f"the server read {_shown(counted)} tokens where {tokens} were sent ({more})"
        )


def named_id(name: str) -> int | None:
    """The id in ``token_id:ID``, as servers name tokens that are asked for by id; None for any other name."""
    return int(name.removeprefix("token_id:")) if _ID.fullmatch(name) else None


def named_logprobs(listed: Any) -> dict[int, float]:
    """id → log-probability of an object whose names are ``token_id:ID``; Unanswerable for other names."""
    if not isinstance(listed, dict):
        raise Unanswerable(
            f"the server gives {_shown(listed)} in place of the log-probabilities of a token"
        )
    ids = {named_id(name): value for name, value in listed.items()}
    if None in ids or len(ids) != len(listed):
        raise Unanswerable("the server names tokens by their text though asked to name them by id")
    return {token: value for token, value in ids.items() if token is not None}


def rank_among(logprob: float, listed: Any) -> int:
    """0 where none of the ``listed`` likeliest tokens (name → nats) is likelier, else what is known of the rank."""
    if not isinstance(listed, dict) or not listed:
        return UNKNOWN
    return 0 if logprob >= max(map(number, listed.values())) else NOT_FIRST


def is_text(spelled: bytes) -> bool:
    """Whether ``spelled`` is UTF-8 by itself."""
    try:
        spelled.decode()
    except UnicodeDecodeError:
        return False
    return True


def sglang_meta(answer: JSON, inputs: int) -> dict[str, Any]:
    """What SGLang says beside the text after so many ``inputs``; Unanswerable where it read another number."""
    meta = field(answer, "meta_info", dict)
    check_prompt({"usage": meta}, inputs)
    return meta


def sglang_entry(entry: Any) -> tuple[Any, int]:
    """(log-probability, token) of ``[log-probability, token, text]``."""
    if (
        not isinstance(entry, list)
        or len(entry) < 2
        or isinstance(entry[1], bool)
        or not isinstance(entry[1], int)
    ):
        raise Unanswerable("the server gives no token with a log-probability")
    return entry[0], entry[1]


def _shown(value: Any) -> str:
    """What stands in place of something, in a few characters."""
    return "nothing" if value is None else repr(value)[:40]
