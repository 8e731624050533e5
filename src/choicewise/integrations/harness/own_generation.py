"""Generation by the model's own code in transformers, one text at a time: what is not simply the likeliest tokens."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from choicewise.errors import UsageError
from choicewise.integrations.harness.generation import StopRule
from choicewise.questions import Ids


def generate(
    network: Any, context: Ids, longest: int, rule: StopRule, settings: Mapping[str, Any], pad: int | None, seed: bytes
) -> list[int]:
    """The tokens that ``network`` generates after ``context``, as ``HFLM._model_generate`` lets it.

    ``longest``: tokens of context and answer at most.  What is drawn depends on ``seed`` alone.  Raises UsageError
    where transformers refuses the ``settings``.
    """
    import torch
    from transformers import StoppingCriteria, StoppingCriteriaList

    class Stop(StoppingCriteria):
        def __call__(self, input_ids: torch.Tensor, scores: Any, **_: Any) -> torch.Tensor:
            stopped = rule.stops(input_ids[0, len(context) :].tolist())
            return torch.full((1,), stopped, dtype=torch.bool, device=input_ids.device)

    inputs = torch.from_numpy(context.astype(np.int64))[None].to(network.device)
    devices = [network.device] if network.device.type == "cuda" else []
    with torch.random.fork_rng(devices), torch.inference_mode():
        torch.manual_seed(int.from_bytes(hashlib.sha256(seed).digest()[:8], "little") >> 1)
        try:
            output = network.generate(
                input_ids=inputs,
                attention_mask=torch.ones_like(inputs),
                max_length=longest,
                stopping_criteria=StoppingCriteriaList([Stop()]),
                pad_token_id=pad,
                use_cache=True,
                **settings,
            )
        except (TypeError, ValueError) as error:
            raise UsageError(f"generation_kwargs {dict(settings)}: {error}") from error
    tokens: list[int] = output[0].tolist()
    return tokens if network.config.is_encoder_decoder else tokens[len(context) :]
