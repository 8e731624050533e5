"""Keep what was sent to a decision endpoint, what it answered, and what was read in the answer."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, asdict, dataclass, field, fields, replace
from typing import NamedTuple, Self

from choicewise.records import EndpointRecord
from choicewise.util.jsonio import JsonDict, JsonMapping, json_text

BINARY = "base64:"
"""How the text of a response begins that is no UTF-8."""


class Repeat(NamedTuple):
    """Hold the answer to a question that was sent again.

    The date, the response, and its probabilities or why they are missing.
    """

    received: str
    response: str | None
    probabilities: Sequence[float] | None
    missing: str | None


@dataclass(frozen=True)
class Exchange:
    """Hold one question as it was sent and answered.

    ``path``: after the address; ``request`` and ``response``: the bodies (:func:`stored_text`), the
    response None if none came that could be read; ``received``: when, in UTC.  ``request_id``: the
    server's.  ``options``: those that were sent, if not all; the probabilities of the others are of
    an earlier request, after which the run ended.  ``repeat``: of a question that was sent twice.
    All others are fields of
    :class:`choicewise.extensions.endpoints.decisions.answers.DecisionAnswer`.
    """

    path: str
    request: str
    received: str
    response: str | None = None
    _: KW_ONLY
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
        """Return a line of JSON, from which :meth:`of` reads an equal exchange."""
        needed = ("path", "request", "received")
        empty = Exchange(self.path, self.request, self.received)
        content: JsonDict = {}
        for column in fields(self):
            value = getattr(self, column.name)
            if column.name in needed or value != getattr(empty, column.name):
                content[column.name] = value
        # JSON would make a list of it.
        if self.repeat is not None:
            content["repeat"] = self.repeat._asdict()
        return json_text(content)

    @classmethod
    def of(cls, text: str) -> Self:
        """Read the exchange of a line of JSON."""
        content = json.loads(text)
        exchange = cls(**content)
        if exchange.repeat is None:
            return exchange
        return replace(exchange, repeat=Repeat(**content["repeat"]))


def read_exchange(text: str) -> JsonMapping:
    """Return the fields of an exchange by name, of a line of JSON."""
    return asdict(Exchange.of(text))


def stored_text(content: bytes) -> str:
    """Return UTF-8 as text, and other bytes as base64 behind :data:`BINARY`."""
    try:
        return content.decode()
    except UnicodeDecodeError:
        return BINARY + base64.b64encode(content).decode()


def repeated(exchanges: Iterable[Exchange]) -> list[tuple[Sequence[float], Sequence[float]]]:
    """Return the probabilities of every question that has them twice."""
    pairs = []
    for exchange in exchanges:
        if exchange.repeat is None or exchange.probabilities is None:
            continue
        if exchange.repeat.probabilities:
            pairs.append((exchange.probabilities, exchange.repeat.probabilities))
    return pairs


def of_repeats(
    dialect: str, pairs: Sequence[tuple[Sequence[float], Sequence[float]]]
) -> EndpointRecord:
    """Compare the probabilities of questions that were sent twice.

    A flip is another first maximum; the distances are of one option, their mean over questions.
    """
    flips = 0
    means = []
    greatest = 0.0
    for first, second in pairs:
        distances = [abs(p - q) for p, q in zip(first, second, strict=True)]
        flips += first.index(max(first)) != second.index(max(second))
        means.append(sum(distances) / len(distances))
        greatest = max(greatest, *distances)
    return EndpointRecord(
        dialect=dialect,
        repeated=len(pairs),
        flips=flips,
        mean=sum(means) / max(len(pairs), 1),
        most=greatest,
    )
