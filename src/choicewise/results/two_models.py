"""Two models under every protocol they share: by how much one is ahead, and whether that is more than chance."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from choicewise.results.outcome import Outcomes
from choicewise.results.pairing import paired_credits
from choicewise.scoring.statistics.clustered import FEWEST
from choicewise.scoring.statistics.holm import holm
from choicewise.scoring.statistics.paired import Difference, paired_difference
from choicewise.scoring.statistics.sign_flip import sign_flip

Ahead = tuple[str, str, str]
"""(protocol, model, model): under the protocol the first model is ahead of the second."""


@dataclass(frozen=True, slots=True)
class Gap:
    """Left minus right under one protocol, means over the items both scored.

    ``p``: paired sign-flip test, two-sided; ``p_holm``: corrected for all protocols that the two share.  Both are NaN
    where there is no such item.
    """

    protocol: str
    difference: Difference
    p: float
    p_holm: float

    def significant(self, level: float = 0.05) -> bool:
        """Whether it is, after Holm's correction."""
        return self.p_holm <= level


def gaps(left: Outcomes, right: Outcomes) -> list[Gap]:
    """One entry per protocol that both have on the same part of the same data, in the order of ``left``."""
    if left.digest != right.digest:
        return []
    others = {(each.protocol.digest, each.selection): each for each in right.outcomes}
    pairs = [(each, others.get((each.protocol.digest, each.selection))) for each in left.outcomes]
    names, differences, ps = list[str](), list[Difference](), list[float]()
    for one, other in pairs:
        if other is not None:
            subjects, (mine, its) = paired_credits((one, other))
            clusters = subjects if len(set(subjects)) >= FEWEST else None
            names.append(one.name)
            differences.append(paired_difference(mine, its, clusters))
            ps.append(sign_flip(mine, its).p)
    adjusted, known = np.full(len(ps), np.nan), ~np.isnan(ps)
    adjusted[known] = holm(np.array(ps)[known])
    return [Gap(*each) for each in zip(names, differences, ps, adjusted.tolist(), strict=True)]


def significant_leads(runs: Sequence[Outcomes], level: float = 0.05) -> frozenset[Ahead]:
    """Which model is significantly ahead of which under which protocol, for every two of ``runs``."""
    leads = set()
    for left, right in combinations(runs, 2):
        for gap in gaps(left, right):
            if gap.significant(level):
                models = (left.model, right.model) if gap.difference.value > 0 else (right.model, left.model)
                leads.add((gap.protocol, *models))
    return frozenset(leads)
