"""Name devices, find those that are there, and estimate what models take of their memory.

What computing takes beside the weights is an allowance: if it is too small, packs of questions get
smaller and the answers stay the same (``engine``), so it errs on the side of starting.
``benchmarks/footprint.py`` compares it with measured peaks.
"""

from __future__ import annotations

import os
import re
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from choicewise.errors import ModelError, install_line
from choicewise.util.text import are

if TYPE_CHECKING:
    import torch

# Files of a Linux machine with a device that torch calls CUDA.
_DRIVERS = ("/dev/nvidia0", "/dev/nvidiactl", "/proc/driver/nvidia", "/dev/dxg", "/dev/kfd")

AUTO = "auto"
"""The device that means all GPUs of this machine if there are several."""

_SEVERAL = re.compile(r"([a-z]+):(\d+)\.\.(\d+)")

DEEPEST = 4096
"""Tokens of the longest question if nobody says: few published protocols send longer ones."""

PROBE = 1024
"""Tokens of the longest sequence of a self-check that are allowed for.

They are 128 in most models, and more if layers look back at a window; three such sequences are
computed as one batch with all their logits.
"""

TOGETHER = 128
"""Generations that go on together: more gain little, and need memory for keys and values."""

PACKS = {"cpu": 2048, "cuda": 16384}
"""Tokens of a pack at first: few on a CPU, as its caches are small."""

LARGE_PACK = 32768
"""Tokens of a pack at first on a GPU with :data:`ROOM` for each of them beside the model."""

ROOM = 1_000_000
"""Bytes for a token of a large pack: some three times what a layer of 70 B parameters takes."""

LOGITS = {"cpu": 25_000_000, "cuda": 1_000_000_000}
"""Bytes of logits at once: on a CPU, as many as a last-level cache holds."""

CONTEXT = {"cpu": 0, "cuda": 1_000_000_000}
"""Bytes of a device that a process takes before any model: of CUDA and its kernels."""

HOST = {"cpu": 750_000_000, "cuda": 3_000_000_000}
"""Bytes of main memory of a process with torch; with CUDA there are more."""


def device_of(name: str | None) -> str:
    """Return the full name of a device: ``cpu``, ``cuda:0`` or the like.

    By default it is a CUDA device if there is one.  ``cuda:0..7`` are several, over which a model
    is spread, and ``auto`` all that there are, or the default if that is one; among processes that
    ``torchrun`` started, what they have together (``cuda:x8``).

    Raises ModelError for a device that torch does not know or does not have, and for several if
    accelerate is not installed.
    """
    names_ranks = name is not None and is_shared(name)
    if name is not None and names_ranks and name != shared_name(name.partition(":")[0]):
        raise ModelError(
            f"device is {name!r}, for processes of torchrun, but here {are(ranks())} {ranks()}; "
            "run: torchrun "
            f"--nproc-per-node {name.partition(':x')[2]} -m choicewise ..., with device auto"
        )
    if ranks() > 1 and (name == AUTO or names_ranks):
        return shared_name("cuda" if _has_cuda() else "cpu")
    if name == "cpu":
        return "cpu"
    if name in (None, AUTO) and not _has_driver():
        return "cpu"
    if name == AUTO:
        name = _all_gpus()
    if name is not None and devices_of(name):
        _check_several(name)
        return name
    return _single(name)


def _has_driver() -> bool:
    """Check that there may be a CUDA device, without torch, which takes seconds to be imported."""
    if sys.platform != "linux":
        return True
    return any(Path(driver).exists() for driver in _DRIVERS)


def _has_cuda() -> bool:
    if not _has_driver():
        return False
    import torch

    return torch.cuda.is_available()


def gpu_count() -> int:
    """Return how many GPUs this process may use, without taking memory of one."""
    if not _has_driver():
        return 0
    import torch

    return torch.cuda.device_count()


def gpu_bytes() -> int:
    """Return the bytes of memory of the smallest GPU of this machine."""
    import torch

    numbers = range(torch.cuda.device_count())
    return min(int(torch.cuda.get_device_properties(number).total_memory) for number in numbers)


def _all_gpus() -> str | None:
    """Return the name of all GPUs together; None if there are fewer than two."""
    import torch

    if not torch.cuda.is_available() or torch.cuda.device_count() < 2:
        return None
    return _several("cuda", 0, torch.cuda.device_count() - 1)


def _check_several(name: str) -> None:
    """Check that a model can be spread over the devices of that ``name``."""
    devices = devices_of(name)
    if find_spec("accelerate") is None:
        raise ModelError(
            f"spreading a model over {name} needs accelerate; run: "
            f"{install_line('spread')}, or choose one device: {devices[0]}"
        )
    for device in devices:
        full_name = device_of(device)
        if full_name != device:
            raise ModelError(
                f"device is {name!r}, but {device} is {full_name}; use devices of this machine, as "
                "in cuda:0..1"
            )


def _single(name: str | None) -> str:
    """Return the full name of one device that torch can compute on."""
    import torch

    if name is None:
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ModelError(
            f"device is {name!r}; it must be cpu, cuda, cuda:1, or to spread a model cuda:0..1 or "
            "auto"
        ) from error
    try:
        tensor = torch.zeros(1, device=device)
        # Some devices, like meta, take tensors and give nothing back.
        tensor.item()
    except Exception as error:
        # Every kind of device is missing in a way of its own.
        available = ["cpu"]
        available += [f"cuda:{index}" for index in range(torch.cuda.device_count())]
        raise ModelError(
            f"device is {name!r}, but torch {torch.__version__} finds only {', '.join(available)}; "
            "leave the device out or pass one of these"
        ) from error
    return str(tensor.device)


def devices_of(device: str) -> list[str]:
    """Return the names of several devices, at least two; none if ``device`` is one alone.

    Raises ModelError for a name that means nothing.
    """
    match = _SEVERAL.fullmatch(device)
    if match is None:
        return []
    kind = match[1]
    first = int(match[2])
    last = int(match[3])
    if first >= last:
        raise ModelError(
            f"device is {device!r}; the second number must be the larger one, as in "
            f"{_several(kind, 0, 1)}"
        )
    return [f"{kind}:{number}" for number in range(first, last + 1)]


def device_name(model: Any) -> str:
    """Return the device or devices of the weights of a torch module."""
    devices = {parameter.device for parameter in model.parameters()}
    kinds = {device.type for device in devices}
    numbers = sorted(device.index for device in devices if device.index is not None)
    if len(devices) < 2 or len(kinds) > 1 or len(numbers) < len(devices):
        return str(model.device)
    return _several(model.device.type, numbers[0], numbers[-1])


def ranks() -> int:
    """Return how many processes ``torchrun`` started together with this one; 1 if it did not."""
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        return 1
    return int(os.environ.get("WORLD_SIZE", "1"))


def is_follower() -> bool:
    """Check that another process, rank 0, says what this one does."""
    return ranks() > 1 and os.environ.get("RANK") != "0"


def shared_name(kind: str) -> str:
    """Return how the devices of all ranks are called together: ``cuda:x8``."""
    return f"{kind}:x{ranks()}"


def is_shared(device: str) -> bool:
    """Check that ``device`` is the name of several ranks' devices."""
    return device.partition(":")[2].startswith("x")


@dataclass(frozen=True, kw_only=True)
class Footprint:
    """Bytes of a device that a model needs.

    ``workspace``: an allowance for the keys, values, activations and logits of a pack of questions;
    ``context``: what a process takes there before any model.  ``layer``: the weights of its largest
    part that lies on one device.  ``host``: bytes of main memory; on a CPU, the device's are among
    them.
    """

    weights: int
    workspace: int
    context: int
    layer: int
    host: int

    @property
    def device(self) -> int:
        """Return the bytes of the one device that it is loaded on."""
        return self.weights + self.workspace + self.context

    def on_each(self, devices: int) -> int:
        """Return the bytes of each of so many devices that it is spread over.

        No layer is split, and every device computes a pack.
        """
        if devices == 1:
            return self.device
        return -(-self.weights // devices) + self.layer + self.workspace + self.context

    def devices(self, size: int, most: int) -> int | None:
        """Return the fewest devices of ``size`` bytes that hold it; None if ``most`` are too few."""
        for count in range(1, most + 1):
            if self.on_each(count) <= size:
                return count
        return None


def pack_tokens(kind: str, room: int) -> int:
    """Return the tokens of a pack at first, on a ``kind`` of device with ``room`` bytes beside the
    model.
    """
    if kind == "cuda" and room >= LARGE_PACK * ROOM:
        return LARGE_PACK
    return PACKS.get(kind, PACKS["cpu"])


def room_beside(model: torch.nn.Module, device: torch.device) -> int:
    """Return the bytes of a GPU beside the weights of ``model`` on it; 0 for other devices."""
    import torch

    if device.type != "cuda":
        return 0
    # All of its memory and not what is free, so that equal GPUs take equal packs.
    room = int(torch.cuda.get_device_properties(device).total_memory)
    for parameter in model.parameters():
        if parameter.device == device:
            room -= parameter.nbytes
    return room


NOTHING = Footprint(weights=0, workspace=0, context=0, layer=0, host=200_000_000)
"""The footprint of a model without weights: a process with the package."""


def to_device(array: npt.NDArray[Any], device: torch.device) -> torch.Tensor:
    """Copy ``array`` to ``device``, with its dtype and shape.

    A CUDA device fetches it while the host goes on.
    """
    import torch

    host = torch.from_numpy(np.ascontiguousarray(array))
    if device.type == "cuda":
        return host.pin_memory().to(device, non_blocking=True)
    return host.to(device)


def _several(kind: str, first: int, last: int) -> str:
    """Return the name of several devices: ``cuda:0..7``."""
    return f"{kind}:{first}..{last}"
