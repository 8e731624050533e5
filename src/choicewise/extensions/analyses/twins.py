"""How far two models part that were asked the same tokens: flips, divergence of the choices, log-probability lost.

Made for a model and its quantised twin, whose scores can agree while many answers change (Dutta et al. 2024, "Accuracy
is Not All You Need").
"""

from __future__ import annotations

import math
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
from choicewise.results.spans import ObservedPortion
from choicewise.scoring.decide import divergences
from choicewise.scoring.intervals import wilson
from choicewise.scoring.observed import Floats, Integers
from choicewise.scoring.significance import Difference, lost_per_token, mean_of_items


@dataclass(frozen=True, slots=True)
class Changed:
    """The ``n`` items that both sides predict, of which so many are ``changed``: predicted differently.

    ``share`` with its 95 % interval, Wilson's.  Of the changed ones ``right_to_wrong`` lose credit from left to right
    and ``wrong_to_right`` gain some; the others are from one wrong answer to another.
    """

    n: int
    changed: int
    share: float
    ci_low: float
    ci_high: float
    right_to_wrong: int
    wrong_to_right: int


@dataclass(frozen=True, slots=True)
class Twins:
    """How far the right model parts from the left one; None where it is not defined.

    ``flips``: where items have several choices.  ``divergence``: the mean over items of KL(left ‖ right) of their
    choices in nats, each distribution the softmax of the protocol's scores at its temperature; where the protocol has
    scores.  ``lost_right`` and ``lost_all``: the mean of log p(left) - log p(right) per scored token, in nats, of the
    right answers and of all choices; where the protocol observes one log-likelihood of each choice.  The tokens are the
    data's and no samples of the left model, so that this is no estimate of a KL divergence and may be negative.
    Intervals (95 %) and missing items as of a paired difference.
    """

    flips: Changed | None
    divergence: Difference | None
    lost_right: Difference | None
    lost_all: Difference | None


def read_likelihoods(run: RunEvidence, measured: Iterable[Measurement]) -> None:
    """Read ``run`` once for what :func:`twins` needs of each of ``measured``, so that none reads it again."""
    wanted = [each.protocol for each in measured if READINGS[each.protocol.reading].one_likelihood]
    run.gather({protocol.prompt_digest: _LIKELIHOODS for protocol in wanted})


def twin_figures(
    runs: tuple[Run, Run], pairs: Sequence[tuple[Measurement, Measurement]]
) -> list[Twins]:
    """Return flips, divergence and loss per token of each of ``pairs``, measurements of ``runs``."""
    evidence = runs[0].evidence, runs[1].evidence
    read_likelihoods(evidence[0], [left for left, _ in pairs])
    read_likelihoods(evidence[1], [right for _, right in pairs])
    return [twins(evidence, pair) for pair in pairs]


def twins(runs: tuple[RunEvidence, RunEvidence], pair: tuple[Measurement, Measurement]) -> Twins:
    """Of the shared items of two measurements under one protocol, every one of which was asked in the same tokens."""
    _, places = shared_items(pair)
    _, credits = paired_credits(pair)
    hits = [
        credits[side] if each.judged is None else each.judged.hit[places[side]]
        for side, each in enumerate(pair)
    ]
    offsets = [each.evidence.item_offsets for each in pair]
    counts = np.diff(offsets[0])[places[0]]
    shared = np.concatenate([[0], np.cumsum(counts)])
    rows = [
        rows_of_items(own[:-1][place], counts) for own, place in zip(offsets, places, strict=True)
    ]
    several = counts > 1
    changed = _changed(paired_predictions(pair)[:, several], np.stack(hits)[:, several])
    divergence = lost_right = lost_all = None
    scores = [each.known_scores for each in pair]
    if scores[0] is not None and scores[1] is not None and several.any():
        scaled = [
            own[row] / float(pair[0].protocol.temperature)
            for own, row in zip(scores, rows, strict=True)
            if own is not None
        ]
        divergence = _mean(divergences(scaled[0], scaled[1], shared)[several], low=0.0)
    if READINGS[pair[0].protocol.reading].one_likelihood:
        sums, tokens = zip(
            *(_tokens(run, own) for run, own in zip(runs, pair, strict=True)), strict=True
        )
        left, right = (own[row] for own, row in zip(sums, rows, strict=True))
        gold = pair[0].evidence.right[rows[0]]
        lost_right, lost_all = (
            lost_per_token(left, right, tokens[0][rows[0]], shared, among)
            for among in (gold, np.ones_like(gold))
        )
    return Twins(changed, divergence, lost_right, lost_all)


def _tokens(run: RunEvidence, measured: Measurement) -> tuple[Floats, Integers]:
    """The two columns, [rows] each; NaN where no more than an upper bound, or no token, was observed."""
    prompt = measured.protocol.prompt_digest
    evidence = run.gather({prompt: _LIKELIHOODS})[prompt]
    return evidence.column(_SUMS), evidence.column(_COUNTS)


def _token_sums(portion: ObservedPortion) -> Floats:
    observed = portion.continuations()
    return (
        observed.token_sums
        if observed.at_most is None
        else np.where(observed.at_most, np.nan, observed.token_sums)
    )


_SUMS = Column("token sums", compute=_token_sums)
_COUNTS = Column("token counts", compute=lambda portion: portion.continuations().counts)
_LIKELIHOODS = (_SUMS, _COUNTS)
"""Columns of the evidence: log-likelihood and tokens of every choice after the request's own context."""


def _changed(predictions: Integers, hits: Floats) -> Changed | None:
    both = (predictions >= 0).all(axis=0)
    if not both.any():
        return None
    changed = (predictions[0] != predictions[1])[both]
    left, right = hits[:, both]
    share = float(changed.mean())
    low, high = wilson(share, len(changed))
    worse, better = int((changed & (left > right)).sum()), int((changed & (left < right)).sum())
    return Changed(int(both.sum()), int(changed.sum()), share, low, high, worse, better)


def _mean(values: Floats, low: float = -math.inf) -> Difference | None:
    """Return the mean of ``values`` [items], NaN for missing, none of which is below ``low``; None where all are."""
    if np.isnan(values).all():
        return None
    with np.errstate(invalid="ignore"):  # infinite values have no spread
        return mean_of_items(values, low)
