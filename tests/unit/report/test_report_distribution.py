"""Choice probabilities and their fit to people, against sums by hand."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from choicewise import evaluate
from choicewise.errors import DataError, UsageError
from choicewise.protocols.catalogue import resolve
from choicewise.results.measurement import choice_probabilities, human_counts, links
from choicewise.results.multiverse import distributions
from choicewise.results.run import Run
from choicewise.scoring.significance import fit
from tests.helpers.commands import choicewise

COUNTS = [[3, 7], [1, 9], [5, 5], [0, 4]]
CONDITIONS = ["near", "far", "near", "far"]


def run_of(folder: Path, counts: list[Any], protocols: tuple[str, ...] = ("sum",)) -> Run:
    lines = [
        {"id": f"q{n}", "question": f"Which {n}?", "choices": ["red", "blue"], "answer": 0, "condition": CONDITIONS[n]}
        | ({} if count is None else {"human_counts": count})
        for n, count in enumerate(counts)
    ]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "test.jsonl").write_text("\n".join(map(json.dumps, lines)))
    cloze = resolve("mmlu/cloze")
    recipes = {name: replace(cloze[f"mmlu/cloze:{name}"], choices=None) for name in protocols}
    return evaluate(model="fake:hash", data=folder / "test.jsonl", protocols=recipes, out=folder / "run")


@pytest.mark.parametrize("temperature", [0.5, 1.0, 10.0])
def test_a_distribution_is_the_softmax_of_the_scores(tmp_path: Path, temperature: float) -> None:
    run = run_of(tmp_path, COUNTS)
    rows = run.distribution("sum", temperature).to_pylist()
    scores = np.array([row["score"] for row in rows]).reshape(-1, 2)
    expected = np.exp(scores / temperature) / np.exp(scores / temperature).sum(axis=1, keepdims=True)
    assert [row["softmax"] for row in rows] == pytest.approx(expected.ravel())
    assert [row["winner"] for row in rows] == (scores == scores.max(axis=1, keepdims=True)).ravel().astype(
        float
    ).tolist()
    assert [row["human"] for row in rows] == [count for item in COUNTS for count in item]
    assert [row["item"] for row in rows[:3]] == ["q0", "q0", "q1"]
    (found,) = distributions(run, temperature, "condition")
    assert [condition.name for condition in found.conditions] == ["near", "far"]
    assert found.conditions[1].softmax == pytest.approx(expected[[1, 3]].mean(axis=0))
    assert found.conditions[0].human == pytest.approx((0.4, 0.6))
    assert found.softmax_fit is not None
    assert found.softmax_fit.log_likelihood == pytest.approx(float((np.array(COUNTS) * np.log(expected)).sum()))
    assert found.softmax_fit.people == 34


def test_ties_split_what_the_winner_takes(tmp_path: Path) -> None:
    run = run_of(tmp_path, [None] * 4)
    each = run.measurements["sum"]
    assert each.scores is not None
    tied = replace(each, scores=np.array([-1.0, -1.0, -1.0, -2.0, math.nan, -1.0, -3.0, -1.0]))
    softmax, winner = links(tied, 1.0)
    assert winner == pytest.approx([0.5, 0.5, 1, 0, math.nan, math.nan, 0, 1], nan_ok=True)
    assert softmax[:2] == pytest.approx([0.5, 0.5])
    assert choice_probabilities(tied, 1.0)["human"].to_pylist() == [None] * 8
    assert human_counts(each.evidence) is None


@pytest.mark.parametrize(
    ("count", "reason"),
    [
        ([1, 2, 3], r"item q1: human_counts is '\[1, 2, 3\]': 3 counts for 2 choices"),
        ([1, -2], "none below 0"),
        (["a", 2], "list of counts"),
        ({"a": 1}, "list of counts"),
        ("three", "no JSON list"),
    ],
)
def test_counts_that_do_not_match_the_choices_name_their_item(tmp_path: Path, count: Any, reason: str) -> None:
    run = run_of(tmp_path, [[1, 2], count, [1, 2], [2, 1]])
    with pytest.raises(DataError, match=reason):
        run.distribution("sum")


def test_items_without_counts_are_left_out_of_the_fit(tmp_path: Path) -> None:
    run = run_of(tmp_path, [[3, 7], None, [0, 0], [1, 4]])
    (found,) = distributions(run, 1.0)
    assert found.softmax_fit is not None
    assert (found.softmax_fit.items, found.softmax_fit.people) == (2, 15)
    (condition,) = found.conditions
    assert (condition.name, condition.n) == ("all", 4)
    assert condition.human == pytest.approx((0.25, 0.75))


def test_wrong_use_is_told(tmp_path: Path) -> None:
    run = run_of(tmp_path, COUNTS)
    with pytest.raises(UsageError, match="no protocol 'mean'; it has sum"):
        run.distribution("mean")
    with pytest.raises(UsageError, match="temperature is 0"):
        run.distribution("sum", 0.0)
    with pytest.raises(UsageError, match="no field 'colour'.*condition, human_counts"):
        list(distributions(run, 1.0, "colour"))
    each = run.measurements["sum"]
    with pytest.raises(UsageError, match="no scores"):
        links(replace(each, scores=None), 1.0)


def test_distributions_are_printed(tmp_path: Path) -> None:
    run = run_of(tmp_path, COUNTS, ("sum", "char_mean"))
    arguments = ["report", "--distribution", str(run.folder), "--condition", "condition", "--temperature", "2"]
    shown = choicewise(*arguments).stdout
    assert "softmax at temperature 2" in shown
    assert "people" in shown
    assert "fit to people: softmax r = " in shown
    content = json.loads(choicewise(*arguments, "--json").stdout)
    assert [each["protocol"] for each in content] == ["sum", "char_mean"]
    assert content[0]["winner_fit"]["log_likelihood"] is None  # somebody chose what the winner leaves nothing


PROBABILITIES = st.lists(st.tuples(st.floats(0.01, 1), st.integers(0, 9)), min_size=1, max_size=4)


@given(items=st.lists(PROBABILITIES, min_size=1, max_size=4))
def test_fit_is_the_sum_by_hand(items: list[list[tuple[float, int]]]) -> None:
    offsets = np.cumsum([0] + [len(item) for item in items])
    weights = np.array([weight for item in items for weight, _ in item])
    counts = np.array([float(count) for item in items for _, count in item])
    found = fit(weights, counts, offsets)
    total, shares, predicted = 0.0, [], []
    for item in items:
        people = sum(count for _, count in item)
        if people:
            total += sum(count * math.log(weight) for weight, count in item)
            shares += [count / people for _, count in item]
            predicted += [weight for weight, _ in item]
    assert found.people == counts.sum()
    if not shares:
        assert math.isnan(found.log_likelihood)
        return
    assert found.log_likelihood == pytest.approx(total)
    if len(set(shares)) > 1 and np.ptp(predicted) > 1e-6 and np.ptp(shares) > 1e-6:
        assert found.correlation == pytest.approx(scipy.stats.pearsonr(predicted, shares).statistic, abs=1e-6)


def test_a_choice_made_against_all_odds_is_impossible() -> None:
    found = fit(np.array([0.0, 1.0]), np.array([1.0, 3.0]), np.array([0, 2]))
    assert found.log_likelihood == -math.inf
    assert math.isnan(fit(np.array([0.5, 0.5]), np.array([1.0, 3.0]), np.array([0, 2])).correlation)
