"""The rows of a report: one per model, dataset, protocol, metric and group."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from choicewise.protocols.signature import short_signature, signature
from choicewise.report.measure import Measurement
from choicewise.scoring.metrics import Value
from choicewise.store.manifest import Manifest


@dataclass(frozen=True, slots=True)
class Row:
    """One number with everything that is needed to trust or distrust it.

    ``data`` and ``id`` are the short digests of dataset and protocol.  ``value``, ``se``, ``ci_low`` and ``ci_high``
    are shares of 1, NaN where there is nothing to average.  ``n`` counts the items the value is a mean over,
    ``missing`` those that could not be scored, ``skipped`` the rows of the data that could not be used at all.
    ``shots_dropped``, ``truncated``, ``merged``: items of the protocol that lost few-shot examples, lost tokens, or
    have a token across the end of the context.  ``rank`` is 1 for the best of the models in the report.
    """

    model: str
    dataset: str
    data: str
    subject: str
    protocol: str
    signature: str
    id: str
    metric: str
    value: float
    se: float
    ci_low: float
    ci_high: float
    n: int
    missing: int
    ties: int
    skipped: int
    shots_dropped: int
    truncated: int
    merged: int
    rank: int | None = None

    def as_json(self) -> dict[str, Any]:
        """The row as JSON knows it: NaN becomes null."""
        return {
            key: None if isinstance(value, float) and math.isnan(value) else value
            for key, value in asdict(self).items()
        }


def rows(about: Manifest, measured: Measurement, by: str | None = None) -> list[Row]:
    """The rows of one measurement: under the protocol's own aggregation, or one row per group of ``by``."""
    evidence = measured.evidence
    shots_dropped = int(evidence.positive("shots_dropped").sum())
    truncated = int(evidence.positive("tokens_dropped").sum())
    merged, digest = int(evidence.merged.sum()), str(about.dataset["digest"])

    def row(subject: str, value: Value) -> Row:
        return Row(
            model=about.model["name"],
            dataset=about.dataset["name"],
            data=f"#D{digest[:6]}",
            subject=subject,
            protocol=measured.name,
            signature=signature(measured.protocol),
            id=short_signature(measured.protocol),
            metric=measured.protocol.metric,
            value=value.value,
            se=value.se,
            ci_low=value.ci_low,
            ci_high=value.ci_high,
            n=value.n,
            missing=value.missing,
            ties=value.ties,
            skipped=len(about.dataset["skipped"]),
            shots_dropped=shots_dropped,
            truncated=truncated,
            merged=merged,
        )

    return [row(subject, value) for subject, value in measured.values(by).items()]


def ranked(found: Sequence[Row]) -> list[Row]:
    """The same rows with the rank of each model among those measured the same way; equal values share a rank."""
    rivals: dict[tuple[str, str, str], list[float]] = {}
    for row in found:
        rivals.setdefault(_same(row), []).append(row.value)
    return [replace(row, rank=rank(row.value, rivals[_same(row)])) for row in found]


def _same(row: Row) -> tuple[str, str, str]:
    return row.data, row.subject, row.signature


def rank(value: float, rivals: Sequence[float]) -> int | None:
    """1 for the greatest; equal values share a rank; None for NaN, which is no value."""
    if math.isnan(value):
        return None
    return 1 + sum(rival > value for rival in rivals)
