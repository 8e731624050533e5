"""Reading ``chain-of-thought``: what the options' probabilities after several chains come to."""

from collections.abc import Sequence

import numpy as np

from choicewise.scoring.continuations import Continuations
from choicewise.scoring.lows import Range
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


def marginal_range(parts: Sequence[Continuations]) -> Range:
    """The lowest and the highest that :func:`marginal` may be."""
    return marginal([part.lowest() for part in parts]), marginal(parts)


def vote_range(parts: Sequence[Continuations]) -> Range:
    """The lowest and the highest that :func:`vote` may be: the votes that are sure, and all that are possible."""
    item = row_of(parts[0].item_offsets)
    sure, possible = np.zeros(len(item)), np.zeros(len(item))
    for part in parts:
        low, high, offsets = part.lowest().sums, part.sums, part.item_offsets
        best = reduce_rows(np.maximum, low, offsets)[item]  # NaN when any option is
        at_top, rival = low == best, high >= best
        rivals = reduce_rows(np.add, rival, offsets)[item]
        # none is above what is surely at the top, so that the worst is a tie of them all
        settled = (reduce_rows(np.add, high > best, offsets) == 0)[item] | (rivals == 1)
        missing = np.where(np.isnan(best), np.nan, 0.0)
        tops = reduce_rows(np.add, at_top, offsets)[item]
        with np.errstate(invalid="ignore", divide="ignore"):
            sure += np.where(settled & at_top, 1 / rivals, 0.0) + missing
            possible += np.where(rival, np.where(at_top & settled, 1 / tops, 1.0), 0.0) + missing
    return sure / len(parts), possible / len(parts)


OVER_CHAINS = {"marginal": marginal, "vote": vote}
"""By the name of the score."""

RANGES = {"marginal": marginal_range, "vote": vote_range}
"""Likewise, their bounds."""

COMBINER = Combiner(
    lambda protocol, observed: OVER_CHAINS[protocol.score](observed.parts()),
    ranges=lambda protocol, observed: RANGES[protocol.score](observed.parts()),
)
