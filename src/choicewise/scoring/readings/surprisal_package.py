"""Reading ``surprisal-package``: scores of the tokens with P(EOS) set to 0."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from choicewise.scoring.continuations import Continuations
from choicewise.scoring.ragged import row_of
from choicewise.scoring.readings import Combiner
from choicewise.scoring.scores import SCORES


def without_end(parts: Sequence[Continuations]) -> Continuations:
    """The first part with P(EOS) := 0 and the rest renormalised: log P - log(1 - P(EOS)) at every token.

    Part 1 + j holds P(EOS) in the place of token j, as far as a row has one; without such parts nothing changes.
    """
    observed = parts[0]
    row = row_of(observed.offsets)
    place = np.arange(len(row)) - observed.offsets[:-1][row]
    logprobs = observed.logprobs.astype(np.float64)
    for number, part in enumerate(parts[1:]):
        here = (place == number) & (part.counts[row] > 0)
        with np.errstate(invalid="ignore", divide="ignore"):  # where EOS is certain nothing else can be
            logprobs[here] -= np.log1p(-np.exp(part.sums[row[here]]))
    return replace(observed, logprobs=logprobs.astype(np.float32), totals=None)


COMBINER = Combiner(
    lambda protocol, observed: SCORES[protocol.score](without_end(observed.parts())),
    lambda protocol, observed: without_end(observed.parts()),
)
