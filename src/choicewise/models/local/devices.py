"""Devices: their names, one or several, whether they are there, and what models take of their memory.

What computing takes beside the weights is an allowance: where it is too small, packs of questions get smaller and the
answers stay the same (``engine``), so it errs on the side of starting.  ``benchmarks/footprint.py`` compares it with
measured peaks.
"""

from __future__ import annotations

import os
import re
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from choicewise.errors import ModelError, install_line
from choicewise.util.text import are

if TYPE_CHECKING:
    import torch

_DRIVERS = ("/dev/nvidia0", "/dev/nvidiactl", "/proc/driver/nvidia", "/dev/dxg", "/dev/kfd")
"""What exists on a Linux machine with a device that torch calls CUDA."""

AUTO = "auto"  # the device that means all GPUs of this machine where there are several
_SEVERAL = re.compile(r"([a-z]+):(\d+)\.\.(\d+)")
DEEPEST: Final = (
    4096  # tokens of the longest question where nobody says: few published protocols send more
)

PROBE: Final = 1024
"""Tokens of the longest sequence of a self-check that are allowed for: 128 in most models, more where layers look
back at a window; three of them are computed as one batch with all their logits."""

TOGETHER: Final = 128  # generations that go on together: more gain little, and each needs memory for keys and values
PACKS: Final = {
    "cpu": 2048,
    "cuda": 16384,
}  # tokens of a pack at first: on a CPU few, as its caches are small
LOGITS: Final = {
    "cpu": 25_000_000,
    "cuda": 1_000_000_000,
}  # bytes held at once: what a last-level cache holds
CONTEXT: Final = {
    "cpu": 0,
    "cuda": 1_000_000_000,
}  # bytes of a device that a process takes at all: CUDA, kernels
HOST: Final = {
    "cpu": 750_000_000,
    "cuda": 3_000_000_000,
}  # bytes of main memory of a process with torch; CUDA has more


def device_of(name: str | None) -> str:
    """``cpu``, ``cuda:0`` or the like, by default a CUDA device where there is one.

    ``cuda:0..7`` are several, over which a model is spread, and ``auto`` all that there are, or the default where that
    is one; among processes that ``torchrun`` started, what they have together (``cuda:x8``).  Raises ModelError for a
    device that torch does not know or does not have, and for several where accelerate is not installed.
    """
    if name is not None and is_shared(name) and name != shared_name(name.partition(":")[0]):
        raise ModelError(
            f"device is {name!r}, which processes share that torchrun starts, and here {are(ranks())} {ranks()}; run: "
            f"torchrun --nproc-per-node {name.partition(':x')[2]} -m choicewise ..., with the device auto"
        )
    without_driver = sys.platform == "linux" and not any(
        Path(driver).exists() for driver in _DRIVERS
    )
    if ranks() > 1 and (name == AUTO or (name is not None and is_shared(name))):
        return shared_name("cpu" if without_driver or not _has_cuda() else "cuda")
    if name == "cpu" or (name in (None, AUTO) and without_driver):
        return "cpu"
    import torch

    if name == AUTO:
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        name = _several("cuda", 0, count - 1) if count > 1 else None
    if name is not None and (each := devices_of(name)):
        if find_spec("accelerate") is None:
            raise ModelError(
                f"accelerate spreads a model over {name}, and it is not installed; run: "
                f"{install_line('spread')}, or choose one device: {each[0]}"
            )
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
        available = ", ".join(
            ["cpu", *(f"cuda:{index}" for index in range(torch.cuda.device_count()))]
        )
        raise ModelError(
            f"device is {name!r}, but torch {torch.__version__} finds only {available}; "
            "leave the device out or pass one of these"
        ) from error
    return str(tensor.device)


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


def ranks() -> int:
    """How many processes ``torchrun`` started together with this one; 1 where it did not."""
    return int(os.environ.get("WORLD_SIZE", "1")) if "TORCHELASTIC_RUN_ID" in os.environ else 1


def is_follower() -> bool:
    """Whether another process, rank 0, says what this one does."""
    return ranks() > 1 and os.environ.get("RANK") != "0"


def shared_name(kind: str) -> str:
    """What the devices of all ranks are called together: ``cuda:x8``."""
    return f"{kind}:x{ranks()}"


def is_shared(device: str) -> bool:
    """Whether ``device`` is the name of several ranks' devices."""
    return device.partition(":")[2].startswith("x")


@dataclass(frozen=True)
class Footprint:
    """Bytes of a device that a model needs: ``weights``; ``workspace``, an allowance for the keys, values, activations
    and logits of a pack of questions; ``context``, what a process takes there at all.

    ``layer``: the weights of its largest part that lies on one device.  ``host``: bytes of main memory; on a CPU, the
    device's are among them.
    """

    weights: int
    workspace: int
    context: int
    layer: int
    host: int

    @property
    def device(self) -> int:
        """Bytes of the one device that it is loaded on."""
        return self.weights + self.workspace + self.context

    def on_each(self, devices: int) -> int:
        """Bytes of each of so many devices that it is spread over: none splits a layer, and each computes a pack."""
        if devices == 1:
            return self.device
        return -(-self.weights // devices) + self.layer + self.workspace + self.context

    def devices(self, size: int, most: int) -> int | None:
        """The fewest devices of ``size`` bytes each that hold it, at most ``most``; None where those are too few."""
        return next((count for count in range(1, most + 1) if self.on_each(count) <= size), None)


NOTHING: Final = Footprint(
    0, 0, 0, 0, 200_000_000
)  # of a model without weights: a process with the package


def to_device(array: npt.NDArray[Any], device: torch.device) -> torch.Tensor:
    """A copy of ``array`` on ``device``, its dtype and shape kept; a CUDA device fetches it while the host goes on."""
    import torch

    host = torch.from_numpy(np.ascontiguousarray(array))
    return (
        host.pin_memory().to(device, non_blocking=True)
        if device.type == "cuda"
        else host.to(device)
    )


def _has_cuda() -> bool:
    import torch

    return torch.cuda.is_available()


def _several(kind: str, first: int, last: int) -> str:
    """Their name: ``cuda:0..7``."""
    return f"{kind}:{first}..{last}"
