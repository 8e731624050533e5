"""How a number, and a conclusion, vary over all the protocols that could have been chosen."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from itertools import combinations
from typing import Any

import numpy as np

from choicewise.errors import UsageError
from choicewise.results.distinct import alike
from choicewise.results.json_value import json_value
from choicewise.results.outcome import Outcome, OutcomeKeeper, Outcomes
from choicewise.results.pairing import paired_credits, paired_predictions
from choicewise.results.row import Row
from choicewise.results.run import Run
from choicewise.scoring.ragged import Floats
from choicewise.scoring.statistics.holm import holm
from choicewise.scoring.statistics.multiverse import Agreement, Panel, panel, sign_agreement
from choicewise.scoring.statistics.paired import paired_difference
from choicewise.scoring.statistics.rank_interval import ranks
from choicewise.scoring.statistics.sign_flip import sign_flip

Firsts = Sequence[Mapping[str, str]]
"""For each run, by the digest of every protocol, that of the first one that it can't differ from."""


@dataclass(frozen=True, slots=True)
class Spread:
    """One model on one dataset over ``protocols`` protocols: mean accuracies over items.

    ``distinct``: how many of them can differ here.  ``alike``: those that can't, group by group, of which the first
    counts (:mod:`~.distinct`).  ``lowest`` and ``highest``: the protocols with the extreme accuracies, None where no
    item was scored under any.  ``unmeasured``: further protocols, under which no item was scored.
    """

    model: str
    dataset: str
    protocols: int
    distinct: int
    panel: Panel
    lowest: str | None
    highest: str | None
    unmeasured: tuple[str, ...]
    alike: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Contest:
    """One protocol's verdict on two models; ``alike``: others that can't differ from it on either, and don't count.

    ``difference``: left minus right, mean over the ``n`` items both scored; ``p``: paired sign-flip test,
    two-sided; ``p_holm``: corrected for all distinct protocols that were tried.  All three are NaN where ``n`` is 0:
    that is no verdict and is counted nowhere.
    """

    protocol: str
    difference: float
    n: int
    p: float
    p_holm: float
    alike: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Duel:
    """Two models on one dataset under every distinct protocol both were measured with."""

    left: str
    right: str
    dataset: str
    agreement: Agreement
    contests: tuple[Contest, ...]

    @property
    def measured(self) -> list[Contest]:
        """The distinct protocols under which both scored an item."""
        return [contest for contest in self.contests if contest.n]

    @property
    def unmeasured(self) -> list[str]:
        """The names of the others."""
        return [name for contest in self.contests if not contest.n for name in (contest.protocol, *contest.alike)]

    @property
    def protocols(self) -> int:
        """How many protocols measured both, those that can't differ included."""
        return sum(1 + len(contest.alike) for contest in self.measured)

    def significant(self, level: float = 0.05) -> tuple[int, int]:
        """Distinct protocols under which left, and right, is significantly better after Holm's correction."""
        significant = [contest.difference for contest in self.contests if contest.p_holm <= level]
        return sum(difference > 0 for difference in significant), sum(difference < 0 for difference in significant)


@dataclass(frozen=True, slots=True)
class RankAgreement:
    """Kendall's τ-b between two protocols' rankings of the ``models`` that both ranked; NaN where one has all equal."""

    left: str
    right: str
    tau: float
    models: int


@dataclass(frozen=True, slots=True)
class Multiverse:
    """The spread of every model, every pair of models, and how protocols agree about their order."""

    spreads: tuple[Spread, ...]
    duels: tuple[Duel, ...]
    ranks: tuple[RankAgreement, ...]


def multiverse(runs: Sequence[Run]) -> Multiverse:
    """The panel of ``runs``: one per model and dataset.  Raises UsageError when there are not even two protocols."""
    keeper, kept, rows = OutcomeKeeper(), list[Outcomes](), list[list[Row]]()
    for each in runs:
        kept.append(keeper.keep(each).shares)
        rows.append([row for row in each.rows() if row.share and not math.isnan(row.value)])
        each.release()
    firsts = [each.firsts for each in kept]
    measured = [{each.protocol.digest: each for each in run.outcomes} for run in kept]
    if all(len(by_digest) < 2 for by_digest in measured):
        raise UsageError("a multiverse needs at least two protocols in a run; add more to the run, such as mmlu")
    spreads = [_spread(*parts) for parts in zip(kept, measured, firsts, strict=True)]
    duels = [
        _duel(kept[left], kept[right], measured[left], measured[right], [firsts[left], firsts[right]])
        for left, right in combinations(range(len(kept)), 2)
        if kept[left].digest == kept[right].digest and measured[left].keys() & measured[right].keys()
    ]
    repeated = _repeated(kept, firsts)
    named = [{each.name: each.protocol.digest for each in run.outcomes} for run in kept]
    distinct = [
        row
        for own, digest_of in zip(rows, named, strict=True)
        for row in own
        if digest_of[row.protocol] not in repeated
    ]
    return Multiverse(tuple(spreads), tuple(duels), tuple(rank_agreement(distinct)))


def multiverse_json(shown: Multiverse) -> Any:
    """The panel as JSON knows it; sign agreement and counts of significant protocols are spelled out."""
    content = json_value(shown)
    for entry, duel in zip(content["duels"], shown.duels, strict=True):
        entry["agreement"]["share"] = json_value(duel.agreement.share)
        entry["significant"] = dict(zip(("left", "right"), duel.significant(), strict=True))
    return content


def _repeated(runs: Sequence[Outcomes], firsts: Sequence[Mapping[str, str]]) -> set[str]:
    """The digests of protocols that all ``runs`` have that can't differ from one before, averages included."""
    aggregation = {each.protocol.digest: each.protocol.aggregation for each in runs[0].outcomes}
    return {
        digest for first, *others in alike(firsts) for digest in others if aggregation[digest] == aggregation[first]
    }


def _spread(run: Outcomes, measured: Mapping[str, Outcome], firsts: Mapping[str, str]) -> Spread:
    means = {digest: _mean(each.credit) for digest, each in measured.items()}
    known = {digest: first for digest, first in firsts.items() if not math.isnan(means[digest])}
    groups = [[measured[digest].name for digest in group] for group in alike([known])]
    distinct = [measured[first] for first, *_ in alike([known])] or list(measured.values())
    _, credits = paired_credits(distinct)
    lowest, highest = (extreme(known, key=means.__getitem__, default=None) for extreme in (min, max))
    first, last = (None if digest is None else measured[digest].name for digest in (lowest, highest))
    unmeasured = tuple(each.name for digest, each in measured.items() if digest not in known)
    shown, several = panel(credits, paired_predictions(distinct)), tuple(tuple(group) for group in groups if group[1:])
    return Spread(run.model, run.dataset, len(known), len(groups), shown, first, last, unmeasured, several)


def _mean(credit: Floats) -> float:
    known = credit[~np.isnan(credit)]
    return float(known.mean()) if len(known) else math.nan


def _duel(
    left: Outcomes, right: Outcomes, measured: Mapping[str, Outcome], others: Mapping[str, Outcome], firsts: Firsts
) -> Duel:
    groups = alike(firsts)
    pairs = [(measured[first], others[first]) for first, *_ in groups]
    credits = [paired_credits(pair) for pair in pairs]
    ps = np.array([sign_flip(*both).p for _, both in credits])
    differences = [paired_difference(both[0], both[1], subjects) for subjects, both in credits]
    adjusted, known = np.full_like(ps, np.nan), ~np.isnan(ps)
    adjusted[known] = holm(ps[known])
    contests = [
        Contest(pair[0].name, difference.value, difference.n, p, p_holm, tuple(measured[each].name for each in same))
        for pair, difference, p, p_holm, (_, *same) in zip(
            pairs, differences, ps.tolist(), adjusted.tolist(), groups, strict=True
        )
    ]
    signs = [sign_agreement(both[:1], both[1:]) for _, both in credits]
    agreement = Agreement(*map(sum, zip(*map(astuple, signs), strict=True)))
    models = left.model, right.model
    return Duel(*models, left.dataset, agreement, tuple(contests))


def rank_agreement(rows: Sequence[Row]) -> list[RankAgreement]:
    """One entry per pair of protocols that rank the same three or more models; fewer have no order to agree about."""
    values: dict[str, dict[tuple[str, str, str], float]] = {}
    for row in rows:
        values.setdefault(row.protocol, {})[row.data, row.subject, row.model] = row.value
    agreements = []
    for left, right in combinations(values, 2):
        shared = [key for key in values[left] if key in values[right]]
        models = len({model for _, _, model in shared})
        if models >= 3 and len(shared) == models:
            from scipy.stats import kendalltau

            tau = kendalltau(*(ranks([values[name][key] for key in shared]) for name in (left, right))).statistic
            agreements.append(RankAgreement(left, right, float(tau), models))
    return agreements
