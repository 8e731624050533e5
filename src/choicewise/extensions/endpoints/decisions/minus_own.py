"""Subtract the probabilities of a decision endpoint's own weights, computed here in its layout.

What is left is what no layout explains: another precision, other weights, a prompt that is not the
layout's, or an answer that changes from one request to the next.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from choicewise.errors import UsageError
from choicewise.protocols.readings import READINGS
from choicewise.questions import Decision
from choicewise.records import EndpointRecord
from choicewise.results.measurement import (
    Measurement,
    links,
    paired_predictions,
    rows_of_items,
    shared_items,
)
from choicewise.scoring.combine import is_nought
from choicewise.scoring.decide import divergences
from choicewise.scoring.intervals import wilson
from choicewise.scoring.observed import Floats, Integers, item_max, item_sum, row_of
from choicewise.scoring.significance import Difference, mean_of_items

EXACT = 1e-6
"""By how much a probability may differ because both sides are stored as log-probabilities in
float32.
"""


@dataclass(frozen=True)
class ItemDifference:
    """Hold the index of each side's likeliest option, and the greatest difference of an option."""

    item: str
    served: int
    own: int
    most: float


@dataclass(frozen=True, kw_only=True)
class ServedMinusOwn:
    """Compare an endpoint's probabilities of one ``kind`` of question with our computation.

    ``served`` and ``own``: the protocols of the two sides.  ``n`` items have probabilities on both
    sides; ``missing`` of the shared ones have none on at least one.  ``flips``: items with another
    likeliest option, with a 95 % interval of their share; ``open``: those of them whose likeliest
    option rounding leaves open.  ``mean`` and ``most``: of the difference of an option's
    probability.  ``tv``: mean total variation distance; ``kl``: mean KL(served ‖ own) in nats;
    their intervals (95 %) are of Student's t.  ``step``: the step that the endpoint rounds to, None
    if it does not round.  ``repeats``: what questions that were sent twice showed.  ``noise``: of
    our computation, in nats; None if it was not measured.  ``allowed``: the greatest difference of
    a probability that these explain; beyond it the ``verdict`` is ``unexplained``.  ``items``: all
    ``n``, the greatest difference first.
    """

    kind: str
    served: str
    own: str
    n: int
    missing: int
    flips: int
    flips_low: float
    flips_high: float
    open: int
    mean: float
    most: float
    tv: Difference
    kl: Difference
    step: float | None
    repeats: EndpointRecord
    noise: float | None
    allowed: float
    verdict: Literal["unexplained", "within noise"]
    items: tuple[ItemDifference, ...]


def minus_own_computation(
    pair: tuple[Measurement, Measurement], record: EndpointRecord, noise: float | None
) -> ServedMinusOwn:
    """Compare the measurements of an endpoint and of our computation on the same data.

    ``record``: what repeats showed; ``noise``: of our computation, in nats.  Raises UsageError if
    no question has probabilities on both sides.
    """
    endpoint, computed = pair
    ids, (endpoint_items, computed_items) = shared_items(pair)
    option_counts = np.diff(endpoint.evidence.item_offsets)[endpoint_items]
    offsets = np.concatenate([[0], np.cumsum(option_counts)])
    served = _probabilities_of_items(endpoint, endpoint_items, option_counts)
    ours = _probabilities_of_items(computed, computed_items, option_counts)
    gaps = np.abs(served - ours)
    greatest = item_max(gaps, offsets)
    is_shared = ~np.isnan(greatest)
    n = int(is_shared.sum())
    if not n:
        raise UsageError(f"{endpoint.name} and {computed.name} have no answered question in common")

    served_choices, our_choices = paired_predictions(pair)
    is_flip = (served_choices != our_choices) & is_shared
    flips_low, flips_high = wilson(float(is_flip[is_shared].mean()), n)
    with np.errstate(divide="ignore"):
        divergence = divergences(np.log(served), np.log(ours), offsets)

    # Log-probabilities that are off by so many nats move a probability by half of it at most, but
    # both sides' may be off.
    step = endpoint.step
    allowed = record.most + (step or 0.0) / 2 + (noise or 0.0) + EXACT
    most = float(greatest[is_shared].max())
    verdict: Literal["unexplained", "within noise"] = "within noise"
    if most > allowed:
        verdict = "unexplained"
    items = []
    order = np.argsort(-greatest[is_shared], kind="stable")
    for index in np.flatnonzero(is_shared)[order].tolist():
        difference = ItemDifference(
            item=ids[index].as_py(),
            served=int(served_choices[index]),
            own=int(our_choices[index]),
            most=float(greatest[index]),
        )
        items.append(difference)
    return ServedMinusOwn(
        kind=endpoint.protocol.kind,
        served=endpoint.name,
        own=computed.name,
        n=n,
        missing=len(greatest) - n,
        flips=int(is_flip.sum()),
        flips_low=flips_low,
        flips_high=flips_high,
        open=int((is_flip & endpoint.near_ties[endpoint_items]).sum()),
        mean=float(gaps[is_shared[row_of(offsets)]].mean()),
        most=most,
        tv=mean_of_items(item_sum(gaps, offsets) / 2, low=0.0, high=1.0),
        kl=mean_of_items(divergence, low=0.0),
        step=step,
        repeats=record,
        noise=noise,
        allowed=allowed,
        verdict=verdict,
        items=tuple(items),
    )


def _probabilities_of_items(
    measured: Measurement, items: Integers, option_counts: Integers
) -> Floats:
    starts = measured.evidence.item_offsets[:-1][items]
    return option_probabilities(measured)[rows_of_items(starts, option_counts)]


def option_probabilities(measured: Measurement) -> Floats:
    """Return the probability of every option, float64 [rows].

    Of an endpoint those that it gives, also 0; of a plain model the softmax.  NaN for an item of
    which an option has none.
    """
    softmax = links(measured, float(measured.protocol.temperature))[0]
    reading = READINGS[measured.protocol.reading]
    if Decision not in reading.needs or measured.scores is None:
        return softmax
    given = np.where(is_nought(measured.scores), 0.0, np.exp(measured.scores))
    return np.where(np.isnan(softmax), np.nan, given)
