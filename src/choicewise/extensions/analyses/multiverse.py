"""How numbers and conclusions vary over protocols, and how often each choice would be chosen."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from choicewise.errors import UsageError
from choicewise.results.evidence import Evidence
from choicewise.results.measurement import (
    human_counts,
    item_fields,
    links,
    paired_credits,
    paired_predictions,
)
from choicewise.results.outcomes import Outcome, OutcomeKeeper, Outcomes, alike
from choicewise.results.rows import Row
from choicewise.results.run import Run
from choicewise.scoring.intervals import ranks
from choicewise.scoring.observed import Floats, Integers, reduce_rows, row_of
from choicewise.scoring.significance import (
    Agreement,
    Fit,
    Panel,
    fit,
    holm,
    is_significant,
    paired_difference,
    panel,
    sign_agreement,
    sign_flip,
)


@dataclass(frozen=True, slots=True)
class ScoreSpread:
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
        return [
            name
            for contest in self.contests
            if not contest.n
            for name in (contest.protocol, *contest.alike)
        ]

    @property
    def protocols(self) -> int:
        """How many protocols measured both, those that can't differ included."""
        return sum(1 + len(contest.alike) for contest in self.measured)

    def significant(self) -> tuple[int, int]:
        """Distinct protocols under which left, and right, is significantly better after Holm's correction."""
        significant = [
            contest.difference
            for contest in self.contests
            if is_significant(contest.p_holm, contest.n)
        ]
        return sum(difference > 0 for difference in significant), sum(
            difference < 0 for difference in significant
        )


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

    spreads: tuple[ScoreSpread, ...]
    duels: tuple[Duel, ...]
    ranks: tuple[RankAgreement, ...]


def multiverse(runs: Sequence[Run]) -> Multiverse:
    """The panel of ``runs``: one per model and dataset.  Raises UsageError when there are not even two protocols."""
    keeper, shares, rows = OutcomeKeeper(), list[Outcomes](), list[list[Row]]()
    for each in runs:
        shares.append(keeper.keep(each).shares)
        rows.append([row for row in each.rows() if row.share and not math.isnan(row.value)])
        each.release()
    firsts = [each.firsts for each in shares]
    measured = [{each.protocol.digest: each for each in run.outcomes} for run in shares]
    if all(len(by_digest) < 2 for by_digest in measured):
        raise UsageError(
            "a multiverse needs at least two protocols in a run; add more to the run, such as mmlu"
        )
    spreads = [_score_spread(*parts) for parts in zip(shares, measured, firsts, strict=True)]
    duels = [
        _duel(
            shares[left],
            shares[right],
            measured[left],
            measured[right],
            [firsts[left], firsts[right]],
        )
        for left, right in combinations(range(len(shares)), 2)
        if shares[left].digest == shares[right].digest
        and measured[left].keys() & measured[right].keys()
    ]
    repeated = _repeated(shares, firsts)
    named = [{each.name: each.protocol.digest for each in run.outcomes} for run in shares]
    distinct = [
        row
        for own, digest_of in zip(rows, named, strict=True)
        for row in own
        if digest_of[row.protocol] not in repeated
    ]
    return Multiverse(tuple(spreads), tuple(duels), tuple(rank_agreement(distinct)))


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

            tau = kendalltau(
                *(ranks([values[name][key] for key in shared]) for name in (left, right))
            ).statistic
            agreements.append(RankAgreement(left, right, float(tau), models))
    return agreements


@dataclass(frozen=True, slots=True)
class Condition:
    """The mean over ``n`` items of the probability of each choice, in order; ``human``: people's mean share, if known.

    Where it is known of some items, all means are over these.

    Choices are averaged by their place, so a condition is meaningful where its items have their choices in one order.
    """

    name: str
    n: int
    softmax: tuple[float, ...]
    winner: tuple[float, ...]
    human: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Distribution:
    """One protocol's choice probabilities under two links, averaged per condition, and their fit to people's choices.

    ``softmax``: of the scores over ``temperature``; ``winner``: all to the best score, ties split.
    """

    model: str
    dataset: str
    protocol: str
    temperature: float
    conditions: tuple[Condition, ...]
    softmax_fit: Fit | None
    winner_fit: Fit | None


def distributions(
    run: Run, temperature: float, condition: str | None = None
) -> Iterator[Distribution]:
    """One per protocol that scores choices.

    ``condition`` names a field of the items, or ``subject``; without it all items are one condition.
    """
    for measured in run.measurements.values():
        if measured.scores is not None:
            softmax, winner = links(measured, temperature)
            people, offsets = human_counts(measured.evidence), measured.evidence.item_offsets
            names = run.manifest.model.name, run.manifest.dataset.name, measured.name
            conditions = tuple(_conditions(measured.evidence, condition, softmax, winner, people))
            fits = (
                None if people is None else fit(link, people, offsets) for link in (softmax, winner)
            )
            yield Distribution(*names, temperature, conditions, *fits)


_Firsts = Sequence[Mapping[str, str]]
"""For each run, by the digest of every protocol, that of the first one that it can't differ from."""


def _repeated(runs: Sequence[Outcomes], firsts: Sequence[Mapping[str, str]]) -> set[str]:
    """The digests of protocols that all ``runs`` have that can't differ from one before, averages included."""
    aggregation = {each.protocol.digest: each.protocol.aggregation for each in runs[0].outcomes}
    return {
        digest
        for first, *others in alike(firsts)
        for digest in others
        if aggregation[digest] == aggregation[first]
    }


def _score_spread(
    run: Outcomes, measured: Mapping[str, Outcome], firsts: Mapping[str, str]
) -> ScoreSpread:
    means = {digest: _mean(each.credit) for digest, each in measured.items()}
    known = {digest: first for digest, first in firsts.items() if not math.isnan(means[digest])}
    groups = [[measured[digest].name for digest in group] for group in alike([known])]
    distinct = [measured[first] for first, *_ in alike([known])] or list(measured.values())
    _, credits = paired_credits(distinct)
    lowest, highest = (
        extreme(known, key=means.__getitem__, default=None) for extreme in (min, max)
    )
    first, last = (
        None if digest is None else measured[digest].name for digest in (lowest, highest)
    )
    unmeasured = tuple(each.name for digest, each in measured.items() if digest not in known)
    shown, several = (
        panel(credits, paired_predictions(distinct)),
        tuple(tuple(group) for group in groups if group[1:]),
    )
    return ScoreSpread(
        run.model, run.dataset, len(known), len(groups), shown, first, last, unmeasured, several
    )


def _mean(credit: Floats) -> float:
    known = credit[~np.isnan(credit)]
    return float(known.mean()) if len(known) else math.nan


def _duel(
    left: Outcomes,
    right: Outcomes,
    measured: Mapping[str, Outcome],
    others: Mapping[str, Outcome],
    firsts: _Firsts,
) -> Duel:
    groups = alike(firsts)
    pairs = [(measured[first], others[first]) for first, *_ in groups]
    credits = [paired_credits(pair) for pair in pairs]
    ps = np.array([sign_flip(*both).p for _, both in credits])
    differences = [paired_difference(both[0], both[1]) for _, both in credits]
    adjusted, known = np.full_like(ps, np.nan), ~np.isnan(ps)
    adjusted[known] = holm(ps[known])
    contests = [
        Contest(
            pair[0].name,
            difference.value,
            difference.n,
            p,
            p_holm,
            tuple(measured[each].name for each in same),
        )
        for pair, difference, p, p_holm, (_, *same) in zip(
            pairs, differences, ps.tolist(), adjusted.tolist(), groups, strict=True
        )
    ]
    signs = [sign_agreement(both[:1], both[1:]) for _, both in credits]
    agreement = Agreement(
        left=sum(sign.left for sign in signs),
        right=sum(sign.right for sign in signs),
        even=sum(sign.even for sign in signs),
    )
    models = left.model, right.model
    return Duel(*models, left.dataset, agreement, tuple(contests))


def _conditions(
    evidence: Evidence,
    condition: str | None,
    softmax: Floats,
    winner: Floats,
    people: Floats | None,
) -> Iterator[Condition]:
    names, offsets = _names(evidence, condition), evidence.item_offsets
    shares = None
    if people is not None:
        totals = reduce_rows(np.add, people, offsets)
        shares = people / np.where(totals > 0, totals, np.nan)[row_of(offsets)]
    for name in dict.fromkeys(names):
        items = np.array(
            [item for item, other in enumerate(names) if other == name], dtype=np.int64
        )
        scored = items[~np.isnan(softmax[offsets[:-1][items]])]
        if shares is not None and (chosen := ~np.isnan(shares[offsets[:-1][scored]])).any():
            scored = scored[chosen]  # the same items in all rows
        means = (
            () if share is None else _means(share, offsets, scored)
            for share in (softmax, winner, shares)
        )
        yield Condition(name, len(scored), *means)


def _names(evidence: Evidence, condition: str | None) -> list[str]:
    if condition is None or condition == "subject":
        return evidence.subjects if condition else ["all"] * len(evidence.items)
    every = item_fields(evidence)
    for item, fields in zip(evidence.ids, every, strict=True):
        if condition not in fields:
            known = ", ".join(sorted(fields)) or "none"
            raise UsageError(
                f"item {item} has no field {condition!r} to average over; its fields: {known}, and subject"
            )
    return [fields[condition] for fields in every]


def _means(shares: Floats, offsets: Integers, items: Integers) -> tuple[float, ...]:
    """Mean share by place of the choice, over the ``items`` that have one there and whose share is known."""
    counts = np.diff(offsets)[items]
    means = []
    for choice in range(counts.max(initial=0)):
        values = shares[offsets[:-1][items[counts > choice]] + choice]
        known = values[~np.isnan(values)]
        means.append(float(known.mean()) if len(known) else math.nan)
    return () if all(map(math.isnan, means)) else tuple(means)
