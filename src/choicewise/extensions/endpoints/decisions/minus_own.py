"""A decision endpoint's probabilities minus those of its own weights, computed here in the server's layout.

What is left is what no layout explains: another precision, other weights, a prompt that is not the layout's, or an
answer that changes from one request to the next.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from choicewise.errors import UsageError
from choicewise.protocols.between import MARK
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
from choicewise.scoring.combine import LEAST
from choicewise.scoring.decide import divergences
from choicewise.scoring.intervals import wilson
from choicewise.scoring.observed import Floats, reduce_rows, row_of
from choicewise.scoring.significance import Difference, mean_of_items

EXACT: Final = 1e-6
"""By how much a probability may differ because both sides are stored as log-probabilities in float32."""


@dataclass(frozen=True, slots=True)
class ItemDifference:
    """One item: the option that each side holds likeliest (its place), and the greatest difference of an option."""

    item: str
    served: int
    own: int
    most: float


@dataclass(frozen=True, slots=True)
class ServedMinusOwn:
    """Questions of one ``kind`` under the protocols ``served``, of the endpoint, and ``own``.

    ``n`` items have probabilities on both sides; ``missing`` of the shared ones have none on at least one.  ``flips``:
    another option is likeliest, with a 95 % interval of their share; ``open``: those of them whose likeliest option
    rounding leaves open.  ``mean`` and ``most``: of the difference of an option's probability.  ``tv``: mean total
    variation distance; ``kl``: mean KL(served ‖ own) in nats; intervals (95 %) of Student's t.  ``step``: to
    which the endpoint rounds, None where it does not.  ``repeats``: what was found of questions that were sent twice.
    ``noise``: of our computation, in nats; None where it was not measured.
    ``allowed``: the greatest difference of a probability that these explain; beyond it the ``verdict`` is
    ``unexplained``.  ``items``: all ``n``, the furthest first.
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
    """An endpoint's probabilities minus our own, measurements of the same data.

    ``record``: what was found of repeats; ``noise``: of our computation, in nats.

    Raises UsageError where no question has probabilities on both sides.
    """
    ids, places = shared_items(pair)
    offsets = [each.evidence.item_offsets for each in pair]
    counts = [np.diff(own)[place] for own, place in zip(offsets, places, strict=True)]
    assert np.array_equal(counts[0], counts[1])  # the data is the same
    rows = [
        rows_of_items(own[:-1][place], counts[0])
        for own, place in zip(offsets, places, strict=True)
    ]
    given, own = (option_probabilities(each)[row] for each, row in zip(pair, rows, strict=True))
    shared = np.concatenate([[0], np.cumsum(counts[0])])
    gaps = np.abs(given - own)
    furthest = reduce_rows(np.maximum, gaps, shared)
    known = ~np.isnan(furthest)
    if not known.any():
        raise UsageError(f"{pair[0].name} and {pair[1].name} share no question that both answer")
    with np.errstate(divide="ignore"):
        kl = divergences(np.log(given), np.log(own), shared)
    served, ours = paired_predictions(pair)
    flipped = (served != ours) & known
    low, high = wilson(float(flipped[known].mean()), int(known.sum()))
    tv = mean_of_items(reduce_rows(np.add, gaps, shared) / 2, low=0.0, high=1.0)
    divergence = mean_of_items(kl, low=0.0)
    step, most = pair[0].step, float(furthest[known].max())
    # log-probabilities that are off by so many nats move a probability by half of it at most; both sides' may be
    allowed = record.most + (step or 0.0) / 2 + (noise or 0.0) + EXACT
    order = sorted(np.flatnonzero(known).tolist(), key=lambda place: (-furthest[place], place))
    items = [
        ItemDifference(
            ids[place].as_py(), int(served[place]), int(ours[place]), float(furthest[place])
        )
        for place in order
    ]
    return ServedMinusOwn(
        pair[0].protocol.kind,
        pair[0].name,
        pair[1].name,
        int(known.sum()),
        int((~known).sum()),
        int(flipped.sum()),
        low,
        high,
        int((flipped & pair[0].near_ties[places[0]]).sum()),
        float(gaps[known[row_of(shared)]].mean()),
        most,
        tv,
        divergence,
        step,
        record,
        noise,
        allowed,
        "unexplained" if most > allowed else "within noise",
        tuple(items),
    )


def own_layouts(measured: Mapping[str, Measurement]) -> Mapping[str, Measurement]:
    """``measured`` without the steps of ladders, which are nobody's layouts, unless there is nothing else."""
    return {name: each for name, each in measured.items() if MARK not in name} or measured


def option_probabilities(measured: Measurement) -> Floats:
    """p of every option, float64 [rows]: as an endpoint gives it, 0 too; of a plain model the softmax.

    NaN for an item of which an option has none.
    """
    shares = links(measured, float(measured.protocol.temperature))[0]
    if Decision not in READINGS[measured.protocol.reading].needs or measured.scores is None:
        return shares
    given = np.exp(measured.scores)
    return np.where(np.isnan(shares), np.nan, np.where(given <= LEAST * (1 + 1e-6), 0.0, given))
