"""How far two models part that were asked the same tokens: flips, divergence of the choices, log-probability lost.

Made for a model and its quantised twin, whose scores can agree while many answers change (Dutta et al. 2024, "Accuracy
is Not All You Need").  And for a decision endpoint and its own weights, computed here in the server's layout: what is
left is what no layout explains, another precision, other weights, a prompt that is not the layout's, or an answer that
changes from one request to the next.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from choicewise.errors import UsageError
from choicewise.protocols.between import MARK
from choicewise.protocols.readings import READINGS
from choicewise.questions import Decision
from choicewise.records import EndpointRecord
from choicewise.results.evidence import Column, RunEvidence
from choicewise.results.measurement import (
    Measurement,
    links,
    paired_credits,
    paired_predictions,
    rows_of_items,
    shared_items,
)
from choicewise.results.spans import ObservedPortion
from choicewise.scoring.combine import LEAST
from choicewise.scoring.intervals import wilson
from choicewise.scoring.observed import Floats, Integers, reduce_rows, row_of
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


def read_likelihoods(run: RunEvidence, measured: Iterable[Measurement]) -> None:
    """Read ``run`` once for what :func:`twins` needs of each of ``measured``, so that none reads it again."""
    wanted = [each.protocol for each in measured if READINGS[each.protocol.reading].one_likelihood]
    run.gather({protocol.prompt_digest: _LIKELIHOODS for protocol in wanted})


def twins(runs: tuple[RunEvidence, RunEvidence], pair: tuple[Measurement, Measurement]) -> Twins:
    """Of the shared items of two measurements under one protocol, every one of which was asked in the same tokens."""
    _, places = shared_items(pair)
    _, credits = paired_credits(pair)
    hits = [credits[side] if each.judged is None else each.judged.hit[places[side]] for side, each in enumerate(pair)]
    offsets = [each.evidence.item_offsets for each in pair]
    counts = np.diff(offsets[0])[places[0]]
    shared = np.concatenate([[0], np.cumsum(counts)])
    rows = [rows_of_items(own[:-1][place], counts) for own, place in zip(offsets, places, strict=True)]
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
        sums, tokens = zip(*(_tokens(run, own) for run, own in zip(runs, pair, strict=True)), strict=True)
        left, right = (own[row] for own, row in zip(sums, rows, strict=True))
        gold = pair[0].evidence.right[rows[0]]
        lost_right, lost_all = (
            lost_per_token(left, right, tokens[0][rows[0]], shared, among) for among in (gold, np.ones_like(gold))
        )
    return Twins(changed, divergence, lost_right, lost_all)


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
    rows = [rows_of_items(own[:-1][place], counts[0]) for own, place in zip(offsets, places, strict=True)]
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
        ItemDifference(ids[place].as_py(), int(served[place]), int(ours[place]), float(furthest[place]))
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


def divergences(left: Floats, right: Floats, item_offsets: Integers) -> Floats:
    """KL(softmax left ‖ softmax right) in nats of each item, float64 [items], from scores [rows].

    NaN where a score is not known or all choices are impossible, infinite where right excludes what left does not.
    """
    with np.errstate(invalid="ignore"):
        logs = [own - reduce_rows(np.logaddexp, own, item_offsets)[row_of(item_offsets)] for own in (left, right)]
        terms = np.where(np.isneginf(logs[0]), 0.0, np.exp(logs[0]) * (logs[0] - logs[1]))
    return np.maximum(reduce_rows(np.add, terms, item_offsets), 0.0)  # rounding alone goes below


def _tokens(run: RunEvidence, measured: Measurement) -> tuple[Floats, Integers]:
    """The two columns, [rows] each; NaN where no more than an upper bound, or no token, was observed."""
    prompt = measured.protocol.prompt_digest
    evidence = run.gather({prompt: _LIKELIHOODS})[prompt]
    return evidence.column(_SUMS), evidence.column(_COUNTS)


def _token_sums(portion: ObservedPortion) -> Floats:
    observed = portion.continuations()
    return observed.token_sums if observed.at_most is None else np.where(observed.at_most, np.nan, observed.token_sums)


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
