"""The log-probabilities of a prompt's own tokens, as ``echo`` of completions gives them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from choicewise.models.server.faults import Unanswerable
from choicewise.models.server.json_answer import JSON
from choicewise.models.server.prompts import Prompts
from choicewise.models.server.routes import fields
from choicewise.models.server.routes.route import Call
from choicewise.models.server.routes.whole_spans import Whole, WholeSpans
from choicewise.questions import Question, Span, TokenScores
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
        fields.check_prompt(answer, len(whole.tokens))
        given = fields.part(fields.choice(answer), "logprobs")
        tokens, logprobs = fields.items(given, "tokens"), fields.items(given, "token_logprobs")
        if len(tokens) != len(logprobs):
            raise Unanswerable(f"the server echoes {len(tokens)} tokens with {len(logprobs)} log-probabilities")
        hidden = self._hidden(tokens, whole.tokens)
        top = given.get("top_logprobs")
        scores, ranks = list[float](), list[int]()
        for place in range(whole.first - hidden, len(whole.tokens) - hidden):
            if place < 0 or (place == 0 and logprobs[0] is None):
                raise Unanswerable("the server gives no log-probability of the first token after its own BOS")
            scores.append(fields.number(logprobs[place]))
            ranks.append(fields.rank(scores[-1], top[place] if isinstance(top, list) and place < len(top) else None))
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
