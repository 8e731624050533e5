"""Choose the compute path that is exact on a model, and measure how far answers may be off."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
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
)
from choicewise.models.local.plain import (
    SIGMAS,
    Sums,
    float32_copy,
    largest_difference,
    noise_of,
    running_sums,
    scaled_errors,
)
from choicewise.models.model import SelfCheck, Trial
from choicewise.questions import Generation, Ids, Mass, Sampling, Span, TokenScores

Scored = Span | Mass | Generation

SHARE = 0.02
"""The most input tokens that spot checks compute, of those that a run computes, beyond ``LEAST``."""

FLOAT32_COST = 15
"""Tokens in 16 bits that a GPU with tensor cores computes in the time of one in float32.

Its matrix units multiply 16-bit numbers alone; NVIDIA's H100: 989 and 67 TFLOP/s.
"""

LEAST = 1500
"""Input tokens of texts that are compared in any case, of runs that have as many."""

ENOUGH = 2
"""Texts that are compared however long they are.

The last rows of each give some thirty errors: enough to know their standard deviation within a
fifth, where noise is six of them and must hold 99 % of options.
"""

EXACT = 1e-4
"""Nats a token by which a score may always differ in float32; tenfold if the noise asks for it."""

NARROW = 0.5
"""Nats by which a score may differ in a 16-bit dtype if no float32 copy fits in memory."""

DEPTH = 128
"""Tokens of a probe at least, if the window allows."""

BEYOND_REACH = 48
"""Tokens that a probe goes beyond the longest sliding window or chunk."""

BRANCH = 5
"""Branches and packs of a probe are this part of its depth.

So a pack must end within the second branch, where what the next one needs is not what was computed
last.
"""

_CANDIDATES = 16  # texts of one call of `answer` that may be compared
_ROWS = 16  # the last rows of a text, at which random tokens are read
# Nats a token that are always allowed: the most that a self-check in float32 allows.
_ALWAYS = 10 * EXACT
# Tokens after a text computed in another shape: they change what precedes by rounding alone.
_TOKENS_AFTER = 7
# How many times as far from float32 as the plain path a path may be in a 16-bit dtype, once it was
# exact on a float32 copy: the distances of two right paths differ by up to three times in a probe,
# most if experts are chosen.
_WIDER = 4
_GENERATED = 3  # tokens that a probe generates after its first and its last context
# The noise is measured on every fourth span of a probe: a batch needs the vocabulary at every
# position of every sequence, which would take longer than all the rest.
_SAMPLED = 4
# Tokens of a probe's longest continuations: the noise of a sum grows with its length.
_TOKENS = 32
# Names under which configurations say how far a layer looks, or from which depth on it looks
# otherwise.
_REACHES = (
    "sliding_window",
    "attention_chunk_size",
    "window_size",
    "attention_window_size",
    "floor_scale",
)


def check(lm: CausalLM, ladder: Mapping[str, Rung], deepest: int | None = None) -> SelfCheck:
    """Try the rungs from the fastest down and take the first that agrees with the plain path.

    A 16-bit model is also judged by its float32 copy, if that fits in memory: there no noise hides
    a wrong mask.  ``ladder``: the rungs to try.  ``deepest``: the most input tokens of any
    question, by default as many as the window allows.

    Raises ModelError if the model answers with NaN or infinity, or if no rung agrees.
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
            cost = rung(lm, 1).cost
            if name == "plain":
                cost += _switch_note(lm, deepest)
            return SelfCheck(
                rung=name,
                difference=trial.difference,
                floor=judge.floor,
                tolerance=judge.tolerance,
                noise=max(noise, judge.noise),
                depth=depth,
                trials=tuple(trials),
                cost=cost,
            )
    refusals = "; ".join(f"{trial.rung}: {trial.refused}" for trial in trials)
    raise ModelError(
        f"this rung gives other numbers than one sequence at a time ({refusals}); "
        "use rung auto, the fastest correct one"
    )


def _switch_note(lm: CausalLM, deepest: int | None) -> str:
    """Return how a smaller window can make the model faster, to end a sentence with, or ""."""
    switch = _position_switch(lm)
    if switch is None or lm.window <= switch:
        return ""
    if deepest is not None and deepest <= switch:
        return ""
    return f"; its positions change after {switch} tokens, so a window of {switch} can be faster"


class SpotCheck:
    """Compare answers of a run with the plain path, of a 16-bit model with its float32 copy.

    ``tokens``: input tokens computed for comparisons.  The answers of the run are compared, so that
    what is measured is what was stored: at the depths of its questions, in its packs.  Beside the
    scored tokens of a text, tokens drawn at random are read at its last rows.  That costs the fast
    path next to nothing, as the rows are computed anyway, and gives enough numbers from few texts.
    """

    def __init__(self, lm: CausalLM) -> None:
        self.lm = lm
        self.tokens = 0
        self._texts = 0
        self._copy: CausalLM | None = None
        # Of options and of drawn tokens: the sum of squared errors, and how many there are.
        self._squares = np.zeros((2, 2))

    @property
    def noise(self) -> float:
        """Return how far the log-probability of a token may be off, in nats.

        It is that of options or of drawn tokens, whichever is greater, as a few options tell
        little; 0 before the first comparison.
        """
        total, count = self._squares.T
        return SIGMAS * float(np.sqrt(total / np.maximum(count, 1)).max())

    def texts(self, questions: Sequence[Scored]) -> list[_Text]:
        """Return texts of ``questions`` to compare: the longest first, then others of all lengths.

        Longer generations are compared only if nothing else is: their contexts are computed in a
        tree of their own.
        """
        scored = [question for question in questions if is_scored(question)] or questions[:ENOUGH]
        # Choices of one request share the array of their context.
        options = defaultdict[int, list[Span]](list)
        by_inputs: dict[int, Scored] = {}
        for question in scored:
            key = id(question.context)
            if isinstance(question, Span) and len(question.continuation) > 1:
                key = id(question)
            by_inputs.setdefault(key, question)
            if isinstance(question, Span):
                options[key].append(question)
        order = sorted(by_inputs, key=lambda key: by_inputs[key].inputs)
        random = np.random.default_rng(len(order))
        # Shared tokens are counted twice.
        most = self.lm.computed + sum(question.inputs for question in questions)
        texts: list[_Text] = []
        tokens = self.tokens
        step = max(1, len(order) // _CANDIDATES)
        for key in order[::-step][:_CANDIDATES]:
            inputs = by_inputs[key].context
            if options[key]:
                inputs = np.concatenate([inputs, options[key][0].continuation[:-1]])
            if self._affords(tokens + len(inputs), len(texts), most):
                tokens += len(inputs)
                rows = min(_ROWS, len(inputs))
                drawn = random.integers(0, self.lm.vocabulary, rows, dtype=np.int32)
                texts.append(_Text(inputs, options[key], drawn))
        return texts

    def compare(
        self, texts: Sequence[_Text], answers: Iterable[TokenScores]
    ) -> tuple[float, float] | None:
        """Add the errors of ``answers``, one to each of the spans of ``texts``, to the noise.

        Returns the difference and what is allowed (nats a token) if an answer is further from the
        truth than the noise of any right way explains; else None.
        """
        remaining = iter(answers)
        for text in texts:
            sums = [running_sums(answer.logprobs) for answer in islice(remaining, len(text.spans))]
            if not self._affords(self.tokens + len(text.inputs), 0, self.lm.computed):
                continue
            exact = self._exact()
            truth = text.plain_sums(exact)
            self.tokens += len(text.inputs)
            difference = largest_difference(sums, truth)
            if not np.isfinite(difference):
                # NaN and infinity are answered by the plain path.
                continue
            if difference > _ALWAYS:
                allowed = self._allowed(text, truth, exact)
                if difference > allowed:
                    return difference, allowed
            self._texts += 1
            options = len(text.options)
            self._add_errors(0, sums[:options], truth[:options])
            self._add_errors(1, sums[options:], truth[options:])
        return None

    def _add_errors(self, row: int, sums: Sums, truth: Sums) -> None:
        if sums:
            errors = scaled_errors(sums, truth)
            self._squares[row] += errors @ errors, len(errors)

    def _affords(self, tokens: int, texts: int, computed: int) -> bool:
        share = SHARE
        if self.lm.device.type == "cuda" and self.lm.model.dtype.itemsize < 4:
            share /= FLOAT32_COST
        return self._texts + texts < ENOUGH or tokens <= max(LEAST, share * computed)

    def _exact(self) -> CausalLM:
        """Return the float32 copy, made once a run, or the model if it needs none or none fits."""
        if self._copy is None:
            self._copy = _float32_copy(self.lm) or self.lm
        return self._copy

    def _allowed(self, text: _Text, truth: Sums, exact: CausalLM) -> float:
        """Return how far an answer about ``text`` may be off, by how far another right way is."""
        beyond = 0
        if exact is self.lm:
            if self.lm.model.dtype.itemsize < 4:
                return NARROW
            beyond = min(_TOKENS_AFTER, self.lm.window - len(text.inputs))
        return max(_ALWAYS, _WIDER * largest_difference(text.plain_sums(self.lm, beyond), truth))


def probe(depth: int, vocabulary: int) -> list[Span]:
    """Draw spans of random tokens, the deepest of exactly ``depth`` inputs.

    They are a trunk, branches on it and beside it, and choices that share tokens.
    """
    random = np.random.default_rng(depth)

    def draw(tokens: int) -> Ids:
        return random.integers(0, vocabulary, max(1, tokens), dtype=np.int32)

    choice = draw(max(4, depth // 32))
    trunk = draw(depth + 1 - max(1, depth // BRANCH) - len(choice))
    deep = np.concatenate([trunk, draw(depth // BRANCH)])
    beside = np.concatenate([trunk, draw(depth // BRANCH)])
    fork = np.concatenate([choice[:2], draw(2)])
    spans = [Span(deep, choice), Span(beside, choice), Span(deep, fork), Span(trunk, draw(2))]
    for text in (trunk[: depth // 2], trunk, beside):
        spans.append(Span(text[: max(1, len(text) - _TOKENS)], draw(_TOKENS)))
    spans += [Span(trunk, draw(1)), Span(draw(1), draw(depth // BRANCH)), Span(trunk[:9], fork)]
    spans.append(Span(trunk[:9], draw(1)))
    return [span for span in spans if len(span.context) + len(span.continuation) <= depth + 1]


def probe_depth(lm: CausalLM, deepest: int | None = None) -> int:
    """Return tokens of a probe: more than any sliding window or chunk, as far as the window allows.

    If no question has more than ``deepest`` input tokens, it is the next power of two, and not
    beyond the length from which positions change unless a question is: what no question reaches
    can't harm it.
    """
    config = lm.model.config.get_text_config()
    switch = _position_switch(lm)
    longest = switch or 0
    for name in _REACHES:
        reach = getattr(config, name, None)
        if isinstance(reach, int):
            longest = max(longest, reach)
    depth = max(DEPTH, longest + BEYOND_REACH)
    if deepest is not None:
        depth = min(depth, max(DEPTH, 1 << (deepest - 1).bit_length()))
        if switch is not None and deepest <= switch:
            depth = min(depth, switch)
    return min(lm.window, depth)


class _Text(NamedTuple):
    """Input tokens of a run, the options after them, and a token drawn for each of the last rows."""

    inputs: Ids
    options: Sequence[Span]
    drawn: Ids

    @property
    def spans(self) -> list[Span]:
        """Return what is compared: the options, then the drawn token of each last row."""
        spans = list(self.options)
        first = len(self.inputs) - len(self.drawn) + 1
        for row in range(len(self.drawn)):
            spans.append(Span(self.inputs[: first + row], self.drawn[row : row + 1]))
        return spans

    def plain_sums(self, lm: CausalLM, beyond: int = 0) -> Sums:
        """Return the scores of ``spans`` from one pass over the inputs and so many tokens after."""
        continuations = [option.continuation for option in self.options]
        rows = max(map(len, [self.drawn, *continuations]))
        start = len(self.inputs) - rows + 1
        after = np.append(self.inputs[start:], np.zeros(beyond + 1, dtype=np.int32))
        logits = plain.logits(lm.model, lm.vocabulary, self.inputs[:start], after)[:rows]
        sums = []
        for tokens in continuations:
            scores = plain.scores(logits[rows - len(tokens) :], tokens)
            sums.append(running_sums(scores.logprobs))
        drawn = plain.scores(logits[rows - len(self.drawn) :], self.drawn)
        return [*sums, *drawn.logprobs[:, None].astype(np.float64)]


def is_scored(question: Scored) -> bool:
    """Check that a question is answered from the tree of spans."""
    if not isinstance(question, Generation):
        return True
    return question.limit == 1 and not question.stops and question.sampling is None


def plain_sums(model: Any, vocabulary: int, spans: list[Span]) -> Sums:
    """Score spans by the plain reference."""
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
        """Return the trial of one rung on the probe, and its noise.

        Whatever goes wrong in a fast path is a reason to take another.
        """
        path = rung(self.lm, budget)
        if isinstance(path, PlainPath):
            # The reference: there is nothing better.
            return Trial(name, 0.0, None), self.noise
        # NaN stays if the path says nothing of a span.
        sums = [np.full(len(span.continuation), np.nan) for span in self.spans]
        try:
            for index, scores in path.score(self.spans):
                sums[index] = running_sums(scores.logprobs)
            generated, wrong_choice = self._generation_difference(path)
            difference = max(largest_difference(sums, self.truth), generated)
        except Exception as error:
            return Trial(name, None, first_line(error)), self.noise
        reasons = [path.objection(), wrong_choice]
        if not difference <= self.tolerance:
            reasons.append(f"differs by {difference:.2g} nats ({self.tolerance:.2g} allowed)")
        refused = "; ".join(filter(None, reasons)) or None
        return Trial(name, difference, refused), noise_of(sums, self.truth)

    def _generation_difference(self, path: ComputePath) -> tuple[float, str | None]:
        """Return the largest difference of generated tokens from the plain path, and a wrong token.

        Wrong is a token, or a rank, that the plain path's logits do not give within the tolerance.
        """
        longest = self.lm.window
        if _position_switch(self.lm) is not None:
            longest = max(span.inputs for span in self.spans)
        contexts = [span.context for span in self.spans if span.inputs + _GENERATED <= longest]
        generations = []
        for context in contexts[:: max(1, len(contexts) - 1)]:
            generations.append(Generation(context, _GENERATED, (), None))
            generations.append(Generation(context, _GENERATED, (), Sampling(b"probe")))
        largest = 0.0
        wrong = None
        for index, scores in path.generate(generations, (), [b""] * self.lm.vocabulary):
            generation = generations[index]
            logits = plain.logits(
                self.lm.model, self.lm.vocabulary, generation.context, scores.tokens
            )
            truth = running_sums(plain.scores(logits, scores.tokens).logprobs)
            largest = max(largest, largest_difference([running_sums(scores.logprobs)], [truth]))
            if wrong is None:
                wrong = _choice_objection(generation, scores, logits, 2 * self.tolerance)
        return largest, wrong


def first_line(error: Exception) -> str:
    """Return the type and the first line of an error."""
    return f"{type(error).__name__}: {error}".splitlines()[0][:200]


def _judges(lm: CausalLM, spans: list[Span]) -> list[_Judge]:
    """Return the model as a judge, after its float32 copy if it has one."""
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
        judge = _Judge(
            lm=lm,
            spans=spans,
            truth=exact,
            floor=floor,
            tolerance=max(EXACT, _WIDER * floor),
            noise=noise_of(exact, truth),
        )
        return [*judges, judge]
    # To a model whose positions switch, padding a short sequence makes it a long one.
    switch = _position_switch(lm)
    part = slice(None, None, _SAMPLED)
    if switch is not None and spans[0].inputs > switch:
        part = slice(0, 2)
    with lm.counting():
        padded = padded_sums(lm, spans[part], masked=False)
    floor = largest_difference(padded, truth[part])
    tolerance = NARROW
    if lm.model.dtype.itemsize >= 4:
        tolerance = float(np.clip(2 * floor, EXACT, 10 * EXACT))
    judge = _Judge(
        lm=lm,
        spans=spans,
        truth=truth,
        floor=floor,
        tolerance=tolerance,
        noise=noise_of(padded, truth[part]),
    )
    return [judge]


def _float32_copy(lm: CausalLM) -> CausalLM | None:
    copied = float32_copy(lm.model)
    if copied is None:
        return None
    return CausalLM(copied, lm.window, lm.vocabulary, lm.work)


@torch.inference_mode()
def padded_sums(
    lm: CausalLM, spans: list[Span], *, left: bool = False, masked: bool = True
) -> Sums:
    """Score all spans in one padded batch, with a mask or without.

    Positions count from each sequence's first token.
    """
    sequences = [np.concatenate([span.context, span.continuation])[:-1] for span in spans]
    width = max(map(len, sequences))
    tokens = np.zeros((len(spans), width), np.int64)
    mask = np.zeros_like(tokens)
    rows = []
    for index, sequence in enumerate(sequences):
        start = width - len(sequence) if left else 0
        rows.append(slice(start, start + len(sequence)))
        tokens[index, rows[index]] = sequence
        mask[index, rows[index]] = 1
    inputs = {}
    if masked:
        inputs["attention_mask"] = lm.tensor(mask)
    if left:
        inputs["position_ids"] = lm.tensor(np.maximum(mask.cumsum(axis=1) - 1, 0))
    output = lm.model(input_ids=lm.tensor(tokens), use_cache=False, **inputs)
    sums = []
    for logits, row, span in zip(output.logits, rows, spans, strict=True):
        scored = logits[row, : lm.vocabulary][len(span.context) - 1 :]
        sums.append(sums_at(scored, span.continuation))
    return sums


def sums_at(logits: torch.Tensor, tokens: Ids) -> npt.NDArray[np.float64]:
    """Return the sums of ``tokens`` at rows of ``logits``, with the softmax in float32."""
    return running_sums(plain.scores(logits.float(), tokens).logprobs)


def _position_switch(lm: CausalLM) -> int | None:
    """Return the length from which rotary positions depend on that of the whole sequence, or None."""
    config = lm.model.config.get_text_config()
    rope = getattr(config, "rope_parameters", None) or {}
    # Some configurations have parameters for each kind of layer.
    for parameters in (rope, *rope.values()):
        if not isinstance(parameters, dict):
            continue
        if parameters.get("rope_type") == "longrope":
            of_config: int | None = getattr(config, "original_max_position_embeddings", None)
            return parameters.get("original_max_position_embeddings") or of_config
        if parameters.get("rope_type") == "dynamic":
            return int(config.max_position_embeddings)
    return None


def _choice_objection(
    generation: Generation, scores: TokenScores, logits: Tensor, slack: float
) -> str | None:
    """Return why a token or a rank of ``scores`` can't be right, or None.

    ``logits``: the plain path's after the same tokens; two that differ by at most ``slack`` nats
    may be in either order.
    """
    tokens = scores.tokens.tolist()
    for index, (row, token, rank) in enumerate(
        zip(logits, tokens, scores.ranks.tolist(), strict=True)
    ):
        least = int((row > row[token] + slack).sum())
        most = int((row >= row[token] - slack).sum()) - 1
        if not least <= rank <= most:
            return f"token {index + 1} of a generation has rank {rank}, not {least} to {most}"
        if generation.sampling is None:
            if least:
                return f"token {index + 1} of a greedy generation is not the likeliest one"
            continue
        # A token is drawn if its part of the shares, laid end to end by id, holds the drawn share.
        shares = row.double().softmax(dim=0)
        end = float(shares[: token + 1].sum())
        start = end - float(shares[token])
        error = math.expm1(slack)
        if not start - error <= generation.sampling.share(index) <= end + error:
            return f"token {index + 1} of a sample is not the drawn one"
    return None
