"""The rows of a report: one per model, dataset, protocol, metric and group."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from choicewise.protocols.signature import short_signature, signature
from choicewise.records.manifest import Manifest
from choicewise.results.diagnosis import Diagnosis, diagnose
from choicewise.results.interval import interval
from choicewise.results.measurement import Measurement
from choicewise.scoring.metrics import GROUPS, Value
from choicewise.scoring.ragged import Mask

MANY = 3
"""Subjects that are named; more of them are counted."""


@dataclass(frozen=True, slots=True)
class Row:
    """One number with everything that is needed to trust or distrust it.

    ``data`` and ``id`` are the short digests of dataset and protocol.  ``selection`` says in words which part of the
    data the run is about, nothing for all of it.  ``value``, ``se``, ``ci_low`` and ``ci_high`` are shares of 1, NaN
    where there is nothing to average; ``interval`` names the 95 % interval.  ``low`` and ``high`` bound the value
    that numeric noise of ``noise`` nats allows (None: not measured), ``ties`` counts the items that are tied exactly,
    ``near_ties`` the further ones that noise leaves open.  ``n`` counts the items the value is a mean over,
    ``missing`` those that could not be scored, ``invalid`` those of ``n`` whose generated text names no option,
    ``skipped`` the rows of the data that could not be used at all.

    Items of the row with a doubt: ``shots_dropped`` and ``truncated`` lost few-shot examples or tokens, ``merged`` have
    a token across the end of the context, ``noncanonical`` were scored in other tokens than the text's own, ``lossy``
    in tokens that do not spell it, ``unknown`` in unknown ones.  ``diagnosis`` says what speaks against the value.
    ``rank`` is 1 for the best of the models measured on the same; ``rank_low`` and ``rank_high`` bound it over draws of
    items.
    """

    model: str
    dataset: str
    data: str
    selection: str
    subject: str
    protocol: str
    signature: str
    id: str
    metric: str
    value: float
    se: float
    interval: str
    ci_low: float
    ci_high: float
    low: float
    high: float
    n: int
    missing: int
    invalid: int
    ties: int
    near_ties: int
    noise: float | None
    skipped: int
    shots_dropped: int
    truncated: int
    merged: int
    noncanonical: int
    lossy: int
    unknown: int
    diagnosis: Diagnosis
    rank: int | None = None
    rank_low: int | None = None
    rank_high: int | None = None

    def as_json(self) -> dict[str, Any]:
        """The row as JSON knows it: NaN and infinity become null, flags stand beside the numbers."""
        content = asdict(self)
        diagnosis = content.pop("diagnosis")
        flags = list(diagnosis.pop("flags"))
        return plain({**content, "flags": flags, "diagnosis": diagnosis})


def plain(value: Any) -> Any:
    """``value`` without what JSON has no word for: NaN and infinity become null, dataclass fields included."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: plain(inner) for key, inner in value.items()}
    return [plain(inner) for inner in value] if isinstance(value, list | tuple) else value


def rows(
    about: Manifest,
    measured: Measurement,
    by: str | None = None,
    intervals: str | None = None,
    siblings: Sequence[Measurement] = (),
) -> list[Row]:
    """The rows of one measurement: under the protocol's own aggregation, or one row per group of ``by``.

    ``intervals`` names another interval (:mod:`choicewise.results.interval`); ``siblings`` are the run's measurements.
    """
    aggregation = by or measured.protocol.aggregation
    values, extremes = measured.values(aggregation), measured.extremes(aggregation)
    number = {group: place for place, group in enumerate(values)}
    group_of = {subject: number[GROUPS[aggregation](subject)] for subject in dict.fromkeys(measured.evidence.subjects)}
    places = np.array([group_of[subject] for subject in measured.evidence.subjects], dtype=np.int64)
    found = []
    for subject, value in values.items():
        among = np.asarray(places == number[subject], dtype=np.bool_)
        name, value = _interval(measured, among, value, aggregation == "macro", intervals)
        found.append(_row(about, measured, subject, among, value, name, extremes[subject], siblings))
    return found


def _row(
    about: Manifest,
    measured: Measurement,
    subject: str,
    among: Mask,
    value: Value,
    interval_name: str,
    extremes: tuple[float, float],
    siblings: Sequence[Measurement],
) -> Row:
    evidence, digest = measured.evidence, about.dataset.digest
    return Row(
        model=about.model.name,
        dataset=about.dataset.name,
        data=f"#D{digest[:6]}",
        selection=selection(about),
        subject=subject,
        protocol=measured.name,
        signature=signature(measured.protocol),
        id=short_signature(measured.protocol),
        metric=measured.protocol.metric,
        value=value.value,
        se=value.se,
        interval=interval_name,
        ci_low=value.ci_low,
        ci_high=value.ci_high,
        low=extremes[0],
        high=extremes[1],
        n=value.n,
        missing=value.missing,
        invalid=int((measured.invalid & among).sum()),
        ties=value.ties,
        near_ties=int((measured.near_ties & among).sum()),
        noise=measured.noise,
        skipped=len(about.dataset.skipped),
        shots_dropped=int((evidence.positive("shots_dropped") & among).sum()),
        truncated=int((evidence.positive("tokens_dropped") & among).sum()),
        merged=int((evidence.merged & among).sum()),
        noncanonical=int((evidence.flagged("noncanonical") & among).sum()),
        lossy=int((evidence.flagged("lossy") & among).sum()),
        unknown=int((evidence.flagged("unknown") & among).sum()),
        diagnosis=diagnose(measured, among, value, siblings),
    )


def selection(about: Manifest) -> str:
    """The part of the data that a run is about, in words: subjects, a limit, or that it is not all there yet."""
    chosen, limit = about.selection.subjects, about.selection.limit
    named = [] if chosen is None else chosen if len(chosen) <= MANY else [f"{len(chosen)} subjects"]
    first = [] if limit is None else [f"first {limit} of each subject"]
    return ", ".join([*named, *first, *([] if about.complete else ["incomplete"])])


def _interval(measured: Measurement, among: Mask, value: Value, macro: bool, asked: str | None) -> tuple[str, Value]:
    """The interval's name, and the value with it."""
    if asked is None:
        return "normal" if macro else "wilson", value
    scored = among & ~measured.decisions.missing
    subjects = [measured.evidence.subjects[place] for place in np.flatnonzero(scored)]
    name, low, high = interval(asked, measured.decisions.credit[scored], subjects, macro)
    return name, value if name == "normal" else replace(value, ci_low=low, ci_high=high)


def ranked(found: Sequence[Row]) -> list[Row]:
    """The same rows with the rank of each model among those measured the same way; equal values share a rank."""
    rivals: dict[tuple[str, ...], list[float]] = {}
    for row in found:
        rivals.setdefault(_same(row), []).append(row.value)
    return [replace(row, rank=rank(row.value, rivals[_same(row)])) for row in found]


def _same(row: Row) -> tuple[str, ...]:
    return row.data, row.selection, row.subject, row.signature


def rank(value: float, rivals: Sequence[float]) -> int | None:
    """1 for the greatest; equal values share a rank; None for NaN, which is no value."""
    if math.isnan(value):
        return None
    return 1 + sum(rival > value for rival in rivals)
