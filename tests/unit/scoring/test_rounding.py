"""Rounded probabilities: what they leave open, held against every distribution of a grid that rounds so."""

import itertools
import math
from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from choicewise.scoring.probabilities import Judged, credits
from choicewise.scoring.rounding import (
    BOUNDED,
    at_floor,
    rounded_bounds,
    rounding_step,
    top_bounds,
)


def judge(told: Sequence[float], right: int = 0, soft: Sequence[float] | None = None) -> Judged:
    """One item with these probabilities."""
    with np.errstate(divide="ignore"):
        scores = np.log(np.asarray(told, dtype=np.float64))
    gold = np.arange(len(told)) == right
    top = int(np.argmax(scores))
    people = None if soft is None else np.asarray(soft, dtype=np.float64)
    return Judged(
        scores=scores,
        item_offsets=np.array([0, len(told)]),
        right=gold,
        prediction=np.array([top]),
        hit=np.array([float(top == right)]),
        soft=people,
    )


def bounds(
    metric: str, told: Sequence[float], soft: Sequence[float] | None = None, right: int = 0
) -> list[float]:
    low, high = rounded_bounds(metric, judge(told, right, soft), 0.01)
    return [float(low[0]), float(high[0])]


def test_a_sure_answer_of_two_decimals_has_no_kl() -> None:
    """Gold .6, .4, 0 against 1.00, .00, .00: what a floor makes of it, and what the true values may have been."""
    gold, told = [0.6, 0.4, 0.0], [1.0, 0.0, 0.0]
    for floor, value in ((1e-6, 4.853), (1e-9, 7.616), (1e-12, 10.379)):
        own = sum(g * math.log(g / max(p, floor)) for g, p in zip(gold, told, strict=True) if g)
        assert own == pytest.approx(value, abs=5e-4)
        floored = judge([max(p, floor) for p in told], soft=gold)
        assert credits("kl", floored)[0] == pytest.approx(value, abs=5e-4)
    assert credits("brier-soft", judge(told, soft=gold))[0] == pytest.approx(0.32)
    low, high = bounds("kl", told, gold)
    assert (low, high) == (pytest.approx(1.449, abs=5e-4), math.inf)
    assert (
        low
        < 0.6 * math.log(0.6 / 0.998) + 0.4 * math.log(0.4 / 0.002)
        == pytest.approx(1.814, abs=5e-4)
    )
    assert at_floor("kl", judge(told, soft=gold), 0.01).tolist() == [True]
    assert at_floor("log-score", judge(told), 0.01).tolist() == [False]
    assert bounds("log-score", told) == [0.0, pytest.approx(-math.log(0.995))]
    assert bounds("log-score", told, right=1) == [pytest.approx(-math.log(0.005)), math.inf]


STEP, GRID = 0.1, 0.005  # coarse, so that a grid is small


def plain(metric: str, share: Sequence[float], right: int, gold: Sequence[float]) -> float:
    """Each metric as its definition has it."""
    pairs = [*zip(gold, share, strict=True)]
    with np.errstate(divide="ignore"):
        return {
            "log-score": lambda: float(-np.log(share[right])),
            "logprob": lambda: float(np.log(share[right])),
            "kl": lambda: sum(g * float(np.log(g) - np.log(p)) for g, p in pairs if g),
            "brier": lambda: sum((p - (k == right)) ** 2 for k, p in enumerate(share)),
            "brier-soft": lambda: sum((p - g) ** 2 for g, p in pairs),
            "tv": lambda: sum(abs(p - g) for g, p in pairs) / 2,
        }[metric]()


@given(data=st.data())
@settings(max_examples=25, deadline=None)
def test_no_distribution_that_rounds_so_is_beyond_the_bounds(data: st.DataObject) -> None:
    """And KL comes as near to its lower bound as the grid lets it."""
    weights = data.draw(st.lists(st.integers(0, 20), min_size=3, max_size=3).filter(any), "weights")
    true = [weight / sum(weights) for weight in weights]
    told = [round(p / STEP) * STEP for p in true]
    people = data.draw(st.lists(st.integers(0, 5), min_size=3, max_size=3).filter(any), "people")
    gold, right = [count / sum(people) for count in people], data.draw(st.integers(0, 2), "right")
    sides = [np.arange(max(p - STEP / 2, 0), min(p + STEP / 2, 1) + GRID / 2, GRID) for p in told]
    grid = [
        each
        for each in itertools.product(*sides[:2])
        if sides[2][0] - 1e-9 <= 1 - sum(each) <= sides[2][-1] + 1e-9
    ]
    shares = [true, *([p, q, max(1 - p - q, 0.0)] for p, q in grid)]
    for metric in BOUNDED:
        low, high = (
            float(each[0]) for each in rounded_bounds(metric, judge(told, right, gold), STEP)
        )
        values = [plain(metric, share, right, gold) for share in shares]
        assert low - 1e-9 <= min(values) <= max(values) <= high + 1e-9, metric
        if metric == "kl":
            assert min(values) - low < 4 * GRID / max(min(g for g in gold if g), 0.1)
    sure, possible, unclear = (float(each[0]) for each in top_bounds(*_rows(told, right), STEP))
    hits = [all(share[right] > p for k, p in enumerate(share) if k != right) for share in shares]
    assert sure <= min(hits)
    assert max(hits) <= possible
    assert unclear or len({int(np.argmax(share)) for share in shares}) == 1


def _rows(told: Sequence[float], right: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    judged = judge(told, right)
    return judged.scores, judged.item_offsets, judged.right


def test_what_is_missing_has_no_bounds() -> None:
    assert np.isnan(bounds("kl", [0.5, math.nan], [0.5, 0.5])).all()
    assert np.isnan(bounds("kl", [0.5, 0.5])).all()  # of nobody is known what they chose
    assert np.isnan(bounds("rps", [0.5, 0.5])).all()
    assert np.isnan(top_bounds(*_rows([0.5, math.nan], 0), 0.01)[0]).all()


STEPS: Mapping[str, tuple[list[float], float | None]] = {
    "two decimals": ([0.98, 0.02, 0.33, 0.67], 0.01),
    "as float32 has them": (np.exp(np.log([0.98, 0.02, 0.33]).astype(np.float32)).tolist(), 0.01),
    "from a floor": ([1e-12, 0.98, 0.02, 0.33], 0.01),
    "four decimals": ([0.9801, 0.0199, 0.3333], 1e-4),
    "halves, quarters, fifths": ([0.5, 0.25, 0.75, 0.2, 0.8, 0.0, 1.0], None),
    "too few to tell": ([0.98, 0.02], None),
    "not rounded": ([0.98, 0.02, 0.33, 1 / 3], None),
    "none": ([], None),
}


@pytest.mark.parametrize("case", STEPS)
def test_a_step_is_found_where_enough_speaks_for_it(case: str) -> None:
    values, step = STEPS[case]
    assert rounding_step(values) == step
    assert rounding_step([*values, math.nan]) == step
