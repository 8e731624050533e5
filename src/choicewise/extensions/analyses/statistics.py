"""Compare protocols and models over many items: spreads, signs, fits to people, and lengths."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from choicewise.scoring.intervals import ALIKE, wilson
from choicewise.scoring.observed import (
    Floats,
    Integers,
    by_length,
    item_sum,
    mean_of_present,
    row_of,
)
from choicewise.scoring.probabilities import Judged, confidence_bins
from choicewise.scoring.significance import centred_ranks


@dataclass(frozen=True)
class Panel:
    """Hold one model's accuracy over protocols; ``flips``: items with different predictions."""

    least: float
    median: float
    greatest: float
    flips: float


def panel(credits: Floats, predictions: Integers) -> Panel:
    """Return the spread of accuracy over protocols, from arrays of shape [protocols, items].

    Missing is NaN in ``credits`` and -1 in ``predictions``.  The accuracy of a protocol is over the
    items it scored; ``flips`` is a share of the items that at least two protocols predicted.
    """
    accuracies = [mean_of_present(credit) for credit in credits]
    present = [accuracy for accuracy in accuracies if not math.isnan(accuracy)]
    if not present:
        present = [math.nan]

    is_predicted = predictions >= 0
    shared = is_predicted.sum(axis=0) > 1
    # A protocol without a prediction (-1) counts neither as the greatest nor as the least.
    beyond = np.iinfo(np.int64).max
    least = np.where(is_predicted, predictions, beyond).min(axis=0, initial=beyond)
    greatest = predictions.max(axis=0, initial=-1)
    is_flipped = (greatest != least)[shared]
    return Panel(
        least=min(present),
        median=float(np.median(present)),
        greatest=max(present),
        flips=mean_of_present(is_flipped.astype(np.float64)),
    )


@dataclass(frozen=True)
class Agreement:
    """Count the protocols under which left is better, right is better, or neither."""

    left: int
    right: int
    even: int

    @property
    def share(self) -> float:
        """Return the share of the protocols with the most common sign; NaN without protocols."""
        total = self.left + self.right + self.even
        if not total:
            return math.nan
        return max(self.left, self.right, self.even) / total


def sign_agreement(left: Floats, right: Floats) -> Agreement:
    """Count the signs of the paired difference of two models, from credits [protocols, items].

    NaN is missing.  A protocol under which the models share no scored item has no sign and does not
    count.
    """
    means = np.array([mean_of_present(difference) for difference in left - right])
    signs = np.where(np.abs(means) <= ALIKE, 0.0, np.sign(means))
    return Agreement(
        left=int((signs == 1).sum()),
        right=int((signs == -1).sum()),
        even=int((signs == 0).sum()),
    )


@dataclass(frozen=True)
class Fit:
    """Hold the fit of probabilities to the choices of ``people`` people on ``items`` items.

    ``log_likelihood``: Σ count · log p in nats, -inf if a choice that was made has probability 0.
    ``correlation``: Pearson's, of probabilities and shares of people over all choices, NaN if
    either is constant.
    """

    log_likelihood: float
    correlation: float
    items: int
    people: float


def fit(probabilities: Floats, counts: Floats, item_offsets: Integers) -> Fit:
    """Return the fit of ``probabilities`` to ``counts``, both float64 [rows].

    Items with NaN or a total of 0 do not count.  The log-likelihood leaves out the multinomial
    coefficients, which are the same for every model (Franke et al. 2024 fit choice counts of this
    kind).
    """
    totals = item_sum(counts, item_offsets)
    is_counted = (totals > 0) & ~np.isnan(item_sum(probabilities, item_offsets))
    item = row_of(item_offsets)
    rows = is_counted[item]
    predicted = probabilities[rows]
    people = counts[rows]
    shares = people / totals[item][rows]
    is_chosen = people > 0
    with np.errstate(divide="ignore"):
        terms = people[is_chosen] * np.log(predicted[is_chosen])
    likelihood = float(terms.sum()) if is_counted.any() else math.nan
    correlation = _pearson(predicted, shares)
    return Fit(likelihood, correlation, int(is_counted.sum()), float(people.sum()))


def _pearson(left: Floats, right: Floats) -> float:
    if not len(left):
        return math.nan
    x = left - left.mean()
    y = right - right.mean()
    spread = math.sqrt(float((x**2).sum()) * float((y**2).sum()))
    if not spread:
        return math.nan
    return float((x * y).sum()) / spread


AT_ONCE = 1 << 18
"""Pairs of choices that are compared together: some 10 MB."""


def length_correlations(scores: Floats, lengths: Floats, item_offsets: Integers) -> Floats:
    """Return Spearman's correlation of score and length among each item's choices, float64 [items].

    NaN for an item with a missing choice, or whose choices all have the same length or score.
    """
    correlations = np.full(len(item_offsets) - 1, np.nan)
    for items, rows in by_length(item_offsets):
        step = max(1, AT_ONCE // rows.shape[1] ** 2)
        for start in range(0, len(items), step):
            part = slice(start, start + step)
            correlations[items[part]] = _correlations(scores[rows[part]], lengths[rows[part]])
    return correlations


def _correlations(scores: Floats, lengths: Floats) -> Floats:
    """Correlate ranks within items, from [items, choices] to float64 [items]."""
    left = centred_ranks(scores)
    right = centred_ranks(lengths)
    spread = np.sqrt((left**2).sum(axis=1) * (right**2).sum(axis=1))
    products = (left * right).sum(axis=1)
    return np.divide(products, spread, out=np.full(len(left), np.nan), where=spread > 0)


@dataclass(frozen=True, kw_only=True)
class Bin:
    """Hold a line of the reliability table: items of similar confidence, and how many are right."""

    n: int
    lowest: float
    highest: float
    confidence: float
    right: float
    right_low: float
    right_high: float


def reliability(metric: str, judged: Judged) -> list[Bin]:
    """Return the bins of a calibration error that hold items, in order.

    The interval of the share that is right is Wilson's.
    """
    is_scored = ~np.isnan(judged.confidence) & ~np.isnan(judged.hit)
    confidence = judged.confidence[is_scored]
    hit = judged.hit[is_scored]
    bins, _ = confidence_bins(metric, judged.confidence)
    table = []
    for number in np.unique(bins):
        in_bin = bins == number
        n = int(in_bin.sum())
        right = float(hit[in_bin].mean())
        right_low, right_high = wilson(right, n)
        line = Bin(
            n=n,
            lowest=float(confidence[in_bin].min()),
            highest=float(confidence[in_bin].max()),
            confidence=float(confidence[in_bin].mean()),
            right=right,
            right_low=right_low,
            right_high=right_high,
        )
        table.append(line)
    return table
