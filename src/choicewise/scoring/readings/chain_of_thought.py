"""Reading ``chain-of-thought``: what the options' probabilities after several chains come to."""

from collections.abc import Sequence

import numpy as np

from choicewise.scoring.continuations import Continuations
from choicewise.scoring.ragged import Floats, reduce_rows, row_of
from choicewise.scoring.readings import Combiner


def marginal(parts: Sequence[Continuations]) -> Floats:
    """log (1/R) Σ_r P(option | context, chain r) in nats: self-consistency (Wang et al. 2023), Rao-Blackwellised.

    A vote of R chains counts draws of an answer; this takes the mean of what they are drawn from.
    """
    with np.errstate(invalid="ignore"):
        total = np.logaddexp.reduce([part.sums for part in parts], axis=0)
    return np.asarray(total - np.log(len(parts)), dtype=np.float64)


def vote(parts: Sequence[Continuations]) -> Floats:
    """The share of the chains after which an option is the likeliest of its item; options that tie share theirs."""
    item = row_of(parts[0].item_offsets)
    total = np.zeros(len(item))
    for part in parts:
        at_top = part.sums == reduce_rows(np.maximum, part.sums, part.item_offsets)[item]  # NaN when any option is
        with np.errstate(invalid="ignore"):
            shares = at_top / reduce_rows(np.add, at_top, part.item_offsets)[item]
        total += np.where(np.isnan(part.sums), np.nan, shares)
    return total / len(parts)


OVER_CHAINS = {"marginal": marginal, "vote": vote}
"""By the name of the score."""

COMBINER = Combiner(lambda protocol, observed: OVER_CHAINS[protocol.score](observed.parts()))
