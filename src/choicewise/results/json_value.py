"""Results as JSON knows them."""

import math
from typing import Any


def json_value(value: Any) -> Any:
    """``value`` without what JSON has no word for: NaN and infinity become null, in dicts, lists and tuples, too."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: json_value(inner) for key, inner in value.items()}
    return [json_value(inner) for inner in value] if isinstance(value, list | tuple) else value
