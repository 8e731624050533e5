"""Reading ``rating``: the expected rating of the option."""

from collections.abc import Sequence

import numpy as np

from choicewise.scoring.continuations import Continuations
from choicewise.scoring.lows import Range
from choicewise.scoring.ragged import Floats
from choicewise.scoring.readings import Combiner


def expected_rating(parts: Sequence[Continuations]) -> Floats:
    """Σ r · softmax_r(log P(label r)), between 1 and the number of labels (Tsvilodub et al. 2024)."""
    sums = np.stack([part.sums for part in parts])
    with np.errstate(invalid="ignore"):
        shares = np.exp(sums - np.logaddexp.reduce(sums, axis=0))
    return np.asarray(np.arange(1, len(parts) + 1) @ shares, dtype=np.float64)


def rating_range(parts: Sequence[Continuations]) -> Range:
    """The lowest and the highest that it may be.

    A mean of ratings is lowest where all labels up to some one are as likely, and all above it as unlikely, as may be.
    """
    lowest = [part.lowest() for part in parts]
    cuts = range(len(parts) + 1)
    lows = np.stack([expected_rating([*parts[:cut], *lowest[cut:]]) for cut in cuts])
    highs = np.stack([expected_rating([*lowest[:cut], *parts[cut:]]) for cut in cuts])
    with np.errstate(invalid="ignore"):
        missing = np.where(np.isnan(np.sum([part.sums for part in parts], axis=0)), np.nan, 0.0)
    return _least(np.fmin, lows) + missing, _least(np.fmax, highs) + missing


def _least(ufunc: np.ufunc, values: Floats) -> Floats:
    """Of the vertices that have a rating: where all labels are impossible there is none."""
    return np.asarray(ufunc.reduce(values, axis=0), dtype=np.float64)


COMBINER = Combiner(
    lambda protocol, observed: expected_rating(observed.parts()),
    ranges=lambda protocol, observed: rating_range(observed.parts()),
)
