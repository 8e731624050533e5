"""The ladder of a run in both directions: what an axis changes when it changes early, and when it changes late."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from choicewise.protocols.between import End, protocols_between
from choicewise.protocols.path import Axes, differing
from choicewise.protocols.protocol import Protocol
from choicewise.results.chains import between
from choicewise.results.influence import aligned, error, influence
from choicewise.results.ladder import Ladder, chain, over
from choicewise.results.outcome import Outcome, OutcomeKeeper
from choicewise.results.run import Run
from choicewise.scoring.statistics.quantile import two_sided

LEVEL = 0.95
"""Two changes differ where the interval of this level around their difference leaves out 0."""

EXACT = 1e-9
"""Where no item shows how a difference varies, only rounding keeps it from 0."""

_Pair = tuple[Outcome, Outcome]
"""A step of a way."""


@dataclass(frozen=True, slots=True)
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
        sets = (tuple(axis.axis for axis in step.axes) for step in steps if len(step.axes) > 1 and not step.together)
        return tuple(dict.fromkeys(sets))


def both_ways(run: Run, start: End, end: End, names: Mapping[Protocol, str]) -> BothWays:
    """The ladder of ``run`` over all protocols between the two that it asked; ``names``: as in :func:`~.between.way`.

    Raises UsageError when the two are the same, or when the run did not ask one of them
    (:meth:`choicewise.results.run.Run.under`).
    """
    ends = run.on_its_split({start.name: start.protocol, end.name: end.protocol})
    named = run.on_its_split(protocols_between(start, end, names)) | run.protocols | ends
    lacking = run.lacking({name: protocol for name, protocol in named.items() if name not in ends})
    known = {protocol: name for name, protocol in named.items() if name not in lacking}
    known |= {protocol: name for name, protocol in (run.protocols | ends).items()}  # rather than by another name
    inside = set(between([*known], *ends.values()) if len(set(ends.values())) > 1 else ())
    chosen = ends | {name: protocol for place, (protocol, name) in enumerate(known.items()) if place in inside}
    outcomes = OutcomeKeeper().keep(run.under(chosen))
    there, back = chain(outcomes, start.name, end.name), chain(outcomes, end.name, start.name)[::-1]
    return BothWays(over(there, outcomes), over(back, outcomes), turns(there, back))


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


def _turn(axes: Axes, early: Sequence[_Pair], late: Sequence[_Pair]) -> Turn:
    known = [influence(node) for pair in (*early, *late) for node in pair]
    _, _, each = aligned(known)
    sign = np.array([-1.0, 1.0] * len(early) + [1.0, -1.0] * len(late))
    values = np.array([node.value for node in known]) * sign
    in_order, in_reverse = float(values[: 2 * len(early)].sum()), -float(values[2 * len(early) :].sum())
    difference, se = in_order - in_reverse, error(sign @ each)
    differ = abs(difference) > (EXACT if math.isnan(se) else two_sided(LEVEL) * se)
    return Turn(axes, in_order, in_reverse, difference, se, differ)


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
