"""Protocols that can't differ on what was asked, so that they are one vote and one test.

Two kinds, both seen in what was observed and not in how the numbers came out:

- Of the same observations they make scores that are the same within every item but for a positive factor or a term that
  all its choices have, and decide by the greatest: means over bytes and over characters where the texts are ASCII, sum
  and mean over tokens where all choices have as many.
- By the same rules they score the same tokens after the same context, in another way of computing: a forward pass and
  the model's own loss.  Their numbers differ by rounding.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import fields
from typing import TypeVar

import numpy as np

from choicewise.protocols.boundary import CORRECTED
from choicewise.protocols.protocol import Protocol
from choicewise.protocols.readings import READINGS
from choicewise.results.measurement import Measurement
from choicewise.scoring.continuations import Continuations
from choicewise.scoring.ragged import Floats, Integers, reduce_rows
from choicewise.scoring.readings import combiner

COMPUTING = frozenset({"benchmark", "bos", "boundary", "reading", "metric", "aggregation", "rev"})
"""Axes that don't matter where the tokens scored, and how many come before them, are the same."""

ROUNDING = 1e-9
"""Relative difference of float64 scores that are computed of the same numbers in different order."""

Key = TypeVar("Key", bound=Hashable)


def alike(runs: Sequence[Mapping[Key, Measurement]]) -> list[list[Key]]:
    """The keys that all ``runs`` have, in the order of the first, those together that can't differ in any of them."""
    firsts = [_firsts(measured) for measured in runs]
    groups: dict[tuple[Key, ...], list[Key]] = {}
    for key in runs[0]:
        if all(key in first for first in firsts):
            groups.setdefault(tuple(first[key] for first in firsts), []).append(key)
    return list(groups.values())


def _firsts(measured: Mapping[Key, Measurement]) -> dict[Key, Key]:
    """For every key the first one that it can't differ from, or itself."""
    firsts: dict[Key, Key] = {}
    for key, each in measured.items():
        kept = dict.fromkeys(firsts.values())
        firsts[key] = next((first for first in kept if can_not_differ(measured[first], each)), key)
    return firsts


def can_not_differ(left: Measurement, right: Measurement) -> bool:
    """Whether two measurements of a run are the same by construction."""
    if left.protocol.prompt_digest == right.protocol.prompt_digest:
        return _same_order(left, right)
    return _same_rules(left.protocol, right.protocol) and _same_tokens(left, right)


def _same_order(left: Measurement, right: Measurement) -> bool:
    one, other, offsets = left.scores, right.scores, left.evidence.item_offsets
    if one is None or other is None or {left.protocol.decision, right.protocol.decision} != {"argmax"}:
        return False
    if not np.array_equal(left.decisions.credit, right.decisions.credit, equal_nan=True):  # the tie rules may differ
        return False
    infinite, others = (np.where(np.isfinite(scores), 0.0, scores) for scores in (one, other))
    if not np.array_equal(infinite, others, equal_nan=True):
        return False
    with np.errstate(invalid="ignore", divide="ignore"):  # NaN, which is left out: infinities, and 0 / 0
        factor, term = other / one, other - one
    positive = (factor > 0) & (factor < np.inf) | np.isnan(factor)
    by_factor = bool(positive.all()) and _constant(factor, factor, offsets)
    return by_factor or _constant(term, np.where(np.isinf(one), np.nan, one), offsets)


def _constant(values: Floats, scale: Floats, offsets: Integers) -> bool:
    """Whether ``values`` [rows] are the same within every item, but for rounding of numbers as large as ``scale``."""
    most, least, size = (
        reduce_rows(ufunc, each, offsets)
        for ufunc, each in ((np.fmax, values), (np.fmin, values), (np.fmax, np.abs(scale)))
    )
    return not (most - least > ROUNDING * size).any()


def _same_rules(left: Protocol, right: Protocol) -> bool:
    axes = (axis.name for axis in fields(Protocol) if axis.name not in COMPUTING)
    corrected = {left.boundary, right.boundary} & set(CORRECTED)
    renormalised = {READINGS[each.reading].renormalised for each in (left, right)}
    same = all(getattr(left, axis) == getattr(right, axis) for axis in axes)
    return same and len(renormalised) == 1 and (left.boundary == right.boundary or not corrected)


def _same_tokens(left: Measurement, right: Measurement) -> bool:
    one, other, null = left.evidence, right.evidence, left.protocol.null
    if one.ids != other.ids or not np.array_equal(one.context_tokens, other.context_tokens):
        return False
    retrieved = (combiner(each.protocol.reading).retrieved(each.protocol, each.evidence) for each in (left, right))
    return _equal(*retrieved) and (null is None or _equal(one.continuations(null), other.continuations(null)))


def _equal(one: Continuations | None, other: Continuations | None) -> bool:
    """Whether these are the same tokens, all of them known."""
    if one is None or other is None or one.totals is not None or other.totals is not None:
        return False
    same = np.array_equal(one.offsets, other.offsets) and np.array_equal(one.tokens, other.tokens)
    return same and np.array_equal(np.isnan(one.sums), np.isnan(other.sums))
