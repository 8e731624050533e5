"""Which models a board takes: from where, and how large."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from choicewise.bundled import MODELS, PREFIX, bundled_folder
from choicewise.submissions.submission import Wanted

ALLOW = (f"{PREFIX}*", "*/*")
"""The bundled models, and every repository on the Hub; no folder of a worker's machine."""

LARGEST = 20_000_000_000
"""Bytes of the weights."""


@dataclass(frozen=True, slots=True)
class Policy:
    """``allow``: patterns of names (:func:`matches`); ``largest``: bytes of the weights that a model may have.

    Weights must be safetensors, and no code of a model's own runs: that is the same for every board.
    """

    allow: tuple[str, ...] = ALLOW
    largest: int = LARGEST

    def takes(self, model: str) -> bool:
        """Whether models of that name are taken."""
        return any(matches(model, pattern) for pattern in self.allow)

    def as_json(self) -> dict[str, Any]:
        """For workers, which check what they download."""
        return {"allow": [*self.allow], "largest": self.largest}


def matches(name: str, pattern: str) -> bool:
    """Whether ``name`` is one that ``pattern`` means.

    ``*`` stands for any characters but ``/`` and ``:``, ``**`` for any at all, and ``?`` for one; a part of a name
    that a sign begins with is not one that begins with a dot.
    """
    return _expression(pattern).fullmatch(name) is not None


@cache
def _expression(pattern: str) -> re.Pattern[str]:
    parts = []
    for place, piece in enumerate(pieces := re.split(r"(\*\*|\*|\?)", pattern)):
        begins = not "".join(pieces[:place]) or "".join(pieces[:place]).endswith(("/", ":"))
        own = {"**": r".*", "*": r"[^/:]+", "?": r"[^/:]"}.get(piece)
        parts.append(re.escape(piece) if own is None else (r"(?!\.)" if begins else "") + own)
    return re.compile("".join(parts), re.DOTALL)


def refusal(wanted: Wanted) -> str:
    """Why the model can't be evaluated, where that can be told by its name alone; else nothing."""
    if wanted.model.startswith(PREFIX) and bundled_folder(wanted.model, MODELS) is None:
        return f"there is no model {wanted.model}; {_known(MODELS)}"
    if wanted.model.startswith(PREFIX) and wanted.revision:
        return f"{wanted.model} has no revisions; leave that out"
    return ""


def _known(folders: Sequence[Any]) -> str:
    return f"the bundled ones are {', '.join(PREFIX + folder.name for folder in folders)}"
