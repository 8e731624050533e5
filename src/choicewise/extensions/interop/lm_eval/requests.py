"""Answer the harness's requests: log-likelihoods from one tree, and generated texts."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np

from choicewise.errors import ModelError, UsageError, first_lines
from choicewise.extensions.interop.lm_eval.engine import Engine
from choicewise.models.model import Model
from choicewise.questions import Answers, Generation, Ids, Mass, Rendition, Span
from choicewise.running.progress import PeriodicReport, ProgressReport, print_line
from choicewise.tokens.boundary import choice_prompts_batch, cut, fit_span
from choicewise.tokens.byte_coverings import ByteProbability, TokenPrompt, answer_with_bytes
from choicewise.tokens.encode import Encodings
from choicewise.tokens.tokenizer import Tokenizer
from choicewise.util.jsonio import JsonMapping

LISTED = 3
"""Requests that an error names; it counts the others."""

_TOO_LONG = "its continuation has {} tokens and does not fit (max_length={})"
_MERGED = "the scored tokens don't spell the continuation; boundary=lcp scores all of its text"
_CUT = "the context is longer than max_length; its beginning was cut off"


class Request(NamedTuple):
    """Hold a continuation and its context.

    ``where``: its task and document, in words.  ``group``: equal for all choices of a question.
    """

    context: str
    continuation: str
    where: str
    group: object = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredPrompt:
    """Hold the tokens of a request, scored by ``prompt``, less ``before``, plus ``after``.

    ``missing``: why nothing can be scored; then ``prompt`` is None, and else it is a prompt.
    ``merged``: the scored tokens do not spell the continuation.  ``dropped``: tokens of the context
    that were cut.
    """

    prompt: TokenPrompt | None = None
    missing: str | None = None
    merged: bool = False
    dropped: int = 0
    before: TokenPrompt | None = None
    after: TokenPrompt | None = None


class Score(NamedTuple):
    """Hold a continuation's log-likelihood (nats), and whether its tokens are likeliest."""

    total: float
    greedy: bool


def span_prompt(context: Ids, continuation: Ids, window: int, merged: bool = False) -> ScoredPrompt:
    """Return the prompt of a continuation, with the last ``window + 1`` tokens of both together."""
    dropped = max(len(context) + len(continuation) - 1 - window, 0)
    if dropped >= len(context):
        return ScoredPrompt(missing=_TOO_LONG.format(len(continuation), window))
    if dropped:
        context = context[dropped:]
    # A context that is not cut stays the same array, which requests share.
    return ScoredPrompt(prompt=Span(context, continuation), merged=merged, dropped=dropped)


def rendition_prompt(context: Ids, continuation: Ids, window: int) -> ScoredPrompt:
    """Return the prompt of a decoder, with the last ``window`` tokens of the context."""
    if len(continuation) > window:
        return ScoredPrompt(missing=_TOO_LONG.format(len(continuation), window))
    dropped = max(len(context) - window, 0)
    return ScoredPrompt(prompt=Rendition(context[dropped:], continuation), dropped=dropped)


def harness_prompts(
    encoder: Encoder, requests: Sequence[Request], window: int, renditions: bool
) -> list[ScoredPrompt]:
    """Return the prompt of each request by the harness's rules."""
    prompts = []
    for pair in encoder.pairs([(request.context, request.continuation) for request in requests]):
        if pair.missing is not None:
            prompt = ScoredPrompt(missing=pair.missing)
        elif renditions:
            prompt = rendition_prompt(pair.context, pair.continuation, window)
        else:
            prompt = span_prompt(pair.context, pair.continuation, window, pair.merged)
        prompts.append(prompt)
    return prompts


def boundary_prompts(
    encodings: Encodings, policy: str, requests: Sequence[Request], window: int
) -> list[ScoredPrompt]:
    """Return the prompt of each request with ``policy`` (:mod:`choicewise.tokens.boundary`)."""

    def order(index: int) -> tuple[str, str]:
        return (str(requests[index].group), requests[index].context)

    def question(index: int) -> tuple[object, str]:
        return (requests[index].group, requests[index].context)

    # The choices of a question are encoded together, because some policies compare them.
    ordered = sorted(range(len(requests)), key=order)
    groups = [list(group) for _, group in groupby(ordered, key=question)]
    contexts = [requests[group[0]].context for group in groups]
    continuations = []
    for group in groups:
        continuations.append([requests[index].continuation for index in group])
    golds: list[tuple[int, ...]] = [()] * len(groups)
    choices_of_groups = choice_prompts_batch(encodings, policy, contexts, continuations, golds)
    prompts: dict[int, ScoredPrompt] = {}
    for group, choices in zip(groups, choices_of_groups, strict=True):
        for index, choice in zip(group, choices, strict=True):
            fit = fit_span(choice, window, cut_start=True)
            prompts[index] = ScoredPrompt(
                prompt=fit.span,
                missing=fit.missing,
                merged=fit.lossy,
                dropped=fit.tokens_dropped,
                before=fit.before,
                after=fit.after,
            )
    return [prompts[index] for index in range(len(requests))]


def score(
    model: Model,
    prompts: Sequence[ScoredPrompt],
    where: Callable[[int], str],
    title: str,
    done: Callable[[int, Score], None] = lambda *_: None,
) -> list[Score]:
    """Return the score of each prompt; ``done`` is called with each as soon as it is computed.

    ``where`` names a request.  Raises ModelError, before anything is computed, if some can't be
    scored, and in the end if some are NaN, which the harness would take for the best choice.
    """
    _refuse_missing(prompts, where)
    _warn([prompt.merged for prompt in prompts], _MERGED, where)
    _warn([prompt.dropped > 0 for prompt in prompts], _CUT, where)
    # The request of each question, and its sign in the total, 0 for the prompt itself.
    parts: list[tuple[int, int]] = []
    questions: list[TokenPrompt] = []
    for index, prompt in enumerate(prompts):
        for sign, question in ((0, prompt.prompt), (-1, prompt.before), (1, prompt.after)):
            if question is not None:
                questions.append(question)
                parts.append((index, sign))
    totals = np.zeros(len(prompts))
    greedy = np.ones(len(prompts), dtype=np.bool_)
    remaining = np.bincount([index for index, _ in parts], minlength=len(prompts))
    for number, answer in answers(model, questions, title):
        index, sign = parts[number]
        totals[index] += (sign or 1) * answer.logprobs.sum(dtype=np.float64)
        # The rank of the likeliest token is 0.
        if not sign:
            greedy[index] = not answer.ranks.any()
        remaining[index] -= 1
        if not remaining[index] and not np.isnan(totals[index]):
            done(index, Score(float(totals[index]), bool(greedy[index])))
    # The harness takes NaN for the best choice.
    nans = np.flatnonzero(np.isnan(totals))
    if len(nans):
        raise ModelError(
            f"{model.name} returned NaN for {len(nans)} of {len(prompts)} requests, "
            f"first {where(int(nans[0]))}; try dtype=float32"
        )
    return list(map(Score, totals.tolist(), greedy.tolist()))


def _refuse_missing(prompts: Sequence[ScoredPrompt], where: Callable[[int], str]) -> None:
    problems = []
    for index, prompt in enumerate(prompts):
        if prompt.missing is not None:
            problems.append(f"{where(index)}: {prompt.missing}")
    if not problems:
        return
    raise ModelError(
        f"{len(problems)} requests can't be scored; the harness's model stops at them too. "
        "If tokens merge, pass boundary=lcp",
        first_lines(problems, LISTED),
    )


def _warn(concerned: Sequence[bool], reason: str, where: Callable[[int], str]) -> None:
    if any(concerned):
        first = where(concerned.index(True))
        print_line(
            f"choicewise: {sum(concerned)} of {len(concerned)} requests, first {first}: {reason}"
        )


PORTION = 16_000_000
"""Input tokens of one tree, counted before questions share them, at most: some gigabyte."""


class _TreeProgress:
    """Report the progress of portions of questions with an estimate to stderr."""

    def __init__(self, model: Model, title: str, total: int) -> None:
        self._model = model
        self._report = ProgressReport(title, computed=lambda: model.computed)
        self._total = total
        # Input tokens, counted before questions share them.
        self._finished = 0
        self._size = 0
        self._questions = 1
        self.answered = 0
        self._computed = 0
        self._planned = 0

    def begin(self, size: int, questions: int) -> None:
        """Begin a portion of ``size`` input tokens."""
        self._size = size
        self._questions = questions
        self.answered = 0
        # The model counts on from one portion to the next.
        self._computed = self._model.computed or 0
        self._planned = self._model.planned or 0
        self._report(self._finished, self._total)

    def show(self) -> None:
        """Report the tokens so far; another thread calls this, too."""
        planned = (self._model.planned or 0) - self._planned
        share = self.answered / self._questions
        if planned > 0:
            share = min(((self._model.computed or 0) - self._computed) / planned, 1.0)
        self._report(self._finished + int(share * self._size), self._total)

    def end(self) -> None:
        """End a portion."""
        self._finished += self._size
        self._size = 0
        self._report(self._finished, self._total)


def answers(model: Model, questions: Sequence[TokenPrompt], title: str) -> Answers:
    """Yield the answers of ``model`` as they become available, and report the progress.

    All questions are one tree of tokens, cut only if that would outgrow memory.
    """
    work = [question.inputs for question in questions]
    progress = _TreeProgress(model, title, sum(work))
    with PeriodicReport(progress.show) as periodic:
        for portion in portions(questions, work):
            progress.begin(sum(work[index] for index in portion), len(portion))
            in_portion = [questions[index] for index in portion]
            for number, scores in answer_with_bytes(model.answer, in_portion, model.tokenizer):
                progress.answered += 1
                yield portion[number], scores
                periodic.tick()
            progress.end()


def portions(questions: Sequence[TokenPrompt], work: Sequence[int]) -> Iterator[list[int]]:
    """Yield the indices of ``questions`` in groups of at most :data:`PORTION` input tokens."""
    if sum(work) <= PORTION:
        if questions:
            yield list(range(len(questions)))
        return
    portion: list[int] = []
    tokens = 0
    # Questions that begin with the same tokens stay together.
    for index in sorted(range(len(questions)), key=lambda index: _start(questions[index])):
        if portion and tokens + work[index] > PORTION:
            yield portion
            portion = []
            tokens = 0
        portion.append(index)
        tokens += work[index]
    yield portion


def _start(question: TokenPrompt) -> bytes:
    """Return the tokens that a question may share with others."""
    match question:
        case Rendition(source):
            return source.tobytes()
        case Span(context) | Generation(context) | Mass(context) | ByteProbability(context):
            return context.tobytes()
    return b""


TOGETHER = 10_000
"""Pairs of texts that are encoded at once: texts they share are encoded once, in little memory."""


class Pair(NamedTuple):
    """Hold a context and its continuation in tokens.

    ``missing``: why nothing can be scored, or None.  ``merged``: the context's tokens do not begin
    those of the whole text, so that the scored tokens do not spell the continuation.
    """

    context: Ids
    continuation: Ids
    missing: str | None = None
    merged: bool = False


class Encoder:
    """Encode texts as the harness's ``hf`` model does.

    ``prefix``: the token after which a text without context is scored.  ``prefix_text``: its text;
    a text that begins with it gets nothing added.  ``add_bos``: the harness's ``add_bos_token``.
    ``apart``: context and continuation are encoded each by itself, for an encoder-decoder.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        prefix: int | None,
        prefix_text: str | None,
        add_bos: bool | None,
        apart: bool,
    ) -> None:
        self._tokenizer = tokenizer
        self._prefix = prefix
        self._prefix_text = prefix_text
        self._special = add_bos is not False
        self._apart = apart

    def texts(
        self, texts: Sequence[str], special: bool | Sequence[bool] | None = None
    ) -> list[Ids]:
        """Return the tokens of each text by the rules of ``tok_encode``.

        ``special``: whether special tokens are added, to all or to each; None for the default.
        """
        if special is None:
            adds = list(map(self._adds, texts))
        elif isinstance(special, bool):
            adds = [special] * len(texts)
        else:
            adds = list(special)
        pairs = list(zip(texts, adds, strict=True))
        ids: dict[tuple[str, bool], Ids] = {}
        for added in (True, False):
            new = [pair for pair in dict.fromkeys(pairs) if pair[1] is added]
            encoded = self._tokenizer.encode([text for text, _ in new], special=added)
            ids.update(zip(new, encoded, strict=True))
        return [ids[pair] for pair in pairs]

    def pairs(self, requests: Sequence[tuple[str, str]]) -> list[Pair]:
        """Return each context with its continuation, by the rules of ``_encode_pair``.

        An empty context is replaced as in ``loglikelihood``.  Equal contexts share one array.
        """
        pairs: list[Pair] = []
        for start in range(0, len(requests), TOGETHER):
            pairs += self._pairs(requests[start : start + TOGETHER])
        return pairs

    def _pairs(self, requests: Sequence[tuple[str, str]]) -> list[Pair]:
        # A context of white space alone is not empty for the harness.
        is_empty = [not context for context, _ in requests]
        moved = [space_moved(context, continuation) for context, continuation in requests]
        alone = []
        contexts = []
        wholes = []
        for empty, (context, continuation) in zip(is_empty, moved, strict=True):
            if self._apart or empty:
                alone.append(continuation)
            if not empty:
                contexts.append(context)
            if not self._apart and not empty:
                wholes.append(context + continuation)
        ids_alone = dict(zip(alone, self.texts(alone, special=False), strict=True))
        texts = contexts + wholes
        ids = dict(zip(texts, self.texts(texts), strict=True))
        pairs = []
        for empty, (context, continuation) in zip(is_empty, moved, strict=True):
            if empty:
                pair = self._after_nothing(ids_alone[continuation], continuation)
            elif self._apart:
                pair = _checked(ids[context], ids_alone[continuation], continuation)
            else:
                pair = _split(ids[context], ids[context + continuation], continuation)
            pairs.append(pair)
        return pairs

    def _after_nothing(self, tokens: Ids, text: str) -> Pair:
        if self._prefix is None:
            reason = (
                "its context is empty and the tokenizer has no BOS and no EOS; pass prefix_token_id"
            )
            return Pair(tokens[:0], tokens, reason)
        if tokens[:1].tolist() == [self._prefix]:
            return _checked(tokens[:1], tokens[1:], text)
        return _checked(np.asarray([self._prefix], dtype=np.int32), tokens, text)

    def _adds(self, text: str) -> bool:
        """Return whether ``text`` gets the special tokens that the tokenizer adds by default."""
        if self._prefix_text is not None and text.startswith(self._prefix_text):
            return False
        return self._special


def space_moved(context: str, continuation: str) -> tuple[str, str]:
    """Move the white space that ends ``context`` to the start of ``continuation``."""
    stripped = context.rstrip()
    return stripped, context[len(stripped) :] + continuation


def _split(context: Ids, whole: Ids, text: str) -> Pair:
    """Return the pair of a context and of the tokens of the whole text after it."""
    # The last token of a context may merge with the continuation.
    merged = not np.array_equal(whole[: len(context)], context)
    return _checked(context, whole[len(context) :].copy(), text, merged)


def _checked(context: Ids, continuation: Ids, text: str, merged: bool = False) -> Pair:
    """Return the pair, which is missing if the harness would stop at it with an assertion."""
    missing = None
    if not len(context):
        missing = "its context is only white space, which leaves no token before the continuation"
    elif not len(continuation):
        reason = "it has no tokens"
        if merged:
            reason = "its characters merge into the context's last token"
        missing = f"continuation {text!r} leaves nothing to score: {reason}"
    return Pair(context, continuation, missing, merged)


class Generator:
    """Generate the texts that the harness's ``hf`` model generates one at a time.

    Answers of the likeliest tokens come from one tree of all contexts, in which the engine finds
    stops by their bytes.  The harness looks for stops in texts: an answer that it continues after
    such a stop, and every other answer (sampling, beams, penalties), is generated by the model's
    code, one text after the other.
    """

    def __init__(
        self,
        engine: Engine,
        encoder: Encoder,
        add_bos: bool | None = None,
        think_end: str | int | None = None,
    ) -> None:
        self._engine = engine
        self._encoder = encoder
        self._add_bos = add_bos
        self._think_end = think_end
        self._tokenizer = engine.tokenizer
        self._end: str | None = None
        if self._tokenizer.eos_token_id is not None:
            self._end = self._tokenizer.decode(self._tokenizer.eos_token_id)
        self._defaults = engine.network.generation_config.to_dict()
        ends = self._defaults.get("eos_token_id")
        if ends is None:
            ends = []
        elif not isinstance(ends, list):
            ends = [ends]
        self._ends = frozenset(ends)
        # Most requests of a task have the same stops.
        self._rule = lru_cache(self._stop_rule)

    def _stop_rule(self, stops: tuple[str, ...]) -> StopRule:
        encode = partial(self._tokenizer.encode, add_special_tokens=False)
        return StopRule(stops, encode, self._tokenizer.decode)

    def answer(
        self,
        requests: Sequence[tuple[str, JsonMapping]],
        where: Sequence[str],
        done: Callable[[int, str], None] = lambda *_: None,
    ) -> list[str]:
        """Return the answer to each (context, ``generation_kwargs``), and call ``done`` with each.

        ``where`` names the requests.  Raises UsageError for settings that can't be followed, and
        ModelError for a context without tokens and for a model that gives NaN.
        """
        settings = [read_settings(kwargs, self._end) for _, kwargs in requests]
        contexts = self._contexts([context for context, _ in requests], settings, where)
        texts: dict[int, str] = {}

        def finish(index: int, tokens: Sequence[int]) -> None:
            texts[index] = self._text(tokens, settings[index].stops)
            done(index, texts[index])

        for index, tokens in self._from_tree(contexts, settings, where):
            length = self._rule(settings[index].stops).length(tokens)
            is_full = len(tokens) == settings[index].limit
            if length is not None or is_full or tokens[-1] in self._ends:
                finish(index, tokens[:length])
        rest = [index for index in range(len(requests)) if index not in texts]
        if rest:
            print_line(
                f"choicewise: {len(rest)} of {len(requests)} answers are generated by "
                "transformers, one by one"
            )
        # A request that is repeated gets another draw.
        repeats = Counter[str]()
        for index in rest:
            context, kwargs = requests[index]
            key = f"{context}|{kwargs}"
            repeats[key] += 1
            tokens = self._one_by_one(contexts[index], settings[index], repeats[key], context)
            finish(index, tokens)
        return [texts[index] for index in range(len(requests))]

    def _contexts(
        self, texts: Sequence[str], settings: Sequence[Settings], where: Sequence[str]
    ) -> list[Ids]:
        """Return the tokens of each context (``tok_batch_encode``), with room for the answer."""
        contexts = []
        cut_count = 0
        encoded = self._encoder.texts(texts, list(map(self._adds_special, texts)))
        for tokens, request, name in zip(encoded, settings, where, strict=True):
            room = request.limit
            if self._engine.is_encoder_decoder:
                room = 0
            if room >= self._engine.window:
                raise UsageError(
                    f"{name}: generating {request.limit} tokens leaves no room for a context "
                    f"(max_length={self._engine.window}); lower max_gen_toks in gen_kwargs"
                )
            tokens, dropped = cut(tokens, self._engine.window - room, start=True)
            if not len(tokens):
                raise ModelError(f"{name}: its context has no tokens to continue")
            contexts.append(tokens)
            cut_count += dropped > 0
        if cut_count:
            print_line(
                f"choicewise: {cut_count} of {len(texts)} contexts were cut at their start "
                "to leave room for the answer"
            )
        return contexts

    def _adds_special(self, text: str) -> bool:
        if self._engine.is_encoder_decoder:
            return True
        start = self._tokenizer.bos_token
        if start and text.startswith(start):
            return False
        return self._add_bos is not False

    def _from_tree(
        self, contexts: Sequence[Ids], settings: Sequence[Settings], where: Sequence[str]
    ) -> Iterator[tuple[int, list[int]]]:
        """Yield the likeliest tokens of the requests that want them, and have no total length."""
        model = self._engine.causal
        if model is None or not model.tokenizer.token_bytes:
            return
        indices = []
        stops: set[str] = set()
        questions = []
        for index, request in enumerate(settings):
            if request.total is not None or not is_greedy(request.settings, self._defaults):
                continue
            indices.append(index)
            stops.update(request.stops)
            stop_bytes = tuple(stop.encode() for stop in request.stops)
            question = Generation(contexts[index], request.limit, stop_bytes, keep_stop=True)
            questions.append(question)
        # A special token has a text and no bytes, so it ends a text by its id.
        ends = set(self._ends)
        for token, added in self._tokenizer.added_tokens_decoder.items():
            if added.special and str(added) in stops:
                ends.add(token)
        model.ends = frozenset(ends)
        for number, scores in answers(model, questions, "generate_until"):
            if scores.is_nan:
                raise ModelError(
                    f"{model.name} returned NaN for {where[indices[number]]}; try dtype=float32"
                )
            yield indices[number], scores.tokens.tolist()

    def _one_by_one(self, context: Ids, request: Settings, repeat: int, text: str) -> list[int]:
        """Return the tokens that the model's code generates, called as in ``HFLM._model_generate``.

        A draw depends on torch's seed, ``text`` and ``repeat`` alone.  Raises UsageError if
        transformers refuses the settings.
        """
        import torch
        from transformers import StoppingCriteria, StoppingCriteriaList

        network = self._engine.network
        rule = self._rule(request.stops)

        class Stop(StoppingCriteria):
            def __call__(self, input_ids: torch.Tensor, scores: Any, **_: Any) -> torch.Tensor:
                stopped = rule.stops(input_ids[0, len(context) :].tolist())
                return torch.full((1,), stopped, dtype=torch.bool, device=input_ids.device)

        # The draw of a text must not depend on the texts before it.
        draw = f"{torch.initial_seed()}|{repeat}|{text}".encode(errors="surrogatepass")
        seed = int.from_bytes(hashlib.sha256(draw).digest()[:8], "little") >> 1
        inputs = torch.from_numpy(context.astype(np.int64))[None].to(network.device)
        devices = []
        if network.device.type == "cuda":
            devices.append(network.device)
        with torch.random.fork_rng(devices), torch.inference_mode():
            torch.manual_seed(seed)
            try:
                output = network.generate(
                    input_ids=inputs,
                    attention_mask=torch.ones_like(inputs),
                    max_length=request.total or len(context) + request.limit,
                    stopping_criteria=StoppingCriteriaList([Stop()]),
                    pad_token_id=self._tokenizer.pad_token_id,
                    use_cache=True,
                    **request.settings,
                )
            except (TypeError, ValueError) as error:
                raise UsageError(f"generation_kwargs {dict(request.settings)}: {error}") from error
        tokens: list[int] = output[0].tolist()
        if network.config.is_encoder_decoder:
            return tokens
        return tokens[len(context) :]

    def _text(self, tokens: Sequence[int], stops: Sequence[str]) -> str:
        """Return the answer in ``tokens``, by the harness's rules."""
        from lm_eval.models.utils import postprocess_generated_text

        end = self._think_end
        end_text = None
        if isinstance(end, str):
            end_text = end
        if isinstance(end, int) and end in tokens:
            thought = len(tokens) - list(reversed(tokens)).index(end)
            tokens = tokens[thought:]
        text = self._tokenizer.decode(tokens, skip_special_tokens=True)
        if isinstance(end, int):
            text = text.lstrip()
        answer: str = postprocess_generated_text(text, list(stops), end_text)
        return answer


LIMITS = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")
"""Names of the token limit, of which the first one counts (``normalize_gen_kwargs``)."""

DEFAULT_LIMIT = 256

GREEDY: Mapping[str, tuple[Any, ...]] = {
    "do_sample": (False,),
    "num_beams": (1,),
    "num_beam_groups": (1,),
    "num_return_sequences": (1,),
    "repetition_penalty": (1, 1.0),
    "encoder_repetition_penalty": (1, 1.0),
    "guidance_scale": (1, 1.0),
    "no_repeat_ngram_size": (0,),
    "encoder_no_repeat_ngram_size": (0,),
    "min_length": (0,),
    "min_new_tokens": (0,),
    "penalty_alpha": (0, 0.0),
}
"""Values of transformers' settings with which it takes the likeliest token."""

WITHOUT_EFFECT = {
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "typical_p",
    "epsilon_cutoff",
    "eta_cutoff",
    "top_h",
    "early_stopping",
    "length_penalty",
    "diversity_penalty",
    "renormalize_logits",
    "remove_invalid_values",
    "use_cache",
    "cache_implementation",
    "cache_config",
    "max_cache_len",
    "return_legacy_cache",
    "low_memory",
    "bos_token_id",
    "pad_token_id",
    "decoder_start_token_id",
    "compile_config",
    "disable_compile",
    "output_attentions",
    "output_hidden_states",
    "output_scores",
    "output_logits",
    "return_dict_in_generate",
    "is_assistant",
    "num_assistant_tokens",
    "num_assistant_tokens_schedule",
    "assistant_confidence_threshold",
    "assistant_lookbehind",
    "target_lookbehind",
    "max_matching_ngram_size",
    "prefill_chunk_size",
    "transformers_version",
    "_from_model_config",
}
"""Settings that change nothing if the likeliest token is taken."""

OVERRULED = ("do_sample", "max_length", "eos_token_id")
"""Defaults of a model without effect: a request always has them, or they end a text."""


class Settings(NamedTuple):
    """Hold the settings of a request.

    ``stops``: texts before which the answer ends.  ``limit``: the most tokens.  ``total``: the most
    tokens of context and answer together, which replaces the limit, or None.  ``settings``: all
    others, for transformers' generation.
    """

    stops: tuple[str, ...]
    limit: int
    total: int | None
    settings: JsonMapping


def read_settings(kwargs: JsonMapping, end: str | None) -> Settings:
    """Read ``generation_kwargs``; ``end``: the text that ends a sequence, and so every answer.

    Source: ``normalize_gen_kwargs`` and ``handle_stop_sequences`` (``lm_eval/models/utils.py``),
    ``_model_generate``.
    """
    settings = dict(kwargs)
    stops = _stops(settings.pop("until", None))
    if end is not None and end not in stops:
        stops.append(end)
    limits = [settings.pop(name, None) for name in LIMITS]
    limit = DEFAULT_LIMIT
    for value in limits:
        if value is not None:
            limit = int(value)
            break
    if limit < 1:
        raise UsageError(f"generation_kwargs: max_gen_toks is {limit}; it must be at least 1")
    total = settings.pop("max_length", None)
    if total is not None:
        total = int(total)
    temperature = float(settings.get("temperature") or 0.0)
    do_sample = settings.get("do_sample")
    if do_sample is None:
        do_sample = temperature > 0
    settings["do_sample"] = bool(do_sample)
    if not do_sample:
        settings.pop("temperature", None)
    elif temperature == 0:
        raise UsageError("generation_kwargs: do_sample needs a temperature above 0")
    return Settings(tuple(stops), limit, total, settings)


def _stops(until: Any) -> list[str]:
    if until is None:
        return []
    if isinstance(until, str):
        return [until]
    if not isinstance(until, list) or not all(isinstance(stop, str) for stop in until):
        raise UsageError(
            f"generation_kwargs: until is {until!r}; it must be a text or a list of texts"
        )
    return list(until)


def is_greedy(settings: JsonMapping, defaults: JsonMapping) -> bool:
    """Return whether transformers takes the likeliest token every time and does nothing else.

    ``settings``: of a request; ``defaults``: the model's ``generation_config.json``, which they
    override.
    """
    merged = {name: value for name, value in defaults.items() if name not in OVERRULED}
    merged.update(settings)
    for name, value in merged.items():
        if value is None or value is False or name in WITHOUT_EFFECT:
            continue
        if value in GREEDY.get(name, ()) or value in ({}, []):
            continue
        # A setting that is new in some release may change the text.
        return False
    return True


class StopRule:
    """Find where the harness's ``hf`` model stops: it looks for a stop in the last tokens alone.

    It looks at as many tokens as the stop has by itself, and two more (``MultiTokenEOSCriteria``,
    ``lm_eval/models/utils_hf.py``).  ``decode``: returns the text of tokens with the special ones.
    """

    def __init__(
        self,
        stops: Sequence[str],
        encode: Callable[[str], Sequence[int]],
        decode: Callable[[Sequence[int]], str],
    ) -> None:
        self._size_of_stop = {stop: len(encode(stop)) + 2 for stop in stops}
        self._decode = decode

    def length(self, tokens: Sequence[int]) -> int | None:
        """Return how many of ``tokens`` are generated, None if generation goes on after them."""
        if not self._holds_stop(tokens):
            return None
        # Nothing shorter than the first text that holds a stop can end with one.
        low = 1
        high = len(tokens)
        while low < high:
            middle = (low + high) // 2
            if self._holds_stop(tokens[:middle]):
                high = middle
            else:
                low = middle + 1
        for count in range(low, len(tokens) + 1):
            if self.stops(tokens[:count]):
                return count
        return None

    def _holds_stop(self, tokens: Sequence[int]) -> bool:
        text = self._decode(tokens)
        return bool(tokens) and any(stop in text for stop in self._size_of_stop)

    def stops(self, tokens: Sequence[int]) -> bool:
        """Return whether it stops after ``tokens``."""
        for stop, size in self._size_of_stop.items():
            if stop in self._decode(tokens[-size:]):
                return True
        return False
