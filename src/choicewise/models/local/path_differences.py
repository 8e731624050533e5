"""By how much common ways to run a model differ on this very model: the noise in every score."""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from choicewise.models.local import plain
from choicewise.models.local.causal_lm import CausalLM
from choicewise.models.local.probe import probe, probe_depth
from choicewise.questions import Ids, Span

NEW_TOKENS = 3
"""Tokens generated to compare generation with a forward pass."""

DTYPES = ("float32", "bfloat16", "float16")

Sums = npt.NDArray[np.float64]
"""The score of every span, in nats."""


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
    truth = _plain(lm.model, lm.vocabulary, spans)
    ways: dict[str, Callable[[], Sums]] = {
        "batch padded on the right": partial(_padded, lm, spans, left=False),
        "batch padded on the left": partial(_padded, lm, spans, left=True),
        "cached context": partial(_cached, lm, spans),
    }
    own = str(lm.model.dtype).removeprefix("torch.")
    ways |= {f"{dtype} in place of {own}": partial(_cast, lm, spans, dtype) for dtype in DTYPES if dtype != own}
    generated = _difference("generate, raw logits", partial(_generated, lm, spans), np.zeros(1))
    return [*(_difference(name, way, truth) for name, way in ways.items()), generated]


def _difference(name: str, way: Callable[[], Sums], truth: Sums) -> PathDifference:
    try:
        differences = np.abs(way() - truth)
    except Exception as error:  # models refuse in every way there is, and that is a result
        return PathDifference(name, None, f"{type(error).__name__}: {error}".splitlines()[0][:200])
    if np.isnan(differences).any():
        return PathDifference(name, None, "the model answers with NaN")
    return PathDifference(name, float(differences.max()))


def _plain(model: Any, vocabulary: int, spans: list[Span]) -> Sums:
    return np.asarray([plain.score(model, vocabulary, span).logprobs.sum(dtype=np.float64) for span in spans])


@torch.inference_mode()
def _padded(lm: CausalLM, spans: list[Span], left: bool) -> Sums:
    """All spans in one batch, padded with a mask; positions count from each sequence's own first token."""
    sequences = [np.concatenate([span.context, span.continuation])[:-1] for span in spans]
    width = max(map(len, sequences))
    tokens, mask = np.zeros((2, len(spans), width), np.int64)
    starts = [width - len(sequence) if left else 0 for sequence in sequences]
    for row, (start, sequence) in enumerate(zip(starts, sequences, strict=True)):
        tokens[row, start : start + len(sequence)], mask[row, start : start + len(sequence)] = sequence, 1
    inputs: dict[str, Any] = {"input_ids": lm.tensor(tokens), "attention_mask": lm.tensor(mask), "use_cache": False}
    if left:
        inputs["position_ids"] = lm.tensor(np.maximum(mask.cumsum(axis=1) - 1, 0))
    logits = lm.model(**inputs).logits[:, :, : lm.vocabulary]
    return np.asarray(
        [
            _total(logits[row, start + len(span.context) - 1 : start + len(sequence)], span.continuation)
            for row, (start, sequence, span) in enumerate(zip(starts, sequences, spans, strict=True))
        ]
    )


@torch.inference_mode()
def _cached(lm: CausalLM, spans: list[Span]) -> Sums:
    """First the context, then the continuation from the state that the model returned for it."""
    sums = []
    for span in spans:
        before = lm.model(input_ids=lm.tensor(span.context)[None], use_cache=True)
        logits = before.logits[0, -1:]
        if len(span.continuation) > 1:
            if getattr(before, "past_key_values", None) is None:
                raise ValueError(f"{type(lm.model).__name__} returns no past_key_values")
            after = lm.tensor(span.continuation[:-1])[None]
            rest = lm.model(input_ids=after, past_key_values=before.past_key_values, use_cache=True)
            logits = torch.cat([logits, rest.logits[0]])
        sums.append(_total(logits[:, : lm.vocabulary], span.continuation))
    return np.asarray(sums)


@torch.inference_mode()
def _generated(lm: CausalLM, spans: list[Span]) -> Sums:
    """The difference between the scores of the tokens in ``generate`` and in one forward pass."""
    context = spans[0].context[: max(1, lm.window - NEW_TOKENS)]
    inputs = lm.tensor(context)[None]
    output = lm.model.generate(
        inputs,
        attention_mask=torch.ones_like(inputs),
        max_new_tokens=NEW_TOKENS,
        do_sample=False,
        return_dict_in_generate=True,
        output_logits=True,
        pad_token_id=0,
    )
    tokens = output.sequences[0, len(context) :].cpu().numpy().astype(np.int32)
    logits = torch.cat(list(output.logits))[:, : lm.vocabulary]
    scores = plain.score(lm.model, lm.vocabulary, Span(context, tokens))
    return np.asarray([_total(logits, tokens) - scores.logprobs.sum(dtype=np.float64)])


def _cast(lm: CausalLM, spans: list[Span], dtype: str) -> Sums:
    return _plain(copy.deepcopy(lm.model).to(getattr(torch, dtype)), lm.vocabulary, spans)


def _total(logits: torch.Tensor, tokens: Ids) -> float:
    """Σ log P of ``tokens`` at rows of ``logits``, in nats, with the softmax in float32."""
    targets = torch.from_numpy(tokens.astype(np.int64))[:, None].to(logits.device)
    return float(torch.log_softmax(logits.float(), dim=-1).gather(1, targets).double().sum())
