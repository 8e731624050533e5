"""Reading ``yes-no``: the log-odds of Yes after a context that proposes the option."""

from collections.abc import Sequence

import numpy as np

from choicewise.scoring.continuations import Continuations
from choicewise.scoring.lows import Range
from choicewise.scoring.ragged import Floats
from choicewise.scoring.readings import Combiner


def difference(parts: Sequence[Continuations]) -> Floats:
    """log P(first answer) - log P(second answer), in nats: of Yes and No the log-odds of Yes (Kadavath et al. 2022)."""
    with np.errstate(invalid="ignore"):  # of two impossible answers neither is likelier: NaN, missing
        return parts[0].sums - parts[1].sums


def difference_range(parts: Sequence[Continuations]) -> Range:
    """The lowest and the highest that it may be."""
    low, high = difference([parts[0].lowest(), parts[1]]), difference([parts[0], parts[1].lowest()])
    either = np.isnan(low) | np.isnan(high)
    return np.where(either, np.nan, low), np.where(either, np.nan, high)


COMBINER = Combiner(
    lambda protocol, observed: difference(observed.parts()),
    ranges=lambda protocol, observed: difference_range(observed.parts()),
)
