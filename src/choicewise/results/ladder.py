"""From one protocol to another, axis by axis: ladders, what each axis changes, and the order of columns."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import combinations, pairwise

import numpy as np
import pyarrow as pa

from choicewise.errors import UsageError, did_you_mean
from choicewise.protocols.between import Axes, End, differing, inseparable, protocols_between
from choicewise.protocols.metrics import METRICS
from choicewise.protocols.protocol import AXES, Protocol, signature
from choicewise.results.outcomes import (
    Axis,
    Influence,
    Outcome,
    OutcomeKeeper,
    Outcomes,
    aligned,
    axes_between,
    error,
    influence,
)
from choicewise.results.run import Run
from choicewise.scoring.intervals import ranks, two_sided
from choicewise.scoring.observed import Floats, Integers, Mask
from choicewise.scoring.rounding import require_number

LEVEL = 0.95
"""Two changes differ where the interval of this level around their difference leaves out 0."""

EXACT = 1e-9
"""Where no item shows how a difference varies, only rounding keeps it from 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """What the same ``axes`` change on either way; shares of 1.

    ``difference``: the change in order minus that in reverse; ``se``: its standard error, paired by items.  ``differ``:
    whether the difference is more than :data:`LEVEL` lets it be by the choice of items.
    """

    axes: Axes
    in_order: float
    in_reverse: float
    difference: float
    se: float
    differ: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """From one protocol to the next.

    ``axes``: what changes; of several that change ``together`` no protocol lies between the two, else the run asked
    none.  ``name`` and ``signature``: of the protocol that is reached, with its ``value``.  ``change``: of the values,
    each under its own aggregation, and ``se`` its standard error, paired by items (NaN where no item shows how it
    varies); shares of 1.  ``n``: items that both score; ``missing``: those that only one scores.  ``gained``: items of
    ``n`` that turn from wrong to right, or whose credit becomes better otherwise; ``lost``: the other way; the first
    few are named in ``gained_items`` and ``lost_items``.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Ladder:
    """From the number under protocol ``start`` to that under ``end``, names in the run; values are shares of 1, or of
    another ``metric`` in its unit.

    ``start_n`` and ``end_n``: the items that these are means over.  The changes of the ``steps`` add up.
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


@dataclass(frozen=True, slots=True)
class BothWays:
    """From one protocol to another, axes changed in order and in reverse.

    ``in_order`` changes the first axes first; ``in_reverse`` is the ladder from the second protocol to the first, read
    backwards.  ``turns``: side by side, in order; axes that change in one step on either way are compared together.
    """

    in_order: Ladder
    in_reverse: Ladder
    turns: tuple[Turn, ...]

    @property
    def coarse(self) -> tuple[Axes, ...]:
        """The axes of every step between whose ends lie protocols that the run did not ask."""
        steps = (*self.in_order.steps, *self.in_reverse.steps)
        sets = (
            tuple(axis.axis for axis in step.axes)
            for step in steps
            if len(step.axes) > 1 and not step.together
        )
        return tuple(dict.fromkeys(sets))


def both_ways(run: Run, start: End, end: End, names: Mapping[Protocol, str]) -> BothWays:
    """The ladder of ``run`` over all protocols between the two that it asked; ``names``: as in :func:`~.between.way`.

    Raises UsageError when the two are the same, or when the run did not ask one of them
    (:meth:`choicewise.results.run.Run.under`), or when rounding leaves a number open.
    """
    if "any" not in (kinds := (start.protocol.kind, end.protocol.kind)) and len({*kinds}) > 1:
        asked = f"{start.name} asks questions of kind {kinds[0]}, {end.name} of kind {kinds[1]}"
        raise UsageError(f"{asked}: no item is asked by both; name two protocols of one kind")
    ends = run.on_its_split({start.name: start.protocol, end.name: end.protocol})
    named = run.on_its_split(protocols_between(start, end, names)) | run.protocols | ends
    lacking = run.lacking({name: protocol for name, protocol in named.items() if name not in ends})
    known = {protocol: name for name, protocol in named.items() if name not in lacking}
    known |= {
        protocol: name for name, protocol in (run.protocols | ends).items()
    }  # rather than by another name
    inside = set(between([*known], *ends.values()) if len(set(ends.values())) > 1 else ())
    chosen = ends | {
        name: protocol for place, (protocol, name) in enumerate(known.items()) if place in inside
    }
    under = run.under(chosen)
    for each in under.measurements.values():
        require_number(each.name, each.protocol.metric, each.step)
    outcomes = OutcomeKeeper().keep(under)
    there, back = chain(outcomes, start.name, end.name), chain(outcomes, end.name, start.name)[::-1]
    return BothWays(_over(there, outcomes), _over(back, outcomes), turns(there, back))


def turns(in_order: Sequence[Outcome], in_reverse: Sequence[Outcome]) -> tuple[Turn, ...]:
    """The changes on two ways between the same ends, compared axis by axis, in the order of the first."""
    ways = [[*pairwise(nodes)] for nodes in (in_order, in_reverse)]
    axes = [[differing(one.protocol, other.protocol) for one, other in pairs] for pairs in ways]
    compared = []
    for together in _joined([*axes[0], *axes[1]]):
        early, late = (
            [pair for pair, changed in zip(pairs, own, strict=True) if set(changed) & set(together)]
            for pairs, own in zip(ways, axes, strict=True)
        )
        compared.append(_turn(together, early, late))
    return tuple(compared)


EXAMPLES = 3
"""Items that a step names of those that it gains, and of those that it loses."""


def ladder(outcomes: Outcomes, start: str, end: str) -> Ladder:
    """The longest ladder over the protocols among ``outcomes``; raises UsageError as :func:`chain`."""
    return _over(chain(outcomes, start, end), outcomes)


def chain(outcomes: Outcomes, start: str, end: str) -> list[Outcome]:
    """The longest chain (:func:`~.chains.chains`) from the protocol of one name to that of another, both included.

    Raises UsageError when one of the two is not among ``outcomes``, when they are the same protocol, or when their
    numbers can't be set beside each other.
    """
    one, other = (_named(outcomes, name) for name in (start, end))
    outcomes = outcomes.beside(one)
    if other not in outcomes.outcomes or METRICS[one.protocol.metric].exponential:
        metrics = " and ".join(dict.fromkeys(each.protocol.metric for each in (one, other)))
        raise UsageError(
            f"steps from {start} to {end} do not add up: their numbers are {metrics}; name one metric"
        )
    if one.protocol == other.protocol:
        raise UsageError(f"{start} and {end} are the same protocol; name two that differ")
    protocols = [each.protocol for each in outcomes.outcomes]
    middle = [
        outcomes.outcomes[place] for place in between(protocols, one.protocol, other.protocol)
    ]
    nodes = [one, other, *middle]
    return [nodes[place] for place in chains([each.protocol for each in nodes])[0, 1]]


def ladders(outcomes: Outcomes) -> dict[tuple[str, str], Ladder]:
    """The ladder from every protocol to every other one, by their names; between equal ones there is none."""
    nodes = [(each, influence(each)) for each in outcomes.shares.outcomes]
    steps: dict[tuple[int, int], Step] = {}
    every: dict[tuple[str, str], Ladder] = {}
    for (start, end), chain in chains([each.protocol for each, _ in nodes]).items():
        if nodes[start][0].protocol == nodes[end][0].protocol:
            continue
        for pair in pairwise(chain):
            if pair not in steps:
                steps[pair] = _step(nodes[pair[0]], nodes[pair[1]])
        climbed = tuple(steps[pair] for pair in pairwise(chain))
        every[nodes[start][0].name, nodes[end][0].name] = _ladder(
            outcomes, nodes[start], nodes[end], climbed
        )
    return every


def between(protocols: Sequence[Protocol], start: Protocol, end: Protocol) -> list[int]:
    """Which of ``protocols`` are neither ``start`` nor ``end`` and have the value of one of them on every axis."""
    distance = _differing([start, end, *protocols])[:2].sum(axis=-1)
    among = (distance.sum(axis=0) == distance[0, 1]) & (distance > 0).all(axis=0)
    return (np.flatnonzero(among) - 2).tolist()


def chains(protocols: Sequence[Protocol]) -> dict[tuple[int, int], list[int]]:
    """The longest chain from each protocol to each other one, as their places, both ends included.

    All on a chain have on every axis the value of its start or its end, and an axis changes once.  Of several longest
    ones it is the one whose first step changes the first axes, in their order; then its second step, and so on.
    """
    differing = _differing(protocols)
    distance, order = differing.sum(axis=-1), _order(differing)
    count = len(protocols)
    length, after = (
        np.zeros((count, count), dtype=np.int64),
        np.zeros((count, count), dtype=np.int64),
    )
    pairs = np.argsort(distance, axis=None, kind="stable").tolist()
    for start, end in (divmod(pair, count) for pair in pairs):
        if start == end:
            continue
        near = (length[start] == 1) & (distance[start] > 0) & (distance[:, end] > 0)
        near &= distance[start] + distance[:, end] == distance[start, end]
        places = np.flatnonzero(near)
        longest = places[length[places, end] == length[places, end].max(initial=0)]
        after[start, end] = longest[order[start, longest].argmin()] if len(longest) else end
        length[start, end] = 1 + length[after[start, end], end] if len(longest) else 1
    return {
        (start, end): _followed(after, start, end)
        for start in range(count)
        for end in range(count)
        if start != end
    }


@dataclass(frozen=True, slots=True)
class Pair:
    """Two protocols, by name, and by how much the value of the second is greater; ``n``: items that both score."""

    start: str
    end: str
    change: float
    n: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Changes over pairs, shares of 1: mean, standard deviation (NaN for one pair), lowest and highest."""

    mean: float
    sd: float
    low: float
    high: float
    pairs: int


@dataclass(frozen=True, slots=True)
class ValueChange:
    """From one value of an axis to another: ``axes`` with the values, the axis first, then those that move with it."""

    axes: tuple[Axis, ...]
    spread: Spread
    pairs: tuple[Pair, ...]


@dataclass(frozen=True, slots=True)
class Effect:
    """What changing one axis does, in its own direction: from the value that is declared, or stands in the run, first.

    ``absolute``: mean absolute change, by which axes can be ranked.  ``spread`` is over the pairs of all ``changes``,
    those of most pairs first.
    """

    axis: str
    absolute: float
    spread: Spread
    changes: tuple[ValueChange, ...]


def main_effects(outcomes: Outcomes) -> list[Effect]:
    """The effects of all axes in which two protocols of a run differ alone, the greatest absolute change first.

    Axes that only change together (:func:`choicewise.protocols.between.inseparable`) count as the first of them.
    Two protocols that can't differ (:mod:`choicewise.results.outcomes`) are no pair, and pairs of the same two kinds
    count once.  Raises UsageError where no two protocols are a pair.
    """
    outcomes = outcomes.shares
    known = {each.name: influence(each) for each in outcomes.outcomes}
    values = {name: each.value for name, each in known.items()}
    by_values: dict[tuple[Axis, ...], list[Pair]] = {}
    for left, right in _pairs(outcomes.outcomes, values):
        axes = axes_between(left.protocol, right.protocol)
        _, credits, _ = aligned([known[left.name], known[right.name]])
        n = int((~np.isnan(credits).any(axis=0)).sum())
        pair = Pair(left.name, right.name, values[right.name] - values[left.name], n)
        by_values.setdefault(axes, []).append(pair)
    if not by_values:
        raise UsageError(
            f"no two protocols of the run of {outcomes.model} differ in one axis alone; add some, such as all of mmlu"
        )
    return sorted(_effects(by_values), key=lambda effect: -effect.absolute)


def order_agreement(values: Floats) -> Floats:
    """Kendall's τ-b between every two columns, float64 [columns, columns].

    ``values``: float64 [columns, rows], NaN where there is none; a pair of columns is compared over the rows that both
    have, and is NaN where one of them has all of these equal, or there are fewer than two.
    """
    columns, rows = values.shape
    left, right = np.triu_indices(rows, 1)
    places = ranks(values)
    known = ((places[:, left] > 0) & (places[:, right] > 0)).astype(np.float64)
    signs = np.sign(places[:, right] - places[:, left]) * known
    untied = (signs**2) @ known.T
    with np.errstate(invalid="ignore", divide="ignore"):
        agreement = np.where(
            untied * untied.T > 0, signs @ signs.T / np.sqrt(untied * untied.T), np.nan
        )
    return np.asarray(np.clip(agreement, -1, 1), dtype=np.float64).reshape(columns, columns)


def seriated(values: Floats, first: int | None = None) -> list[int]:
    """The columns in an order that puts those next to each other that order the rows alike; the same every time.

    ``values`` as in :func:`order_agreement`.  From one column it goes to the nearest that is left, then turns stretches
    round as long as that makes the way shorter.  It begins with the column ``first``, or with that end of the way that
    agrees better with all columns.
    """
    if not len(values):
        return []
    distances = _distances(values)
    way = [int(distances.sum(axis=1).argmin()) if first is None else first]
    left = [place for place in range(len(values)) if place != way[0]]
    while left:
        nearest = min(left, key=lambda place: float(distances[way[-1], place]))
        way.append(nearest)
        left.remove(nearest)
    _untangle(way, distances, 0 if first is None else 1)
    far = distances.sum(axis=1)
    return way[::-1] if first is None and (far[way[-1]], way[-1]) < (far[way[0]], way[0]) else way


_Pair = tuple[Outcome, Outcome]
"""A step of a way."""


def _turn(axes: Axes, early: Sequence[_Pair], late: Sequence[_Pair]) -> Turn:
    known = [influence(node) for pair in (*early, *late) for node in pair]
    _, _, each = aligned(known)
    sign = np.array([-1.0, 1.0] * len(early) + [1.0, -1.0] * len(late))
    values = np.array([node.value for node in known]) * sign
    in_order, in_reverse = (
        float(values[: 2 * len(early)].sum()),
        -float(values[2 * len(early) :].sum()),
    )
    difference, se = in_order - in_reverse, error(sign @ each)
    differ = abs(difference) > (EXACT if math.isnan(se) else two_sided(LEVEL) * se)
    return Turn(
        axes=axes,
        in_order=in_order,
        in_reverse=in_reverse,
        difference=difference,
        se=se,
        differ=differ,
    )


def _joined(steps: Sequence[Axes]) -> list[Axes]:
    """Sets of axes so large that each step is within one of them, in the order of their first steps."""
    sets: list[dict[str, None]] = []
    for step in steps:
        touched = [axes for axes in sets if axes.keys() & set(step)]
        merged = {axis: None for axes in touched for axis in axes} | dict.fromkeys(step)
        place = next((place for place, axes in enumerate(sets) if axes in touched), len(sets))
        sets = [axes for axes in sets if axes not in touched]
        sets.insert(place, merged)
    return [tuple(axes) for axes in sets]


_Node = tuple[Outcome, Influence]
"""A protocol's outcome, and how its value depends on the items."""


def _over(nodes: Sequence[Outcome], outcomes: Outcomes) -> Ladder:
    """The ladder over ``nodes``, in this order, some of ``outcomes``; the first and last are its ends."""
    known = [(each, influence(each)) for each in nodes]
    return _ladder(outcomes, known[0], known[-1], tuple(_step(*pair) for pair in pairwise(known)))


def _ladder(outcomes: Outcomes, start: _Node, end: _Node, steps: tuple[Step, ...]) -> Ladder:
    (one, first), (other, last) = start, end
    return Ladder(
        model=outcomes.model,
        dataset=outcomes.dataset,
        start=one.name,
        end=other.name,
        start_value=first.value,
        end_value=last.value,
        start_n=first.n,
        end_n=last.n,
        steps=steps,
        metric=one.protocol.metric,
    )


def _step(start: _Node, end: _Node) -> Step:
    (left, one), (right, other) = start, end
    ids, credit, each = aligned([one, other])
    scored = ~np.isnan(credit)
    both = scored.all(axis=0)
    gained, lost = credit[1] > credit[0], credit[1] < credit[0]
    if not METRICS[right.protocol.metric].credited:
        gained, lost = lost, gained
    axes = axes_between(left.protocol, right.protocol)
    return Step(
        axes=axes,
        together=len(axes) > 1 and inseparable(left.protocol, right.protocol),
        name=right.name,
        signature=signature(right.protocol),
        value=other.value,
        change=other.value - one.value,
        se=error(each[1] - each[0]),
        n=int(both.sum()),
        missing=int(scored.any(axis=0).sum() - both.sum()),
        gained=int(gained.sum()),
        lost=int(lost.sum()),
        gained_items=_first(ids, gained),
        lost_items=_first(ids, lost),
    )


def _first(ids: pa.ChunkedArray, among: Mask) -> tuple[str, ...]:
    return tuple(ids.take(pa.array(np.flatnonzero(among)[:EXAMPLES])).to_pylist())


def _named(outcomes: Outcomes, name: str) -> Outcome:
    names: Mapping[str, Outcome] = {each.name: each for each in outcomes.outcomes}
    if name not in names:
        raise UsageError(
            f"the run of {outcomes.model} has no protocol {name!r}; {did_you_mean(name, list(names))}"
        )
    return names[name]


def _followed(after: Integers, start: int, end: int) -> list[int]:
    chain = [start]
    while chain[-1] != end:
        chain.append(int(after[chain[-1], end]))
    return chain


def _differing(protocols: Sequence[Protocol]) -> Mask:
    """Whether two protocols differ in an axis, bool [protocols, protocols, axes]."""
    numbers: list[dict[object, int]] = [{} for _ in AXES]
    codes = np.array(
        [
            [
                known.setdefault(getattr(each, name), len(known))
                for name, known in zip(AXES, numbers, strict=True)
            ]
            for each in protocols
        ]
    ).reshape(len(protocols), len(AXES))
    return np.asarray(codes[:, None] != codes[None], dtype=np.bool_)


def _order(differing: Mask) -> Integers:
    """A number per pair of protocols, lower where their differing axes come first; int64 [protocols, protocols]."""
    sets, number = np.unique(
        differing.reshape(-1, differing.shape[-1]), axis=0, return_inverse=True
    )
    ordered = sorted(range(len(sets)), key=lambda place: np.flatnonzero(sets[place]).tolist())
    rank = np.empty(len(sets), dtype=np.int64)
    rank[ordered] = np.arange(len(sets))
    return rank[number].reshape(differing.shape[:2])


_ALLOWED = {axis.name: axis.metadata["allowed"] for axis in fields(Protocol)}


def _effects(by_values: Mapping[tuple[Axis, ...], Sequence[Pair]]) -> Iterable[Effect]:
    for axis in dict.fromkeys(axes[0].axis for axes in by_values):
        own = {axes: pairs for axes, pairs in by_values.items() if axes[0].axis == axis}
        changes = [ValueChange(axes, _spread(pairs), tuple(pairs)) for axes, pairs in own.items()]
        every = [pair for pairs in own.values() for pair in pairs]
        absolute = float(np.mean([abs(pair.change) for pair in every]))
        yield Effect(
            axis,
            absolute,
            _spread(every),
            tuple(sorted(changes, key=lambda each: -each.spread.pairs)),
        )


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


def _pairs(
    outcomes: Sequence[Outcome], values: Mapping[str, float]
) -> Iterable[tuple[Outcome, Outcome]]:
    """Two measured protocols that differ in one axis, or in some that only change together, in its direction."""
    measured = [each for each in outcomes if not math.isnan(values[each.name])]
    run = [each.protocol for each in measured]
    seen: set[tuple[Axes, frozenset[str]]] = set()
    for pair in combinations(measured, 2):
        axes = differing(*(each.protocol for each in pair))
        kinds = frozenset(each.first for each in pair)
        if len(kinds) < 2 or (axes, kinds) in seen:
            continue
        if len(axes) == 1 or inseparable(*(each.protocol for each in pair)):
            seen.add((axes, kinds))
            one, other = (each.protocol for each in pair)
            yield pair if _in_order(axes[0], one, other, run) else (pair[1], pair[0])


def _in_order(axis: str, left: Protocol, right: Protocol, run: Sequence[Protocol]) -> bool:
    """Whether the left value of ``axis`` comes first: as declared, no number before numbers, as the run has them."""
    one, other = getattr(left, axis), getattr(right, axis)
    if one in _ALLOWED[axis] and other in _ALLOWED[axis]:
        return bool(_ALLOWED[axis].index(one) < _ALLOWED[axis].index(other))
    if isinstance(one, int | None) and isinstance(other, int | None):
        return (one is not None, one or 0) < (other is not None, other or 0)
    return next(value for each in run if (value := getattr(each, axis)) in (one, other)) == one


_VALUES = 0.05
"""What a difference of values weighs beside one of orders: it decides only between columns of the same order."""


def _distances(values: Floats) -> Floats:
    """0 for the same order and values, about 1 for the reversed order; one that is not known counts as halfway."""
    agreement = np.nan_to_num(order_agreement(values), nan=0.0)
    filled = np.nan_to_num(values, nan=0.0)
    distance = (
        np.abs(filled[:, None, :] - filled[None, :, :]).mean(axis=2) if values.shape[1] else 0.0
    )
    return np.asarray((1 - agreement) / 2 + _VALUES * distance)


def _untangle(way: list[int], distances: Floats, fixed: int) -> None:
    """Turn stretches round (2-opt) while the way becomes shorter; its first ``fixed`` columns stay."""
    shorter = True
    while shorter:
        shorter = False
        for start in range(fixed, len(way) - 1):
            for stop in range(start + 2, len(way) + 1):
                turned = straight = 0.0
                if start:
                    turned += distances[way[start - 1], way[stop - 1]]
                    straight += distances[way[start - 1], way[start]]
                if stop < len(way):
                    turned += distances[way[start], way[stop]]
                    straight += distances[way[stop - 1], way[stop]]
                if turned < straight - 1e-12:
                    way[start:stop] = reversed(way[start:stop])
                    shorter = True
