"""Where a model computes; torch is imported only where that takes it to know."""

import sys
from pathlib import Path

from choicewise.errors import ModelError
from choicewise.models.local.several_devices import AUTO, devices_of, refuse_without_accelerate, several

DRIVERS = ("/dev/nvidia0", "/dev/nvidiactl", "/proc/driver/nvidia", "/dev/dxg", "/dev/kfd")
"""What exists on a Linux machine with a device that torch calls CUDA."""


def device_of(name: str | None) -> str:
    """``cpu``, ``cuda:0`` or the like, by default a CUDA device where there is one.

    ``cuda:0..7`` are several, over which a model is spread, and ``auto`` all that there are, or the default where that
    is one.  Raises ModelError for a device that torch does not know or does not have, and for several where accelerate
    is not installed.
    """
    if name == "cpu" or (name in (None, AUTO) and sys.platform == "linux" and not any(map(_exists, DRIVERS))):
        return "cpu"
    import torch

    if name == AUTO:
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        name = several("cuda", 0, count - 1) if count > 1 else None
    if name is not None and (each := devices_of(name)):
        refuse_without_accelerate(name)
        for one in each:
            if (own := device_of(one)) != one:
                raise ModelError(
                    f"device is {name!r}, but {one} is {own}; name devices that there are, as in cuda:0..1"
                )
        return name
    if name is None:
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ModelError(
            f"device is {name!r}; it must be cpu, cuda or one of several (cuda:0, cuda:1, ...), or, for a model "
            "that is spread, some of them (cuda:0..1) or all (auto)"
        ) from error
    try:
        tensor = torch.zeros(1, device=device)
        tensor.item()  # some devices, like meta, take tensors and give nothing back
    except Exception as error:  # every kind of device is missing in a way of its own
        available = ", ".join(["cpu", *(f"cuda:{index}" for index in range(torch.cuda.device_count()))])
        raise ModelError(
            f"device is {name!r}, but torch {torch.__version__} finds only {available}; "
            "leave the device out or pass one of these"
        ) from error
    return str(tensor.device)


def _exists(path: str) -> bool:
    return Path(path).exists()
