"""The Wilson interval against scipy and at its edges."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from choicewise.scoring.intervals import wilson


@given(n=st.integers(1, 3000), data=st.data(), level=st.floats(0.5, 0.999))
def test_wilson_equals_scipy(n: int, data: st.DataObject, level: float) -> None:
    k = data.draw(st.integers(0, n))
    expected = binomtest(k, n).proportion_ci(level, method="wilson")
    assert wilson(k / n, n, level) == pytest.approx((expected.low, expected.high), abs=1e-12)


@given(mean=st.floats(0, 1), n=st.integers(1, 10**6))
def test_wilson_holds_the_mean_and_stays_within_zero_and_one(mean: float, n: int) -> None:
    low, high = wilson(mean, n)
    assert 0 <= low <= mean <= high <= 1
    assert low < high


def test_wilson_of_nothing_is_not_a_number() -> None:
    assert all(map(math.isnan, wilson(math.nan, 0)))
