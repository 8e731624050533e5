"""Read what a server serves, and try on a short text which ways of asking it are exact."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from choicewise.errors import ModelError, did_you_mean
from choicewise.extensions.endpoints.server.faults import (
    JSON,
    RESUME,
    ServerFailed,
    Unanswerable,
    failed,
    integer,
    member,
)
from choicewise.extensions.endpoints.server.generation_routes import ChatGeneration, Completions
from choicewise.extensions.endpoints.server.http import Client
from choicewise.extensions.endpoints.server.many_requests import ask, ask_now
from choicewise.extensions.endpoints.server.next_token_routes import (
    ChatTopTokens,
    ChosenTokens,
    SglangChosen,
    TopTokens,
)
from choicewise.extensions.endpoints.server.routes import (
    Echo,
    PromptLogprobs,
    Prompts,
    Route,
    SglangPrompts,
    TextPrompts,
    choice,
    field,
    logprobs_in_order,
)
from choicewise.extensions.endpoints.vllm.vllm_routes import (
    NO_ROUTE,
    PROMPTS,
    ROWS,
    TRACE,
    ByLength,
    EngineRoute,
    served_trace,
)
from choicewise.models.model import SelfCheck, Trial
from choicewise.questions import Generation, Ids, Prompt, Span
from choicewise.tokens.chat_template import Message, ServedChat
from choicewise.tokens.tokenizer import Tokenizer, common_prefix
from choicewise.util.jsonio import JsonMapping
from choicewise.util.text import shortened

# Numbers of next tokens to ask for: the first one that the server takes counts.
_COUNTS = (100, 20, 5, 1)

_NOT_HELD = (
    "the server lists no next tokens to check its log-probabilities against, so they may belong to "
    "other tokens"
)

_CONTEXT = "Question: What is the capital of France?\nAnswer: The capital of France is"
_CONTINUATION = " Paris, and the capital of Spain is Madrid.\n\nQuestion: Who"

# Tokens of the continuation that are scored.
_MOST_TOKENS = 12

# Nats a token may differ between ways of asking; far less if the log-probabilities vary little.
_TOLERANCE = 0.25

# Log-probabilities compared with next tokens; of a wrong row one in five is right by chance.
_COMPARED = 8

# A way of asking with fewer of them is refused.
_LEAST_COMPARED = 4

# Positions of the probe's text at which next tokens are listed, at most.
_POSITIONS = 36

# Next tokens that are compared at one position.
_AT_A_POSITION = 2

# Two ways of asking may be so many times as far apart as two answers to one request.
_REPEATED = 10

# Stand-ins for a space in the vocabularies of tokenizers.
_SPACE_MARKS = ("▁", "Ġ")

NOT_THERE = {404, 405, 501}
"""Statuses of a route that a server does not have."""

_TEXTS = (
    "Question: What is it?\nA. One\nB. Two\n\nAnswer: A",
    "  two spaces, a\ttab,\n\n\nlines and 2026 x 1e-5 = 3.14",
    "naïve café, Straße, 你好, 👩‍👩‍👧",
    "def f(x):\n    return {'x': [x]}  # (C) [D]",
)
"""Texts on which tokenizers differ."""


class ServerFacts(NamedTuple):
    """Hold what a server tells of the model that it serves.

    ``model``: the server's name of it; ``root``: the origin of its weights, or "".  ``software``:
    name and version of the server, as far as it tells them.  ``window``: the most tokens of prompt
    and answer together, None if unknown.  ``others``: the other models that it lists, name → root.
    """

    model: str
    root: str = ""
    software: str = ""
    window: int | None = None
    others: Mapping[str, str] = MappingProxyType({})


def read_server_facts(client: Client, name: str | None) -> ServerFacts:
    """Return what the server tells of the model ``name``, or of the one that it serves.

    Raises ModelError if it serves no such model, or several and none is named, and what the client
    raises.
    """
    url = client.address.url
    try:
        listed = client.get("models").get("data")
    except ServerFailed as error:
        if error.status not in NOT_THERE:
            raise
        if not url.endswith("/v1") and answer_if_offered(client, "/v1/models"):
            raise ModelError(
                f"{url} lists no models, but {url}/v1 does; use that address"
            ) from None
        if name is None:
            raise
        return ServerFacts(name)
    except Unanswerable as error:
        reason = f"{url} does not list its models: {error}; {RESUME}"
        raise failed(reason, error.status) from None
    cards = _cards(listed)
    if name is None and len(cards) != 1:
        names = client.hidden(", ".join(list(cards)[:10])) or "none"
        raise ModelError(
            f"{url} serves {len(cards)} models; add one to the address after # ({names})"
        )
    if name is not None and name not in cards:
        advice = client.hidden(did_you_mean(name, list(cards)))
        raise ModelError(f"{url} serves no model {name!r}; {advice}")
    served = name or next(iter(cards))
    facts = _described(client, cards.pop(served))
    others = {other: str(card.get("root") or "") for other, card in cards.items()}
    return facts._replace(others=others)


def _cards(listed: Any) -> dict[str, JSON]:
    """Return the objects of a list of models by their id."""
    cards = {}
    if isinstance(listed, list):
        for card in listed:
            name = member(card, "id")
            if isinstance(name, str):
                cards[name] = card
    return cards


def answer_if_offered(client: Client, path: str, body: JSON | None = None) -> JSON:
    """Return the answer at ``path``; empty if the server has no such route or refuses."""
    try:
        return client.get(path) if body is None else client.post(path, body)
    except Unanswerable:
        return {}
    except ServerFailed as error:
        if error.status in NOT_THERE:
            return {}
        raise


def other_name(served: ServerFacts, named: str | None) -> str:
    """Return the model's name in answers (``named``) if it is another one, such as a dated one.

    Else return "".  Raises ModelError if that is another model which the server lists: one whose
    weights come from elsewhere, as far as the server tells, and whose name does not begin with that
    of the model, as a version's does.
    """
    if named is None or named == served.model:
        return ""
    root = served.others.get(named)
    if root is None or named.startswith(served.model) or (root and root == served.root):
        return named
    raise ModelError(
        f"the server answers with its model {named!r} instead of {served.model!r}. Put #{named} at "
        f"the end of the address, or have {served.model!r} served"
    )


def text_front(
    client: Client, served: ServerFacts, tokenizer: Tokenizer, name: str
) -> tuple[int, ...] | None:
    """Return the tokens that the server puts before a text.

    None if it does not tell them, or takes no texts.  Raises ModelError if it encodes one of
    ``_TEXTS`` to other tokens than ``tokenizer``, called ``name``.
    """
    fronts = set()
    for text in _TEXTS:
        ours = tokenizer.encode([text], special=False)[0].tolist()
        theirs = _tokens(client, served, text)
        if theirs is None:
            return _counted_front(client, served, tokenizer, name)
        count = len(theirs) - len(ours)
        if count > 0 and theirs[count:] != ours and theirs[: len(ours)] == ours:
            raise ModelError(
                f"the server adds tokens after every text ({theirs[len(ours) :]}); turn that off "
                "in the server"
            )
        if count < 0 or theirs[count:] != ours:
            tokens = f"{shortened(str(ours))} here, {shortened(str(theirs))} there"
            raise _disagreement(name, text, tokens)
        fronts.add(tuple(theirs[:count]))
    if len(fronts) > 1:
        raise ModelError(
            f"the server adds different tokens before different texts ({fronts}); turn that off in "
            "the server"
        )
    return fronts.pop()


class Probe:
    """Try the server behind ``client``, which serves ``served``; ``name``: of the tokenizer."""

    def __init__(
        self, client: Client, served: ServerFacts, tokenizer: Tokenizer, name: str
    ) -> None:
        self._client = client
        self._served = served
        self._tokenizer = tokenizer
        self._name = name
        self._tried: list[Trial] = []
        self._measured: dict[str, _Measured | None] = {}

    def chosen_routes(self, completions: bool) -> ChosenRoutes:
        """Return the ways that were taken, and what was measured.

        ``completions``: True if the server has them.  Raises ModelError if the tokenizer is not the
        server's.
        """
        taken: _Measured | None = None
        generate: Route | None = None
        front: tuple[int, ...] | None = None
        if completions:
            front = text_front(self._client, self._served, self._tokenizer, self._name)
            texts = None if front is None else TextPrompts(self._tokenizer, front)
            top = self._top(texts)
            has_tokens = top is not None and not isinstance(top.prompts, TextPrompts)
            takes_tokens = has_tokens or self._served.software.startswith("sglang")
            taken = self._score(top, texts, takes_tokens)
            generate = self._generate(Prompts() if has_tokens else texts)
        chat_score: Route | None = None
        chat_generate: Route | None = None
        if isinstance(self._tokenizer.chat, ServedChat):
            model = self._served.model
            text = ServedChat().render([Message("user", "Say yes.")])
            context = self._tokenizer.encode([text], special=False)[0]
            span = Span(context, np.zeros(1, dtype=np.int32))
            lists = (ChatTopTokens(model, self._tokenizer, count) for count in _COUNTS[1:])
            chat_score = self._first(lists, span, difference=0.0)
            ways = (ChatGeneration(model, self._tokenizer, flag) for flag in (True, False))
            chat_generate = self._first(ways, Generation(context, 3))
        score: Route | None = None
        probes: Mapping[str, float] = {}
        if taken is not None:
            score = taken.route
            probes = taken.probes
        return ChosenRoutes(
            score=score,
            generate=generate,
            chat_score=chat_score,
            chat_generate=chat_generate,
            check=self._check(taken),
            probes=probes,
            front=front,
        )

    def _check(self, taken: _Measured | None) -> SelfCheck:
        trials = tuple(self._tried)
        if taken is not None:
            route = taken.route
            return replace(taken.check, rung=route.name, trials=trials, cost=route.cost)
        taken_ways = (trial.rung for trial in trials if trial.refused is None)
        return SelfCheck(
            rung=next(taken_ways, "none"),
            tolerance=_TOLERANCE,
            trials=trials,
            cost="no log-probabilities",
        )

    def _score(
        self, top: TopTokens | None, texts: TextPrompts | None, has_tokens: bool
    ) -> _Measured | None:
        """Return the best way to ask about spans."""
        prompts: list[Prompts] = []
        if has_tokens:
            for chosen, whole, way in self._pairs():
                taken = self._of_pair(chosen, whole, way, top)
                if taken is not None:
                    return taken
            prompts.append(Prompts())
        if texts is not None:
            prompts.append(texts)
        for form in prompts:
            echo = Echo(self._served.model, self._tokenizer, form)
            taken = self._if_compared(self._measure_spans(echo, top, form.front), top)
            if taken is not None:
                return taken
        if top is None:
            return None
        return self._measure(top, partial(self._next_tokens, top))

    def _pairs(self) -> Iterator[tuple[Route, Route, str]]:
        """Yield ways for next tokens, with one for whole spans and what that one costs."""
        model = self._served.model
        if self._served.software.startswith("sglang"):
            yield SglangChosen(model), SglangPrompts(model), ROWS
        if self._served.software.startswith("vllm"):
            yield ChosenTokens(model), served_trace(model, self._served.window), TRACE
        yield ChosenTokens(model), PromptLogprobs(model), PROMPTS

    def _of_pair(
        self, chosen: Route, whole: Route, way: str, top: TopTokens | None
    ) -> _Measured | None:
        of_chosen = self._measure_spans(chosen, top)
        of_whole = self._measure_spans(whole, top)
        if of_chosen is not None and of_whole is not None:
            # The way for whole spans was checked with ranks and all tokens.
            if not self._agree(chosen, whole, of_chosen.check.tolerance):
                return of_whole
            window = self._served.window
            longest = None if window is None else window - 1
            return of_chosen._replace(route=ByLength(chosen, whole, longest, way))
        # Few servers are started with trace replay; the next pair has the chosen tokens, too.
        if way == TRACE:
            return None
        return self._if_compared(of_chosen or of_whole, top)

    def _if_compared(self, measured: _Measured | None, top: TopTokens | None) -> _Measured | None:
        """Return ``measured`` if its numbers were compared with next tokens; note it if not."""
        if measured is not None and top is None:
            self._tried.append(Trial(measured.route.name, None, _NOT_HELD))
            return None
        return measured

    def _measure_spans(
        self, route: Route, top: TopTokens | None, front: tuple[int, ...] = ()
    ) -> _Measured | None:
        """Measure ``route`` once, though two pairs may have it."""
        if route.name not in self._measured:
            measure = partial(self._spans, route, top, front)
            self._measured[route.name] = self._measure(route, measure)
        return self._measured[route.name]

    def _measure(self, route: Route, measure: Callable[[], _Measured]) -> _Measured | None:
        """Return what ``measure`` gives for ``route``; None if it refuses it, which is noted."""
        try:
            measured = measure()
        except Unanswerable as refused:
            difference = refused.difference if isinstance(refused, _Refused) else None
            self._tried.append(Trial(route.name, difference, refused.reason))
        except ServerFailed as error:
            # vLLM answers 403 for a route that is off.
            is_off = isinstance(route, EngineRoute) and error.status == 403
            is_absent = is_off or error.status in {None, *NOT_THERE}
            if isinstance(route, TopTokens) or not is_absent:
                raise
            reason = NO_ROUTE if is_off else error.message
            self._tried.append(Trial(route.name, None, reason))
        else:
            self._tried.append(Trial(route.name, measured.check.difference, None))
            return measured
        return None

    def _agree(self, chosen: Route, whole: Route, tolerance: float) -> bool:
        """Check that both ways give the same numbers; note it if not, or if one has none."""
        difference: float | None = None
        try:
            span = self._span(chosen)
            difference = float(np.abs(self._ask(chosen, span) - self._ask(whole, span)).max())
            if difference <= tolerance:
                return True
            reason = f"{difference:.3g} nats apart from {whole.name}"
        except Unanswerable as error:
            reason = error.reason
        self._tried.append(Trial(chosen.name, difference, reason))
        return False

    def _top(self, texts: TextPrompts | None) -> TopTokens | None:
        """Return the best way to list next tokens; None if there is none."""
        forms: list[tuple[Prompts, bool]] = []
        # It fails on tokens.
        if not self._served.software.startswith("llama-cpp-python"):
            forms += [(Prompts(), True), (Prompts(), False)]
        if texts is not None:
            forms.append((texts, False))
        for prompts, by_id in forms:
            context = self.context(prompts)
            if context is None:
                continue
            top = self._top_of(prompts, by_id, context)
            if isinstance(top, TopTokens):
                return top
            self._tried.append(top)
        return None

    def _top_of(self, prompts: Prompts, by_id: bool, context: Ids) -> TopTokens | Trial:
        """Return the way that lists the most next tokens, or why the server refuses all."""
        for count in _COUNTS:
            form = partial(
                TopTokens, self._served.model, self._tokenizer, prompts, count, by_id=by_id
            )
            top = form()
            spaceless: bool | None = False
            try:
                self._listed(top, context)
                if not by_id:
                    spaceless = self.is_spaceless(top, context)
            except _Refused as error:
                return Trial(top.name, None, error.reason)
            except Unanswerable as error:
                refused = Trial(f"next tokens, prompts as {prompts.name}", None, error.reason)
                if error.status is not None and error.status >= 500:
                    break
                continue
            return form(spaceless=spaceless)
        return refused

    def _generate(self, prompts: Prompts | None) -> Route | None:
        """Return the best way to generate from completions."""
        if prompts is None:
            return None
        context = self.context(prompts)
        if context is None:
            return None
        routes = (
            Completions(self._served.model, self._tokenizer, prompts, named, unchanged)
            for named, unchanged in product((True, False), repeat=2)
        )
        return self._first(routes, Generation(context, 3))

    def _first(
        self, routes: Iterable[Route], question: Prompt, difference: float | None = None
    ) -> Route | None:
        """Return the first of ``routes`` that answers; note it, or why the last one did not."""
        for route in routes:
            try:
                ask_now(self._client, route, question)
            except Unanswerable as error:
                refused = Trial(route.name, None, error.reason)
            else:
                self._tried.append(Trial(route.name, difference, None))
                return route
        self._tried.append(refused)
        return None

    def _spans(self, route: Route, top: TopTokens | None, front: tuple[int, ...] = ()) -> _Measured:
        """Measure how exact ``route`` is on a span of tokens; raise _Refused if it is wrong.

        ``front``: the tokens that the server puts before texts.  ``top`` lists next tokens, with
        which the numbers are compared, so that log-probabilities of the wrong row show; without it
        nothing shows that they are right.
        """
        whole = self._span(route, front)
        first = self._ask(route, whole)
        if len(first) > 1 and np.ptp(first) == 0:
            raise _Refused(f"all log-probabilities are {float(first[0]):.6g}")
        parts = self._parts(route, whole)
        questions = list(enumerate([whole, *parts]))
        together = logprobs_in_order(ask(self._client, route, questions, None))
        second = self._ask(route, whole)
        floor = float(np.abs(first - second).max())
        tolerance = max(min(_TOLERANCE, float(first.std()) / 2), _REPEATED * floor)
        noise = max(floor, float(np.abs(first - together[0]).max()))
        if parts:
            gap = float(np.abs(np.concatenate(together[1:]) - first).max())
            if gap > tolerance:
                reason = f"in two parts they are {gap:.3g} nats apart"
                raise _Refused(f"log-probabilities do not add up: {reason}", gap)
            noise = max(noise, gap)
        away = 0.0 if top is None else self._from_next_tokens(route, top, whole)
        if away > tolerance:
            raise _Refused(
                f"log-probabilities belong to other tokens: they are {away:.3g} nats from those "
                "that the server lists for next tokens",
                away,
            )
        tokens = np.concatenate([whole.context, whole.continuation])
        check = SelfCheck(
            rung=route.name,
            difference=max(noise, away),
            floor=floor,
            tolerance=tolerance,
            noise=noise,
            depth=len(tokens),
        )
        probes = {self._tokenizer.decode(tokens): float(first.sum(dtype=np.float64))}
        return _Measured(route, check, probes)

    def _next_tokens(self, top: TopTokens) -> _Measured:
        """Measure how exact lists of next tokens are; raise _Refused if they can't be right."""
        context = self.context(top.prompts)
        if context is None:
            raise _Refused("no text encodes to the tokens of the probe")
        first = self._listed(top, context)
        second = self._listed(top, context)
        highest = max(first.values())
        # What is listed after three beginnings of the context.
        others: list[dict[Any, float]] = []
        for count in range(2, len(context) - 1, 3):
            if len(others) < 3 and top.prompts.objection(context[:count].tolist()) is None:
                others.append(self._listed(top, context[:count]))
        if others and all(max(listed.values()) == highest for listed in others):
            raise _Refused(f"the likeliest token has {highest:.6g} after every text")
        if len(first) > 1 and len(set(first.values())) == 1:
            raise _Refused(f"all listed log-probabilities are {highest:.6g}")
        floor = 0.0
        for name in first.keys() & second.keys():
            floor = max(floor, abs(first[name] - second[name]))
        probes = {self._tokenizer.decode(context): nats for _, nats in top.identified(first)[:1]}
        check = SelfCheck(
            rung=top.name,
            difference=floor,
            floor=floor,
            tolerance=_TOLERANCE,
            noise=floor,
            depth=len(context),
        )
        return _Measured(top, check, probes)

    def _listed(self, top: TopTokens, prefix: Ids) -> dict[Any, float]:
        """Return what ``top`` lists after ``prefix``; raise Unanswerable."""
        call = top.call(prefix)
        if call.body.get("prompt") is None:
            raise Unanswerable("no text encodes to the tokens of the probe")
        answer = self._client.post(call.path, call.body)
        return self._client.read(lambda content: top.listed(content, len(prefix)), answer)

    def context(self, prompts: Prompts) -> Ids | None:
        """Return the probe's context in tokens that can be sent; None if there are none."""
        for context, _ in self._texts(prompts.front):
            if prompts.objection(context.tolist()) is None:
                return context
        return None

    def is_spaceless(self, top: TopTokens, context: Ids) -> bool | None:
        """Check that the server names tokens without the space that they begin with.

        None if no token shows it.  It does if none of the tokens that it lists and generates has a
        space, though some exist with one alone, or though the generated text has spaces.  Raises
        Unanswerable, and _Refused if the names are neither such nor the tokens' texts.
        """
        call = top.call(context)
        answer = self._client.post(call.path, call.body | {"max_tokens": _MOST_TOKENS})
        generated, text = self._client.read(_generated, answer)
        names = set(map(str, generated))
        names.update(name.decode() for name in self._listed(top, context))
        table = {spelled.decode(errors="replace") for spelled in self._tokenizer.token_bytes}
        unknown = names - table
        for name in unknown:
            if name[:1] in _SPACE_MARKS and f" {name[1:]}" in table:
                raise _Refused(
                    f"the server names tokens by their spelling in the vocabulary ({name!r}), not "
                    "by text"
                )
        if any(" " in name for name in names):
            return False
        if " " in text.strip() or any(f" {name}" in table for name in unknown):
            return True
        return None

    def _texts(self, front: tuple[int, ...]) -> Iterator[tuple[Ids, Ids]]:
        """Yield the probe's context and continuation, with our or the server's front."""
        for special, before in ((True, ()), (False, front), (False, ())):
            alone, whole = self._tokenizer.encode(
                [_CONTEXT, _CONTEXT + _CONTINUATION], special=special
            )
            start = common_prefix([alone, whole])
            context = np.concatenate([np.asarray(before, dtype=np.int32), whole[:start]])
            yield context, whole[start : start + _MOST_TOKENS]

    def _span(self, route: Route, front: tuple[int, ...] = ()) -> Span:
        """Return the longest span that ``route`` can be asked about; raise _Refused without any."""
        objection: str | None = None
        for context, continuation in self._texts(front):
            for count in range(len(continuation), 1, -1):
                span = Span(context, continuation[:count])
                objection = route.objection(span)
                if objection is None:
                    return span
        raise _Refused(objection or "the probe has too few tokens")

    def _parts(self, route: Route, whole: Span) -> list[Span]:
        """Return the span in two parts, cut near its middle; empty if they can't be asked."""
        count = len(whole.continuation)
        for cut in sorted(range(1, count), key=lambda index: abs(index - count // 2)):
            first = Span(whole.context, whole.continuation[:cut])
            longer = np.concatenate([whole.context, whole.continuation[:cut]])
            second = Span(longer, whole.continuation[cut:])
            if route.objection(first) is None and route.objection(second) is None:
                return [first, second]
        return []

    def _ask(self, route: Route, span: Span) -> npt.NDArray[np.float32]:
        return ask_now(self._client, route, span).logprobs

    def _from_next_tokens(self, route: Route, top: TopTokens, whole: Span) -> float:
        """Return how far (nats) likely next tokens are from those that ``top`` lists, at most.

        Raises _Refused if few can be compared.
        """
        tokens = np.concatenate([whole.context, whole.continuation])
        start = len(whole.context)
        # Every third of the continuation first, so that the compared ones lie in all of it.
        spread = range(start, len(tokens), 3)
        positions = [*spread, *range(start, len(tokens)), *range(start - 1, 0, -1)]
        gaps: list[float] = []
        reason = "the others share their texts, or can't be requested"
        for position in list(dict.fromkeys(positions))[:_POSITIONS]:
            try:
                gaps.extend(self._gaps_at(route, top, tokens[:position]))
            except Unanswerable as error:
                reason = error.reason
            if len(gaps) >= _COMPARED:
                break
        if len(gaps) < _LEAST_COMPARED:
            raise _Refused(
                f"only {len(gaps)} of its log-probabilities can be checked against next tokens "
                f"({reason}), so they may belong to other tokens"
            )
        return max(gaps)

    def _gaps_at(self, route: Route, top: TopTokens, prefix: Ids) -> Iterator[float]:
        """Yield how far the likeliest tokens after ``prefix`` are from those that ``top`` lists."""
        count = 0
        for token, nats in top.identified(self._listed(top, prefix)):
            span = Span(prefix, np.asarray([token], dtype=np.int32))
            if route.objection(span) is not None:
                continue
            yield abs(float(self._ask(route, span)[0]) - nats)
            count += 1
            if count == _AT_A_POSITION:
                return


@dataclass(frozen=True, kw_only=True)
class ChosenRoutes:
    """Hold the ways of asking that were taken; None if the server has none.

    ``score`` and ``generate`` are for texts, ``chat_score`` and ``chat_generate`` for messages.
    ``check``: what was measured.  ``probes``: log-probabilities (nats) of the probe's texts.
    ``front``: the tokens that the server puts before a text, all others being ours; None if
    unknown.
    """

    score: Route | None
    generate: Route | None
    chat_score: Route | None
    chat_generate: Route | None
    check: SelfCheck
    probes: Mapping[str, float]
    front: tuple[int, ...] | None = None

    @property
    def routes(self) -> list[Route]:
        """Return all that were taken."""
        routes = (self.score, self.generate, self.chat_score, self.chat_generate)
        return [route for route in routes if route is not None]


class _Refused(Unanswerable):
    """A way of asking gives wrong numbers, by this ``difference`` if it was measured, or none."""

    def __init__(self, reason: str, difference: float | None = None) -> None:
        super().__init__(reason)
        self.difference = difference


class _Measured(NamedTuple):
    """Hold a way of asking, its self-check without trials, and what it gives for the probe.

    ``difference``: from other ways to ask for the same; ``floor``: between two answers to one
    request; ``noise``: the greatest difference in whatever company.  ``probes``: text →
    log-probability (nats).
    """

    route: Route
    check: SelfCheck
    probes: Mapping[str, float]


def _generated(answer: JSON) -> tuple[list[Any], str]:
    """Return the names of the generated tokens, and their text."""
    completion = choice(answer)
    names = field(field(completion, "logprobs", dict), "tokens", list)
    return names, field(completion, "text", str)


def _described(client: Client, card: JsonMapping) -> ServerFacts:
    software = str(card.get("owned_by") or "")
    root = str(card.get("root") or "")
    window = card.get("max_model_len")
    match software:
        case "vllm":
            version = answer_if_offered(client, "/version").get("version", "")
            software = f"vllm {version}".strip()
        case "sglang":
            root = str(answer_if_offered(client, "/get_model_info").get("model_path") or root)
        case "llamacpp":
            props = answer_if_offered(client, "/props")
            window = member(props, "default_generation_settings", "n_ctx")
        case "me":
            # So llama-cpp-python calls the owner, and others may.
            tokens = answer_if_offered(client, "/extras/tokenize", {"input": "a"}).get("tokens")
            software = "llama-cpp-python" if isinstance(tokens, list) else ""
    if window is None:
        window = member(card, "meta", "n_ctx") or member(card, "meta", "n_ctx_train")
    return ServerFacts(
        model=str(card["id"]),
        root=client.hidden(root),
        software=client.hidden(software),
        window=integer(window, least=3),
    )


def _tokens(client: Client, served: ServerFacts, text: str) -> list[int] | None:
    """Return the server's tokens of a prompt ``text``; None if it does not tell them."""
    path = "/tokenize"
    name = "prompt"
    if served.software == "llama-cpp-python":
        path = "/extras/tokenize"
        name = "input"
    tokens = answer_if_offered(client, path, {"model": served.model, name: text}).get("tokens")
    if isinstance(tokens, list) and all(isinstance(token, int) for token in tokens):
        return tokens
    return None


def _counted_front(
    client: Client, served: ServerFacts, tokenizer: Tokenizer, name: str
) -> tuple[int, ...] | None:
    """Infer the tokens before a text from how many the server counts; None if it counts none."""
    lengths = set()
    for text in _TEXTS:
        body = {"model": served.model, "prompt": text, "max_tokens": 1, "temperature": 0}
        answer = answer_if_offered(client, "completions", body)
        counted = integer(member(answer, "usage", "prompt_tokens"))
        if counted is None:
            return None
        ours = len(tokenizer.encode([text], special=False)[0])
        lengths.add(counted - ours)
        if not 0 <= counted - ours <= 1 or len(lengths) > 1:
            raise _disagreement(name, text, f"{ours} here, {counted} there")
    if lengths == {0}:
        return ()
    if tokenizer.bos_id is None:
        raise ModelError(
            f"the server adds a token before every text, but the tokenizer {name} has no BOS; use "
            "the served model's"
        )
    return (tokenizer.bos_id,)


def _disagreement(name: str, text: str, tokens: str) -> ModelError:
    return ModelError(
        f"the tokenizer {name} is not the server's: it encodes {text[:60]!r} to other tokens "
        f"({tokens}). Pass the tokenizer of the served model"
    )
