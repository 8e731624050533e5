"""Generated text, from completions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from choicewise.models.server.faults import Unanswerable
from choicewise.models.server.json_answer import JSON
from choicewise.models.server.prompts import Prompts
from choicewise.models.server.routes import fields
from choicewise.models.server.routes.route import Call, OnePart, Part
from choicewise.questions import Generation, Question, Sampling, TokenScores
from choicewise.tokens.tokenizer import Tokenizer

UNCHANGED: Final = {"top_k": 0, "min_p": 0, "repetition_penalty": 1, "presence_penalty": 0, "frequency_penalty": 0}
"""What servers may have defaults for that change the model's own distribution; not every server takes them."""

MOST_STOPS: Final = 4
"""Texts at which servers stop; all others are found here."""


class Completions(OnePart):
    """One request for every generation.  Stops are applied here again, by tokens where the server names them.

    ``named``: whether it gives tokens by id and their log-probabilities; without that the answer is a text.
    ``unchanged``: whether it takes the settings that leave the model's distribution as it is.
    """

    cost = "one request for every generation"
    supports: frozenset[type] = frozenset({Generation, Sampling})

    def __init__(self, model: str, tokenizer: Tokenizer, prompts: Prompts, named: bool, unchanged: bool = True) -> None:
        """``model``: its name at the server."""
        self._model, self._tokenizer, self._prompts = model, tokenizer, prompts
        self._named, self._unchanged = named, unchanged

    @property
    def name(self) -> str:
        """What comes back, and how prompts are sent."""
        return f"generated {'tokens' if self._named else 'text'}, prompts as {self._prompts.name}"

    def objection(self, question: Question) -> str | None:
        """Why not: no text gives the context."""
        assert isinstance(question, Generation)
        return self._prompts.objection(question.context.tolist())

    def calls(self, questions: Sequence[tuple[int, Question]]) -> Iterator[Call]:
        """One request for every generation, those with a common beginning one after another."""
        asked = [(index, question) for index, question in questions if isinstance(question, Generation)]
        for index, generation in sorted(asked, key=lambda each: each[1].context.astype(">i4").tobytes()):
            body: dict[str, Any] = {"model": self._model, "prompt": self._prompts.prompt(generation.context.tolist())}
            body |= settings(generation, self._unchanged)
            if self._named:
                body |= {"logprobs": 1, "return_tokens_as_token_ids": True}
            yield Call("completions", body, [Part(index)], partial(self._read, generation))

    def _read(self, generation: Generation, answer: JSON) -> list[TokenScores]:
        fields.check_prompt(answer, len(generation.context))
        choice = fields.choice(answer)
        check_finished(choice)
        if not self._named:
            return [text_scores(generation, fields.text(choice, "text"))]
        given = fields.part(choice, "logprobs")
        ids = [fields.named_id(str(name)) for name in fields.items(given, "tokens")]
        logprobs, top = fields.items(given, "token_logprobs"), fields.items(given, "top_logprobs")
        if not len(ids) == len(logprobs) == len(top):
            raise Unanswerable(f"the server gives {len(logprobs)} log-probabilities of {len(ids)} generated tokens")
        tokens = [token for token in ids if token is not None]
        if len(tokens) < len(ids):
            raise Unanswerable("the server names tokens by their text though asked to name them by id")
        if len(tokens) > generation.limit:
            raise Unanswerable(f"the server generates {len(tokens)} tokens where {generation.limit} were asked for")
        numbers = [fields.number(value) for value in logprobs]
        ranks = [fields.rank(number, listed) for number, listed in zip(numbers, top, strict=True)]
        count = generation.before_stop(tokens, self._tokenizer.token_bytes)
        scores = TokenScores.of(tokens, numbers, ranks).first(count)
        if generation.sampling is not None and len(scores.tokens) and choice.get("finish_reason") == "stop":
            scores = _before_end(scores, self._tokenizer)
        return [scores]


def settings(generation: Generation, unchanged: bool) -> dict[str, Any]:
    """What a request says about how to generate; ``unchanged``: with all that leaves the distribution as it is."""
    body: dict[str, Any] = {"max_tokens": generation.limit, "top_p": 1, "temperature": 0}
    if generation.sampling is not None:
        body |= {"temperature": 1, "seed": int.from_bytes(generation.sampling.stream[:4], "big") >> 1}
    stops = [stop.decode() for stop in generation.stops if fields.is_text(stop)][:MOST_STOPS]
    if stops and not generation.keep_stop:  # the text would end before the stop that is to be kept
        body["stop"] = stops
    return body | (UNCHANGED if unchanged else {})


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


def _before_end(scores: TokenScores, tokenizer: Tokenizer) -> TokenScores:
    """Without a last token that stands for no text: a sampled text ends before the token that ends it."""
    last, table = int(scores.tokens[-1]), tokenizer.token_bytes
    ends = last >= len(table) or not table[last]
    return scores.first(len(scores.tokens) - 1) if ends else scores
