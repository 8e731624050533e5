"""Sum up what the answers of a decision endpoint contain beside their probabilities in a run."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from choicewise.errors import UsageError
from choicewise.extensions.endpoints.decisions.answers import REFUSED
from choicewise.extensions.endpoints.decisions.claims import Check, checks
from choicewise.extensions.endpoints.decisions.exchange import Exchange, of_repeats, repeated
from choicewise.extensions.endpoints.decisions.minus_own import (
    ServedMinusOwn,
    minus_own_computation,
)
from choicewise.protocols.between import MARK
from choicewise.protocols.readings import READINGS
from choicewise.questions import Decision
from choicewise.records import OBSERVATIONS, EndpointRecord, Manifest, ServerRecord
from choicewise.results.measurement import Measurement
from choicewise.results.run import Run
from choicewise.scoring.combine import is_nought
from choicewise.scoring.observed import row_of
from choicewise.store.tables import block_file, read_batches

AGREES = 0.005
"""By how much a confidence may differ from the recomputed one, of two decimals."""


@dataclass(frozen=True, kw_only=True)
class Refusals:
    """Count what an endpoint ``refused`` of the items of a protocol.

    ``value`` and ``as_wrong``: the protocol's number without the refused items and with these as
    wrong answers; NaN if there is none, or if no answer can be wrong.  ``share``: True if it is a
    share of 1.  ``floor``: items with an option of probability 0, which counts as 1e-12;
    ``right``: those of them in which that is a right option.
    """

    protocol: str
    items: int
    refused: int
    share: bool
    value: float
    as_wrong: float
    floor: int
    right: int


@dataclass(frozen=True, kw_only=True)
class EndpointSummary:
    """Sum up a run of a decision endpoint.

    ``questions``: stored requests, without repeats.  ``models``: the model's names in answers, with
    counts.  ``missing``, ``contradictions`` and ``notes``: kind → questions.  ``confidence``:
    questions with a confidence; ``recomputed``: those in which TypeSafe's formula gives another
    one.  ``usage``: sums, by name.  ``checks``: what is to be believed of the numbers.
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
    """Yield every question that was sent, in the order of the blocks.

    No block is in memory as a whole.
    """
    for block in manifest.blocks:
        file = block_file(folder, block, "observations")
        for batch in read_batches(file, OBSERVATIONS, ["exchange"]):
            yield from map(Exchange.of, batch["exchange"].drop_null().to_pylist())


def endpoint_record(folder: Path, manifest: Manifest) -> EndpointRecord | None:
    """Return the manifest's record of the endpoint, with all questions that were sent twice.

    None if the model is no endpoint.
    """
    if manifest.server is None or manifest.server.endpoint is None:
        return None
    endpoint = manifest.server.endpoint
    pairs = repeated(exchanges(folder, manifest))
    return replace(of_repeats(endpoint.dialect, pairs), doubts=endpoint.doubts)


def closing_record(folder: Path, manifest: Manifest, now: ServerRecord) -> ServerRecord:
    """Return the endpoint's record after the last question: repeats, and the greatest noise."""
    before = manifest.server or now
    noise = max(before.noise, now.noise)
    return replace(before, endpoint=endpoint_record(folder, manifest), noise=noise)


def endpoint_summary(run: Run) -> EndpointSummary | None:
    """Count what answers contain beside their probabilities; None if the model is no endpoint."""
    endpoint = endpoint_record(run.folder, run.manifest)
    if endpoint is None:
        return None
    models = Counter[str]()
    missing = Counter[str]()
    contradictions = Counter[str]()
    notes = Counter[str]()
    usage: dict[str, float] = {}
    questions = 0
    confident = 0
    recomputed = 0
    for exchange in exchanges(run.folder, run.manifest):
        questions += 1
        if exchange.model is not None:
            models[exchange.model] += 1
        if exchange.missing is not None:
            missing[REFUSED if exchange.refused else exchange.missing] += 1
        contradictions.update({text.partition(":")[0] for text in exchange.contradictions})
        notes.update(set(exchange.notes))
        for name, count in exchange.usage.items():
            usage[name] = usage.get(name, 0.0) + count
        if exchange.confidence is not None and exchange.recomputed is not None:
            confident += 1
            recomputed += abs(exchange.confidence - exchange.recomputed) > AGREES
    protocols = []
    for name, protocol in run.protocols.items():
        if Decision in READINGS[protocol.reading].needs:
            protocols.append(_refusals(run, name))
    return EndpointSummary(
        endpoint=endpoint,
        questions=questions,
        models=dict(models.most_common()),
        missing=dict(missing.most_common()),
        contradictions=dict(contradictions.most_common()),
        notes=dict(notes.most_common()),
        confidence=confident,
        recomputed=recomputed,
        usage=usage,
        protocols=tuple(protocols),
        checks=tuple(checks(exchanges(run.folder, run.manifest))),
    )


def by_endpoint(left: Run, right: Run) -> tuple[Run, Run] | None:
    """Return the run of a decision endpoint and the other one; None if there is no such pair."""
    if _is_of_endpoint(left) == _is_of_endpoint(right):
        return None
    return (left, right) if _is_of_endpoint(left) else (right, left)


def _is_of_endpoint(run: Run) -> bool:
    server = run.manifest.server
    return server is not None and server.endpoint is not None


def served_minus_own(
    served: Run, own_run: Run, protocols: Sequence[str] = (), items: bool = True
) -> list[ServedMinusOwn]:
    """Compare the endpoint's answers with our layouts for questions of the same kind.

    Every protocol of ``served`` is compared with every one of ``own_run``.  ``protocols``: only
    these, of either run.  ``items``: False leaves out the items.

    Raises UsageError if the runs are on other data, or if no two protocols have the same kind.
    """
    if served.manifest.dataset.digest != own_run.manifest.dataset.digest:
        names = f"{served.manifest.dataset.name}, {own_run.manifest.dataset.name}"
        raise UsageError(
            f"{served.folder} and {own_run.folder} are on different data ({names}); "
            "run both on the same"
        )
    record = endpoint_record(served.folder, served.manifest)
    assert record is not None  # by_endpoint chose the run for that
    layouts = _scored_layouts(own_run, protocols)
    compared = []
    for endpoint in _scored_layouts(served, protocols):
        for layout in layouts:
            if endpoint.protocol.kind != layout.protocol.kind:
                continue
            comparison = minus_own_computation((endpoint, layout), record, own_run.noise)
            if not items:
                comparison = replace(comparison, items=())
            compared.append(comparison)
    if not compared:
        raise UsageError(
            f"{own_run.folder} has no layout for the kinds of question in {served.folder}. Run one "
            "there, such as decision/transformers-5.23"
        )
    return compared


def _scored_layouts(run: Run, protocols: Sequence[str]) -> list[Measurement]:
    """Return the measurements with scores, of ``protocols`` if any are named.

    Steps of ladders are nobody's layouts and left out, unless a run has nothing else.
    """
    layouts = {name: measured for name, measured in run.measurements.items() if MARK not in name}
    scored = []
    for measured in (layouts or run.measurements).values():
        entry = measured.name.removesuffix(f":{measured.protocol.kind}")
        is_chosen = not protocols or measured.name in protocols or entry in protocols
        if is_chosen and measured.scores is not None:
            scored.append(measured)
    return scored


def _refusals(run: Run, name: str) -> Refusals:
    measured = run.measurements[name]
    assert measured.scores is not None
    refused = 0
    for reason in measured.missing_reasons(np.ones(len(measured.credit), dtype=np.bool_)):
        if reason.reason.startswith(REFUSED):
            refused += reason.count
    credits = measured.credit[~np.isnan(measured.credit)]
    answered = len(credits) + refused
    value = math.nan
    as_wrong = math.nan
    if len(credits):
        value = float(credits.mean())
    if measured.metric.share and answered:
        as_wrong = float(credits.sum() / answered)
    item = row_of(measured.evidence.item_offsets)
    is_zero = is_nought(measured.scores)
    return Refusals(
        protocol=name,
        items=len(measured.credit),
        refused=refused,
        share=measured.metric.share,
        value=value,
        as_wrong=as_wrong,
        floor=len(np.unique(item[is_zero])),
        right=len(np.unique(item[is_zero & measured.evidence.right])),
    )
