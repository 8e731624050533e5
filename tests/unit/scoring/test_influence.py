"""Values, their errors and those of their differences, against loops over items and against drawing items again."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from choicewise.protocols.catalogue import resolve
from choicewise.results.outcomes import Influence, aligned, error, influence
from choicewise.scoring.decide import Decisions
from choicewise.scoring.intervals import macro, micro
from choicewise.scoring.significance import paired_difference
from tests.helpers.outcomes import outcome

MICRO = resolve("mmlu/original")["mmlu/original"]
MACRO = replace(MICRO, aggregation="macro")
CREDITS = st.sampled_from([0.0, 1.0, 0.5, 1 / 3, math.nan])
ITEMS = st.lists(st.tuples(CREDITS, CREDITS, st.sampled_from("abc")), min_size=1, max_size=30)


def plain(credit: list[float], subjects: list[str]) -> tuple[float, list[float]]:
    """The mean of the subjects' means, and every item's influence, item by item; each subject has two or more."""
    scored = [place for place, each in enumerate(credit) if not math.isnan(each)]
    own = {subject: [place for place in scored if subjects[place] == subject] for subject in subjects}
    own = {subject: places for subject, places in own.items() if places}
    means = {subject: sum(credit[place] for place in places) / len(places) for subject, places in own.items()}
    each = [0.0] * len(credit)
    for subject, places in own.items():
        n = len(places)
        for place in places:
            each[place] = (credit[place] - means[subject]) / (len(own) * n) * math.sqrt(n / (n - 1))
    return sum(means.values()) / len(own), each


@settings(deadline=None)
@given(ITEMS)
def test_values_and_errors_are_those_of_reports(items: list[tuple[float, float, str]]) -> None:
    credit, _, subjects = zip(*items, strict=True)
    decisions = Decisions.uncompared(np.zeros(len(credit), dtype=np.int64), np.array(credit))
    for protocol, value in ((MICRO, micro(decisions)), (MACRO, macro(decisions, subjects))):
        known = influence(outcome(protocol, credit, subjects))
        assert known.value == pytest.approx(value.value, nan_ok=True)
        assert known.n == value.n
        if not math.isnan(value.se):
            assert math.sqrt((known.each(protocol is MACRO) ** 2).sum()) == pytest.approx(value.se, abs=1e-12)


@settings(deadline=None)
@given(ITEMS)
def test_the_influence_of_every_item_is_that_of_a_loop(items: list[tuple[float, float, str]]) -> None:
    more = [(credit, subject) for credit, _, subject in items]
    more += [(credit, subject) for subject in "abc" for credit in (0.0, 1.0)]  # none is alone
    credit, subjects = zip(*more, strict=True)
    value, each = plain(list(credit), list(subjects))
    known = influence(outcome(MACRO, credit, subjects))
    assert known.value == pytest.approx(value)
    assert known.each(within=True).tolist() == pytest.approx(each)


@settings(deadline=None)
@given(ITEMS)
def test_the_error_of_a_difference_is_the_paired_one(items: list[tuple[float, float, str]]) -> None:
    left, right, _ = (np.array(column) for column in zip(*items, strict=True))
    left, right = left.astype(float), right.astype(float)
    both = ~(np.isnan(left) | np.isnan(right))
    left[~both] = right[~both] = np.nan
    pair = paired_difference(right, left)
    one, other = (influence(outcome(MICRO, each)) for each in (left, right))
    assert other.value - one.value == pytest.approx(pair.value, nan_ok=True)
    _, _, each = aligned([one, other])
    assert error(each[1] - each[0]) == pytest.approx(pair.se, nan_ok=True)


@pytest.mark.costly("many random draws")
@pytest.mark.parametrize("aggregations", [("micro", "macro"), ("macro", "macro"), ("micro", "micro")])
@pytest.mark.parametrize("missing", [0.0, 0.1])
def test_the_error_of_a_difference_is_what_drawing_items_again_shows(
    aggregations: tuple[str, str], missing: float
) -> None:
    random = np.random.default_rng(3)
    subjects = random.choice(["a", "b", "c"], p=[0.2, 0.3, 0.5], size=600)
    chance = {"a": 0.3, "b": 0.6, "c": 0.8}
    left = (random.random(600) < [chance[subject] for subject in subjects]).astype(float)
    right = np.where(random.random(600) < 0.3, random.choice([0.0, 1.0, 0.5], size=600), left)
    right[random.random(600) < missing] = np.nan
    protocols = [replace(MICRO, aggregation=name) for name in aggregations]

    def difference(places: np.ndarray) -> tuple[float, float]:
        own = subjects[places].tolist()
        sides = zip(protocols, (left, right), strict=True)
        one, other = (influence(outcome(protocol, credit[places], own)) for protocol, credit in sides)
        _, _, each = aligned([one, other])
        return other.value - one.value, error(each[1] - each[0])

    def drawn_again() -> np.ndarray:
        """All items drawn one by one, or those of each subject where one value is a mean of the subjects'."""
        own = (
            [np.flatnonzero(subjects == subject) for subject in "abc"] if "macro" in aggregations else [np.arange(600)]
        )
        return np.concatenate([random.choice(places, size=len(places)) for places in own])

    drawn = [difference(drawn_again())[0] for _ in range(1500)]
    assert difference(np.arange(600))[1] == pytest.approx(np.std(drawn), rel=0.08)


def test_subjects_with_one_item_vary_as_they_differ() -> None:
    credit, subjects = [1.0, 0.0, 1.0, 1.0, 0.0], ["a", "b", "c", "d", "d"]
    known = influence(outcome(MACRO, credit, subjects))
    assert known.value == pytest.approx((1 + 0 + 1 + 0.5) / 4)
    alone = (np.array([1.0, 0.0, 1.0]) - 2 / 3) / 4 * math.sqrt(3 / 2)
    assert known.each(within=True)[:3] == pytest.approx(alone)
    (first, *_) = influence(outcome(MACRO, [1.0, 0.0, 1.0], ["a", "b", "b"])).each(within=True)
    assert first == pytest.approx((1 - 2 / 3) / 2)


def test_means_over_items_and_over_equal_subjects_are_the_same_number() -> None:
    credit, subjects = [1.0, 0.0, 1.0, 1.0], ["a", "a", "b", "b"]
    one, other = (influence(outcome(protocol, credit, subjects)) for protocol in (MICRO, MACRO))
    _, _, each = aligned([one, other])
    assert one.value == other.value
    assert math.isnan(error(each[1] - each[0]))


def test_what_does_not_vary_has_no_error() -> None:
    known = influence(outcome(MICRO, [1.0, 1.0, 1.0]))
    assert math.isnan(error(known.each(within=False)))
    assert math.isnan(error(influence(outcome(MICRO, [1.0])).each(within=False)))
    nothing = influence(outcome(MICRO, [math.nan, math.nan]))
    assert math.isnan(nothing.value)
    assert nothing.n == 0


def test_items_that_only_one_side_knows_are_missing_on_the_other() -> None:
    sides: list[Influence] = [
        influence(outcome(MICRO, [1.0, 0.0, 1.0], ids=["x", "y", "z"])),
        influence(outcome(MICRO, [0.0, 1.0], ids=["z", "w"])),
    ]
    ids, credit, each = aligned(sides)
    assert ids.to_pylist() == ["x", "y", "z", "w"]
    assert np.isnan(credit).tolist() == [[False, False, False, True], [True, True, False, False]]
    assert each[1].tolist() == pytest.approx([0.0, 0.0, *sides[1].each(within=False)])
