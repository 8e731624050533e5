"""Ways of generating: completions and chats, how a text ended, and the thought that a server gives apart from it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from choicewise.extensions.endpoints.server.faults import JSON, Unanswerable
from choicewise.extensions.endpoints.server.routes import (
    Call,
    Part,
    Prompts,
    Route,
    chat_body,
    chat_objection,
    check_prompt,
    choice,
    content_parts,
    field,
    is_text,
    named_id,
    number,
    rank_among,
    thought_in,
)
from choicewise.questions import (
    EOS,
    FILTERED,
    LENGTH,
    STOP,
    Ended,
    Generation,
    Prompt,
    Sampling,
    TokenScores,
)
from choicewise.thoughts import split
from choicewise.tokens.tokenizer import Tokenizer

FINISHED: Final[Mapping[str | None, str | None]] = {
    "stop": STOP,
    "stop_sequence": STOP,
    "eos": EOS,
    "eos_token": EOS,
    "length": LENGTH,
    "content_filter": FILTERED,
    None: None,
}
"""A server's reason for the end of a text → ours; a text that ended for another reason is none of the model's."""

_UNCHANGED: Final = {
    "top_k": 0,
    "min_p": 0,
    "repetition_penalty": 1,
    "presence_penalty": 0,
    "frequency_penalty": 0,
}
"""What servers may have defaults for that change the model's own distribution; not every server takes them."""

_MOST_STOPS: Final = 4  # texts at which servers stop; all others are found here


class Completions(Route):
    """One request for every generation.  Stops are applied here again, by tokens where the server names them.

    ``named``: whether it gives tokens by id and their log-probabilities; without that the answer is a text.
    ``unchanged``: whether it takes the settings that leave the model's distribution as it is.
    """

    cost = "one request for every generation"
    supports = frozenset({Generation, Sampling})
    path = "completions"

    def __init__(
        self,
        model: str,
        tokenizer: Tokenizer,
        prompts: Prompts,
        named: bool,
        unchanged: bool = True,
    ) -> None:
        """``model``: its name at the server."""
        super().__init__(model)
        self._tokenizer, self._prompts, self._named, self._unchanged = (
            tokenizer,
            prompts,
            named,
            unchanged,
        )
        self.name = f"generated {'tokens' if named else 'text'}, prompts as {prompts.name}"

    def objection(self, question: Prompt) -> str | None:
        """Why not: no text gives the context."""
        assert isinstance(question, Generation)
        return self._prompts.objection(question.context.tolist())

    def calls(self, questions: Sequence[tuple[int, Prompt]]) -> Iterator[Call]:
        """One request for every generation, those with a common beginning one after another."""
        asked = [
            (index, question) for index, question in questions if isinstance(question, Generation)
        ]
        for index, generation in sorted(
            asked, key=lambda each: each[1].context.astype(">i4").tobytes()
        ):
            body = {
                "model": self._model,
                **self._sent(generation),
                **settings(generation, self._unchanged),
            }
            yield Call(self.path, body, [Part(index)], partial(self._read, generation))

    def _sent(self, generation: Generation) -> dict[str, Any]:
        named = {"logprobs": 1, "return_tokens_as_token_ids": True} if self._named else {}
        return {"prompt": self._prompts.prompt(generation.context.tolist()), **named}

    def _read(self, generation: Generation, answer: JSON) -> list[TokenScores]:
        check_prompt(answer, len(generation.context))
        given_choice = choice(answer)
        ended = how_ended(given_choice, answer)
        if ended.finish == FILTERED:
            return [_filtered(ended)]
        if not self._named:
            return [text_scores(generation, field(given_choice, "text", str), ended)]
        given = field(given_choice, "logprobs", dict)
        ids = [named_id(str(name)) for name in field(given, "tokens", list)]
        logprobs, top = field(given, "token_logprobs", list), field(given, "top_logprobs", list)
        if not len(ids) == len(logprobs) == len(top):
            raise Unanswerable(
                f"the server gives {len(logprobs)} log-probabilities of {len(ids)} generated tokens"
            )
        tokens = [token for token in ids if token is not None]
        if len(tokens) < len(ids):
            raise Unanswerable(
                "the server names tokens by their text though asked to name them by id"
            )
        if len(tokens) > generation.limit:
            raise Unanswerable(
                f"the server generates {len(tokens)} tokens where {generation.limit} were asked for"
            )
        numbers = [*map(number, logprobs)]
        table = self._tokenizer.token_bytes
        scores = TokenScores.of(tokens, numbers, [*map(rank_among, numbers, top)])
        scores = scores.first(generation.before_stop(tokens, table))
        if (
            generation.sampling is not None
            and len(scores.tokens)
            and given_choice.get("finish_reason") == "stop"
        ):
            last = int(scores.tokens[-1])
            if (
                last >= len(table) or not table[last]
            ):  # a sampled text ends before the token that ends it
                scores = scores.first(len(scores.tokens) - 1)
        stopped = len(scores.tokens) < len(tokens) or (
            ended.finish is None and len(tokens) < generation.limit
        )
        return [replace(scores, ended=Ended(STOP if stopped else ended.finish or LENGTH))]


class ChatGeneration(Completions):
    """One request for every generation; the answer is a text."""

    path = "chat/completions"

    def __init__(self, model: str, tokenizer: Tokenizer, unchanged: bool = False) -> None:
        """``model``: its name at the server.  ``unchanged``: as in :class:`Completions`."""
        super().__init__(model, tokenizer, Prompts(), named=False, unchanged=unchanged)
        self.name = "text generated in a chat"

    def objection(self, question: Prompt) -> str | None:
        """Why not: no chat, or one that the assistant is to go on with."""
        assert isinstance(question, Generation)
        return chat_objection(self._tokenizer, question.context)

    def _sent(self, generation: Generation) -> dict[str, Any]:
        limit = {} if generation.thought is None else {"thinking_token_budget": generation.thought}
        return chat_body(self._tokenizer, generation.context) | limit

    def _read(self, generation: Generation, answer: JSON) -> list[TokenScores]:
        given = choice(answer)
        ended = how_ended(given, answer)
        if ended.finish == FILTERED:
            return [_filtered(ended)]
        message = field(given, "message", dict)
        thought, content = thought_in(message), message.get("content")
        counted = ended.thought_tokens or 0
        if isinstance(content, list):
            content = "".join(text for kind, text in content_parts(content) if kind == "text")
        elif content is None and (thought or counted or ended.finish == LENGTH):
            content = ""  # the thought was cut before an answer began
        text = field({"content": content}, "content", str)
        if ended.finish == LENGTH and text and not thought and counted and counted == ended.tokens:
            thought, text = (
                text,
                "",
            )  # all that was generated is thought, and the server passes it off as the answer
        if generation.thought is not None and ended.thought_tokens is not None:
            ended = ended._replace(forced=counted >= generation.thought and bool(text))
        return [text_scores(generation, text, ended._replace(thought=thought or None))]


def how_ended(given: Mapping[str, Any], answer: JSON) -> Ended:
    """How the text of a choice ended, and how many tokens the server counts.

    Raises Unanswerable where the text is not what the model generated.
    """
    reason = given.get("finish_reason")
    if not isinstance(reason, str | None) or reason not in FINISHED:
        raise Unanswerable(
            f"the server ended the text for another reason than its end ({str(reason)[:40]!r})"
        )
    usage = answer.get("usage")
    usage = usage if isinstance(usage, dict) else {}
    details = usage.get("completion_tokens_details")
    thought = _count(
        details.get("reasoning_tokens")
        if isinstance(details, dict)
        else usage.get("reasoning_tokens")
    )
    return Ended(
        FINISHED[reason], tokens=_count(usage.get("completion_tokens")), thought_tokens=thought
    )


def _count(value: Any) -> int | None:
    return (
        value
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31
        else None
    )


def _filtered(ended: Ended) -> TokenScores:
    return replace(TokenScores.unanswered("a filter of the server withheld the text"), ended=ended)


def settings(generation: Generation, unchanged: bool) -> dict[str, Any]:
    """What a request says about how to generate; ``unchanged``: with all that leaves the distribution as it is.

    Stops are not sent where the model may think: a server would stop in the thought.
    """
    body: dict[str, Any] = {"max_tokens": generation.most, "top_p": 1, "temperature": 0}
    if generation.sampling is not None:
        body |= {
            "temperature": 1,
            "seed": int.from_bytes(generation.sampling.stream[:4], "big") >> 1,
        }
    stops = [stop.decode() for stop in generation.stops if is_text(stop)][:_MOST_STOPS]
    if (
        stops and not generation.keep_stop and generation.opened is None
    ):  # it would end before a stop that is kept
        body["stop"] = stops
    return body | (_UNCHANGED if unchanged else {})


def text_scores(generation: Generation, text: str, ended: Ended | None = None) -> TokenScores:
    """The answer that is a text alone, cut where a stop begins, or ends where the stop is kept."""
    spelled, ended = text.encode(errors="replace"), ended or Ended()
    start = 0 if generation.opened is None else split(spelled, generation.opened).start
    stops = generation.stops if start is not None else ()
    places = [(place, stop) for stop in stops if (place := spelled.find(stop, start)) >= 0]
    if places:
        place, stop = min(places, key=lambda each: each[0] + len(each[1]))
        first = min(at for at, _ in places)
        spelled = spelled[: place + len(stop)] if generation.keep_stop else spelled[:first]
        ended = ended._replace(finish=STOP)
    return replace(TokenScores.of(), text=spelled.decode(errors="replace"), ended=ended)
