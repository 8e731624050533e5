"""How a server can be asked: ways are tried, best first, and the first that gives right numbers is taken."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from choicewise.models.selfcheck import SelfCheck, Trial
from choicewise.models.server.asking import ask_now
from choicewise.models.server.client import Client
from choicewise.models.server.faults import ServerFailed, Unanswerable
from choicewise.models.server.prompts import Prompts, TextPrompts, TokenPrompts
from choicewise.models.server.route_check import TOLERANCE, Measured, Refused, RouteCheck
from choicewise.models.server.routes.by_length import ByLength
from choicewise.models.server.routes.chat import ChatGeneration, ChatTopTokens
from choicewise.models.server.routes.chosen_tokens import ChosenTokens
from choicewise.models.server.routes.echo import Echo
from choicewise.models.server.routes.generation import Completions
from choicewise.models.server.routes.prompt_logprobs import PromptLogprobs
from choicewise.models.server.routes.route import Route
from choicewise.models.server.routes.sglang import SglangChosen, SglangPrompts
from choicewise.models.server.routes.top_tokens import TopTokens
from choicewise.models.server.server_facts import NOT_THERE, ServerFacts
from choicewise.models.server.token_agreement import text_front
from choicewise.questions import Generation, Span
from choicewise.tokens.chat_template import Message
from choicewise.tokens.served_chat import ServedChat
from choicewise.tokens.tokenizer import Tokenizer

COUNTS: Final = (100, 20, 5, 1)
"""How many next tokens are asked for: the first number that the server takes."""

_NOT_HELD: Final = (
    "the server lists no next tokens that its log-probabilities could be held against, so they may be of the wrong rows"
)


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
        measured: Measured | None = None
        if self.completions:
            front = text_front(self.client, self.served, self.tokenizer, self.name)
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

    def _selfcheck(self, score: Route | None, measured: Measured | None) -> SelfCheck:
        trials = tuple(self._tried)
        if score is None or measured is None:
            taken = next((each.rung for each in trials if each.refused is None), "none")
            return SelfCheck(taken, 0.0, 0.0, TOLERANCE, 0.0, 0, trials, "no log-probabilities")
        difference, floor, tolerance = measured.difference, measured.floor, measured.tolerance
        return SelfCheck(score.name, difference, floor, tolerance, measured.noise, measured.tokens, trials, score.cost)

    def _score(
        self, check: RouteCheck, top: TopTokens | None, texts: TextPrompts | None, tokens: bool
    ) -> tuple[Route | None, Measured | None]:
        """The best way to ask about spans."""
        if tokens:
            for chosen, whole, cached in self._pairs():
                first, second = self._spans(check, chosen, top), self._spans(check, whole, top)
                if first is not None and second is not None:
                    try:
                        self._compare(check, chosen, whole, first)
                    except Refused:
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
            except Refused as refused:
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

    def _compare(self, check: RouteCheck, chosen: Route, whole: Route, measured: Measured) -> None:
        """Refuse ``chosen`` where the two ways give different numbers, or one of them none; noted then."""
        try:
            apart = check.apart(chosen, whole)
            if apart > measured.tolerance:
                raise Refused(f"{apart:.3g} nats apart from {whole.name}", apart)
        except Refused as refused:
            self._tried.append(Trial(chosen.name, refused.difference, refused.reason))
            raise

    def _spans(
        self, check: RouteCheck, route: Route, top: TopTokens | None, front: tuple[int, ...] = ()
    ) -> Measured | None:
        """What was measured of ``route``; None where it is refused, which is noted."""
        try:
            measured = check.spans(route, top, front)
        except Refused as refused:
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
            for count in COUNTS:
                top = TopTokens(self.served.model, self.tokenizer, prompts, count, by_id)
                try:
                    check.listed(top, context.tolist())
                    spaceless = False if by_id else check.is_spaceless(top, context)
                except Unanswerable as error:
                    refused = Trial(f"next tokens, prompts as {prompts.name}", None, error.reason)
                    if error.status is not None and error.status >= 500:
                        break
                    continue
                except Refused as error:
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
        for count in COUNTS[1:]:
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


def _probes(measured: Measured | None) -> Mapping[str, float]:
    return {} if measured is None else measured.probes
