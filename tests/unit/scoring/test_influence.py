"""Values, their errors and those of their differences, against loops over items and against drawing items again."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from choicewise.protocols.catalogue import resolve
from choicewise.results.outcomes import aligned, error, influence
from choicewise.scoring.decide import Decisions
from choicewise.scoring.intervals import macro, micro
from choicewise.scoring.significance import paired_difference
from tests.helpers.outcomes import outcome

PROTOCOLS = {"micro": resolve("mmlu/original")["mmlu/original"]}
PROTOCOLS["macro"] = replace(PROTOCOLS["micro"], aggregation="macro")
MICRO, MACRO = PROTOCOLS.values()
CREDITS = st.sampled_from([0.0, 1.0, 0.5, 1 / 3, math.nan])
ITEMS = st.lists(st.tuples(CREDITS, CREDITS, st.sampled_from("abc")), min_size=1, max_size=30)
Items = list[tuple[float, float, str]]


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


@given(ITEMS)
def test_values_and_errors_are_those_of_reports(items: Items) -> None:
    credit, _, subjects = zip(*items, strict=True)
    decisions = Decisions.uncompared(np.zeros(len(credit), dtype=np.int64), np.array(credit))
    for protocol, value in ((MICRO, micro(decisions)), (MACRO, macro(decisions, subjects))):
        known = influence(outcome(protocol, credit, subjects))
        assert (known.value, known.n) == (pytest.approx(value.value, nan_ok=True), value.n)
        if not math.isnan(value.se):
            assert math.sqrt((known.each(protocol is MACRO) ** 2).sum()) == pytest.approx(value.se, abs=1e-12)


@given(ITEMS)
def test_the_influence_of_every_item_is_that_of_a_loop(items: Items) -> None:
    more = [(credit, subject) for credit, _, subject in items]
    more += [(credit, subject) for subject in "abc" for credit in (0.0, 1.0)]  # none is alone
    credit, subjects = zip(*more, strict=True)
    value, each = plain(list(credit), list(subjects))
    known = influence(outcome(MACRO, credit, subjects))
    assert (known.value, known.each(within=True).tolist()) == (pytest.approx(value), pytest.approx(each))


@given(ITEMS)
def test_the_error_of_a_difference_is_the_paired_one(items: Items) -> None:
    left, right, _ = (np.array(column) for column in zip(*items, strict=True))
    unpaired = np.isnan(left) | np.isnan(right)
    left[unpaired] = right[unpaired] = np.nan
    pair = paired_difference(right, left)
    one, other = (influence(outcome(MICRO, each)) for each in (left, right))
    assert other.value - one.value == pytest.approx(pair.value, nan_ok=True)
    _, _, each = aligned([one, other])
    assert error(each[1] - each[0]) == pytest.approx(pair.se, nan_ok=True)


@pytest.mark.parametrize("aggregations", [("micro", "macro"), ("macro", "macro"), ("micro", "micro")])
@pytest.mark.parametrize("missing", [0.0, 0.1])
def test_the_error_of_a_difference_is_what_drawing_items_again_shows(
    aggregations: tuple[str, str], missing: float
) -> None:
    """All items drawn one by one, or those of each subject where one value is a mean of the subjects'."""
    random = np.random.default_rng(3)
    subjects = random.choice(["a", "b", "c"], p=[0.2, 0.3, 0.5], size=600)
    chance = {"a": 0.3, "b": 0.6, "c": 0.8}
    left = (random.random(600) < [chance[subject] for subject in subjects]).astype(float)
    right = np.where(random.random(600) < 0.3, random.choice([0.0, 1.0, 0.5], size=600), left)
    right[random.random(600) < missing] = np.nan
    sides = [(PROTOCOLS[name], credit) for name, credit in zip(aggregations, (left, right), strict=True)]
    one, other = (influence(outcome(protocol, credit, subjects.tolist())) for protocol, credit in sides)
    _, _, each = aligned([one, other])

    groups = [np.flatnonzero(subjects == subject) for subject in "abc"]
    drawn_from = groups if "macro" in aggregations else [np.arange(600)]
    draws = np.concatenate([random.choice(own, size=(4000, len(own))) for own in drawn_from], axis=1)

    def values(aggregation: str, credit: np.ndarray) -> np.ndarray:
        """The value of every draw, by its definition."""
        if aggregation == "micro":
            return np.nanmean(credit[draws], axis=1)
        return np.mean(
            [np.nanmean(np.where(subjects[draws] == own, credit[draws], np.nan), axis=1) for own in "abc"], axis=0
        )

    drawn = values(aggregations[1], right) - values(aggregations[0], left)
    assert other.value - one.value == pytest.approx(drawn.mean(), abs=0.002)
    assert error(each[1] - each[0]) == pytest.approx(drawn.std(), rel=0.06)


def test_subjects_with_one_item_vary_as_they_differ() -> None:
    known = influence(outcome(MACRO, [1.0, 0.0, 1.0, 1.0, 0.0], ["a", "b", "c", "d", "d"]))
    assert known.value == pytest.approx((1 + 0 + 1 + 0.5) / 4)
    assert known.each(within=True)[:3] == pytest.approx((np.array([1.0, 0.0, 1.0]) - 2 / 3) / 4 * math.sqrt(3 / 2))
    (first, *_) = influence(outcome(MACRO, [1.0, 0.0, 1.0], ["a", "b", "b"])).each(within=True)
    assert first == pytest.approx((1 - 2 / 3) / 2)


def test_means_over_items_and_over_equal_subjects_are_the_same_number() -> None:
    one, other = (influence(outcome(each, [1.0, 0.0, 1.0, 1.0], ["a", "a", "b", "b"])) for each in (MICRO, MACRO))
    _, _, each = aligned([one, other])
    assert one.value == other.value
    assert math.isnan(error(each[1] - each[0]))


def test_what_does_not_vary_has_no_error() -> None:
    for credit in ([1.0, 1.0, 1.0], [1.0]):
        assert math.isnan(error(influence(outcome(MICRO, credit)).each(within=False)))
    nothing = influence(outcome(MICRO, [math.nan, math.nan]))
    assert math.isnan(nothing.value)
    assert nothing.n == 0


def test_items_that_only_one_side_knows_are_missing_on_the_other() -> None:
    named = {"xyz": [1.0, 0.0, 1.0], "zw": [0.0, 1.0]}
    sides = [influence(outcome(MICRO, credit, ids=[*ids])) for ids, credit in named.items()]
    ids, credit, each = aligned(sides)
    assert ids.to_pylist() == ["x", "y", "z", "w"]
    assert np.isnan(credit).tolist() == [[False, False, False, True], [True, True, False, False]]
    assert each[1].tolist() == pytest.approx([0.0, 0.0, *sides[1].each(within=False)])
