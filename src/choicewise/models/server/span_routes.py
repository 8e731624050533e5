"""Ways of asking that send a prompt whole: echo, prompt log-probabilities, generated completions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from choicewise.models.server import routes
from choicewise.models.server.faults import JSON, Unanswerable
from choicewise.models.server.routes import (
    PLAIN,
    Call,
    OnePart,
    Part,
    Prompts,
    Whole,
    WholeSpans,
    check_finished,
    settings,
    text_scores,
)
from choicewise.questions import Generation, Question, Sampling, Span, TokenScores
from choicewise.tokens.tokenizer import Tokenizer


class Echo(WholeSpans):
    """Every span that is no prefix of another is a prompt that the server echoes, with a token's log-probability each.

    One token is generated after it, as there are servers to which none means as many as fit; it is not read.
    """

    cost = "one request for every span, computed from its first token on"

    def __init__(self, model: str, tokenizer: Tokenizer, prompts: Prompts) -> None:
        """``model``: its name at the server."""
        self._model, self._tokenizer, self._prompts = model, tokenizer, prompts

    @property
    def name(self) -> str:
        """How prompts are sent."""
        return f"echo, prompts as {self._prompts.name}"

    def objection(self, question: Question) -> str | None:
        """Why not: no text gives these tokens."""
        assert isinstance(question, Span)
        return self._prompts.objection([*question.context.tolist(), *question.continuation.tolist()])

    def _call(self, whole: Whole) -> Call:
        prompt = self._prompts.prompt(whole.tokens)
        body: dict[str, Any] = {"model": self._model, "prompt": prompt, "max_tokens": 1, "temperature": 0}
        body |= {"echo": True, "logprobs": 1}
        return Call("completions", body, whole.parts, partial(self._read, whole))

    def _read(self, whole: Whole, answer: JSON) -> list[TokenScores]:
        routes.check_prompt(answer, len(whole.tokens))
        given = routes.part(routes.choice(answer), "logprobs")
        tokens, logprobs = routes.items(given, "tokens"), routes.items(given, "token_logprobs")
        if len(tokens) != len(logprobs):
            raise Unanswerable(f"the server echoes {len(tokens)} tokens with {len(logprobs)} log-probabilities")
        hidden = self._hidden(tokens, whole.tokens)
        top = given.get("top_logprobs")
        scores, ranks = list[float](), list[int]()
        for place in range(whole.first - hidden, len(whole.tokens) - hidden):
            if place < 0 or (place == 0 and logprobs[0] is None):
                raise Unanswerable("the server gives no log-probability of the first token after its own BOS")
            scores.append(routes.number(logprobs[place]))
            ranks.append(routes.rank(scores[-1], top[place] if isinstance(top, list) and place < len(top) else None))
        return whole.scores(scores, ranks)

    def _hidden(self, tokens: Sequence[Any], sent: Sequence[int]) -> int:
        """How many of the ``sent`` tokens, at their front, are not among the echoed ``tokens``.

        Raises Unanswerable where these are others.
        """
        for hidden in sorted({0, len(self._prompts.front)}):
            shown = sent[hidden:]
            if len(shown) <= len(tokens) <= len(shown) + 1 and all(map(self._is, tokens, shown)):
                return hidden
        raise Unanswerable(f"the server echoes {len(tokens)} tokens that are not the {len(sent)} sent and one more")

    def _is(self, shown: Any, token: int) -> bool:
        """Whether ``shown`` is how the server writes ``token``; of bytes that are no text nobody knows."""
        table = self._tokenizer.token_bytes
        spelled = table[token] if token < len(table) else b""
        try:
            text = spelled.decode()
        except UnicodeDecodeError:
            return True
        return not text or shown in (text, text.removeprefix(" "))


class PromptLogprobs(WholeSpans):
    """Every span that is no prefix of another is a prompt, and its tokens' log-probabilities and ranks come back.

    vLLM does not use its prefix cache for them, so that every prompt is computed from its beginning.
    """

    name = "prompt log-probabilities"
    cost = "one request for every span, computed from its first token on, as they switch the prefix cache off"

    def __init__(self, model: str) -> None:
        """``model``: its name at the server."""
        self._model = model

    def _call(self, whole: Whole) -> Call:
        body: dict[str, Any] = {"model": self._model, "prompt": whole.tokens, "max_tokens": 1, **PLAIN}
        body["prompt_logprobs"] = 1
        return Call("completions", body, whole.parts, partial(_read, whole))


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
        routes.check_prompt(answer, len(generation.context))
        choice = routes.choice(answer)
        check_finished(choice)
        if not self._named:
            return [text_scores(generation, routes.text(choice, "text"))]
        given = routes.part(choice, "logprobs")
        ids = [routes.named_id(str(name)) for name in routes.items(given, "tokens")]
        logprobs, top = routes.items(given, "token_logprobs"), routes.items(given, "top_logprobs")
        if not len(ids) == len(logprobs) == len(top):
            raise Unanswerable(f"the server gives {len(logprobs)} log-probabilities of {len(ids)} generated tokens")
        tokens = [token for token in ids if token is not None]
        if len(tokens) < len(ids):
            raise Unanswerable("the server names tokens by their text though asked to name them by id")
        if len(tokens) > generation.limit:
            raise Unanswerable(f"the server generates {len(tokens)} tokens where {generation.limit} were asked for")
        numbers = [routes.number(value) for value in logprobs]
        ranks = [routes.rank(number, listed) for number, listed in zip(numbers, top, strict=True)]
        count = generation.before_stop(tokens, self._tokenizer.token_bytes)
        scores = TokenScores.of(tokens, numbers, ranks).first(count)
        if generation.sampling is not None and len(scores.tokens) and choice.get("finish_reason") == "stop":
            scores = _before_end(scores, self._tokenizer)
        return [scores]


def _read(whole: Whole, answer: JSON) -> list[TokenScores]:
    routes.check_prompt(answer, len(whole.tokens))
    given = routes.items(routes.choice(answer), "prompt_logprobs")
    if len(given) != len(whole.tokens):
        raise Unanswerable(
            f"the server gives log-probabilities of {len(given)} tokens where {len(whole.tokens)} were sent"
        )
    logprobs, ranks = [0.0], [0]
    for token, place in zip(whole.tokens[whole.first :], given[whole.first :], strict=True):
        listed = place.get(str(token)) if isinstance(place, dict) else None
        if not isinstance(listed, dict):
            raise Unanswerable(f"the server gives no log-probability of token {token} of the prompt")
        rank = listed.get("rank")
        if isinstance(rank, bool) or not isinstance(rank, int) or not 1 <= rank < 2**31:
            raise Unanswerable(f"the server gives {rank!r:.40} as the rank of token {token}")
        logprobs.append(routes.number(listed.get("logprob")))
        ranks.append(rank - 1)
    return whole.scores(logprobs[1:], ranks[1:])


def _before_end(scores: TokenScores, tokenizer: Tokenizer) -> TokenScores:
    """Without a last token that stands for no text: a sampled text ends before the token that ends it."""
    last, table = int(scores.tokens[-1]), tokenizer.token_bytes
    ends = last >= len(table) or not table[last]
    return scores.first(len(scores.tokens) - 1) if ends else scores
