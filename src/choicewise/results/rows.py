"""The rows of a report: one per model, dataset, protocol, metric and group."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from choicewise.protocols.signature import short_signature, signature
from choicewise.records.manifest import Manifest
from choicewise.results.diagnosis import diagnose
from choicewise.results.interval import interval
from choicewise.results.measurement import Measurement
from choicewise.results.row import Row
from choicewise.scoring.metrics import GROUPS, Value
from choicewise.scoring.ragged import Mask

MANY = 3
"""Subjects that are named; more of them are counted."""


def rows(
    manifest: Manifest,
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
    groups = {
        subject: GROUPS[aggregation](subject, measured.categories)
        for subject in dict.fromkeys(measured.evidence.subjects)
    }
    group_of = np.array([groups[subject] for subject in measured.evidence.subjects], dtype=object)
    report = []
    for group, value in values.items():
        among = np.asarray(group_of == group, dtype=np.bool_)
        name, value = _interval(measured, among, value, aggregation == "macro", intervals)
        report.append(_row(manifest, measured, group, among, value, name, extremes[group], siblings))
    return report


def _row(
    manifest: Manifest,
    measured: Measurement,
    group: str,
    among: Mask,
    value: Value,
    interval_name: str,
    extremes: tuple[float, float],
    siblings: Sequence[Measurement],
) -> Row:
    return Row(
        model=manifest.model.name,
        dataset=manifest.dataset.name,
        data=f"#D{str(manifest.dataset.digest)[:6]}",
        selection=selection(manifest),
        subject=group,
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
        skipped=len(manifest.dataset.skipped),
        **{doubt: int((items & among).sum()) for doubt, items in measured.evidence.doubts.items()},
        diagnosis=diagnose(measured, among, value, siblings),
    )


def selection(manifest: Manifest) -> str:
    """The part of the data that a run is about, in words: subjects, a limit, or that it is not all there yet."""
    subjects, limit = manifest.selection.subjects, manifest.selection.limit
    named = [] if subjects is None else subjects if len(subjects) <= MANY else [f"{len(subjects)} subjects"]
    first = [] if limit is None else [f"first {limit} of each subject"]
    return ", ".join([*named, *first, *([] if manifest.complete else ["incomplete"])])


def _interval(measured: Measurement, among: Mask, value: Value, macro: bool, name: str | None) -> tuple[str, Value]:
    """The interval's name, and the value with it."""
    if name is None:
        return "normal" if macro else "wilson", value
    scored = among & ~measured.decisions.missing
    subjects = [measured.evidence.subjects[place] for place in np.flatnonzero(scored)]
    name, low, high = interval(name, measured.decisions.credit[scored], subjects, macro)
    return name, value if name == "normal" else replace(value, ci_low=low, ci_high=high)
