"""Generated text and the likeliest first tokens, from a chat endpoint."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from choicewise.models.server.chats import Chats
from choicewise.models.server.faults import Unanswerable
from choicewise.models.server.json_answer import JSON
from choicewise.models.server.prompts import TokenPrompts
from choicewise.models.server.routes import fields
from choicewise.models.server.routes.generation import check_finished, settings, text_scores
from choicewise.models.server.routes.route import Call, OnePart, Part
from choicewise.models.server.routes.top_tokens import TopTokens, check_listed
from choicewise.questions import Generation, Question, Sampling, Span, TokenScores
from choicewise.tokens.tokenizer import Tokenizer

PATH = "chat/completions"


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
            yield Call(PATH, body, [Part(index)], partial(_read, generation))


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
            yield Call(PATH, body, [Part(index) for index, _ in asked], partial(self._read_chat, targets))

    def _read_chat(self, targets: Sequence[int], answer: JSON) -> list[TokenScores]:
        places = fields.items(fields.part(fields.choice(answer), "logprobs"), "content")
        if len(places) != 1:
            raise Unanswerable(f"the server lists tokens at {len(places)} places in place of 1")
        entries = fields.items(places[0], "top_logprobs")
        listed = {_spelled(entry): fields.number(entry["logprob"]) for entry in map(_entry, entries)}
        if len(listed) < len(entries):
            raise Unanswerable("the server lists several tokens with the same text")
        check_listed(listed)
        return [self.scores(token, listed) for token in targets]


def _read(generation: Generation, answer: JSON) -> list[TokenScores]:
    choice = fields.choice(answer)
    check_finished(choice)
    return [text_scores(generation, fields.text(fields.part(choice, "message"), "content"))]


def _entry(entry: Any) -> dict[str, Any]:
    if not isinstance(entry, dict) or "logprob" not in entry:
        raise Unanswerable("the server lists a token without a log-probability")
    return entry


def _spelled(entry: dict[str, Any]) -> bytes:
    """The bytes of a listed token: as the server gives them, or of its text."""
    given = entry.get("bytes")
    if isinstance(given, list) and all(isinstance(byte, int) and 0 <= byte < 256 for byte in given):
        return bytes(given)
    return fields.text(entry, "token").encode(errors="replace")
