"""Several devices of this machine as one: ``cuda:0..7``."""

import re
from importlib.util import find_spec
from typing import Any

from choicewise.errors import ModelError

AUTO = "auto"
"""The device that means all GPUs of this machine where there are several."""

_SEVERAL = re.compile(r"([a-z]+):(\d+)\.\.(\d+)")


def several(kind: str, first: int, last: int) -> str:
    """Their name: ``cuda:0..7``."""
    return f"{kind}:{first}..{last}"


def devices_of(device: str) -> list[str]:
    """Their own names, at least two; none where ``device`` is one alone.  ModelError for a name that means nothing."""
    match = _SEVERAL.fullmatch(device)
    if match is None:
        return []
    kind, first, last = match[1], int(match[2]), int(match[3])
    if first >= last:
        raise ModelError(f"device is {device!r}; the second number must be the larger one, as in {several(kind, 0, 1)}")
    return [f"{kind}:{number}" for number in range(first, last + 1)]


def refuse_without_accelerate(device: str) -> None:
    """ModelError where a model can't be spread for want of accelerate."""
    if find_spec("accelerate") is None:
        one = devices_of(device)[0]
        raise ModelError(
            f"accelerate spreads a model over {device}, and it is not installed; run: pip install "
            f"'choicewise[spread]', or choose one device: {one}"
        )


def device_name(model: Any) -> str:
    """Where the weights of a torch module lie."""
    places = {parameter.device for parameter in model.parameters()}
    numbers = sorted(place.index for place in places if place.index is not None)
    one = len(places) < 2 or len(numbers) < len(places) or len({place.type for place in places}) > 1
    return str(model.device) if one else several(model.device.type, numbers[0], numbers[-1])
