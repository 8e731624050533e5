"""What is kept of a question to a decision endpoint: what was sent, what came, and what was read in it."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Final, NamedTuple, Self

from choicewise.records import EndpointRecord
from choicewise.util.jsonio import json_text

BINARY: Final = "base64:"
"""How the text of a response begins that is no UTF-8."""


class Repeat(NamedTuple):
    """The answer to the same question, sent again: date, text, and its probabilities or why they are missing."""

    received: str
    response: str | None
    probabilities: Sequence[float] | None
    missing: str | None


@dataclass(frozen=True, slots=True)
class Exchange:
    """One question as it was sent and answered.

    ``path``: after the address; ``request`` and ``response``: the bodies (:func:`stored_text`), the latter None where
    none came that could be read; ``received``: when, in UTC.  ``request_id``: as the server names it.  ``model``: what
    the answer calls the model.  The others are of
    :class:`choicewise.extensions.endpoints.decisions.answers.DecisionAnswer`, probabilities as they were sent.
    ``options``: those that were asked; the others' probabilities are of an earlier request, after which the run was
    ended.  ``repeat``: of a question that was sent twice.
    """

    path: str
    request: str
    received: str
    response: str | None = None
    request_id: str | None = None
    model: str | None = None
    probabilities: Sequence[float] | None = None
    missing: str | None = None
    refused: bool = False
    usage: Mapping[str, float] = field(default_factory=dict)
    confidence: float | None = None
    recomputed: float | None = None
    diagnostics: Mapping[str, float | bool] = field(default_factory=dict)
    contradictions: Sequence[str] = ()
    notes: Sequence[str] = ()
    options: Sequence[int] | None = None
    repeat: Repeat | None = None
    kind: str = "choice"

    @property
    def text(self) -> str:
        """A line of JSON, from which :meth:`of` reads the same."""
        content = {each.name: getattr(self, each.name) for each in fields(self)}
        content["repeat"] = None if self.repeat is None else self.repeat._asdict()
        empty = Exchange(self.path, self.request, self.received)
        needed = ("path", "request", "received")
        return json_text(
            {
                name: each
                for name, each in content.items()
                if name in needed or each != getattr(empty, name)
            }
        )

    @classmethod
    def of(cls, text: str) -> Self:
        """What was written so."""
        content = json.loads(text)
        read = cls(**content)
        return read if read.repeat is None else replace(read, repeat=Repeat(**content["repeat"]))


def stored_text(content: bytes) -> str:
    """``content`` as a text that it can be had from again: UTF-8, or base64 behind :data:`BINARY`."""
    try:
        return content.decode()
    except UnicodeDecodeError:
        return BINARY + base64.b64encode(content).decode()


def repeated(exchanges: Iterable[Exchange]) -> list[tuple[Sequence[float], Sequence[float]]]:
    """The probabilities of those questions that have them twice."""
    twice = ((each.probabilities, each.repeat and each.repeat.probabilities) for each in exchanges)
    return [(first, second) for first, second in twice if first is not None and second]


def of_repeats(
    dialect: str, twice: Sequence[tuple[Sequence[float], Sequence[float]]]
) -> EndpointRecord:
    """How far probabilities of the same questions differ: flips of the first maximum, mean and greatest distance."""
    distances = [[abs(p - q) for p, q in zip(*each, strict=True)] for each in twice]
    flips = sum(
        first.index(max(first)) != second.index(max(second)) for first, second in map(_lists, twice)
    )
    mean = sum(sum(each) / len(each) for each in distances) / max(len(distances), 1)
    return EndpointRecord(dialect, len(twice), flips, mean, max(map(max, distances), default=0.0))


def _lists(twice: tuple[Sequence[float], Sequence[float]]) -> tuple[list[float], list[float]]:
    return [*twice[0]], [*twice[1]]
