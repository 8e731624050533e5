"""Measure by how much a model that vLLM computes differs from plain transformers."""

from __future__ import annotations

from dataclasses import asdict

from choicewise.errors import ModelError
from choicewise.extensions.endpoints.vllm.engine_model import EngineModel
from choicewise.models.model import Model
from choicewise.util.jsonio import JsonDict

_PLAIN_BYTES = 2 << 30
"""Weights in float32 up to which plain transformers on the CPU are held beside vLLM."""


def measure_noise(model: Model) -> tuple[JsonDict, str]:
    """Return the self-check of ``model``, its distance from plain transformers, and vLLM's facts.

    Also return in words what the differences of the self-check are measured from.
    """
    assert isinstance(model, EngineModel)
    check = model.selfcheck
    difference, failed = _from_plain(model)
    path = {
        "path": "plain transformers, float32 on the CPU",
        "difference": difference,
        "failed": failed,
    }
    measured = {
        **asdict(check),
        "noise": max(check.noise, difference or 0.0),
        "paths": [path],
        "vllm": asdict(model.facts),
    }
    origin = (
        "largest difference of a token from prompt log-probabilities, with empty and full cache"
    )
    return measured, origin


def _from_plain(model: EngineModel) -> tuple[float | None, str | None]:
    """Return the largest difference of a token (nats), or why it was not measured."""
    size = 4 * model.parameters
    if size > _PLAIN_BYTES:
        return None, f"{size / 1e9:.0f} GB of weights in float32 are too many to load beside vLLM"
    from choicewise.models.local.folder_model import FolderModel

    spans = model.probe()
    try:
        plain = dict(FolderModel(model.folder, "float32", "cpu", rung="plain").answer(spans))
    except (ImportError, ModelError) as error:
        return None, f"transformers can't load it: {error}"
    ours = dict(model.answer(spans))
    differences = [abs(plain[i].logprobs - ours[i].logprobs).max() for i in range(len(spans))]
    return float(max(differences)), None
