"""The names of devices, one or several, and whether they are there."""

from __future__ import annotations

import re
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from choicewise.errors import ModelError

_DRIVERS = ("/dev/nvidia0", "/dev/nvidiactl", "/proc/driver/nvidia", "/dev/dxg", "/dev/kfd")
"""What exists on a Linux machine with a device that torch calls CUDA."""

AUTO = "auto"
"""The device that means all GPUs of this machine where there are several."""

_SEVERAL = re.compile(r"([a-z]+):(\d+)\.\.(\d+)")


def device_of(name: str | None) -> str:
    """``cpu``, ``cuda:0`` or the like, by default a CUDA device where there is one.

    ``cuda:0..7`` are several, over which a model is spread, and ``auto`` all that there are, or the default where that
    is one.  Raises ModelError for a device that torch does not know or does not have, and for several where accelerate
    is not installed.
    """
    if name == "cpu" or (name in (None, AUTO) and sys.platform == "linux" and not any(map(_exists, _DRIVERS))):
        return "cpu"
    import torch

    if name == AUTO:
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        name = _several("cuda", 0, count - 1) if count > 1 else None
    if name is not None and (each := devices_of(name)):
        _refuse_without_accelerate(name)
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


def _several(kind: str, first: int, last: int) -> str:
    """Their name: ``cuda:0..7``."""
    return f"{kind}:{first}..{last}"


def devices_of(device: str) -> list[str]:
    """Their own names, at least two; none where ``device`` is one alone.  ModelError for a name that means nothing."""
    match = _SEVERAL.fullmatch(device)
    if match is None:
        return []
    kind, first, last = match[1], int(match[2]), int(match[3])
    if first >= last:
        raise ModelError(
            f"device is {device!r}; the second number must be the larger one, as in {_several(kind, 0, 1)}"
        )
    return [f"{kind}:{number}" for number in range(first, last + 1)]


def device_name(model: Any) -> str:
    """Where the weights of a torch module lie."""
    places = {parameter.device for parameter in model.parameters()}
    numbers = sorted(place.index for place in places if place.index is not None)
    one = len(places) < 2 or len(numbers) < len(places) or len({place.type for place in places}) > 1
    return str(model.device) if one else _several(model.device.type, numbers[0], numbers[-1])


def _exists(path: str) -> bool:
    return Path(path).exists()


def _refuse_without_accelerate(device: str) -> None:
    """ModelError where a model can't be spread for want of accelerate."""
    if find_spec("accelerate") is None:
        one = devices_of(device)[0]
        raise ModelError(
            f"accelerate spreads a model over {device}, and it is not installed; run: pip install "
            f"'choicewise[spread]', or choose one device: {one}"
        )
