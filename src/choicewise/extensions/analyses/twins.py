"""Compare two models that were sent the same tokens: changed answers, divergence of the choices,
lost log-probability.

Made for a model and its quantised twin, whose scores can agree while many answers change (Dutta et
al. 2024, "Accuracy is Not All You Need").
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from choicewise.protocols.readings import READINGS
from choicewise.results.evidence import Column, RunEvidence
from choicewise.results.measurement import (
    Measurement,
    paired_credits,
    paired_predictions,
    rows_of_items,
    shared_items,
)
from choicewise.results.run import Run
from choicewise.scoring.decide import divergences
from choicewise.scoring.intervals import wilson
from choicewise.scoring.observed import Floats, Integers, offsets_from
from choicewise.scoring.portion import ObservedPortion
from choicewise.scoring.significance import Difference, lost_per_token, mean_of_items


@dataclass(frozen=True, kw_only=True)
class Changed:
    """Count the items, among the ``n`` that both models predict, whose prediction is ``changed``.

    ``share``: with Wilson's 95 % interval. ``right_to_wrong``: those that lose credit from left to
    right; ``wrong_to_right``: those that gain some. The others go from one wrong answer to another.
    """

    n: int
    changed: int
    share: float
    ci_low: float
    ci_high: float
    right_to_wrong: int
    wrong_to_right: int


@dataclass(frozen=True, kw_only=True)
class Twins:
    """Hold how far the right model parts from the left one; a figure that is not defined is None.

    ``flips``: of items with several choices. ``divergence``: mean over items of KL(left ‖ right) of
    their choices in nats, if the protocol has scores; each distribution is the softmax of the
    scores at the protocol's temperature. ``lost_right``, ``lost_all``: mean of log p(left) - log
    p(right) per scored token, in nats, of the right answers and of all choices, if the protocol
    observes one log-likelihood of each choice. The tokens are the data's and no samples of the left
    model, so that this mean estimates no KL divergence and may be negative. Intervals (95 %) and
    missing items are those of a paired difference.
    """

    flips: Changed | None
    divergence: Difference | None
    lost_right: Difference | None
    lost_all: Difference | None


def twin_figures(
    runs: tuple[Run, Run], pairs: Sequence[tuple[Measurement, Measurement]]
) -> list[Twins]:
    """Return flips, divergence and loss per token of each of ``pairs``, measurements of ``runs``."""
    left_run = runs[0].evidence
    right_run = runs[1].evidence
    _read_likelihoods(left_run, [left for left, _ in pairs])
    _read_likelihoods(right_run, [right for _, right in pairs])
    return [_twins(left_run, right_run, pair) for pair in pairs]


def _read_likelihoods(run: RunEvidence, measurements: Iterable[Measurement]) -> None:
    """Read a run once for the likelihoods of all ``measurements``."""
    wanted = {}
    for measurement in measurements:
        if READINGS[measurement.protocol.reading].one_likelihood:
            wanted[measurement.protocol.prompt_digest] = _LIKELIHOODS
    run.gather(wanted)


def _twins(
    left_run: RunEvidence, right_run: RunEvidence, pair: tuple[Measurement, Measurement]
) -> Twins:
    """Compare two measurements under one protocol on the items that both have."""
    left, right = pair
    _, (left_items, right_items) = shared_items(pair)
    # Both were sent the same tokens, so that an item has as many choices on either side.
    left_starts = left.evidence.item_offsets[:-1]
    right_starts = right.evidence.item_offsets[:-1]
    counts = np.diff(left.evidence.item_offsets)[left_items]
    offsets = offsets_from(counts)
    left_rows = rows_of_items(left_starts[left_items], counts)
    right_rows = rows_of_items(right_starts[right_items], counts)
    several = counts > 1

    _, (left_credit, right_credit) = paired_credits(pair)
    left_hits = _hits(left, left_items, left_credit)
    right_hits = _hits(right, right_items, right_credit)
    predictions = paired_predictions(pair)[:, several]
    flips = _changed(predictions, left_hits[several], right_hits[several])

    divergence = None
    left_scores = left.known_scores
    right_scores = right.known_scores
    if left_scores is not None and right_scores is not None and several.any():
        temperature = float(left.protocol.temperature)
        of_items = divergences(
            left_scores[left_rows] / temperature, right_scores[right_rows] / temperature, offsets
        )
        divergence = _mean_divergence(of_items[several])

    lost_right = None
    lost_all = None
    if READINGS[left.protocol.reading].one_likelihood:
        wanted = {left.protocol.prompt_digest: _LIKELIHOODS}
        left_evidence = left_run.gather(wanted)[left.protocol.prompt_digest]
        right_evidence = right_run.gather(wanted)[left.protocol.prompt_digest]
        left_sums = left_evidence.column(_SUMS)[left_rows]
        right_sums = right_evidence.column(_SUMS)[right_rows]
        tokens = left_evidence.column(_COUNTS)[left_rows]
        is_right = left.evidence.right[left_rows]
        every = np.ones_like(is_right)
        lost_right = lost_per_token(left_sums, right_sums, tokens, offsets, is_right)
        lost_all = lost_per_token(left_sums, right_sums, tokens, offsets, every)
    return Twins(flips=flips, divergence=divergence, lost_right=lost_right, lost_all=lost_all)


def _hits(measurement: Measurement, items: Integers, credit: Floats) -> Floats:
    """Return how right the prediction of each of ``items`` is, whatever the metric makes of it."""
    if measurement.judged is None:
        return credit
    return measurement.judged.hit[items]


def _token_sums(portion: ObservedPortion) -> Floats:
    """Return the log-likelihood of every choice, [rows]; NaN if only an upper bound was observed."""
    observed = portion.continuations()
    if observed.at_most is None:
        return observed.token_sums
    return np.where(observed.at_most, np.nan, observed.token_sums)


def _token_counts(portion: ObservedPortion) -> Integers:
    """Return the tokens of every choice after the request's context, [rows]."""
    return portion.continuations().counts


_SUMS = Column("token sums", compute=_token_sums)
_COUNTS = Column("token counts", compute=_token_counts)
_LIKELIHOODS = (_SUMS, _COUNTS)


def _changed(predictions: Integers, left_hits: Floats, right_hits: Floats) -> Changed | None:
    both = (predictions >= 0).all(axis=0)
    n = int(both.sum())
    if not n:
        return None
    changed = both & (predictions[0] != predictions[1])
    count = int(changed.sum())
    low, high = wilson(count / n, n)
    return Changed(
        n=n,
        changed=count,
        share=count / n,
        ci_low=low,
        ci_high=high,
        right_to_wrong=int((changed & (left_hits > right_hits)).sum()),
        wrong_to_right=int((changed & (left_hits < right_hits)).sum()),
    )


def _mean_divergence(values: Floats) -> Difference | None:
    """Return the mean of ``values``, [items]; None if all are missing."""
    if np.isnan(values).all():
        return None
    with np.errstate(invalid="ignore"):  # infinite values have no spread
        return mean_of_items(values, low=0.0)
