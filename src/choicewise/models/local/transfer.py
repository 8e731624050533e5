"""Arrays on their way to the device, without waiting for it."""

from typing import Any

import numpy as np
import numpy.typing as npt
import torch


def to_device(array: npt.NDArray[Any], device: torch.device) -> torch.Tensor:
    """A copy of ``array`` on ``device``, its dtype and shape kept; a CUDA device fetches it while the host goes on."""
    host = torch.from_numpy(np.ascontiguousarray(array))
    return host.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else host.to(device)
