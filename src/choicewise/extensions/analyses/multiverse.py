"""Measure how numbers and conclusions vary over protocols, and how often each choice would be
chosen.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from choicewise.errors import UsageError
from choicewise.extensions.analyses.statistics import (
    Agreement,
    Fit,
    Panel,
    fit,
    panel,
    sign_agreement,
)
from choicewise.results.evidence import Evidence
from choicewise.results.measurement import (
    human_counts,
    item_fields,
    links,
    paired_credits,
    paired_predictions,
)
from choicewise.results.number import Number
from choicewise.results.outcomes import (
    Outcome,
    Outcomes,
    equivalent_groups,
    outcomes_of,
    shared_credits,
)
from choicewise.results.run import Run
from choicewise.scoring.intervals import ranks
from choicewise.scoring.observed import Floats, Integers, item_sum, mean_of_present, row_of
from choicewise.scoring.significance import (
    holm,
    is_significant,
    paired_difference,
    sign_flip,
)


@dataclass(frozen=True, kw_only=True)
class ScoreSpread:
    """Hold the accuracies (means over items) of one model on one dataset over its ``protocols``
    protocols.

    ``distinct``: how many of them can differ here. ``duplicates``: groups of those that can't, of
    which the first counts. ``lowest``, ``highest``: the protocols with the extreme accuracies, None
    if no item was scored under any. ``unmeasured``: further protocols, under which no item was
    scored.
    """

    model: str
    dataset: str
    protocols: int
    distinct: int
    panel: Panel
    lowest: str | None
    highest: str | None
    unmeasured: tuple[str, ...]
    duplicates: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, kw_only=True)
class Contest:
    """Hold one protocol's verdict on two models.

    ``difference``: left minus right under the protocol's own mean, over the ``n`` items both
    scored. ``p``: two-sided, of a paired sign-flip test of it. ``p_holm``: corrected for all
    distinct protocols that were tried. All three are NaN if ``n`` is 0, which is no verdict and is
    counted nowhere. ``duplicates``: further protocols that can't differ from it for either model.
    """

    protocol: str
    difference: float
    n: int
    p: float
    p_holm: float
    duplicates: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Duel:
    """Compare two models on one dataset under every distinct protocol that both were measured with."""

    left: str
    right: str
    dataset: str
    agreement: Agreement
    contests: tuple[Contest, ...]

    @property
    def measured(self) -> list[Contest]:
        """Return the contests under which both scored an item."""
        return [contest for contest in self.contests if contest.n]

    @property
    def unmeasured(self) -> list[str]:
        """Return the names of the other protocols."""
        names: list[str] = []
        for contest in self.contests:
            if not contest.n:
                names += [contest.protocol, *contest.duplicates]
        return names

    @property
    def protocols(self) -> int:
        """Count the protocols that measured both, with those that can't differ."""
        return sum(1 + len(contest.duplicates) for contest in self.measured)

    def significant(self) -> tuple[int, int]:
        """Count the distinct protocols under which left, and right, is better after Holm's
        correction.
        """
        left = 0
        right = 0
        for contest in self.contests:
            if is_significant(contest.p_holm, contest.n):
                left += contest.difference > 0
                right += contest.difference < 0
        return left, right


@dataclass(frozen=True)
class RankAgreement:
    """Hold Kendall's τ-b between two protocols' rankings of ``models`` models; NaN if one has equal
    values only.
    """

    left: str
    right: str
    tau: float
    models: int


@dataclass(frozen=True)
class Multiverse:
    """Hold the spread of every model, every pair of models, and how protocols agree about their
    order.
    """

    spreads: tuple[ScoreSpread, ...]
    duels: tuple[Duel, ...]
    ranks: tuple[RankAgreement, ...]


@dataclass(frozen=True)
class _Measured:
    """Hold the outcomes and the rows of a run whose numbers are shares of 1.

    ``by_digest``: digest of a protocol → its outcome. ``firsts``: digest → that of the first
    protocol that it can't differ from.
    """

    outcomes: Outcomes
    rows: Sequence[Number]
    by_digest: Mapping[str, Outcome]
    firsts: Mapping[str, str]

    @classmethod
    def of(cls, outcomes: Outcomes, rows: Sequence[Number]) -> _Measured:
        by_digest = {outcome.protocol.digest: outcome for outcome in outcomes.outcomes}
        return cls(outcomes, rows, by_digest, outcomes.firsts)


def multiverse(runs: Sequence[Run]) -> Multiverse:
    """Compare ``runs``, one per model and dataset; UsageError if none has two protocols."""
    measured_runs: list[_Measured] = []
    for run in runs:
        outcomes = outcomes_of(run).shares
        rows = [row for row in run.rows() if row.share and not math.isnan(row.value)]
        measured_runs.append(_Measured.of(outcomes, rows))
        run.release()
    if all(len(measured.by_digest) < 2 for measured in measured_runs):
        raise UsageError(
            "a multiverse needs at least two protocols in a run; add more to the run, such as mmlu"
        )
    duels = []
    for left, right in combinations(measured_runs, 2):
        is_same_data = left.outcomes.digest == right.outcomes.digest
        if is_same_data and not left.by_digest.keys().isdisjoint(right.by_digest):
            duels.append(_duel(left, right))
    return Multiverse(
        spreads=tuple(_score_spread(measured) for measured in measured_runs),
        duels=tuple(duels),
        ranks=tuple(rank_agreement(_distinct_rows(measured_runs))),
    )


def rank_agreement(rows: Sequence[Number]) -> list[RankAgreement]:
    """Return an entry per pair of protocols that rank the same three or more models."""
    values: dict[str, dict[tuple[str, str, str], float]] = {}
    for row in rows:
        values.setdefault(row.identity.protocol, {})[
            row.identity.data, row.identity.subject, row.identity.model
        ] = row.value
    agreements = []
    for left, right in combinations(values, 2):
        shared = [key for key in values[left] if key in values[right]]
        models = len({model for _, _, model in shared})
        # Fewer have no order to agree about; and of several groups of items there are several
        # orders.
        if models < 3 or len(shared) != models:
            continue
        from scipy.stats import kendalltau

        left_ranks = ranks([values[left][key] for key in shared])
        right_ranks = ranks([values[right][key] for key in shared])
        tau = float(kendalltau(left_ranks, right_ranks).statistic)
        agreements.append(RankAgreement(left, right, tau, models))
    return agreements


@dataclass(frozen=True, kw_only=True)
class Condition:
    """Hold the mean over ``n`` items of the probability of each choice, in order.

    ``human``: people's mean share; if it is known of some items, all means are over these. Choices
    are averaged by their position, so that a condition says something only if its items have their
    choices in one order.
    """

    name: str
    n: int
    softmax: tuple[float, ...]
    winner: tuple[float, ...]
    human: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class Distribution:
    """Hold one protocol's choice probabilities under two links, averaged per condition, and their
    fit to people.

    ``softmax``: of the scores over ``temperature``. ``winner``: all to the best score, ties split.
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
    """Yield the distribution under each protocol that scores choices.

    ``condition`` names a field of the items, or ``subject``; without it all items are one
    condition.
    """
    for measurement in run.measurements.values():
        if measurement.scores is None:
            continue
        evidence = measurement.evidence
        softmax, winner = links(measurement, temperature)
        people = human_counts(evidence)
        conditions = _conditions(evidence, condition, softmax, winner, people)
        softmax_fit = None
        winner_fit = None
        if people is not None:
            softmax_fit = fit(softmax, people, evidence.item_offsets)
            winner_fit = fit(winner, people, evidence.item_offsets)
        yield Distribution(
            model=run.manifest.model.name,
            dataset=run.manifest.dataset.name,
            protocol=measurement.name,
            temperature=temperature,
            conditions=tuple(conditions),
            softmax_fit=softmax_fit,
            winner_fit=winner_fit,
        )


def _distinct_rows(runs: Sequence[_Measured]) -> list[Number]:
    """Return the rows without protocols that can't differ from an earlier one in any of ``runs``."""
    by_digest = runs[0].by_digest
    duplicates = set()
    for first, *others in equivalent_groups([measured.firsts for measured in runs]):
        for digest in others:
            # Averages of one credit can differ.
            if by_digest[digest].protocol.aggregation == by_digest[first].protocol.aggregation:
                duplicates.add(digest)
    rows = []
    for measured in runs:
        digests = {outcome.name: outcome.protocol.digest for outcome in measured.outcomes.outcomes}
        rows += [row for row in measured.rows if digests[row.identity.protocol] not in duplicates]
    return rows


def _score_spread(measured: _Measured) -> ScoreSpread:
    by_digest = measured.by_digest
    means = {digest: mean_of_present(outcome.credit) for digest, outcome in by_digest.items()}
    scored = {
        digest: first for digest, first in measured.firsts.items() if not math.isnan(means[digest])
    }
    # Protocols without a number say nothing of how far numbers vary.
    groups = equivalent_groups([scored])
    distinct = [by_digest[group[0]] for group in groups]
    if not distinct:
        distinct = list(by_digest.values())
    _, credits = paired_credits(distinct)
    duplicates = []
    for group in groups:
        if len(group) > 1:
            duplicates.append(tuple(by_digest[digest].name for digest in group))
    lowest = None
    highest = None
    if scored:
        lowest = by_digest[min(scored, key=means.__getitem__)].name
        highest = by_digest[max(scored, key=means.__getitem__)].name
    return ScoreSpread(
        model=measured.outcomes.model,
        dataset=measured.outcomes.dataset,
        protocols=len(scored),
        distinct=len(groups),
        panel=panel(credits, paired_predictions(distinct)),
        lowest=lowest,
        highest=highest,
        unmeasured=tuple(by_digest[digest].name for digest in by_digest if digest not in scored),
        duplicates=tuple(duplicates),
    )


def _duel(left: _Measured, right: _Measured) -> Duel:
    groups = equivalent_groups([left.firsts, right.firsts, left.outcomes.macro])
    credits = []
    for first, *_ in groups:
        one = left.by_digest[first]
        subjects, raw = paired_credits((one, right.by_digest[first]))
        credits.append(shared_credits(subjects, raw, one.protocol.aggregation))
    ps = np.array([sign_flip(left_credit, right_credit).p for left_credit, right_credit in credits])
    adjusted = np.full_like(ps, np.nan)
    has_p = ~np.isnan(ps)
    # A protocol without a shared item was not tried, and must not make the others' p-values larger.
    adjusted[has_p] = holm(ps[has_p])

    contests = []
    agreement = Agreement(left=0, right=0, even=0)
    for index, (first, *others) in enumerate(groups):
        left_credit, right_credit = credits[index]
        difference = paired_difference(left_credit, right_credit)
        contests.append(
            Contest(
                protocol=left.by_digest[first].name,
                difference=difference.value,
                n=difference.n,
                p=float(ps[index]),
                p_holm=float(adjusted[index]),
                duplicates=tuple(left.by_digest[digest].name for digest in others),
            )
        )
        sign = sign_agreement(left_credit[None], right_credit[None])
        agreement = Agreement(
            left=agreement.left + sign.left,
            right=agreement.right + sign.right,
            even=agreement.even + sign.even,
        )
    return Duel(
        left=left.outcomes.model,
        right=right.outcomes.model,
        dataset=left.outcomes.dataset,
        agreement=agreement,
        contests=tuple(contests),
    )


def _conditions(
    evidence: Evidence,
    condition: str | None,
    softmax: Floats,
    winner: Floats,
    people: Floats | None,
) -> Iterator[Condition]:
    names = _condition_names(evidence, condition)
    offsets = evidence.item_offsets
    starts = offsets[:-1]
    shares = None
    if people is not None:
        # Items have different numbers of people; each item counts once.
        totals = item_sum(people, offsets)
        shares = people / np.where(totals > 0, totals, np.nan)[row_of(offsets)]
    for name in dict.fromkeys(names):
        items = np.flatnonzero([other == name for other in names])
        scored = items[~np.isnan(softmax[starts[items]])]
        human: tuple[float, ...] = ()
        if shares is not None:
            has_share = ~np.isnan(shares[starts[scored]])
            if has_share.any():
                scored = scored[has_share]
            human = _means_by_position(shares, offsets, scored)
        yield Condition(
            name=name,
            n=len(scored),
            softmax=_means_by_position(softmax, offsets, scored),
            winner=_means_by_position(winner, offsets, scored),
            human=human,
        )


def _condition_names(evidence: Evidence, condition: str | None) -> list[str]:
    """Return the condition of each item; UsageError if an item lacks the field."""
    if condition is None:
        return ["all"] * len(evidence.items)
    if condition == "subject":
        return evidence.subjects
    names = []
    for item, fields in zip(evidence.ids, item_fields(evidence), strict=True):
        if condition not in fields:
            listed_fields = ", ".join(sorted(fields)) or "none"
            raise UsageError(
                f"item {item} has no field {condition!r} to average over; its fields: "
                f"{listed_fields}, and subject"
            )
        names.append(fields[condition])
    return names


def _means_by_position(shares: Floats, offsets: Integers, items: Integers) -> tuple[float, ...]:
    """Return the mean share of the first choice, the second and so on, over ``items`` that have
    such a choice.
    """
    counts = np.diff(offsets)[items]
    starts = offsets[:-1][items]
    means = []
    for position in range(counts.max(initial=0)):
        means.append(mean_of_present(shares[starts[counts > position] + position]))
    if all(math.isnan(mean) for mean in means):
        return ()
    return tuple(means)
