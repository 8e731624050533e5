"""Results as JSON knows them."""

import math
from dataclasses import asdict, is_dataclass
from typing import Any


def json_value(value: Any) -> Any:
    """``value`` in dicts and lists, with null for what JSON has no word for: NaN and infinity."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if is_dataclass(value) and not isinstance(value, type):
        value = asdict(value)
    if isinstance(value, dict):
        return {key: json_value(inner) for key, inner in value.items()}
    return [json_value(inner) for inner in value] if isinstance(value, list | tuple) else value
