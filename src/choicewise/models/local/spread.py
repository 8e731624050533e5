"""One model spread over several GPUs of this machine: whole layers on each, computed one after another.

transformers loads the weights where accelerate places them, and accelerate's hooks move what goes from layer to layer.
Nothing is placed in main memory or on disk, from where every pack would fetch its weights anew.
"""

from pathlib import Path
from typing import Any

import torch

from choicewise.errors import ModelError
from choicewise.models.footprint import Footprint
from choicewise.models.local.float32_copy import free_bytes
from choicewise.models.local.several_devices import devices_of


class Spread:
    """Where the model in ``folder``, of which it is known what is ``needed``, may lie on the devices called ``device``.

    Raises ModelError, with the bytes, where the weights do not fit beside what it takes to compute on each.
    """

    def __init__(self, folder: Path, device: str, needed: Footprint) -> None:
        self._folder, self._device, self._needed = folder, device, needed
        self._free = {place.index: free_bytes(place) for place in map(torch.device, devices_of(device))}
        self._room = {index: max(0, size - needed.workspace) for index, size in self._free.items()}
        if needed.weights > sum(self._room.values()):
            raise self._too_large()

    @property
    def options(self) -> dict[str, Any]:
        """The arguments of ``from_pretrained``."""
        return {"device_map": "auto", "max_memory": {**self._room, "cpu": 0}}

    def refuse_offloaded(self, model: Any) -> None:
        """ModelError where part of ``model`` lies elsewhere: it fits as a whole, but not layer by layer."""
        if {str(place) for place in model.hf_device_map.values()} & {"cpu", "disk"}:
            raise self._too_large()

    def _too_large(self) -> ModelError:
        each = ", ".join(f"{size:,}" for size in self._free.values())
        needed = self._needed
        return ModelError(
            f"{self._folder} does not fit on {self._device}: it has {needed.weights:,} bytes of weights, in layers of "
            f"up to {needed.layer:,}, and takes {needed.workspace:,} on each device to compute; free are "
            f"{sum(self._free.values()):,} ({each}); use more or larger GPUs, a narrower dtype, quantised weights, or "
            "packs of fewer tokens"
        )
