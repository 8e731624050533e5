"""Hold published numbers, by the protocol that they were made with."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache

from choicewise.bundled import PUBLISHED_MMLU
from choicewise.protocols.catalogue import resolve
from choicewise.protocols.protocol import short_signature


@dataclass(frozen=True, kw_only=True)
class PublishedNumber:
    """Hold a published value, a share of 1.

    ``model``, ``source``: None if a reader brought the number.  ``place``: below, inside or above
    the 95 % interval of the run's first row, None if that has none.
    """

    value: float
    model: str | None = None
    source: str | None = None
    url: str | None = None
    place: str | None = None


@cache
def published() -> dict[str, tuple[PublishedNumber, ...]]:
    """Return the bundled numbers by the short digest of their protocol, such as ``#P8d3978``."""
    content = json.loads(PUBLISHED_MMLU.read_text(encoding="utf-8"))
    source = f"{content['publisher']}, {content['date']}, MMLU test set"
    numbers: dict[str, tuple[PublishedNumber, ...]] = {}
    for column, described in content["columns"].items():
        name = described["protocol"]
        if "score" in described:
            name += f":{described['score']}"
        protocol, *_ = resolve(name).values()
        numbers[short_signature(protocol)] = tuple(
            PublishedNumber(
                value=row[column], model=row["model"], source=source, url=content["url"]
            )
            for row in content["rows"]
        )
    return numbers
