"""Keep the outcomes of runs and rank models by them, once for all protocols that can't differ."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from choicewise.data.items import Categories
from choicewise.protocols.between import Applied
from choicewise.protocols.metrics import METRICS
from choicewise.protocols.protocol import (
    CORRECTED,
    Protocol,
    Protocols,
    axis_differences,
    differing,
    short_signature,
)
from choicewise.protocols.readings import READINGS
from choicewise.records import Manifest
from choicewise.results.evidence import (
    TEXTS,
    Column,
    Evidence,
    deciding_protocol,
    measured_columns,
)
from choicewise.results.measurement import (
    Measurement,
    encoded_subjects,
    paired_credits,
    same_items,
    scored_by_all,
    shared_items,
    subject_codes,
)
from choicewise.results.number import Number
from choicewise.results.rows import selection
from choicewise.results.tables import read_item_names, rows_at
from choicewise.scoring.combine import COMBINERS
from choicewise.scoring.intervals import GROUPS, ranks
from choicewise.scoring.observed import Floats, Integers, Mask, reduce_rows
from choicewise.scoring.portion import ObservedPortion
from choicewise.scoring.significance import (
    FEWEST,
    holm,
    rank_ranges,
    sign_flip,
    significantly_better,
)
from choicewise.store.tables import Damage
from choicewise.util.text import text_digest

if TYPE_CHECKING:
    from choicewise.results.run import Run

COMPARABLE = 0.95
"""Share of the items of a rival that a model must have scored to be ranked beside it."""


def ranked(rows: Sequence[Number]) -> list[Number]:
    """Rank each row among the models that were measured the same way; equal values share a rank.

    A row over far fewer items than that of a rival (:data:`COMPARABLE`) gets no rank.  If answers
    were cut or probabilities rounded, the ranks that are possible without that bound each rank.
    """
    result = list(rows)
    for indices in _contests(rows):
        rivals = [rows[index] for index in indices]
        merits = np.array([row.merit for row in rivals])
        is_comparable = comparable(rivals)
        value_count = int((~np.isnan(merits)).sum())
        # A model is not the first of one if its rivals only scored too few items.
        if sum(is_comparable) == 1 < value_count:
            continue
        by_merit = ranks(np.where(is_comparable, merits, np.nan)).tolist()
        placed = []
        for row, rank in zip(rivals, by_merit, strict=True):
            placed.append(replace(row, ranks=replace(row.ranks, rank=rank or None)))
        for index, row in zip(indices, placed, strict=True):
            result[index] = _with_open_ranks(row, placed)
    return result


def comparable(rivals: Sequence[Number]) -> list[bool]:
    """Mark rows with a value over about as many items as any rival's (:data:`COMPARABLE`)."""
    counts = []
    for row in rivals:
        has_value = not math.isnan(row.merit)
        counts.append(row.counts.n if has_value else 0)
    least = COMPARABLE * max(counts, default=0)
    return [count > 0 and count >= least for count in counts]


def left_open(one: Number, other: Number) -> bool:
    """Check if cut answers or rounded probabilities could turn the order of two values round."""
    if not (one.cut or other.cut or one.bounds.rounding or other.bounds.rounding):
        return False
    low, high = _extremes(one)
    other_low, other_high = _extremes(other)
    return low <= other_high and other_low <= high


def _extremes(row: Number) -> tuple[float, float]:
    """Return the bounds of the value, or the value twice if it has none."""
    if math.isnan(row.bounds.low):
        return row.value, row.value
    return row.bounds.low, row.bounds.high


def _contests(rows: Sequence[Number]) -> Iterable[list[int]]:
    """Group the indices of rows that were measured the same way."""
    return _indices_by([measured_as(row) for row in rows])


def _indices_by(keys: Iterable[Hashable]) -> Iterable[list[int]]:
    """Group the indices of equal keys, in the order of the first of each group."""
    indices: dict[Hashable, list[int]] = {}
    for index, key in enumerate(keys):
        indices.setdefault(key, []).append(index)
    return indices.values()


def _with_open_ranks(row: Number, rivals: Sequence[Number]) -> Number:
    """Return the row with the best and worst rank that it can have if a bound leaves any open."""
    if row.ranks.rank is None:
        return row
    others = [rival for rival in rivals if rival is not row]
    if not any(left_open(rival, row) for rival in others):
        return row
    ranked_others = [rival for rival in others if rival.ranks.rank is not None]
    above = 0
    below = 0
    for rival in ranked_others:
        if left_open(rival, row):
            continue
        above += rival.merit > row.merit
        below += rival.merit < row.merit
    worst = 1 + len(ranked_others) - below
    return replace(row, ranks=replace(row.ranks, low=1 + above, high=worst))


def ranks_among(values: Sequence[float], groups: Sequence[Hashable]) -> list[int | None]:
    """Return the rank of each value in its group, 1 for the greatest; None for NaN.

    Equal values share a rank.
    """
    result: list[int | None] = [None] * len(values)
    for indices in _indices_by(groups):
        group_ranks = ranks([values[index] for index in indices]).tolist()
        for index, rank in zip(indices, group_ranks, strict=True):
            result[index] = rank or None
    return result


def bounded(
    rows: Sequence[Number], runs: Sequence[Outcomes], by: str | None = None
) -> list[Number]:
    """Rank ``rows`` by the items that all rivals scored, with the range of each rank and the leads.

    The rows have the ranks of :func:`ranked`, and ``runs`` are in their order.  Rows without a
    rival or without outcomes stay as they are.  A rank is better than that of another model if the
    tests of all pairs of rivals say so (:func:`~.significance.significantly_better`).
    """
    outcomes = _outcome_of_rows(rows, runs)
    result = list(rows)
    leads: dict[tuple[str, str], list[_Lead]] = {}
    for contest in _contests(rows):
        indices = [index for index in contest if rows[index].ranks.rank is not None]
        if len(indices) < 2 or not outcomes.keys() >= set(indices):
            continue
        contest_rows = [rows[index] for index in indices]
        rivals = _Rivals(contest_rows, [outcomes[index] for index in indices], by)
        if not rivals.credits.size:
            # No item was scored by all rivals, so that no order of theirs can be tested.
            for index in indices:
                no_ranks = replace(rows[index].ranks, rank=None, low=None, high=None)
                result[index] = replace(rows[index], ranks=no_ranks)
            continue
        for index, row in zip(indices, rivals.ranked, strict=True):
            result[index] = row
        first = contest_rows[0].identity
        leads.setdefault((first.data, first.selection), []).append(rivals.lead(indices))
    for leads_of_part in leads.values():
        for index, p in _adjusted(leads_of_part).items():
            row = result[index]
            result[index] = replace(row, ranks=replace(row.ranks, lead_p=p))
    return result


def _outcome_of_rows(rows: Sequence[Number], runs: Sequence[Outcomes]) -> dict[int, Outcome]:
    """Return the outcome that each row is made of, by the index of the row."""
    outcomes = outcomes_by_key(runs)
    outcome_of: dict[int, Outcome] = {}
    # Several runs may have one name: then the rows of a group come in the order of the runs.
    seen: Counter[tuple[str, ...]] = Counter()
    for index, row in enumerate(rows):
        key = number_key(row)
        group = (*key, row.identity.subject)
        candidates = outcomes.get(key, [])
        number = seen[group]
        seen[group] += 1
        if number < len(candidates):
            outcome_of[index] = candidates[number]
    return outcome_of


def outcomes_by_key(runs: Sequence[Outcomes]) -> dict[tuple[str, ...], list[Outcome]]:
    """Return the outcomes of ``runs`` by the key that their numbers have (:func:`number_key`)."""
    by_key: dict[tuple[str, ...], list[Outcome]] = {}
    for run in runs:
        for outcome in run.outcomes:
            protocol = short_signature(outcome.protocol)
            key = run.model, f"#D{run.digest[:6]}", outcome.selection, protocol
            by_key.setdefault(key, []).append(outcome)
    return by_key


def number_key(row: Number) -> tuple[str, ...]:
    """Return the names of model, data, part of it and protocol, which a number's outcome shares."""
    identity = row.identity
    return identity.model, identity.data, identity.selection, identity.id


@dataclass(frozen=True, slots=True)
class _Lead:
    """Hold p of the lead of the row at ``index`` over every rival; NaN without a test.

    ``index`` is None if several rows are first.  Leads with the same ``test`` are of protocols that
    can't differ.
    """

    index: int | None
    p: float
    test: Hashable


class _Rivals:
    """Compare models that were measured the same way by the items that all of them scored.

    ``rows`` are ranked, one per model with its outcome.
    """

    def __init__(self, rows: Sequence[Number], outcomes: Sequence[Outcome], by: str | None) -> None:
        self.rows = rows
        self.outcomes = outcomes
        protocol = outcomes[0].protocol
        categories = outcomes[0].categories
        aggregation = by or protocol.aggregation
        self.macro = aggregation == "macro"
        self.metric = METRICS[protocol.metric]
        subjects, credits = paired_credits(outcomes)
        group = rows[0].identity.subject
        group_of = GROUPS[aggregation]
        names = encoded_subjects(outcomes[0].items).dictionary.to_pylist()
        in_group = np.array([group_of(name, categories) == group for name in names], dtype=np.bool_)
        self.credits = shared_credits(subjects, credits, aggregation, in_group[subjects])
        # Of a loss, less is better.
        if not self.metric.credited:
            self.credits = -self.credits
        self.undecided = undecided_pairs(rows)

    @cached_property
    def ranked(self) -> list[Number]:
        """Return the rows with their ranks and the ranges of these."""
        # The number of a sample is off to one side, of one model more than of another: no test.
        if self.metric.pooled:
            return list(self.rows)
        best, worst = rank_ranges(significantly_better(self.credits, self.undecided))
        placed = [row.ranks.rank or 0 for row in self.rows]
        if self._differ_in_items:
            placed = ranks(self.credits.mean(axis=1)).tolist()
        bounds = zip(self.rows, placed, best.tolist(), worst.tolist(), strict=True)
        return [_wider(row, rank, low, high) for row, rank, low, high in bounds]

    def lead(self, indices: Sequence[int]) -> _Lead:
        """Return the lead of the first row; ``indices``: those of the rows in the report."""
        placed = [row.ranks.rank for row in self.ranked]
        models = tuple(row.identity.model for row in self.rows)
        firsts = tuple(outcome.first for outcome in self.outcomes)
        test = models, firsts, self.rows[0].identity.subject, self.macro
        if placed.count(1) > 1:
            return _Lead(None, 1.0, test)
        best = placed.index(1)
        ps = [self._p(best, other) for other in range(len(placed)) if other != best]
        return _Lead(indices[best], float(np.max(ps)), test)

    def _p(self, best: int, other: int) -> float:
        if self.metric.pooled:
            return math.nan
        # Models that were sent other texts for the same items were not measured the same way.
        have_same_items = same_items(self.outcomes[best], self.outcomes[other])
        if have_same_items and self.rows[best].identity.i != self.rows[other].identity.i:
            return math.nan
        if self.undecided[best, other] or self.credits.shape[1] < FEWEST:
            return 1.0
        return sign_flip(self.credits[best], self.credits[other]).p

    @property
    def _differ_in_items(self) -> bool:
        """Check if values are over different items, so that means of shared ones make the ranks."""
        is_additive = not self.metric.pooled and not any(row.open for row in self.rows)
        if not is_additive or not self.credits.size:
            return False
        shared_count = self.credits.shape[1]
        return any(row.counts.n != shared_count for row in self.rows)


def _adjusted(leads: Sequence[_Lead]) -> dict[int, float]:
    """Correct p of all leads on a part of the data (Holm), by the index of the row that leads."""
    # Protocols that can't differ are one test, else they would weaken all others.
    ps: dict[Hashable, float] = {}
    for lead in leads:
        if not math.isnan(lead.p):
            ps.setdefault(lead.test, lead.p)
    corrected = dict(zip(ps, holm(list(ps.values())).tolist(), strict=True))
    adjusted = {}
    for lead in leads:
        if lead.index is not None and lead.test in corrected:
            adjusted[lead.index] = corrected[lead.test]
    return adjusted


def undecided_pairs(rows: Sequence[Number]) -> Mask:
    """Mark the pairs of rows whose order is left open, bool [rows, rows]."""
    undecided = np.zeros((len(rows), len(rows)), dtype=np.bool_)
    for one, other in combinations(range(len(rows)), 2):
        is_open = left_open(rows[one], rows[other])
        undecided[one, other] = is_open
        undecided[other, one] = is_open
    return undecided


def _wider(row: Number, rank: int, low: int, high: int) -> Number:
    """Return the row with its rank and these bounds, or those that it has if they are wider."""
    if row.ranks.low is not None and row.ranks.high is not None:
        low = min(low, row.ranks.low)
        high = max(high, row.ranks.high)
    bounds = replace(row.ranks, rank=rank, low=min(low, rank), high=max(high, rank))
    return replace(row, ranks=bounds)


def shared_credits(
    subjects: Integers, credits: Floats, aggregation: str, among: Mask | None = None
) -> Floats:
    """Return the credits of items that all models scored, as they weigh in a mean over the items.

    ``credits``: float64 [models, items], NaN for missing; ``among``: the items that count, all
    unless given.  Float64 [models, shared items]; their mean is the value under ``aggregation``.
    """
    if among is not None:
        credits = np.where(among, credits, np.nan)
    return scored_by_all(item_weights(subjects, credits, aggregation) * credits)


def item_weights(subjects: Integers, credits: Floats, aggregation: str) -> Floats:
    """Return the weights that items have in a mean under ``aggregation``, float64 [items].

    ``credits``: float64 [models, items], NaN for missing.  An item without weight has NaN.
    """
    if aggregation != "macro":
        return np.ones(credits.shape[1])
    weights = macro_weights(subjects, credits)
    return np.where(weights > 0, weights, np.nan)


def macro_weights(subjects: npt.ArrayLike, credits: Floats) -> Floats:
    """Return the weights that items have in a mean of subjects' means, float64 [items].

    ``credits``: float64 [models, items], NaN for missing.  The weights of the items that all models
    scored are 1 on average; the others weigh nothing.
    """
    scored = ~np.isnan(credits).any(axis=0)
    scored_subjects = np.asarray(subjects)[scored]
    _, codes, sizes = np.unique(scored_subjects, return_inverse=True, return_counts=True)
    weights = np.zeros(credits.shape[1])
    weights[scored] = scored.sum() / (max(1, len(sizes)) * sizes[codes])
    return weights


def joint_credits(parts: Sequence[Sequence[Outcome]], data: Sequence[str]) -> tuple[Floats, bool]:
    """Return the credits of the questions of all ``parts``, and if parts share questions.

    Every part has an outcome of every model, and the items that all of them scored count;
    ``data``: the id of the data of each part.  Float64 [models, questions]: the weighed credits of
    a question, summed over the parts that have it, so that the means have the order of the plain
    means over ``parts``.  Without questions if a part has none.
    """
    shared = []
    names = []
    for part, part_data in zip(parts, data, strict=True):
        subjects, credits = paired_credits(part)
        shared.append(shared_credits(subjects, credits, part[0].protocol.aggregation))
        _, indices = shared_items(part)
        is_scored = ~np.isnan(credits).any(axis=0)
        names.append(_question_names(part[0].items, part_data).take(indices[0][is_scored]))
    sizes = [credits.shape[1] for credits in shared]
    if not all(sizes):
        return np.zeros((len(parts[0]), 0)), False
    total = sum(sizes)
    # Weighed so that the mean over all items is the mean of the parts' means; of one part nothing
    # changes.
    weighted = []
    for credits, size in zip(shared, sizes, strict=True):
        weighted.append(credits * (total / (len(parts) * size)))
    joined = np.concatenate(weighted, axis=1)
    numbers = _question_numbers(pa.concat_tables(names))
    if len(np.unique(numbers)) == total:
        return joined, False
    return np.array([np.bincount(numbers, weights=credits) for credits in joined]), True


def _question_names(items: pa.Table, data: str) -> pa.Table:
    """Return the names of the question of each item in three columns, null where one is unsure.

    They are its id with the id of the data; with subject and text, if no other item has the text;
    and with the ids, subjects and right answers of all items, if these answers differ.
    """
    ids = items["item"]
    subjects = items["subject"].cast(pa.string())
    texts = items["question"].combine_chunks().dictionary_encode().indices.to_numpy()
    is_only = np.bincount(texts)[texts] == 1
    golds = items["gold"].cast(pa.string())
    listing = None
    if len(golds.unique()) > 1:
        rows = pc.binary_join_element_wise(ids, subjects, golds, "\0")
        listing = text_digest("\0".join(rows.to_pylist()))
    text = pc.if_else(pa.array(is_only), items["question"], None)
    by_data = pc.binary_join_element_wise(ids, data, "\0")
    by_text = pc.binary_join_element_wise(ids, subjects, text, "\0")
    by_list = pc.binary_join_element_wise(ids, pa.scalar(listing, pa.string()), "\0")
    return pa.table({"data": by_data, "text": by_text, "list": by_list})


def _question_numbers(names: pa.Table) -> Integers:
    """Number the questions of items, int64 [items]: items with a name in common have one question."""
    chunks = []
    for column in names.columns:
        chunks += column.chunks
    encoded = pa.concat_arrays(chunks).dictionary_encode()
    codes = encoded.indices.fill_null(-1).to_numpy()
    is_named = codes >= 0
    if is_named.sum() == len(encoded.dictionary):
        return np.arange(len(names))
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    item = np.tile(np.arange(len(names)), names.num_columns)[is_named]
    edges = item, len(names) + codes[is_named]
    nodes = len(names) + len(encoded.dictionary)
    graph = coo_array((np.ones(len(item)), edges), shape=(nodes, nodes))
    _, numbers = connected_components(graph, directed=False)
    return np.asarray(numbers[: len(names)], dtype=np.int64)


def standing_ranks(
    credits: Floats, undecided: Mask, are_summed: bool
) -> list[tuple[int, int, int]]:
    """Return rank, best and worst rank of each model by the mean of ``credits``.

    ``credits``, ``are_summed``: of :func:`joint_credits`.  ``undecided``: pairs whose order
    something else leaves open, bool [models, models].  The range is the full one below
    :data:`~.significance.FEWEST` questions.
    """
    best, worst = rank_ranges(significantly_better(credits, undecided, are_summed))
    by_mean = ranks(credits.mean(axis=1))
    return list(zip(by_mean.tolist(), best.tolist(), worst.tolist(), strict=True))


def measured_as(row: Number) -> tuple[str, ...]:
    """Return what rows must share to be ranked: data, part of it, group and protocol."""
    identity = row.identity
    return identity.data, identity.selection, identity.subject, identity.signature


def distinct(rows: Sequence[Number]) -> list[Number]:
    """Return the rows without repeated ones, such as those under another name of a protocol.

    A model that was computed in several ways under one protocol gets its id (``#R``) in its name.
    """
    rows_by_way: dict[tuple[str, ...], dict[str, Number]] = {}
    for row in rows:
        key = (row.identity.model, *measured_as(row))
        rows_by_way.setdefault(key, {}).setdefault(row.identity.r, row)
    several_ways = {model for (model, *_), ways in rows_by_way.items() if len(ways) > 1}
    result = []
    for ways in rows_by_way.values():
        for row in ways.values():
            if row.identity.model in several_ways:
                row = row.with_model(f"{row.identity.model} {row.identity.r}")
            result.append(row)
    return result


@dataclass(frozen=True, eq=False, kw_only=True)
class Influence:
    """Hold a value under its protocol's own aggregation, and how the items make it.

    An aggregation by categories counts as the mean over items.  ``credit`` and ``weight``: float64
    [items], whose products sum to the value; a missing item has NaN and 0.
    ``subjects``: the number of each item's subject, int64 [items].  ``macro``: True if the value is
    a mean of the subjects' means.
    """

    outcome: Outcome
    credit: Floats
    weight: Floats
    subjects: Integers
    value: float
    macro: bool

    @cached_property
    def n(self) -> int:
        """Return how many items the value is a mean over."""
        return int((~np.isnan(self.credit)).sum())

    def by_item(self, within: bool) -> Floats:
        """Return how far each item moves the value from its expectation, float64 [items].

        The squares sum to the squared standard error of the value; the squares of the differences
        from another value over the same items sum to that of the difference.  An item is expected
        to be the mean of all items, drawn one by one, or the mean of its subject if subjects are
        given (``within``); subjects with one item each are taken together.  √(n / (n - 1)) makes up
        for the mean being that of the n items themselves.
        """
        return self._within if within else self._among_all

    @cached_property
    def _within(self) -> Floats:
        return self._moved(self.subjects)

    @cached_property
    def _among_all(self) -> Floats:
        return self._moved(np.zeros_like(self.subjects))

    def _moved(self, groups: Integers) -> Floats:
        moved = np.zeros(len(self.credit))
        scored = ~np.isnan(self.credit)
        if scored.any():
            codes = np.unique(groups[scored], return_inverse=True)[1]
            moved[scored] = _deviations(self.credit[scored], codes) * self.weight[scored]
        return moved


def influence(outcome: Outcome) -> Influence:
    """Return the influence of the items on the value of ``outcome``.

    Under macro, each of the n items of one of S subjects weighs 1 / (S n).
    """
    credit = outcome.credit
    subjects = subject_codes(outcome.items)
    is_macro = outcome.protocol.aggregation == "macro"
    scored = ~np.isnan(credit)
    weight = np.zeros(len(credit))
    value = math.nan
    if scored.any():
        groups = np.zeros_like(subjects[scored])
        if is_macro:
            groups = np.unique(subjects[scored], return_inverse=True)[1]
        sizes = np.bincount(groups)
        means = np.bincount(groups, weights=credit[scored]) / sizes
        weight[scored] = 1 / (len(sizes) * sizes)[groups]
        value = float(means.mean())
    return Influence(
        outcome=outcome,
        credit=credit,
        weight=weight,
        subjects=subjects,
        value=value,
        macro=is_macro,
    )


def aligned(values: Sequence[Influence]) -> tuple[pa.ChunkedArray, Floats, Floats]:
    """Return the ids of all items, and the credits and influences, float64 [values, items] both.

    An item that a value does not know is missing there.  Subjects are taken as given if one of the
    values is a mean of theirs.
    """
    is_within = any(value.macro for value in values)
    moved = [value.by_item(is_within) for value in values]
    first = values[0].outcome
    # Values of one run, the usual case, share their ids: then nothing is copied.
    if all(same_items(first, value.outcome) for value in values):
        return first.ids, np.array([value.credit for value in values]), np.array(moved)
    chunks = []
    for value in values:
        chunks += value.outcome.ids.chunks
    ids = pa.chunked_array([pc.unique(pa.concat_arrays(chunks))])
    all_credit = np.full((len(values), len(ids)), np.nan)
    all_moved = np.zeros((len(values), len(ids)))
    for index, value in enumerate(values):
        positions = pc.index_in(value.outcome.ids, ids).to_numpy()
        all_credit[index, positions] = value.credit
        all_moved[index, positions] = moved[index]
    return ids, all_credit, all_moved


def influence_error(moved: Floats) -> float:
    """Return the standard error that influences [items] make.

    It is NaN if all are the same, or if there is one: then they say nothing about how they vary.
    """
    if len(moved) < 2 or np.ptp(moved) * len(moved) < _SAME:
        return math.nan
    return float(np.sqrt((moved**2).sum()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Hold the decisions of one measurement, under the names that a measurement has for them.

    ``items``: their names (:func:`.tables.read_item_names`).  ``codes``: the index of each credit in ``values``.
    ``first``: the digest of the first protocol that this one can't differ from
    (:func:`first_equivalents`), or its own.
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
        """Return the ids of the items."""
        return self.items["item"]

    @property
    def subjects(self) -> list[str]:
        """Return the subject of every item."""
        # One by one the texts would take forty times as long.
        return list(self.items["subject"].cast(pa.string()).to_numpy().tolist())

    @property
    def credit(self) -> Floats:
        """Return the credit of every item, float64 [items]; NaN if it is missing."""
        return self.values[self.codes]

    @property
    def prediction(self) -> Integers:
        """Return the predicted choice of every item, int64 [items]; -1 for none."""
        return self.predicted.astype(np.int64)


@dataclass(frozen=True, slots=True)
class Outcomes:
    """Hold the outcomes of one run under all its protocols."""

    model: str
    dataset: str
    digest: str
    outcomes: tuple[Outcome, ...]

    @property
    def shares(self) -> Outcomes:
        """Return the outcomes whose numbers are shares of 1, which can be compared with others."""
        shares = [outcome for outcome in self.outcomes if METRICS[outcome.protocol.metric].share]
        return replace(self, outcomes=tuple(shares))

    def comparable_to(self, outcome: Outcome) -> Outcomes:
        """Return the outcomes whose numbers can be compared with those of ``outcome``."""
        metric = outcome.protocol.metric
        if METRICS[metric].share:
            return self.shares
        same_metric = [other for other in self.outcomes if other.protocol.metric == metric]
        return replace(self, outcomes=tuple(same_metric))

    @property
    def firsts(self) -> dict[str, str]:
        """Return the digest of the first protocol that each can't differ from, by its digest."""
        return {outcome.protocol.digest: outcome.first for outcome in self.outcomes}

    @property
    def macro(self) -> dict[str, bool]:
        """Return if the number is a mean of subjects' means, by the digest of each protocol.

        Two models can differ in one of such a number and the mean over items, and not in the other.
        """
        protocols = [outcome.protocol for outcome in self.outcomes]
        return {protocol.digest: protocol.aggregation == "macro" for protocol in protocols}


def outcomes_of(run: Run) -> Outcomes:
    """Return what remains of ``run`` after its evidence is released."""
    manifest = run.manifest
    firsts = first_equivalents(run)
    names = read_item_names(run.folder)
    # Protocols with the same prompt share the evidence, and so the table of their items.
    tables: dict[Evidence, pa.Table] = {}
    outcomes = []
    for measured in run.measurements.values():
        evidence = measured.evidence
        if evidence not in tables:
            tables[evidence] = rows_at(names, evidence.items)
        values, codes = np.unique(measured.credit, return_inverse=True)
        outcome = Outcome(
            name=measured.name,
            protocol=measured.protocol,
            categories=measured.categories,
            selection=selection(manifest, measured),
            items=tables[evidence],
            values=values,
            codes=in_few_bytes(codes),
            predicted=in_few_bytes(measured.prediction),
            first=firsts[measured.protocol.digest],
        )
        outcomes.append(outcome)
    dataset = manifest.dataset
    return Outcomes(manifest.model.name, dataset.name, dataset.digest, tuple(outcomes))


def read_together(run: Run, parts: Iterable[Protocols]) -> None:
    """Read ``run`` once for the measurements, outcomes and numbers of all ``parts``."""
    parts = list(parts)
    protocols: list[Protocol] = []
    for part in parts:
        protocols += part.values()
    wanted = measured_columns(protocols, run.noise, run.evidence.reasons)
    for part in parts:
        # Protocols of different parts are not compared with each other.
        for prompt, columns in _token_columns(_rivals(list(part.values()))).items():
            wanted[prompt].extend(columns)
    for columns_of_prompt in wanted.values():
        columns_of_prompt.append(TEXTS)
    run.evidence.gather(wanted)


def in_few_bytes(numbers: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return whole numbers from -1 up in the smallest type that holds all of them."""
    # The type that holds the negative number holds the greatest one and -1.
    greatest = int(numbers.max(initial=0))
    return numbers.astype(np.min_scalar_type(-1 - greatest))


def equivalent_groups(firsts: Sequence[Mapping[_Key, Hashable]]) -> list[list[_Key]]:
    """Group the keys that all of ``firsts`` map to the same values, in the order of the first.

    A key that one of them lacks is left out.
    """
    groups: dict[tuple[Hashable, ...], list[_Key]] = {}
    for key in firsts[0]:
        if all(key in first_of for first_of in firsts):
            group = tuple(first_of[key] for first_of in firsts)
            groups.setdefault(group, []).append(key)
    return list(groups.values())


def first_equivalents(run: Run) -> dict[str, str]:
    """Return the digest of the first protocol that each protocol of ``run`` can't differ from.

    Keys are digests; a protocol that differs from all before it has its own.  Two kinds can't
    differ, both seen in what was observed and not in how the numbers came out:

    - Of the same observations they make scores that are the same within every item but for a
      positive factor or a term that all its choices have, and decide by the greatest: means over
      bytes and over characters if the texts are ASCII, sum and mean over tokens if all choices have
      as many.
    - By the same rules they score the same tokens after the same context, in another way of
      computing: a forward pass and the model's own loss.  Their numbers differ by rounding.
    """
    by_digest = {measured.protocol.digest: measured for measured in run.measurements.values()}
    tokens = _tokens(run, [measured.protocol for measured in by_digest.values()])
    firsts: dict[str, str] = {}
    differing: list[Measurement] = []
    for digest, measured in by_digest.items():
        for first in differing:
            if _can_not_differ(first, measured, tokens):
                firsts[digest] = first.protocol.digest
                break
        else:
            firsts[digest] = digest
            differing.append(measured)
    return firsts


def same_order(left: Measurement, right: Measurement) -> bool:
    """Check that the scores of two measurements must order the choices of every item the same way.

    Both are of the same observations.
    """
    scores = left.scores
    other_scores = right.scores
    if scores is None or other_scores is None:
        return False
    if left.protocol.decision != "argmax" or right.protocol.decision != "argmax":
        return False
    # The tie rules may differ.
    if not np.array_equal(left.decisions.credit, right.decisions.credit, equal_nan=True):
        return False
    infinities = np.where(np.isfinite(scores), 0.0, scores)
    other_infinities = np.where(np.isfinite(other_scores), 0.0, other_scores)
    if not np.array_equal(infinities, other_infinities, equal_nan=True):
        return False
    # Infinities and 0 / 0 give NaN, which is left out.
    with np.errstate(invalid="ignore", divide="ignore"):
        factor = other_scores / scores
        term = other_scores - scores
    offsets = left.evidence.item_offsets
    is_positive = (factor > 0) & (factor < np.inf)
    if (is_positive | np.isnan(factor)).all() and _constant(factor, factor, offsets):
        return True
    finite_scores = np.where(np.isinf(scores), np.nan, scores)
    return _constant(term, finite_scores, offsets)


@dataclass(frozen=True, slots=True)
class Axis:
    """Name something in which two sides differ: an axis of the protocol, or part of the identity.

    ``left`` and ``right`` are its spellings on both sides.
    """

    axis: str
    left: str
    right: str


def axes_between(left: Protocol, right: Protocol) -> tuple[Axis, ...]:
    """Return the axes in which two protocols differ."""
    return tuple(Axis(axis, one, other) for axis, one, other in axis_differences(left, right))


@dataclass(frozen=True, kw_only=True)
class Summary:
    """Hold what remains of a run for reports about many.

    ``rows``: one per protocol and group under each protocol's own aggregation, not ranked.
    ``outcomes``: the credit and the prediction of every item under every protocol.  ``applied``:
    the metrics that were added later.  ``damages``: the blocks that were left out.  ``statistics``:
    what a :class:`~choicewise.ports.Statistic` gave, by its name; none if nothing was kept.
    """

    folder: Path
    manifest: Manifest
    rows: tuple[Number, ...]
    outcomes: Outcomes
    applied: Applied | None = None
    damages: tuple[Damage, ...] = ()
    statistics: Mapping[str, Any] = field(default_factory=dict)

    def rows_of(self, protocol: str) -> list[Number]:
        """Return the rows of the protocol of that name."""
        return [row for row in self.rows if row.identity.protocol == protocol]


_SAME = 1e-9
"""Credits and influences that differ by less, relative to one item, differ by rounding."""


def _deviations(credit: Floats, groups: Integers) -> Floats:
    """Return how far each credit is from the mean of its group, corrected for its size."""
    sizes = np.bincount(groups)
    # An item alone in its group does not vary: all such items share a group, which is the last.
    is_single = (sizes == 1)[groups]
    groups = np.where(is_single, len(sizes), groups)
    sizes = np.bincount(groups)
    means = np.bincount(groups, weights=credit) / np.maximum(sizes, 1)
    # If only one item is alone, the mean of all items stands in for that of its kind.
    if sizes[-1] == 1:
        means[-1] = credit.mean()
    correction = np.sqrt(sizes / np.maximum(sizes - 1, 1))
    return (credit - means[groups]) * correction[groups]


_COMPUTING = frozenset({"benchmark", "bos", "boundary", "reading", "aggregation", "rev"})
"""Axes that don't matter if the scored tokens, and how many come before them, are the same."""

_ROUNDING = 1e-9
"""Relative difference of float64 scores that are computed of the same numbers in another order."""

_Key = TypeVar("_Key", bound=Hashable)

_Tokens = tuple[npt.NDArray[np.uint64], ...]
"""A number per row for the tokens before it, its tokens, and those after the null context."""


def _tokens(run: Run, protocols: Sequence[Protocol]) -> dict[str, _Tokens | None]:
    """Return what was scored, by the digest of each protocol that is compared by it."""
    rivals = _rivals(protocols)
    observed = run.evidence.gather(_token_columns(rivals))
    tokens = {}
    for protocol in rivals:
        evidence = observed[protocol.prompt_digest]
        tokens[protocol.digest] = evidence.column(_scored_tokens_column(protocol))
    return tokens


def _rivals(protocols: Sequence[Protocol]) -> list[Protocol]:
    """Return the protocols whose tokens are compared, since another scores by the same rules."""
    rivals: dict[Protocol, None] = {}
    for left, right in combinations(protocols, 2):
        if _same_rules(left, right):
            rivals[left] = None
            rivals[right] = None
    return list(rivals)


def _token_columns(rivals: Sequence[Protocol]) -> dict[str, list[Column[_Tokens | None]]]:
    """Return the columns of what was scored, by prompt."""
    wanted: dict[str, list[Column[_Tokens | None]]] = {}
    for protocol in rivals:
        wanted.setdefault(protocol.prompt_digest, []).append(_scored_tokens_column(protocol))
    return wanted


def _scored_tokens_column(protocol: Protocol) -> Column[_Tokens | None]:
    """Describe what was scored, which all metrics of a score share."""
    deciding = deciding_protocol(protocol)
    return Column("scored tokens", (deciding,), compute=partial(_scored_tokens, deciding))


def _scored_tokens(protocol: Protocol, portion: ObservedPortion) -> _Tokens | None:
    """Return what was scored of a portion; None if only totals were observed."""
    sides = [COMBINERS[protocol.reading].retrieved(protocol, portion)]
    if protocol.null is not None:
        sides.append(portion.continuations(protocol.null))
    digests = []
    for side in sides:
        if side is None or side.totals is not None:
            return None
        # A row whose number is missing must not equal one that has it.
        digests.append(np.where(np.isnan(side.sums), np.uint64(1), side.digests))
    return (portion.context_tokens.astype(np.uint64), *digests)


def _can_not_differ(
    left: Measurement, right: Measurement, tokens: Mapping[str, _Tokens | None]
) -> bool:
    """Check if two measurements of a run are the same by construction."""
    if left.protocol.prompt_digest == right.protocol.prompt_digest:
        return same_order(left, right)
    if not _same_rules(left.protocol, right.protocol):
        return False
    left_tokens = tokens[left.protocol.digest]
    right_tokens = tokens[right.protocol.digest]
    if left_tokens is None or right_tokens is None:
        return False
    if not np.array_equal(left.evidence.items, right.evidence.items):
        return False
    return all(map(np.array_equal, left_tokens, right_tokens))


def _constant(values: Floats, scale: Floats, offsets: Integers) -> bool:
    """Check that ``values`` [rows] are the same within every item, up to rounding.

    Rounding is that of numbers as large as ``scale`` [rows].
    """
    greatest = reduce_rows(np.fmax, values, offsets)
    least = reduce_rows(np.fmin, values, offsets)
    size = reduce_rows(np.fmax, np.abs(scale), offsets)
    return not (greatest - least > _ROUNDING * size).any()


def _same_rules(left: Protocol, right: Protocol) -> bool:
    """Check that two protocols with different prompts can differ only in what is scored."""
    if left.prompt_digest == right.prompt_digest:
        return False
    if not _COMPUTING.issuperset(differing(left, right)):
        return False
    if READINGS[left.reading].renormalised != READINGS[right.reading].renormalised:
        return False
    is_corrected = left.boundary in CORRECTED or right.boundary in CORRECTED
    return left.boundary == right.boundary or not is_corrected
