"""Numbers that were published without a run, by the protocol they were made under."""

import json
from dataclasses import dataclass
from functools import cache

from choicewise.bundled import PUBLISHED_MMLU
from choicewise.protocols.catalogue import resolve
from choicewise.protocols.signature import short_signature


@dataclass(frozen=True, slots=True)
class Published:
    """One published number: a share of 1, of which ``model``, by whom, and where it stands."""

    model: str
    value: float
    source: str
    url: str


@cache
def published() -> dict[str, tuple[Published, ...]]:
    """Short digest of a protocol (``#P8d3978``) → the bundled numbers published under it."""
    content = json.loads(PUBLISHED_MMLU.read_text(encoding="utf-8"))
    source = f"{content['publisher']}, {content['date']}, MMLU test set"
    numbers: dict[str, tuple[Published, ...]] = {}
    for column, about in content["columns"].items():
        name = f"{about['protocol']}:{about['score']}" if "score" in about else about["protocol"]
        protocol = next(iter(resolve(name).values()))
        numbers[short_signature(protocol)] = tuple(
            Published(row["model"], row[column], source, content["url"]) for row in content["rows"]
        )
    return numbers
