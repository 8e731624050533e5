"""What the answers of a decision endpoint say beside their probabilities, over a whole run."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np

from choicewise.errors import UsageError
from choicewise.extensions.endpoints.decisions.answers import REFUSED
from choicewise.extensions.endpoints.decisions.exchange import Exchange, of_repeats, repeated
from choicewise.extensions.endpoints.decisions.minus_own import (
    ServedMinusOwn,
    minus_own_computation,
    own_layouts,
)
from choicewise.protocols.readings import READINGS
from choicewise.questions import Decision
from choicewise.records import OBSERVATIONS, EndpointRecord, Manifest, ServerRecord
from choicewise.results.measurement import Measurement
from choicewise.results.run import Run
from choicewise.scoring.combine import LEAST
from choicewise.scoring.observed import row_of
from choicewise.scoring.rounding import Check, checks
from choicewise.store.tables import block_file, read_batches

AGREES: Final = 0.005
"""By how much a confidence may differ from the recomputed one, of two decimals."""


@dataclass(frozen=True, slots=True)
class Refusals:
    """Of a protocol: its items, how many the endpoint ``refused``, and its value without and with these as wrong.

    NaN where there is no value, or where none can be wrong; ``share``: whether the value is a share of 1.  ``floor``:
    items with an option that has probability 0, which counts as 1e-12, and ``right``: those with a right one among
    these.
    """

    protocol: str
    items: int
    refused: int
    share: bool
    value: float
    as_wrong: float
    floor: int
    right: int


@dataclass(frozen=True, slots=True)
class EndpointSummary:
    """A run of a decision endpoint.

    ``questions``: requests that are kept, without repeats.  ``models``: what answers called the model, with counts.
    ``missing``, ``contradictions`` and ``notes``: kind → questions.  ``confidence``: questions with a confidence, and
    ``recomputed``: those of them in which TypeSafe's formula gives another one.  ``usage``: sums, by name.
    ``checks``: what to believe of the numbers.
    """

    endpoint: EndpointRecord
    questions: int
    models: Mapping[str, int]
    missing: Mapping[str, int]
    contradictions: Mapping[str, int]
    notes: Mapping[str, int]
    confidence: int
    recomputed: int
    usage: Mapping[str, float]
    protocols: tuple[Refusals, ...]
    checks: tuple[Check, ...]


def exchanges(folder: Path, manifest: Manifest) -> Iterator[Exchange]:
    """Every question that was sent, in the order of the blocks; a block is never in memory as a whole."""
    for block in manifest.blocks:
        for batch in read_batches(
            block_file(folder, block, "observations"), OBSERVATIONS, ["exchange"]
        ):
            yield from map(Exchange.of, batch["exchange"].drop_null().to_pylist())


def endpoint_record(folder: Path, manifest: Manifest) -> EndpointRecord | None:
    """What the manifest says of the endpoint, with all questions that were sent twice; None for other models."""
    known = None if manifest.server is None else manifest.server.endpoint
    if known is None:
        return None
    return replace(
        of_repeats(known.dialect, repeated(exchanges(folder, manifest))), doubts=known.doubts
    )


def closing_record(folder: Path, manifest: Manifest, now: ServerRecord) -> ServerRecord:
    """Return what a run keeps of its endpoint after the last question: repeats, and the most noise that was seen."""
    before = manifest.server or now
    noise = max(before.noise, now.noise)
    return replace(before, endpoint=endpoint_record(folder, manifest), noise=noise)


def endpoint_summary(run: Run) -> EndpointSummary | None:
    """The same with counts of all that answers said; None for other models."""
    if (endpoint := endpoint_record(run.folder, run.manifest)) is None:
        return None
    counts = {name: Counter[str]() for name in ("models", "missing", "contradictions", "notes")}
    usage, questions, confident, recomputed = dict[str, float](), 0, 0, 0
    for each in exchanges(run.folder, run.manifest):
        questions += 1
        counts["models"].update([each.model] if each.model is not None else [])
        counts["missing"].update(
            [REFUSED if each.refused else each.missing] if each.missing is not None else []
        )
        counts["contradictions"].update({text.partition(":")[0] for text in each.contradictions})
        counts["notes"].update(set(each.notes))
        for name, count in each.usage.items():
            usage[name] = usage.get(name, 0.0) + count
        if each.confidence is not None and each.recomputed is not None:
            confident += 1
            recomputed += abs(each.confidence - each.recomputed) > AGREES
    counted = {name: dict(each.most_common()) for name, each in counts.items()}
    asked = {
        name: each
        for name, each in run.protocols.items()
        if Decision in READINGS[each.reading].needs
    }
    protocols = tuple(_refusals(run, name) for name in asked)
    return EndpointSummary(
        endpoint,
        questions,
        **counted,
        confidence=confident,
        recomputed=recomputed,
        usage=usage,
        protocols=protocols,
        checks=tuple(checks(exchanges(run.folder, run.manifest))),
    )


def by_endpoint(left: Run, right: Run) -> tuple[Run, Run] | None:
    """(the run of a decision endpoint, the other one) where one of the two asked an endpoint; else None."""
    servers = [run.manifest.server for run in (left, right)]
    asked = [server is not None and server.endpoint is not None for server in servers]
    return None if asked[0] == asked[1] else (left, right) if asked[0] else (right, left)


def served_minus_own(
    served: Run, own: Run, protocols: Sequence[str] = (), items: bool = True
) -> list[ServedMinusOwn]:
    """The endpoint's answers under every protocol against each of ``own`` that asks the same kind of question.

    ``protocols``: only these, of either run.  ``items``: whether every item is listed.

    Raises UsageError where the runs are on other data, or where no two of them ask the same kind.
    """
    if served.manifest.dataset.digest != own.manifest.dataset.digest:
        raise UsageError(
            f"{served.folder} and {own.folder} are on other data ({served.manifest.dataset.name}, "
            f"{own.manifest.dataset.name}), so that their probabilities are of other questions; run both on the same"
        )
    record = endpoint_record(served.folder, served.manifest)
    assert record is not None  # by_endpoint chose it for that
    sides = [
        [
            each
            for each in own_layouts(run.measurements).values()
            if not protocols or {each.name, _entry(each)} & {*protocols}
        ]
        for run in (served, own)
    ]
    pairs = [
        (left, right)
        for left in sides[0]
        for right in sides[1]
        if left.protocol.kind == right.protocol.kind
        and right.scores is not None
        and left.scores is not None
    ]
    if not pairs:
        raise UsageError(
            f"{own.folder} computes no layout for a kind of question that {served.folder} asked; run one there, such "
            "as decision/transformers-5.23"
        )
    compared = [minus_own_computation(pair, record, own.noise) for pair in pairs]
    return compared if items else [replace(each, items=()) for each in compared]


def _entry(measured: Measurement) -> str:
    return measured.name.removesuffix(f":{measured.protocol.kind}")


def _refusals(run: Run, name: str) -> Refusals:
    measured = run.measurements[name]
    everything = np.ones(len(measured.credit), dtype=np.bool_)
    reasons = measured.missing_reasons(everything)
    refused = sum(each.count for each in reasons if each.reason.startswith(REFUSED))
    known = measured.credit[~np.isnan(measured.credit)]
    value = float(known.mean()) if len(known) else math.nan
    share, whole = measured.metric.share, len(known) + refused
    as_wrong = float(known.sum() / whole) if share and whole else math.nan
    assert measured.scores is not None
    floored, item = measured.scores <= math.log(LEAST), row_of(measured.evidence.item_offsets)
    at_floor = [len(np.unique(item[rows])) for rows in (floored, floored & measured.evidence.right)]
    return Refusals(name, len(measured.credit), refused, share, value, as_wrong, *at_floor)
