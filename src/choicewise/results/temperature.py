"""Fit temperatures to the probabilities of a run."""

from __future__ import annotations

import math
from dataclasses import replace

from choicewise.errors import UsageError
from choicewise.protocols.between import as_accuracy
from choicewise.protocols.metrics import METRICS
from choicewise.protocols.protocol import Protocol
from choicewise.results.measurement import Measurement, shared_items
from choicewise.results.rows import selection
from choicewise.results.run import Run
from choicewise.scoring.probabilities import fit_temperature


def with_temperature(run: Run, fitted_on: Run) -> tuple[Run, list[str]]:
    """Return ``run`` with temperatures fitted on another run, and a line about each of them.

    A protocol gets one if its metric looks at a softmax.  ``fitted_on`` answers the same protocols
    on other items, such as those of another split.  Raises UsageError if the runs share items, if
    ``fitted_on`` was not asked what a protocol asks, or if it has no item with all scores.
    """
    protocols = dict(run.protocols)
    lines = []
    for name, protocol in run.protocols.items():
        if not METRICS[protocol.metric].softmax or protocol.score == "none":
            continue
        # The log score is a proper rule: its best temperature is that of maximum likelihood.
        fitting = replace(protocol, metric="log-score", aggregation="micro")
        measured = _measured_on_any_split(fitted_on, name, fitting)
        if _share_items(run, fitted_on, measured, protocol):
            raise UsageError(
                f"{fitted_on.folder} and {run.folder} share items, and a temperature "
                "fitted on scored items flatters; run the same protocols on another "
                "split, such as NAME@split=validation"
            )
        assert measured.judged is not None
        temperature = fit_temperature(measured.judged)
        if math.isnan(temperature):
            raise UsageError(
                f"{fitted_on.folder} has no fully scored item under {name}, so no "
                "temperature can be fitted"
            )
        protocols[name] = replace(protocol, temperature=f"{temperature:.6g}")
        split = measured.protocol.split or "all"
        items = selection(fitted_on.manifest, measured)
        if not items:
            items = f"{len(measured.evidence.items):,} items"
        lines.append(f"{name}: temperature {temperature:.4g}, fitted on {split} ({items})")
    return run.under(protocols), lines


def _measured_on_any_split(run: Run, name: str, protocol: Protocol) -> Measurement:
    """Measure a protocol on its own split, or else on the first split that ``run`` has of it."""
    splits = [protocol.split]
    splits += [other.split for other in run.protocols.values()]
    for split in dict.fromkeys(splits):
        on_split = {name: replace(protocol, split=split)}
        if not run.lacking(on_split):
            return run.under(on_split).measurements[name]
    raise UsageError(f"{run.folder} has no {name} on any split, so no temperature can be fitted")


def _share_items(run: Run, other: Run, measured: Measurement, protocol: Protocol) -> bool:
    """Check that ``run`` has an item of what was measured in the ``other`` run."""
    # Other data has other items, whatever their ids.
    if run.manifest.dataset.digest != other.manifest.dataset.digest:
        return False
    if measured.protocol.split != protocol.split:
        return False
    scored = run.under({"": as_accuracy(protocol)}).measurements[""]
    ids, _ = shared_items([scored, measured])
    return len(ids) > 0
