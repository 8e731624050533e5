"""Which way of computing is right for this very model: each is tried on a probe against the plain one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.nn.utils.rnn import pad_sequence

from choicewise.engine.span import Ids, Span
from choicewise.errors import ModelError
from choicewise.models import plain
from choicewise.models.causal import CausalLM
from choicewise.models.ladder import BATCH_TOKENS, LADDER, Path, Rung

DEPTH = 200
"""How deep a probe is at least, in tokens, where the window allows."""

BEYOND = 48
"""How far a probe goes beyond the longest sliding window or chunk, in tokens."""

EXACT = 1e-4
"""Nats by which a score may differ in float32, whatever the measured noise."""

LOCAL = ("sliding_window", "attention_chunk_size", "window_size", "attention_window_size")
"""Names under which configurations say how far a layer looks."""

Sums = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Trial:
    """One rung tried: the largest difference (nats per span) from the plain path, and why it was refused, if it was."""

    rung: str
    difference: float | None
    refused: str | None


@dataclass(frozen=True, slots=True)
class SelfCheck:
    """The rung taken, and what was measured on the way.

    ``floor``: how much the plain path differs from itself when sequences are padded into one batch, and ``tolerance``:
    what a rung may differ, both in nats per span.  ``depth``: the probe's longest sequence, in tokens.
    """

    rung: str
    difference: float
    floor: float
    tolerance: float
    depth: int
    trials: tuple[Trial, ...]


def check(lm: CausalLM, ladder: Mapping[str, Rung] = LADDER) -> SelfCheck:
    """Try the rungs from the fastest down and take the first that agrees with the plain path.

    Raises ModelError when the model does not answer with numbers, or when not even the last rung agrees.
    """
    depth = probe_depth(lm)
    spans = probe(depth, lm.vocabulary)
    truth = np.asarray([plain.score(lm.model, lm.vocabulary, span).logprobs.sum(dtype=np.float64) for span in spans])
    if not np.isfinite(truth).all():
        raise ModelError(
            f"the model answers {lm.vocabulary} random tokens with NaN or infinity: "
            "its weights are damaged or too large for this dtype; try --dtype float32 or download them again"
        )
    floor = float(np.abs(_padded(lm, spans) - truth).max())
    tolerance = max(EXACT, 2 * floor)
    trials: list[Trial] = []
    for name, rung in ladder.items():
        trial = _try(name, rung(lm, depth // 3), spans, truth, tolerance)
        trials.append(trial)
        if trial.refused is None and trial.difference is not None:
            return SelfCheck(name, trial.difference, floor, tolerance, depth, tuple(trials))
    told = "; ".join(f"{trial.rung}: {trial.refused}" for trial in trials)
    raise ModelError(f"no way of computing agrees with the model run one sequence at a time ({told})")


def choose_path(lm: CausalLM, batch_tokens: int | None = None, rung: str | None = None) -> tuple[Path, SelfCheck]:
    """The fastest path that is right for ``lm``, or the one of that name if it is right, and the check that says so."""
    report = check(lm, LADDER if rung is None else {rung: LADDER[rung]})
    return LADDER[report.rung](lm, batch_tokens or BATCH_TOKENS.get(lm.device.type, BATCH_TOKENS["cpu"])), report


def probe_depth(lm: CausalLM) -> int:
    """Longer than any sliding window or chunk the configuration names, as far as the model's window allows."""
    config = lm.model.config.get_text_config()
    sizes = [getattr(config, name, None) for name in LOCAL] + [_stretched(config)]
    local = max((size for size in sizes if isinstance(size, int)), default=0)
    return min(lm.window, max(DEPTH, local + BEYOND))


def _stretched(config: Any) -> int | None:
    """The length from which rotary positions depend on how long the whole sequence is, where they do."""
    rope = getattr(config, "rope_parameters", None) or {}
    if rope.get("rope_type") == "longrope":
        return rope.get("original_max_position_embeddings") or getattr(config, "original_max_position_embeddings", None)
    return config.max_position_embeddings if rope.get("rope_type") == "dynamic" else None


def probe(depth: int, vocabulary: int) -> list[Span]:
    """Spans of random tokens up to ``depth`` deep: a trunk, branches on it and beside it, choices that share tokens."""
    random = np.random.default_rng(depth)

    def draw(tokens: int) -> Ids:
        return random.integers(0, vocabulary, max(1, tokens), dtype=np.int32)

    trunk = draw(depth - depth // 5)
    spans = []
    for context in (np.concatenate([trunk, draw(depth // 8)]), np.concatenate([trunk, draw(depth // 16)]), trunk[:9]):
        choice = draw(depth // 32)
        spans += [Span(context, choice), Span(context, draw(1)), Span(context, np.concatenate([choice[:2], draw(2)]))]
    return [*spans, Span(draw(1), draw(depth // 5)), Span(draw(depth // 4), draw(3)), Span(trunk, draw(2))]


@torch.inference_mode()
def _padded(lm: CausalLM, spans: list[Span]) -> Sums:
    """The sum of log-probabilities (nats) of every span by the model's own forward on one padded batch of them all."""
    whole = [torch.from_numpy(np.concatenate([span.context, span.continuation])).long() for span in spans]
    inputs = pad_sequence([sequence[:-1] for sequence in whole], batch_first=True).to(lm.device)
    logits = lm.model(input_ids=inputs, use_cache=False).logits[:, :, : lm.vocabulary]
    sums = []
    for span, sequence, row in zip(spans, whole, logits, strict=True):
        logprobs = torch.log_softmax(row[len(span.context) - 1 : len(sequence) - 1].float(), dim=-1)
        targets = sequence[len(span.context) :, None].to(lm.device)
        sums.append(float(logprobs.gather(1, targets).double().sum()))
    return np.asarray(sums)


def _try(name: str, path: Path, spans: list[Span], truth: Sums, tolerance: float) -> Trial:
    """One rung on the probe; whatever goes wrong in a fast path is a reason to take another."""
    found = np.full(len(spans), np.nan)
    try:
        for index, scores in path.score(spans):
            found[index] = scores.logprobs.sum(dtype=np.float64)
    except Exception as error:
        return Trial(name, None, f"{type(error).__name__}: {error}".splitlines()[0][:200])
    difference = float(np.abs(found - truth).max())
    if not difference <= tolerance:
        told = f"differs by {difference:.2g} nats where {tolerance:.2g} are allowed"
        return Trial(name, difference, "; ".join(filter(None, [path.objection(), told])))
    return Trial(name, difference, path.objection())
