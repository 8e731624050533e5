"""Whether a way of asking gives right numbers: measured on the server itself, before anything else is asked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from choicewise.models.server.asking import ask, ask_now
from choicewise.models.server.client import Client
from choicewise.models.server.faults import Unanswerable
from choicewise.models.server.json_answer import JSON
from choicewise.models.server.prompts import Prompts
from choicewise.models.server.routes import fields
from choicewise.models.server.routes.route import Route
from choicewise.models.server.routes.top_tokens import TopTokens
from choicewise.questions import Ids, Question, Span
from choicewise.tokens.tokenizer import Tokenizer, common_prefix

CONTEXT: Final = "Question: What is the capital of France?\nAnswer: The capital of France is"
CONTINUATION: Final = " Paris, and the capital of Spain is Madrid.\n\nQuestion: Who"

MOST_TOKENS: Final = 12
"""Tokens of the continuation that is scored."""

TOLERANCE: Final = 0.25
"""Nats by which a token's log-probability may differ between ways of asking; far less where these vary little."""

COMPARED: Final = 8
"""Log-probabilities that are held against next tokens; of a wrong row each is right by chance once in five at most."""

LEAST_COMPARED: Final = 4
"""Of them at least so many, or a way of asking is refused."""

_PLACES: Final = 36
"""Places of the probe's text at which next tokens are listed, at most."""

_AT_A_PLACE: Final = 2
"""Next tokens that are compared at one place."""

_REPEATED: Final = 10
"""How many times as far as two answers to the same request two ways of asking may be apart."""

_SPACE_MARKS: Final = ("▁", "Ġ")
"""What stands for a space in the vocabularies of tokenizers."""


class Refused(Exception):
    """A way of asking gives wrong numbers, or none: the ``reason``."""

    def __init__(self, reason: str, difference: float | None = None) -> None:
        super().__init__(reason)
        self.reason, self.difference = reason, difference


@dataclass(frozen=True, slots=True)
class Measured:
    """What was measured: nats a token.

    ``difference``: from other ways to ask for the same; ``floor``: between two answers to the same request; ``noise``:
    the greatest difference in whatever company.  ``probes``: text → log-probability; ``tokens``: of the longest prompt.
    """

    difference: float
    floor: float
    noise: float
    tolerance: float
    tokens: int
    probes: dict[str, float] = field(default_factory=dict)


class RouteCheck:
    """Tries ways of asking ``client`` about the model that it calls ``model``, in the tokens of ``tokenizer``."""

    def __init__(self, client: Client, model: str, tokenizer: Tokenizer) -> None:
        self._client, self._model, self._tokenizer = client, model, tokenizer

    def spans(self, route: Route, top: TopTokens | None, front: tuple[int, ...] = ()) -> Measured:
        """How exact ``route`` is on a span of several tokens; raises Refused where it is wrong.

        ``front``: what the server puts before texts.  ``top`` lists next tokens: where there is one, the numbers are
        held against it, so that log-probabilities of the wrong row show; without it nothing says that they are right.
        """
        context, continuation = self._span(route, front)
        whole = Span(context, continuation)
        try:
            first = self._ask(route, whole)
            _check_values(first)
            parts = self._parts(route, context, continuation)
            together, again = self._in_company(route, [whole, *parts]), self._ask(route, whole)
        except Unanswerable as error:
            raise Refused(error.reason) from None
        floor = float(np.abs(first - again).max())
        tolerance = max(min(TOLERANCE, float(first.std()) / 2), _REPEATED * floor)
        differences = [float(np.abs(first - together[0]).max())]
        if parts:
            differences.append(float(np.abs(np.concatenate(together[1:]) - first).max()))
            if differences[-1] > tolerance:
                apart = f"log-probabilities do not add up: asked in two parts they are {differences[-1]:.3g} nats apart"
                raise Refused(apart, differences[-1])
        away = 0.0 if top is None else self._from_next_tokens(route, top, context, continuation)
        if away > tolerance:
            raise Refused(
                f"log-probabilities are not those of the next token: {away:.3g} nats apart from what the server says of"
                " next tokens, as if each were read from the wrong row",
                away,
            )
        noise = max(*differences, floor)
        text = self._tokenizer.decode(np.concatenate([context, continuation]))
        probes = {text: float(first.sum(dtype=np.float64))}
        return Measured(max(noise, away), floor, noise, tolerance, len(context) + len(continuation), probes)

    def next_tokens(self, top: TopTokens) -> Measured:
        """How exact lists of next tokens are; raises Refused where they can't be right."""
        context = self.context(top.prompts)
        if context is None:
            raise Refused("no text has the tokens of the probe")
        try:
            first, again = (self.listed(top, context.tolist()) for _ in range(2))
            others = [self.listed(top, prefix) for prefix in self._beginnings(top.prompts, context)]
        except Unanswerable as error:
            raise Refused(error.reason) from None
        if others and len({max(each.values()) for each in (first, *others)}) == 1:
            raise Refused(f"the likeliest token has {max(first.values()):.6g} after every text")
        if len(first) > 1 and len(set(first.values())) == 1:
            raise Refused(f"all listed log-probabilities are {next(iter(first.values())):.6g}")
        common = first.keys() & again.keys()
        floor = max((abs(first[name] - again[name]) for name in common), default=0.0)
        probes = {self._tokenizer.decode(context): nats for _, nats in top.identified(first)[:1]}
        return Measured(floor, floor, floor, TOLERANCE, len(context), probes)

    def _beginnings(self, prompts: Prompts, context: Ids) -> list[list[int]]:
        """Up to three beginnings of ``context`` that can be sent."""
        beginnings = (context[:count].tolist() for count in range(2, len(context) - 1, 3))
        return [each for each in beginnings if prompts.objection(each) is None][:3]

    def listed(self, top: TopTokens, prefix: Sequence[int]) -> dict[Any, float]:
        """What ``top`` lists after ``prefix``; raises Unanswerable."""
        call = next(top.calls([(0, Span(np.asarray(prefix, np.int32), np.zeros(1, np.int32)))]))
        if call.body.get("prompt") is None:
            raise Unanswerable("no text has the tokens of the probe")
        answer = self._client.post(call.path, call.body)
        return self._client.read(lambda given: top.listed(given, len(prefix)), answer)

    def context(self, prompts: Prompts) -> Ids | None:
        """The probe's context in tokens that can be sent; None where there are none."""
        contexts = (context for context, _ in self._texts(prompts.front))
        return next((context for context in contexts if prompts.objection(context.tolist()) is None), None)

    def apart(self, one: Route, other: Route) -> float:
        """By how much two ways of asking differ at most, in nats a token; raises Refused where one has no answer."""
        context, continuation = self._span(one)
        span = Span(context, continuation)
        try:
            return float(np.abs(self._ask(one, span) - self._ask(other, span)).max())
        except Unanswerable as error:
            raise Refused(error.reason) from None

    def is_spaceless(self, top: TopTokens, context: Ids) -> bool | None:
        """Whether the server names tokens without the space that they begin with; None where no token says so.

        Then none of the tokens that it lists and generates has one, though some are only known with it, or though the
        generated text has spaces.  Raises Unanswerable, and Refused where they are named neither so nor by their text.
        """
        call = next(top.calls([(0, Span(context, np.zeros(1, np.int32)))]))
        answer = self._client.post(call.path, call.body | {"max_tokens": MOST_TOKENS})
        generated, text = self._client.read(_generated, answer)
        names = {*map(str, generated), *(name.decode() for name in self.listed(top, context.tolist()))}
        table = {spelled.decode(errors="replace") for spelled in self._tokenizer.token_bytes}
        if marked := [name for name in names - table if name[:1] in _SPACE_MARKS and f" {name[1:]}" in table]:
            raise Refused(f"the server names tokens as its vocabulary spells them ({marked[0]!r}), not by their text")
        if any(" " in name for name in names):
            return False
        return True if " " in text.strip() or any(f" {name}" in table for name in names - table) else None

    def _texts(self, front: tuple[int, ...]) -> Iterator[tuple[Ids, Ids]]:
        """The probe's text in tokens (context, continuation): as the tokenizer begins it, and as the server does."""
        for special, before in ((True, ()), (False, front), (False, ())):
            alone, whole = self._tokenizer.encode([CONTEXT, CONTEXT + CONTINUATION], special=special)
            begins = common_prefix([alone, whole])
            context = np.concatenate([np.asarray(before, dtype=np.int32), whole[:begins]])
            yield context, whole[begins : begins + MOST_TOKENS]

    def _span(self, route: Route, front: tuple[int, ...] = ()) -> tuple[Ids, Ids]:
        """The context and the longest continuation that ``route`` can be asked about; raises Refused without any."""
        objection: str | None = None
        for context, continuation in self._texts(front):
            for count in range(len(continuation), 1, -1):
                objection = route.objection(Span(context, continuation[:count]))
                if objection is None:
                    return context, continuation[:count]
        raise Refused(objection or "the probe has too few tokens")

    def _parts(self, route: Route, context: Ids, continuation: Ids) -> list[Span]:
        """The continuation in two parts, the second one after the first; nothing where they can't be asked."""
        for middle in sorted(range(1, len(continuation)), key=lambda place: abs(place - len(continuation) // 2)):
            longer = np.concatenate([context, continuation[:middle]])
            parts = [Span(context, continuation[:middle]), Span(longer, continuation[middle:])]
            if not any(map(route.objection, parts)):
                return parts
        return []

    def _ask(self, route: Route, span: Span) -> npt.NDArray[np.float32]:
        return ask_now(self._client, route, span).logprobs

    def _in_company(self, route: Route, spans: Sequence[Span]) -> list[npt.NDArray[np.float32]]:
        asked: list[tuple[int, Question]] = list(enumerate(spans))
        answers = dict(ask(self._client, route, asked, None))
        for answer in answers.values():
            if answer.missing is not None:
                raise Unanswerable(answer.missing)
        return [answers[index].logprobs for index in range(len(spans))]

    def _from_next_tokens(self, route: Route, top: TopTokens, context: Ids, continuation: Ids) -> float:
        """How far log-probabilities of likely next tokens are, at most, from those which ``top`` lists.

        Raises Refused where too few can be compared: those of the wrong row would not show.
        """
        tokens = np.concatenate([context, continuation])
        away, reason = list[float](), "the others share their texts, or can't be asked"
        for prefix in self._prefixes(tokens, len(context)):
            try:
                listed = top.identified(self.listed(top, prefix.tolist()))
                spans = ((Span(prefix, np.asarray([token], dtype=np.int32)), nats) for token, nats in listed)
                comparable = (each for each in spans if route.objection(each[0]) is None)
                for span, nats in islice(comparable, _AT_A_PLACE):
                    away.append(abs(float(self._ask(route, span)[0]) - nats))
            except Unanswerable as error:
                reason = error.reason
            if len(away) >= COMPARED:
                break
        if len(away) < LEAST_COMPARED:
            raise Refused(
                f"only {len(away)} of its log-probabilities can be held against what the server says of next tokens"
                f" ({reason}), so they may be of the wrong rows"
            )
        return max(away)

    def _prefixes(self, tokens: Ids, scored: int) -> Iterator[Ids]:
        """Beginnings of ``tokens`` at which to compare: every third place from ``scored`` on, then all others."""
        first = range(scored, len(tokens), 3)
        others = [*range(scored, len(tokens)), *range(scored - 1, 0, -1)]
        for place in [*first, *(place for place in others if place not in first)][:_PLACES]:
            yield tokens[:place]


def _generated(answer: JSON) -> tuple[list[Any], str]:
    """The names of the tokens that were generated, and their text."""
    choice = fields.choice(answer)
    return fields.items(fields.part(choice, "logprobs"), "tokens"), fields.text(choice, "text")


def _check_values(logprobs: npt.NDArray[np.float32]) -> None:
    """Raise Refused where they can't be log-probabilities of a text's tokens."""
    if len(logprobs) > 1 and np.ptp(logprobs) == 0:
        raise Refused(f"all log-probabilities are {float(logprobs[0]):.6g}")
