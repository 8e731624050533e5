"""Metrics of probabilities: a worked item, plain formulas on random items, calibration, orders and abstention."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from choicewise.extensions.analyses.statistics import reliability
from choicewise.scoring.decide import argmax
from choicewise.scoring.intervals import extreme_interval, micro, wilson
from choicewise.scoring.probabilities import (
    BINS,
    Judged,
    credits,
    fit_temperature,
    if_calibrated,
    pooled,
    uniform,
)

SUMS = np.array([-4.0, -2.5, -6.0, -5.0])  # Rome, Paris (right), Saint-Denis, Orléans
TOKENS, CHARACTERS, BYTES = np.array([1, 1, 3, 3]), np.array([4, 5, 11, 7]), np.array([4, 5, 11, 8])
NAMES = ("prob", "margin", "total-prob", "norm-prob", "log-score", "brier")


def judge(items, right, **more):
    """Items as lists of scores, with the places of their right choices."""
    offsets = np.cumsum([0, *map(len, items)])
    scores = np.array([score for item in items for score in item], dtype=np.float64)
    gold = np.array(
        [place in own for item, own in zip(items, right, strict=True) for place in range(len(item))]
    )
    decided = argmax(scores, offsets, gold, "first")
    return Judged(
        scores=scores,
        item_offsets=offsets,
        right=gold,
        prediction=decided.prediction,
        hit=decided.credit,
        **more,
    )


def confident(pairs):
    """Items of two choices with this confidence in the first, which is right or not."""
    items = [
        [math.log(sure) if sure else -math.inf, math.log1p(-sure) if sure < 1 else -math.inf]
        for sure, _ in pairs
    ]
    judged = judge(items, [[0] if right else [1] for _, right in pairs])
    judged.__dict__["confidence"] = np.array([sure for sure, _ in pairs])
    object.__setattr__(judged, "hit", np.array([float(right) for _, right in pairs]))
    return judged


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        (SUMS, (0.082085, 0.063769, 0.109617, 0.748832, 0.289240, 0.095293)),
        (SUMS / TOKENS, (0.082085, -0.106791, 0.424612, 0.193318, math.nan, 0.952048)),
        (SUMS / CHARACTERS, (0.606531, 0.026952, 2.043530, 0.296805, math.nan, 0.664716)),
        (SUMS / (BYTES + 1), (0.659241, 0.052710, 2.288854, 0.288022, 1.244718, math.nan)),
    ],
)
def test_the_worked_item_has_the_published_values(scores, expected):
    judged = judge([scores], [[1]])
    for name, value in zip(NAMES, expected, strict=True):
        if not math.isnan(value):
            assert credits(name, judged)[0] == pytest.approx(value, abs=5e-7), name


def test_bits_ranks_and_abstention_of_the_worked_item():
    assert credits("bpb", judge([SUMS / BYTES], [[1]]))[0] == pytest.approx(0.721348, abs=5e-7)
    assert credits("bpb", judge([SUMS / (BYTES + 1)], [[1]]))[0] == pytest.approx(
        0.601123, abs=5e-7
    )
    assert credits("rps", judge([SUMS], [[1]]))[0] == pytest.approx(0.012922, abs=5e-7)
    assert credits("dcs", judge([SUMS], [[1]]))[0] == pytest.approx(0.524764, abs=5e-7)


@pytest.mark.parametrize(
    ("shares", "right", "expected"),
    [
        ([0.31, 0.27, 0.40, 0.01, 0.01], 2, -0.1881),
        ([0.15, 0.05, 0.40, 0.01, 0.39], 2, 0.1159),
        ([0.25, 0.24, 0.26, 0.24, 0.01], 2, -0.4653),
        ([0.01, 0.01, 0.96, 0.01, 0.01], 2, 0.9207),
    ],
)
def test_distractor_aware_scores_keep_their_factor(shares, right, expected):
    assert credits("dcs", judge([np.log(shares)], [[right]]))[0] == pytest.approx(
        expected, abs=5e-5
    )


def test_a_wrong_answer_costs_what_the_target_says_and_no_answer_nothing():
    judged = judge([[0, -1, -2, -3], [-1, 0, -2, -3], [-2, -1, -3, 0]], [[0], [0], [0]])
    for name, cost in (("ternary", 1), ("ternary-75", 3), ("ternary-90", 9)):
        assert credits(name, judged).tolist() == [1, -cost, 0]
        assert uniform(name, judged) == pytest.approx([(1 - 2 * cost) / 4] * 3)


PAIRS = [
    (0.95, True),
    (0.95, False),
    (0.6, True),
    (0.55, False),
    (0.3, False),
    (0.1, False),
    (1.0, True),
]


@pytest.mark.parametrize(
    ("name", "expected"), [("ece", 0.321429), ("ece-right", 0.207143), ("ece-15", 0.321429)]
)
def test_which_edge_is_closed_moves_the_calibration_error(name, expected):
    judged = confident(PAIRS)
    value = pooled(name, judged, np.ones(7, dtype=bool))
    assert (value.value, value.n) == (pytest.approx(expected, abs=5e-7), 7)
    assert credits(name, judged).mean() == pytest.approx(value.value)
    table = reliability(name, judged)
    assert sum(line.n * abs(line.confidence - line.right) for line in table) / 7 == pytest.approx(
        value.value
    )
    assert all(line.right_low <= line.right <= line.right_high for line in table)


def test_a_calibration_error_has_an_interval_of_what_it_may_be_in_truth():
    sure = [(0.6, place % 5 < 3) for place in range(40)] + [
        (0.9, place % 10 < 9) for place in range(40)
    ]
    wrong = [(0.9, place % 2 == 0) for place in range(80)]
    for pairs, low, high in (
        (sure, 0, 0.2),
        (wrong, 0.28, 0.55),
        ([(1.0, True)] * 40, 0, 0.1),
        ([(1.0, True)], 0, 1),
    ):
        value = pooled("ece", confident(pairs), np.ones(len(pairs), dtype=bool))
        assert low <= value.ci_low <= value.value <= value.ci_high <= high
    assert pooled("ece", confident(sure), np.ones(80, dtype=bool)).ci_low == 0
    assert pooled("ece", confident(wrong), np.ones(80, dtype=bool)).ci_low > 0.28


def test_the_greatest_of_several_means_is_less_sure_to_the_inside():
    shares = np.zeros((40, 4))
    shares[np.arange(40), np.arange(40) % 4] = 1
    low, high = extreme_interval(shares, greatest=True)
    alone = wilson(0.25, 40)
    assert low < alone[0] < alone[1] == pytest.approx(high, abs=0.02)
    assert extreme_interval(shares, greatest=False) == pytest.approx((0.137, 0.447), abs=0.02)
    assert extreme_interval(np.ones((50, 2)), greatest=False)[0] == pytest.approx(0.915, abs=0.01)


def test_each_of_several_right_answers_is_compared_with_1_in_the_harness():
    judged = judge([np.log([0.5, 0.3, 0.2])], [[0, 1]], golds="each")
    assert credits("brier", judged) == pytest.approx([0.5**2 + 0.7**2 + 0.2**2])
    assert credits("brier", replace(judged, golds="sum")) == pytest.approx([0.2**2 + 0.2**2])


def test_the_confidence_of_an_answer_in_text_is_the_probability_of_the_text():
    hit = np.array([1.0, 0.0, 1.0, np.nan])
    judged = Judged(
        scores=np.full(8, np.nan),
        item_offsets=2 * np.arange(5),
        right=np.tile([True, False], 4),
        prediction=np.zeros(4, dtype=int),
        hit=hit,
        text_probability=np.array([0.9, 0.8, np.nan, 0.5]),
    )
    every = np.ones(4, dtype=bool)
    value = pooled("ece-mass", judged, every)
    assert (value.value, value.n, value.missing) == (pytest.approx(0.45), 2, 2)
    assert credits("overconfidence", judged) == pytest.approx(
        [-0.1, 0.8, math.nan, math.nan], nan_ok=True
    )
    assert pooled("ece", judged, np.array([True, False, True, True])).value == pytest.approx(0.1)
    assert np.isnan(uniform("ece", judged)).all()


def test_equal_mass_and_midpoints_are_other_numbers():
    judged = confident([(0.51 + 0.4 * place / 40, place % 3 > 0) for place in range(40)])
    every = np.ones(40, dtype=bool)
    assert [line.n for line in reliability("ece-mass", judged)] == [4] * 10
    values = {name: pooled(name, judged, every).value for name in BINS}
    middle = sum(
        line.n * abs((math.floor(line.confidence * 10) + 0.5) / 10 - line.right)
        for line in reliability("ece", judged)
    )
    assert values["ece-midpoint"] == pytest.approx(middle / 40)
    assert len({round(value, 6) for value in values.values()}) >= 3


items = st.lists(
    st.lists(st.floats(-30, 0).map(lambda score: round(score, 3)), min_size=2, max_size=5),
    min_size=1,
    max_size=12,
)


@given(items, st.data())
def test_the_formulas_hold_on_random_items(scores, data):
    right = [[data.draw(st.integers(0, len(item) - 1))] for item in scores]
    judged = judge(scores, right)
    for place, (item, (gold,)) in enumerate(zip(scores, right, strict=True)):
        x = np.array(item)
        p = np.exp(x - x.max()) / np.exp(x - x.max()).sum()
        y, wrong = np.eye(len(x))[gold], np.delete(x, gold)
        plain = {
            **{
                "logprob": x[gold],
                "prob": np.exp(x[gold]),
                "margin": np.exp(x[gold]) - np.exp(wrong.max()),
            },
            **{"total-prob": np.exp(x).sum(), "norm-prob": p[gold], "log-score": -np.log(p[gold])},
            **{"brier": ((p - y) ** 2).sum(), "overconfidence": p.max() - judged.hit[place]},
            "rps": ((np.cumsum(p) - np.cumsum(y)) ** 2)[:-1].sum() / (len(x) - 1),
        }
        for name, value in plain.items():
            assert credits(name, judged)[place] == pytest.approx(value, abs=1e-9), name
    tied = np.array([len(set(item)) < len(item) for item in scores])
    assert ((credits("margin", judged) > 0) == (judged.hit == 1))[~tied].all()


@given(items, st.floats(-5, 5), st.data())
def test_a_constant_moves_bits_and_no_share(scores, added, data):
    right = [[data.draw(st.integers(0, len(item) - 1))] for item in scores]
    one, other = (
        judge(scores, right),
        judge([[score + added for score in item] for item in scores], right),
    )
    assert credits("norm-prob", one) == pytest.approx(credits("norm-prob", other), abs=1e-9)
    assert credits("bpb", other) - credits("bpb", one) == pytest.approx(
        -added / math.log(2), abs=1e-9
    )


@given(items, st.floats(0.1, 10), st.data())
def test_a_temperature_changes_no_answer(scores, temperature, data):
    right = [[data.draw(st.integers(0, len(item) - 1))] for item in scores]
    one, other = judge(scores, right), judge(scores, right, temperature=temperature)
    sure = one.confidence > 1.000001 / np.array([len(item) for item in scores])
    assert [
        np.argmax(one.shares[a:b])
        for a, b in zip(one.item_offsets, one.item_offsets[1:], strict=False)
    ] == [
        np.argmax(other.shares[a:b])
        for a, b in zip(one.item_offsets, one.item_offsets[1:], strict=False)
    ] or not sure.all()
    assert one.reduced(np.add, other.shares) == pytest.approx(1)


def test_options_whose_probability_underflows_keep_their_order():
    judged = judge([[-2000.0, -1000.0, -1001.0]], [[1]])
    assert credits("norm-prob", judged)[0] == pytest.approx(1 / (1 + math.exp(-1)))
    assert credits("log-score", judge([[-2000.0, -1000.0]], [[0]]))[0] == pytest.approx(1000)
    assert math.isinf(credits("log-score", judge([[-math.inf, -1.0]], [[0]]))[0])
    assert np.isnan(credits("brier", judge([[math.nan, -1.0]], [[0]]))[0])


def test_several_right_answers_are_summed_or_one_of_them_counts():
    shares = np.log([0.2, 0.3, 0.5])
    values = {
        how: credits("norm-prob", judge([shares], [[0, 1]], golds=how))[0]
        for how in ("sum", "max", "first")
    }
    assert values == pytest.approx({"sum": 0.5, "max": 0.3, "first": 0.2})
    brier = {how: credits("brier", judge([shares], [[0, 1]], golds=how))[0] for how in values}
    assert brier == pytest.approx(
        {"sum": 0.25 + 0.25, "max": 0.49 + 0.04 + 0.25, "first": 0.64 + 0.09 + 0.25}
    )
    assert credits("bpb", judge([shares], [[0, 1]]))[0] == pytest.approx(-math.log2(0.2))


@given(items, st.data())
def test_a_uniform_predictor_has_the_known_values(scores, data):
    right = [[data.draw(st.integers(0, len(item) - 1))] for item in scores]
    judged, size = judge(scores, right), np.array([len(item) for item in scores])
    assert uniform("brier", judged) == pytest.approx(1 - 1 / size)
    assert uniform("log-score", judged) == pytest.approx(np.log(size))
    assert uniform("norm-prob", judged) == pytest.approx(1 / size)
    assert uniform("ece", judged) == pytest.approx(0, abs=1e-12)
    assert np.isnan(uniform("bpb", judged)).all()


@pytest.mark.parametrize("name", ["brier", "log-score", "norm-prob", "rps", "ece"])
def test_the_calibrated_value_is_that_of_answers_drawn_from_the_softmax(name):
    rng = np.random.default_rng(3)
    scores = np.log(rng.dirichlet([1.0] * 4, 400)) / 2
    judged, every = judge(scores, [[0]] * 400), np.ones(400, dtype=bool)
    shares = judged.shares.reshape(400, 4)
    drawn = []
    for _ in range(60):
        right = (rng.random((400, 1)) > np.cumsum(shares, axis=1)[:, :-1]).sum(axis=1)
        again = judge(scores, right[:, None])
        drawn.append(credits(name, again).mean())
    assert if_calibrated(name, judged, every) == pytest.approx(np.mean(drawn), rel=0.08)


@pytest.mark.parametrize("name", ["ece", "worst-order", "position-prior"])
def test_the_error_of_a_pooled_number_is_that_of_the_bootstrap(name):
    rng = np.random.default_rng(1)
    scores = rng.normal(0, 2, (300, 4))
    orders = rng.integers(0, 4, (4, 300)) * (rng.random((4, 300)) < 0.6)
    judged = judge(
        scores, [[int(place)] for place in rng.integers(0, 4, 300)], orders=orders, letters=orders
    )
    value = pooled(name, judged, np.ones(300, dtype=bool))

    def again(chosen):
        rows = (chosen[:, None] * 4 + np.arange(4)).ravel()
        own = Judged(
            scores=judged.scores[rows],
            item_offsets=judged.item_offsets,
            right=judged.right[rows],
            prediction=judged.prediction[chosen],
            hit=judged.hit[chosen],
            orders=orders[:, chosen],
            letters=orders[:, chosen],
        )
        return credits(name, own).mean()

    assert again(np.arange(300)) == pytest.approx(value.value)
    assert value.se == pytest.approx(
        np.std([again(rng.integers(0, 300, 300)) for _ in range(300)]), rel=0.25
    )


def test_orders_are_right_everywhere_worst_flipped_and_leaning():
    judged = judge([[0, -1], [0, -1], [-1, 0]], [[0], [0], [0]], orders=np.array([[0, 0, 1], [0, 1, 1]]),
                   letters=np.array([[0, 0, 1], [1, 0, 0]]))  # fmt: skip
    every = np.ones(3, dtype=bool)
    assert credits("all-orders", judged).tolist() == [1, 0, 0]
    assert credits("flip-rate", judged).tolist() == [0, 1, 0]
    assert pooled("worst-order", judged, every).value == pytest.approx(1 / 3)
    assert pooled("position-prior", judged, every).value == pytest.approx(4 / 6)
    assert pooled("worst-order", judged, np.array([True, False, False])).value == 1


def test_people_are_the_target_where_the_data_has_them():
    judged = judge(
        [np.log([0.5, 0.5]), np.log([0.9, 0.1])], [[0], [0]], soft=np.array([3, 1, np.nan, np.nan])
    )
    expected = 0.75 * math.log(1.5) + 0.25 * math.log(0.5)
    assert credits("kl", judged) == pytest.approx([expected, math.nan], nan_ok=True)
    assert credits("tv", judged) == pytest.approx([0.25, math.nan], nan_ok=True)


@given(st.lists(st.tuples(st.floats(0.1, 60), st.integers(1, 200)), min_size=2, max_size=30))
def test_long_answers_weigh_more_as_a_ratio_does(answers):
    bits, size = np.array(answers).T
    assume(np.ptp(bits / size) > 1e-6)
    n = len(bits)
    scores = np.stack([-bits * math.log(2) / size, np.full(n, -50.0)], axis=1)
    judged = judge(scores, [[0]] * n, bytes=np.stack([size, size], axis=1).ravel())
    ratio = bits.sum() / size.sum()
    error = math.sqrt(((bits - ratio * size) ** 2).sum() / (n * (n - 1))) / size.mean()
    value = pooled("bpb", judged, np.ones(n, dtype=bool))
    assert (value.value, value.se) == (pytest.approx(ratio), pytest.approx(error))
    each = credits("bpb", judged)
    assert (
        micro(argmax(scores.ravel(), judged.item_offsets, judged.right, "first"), counted=False).n
        == n
    )
    assert (each.mean(), each.std(ddof=1) / math.sqrt(n)) == (
        pytest.approx(ratio),
        pytest.approx(error),
    )


def test_the_temperature_that_made_the_answers_is_found():
    rng = np.random.default_rng(5)
    true = rng.normal(0, 1, (4000, 4))
    shares = np.exp(true) / np.exp(true).sum(axis=1, keepdims=True)
    right = (rng.random((4000, 1)) > np.cumsum(shares, axis=1)[:, :-1]).sum(axis=1)
    judged = judge(true * 2.5, right[:, None])
    fitted = fit_temperature(judged)
    assert fitted == pytest.approx(2.5, rel=0.08)
    losses = [
        credits("log-score", judge(true * 2.5, right[:, None], temperature=t)).mean()
        for t in (fitted, 1, 2, 3)
    ]
    assert losses[0] == min(losses)
