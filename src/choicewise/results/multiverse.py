"""What becomes of a number, and of a conclusion, over all the protocols that could have been chosen."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from choicewise.errors import UsageError
from choicewise.results.measurement import Measurement
from choicewise.results.pairing import paired_credits, paired_predictions
from choicewise.results.ranks import RankAgreement, rank_agreement
from choicewise.results.rows import plain
from choicewise.scoring.statistics.holm import holm
from choicewise.scoring.statistics.multiverse import Agreement, Panel, panel, sign_agreement
from choicewise.scoring.statistics.paired import paired_difference
from choicewise.scoring.statistics.sign_flip import sign_flip

if TYPE_CHECKING:
    from choicewise.results.run import Run


@dataclass(frozen=True, slots=True)
class Spread:
    """One model on one dataset over ``protocols`` protocols: mean accuracies over items, and who gave the extremes.

    ``unmeasured``: further protocols, under which no item was scored; with no other the extremes are None.
    """

    model: str
    dataset: str
    protocols: int
    panel: Panel
    lowest: str | None
    highest: str | None
    unmeasured: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Contest:
    """One protocol's verdict on two models.

    ``difference``: left minus right, mean over the ``n`` items both scored; ``p``: paired sign-flip test,
    two-sided; ``p_holm``: corrected for all protocols that were tried.  All three are NaN where ``n`` is 0: that is no
    verdict, and counts nowhere.
    """

    protocol: str
    difference: float
    n: int
    p: float
    p_holm: float


@dataclass(frozen=True, slots=True)
class Duel:
    """Two models on one dataset under every protocol both were measured with."""

    left: str
    right: str
    dataset: str
    agreement: Agreement
    contests: tuple[Contest, ...]

    @property
    def measured(self) -> list[Contest]:
        """The protocols under which both scored an item."""
        return [contest for contest in self.contests if contest.n]

    @property
    def unmeasured(self) -> list[str]:
        """The names of the others."""
        return [contest.protocol for contest in self.contests if not contest.n]

    def significant(self, level: float = 0.05) -> tuple[int, int]:
        """Protocols under which left, and right, is significantly better after Holm's correction."""
        found = [contest for contest in self.contests if contest.p_holm <= level]
        return sum(each.difference > 0 for each in found), sum(each.difference < 0 for each in found)


@dataclass(frozen=True, slots=True)
class Multiverse:
    """The spread of every model, every pair of models, and how protocols agree about their order."""

    spreads: tuple[Spread, ...]
    duels: tuple[Duel, ...]
    ranks: tuple[RankAgreement, ...]


def multiverse(runs: Sequence[Run]) -> Multiverse:
    """The panel of ``runs``: one per model and dataset.  Raises UsageError when there are not even two protocols."""
    measured = [{each.protocol.digest: each for each in run.measure()} for run in runs]
    if all(len(found) < 2 for found in measured):
        raise UsageError(
            "a multiverse needs at least two protocols in a run; add some: choicewise run ... --protocol mmlu"
        )
    about = [(run.manifest.model.name, run.manifest.dataset) for run in runs]
    spreads = [_spread(model, data.name, found) for (model, data), found in zip(about, measured, strict=True)]
    duels = [
        _duel(about[i][0], about[j][0], about[i][1].name, measured[i], measured[j])
        for i, j in combinations(range(len(runs)), 2)
        if about[i][1].digest == about[j][1].digest and measured[i].keys() & measured[j].keys()
    ]
    rows = [row for run in runs for row in run.rows() if not math.isnan(row.value)]
    return Multiverse(tuple(spreads), tuple(duels), tuple(rank_agreement(rows)))


def multiverse_json(found: Multiverse) -> dict[str, Any]:
    """The panel as JSON knows it; sign agreement and counts of significant protocols are spelled out."""
    content = asdict(found)
    for part, duel in zip(content["duels"], found.duels, strict=True):
        part["agreement"]["share"] = duel.agreement.share
        part["significant"] = dict(zip(("left", "right"), duel.significant(), strict=True))
    return plain(content)


def _spread(model: str, dataset: str, found: dict[str, Measurement]) -> Spread:
    means = {each.name: _mean(each) for each in found.values()}
    known = {name: mean for name, mean in means.items() if not math.isnan(mean)}
    unmeasured = tuple(name for name in means if name not in known)
    measured = [each for each in found.values() if each.name in known] or list(found.values())
    _, credits = paired_credits(measured)
    lowest = min(known, key=known.__getitem__, default=None)
    highest = max(known, key=known.__getitem__, default=None)
    seen = panel(credits, paired_predictions(measured))
    return Spread(model, dataset, len(known), seen, lowest, highest, unmeasured)


def _mean(measured: Measurement) -> float:
    credit = measured.decisions.credit
    seen = credit[~np.isnan(credit)]
    return float(seen.mean()) if len(seen) else float("nan")


def _duel(left: str, right: str, dataset: str, ours: dict[str, Measurement], theirs: dict[str, Measurement]) -> Duel:
    pairs = [(each, theirs[digest]) for digest, each in ours.items() if digest in theirs]
    credits = [paired_credits(pair) for pair in pairs]
    ps = np.array([sign_flip(*both).p for _, both in credits])
    differences = [paired_difference(both[0], both[1], subjects) for subjects, both in credits]
    adjusted, known = np.full_like(ps, np.nan), ~np.isnan(ps)
    adjusted[known] = holm(ps[known])
    contests = [
        Contest(pair[0].name, difference.value, difference.n, p, p_holm)
        for pair, difference, p, p_holm in zip(pairs, differences, ps.tolist(), adjusted.tolist(), strict=True)
    ]
    signs = [sign_agreement(both[:1], both[1:]) for _, both in credits]
    agreement = Agreement(
        sum(each.left for each in signs), sum(each.right for each in signs), sum(each.even for each in signs)
    )
    return Duel(left, right, dataset, agreement, tuple(contests))
