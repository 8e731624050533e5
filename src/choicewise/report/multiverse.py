"""What becomes of a number, and of a conclusion, over all the protocols that could have been chosen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from choicewise.errors import UsageError
from choicewise.report.measure import Measurement
from choicewise.report.pairing import paired_credits, paired_predictions
from choicewise.report.ranks import RankAgreement, rank_agreement
from choicewise.report.rows import plain
from choicewise.scoring.statistics.holm import holm
from choicewise.scoring.statistics.mcnemar import mcnemar
from choicewise.scoring.statistics.multiverse import Agreement, Panel, panel, sign_agreement
from choicewise.scoring.statistics.paired import paired_difference

if TYPE_CHECKING:
    from choicewise.run import Run


@dataclass(frozen=True, slots=True)
class Spread:
    """One model on one dataset over ``protocols`` protocols: mean accuracies over items, and who gave the extremes."""

    model: str
    dataset: str
    protocols: int
    panel: Panel
    lowest: str
    highest: str


@dataclass(frozen=True, slots=True)
class Contest:
    """One protocol's verdict on two models.

    ``difference``: left minus right, mean over the ``n`` items both scored; ``p``: exact McNemar test, two-sided;
    ``p_holm``: corrected for all protocols that were tried.
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
    about = [(run.manifest.model["name"], run.manifest.dataset) for run in runs]
    spreads = [_spread(model, data["name"], found) for (model, data), found in zip(about, measured, strict=True)]
    duels = [
        _duel(about[i][0], about[j][0], about[i][1]["name"], measured[i], measured[j])
        for i, j in combinations(range(len(runs)), 2)
        if about[i][1]["digest"] == about[j][1]["digest"] and measured[i].keys() & measured[j].keys()
    ]
    return Multiverse(tuple(spreads), tuple(duels), tuple(rank_agreement([row for run in runs for row in run.rows()])))


def multiverse_json(found: Multiverse) -> dict[str, Any]:
    """The panel as JSON knows it; sign agreement and counts of significant protocols are spelled out."""
    content = asdict(found)
    for part, duel in zip(content["duels"], found.duels, strict=True):
        part["agreement"]["share"] = duel.agreement.share
        part["significant"] = dict(zip(("left", "right"), duel.significant(), strict=True))
    return plain(content)


def _spread(model: str, dataset: str, found: dict[str, Measurement]) -> Spread:
    measured = list(found.values())
    _, credits = paired_credits(measured)
    means = {each.name: _mean(each) for each in measured}
    known = {name: mean for name, mean in means.items() if not np.isnan(mean)} or dict.fromkeys(means, 0.0)
    lowest, highest = min(known, key=known.__getitem__), max(known, key=known.__getitem__)
    return Spread(model, dataset, len(measured), panel(credits, paired_predictions(measured)), lowest, highest)


def _mean(measured: Measurement) -> float:
    credit = measured.decisions.credit
    seen = credit[~np.isnan(credit)]
    return float(seen.mean()) if len(seen) else float("nan")


def _duel(left: str, right: str, dataset: str, ours: dict[str, Measurement], theirs: dict[str, Measurement]) -> Duel:
    pairs = [(each, theirs[digest]) for digest, each in ours.items() if digest in theirs]
    credits = [paired_credits(pair) for pair in pairs]
    tests = [mcnemar(*both) for _, both in credits]
    differences = [paired_difference(both[0], both[1], subjects) for subjects, both in credits]
    adjusted = holm([test.p for test in tests])
    contests = [
        Contest(pair[0].name, difference.value, difference.n, test.p, float(p))
        for pair, difference, test, p in zip(pairs, differences, tests, adjusted, strict=True)
    ]
    signs = [sign_agreement(both[:1], both[1:]) for _, both in credits]
    agreement = Agreement(
        sum(each.left for each in signs), sum(each.right for each in signs), sum(each.even for each in signs)
    )
    return Duel(left, right, dataset, agreement, tuple(contests))
