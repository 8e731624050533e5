"""A copy of a 16-bit model in which no noise hides a wrong computation."""

import copy
import os
from collections import Counter
from typing import Any

import torch

_MOVING = ("to", "cuda", "npu", "mlu", "sdaa", "musa", "xpu", "neuron")
"""What accelerate puts into a model that it spreads over devices: each moves the model that it was made for."""


def float32_copy(model: Any) -> Any | None:
    """A float32 copy of a 16-bit transformers ``model``, if it takes no more than half of each device's free memory."""
    if model.dtype.itemsize >= 4 or getattr(model, "is_quantized", False):
        return None
    needed = Counter[torch.device]()
    for parameter in model.parameters():
        needed[parameter.device] += 4 * parameter.numel()
    fits = all(size <= free_bytes(device) // 2 for device, size in needed.items())
    return copied(model).float() if fits else None


def copied(model: Any) -> Any:
    """A copy of a transformers ``model`` on the same devices, which is moved and converted by itself."""
    other = copy.deepcopy(model)
    for name in _MOVING:
        other.__dict__.pop(name, None)
    return other


def free_bytes(device: torch.device) -> int:
    """The memory that nobody uses now."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
