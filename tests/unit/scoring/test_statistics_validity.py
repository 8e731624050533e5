"""Signs of an invalid number, the numeric range and the multiverse, by hand and by brute force."""

import math
from itertools import product
from typing import Any

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from choicewise.scoring.decide import TIES, argmax
from choicewise.scoring.intervals import credit_range
from choicewise.scoring.significance import (
    Validity,
    length_shifts,
    low_mass_rate,
    permutation_consistency,
    position_bias,
    validity,
)

NAN = math.nan


def numeric_range(
    scores: Any, items: np.ndarray, gold: np.ndarray, ties: str, epsilon: float
) -> list[float]:
    """The accuracy that it could be at least, as decided and at most, and the share of open items."""
    decided = argmax(np.asarray(scores), items, gold, ties)
    low, high, open_ = credit_range(np.asarray(scores), items, gold, decided, epsilon)
    known = ~decided.missing
    return [
        float(values[known].mean()) if known.any() else NAN
        for values in (low, decided.credit, high, open_)
    ]


@given(
    items=st.lists(st.lists(st.integers(-6, 0), min_size=2, max_size=3), min_size=1, max_size=4),
    epsilon=st.sampled_from([0.0, 0.4, 0.6, 1.1]),
)
def test_numeric_range_holds_every_accuracy_that_moved_scores_give(
    items: list[list[int]], epsilon: float
) -> None:
    offsets = np.cumsum([0] + [len(item) for item in items])
    scores, gold = (
        np.array([float(score) for item in items for score in item]),
        np.zeros(offsets[-1], dtype=bool),
    )
    gold[offsets[:-1]] = True
    decided = argmax(scores, offsets, gold, "first")
    low, point, high, undetermined = numeric_range(scores, offsets, gold, "first", epsilon)
    worst, best = [], []
    for credit, item in zip(decided.credit, items, strict=True):
        one, right = np.array([0, len(item)]), np.arange(len(item)) == 0
        shifts = product((-epsilon, epsilon), repeat=len(item))
        moved = [argmax(np.add(item, shift), one, right, "split").credit[0] for shift in shifts]
        worst.append(min(credit, *map(math.floor, moved)))
        best.append(max(credit, *map(math.ceil, moved)))
    if epsilon:  # at 0 a tie is decided by the tie rule, not by rounding
        assert (low, high) == (pytest.approx(np.mean(worst)), pytest.approx(np.mean(best)))
    assert low <= point == decided.credit.mean() <= high
    assert undetermined == (decided.margin < 2 * epsilon).mean()


@pytest.mark.parametrize("ties", TIES)
def test_numeric_range_without_error_is_a_point_and_leaves_missing_items_out(ties: str) -> None:
    scores, items = np.array([-1.0, -1.0, NAN, -1.0, -1.0, -2.0]), np.array([0, 2, 4, 6])
    gold = np.array([True, False, True, False, False, True])
    low, point, high, _ = numeric_range(scores, items, gold, ties, 0.0)
    assert low == point == high == np.nanmean(argmax(scores, items, gold, ties).credit)
    low, _, high, undetermined = numeric_range(scores, items, gold, ties, 0.01)
    assert (low, high, undetermined) == (0.0, 0.5, 0.5)
    assert math.isnan(numeric_range(scores[2:4], items[:2], gold[2:4], ties, 0.1)[1])


def test_numeric_range_of_ties_that_no_rounding_explains() -> None:
    items, one, both = np.array([0, 2]), np.array([True, False]), np.array([True, True])
    assert numeric_range([-math.inf, -math.inf], items, one, "first", 0.1)[:3] == [0.0, 1.0, 1.0]
    assert numeric_range([-1.0, -1.0], items, both, "wrong", 0.1)[:3] == [0.0, 0.0, 1.0]


def test_position_bias_by_hand() -> None:
    result = position_bias(np.array([0, 0, 0, 1, 0, 0, 2, -1]), np.array([0, 0, 1, 1, 2, 2, 2, 2]))
    assert result.recalls == (1.0, 0.5, pytest.approx(1 / 3))
    assert result.rstd == pytest.approx(np.std([1, 0.5, 1 / 3]))
    assert result.chi_square == pytest.approx(
        3
    )  # one item of (0, 1) and two of (0, 2), all of them turned to 0
    assert math.isnan(result.p)  # of so few items
    assert result.n == 7


def stuart_maxwell(predicted: np.ndarray, gold: np.ndarray, positions: int) -> float:
    """The statistic in its textbook form, without the last position."""
    table = np.zeros((positions, positions))
    np.add.at(table, (predicted, gold), 1)
    differences = (table.sum(axis=1) - table.sum(axis=0))[:-1]
    covariance = np.diag(table.sum(axis=1) + table.sum(axis=0)) - table - table.T
    return float(differences @ np.linalg.pinv(covariance[:-1, :-1], hermitian=True) @ differences)


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 3)).filter(lambda pair: pair[0] != pair[1]),
        max_size=6,
    )
)
def test_position_bias_of_few_items_is_exact_over_all_turns(wrong: list[tuple[int, int]]) -> None:
    right = [(place % 4, place % 4) for place in range(20)]  # these say nothing
    predicted, gold = np.array([*wrong, *right]).T
    result = position_bias(predicted, gold)
    assert result.chi_square == pytest.approx(stuart_maxwell(predicted, gold, 4))
    turned = [
        stuart_maxwell(
            *np.array([pair[::way] for pair, way in zip(wrong, ways, strict=True)] or [(0, 0)]).T, 4
        )
        for ways in product((1, -1), repeat=len(wrong))
    ]
    assert result.p == pytest.approx(np.mean(np.array(turned) >= result.chi_square - 1e-6))


def test_position_bias_of_many_items_follows_the_limit() -> None:
    rng = np.random.default_rng(5)
    predicted, gold = (
        rng.choice(5, 100_000, p=[0.21, 0.2, 0.2, 0.2, 0.19]),
        rng.integers(0, 5, 100_000),
    )
    result = position_bias(predicted, gold)
    assert result.chi_square == pytest.approx(stuart_maxwell(predicted, gold, 5))
    assert result.p == pytest.approx(scipy.stats.chi2.sf(result.chi_square, 4))
    assert result == position_bias(predicted, gold)


def test_position_bias_is_zero_for_a_perfect_model_and_total_for_a_constant_one() -> None:
    gold = np.arange(400) % 4
    perfect, constant = position_bias(gold, gold), position_bias(np.zeros(400, dtype=int), gold)
    assert (perfect.rstd, perfect.chi_square, perfect.p) == (0.0, 0.0, 1.0)
    assert constant.recalls == (1.0, 0.0, 0.0, 0.0)
    assert constant.p < 1e-60


def test_position_bias_says_nothing_where_the_right_choice_never_moves() -> None:
    one_sided = position_bias(np.array([0, 1, 0] * 9), np.array([0, 0, 0] * 9))
    assert one_sided.recalls == (pytest.approx(2 / 3), pytest.approx(NAN, nan_ok=True))
    assert all(map(math.isnan, (one_sided.rstd, one_sided.chi_square, one_sided.p)))
    never_right = position_bias(np.array([0, 1, 2] * 9), np.array([0, 1, 1] * 9))
    assert (never_right.chi_square, never_right.p) == (pytest.approx(9), pytest.approx(2 / 2**9))
    nothing = position_bias(np.array([-1]), np.array([0]))
    assert (nothing.n, nothing.recalls) == (0, ())


def test_permutation_consistency_counts_items_that_keep_their_choice() -> None:
    predictions = np.array([[0, 1, 2, 3, 0], [0, 1, 0, -1, 0], [0, 1, 2, 3, 1]])
    assert permutation_consistency(predictions) == pytest.approx(2 / 4)
    assert math.isnan(permutation_consistency(np.array([[-1], [0]])))


def test_length_shifts_compare_the_predicted_choice_with_the_right_one() -> None:
    offsets, lengths = np.array([0, 3, 6, 8, 10]), np.array([1.0, 5, 9, 1, 2, 3, 4, 4, 1, NAN])
    chosen, right = np.array([2, 1, 0, 0]), np.array([0, 2, 1, 1])
    assert length_shifts(chosen, right, lengths, offsets) == pytest.approx(
        [1, -0.5, NAN, NAN], nan_ok=True
    )
    assert np.isnan(
        length_shifts(np.array([-1, 0, 0, 0]), np.array([0, -1, 1, 1]), lengths, offsets)
    ).all()


ERRORS = st.lists(
    st.tuples(st.integers(-4, 0), st.sampled_from([0.1, 0.6, 1.4])), min_size=2, max_size=4
)


@given(item=ERRORS, right=st.integers(0, 1))
def test_credit_range_lets_every_choice_have_its_own_error(
    item: list[tuple[int, float]], right: int
) -> None:
    scores, epsilon = np.array(item, dtype=float).T
    offsets, gold = np.array([0, len(item)]), np.arange(len(item)) == right
    low, high, open_ = credit_range(
        scores, offsets, gold, argmax(scores, offsets, gold, "first"), epsilon
    )
    winners = set()
    for signs in product((-1, 1), repeat=len(item)):
        moved = scores + np.array(signs) * epsilon
        winners |= set(np.flatnonzero(moved >= moved.max() - 1e-9).tolist())
    lead = [
        scores[row] + epsilon[row] - np.delete(scores - epsilon, row).max()
        for row in range(len(item))
    ]
    strictly = {row for row in winners if lead[row] > 1e-9 or scores[row] == scores.max()}
    assert bool(open_[0]) == (len(strictly) > 1)
    if open_[0]:
        assert (low[0], high[0]) == (float(strictly <= {right}), float(right in strictly))


def test_an_item_with_an_unknown_error_has_no_bounds() -> None:
    offsets, gold = np.array([0, 2, 4, 6]), np.array([True, False] * 3)
    scores = np.array([-1.0, -2.0, -1.0, -2.0, -1.0, -math.inf])
    epsilon = np.array([0.1, 0.1, math.nan, 0.1, 0.1, math.nan])
    low, high, open_ = credit_range(
        scores, offsets, gold, argmax(scores, offsets, gold, "first"), epsilon
    )
    for bound in (low, high):
        assert bound.tolist() == pytest.approx([1.0, math.nan, 1.0], nan_ok=True)
    assert open_.tolist() == [False] * 3


def flags_of(
    scores: np.ndarray | list[float], items: np.ndarray, gold: np.ndarray, ties: str = "first"
) -> Validity:
    return validity(argmax(np.asarray(scores, dtype=float), items, gold, ties), items, gold)


def test_validity_flags_a_constant_model_at_chance() -> None:
    items, gold, scores = (
        np.arange(0, 41, 4),
        np.tile(np.eye(4, dtype=bool), (3, 1))[:10].ravel(),
        [-1.0, -2, -2, -2],
    )
    flags = flags_of(scores * 10, items, gold)
    assert (flags.chance, flags.at_chance, flags.constant, flags.most_common) == (
        0.25,
        True,
        True,
        1.0,
    )
    assert flags.tie_rate == 0.0
    few = flags_of(scores * 2, items[:3], gold[:8])
    assert (few.constant, few.most_common) == (False, 1.0)  # a guesser does so in one of four cases
    first = np.tile([True, False, False, False], 10)
    perfect, right = flags_of(first, items, first), flags_of(gold, items, gold)
    assert (perfect.constant, perfect.most_common) == (
        False,
        1.0,
    )  # the right choice is always there
    assert (right.at_chance, right.constant, right.most_common) == (
        False,
        False,
        pytest.approx(0.3),
    )


def test_validity_of_ties_and_of_nothing() -> None:
    items, gold = np.array([0, 2, 5]), np.array([True, False, True, True, False])
    tied = flags_of([-1.0, -1, -1, -2, -3], items, gold, "split")
    assert (tied.tie_rate, tied.chance) == (0.5, pytest.approx((1 / 2 + 2 / 3) / 2))
    assert not flags_of([-1.0, -2], items[:2], gold[:2]).constant  # one prediction is no pattern
    nothing = flags_of([NAN] * 5, items, gold)
    assert (math.isnan(nothing.chance), nothing.constant) == (True, False)


def test_low_mass_rate() -> None:
    assert low_mass_rate(np.array([0.9, 0.1, 0.5, NAN])) == pytest.approx(1 / 3)
    assert math.isnan(low_mass_rate(np.array([NAN])))


def test_at_chance_is_within_one_standard_error_and_includes_it() -> None:
    def at_chance(sizes: list[int], right: list[bool]) -> bool:
        items = np.cumsum([0, *sizes])
        gold, scores = np.zeros(items[-1], bool), np.zeros(items[-1])
        gold[items[:-1]] = True
        scores[items[:-1] + [not each for each in right]] = 1.0
        return flags_of(scores, items, gold).at_chance

    assert at_chance([4], [True])  # one item says nothing
    assert not at_chance([4, 4], [True, True])  # two that agree have no error
    # means 1/4 and 3/4, standard error 1/4, all exact in binary: chance 1/2 and a little less
    assert at_chance([2, 2, 2, 2], [True, False, False, False])
    assert at_chance([2, 2, 2, 2], [True, True, True, False])
    assert not at_chance([2, 2, 2, 3], [True, True, True, False])
