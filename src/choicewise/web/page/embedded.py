"""Data that stand in a page for its script: as JSON, and where that is long as base64 of its zlib stream."""

import zlib
from base64 import b64encode
from dataclasses import dataclass
from typing import Any

from choicewise.web.json_text import json_text

LONG = 100_000
"""Characters from which on data are compressed: they repeat themselves a lot."""


@dataclass(frozen=True, slots=True)
class Embedded:
    """``text`` of a script element of this type, whose ``name`` is its id."""

    name: str
    type: str
    text: str


def embedded(name: str, content: Any, plain: bool = False) -> Embedded:
    """``content`` for the page's script (``plain`` as of json_text); no character of the text can end its element."""
    text = json_text(content, plain)
    if len(text) < LONG:
        return Embedded(name, "application/json", text)
    return Embedded(name, "application/octet-stream", b64encode(zlib.compress(text.encode(), 9)).decode())
