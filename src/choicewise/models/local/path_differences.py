"""By how much common ways to run a model differ on this very model: the noise in every score."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from choicewise.models.local import plain
from choicewise.models.local.causal_lm import CausalLM
from choicewise.models.local.float32_copy import copied
from choicewise.models.local.probe import probe, probe_depth
from choicewise.models.local.score_noise import Sums
from choicewise.questions import Ids, Span

NEW_TOKENS = 3
"""Tokens generated to compare generation with a forward pass."""

DTYPES = ("float32", "bfloat16", "float16")


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
        "batch padded on the right": partial(padded_sums, lm, spans, left=False),
        "batch padded on the left": partial(padded_sums, lm, spans, left=True),
        "cached context": partial(_cached, lm, spans),
    }
    own = str(lm.model.dtype).removeprefix("torch.")
    ways |= {f"{dtype} in place of {own}": partial(_cast, lm, spans, dtype) for dtype in DTYPES if dtype != own}
    generated = _difference("generate, raw logits", partial(_generated, lm, spans), [np.zeros(1)])
    return [*(_difference(name, way, truth) for name, way in ways.items()), generated]


def _difference(name: str, way: Callable[[], Sums], truth: Sums) -> PathDifference:
    try:
        differences = [abs(left[-1] - right[-1]) for left, right in zip(way(), truth, strict=True)]
    except Exception as error:  # models refuse in every way there is, and that is a result
        return PathDifference(name, None, f"{type(error).__name__}: {error}".splitlines()[0][:200])
    if np.isnan(differences).any():
        return PathDifference(name, None, "the model answers with NaN")
    return PathDifference(name, float(max(differences)))


def plain_sums(model: Any, vocabulary: int, spans: list[Span]) -> Sums:
    """By the plain reference."""
    return [plain.score(model, vocabulary, span).logprobs.cumsum(dtype=np.float64) for span in spans]


@torch.inference_mode()
def padded_sums(lm: CausalLM, spans: list[Span], *, left: bool = False, masked: bool = True) -> Sums:
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
    logits = lm.model(input_ids=lm.tensor(tokens), use_cache=False, **inputs).logits[:, :, : lm.vocabulary]
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
            if getattr(before, "past_key_values", None) is None:
                raise ValueError(f"{type(lm.model).__name__} returns no past_key_values")
            after = lm.tensor(span.continuation[:-1])[None]
            rest = lm.model(input_ids=after, past_key_values=before.past_key_values, use_cache=True)
            logits = torch.cat([logits, rest.logits[0]])
        sums.append(_sums(logits[:, : lm.vocabulary], span.continuation))
    return sums


@torch.inference_mode()
def _generated(lm: CausalLM, spans: list[Span]) -> Sums:
    """The difference between the scores of the tokens in ``generate`` and in one forward pass."""
    context = spans[0].context[: max(1, lm.window - NEW_TOKENS)]
    inputs = lm.tensor(context)[None]
    options = {"do_sample": False, "return_dict_in_generate": True, "output_logits": True, "pad_token_id": 0}
    output = lm.model.generate(inputs, attention_mask=torch.ones_like(inputs), max_new_tokens=NEW_TOKENS, **options)
    tokens = output.sequences[0, len(context) :].cpu().numpy().astype(np.int32)
    logits = torch.cat(list(output.logits))[:, : lm.vocabulary]
    scores = plain.score(lm.model, lm.vocabulary, Span(context, tokens))
    return [_sums(logits, tokens) - scores.logprobs.cumsum(dtype=np.float64)]


def _cast(lm: CausalLM, spans: list[Span], dtype: str) -> Sums:
    return plain_sums(copied(lm.model).to(getattr(torch, dtype)), lm.vocabulary, spans)


def _sums(logits: torch.Tensor, tokens: Ids) -> npt.NDArray[np.float64]:
    """As in ``Sums``: for ``tokens`` at rows of ``logits``, with the softmax in float32."""
    return plain.scores(logits.float(), tokens).logprobs.cumsum(dtype=np.float64)
