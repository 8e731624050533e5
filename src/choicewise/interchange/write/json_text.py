"""JSON that every reader takes: no NaN, and no line break of any alphabet inside a line."""

import json
from typing import Any

from choicewise.results.json_value import json_value

_BREAKS = {0x85: "\\u0085", 0x2028: "\\u2028", 0x2029: "\\u2029"}
"""Characters that some readers take for the end of a line, though JSON does not ask to escape them."""


def json_text(value: Any, indent: int | None = None) -> str:
    """``value`` as JSON, NaN and infinity as null; without ``indent`` one line, without its end."""
    text = json.dumps(json_value(value), ensure_ascii=False, allow_nan=False, indent=indent)
    return text.translate(_BREAKS)
