"""Distributions over choices, calibrations and permutations, against plain loops and their identities."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from choicewise.protocols.readings import VIEWS
from choicewise.scoring.calibrate import batch, contextual, label_prior, log_shares, view_mean, without
from choicewise.scoring.decide import choice_distribution, option_mass

VALUES = st.floats(-30, 0)
LABELS = arrays(np.float64, st.tuples(st.integers(1, 6), st.integers(2, 5)), elements=VALUES)


def softmax(values: list[float]) -> list[float]:
    weights = [math.exp(value - max(values)) for value in values]
    return [weight / sum(weights) for weight in weights]


@given(items=st.lists(st.lists(VALUES, max_size=5), max_size=5), temperature=st.floats(0.1, 10))
def test_choice_distribution_and_mass_equal_loops(items: list[list[float]], temperature: float) -> None:
    flat, offsets = np.array([v for item in items for v in item]), np.cumsum([0] + [len(item) for item in items])
    expected = [p for item in items for p in (softmax([v / temperature for v in item]) if item else [])]
    np.testing.assert_allclose(choice_distribution(flat, offsets, temperature), expected, rtol=1e-9)
    masses = [sum(map(math.exp, item)) if item else math.nan for item in items]
    np.testing.assert_allclose(option_mass(flat, offsets), masses, rtol=1e-9)


def test_a_missing_or_impossible_choice_has_no_distribution() -> None:
    scores, items = np.array([math.nan, -1.0, -math.inf, -math.inf, -math.inf, -2.0]), np.array([0, 2, 4, 6])
    expected = [math.nan] * 4 + [0.0, 1.0]
    np.testing.assert_array_equal(choice_distribution(scores, items), expected)
    np.testing.assert_allclose(option_mass(scores, items), [math.nan, 0.0, math.exp(-2)])


@given(scores=LABELS, shift=st.floats(-5, 5))
def test_log_shares_are_probabilities_and_ignore_a_common_factor(scores: np.ndarray, shift: float) -> None:
    np.testing.assert_allclose(np.exp(log_shares(scores)).sum(axis=1), 1)
    np.testing.assert_allclose(log_shares(scores + shift), log_shares(scores), atol=1e-9)


@given(scores=LABELS)
def test_contextual_calibration_equals_a_loop_and_levels_its_own_inputs(scores: np.ndarray) -> None:
    neutral = scores[:2]
    prior = np.mean([softmax(list(inputs)) for inputs in neutral], axis=0)
    expected = [[math.log(p) - math.log(q) for p, q in zip(softmax(list(r)), prior, strict=True)] for r in scores]
    np.testing.assert_allclose(contextual(scores, neutral), expected, atol=1e-9)
    np.testing.assert_allclose(contextual(scores[:1], scores[:1]), 0, atol=1e-9)


@given(scores=LABELS)
def test_batch_calibration_of_one_item_is_uniform_and_of_many_is_contextual(scores: np.ndarray) -> None:
    np.testing.assert_allclose(batch(scores[:1]), 0, atol=1e-9)
    np.testing.assert_array_equal(batch(scores), contextual(scores, scores))
    np.testing.assert_allclose(np.exp(batch(scores)).mean(axis=0), 1)


def test_calibration_leaves_missing_items_out_of_the_estimate() -> None:
    scores = np.array([[-1.0, -2.0], [math.nan, -1.0], [-math.inf, -math.inf]])
    expected = [[0.0, 0.0], [math.nan] * 2, [math.nan] * 2]
    np.testing.assert_array_equal(batch(scores), expected)
    np.testing.assert_array_equal(batch(scores[1:]), [[math.nan] * 2] * 2)


@given(
    liking=arrays(np.float64, 4, elements=st.floats(-3, 0)),
    content=arrays(np.float64, (5, 4), elements=st.floats(-3, 0)),
)
def test_pride_removes_a_pure_preference_for_labels(liking: np.ndarray, content: np.ndarray) -> None:
    orders = np.array(VIEWS["cyclic"](4, 0))
    observed = content[:, orders] + liking  # the option under each label, plus how the label itself is liked
    prior = label_prior(observed)
    np.testing.assert_allclose(prior, log_shares(liking), atol=1e-9)
    debiased = without(observed[:, 0], prior)
    np.testing.assert_allclose(log_shares(debiased), log_shares(content), atol=1e-9)


@pytest.mark.parametrize("views", ["cyclic", "full"])
@given(scores=arrays(np.float64, (2, 6, 3), elements=VALUES))
def test_view_mean_of_options_under_their_labels_equals_a_loop_over_labels(views: str, scores: np.ndarray) -> None:
    orders = np.array(VIEWS[views](3, 0))
    by_label = scores[:, : len(orders)]
    expected = np.zeros((2, 3))
    for item in range(2):
        for number, order in enumerate(orders):
            for label, option in enumerate(order):
                expected[item, option] += softmax(list(by_label[item, number]))[label] / len(orders)
    by_option = np.take_along_axis(by_label, np.argsort(orders, axis=-1)[None], axis=-1)
    np.testing.assert_allclose(np.exp(view_mean(by_option)), expected, rtol=1e-9)
    np.testing.assert_allclose(np.exp(view_mean(by_option)).sum(axis=1), 1)


@given(scores=arrays(np.float64, (2, 4, 4), elements=VALUES), turn=st.integers(0, 3))
def test_view_mean_does_not_depend_on_which_view_came_first(scores: np.ndarray, turn: int) -> None:
    np.testing.assert_allclose(view_mean(np.roll(scores, turn, axis=1)), view_mean(scores), atol=1e-9)


def test_orders_start_as_given_and_put_every_option_under_every_label_equally_often() -> None:
    for views, count in (("cyclic", 4), ("full", 24)):
        orders = np.array(VIEWS[views](4, 0))
        assert orders.shape == (count, 4)
        assert orders[0].tolist() == [0, 1, 2, 3]
        assert len({tuple(order) for order in orders.tolist()}) == count
        for label in range(4):
            assert np.bincount(orders[:, label]).tolist() == [count // 4] * 4
