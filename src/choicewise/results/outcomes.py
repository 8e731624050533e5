"""What remains of runs for comparisons of many: every item's outcome, which protocols can't differ, and ranks."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property, partial
from itertools import combinations
from pathlib import Path
from typing import Any, TypeVar
from typing import Protocol as Structural

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from choicewise.data.items import Categories
from choicewise.protocols.between import Applied
from choicewise.protocols.metrics import METRICS
from choicewise.protocols.protocol import CORRECTED, Protocol, axis_differences
from choicewise.protocols.readings import READINGS
from choicewise.records import Manifest
from choicewise.results.evidence import Column, RunEvidence, deciding_protocol, measured_columns
from choicewise.results.measurement import Measurement, paired_credits, same_items
from choicewise.results.number import Number
from choicewise.results.rows import selection
from choicewise.results.spans import ObservedPortion
from choicewise.scoring.combine import COMBINERS
from choicewise.scoring.intervals import GROUPS, ranks
from choicewise.scoring.observed import Floats, Integers, Mask, reduce_rows
from choicewise.scoring.significance import (
    FEWEST,
    holm,
    rank_ranges,
    sign_flip,
    significantly_better,
)

COMPARABLE = 0.95
"""Share of the items of a rival that a model must have scored to be ranked beside it."""


def ranked(rows: Sequence[Number]) -> list[Number]:
    """Rank each row among those of models that were measured the same way; equal values share a rank.

    A row over far fewer items than that of a rival (:data:`COMPARABLE`) gets no rank.  Where answers were cut or
    probabilities rounded, the ranks that models could have without that bound each rank.
    """
    result = list(rows)
    for places in _contests(rows):
        rivals = [rows[place] for place in places]
        alike = comparable(rivals)
        if sum(alike) == 1 < sum(not math.isnan(row.merit) for row in rivals):
            continue  # its rivals all scored too few items
        merits = [
            row.merit if whole else math.nan for row, whole in zip(rivals, alike, strict=True)
        ]
        placed = [
            replace(row, ranks=replace(row.ranks, rank=rank or None))
            for row, rank in zip(rivals, ranks(merits).tolist(), strict=True)
        ]
        for place, row in zip(places, placed, strict=True):
            result[place] = _open_ranks(row, placed)
    return result


def comparable(rivals: Sequence[Number]) -> list[bool]:
    """Mark the rows with a value that is over about as many items as that of any rival (:data:`COMPARABLE`)."""
    counts = [0 if math.isnan(row.merit) else row.counts.n for row in rivals]
    least = COMPARABLE * max(counts, default=0)
    return [count > 0 and count >= least for count in counts]


def left_open(one: Number, other: Number) -> bool:
    """Whether answers that were cut, or probabilities that were rounded, could turn the order of two values round."""
    if not (one.cut or other.cut or one.bounds.rounding or other.bounds.rounding):
        return False
    (low, high), (other_low, other_high) = (
        (each.value, each.value)
        if math.isnan(each.bounds.low)
        else (each.bounds.low, each.bounds.high)
        for each in (one, other)
    )
    return low <= other_high and other_low <= high


def _contests(rows: Sequence[Number]) -> Iterable[list[int]]:
    """Group the places of rows that were measured the same way."""
    contests: dict[Hashable, list[int]] = {}
    for place, row in enumerate(rows):
        contests.setdefault(measured_as(row), []).append(place)
    return contests.values()


def _open_ranks(row: Number, rivals: Sequence[Number]) -> Number:
    if row.ranks.rank is None or not any(
        left_open(each, row) for each in rivals if each is not row
    ):
        return row
    others = [each for each in rivals if each is not row and each.ranks.rank is not None]
    above = sum(each.merit > row.merit and not left_open(each, row) for each in others)
    below = sum(each.merit < row.merit and not left_open(each, row) for each in others)
    ranks = replace(row.ranks, low=1 + above, high=1 + len(others) - below)
    return replace(row, ranks=ranks)


def ranks_among(values: Sequence[float], groups: Sequence[Hashable]) -> list[int | None]:
    """The rank of each value in its group: 1 for the greatest; equal values share a rank; None for NaN, no value."""
    members: dict[Hashable, list[int]] = {}
    for place, group in enumerate(groups):
        members.setdefault(group, []).append(place)
    placed: list[int | None] = [None] * len(values)
    for places in members.values():
        for place, rank in zip(
            places, ranks([values[place] for place in places]).tolist(), strict=True
        ):
            placed[place] = rank or None
    return placed


def bounded(
    rows: Sequence[Number], runs: Sequence[Outcomes], by: str | None = None
) -> list[Number]:
    """Rank ``rows`` (:func:`ranked`) by the items that all rivals scored, with the range of each rank and the leads.

    ``runs``: in the order of the rows.  Rows without a rival or without outcomes stay as they are.  A rank is better
    than that of another model where all pairs of rivals are tested (:func:`~.significance.significantly_better`).
    """
    outcomes = _outcome_of_rows(rows, runs)
    result = list(rows)
    leads: dict[tuple[str, str], list[_Lead]] = {}
    for places in _contests(rows):
        places = [place for place in places if rows[place].ranks.rank is not None]
        if len(places) < 2 or not outcomes.keys() >= set(places):
            continue
        rivals = _Rivals(
            [rows[place] for place in places], [outcomes[place] for place in places], by
        )
        if not rivals.credits.size:
            for place in places:
                no_ranks = replace(rows[place].ranks, rank=None, low=None, high=None)
                result[place] = replace(rows[place], ranks=no_ranks)
            continue  # no item was scored by all
        for place, row in zip(places, rivals.ranked, strict=True):
            result[place] = row
        first = rows[places[0]]
        leads.setdefault((first.identity.data, first.identity.selection), []).append(
            rivals.lead(places)
        )
    for own in leads.values():
        for place, p in _adjusted(own).items():
            result[place] = replace(result[place], ranks=replace(result[place].ranks, lead_p=p))
    return result


def _outcome_of_rows(rows: Sequence[Number], runs: Sequence[Outcomes]) -> dict[int, Outcome]:
    """Find the outcome that each row is made of, by the place of the row; several runs may be of one name."""
    waiting: dict[tuple[str, ...], list[Outcome]] = {}
    for run in runs:
        for outcome in run.outcomes:
            key = run.model, f"#D{run.digest[:6]}", outcome.selection, outcome.protocol.digest[:6]
            waiting.setdefault(key, []).append(outcome)
    outcome_of: dict[int, Outcome] = {}
    seen: Counter[tuple[str, ...]] = Counter()
    for place, row in enumerate(rows):
        key = row.identity.model, row.identity.data, row.identity.selection, row.identity.id[2:]
        own = waiting.get(key, [])
        number = seen[(*key, row.identity.subject)]
        seen[(*key, row.identity.subject)] += 1
        if number < len(own):
            outcome_of[place] = own[number]
    return outcome_of


@dataclass(frozen=True, slots=True)
class _Lead:
    """Hold p of the lead of the row at ``place`` over every rival.

    NaN where there is no test; ``place`` is None where several are first.  ``alike``: leads with the same value are of
    protocols that can't differ.
    """

    place: int | None
    p: float
    alike: Hashable


class _Rivals:
    """Compare models that were measured the same way by the items that all of them scored.

    ``rows`` are ranked, one per model with its outcome.
    """

    def __init__(self, rows: Sequence[Number], outcomes: Sequence[Outcome], by: str | None) -> None:
        self.rows = rows
        self.outcomes = outcomes
        protocol = outcomes[0].protocol
        aggregation = by or protocol.aggregation
        self.metric = METRICS[protocol.metric]
        subjects, credits = paired_credits(outcomes)
        groups = [GROUPS[aggregation](subject, outcomes[0].categories) for subject in subjects]
        among = np.array([group == rows[0].identity.subject for group in groups], dtype=np.bool_)
        self.credits = shared_credits(subjects, credits, aggregation, among)
        if not self.metric.credited:
            self.credits = -self.credits
        self.undecided = undecided_pairs(rows)

    @cached_property
    def ranked(self) -> list[Number]:
        """The rows with their ranks and the ranges of these."""
        if self.metric.pooled:
            return list(
                self.rows
            )  # a sample's number is off to one side, of one model more than of another: no test
        best, worst = rank_ranges(significantly_better(self.credits, self.undecided))
        placed = [row.ranks.rank or 0 for row in self.rows]
        if self._means_of_shared:
            placed = ranks(self.credits.mean(axis=1)).tolist()
        bounds = zip(self.rows, placed, best.tolist(), worst.tolist(), strict=True)
        return [_wider(row, rank, low, high) for row, rank, low, high in bounds]

    def lead(self, places: Sequence[int]) -> _Lead:
        """Return the lead of the first of them, which stand at ``places``."""
        placed = [row.ranks.rank for row in self.ranked]
        models = tuple(row.identity.model for row in self.rows)
        firsts = tuple(outcome.first for outcome in self.outcomes)
        alike = models, firsts, self.rows[0].identity.subject
        if placed.count(1) > 1:
            return _Lead(None, 1.0, alike)
        best = placed.index(1)
        ps = [self._p(best, other) for other in range(len(placed)) if other != best]
        return _Lead(places[best], float(np.max(ps)), alike)

    def _p(self, best: int, other: int) -> float:
        pair = self.outcomes[best], self.outcomes[other]
        if same_items(*pair) and self.rows[best].identity.i != self.rows[other].identity.i:
            return math.nan
        if self.metric.pooled:
            return math.nan
        if self.undecided[best, other] or self.credits.shape[1] < FEWEST:
            return 1.0
        return sign_flip(self.credits[best], self.credits[other]).p

    @property
    def _means_of_shared(self) -> bool:
        """Whether the values are over different items, so that the means of the shared ones make the ranks."""
        additive = not self.metric.pooled and not any(row.open for row in self.rows)
        return (
            additive
            and any(row.counts.n != self.credits.shape[1] for row in self.rows)
            and self.credits.size > 0
        )


def _adjusted(leads: Sequence[_Lead]) -> dict[int, float]:
    """Correct p of all leads on a part of the data (Holm), by the place of the row that leads.

    Protocols that can't differ count once.
    """
    ps: dict[Hashable, float] = {}
    for lead in leads:
        if not math.isnan(lead.p):
            ps.setdefault(lead.alike, lead.p)
    adjusted = dict(zip(ps, holm(list(ps.values())).tolist(), strict=True))
    return {
        lead.place: adjusted[lead.alike]
        for lead in leads
        if lead.place is not None and lead.alike in adjusted
    }


def undecided_pairs(rows: Sequence[Number]) -> Mask:
    """Mark the pairs of rows whose order is left open, bool [rows, rows]."""
    undecided = np.zeros((len(rows), len(rows)), dtype=np.bool_)
    for one, other in combinations(range(len(rows)), 2):
        undecided[one, other] = undecided[other, one] = left_open(rows[one], rows[other])
    return undecided


def _wider(row: Number, rank: int, low: int, high: int) -> Number:
    """Return the row with its rank and these bounds, or those that it has where they are wider."""
    if row.ranks.low is not None and row.ranks.high is not None:
        low, high = min(low, row.ranks.low), max(high, row.ranks.high)
    ranks = replace(row.ranks, rank=rank, low=min(low, rank), high=max(high, rank))
    return replace(row, ranks=ranks)


def shared_credits(
    subjects: Sequence[str], credits: Floats, aggregation: str, among: Mask | None = None
) -> Floats:
    """Return the credits of items that all models scored, as they weigh in a mean over the items.

    ``credits``: float64 [models, items], NaN for missing; ``among``: the items that count, all unless given.  Float64
    [models, shared items]; their mean is the value under ``aggregation``.
    """
    scored = ~np.isnan(credits).any(axis=0)
    if among is not None:
        scored &= among
    if aggregation == "macro":
        credits = credits * macro_weights(subjects, np.where(scored, credits, np.nan))
    return credits[:, scored]


def macro_weights(subjects: npt.ArrayLike, credits: Floats) -> Floats:
    """Return the weights that items have in a mean of subjects' means, 1 on average over those that all models scored.

    ``credits``: float64 [models, items], NaN for missing; an item that is missing weighs nothing, float64 [items].
    """
    scored = np.asarray(~np.isnan(credits).any(axis=0))
    weights = np.zeros(credits.shape[1])
    _, number, counts = np.unique(
        np.asarray(subjects)[scored], return_inverse=True, return_counts=True
    )
    weights[scored] = scored.sum() / (max(1, len(counts)) * counts[number])
    return weights


def standing_ranks(
    parts: Sequence[Sequence[Outcome]], undecided: Mask
) -> list[tuple[int, int, int]]:
    """Return rank, best and worst rank of each model by the plain mean over ``parts``, over items that all scored.

    Every part has an outcome of every model.  ``undecided``: pairs whose order something else leaves open, bool
    [models, models].  The range is the full one below :data:`~.significance.FEWEST` such items.
    """
    weighted = [
        shared_credits(*paired_credits(part), part[0].protocol.aggregation) for part in parts
    ]
    sizes = [credits.shape[1] for credits in weighted]
    if not all(sizes):
        return []
    total = sum(sizes)
    # Weighed so that the mean over all items is the mean of the parts' means; of one part nothing changes.
    credits = np.concatenate(
        [own * (total / (len(parts) * size)) for own, size in zip(weighted, sizes, strict=True)], 1
    )
    best, worst = rank_ranges(significantly_better(credits, undecided))
    return list(
        zip(ranks(credits.mean(axis=1)).tolist(), best.tolist(), worst.tolist(), strict=True)
    )


def measured_as(row: Number) -> tuple[str, ...]:
    """What rows have in common whose values can be ranked: the data, the part of it, the group and the protocol."""
    return row.identity.data, row.identity.selection, row.identity.subject, row.identity.signature


def distinct(rows: Sequence[Number]) -> list[Number]:
    """The rows without what stands there twice, as under another name of its protocol.

    A model that was computed in several ways under one protocol is called by its name and its id (``#R``).
    """
    alike: dict[tuple[str, ...], dict[str, Number]] = {}
    for row in rows:
        alike.setdefault((row.identity.model, *measured_as(row)), {}).setdefault(
            row.identity.r, row
        )
    twice = {model for (model, *_), ways in alike.items() if len(ways) > 1}
    rest = (row for ways in alike.values() for row in ways.values())
    return [
        row.with_model(f"{row.identity.model} {row.identity.r}")
        if row.identity.model in twice
        else row
        for row in rest
    ]


@dataclass(frozen=True, eq=False, kw_only=True)
class Influence:
    """A value under its protocol's own aggregation (of categories: the mean over items), and what it is made of.

    ``ids``: of the items.  ``credit`` and ``weight``: float64 [items], the value is the sum of their products; of an
    item that is missing the credit is NaN, the weight 0.  ``subjects``: int64 [items], a number each.  ``macro``:
    whether it is a mean of the subjects' means.
    """

    ids: pa.ChunkedArray
    credit: Floats
    weight: Floats
    subjects: Integers
    value: float
    macro: bool

    @property
    def n(self) -> int:
        """How many items the value is a mean over."""
        return int((~np.isnan(self.credit)).sum())

    def each(self, within: bool) -> Floats:
        """By how much every item moves the value away from what it would be expected to be, float64 [items].

        Their squares add up to the squared standard error of the value; the squares of the differences from those of
        another value over the same items to that of the difference.  An item is expected to be as the mean of all
        items, drawn one by one, or ``within`` subjects that are given, as the mean of its subject; subjects with one
        item each are taken together.  √(n / (n - 1)) makes up for the mean being that of the n items themselves.
        """
        return self._within if within else self._among_all

    @cached_property
    def _within(self) -> Floats:
        return self._moved(self.subjects)

    @cached_property
    def _among_all(self) -> Floats:
        return self._moved(np.zeros_like(self.subjects))

    def _moved(self, groups: Integers) -> Floats:
        moved, scored = np.zeros(len(self.credit)), ~np.isnan(self.credit)
        if scored.any():
            own = np.unique(groups[scored], return_inverse=True)[1]
            moved[scored] = _deviations(self.credit[scored], own) * self.weight[scored]
        return moved


def influence(outcome: Outcome) -> Influence:
    """The value of ``outcome``; under macro each of n items of one of S subjects weighs 1 / (S n)."""
    credit, subjects = outcome.credit, _subjects(outcome)
    scored, macro = ~np.isnan(credit), outcome.protocol.aggregation == "macro"
    weight, value = np.zeros(len(credit)), math.nan
    if scored.any():
        groups = np.unique(subjects[scored] * macro, return_inverse=True)[1]
        sizes = np.bincount(groups)
        weight[scored] = 1 / (len(sizes) * sizes)[groups]
        value = float((np.bincount(groups, weights=credit[scored]) / sizes).mean())
    return Influence(
        ids=outcome.ids, credit=credit, weight=weight, subjects=subjects, value=value, macro=macro
    )


def aligned(influences: Sequence[Influence]) -> tuple[pa.ChunkedArray, Floats, Floats]:
    """The ids of all items, and of each value their credits and influences, float64 [values, items].

    An item that a value does not know is missing there.  Within subjects, where one of the values is a mean of theirs.
    """
    within = any(known.macro for known in influences)
    first, moved = influences[0], [known.each(within) for known in influences]
    if all(first.ids is known.ids or first.ids.equals(known.ids) for known in influences):
        return first.ids, np.array([known.credit for known in influences]), np.array(moved)
    ids = pa.chunked_array(
        [pc.unique(pa.concat_arrays([part for known in influences for part in known.ids.chunks]))]
    )
    credit = np.full((len(influences), len(ids)), np.nan)
    each = np.zeros((len(influences), len(ids)))
    for row, known in enumerate(influences):
        places = pc.index_in(known.ids, ids).to_numpy()
        credit[row, places], each[row, places] = known.credit, moved[row]
    return ids, credit, each


def error(each: Floats) -> float:
    """The standard error that influences [items] make; NaN where all are the same and say nothing about how they vary.

    Of one item, too.
    """
    if len(each) < 2 or np.ptp(each) * len(each) < _SAME:
        return math.nan
    return float(np.sqrt((each**2).sum()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The decisions of one measurement; its properties are as those of the measurement.

    ``items``: their ids and subjects.  ``codes``: of each credit among the ``values``.
    ``first``: the digest of the first protocol that this one can't differ from (:mod:`~.distinct`), or its own.
    """

    name: str
    protocol: Protocol
    categories: Categories
    selection: str
    items: pa.Table
    values: Floats
    codes: npt.NDArray[Any]
    predicted: npt.NDArray[Any]
    first: str

    @property
    def ids(self) -> pa.ChunkedArray:
        """The items' ids."""
        return self.items["item"]

    @property
    def subjects(self) -> list[str]:
        """The subject of every item."""
        return list(self.items["subject"].to_pylist())

    @property
    def credit(self) -> Floats:
        """The credit of every item, float64, NaN where it is missing."""
        return self.values[self.codes]

    @property
    def prediction(self) -> Integers:
        """The predicted choice of every item, int64, -1 for none."""
        return self.predicted.astype(np.int64)


@dataclass(frozen=True, slots=True)
class Outcomes:
    """The outcomes of one run under all its protocols."""

    model: str
    dataset: str
    digest: str
    outcomes: tuple[Outcome, ...]

    @property
    def shares(self) -> Outcomes:
        """The same without the protocols whose numbers are no shares of 1, which can't be set beside the others."""
        shares = (each for each in self.outcomes if METRICS[each.protocol.metric].share)
        return replace(self, outcomes=tuple(shares))

    def beside(self, one: Outcome) -> Outcomes:
        """The same without the protocols whose numbers can't be set beside those of ``one``, which is among them."""
        if METRICS[one.protocol.metric].share:
            return self.shares
        return replace(
            self,
            outcomes=tuple(
                each for each in self.outcomes if each.protocol.metric == one.protocol.metric
            ),
        )

    @property
    def firsts(self) -> dict[str, str]:
        """By the digest of every protocol that of the first one that it can't differ from, or its own."""
        return {each.protocol.digest: each.first for each in self.outcomes}


class MeasuredRun(Structural):
    """A run (:mod:`choicewise.results.run`) under its protocols."""

    manifest: Manifest
    evidence: RunEvidence

    @property
    def noise(self) -> float | None:
        """How far two ways of computing a token differ, in nats."""

    @property
    def measurements(self) -> Mapping[str, Measurement]:
        """By name, under each of its protocols."""


class OutcomeKeeper:
    """Makes outcomes of runs, whose items are kept once where several have the same."""

    def __init__(self) -> None:
        self._tables: list[pa.Table] = []

    def keep(self, run: MeasuredRun) -> Outcomes:
        """What remains of ``run`` when its evidence is released."""
        manifest, firsts = run.manifest, first_alike(run)
        outcomes = tuple(self._outcome(run, each, firsts) for each in run.measurements.values())
        return Outcomes(
            manifest.model.name, manifest.dataset.name, manifest.dataset.digest, outcomes
        )

    def _outcome(
        self, run: MeasuredRun, measured: Measurement, firsts: Mapping[str, str]
    ) -> Outcome:
        values, codes = np.unique(measured.credit, return_inverse=True)
        return Outcome(
            name=measured.name,
            protocol=measured.protocol,
            categories=measured.categories,
            selection=selection(run.manifest, measured),
            items=self._items(measured.evidence.item_table.select(["item", "subject"])),
            values=values,
            codes=small_codes(codes, len(values)),
            predicted=small_choices(measured.prediction),
            first=firsts[measured.protocol.digest],
        )

    def _items(self, items: pa.Table) -> pa.Table:
        for table in self._tables:
            if table["item"].equals(items["item"]) and table["subject"].equals(items["subject"]):
                return table
        self._tables.append(items)
        return items


def read_together(run: MeasuredRun, parts: Sequence[Mapping[str, Protocol]]) -> None:
    """Read ``run`` once for the measurements and outcomes under each of ``parts``, so that none reads it again."""
    every = [protocol for part in parts for protocol in part.values()]
    wanted = measured_columns(every, run.noise, run.evidence.reasons)
    for part in parts:
        for prompt, columns in _token_columns(_rivals([*part.values()])).items():
            wanted[prompt].extend(columns)
    run.evidence.gather(wanted)


def small_codes(codes: npt.NDArray[Any], count: int) -> npt.NDArray[Any]:
    """``codes`` of ``count`` different values in few bytes."""
    return codes.astype(np.uint8 if count <= _FEW else np.int32)


def small_choices(choices: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Indices of choices, -1 for none, in few bytes."""
    return choices.astype(np.min_scalar_type(-1 - int(choices.max(initial=0))))


def alike(firsts: Sequence[Mapping[_Key, _Key]]) -> list[list[_Key]]:
    """The keys that all of ``firsts`` have, in the order of the first, those together that it has together."""
    groups: dict[tuple[_Key, ...], list[_Key]] = {}
    for key in firsts[0]:
        if all(key in first for first in firsts):
            groups.setdefault(tuple(first[key] for first in firsts), []).append(key)
    return list(groups.values())


def first_alike(run: MeasuredRun) -> dict[str, str]:
    """By the digest of every protocol of ``run`` that of the first one that it can't differ from, or its own.

    Two kinds can't, both seen in what was observed and not in how the numbers came out:

    - Of the same observations they make scores that are the same within every item but for a positive factor or a term
      that all its choices have, and decide by the greatest: means over bytes and over characters where the texts are
      ASCII, sum and mean over tokens where all choices have as many.
    - By the same rules they score the same tokens after the same context, in another way of computing: a forward pass
      and the model's own loss.  Their numbers differ by rounding.
    """
    measured = {each.protocol.digest: each for each in run.measurements.values()}
    tokens = _tokens(run, list(measured.values()))
    firsts: dict[str, str] = {}
    for digest, each in measured.items():
        earlier = dict.fromkeys(firsts.values())
        firsts[digest] = next(
            (first for first in earlier if _can_not_differ(measured[first], each, tokens)), digest
        )
    return firsts


def same_order(left: Measurement, right: Measurement) -> bool:
    """Whether the scores of two measurements of the same observations can't order the choices of an item otherwise."""
    one, other, offsets = left.scores, right.scores, left.evidence.item_offsets
    if (
        one is None
        or other is None
        or {left.protocol.decision, right.protocol.decision} != {"argmax"}
    ):
        return False
    if not np.array_equal(
        left.decisions.credit, right.decisions.credit, equal_nan=True
    ):  # the tie rules may differ
        return False
    infinite, others = (np.where(np.isfinite(scores), 0.0, scores) for scores in (one, other))
    if not np.array_equal(infinite, others, equal_nan=True):
        return False
    with np.errstate(
        invalid="ignore", divide="ignore"
    ):  # NaN, which is left out: infinities, and 0 / 0
        factor, term = other / one, other - one
    positive = (factor > 0) & (factor < np.inf) | np.isnan(factor)
    by_factor = bool(positive.all()) and _constant(factor, factor, offsets)
    return by_factor or _constant(term, np.where(np.isinf(one), np.nan, one), offsets)


@dataclass(frozen=True, slots=True)
class Axis:
    """Something in which the two differ: an axis of the protocol, or part of the run's identity."""

    axis: str
    left: str
    right: str


def axes_between(left: Protocol, right: Protocol) -> tuple[Axis, ...]:
    """Return the axes in which two protocols differ."""
    return tuple(Axis(axis, one, other) for axis, one, other in axis_differences(left, right))


@dataclass(frozen=True, kw_only=True)
class Summary:
    """What remains of a run for reports about many.

    ``rows``: one per protocol and group under each protocol's own aggregation, not ranked.  ``outcomes``: the credit
    and the prediction of every item under every protocol.  ``applied``: the metrics that were asked of it later.
    """

    folder: Path
    manifest: Manifest
    rows: tuple[Number, ...]
    outcomes: Outcomes
    applied: Applied | None = None


_SAME = 1e-9
"""Credits and influences that differ by less, relative to one item, differ by rounding."""


def _deviations(credit: Floats, groups: Integers) -> Floats:
    """How far each credit is from the mean of its group, made up for its size."""
    sizes = np.bincount(groups)
    groups = np.where((sizes == 1)[groups], len(sizes), groups)  # each alone, they share one
    sizes = np.bincount(groups)
    centre = np.bincount(groups, weights=credit) / np.maximum(sizes, 1)
    if sizes[-1] == 1:  # the only one that has nothing of its kind to vary around
        centre[-1] = credit.mean()
    return (credit - centre[groups]) * np.sqrt(sizes / np.maximum(sizes - 1, 1))[groups]


def _subjects(outcome: Outcome) -> Integers:
    """A number per item, the same for items of one subject; int64 [items]."""
    subjects = outcome.items["subject"].combine_chunks()
    encoded = subjects if isinstance(subjects, pa.DictionaryArray) else subjects.dictionary_encode()
    return np.asarray(encoded.indices.to_numpy(zero_copy_only=False), dtype=np.int64)


_FEW = 256
"""Credits are 0, 1 and what ties are split into, so there are few different ones."""

_COMPUTING = frozenset({"benchmark", "bos", "boundary", "reading", "aggregation", "rev"})
"""Axes that don't matter where the tokens scored, and how many come before them, are the same."""

_ROUNDING = 1e-9
"""Relative difference of float64 scores that are computed of the same numbers in different order."""

_Key = TypeVar("_Key", bound=Hashable)

_Tokens = tuple[npt.NDArray[np.uint64], ...]
"""What was scored, a number per row each: tokens before it, its tokens, and those after the null context."""


def _tokens(run: MeasuredRun, measured: Sequence[Measurement]) -> dict[str, _Tokens | None]:
    """By the digest of the protocol, what was scored, where that has to be compared; None where it is not known."""
    rivals = _rivals([each.protocol for each in measured])
    observed = run.evidence.gather(_token_columns(rivals))
    return {
        protocol.digest: observed[protocol.prompt_digest].column(_scored_tokens_column(protocol))
        for protocol in rivals
    }


def _rivals(protocols: Sequence[Protocol]) -> list[Protocol]:
    """Those whose tokens have to be compared, as another one scores by the same rules."""
    pairs = (pair for pair in combinations(protocols, 2) if _same_rules(*pair))
    return list(dict.fromkeys(each for pair in pairs for each in pair))


def _token_columns(rivals: Sequence[Protocol]) -> dict[str, list[Column[_Tokens | None]]]:
    """Return by prompt the columns of what was scored."""
    wanted: dict[str, list[Column[_Tokens | None]]] = {}
    for protocol in rivals:
        wanted.setdefault(protocol.prompt_digest, []).append(_scored_tokens_column(protocol))
    return wanted


def _scored_tokens_column(protocol: Protocol) -> Column[_Tokens | None]:
    """Describe what was scored, which all metrics of a score share."""
    deciding = deciding_protocol(protocol)
    return Column("scored tokens", (deciding,), compute=partial(_scored_tokens, deciding))


def _scored_tokens(protocol: Protocol, portion: ObservedPortion) -> _Tokens | None:
    sides = [COMBINERS[protocol.reading].retrieved(protocol, portion)]
    sides += [] if protocol.null is None else [portion.continuations(protocol.null)]
    known = [side for side in sides if side is not None and side.totals is None]
    if len(known) < len(sides):
        return None
    digests = (np.where(np.isnan(side.sums), np.uint64(1), side.digests) for side in known)
    return (portion.context_tokens.astype(np.uint64), *digests)


def _can_not_differ(
    left: Measurement, right: Measurement, tokens: Mapping[str, _Tokens | None]
) -> bool:
    """Whether two measurements of a run are the same by construction."""
    if left.protocol.prompt_digest == right.protocol.prompt_digest:
        return same_order(left, right)
    if not _same_rules(left.protocol, right.protocol):
        return False
    one, other = (tokens[each.protocol.digest] for each in (left, right))
    same_items = np.array_equal(left.evidence.items, right.evidence.items)
    return (
        one is not None
        and other is not None
        and same_items
        and all(map(np.array_equal, one, other))
    )


def _constant(values: Floats, scale: Floats, offsets: Integers) -> bool:
    """Whether ``values`` [rows] are the same within every item, but for rounding of numbers as large as ``scale``."""
    most, least, size = (
        reduce_rows(ufunc, each, offsets)
        for ufunc, each in ((np.fmax, values), (np.fmin, values), (np.fmax, np.abs(scale)))
    )
    return not (most - least > _ROUNDING * size).any()


def _same_rules(left: Protocol, right: Protocol) -> bool:
    """Whether two protocols with different prompts ask for the same, so that only what was scored can differ."""
    if left.prompt_digest == right.prompt_digest:
        return False
    axes = (axis.name for axis in fields(Protocol) if axis.name not in _COMPUTING)
    corrected = {left.boundary, right.boundary} & set(CORRECTED)
    renormalised = {READINGS[each.reading].renormalised for each in (left, right)}
    same = all(getattr(left, axis) == getattr(right, axis) for axis in axes)
    return same and len(renormalised) == 1 and (left.boundary == right.boundary or not corrected)
