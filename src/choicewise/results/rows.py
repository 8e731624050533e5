"""The rows of a report: one per model, dataset, protocol, metric and group."""

from collections.abc import Sequence
from dataclasses import asdict, replace

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
    manifest: Manifest, measured: Measurement, by: str | None, intervals: str | None, siblings: Sequence[Measurement]
) -> list[Row]:
    """The rows of one measurement: under the protocol's own aggregation, or one row per group of ``by``.

    ``intervals`` names another interval (:mod:`choicewise.results.interval`); ``siblings`` are the run's measurements.
    """
    protocol, evidence, dataset = measured.protocol, measured.evidence, manifest.dataset
    aggregation = by or protocol.aggregation
    extremes = measured.extremes(aggregation)
    groups = {
        subject: GROUPS[aggregation](subject, measured.categories) for subject in dict.fromkeys(evidence.subjects)
    }
    group_of = np.array([groups[subject] for subject in evidence.subjects], dtype=object)
    report = []
    for group, mean in measured.values(aggregation).items():
        among = np.asarray(group_of == group, dtype=np.bool_)
        interval_name, value = _interval(measured, among, mean, aggregation == "macro", intervals)
        counted = {"invalid": measured.invalid, "near_ties": measured.near_ties, **evidence.doubts}
        row = Row(
            model=manifest.model.name,
            dataset=dataset.name,
            data=f"#D{dataset.digest[:6]}",
            selection=selection(manifest),
            subject=group,
            protocol=measured.name,
            signature=signature(protocol),
            id=short_signature(protocol),
            metric=protocol.metric,
            interval=interval_name,
            low=extremes[group][0],
            high=extremes[group][1],
            noise=measured.noise,
            skipped=len(dataset.skipped),
            **asdict(value),
            **{name: int((items & among).sum()) for name, items in counted.items()},
            diagnosis=diagnose(measured, among, value, siblings),
        )
        report.append(row)
    return report


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
