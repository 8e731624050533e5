"""Which compute path is exact on a model, and how far answers may be off: by a probe, and by spot checks of a run."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from choicewise.errors import ModelError
from choicewise.models.local import plain
from choicewise.models.local.causal_lm import (
    CausalLM,
    ComputePath,
    PlainPath,
    Rung,
    state_argument,
    state_of,
)
from choicewise.models.local.plain import (
    SIGMAS,
    Sums,
    copied,
    float32_copy,
    largest_difference,
    noise_of,
    running_sums,
    scaled_errors,
)
from choicewise.models.model import SelfCheck, Trial
from choicewise.questions import Generation, Ids, Mass, Sampling, Span, TokenScores

SHARE = 0.02  # the most that spot checks compute of what a run computes, in input tokens, beyond ``LEAST``
LEAST = 1500  # input tokens of texts that are compared in any case, of runs that have as many

ENOUGH = 2
"""Texts that are compared however long they are.  The last rows of each give some thirty errors: enough to know their
standard deviation within a fifth, where noise is six of them and must hold 99 % of options."""

_CANDIDATES = 16  # texts of one call of ``answer`` that may be compared
_ROWS = 16  # the last rows of a text, at which random tokens are read
EXACT = 1e-4  # nats a token by which a score may always differ in float32; tenfold where the noise asks for it
_ALWAYS = (
    10 * EXACT
)  # nats a token that are always allowed: the most that a self-check in float32 allows
_TOKENS_AFTER = (
    7  # tokens after a text computed in another shape: they change what precedes by rounding alone
)
Scored = Span | Mass | Generation

_WIDER = 4
"""How many times as far from float32 as the plain path a path may be in a 16-bit dtype, once it was exact on a float32
copy: the distances of two right paths differ by up to three times in a probe, most where experts are chosen."""

NARROW = 0.5  # nats by which a score may differ in a 16-bit dtype where no float32 copy fits in memory to measure it
_GENERATED = 3  # how many tokens a probe generates after its first and its last context

_SAMPLED = 4
"""The noise is measured on every fourth span of a probe: a batch needs the vocabulary at every position of every
sequence, which would take longer than all the rest."""

_DISTRIBUTIONS = 64  # that are compared at once, in float64
_NEW_TOKENS = 3  # tokens generated to compare generation with a forward pass
_DTYPES = ("float32", "bfloat16", "float16")
DEPTH = 128  # how deep a probe is at least, in tokens, where the window allows
BEYOND_REACH = 48  # how far a probe goes beyond the longest sliding window or chunk, in tokens
_TOKENS = 32  # tokens of a probe's longest continuations: the noise of a sum grows with its length

BRANCH = 5
"""Branches and packs of a probe are a fifth of its depth: so a pack must end within the second branch, where what the
next one needs is not what was computed last."""

_REACHES = (
    "sliding_window",
    "attention_chunk_size",
    "window_size",
    "attention_window_size",
    "floor_scale",
)
"""Names under which configurations say how far a layer looks, or from which depth on it looks otherwise."""


def check(lm: CausalLM, ladder: Mapping[str, Rung], deepest: int | None = None) -> SelfCheck:
    """Try the rungs from the fastest down and take the first that agrees with the plain path.

    A 16-bit model is also judged by its float32 copy, where that fits in memory: there no noise hides a wrong mask.
    ``ladder``: the rungs to try.  ``deepest``: the most input tokens of anything to be asked, by default as many as the
    window allows.  Raises ModelError when the model answers with NaN or infinity, or when no rung agrees.
    """
    depth = probe_depth(lm, deepest)
    judges = _judges(lm, probe(depth, lm.vocabulary))
    trials: list[Trial] = []
    for name, rung in ladder.items():
        for judge in judges:
            trial, noise = judge.judge(name, rung, max(1, depth // BRANCH))
            if trial.refused is not None:
                break
        trials.append(trial)
        if trial.refused is None and trial.difference is not None:
            cost, switch = rung(lm, 1).cost, _position_switch(lm)
            if (
                name == "plain"
                and switch is not None
                and lm.window > switch
                and (deepest is None or deepest > switch)
            ):
                cost += f"; its positions change once a sequence exceeds {switch} tokens; with a window of {switch} it"
                cost += " can be faster"
            limits = judge.floor, judge.tolerance, max(noise, judge.noise)
            return SelfCheck(name, trial.difference, *limits, depth, tuple(trials), cost)
    refusals = "; ".join(f"{trial.rung}: {trial.refused}" for trial in trials)
    raise ModelError(
        f"the model gives other numbers in this way than one sequence at a time ({refusals}); "
        "choose the rung auto, which takes the fastest that is right"
    )


class SpotCheck:
    """How far answers of ``lm`` are from the plain path, for a 16-bit model that of its float32 copy where one fits.

    ``tokens``: input tokens computed for comparisons.  The run's own answers are compared, so that what is measured is
    what was stored: at the depths of its questions, in its packs.  Beside the scored tokens of a text, tokens drawn at
    random are read at its last rows.  That costs the fast path next to nothing, as the rows are computed anyway, and
    gives enough numbers from few texts.
    """

    def __init__(self, lm: CausalLM) -> None:
        self.lm = lm
        self.tokens = 0
        self._texts = 0
        self._squares = np.zeros(
            (2, 2)
        )  # of options and of drawn tokens: the sum of squared errors, and how many

    @property
    def noise(self) -> float:
        """How far the log-probability of a token may be off, in nats; 0 before the first comparison.

        Of options or of drawn tokens, whichever is more, as a few options tell little.
        """
        total, count = self._squares.T
        return SIGMAS * float(np.sqrt(total / np.maximum(count, 1)).max())

    def texts(self, questions: Sequence[Scored]) -> list[_Text]:
        """Texts of ``questions`` that may be compared: the longest first, then others of all lengths.

        Longer generations only where nothing else is asked: their contexts are computed in a tree of their own.
        """
        scored = [question for question in questions if is_scored(question)] or questions[:ENOUGH]
        options = defaultdict[int, list[Span]](
            list
        )  # choices of one request share the context array
        by_inputs: dict[int, Scored] = {}
        for question in scored:
            longer = isinstance(question, Span) and len(question.continuation) > 1
            place = id(question if longer else question.context)
            by_inputs.setdefault(place, question)
            if isinstance(question, Span):
                options[place].append(question)
        order = sorted(by_inputs, key=lambda place: by_inputs[place].inputs)
        random = np.random.default_rng(len(order))
        most = self.lm.computed + sum(
            question.inputs for question in questions
        )  # shared tokens are counted twice
        texts: list[_Text] = []
        tokens = self.tokens
        for place in order[:: -max(1, len(order) // _CANDIDATES)][:_CANDIDATES]:
            inputs, ending = by_inputs[place].context, options[place]
            if ending:
                inputs = np.concatenate([inputs, ending[0].continuation[:-1]])
            if self._affords(tokens + len(inputs), len(texts), most):
                tokens += len(inputs)
                drawn = random.integers(
                    0, self.lm.vocabulary, min(_ROWS, len(inputs)), dtype=np.int32
                )
                texts.append(_Text(inputs, ending, drawn))
        return texts

    def compare(
        self, texts: Sequence[_Text], answers: Iterable[TokenScores]
    ) -> tuple[float, float] | None:
        """Add the errors of ``answers``, one to each of the spans of ``texts``, to the noise, within the share.

        The difference and what is allowed (nats a token) where an answer is further from the truth than the noise of
        any right way explains; else None.
        """
        remaining, exact = iter(answers), None
        for text in texts:
            sums = [running_sums(answer.logprobs) for answer in islice(remaining, len(text.spans))]
            if not self._affords(self.tokens + len(text.inputs), 0, self.lm.computed):
                continue
            exact = exact or _float32_copy(self.lm) or self.lm
            truth = text.plain_sums(exact)
            self.tokens += len(text.inputs)
            difference = largest_difference(sums, truth)
            if not np.isfinite(difference):
                continue  # what is NaN or infinite here is answered by the plain path
            if difference > _ALWAYS and difference > (allowed := self._allowed(text, truth, exact)):
                return difference, allowed
            self._texts += 1
            own = len(text.options)
            for row, part in enumerate((slice(own), slice(own, None))):
                if sums[part]:
                    errors = scaled_errors(sums[part], truth[part])
                    self._squares[row] += errors @ errors, len(errors)
        return None

    def _affords(self, tokens: int, texts: int, computed: int) -> bool:
        return self._texts + texts < ENOUGH or tokens <= max(LEAST, SHARE * computed)

    def _allowed(self, text: _Text, truth: Sums, exact: CausalLM) -> float:
        """How far an answer about ``text`` may be from the truth, by how far another right way is."""
        if exact is self.lm and self.lm.model.dtype.itemsize < 4:
            return NARROW
        beyond = min(_TOKENS_AFTER, self.lm.window - len(text.inputs)) if exact is self.lm else 0
        return max(_ALWAYS, _WIDER * largest_difference(text.plain_sums(self.lm, beyond), truth))


@dataclass(frozen=True, slots=True)
class PathDifference:
    """``difference``: the largest difference (nats) of a span's score from that of one sequence at a time; None where
    ``failed`` says why the model can't be run that way."""

    path: str
    difference: float | None
    failed: str | None = None


def path_differences(lm: CausalLM) -> list[PathDifference]:
    """Random spans run through ``lm`` in every common way, compared with one sequence at a time, no padding or cache.

    No run uses these ways; they show by how much other tools' numbers may differ.  Another dtype needs memory for a
    copy of the model.
    """
    spans = probe(probe_depth(lm), lm.vocabulary)
    truth = plain_sums(lm.model, lm.vocabulary, spans)
    ways: dict[str, Callable[[], Sums]] = {
        "batch padded on the right": partial(_padded_sums, lm, spans, left=False),
        "batch padded on the left": partial(_padded_sums, lm, spans, left=True),
        "cached context": partial(_cached, lm, spans),
    }
    own = str(lm.model.dtype).removeprefix("torch.")
    ways |= {
        f"{dtype} in place of {own}": partial(_cast, lm, spans, dtype)
        for dtype in _DTYPES
        if dtype != own
    }
    generated = _difference("generate, raw logits", partial(_generated, lm, spans), [np.zeros(1)])
    return [*(_difference(name, way, truth) for name, way in ways.items()), generated]


class TextDivergence(NamedTuple):
    """Of the tokens of a text after its first: how many, Σ KL in nats, and how many have the same likeliest token."""

    tokens: int
    nats: float
    alike: int


@torch.inference_mode()
def text_divergence(left: CausalLM, right: CausalLM, text: Ids) -> TextDivergence:
    """KL(left ‖ right) of the whole next-token distributions after every token of ``text`` but its last.

    Both models, of one vocabulary, compute the text in one plain pass each; the sums are in float64.  ``text``: at
    least two tokens, one more than a window at most.  NaN where a model answers with NaN.
    """
    rows = [plain.logits(lm.model, lm.vocabulary, text[:1], text[1:]) for lm in (left, right)]
    nats, alike = 0.0, 0
    for one, other in zip(*(part.split(_DISTRIBUTIONS) for part in rows), strict=True):
        log_p, log_q = (part.to(one.device).double().log_softmax(dim=-1) for part in (one, other))
        terms = torch.where(log_p.isneginf(), 0.0, log_p.exp() * (log_p - log_q))
        nats += float(terms.sum())
        alike += int((log_p.argmax(dim=-1) == log_q.argmax(dim=-1)).sum())
    return TextDivergence(len(text) - 1, nats, alike)


def probe(depth: int, vocabulary: int) -> list[Span]:
    """Spans of random tokens, the deepest of exactly ``depth`` inputs: a trunk, branches on it and beside it, choices
    that share tokens."""
    random = np.random.default_rng(depth)

    def draw(tokens: int) -> Ids:
        return random.integers(0, vocabulary, max(1, tokens), dtype=np.int32)

    choice = draw(max(4, depth // 32))
    trunk = draw(depth + 1 - max(1, depth // BRANCH) - len(choice))
    deep, beside = (np.concatenate([trunk, draw(depth // BRANCH)]) for _ in range(2))
    fork = np.concatenate([choice[:2], draw(2)])
    spans = [Span(deep, choice), Span(beside, choice), Span(deep, fork), Span(trunk, draw(2))]
    spans += [
        Span(text[: max(1, len(text) - _TOKENS)], draw(_TOKENS))
        for text in (trunk[: depth // 2], trunk, beside)
    ]
    spans += [Span(trunk, draw(1)), Span(draw(1), draw(depth // BRANCH)), Span(trunk[:9], fork)]
    spans.append(Span(trunk[:9], draw(1)))
    return [span for span in spans if len(span.context) + len(span.continuation) <= depth + 1]


def probe_depth(lm: CausalLM, deepest: int | None = None) -> int:
    """Longer than any sliding window or chunk the configuration names, as far as the model's window allows.

    Where nothing has more than ``deepest`` input tokens, it is the next power of two, and not beyond the length from
    which positions change unless something is: what no question reaches can't harm it.
    """
    config = lm.model.config.get_text_config()
    switch = _position_switch(lm)
    sizes = [getattr(config, name, None) for name in _REACHES] + [switch]
    longest = max((size for size in sizes if isinstance(size, int)), default=0)
    depth = max(DEPTH, longest + BEYOND_REACH)
    if deepest is not None:
        depth = min(depth, max(DEPTH, 1 << (deepest - 1).bit_length()))
        depth = min(depth, switch) if switch is not None and deepest <= switch else depth
    return min(lm.window, depth)


class _Text(NamedTuple):
    """Input tokens of a run, the ``options`` that end after them, and a token drawn for each of the last rows."""

    inputs: Ids
    options: Sequence[Span]
    drawn: Ids

    @property
    def spans(self) -> list[Span]:
        """What is compared: the options, then each last row asked for its drawn token."""
        first = len(self.inputs) - len(self.drawn) + 1
        reads = (
            Span(self.inputs[: first + row], self.drawn[row : row + 1])
            for row in range(len(self.drawn))
        )
        return [*self.options, *reads]

    def plain_sums(self, lm: CausalLM, beyond: int = 0) -> Sums:
        """The scores of ``spans`` from one pass over the inputs, with so many tokens after them."""
        rows = max(len(self.drawn), *(len(option.continuation) for option in self.options), 0)
        start = len(self.inputs) - rows + 1
        after = np.append(self.inputs[start:], np.zeros(beyond + 1, dtype=np.int32))
        logits = plain.logits(lm.model, lm.vocabulary, self.inputs[:start], after)[:rows]
        targets = [*(option.continuation for option in self.options), self.drawn]
        *options, drawn = (
            plain.scores(logits[rows - len(tokens) :], tokens).logprobs for tokens in targets
        )
        return [*map(running_sums, options), *drawn[:, None].astype(np.float64)]


def is_scored(question: Scored) -> bool:
    """Whether it is answered from the tree of spans."""
    if not isinstance(question, Generation):
        return True
    return question.limit == 1 and not question.stops and question.sampling is None


def plain_sums(model: Any, vocabulary: int, spans: list[Span]) -> Sums:
    """By the plain reference."""
    return [running_sums(plain.score(model, vocabulary, span).logprobs) for span in spans]


class _Judge(NamedTuple):
    """A model with the right answers to a probe, and how far from them a path may be (nats)."""

    lm: CausalLM
    spans: list[Span]
    truth: Sums
    floor: float
    tolerance: float
    noise: float

    def judge(self, name: str, rung: Rung, budget: int) -> tuple[Trial, float]:
        """One rung on the probe, and its noise; whatever goes wrong in a fast path is a reason to take another."""
        path = rung(self.lm, budget)
        if isinstance(path, PlainPath):  # the reference: there is nothing better
            return Trial(name, 0.0, None), self.noise
        sums = [
            np.full(len(span.continuation), np.nan) for span in self.spans
        ]  # NaN where the path says nothing
        try:
            for index, scores in path.score(self.spans):
                sums[index] = running_sums(scores.logprobs)
            generated, wrong_choice = self._generation_difference(path)
            difference = max(largest_difference(sums, self.truth), generated)
        except Exception as error:
            return Trial(
                name, None, f"{type(error).__name__}: {error}".splitlines()[0][:200]
            ), self.noise
        excess = f"differs by {difference:.2g} nats where {self.tolerance:.2g} are allowed"
        reasons = [path.objection(), wrong_choice, None if difference <= self.tolerance else excess]
        return Trial(name, difference, "; ".join(filter(None, reasons)) or None), noise_of(
            sums, self.truth
        )

    def _generation_difference(self, path: ComputePath) -> tuple[float, str | None]:
        """The largest difference of the scores of generated tokens from the plain path's, and a wrong token, if any.

        That is a token, or a rank, that the plain path's logits do not give within the tolerance.
        """
        longest = (
            self.lm.window
            if _position_switch(self.lm) is None
            else max(span.inputs for span in self.spans)
        )
        contexts = [span.context for span in self.spans if span.inputs + _GENERATED <= longest]
        contexts = contexts[:: max(1, len(contexts) - 1)]
        ways = (None, Sampling(b"probe"))
        generations = [
            Generation(context, _GENERATED, (), way) for context in contexts for way in ways
        ]
        largest, wrong = 0.0, list[str]()
        for index, scores in path.generate(generations, (), [b""] * self.lm.vocabulary):
            asked = generations[index]
            logits = plain.logits(self.lm.model, self.lm.vocabulary, asked.context, scores.tokens)
            truth = plain.scores(logits, scores.tokens).logprobs
            largest = max(
                largest, largest_difference([running_sums(scores.logprobs)], [running_sums(truth)])
            )
            wrong += filter(None, [_choice_objection(asked, scores, logits, 2 * self.tolerance)])
        return largest, wrong[0] if wrong else None


def _judges(lm: CausalLM, spans: list[Span]) -> list[_Judge]:
    """The model itself, after its float32 copy where it has one."""
    with lm.counting():
        truth = plain_sums(lm.model, lm.vocabulary, spans)
    if not np.isfinite(np.concatenate(truth)).all():
        damage = "the model answers random tokens with NaN or infinity: its weights are damaged"
        if lm.model.dtype.itemsize >= 4:
            raise ModelError(f"{damage}; download them again")
        dtype = str(lm.model.dtype).removeprefix("torch.")
        raise ModelError(f"{damage} or too large for {dtype}; try float32, or download them again")
    copied = _float32_copy(lm)
    if copied is not None:
        judges = _judges(copied, spans)
        exact = judges[0].truth
        floor = largest_difference(exact, truth)
        return [
            *judges,
            _Judge(lm, spans, exact, floor, max(EXACT, _WIDER * floor), noise_of(exact, truth)),
        ]
    # To a model whose positions switch, padding a short sequence makes it a long one.
    switch = _position_switch(lm)
    part = (
        slice(None, None, _SAMPLED) if switch is None or spans[0].inputs <= switch else slice(0, 2)
    )
    with lm.counting():
        padded = _padded_sums(lm, spans[part], masked=False)
    floor = largest_difference(padded, truth[part])
    least, most = (EXACT, 10 * EXACT) if lm.model.dtype.itemsize >= 4 else (NARROW, NARROW)
    return [
        _Judge(
            lm,
            spans,
            truth,
            floor,
            float(np.clip(2 * floor, least, most)),
            noise_of(padded, truth[part]),
        )
    ]


def _float32_copy(lm: CausalLM) -> CausalLM | None:
    copied = float32_copy(lm.model)
    return None if copied is None else CausalLM(copied, lm.window, lm.vocabulary, lm.work)


def _difference(name: str, way: Callable[[], Sums], truth: Sums) -> PathDifference:
    try:
        differences = [abs(left[-1] - right[-1]) for left, right in zip(way(), truth, strict=True)]
    except Exception as error:  # models refuse in every way there is, and that is a result
        return PathDifference(name, None, f"{type(error).__name__}: {error}".splitlines()[0][:200])
    if np.isnan(differences).any():
        return PathDifference(name, None, "the model answers with NaN")
    return PathDifference(name, float(max(differences)))


@torch.inference_mode()
def _padded_sums(
    lm: CausalLM, spans: list[Span], *, left: bool = False, masked: bool = True
) -> Sums:
    """By one padded batch of all spans, with a mask or without; positions count from each sequence's first token."""
    sequences = [np.concatenate([span.context, span.continuation])[:-1] for span in spans]
    width = max(map(len, sequences))
    tokens, mask = np.zeros((2, len(spans), width), np.int64)
    rows = [slice(width - len(ids), width) if left else slice(len(ids)) for ids in sequences]
    for index, (row, sequence) in enumerate(zip(rows, sequences, strict=True)):
        tokens[index, row], mask[index, row] = sequence, 1
    inputs = {"attention_mask": lm.tensor(mask)} if masked else {}
    if left:
        inputs["position_ids"] = lm.tensor(np.maximum(mask.cumsum(axis=1) - 1, 0))
    logits = lm.model(input_ids=lm.tensor(tokens), use_cache=False, **inputs).logits[
        :, :, : lm.vocabulary
    ]
    return [
        _sums(part[row][len(span.context) - 1 :], span.continuation)
        for part, row, span in zip(logits, rows, spans, strict=True)
    ]


@torch.inference_mode()
def _cached(lm: CausalLM, spans: list[Span]) -> Sums:
    """First the context, then the continuation from the state that the model returned for it."""
    sums = []
    for span in spans:
        before = lm.model(input_ids=lm.tensor(span.context)[None], use_cache=True)
        logits = before.logits[0, -1:]
        if len(span.continuation) > 1:
            state = state_of(before)
            if state is None:
                raise ValueError(f"{type(lm.model).__name__} returns no cache")
            after = lm.tensor(span.continuation[:-1])[None]
            rest = lm.model(input_ids=after, **{state_argument(lm.model): state}, use_cache=True)
            logits = torch.cat([logits, rest.logits[0]])
        sums.append(_sums(logits[:, : lm.vocabulary], span.continuation))
    return sums


@torch.inference_mode()
def _generated(lm: CausalLM, spans: list[Span]) -> Sums:
    """The difference between the scores of the tokens in ``generate`` and in one forward pass."""
    context = spans[0].context[: max(1, lm.window - _NEW_TOKENS)]
    inputs = lm.tensor(context)[None]
    options = {
        "do_sample": False,
        "return_dict_in_generate": True,
        "output_logits": True,
        "pad_token_id": 0,
    }
    output = lm.model.generate(
        inputs, attention_mask=torch.ones_like(inputs), max_new_tokens=_NEW_TOKENS, **options
    )
    tokens = output.sequences[0, len(context) :].cpu().numpy().astype(np.int32)
    logits = torch.cat(list(output.logits))[:, : lm.vocabulary]
    scores = plain.score(lm.model, lm.vocabulary, Span(context, tokens))
    return [_sums(logits, tokens) - running_sums(scores.logprobs)]


def _cast(lm: CausalLM, spans: list[Span], dtype: str) -> Sums:
    return plain_sums(copied(lm.model).to(getattr(torch, dtype)), lm.vocabulary, spans)


def _sums(logits: torch.Tensor, tokens: Ids) -> npt.NDArray[np.float64]:
    """As in ``Sums``: for ``tokens`` at rows of ``logits``, with the softmax in float32."""
    return running_sums(plain.scores(logits.float(), tokens).logprobs)


def _position_switch(lm: CausalLM) -> int | None:
    """The length from which rotary positions depend on the length of the whole sequence; None where they never do."""
    config = lm.model.config.get_text_config()
    rope = getattr(config, "rope_parameters", None) or {}
    by_layer_kind = (parameters for parameters in rope.values() if isinstance(parameters, dict))
    for parameters in (rope, *by_layer_kind):
        if parameters.get("rope_type") == "longrope":
            own = getattr(config, "original_max_position_embeddings", None)
            return parameters.get("original_max_position_embeddings") or own
        if parameters.get("rope_type") == "dynamic":
            return config.max_position_embeddings
    return None


def _choice_objection(
    generation: Generation, scores: TokenScores, logits: Tensor, slack: float
) -> str | None:
    """Why a token or a rank of ``scores`` can't be right, or None.

    ``logits``: the plain path's after the same tokens; two that differ by at most ``slack`` nats may change places.
    """
    for place, (row, token, rank) in enumerate(
        zip(logits, scores.tokens.tolist(), scores.ranks.tolist(), strict=True)
    ):
        least, most = (
            int((row > row[token] + slack).sum()),
            int((row >= row[token] - slack).sum()) - 1,
        )
        if not least <= rank <= most:
            return f"token {place + 1} of a generation has rank {rank}, not {least} to {most}"
        if generation.sampling is None and least:
            return f"token {place + 1} of a greedy generation is not the likeliest one"
        if generation.sampling is not None:
            shares = row.double().softmax(dim=0)
            above = float(shares[: token + 1].sum())
            error, share = math.expm1(slack), generation.sampling.share(place)
            if not above - float(shares[token]) - error <= share <= above + error:
                return f"token {place + 1} of a sample is not the one to be drawn"
    return None
