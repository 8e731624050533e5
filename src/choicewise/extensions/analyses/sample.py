"""Estimate a model's number for all items from a sample, with other models' runs of all items."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from choicewise.extensions.analyses.sampling import Estimate, aipw
from choicewise.protocols.metrics import METRICS
from choicewise.protocols.protocol import Protocol, signature
from choicewise.results.outcomes import Outcome, Summary, macro_weights
from choicewise.results.rows import data_id
from choicewise.util.jsonio import JsonDict, json_value


@dataclass(frozen=True, kw_only=True)
class SampleEstimate:
    """Hold the number of a model's sample as it is estimated for all items.

    ``others``: the models whose credits make the estimate more certain.
    """

    model: str
    dataset: str
    data: str
    selection: str
    protocol: str
    signature: str
    metric: str
    others: tuple[str, ...]
    estimate: Estimate

    def as_json(self) -> JsonDict:
        """Return a row of a report with the population; its metric is called ``...-estimate``."""
        content = asdict(self)
        content |= content.pop("estimate")
        content |= {"subject": "all", "missing": 0, "interval": "t"}
        content["metric"] = f"{self.metric}-estimate"
        return json_value(content)


@dataclass(frozen=True)
class SampleEstimates:
    """Hold the estimates of every sample, and why other runs of the same data can't help."""

    rows: tuple[SampleEstimate, ...] = ()
    notes: tuple[str, ...] = ()


def sample_estimates(runs: Sequence[Summary]) -> SampleEstimates:
    """Estimate the numbers of every sample among ``runs`` with other models' runs of all items.

    A number that is no mean over items has no estimate, nor has one with groups.
    """
    rows = []
    notes: dict[str, None] = {}
    for run in runs:
        if run.manifest.selection.sample is None:
            continue
        helpers = [other for other in runs if _is_other_model(run, other)]
        for outcome in run.outcomes.outcomes:
            estimate = _estimate(run, outcome, helpers, notes)
            if estimate is not None:
                rows.append(estimate)
    return SampleEstimates(tuple(rows), tuple(notes))


def _is_other_model(run: Summary, other: Summary) -> bool:
    """Check that a run is of the same data, and of another model."""
    same_data = other.manifest.dataset.digest == run.manifest.dataset.digest
    return same_data and other.manifest.model.digest != run.manifest.model.digest


def _estimate(
    run: Summary, outcome: Outcome, helpers: Sequence[Summary], notes: dict[str, None]
) -> SampleEstimate | None:
    """Estimate one number; None if no helper has all items.  The reasons are added to ``notes``."""
    protocol = outcome.protocol
    metric = METRICS[protocol.metric]
    if metric.pooled or metric.exponential or protocol.aggregation not in ("micro", "macro"):
        return None
    sizes = run.manifest.selection.drawn_from.get(protocol.split or "", {})
    size = sum(sizes.values())
    items: pa.Table | None = None
    names = []
    credits = []
    for helper in helpers:
        whole = _outcome_of_all(helper, protocol)
        if whole is None:
            continue
        names_of_subjects = whole.items["subject"].cast(pa.string())
        is_drawn_from = pc.is_in(names_of_subjects, pa.array(list(sizes), pa.string()))
        population = whole.items.filter(is_drawn_from)
        drawn = pc.is_in(outcome.ids, population["item"].combine_chunks())
        drawn_count = int(pc.sum(drawn).as_py() or 0)
        if len(population) != size or drawn_count < len(outcome.ids):
            note = (
                f"{helper.manifest.model.name} can't help to estimate {run.manifest.model.name}: "
                "it holds "
                f"{len(population):,} of the {size:,} items to draw from, and {drawn_count:,} of "
                f"the {len(outcome.ids):,} drawn"
            )
            notes[note] = None
            continue
        # All helpers are put in the order of the first.
        if items is None:
            items = population
        order = pc.index_in(items["item"].combine_chunks(), whole.ids.combine_chunks())
        names.append(helper.manifest.model.name)
        credits.append(whole.credit[order.to_numpy()])
    if items is None:
        return None

    weights = None
    if protocol.aggregation == "macro":
        weights = macro_weights(items["subject"].to_pylist(), np.zeros((1, len(items))))
    # The sample is taken as drawn from all items at once.  Every subject has its share in it, which
    # makes it a little more certain than that.
    sampled = pc.index_in(outcome.ids, items["item"].combine_chunks()).to_numpy().astype(np.int64)
    estimate = aipw(
        outcome.credit, sampled, np.array(credits), weights, low=metric.low, high=metric.high
    )
    return SampleEstimate(
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


def _outcome_of_all(run: Summary, protocol: Protocol) -> Outcome | None:
    """Return the outcome under a protocol of a run that is no sample."""
    if run.manifest.selection.sample is not None:
        return None
    for outcome in run.outcomes.outcomes:
        if outcome.protocol.digest == protocol.digest:
            return outcome
    return None
