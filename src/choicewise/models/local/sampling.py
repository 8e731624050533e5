"""Sampling with the model's own cache: :func:`choicewise.models.local.plain.sample`, every token computed once."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from inspect import signature
from typing import Any

import numpy as np
import torch

from choicewise.models.local import plain
from choicewise.questions.generation import Generation
from choicewise.questions.span import Span
from choicewise.questions.token_scores import TokenScores


@torch.inference_mode()
def sample(
    model: Any, vocabulary: int, chain: Generation, ends: Collection[int], token_bytes: Sequence[bytes]
) -> TokenScores:
    """The tokens of ``chain``; left to the plain way where the model keeps no keys and values, or wrong ones.

    That shows in one more pass over the whole chain, which costs little beside a pass for each of its tokens.
    """
    inputs = torch.from_numpy(chain.context.astype(np.int64))[None].to(model.device)
    tokens: list[int] = []
    logprobs: list[float] = []
    ranks: list[int] = []
    past = None
    last = {"logits_to_keep": 1} if "logits_to_keep" in signature(model.forward).parameters else {}
    while len(tokens) < chain.limit:
        found = model(input_ids=inputs, past_key_values=past, use_cache=True, **last)
        past = getattr(found, "past_key_values", None)
        if past is None:
            return plain.sample(model, vocabulary, chain, ends, token_bytes)
        row = found.logits[0, -1, :vocabulary].float().cpu()
        token = chain.sampled.draw(row[: len(token_bytes)].double().softmax(0).numpy(), len(tokens))
        if token in ends or chain.stopped([*tokens, token], token_bytes):
            break
        tokens.append(token)
        logprobs.append(float(row.log_softmax(0)[token]))
        ranks.append(-1 if np.isnan(logprobs[-1]) else int((row > row[token]).sum()))
        inputs = inputs.new_tensor([[token]])
    seen = TokenScores(
        np.asarray(tokens, dtype=np.int32), np.asarray(logprobs, dtype=np.float32), np.asarray(ranks, dtype=np.int32)
    )
    if tokens and not _agree(seen, plain.score(model, vocabulary, Span(chain.context, seen.tokens)), model.dtype):
        return plain.sample(model, vocabulary, chain, ends, token_bytes)
    return seen


def _agree(one: TokenScores, other: TokenScores, dtype: torch.dtype) -> bool:
    """Whether two ways of computing the same differ by no more than rounding; what is NaN in both agrees."""
    tolerance = max(1e-3, 64 * torch.finfo(dtype).eps)
    return bool(np.allclose(one.logprobs, other.logprobs, rtol=0.01, atol=tolerance, equal_nan=True))
