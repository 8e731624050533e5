"""What a server says of itself, and which ways of asking it are exact: a short text is asked in several ways."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice, product
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from choicewise.errors import ModelError, did_you_mean
from choicewise.extensions.endpoints.server.faults import (
    JSON,
    RESUME,
    ServerFailed,
    Unanswerable,
    failed,
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

_COUNTS: Final = (
    100,
    20,
    5,
    1,
)  # how many next tokens are asked for: the first number that the server takes

_NOT_HELD: Final = (
    "the server lists no next tokens that its log-probabilities could be held against, "
    "so they may be of the wrong rows"
)

_CONTEXT: Final = "Question: What is the capital of France?\nAnswer: The capital of France is"
_CONTINUATION: Final = " Paris, and the capital of Spain is Madrid.\n\nQuestion: Who"
_MOST_TOKENS: Final = 12  # tokens of the continuation that is scored
_TOLERANCE: Final = (
    0.25  # nats a token may differ between ways of asking; far less where these vary little
)
_COMPARED: Final = (
    8  # log-probabilities held against next tokens; of a wrong row one in five is right by chance
)
_LEAST_COMPARED: Final = 4  # of them at least so many, or a way of asking is refused
_PLACES: Final = 36  # places of the probe's text at which next tokens are listed, at most
_AT_A_PLACE: Final = 2  # next tokens that are compared at one place
_REPEATED: Final = (
    10  # how many times as far as two answers to the same request two ways of asking may be apart
)
_SPACE_MARKS: Final = ("▁", "Ġ")  # what stands for a space in the vocabularies of tokenizers
NOT_THERE: Final = {404, 405, 501}  # statuses of a route that a server does not have

_TEXTS = (
    "Question: What is it?\nA. One\nB. Two\n\nAnswer: A",
    "  two spaces, a\ttab,\n\n\nlines and 2026 x 1e-5 = 3.14",
    "naïve café, Straße, 你好, 👩‍👩‍👧",
    "def f(x):\n    return {'x': [x]}  # (C) [D]",
)
"""Texts on which tokenizers differ."""


class ServerFacts(NamedTuple):
    """``model``: the server's own name; ``root``: where it says that the weights come from, or "".

    ``software``: what the server says that it is, with its version where it says so; "" where it does not.
    ``window``: the most tokens of prompt and answer together, None where it does not say.  ``others``: the other models
    that it lists, name → root.
    """

    model: str
    root: str = ""
    software: str = ""
    window: int | None = None
    others: Mapping[str, str] = MappingProxyType({})


def read_server_facts(client: Client, name: str | None) -> ServerFacts:
    """The model ``name`` at the server, or the one that it serves.

    Raises ModelError where it serves no such model, or several and none is named; what the client raises.
    """
    try:
        listed = client.get("models").get("data")
    except ServerFailed as error:
        if error.status not in NOT_THERE:
            raise
        if not client.address.url.endswith("/v1") and answer_if_offered(client, "/v1/models"):
            url = f"{client.address.url}/v1"
            raise ModelError(
                f"{client.address.url} has no models, but {url} has: name that address"
            ) from None
        if name is None:
            raise
        return ServerFacts(name)
    except Unanswerable as error:
        failure = failed(
            f"{client.address.url} does not say what it serves: {error}; {RESUME}", error.status
        )
        raise failure from None
    entries = listed if isinstance(listed, list) else []
    cards = {
        card["id"]: card
        for card in entries
        if isinstance(card, dict) and isinstance(card.get("id"), str)
    }
    if name is None and len(cards) != 1:
        known = client.hidden(", ".join(list(cards)[:10])) or "none"
        raise ModelError(
            f"{client.address.url} serves {len(cards)} models: name one after # in the address ({known})"
        )
    if name is not None and name not in cards:
        known = client.hidden(did_you_mean(name, [*cards]))
        raise ModelError(f"{client.address.url} serves no model {name!r}; {known}")
    own = name or next(iter(cards))
    others = {each: str(card.get("root") or "") for each, card in cards.items() if each != own}
    return _described(client, cards[own])._replace(others=others)


def answer_if_offered(client: Client, path: str, body: JSON | None = None) -> JSON:
    """What the server answers at ``path``; nothing where it has no such route or refuses."""
    try:
        return client.get(path) if body is None else client.post(path, body)
    except Unanswerable:
        return {}
    except ServerFailed as error:
        if error.status in NOT_THERE:
            return {}
        raise


def other_name(served: ServerFacts, named: str | None) -> str:
    """What answers call the model (``named``) where that is another name of it, such as a dated one; else "".

    Raises ModelError where that is another model which the server lists: one whose weights come from elsewhere, as far
    as it says, and whose name does not begin with the one asked for, as a version's does.
    """
    if named is None or named == served.model:
        return ""
    root = served.others.get(named)
    if root is None or named.startswith(served.model) or (root and root == served.root):
        return named
    raise ModelError(
        f"the server answers with its model {named!r} when it is asked for {served.model!r}; name {named!r} if that is"
        " the one to ask, or have the other one served"
    )


def text_front(
    client: Client, served: ServerFacts, tokenizer: Tokenizer, name: str
) -> tuple[int, ...] | None:
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


class Probe:
    """Tries the server behind ``client``, which serves ``served``; ``tokenizer`` is called ``name``."""

    def __init__(
        self, client: Client, served: ServerFacts, tokenizer: Tokenizer, name: str
    ) -> None:
        self._client, self._served, self._tokenizer, self._name = client, served, tokenizer, name
        self._tried = list[Trial]()

    def chosen_routes(self, completions: bool) -> ChosenRoutes:
        """What was taken, and what was measured; raises ModelError where the tokenizer is not the server's.

        ``completions``: whether the server has them.
        """
        score: Route | None = None
        generate: Route | None = None
        front: tuple[int, ...] | None = None
        measured: _Measured | None = None
        if completions:
            front = text_front(self._client, self._served, self._tokenizer, self._name)
            texts = None if front is None else TextPrompts(self._tokenizer, front)
            top = self._top(texts)
            tokens = top is not None and not isinstance(top.prompts, TextPrompts)
            score, measured = self._score(top, texts, tokens or self._is("sglang"))
            generate = self._generate(Prompts() if tokens else texts)
        chat_score: Route | None = None
        chat_generate: Route | None = None
        if isinstance(self._tokenizer.chat, ServedChat):
            text = ServedChat().render([Message("user", "Say yes.")])
            span = Span(
                self._tokenizer.encode([text], special=False)[0], np.zeros(1, dtype=np.int32)
            )
            model, own = self._served.model, self._tokenizer
            chat_score = self._first(
                (ChatTopTokens(model, own, count) for count in _COUNTS[1:]), span, 0.0
            )
            generation = Generation(span.context, 3)
            chat_generate = self._first(
                (ChatGeneration(model, own, each) for each in (True, False)), generation
            )
        trials = tuple(self._tried)
        if score is None or measured is None:
            taken = next((each.rung for each in trials if each.refused is None), "none")
            check = SelfCheck(taken, 0.0, 0.0, _TOLERANCE, 0.0, 0, trials, "no log-probabilities")
        else:
            limits = measured.floor, measured.tolerance, measured.noise, measured.tokens
            check = SelfCheck(score.name, measured.difference, *limits, trials, score.cost)
        probes = {} if measured is None else measured.probes
        return ChosenRoutes(score, generate, chat_score, chat_generate, check, probes, front)

    def _is(self, software: str) -> bool:
        return self._served.software.startswith(software)

    def _score(
        self, top: TopTokens | None, texts: TextPrompts | None, tokens: bool
    ) -> tuple[Route | None, _Measured | None]:
        """The best way to ask about spans."""
        model = self._served.model
        pairs: list[tuple[Route, Route, str]] = []  # the last says what whole continuations cost
        if tokens and self._is("sglang"):
            pairs.append((SglangChosen(model), SglangPrompts(model), ROWS))
        if tokens and self._is("vllm"):
            pairs.append((ChosenTokens(model), served_trace(model, self._served.window), TRACE))
        if tokens:
            pairs.append((ChosenTokens(model), PromptLogprobs(model), PROMPTS))
        known = dict[str, _Measured | None]()
        for chosen, whole, way in pairs:
            for each in (chosen, whole):
                if each.name not in known:
                    known[each.name] = self._measure(each, partial(self._spans, each, top))
            first, second = known[chosen.name], known[whole.name]
            if way == TRACE and (first is None or second is None):
                continue  # few servers are started with it
            if first is not None and second is not None:
                if not self._agree(chosen, whole, first.tolerance):
                    return whole, second  # ranks and all tokens are checked there
                longest = None if self._served.window is None else self._served.window - 1
                return ByLength(chosen, whole, longest, way), first
            one, measured = (chosen, first) if first is not None else (whole, second)
            if measured is not None and self._is_held(one, top):
                return one, measured
        for prompts in [*([Prompts()] if tokens else []), *([] if texts is None else [texts])]:
            echo = Echo(model, self._tokenizer, prompts)
            measured = self._measure(echo, partial(self._spans, echo, top, prompts.front))
            if measured is not None and self._is_held(echo, top):
                return echo, measured
        if (
            top is not None
            and (measured := self._measure(top, partial(self._next_tokens, top))) is not None
        ):
            return top, measured
        return None, None

    def _measure(self, route: Route, measure: Callable[[], _Measured]) -> _Measured | None:
        """What ``measure`` says of ``route``; None where it refuses it, which is noted."""
        try:
            measured = measure()
        except Unanswerable as refused:
            difference = refused.difference if isinstance(refused, _Refused) else None
            self._tried.append(Trial(route.name, difference, refused.reason))
        except ServerFailed as error:
            closed = (
                isinstance(route, EngineRoute) and error.status == 403
            )  # vLLM's word for a route that is off
            if isinstance(route, TopTokens) or not (closed or error.status in {None, *NOT_THERE}):
                raise
            self._tried.append(Trial(route.name, None, NO_ROUTE if closed else error.message))
        else:
            self._tried.append(Trial(route.name, measured.difference, None))
            return measured
        return None

    def _agree(self, chosen: Route, whole: Route, tolerance: float) -> bool:
        """Whether the two ways give the same numbers; noted where not, or where one of them gives none."""
        difference: float | None = None
        try:
            span = Span(*self._span(chosen))
            difference = float(np.abs(self._ask(chosen, span) - self._ask(whole, span)).max())
            reason = (
                f"{difference:.3g} nats apart from {whole.name}" if difference > tolerance else None
            )
        except Unanswerable as error:
            reason = error.reason
        if reason is not None:
            self._tried.append(Trial(chosen.name, difference, reason))
        return reason is None

    def _is_held(self, route: Route, top: TopTokens | None) -> bool:
        """Whether the numbers of ``route`` were held against next tokens; noted where not."""
        if top is None:
            self._tried.append(Trial(route.name, None, _NOT_HELD))
        return top is not None

    def _top(self, texts: TextPrompts | None) -> TopTokens | None:
        """The best way to list next tokens; None where there is none."""
        kinds: list[tuple[Prompts, bool]] = []
        if not self._is("llama-cpp-python"):  # it fails on tokens
            kinds += [(Prompts(), True), (Prompts(), False)]
        if texts is not None:
            kinds.append((texts, False))
        for prompts, by_id in kinds:
            if (context := self.context(prompts)) is None:
                continue
            for count in _COUNTS:
                top = TopTokens(self._served.model, self._tokenizer, prompts, count, by_id)
                try:
                    self._listed(top, context.tolist())
                    spaceless = False if by_id else self.is_spaceless(top, context)
                except _Refused as error:
                    refused = Trial(top.name, None, error.reason)
                    break
                except Unanswerable as error:
                    refused = Trial(f"next tokens, prompts as {prompts.name}", None, error.reason)
                    if error.status is not None and error.status >= 500:
                        break
                    continue
                return TopTokens(
                    self._served.model, self._tokenizer, prompts, count, by_id, spaceless
                )
            self._tried.append(refused)
        return None

    def _generate(self, prompts: Prompts | None) -> Route | None:
        """The best way to generate from completions."""
        context = None if prompts is None else self.context(prompts)
        if prompts is None or context is None:
            return None
        ways = product((True, False), repeat=2)
        routes = (Completions(self._served.model, self._tokenizer, prompts, *way) for way in ways)
        return self._first(routes, Generation(context, 3))

    def _first(
        self, routes: Iterable[Route], question: Prompt, difference: float | None = None
    ) -> Route | None:
        """The first of ``routes`` that answers ``question``, which is noted; or why the last one did not."""
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
        """How exact ``route`` is on a span of several tokens; raises Refused where it is wrong.

        ``front``: what the server puts before texts.  ``top`` lists next tokens: where there is one, the numbers are
        held against it, so that log-probabilities of the wrong row show; without it nothing says that they are right.
        """
        context, continuation = self._span(route, front)
        whole = Span(context, continuation)
        first = self._ask(route, whole)
        if len(first) > 1 and np.ptp(first) == 0:
            raise _Refused(f"all log-probabilities are {float(first[0]):.6g}")
        parts = self._parts(route, context, continuation)
        together, second = self._in_company(route, [whole, *parts]), self._ask(route, whole)
        floor = float(np.abs(first - second).max())
        tolerance = max(min(_TOLERANCE, float(first.std()) / 2), _REPEATED * floor)
        differences = [float(np.abs(first - together[0]).max())]
        if parts:
            differences.append(float(np.abs(np.concatenate(together[1:]) - first).max()))
            if differences[-1] > tolerance:
                reason = f"asked in two parts they are {differences[-1]:.3g} nats apart"
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
        return _Measured(
            max(noise, away), floor, noise, tolerance, len(context) + len(continuation), probes
        )

    def _next_tokens(self, top: TopTokens) -> _Measured:
        """How exact lists of next tokens are; raises Refused where they can't be right."""
        context = self.context(top.prompts)
        if context is None:
            raise _Refused("no text has the tokens of the probe")
        first, second = (self._listed(top, context.tolist()) for _ in range(2))
        beginnings = (context[:count].tolist() for count in range(2, len(context) - 1, 3))
        sent = [each for each in beginnings if top.prompts.objection(each) is None][:3]
        others = [self._listed(top, each) for each in sent]
        if others and len({max(each.values()) for each in (first, *others)}) == 1:
            raise _Refused(f"the likeliest token has {max(first.values()):.6g} after every text")
        if len(first) > 1 and len(set(first.values())) == 1:
            raise _Refused(f"all listed log-probabilities are {next(iter(first.values())):.6g}")
        common = first.keys() & second.keys()
        floor = max((abs(first[name] - second[name]) for name in common), default=0.0)
        probes = {self._tokenizer.decode(context): nats for _, nats in top.identified(first)[:1]}
        return _Measured(floor, floor, floor, _TOLERANCE, len(context), probes)

    def _listed(self, top: TopTokens, prefix: Sequence[int]) -> dict[Any, float]:
        """What ``top`` lists after ``prefix``; raises Unanswerable."""
        call = next(top.calls([(0, Span(np.asarray(prefix, np.int32), np.zeros(1, np.int32)))]))
        if call.body.get("prompt") is None:
            raise Unanswerable("no text has the tokens of the probe")
        answer = self._client.post(call.path, call.body)
        return self._client.read(lambda given: top.listed(given, len(prefix)), answer)

    def context(self, prompts: Prompts) -> Ids | None:
        """The probe's context in tokens that can be sent; None where there are none."""
        contexts = (context for context, _ in self._texts(prompts.front))
        return next(
            (context for context in contexts if prompts.objection(context.tolist()) is None), None
        )

    def is_spaceless(self, top: TopTokens, context: Ids) -> bool | None:
        """Whether the server names tokens without the space that they begin with; None where no token says so.

        Then none of the tokens that it lists and generates has one, though some are only known with it, or though the
        generated text has spaces.  Raises Unanswerable, and _Refused where they are named neither so nor by their text.
        """
        call = next(top.calls([(0, Span(context, np.zeros(1, np.int32)))]))
        answer = self._client.post(call.path, call.body | {"max_tokens": _MOST_TOKENS})
        generated, text = self._client.read(_generated, answer)
        names = {
            *map(str, generated),
            *(name.decode() for name in self._listed(top, context.tolist())),
        }
        table = {spelled.decode(errors="replace") for spelled in self._tokenizer.token_bytes}
        if marked := [
            name for name in names - table if name[:1] in _SPACE_MARKS and f" {name[1:]}" in table
        ]:
            raise _Refused(
                f"the server names tokens as its vocabulary spells them ({marked[0]!r}), not by their text"
            )
        if any(" " in name for name in names):
            return False
        return (
            True
            if " " in text.strip() or any(f" {name}" in table for name in names - table)
            else None
        )

    def _texts(self, front: tuple[int, ...]) -> Iterator[tuple[Ids, Ids]]:
        """The probe's text in tokens (context, continuation): as the tokenizer begins it, and as the server does."""
        for special, before in ((True, ()), (False, front), (False, ())):
            alone, whole = self._tokenizer.encode(
                [_CONTEXT, _CONTEXT + _CONTINUATION], special=special
            )
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
        for middle in sorted(
            range(1, len(continuation)), key=lambda place: abs(place - len(continuation) // 2)
        ):
            longer = np.concatenate([context, continuation[:middle]])
            parts = [Span(context, continuation[:middle]), Span(longer, continuation[middle:])]
            if not any(map(route.objection, parts)):
                return parts
        return []

    def _ask(self, route: Route, span: Span) -> npt.NDArray[np.float32]:
        return ask_now(self._client, route, span).logprobs

    def _in_company(self, route: Route, spans: Sequence[Span]) -> list[npt.NDArray[np.float32]]:
        asked: list[tuple[int, Prompt]] = list(enumerate(spans))
        answers = dict(ask(self._client, route, asked, None))
        for answer in answers.values():
            if answer.missing is not None:
                raise Unanswerable(answer.missing)
        return [answers[index].logprobs for index in range(len(spans))]

    def _from_next_tokens(
        self, route: Route, top: TopTokens, context: Ids, continuation: Ids
    ) -> float:
        """How far, at most, likely next tokens are from those that ``top`` lists; _Refused where few are compared."""
        tokens = np.concatenate([context, continuation])
        away, reason = list[float](), "the others share their texts, or can't be asked"
        first = range(len(context), len(tokens), 3)
        others = [*range(len(context), len(tokens)), *range(len(context) - 1, 0, -1)]
        for place in [*first, *(place for place in others if place not in first)][:_PLACES]:
            prefix = tokens[:place]
            try:
                listed = top.identified(self._listed(top, prefix.tolist()))
                spans = (
                    (Span(prefix, np.asarray([token], dtype=np.int32)), nats)
                    for token, nats in listed
                )
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
    def routes(self) -> list[Route]:
        """All that were taken."""
        routes = (self.score, self.generate, self.chat_score, self.chat_generate)
        return [route for route in routes if route is not None]


class _Refused(Unanswerable):
    """A way of asking gives wrong numbers, by this ``difference`` where it was measured, or none."""

    def __init__(self, reason: str, difference: float | None = None) -> None:
        super().__init__(reason)
        self.difference = difference


class _Measured(NamedTuple):
    difference: float  # nats a token, from other ways to ask for the same
    floor: float  # between two answers to the same request
    noise: float  # the greatest difference in whatever company
    tolerance: float
    tokens: int  # of the longest prompt
    probes: dict[str, float]  # text → log-probability


def _generated(answer: JSON) -> tuple[list[Any], str]:
    """The names of the tokens that were generated, and their text."""
    given = choice(answer)
    return field(field(given, "logprobs", dict), "tokens", list), field(given, "text", str)


def _described(client: Client, card: Mapping[str, Any]) -> ServerFacts:
    owner, root = str(card.get("owned_by") or ""), str(card.get("root") or "")
    window = card.get("max_model_len")
    match owner:
        case "vllm":
            owner = f"vllm {answer_if_offered(client, '/version').get('version', '')}".strip()
        case "sglang":
            root = str(answer_if_offered(client, "/get_model_info").get("model_path") or root)
        case "llamacpp":
            settings = answer_if_offered(client, "/props").get("default_generation_settings")
            window = settings.get("n_ctx") if isinstance(settings, dict) else None
        case "me":
            tokens = answer_if_offered(client, "/extras/tokenize", {"input": "a"}).get("tokens")
            owner = "llama-cpp-python" if isinstance(tokens, list) else ""
    meta = card.get("meta")
    if window is None and isinstance(meta, dict):
        window = meta.get("n_ctx") or meta.get("n_ctx_train")
    known = isinstance(window, int) and not isinstance(window, bool) and 2 < window < 2**31
    return ServerFacts(
        str(card["id"]), client.hidden(root), client.hidden(owner), window if known else None
    )


def _tokens(client: Client, served: ServerFacts, text: str) -> list[int] | None:
    """What the server encodes ``text`` to when it is asked as a prompt; None where it does not say."""
    path, name = (
        ("/extras/tokenize", "input")
        if served.software == "llama-cpp-python"
        else ("/tokenize", "prompt")
    )
    tokens = answer_if_offered(client, path, {"model": served.model, name: text}).get("tokens")
    return (
        tokens
        if isinstance(tokens, list) and all(isinstance(token, int) for token in tokens)
        else None
    )


def _counted_front(
    client: Client, served: ServerFacts, tokenizer: Tokenizer, name: str
) -> tuple[int, ...] | None:
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
