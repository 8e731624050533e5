"""Decisions against a plain loop over items, and the published tie rules by hand."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from choicewise.errors import DataError
from choicewise.protocols.protocol import Protocol
from choicewise.scoring.decide import TIES, Decisions, argmax, gold_rows, greedy_match, letter_match

SCORES = st.one_of(st.sampled_from([-2.0, -1.0, 0.0, math.nan, -math.inf, math.inf]), st.floats(-5, 0))
ITEMS = st.lists(
    st.lists(SCORES, max_size=5).flatmap(
        lambda scores: st.tuples(
            st.just(scores), st.sets(st.integers(0, max(len(scores) - 1, 0)), max_size=2 if scores else 0)
        )
    ),
    max_size=8,
)


def decide(scores: list[list[float]], gold: list[list[int]], ties: str) -> Decisions:
    items = np.cumsum([0] + [len(item) for item in scores])
    flat = np.array([score for item in scores for score in item], dtype=np.float64)
    return argmax(flat, items, gold_rows(gold, items), ties)


def reference(scores: list[float], gold: set[int], ties: str) -> tuple[int, float, bool, float]:
    """(prediction, credit, tied, margin) of one item, read off a sorted list."""
    if not scores or any(math.isnan(score) for score in scores):
        return -1, math.nan, False, math.nan
    best, *others = sorted(scores, reverse=True)
    tops = [index for index, score in enumerate(scores) if score == best]
    tied = len(tops) > 1
    credit = {
        "first": float(tops[0] in gold),
        "split": len(gold & set(tops)) / len(tops),
        "wrong": float(tops[0] in gold and not tied),
    }[ties]
    margin = 0.0 if tied else best - others[0] if others else math.nan
    return tops[0], credit, tied, margin


@given(items=ITEMS, ties=st.sampled_from(sorted(TIES)))
def test_argmax_equals_the_plain_reference(items: list[tuple[list[float], set[int]]], ties: str) -> None:
    decided = decide([scores for scores, _ in items], [sorted(gold) for _, gold in items], ties)
    expected = [reference(scores, gold, ties) for scores, gold in items]
    assert decided.prediction.tolist() == [row[0] for row in expected]
    np.testing.assert_array_equal(decided.credit, [row[1] for row in expected])
    assert decided.tied.tolist() == [row[2] for row in expected]
    np.testing.assert_array_equal(decided.margin, [row[3] for row in expected])
    assert decided.missing.tolist() == [math.isnan(row[1]) for row in expected]


def test_three_way_tie_under_each_rule() -> None:
    credits = {ties: decide([[0.0, -1.0, 0.0, 0.0]], [[2, 3]], ties).credit[0] for ties in TIES}
    assert credits == {"first": 0.0, "split": 2 / 3, "wrong": 0.0}


def test_a_missing_choice_never_wins_and_makes_the_item_missing() -> None:
    decided = decide([[math.nan, -1.0], [-1.0, -2.0]], [[0], [0]], "first")
    assert decided.prediction.tolist() == [-1, 0]
    assert decided.missing.tolist() == [True, False]


def test_an_impossible_choice_loses_by_an_infinite_margin() -> None:
    decided = decide([[-1.0, -math.inf], [-math.inf, -math.inf]], [[0], [1]], "first")
    assert decided.prediction.tolist() == [0, 0]
    assert decided.margin.tolist() == [math.inf, 0.0]


@pytest.mark.parametrize("index", [-1, 2])
def test_gold_outside_the_choices_is_refused(index: int) -> None:
    with pytest.raises(DataError, match=f"item 1 has gold {index} but 2 choices"):
        gold_rows([[0], [index]], np.array([0, 3, 5]))


def test_every_tie_rule_of_the_protocol_exists() -> None:
    assert set(Protocol.__dataclass_fields__["ties"].metadata["allowed"]) == {*TIES, "none"}


OPTIONS = ["Paris", "Rome ", "Rome", "Oslo"]


@pytest.mark.parametrize(
    ("text", "prediction", "credit"),
    [
        (" B", 1, 1.0),
        ("B", 1, 1.0),
        ("B\n", 1, 1.0),
        (" C", 2, 1.0),  # a duplicate of the right option's text
        (" A", 0, 0.0),
        ("b", -1, 0.0),
        ("B.", -1, 0.0),
        ("Rome", -1, 0.0),
        ("E", -1, 0.0),  # a letter, but of no option
        ("", -1, 0.0),
    ],
)
def test_letter_match_reads_generated_text_as_helm_does(text: str, prediction: int, credit: float) -> None:
    decided = letter_match([text], [OPTIONS], [[1]], "ABCDE")
    assert (decided.prediction[0], decided.credit[0]) == (prediction, credit)
    assert not decided.missing[0]


def test_letter_match_keeps_an_item_without_text_missing() -> None:
    decided = letter_match([None, "A"], [OPTIONS, OPTIONS], [[1], [0]], "ABCD")
    assert decided.missing.tolist() == [True, False]
    assert decided.prediction.tolist() == [-1, 0]
    assert decided.credit[1] == 1.0


@pytest.mark.parametrize(
    ("greedy", "gold", "prediction", "credit"),
    [
        ([0.0, 1.0], [1], 1, 1.0),
        ([0.0, 1.0], [0], 1, 0.0),
        ([0.0, 0.0], [0], -1, 0.0),
        ([1.0, 1.0], [1], 0, 1.0),
        ([0.0, 1.0], [0, 1], 1, 1.0),
        ([1.0, math.nan], [0], -1, math.nan),
    ],
)
def test_greedy_match_asks_of_the_right_choice_alone(
    greedy: list[float], gold: list[int], prediction: int, credit: float
) -> None:
    decided = greedy_match(np.array(greedy), np.array([0, 2]), gold_rows([gold], np.array([0, 2])))
    assert decided.prediction.tolist() == [prediction]
    np.testing.assert_array_equal(decided.credit, [credit])
    assert not decided.tied.any()
    assert np.isnan(decided.margin).all()
