"""Climb from one protocol to another axis by axis, and measure what each axis changes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import combinations, pairwise, permutations

import numpy as np
import pyarrow as pa

from choicewise.errors import UsageError, did_you_mean
from choicewise.protocols.between import Axes, End, inseparable, protocols_between
from choicewise.protocols.metrics import METRICS
from choicewise.protocols.protocol import AXES, DECLARED_VALUES, Protocol, differing, signature
from choicewise.results.measurement import same_items
from choicewise.results.outcomes import (
    Axis,
    Influence,
    Outcome,
    Outcomes,
    aligned,
    axes_between,
    influence,
    influence_error,
    outcomes_of,
)
from choicewise.results.run import Run
from choicewise.scoring.intervals import ranks, two_sided
from choicewise.scoring.observed import Floats, Integers, Mask
from choicewise.scoring.rounding import require_number

LEVEL = 0.95
"""Two changes differ if the interval of this level around their difference leaves out 0."""

EXACT = 1e-9
"""Two changes without a standard error differ by more than this, which rounding explains."""


@dataclass(frozen=True, kw_only=True)
class Turn:
    """Compare what some ``axes`` change on two ways between the same protocols; shares of 1.

    ``difference``: the change in order minus that in reverse.  ``se``: its standard error, paired
    by items.  ``differ``: the choice of items does not explain the difference (:data:`LEVEL`).
    """

    axes: Axes
    in_order: float
    in_reverse: float
    difference: float
    se: float
    differ: bool


@dataclass(frozen=True, kw_only=True)
class Step:
    """Describe a step from one protocol to the next; values are shares of 1.

    ``axes``: the axes that change.  If several change ``together`` no protocol lies between the
    two; otherwise the run has none of those between.  ``name``, ``signature``, ``value``: of the
    protocol that the step reaches.  ``change``: of the values, each under the aggregation of its
    protocol.  ``se``: the standard error of the change, paired by items, NaN if all items change
    alike.  ``n``: items that both score; ``missing``: items that one of them scores.  ``gained``:
    items of ``n`` whose credit becomes better; ``lost``: items whose credit becomes worse;
    ``gained_items`` and ``lost_items``: the ids of the first few.
    """

    axes: tuple[Axis, ...]
    together: bool
    name: str
    signature: str
    value: float
    change: float
    se: float
    n: int
    missing: int
    gained: int
    lost: int
    gained_items: tuple[str, ...]
    lost_items: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Ladder:
    """Describe the steps from the number under ``start`` to that under ``end``, names in the run.

    Values are in the unit of ``metric``, mostly shares of 1.  ``start_n``, ``end_n``: the items
    that the two values are means over.  The changes of the ``steps`` add up.
    """

    model: str
    dataset: str
    start: str
    end: str
    start_value: float
    end_value: float
    start_n: int
    end_n: int
    steps: tuple[Step, ...]
    metric: str = "acc"


@dataclass(frozen=True)
class BothWays:
    """Hold two ladders between two protocols: axes changed in order, and in reverse.

    ``in_reverse``: the ladder from the second protocol to the first, read backwards.  ``turns``:
    the changes side by side, in order; axes of one step on either way are compared together.
    """

    in_order: Ladder
    in_reverse: Ladder
    turns: tuple[Turn, ...]

    @property
    def coarse(self) -> tuple[Axes, ...]:
        """The axes of every step that passes by protocols which the run does not have."""
        sets: dict[Axes, None] = {}
        for step in (*self.in_order.steps, *self.in_reverse.steps):
            if len(step.axes) > 1 and not step.together:
                sets[tuple(axis.axis for axis in step.axes)] = None
        return tuple(sets)


def both_ways(run: Run, start: End, end: End, names: Mapping[Protocol, str]) -> BothWays:
    """Return the ladders of ``run`` over all protocols between two, in order and in reverse.

    ``names``: of protocols between the two
    (:func:`choicewise.protocols.between.protocols_between`).  Raises UsageError if the two are the
    same, if rounding leaves a number open, or if the run does not have one of them
    (:meth:`choicewise.results.run.Run.under`).
    """
    start_kind = start.protocol.kind
    end_kind = end.protocol.kind
    if start_kind != end_kind and "any" not in (start_kind, end_kind):
        kinds = f"{start.name} is for {start_kind} questions, {end.name} for {end_kind} questions"
        raise UsageError(f"{kinds}, so no item fits both; name two protocols of one kind")

    ends = run.on_its_split({start.name: start.protocol, end.name: end.protocol})
    candidates = run.on_its_split(protocols_between(start, end, names)) | run.protocols | ends
    between_ends = {name: candidates[name] for name in candidates if name not in ends}
    lacking = run.lacking(between_ends)
    name_of = {protocol: name for name, protocol in candidates.items() if name not in lacking}
    # A protocol of the run keeps its name there.
    for name, protocol in (run.protocols | ends).items():
        name_of[protocol] = name

    protocols = list(name_of)
    chosen = dict(ends)
    for index in between(protocols, ends[start.name], ends[end.name]):
        protocol = protocols[index]
        chosen[name_of[protocol]] = protocol
    under = run.under(chosen)
    for measured in under.measurements.values():
        require_number(measured.name, measured.protocol.metric, measured.step)

    outcomes = outcomes_of(under)
    in_order = chain(outcomes, start.name, end.name)
    in_reverse = chain(outcomes, end.name, start.name)[::-1]
    return BothWays(
        _over(in_order, outcomes), _over(in_reverse, outcomes), turns(in_order, in_reverse)
    )


def turns(in_order: Sequence[Outcome], in_reverse: Sequence[Outcome]) -> tuple[Turn, ...]:
    """Compare the changes on two ways between the same ends axis by axis."""
    early_steps = list(pairwise(in_order))
    late_steps = list(pairwise(in_reverse))
    step_axes = [_step_axes(step) for step in (*early_steps, *late_steps)]
    compared = []
    for axes in _joined(step_axes):
        early = _steps_of(early_steps, axes)
        late = _steps_of(late_steps, axes)
        compared.append(_turn(axes, early, late))
    return tuple(compared)


EXAMPLES = 3
"""Items that a step names, of those with better and of those with worse credit."""


def ladder(outcomes: Outcomes, start: str, end: str) -> Ladder:
    """Return the longest ladder over the protocols of ``outcomes``; UsageError as :func:`chain`."""
    return _over(chain(outcomes, start, end), outcomes)


def chain(outcomes: Outcomes, start: str, end: str) -> list[Outcome]:
    """Return the longest chain (:func:`chains`) between two protocols by name, both included.

    Raises UsageError if one of the two is not among ``outcomes``, if they are the same protocol, or
    if their numbers have other units or do not add up.
    """
    first = _named(outcomes, start)
    last = _named(outcomes, end)
    outcomes = outcomes.comparable_to(first)
    if last not in outcomes.outcomes or METRICS[first.protocol.metric].exponential:
        metrics = " and ".join(dict.fromkeys([first.protocol.metric, last.protocol.metric]))
        raise UsageError(
            f"steps from {start} to {end} don't add up: their metrics are {metrics}; name "
            "one metric"
        )
    if first.protocol == last.protocol:
        raise UsageError(f"{start} and {end} are the same protocol; name two that differ")
    protocols = [outcome.protocol for outcome in outcomes.outcomes]
    inside = between(protocols, first.protocol, last.protocol)
    nodes = [first, last, *(outcomes.outcomes[index] for index in inside)]
    longest = chains([outcome.protocol for outcome in nodes])[0, 1]
    return [nodes[index] for index in longest]


def ladders(outcomes: Outcomes) -> dict[tuple[str, str], Ladder]:
    """Return the ladder from every protocol to every other one that differs from it, by names."""
    nodes = [influence(outcome) for outcome in outcomes.shares.outcomes]
    protocols = [node.outcome.protocol for node in nodes]
    # Ladders share most of their steps.
    steps: dict[tuple[int, int], Step] = {}
    climbed: dict[tuple[str, str], Ladder] = {}
    for (start, end), longest in _kept_chains(tuple(protocols)).items():
        if protocols[start] == protocols[end]:
            continue
        pairs = list(pairwise(longest))
        for before, after in pairs:
            if (before, after) not in steps:
                there = steps.get((after, before))
                steps[before, after] = _step_back(there, nodes[before], nodes[after])
        names = nodes[start].outcome.name, nodes[end].outcome.name
        steps_of_pairs = [steps[pair] for pair in pairs]
        climbed[names] = _ladder(outcomes, nodes[start], nodes[end], steps_of_pairs)
    return climbed


def between(protocols: Sequence[Protocol], start: Protocol, end: Protocol) -> list[int]:
    """Return the indices of the protocols between two.

    They differ from both, and have on every axis the value of one of them.
    """
    from_start, from_end = _differing([start, end, *protocols])[:2].sum(axis=-1)
    # Every differing axis counts once if the protocol has one of the two values on each.
    is_on_way = from_start + from_end == from_start[1]
    is_between = is_on_way & (from_start > 0) & (from_end > 0)
    return (np.flatnonzero(is_between) - 2).tolist()


def chains(protocols: Sequence[Protocol]) -> dict[tuple[int, int], list[int]]:
    """Return the longest chain between every two protocols, as indices, both ends included.

    All on a chain have on every axis the value of its start or its end, and an axis changes once.
    Of several longest ones it is the one whose first step changes the first axes, in their order;
    then its second step, and so on.
    """
    differing = _differing(protocols)
    distance = differing.sum(axis=-1)
    order = _order(differing)
    count = len(protocols)
    length = np.zeros((count, count), dtype=np.int64)
    successor = np.zeros((count, count), dtype=np.int64)
    # From near to far: a chain consists of a single step and a chain that is shorter.
    pairs = np.argsort(distance, axis=None, kind="stable").tolist()
    for pair in pairs:
        start, end = divmod(pair, count)
        if start == end:
            continue
        from_start = distance[start]
        to_end = distance[:, end]
        is_between = (from_start > 0) & (to_end > 0)
        is_between &= from_start + to_end == from_start[end]
        # The first step leads to a protocol that has none between itself and the start.
        nodes = np.flatnonzero(is_between & (length[start] == 1))
        if not len(nodes):
            length[start, end] = 1
            successor[start, end] = end
            continue
        lengths = length[nodes, end]
        longest = nodes[lengths == lengths.max()]
        successor[start, end] = longest[order[start, longest].argmin()]
        length[start, end] = 1 + lengths.max()

    followed = {}
    for start, end in permutations(range(count), 2):
        chain = [start]
        while chain[-1] != end:
            chain.append(int(successor[chain[-1], end]))
        followed[start, end] = chain
    return followed


# Most runs of a study have the same protocols.
@lru_cache(maxsize=2)
def _kept_chains(protocols: tuple[Protocol, ...]) -> dict[tuple[int, int], list[int]]:
    return chains(protocols)


@dataclass(frozen=True)
class Pair:
    """Name two protocols, with the value of the second minus that of the first.

    ``n``: items that both score.
    """

    start: str
    end: str
    change: float
    n: int


@dataclass(frozen=True, kw_only=True)
class Spread:
    """Hold mean, standard deviation (NaN for one pair) and range of changes; shares of 1."""

    mean: float
    sd: float
    low: float
    high: float
    pairs: int


@dataclass(frozen=True)
class ValueChange:
    """Describe the change from one value of an axis to another.

    ``axes``: with their values; the axis first, then the axes that change with it.
    """

    axes: tuple[Axis, ...]
    spread: Spread
    pairs: tuple[Pair, ...]


@dataclass(frozen=True)
class Effect:
    """Describe the effect of changing one axis, from the value that is declared first.

    If neither value is declared, the one that comes first in the run is the start.  ``absolute``:
    mean absolute change, by which axes are ranked.  ``spread``: over the pairs of all ``changes``,
    which begin with the one of most pairs.
    """

    axis: str
    absolute: float
    spread: Spread
    changes: tuple[ValueChange, ...]


def main_effects(outcomes: Outcomes) -> list[Effect]:
    """Return the effects of the axes in which two protocols differ alone, the greatest first.

    Axes that only change together (:func:`choicewise.protocols.between.inseparable`) count as the
    first of them.  Protocols that can't differ
    (:func:`choicewise.results.outcomes.first_equivalents`) are no pair, and pairs of the same two
    groups of such protocols count once.  Raises UsageError if no two protocols are a pair.
    """
    outcomes = outcomes.shares
    influences = {outcome.name: influence(outcome) for outcome in outcomes.outcomes}
    pairs_by_axes: dict[tuple[Axis, ...], list[Pair]] = {}
    for left, right in _pairs(outcomes.outcomes, influences):
        left_influence = influences[left.name]
        right_influence = influences[right.name]
        _, credits, _ = aligned([left_influence, right_influence])
        pair = Pair(
            start=left.name,
            end=right.name,
            change=right_influence.value - left_influence.value,
            n=int((~np.isnan(credits).any(axis=0)).sum()),
        )
        axes = axes_between(left.protocol, right.protocol)
        pairs_by_axes.setdefault(axes, []).append(pair)
    if not pairs_by_axes:
        raise UsageError(
            f"no two protocols in the run of {outcomes.model} differ in only one axis; "
            "add some, such as all of mmlu"
        )
    changes_by_axis: dict[str, list[ValueChange]] = {}
    for axes, pairs in pairs_by_axes.items():
        change = ValueChange(axes, _spread(pairs), tuple(pairs))
        changes_by_axis.setdefault(axes[0].axis, []).append(change)
    effects = [_effect(axis, changes) for axis, changes in changes_by_axis.items()]
    return sorted(effects, key=lambda effect: -effect.absolute)


def order_agreement(values: Floats) -> Floats:
    """Return Kendall's τ-b between every two columns, float64 [columns, columns].

    ``values``: float64 [columns, rows], NaN if there is none.  Two columns are compared over the
    rows that both have.  The result is NaN if one of them has equal values there, or if there are
    fewer than two such rows.
    """
    columns, rows = values.shape
    left, right = np.triu_indices(rows, 1)
    rank = ranks(values)
    left_rank = rank[:, left]
    right_rank = rank[:, right]
    has_both = ((left_rank > 0) & (right_rank > 0)).astype(np.float64)
    signs = np.sign(right_rank - left_rank) * has_both
    # τ-b divides by the pairs that are not tied in the one column and in the other.
    untied = (signs**2) @ has_both.T
    pairs = untied * untied.T
    with np.errstate(invalid="ignore", divide="ignore"):
        agreement = np.where(pairs > 0, signs @ signs.T / np.sqrt(pairs), np.nan)
    clipped = np.clip(agreement, -1, 1).reshape(columns, columns)
    return np.asarray(clipped, dtype=np.float64)


def seriated(values: Floats, first: int | None = None) -> list[int]:
    """Return the columns in an order that puts columns of like order next to each other.

    ``values``: as :func:`order_agreement` takes them.  The way goes from a column to the nearest
    that is left; then stretches of it are turned round as long as that makes it shorter.  It begins
    with the column ``first``, or else with the end that agrees better with all columns.  The result
    is the same every time.
    """
    if not len(values):
        return []
    distances = _distances(values)
    total = distances.sum(axis=1)
    start = int(total.argmin()) if first is None else first
    way = [start]
    left = [column for column in range(len(values)) if column != start]
    while left:
        nearest = left[distances[way[-1], left].argmin()]
        way.append(nearest)
        left.remove(nearest)
    if first is not None:
        _untangle(way, distances, fixed=1)
        return way
    _untangle(way, distances, fixed=0)
    start = way[0]
    end = way[-1]
    if (total[end], end) < (total[start], start):
        way.reverse()
    return way


_Step = tuple[Outcome, Outcome]
"""The outcomes at both ends of a step."""


def _step_axes(step: _Step) -> Axes:
    before, after = step
    return differing(before.protocol, after.protocol)


def _steps_of(steps: Sequence[_Step], axes: Axes) -> list[_Step]:
    """Return the steps that change any of ``axes``."""
    return [step for step in steps if not set(axes).isdisjoint(_step_axes(step))]


def _turn(axes: Axes, early: Sequence[_Step], late: Sequence[_Step]) -> Turn:
    influences = []
    for before, after in (*early, *late):
        influences += [influence(before), influence(after)]
    _, _, moved = aligned(influences)
    # A step is its end minus its start; the steps in reverse are subtracted from those in order.
    sign = np.array([-1.0, 1.0] * len(early) + [1.0, -1.0] * len(late))
    values = sign * [step_end.value for step_end in influences]
    early_values, late_values = np.split(values, [2 * len(early)])
    in_order = float(early_values.sum())
    in_reverse = -float(late_values.sum())
    difference = in_order - in_reverse
    se = influence_error(sign @ moved)
    allowed = EXACT if math.isnan(se) else two_sided(LEVEL) * se
    return Turn(
        axes=axes,
        in_order=in_order,
        in_reverse=in_reverse,
        difference=difference,
        se=se,
        differ=abs(difference) > allowed,
    )


def _joined(steps: Sequence[Axes]) -> list[Axes]:
    """Join the axes of steps that have some in common, in the order of their first steps."""
    # A coarse step of one way can cover several steps of the other.
    sets: list[dict[str, None]] = []
    for step in steps:
        apart: list[dict[str, None]] = []
        joined: dict[str, None] = {}
        index = None
        for axes in sets:
            if axes.keys().isdisjoint(step):
                apart.append(axes)
                continue
            joined |= axes
            if index is None:
                index = len(apart)
        joined |= dict.fromkeys(step)
        apart.insert(len(apart) if index is None else index, joined)
        sets = apart
    return [tuple(axes) for axes in sets]


def _over(chain: Sequence[Outcome], outcomes: Outcomes) -> Ladder:
    """Return the ladder over some of ``outcomes``, in this order."""
    nodes = [influence(outcome) for outcome in chain]
    steps = [_step(before, after) for before, after in pairwise(nodes)]
    return _ladder(outcomes, nodes[0], nodes[-1], steps)


def _ladder(outcomes: Outcomes, start: Influence, end: Influence, steps: Sequence[Step]) -> Ladder:
    return Ladder(
        model=outcomes.model,
        dataset=outcomes.dataset,
        start=start.outcome.name,
        end=end.outcome.name,
        start_value=start.value,
        end_value=end.value,
        start_n=start.n,
        end_n=end.n,
        steps=tuple(steps),
        metric=start.outcome.protocol.metric,
    )


def _step(start: Influence, end: Influence) -> Step:
    protocol = end.outcome.protocol
    ids, credit, moved = aligned([start, end])
    is_scored = ~np.isnan(credit)
    both = int(is_scored.all(axis=0).sum())
    any_of_both = int(is_scored.any(axis=0).sum())
    gained = credit[1] > credit[0]
    lost = credit[1] < credit[0]
    # Of a loss, less is better.
    if not METRICS[protocol.metric].credited:
        gained, lost = lost, gained
    axes = axes_between(start.outcome.protocol, protocol)
    return Step(
        axes=axes,
        together=len(axes) > 1 and inseparable(start.outcome.protocol, protocol),
        name=end.outcome.name,
        signature=signature(protocol),
        value=end.value,
        change=end.value - start.value,
        se=influence_error(moved[1] - moved[0]),
        n=both,
        missing=any_of_both - both,
        gained=int(gained.sum()),
        lost=int(lost.sum()),
        gained_items=_examples(ids, gained),
        lost_items=_examples(ids, lost),
    )


def _step_back(there: Step | None, start: Influence, end: Influence) -> Step:
    """Return the step from ``start`` to ``end``; ``there``: that from ``end`` to ``start``, if it
    is known.
    """
    is_same = same_items(start.outcome, end.outcome)
    metrics = [METRICS[value.outcome.protocol.metric] for value in (start, end)]
    # Of other items the first few could be others, and of a loss less is better.
    if there is None or not is_same or metrics[0].credited != metrics[1].credited:
        return _step(start, end)
    return replace(
        there,
        axes=axes_between(start.outcome.protocol, end.outcome.protocol),
        name=end.outcome.name,
        signature=signature(end.outcome.protocol),
        value=end.value,
        change=end.value - start.value,
        gained=there.lost,
        lost=there.gained,
        gained_items=there.lost_items,
        lost_items=there.gained_items,
    )


def _examples(ids: pa.ChunkedArray, among: Mask) -> tuple[str, ...]:
    indices = np.flatnonzero(among)[:EXAMPLES]
    return tuple(ids.take(pa.array(indices)).to_pylist())


def _named(outcomes: Outcomes, name: str) -> Outcome:
    for outcome in outcomes.outcomes:
        if outcome.name == name:
            return outcome
    names = [outcome.name for outcome in outcomes.outcomes]
    raise UsageError(
        f"the run of {outcomes.model} has no protocol {name!r}; {did_you_mean(name, names)}"
    )


def _differing(protocols: Sequence[Protocol]) -> Mask:
    """Mark the axes in which two protocols differ, bool [protocols, protocols, axes]."""
    # Values are numbered: arrays compare numbers, and values of an axis can be of several types.
    codes = np.empty((len(protocols), len(AXES)), dtype=np.int64)
    for column, axis in enumerate(AXES):
        numbers: dict[object, int] = {}
        values = [getattr(protocol, axis) for protocol in protocols]
        codes[:, column] = [numbers.setdefault(value, len(numbers)) for value in values]
    return np.asarray(codes[:, None] != codes[None], dtype=np.bool_)


def _order(differing: Mask) -> Integers:
    """Number the pairs of protocols by their axes, int64 [protocols, protocols].

    The number is lower if the differing axes come earlier.
    """
    flat = differing.reshape(-1, differing.shape[-1])
    sets, set_of_pair = np.unique(flat, axis=0, return_inverse=True)
    axes_of_set = [np.flatnonzero(axes).tolist() for axes in sets]
    in_order = sorted(range(len(sets)), key=axes_of_set.__getitem__)
    rank = np.empty(len(sets), dtype=np.int64)
    rank[in_order] = np.arange(len(sets))
    return rank[set_of_pair].reshape(differing.shape[:2])


def _effect(axis: str, changes: Sequence[ValueChange]) -> Effect:
    pairs: list[Pair] = []
    for change in changes:
        pairs += change.pairs
    absolute = float(np.mean([abs(pair.change) for pair in pairs]))
    most_pairs_first = sorted(changes, key=lambda change: -change.spread.pairs)
    return Effect(axis, absolute, _spread(pairs), tuple(most_pairs_first))


def _spread(pairs: Sequence[Pair]) -> Spread:
    changes = np.array([pair.change for pair in pairs])
    sd = float(changes.std(ddof=1)) if len(changes) > 1 else math.nan
    return Spread(
        mean=float(changes.mean()),
        sd=sd,
        low=float(changes.min()),
        high=float(changes.max()),
        pairs=len(changes),
    )


def _pairs(outcomes: Sequence[Outcome], influences: Mapping[str, Influence]) -> Iterator[_Step]:
    """Yield two protocols with a value that differ in one axis, or in axes that change together.

    They come in the direction of the axis.
    """
    measured = [outcome for outcome in outcomes if not math.isnan(influences[outcome.name].value)]
    protocols = [outcome.protocol for outcome in measured]
    seen: set[tuple[Axes, frozenset[str]]] = set()
    for left, right in combinations(measured, 2):
        axes = differing(left.protocol, right.protocol)
        # Protocols that can't differ share the digest of the first of them.
        kinds = frozenset([left.first, right.first])
        if len(kinds) < 2 or (axes, kinds) in seen:
            continue
        if len(axes) > 1 and not inseparable(left.protocol, right.protocol):
            continue
        seen.add((axes, kinds))
        if _in_order(axes[0], left.protocol, right.protocol, protocols):
            yield left, right
        else:
            yield right, left


def _in_order(axis: str, left: Protocol, right: Protocol, run: Sequence[Protocol]) -> bool:
    """Check that the left value of ``axis`` comes first.

    Values come as they are declared, None before numbers, and others as the run has them.
    """
    left_value = getattr(left, axis)
    right_value = getattr(right, axis)
    declared: tuple[object, ...] = DECLARED_VALUES[axis]
    if left_value in declared and right_value in declared:
        return declared.index(left_value) < declared.index(right_value)
    if isinstance(left_value, int | None) and isinstance(right_value, int | None):
        if left_value is None or right_value is None:
            return left_value is None and right_value is not None
        return left_value < right_value
    values = [getattr(protocol, axis) for protocol in run]
    return values.index(left_value) < values.index(right_value)


_VALUE_WEIGHT = 0.05
"""Weight of a difference of values beside one of orders: it decides between equal orders alone."""


def _distances(values: Floats) -> Floats:
    """Return distances of columns: 0 for the same order and values, about 1 for the reversed order.

    An unknown agreement counts as halfway.
    """
    agreement = np.nan_to_num(order_agreement(values), nan=0.0)
    distance = (1 - agreement) / 2
    if values.shape[1]:
        filled = np.nan_to_num(values, nan=0.0)
        difference = np.abs(filled[:, None] - filled[None]).mean(axis=2)
        distance += _VALUE_WEIGHT * difference
    return np.asarray(distance)


def _untangle(way: list[int], distances: Floats, fixed: int) -> None:
    """Turn stretches round (2-opt) while the way gets shorter; its first ``fixed`` columns stay."""
    is_shorter = True
    while is_shorter:
        is_shorter = False
        for start in range(fixed, len(way) - 1):
            for stop in range(start + 2, len(way) + 1):
                turned = 0.0
                straight = 0.0
                if start:
                    turned += distances[way[start - 1], way[stop - 1]]
                    straight += distances[way[start - 1], way[start]]
                if stop < len(way):
                    turned += distances[way[start], way[stop]]
                    straight += distances[way[stop - 1], way[stop]]
                # Rounding must not turn a stretch back and forth for ever.
                if turned < straight - 1e-12:
                    way[start:stop] = reversed(way[start:stop])
                    is_shorter = True
