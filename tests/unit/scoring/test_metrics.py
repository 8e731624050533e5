"""Accuracies by hand, against plain references and on real MMLU subjects, and the errors of differences of values."""

import math
import statistics
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from choicewise import evaluate
from choicewise.data.dataset import Dataset
from choicewise.data.items import Item, mmlu_categories
from choicewise.protocols.catalogue import resolve
from choicewise.protocols.protocol import Protocol
from choicewise.results.outcomes import aligned, influence, influence_error
from choicewise.scoring.decide import Decisions
from choicewise.scoring.intervals import (
    AGGREGATIONS,
    GROUPS,
    Value,
    by_group,
    group_means,
    macro,
    micro,
    wilson,
)
from choicewise.scoring.significance import paired_difference
from tests.helpers.mmlu_data import write_mmlu
from tests.helpers.outcomes import outcome

NAN = math.nan
MMLU = mmlu_categories()
CREDITS = st.lists(
    st.tuples(
        st.sampled_from([0.0, 1.0, 0.5, NAN]), st.booleans(), st.sampled_from(["law", "art", "sea"])
    ),
    max_size=30,
)


def decisions(credit: list[float], tied: list[bool] | None = None) -> Decisions:
    count = len(credit)
    ties, zeros = np.array(tied or [False] * count, dtype=bool), np.zeros(count)
    return Decisions(zeros.astype(np.int64), np.array(credit, dtype=np.float64), ties, zeros)


@given(items=CREDITS)
def test_micro_equals_the_plain_reference(items: list[tuple[float, bool, str]]) -> None:
    scored = [(credit, tied) for credit, tied, _ in items if not math.isnan(credit)]
    credits, tied = [credit for credit, _ in scored], sum(tied for _, tied in scored)
    value = micro(decisions([row[0] for row in items], [row[1] for row in items]))
    assert (value.n, value.missing, value.ties) == (len(scored), len(items) - len(scored), tied)
    if credits:
        assert value.value == pytest.approx(statistics.fmean(credits))
        assert (value.ci_low, value.ci_high) == wilson(value.value, len(credits))
    if len(credits) > 1:
        assert value.se == pytest.approx(statistics.stdev(credits) / math.sqrt(len(credits)))


@given(items=CREDITS)
def test_macro_equals_the_plain_reference(items: list[tuple[float, bool, str]]) -> None:
    subjects = [row[2] for row in items]
    groups = [
        [c for c, _, s in items if s == subject and not math.isnan(c)]
        for subject in dict.fromkeys(subjects)
    ]
    groups = [group for group in groups if group]
    value = macro(decisions([row[0] for row in items]), subjects)
    if not groups:
        return
    assert value.value == pytest.approx(statistics.fmean(map(statistics.fmean, groups)))
    assert 0 <= value.ci_low <= value.value <= value.ci_high <= 1
    assert value.ci_low < value.ci_high
    if all(len(group) > 1 for group in groups):
        variance = sum(statistics.variance(group) / len(group) for group in groups)
        assert value.se == pytest.approx(math.sqrt(variance) / len(groups))
    if len(groups) == 1:
        assert (value.ci_low, value.ci_high) == pytest.approx(
            wilson(value.value, len(groups[0])), abs=1e-9
        )


def test_micro_and_macro_weigh_subjects_differently() -> None:
    decided, subjects = decisions([1, 1, 1, 0, 0, NAN]), ["a", "a", "a", "a", "b", "b"]
    assert micro(decided).value == pytest.approx(3 / 5)
    whole = macro(decided, subjects)
    assert (whole.value, whole.n, whole.missing) == (pytest.approx(3 / 8), 5, 1)
    assert math.isnan(whole.se)  # one item of b says nothing about how b varies


def test_nothing_scored_is_not_a_number_rather_than_zero() -> None:
    for value in (micro(decisions([NAN] * 3)), macro(decisions([NAN] * 3), ["a"] * 3)):
        assert (value.n, value.missing) == (0, 3)
        assert all(map(math.isnan, (value.value, value.se, value.ci_low, value.ci_high)))


def test_by_group_keeps_the_order_of_first_appearance() -> None:
    values = by_group(decisions([1, 0, 1, NAN]), ["b", "a", "b", "c"])
    assert list(values) == ["b", "a", "c"]
    assert [value.value for value in values.values()][:2] == [1.0, 0.0]
    assert (values["c"].n, values["c"].missing) == (0, 1)


@given(items=CREDITS, aggregation=st.sampled_from(sorted(AGGREGATIONS)))
def test_the_means_of_groups_are_those_of_their_rows(
    items: list[tuple[float, bool, str]], aggregation: str
) -> None:
    names = {"law": "business_ethics", "art": "astronomy", "sea": "sea"}
    subjects = [names[row[2]] for row in items]
    decided = decisions([row[0] for row in items])
    rows = AGGREGATIONS[aggregation](decided, subjects, MMLU)
    means = group_means(aggregation, decided.credit, subjects, MMLU)
    np.testing.assert_equal(means, {name: row.value for name, row in rows.items()})


def test_the_tables_of_subjects_partition_mmlu(shared_data: Path) -> None:
    subjects = [
        path.name.removesuffix("_test.csv")
        for path in (shared_data / "mmlu" / "test").glob("*_test.csv")
    ]
    groups = [group for subcategories in MMLU.values() for group in subcategories.values()]
    assert sorted(subject for group in groups for subject in group) == sorted(subjects)
    assert len(subjects) == 57


def test_a_subject_has_a_category_and_a_subcategory() -> None:
    names = [name for subcategories in MMLU.values() for name in subcategories]
    assert (len(MMLU), len(names), len(set(names))) == (4, 17, 17)
    category, subcategory = GROUPS["categories"], GROUPS["subcategories"]
    assert (subcategory("prehistory", MMLU), category("prehistory", MMLU)) == (
        "history",
        "humanities",
    )
    assert (subcategory("piqa", MMLU), category("piqa", MMLU)) == ("other", "other")


def test_a_dataset_has_the_categories_of_its_subjects() -> None:
    items = [
        Item(name, "Q", ("a", "b"), (0,), name)
        for name in ("virology", "piqa", "astronomy", "college_physics")
    ]
    assert Dataset("some", {"test": tuple(items)}).categories == {
        "STEM": {"physics": ["astronomy", "college_physics"]},
        "other": {"health": ["virology"]},
    }
    assert Dataset("none", {"test": tuple(items[1:2])}).categories == {}


def test_aggregations_print_the_rows_of_the_original() -> None:
    subjects = ["virology", "astronomy", "professional_law", "college_physics"]
    rows = {
        name: aggregate(decisions([1, 1, 0, 0]), subjects, MMLU)
        for name, aggregate in AGGREGATIONS.items()
    }
    assert {
        name: {row: value.value for row, value in values.items()} for name, values in rows.items()
    } == {
        "micro": {"all": 0.5},
        "bytes": {"all": 0.5},
        "macro": {"all": 0.5},
        "subjects": {
            "virology": 1.0,
            "astronomy": 1.0,
            "professional_law": 0.0,
            "college_physics": 0.0,
        },
        "categories": {"STEM": 0.5, "humanities": 0.0, "other": 1.0},
        "subcategories": {"physics": 0.5, "law": 0.0, "health": 1.0},
    }
    assert list(rows["subcategories"]) == ["physics", "law", "health"]
    assert all(isinstance(value, Value) for values in rows.values() for value in values.values())
    (rest,) = AGGREGATIONS["subcategories"](decisions([1, 0]), ["tides", "piqa"], {}).items()
    assert (rest[0], rest[1].value) == ("other", 0.5)
    assert set(Protocol.__dataclass_fields__["aggregation"].metadata["allowed"]) <= set(
        AGGREGATIONS
    )


def test_a_run_keeps_the_categories_of_its_dataset(tmp_path: Path) -> None:
    data = write_mmlu(tmp_path / "data", subjects=("astronomy", "tides", "prehistory"), questions=2)
    run = evaluate(model="fake:hash", data=data, protocols=["mmlu/original"], out=tmp_path / "run")
    known = {"STEM": {"physics": ["astronomy"]}, "humanities": {"history": ["prehistory"]}}
    assert run.manifest.dataset.categories == known
    assert [(row.identity.subject, row.counts.n) for row in run.rows("categories")] == [
        ("STEM", 2),
        ("humanities", 2),
        ("other", 2),
    ]
    assert [row.identity.subject for row in run.rows("subcategories")] == [
        "physics",
        "history",
        "other",
    ]


PROTOCOLS = {"micro": resolve("mmlu/original")["mmlu/original"]}
PROTOCOLS["macro"] = replace(PROTOCOLS["micro"], aggregation="macro")
MICRO, MACRO = PROTOCOLS.values()
CREDIT = st.sampled_from([0.0, 1.0, 0.5, 1 / 3, math.nan])
PAIRS = st.lists(st.tuples(CREDIT, CREDIT, st.sampled_from("abc")), min_size=1, max_size=30)
Items = list[tuple[float, float, str]]


def plain(credit: list[float], subjects: list[str]) -> tuple[float, list[float]]:
    """The mean of the subjects' means, and every item's influence, item by item; each subject has two or more."""
    scored = [place for place, each in enumerate(credit) if not math.isnan(each)]
    own = {
        subject: [place for place in scored if subjects[place] == subject] for subject in subjects
    }
    own = {subject: places for subject, places in own.items() if places}
    means = {
        subject: sum(credit[place] for place in places) / len(places)
        for subject, places in own.items()
    }
    each = [0.0] * len(credit)
    for subject, places in own.items():
        n = len(places)
        for place in places:
            each[place] = (credit[place] - means[subject]) / (len(own) * n) * math.sqrt(n / (n - 1))
    return sum(means.values()) / len(own), each


@given(PAIRS)
def test_values_and_errors_are_those_of_reports(items: Items) -> None:
    credit, _, subjects = zip(*items, strict=True)
    decisions = Decisions.uncompared(np.zeros(len(credit), dtype=np.int64), np.array(credit))
    for protocol, value in ((MICRO, micro(decisions)), (MACRO, macro(decisions, subjects))):
        known = influence(outcome(protocol, credit, subjects))
        assert (known.value, known.n) == (pytest.approx(value.value, nan_ok=True), value.n)
        if not math.isnan(value.se):
            assert math.sqrt((known.by_item(protocol is MACRO) ** 2).sum()) == pytest.approx(
                value.se, abs=1e-12
            )


@given(PAIRS)
def test_the_influence_of_every_item_is_that_of_a_loop(items: Items) -> None:
    more = [(credit, subject) for credit, _, subject in items]
    more += [(credit, subject) for subject in "abc" for credit in (0.0, 1.0)]  # none is alone
    credit, subjects = zip(*more, strict=True)
    value, each = plain(list(credit), list(subjects))
    known = influence(outcome(MACRO, credit, subjects))
    assert (known.value, known.by_item(within=True).tolist()) == (
        pytest.approx(value),
        pytest.approx(each),
    )


@given(PAIRS)
def test_the_error_of_a_difference_is_the_paired_one(items: Items) -> None:
    left, right, _ = (np.array(column) for column in zip(*items, strict=True))
    unpaired = np.isnan(left) | np.isnan(right)
    left[unpaired] = right[unpaired] = np.nan
    pair = paired_difference(right, left)
    one, other = (influence(outcome(MICRO, each)) for each in (left, right))
    assert other.value - one.value == pytest.approx(pair.value, nan_ok=True)
    _, _, each = aligned([one, other])
    assert influence_error(each[1] - each[0]) == pytest.approx(pair.se, nan_ok=True)


@pytest.mark.costly("items are drawn again and again")
@pytest.mark.parametrize(
    "aggregations", [("micro", "macro"), ("macro", "macro"), ("micro", "micro")]
)
@pytest.mark.parametrize("missing", [0.0, 0.1])
def test_the_error_of_a_difference_is_that_of_drawing_items_again(
    aggregations: tuple[str, str], missing: float
) -> None:
    """All items drawn one by one, or those of each subject where one value is a mean of the subjects'."""
    random = np.random.default_rng(3)
    subjects = random.choice(["a", "b", "c"], p=[0.2, 0.3, 0.5], size=600)
    chance = {"a": 0.3, "b": 0.6, "c": 0.8}
    left = (random.random(600) < [chance[subject] for subject in subjects]).astype(float)
    right = np.where(random.random(600) < 0.3, random.choice([0.0, 1.0, 0.5], size=600), left)
    right[random.random(600) < missing] = np.nan
    sides = [
        (PROTOCOLS[name], credit) for name, credit in zip(aggregations, (left, right), strict=True)
    ]
    one, other = (
        influence(outcome(protocol, credit, subjects.tolist())) for protocol, credit in sides
    )
    _, _, each = aligned([one, other])

    groups = [np.flatnonzero(subjects == subject) for subject in "abc"]
    drawn_from = groups if "macro" in aggregations else [np.arange(600)]
    draws = np.concatenate(
        [random.choice(own, size=(4000, len(own))) for own in drawn_from], axis=1
    )

    def values(aggregation: str, credit: np.ndarray) -> np.ndarray:
        """The value of every draw, by its definition."""
        if aggregation == "micro":
            return np.nanmean(credit[draws], axis=1)
        own = [np.where(subjects[draws] == subject, credit[draws], np.nan) for subject in "abc"]
        return np.mean(np.nanmean(own, axis=2), axis=0)

    drawn = values(aggregations[1], right) - values(aggregations[0], left)
    assert other.value - one.value == pytest.approx(drawn.mean(), abs=0.002)
    assert influence_error(each[1] - each[0]) == pytest.approx(drawn.std(), rel=0.06)


def test_subjects_with_one_item_vary_as_they_differ() -> None:
    known = influence(outcome(MACRO, [1.0, 0.0, 1.0, 1.0, 0.0], ["a", "b", "c", "d", "d"]))
    assert known.value == pytest.approx((1 + 0 + 1 + 0.5) / 4)
    assert known.by_item(within=True)[:3] == pytest.approx(
        (np.array([1.0, 0.0, 1.0]) - 2 / 3) / 4 * math.sqrt(3 / 2)
    )
    (first, *_) = influence(outcome(MACRO, [1.0, 0.0, 1.0], ["a", "b", "b"])).by_item(within=True)
    assert first == pytest.approx((1 - 2 / 3) / 2)


def test_means_over_items_and_over_equal_subjects_are_the_same_number() -> None:
    one, other = (
        influence(outcome(each, [1.0, 0.0, 1.0, 1.0], ["a", "a", "b", "b"]))
        for each in (MICRO, MACRO)
    )
    _, _, each = aligned([one, other])
    assert one.value == other.value
    assert math.isnan(influence_error(each[1] - each[0]))


def test_what_does_not_vary_has_no_error() -> None:
    for credit in ([1.0, 1.0, 1.0], [1.0]):
        assert math.isnan(influence_error(influence(outcome(MICRO, credit)).by_item(within=False)))
    nothing = influence(outcome(MICRO, [NAN, NAN]))
    assert (math.isnan(nothing.value), nothing.n) == (True, 0)


def test_items_that_only_one_side_knows_are_missing_on_the_other() -> None:
    named = {"xyz": [1.0, 0.0, 1.0], "zw": [0.0, 1.0]}
    sides = [influence(outcome(MICRO, credit, ids=[*ids])) for ids, credit in named.items()]
    ids, credit, each = aligned(sides)
    assert ids.to_pylist() == ["x", "y", "z", "w"]
    assert np.isnan(credit).tolist() == [[False, False, False, True], [True, True, False, False]]
    assert each[1].tolist() == pytest.approx([0.0, 0.0, *sides[1].by_item(within=False)])
