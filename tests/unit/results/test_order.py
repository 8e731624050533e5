"""Columns are sorted by how alike they order their rows."""

from __future__ import annotations

import math
from itertools import combinations, pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import kendalltau

from choicewise.results.ladder import _distances as distances
from choicewise.results.ladder import order_agreement, seriated
from choicewise.scoring.observed import Floats

VALUES = st.tuples(st.integers(1, 7), st.integers(1, 6)).flatmap(
    lambda shape: arrays(np.float64, shape, elements=st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0, math.nan]))
)


def way_length(way: list[int], distances: Floats) -> float:
    """How far it is along the columns in this order."""
    return float(sum(distances[one, other] for one, other in pairwise(way)))


@given(VALUES)
def test_agreement_is_kendalls_tau_b_over_the_rows_that_both_have(values: Floats) -> None:
    agreement = order_agreement(values)
    for one, other in combinations(range(len(values)), 2):
        both = ~np.isnan(values[one]) & ~np.isnan(values[other])
        left, right = values[one][both], values[other][both]
        varied = len(left) > 1 and np.ptp(left) > 0 and np.ptp(right) > 0
        expected = kendalltau(left, right).statistic if varied else math.nan
        np.testing.assert_allclose(agreement[[one, other], [other, one]], expected, atol=1e-12)


@given(VALUES, st.data())
def test_no_turned_stretch_makes_the_way_shorter(values: Floats, data: st.DataObject) -> None:
    first = data.draw(st.none() | st.integers(0, len(values) - 1))
    way = seriated(values, first)
    assert sorted(way) == list(range(len(values)))
    assert way == seriated(values.copy(), first)
    assert first in (None, way[0])
    far = distances(values)
    for start in range(0 if first is None else 1, len(way)):
        for stop in range(start + 2, len(way) + 1):
            turned = way[:start] + way[start:stop][::-1] + way[stop:]
            assert way_length(way, far) <= way_length(turned, far) + 1e-9


def test_columns_of_the_same_order_stand_together() -> None:
    up, down = [0.1, 0.2, 0.3], [0.3, 0.2, 0.1]
    way = seriated(np.array([up, down, up, down, up]))
    assert way in ([0, 2, 4, 1, 3], [4, 2, 0, 3, 1], [0, 2, 4, 3, 1])
    assert seriated(np.array([up, down, up, down, up]), first=1)[:2] == [1, 3]


def test_nothing_has_no_order() -> None:
    assert seriated(np.empty((0, 0))) == []
    assert seriated(np.empty((2, 0))) == [0, 1]


def test_ways_of_many_columns_cannot_be_turned_shorter() -> None:
    """Columns in which a nearest-neighbour way almost always has a stretch to turn round."""
    draw, turned = np.random.default_rng(7), 0
    for _ in range(30):
        values = draw.normal(size=(10, 8))
        far = distances(values)
        way = seriated(values, first=0)
        greedy = [0]
        while len(greedy) < len(far):
            greedy.append(min(set(range(len(far))) - {*greedy}, key=lambda place: (far[greedy[-1], place], place)))
        turned += way_length(way, far) < way_length(greedy, far) - 1e-9
        for start in range(1, len(way)):
            for stop in range(start + 2, len(way) + 1):
                other = way[:start] + way[start:stop][::-1] + way[stop:]
                assert way_length(way, far) <= way_length(other, far) + 1e-9
    assert turned > 10
