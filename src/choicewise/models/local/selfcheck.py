"""Which way of computing is right for this very model: each is tried on a probe against the plain one."""

from __future__ import annotations

import copy
import os
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch.nn.utils.rnn import pad_sequence

from choicewise.errors import ModelError
from choicewise.models.local import plain
from choicewise.models.local.causal_lm import CausalLM
from choicewise.models.local.ladder import BATCH_TOKENS, LADDER, ComputePath, Rung, rungs
from choicewise.models.local.unpacked_path import PlainPath
from choicewise.models.selfcheck import SelfCheck, Trial
from choicewise.questions.generation import Generation
from choicewise.questions.span import Ids, Span

DEPTH = 128
"""How deep a probe is at least, in tokens, where the window allows."""

BEYOND = 48
"""How far a probe goes beyond the longest sliding window or chunk, in tokens."""

BRANCH = 5
"""Branches and packs of a probe are a fifth of its depth: so a pack must end within the second branch, where what the
next one needs is not what was computed last."""

EXACT = 1e-4
"""Nats by which a score may always differ in float32; ten times that where the measured noise asks for it."""

WIDER = 4
"""How many times as far from float32 as the plain path a way may be in a 16-bit dtype, once it was exact on a float32
copy: the distances of two right ways differ by up to three times in a probe, most where experts are chosen."""

NARROW = 0.5
"""Nats by which a score may differ in a 16-bit dtype where no float32 copy fits beside the model to measure it."""

GENERATED = 3
"""How many tokens a probe generates after its first and its last context."""

LOCAL = ("sliding_window", "attention_chunk_size", "window_size", "attention_window_size", "floor_scale")
"""Names under which configurations say how far a layer looks, or from which depth on it looks otherwise."""

SAMPLED = 4
"""The noise is measured on every fourth span of a probe, as a batch needs the vocabulary at every position of every
sequence, which would take longer than all the rest."""

Sums = list[npt.NDArray[np.float64]]
"""Of every span the log-probability (nats) of its continuation's first token, of its first two, and so on to all: as
many scores to compare as there are tokens."""


@dataclass(frozen=True, slots=True, eq=False)
class _Judge:
    """A model with the right answers to a probe, and how far from them a path may be."""

    lm: CausalLM
    spans: list[Span]
    truth: Sums
    floor: float
    tolerance: float

    def judge(self, name: str, rung: Rung, budget: int) -> Trial:
        """One rung on the probe; whatever goes wrong in a fast path is a reason to take another."""
        path = rung(self.lm, budget)
        if isinstance(path, PlainPath):  # the reference itself: where it differs from itself there is nothing better
            return Trial(name, 0.0, None)
        try:
            difference = max(self._scored(path), self._generated(path))
        except Exception as error:
            return Trial(name, None, f"{type(error).__name__}: {error}".splitlines()[0][:200])
        if not difference <= self.tolerance:
            told = f"differs by {difference:.2g} nats where {self.tolerance:.2g} are allowed"
            return Trial(name, difference, "; ".join(filter(None, [path.objection(), told])))
        return Trial(name, difference, path.objection())

    def _scored(self, path: ComputePath) -> float:
        """The largest difference of a score, in nats; infinity where one is missing or no number."""
        found = [np.full(len(span.continuation), np.nan) for span in self.spans]
        for index, scores in path.score(self.spans):
            found[index] = scores.logprobs.cumsum(dtype=np.float64)
        return _apart(found, self.truth)

    def _generated(self, path: ComputePath) -> float:
        """The largest difference between what a generation says of its tokens and what the plain path says of them."""
        contexts = [span.context for span in self.spans if span.inputs + GENERATED <= self.lm.window]
        prompts = [Generation(context, GENERATED) for context in contexts[:: max(1, len(contexts) - 1)]]
        worst = 0.0
        for index, scores in path.generate(prompts, ()):
            said = plain.score(self.lm.model, self.lm.vocabulary, Span(prompts[index].context, scores.tokens))
            worst = max(worst, float(np.abs(scores.logprobs.astype(np.float64) - said.logprobs).sum()))
        return worst


def check(lm: CausalLM, ladder: Mapping[str, Rung] | None = None) -> SelfCheck:
    """Try the rungs from the fastest down and take the first that agrees with the plain path.

    A 16-bit model is also judged by its float32 copy, where that fits: there a wrong mask can't hide in the noise.
    ``ladder``: the rungs to try, all that suit the device when None.  Raises ModelError when the model does not answer
    with numbers, or when no rung agrees.
    """
    depth = probe_depth(lm)
    judges = _judges(lm, probe(depth, lm.vocabulary))
    trials: list[Trial] = []
    for name, rung in (rungs(lm.device.type) if ladder is None else ladder).items():
        for judge in judges:
            trial = judge.judge(name, rung, max(1, depth // BRANCH))
            if trial.refused is not None:
                break
        trials.append(trial)
        if trial.refused is None and trial.difference is not None:
            cost = "; ".join(filter(None, [rung(lm, 1).cost, _advice(lm, name)]))
            return SelfCheck(name, trial.difference, judge.floor, judge.tolerance, depth, tuple(trials), cost)
    told = "; ".join(f"{trial.rung}: {trial.refused}" for trial in trials)
    raise ModelError(
        f"the model gives other numbers in this way than one sequence at a time ({told}); "
        "choose the rung auto, which takes the fastest that is right"
    )


def _advice(lm: CausalLM, rung: str) -> str:
    """How a model would be faster that is slow for what only its longest sequences need."""
    switch = _switch(lm)
    if rung != "plain" or switch is None or lm.window <= switch:
        return ""
    return f"its positions change once a sequence exceeds {switch} tokens; with --window {switch} it can be faster"


def _judges(lm: CausalLM, spans: list[Span]) -> list[_Judge]:
    """The model itself, behind its float32 copy where it has one."""
    truth = _plain(lm, spans)
    if not np.isfinite(np.concatenate(truth)).all():
        told = "the model answers random tokens with NaN or infinity: its weights are damaged"
        if lm.model.dtype.itemsize >= 4:
            raise ModelError(f"{told}; download them again")
        dtype = str(lm.model.dtype).removeprefix("torch.")
        raise ModelError(f"{told} or too large for {dtype}; try --dtype float32, or download them again")
    wide = _widened(lm)
    if wide is not None:
        judges = _judges(wide, spans)
        floor = _apart(judges[0].truth, truth)
        return [*judges, _Judge(lm, spans, judges[0].truth, floor, max(EXACT, WIDER * floor))]
    # To a model whose positions switch, padding a short sequence makes it a long one.
    some = slice(None, None, SAMPLED) if _switch(lm) is None else slice(0, 2)
    floor = _apart(_padded(lm, spans[some]), truth[some])
    least = EXACT if lm.model.dtype.itemsize >= 4 else NARROW
    return [_Judge(lm, spans, truth, floor, float(np.clip(2 * floor, least, 10 * EXACT if least == EXACT else least)))]


def _widened(lm: CausalLM) -> CausalLM | None:
    """A float32 copy of a 16-bit model, if it takes no more than half of the memory that is free."""
    model = lm.model
    if model.dtype.itemsize >= 4 or getattr(model, "is_quantized", False) or hasattr(model, "hf_device_map"):
        return None
    if lm.device.type == "cuda":
        free = torch.cuda.mem_get_info(lm.device)[0]
    else:
        free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if 4 * model.num_parameters() > free // 2:
        return None
    return CausalLM(copy.deepcopy(model).float(), lm.window, lm.vocabulary)


def _plain(lm: CausalLM, spans: list[Span]) -> Sums:
    return [plain.score(lm.model, lm.vocabulary, span).logprobs.cumsum(dtype=np.float64) for span in spans]


def _apart(left: Sums, right: Sums) -> float:
    """The largest difference, in nats; infinity where one is no number."""
    return float(np.nan_to_num(np.abs(np.concatenate(left) - np.concatenate(right)), nan=np.inf).max())


def choose_path(
    lm: CausalLM, batch_tokens: int | None = None, rung: str | None = None
) -> tuple[ComputePath, SelfCheck]:
    """The fastest path that is right for ``lm``, or the one of that name if it is right, and the check that says so."""
    report = check(lm, None if rung is None else {rung: LADDER[rung]})
    return LADDER[report.rung](lm, batch_tokens or BATCH_TOKENS.get(lm.device.type, BATCH_TOKENS["cpu"])), report


def probe_depth(lm: CausalLM) -> int:
    """Longer than any sliding window or chunk the configuration names, as far as the model's window allows."""
    config = lm.model.config.get_text_config()
    sizes = [getattr(config, name, None) for name in LOCAL] + [_switch(lm)]
    local = max((size for size in sizes if isinstance(size, int)), default=0)
    return min(lm.window, max(DEPTH, local + BEYOND))


def _switch(lm: CausalLM) -> int | None:
    """The length from which rotary positions depend on how long the whole sequence is, where they do."""
    config = lm.model.config.get_text_config()
    rope = getattr(config, "rope_parameters", None) or {}
    for each in (rope, *(kind for kind in rope.values() if isinstance(kind, dict))):  # one for all layers, or by kind
        if each.get("rope_type") == "longrope":
            own = getattr(config, "original_max_position_embeddings", None)
            return each.get("original_max_position_embeddings") or own
        if each.get("rope_type") == "dynamic":
            return config.max_position_embeddings
    return None


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
    spans += [Span(draw(1), draw(depth // BRANCH)), Span(trunk[:9], fork), Span(trunk[:9], draw(1))]
    return [span for span in spans if len(span.context) + len(span.continuation) <= depth + 1]


@torch.inference_mode()
def _padded(lm: CausalLM, spans: list[Span]) -> Sums:
    """The same by the model's own forward on one padded batch of all spans."""
    whole = [torch.from_numpy(np.concatenate([span.context, span.continuation])).long() for span in spans]
    inputs = pad_sequence([sequence[:-1] for sequence in whole], batch_first=True).to(lm.device)
    logits = lm.model(input_ids=inputs, use_cache=False).logits[:, :, : lm.vocabulary]
    sums = []
    for span, sequence, row in zip(spans, whole, logits, strict=True):
        logprobs = torch.log_softmax(row[len(span.context) - 1 : len(sequence) - 1].float(), dim=-1)
        targets = sequence[len(span.context) :, None].to(lm.device)
        sums.append(logprobs.gather(1, targets)[:, 0].double().cumsum(0).cpu().numpy())
    return sums
