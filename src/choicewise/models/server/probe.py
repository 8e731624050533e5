"""Which ways of asking a server are exact, by a short text whose answers are held against one another."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from choicewise.errors import ModelError
from choicewise.models.model import SelfCheck, Trial
from choicewise.models.server import routes
from choicewise.models.server.facts import NOT_THERE, ServerFacts, answer_if_offered
from choicewise.models.server.faults import JSON, ServerFailed, Unanswerable
from choicewise.models.server.http import Client
from choicewise.models.server.many_requests import ask, ask_now
from choicewise.models.server.next_token_routes import (
    ByLength,
    ChatGeneration,
    ChatTopTokens,
    ChosenTokens,
    SglangChosen,
    SglangPrompts,
    TopTokens,
)
from choicewise.models.server.routes import Prompts, Route, TextPrompts, TokenPrompts
from choicewise.models.server.span_routes import Completions, Echo, PromptLogprobs
from choicewise.questions import Generation, Ids, Question, Span
from choicewise.tokens.chat_template import Message, ServedChat
from choicewise.tokens.tokenizer import Tokenizer, common_prefix

_COUNTS: Final = (100, 20, 5, 1)
"""How many next tokens are asked for: the first number that the server takes."""

_NOT_HELD: Final = (
    "the server lists no next tokens that its log-probabilities could be held against, so they may be of the wrong rows"
)

_TEXTS = (
    "Question: What is it?\nA. One\nB. Two\n\nAnswer: A",
    "  two spaces, a\ttab,\n\n\nlines and 2026 x 1e-5 = 3.14",
    "naïve café, Straße, 你好, 👩‍👩‍👧",
    "def f(x):\n    return {'x': [x]}  # (C) [D]",
)
"""Texts on which tokenizers differ."""

_CONTEXT: Final = "Question: What is the capital of France?\nAnswer: The capital of France is"
_CONTINUATION: Final = " Paris, and the capital of Spain is Madrid.\n\nQuestion: Who"

_MOST_TOKENS: Final = 12
"""Tokens of the continuation that is scored."""

_TOLERANCE: Final = 0.25
"""Nats by which a token's log-probability may differ between ways of asking; far less where these vary little."""

_COMPARED: Final = 8
"""Log-probabilities that are held against next tokens; of a wrong row each is right by chance once in five at most."""

_LEAST_COMPARED: Final = 4
"""Of them at least so many, or a way of asking is refused."""

_PLACES: Final = 36
"""Places of the probe's text at which next tokens are listed, at most."""

_AT_A_PLACE: Final = 2
"""Next tokens that are compared at one place."""

_REPEATED: Final = 10
"""How many times as far as two answers to the same request two ways of asking may be apart."""

_SPACE_MARKS: Final = ("▁", "Ġ")
"""What stands for a space in the vocabularies of tokenizers."""


@dataclass
class Probe:
    """Tries the server behind ``client``, which serves ``served``; ``tokenizer`` is called ``name``."""

    client: Client
    served: ServerFacts
    tokenizer: Tokenizer
    name: str
    completions: bool
    _tried: list[Trial] = field(default_factory=list)

    def chosen_routes(self) -> ChosenRoutes:
        """What was taken, and what was measured; raises ModelError where the tokenizer is not the server's."""
        check = RouteCheck(self.client, self.served.model, self.tokenizer)
        score: Route | None = None
        generate: Route | None = None
        front: tuple[int, ...] | None = None
        measured: _Measured | None = None
        if self.completions:
            front = _text_front(self.client, self.served, self.tokenizer, self.name)
            texts = None if front is None else TextPrompts(self.tokenizer, front)
            top = self._top(check, texts)
            tokens = top is not None and isinstance(top.prompts, TokenPrompts)
            score, measured = self._score(check, top, texts, tokens or self._is("sglang"))
            generate = self._generate(check, TokenPrompts() if tokens else texts)
        chat = isinstance(self.tokenizer.chat, ServedChat)
        chat_score = self._chat_score() if chat else None
        chat_generate = self._chat_generate() if chat else None
        return ChosenRoutes(
            score, generate, chat_score, chat_generate, self._selfcheck(score, measured), _probes(measured), front
        )

    def _is(self, software: str) -> bool:
        return self.served.software.startswith(software)

    def _selfcheck(self, score: Route | None, measured: _Measured | None) -> SelfCheck:
        trials = tuple(self._tried)
        if score is None or measured is None:
            taken = next((each.rung for each in trials if each.refused is None), "none")
            return SelfCheck(taken, 0.0, 0.0, _TOLERANCE, 0.0, 0, trials, "no log-probabilities")
        difference, floor, tolerance = measured.difference, measured.floor, measured.tolerance
        return SelfCheck(score.name, difference, floor, tolerance, measured.noise, measured.tokens, trials, score.cost)

    def _score(
        self, check: RouteCheck, top: TopTokens | None, texts: TextPrompts | None, tokens: bool
    ) -> tuple[Route | None, _Measured | None]:
        """The best way to ask about spans."""
        if tokens:
            for chosen, whole, cached in self._pairs():
                first, second = self._spans(check, chosen, top), self._spans(check, whole, top)
                if first is not None and second is not None:
                    try:
                        self._compare(check, chosen, whole, first)
                    except _Refused:
                        return whole, second  # ranks and all tokens are checked there
                    longest = None if self.served.window is None else self.served.window - 1
                    return ByLength(chosen, whole, longest, cached), first
                one, measured = (chosen, first) if first is not None else (whole, second)
                if measured is not None and self._is_held(one, top):
                    return one, measured
        for prompts in self._prompts(texts, tokens):
            echo = Echo(self.served.model, self.tokenizer, prompts)
            measured = self._spans(check, echo, top, prompts.front)
            if measured is not None and self._is_held(echo, top):
                return echo, measured
        if top is not None:
            try:
                measured = check.next_tokens(top)
            except _Refused as refused:
                self._tried.append(Trial(top.name, None, refused.reason))
            else:
                self._tried.append(Trial(top.name, measured.difference, None))
                return top, measured
        return None, None

    def _pairs(self) -> Iterator[tuple[Route, Route, bool]]:
        """ChosenRoutes by chosen next tokens and by whole prompts; whether the latter use the cache."""
        if self._is("sglang"):
            yield SglangChosen(self.served.model), SglangPrompts(), True
        yield ChosenTokens(self.served.model), PromptLogprobs(self.served.model), False

    def _prompts(self, texts: TextPrompts | None, tokens: bool) -> Iterator[Prompts]:
        if tokens:
            yield TokenPrompts()
        if texts is not None:
            yield texts

    def _is_held(self, route: Route, top: TopTokens | None) -> bool:
        """Whether the numbers of ``route`` were held against next tokens; noted where not."""
        if top is None:
            self._tried.append(Trial(route.name, None, _NOT_HELD))
        return top is not None

    def _compare(self, check: RouteCheck, chosen: Route, whole: Route, measured: _Measured) -> None:
        """Refuse ``chosen`` where the two ways give different numbers, or one of them none; noted then."""
        try:
            difference = check.difference(chosen, whole)
            if difference > measured.tolerance:
                raise _Refused(f"{difference:.3g} nats apart from {whole.name}", difference)
        except _Refused as refused:
            self._tried.append(Trial(chosen.name, refused.difference, refused.reason))
            raise

    def _spans(
        self, check: RouteCheck, route: Route, top: TopTokens | None, front: tuple[int, ...] = ()
    ) -> _Measured | None:
        """What was measured of ``route``; None where it is refused, which is noted."""
        try:
            measured = check.spans(route, top, front)
        except _Refused as refused:
            self._tried.append(Trial(route.name, refused.difference, refused.reason))
        except ServerFailed as error:
            if error.status is not None and error.status not in NOT_THERE:
                raise
            self._tried.append(Trial(route.name, None, error.message))
        else:
            self._tried.append(Trial(route.name, measured.difference, None))
            return measured
        return None

    def _top(self, check: RouteCheck, texts: TextPrompts | None) -> TopTokens | None:
        """The best way to list next tokens; None where there is none."""
        kinds: list[tuple[Prompts, bool]] = []
        if not self._is("llama-cpp-python"):  # it fails on tokens
            kinds += [(TokenPrompts(), True), (TokenPrompts(), False)]
        if texts is not None:
            kinds.append((texts, False))
        for prompts, by_id in kinds:
            if (context := check.context(prompts)) is None:
                continue
            for count in _COUNTS:
                top = TopTokens(self.served.model, self.tokenizer, prompts, count, by_id)
                try:
                    check.listed(top, context.tolist())
                    spaceless = False if by_id else check.is_spaceless(top, context)
                except Unanswerable as error:
                    refused = Trial(f"next tokens, prompts as {prompts.name}", None, error.reason)
                    if error.status is not None and error.status >= 500:
                        break
                    continue
                except _Refused as error:
                    refused = Trial(top.name, None, error.reason)
                    break
                return TopTokens(self.served.model, self.tokenizer, prompts, count, by_id, spaceless)
            self._tried.append(refused)
        return None

    def _generate(self, check: RouteCheck, prompts: Prompts | None) -> Route | None:
        """The best way to generate from completions."""
        context = None if prompts is None else check.context(prompts)
        if prompts is None or context is None:
            return None
        tried = list[Trial]()
        for named in (True, False):
            for unchanged in (True, False):
                route = Completions(self.served.model, self.tokenizer, prompts, named, unchanged)
                try:
                    ask_now(self.client, route, Generation(context, 3))
                except Unanswerable as error:
                    tried.append(Trial(route.name, None, error.reason))
                else:
                    self._tried.append(Trial(route.name, None, None))
                    return route
        self._tried += tried[-1:]
        return None

    def _chat_score(self) -> Route | None:
        span_of = self._chat_context()
        for count in _COUNTS[1:]:
            route = ChatTopTokens(self.served.model, self.tokenizer, count)
            listing = next(route.calls([(0, span_of)]))
            try:
                self.client.read(listing.read, self.client.post(listing.path, listing.body))
            except Unanswerable as error:
                refused = Trial(route.name, None, error.reason)
                continue
            self._tried.append(Trial(route.name, 0.0, None))
            return route
        self._tried.append(refused)
        return None

    def _chat_context(self) -> Span:
        text = ServedChat().render([Message("user", "Say yes.")])
        return Span(self.tokenizer.encode([text], special=False)[0], np.zeros(1, dtype=np.int32))

    def _chat_generate(self) -> Route | None:
        for unchanged in (True, False):
            route = ChatGeneration(self.served.model, self.tokenizer, unchanged)
            try:
                ask_now(self.client, route, Generation(self._chat_context().context, 3))
            except Unanswerable as error:
                refused = Trial(route.name, None, error.reason)
            else:
                self._tried.append(Trial(route.name, None, None))
                return route
        self._tried.append(refused)
        return None


@dataclass(frozen=True, slots=True)
class ChosenRoutes:
    """The ways of asking that were taken; None where the server has none for it.

    ``score`` and ``generate`` are for texts, ``chat_score`` and ``chat_generate`` for messages.  ``check``: what was
    measured.  ``probes``: log-probabilities (nats) of the probe's texts.  ``front``: the tokens that the server puts
    before a text, all others being ours; None where it does not say.
    """

    score: Route | None
    generate: Route | None
    chat_score: Route | None
    chat_generate: Route | None
    check: SelfCheck
    probes: Mapping[str, float]
    front: tuple[int, ...] | None = None

    @property
    def names(self) -> list[str]:
        """The names of all that were taken."""
        routes = (self.score, self.generate, self.chat_score, self.chat_generate)
        return [route.name for route in routes if route is not None]


class RouteCheck:
    """Tries ways of asking ``client`` about the model that it calls ``model``, in the tokens of ``tokenizer``."""

    def __init__(self, client: Client, model: str, tokenizer: Tokenizer) -> None:
        self._client, self._model, self._tokenizer = client, model, tokenizer

    def spans(self, route: Route, top: TopTokens | None, front: tuple[int, ...] = ()) -> _Measured:
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
            together, second = self._in_company(route, [whole, *parts]), self._ask(route, whole)
        except Unanswerable as error:
            raise _Refused(error.reason) from None
        floor = float(np.abs(first - second).max())
        tolerance = max(min(_TOLERANCE, float(first.std()) / 2), _REPEATED * floor)
        differences = [float(np.abs(first - together[0]).max())]
        if parts:
            differences.append(float(np.abs(np.concatenate(together[1:]) - first).max()))
            if differences[-1] > tolerance:
                reason = (
                    f"log-probabilities do not add up: asked in two parts they are {differences[-1]:.3g} nats apart"
                )
                raise _Refused(f"log-probabilities do not add up: {reason}", differences[-1])
        away = 0.0 if top is None else self._from_next_tokens(route, top, context, continuation)
        if away > tolerance:
            raise _Refused(
                f"log-probabilities are not those of the next token: {away:.3g} nats apart from what the server says of"
                " next tokens, as if each were read from the wrong row",
                away,
            )
        noise = max(*differences, floor)
        text = self._tokenizer.decode(np.concatenate([context, continuation]))
        probes = {text: float(first.sum(dtype=np.float64))}
        return _Measured(max(noise, away), floor, noise, tolerance, len(context) + len(continuation), probes)

    def next_tokens(self, top: TopTokens) -> _Measured:
        """How exact lists of next tokens are; raises Refused where they can't be right."""
        context = self.context(top.prompts)
        if context is None:
            raise _Refused("no text has the tokens of the probe")
        try:
            first, second = (self.listed(top, context.tolist()) for _ in range(2))
            others = [self.listed(top, prefix) for prefix in self._beginnings(top.prompts, context)]
        except Unanswerable as error:
            raise _Refused(error.reason) from None
        if others and len({max(each.values()) for each in (first, *others)}) == 1:
            raise _Refused(f"the likeliest token has {max(first.values()):.6g} after every text")
        if len(first) > 1 and len(set(first.values())) == 1:
            raise _Refused(f"all listed log-probabilities are {next(iter(first.values())):.6g}")
        common = first.keys() & second.keys()
        floor = max((abs(first[name] - second[name]) for name in common), default=0.0)
        probes = {self._tokenizer.decode(context): nats for _, nats in top.identified(first)[:1]}
        return _Measured(floor, floor, floor, _TOLERANCE, len(context), probes)

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

    def difference(self, one: Route, other: Route) -> float:
        """By how much two ways of asking differ at most, in nats a token; raises Refused where one has no answer."""
        context, continuation = self._span(one)
        span = Span(context, continuation)
        try:
            return float(np.abs(self._ask(one, span) - self._ask(other, span)).max())
        except Unanswerable as error:
            raise _Refused(error.reason) from None

    def is_spaceless(self, top: TopTokens, context: Ids) -> bool | None:
        """Whether the server names tokens without the space that they begin with; None where no token says so.

        Then none of the tokens that it lists and generates has one, though some are only known with it, or though the
        generated text has spaces.  Raises Unanswerable, and _Refused where they are named neither so nor by their text.
        """
        call = next(top.calls([(0, Span(context, np.zeros(1, np.int32)))]))
        answer = self._client.post(call.path, call.body | {"max_tokens": _MOST_TOKENS})
        generated, text = self._client.read(_generated, answer)
        names = {*map(str, generated), *(name.decode() for name in self.listed(top, context.tolist()))}
        table = {spelled.decode(errors="replace") for spelled in self._tokenizer.token_bytes}
        if marked := [name for name in names - table if name[:1] in _SPACE_MARKS and f" {name[1:]}" in table]:
            raise _Refused(f"the server names tokens as its vocabulary spells them ({marked[0]!r}), not by their text")
        if any(" " in name for name in names):
            return False
        return True if " " in text.strip() or any(f" {name}" in table for name in names - table) else None

    def _texts(self, front: tuple[int, ...]) -> Iterator[tuple[Ids, Ids]]:
        """The probe's text in tokens (context, continuation): as the tokenizer begins it, and as the server does."""
        for special, before in ((True, ()), (False, front), (False, ())):
            alone, whole = self._tokenizer.encode([_CONTEXT, _CONTEXT + _CONTINUATION], special=special)
            begins = common_prefix([alone, whole])
            context = np.concatenate([np.asarray(before, dtype=np.int32), whole[:begins]])
            yield context, whole[begins : begins + _MOST_TOKENS]

    def _span(self, route: Route, front: tuple[int, ...] = ()) -> tuple[Ids, Ids]:
        """The context and the longest continuation that ``route`` can be asked about; raises Refused without any."""
        objection: str | None = None
        for context, continuation in self._texts(front):
            for count in range(len(continuation), 1, -1):
                objection = route.objection(Span(context, continuation[:count]))
                if objection is None:
                    return context, continuation[:count]
        raise _Refused(objection or "the probe has too few tokens")

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

        Raises _Refused where too few can be compared: those of the wrong row would not show.
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
            if len(away) >= _COMPARED:
                break
        if len(away) < _LEAST_COMPARED:
            raise _Refused(
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


def _probes(measured: _Measured | None) -> Mapping[str, float]:
    return {} if measured is None else measured.probes


def _text_front(client: Client, served: ServerFacts, tokenizer: Tokenizer, name: str) -> tuple[int, ...] | None:
    """The tokens that the server puts before a text; None where it does not say, or takes no texts.

    Raises ModelError where it encodes one of ``_TEXTS`` to other tokens than ``tokenizer``, called ``name``.
    """
    fronts = set[tuple[int, ...]]()
    for text in _TEXTS:
        ours = tokenizer.encode([text], special=False)[0].tolist()
        theirs = _tokens(client, served, text)
        if theirs is None:
            return _counted_front(client, served, tokenizer, name)
        count = len(theirs) - len(ours)
        if count < 0 or theirs[count:] != ours:
            if count > 0 and theirs[: len(ours)] == ours:
                raise ModelError(
                    f"the server puts tokens after every text ({theirs[len(ours) :]}); serve the model without that"
                )
            raise _disagreement(name, text, f"ours are {_few(ours)}, the server's {_few(theirs)}")
        fronts.add(tuple(theirs[:count]))
    if len(fronts) > 1:
        raise ModelError(
            f"the server puts now these, now those tokens before a text ({fronts}); serve the model without that"
        )
    return fronts.pop()


def _tokens(client: Client, served: ServerFacts, text: str) -> list[int] | None:
    """What the server encodes ``text`` to when it is asked as a prompt; None where it does not say."""
    if served.software == "llama-cpp-python":
        body = {"model": served.model, "input": text}
        tokens = answer_if_offered(client, "/extras/tokenize", body).get("tokens")
    else:
        tokens = answer_if_offered(client, "/tokenize", {"model": served.model, "prompt": text}).get("tokens")
    return tokens if isinstance(tokens, list) and all(isinstance(token, int) for token in tokens) else None


def _counted_front(client: Client, served: ServerFacts, tokenizer: Tokenizer, name: str) -> tuple[int, ...] | None:
    """The same from how many tokens the server says that it read."""
    more = set[int]()
    for text in _TEXTS:
        body = {"model": served.model, "prompt": text, "max_tokens": 1, "temperature": 0}
        usage = answer_if_offered(client, "completions", body).get("usage")
        counted = usage.get("prompt_tokens") if isinstance(usage, dict) else None
        if isinstance(counted, bool) or not isinstance(counted, int) or counted < 0:
            return None
        ours = tokenizer.encode([text], special=False)[0]
        more.add(counted - len(ours))
        if not 0 <= counted - len(ours) <= 1 or len(more) > 1:
            raise _disagreement(name, text, f"ours are {len(ours)}, the server counts {counted}")
    if more == {0}:
        return ()
    if tokenizer.bos_id is None:
        raise ModelError(
            f"the server puts a token before every text, and the tokenizer {name} has no BOS; name another"
        )
    return (tokenizer.bos_id,)


def _disagreement(name: str, text: str, tokens: str) -> ModelError:
    return ModelError(
        f"the tokenizer {name} is not the server's: of {text[:60]!r} the tokens differ ({tokens}); name the tokenizer"
        " of the model that is served"
    )


def _few(tokens: Sequence[int]) -> str:
    shown = str(list(tokens[:12]))
    return shown[:200] + ("…" if len(tokens) > 12 or len(shown) > 200 else "")


class _Refused(Exception):
    """A way of asking gives wrong numbers, or none: the ``reason``."""

    def __init__(self, reason: str, difference: float | None = None) -> None:
        super().__init__(reason)
        self.reason, self.difference = reason, difference


@dataclass(frozen=True, slots=True)
class _Measured:
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


def _generated(answer: JSON) -> tuple[list[Any], str]:
    """The names of the tokens that were generated, and their text."""
    choice = routes.choice(answer)
    return routes.items(routes.part(choice, "logprobs"), "tokens"), routes.text(choice, "text")


def _check_values(logprobs: npt.NDArray[np.float32]) -> None:
    """Raise Refused where they can't be log-probabilities of a text's tokens."""
    if len(logprobs) > 1 and np.ptp(logprobs) == 0:
        raise _Refused(f"all log-probabilities are {float(logprobs[0]):.6g}")
