"""Statistics of several protocols and of lengths, by hand and against scipy."""

import math
from unittest.mock import patch

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from choicewise.extensions.analyses import statistics
from choicewise.extensions.analyses.statistics import (
    Agreement,
    Panel,
    length_correlations,
    panel,
    sign_agreement,
)

NAN = math.nan


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
    assert (result, result.share) == (Agreement(left=2, right=1, even=1), 0.5)
    assert math.isnan(sign_agreement(left[4:], right[4:]).share)
    # credits that cancel but for rounding are even
    fifths, one_right = np.full((1, 5), 1 / 5), np.array([[1.0, 0, 0, 0, 0]])
    assert (fifths - one_right).mean() != 0
    assert sign_agreement(fifths, one_right) == Agreement(left=0, right=0, even=1)


def test_length_correlation_compares_choices_within_their_item() -> None:
    items, lengths = np.array([0, 3, 6, 8, 10]), np.array([1.0, 2, 3, 1, 2, 3, 4, 4, 1, 2])
    for second, expected in (([-11, -12, -13], -1), ([-13, -12, -11], 1)):
        scores = np.array([-1.0, -2, -3, *second, -1, -2, NAN, -1])
        assert length_correlations(scores, lengths, items) == pytest.approx(
            [-1, expected, NAN, NAN], nan_ok=True
        )


PAIRS = st.tuples(st.sampled_from([-3.0, -2.0, -1.0, NAN, -math.inf]), st.integers(1, 3))


@given(
    items=st.lists(st.lists(PAIRS, max_size=5), max_size=5),
    at_once=st.sampled_from([1, 9, statistics.AT_ONCE]),
)
def test_length_correlations_are_spearmans_item_by_item(
    items: list[list[tuple[float, int]]], at_once: int
) -> None:
    offsets = np.cumsum([0] + [len(item) for item in items])
    flat = np.array([pair for item in items for pair in item], dtype=float).reshape(-1, 2)
    with patch.object(statistics, "AT_ONCE", at_once):
        correlations = length_correlations(flat[:, 0], flat[:, 1], offsets)
    for item, rho in zip(items, correlations, strict=True):
        scores, lengths = np.array(item, dtype=float).reshape(-1, 2).T
        constant = len(np.unique(scores)) < 2 or len(np.unique(lengths)) < 2
        known = not constant and not np.isnan(scores).any()
        assert rho == pytest.approx(
            scipy.stats.spearmanr(scores, lengths).statistic if known else NAN, nan_ok=True
        )
