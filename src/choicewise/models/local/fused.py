"""Compile the layers of a network and its read-out, which pays on a GPU in a long run.

Its elementwise operations then move about 100 KB a token and layer instead of 279, as counted on a
model of 1 billion parameters, and its logits are read without a copy of them in float32.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from transformers import AttentionInterface, PreTrainedModel
from transformers.modeling_layers import GradientCheckpointingLayer

from choicewise.models.local.devices import ranks
from choicewise.models.local.plain import ScoreTokens, score_tokens

AFTER = {"cuda": 1_000_000}
"""Input tokens of a run after which its layers are compiled: compiling takes tens of seconds."""

BACKEND = "inductor"
"""The compiler of torch.compile."""


class FusedLayers:
    """The decoder layers of ``model``, compiled for packs of any size at their first use.

    ``attention``: the name of the attention function, which is left out of the graphs.
    """

    def __init__(self, model: PreTrainedModel, attention: str) -> None:
        # What a pack attends to changes with the pack, and its kernels are fused already.
        uncompiled = torch.compiler.disable(AttentionInterface()[attention])
        AttentionInterface.register(attention, uncompiled)
        self._layers = _decoder_layers(model)
        self._compiled = []
        for layer in self._layers:
            compiled = torch.compile(layer._call_impl, dynamic=True, backend=BACKEND)
            self._compiled.append(compiled)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Compute with the compiled layers; the plain reference goes on without."""
        for layer, compiled in zip(self._layers, self._compiled, strict=True):
            layer._compiled_call_impl = compiled
        try:
            yield
        finally:
            for layer in self._layers:
                layer._compiled_call_impl = None


def compiled_score_tokens() -> ScoreTokens:
    """Return :func:`~choicewise.models.local.plain.score_tokens`, compiled at its first use."""
    return torch.compile(score_tokens, dynamic=True, backend=BACKEND)


def can_fuse(model: PreTrainedModel) -> bool:
    """Check that ``model`` has layers that can be compiled: floats, all on one device."""
    devices = {parameter.device for parameter in model.parameters()}
    is_plain = getattr(model, "hf_quantizer", None) is None
    return len(devices) == 1 and ranks() == 1 and is_plain and bool(_decoder_layers(model))


def _decoder_layers(model: PreTrainedModel) -> list[torch.nn.Module]:
    return [part for part in model.modules() if isinstance(part, GradientCheckpointingLayer)]
