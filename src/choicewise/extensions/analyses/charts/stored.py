"""Keep what a page says of probabilities in the summary of a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from choicewise.errors import UsageError
from choicewise.extensions.analyses.statistics import Bin, reliability
from choicewise.protocols.between import apply_metrics, under_metrics
from choicewise.protocols.metrics import CHAIN
from choicewise.protocols.protocol import (
    LETTER_FAMILIES,
    RENDERED,
    TEXT_FAMILIES,
    Protocol,
    Protocols,
    family,
)
from choicewise.results.headline import preference
from choicewise.results.number import Number
from choicewise.results.run import Run
from choicewise.results.summary import read_numbers
from choicewise.scoring.probabilities import BINS
from choicewise.util.jsonio import JsonDict, JsonMapping

FAMILIES = (LETTER_FAMILIES, TEXT_FAMILIES, (RENDERED,))
"""Families of protocols whose probabilities are shown."""

NAME = "probabilities"
"""The statistic's name in a summary."""

_ERRORS = ("ece", "brier")


def stored_protocols(protocols: Protocols) -> dict[str, Protocol]:
    """Return the protocols behind the chain and the calibration of the run's headlines."""
    stored: dict[str, Protocol] = {}
    for families in FAMILIES:
        accuracy = _headline(protocols, families)
        stored |= {**accuracy, **_chain_protocols(accuracy), **_error_protocols(accuracy)}
    # Accuracy alone is a number of the run.
    if stored.keys() <= protocols.keys():
        return {}
    return stored


def stored_probabilities(run: Run) -> JsonDict:
    """Return by digest of a protocol its chain of numbers, its errors and the bins of the first."""
    stored: JsonDict = {}
    for name, protocol in run.protocols.items():
        if protocol.metric != "acc":
            continue
        errors, bins = calibration(run, {name: protocol})
        stored[protocol.digest] = {
            "chain": [asdict(row) for row in chain(run, name)],
            "errors": [asdict(row) for row in errors],
            "bins": [asdict(bin) for bin in bins],
        }
    return stored


def calibration(run: Run, protocol: Protocols) -> tuple[Sequence[Number], Sequence[Bin]]:
    """Return the rows of both errors of a protocol, and the bins of the first.

    Both are empty if it decides without scores, of which there is no confidence.
    """
    errors = _error_protocols(protocol)
    if not errors:
        return (), ()
    under_errors = run.under(errors)
    bins: list[Bin] = []
    for measured in under_errors.measurements.values():
        if measured.protocol.metric in BINS:
            assert measured.judged is not None
            bins = reliability(measured.protocol.metric, measured.judged)
    return under_errors.rows(), bins


def chain(run: Run, protocol: str) -> list[Number]:
    """Return the rows of one protocol of ``run`` under the metrics of ``CHAIN`` that fit it."""
    return run.under(_chain_protocols({protocol: run.protocols[protocol]})).rows()


def _chain_protocols(protocols: Protocols) -> Protocols:
    # A score that is no log-likelihood has no probability.
    return apply_metrics(protocols, CHAIN).protocols


def read_calibration(stored: JsonMapping) -> tuple[tuple[Number, ...], tuple[Bin, ...]]:
    """Return what :func:`calibration` returned of one protocol."""
    bins = tuple(Bin(**bin) for bin in stored["bins"])
    return read_numbers(stored["errors"]), bins


def _error_protocols(protocols: Protocols) -> dict[str, Protocol]:
    try:
        return under_metrics(protocols, _ERRORS)
    except UsageError:
        return {}


def _headline(protocols: Protocols, families: Sequence[str]) -> dict[str, Protocol]:
    """Return the first protocol of the first of ``families`` that has one; none if none has."""
    for family_ in families:
        names = []
        for name, protocol in protocols.items():
            is_mean = protocol.metric == "acc" and protocol.aggregation in ("micro", "macro")
            if is_mean and family(protocol) == family_:
                names.append(name)
        if names:
            name = min(names, key=preference)
            return {name: protocols[name]}
    return {}
