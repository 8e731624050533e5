"""The peer: a padded, batched transformers loop, as most evaluation scripts have it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch.nn.utils.rnn import pad_sequence

from choicewise.questions import Span


@torch.inference_mode()
def loop(
    model: torch.nn.Module, spans: list[Span], batch: int
) -> tuple[npt.NDArray[np.float64], int]:
    """Sums of log-probabilities (nats) and the tokens computed, longest sequences first, ``batch`` at a time."""
    device = next(model.parameters()).device
    order = sorted(
        range(len(spans)),
        key=lambda index: -len(spans[index].context) - len(spans[index].continuation),
    )
    sums, tokens = np.empty(len(spans)), 0
    for first in range(0, len(spans), batch):
        part = [spans[index] for index in order[first : first + batch]]
        whole = [
            torch.from_numpy(np.concatenate([span.context, span.continuation])).long()
            for span in part
        ]
        inputs = pad_sequence([sequence[:-1] for sequence in whole], batch_first=True).to(device)
        tokens += inputs.numel()
        logprobs = torch.log_softmax(
            model(input_ids=inputs, use_cache=False).logits, dim=-1, dtype=torch.float32
        )
        for row, (span, sequence) in enumerate(zip(part, whole, strict=True)):
            places = torch.arange(len(span.context) - 1, len(sequence) - 1, device=device)
            targets = sequence[len(span.context) :].to(device)
            sums[order[first + row]] = float(logprobs[row, places, targets].double().sum())
    return sums, tokens
