"""How far a run's probabilities can be believed: reliability tables, fitted temperatures, the chain of metrics."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from choicewise.errors import UsageError
from choicewise.protocols.between import as_accuracy, under_metrics
from choicewise.protocols.metrics import CHAIN, METRICS
from choicewise.protocols.protocol import Protocol
from choicewise.results.measurement import Measurement, shared_items
from choicewise.results.rows import Row, selection
from choicewise.results.run import Run
from choicewise.scoring.probabilities import BINS, Bin, fit_temperature, reliability


@dataclass(frozen=True, slots=True)
class Reliability:
    """The reliability table of a calibration error: ``protocol`` and ``metric`` name it, ``value`` is the error."""

    protocol: str
    metric: str
    value: float
    bins: tuple[Bin, ...]


def reliability_tables(run: Run) -> list[Reliability]:
    """Those of the protocols of ``run`` whose metric is a calibration error."""
    return [
        Reliability(name, measured.protocol.metric, measured.overall, tuple(_bins(measured)))
        for name, measured in run.measurements.items()
        if measured.protocol.metric in BINS
    ]


def chain(run: Run, protocol: str) -> list[Row]:
    """The rows of ``CHAIN`` under one protocol of ``run``, in order; those that it can't have are left out."""
    own = {protocol: run.protocols[protocol]}
    made: dict[str, Protocol] = {}
    for metric in CHAIN:
        try:
            made |= under_metrics(own, [metric])
        except UsageError:
            continue  # a score that is no log-likelihood has no probability
    return run.under(made).rows()


def with_temperature(run: Run, fitted_on: Run) -> tuple[Run, list[str]]:
    """``run`` with the temperature that fits each protocol best on ``fitted_on``, and a line for each that says which.

    Of protocols whose metric looks at a softmax; ``fitted_on`` answers the same protocols on other items, such as those
    of another split.  Raises UsageError where the two share items, or where it was not asked what a protocol asks.
    """
    chosen, lines = dict(run.protocols), []
    for name, protocol in run.protocols.items():
        if not METRICS[protocol.metric].softmax or protocol.score == "none":
            continue
        measured = _fitting(
            fitted_on, name, replace(protocol, metric="log-score", aggregation="micro")
        )
        if _overlap(run, fitted_on, measured, protocol):
            raise UsageError(
                f"{fitted_on.folder} and {run.folder} share items: a temperature that is fitted on the items it scores "
                "flatters; run the same protocols on another split, such as NAME@split=validation"
            )
        assert measured.judged is not None
        temperature = fit_temperature(measured.judged)
        if math.isnan(temperature):
            raise UsageError(
                f"{fitted_on.folder} has no item that is scored in full under {name}: nothing to fit on"
            )
        chosen[name] = replace(protocol, temperature=f"{temperature:.6g}")
        about = selection(fitted_on.manifest, measured) or f"{len(measured.evidence.items):,} items"
        lines.append(
            f"{name}: temperature {temperature:.4g}, fitted on {measured.protocol.split or 'all'} ({about})"
        )
    return run.under(chosen), lines


def _bins(measured: Measurement) -> list[Bin]:
    assert measured.judged is not None
    return reliability(measured.protocol.metric, measured.judged)


def _fitting(run: Run, name: str, protocol: Protocol) -> Measurement:
    """What ``run`` has of the protocol, whatever its split."""
    splits = dict.fromkeys(each.split for each in run.protocols.values())
    for split in (protocol.split, *splits):
        other = {name: replace(protocol, split=split)}
        if not run.lacking(other):
            return run.under(other).measurements[name]
    raise UsageError(
        f"{run.folder} was not asked what {name} asks, on any split: there is nothing to fit on"
    )


def _overlap(run: Run, other: Run, measured: Measurement, protocol: Protocol) -> bool:
    """Whether ``run`` is about an item that the measurement of the ``other`` run knows."""
    same_data = run.manifest.dataset.digest == other.manifest.dataset.digest
    if not same_data or measured.protocol.split != protocol.split:
        return False
    mine = run.under({"": as_accuracy(protocol)}).measurements[""]
    return bool(len(shared_items([mine, measured])[1][0]))
