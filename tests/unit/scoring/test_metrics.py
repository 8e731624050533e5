"""Accuracies by hand, against plain references, and on real MMLU subjects."""

import math
import statistics
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from choicewise import evaluate
from choicewise.data.dataset import Dataset
from choicewise.data.items import Item, mmlu_categories
from choicewise.protocols.protocol import Protocol
from choicewise.scoring.decide import Decisions
from choicewise.scoring.intervals import AGGREGATIONS, GROUPS, Value, by_group, macro, micro, wilson
from tests.helpers.mmlu_data import write_mmlu

NAN = math.nan
MMLU = mmlu_categories()
CREDITS = st.lists(
    st.tuples(st.sampled_from([0.0, 1.0, 0.5, NAN]), st.booleans(), st.sampled_from(["law", "art", "sea"])),
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
    groups = [[c for c, _, s in items if s == subject and not math.isnan(c)] for subject in dict.fromkeys(subjects)]
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
        assert (value.ci_low, value.ci_high) == pytest.approx(wilson(value.value, len(groups[0])), abs=1e-9)


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


def test_the_tables_of_subjects_partition_mmlu(shared_data: Path) -> None:
    subjects = [path.name.removesuffix("_test.csv") for path in (shared_data / "mmlu" / "test").glob("*_test.csv")]
    groups = [group for subcategories in MMLU.values() for group in subcategories.values()]
    assert sorted(subject for group in groups for subject in group) == sorted(subjects)
    assert len(subjects) == 57


def test_a_subject_has_a_category_and_a_subcategory() -> None:
    names = [name for subcategories in MMLU.values() for name in subcategories]
    assert (len(MMLU), len(names), len(set(names))) == (4, 17, 17)
    category, subcategory = GROUPS["categories"], GROUPS["subcategories"]
    assert (subcategory("prehistory", MMLU), category("prehistory", MMLU)) == ("history", "humanities")
    assert (subcategory("piqa", MMLU), category("piqa", MMLU)) == ("other", "other")


def test_a_dataset_has_the_categories_of_its_subjects() -> None:
    items = [Item(name, "Q", ("a", "b"), (0,), name) for name in ("virology", "piqa", "astronomy", "college_physics")]
    assert Dataset("some", {"test": tuple(items)}).categories == {
        "STEM": {"physics": ["astronomy", "college_physics"]},
        "other": {"health": ["virology"]},
    }
    assert Dataset("none", {"test": tuple(items[1:2])}).categories == {}


def test_aggregations_print_the_rows_of_the_original() -> None:
    subjects = ["virology", "astronomy", "professional_law", "college_physics"]
    rows = {name: aggregate(decisions([1, 1, 0, 0]), subjects, MMLU) for name, aggregate in AGGREGATIONS.items()}
    assert {name: {row: value.value for row, value in values.items()} for name, values in rows.items()} == {
        "micro": {"all": 0.5},
        "macro": {"all": 0.5},
        "subjects": {"virology": 1.0, "astronomy": 1.0, "professional_law": 0.0, "college_physics": 0.0},
        "categories": {"STEM": 0.5, "humanities": 0.0, "other": 1.0},
        "subcategories": {"physics": 0.5, "law": 0.0, "health": 1.0},
    }
    assert list(rows["subcategories"]) == ["physics", "law", "health"]
    assert all(isinstance(value, Value) for values in rows.values() for value in values.values())
    (rest,) = AGGREGATIONS["subcategories"](decisions([1, 0]), ["tides", "piqa"], {}).items()
    assert (rest[0], rest[1].value) == ("other", 0.5)
    assert set(Protocol.__dataclass_fields__["aggregation"].metadata["allowed"]) <= set(AGGREGATIONS)


def test_a_run_keeps_the_categories_of_its_dataset(tmp_path: Path) -> None:
    data = write_mmlu(tmp_path / "data", subjects=("astronomy", "tides", "prehistory"), questions=2)
    run = evaluate(model="fake:hash", data=data, protocols=["mmlu/original"], out=tmp_path / "run")
    known = {"STEM": {"physics": ["astronomy"]}, "humanities": {"history": ["prehistory"]}}
    assert run.manifest.dataset.categories == known
    assert [(row.subject, row.n) for row in run.rows("categories")] == [("STEM", 2), ("humanities", 2), ("other", 2)]
    assert [row.subject for row in run.rows("subcategories")] == ["physics", "history", "other"]
