"""The rows of a report: one per model, dataset, protocol, metric and group."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from choicewise.protocols.family import family
from choicewise.protocols.metrics import METRICS
from choicewise.protocols.signature import short_signature, signature
from choicewise.protocols.unused import unused
from choicewise.records.manifest import Manifest, Selection, SkippedRow
from choicewise.results.diagnosis import ALARMS, Diagnosis, diagnose
from choicewise.results.identity import data_id, run_id, text_id, token_id
from choicewise.results.interval import check_clusters, interval
from choicewise.results.json_value import json_value
from choicewise.results.measurement import Measurement
from choicewise.results.reasons import MissingReason, counted
from choicewise.scoring.metrics import GROUPS, Value
from choicewise.scoring.ragged import Mask

MANY = 3
"""Subjects that are named; more of them are counted."""


@dataclass(frozen=True, slots=True)
class Row:
    """One number with everything that is needed to trust or distrust it.

    ``data``, ``id``, ``i``, ``t`` and ``r`` are short ids of dataset and protocol, of what was sent in texts and asked
    in tokens, and of the model as it was computed (:mod:`choicewise.results.identity`).  ``family`` says what the
    protocol asks for (:mod:`choicewise.protocols.family`).  ``selection`` says in words which part of the
    data the run is about, nothing for all of it.  ``value``, ``se``, ``ci_low`` and ``ci_high`` are shares of 1 where
    :attr:`share` says so, NaN where there is nothing to average; ``interval`` names the 95 % interval.  ``low`` and
    ``high`` bound the value that numeric noise of ``noise`` nats allows (None: not measured), ``ties`` counts the
    items that are tied exactly, ``near_ties`` the further ones that noise leaves open; NaN and None where the effect of
    noise is not known.  ``unlisted`` counts the items of which an answer is known as an upper bound alone, because a
    server lists only the likeliest tokens: ``low`` and ``high`` hold whatever those answers are (then of unknown noise
    nothing more), and the items that they leave undecided, which are in ``missing`` and not in the value.
    ``n`` counts the items the value is a mean over, ``missing`` those that could not be scored, ``invalid`` those of
    ``n`` whose generated text names no option, ``skipped`` the rows of the data that could not be used at all.

    Items of the row with a doubt: ``shots_dropped`` and ``truncated`` lost few-shot examples or tokens, ``merged`` have
    a token across the end of the context, ``noncanonical`` were scored in other tokens than the text's own, ``lossy``
    in tokens that do not spell it, ``unknown`` in unknown ones.  ``diagnosis`` says what speaks against the value.
    ``unused`` are the fields of the data with content that the protocol does not show.
    ``missing_reasons`` and ``skipped_reasons`` say why, with a count and one example each, the most common first.
    ``model_source`` and ``dataset_source`` name repository and commit where they came from the Hub.
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
    family: str
    id: str
    i: str
    t: str
    r: str
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
    near_ties: int | None
    noise: float | None
    skipped: int
    shots_dropped: int
    truncated: int
    merged: int
    noncanonical: int
    lossy: int
    unknown: int
    diagnosis: Diagnosis
    unused: tuple[str, ...] = ()
    rank: int | None = None
    rank_low: int | None = None
    rank_high: int | None = None
    missing_reasons: tuple[MissingReason, ...] = ()
    skipped_reasons: tuple[MissingReason, ...] = ()
    model_source: str = ""
    dataset_source: str = ""
    unlisted: int = 0
    server_changed: str = ""

    @property
    def share(self) -> bool:
        """Whether the value is a share of 1, of which more is better; else less of it is (perplexity)."""
        return self.metric not in METRICS or METRICS[self.metric].share

    @property
    def chance(self) -> float:
        """The value that guessing is expected to have, over the row's items as the value is; NaN without any."""
        return self.diagnosis.chance

    def as_json(self) -> dict[str, Any]:
        """The row as JSON knows it: NaN and infinity become null, flags stand beside the numbers."""
        content = asdict(self)
        diagnosis = content.pop("diagnosis")
        flags = diagnosis.pop("flags")
        raised = {"flags": flags, "alarms": [flag for flag in flags if flag in ALARMS]}
        return json_value({**content, "chance": self.chance, **raised, "diagnosis": diagnosis})


def rows(
    manifest: Manifest, measured: Measurement, by: str | None, intervals: str | None, siblings: Sequence[Measurement]
) -> list[Row]:
    """The rows of one measurement: under the protocol's own aggregation, or one row per group of ``by``.

    ``intervals`` names another interval (:mod:`choicewise.results.interval`); ``siblings`` are the run's measurements.
    The texts were read before (:func:`choicewise.results.sent_texts.read_texts`).
    """
    protocol, evidence, dataset = measured.protocol, measured.evidence, manifest.dataset
    aggregation = by or protocol.aggregation
    extremes, chances = measured.extremes(aggregation), measured.chances(aggregation)
    group_of = {name: GROUPS[aggregation](name, measured.categories) for name in dict.fromkeys(evidence.subjects)}
    groups = np.array([group_of[name] for name in evidence.subjects], dtype=object)
    if intervals == "clustered":
        check_clusters(dataset.name, groups.tolist(), evidence.subjects)
    counted = {"invalid": measured.invalid, "unlisted": measured.unlisted, **evidence.doubts}
    changed = "" if manifest.server is None else manifest.server.changed
    report = []
    for group, mean in measured.values(aggregation).items():
        among = np.asarray(groups == group, dtype=np.bool_)
        interval_name, value = _interval(measured, among, mean, aggregation == "macro", intervals)
        row = Row(
            model=manifest.model.name,
            dataset=dataset.name,
            data=data_id(dataset),
            selection=selection(manifest, measured),
            subject=group,
            protocol=measured.name,
            signature=signature(protocol),
            family=family(protocol),
            id=short_signature(protocol),
            i=text_id(evidence, protocol),
            t=token_id(evidence, protocol),
            r=run_id(manifest),
            metric=protocol.metric,
            interval=interval_name,
            low=extremes[group][0],
            high=extremes[group][1],
            near_ties=int((measured.near_ties & among).sum()) if measured.bounded[among].all() else None,
            noise=measured.noise,
            skipped=len(dataset.skipped),
            **asdict(value),
            **{name: int((items & among).sum()) for name, items in counted.items()},
            diagnosis=diagnose(measured, among, value, chances[group], siblings, bool(changed)),
            unused=unused(protocol, dataset.content),
            missing_reasons=measured.missing_reasons(among),
            skipped_reasons=skipped_reasons(dataset.skipped),
            model_source=manifest.model.source,
            dataset_source=dataset.source,
            server_changed=changed,
        )
        report.append(row)
    return report


def selection(manifest: Manifest, measured: Measurement) -> str:
    """The part of the data that a number is about, in words: subjects, a limit, or how much of it is there yet."""
    asked, every = measured.asked
    lacking = f"incomplete: {asked:,} of {every:,} items" if asked < every else ""
    return ", ".join(filter(None, (chosen_part(manifest.selection), lacking or "incomplete" * (not manifest.complete))))


def chosen_part(chosen: Selection) -> str:
    """The part of the data that a run is to ask, in words; nothing for all of it."""
    subjects, limit = chosen.subjects, chosen.limit
    named = [] if subjects is None else subjects if len(subjects) <= MANY else [f"{len(subjects)} subjects"]
    first = [] if limit is None else [f"first {limit} of each subject"]
    return ", ".join([*named, *first])


@lru_cache(maxsize=8)
def skipped_reasons(skipped: tuple[SkippedRow, ...]) -> tuple[MissingReason, ...]:
    """Why rows of the data could not be used."""
    return counted((row.reason, f"{row.file}, row {row.row}") for row in skipped)


def _interval(measured: Measurement, among: Mask, value: Value, macro: bool, name: str | None) -> tuple[str, Value]:
    if not measured.metric.counted:
        return "normal", value
    if name is None:
        return "wilson", value
    scored = among & ~measured.decisions.missing
    subjects = [measured.evidence.subjects[place] for place in np.flatnonzero(scored)]
    low, high = interval(name, measured.decisions.credit[scored], subjects, macro)
    return name, replace(value, ci_low=low, ci_high=high)
