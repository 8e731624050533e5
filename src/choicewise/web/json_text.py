"""Values as JSON that can stand inside HTML."""

import json
import math
from collections.abc import Mapping
from typing import Any

from choicewise.report.visible_text import disarmed

_ESCAPES = {ord(char): f"\\u{ord(char):04x}" for char in "<>&\u2028\u2029"}


def json_text(content: Any, plain: bool = False) -> str:
    """``content`` as JSON without spaces.  No character of it can end a script element or begin a tag.

    Control and invisible characters in texts become visible escapes, numbers that JSON does not know become null, and
    numbers keep six digits, more than any chart or table shows.  ``plain``: all of that is so already.
    """
    text = json.dumps(content if plain else _plain(content), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.translate(_ESCAPES)


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return disarmed(value)
    if isinstance(value, float):
        return None if not math.isfinite(value) else int(value) if value.is_integer() else float(f"{value:.6g}")
    if isinstance(value, Mapping):
        return {_plain(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value
