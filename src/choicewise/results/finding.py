"""Summarise the rows of runs: their spread, who leads, guesses, and models that change places."""

from __future__ import annotations

import math
import re
import typing
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations, compress
from statistics import median

from choicewise.protocols.preparations import is_in_panel
from choicewise.protocols.protocol import parse_signature, signature
from choicewise.results.guessing import Guessing, guess, guessing, merged
from choicewise.results.measurement import paired_credits, scored_by_all
from choicewise.results.number import Number
from choicewise.results.outcomes import (
    Outcome,
    Outcomes,
    distinct,
    item_weights,
    left_open,
    measured_as,
    ranked,
)
from choicewise.scoring.significance import LEVEL, SignFlip, holm, is_significant, weighted_flip


class Measured(typing.Protocol):
    """Give a run's numbers: its rows, and the credit of every item."""

    @property
    def rows(self) -> Sequence[Number]:
        """The rows, one per protocol and group."""

    @property
    def outcomes(self) -> Outcomes:
        """The outcomes of every protocol."""


@dataclass(frozen=True, kw_only=True)
class ReversalContest:
    """Compare two models under one protocol, over the ``n`` items that both score.

    ``left``, ``right``: shares of 1.  ``first``: it is the first protocol with its prompt.
    ``guessed``: neither number is better than guessing.  ``test``: paired by items.  ``p``: of the
    test, after Holm's correction.
    """

    protocol: str
    left: float
    right: float
    n: int
    first: bool
    guessed: bool
    test: SignFlip
    p: float

    @property
    def difference(self) -> float:
        """The value of the left model minus that of the right one."""
        return self.left - self.right


@dataclass(frozen=True, kw_only=True)
class Reversal:
    """Name two models of which the left is better under ``start``, and worse under ``end``.

    ``tests``: the number of tests that the p values are corrected for.
    """

    dataset: str
    left: str
    right: str
    start: ReversalContest
    end: ReversalContest
    tests: int


def reversal(runs: Sequence[Measured]) -> Reversal | None:
    """Return the clearest reversal of two models: the one with the greatest smaller difference.

    Every two models are tested under every protocol that sends both the same texts, on the items
    that both score.  None if no two change places significantly, each time with the better one
    better than guessing.  Protocols that are the first of their prompt come before others: two
    prompts differ more than two scores of the same answers.
    """
    pairs = []
    ps: list[float] = []
    for one, other in combinations(runs, 2):
        if one.outcomes.digest == other.outcomes.digest:
            contests = _reversal_contests(one, other)
            pairs.append((one, other, contests))
            ps += [contest.p for contest in contests]

    # The clearest is chosen among all pairs and protocols, so the correction is for all of them.
    adjusted = iter(holm(ps).tolist())
    reversals = []
    for one, other, contests in pairs:
        corrected = [replace(contest, p=next(adjusted)) for contest in contests]
        clear = [contest for contest in corrected if _is_clear(contest)]
        firsts = [contest for contest in clear if contest.first]
        for candidates in (firsts, clear):
            if not candidates:
                continue
            start = max(candidates, key=_difference)
            end = min(candidates, key=_difference)
            if start.difference > 0 > end.difference:
                reversals.append(
                    Reversal(
                        dataset=one.outcomes.dataset,
                        left=one.outcomes.model,
                        right=other.outcomes.model,
                        start=start,
                        end=end,
                        tests=len(ps),
                    )
                )
    return max(reversals, key=_clarity, default=None)


@dataclass(frozen=True, kw_only=True)
class Numbers:
    """Summarise the numbers of one model on one dataset, one per protocol.

    If they are ``grouped``, there is one per protocol and group.  ``count``: of the numbers;
    ``unmeasured``: of those that are NaN, as no item was scored.  ``items``: the smallest and the
    largest number of items of one.  ``lowest``, ``highest``: rows, the first of equal ones.
    ``median``: a share of 1.
    """

    model: str
    dataset: str
    data: str
    count: int
    unmeasured: int
    grouped: bool
    items: tuple[int, int]
    lowest: Number | None
    median: float
    highest: Number | None
    guessing: Guessing


@dataclass(frozen=True, kw_only=True)
class Turn:
    """Name the axis (or family, or group) that separates best where a model leads.

    With ``values`` the model is first under ``first`` of ``count`` protocols, with other values
    under ``otherwise`` of ``others``.
    """

    axis: str
    values: tuple[str, ...]
    first: int
    count: int
    otherwise: int
    others: int


@dataclass(frozen=True, kw_only=True)
class Lead:
    """Describe the order of the models that were measured the same way on one dataset.

    ``models``: the best first, by how often a model is first alone, then by its median.
    ``contests``: numbers of the best model with a rival over the same items, one per protocol, or
    per protocol and group if ``grouped``.  ``first``: contests in which the best model is first;
    ``tied``: of these, with others at the same value; ``open``: contests in which answers that were
    cut could change who is first.  ``significant``: of its leads alone, None without a test.
    ``level``: other models that are first alone as often.  ``behind``: protocols under which
    another model leads.  ``same_order``: no two models change places.  ``items``: the most of a
    contest.
    """

    dataset: str
    data: str
    models: tuple[str, ...]
    contests: int
    grouped: bool
    first: int
    tied: int
    level: tuple[str, ...]
    behind: tuple[str, ...]
    same_order: bool
    turn: Turn | None
    items: int
    open: int = 0
    significant: int | None = None

    @property
    def alone(self) -> int:
        """The contests in which the best model is first and no other is as good."""
        return self.first - self.tied

    @property
    def leader(self) -> str | None:
        """The model that is first alone more often than any other; None if there is none."""
        if self.level or not self.alone:
            return None
        return self.models[0]


@dataclass(frozen=True, kw_only=True)
class Finding:
    """Summarise the rows of one or several runs.

    ``numbers``: by model and dataset, in the order of the rows.  ``leads``: by dataset with several
    models.  ``other_items``: several models were measured the same way, on whatever items.
    ``missing``: the row that lacks the most items; ``lacking``: the number of rows that lack any.
    ``incomplete``: how far the incomplete runs are, as their selection says it.  ``other_metrics``:
    rows whose values are no shares of 1, which are in none of the others.
    """

    numbers: tuple[Numbers, ...]
    leads: tuple[Lead, ...]
    other_items: bool
    missing: Number | None
    lacking: int
    incomplete: tuple[str, ...]
    other_metrics: tuple[Number, ...]

    @property
    def count(self) -> int:
        """The number of numbers."""
        return sum(numbers.count for numbers in self.numbers)

    @property
    def guessing(self) -> Guessing:
        """The numbers that are better than guessing, counted."""
        return merged([numbers.guessing for numbers in self.numbers])

    @property
    def models(self) -> tuple[str, ...]:
        """The models, without duplicates."""
        return tuple(dict.fromkeys(numbers.model for numbers in self.numbers))

    @property
    def datasets(self) -> tuple[str, ...]:
        """The short digests of the datasets, without duplicates."""
        return tuple(dict.fromkeys(numbers.data for numbers in self.numbers))


def finding(rows: Sequence[Number]) -> Finding:
    """Summarise the rows of unchanged questions, or those of changed ones if there are no others.

    A protocol with two names counts once.  A model that was computed in several ways under one
    protocol counts as several, named with their ids (``#R``).
    """
    rows = unchanged(rows)
    other_metrics = [row for row in rows if not row.share]
    shares = distinct([row for row in rows if row.share])

    by_run: dict[tuple[str, str], list[Number]] = {}
    by_dataset: dict[str, list[Number]] = {}
    scored_by_measure: Counter[tuple[str, ...]] = Counter()
    for row in shares:
        by_run.setdefault((row.identity.model, row.identity.data), []).append(row)
        by_dataset.setdefault(row.identity.data, []).append(row)
        if row.counts.n:
            scored_by_measure[measured_as(row)] += 1

    leads = []
    for dataset_rows in by_dataset.values():
        dataset_lead = lead(dataset_rows)
        if dataset_lead is not None:
            leads.append(dataset_lead)

    lacking = [row for row in shares if row.counts.missing]
    # Rows without any number are counted by themselves.
    lacking = [row for row in lacking if row.counts.n] or lacking
    return Finding(
        numbers=tuple(_numbers(run_rows) for run_rows in by_run.values()),
        leads=tuple(leads),
        other_items=max(scored_by_measure.values(), default=0) > 1,
        missing=max(lacking, key=lambda row: row.counts.missing, default=None),
        lacking=len(lacking),
        incomplete=_incomplete([*shares, *other_metrics]),
        other_metrics=tuple(other_metrics),
    )


def unchanged(rows: Sequence[Number]) -> Sequence[Number]:
    """Return the rows of unchanged questions, or all rows if there are none.

    Protocols of a panel that change the questions are no ways to ask the unchanged ones.
    """
    kept = []
    for row in rows:
        if not is_in_panel(parse_signature(row.identity.signature).prepare):
            kept.append(row)
    return kept or rows


NAMED = 2
"""Protocols that are named; if there are more, the values that they have in common are named."""


def lead(rows: Sequence[Number]) -> Lead | None:
    """Return who leads on the one dataset of ``rows``; None if no two models share a measure.

    The order is that of the rows' ranks (:func:`choicewise.results.outcomes.bounded`), or of their
    values if no row has a rank.
    """
    if not any(row.ranks.rank for row in rows):
        rows = ranked(rows)
    contests = _lead_contests(rows)
    if not contests:
        return None
    wins = Counter(contest.winner for contest in contests)
    models = _models_in_order(contests, wins)
    same_order = _have_same_order(contests)
    best = models[0]

    contests = [contest for contest in contests if best in contest.rows]
    best_rows = [contest.rows[best] for contest in contests]
    is_alone = [contest.winner == best for contest in contests]
    behind = []
    for contest, row in zip(contests, best_rows, strict=True):
        if best not in contest.leaders:
            behind.append(row.identity.protocol)

    turn = None
    if len(behind) > NAMED:
        turn = _turn(best_rows, is_alone)
    level = [model for model in models[1:] if wins[model] == wins[best]]
    first = len(best_rows) - len(behind)
    return Lead(
        dataset=rows[0].identity.dataset,
        data=rows[0].identity.data,
        models=tuple(models),
        contests=len(best_rows),
        grouped=_have_groups(rows),
        first=first,
        tied=first - sum(is_alone),
        level=tuple(level),
        behind=tuple(behind),
        same_order=same_order,
        turn=turn,
        items=max(row.counts.n for row in best_rows),
        open=sum(contest.is_open for contest in contests),
        significant=_significant_leads(contests, best),
    )


def _significant_leads(contests: Sequence[_LeadContest], best: str) -> int | None:
    """Count the significant leads of the best model alone; None if none was tested."""
    ps = []
    for contest in contests:
        p = contest.rows[best].ranks.lead_p
        if contest.winner == best and p is not None:
            ps.append(p)
    if not ps:
        return None
    return sum(p <= LEVEL for p in ps)


def _have_groups(rows: Sequence[Number]) -> bool:
    return len({row.identity.subject for row in rows}) > 1


def _difference(contest: ReversalContest) -> float:
    return contest.difference


def _is_clear(contest: ReversalContest) -> bool:
    return is_significant(contest.p, contest.n) and not contest.guessed


def _clarity(candidate: Reversal) -> tuple[bool, float]:
    """Put reversals of first protocols first, then those with the greater smaller difference."""
    of_firsts = candidate.start.first and candidate.end.first
    return of_firsts, min(candidate.start.difference, -candidate.end.difference)


def _reversal_contests(one: Measured, other: Measured) -> list[ReversalContest]:
    """Compare two models under the protocols that sent both the same texts; p is not corrected.

    Protocols whose values are no shares of 1 are left out.
    """
    rows = {(row.identity.signature, row.identity.i): row for row in one.rows}
    other_rows = {(row.identity.signature, row.identity.i): row for row in other.rows}
    guessed: dict[str, bool] = {}
    for key, row in rows.items():
        rival = other_rows.get(key)
        # If answers were cut, a test of the others says nothing about the order.
        if rival is not None and not left_open(row, rival):
            guessed[row.identity.signature] = guess(row) and guess(rival)

    first_of_prompt: dict[str, str] = {}
    for outcome in one.outcomes.outcomes:
        first_of_prompt.setdefault(outcome.protocol.prompt_digest, outcome.name)
    rivals = {outcome.protocol.digest: outcome for outcome in other.outcomes.shares.outcomes}
    contests = []
    for outcome in one.outcomes.shares.outcomes:
        protocol = outcome.protocol
        spelled = signature(protocol)
        if protocol.digest not in rivals or spelled not in guessed:
            continue
        is_first = outcome.name == first_of_prompt[protocol.prompt_digest]
        contest = _contest(outcome, rivals[protocol.digest], is_first, guessed[spelled])
        if not math.isnan(contest.p):
            contests.append(contest)
    return contests


def _contest(one: Outcome, other: Outcome, first: bool, guessed: bool) -> ReversalContest:
    subjects, credits = paired_credits((one, other))
    weights = item_weights(subjects, credits, one.protocol.aggregation)
    test = weighted_flip(credits, weights)
    shared = scored_by_all(weights * credits)
    left = math.nan
    right = math.nan
    if shared.size:
        left, right = shared.mean(axis=1).tolist()
    return ReversalContest(
        protocol=one.name,
        left=left,
        right=right,
        n=shared.shape[1],
        first=first,
        guessed=guessed,
        test=test,
        p=test.p,
    )


_INCOMPLETE = re.compile(r"(?:^|, )(incomplete(?:: [\d,]+ of [\d,]+ items)?)$")
"""The end of the selection (:func:`choicewise.results.rows.selection`) of an incomplete run."""


def _value(row: Number) -> float:
    return row.value


def _numbers(rows: Sequence[Number]) -> Numbers:
    measured = [row for row in rows if not math.isnan(row.value)]
    item_counts = [row.counts.n + row.counts.missing for row in rows]
    middle = math.nan
    if measured:
        middle = median(map(_value, measured))
    return Numbers(
        model=rows[0].identity.model,
        dataset=rows[0].identity.dataset,
        data=rows[0].identity.data,
        count=len(measured),
        unmeasured=len(rows) - len(measured),
        grouped=_have_groups(rows),
        items=(min(item_counts), max(item_counts)),
        lowest=min(measured, key=_value, default=None),
        median=middle,
        highest=max(measured, key=_value, default=None),
        guessing=guessing(measured),
    )


def _incomplete(rows: Iterable[Number]) -> tuple[str, ...]:
    """Return how far the incomplete runs of ``rows`` are, without duplicates."""
    texts: dict[str, None] = {}
    for row in rows:
        match = _INCOMPLETE.search(row.identity.selection)
        if match:
            texts[match[1]] = None
    return tuple(texts)


@dataclass(frozen=True)
class _LeadContest:
    """Hold the numbers of models that were measured the same way, by model; none is NaN."""

    rows: Mapping[str, Number]

    @cached_property
    def first(self) -> list[str]:
        """The models of rank 1."""
        return [model for model, row in self.rows.items() if row.ranks.rank == 1]

    @cached_property
    def leaders(self) -> list[str]:
        """The models of rank 1, and those that could have it with answers that were cut."""
        first = [self.rows[model] for model in self.first]
        if not first:
            # Too few items were scored by all: the greatest value is the first.
            first = [max(self.rows.values(), key=_value)]
        leaders = []
        for model, row in self.rows.items():
            if any(row is leader or left_open(row, leader) for leader in first):
                leaders.append(model)
        return leaders

    @property
    def winner(self) -> str:
        """The model that is first alone; empty if several are first."""
        return self.leaders[0] if len(self.leaders) == 1 else ""

    @property
    def is_open(self) -> bool:
        """Check that answers that were cut could change who is first."""
        return len(self.leaders) > len(self.first)


def _lead_contests(rows: Sequence[Number]) -> list[_LeadContest]:
    """Group rows that were measured the same way, if they have ranks or cut answers hide them."""
    by_measure: dict[tuple[str, ...], dict[str, Number]] = {}
    for row in rows:
        if not math.isnan(row.value):
            by_measure.setdefault(measured_as(row), {})[row.identity.model] = row
    contests = []
    for rivals in by_measure.values():
        contest = _LeadContest(rivals)
        has_order = contest.first or len(contest.leaders) > 1
        if len(rivals) > 1 and has_order:
            contests.append(contest)
    return contests


def _models_in_order(contests: Sequence[_LeadContest], wins: Mapping[str, int]) -> list[str]:
    """Order the models by their ``wins`` (times first alone), then by their medians."""
    values: dict[str, list[float]] = {}
    for contest in contests:
        for model, row in contest.rows.items():
            if row.ranks.rank is not None or model in contest.leaders:
                values.setdefault(model, []).append(row.value)

    def position(model: str) -> tuple[int, float]:
        # The mean of two middle values would be no value of the model.
        upper_median = sorted(values[model])[len(values[model]) // 2]
        return -wins[model], -upper_median

    return sorted(values, key=position)


def _have_same_order(contests: Sequence[_LeadContest]) -> bool:
    """Check that no two models change places between contests."""
    worse_than: dict[str, set[str]] = {}
    for contest in contests:
        ranks = {}
        for model, row in contest.rows.items():
            if row.ranks.rank is not None:
                ranks[model] = row.ranks.rank
        for model, rank in ranks.items():
            worse = [other for other, other_rank in ranks.items() if other_rank > rank]
            worse_than.setdefault(model, set()).update(worse)
    for model, others in worse_than.items():
        for other in others:
            if model in worse_than.get(other, ()):
                return False
    return True


def _turn(rows: Sequence[Number], ahead: Sequence[bool]) -> Turn | None:
    """Return the family, group or axis that separates the rows that are ``ahead`` from the others.

    The family is taken if it is right more often than always saying the same.  An axis must be
    wrong at most a quarter as often as that.
    """
    # A family is what a user chooses first, so it goes before an axis that separates as well.
    axes_of_rows = [_axes(row) for row in rows]
    family = _split("family", [row.identity.family for row in rows], ahead)
    turns = [family, _split("group", [row.identity.subject for row in rows], ahead)]
    for axis in axes_of_rows[0]:
        turns.append(_split(axis, [axes[axis] for axes in axes_of_rows], ahead))

    wrong_if_constant = min(sum(ahead), len(ahead) - sum(ahead))
    if _wrong(family) < wrong_if_constant:
        return family
    # An axis with many values separates anything, so its values count against it.
    best = min(turns, key=lambda turn: _wrong(turn) + len(turn.values))
    if best.others and 4 * _wrong(best) <= wrong_if_constant:
        return best
    return None


def _axes(row: Number) -> dict[str, str]:
    """Return the axes of the row's protocol as its signature spells them."""
    axes = {}
    for part in row.identity.signature.split("|"):
        axis, _, value = part.partition(":")
        axes[axis] = value
    return axes


def _split(axis: str, values: Sequence[str], ahead: Sequence[bool]) -> Turn:
    """Separate the values with which the model is mostly behind."""
    counts = Counter(values)
    firsts = Counter(compress(values, ahead))
    # As often ahead as behind counts as ahead.
    behind = [value for value, count in counts.items() if 2 * firsts[value] < count]
    first = sum(firsts[value] for value in behind)
    count = sum(counts[value] for value in behind)
    return Turn(
        axis=axis,
        values=tuple(behind),
        first=first,
        count=count,
        otherwise=sum(ahead) - first,
        others=len(values) - count,
    )


def _wrong(turn: Turn) -> int:
    """Count the protocols that contradict a turn: first with ``values``, or behind with others."""
    return turn.first + turn.others - turn.otherwise
