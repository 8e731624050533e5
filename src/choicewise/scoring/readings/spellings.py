"""Reading ``spellings``: the probability that any of several spellings comes."""

from collections.abc import Sequence

import numpy as np

from choicewise.scoring.continuations import Continuations
from choicewise.scoring.ragged import Floats
from choicewise.scoring.readings import Combiner


def log_sum(parts: Sequence[Continuations]) -> Floats:
    """log of the probability that any of the spellings comes, in nats.

    Spellings with the same tokens are one, and one whose tokens begin another's holds that other already.
    """
    total = np.full(len(parts[0].text), -np.inf)
    for place, part in enumerate(parts):
        counted = np.array([not _held(parts, place, row) for row in range(len(part.text))], dtype=np.bool_)
        with np.errstate(invalid="ignore"):  # a missing spelling stays NaN: what it would have added is not known
            total = np.logaddexp(total, np.where(counted, part.token_sums, -np.inf))
    return total


def _held(parts: Sequence[Continuations], place: int, row: int) -> bool:
    """Whether the tokens of a spelling begin with those of another: of a shorter one, or of an equal one before it."""
    own = parts[place].token_ids(row)
    others = ((number, part.token_ids(row)) for number, part in enumerate(parts) if number != place)
    return any(own[: len(other)] == other and (len(other) < len(own) or number < place) for number, other in others)


COMBINER = Combiner(
    lambda protocol, observed: log_sum(observed.parts()),
    ranges=lambda protocol, observed: (
        log_sum([part.lowest() for part in observed.parts()]),
        log_sum(observed.parts()),
    ),
)
