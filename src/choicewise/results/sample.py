"""Runs of a sample, with what other models' runs of all items add to their numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from choicewise.protocols.metrics import METRICS
from choicewise.protocols.protocol import signature
from choicewise.results.outcomes import Outcome, Summary
from choicewise.results.rows import data_id
from choicewise.scoring.observed import Floats
from choicewise.scoring.sampling import Estimate, aipw
from choicewise.util.jsonio import json_value


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleEstimate:
    """A number of a model's sample as it is estimated for all items; ``others``: the models whose credits helped."""

    model: str
    dataset: str
    data: str
    selection: str
    protocol: str
    signature: str
    metric: str
    others: tuple[str, ...]
    estimate: Estimate

    def as_json(self) -> dict[str, Any]:
        """A row of a report whose metric is called ``...-estimate``, with the ``population`` it is about."""
        content = asdict(self)
        estimate = content.pop("estimate")
        about = {
            "subject": "all",
            "missing": 0,
            "interval": "t",
            "metric": f"{self.metric}-estimate",
        }
        return json_value({**content, **estimate, **about})


@dataclass(frozen=True, slots=True)
class Estimates:
    """The estimates of every sample, and why another run of the same data is of no use for them."""

    rows: tuple[SampleEstimate, ...] = ()
    notes: tuple[str, ...] = ()


def sample_estimates(runs: Sequence[Summary]) -> Estimates:
    """Of every run of a sample among ``runs`` the numbers that other models' runs of all items make more certain.

    A number that is no mean over items has none, nor one that has groups.  The sample is taken as drawn from all items
    at once; that every subject has its share makes it a little more certain than that.
    """
    rows, notes = list[SampleEstimate](), list[str]()
    for run in runs:
        if run.manifest.selection.sample is None:
            continue
        same = [
            each
            for each in runs
            if each.manifest.dataset.digest == run.manifest.dataset.digest
            and each.manifest.model.digest != run.manifest.model.digest
        ]
        for outcome in run.outcomes.outcomes:
            rows += _estimates(run, outcome, same, notes)
    return Estimates(tuple(rows), tuple(dict.fromkeys(notes)))


def _estimates(
    run: Summary, outcome: Outcome, same: Sequence[Summary], notes: list[str]
) -> list[SampleEstimate]:
    protocol, metric = outcome.protocol, METRICS[outcome.protocol.metric]
    if metric.pooled or metric.exponential or protocol.aggregation not in ("micro", "macro"):
        return []
    sizes = run.manifest.selection.drawn_from.get(protocol.split or "", {})
    items, names, others = (
        pa.table({"item": pa.array([], pa.string())}),
        list[str](),
        list[Floats](),
    )
    for other in same:
        whole = next(
            (each for each in other.outcomes.outcomes if each.protocol.digest == protocol.digest),
            None,
        )
        if whole is None or other.manifest.selection.sample is not None:
            continue
        own = whole.items.filter(
            pc.is_in(whole.items["subject"].cast(pa.string()), pa.array([*sizes], pa.string()))
        )
        held = int(pc.sum(pc.is_in(outcome.ids, own["item"].combine_chunks())).as_py() or 0)
        if len(own) != sum(sizes.values()) or held < len(outcome.ids):
            notes.append(
                f"{other.manifest.model.name} can't help to estimate {run.manifest.model.name}: it holds {len(own):,} "
                f"of the {sum(sizes.values()):,} items to draw from, and {held:,} of the {len(outcome.ids):,} drawn"
            )
            continue
        items = items if others else own
        places = pc.index_in(items["item"].combine_chunks(), whole.ids.combine_chunks()).to_numpy()
        names.append(other.manifest.model.name)
        others.append(whole.credit[places])
    if not others:
        return []
    weights = _weights(items, sizes) if protocol.aggregation == "macro" else None
    places = pc.index_in(outcome.ids, items["item"].combine_chunks()).to_numpy().astype(np.int64)
    estimate = aipw(
        outcome.credit, places, np.array(others), weights, low=metric.low, high=metric.high
    )
    return [
        SampleEstimate(
            model=run.manifest.model.name,
            dataset=run.manifest.dataset.name,
            data=data_id(run.manifest.dataset),
            selection=outcome.selection,
            protocol=outcome.name,
            signature=signature(protocol),
            metric=protocol.metric,
            others=tuple(names),
            estimate=estimate,
        )
    ]


def _weights(items: pa.Table, sizes: Mapping[str, int]) -> Floats:
    """Of each item in the mean of the subjects' means; their mean is 1."""
    each = {subject: len(items) / (len(sizes) * size) for subject, size in sizes.items() if size}
    return np.array([each[subject] for subject in items["subject"].to_pylist()], dtype=np.float64)
