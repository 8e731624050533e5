"""How a server is asked: the interface of a route, how prompts are sent, and how the fields of an answer are read."""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np

from choicewise.engine import FIRST_SET, build
from choicewise.models.server.faults import JSON, Unanswerable
from choicewise.questions import NOT_FIRST, UNKNOWN, Generation, Ids, Mass, Question, Span, TokenScores, TokenSet
from choicewise.tokens.chat_template import ServedChat
from choicewise.tokens.tokenizer import Tokenizer

PLAIN: Final = {"temperature": 0, "top_p": 1, "repetition_penalty": 1, "presence_penalty": 0, "frequency_penalty": 0}
"""The most likely token of the model's own distribution, whatever the server's defaults are."""

SGLANG_PATH: Final = "/generate"
ONE_TOKEN: Final = {"max_new_tokens": 1, "temperature": 0}
"""What SGLang is told of sampling where nothing is to be generated."""

_UNCHANGED: Final = {"top_k": 0, "min_p": 0, "repetition_penalty": 1, "presence_penalty": 0, "frequency_penalty": 0}
"""What servers may have defaults for that change the model's own distribution; not every server takes them."""

_MOST_STOPS: Final = 4
"""Texts at which servers stop; all others are found here."""

_ABOVE = 1e-6
"""Nats by which a log-probability may exceed 0, as rounding makes it."""

_STAND_IN = -9000.0
"""Log-probabilities at and below it stand for others: vLLM writes -9999 for minus infinity and for unknown ones."""

_ID = re.compile("token_id:[0-9]{1,9}")
_Kind = TypeVar("_Kind")


class Part(NamedTuple):
    """Part ``number`` of question ``question``, an index among those asked."""

    question: int
    number: int = 0


@dataclass(frozen=True, slots=True)
class Call:
    """What is posted to ``path``, and how its answer is read.

    ``read`` gives the scores of each of ``parts``, in order, and raises Unanswerable where the answer is not what was
    asked for.
    """

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

    def objection(self, question: Question) -> str | None:
        """Why it can't answer ``question``, of a kind that it supports; None where it can."""
        return None

    def parts(self, question: Question) -> int:
        """Of how many parts the answer to ``question`` is put together."""
        return 1

    @abstractmethod
    def calls(self, questions: Sequence[tuple[int, Question]]) -> Iterator[Call]:
        """The requests for ``questions`` (index among those asked, question), in the order that is best for a cache.

        Every part of every question is in exactly one of them.
        """

    def joined(self, question: Question, parts: Sequence[TokenScores]) -> TokenScores:
        """The answer to ``question`` from its parts."""
        return parts[0]


@dataclass(frozen=True, slots=True)
class Node:
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
        path[tree.depth[new]] = tree.tokens[new]  # of several at one depth the last counts, an ancestor of the node
        done = row + 1
        node = Node(path[: tree.depth[row] + 1].tolist(), {}, [])
        for place, span in zip(order[start:stop].tolist(), span_of[start:stop].tolist(), strict=True):
            target = int(tree.targets[place])
            parts = [Part(index, place - int(tree.starts[span])) for index in asked[span]]
            if target > FIRST_SET:
                node.tokens.setdefault(target, []).extend(parts)
            else:
                node.sets.append((tree.sets[FIRST_SET - target], parts))
        yield node
        start = stop


class Prompts:
    """Tokens are sent as they are.

    ``name``: how prompts are sent, in a word or two.  ``front``: tokens that the server puts before every prompt.
    """

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
        text = b"".join(self._tokenizer.token_bytes[token] for token in ids).decode(errors="replace")
        spellings = [text, text[1:]] if text.startswith(" ") else [text]  # some tokenizers put a space in front
        for spelling, encoded in zip(spellings, self._tokenizer.encode(spellings, special=False), strict=True):
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
    return None if messages is None else [message._asdict() for message in messages]


def chat_objection(tokenizer: Tokenizer, context: Ids) -> str | None:
    """Why a chat endpoint can't be asked about ``context``; None where it can."""
    messages = chat_messages(tokenizer, context)
    if messages is None:
        return "the server takes chats only, and this is none; ask it as a chat"
    if messages[-1]["role"] != "user":
        return "the server's chat does not go on with what the assistant has begun to say"
    return None


def settings(generation: Generation, unchanged: bool) -> dict[str, Any]:
    """What a request says about how to generate; ``unchanged``: with all that leaves the distribution as it is."""
    body: dict[str, Any] = {"max_tokens": generation.limit, "top_p": 1, "temperature": 0}
    if generation.sampling is not None:
        body |= {"temperature": 1, "seed": int.from_bytes(generation.sampling.stream[:4], "big") >> 1}
    stops = [stop.decode() for stop in generation.stops if is_text(stop)][:_MOST_STOPS]
    if stops and not generation.keep_stop:  # the text would end before the stop that is to be kept
        body["stop"] = stops
    return body | (_UNCHANGED if unchanged else {})


def text_scores(generation: Generation, text: str) -> TokenScores:
    """The answer that is a text alone, cut where a stop begins, or ends where the stop is kept."""
    spelled = text.encode(errors="replace")
    places = [(place, stop) for stop in generation.stops if (place := spelled.find(stop)) >= 0]
    if places:
        place, stop = min(places, key=lambda each: each[0] + len(each[1]))
        first = min(at for at, _ in places)
        spelled = spelled[: place + len(stop)] if generation.keep_stop else spelled[:first]
    return replace(TokenScores.of(), text=spelled.decode(errors="replace"))


def check_finished(choice: Any) -> None:
    """Raise Unanswerable where the text is not what the model generated, as a filter withheld it."""
    if (reason := choice.get("finish_reason")) not in ("stop", "length", "eos", "eos_token", "stop_sequence", None):
        raise Unanswerable(f"the server ended the text for another reason than its end ({str(reason)[:40]!r})")


def number(value: Any) -> float:
    """``value`` as a log-probability (nats, at most 0); raises Unanswerable where it can be none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Unanswerable(f"the server gives {_shown(value)} in place of a log-probability")
    given = f"the server gives {_shown(value)} as a log-probability"
    if isinstance(value, float) and not math.isfinite(value):
        raise Unanswerable(given)
    if value > _ABOVE:
        raise Unanswerable(f"{given}, which is above 0")
    if value <= _STAND_IN:
        raise Unanswerable(f"{given}, which stands for one that it does not know")
    return min(float(value), 0.0)


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
        more = "an added BOS?" if counted == tokens + 1 else "another tokenizer, or a text that it cuts?"
        raise Unanswerable(f"the server read {_shown(counted)} tokens where {tokens} were sent ({more})")


def named_id(name: str) -> int | None:
    """The id in ``token_id:ID``, as servers name tokens that are asked for by id; None for any other name.

    An id has at most nine digits, so that it fits into 32 bits.
    """
    return int(name.removeprefix("token_id:")) if _ID.fullmatch(name) else None


def named_logprobs(listed: Any) -> dict[int, float]:
    """id → log-probability of an object whose names are ``token_id:ID``; Unanswerable for other names."""
    if not isinstance(listed, dict):
        raise Unanswerable(f"the server gives {_shown(listed)} in place of the log-probabilities of a token")
    ids = {named_id(name): value for name, value in listed.items()}
    if None in ids or len(ids) != len(listed):
        raise Unanswerable("the server names tokens by their text though asked to name them by id")
    return {token: value for token, value in ids.items() if token is not None}


def rank(logprob: float, listed: Any) -> int:
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
    if not isinstance(entry, list) or len(entry) < 2 or isinstance(entry[1], bool) or not isinstance(entry[1], int):
        raise Unanswerable("the server gives no token with a log-probability")
    return entry[0], entry[1]


def _shown(value: Any) -> str:
    """What stands in place of something, in a few characters."""
    return "nothing" if value is None else repr(value)[:40]
