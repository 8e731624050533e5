"""Generate by completions and in chats, and read how a text ended and the thought beside it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from choicewise.extensions.endpoints.server.faults import JSON, Unanswerable, integer, member
from choicewise.extensions.endpoints.server.routes import (
    NO_PENALTIES,
    Call,
    Numbered,
    Part,
    Prompts,
    Route,
    chat_body,
    chat_objection,
    check_prompt,
    choice,
    content_parts,
    field,
    generations,
    named_id,
    number,
    rank_among,
    seed,
    text_stops,
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
from choicewise.util.jsonio import JsonMapping

FINISHED: Mapping[str | None, str | None] = {
    "stop": STOP,
    "stop_sequence": STOP,
    "eos": EOS,
    "eos_token": EOS,
    "length": LENGTH,
    "content_filter": FILTERED,
    None: None,
}
"""Ends of a text by a server's reason; a text with another reason is none of the model's."""

_UNCHANGED = {"top_k": 0, "min_p": 0, **NO_PENALTIES}
"""Settings that keep the model's own distribution, whatever the server's defaults are.

Not every server takes them.
"""

# Texts at which servers stop; all other stops are applied here alone.
_MOST_STOPS = 4


class Completions(Route):
    """Send a request for every generation.

    Stops are applied here again, by tokens if the server names them.  ``named``: True if it gives
    tokens by id with their log-probabilities; else the answer is a text.  ``unchanged``: True if it
    takes the settings that keep the model's distribution.
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
        """Ask ``model``, by its name at the server."""
        super().__init__(model)
        self._tokenizer = tokenizer
        self._prompts = prompts
        self._named = named
        self._unchanged = unchanged
        output = "tokens" if named else "text"
        self.name = f"generated {output}, prompts as {prompts.name}"

    def objection(self, question: Prompt) -> str | None:
        """Return why no text gives the context, or None."""
        assert isinstance(question, Generation)
        return self._prompts.objection(question.context.tolist())

    def calls(self, questions: Sequence[Numbered]) -> Iterator[Call]:
        """Yield a request for every generation, those with a common beginning together."""
        for index, generation in generations(questions):
            body = {
                "model": self._model,
                **self._sent(generation),
                **settings(generation, self._unchanged),
            }
            yield Call(self.path, body, [Part(index)], partial(self._read, generation))

    def _sent(self, generation: Generation) -> JSON:
        body: JSON = {"prompt": self._prompts.prompt(generation.context.tolist())}
        if self._named:
            body |= {"logprobs": 1, "return_tokens_as_token_ids": True}
        return body

    def _read(self, generation: Generation, answer: JSON) -> list[TokenScores]:
        check_prompt(answer, len(generation.context))
        completion = choice(answer)
        ended = how_ended(completion, answer)
        if ended.finish == FILTERED:
            return [_filtered(ended)]
        if not self._named:
            return [text_scores(generation, field(completion, "text", str), ended)]
        whole = _scores_by_id(field(completion, "logprobs", dict))
        count = len(whole.tokens)
        if count > generation.limit:
            raise Unanswerable(
                f"the server generated {count} tokens, over the limit of {generation.limit}"
            )
        table = self._tokenizer.token_bytes
        scores = whole.first(generation.before_stop(whole.tokens.tolist(), table))
        is_sample = generation.sampling is not None
        if is_sample and len(scores.tokens) and completion.get("finish_reason") == "stop":
            last = int(scores.tokens[-1])
            # A sampled text ends before the token that ends it.
            if last >= len(table) or not table[last]:
                scores = scores.first(len(scores.tokens) - 1)
        finish = ended.finish or LENGTH
        # A server that gives no reason stopped if it did not reach the limit.
        is_early = ended.finish is None and count < generation.limit
        if len(scores.tokens) < count or is_early:
            finish = STOP
        return [replace(scores, ended=Ended(finish))]


def _scores_by_id(content: JsonMapping) -> TokenScores:
    """Return the scores of generated tokens that the server names by id; raise Unanswerable."""
    names = field(content, "tokens", list)
    logprobs = field(content, "token_logprobs", list)
    top = field(content, "top_logprobs", list)
    if not len(names) == len(logprobs) == len(top):
        raise Unanswerable(
            f"the server sent {len(logprobs)} log-probabilities of {len(names)} generated tokens"
        )
    tokens = []
    for name in names:
        token = named_id(str(name))
        if token is None:
            raise Unanswerable("the server names tokens by text, though the request asks for ids")
        tokens.append(token)
    numbers = list(map(number, logprobs))
    return TokenScores.of(tokens, numbers, list(map(rank_among, numbers, top)))


class ChatGeneration(Completions):
    """Send a request for every generation in a chat; the answer is a text."""

    path = "chat/completions"

    def __init__(self, model: str, tokenizer: Tokenizer, unchanged: bool = False) -> None:
        """Ask ``model``, by its name at the server.  ``unchanged``: as in :class:`Completions`."""
        super().__init__(model, tokenizer, Prompts(), named=False, unchanged=unchanged)
        self.name = "text generated in a chat"

    def objection(self, question: Prompt) -> str | None:
        """Return that it is no chat, or one that the assistant is to go on with, or None."""
        assert isinstance(question, Generation)
        return chat_objection(self._tokenizer, question.context)

    def _sent(self, generation: Generation) -> JSON:
        body = chat_body(self._tokenizer, generation.context)
        if generation.thought is not None:
            body["thinking_token_budget"] = generation.thought
        return body

    def _read(self, generation: Generation, answer: JSON) -> list[TokenScores]:
        reply = choice(answer)
        ended = how_ended(reply, answer)
        if ended.finish == FILTERED:
            return [_filtered(ended)]
        message = field(reply, "message", dict)
        thought = thought_in(message)
        counted = ended.thought_tokens or 0
        is_cut = ended.finish == LENGTH
        text = _content(message, is_thinking=bool(thought or counted or is_cut))
        # If all that was generated is thought, a server may pass it off as the answer.
        if is_cut and text and not thought and counted and counted == ended.tokens:
            thought = text
            text = ""
        if generation.thought is not None and ended.thought_tokens is not None:
            ended = ended._replace(forced=counted >= generation.thought and bool(text))
        return [text_scores(generation, text, ended._replace(thought=thought or None))]


def _content(message: JsonMapping, is_thinking: bool) -> str:
    content = message.get("content")
    if isinstance(content, list):
        return "".join(text for kind, text in content_parts(content) if kind == "text")
    # The thought was cut before an answer began.
    if content is None and is_thinking:
        return ""
    return field(message, "content", str)


def how_ended(given: JsonMapping, answer: JSON) -> Ended:
    """Return how the text of a choice ended, and how many tokens the server counts.

    Raises Unanswerable if the text is not what the model generated.
    """
    reason = given.get("finish_reason")
    if not isinstance(reason, str | None) or reason not in FINISHED:
        raise Unanswerable(f"the server ended the text early ({str(reason)[:40]!r})")
    # Some servers count thoughts among the details, others beside them.
    details = member(answer, "usage", "completion_tokens_details")
    counts = details if isinstance(details, dict) else answer.get("usage")
    return Ended(
        FINISHED[reason],
        tokens=integer(member(answer, "usage", "completion_tokens")),
        thought_tokens=integer(member(counts, "reasoning_tokens")),
    )


def _filtered(ended: Ended) -> TokenScores:
    return replace(TokenScores.unanswered("a filter of the server withheld the text"), ended=ended)


def settings(generation: Generation, unchanged: bool) -> JSON:
    """Return the fields of a request that say how to generate.

    ``unchanged``: True adds all that keep the distribution.  Stops are not sent if the model may
    think, as a server would stop in the thought.
    """
    body: JSON = {"max_tokens": generation.most, "top_p": 1, "temperature": 0}
    if generation.sampling is not None:
        body |= {"temperature": 1, "seed": seed(generation.sampling)}
    stops = text_stops(generation)[:_MOST_STOPS]
    # A server would end the text before a stop that is to be kept.
    if stops and not generation.keep_stop:
        body["stop"] = stops
    if unchanged:
        body |= _UNCHANGED
    return body


def text_scores(generation: Generation, text: str, ended: Ended | None = None) -> TokenScores:
    """Return an answer that is a text alone, cut before its first stop, or behind one to keep."""
    spelled = text.encode(errors="replace")
    ended = ended or Ended()
    start: int | None = 0
    if generation.opened is not None:
        start = split(spelled, generation.opened).start
    # A thought that is not closed has no stops.
    stops = [] if start is None else generation.stops
    cuts = []
    for stop in stops:
        position = spelled.find(stop, start)
        if position < 0:
            continue
        if generation.keep_stop:
            position += len(stop)
        cuts.append(position)
    if cuts:
        spelled = spelled[: min(cuts)]
        ended = ended._replace(finish=STOP)
    return replace(TokenScores.of(), text=spelled.decode(errors="replace"), ended=ended)
