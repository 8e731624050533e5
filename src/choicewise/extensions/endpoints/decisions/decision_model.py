"""A decision endpoint as a model: the options of a question in one request, questions sent twice, and its probe."""

from __future__ import annotations

import hashlib
import math
import os
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from functools import cached_property, partial
from typing import Final, NamedTuple, cast

from choicewise.data.items import draw_hash
from choicewise.errors import ModelError
from choicewise.extensions.endpoints.decisions.answers import DecisionAnswer
from choicewise.extensions.endpoints.decisions.dialects import DIALECTS
from choicewise.extensions.endpoints.decisions.endpoint_name import EndpointName
from choicewise.extensions.endpoints.decisions.exchange import (
    Exchange,
    Repeat,
    of_repeats,
    stored_text,
)
from choicewise.extensions.endpoints.server.address import KEY_VARIABLE
from choicewise.extensions.endpoints.server.faults import (
    JSON,
    RESUME,
    Fault,
    Passing,
    ServerFailed,
    Unanswerable,
    failed,
)
from choicewise.extensions.endpoints.server.http import Client, Reader
from choicewise.extensions.endpoints.server.many_requests import answered
from choicewise.models.model import SelfCheck
from choicewise.questions import Answers, Decision, Prompt, TokenScores, TypedQuestion
from choicewise.records import ALLOWED, ServerRecord
from choicewise.tokens.tokenizer import ByteTokenizer, Tokenizer
from choicewise.util.jsonio import exact_json
from choicewise.util.text import short

SEED: Final = 1  # which questions are sent twice


def _not_here(status: int, said: str) -> Fault:
    advice = "check address, name and dialect (,dialect=NAME)"
    return failed(
        f"the server has no such model or no decisions here, status {status}: {said}; {advice}",
        status,
    )


def _no_decisions(said: str) -> Fault:
    advice = "serve a model that has decisions, or ask a plain model under decision/vllm-0.32 and its like"
    return failed(f"the server has no decisions of this model, status 501: {said}; {advice}", 501)


def _no_content(status: int, said: str) -> Fault:
    return Passing(f"the server answers with status {status} and no decision", status)


MEANINGS: Final[Mapping[int, Callable[[str], Fault]]] = {
    **{status: partial(_not_here, status) for status in (404, 405)},
    501: _no_decisions,
    **{status: partial(_no_content, status) for status in (201, 202, 204)},
}
"""What such servers mean by statuses that others mean something else by."""

_IDS: Final = ("x-typesafe-request-id", "x-request-id", "request-id", "cf-ray")
"""Headers with the server's name of a request."""

_MOST_BYTES: Final = (
    2**20
)  # of an answer: that to 255 options has some 30,000, and every one is kept
_COLOURS: Final = ("red", "blue")
_LONG: Final = 16_000  # characters of the long state; endpoints are known that read some 2,000 tokens and say nothing
_FEWEST: Final = 16  # characters that one token has at most in text like that of the long state
_FILLER: Final = (
    "The keeper counts the boats, writes the number down and walks back along the pier. "
)


def _probe(colour: str, filler: str = "") -> TypedQuestion:
    """What is asked beside the questions of the data; the answer is what the state ends with."""
    state = exact_json({"note": f"{filler}The ferry at the pier is {colour}."})
    return TypedQuestion(
        "choice", state, "What colour is the ferry at the pier?", _COLOURS, (None, None)
    )


class Probed(NamedTuple):
    """What the probe found: ``probabilities`` of its question, the same once more, and ``doubts`` in words."""

    probabilities: Sequence[float] | None
    once_more: Sequence[float] | None
    doubts: tuple[str, ...]


class DecisionModel:
    """The endpoint that ``wanted`` names.

    ``notes``: what users should know of how it is asked; ``say`` gets a line now and then while it is waited for.

    Nothing is sent before that first matters.  Raises ModelError where the endpoint can't be used, and whenever it
    fails; a question that it can't be asked, or does not answer with a distribution, is unanswered, with the reason.
    """

    device = "server"
    kind_name = "decisions"
    dtype = "unknown"
    recipe = None
    planned = None
    supports: frozenset[type] = frozenset({Decision})
    window = 1_000_000
    """Instructions of any length are sent: what fits the endpoint alone knows."""

    takes = front = None
    """An endpoint says nothing of tokens."""

    def __init__(
        self,
        wanted: EndpointName,
        *,
        client: Client | None = None,
        say: Callable[[str], None] = lambda line: None,
    ) -> None:
        key = os.environ.get(KEY_VARIABLE)
        self.client = client or Client(
            wanted.address, key, say=say, meanings=MEANINGS, most_bytes=_MOST_BYTES
        )
        weakref.finalize(self, self.client.close)
        self.dialect = DIALECTS[wanted.dialect]
        self.name = wanted.address.model or ""
        self.tokenizer: Tokenizer = ByteTokenizer()
        self.notes = list[str]()
        self._repeats = wanted.repeats
        self._twice = list[tuple[Sequence[float], Sequence[float]]]()
        self._resolved: str | None = None
        self._software = ""

    @cached_property
    def probed(self) -> Probed:
        """A choice of two in a short state, twice, and in a long one whose end decides, with either end."""
        first = self._ask(_probe(_COLOURS[0]))
        if isinstance(first, Unanswerable) or (first.missing is not None and not first.refused):
            reason = first.reason if isinstance(first, Unanswerable) else first.missing
            others = ", ".join(name for name in DIALECTS if name != self.dialect.name)
            raise ModelError(
                f"{self.client.address.url} does not answer a choice of two options in the dialect {self.dialect.name}"
                f" ({reason}); is it another one (,dialect=NAME, of {others})?"
            )
        repeat = self._ask(_probe(_COLOURS[0]))
        ends = [self._ask(_probe(colour, _FILLER * (_LONG // len(_FILLER)))) for colour in _COLOURS]
        if first.missing is not None:
            self.notes.append(f"the probe is not answered: {first.missing}")
        if self._resolved is None:
            self.notes.append("the answers name no model, so that another one would not be noticed")
        elif self._resolved != self.name:
            self.notes.append(
                f"the answers call {self.name} {self._resolved}; another name stops the run"
            )
        if refused := next((each.reason for each in ends if isinstance(each, Unanswerable)), None):
            self.notes.append(f"a state of {_LONG:,} characters is not answered: {refused}")
        one, two = (
            first.probabilities,
            None if isinstance(repeat, Unanswerable) else repeat.probabilities,
        )
        noise = of_repeats(
            self.dialect.name, [] if one is None or two is None else [(one, two)]
        ).most
        doubts = tuple(_of_long_states(first, ends, noise))
        self.notes += doubts
        return Probed(one, two, doubts)

    @property
    def digest(self) -> str:
        """64 hex digits of the endpoint's names of the model, and the dialect."""
        _ = self.probed
        return hashlib.sha256(
            "\n".join(["decisions", self.dialect.name, self.name, self._named]).encode()
        ).hexdigest()

    @property
    def record(self) -> ServerRecord:
        """What a run keeps of it."""
        probes = _by_colour(self.probed.probabilities)
        endpoint = replace(of_repeats(self.dialect.name, self._twice), doubts=self.probed.doubts)
        return ServerRecord(
            model=self.name,
            route=f"decisions, dialect {self.dialect.name}",
            software=self._software,
            probes=probes,
            noise=self.selfcheck.noise,
            named=self._named,
            endpoint=endpoint,
        )

    def probe_now(self) -> Mapping[str, float]:
        """The log-probabilities (nats) of the probe's options as the endpoint gives them now, by option."""
        answer = self._ask(_probe(_COLOURS[0]))
        if isinstance(answer, Unanswerable):
            raise failed(f"the probe has no answer ({answer.reason})")
        return _by_colour(answer.probabilities)

    @property
    def selfcheck(self) -> SelfCheck:
        """How far answers to the same question differ; ``depth`` counts the questions that were sent twice.

        ``noise``: of log-probabilities, where these count for which option is the likeliest (:func:`_logs`).
        """
        first, repeat, doubts = self.probed
        twice = [
            *self._twice,
            *([(first, repeat)] if first is not None and repeat is not None else []),
        ]
        differ = of_repeats(self.dialect.name, twice)
        pairs = ((_logs(one), _logs(other)) for one, other in twice)
        noise = max((abs(p - q) for pair in pairs for p, q in zip(*pair, strict=True)), default=0.0)
        cost = (
            f"{differ.flips} of {differ.repeated} questions sent twice were answered otherwise"
            + "".join(f"; {doubt}" for doubt in doubts)
        )
        rung = f"decisions, dialect {self.dialect.name}"
        return SelfCheck(rung, differ.most, 0.0, ALLOWED, noise, len(self._twice), (), cost)

    def check(self, depth: int) -> SelfCheck:
        """The same: the probe does not depend on the ``depth``."""
        return self.selfcheck

    @property
    def computed(self) -> int | None:
        """Tokens that the endpoint counts as input; None where it does not say."""
        return self.client.computed

    @property
    def requests(self) -> int:
        """Requests that were answered so far."""
        return self.client.requests

    def requests_for(self, questions: Sequence[Prompt]) -> int:
        """How many requests ``questions`` take, without those that are sent twice and the probe's."""
        asked = {question.question for question in questions if isinstance(question, Decision)}
        return sum(1 for each in asked if self.dialect.objection(each) is None)

    def objection(self, question: Prompt) -> str | None:
        """None: what can't be asked is about one item, which is missing then."""
        return None

    def answer(self, questions: Sequence[Prompt]) -> Answers:
        """The answers as they come, those about one question together.

        The first questions are sent twice, as many as the name says; their answer is the first one.  Raises ModelError
        where the endpoint fails, or calls the model otherwise than before; what was answered is given out before.
        """
        options = dict[TypedQuestion, dict[int, int]]()
        for index, question in enumerate(questions):
            decision = cast(Decision, question)
            options.setdefault(decision.question, {})[decision.option] = index
        _ = self.probed
        for asked in list(options):
            if (objection := self.dialect.objection(asked)) is not None:
                yield from (
                    (index, TokenScores.unanswered(objection, [k]))
                    for k, index in options.pop(asked).items()
                )
        for asked, exchange in self._exchanges([*options]):
            yield from self._scores(asked, options[asked], exchange)

    def close(self) -> None:
        """End every connection."""
        self.client.close()

    def _exchanges(
        self, asked: Sequence[TypedQuestion]
    ) -> Iterator[tuple[TypedQuestion, Exchange]]:
        """Every question with what came of it, in any order."""
        drawn = sorted(asked, key=lambda each: draw_hash(SEED, Decision(each, 0).key))
        count = min(len(asked), max(0, self._repeats - len(self._twice)))
        order = [*drawn[:count], *drawn[:count], *drawn[count:]]
        waiting = dict[
            int, dict[bool, Exchange]
        ]()  # first answers and repeats, until both are there
        failure: ServerFailed | None = None
        try:
            with closing(answered(self.client, map(self._request, order))) as replies:
                for place, given in replies:
                    exchange = self._exchange(order[place], given)
                    if place >= 2 * count:
                        yield order[place], exchange
                        continue
                    pair = waiting.setdefault(place % count, {})
                    pair[place >= count] = exchange
                    if len(pair) == 2:
                        del waiting[place % count]
                        yield order[place], self._with_repeat(pair[False], pair[True])
        except ServerFailed as error:
            failure = error
        if failure is not None:
            yield from (
                (order[place], pair[False]) for place, pair in waiting.items() if False in pair
            )
            raise failure

    def _with_repeat(self, first: Exchange, second: Exchange) -> Exchange:
        if first.probabilities is not None and second.probabilities is not None:
            self._twice.append((first.probabilities, second.probabilities))
        repeat = Repeat(second.received, second.response, second.probabilities, second.missing)
        return replace(first, repeat=repeat)

    def _scores(
        self, asked: TypedQuestion, indices: Mapping[int, int], exchange: Exchange
    ) -> Answers:
        """The answer about each option (``indices`` by option); the first one holds the exchange."""
        if len(indices) < len(asked.names):
            exchange = replace(exchange, options=sorted(indices))
        values = exchange.probabilities
        stored: str | None = exchange.text
        for option, index in sorted(indices.items()):
            if values is None:
                scores = TokenScores.unanswered(exchange.missing or "no answer", [option])
            else:
                log = math.log(values[option]) if values[option] > 0 else -math.inf
                scores = TokenScores.of(
                    [option], [log], [sum(value > values[option] for value in values)]
                )
            yield index, replace(scores, exchange=stored)
            stored = None

    @property
    def _path(self) -> str:
        return self.dialect.path(self.name)

    @property
    def _named(self) -> str:
        """What the answers call the model, where that is another name."""
        return "" if self._resolved in (None, self.name) else str(self._resolved)

    def _request(self, asked: TypedQuestion) -> tuple[str, bytes, Reader]:
        return self._path, self.dialect.body(asked, self.name), self._reader(asked)

    def _reader(self, asked: TypedQuestion) -> Reader:
        """What reads the answer to ``asked``; Passing for an error under status 200."""

        def read(content: bytes, headers: Mapping[str, str]) -> JSON:
            answer = self.dialect.read(content, asked)
            if answer.retry:
                raise Passing(self.client.hidden(answer.missing or "the answer is an error"), 200)
            tokens = answer.usage.get("input_tokens")
            known = next((headers[name] for name in _IDS if name in headers), None)
            self._software = self._software or self.client.hidden(headers.get("server", ""))
            counted = {"prompt_tokens": None if tokens is None else int(tokens)}
            rest = {"answer": answer, "content": content, "request_id": known, "received": _now()}
            return {"meta_info": counted, **rest}

        return read

    def _ask(self, asked: TypedQuestion) -> DecisionAnswer | Unanswerable:
        """The answer to a question of the probe."""
        path, body, reader = self._request(asked)
        try:
            answer = self.client.post(path, body, reader=reader)["answer"]
        except Unanswerable as reason:
            return reason
        self._check_model(answer)
        return cast(DecisionAnswer, answer)

    def _exchange(self, asked: TypedQuestion, given: JSON | Unanswerable) -> Exchange:
        """What is kept; ServerFailed where the model has another name than before."""
        request = stored_text(self.dialect.body(asked, self.name))
        if isinstance(given, Unanswerable):
            return Exchange(self._path, request, _now(), missing=given.reason, kind=asked.kind)
        answer: DecisionAnswer = given["answer"]
        self._check_model(answer)
        hidden = self.client.hidden
        return Exchange(
            path=self._path,
            request=request,
            received=given["received"],
            response=hidden(stored_text(given["content"])),
            request_id=None if given["request_id"] is None else hidden(given["request_id"]),
            model=None if answer.model is None else hidden(answer.model),
            probabilities=answer.probabilities,
            missing=None if answer.missing is None else hidden(answer.missing),
            refused=answer.refused,
            usage={hidden(name): count for name, count in answer.usage.items()},
            confidence=answer.confidence,
            recomputed=answer.recomputed,
            diagnostics={hidden(name): value for name, value in answer.diagnostics.items()},
            contradictions=tuple(map(hidden, answer.contradictions)),
            notes=tuple(map(hidden, answer.notes)),
            kind=asked.kind,
        )

    def _check_model(self, answer: DecisionAnswer) -> None:
        named = answer.model and self.client.hidden(answer.model)
        if named and self._resolved is None:
            self._resolved = named
        if named and named != self._resolved:
            url, now, before = (
                self.client.address.url,
                short(named, 100),
                short(str(self._resolved), 100),
            )
            raise failed(
                f"{url}: the answer is of model {now!r}, and others were of {before!r}; name {before!r} instead of an"
                f" alias, or serve it again, and {RESUME}"
            )

    def __repr__(self) -> str:
        return f"DecisionModel({str(self.client.address)!r}, {self.dialect.name!r})"


def _by_colour(probabilities: Sequence[float] | None) -> dict[str, float]:
    """The probe's log-probabilities by text; none where it has no answer."""
    return dict(
        zip(
            (f"the ferry is {colour}" for colour in _COLOURS),
            _logs(probabilities or ()),
            strict=False,
        )
    )


def _logs(probabilities: Sequence[float]) -> list[float]:
    """Log-probabilities (nats), none below that of half an even share: there the least difference has a large one."""
    return [math.log(max(value, 1 / (2 * len(probabilities)))) for value in probabilities]


def _of_long_states(
    first: DecisionAnswer, ends: Sequence[DecisionAnswer | Unanswerable], noise: float
) -> Iterator[str]:
    """What speaks for a state that is cut without a word, from the answers to a long one with either end.

    ``noise``: by how much the probabilities of the short state differ when it is sent again.
    """
    read = [each for each in ends if not isinstance(each, Unanswerable)]
    if len(read) < len(ends):
        return  # one that is refused is not cut without a word
    tokens = [each.usage.get("input_tokens") for each in (first, read[0])]
    if tokens[0] is not None and tokens[1] is not None and tokens[1] - tokens[0] < _LONG / _FEWEST:
        grown = tokens[1] - tokens[0]
        yield f"truncated? a state longer by {_LONG:,} characters counts {grown:,.0f} more input tokens"
    red, blue = (each.probabilities for each in read)
    if (
        red is not None
        and blue is not None
        and max(abs(p - q) for p, q in zip(red, blue, strict=True)) <= noise
    ):
        yield f"truncated? the end of a state of {_LONG:,} characters changes no probability"


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
