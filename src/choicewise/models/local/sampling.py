"""Sampling with the model's own cache: :func:`choicewise.models.local.plain.sample`, every token computed once."""

from collections.abc import Collection, Sequence
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
    parts = [TokenScores.of()]
    past, last = None, plain.last_rows(model, 1)
    while len(tokens) < generation.limit:
        output = model(input_ids=inputs, past_key_values=past, use_cache=True, **last)
        past = getattr(output, "past_key_values", None)
        if past is None:
            return plain.sample(model, vocabulary, generation, ends, token_bytes)
        row = output.logits[0, -1:, :vocabulary].float().cpu()
        token = generation.sampling.draw(row[0, : len(token_bytes)].double().softmax(0).numpy(), len(tokens))
        if token in ends or generation.stopped([*tokens, token], token_bytes):
            break
        tokens.append(token)
        parts.append(plain.scores(row, np.asarray([token], dtype=np.int32)))
        inputs = inputs.new_tensor([[token]])
    scores = TokenScores.joined(parts)
    if tokens:
        reference = plain.score(model, vocabulary, Span(generation.context, scores.tokens)).logprobs
        rounding = max(1e-3, 64 * torch.finfo(model.dtype).eps)
        if not np.allclose(scores.logprobs, reference, rtol=0.01, atol=rounding, equal_nan=True):
            return plain.sample(model, vocabulary, generation, ends, token_bytes)
    return scores
