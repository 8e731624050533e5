"""Ask a decision endpoint as a model: probe it, repeat some questions, and keep its answers."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from functools import cached_property, partial
from typing import NamedTuple, cast

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
from choicewise.extensions.endpoints.server.http import Client, ClientModel, Reader
from choicewise.extensions.endpoints.server.many_requests import answered
from choicewise.models.model import SelfCheck
from choicewise.questions import Answers, Decision, Prompt, TokenScores, TypedQuestion
from choicewise.records import ALLOWED, ServerRecord
from choicewise.tokens.tokenizer import ByteTokenizer, Tokenizer
from choicewise.util.jsonio import exact_json
from choicewise.util.text import short, text_digest

SEED = 1
"""The seed that draws which questions are sent twice."""

# Headers with the server's name of a request.
_IDS = ("x-typesafe-request-id", "x-request-id", "request-id", "cf-ray")

# Bytes of an answer: that to 255 options has some 30,000, and every one is stored.
_MOST_BYTES = 2**20

_COLOURS = ("red", "blue")

# Characters of the long state: endpoints are known that read some 2,000 tokens and do not say so.
_LONG = 16_000

# Characters that one token has at most in text like that of the long state.
_LONGEST_TOKEN = 16

_FILLER = "The keeper counts the boats, writes the number down and walks back along the pier. "

Pair = tuple[Sequence[float], Sequence[float]]
"""The probabilities of one question that was sent twice."""


def _not_here(status: int, quote: str) -> Fault:
    reason = f"the server has no such model or no decisions here, status {status}: {quote}"
    return failed(f"{reason}; check address, name and dialect (,dialect=NAME)", status)


def _no_decisions(status: int, quote: str) -> Fault:
    reason = f"the server has no decisions from this model, status {status}: {quote}"
    advice = "serve a model that has decisions, or run a plain one under decision/vllm-0.32"
    return failed(f"{reason}; {advice}", status)


def _no_content(status: int, quote: str) -> Fault:
    return Passing(f"the server answers with status {status} and no decision", status)


MEANINGS: Mapping[int, Callable[[str], Fault]] = {
    201: partial(_no_content, 201),
    202: partial(_no_content, 202),
    204: partial(_no_content, 204),
    404: partial(_not_here, 404),
    405: partial(_not_here, 405),
    501: partial(_no_decisions, 501),
}
"""The faults of statuses that have another meaning for such servers than for others."""


def _probe(colour: str, filler: str = "") -> TypedQuestion:
    """Return a question whose answer is the end of its state."""
    state = exact_json({"note": f"{filler}The ferry at the pier is {colour}."})
    return TypedQuestion(
        kind="choice",
        state=state,
        instructions="What colour is the ferry at the pier?",
        names=_COLOURS,
        descriptions=(None, None),
    )


class Probed(NamedTuple):
    """Hold what the probe showed.

    The probabilities of its question, ``pairs`` with those of the question sent again, none or one,
    and doubts in words.
    """

    probabilities: Sequence[float] | None
    pairs: Sequence[Pair]
    doubts: tuple[str, ...]


class DecisionModel(ClientModel):
    """Answer from the endpoint that ``wanted`` names.

    ``notes``: what users should know of how it is asked; ``say`` gets a line now and then while it
    is waited for.

    Nothing is sent before that first matters.  Raises ModelError if the endpoint can't be used, and
    whenever it fails.  A question that it can't be asked, or does not answer with a distribution,
    is unanswered, with the reason.
    """

    kind_name = "decisions"
    supports: frozenset[type] = frozenset({Decision})
    window = 1_000_000
    """Instructions of any length are sent: only the endpoint knows what fits."""

    takes = front = None
    """An endpoint does not tell its tokens."""

    def __init__(
        self,
        wanted: EndpointName,
        *,
        client: Client | None = None,
        say: Callable[[str], None] = lambda line: None,
    ) -> None:
        key = os.environ.get(KEY_VARIABLE)
        super().__init__(
            client
            or Client(wanted.address, key, say=say, meanings=MEANINGS, most_bytes=_MOST_BYTES)
        )
        self.dialect = DIALECTS[wanted.dialect]
        self.name = wanted.address.model or ""
        self.tokenizer: Tokenizer = ByteTokenizer()
        self._path = self.dialect.path(self.name)
        self._route = f"decisions, dialect {self.dialect.name}"
        self._repeats = wanted.repeats
        self._pairs: list[Pair] = []
        self._resolved: str | None = None
        self._software = ""

    @cached_property
    def probed(self) -> Probed:
        """Send a choice of two in a short state twice, and in a long state with either end."""
        first = self._ask(_probe(_COLOURS[0]))
        if first.missing is not None and not first.refused:
            others = ", ".join(name for name in DIALECTS if name != self.dialect.name)
            raise ModelError(
                f"{self.client.address.url} does not answer a choice of two options in the dialect "
                f"{self.dialect.name} ({first.missing}). Try ,dialect=NAME with another one: "
                f"{others}"
            )
        repeat = self._ask(_probe(_COLOURS[0]))
        filler = _FILLER * (_LONG // len(_FILLER))
        long_answers = [self._ask(_probe(colour, filler)) for colour in _COLOURS]
        if first.missing is not None:
            self.notes.append(f"the endpoint did not answer the probe: {first.missing}")
        if self._resolved is None:
            self.notes.append("answers name no model, so a change of model would go unnoticed")
        elif self._resolved != self.name:
            self.notes.append(
                f"the endpoint answers as {self._resolved}; any other name stops the run"
            )
        pairs = []
        if first.probabilities is not None and repeat.probabilities is not None:
            pairs.append((first.probabilities, repeat.probabilities))
        unanswered = [answer.missing for answer in long_answers if not answer.was_read]
        doubts: tuple[str, ...] = ()
        if unanswered:
            # A state that is refused is not cut.
            self.notes.append(
                f"the endpoint does not take a state of {_LONG:,} characters: {unanswered[0]}"
            )
        else:
            noise = of_repeats(self.dialect.name, pairs).most
            doubts = tuple(_truncation_doubts(first, long_answers, noise))
        self.notes += doubts
        return Probed(first.probabilities, pairs, doubts)

    @property
    def digest(self) -> str:
        """Return 64 hex digits of the endpoint's names of the model, and of the dialect."""
        # Only the probe shows what answers call the model.
        _ = self.probed
        names = ["decisions", self.dialect.name, self.name, self._named]
        return text_digest("\n".join(names))

    @property
    def record(self) -> ServerRecord:
        """Return what a run keeps of the endpoint."""
        endpoint = of_repeats(self.dialect.name, self._pairs)
        return ServerRecord(
            model=self.name,
            route=self._route,
            software=self._software,
            probes=_by_colour(self.probed.probabilities),
            noise=self.selfcheck.noise,
            named=self._named,
            endpoint=replace(endpoint, doubts=self.probed.doubts),
        )

    def probe_now(self) -> Mapping[str, float]:
        """Return the log-probabilities (nats) that the probe's options have now, by text."""
        answer = self._ask(_probe(_COLOURS[0]))
        if not answer.was_read:
            raise failed(f"the probe has no answer ({answer.missing})")
        return _by_colour(answer.probabilities)

    @property
    def selfcheck(self) -> SelfCheck:
        """Return how far answers to the same question differ.

        ``depth`` counts the questions that were sent twice.  ``noise``: of log-probabilities that
        matter for which option is the likeliest (:func:`_logs`).
        """
        pairs = [*self._pairs, *self.probed.pairs]
        repeats = of_repeats(self.dialect.name, pairs)
        noise = 0.0
        for first, second in pairs:
            for p, q in zip(_logs(first), _logs(second), strict=True):
                noise = max(noise, abs(p - q))
        flips = f"{repeats.flips} of {repeats.repeated} questions sent twice got another answer"
        return SelfCheck(
            rung=self._route,
            difference=repeats.most,
            tolerance=ALLOWED,
            noise=noise,
            depth=len(self._pairs),
            cost="; ".join([flips, *self.probed.doubts]),
        )

    def check(self, depth: int) -> SelfCheck:
        """Return :attr:`selfcheck`: the probe does not depend on the ``depth``."""
        return self.selfcheck

    def requests_for(self, questions: Sequence[Prompt]) -> int:
        """Count the requests for ``questions``, without repeats and those of the probe."""
        distinct = {prompt.question for prompt in questions if isinstance(prompt, Decision)}
        return sum(self.dialect.objection(question) is None for question in distinct)

    def objection(self, question: Prompt) -> str | None:
        """Return None: what can't be asked is one item, which is missing then."""
        return None

    def answer(self, questions: Sequence[Prompt]) -> Answers:
        """Yield the answers as they come, those about one question together.

        The first questions are sent twice, as many as the name of the model says; their answer is
        the first one.  Raises ModelError if the endpoint fails, or calls the model otherwise than
        before, but only after all that was answered.
        """
        index_by_option: dict[TypedQuestion, dict[int, int]] = {}
        for index, prompt in enumerate(questions):
            decision = cast(Decision, prompt)
            index_by_option.setdefault(decision.question, {})[decision.option] = index
        # Nothing is asked of an endpoint that fails its probe.
        _ = self.probed
        for question in list(index_by_option):
            objection = self.dialect.objection(question)
            if objection is None:
                continue
            for option, index in index_by_option.pop(question).items():
                yield index, TokenScores.unanswered(objection, [option])
        for question, exchange in self._exchanges(list(index_by_option)):
            yield from _scores(question, index_by_option[question], exchange)

    def _exchanges(
        self, questions: Sequence[TypedQuestion]
    ) -> Iterator[tuple[TypedQuestion, Exchange]]:
        """Yield every question with its exchange, in any order."""
        order = sorted(questions, key=lambda question: draw_hash(SEED, Decision(question, 0).key))
        count = min(len(order), max(0, self._repeats - len(self._pairs)))
        # First a round of questions, then the same once more, then all others.
        order = [*order[:count], *order]
        firsts: dict[int, Exchange] = {}
        repeats: dict[int, Exchange] = {}
        failure: ServerFailed | None = None
        try:
            with closing(answered(self.client, map(self._request, order))) as replies:
                for index, reply in replies:
                    exchange = self._exchange(order[index], reply)
                    if index >= 2 * count:
                        yield order[index], exchange
                        continue
                    number = index % count
                    if index < count:
                        firsts[number] = exchange
                    else:
                        repeats[number] = exchange
                    if number in firsts and number in repeats:
                        first = firsts.pop(number)
                        yield order[number], self._with_repeat(first, repeats.pop(number))
        except ServerFailed as error:
            failure = error
        if failure is not None:
            for number, exchange in firsts.items():
                yield order[number], exchange
            raise failure

    def _with_repeat(self, first: Exchange, second: Exchange) -> Exchange:
        if first.probabilities is not None and second.probabilities is not None:
            self._pairs.append((first.probabilities, second.probabilities))
        repeat = Repeat(second.received, second.response, second.probabilities, second.missing)
        return replace(first, repeat=repeat)

    @property
    def _named(self) -> str:
        """Return the model's name in answers if it is another one, or ""."""
        if self._resolved is None or self._resolved == self.name:
            return ""
        return self._resolved

    def _request(self, question: TypedQuestion) -> tuple[str, bytes, Reader]:
        body = self.dialect.body(question, self.name)
        return self._path, body, partial(self._read, question)

    def _read(self, question: TypedQuestion, content: bytes, headers: Mapping[str, str]) -> JSON:
        """Read the answer to ``question``; raise Passing for an error under status 200."""
        answer = self.dialect.read(content, question)
        if answer.retry:
            raise Passing(self.client.hidden(answer.missing or "the answer is an error"), 200)
        if not self._software:
            self._software = self.client.hidden(headers.get("server", ""))
        # The headers are in the order of preference.
        ids = [headers[name] for name in _IDS if name in headers]
        tokens = answer.usage.get("input_tokens")
        return {
            # The client counts the tokens of all answers from this.
            "meta_info": {"prompt_tokens": None if tokens is None else int(tokens)},
            "answer": answer,
            "content": content,
            "request_id": ids[0] if ids else None,
            "received": _now(),
        }

    def _ask(self, question: TypedQuestion) -> DecisionAnswer:
        """Return the answer to a question of the probe."""
        path, body, reader = self._request(question)
        try:
            answer: DecisionAnswer = self.client.post(path, body, reader=reader)["answer"]
        except Unanswerable as error:
            return DecisionAnswer(missing=error.reason, was_read=False)
        self._check_model(answer)
        return answer

    def _exchange(self, question: TypedQuestion, reply: JSON | Unanswerable) -> Exchange:
        """Return what is kept; raise ServerFailed if the model has another name than before."""
        request = stored_text(self.dialect.body(question, self.name))
        if isinstance(reply, Unanswerable):
            return Exchange(self._path, request, _now(), missing=reply.reason, kind=question.kind)
        answer: DecisionAnswer = reply["answer"]
        self._check_model(answer)
        hidden = self.client.hidden

        def optional(text: str | None) -> str | None:
            return None if text is None else hidden(text)

        return Exchange(
            path=self._path,
            request=request,
            received=reply["received"],
            response=hidden(stored_text(reply["content"])),
            request_id=optional(reply["request_id"]),
            model=optional(answer.model),
            probabilities=answer.probabilities,
            missing=optional(answer.missing),
            refused=answer.refused,
            usage={hidden(name): count for name, count in answer.usage.items()},
            confidence=answer.confidence,
            recomputed=answer.recomputed,
            diagnostics={hidden(name): value for name, value in answer.diagnostics.items()},
            contradictions=tuple(map(hidden, answer.contradictions)),
            notes=tuple(map(hidden, answer.notes)),
            kind=question.kind,
        )

    def _check_model(self, answer: DecisionAnswer) -> None:
        """Raise ServerFailed if ``answer`` has another name of the model than those before."""
        named = answer.model and self.client.hidden(answer.model)
        if not named:
            return
        # An alias may come to mean another model during a run.
        if self._resolved is None:
            self._resolved = named
        if named != self._resolved:
            now = short(named, 100)
            before = short(self._resolved, 100)
            raise failed(
                f"{self.client.address.url}: the answer came from model {now!r}, earlier ones from "
                f"{before!r}. Name {before!r} instead of an alias, or serve it again, then {RESUME}"
            )

    def __repr__(self) -> str:
        return f"DecisionModel({str(self.client.address)!r}, {self.dialect.name!r})"


def _scores(question: TypedQuestion, indices: Mapping[int, int], exchange: Exchange) -> Answers:
    """Yield the answer about each option of ``indices``; the first one has the exchange."""
    if len(indices) < len(question.names):
        exchange = replace(exchange, options=sorted(indices))
    probabilities = exchange.probabilities
    stored: str | None = exchange.text
    for option, index in sorted(indices.items()):
        if probabilities is None:
            scores = TokenScores.unanswered(exchange.missing or "no answer", [option])
        else:
            p = probabilities[option]
            log = math.log(p) if p > 0 else -math.inf
            rank = sum(other > p for other in probabilities)
            scores = TokenScores.of([option], [log], [rank])
        yield index, replace(scores, exchange=stored)
        # An exchange is long, so one option has it for all.
        stored = None


def _by_colour(probabilities: Sequence[float] | None) -> dict[str, float]:
    """Return the probe's log-probabilities by text; empty if it has no answer."""
    if probabilities is None:
        return {}
    texts = [f"the ferry is {colour}" for colour in _COLOURS]
    return dict(zip(texts, _logs(probabilities), strict=True))


def _logs(probabilities: Sequence[float]) -> list[float]:
    """Return log-probabilities (nats), none below that of half an even share.

    Below that, the least difference of probabilities has a large difference of logarithms.
    """
    least = 1 / (2 * len(probabilities))
    return [math.log(max(p, least)) for p in probabilities]


def _truncation_doubts(
    first: DecisionAnswer, long_answers: Sequence[DecisionAnswer], noise: float
) -> Iterator[str]:
    """Yield what suggests that a long state is cut, from the answers to one with either end.

    ``noise``: how far the probabilities of the short state differ when it is sent again.
    """
    red, blue = long_answers
    tokens = first.usage.get("input_tokens")
    long_tokens = red.usage.get("input_tokens")
    if tokens is not None and long_tokens is not None:
        growth = long_tokens - tokens
        if growth < _LONG / _LONGEST_TOKEN:
            yield f"truncated? {_LONG:,} more characters count as {growth:,.0f} more input tokens"
    if red.probabilities is None or blue.probabilities is None:
        return
    gaps = [abs(p - q) for p, q in zip(red.probabilities, blue.probabilities, strict=True)]
    if max(gaps) <= noise:
        yield f"truncated? the end of a state of {_LONG:,} characters changes no probability"


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
