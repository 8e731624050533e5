"""Signs of an invalid number, the numeric range and the multiverse, by hand and by brute force."""

import math
from dataclasses import dataclass
from itertools import product
from unittest.mock import patch

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from choicewise.scoring import significance as length_bias
from choicewise.scoring.decide import TIES, Decisions, argmax
from choicewise.scoring.intervals import credit_range
from choicewise.scoring.significance import (
    Agreement,
    Panel,
    length_correlations,
    low_mass_rate,
    panel,
    permutation_consistency,
    position_bias,
    sign_agreement,
    validity,
)

NAN = math.nan


@dataclass(frozen=True)
class NumericRange:
    """The accuracy as decided, the least and greatest it could be, and the share of open items."""

    low: float
    point: float
    high: float
    undetermined: float


def numeric_range(
    scores: np.ndarray, offsets: np.ndarray, gold: np.ndarray, decided: Decisions, epsilon: float
) -> NumericRange:
    low, high, open_ = credit_range(scores, offsets, gold, decided, epsilon)
    if decided.missing.all():
        return NumericRange(NAN, NAN, NAN, NAN)
    return NumericRange(*(values[~decided.missing].mean() for values in (low, decided.credit, high, open_)))


@given(
    items=st.lists(st.lists(st.integers(-6, 0), min_size=2, max_size=3), min_size=1, max_size=4),
    epsilon=st.sampled_from([0.0, 0.4, 0.6, 1.1]),
)
def test_numeric_range_holds_every_accuracy_that_moved_scores_give(items: list[list[int]], epsilon: float) -> None:
    offsets = np.cumsum([0] + [len(item) for item in items])
    scores, gold = np.array([float(score) for item in items for score in item]), np.zeros(offsets[-1], dtype=bool)
    gold[offsets[:-1]] = True
    decided = argmax(scores, offsets, gold, "first")
    result = numeric_range(scores, offsets, gold, decided, epsilon)
    worst, best = [], []
    for position, item in enumerate(items):
        moved = [
            argmax(scores[a:b] + np.array(shift), np.array([0, b - a]), gold[a:b], "split").credit[0]
            for a, b in [(offsets[position], offsets[position + 1])]
            for shift in product((-epsilon, epsilon), repeat=len(item))
        ]
        worst.append(min(decided.credit[position], *(math.floor(credit) for credit in moved)))
        best.append(max(decided.credit[position], *(math.ceil(credit) for credit in moved)))
    if epsilon:  # at 0 a tie is decided by the tie rule, not by rounding
        assert (result.low, result.high) == (pytest.approx(np.mean(worst)), pytest.approx(np.mean(best)))
    assert result.low <= result.point <= result.high
    assert result.point == decided.credit.mean()
    assert result.undetermined == (decided.margin < 2 * epsilon).mean()


@pytest.mark.parametrize("ties", TIES)
def test_numeric_range_without_error_is_a_point_and_leaves_missing_items_out(ties: str) -> None:
    scores, items = np.array([-1.0, -1.0, NAN, -1.0, -1.0, -2.0]), np.array([0, 2, 4, 6])
    gold = np.array([True, False, True, False, False, True])
    decided = argmax(scores, items, gold, ties)
    exact = numeric_range(scores, items, gold, decided, 0.0)
    assert exact.low == exact.point == exact.high == np.nanmean(decided.credit)
    rounded = numeric_range(scores, items, gold, decided, 0.01)
    assert (rounded.low, rounded.high, rounded.undetermined) == (0.0, 0.5, 0.5)
    nothing = numeric_range(scores[2:4], items[:2], gold[2:4], argmax(scores[2:4], items[:2], gold[2:4], ties), 0.1)
    assert math.isnan(nothing.point)


def test_numeric_range_of_ties_that_no_rounding_explains() -> None:
    items = np.array([0, 2])
    impossible, tied = np.array([-math.inf, -math.inf]), np.array([-1.0, -1.0])
    one, both = np.array([True, False]), np.array([True, True])
    open_range = numeric_range(impossible, items, one, argmax(impossible, items, one, "first"), 0.1)
    assert (open_range.low, open_range.point, open_range.high) == (0.0, 1.0, 1.0)
    refused = numeric_range(tied, items, both, argmax(tied, items, both, "wrong"), 0.1)
    assert (refused.low, refused.point, refused.high) == (0.0, 0.0, 1.0)


def test_position_bias_by_hand() -> None:
    gold = np.array([0, 0, 1, 1, 2, 2, 2, 2])
    predicted = np.array([0, 0, 0, 1, 0, 0, 2, -1])
    result = position_bias(predicted, gold)
    assert result.recalls == (1.0, 0.5, pytest.approx(1 / 3))
    assert result.rstd == pytest.approx(np.std([1, 0.5, 1 / 3]))
    assert result.chi_square == pytest.approx(3)  # one item of (0, 1) and two of (0, 2), all of them turned to 0
    assert math.isnan(result.p)  # of so few items
    assert result.n == 7


def stuart_maxwell(predicted: np.ndarray, gold: np.ndarray, positions: int) -> float:
    """The statistic in its textbook form, without the last position."""
    table = np.zeros((positions, positions))
    np.add.at(table, (predicted, gold), 1)
    differences = (table.sum(axis=1) - table.sum(axis=0))[:-1]
    covariance = np.diag(table.sum(axis=1) + table.sum(axis=0)) - table - table.T
    return float(differences @ np.linalg.pinv(covariance[:-1, :-1], hermitian=True) @ differences)


@settings(deadline=None, max_examples=40)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)).filter(lambda pair: pair[0] != pair[1]), max_size=9))
def test_position_bias_of_few_items_is_exact_over_all_turns(wrong: list[tuple[int, int]]) -> None:
    right = [(place % 4, place % 4) for place in range(20)]  # these say nothing
    predicted, gold = np.array([*wrong, *right]).T
    result = position_bias(predicted, gold)
    assert result.chi_square == pytest.approx(stuart_maxwell(predicted, gold, 4))
    turned = [
        stuart_maxwell(*np.array([pair[::way] for pair, way in zip(wrong, ways, strict=True)] or [(0, 0)]).T, 4)
        for ways in product((1, -1), repeat=len(wrong))
    ]
    assert result.p == pytest.approx(np.mean(np.array(turned) >= result.chi_square - 1e-6))


def test_position_bias_of_many_items_follows_the_limit() -> None:
    rng = np.random.default_rng(5)
    predicted, gold = rng.choice(5, 100_000, p=[0.21, 0.2, 0.2, 0.2, 0.19]), rng.integers(0, 5, 100_000)
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


def test_length_correlation_compares_choices_within_their_item() -> None:
    items = np.array([0, 3, 6, 8, 10])
    lengths = np.array([1.0, 2, 3, 1, 2, 3, 4, 4, 1, 2])
    falling = np.array([-1.0, -2, -3, -11, -12, -13, -1, -2, NAN, -1])
    assert length_correlations(falling, lengths, items) == pytest.approx([-1, -1, NAN, NAN], nan_ok=True)
    mixed = np.array([-1.0, -2, -3, -13, -12, -11, -1, -2, NAN, -1])
    assert length_correlations(mixed, lengths, items) == pytest.approx([-1, 1, NAN, NAN], nan_ok=True)


PAIRS = st.tuples(st.sampled_from([-3.0, -2.0, -1.0, NAN, -math.inf]), st.integers(1, 3))


@given(items=st.lists(st.lists(PAIRS, max_size=5), max_size=5), at_once=st.sampled_from([1, 9, length_bias.AT_ONCE]))
def test_length_correlations_are_spearmans_item_by_item(items: list[list[tuple[float, int]]], at_once: int) -> None:
    offsets = np.cumsum([0] + [len(item) for item in items])
    flat = np.array([pair for item in items for pair in item], dtype=float).reshape(-1, 2)
    with patch.object(length_bias, "AT_ONCE", at_once):
        found = length_correlations(flat[:, 0], flat[:, 1], offsets)
    for item, rho in zip(items, found, strict=True):
        scores, lengths = np.array(item, dtype=float).reshape(-1, 2).T
        constant = len(np.unique(scores)) < 2 or len(np.unique(lengths)) < 2
        known = not constant and not np.isnan(scores).any()
        assert rho == pytest.approx(scipy.stats.spearmanr(scores, lengths).statistic if known else NAN, nan_ok=True)


ERRORS = st.lists(st.tuples(st.integers(-4, 0), st.sampled_from([0.1, 0.6, 1.4])), min_size=2, max_size=4)


@given(item=ERRORS, right=st.integers(0, 1))
def test_credit_range_lets_every_choice_have_its_own_error(item: list[tuple[int, float]], right: int) -> None:
    scores, epsilon = np.array(item, dtype=float).T
    offsets, gold = np.array([0, len(item)]), np.arange(len(item)) == right
    low, high, open_ = credit_range(scores, offsets, gold, argmax(scores, offsets, gold, "first"), epsilon)
    winners = set()
    for signs in product((-1, 1), repeat=len(item)):
        moved = scores + np.array(signs) * epsilon
        winners |= set(np.flatnonzero(moved >= moved.max() - 1e-9).tolist())
    strictly = {
        row for row in winners
        if scores[row] + epsilon[row] > np.delete(scores - epsilon, row).max() + 1e-9 or scores[row] == scores.max()
    }  # fmt: skip
    assert bool(open_[0]) == (len(strictly) > 1)
    if open_[0]:
        assert (low[0], high[0]) == (float(strictly <= {right}), float(right in strictly))


def test_an_item_with_an_unknown_error_has_no_bounds() -> None:
    offsets, gold = np.array([0, 2, 4, 6]), np.array([True, False] * 3)
    scores = np.array([-1.0, -2.0, -1.0, -2.0, -1.0, -math.inf])
    epsilon = np.array([0.1, 0.1, math.nan, 0.1, 0.1, math.nan])
    low, high, open_ = credit_range(scores, offsets, gold, argmax(scores, offsets, gold, "first"), epsilon)
    for bound in (low, high):
        assert bound.tolist() == pytest.approx([1.0, math.nan, 1.0], nan_ok=True)
    assert open_.tolist() == [False] * 3


def test_validity_flags_a_constant_model_at_chance() -> None:
    items, gold = np.arange(0, 41, 4), np.tile(np.eye(4, dtype=bool), (3, 1))[:10].ravel()
    constant = argmax(np.tile([-1.0, -2, -2, -2], 10), items, gold, "first")
    flags = validity(constant, items, gold)
    assert (flags.chance, flags.at_chance, flags.constant, flags.most_common) == (0.25, True, True, 1.0)
    assert flags.tie_rate == 0.0
    few = validity(argmax(np.tile([-1.0, -2, -2, -2], 2), items[:3], gold[:8], "first"), items[:3], gold[:8])
    assert (few.constant, few.most_common) == (False, 1.0)  # a guesser does so in one of four cases
    first = np.tile([True, False, False, False], 10)
    perfect = validity(argmax(first.astype(float), items, first, "first"), items, first)
    assert (perfect.constant, perfect.most_common) == (False, 1.0)  # the right choice is always there
    right = validity(argmax(gold.astype(float), items, gold, "first"), items, gold)
    assert (right.at_chance, right.constant) == (False, False)
    assert right.most_common == pytest.approx(0.3)


def test_validity_of_ties_and_of_nothing() -> None:
    items, gold = np.array([0, 2, 5]), np.array([True, False, True, True, False])
    tied = validity(argmax(np.array([-1.0, -1, -1, -2, -3]), items, gold, "split"), items, gold)
    assert tied.tie_rate == 0.5
    assert tied.chance == pytest.approx((1 / 2 + 2 / 3) / 2)
    single = validity(argmax(np.array([-1.0, -2]), items[:2], gold[:2], "first"), items[:2], gold[:2])
    assert not single.constant  # one prediction is no pattern
    nothing = validity(argmax(np.full(5, NAN), items, gold, "first"), items, gold)
    assert math.isnan(nothing.chance)
    assert not nothing.constant


def test_low_mass_rate() -> None:
    assert low_mass_rate(np.array([0.9, 0.1, 0.5, NAN])) == pytest.approx(1 / 3)
    assert math.isnan(low_mass_rate(np.array([NAN])))


def test_panel_spreads_over_protocols_and_counts_flipped_items() -> None:
    credits = np.array([[1.0, 1, 0, 0], [1, 0, 0, 0], [1, 1, 1, NAN]])
    predictions = np.array([[0, 1, 2, 3], [0, 2, 2, 3], [0, 1, 1, -1]])
    assert panel(credits, predictions) == Panel(0.25, 0.5, 1.0, 0.5)
    nothing = panel(np.full((2, 2), NAN), np.full((2, 2), -1))
    assert all(map(math.isnan, (nothing.least, nothing.median, nothing.greatest, nothing.flips)))


def test_sign_agreement_counts_protocols_by_the_sign_of_the_paired_difference() -> None:
    left = np.array([[1.0, 1, 0], [1, 0, 0], [0, 0, NAN], [1 / 3, 1 / 3, 1 / 3], [NAN] * 3])
    right = np.array([[1.0, 0, 0], [0, 0, 0], [1, 0, 0], [2 / 3, 1 / 3, 0], [1.0] * 3])
    result = sign_agreement(left, right)
    assert result == Agreement(left=2, right=1, even=1)
    assert result.share == 0.5
    assert math.isnan(sign_agreement(left[4:], right[4:]).share)


def test_sign_agreement_calls_credits_even_that_cancel_but_for_rounding() -> None:
    fifths, one_right = np.full((1, 5), 1 / 5), np.array([[1.0, 0, 0, 0, 0]])
    assert (fifths - one_right).mean() != 0
    assert sign_agreement(fifths, one_right) == Agreement(left=0, right=0, even=1)


def test_at_chance_is_within_one_standard_error_and_includes_it() -> None:
    def at_chance(sizes: list[int], right: list[bool]) -> bool:
        items = np.cumsum([0, *sizes])
        gold, scores = np.zeros(items[-1], bool), np.zeros(items[-1])
        gold[items[:-1]] = True
        scores[items[:-1] + [not each for each in right]] = 1.0
        return validity(argmax(scores, items, gold, "first"), items, gold).at_chance

    assert at_chance([4], [True])  # one item says nothing
    assert not at_chance([4, 4], [True, True])  # two that agree have no error
    # mean 0.2, standard error 0.2: chances 0.4 and a little more
    assert at_chance([2, 2, 2, 4, 4], [True, *[False] * 4])
    assert not at_chance([2, 2, 2, 2, 4], [True, *[False] * 4])
