"""The credit of an item by metric, where that is more than whether the predicted choice is right."""

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from choicewise.scoring.decisions import Decisions, argmax
from choicewise.scoring.distribution import choice_distribution
from choicewise.scoring.ragged import Floats, Integers, Mask, reduce_rows, row_of

Credited = Callable[[Floats, Integers, Mask, str], Decisions]
"""From scores and which rows are right [rows], the items' offsets and the tie rule to decisions."""


def mc1(scores: Floats, item_offsets: Integers, gold: Mask, ties: str) -> Decisions:
    """The first right choice against all wrong ones: 1 where it has the greatest score.

    An item's other right choices are not asked, and may be missing.  TruthfulQA's MC1, whose best answer comes first
    (lm_eval/tasks/truthfulqa.py@b281b09).
    """
    asked = np.flatnonzero(compared("mc1", item_offsets, gold))
    offsets = np.searchsorted(asked, item_offsets)
    decisions = argmax(scores[asked], offsets, gold[asked], ties)
    predicted = asked[np.minimum(offsets[:-1] + decisions.prediction, len(asked) - 1)] - item_offsets[:-1]
    return replace(decisions, prediction=np.where(decisions.prediction < 0, -1, predicted))


def compared(metric: str, item_offsets: Integers, gold: Mask) -> Mask:
    """The rows whose scores are compared, bool [rows]: under mc1 not those of right choices after the first."""
    if metric != "mc1":
        return np.ones(len(gold), dtype=np.bool_)
    index = np.arange(len(gold))
    first = reduce_rows(np.minimum, np.where(gold, index, np.inf), item_offsets)[row_of(item_offsets)]
    return np.asarray((index == first) | ~gold, dtype=np.bool_)


def mc2(scores: Floats, item_offsets: Integers, gold: Mask, ties: str) -> Decisions:
    """Σ P(right choices) / Σ P(all choices) for log-likelihoods ``scores``; the prediction is the likeliest choice.

    TruthfulQA's MC2 as today's harness has it (lm_eval/tasks/truthfulqa/utils.py@4e7e0d4).  Where all choices are
    impossible, it gives NaN; here the item is missing.
    """
    shares = choice_distribution(scores, item_offsets)
    credit = reduce_rows(np.add, np.where(gold, shares, shares * 0), item_offsets)
    prediction = argmax(scores, item_offsets, gold, ties).prediction
    return Decisions.uncompared(np.where(np.isnan(credit), -1, prediction), np.minimum(credit, 1.0))


def mc2_split(scores: Floats, item_offsets: Integers, gold: Mask, ties: str) -> Decisions:
    """The same, but only the choices before the first wrong one count as right (lm_eval/tasks/truthfulqa.py@b281b09).

    One question of the Hub's file has a true answer after a false one.  A first choice that is wrong leaves nothing.
    """
    index = np.arange(len(scores))
    first_wrong = reduce_rows(np.minimum, np.where(gold, np.inf, index), item_offsets)
    return mc2(scores, item_offsets, index < first_wrong[row_of(item_offsets)], ties)


def likelihood(scores: Floats, item_offsets: Integers, gold: Mask, ties: str) -> Decisions:
    """The score of the first right choice, a log-likelihood in nats: at most 0, and no share of anything.

    The items' mean is that of ``perplexity`` in lm_eval/api/metrics.py@4e7e0d4: per continuation, not per token.
    """
    first = reduce_rows(np.minimum, np.where(gold, np.arange(len(scores)), np.inf), item_offsets).astype(np.int64)
    return Decisions.uncompared(np.where(np.isnan(scores[first]), -1, first - item_offsets[:-1]), scores[first])


CREDITS: Mapping[str, Credited] = {
    "acc": argmax,
    "exact_match": argmax,
    "mc1": mc1,
    "mc2": mc2,
    "mc2-split": mc2_split,
    "perplexity": likelihood,
}
"""By the name of the metric."""


def guess(item_offsets: Integers, gold: Mask, metric: str = "acc") -> Floats:
    """The credit that guessing evenly is expected to have, float64 [items]; NaN for items with one choice.

    ``gold``: which rows are right, bool [rows].
    """
    choices, right = np.diff(item_offsets), reduce_rows(np.add, gold, item_offsets)
    with np.errstate(invalid="ignore", divide="ignore"):
        share = 1 / (1 + choices - right) if metric == "mc1" else right / choices
    return np.where(choices < 2, np.nan, share)
