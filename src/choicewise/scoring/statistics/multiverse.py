"""How a conclusion depends on which published protocol it is drawn from."""

import math
from dataclasses import dataclass

import numpy as np

from choicewise.scoring.ragged import Floats, Integers
from choicewise.scoring.statistics.rank_interval import ALIKE


@dataclass(frozen=True, slots=True)
class Panel:
    """One model's accuracy over protocols; ``flips``: share of items with different predictions."""

    least: float
    median: float
    greatest: float
    flips: float


def panel(credits: Floats, predictions: Integers) -> Panel:
    """The spread over protocols; ``credits`` and ``predictions`` have shape [protocols, items], NaN and -1 missing.

    Each protocol's accuracy is over the items it scored, flips over the items that at least two of them predicted.
    """
    accuracies = [accuracy for accuracy in map(_mean, credits) if not math.isnan(accuracy)]
    predicted = predictions >= 0
    shared = predicted.sum(axis=0) > 1
    # A protocol without a prediction (-1) counts neither as the greatest nor as the least.
    least = np.where(predicted, predictions, np.iinfo(np.int64).max).min(axis=0, initial=np.iinfo(np.int64).max)
    flips = _mean((predictions.max(axis=0, initial=-1) != least)[shared].astype(np.float64))
    known = accuracies or [math.nan]
    return Panel(min(known), float(np.median(known)), max(known), flips)


@dataclass(frozen=True, slots=True)
class Agreement:
    """How many protocols say that left is better, that right is better, or neither; over the items both scored."""

    left: int
    right: int
    even: int

    @property
    def share(self) -> float:
        """Share of the protocols that agree with the most common sign; NaN without protocols."""
        counts = (self.left, self.right, self.even)
        return max(counts) / sum(counts) if sum(counts) else math.nan


def sign_agreement(left: Floats, right: Floats) -> Agreement:
    """The sign of the paired difference of two models under each protocol; credits [protocols, items], NaN missing.

    A protocol under which the models share no scored item has no sign and does not count.
    """
    means = np.array([_mean(difference) for difference in left - right])
    signs = np.where(np.abs(means) <= ALIKE, 0.0, np.sign(means))
    return Agreement(*(int((signs == sign).sum()) for sign in (1, -1, 0)))


def _mean(values: Floats) -> float:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else math.nan
