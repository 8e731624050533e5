"""Requests of the harness in our tokens: log-likelihoods as questions of one tree, and generated texts."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np

from choicewise.errors import ModelError, UsageError
from choicewise.extensions.interop.lm_eval.engine import Engine
from choicewise.models.model import Model
from choicewise.questions import Answers, Generation, Ids, Mass, Rendition, Span
from choicewise.running.progress import PeriodicReport, ProgressReport, print_line
from choicewise.tokens.boundary import choice_prompts_batch, cut, fit_span
from choicewise.tokens.byte_coverings import ByteProbability, TokenPrompt, answer_with_bytes
from choicewise.tokens.encode import Encodings
from choicewise.tokens.tokenizer import Tokenizer

SHOWN = 3  # requests that an error names
_TOO_LONG = "its continuation has {} tokens, more than fit (max_length={})"
_MERGED = "the scored tokens do not spell the continuation (boundary=lcp scores all of its text)"
_CUT = "the context is longer than max_length, and its beginning was cut off"


class Request(NamedTuple):
    """A continuation and its context.

    ``where``: what it belongs to, in words.  ``group``: the same for all choices of a question.
    """

    context: str
    continuation: str
    where: str
    group: object = None


class Asked(NamedTuple):
    """What the model is asked for one request: the log-likelihood of ``question``, less ``before``, plus ``after``.

    ``question`` is None where ``missing`` says why nothing can be scored.  ``merged``: the scored tokens do not spell
    the continuation.  ``dropped``: tokens of the context that were cut.
    """

    question: TokenPrompt | None
    missing: str | None = None
    merged: bool = False
    dropped: int = 0
    before: TokenPrompt | None = None
    after: TokenPrompt | None = None


class Score(NamedTuple):
    """The log-likelihood of a continuation (nats), and whether each of its tokens is the likeliest one."""

    total: float
    greedy: bool


def ask_span(context: Ids, continuation: Ids, window: int, merged: bool = False) -> Asked:
    """A continuation in tokens; of both together the last ``window + 1`` tokens are kept, as in the harness."""
    dropped = max(len(context) + len(continuation) - 1 - window, 0)
    if dropped >= len(context):
        return Asked(None, _TOO_LONG.format(len(continuation), window))
    return Asked(
        Span(context[dropped:] if dropped else context, continuation), None, merged, dropped
    )


def ask_rendition(context: Ids, continuation: Ids, window: int) -> Asked:
    """A continuation that the decoder writes; of the context the last ``window`` tokens are kept."""
    if len(continuation) > window:
        return Asked(None, _TOO_LONG.format(len(continuation), window))
    dropped = max(len(context) - window, 0)
    return Asked(Rendition(context[dropped:], continuation), None, False, dropped)


def ask_as_harness(
    encoder: Encoder, requests: Sequence[Request], window: int, renditions: bool
) -> list[Asked]:
    """How each request is asked by the harness's own rules."""
    asked = []
    for pair in encoder.pairs([(request.context, request.continuation) for request in requests]):
        if pair.missing is not None:
            asked.append(Asked(None, pair.missing))
        elif renditions:
            asked.append(ask_rendition(pair.context, pair.continuation, window))
        else:
            asked.append(ask_span(pair.context, pair.continuation, window, pair.merged))
    return asked


def ask_with_boundary(
    encodings: Encodings, policy: str, requests: Sequence[Request], window: int
) -> list[Asked]:
    """How each request is asked with ``policy`` as the boundary (:mod:`choicewise.tokens.boundary`)."""
    order = sorted(
        range(len(requests)),
        key=lambda index: (str(requests[index].group), requests[index].context),
    )
    groups = [
        list(own)
        for _, own in groupby(
            order, key=lambda index: (requests[index].group, requests[index].context)
        )
    ]
    questions = choice_prompts_batch(
        encodings,
        policy,
        [requests[own[0]].context for own in groups],
        [[requests[index].continuation for index in own] for own in groups],
        [() for _ in groups],
    )
    asked: dict[int, Asked] = {}
    for own, choices in zip(groups, questions, strict=True):
        for index, choice in zip(own, choices, strict=True):
            fit = fit_span(choice, window, cut_start=True)
            asked[index] = Asked(
                fit.span, fit.missing, fit.lossy, fit.tokens_dropped, fit.before, fit.after
            )
    return [asked[index] for index in range(len(requests))]


def score(
    model: Model,
    asked: Sequence[Asked],
    where: Callable[[int], str],
    title: str,
    done: Callable[[int, Score], None] = lambda *_: None,
) -> list[Score]:
    """The score of each request; ``done`` hears of each as soon as it is known.

    ``where`` names a request.  Raises ModelError, before anything is computed, where some can't be scored, and in the
    end where some came out as NaN, which the harness would take for the best choice.
    """
    if problems := [
        f"{where(index)}: {each.missing}"
        for index, each in enumerate(asked)
        if each.missing is not None
    ]:
        more = [f"and {len(problems) - SHOWN} more"] if len(problems) > SHOWN else []
        raise ModelError(
            f"{len(problems)} requests can't be scored, and the harness's own model would stop at them, too "
            "(boundary=lcp scores those whose tokens merge)",
            [*problems[:SHOWN], *more],
        )
    for reason, those in (
        (_MERGED, [index for index, each in enumerate(asked) if each.merged]),
        (_CUT, [index for index, each in enumerate(asked) if each.dropped]),
    ):
        if those:
            print_line(
                f"choicewise: {len(those)} of {len(asked)} requests, first {where(those[0])}: {reason}"
            )
    questions: list[TokenPrompt] = []
    parts: list[tuple[int, int]] = []
    for index, each in enumerate(asked):
        for sign, question in ((0, each.question), (-1, each.before), (1, each.after)):
            if question is not None:
                questions.append(question)
                parts.append((index, sign))
    totals, greedy = np.zeros(len(asked)), np.ones(len(asked), dtype=np.bool_)
    remaining = np.bincount([index for index, _ in parts], minlength=len(asked))
    for number, answer in answers(model, questions, title):
        index, sign = parts[number]
        totals[index] += (sign or 1) * answer.logprobs.sum(dtype=np.float64)
        if not sign:
            greedy[index] = not answer.ranks.any()
        remaining[index] -= 1
        if not remaining[index] and not np.isnan(totals[index]):
            done(index, Score(float(totals[index]), bool(greedy[index])))
    if len(lost := np.flatnonzero(np.isnan(totals))):
        raise ModelError(
            f"{model.name} gives no number (NaN) for {len(lost)} of {len(asked)} requests, the first of "
            f"{where(int(lost[0]))}; the harness would take that for the best choice: try dtype=float32"
        )
    return [
        Score(float(total), bool(likeliest))
        for total, likeliest in zip(totals, greedy, strict=True)
    ]


PORTION = 16_000_000  # input tokens of the questions asked at once, at most, before what they share: some gigabyte


def answers(model: Model, questions: Sequence[TokenPrompt], title: str) -> Answers:
    """The answers of ``model``, as they become available; progress with an estimate goes to stderr.

    All questions are one tree of tokens, cut only where that would outgrow memory.
    """
    work = [question.inputs for question in questions]
    total, report = sum(work), ProgressReport(title, computed=lambda: model.computed)
    finished = size = answered = (
        0  # input tokens, counted before what questions share, and questions of a portion
    )
    portion, before = list[int](), (0, 0)

    def counts() -> tuple[int, int]:
        return model.computed or 0, model.planned or 0

    def show() -> None:  # from another thread, too
        computed, planned = (now - start for now, start in zip(counts(), before, strict=True))
        share = min(computed / planned, 1.0) if planned > 0 else answered / max(len(portion), 1)
        report(finished + int(share * size), total)

    with PeriodicReport(show) as periodic:
        for portion in portions(questions, work):
            size, answered, before = sum(work[index] for index in portion), 0, counts()
            report(finished, total)
            scores_of = answer_with_bytes(
                model.answer, [questions[index] for index in portion], model.tokenizer
            )
            for answered, (number, scores) in enumerate(scores_of, 1):  # noqa: B007 (`show` reads it)
                yield portion[number], scores
                periodic.tick()
            finished, size = finished + size, 0
            report(finished, total)


def portions(questions: Sequence[TokenPrompt], work: Sequence[int]) -> Iterator[list[int]]:
    """Indexes of ``questions`` in groups of :data:`PORTION` input tokens at most, those that begin alike together."""
    if sum(work) <= PORTION:
        if questions:
            yield list(range(len(questions)))
        return
    group: list[int] = []
    tokens = 0
    for index in sorted(range(len(questions)), key=lambda place: _start(questions[place])):
        if group and tokens + work[index] > PORTION:
            yield group
            group, tokens = [], 0
        group.append(index)
        tokens += work[index]
    yield group


def _start(question: TokenPrompt) -> bytes:
    """What decides which questions share tokens."""
    match question:
        case Rendition(source):
            return source.tobytes()
        case Span(context) | Generation(context) | Mass(context) | ByteProbability(context):
            return context.tobytes()
    return b""


TOGETHER = 10_000  # pairs of texts that are encoded at once: what they share is encoded once, in little memory


class Pair(NamedTuple):
    """A context and its continuation in tokens.

    ``missing``: why nothing can be scored, or None.  ``merged``: the context's tokens do not begin those of the whole
    text, so that the scored tokens do not spell the continuation.
    """

    context: Ids
    continuation: Ids
    missing: str | None = None
    merged: bool = False


class Encoder:
    """Encodes as the harness's ``hf`` model does.

    ``prefix``: the token after which a text without context is scored; ``prefix_text``: what it decodes to, with which
    a text may begin that then gets nothing added.  ``add_bos``: as ``add_bos_token``.  ``apart``: context and
    continuation are encoded each by itself, as for an encoder-decoder.
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
        self._prefix, self._prefix_text = prefix, prefix_text
        self._special = add_bos is not False
        self._apart = apart

    def texts(
        self, texts: Sequence[str], special: bool | Sequence[bool] | None = None
    ) -> list[Ids]:
        """The tokens of each text, as ``tok_encode``; ``special``: what is added to all, to each, or by the rule."""
        wanted = [self._adds(text) for text in texts] if special is None else special
        if isinstance(wanted, bool):
            wanted = [wanted] * len(texts)
        known: dict[tuple[str, bool], Ids] = {}
        for added in (True, False):
            new = list(
                dict.fromkeys(text for text, own in zip(texts, wanted, strict=True) if own is added)
            )
            encoded = self._tokenizer.encode(new, special=added)
            known.update(((text, added), tokens) for text, tokens in zip(new, encoded, strict=True))
        return [known[pair] for pair in zip(texts, wanted, strict=True)]

    def pairs(self, requests: Sequence[tuple[str, str]]) -> list[Pair]:
        """Each context with its continuation: as ``_encode_pair``, and ``loglikelihood`` for an empty context.

        Equal contexts share one array.
        """
        pairs: list[Pair] = []
        for start in range(0, len(requests), TOGETHER):
            pairs += self._pairs(requests[start : start + TOGETHER])
        return pairs

    def _pairs(self, requests: Sequence[tuple[str, str]]) -> list[Pair]:
        moved = [space_moved(*request) for request in requests]
        alone = [after for before, after in moved if self._apart or not before]
        contexts = [
            before for (given, _), (before, _) in zip(requests, moved, strict=True) if given
        ]
        joined = [
            before + after
            for (given, _), (before, after) in zip(requests, moved, strict=True)
            if given
        ]
        bare = dict(zip(alone, self.texts(alone, special=False), strict=True))
        texts = [*contexts, *([] if self._apart else joined)]
        known = dict(zip(texts, self.texts(texts), strict=True))
        pairs = []
        for (given, _), (before, after) in zip(requests, moved, strict=True):
            if not given:
                pairs.append(self._after_nothing(bare[after], after))
            elif self._apart:
                pairs.append(_checked(known[before], bare[after], after))
            else:
                context, whole = known[before], known[before + after]
                merged = not np.array_equal(whole[: len(context)], context)
                pairs.append(_checked(context, whole[len(context) :].copy(), after, merged))
        return pairs

    def _after_nothing(self, tokens: Ids, text: str) -> Pair:
        if self._prefix is None:
            reason = "its context is empty and the tokenizer names neither a BOS nor an EOS (prefix_token_id names one)"
            return Pair(tokens[:0], tokens, reason)
        if tokens[:1].tolist() == [self._prefix]:
            return _checked(tokens[:1], tokens[1:], text)
        return _checked(np.asarray([self._prefix], dtype=np.int32), tokens, text)

    def _adds(self, text: str) -> bool:
        """Whether ``text`` gets what the tokenizer adds by default."""
        return self._special and (
            self._prefix_text is None or not text.startswith(self._prefix_text)
        )


def space_moved(context: str, continuation: str) -> tuple[str, str]:
    """The white space that ends ``context`` stands before ``continuation`` instead."""
    stripped = context.rstrip()
    return stripped, context[len(stripped) :] + continuation


def _checked(context: Ids, continuation: Ids, text: str, merged: bool = False) -> Pair:
    """The pair, or why it can't be scored: where the harness stops with an assertion."""
    missing = None
    if not len(context):
        missing = "its context is white space, which has no tokens before it"
    elif not len(continuation):
        reason = (
            "its characters merge into the context's last token" if merged else "it has no tokens"
        )
        missing = f"continuation {text!r} leaves nothing to score: {reason}"
    return Pair(context, continuation, missing, merged)


class Generator:
    """Generates what the harness's ``hf`` model generates one text at a time.

    Where an answer is simply the likeliest tokens, all contexts are one tree.  The engine finds stops by their bytes.
    Where the harness, which looks for them in texts, goes on after such a place, and for everything else (sampling,
    beams, penalties), the model's own code generates, one text after the other.
    """

    def __init__(
        self,
        engine: Engine,
        encoder: Encoder,
        add_bos: bool | None = None,
        think_end: str | int | None = None,
    ) -> None:
        self._engine, self._encoder, self._add_bos, self._think_end = (
            engine,
            encoder,
            add_bos,
            think_end,
        )
        self._tokenizer = engine.tokenizer
        eos = self._tokenizer.eos_token_id
        self._end = None if eos is None else self._tokenizer.decode(eos)
        self._own = engine.network.generation_config.to_dict()
        ends = self._own.get("eos_token_id")
        self._ends = frozenset(ends if isinstance(ends, list) else [] if ends is None else [ends])
        encode, decode = self._tokenizer.encode, self._tokenizer.decode
        self._rule = lru_cache(
            lambda stops: StopRule(stops, partial(encode, add_special_tokens=False), decode)
        )

    def answer(
        self,
        requests: Sequence[tuple[str, Mapping[str, Any]]],
        where: Sequence[str],
        done: Callable[[int, str], None] = lambda *_: None,
    ) -> list[str]:
        """The text that answers each (context, ``generation_kwargs``); ``done`` hears of each as soon as it is known.

        ``where`` names the requests.  Raises UsageError for settings that can't be followed, ModelError for a context
        without tokens and for answers of a model that gives NaN.
        """
        wanted = [read_settings(settings, self._end) for _, settings in requests]
        contexts = self._contexts([context for context, _ in requests], wanted, where)
        texts: dict[int, str] = {}

        def finish(index: int, tokens: Sequence[int]) -> None:
            texts[index] = self._text(tokens, wanted[index].stops)
            done(index, texts[index])

        for index, tokens in self._from_tree(contexts, wanted, where):
            length = self._rule(wanted[index].stops).length(tokens)
            if length is not None or len(tokens) == wanted[index].limit or tokens[-1] in self._ends:
                finish(index, tokens[:length])
        rest = [index for index in range(len(requests)) if index not in texts]
        if rest:
            print_line(
                f"choicewise: {len(rest)} of {len(requests)} answers are generated by the model's own code"
            )
        repeats = Counter[str]()
        for index in rest:
            key = "|".join(map(str, requests[index]))
            repeats[key] += 1
            finish(
                index,
                self._plainly(contexts[index], wanted[index], repeats[key], requests[index][0]),
            )
        return [texts[index] for index in range(len(requests))]

    def _contexts(
        self, texts: Sequence[str], wanted: Sequence[Wanted], where: Sequence[str]
    ) -> list[Ids]:
        """The tokens of each context (``tok_batch_encode``), its start cut off where an answer needs the room."""
        start = self._tokenizer.bos_token
        renditions, bos = self._engine.is_encoder_decoder, self._add_bos is not False
        adds = [renditions or (bos and not (start and text.startswith(start))) for text in texts]
        contexts, longer = [], 0
        for encoded, each, name in zip(
            self._encoder.texts(texts, adds), wanted, where, strict=True
        ):
            room = 0 if renditions else each.limit
            if room >= self._engine.window:
                raise UsageError(
                    f"{name}: {each.limit} tokens are to be generated, which leaves no room for a context "
                    f"(max_length={self._engine.window}); pass gen_kwargs with a smaller max_gen_toks"
                )
            tokens, dropped = cut(encoded, self._engine.window - room, start=True)
            if not len(tokens):
                raise ModelError(f"{name}: its context has no tokens to go on from")
            contexts.append(tokens)
            longer += dropped > 0
        if longer:
            print_line(
                f"choicewise: of {longer} of {len(texts)} contexts the beginning was cut off, so that the answer fits"
            )
        return contexts

    def _from_tree(
        self, contexts: Sequence[Ids], wanted: Sequence[Wanted], where: Sequence[str]
    ) -> Iterator[tuple[int, list[int]]]:
        """The likeliest tokens, where nothing else is wanted and no total length."""
        model = self._engine.causal
        if model is None or not model.tokenizer.token_bytes:
            return
        asked = enumerate(wanted)
        chosen = [
            index
            for index, each in asked
            if each.total is None and is_greedy(each.settings, self._own)
        ]
        added = self._tokenizer.added_tokens_decoder
        special = {
            str(each): token for token, each in added.items() if each.special
        }  # a text and no bytes
        stops = {stop for index in chosen for stop in wanted[index].stops}
        model.ends = self._ends | {special[stop] for stop in stops if stop in special}
        questions = [
            Generation(
                contexts[index],
                each.limit,
                tuple(stop.encode() for stop in each.stops),
                keep_stop=True,
            )
            for index, each in ((index, wanted[index]) for index in chosen)
        ]
        for number, scores in answers(model, questions, "generate_until"):
            if scores.is_nan:
                raise ModelError(
                    f"{model.name} gives no number (NaN) for {where[chosen[number]]}; try dtype=float32"
                )
            yield chosen[number], scores.tokens.tolist()

    def _plainly(self, context: Ids, wanted: Wanted, repeat: int, text: str) -> list[int]:
        """The tokens that the model's own code generates after ``context``, as ``HFLM._model_generate`` lets it.

        What is drawn depends on torch's seed, ``text`` and ``repeat`` alone.  Raises UsageError where transformers
        refuses the settings.
        """
        import torch
        from transformers import StoppingCriteria, StoppingCriteriaList

        network, rule = self._engine.network, self._rule(wanted.stops)

        class Stop(StoppingCriteria):
            def __call__(self, input_ids: torch.Tensor, scores: Any, **_: Any) -> torch.Tensor:
                stopped = rule.stops(input_ids[0, len(context) :].tolist())
                return torch.full((1,), stopped, dtype=torch.bool, device=input_ids.device)

        seed = hashlib.sha256(
            f"{torch.initial_seed()}|{repeat}|{text}".encode(errors="surrogatepass")
        ).digest()
        inputs = torch.from_numpy(context.astype(np.int64))[None].to(network.device)
        devices = [network.device] if network.device.type == "cuda" else []
        with torch.random.fork_rng(devices), torch.inference_mode():
            torch.manual_seed(int.from_bytes(seed[:8], "little") >> 1)
            try:
                output = network.generate(
                    input_ids=inputs,
                    attention_mask=torch.ones_like(inputs),
                    max_length=wanted.total or len(context) + wanted.limit,
                    stopping_criteria=StoppingCriteriaList([Stop()]),
                    pad_token_id=self._tokenizer.pad_token_id,
                    use_cache=True,
                    **wanted.settings,
                )
            except (TypeError, ValueError) as error:
                raise UsageError(f"generation_kwargs {dict(wanted.settings)}: {error}") from error
        tokens: list[int] = output[0].tolist()
        return tokens if network.config.is_encoder_decoder else tokens[len(context) :]

    def _text(self, tokens: Sequence[int], stops: Sequence[str]) -> str:
        """What the harness takes as the answer."""
        from lm_eval.models.utils import postprocess_generated_text

        end = self._think_end
        if isinstance(end, int) and end in tokens:
            tokens = tokens[len(tokens) - list(reversed(tokens)).index(end) :]
        text = self._tokenizer.decode(tokens, skip_special_tokens=True)
        answer: str = postprocess_generated_text(
            text.lstrip() if isinstance(end, int) else text,
            list(stops),
            end if isinstance(end, str) else None,
        )
        return answer


LIMITS = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")
"""The names of the most tokens to generate, the first given counts (``normalize_gen_kwargs``)."""

DEFAULT_LIMIT = 256

GREEDY: Mapping[str, tuple[Any, ...]] = {
    "do_sample": (False,),
    **dict.fromkeys(("num_beams", "num_beam_groups", "num_return_sequences"), (1,)),
    **dict.fromkeys(
        ("repetition_penalty", "encoder_repetition_penalty", "guidance_scale"), (1, 1.0)
    ),
    **dict.fromkeys(
        ("no_repeat_ngram_size", "encoder_no_repeat_ngram_size", "min_length", "min_new_tokens"),
        (0,),
    ),
    "penalty_alpha": (0, 0.0),
}
"""Settings of transformers' generation with which it takes the likeliest token; for all others not None see below."""

WITHOUT_EFFECT = {
    *(
        "temperature",
        "top_k",
        "top_p",
        "min_p",
        "typical_p",
        "epsilon_cutoff",
        "eta_cutoff",
        "top_h",
    ),
    *(
        "early_stopping",
        "length_penalty",
        "diversity_penalty",
        "renormalize_logits",
        "remove_invalid_values",
    ),
    *(
        "use_cache",
        "cache_implementation",
        "cache_config",
        "max_cache_len",
        "return_legacy_cache",
        "low_memory",
    ),
    *(
        "bos_token_id",
        "pad_token_id",
        "decoder_start_token_id",
        "compile_config",
        "disable_compile",
    ),
    *(
        "output_attentions",
        "output_hidden_states",
        "output_scores",
        "output_logits",
        "return_dict_in_generate",
    ),
    *(
        "is_assistant",
        "num_assistant_tokens",
        "num_assistant_tokens_schedule",
        "assistant_confidence_threshold",
    ),
    *("assistant_lookbehind", "target_lookbehind", "max_matching_ngram_size", "prefill_chunk_size"),
    *("transformers_version", "_from_model_config"),
}
"""Settings that change nothing where the likeliest token is taken."""

OVERRULED = (
    "do_sample",
    "max_length",
    "eos_token_id",
)  # a request always states them, or they end a text


class Wanted(NamedTuple):
    """What one request asks for.

    ``stops``: texts before which the answer ends.  ``limit``: the most tokens; with ``total``, of context and answer
    together, whatever the limit.  ``settings``: everything else, for transformers' own generation.
    """

    stops: tuple[str, ...]
    limit: int
    total: int | None
    settings: Mapping[str, Any]


def read_settings(given: Mapping[str, Any], end: str | None) -> Wanted:
    """What ``generation_kwargs`` ask for; ``end``, the text of the end of a sequence, stops every answer.

    Source: ``normalize_gen_kwargs`` and ``handle_stop_sequences`` (``lm_eval/models/utils.py``), ``_model_generate``.
    """
    settings = dict(given)
    until = settings.pop("until", None)
    stops = [until] if isinstance(until, str) else [] if until is None else until
    if not isinstance(stops, list) or not all(isinstance(stop, str) for stop in stops):
        raise UsageError(
            f"generation_kwargs: until is {until!r}; it must be a text or a list of texts"
        )
    limits = [value for name in LIMITS if (value := settings.pop(name, None)) is not None]
    limit = int(limits[0]) if limits else DEFAULT_LIMIT
    if limit < 1:
        raise UsageError(
            f"generation_kwargs: {limit} tokens can't be generated; max_gen_toks must be at least 1"
        )
    total = settings.pop("max_length", None)
    temperature = float(settings.get("temperature") or 0.0)
    sample = settings.get("do_sample")
    settings["do_sample"] = temperature > 0 if sample is None else bool(sample)
    if not settings["do_sample"]:
        settings.pop("temperature", None)
    elif temperature == 0:
        raise UsageError("generation_kwargs: do_sample needs a temperature above 0")
    last = [] if end is None or end in stops else [end]
    return Wanted((*stops, *last), limit, None if total is None else int(total), settings)


def is_greedy(settings: Mapping[str, Any], own: Mapping[str, Any]) -> bool:
    """Whether transformers takes the likeliest token after every other and does nothing else.

    ``settings``: those of a request; ``own``: those of the model's ``generation_config.json``, which they override.
    """
    every = {name: value for name, value in own.items() if name not in OVERRULED} | dict(settings)
    return all(
        value is None
        or name in WITHOUT_EFFECT
        or value in GREEDY.get(name, ())
        or value is False
        or value in ({}, [])
        for name, value in every.items()
    )


class StopRule:
    """When the harness's ``hf`` model stops: each stop is looked for in the text of the last tokens alone.

    So many tokens as the stop has by itself, and two more (``MultiTokenEOSCriteria``, ``lm_eval/models/utils_hf.py``).
    ``decode``: the text of tokens, special ones included.
    """

    def __init__(
        self,
        stops: Sequence[str],
        encode: Callable[[str], Sequence[int]],
        decode: Callable[[Sequence[int]], str],
    ) -> None:
        self._looked_back = [(stop, len(encode(stop)) + 2) for stop in stops]
        self._decode = decode

    def length(self, tokens: Sequence[int]) -> int | None:
        """How many of ``tokens`` are generated before it stops; None where it goes on after them."""
        if not self._within(tokens):
            return None
        low, high = 1, len(tokens)
        while low < high:  # nothing shorter than the first text that holds a stop can end with one
            middle = (low + high) // 2
            low, high = (low, middle) if self._within(tokens[:middle]) else (middle + 1, high)
        return next(
            (count for count in range(low, len(tokens) + 1) if self.stops(tokens[:count])), None
        )

    def _within(self, tokens: Sequence[int]) -> bool:
        text = self._decode(tokens)
        return bool(tokens) and any(stop in text for stop, _ in self._looked_back)

    def stops(self, tokens: Sequence[int]) -> bool:
        """Whether it stops after ``tokens``."""
        return any(stop in self._decode(tokens[-size:]) for stop, size in self._looked_back)
