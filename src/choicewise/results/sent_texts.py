"""The texts that were sent to a model, whatever its tokenizer."""

import hashlib
import json
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from choicewise.results.evidence import Evidence

BEFORE, SHOWN = 20, 80
"""Characters shown of a text: before its first difference, and in all."""


@dataclass(frozen=True, slots=True)
class FirstDifference:
    """The first item whose texts differ, with the two texts from shortly before the first other character."""

    item: str
    left: str
    right: str


def text_digest(evidence: Evidence) -> str:
    """sha256 (64 hex) over the texts sent and the right answers, item by item in the order of their ids.

    It agrees for two models that were asked the same, whatever their tokenizers.
    """
    digest = hashlib.sha256()
    for item, texts in sorted(_texts(evidence).items()):
        digest.update(json.dumps([item, *texts]).encode() + b"\n")
    return digest.hexdigest()


def first_difference(left: Evidence, right: Evidence) -> FirstDifference | None:
    """The first item of ``left`` that ``right`` has with other texts."""
    others = _texts(right)
    for item, texts in _texts(left).items():
        if item in others and texts != others[item]:
            one, other = _joined(texts), _joined(others[item])
            differing = (place for place, (a, b) in enumerate(zip_longest(one, other)) if a != b)
            start = max(0, next(differing, len(one)) - BEFORE)
            return FirstDifference(item, one[start : start + SHOWN], other[start : start + SHOWN])
    return None


def _texts(evidence: Evidence) -> dict[str, list[Any]]:
    columns = (evidence.requests[name].to_pylist() for name in ("context", "continuations", "gold"))
    return {item: list(texts) for item, *texts in zip(evidence.ids, *columns, strict=True)}


def _joined(texts: list[Any]) -> str:
    context, continuations, gold = texts
    return f"{context or ''}{'|'.join(continuations or [])} (right: {', '.join(map(str, gold))})"
