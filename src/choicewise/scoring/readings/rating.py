"""Reading ``rating``: the expected rating of the option."""

from collections.abc import Sequence

import numpy as np

from choicewise.scoring.continuations import Continuations
from choicewise.scoring.ragged import Floats
from choicewise.scoring.readings import Combiner


def expected_rating(parts: Sequence[Continuations]) -> Floats:
    """Σ r · softmax_r(log P(label r)), between 1 and the number of labels (Tsvilodub et al. 2024)."""
    sums = np.stack([part.sums for part in parts])
    with np.errstate(invalid="ignore"):
        shares = np.exp(sums - np.logaddexp.reduce(sums, axis=0))
    return np.asarray(np.arange(1, len(parts) + 1) @ shares, dtype=np.float64)


COMBINER = Combiner(lambda protocol, observed: expected_rating(observed.parts()))
