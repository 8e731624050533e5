"""Effects of single axes, against trying all pairs of protocols."""

from __future__ import annotations

import math
from dataclasses import replace
from statistics import mean, stdev

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from choicewise.errors import UsageError
from choicewise.protocols.between import differing
from choicewise.protocols.catalogue import resolve
from choicewise.protocols.protocol import Protocol
from choicewise.results.ladder import main_effects
from tests.helpers.outcomes import outcome, outcomes

BASE = resolve("mmlu/cloze:sum")["mmlu/cloze:sum"]
VALUES = {"shots": (0, 1, 5), "ties": ("first", "split", "wrong"), "header": ("b", "a")}
PROTOCOLS = st.builds(
    lambda **axes: replace(BASE, shot_split="dev", sampler="first", **axes),
    **{name: st.sampled_from(values) for name, values in VALUES.items()},
)


@pytest.mark.costly("runs are evaluated and compared")
@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(PROTOCOLS, st.integers(0, 4)), min_size=2, max_size=8, unique_by=lambda each: each[0]))
def test_effects_are_those_of_all_pairs_that_differ_in_one_axis(chosen: list[tuple[Protocol, int]]) -> None:
    credits = [[1.0] * right + [0.0] * (4 - right) for _, right in chosen]
    members = [
        outcome(each, credit, name=str(place))
        for place, ((each, _), credit) in enumerate(zip(chosen, credits, strict=True))
    ]
    changes: dict[str, list[float]] = {}
    for place, (left, right) in enumerate(chosen):
        for other, more in chosen[place + 1 :]:
            axes = differing(left, other)
            if len(axes) == 1:
                axis = axes[0]
                first, second = getattr(left, axis), getattr(other, axis)
                values = VALUES[axis] if axis != "header" else [each.header for each, _ in chosen]
                turned = values.index(first) > values.index(second)
                changes.setdefault(axis, []).append((right - more if turned else more - right) / 4)
    if not changes:
        with pytest.raises(UsageError, match="no two protocols"):
            main_effects(outcomes(*members))
        return
    effects = main_effects(outcomes(*members))
    assert {effect.axis for effect in effects} == set(changes)
    sizes = [effect.absolute for effect in effects]
    assert sizes == sorted(sizes, reverse=True)
    for effect in effects:
        own = changes[effect.axis]
        assert effect.absolute == pytest.approx(mean(map(abs, own)))
        assert effect.spread.pairs == len(own) == sum(each.spread.pairs for each in effect.changes)
        assert effect.spread.mean == pytest.approx(mean(own))
        assert (effect.spread.low, effect.spread.high) == (min(own), max(own))
        assert effect.spread.sd == pytest.approx(stdev(own) if len(own) > 1 else math.nan, nan_ok=True)
        assert all(pair.n == 4 for change in effect.changes for pair in change.pairs)


def test_axes_that_only_change_together_count_as_the_first_of_them() -> None:
    pmi = replace(BASE, score="pmi", null="")
    (effect,) = main_effects(outcomes(outcome(pmi, [1.0, 0.0], name="pmi"), outcome(BASE, [0.0, 0.0], name="sum")))
    assert effect.axis == "score"
    (change,) = effect.changes
    assert [(axis.axis, axis.left, axis.right) for axis in change.axes] == [("score", "sum", "pmi"), ("null", "-", "")]
    assert [(pair.start, pair.end, pair.change) for pair in change.pairs] == [("sum", "pmi", 0.5)]


def test_axes_that_can_change_alone_are_no_pair() -> None:
    both = replace(BASE, ties="split", aggregation="micro")
    with pytest.raises(UsageError, match="no two protocols of the run of model differ in one axis alone"):
        main_effects(outcomes(outcome(BASE, [1.0]), outcome(both, [1.0], name="other")))


def test_protocols_that_cant_differ_count_once() -> None:
    scores = ("sum", "byte_mean", "char_mean", "token_mean")
    protocols = [replace(BASE, score=score) for score in scores]
    members = [outcome(each, [1.0, 0.0], name=each.score) for each in protocols]
    (every,) = main_effects(outcomes(*members))
    members[2] = replace(members[2], first=members[1].first)
    (alone,) = main_effects(outcomes(*members))
    assert (alone.spread.pairs, every.spread.pairs) == (3, 6)
    assert "char_mean" not in {name for each in alone.changes for pair in each.pairs for name in (pair.start, pair.end)}


def test_what_was_not_measured_has_no_effect() -> None:
    members = (outcome(BASE, [1.0]), outcome(replace(BASE, ties="split"), [math.nan], name="nothing"))
    with pytest.raises(UsageError, match="no two protocols"):
        main_effects(outcomes(*members))
