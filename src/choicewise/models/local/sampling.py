"""Sampling with the model's own cache: :func:`choicewise.models.local.plain.sample`, every token computed once."""

from collections.abc import Collection, Sequence
from inspect import signature
from typing import Any

import numpy as np
import torch

from choicewise.models.local import plain
from choicewise.questions import Generation, Span, TokenScores


@torch.inference_mode()
def sample(
    model: Any, vocabulary: int, generation: Generation, ends: Collection[int], token_bytes: Sequence[bytes]
) -> TokenScores:
    """The tokens of a sampled ``generation``; the plain way where the model keeps no keys and values, or wrong ones.

    That shows in one more pass over all tokens, which costs little beside a pass for each of them.
    """
    assert generation.sampling is not None
    inputs = torch.from_numpy(generation.context.astype(np.int64))[None].to(model.device)
    tokens: list[int] = []
    logprobs: list[float] = []
    ranks: list[int] = []
    past = None
    last = {"logits_to_keep": 1} if "logits_to_keep" in signature(model.forward).parameters else {}
    while len(tokens) < generation.limit:
        output = model(input_ids=inputs, past_key_values=past, use_cache=True, **last)
        past = getattr(output, "past_key_values", None)
        if past is None:
            return plain.sample(model, vocabulary, generation, ends, token_bytes)
        row = output.logits[0, -1, :vocabulary].float().cpu()
        token = generation.sampling.draw(row[: len(token_bytes)].double().softmax(0).numpy(), len(tokens))
        if token in ends or generation.stopped([*tokens, token], token_bytes):
            break
        tokens.append(token)
        logprobs.append(float(row.log_softmax(0)[token]))
        ranks.append(-1 if np.isnan(logprobs[-1]) else int((row > row[token]).sum()))
        inputs = inputs.new_tensor([[token]])
    scores = TokenScores.of(tokens, logprobs, ranks)
    if tokens:
        reference = plain.score(model, vocabulary, Span(generation.context, scores.tokens))
        if not _agree(scores, reference, model.dtype):
            return plain.sample(model, vocabulary, generation, ends, token_bytes)
    return scores


def _agree(scores: TokenScores, reference: TokenScores, dtype: torch.dtype) -> bool:
    """Whether log-probabilities differ by no more than rounding; NaN in both agrees."""
    tolerance = max(1e-3, 64 * torch.finfo(dtype).eps)
    return bool(np.allclose(scores.logprobs, reference.logprobs, rtol=0.01, atol=tolerance, equal_nan=True))
