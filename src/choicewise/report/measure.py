"""From a run's tables and a protocol to its scores, decisions and values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from choicewise.protocols.protocol import Protocol
from choicewise.report.evidence import Evidence, Tables
from choicewise.scoring.decisions import Decisions, argmax, letter_match
from choicewise.scoring.metrics import AGGREGATIONS, Value
from choicewise.scoring.ragged import Floats


@dataclass(frozen=True)
class Measurement:
    """What one protocol makes of a run.

    ``scores``: float64, one per row of the evidence (item by item, choice by choice), or None where the protocol reads
    generated text.
    """

    name: str
    protocol: Protocol
    evidence: Evidence
    scores: Floats | None
    decisions: Decisions

    def values(self, aggregation: str | None = None) -> dict[str, Value]:
        """Group name → value under the protocol's own aggregation, or another one by name."""
        return AGGREGATIONS[aggregation or self.protocol.aggregation](self.decisions, self.evidence.subjects)


def measure(tables: Tables, protocols: Mapping[str, Protocol]) -> Iterator[Measurement]:
    """One measurement per protocol; what several protocols read is laid out once."""
    for name, protocol in protocols.items():
        yield _measure(name, protocol, tables.evidence(protocol.prompt_digest))


def _measure(name: str, protocol: Protocol, evidence: Evidence) -> Measurement:
    if protocol.decision == "letter-match":
        decisions = letter_match(evidence.generated(), evidence.options(), evidence.gold, protocol.letters)
        return Measurement(name, protocol, evidence, None, decisions)
    scores = evidence.scores(protocol.score, protocol.null, protocol.outside)
    return Measurement(name, protocol, evidence, scores, argmax(scores, evidence.items, evidence.right, protocol.ties))
