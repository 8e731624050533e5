"""Define a route, a way to ask a server, and the routes that send whole spans; read answers."""

from __future__ import annotations

import json
import math
import re
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from operator import itemgetter
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from choicewise.engine import FIRST_SET, build
from choicewise.extensions.endpoints.server.faults import JSON, Unanswerable, integer, member
from choicewise.questions import (
    NOT_FIRST,
    UNKNOWN,
    Answers,
    Generation,
    Ids,
    Mass,
    Prompt,
    Sampling,
    Span,
    TokenScores,
    TokenSet,
)
from choicewise.tokens.chat_template import TOLD, Message, ServedChat
from choicewise.tokens.tokenizer import Tokenizer
from choicewise.util.jsonio import JsonMapping

NO_PENALTIES = {"repetition_penalty": 1, "presence_penalty": 0, "frequency_penalty": 0}

PLAIN = {"temperature": 0, "top_p": 1, **NO_PENALTIES}
"""The most likely token of the model's own distribution, whatever the server's defaults are."""

CHATS_ONLY = "the server only takes chats"

SGLANG_PATH = "/generate"

# For SGLang, if nothing is to be generated.
ONE_TOKEN = {"max_new_tokens": 1, "temperature": 0}

_COUNTED = 100
"""Tokens among which a label counts, in the original MMLU script.

A token of probability 1/100 or more is one of them.  If the rank of a less likely one is not known,
the prompt's own log-probabilities give it.  They cost a whole prompt without the server's cache, so
they are read only if a protocol scores by ranks (:attr:`Span.ranked`).
"""

# The fields of a message's thought: the name of today, and an earlier one.
_THOUGHTS = ("reasoning", "reasoning_content")

# Nats by which rounding may lift a log-probability above 0.
_ABOVE = 1e-6

# Numbers at and below it are vLLM's stand-ins for minus infinity (-9999) and for unknown ones.
_STAND_IN = -9000.0

# The digits are so few that an id fits into 32 bits.
_ID = re.compile("token_id:[0-9]{1,9}")

_Kind = TypeVar("_Kind")
_T = TypeVar("_T")


Numbered = tuple[int, Prompt]
"""A question behind its index among all."""


class Part(NamedTuple):
    """Name part ``number`` of question ``question``, an index among all questions."""

    question: int
    number: int = 0


class Call(NamedTuple):
    """Hold a request: ``body`` is posted to ``path``.

    ``read`` returns the scores of each of ``parts``, or raises Unanswerable.
    """

    path: str
    body: JSON
    parts: Sequence[Part]
    read: Callable[[JSON], Sequence[TokenScores]]


class Route(ABC):
    """Ask a server in one way.

    ``name``: of the way, in a few words; ``cost``: what it costs, in words; ``supports``: the kinds
    of question that it answers.  An answer has one part unless ``parts`` is overridden.
    """

    name: str
    cost: str
    supports: frozenset[type] = frozenset({Span})

    def __init__(self, model: str) -> None:
        """Ask ``model``, by its name at the server."""
        self._model = model

    def objection(self, question: Prompt) -> str | None:
        """Return why a ``question`` of a kind that it supports has no answer here, or None."""
        return None

    def parts(self, question: Prompt) -> int:
        """Return the number of parts of the answer to ``question``."""
        return 1

    @abstractmethod
    def calls(self, questions: Sequence[Numbered]) -> Iterator[Call]:
        """Yield the requests for ``questions`` (index, question), in the best order for a cache.

        Every part of every question is in exactly one of them.
        """

    def joined(self, question: Prompt, parts: Sequence[TokenScores]) -> TokenScores:
        """Return the answer to ``question`` from its parts.

        Of a set it is the likeliest member, with the log of the sum of all.
        """
        if isinstance(question, Generation):
            return parts[0]
        scores = TokenScores.joined(parts)
        if not isinstance(question, Mass) or scores.missing is not None:
            return scores
        best = int(scores.logprobs.argmax())
        mass = np.logaddexp.reduce(scores.logprobs.astype(np.float64))
        return TokenScores.of([scores.tokens[best]], [min(mass, 0.0)], [scores.ranks[best]])


class Assembly:
    """Put the answers to ``questions`` (index, question) together from the parts of a ``route``.

    ``read``: calls a reader with an answer.
    """

    def __init__(
        self,
        read: Callable[[Callable[[Any], Any], Any], Any],
        route: Route,
        questions: Sequence[Numbered],
    ) -> None:
        self._read = read
        self._route = route
        self._questions = dict(questions)
        self._parts: dict[int, dict[int, TokenScores]] = {index: {} for index, _ in questions}

    def take(
        self, parts: Sequence[Part], reader: Callable[[Any], Sequence[TokenScores]], answer: object
    ) -> Answers:
        """Yield the answers that become complete with an ``answer`` about ``parts``.

        An Unanswerable completes them without numbers.
        """
        try:
            if isinstance(answer, Unanswerable):
                raise answer
            scores = self._read(reader, answer)
        except Unanswerable as error:
            for index in {part.question for part in parts}:
                if self._parts.pop(index, None) is not None:
                    yield index, unanswered(self._questions[index], error.reason)
            return
        for part, part_scores in zip(parts, scores, strict=True):
            collected = self._parts.get(part.question)
            # The question has failed already, in another part.
            if collected is None:
                continue
            collected[part.number] = part_scores
            question = self._questions[part.question]
            if len(collected) == self._route.parts(question):
                del self._parts[part.question]
                in_order = [collected[number] for number in sorted(collected)]
                yield part.question, self._route.joined(question, in_order)


def unanswered(question: Prompt, reason: str) -> TokenScores:
    """Return the answer that ``question`` has none, with the ``reason``."""
    if isinstance(question, Span):
        return TokenScores.unanswered(reason, question.continuation)
    return TokenScores.unanswered(reason)


def logprobs_in_order(answers: Answers) -> list[npt.NDArray[np.float32]]:
    """Return the log-probabilities of all answers by index; raise Unanswerable if one has none."""
    by_index = dict(answers)
    for answer in by_index.values():
        if answer.missing is not None:
            raise Unanswerable(answer.missing)
    return [by_index[index].logprobs for index in range(len(by_index))]


def with_label_ranks(
    answers: Answers,
    questions: Mapping[int, Prompt],
    ask_ranked: Callable[[Sequence[Numbered]], Answers],
) -> Answers:
    """Yield ``answers`` with the ranks that matter.

    Last are those with an unlikely token whose rank only ``ask_ranked`` gives.
    """
    unranked: dict[int, TokenScores] = {}
    for index, answer in answers:
        if _lacks_ranks(questions[index], answer):
            unranked[index] = answer
        else:
            yield index, answer
    if not unranked:
        return
    for index, ranked in ask_ranked([(index, questions[index]) for index in unranked]):
        answer = unranked[index]
        if not ranked.missing:
            answer = replace(answer, ranks=ranked.ranks)
        yield index, answer


def _lacks_ranks(question: Prompt, answer: TokenScores) -> bool:
    if not isinstance(question, Span) or not question.ranked or answer.missing is not None:
        return False
    is_unlikely = answer.logprobs < -math.log(_COUNTED)
    return bool(((answer.ranks < 0) & is_unlikely).any())


class NextTokens(NamedTuple):
    """Name next tokens of one request, the parts that they answer, and the targets of each part."""

    ids: list[int]
    parts: list[Part]
    targets: list[list[int]]


class Node(NamedTuple):
    """Hold the tokens of a ``prefix``, and what is wanted after it.

    ``tokens``: the parts that a next token answers, by token; ``sets``: sets of next tokens, with
    the parts that each answers.
    """

    prefix: list[int]
    tokens: dict[int, list[Part]]
    sets: list[tuple[TokenSet, list[Part]]]

    def requests(self, most: int, vocabulary: float = math.inf) -> Iterator[NextTokens]:
        """Yield requests for ``most`` next tokens each, of ids below ``vocabulary``."""
        wanted = sorted(self.tokens)
        for start in range(0, len(wanted), most):
            request = NextTokens(wanted[start : start + most], [], [])
            for token in request.ids:
                request.parts.extend(self.tokens[token])
                request.targets.extend([[token]] * len(self.tokens[token]))
            yield request
        for members, masses in self.sets:
            wanted = members.ids[members.ids < vocabulary].tolist()
            for chunk in range(math.ceil(len(wanted) / most)):
                ids = wanted[chunk * most : (chunk + 1) * most]
                parts = [Part(mass.question, chunk) for mass in masses]
                yield NextTokens(ids, parts, [ids] * len(parts))


def nodes(questions: Sequence[Numbered]) -> Iterator[Node]:
    """Yield every prefix at which a span or a mass of ``questions`` reads, depth first and once.

    A server that keeps the prompts it saw last has read most of every prefix before.  Part ``j`` of
    a span is its ``j``-th token; a mass is one part.
    """
    spans = [(index, span) for index, span in questions if isinstance(span, Span | Mass)]
    if not spans:
        return
    tree = build([span for _, span in spans])
    questions_of = defaultdict[int, list[int]](list)
    for (index, _), span in zip(spans, tree.span_of.tolist(), strict=True):
        questions_of[span].append(index)
    order = np.argsort(tree.rows, kind="stable")
    span_of = np.searchsorted(tree.starts, order, side="right") - 1
    path = np.empty(int(tree.depth.max()) + 1, dtype=np.int32)
    rows = tree.rows[order]
    start = 0
    done = 0
    while start < len(order):
        row = int(rows[start])
        stop = int(np.searchsorted(rows, row, side="right"))
        new = slice(done, row + 1)
        # Of several tokens at one depth the last one counts, which is an ancestor of the node.
        path[tree.depth[new]] = tree.tokens[new]
        done = row + 1
        node = Node(path[: tree.depth[row] + 1].tolist(), {}, [])
        for entry, span in zip(
            order[start:stop].tolist(), span_of[start:stop].tolist(), strict=True
        ):
            target = int(tree.targets[entry])
            number = entry - int(tree.starts[span])
            parts = [Part(index, number) for index in questions_of[span]]
            if target > FIRST_SET:
                node.tokens.setdefault(target, []).extend(parts)
            else:
                node.sets.append((tree.sets[FIRST_SET - target], parts))
        yield node
        start = stop


class Prompts:
    """Send tokens as they are.  ``front``: tokens that the server puts before every prompt."""

    name = "tokens"
    front: tuple[int, ...] = ()

    def prompt(self, tokens: Sequence[int]) -> list[int] | str | None:
        """Return what is sent for ``tokens``, front included; None if nothing gives them."""
        return list(tokens)

    def objection(self, tokens: Sequence[int]) -> str | None:
        """Return why nothing gives just these ``tokens``, or None."""
        return None


class TextPrompts(Prompts):
    """Send texts that ``tokenizer`` encodes to just the tokens; the server puts ``front`` first.

    A server with the same tokenizer reads the right tokens, and what no text gives is not asked.
    """

    name = "texts"

    def __init__(self, tokenizer: Tokenizer, front: tuple[int, ...]) -> None:
        self._tokenizer = tokenizer
        self.front = front

    def prompt(self, tokens: Sequence[int]) -> str | None:
        """Return the text of ``tokens`` after the front."""
        count = len(self.front)
        if tuple(tokens[:count]) != self.front:
            return None
        ids = np.asarray(tokens[count:], dtype=np.int32)
        spelled = b"".join(self._tokenizer.token_bytes[token] for token in ids)
        text = spelled.decode(errors="replace")
        spellings = [text]
        # Some tokenizers put a space in front.
        if text.startswith(" "):
            spellings.append(text[1:])
        encodings = self._tokenizer.encode(spellings, special=False)
        for spelling, encoding in zip(spellings, encodings, strict=True):
            if np.array_equal(encoding, ids):
                return spelling
        return None

    def objection(self, tokens: Sequence[int]) -> str | None:
        """Return why no text gives just these ``tokens``, or None."""
        if tuple(tokens[: len(self.front)]) != self.front:
            return (
                f"the server adds {list(self.front)} (BOS) before every text, but the prompt has "
                "no BOS. Use a protocol that begins with BOS, or a server that adds none"
            )
        if self.prompt(tokens) is None:
            return "the server takes prompts as texts, and no text encodes to these tokens"
        return None


def _messages(tokenizer: Tokenizer, context: Ids) -> list[Message] | None:
    """Return the messages of which ServedChat made the text ``context``; None if it is no chat."""
    if not isinstance(tokenizer.chat, ServedChat):
        return None
    return ServedChat.messages(tokenizer.decode(context).removeprefix(" "))


def chat_messages(tokenizer: Tokenizer, context: Ids) -> list[dict[str, str]] | None:
    """Return the messages of a chat in the form that servers take; None if it is no chat."""
    messages = _messages(tokenizer, context)
    if messages is None:
        return None
    return [message._asdict() for message in messages if message.role != TOLD]


def chat_body(tokenizer: Tokenizer, context: Ids) -> JSON:
    """Return the fields of a request with the messages of a chat and its template's settings."""
    body: JSON = {"messages": chat_messages(tokenizer, context)}
    for message in _messages(tokenizer, context) or []:
        if message.role == TOLD:
            body["chat_template_kwargs"] = json.loads(message.content)
            break
    return body


def chat_objection(tokenizer: Tokenizer, context: Ids) -> str | None:
    """Return why a chat endpoint can't be asked about ``context``, or None."""
    messages = chat_messages(tokenizer, context)
    if messages is None:
        return CHATS_ONLY
    if messages[-1]["role"] != "user":
        return (
            "the server's chat can't continue an answer that the prompt begins; use a protocol "
            "without"
        )
    return None


def thought_in(message: JsonMapping) -> str:
    """Return the thought that a message has apart from its content, or "".

    It is in ``reasoning`` or ``reasoning_content``, else in parts of the content of such a kind.
    """
    for name in _THOUGHTS:
        text = message.get(name)
        if isinstance(text, str) and text:
            return text
    return "".join(text for kind, text in content_parts(message.get("content")) if kind != "text")


def content_parts(content: Any) -> Iterator[tuple[str, str]]:
    """Yield (kind, text) of every part of a content that has parts."""
    if not isinstance(content, list):
        return
    for part in content:
        if not isinstance(part, dict):
            continue
        kind = str(part.get("type", "text"))
        text = ""
        for name in ("text", kind, *_THOUGHTS):
            if isinstance(part.get(name), str):
                text = part[name]
                break
        yield ("text" if kind == "output_text" else kind), text


def generations(questions: Sequence[Numbered]) -> list[tuple[int, Generation]]:
    """Return the generations among ``questions``, those with a common beginning together."""
    selected = [(index, prompt) for index, prompt in questions if isinstance(prompt, Generation)]
    return sorted(selected, key=lambda entry: entry[1].context.astype(">i4").tobytes())


def text_stops(generation: Generation) -> list[str]:
    """Return the stops that are texts; none if the model may think, as it may stop in it."""
    if generation.opened is not None:
        return []
    return [stop.decode() for stop in generation.stops if is_text(stop)]


def seed(sampling: Sampling) -> int:
    """Return the seed of a sample, an integer of 31 bits."""
    return int.from_bytes(sampling.stream[:4], "big") >> 1


class Whole(NamedTuple):
    """Hold ``tokens`` that are sent, of which those from ``first`` on are scored.

    ``spans``: (index of a question, its first scored token, the end of its tokens), all within
    these tokens.
    """

    tokens: list[int]
    first: int
    spans: Sequence[tuple[int, int, int]]

    def scores(self, logprobs: Sequence[float], ranks: Sequence[int]) -> list[TokenScores]:
        """Return the scores of the spans from those of all tokens from ``first`` on."""
        scores = []
        for _, start, end in self.spans:
            scored = slice(start - self.first, end - self.first)
            scores.append(TokenScores.of(self.tokens[start:end], logprobs[scored], ranks[scored]))
        return scores


class WholeSpans(Route):
    """Ask about every span that is no prefix of another in one request."""

    path = "completions"

    def calls(self, questions: Sequence[Numbered]) -> Iterator[Call]:
        """Yield a request for every span that is no prefix of another."""
        for whole in whole_spans(questions):
            parts = [Part(index) for index, _, _ in whole.spans]
            yield Call(self.path, self._body(whole), parts, partial(self._scores, whole))

    def _scores(self, whole: Whole, answer: JSON) -> list[TokenScores]:
        return whole.scores(*self._read(whole, answer))

    @abstractmethod
    def _body(self, whole: Whole) -> JSON: ...

    @abstractmethod
    def _read(self, whole: Whole, answer: JSON) -> tuple[list[float], list[int]]: ...


class Echo(WholeSpans):
    """Send spans as prompts that the server echoes, with a log-probability for each token.

    One token is generated after a prompt and not read: to some servers none means as many as fit.
    """

    cost = "one request per continuation, computed from its first token"

    def __init__(self, model: str, tokenizer: Tokenizer, prompts: Prompts) -> None:
        """Ask ``model``, by its name at the server."""
        super().__init__(model)
        self._tokenizer = tokenizer
        self._prompts = prompts
        self.name = f"echo, prompts as {prompts.name}"

    def objection(self, question: Prompt) -> str | None:
        """Return why no text gives the tokens, or None."""
        assert isinstance(question, Span)
        tokens = [*question.context.tolist(), *question.continuation.tolist()]
        return self._prompts.objection(tokens)

    def _body(self, whole: Whole) -> JSON:
        return {
            "model": self._model,
            "prompt": self._prompts.prompt(whole.tokens),
            "max_tokens": 1,
            "temperature": 0,
            "echo": True,
            "logprobs": 1,
        }

    def _read(self, whole: Whole, answer: JSON) -> tuple[list[float], list[int]]:
        content = logprobs_of(answer, len(whole.tokens))
        tokens = field(content, "tokens", list)
        logprobs = field(content, "token_logprobs", list)
        if len(tokens) != len(logprobs):
            raise Unanswerable(
                f"the server echoed {len(tokens)} tokens with {len(logprobs)} log-probabilities"
            )
        skipped = self._skipped(tokens, whole.tokens)
        top = content.get("top_logprobs")
        if not isinstance(top, list):
            top = []
        scores = []
        ranks = []
        for index in range(whole.first - skipped, len(whole.tokens) - skipped):
            if index < 0 or (index == 0 and logprobs[0] is None):
                raise Unanswerable(
                    "the server sent no log-probability of the first token after its BOS"
                )
            logprob = number(logprobs[index])
            scores.append(logprob)
            listed = top[index] if index < len(top) else None
            ranks.append(rank_among(logprob, listed))
        return scores, ranks

    def _skipped(self, tokens: Sequence[Any], sent: Sequence[int]) -> int:
        """Count the ``sent`` tokens at their front that are not echoed; Unanswerable for others."""
        for skipped in sorted({0, len(self._prompts.front)}):
            rest = sent[skipped:]
            if len(rest) <= len(tokens) <= len(rest) + 1 and all(map(self._is, tokens, rest)):
                return skipped
        raise Unanswerable(
            f"the server echoed {len(tokens)} tokens, not the {len(sent)} sent and one more"
        )

    def _is(self, name: Any, token: int) -> bool:
        """Check that ``name`` may be the server's spelling of ``token``.

        Nobody knows the spelling of bytes that are no text.
        """
        table = self._tokenizer.token_bytes
        spelled = table[token] if token < len(table) else b""
        text = spelled.decode(errors="replace")
        return not text or not is_text(spelled) or name in (text, text.removeprefix(" "))


class PromptLogprobs(WholeSpans):
    """Send spans as prompts whose tokens' log-probabilities and ranks come back.

    vLLM does not use its prefix cache for them, so every prompt is computed from its beginning.
    """

    name = "prompt log-probabilities"
    cost = "one request per continuation, computed from its first token without a prefix cache"

    def _body(self, whole: Whole) -> JSON:
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
        entries = field(choice(answer), "prompt_logprobs", list)
        if len(entries) != sent:
            raise Unanswerable(
                f"the server sent log-probabilities of {len(entries)} tokens, not {sent}"
            )
        logprobs = []
        ranks = []
        for token, entry in zip(whole.tokens[whole.first :], entries[whole.first :], strict=True):
            listed = member(entry, str(token))
            if not isinstance(listed, dict):
                raise Unanswerable(
                    f"the server sent no log-probability of token {token} of the prompt"
                )
            ranks.append(rank_from_one(listed.get("rank"), token) - 1)
            logprobs.append(number(listed.get("logprob")))
        return logprobs, ranks


class SglangPrompts(WholeSpans):
    """Send spans as prompts of which only the end has log-probabilities.

    SGLang reads what comes before that end from its cache.
    """

    name = "SGLang's input log-probabilities"
    cost = "one request per continuation, with its context in the server's cache"
    path = SGLANG_PATH

    def _body(self, whole: Whole) -> JSON:
        return {
            "input_ids": whole.tokens,
            "sampling_params": ONE_TOKEN,
            "return_logprob": True,
            # The first token from there on has no log-probability.
            "logprob_start_len": whole.first - 1,
        }

    def _read(self, whole: Whole, answer: JSON) -> tuple[list[float], list[int]]:
        meta = sglang_meta(answer, len(whole.tokens))
        entries = list(map(sglang_entry, field(meta, "input_token_logprobs", list)))
        sent = whole.tokens[whole.first - 1 :]
        count = len(sent)
        if len(entries) != count:
            raise Unanswerable(
                f"the server sent log-probabilities of {len(entries)} tokens, not {count}"
            )
        for index, ((_, token), expected) in enumerate(zip(entries, sent, strict=True)):
            if token != expected:
                raise Unanswerable(
                    f"the server sent a log-probability of token {token}, not {expected}, at "
                    f"{index}"
                )
        logprobs = [number(logprob) for logprob, _ in entries[1:]]
        return logprobs, [UNKNOWN] * len(logprobs)


def whole_spans(questions: Sequence[Numbered]) -> Iterator[Whole]:
    """Yield the tokens to send for the spans of ``questions``, depth first, each sequence once."""
    sequences = []
    for index, span in questions:
        if isinstance(span, Span):
            tokens = np.concatenate([span.context, span.continuation]).astype(">i4")
            sequences.append((tokens.tobytes(), len(span.context), index))
    # Big-endian bytes sort as ids do, and a prefix comes before what it begins.
    sequences.sort(key=itemgetter(0))
    group: list[tuple[int, int, int]] = []
    for position, (content, start, index) in enumerate(sequences, start=1):
        group.append((index, start, len(content) // 4))
        if position == len(sequences) or not sequences[position][0].startswith(content):
            first = min(start for _, start, _ in group)
            yield Whole(np.frombuffer(content, dtype=">i4").tolist(), first, group)
            group = []


def number(value: Any) -> float:
    """Return ``value`` as a log-probability (nats, at most 0); raise Unanswerable if it is none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Unanswerable(f"the server sent {_shown(value)} instead of a log-probability")
    if _STAND_IN < value <= _ABOVE:
        return min(float(value), 0.0)
    reason = ", which is above 0" if value > 0 else ", a placeholder"
    if isinstance(value, float) and not math.isfinite(value):
        reason = ""
    raise Unanswerable(f"the server sent {_shown(value)} as a log-probability{reason}")


def field(where: Any, name: str, kind: type[_Kind]) -> _Kind:
    """Return the value of this ``kind`` that the object ``where`` has as ``name``.

    Raises Unanswerable if there is none.
    """
    value = member(where, name)
    if value is None:
        raise Unanswerable(f"the server sent no {name}")
    if not isinstance(value, kind):
        raise Unanswerable(f"the server sent {_shown(value)} instead of {name}")
    return value


def choice(answer: JSON) -> JSON:
    """Return the one choice of an answer.

    Raises Unanswerable if there are more or none, or if its ``index`` is not 0.
    """
    choices = field(answer, "choices", list)
    if len(choices) != 1:
        raise Unanswerable(f"the server sent {len(choices)} choices instead of 1")
    index = member(choices[0], "index")
    if isinstance(index, bool) or index != 0:
        raise Unanswerable(f"the server numbers its choices wrongly ({_shown(index)})")
    only: JSON = choices[0]
    return only


def logprobs_of(answer: JSON, inputs: int | None = None) -> JSON:
    """Return ``logprobs`` of the one choice of an answer; raise Unanswerable if there are none.

    ``inputs``: the tokens of the prompt, which the server must have read.
    """
    if inputs is not None:
        check_prompt(answer, inputs)
    return field(choice(answer), "logprobs", dict)


def check_prompt(answer: JSON, tokens: int) -> None:
    """Raise Unanswerable if the server counts another number of tokens than the ``tokens`` sent."""
    counted = member(answer, "usage", "prompt_tokens")
    if isinstance(counted, bool) or not isinstance(counted, int) or counted == tokens:
        return
    cause = "another tokenizer, or a cut text?"
    if counted == tokens + 1:
        cause = "an added BOS?"
    raise Unanswerable(
        f"the server read {_shown(counted)} tokens, but {tokens} were sent ({cause})"
    )


def named_id(name: str) -> int | None:
    """Return the id in ``token_id:ID``, a server's name of a token asked for by id, or None."""
    return int(name.removeprefix("token_id:")) if _ID.fullmatch(name) else None


def named_logprobs(listed: Any) -> dict[int, float]:
    """Return id → log-probability of an object with names ``token_id:ID``; raise Unanswerable."""
    if not isinstance(listed, dict):
        raise Unanswerable(
            f"the server sent {_shown(listed)} instead of a token's log-probabilities"
        )
    logprobs = {}
    for name, value in listed.items():
        token = named_id(name)
        if token is not None:
            logprobs[token] = value
    if len(logprobs) < len(listed):
        raise Unanswerable("the server names tokens by text, though the request asks for ids")
    return logprobs


def requested(listed: Mapping[int, _T], token: int, engine: str = "the server") -> _T:
    """Return what is ``listed`` of ``token``; raise Unanswerable if it lacks it."""
    if token not in listed:
        raise Unanswerable(
            f"{engine} sent no log-probability of token {token}, though it was requested"
        )
    return listed[token]


def only_position(positions: Sequence[Any]) -> Any:
    """Return the one position at which a server lists tokens; raise Unanswerable for others."""
    if len(positions) != 1:
        raise Unanswerable(f"the server lists tokens at {len(positions)} positions instead of 1")
    return positions[0]


def rank_among(logprob: float, listed: Any) -> int:
    """Return 0 if none of the ``listed`` likeliest tokens (name → nats) is likelier.

    Else return what is known of the rank.
    """
    if not isinstance(listed, dict) or not listed:
        return UNKNOWN
    return 0 if logprob >= max(map(number, listed.values())) else NOT_FIRST


def rank_from_one(value: Any, token: int, engine: str = "the server") -> int:
    """Return ``value`` as a rank that counts from 1; raise Unanswerable if it is none."""
    rank = integer(value, least=1)
    if rank is None:
        raise Unanswerable(f"{engine} sent {value!r:.40} as the rank of token {token}")
    return rank


def is_text(spelled: bytes) -> bool:
    """Check that ``spelled`` is UTF-8 by itself."""
    try:
        spelled.decode()
    except UnicodeDecodeError:
        return False
    return True


def sglang_meta(answer: JSON, inputs: int) -> JSON:
    """Return SGLang's fields beside the text; Unanswerable unless it read ``inputs`` tokens."""
    meta = field(answer, "meta_info", dict)
    check_prompt({"usage": meta}, inputs)
    return meta


def sglang_entry(entry: Any) -> tuple[Any, int]:
    """Return (log-probability, token) of ``[log-probability, token, text]``."""
    if isinstance(entry, list) and len(entry) > 1:
        logprob, token = entry[:2]
        if isinstance(token, int) and not isinstance(token, bool):
            return logprob, token
    raise Unanswerable("the server sent no token with a log-probability")


def _shown(value: Any) -> str:
    """Spell what a server gives in place of something, in a few characters."""
    return "nothing" if value is None else repr(value)[:40]
