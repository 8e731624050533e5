"""How far an error in the log-likelihoods moves a score, against scores of moved likelihoods."""

import math

import numpy as np
import pytest
from hypothesis import given

from choicewise.protocols.readings import ACROSS, TOKENWISE
from choicewise.scoring.scores import FIXED, SCORES, sensitivity
from tests.helpers.observed import Row, continuations, random_items, row


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("sum", 3**0.5),
        ("token_mean", 3**-0.5),
        ("char_mean", 3**0.5 / 4),
        ("char_mean_bare", 3**-0.5),
        ("pmi", 2 * 3**0.5),
        ("domain_conditional", 3**0.5),
        ("first_token", 1.0),
        ("least_likely", 1.0),
        ("locally_renormalised", 2.0),
        ("greedy", math.nan),
    ],
)
def test_sensitivity_by_hand(name: str, expected: float) -> None:
    observed = continuations([[row(" abc", -1.0, -2.0, -3.0)]])
    null = continuations([[row(" abc", -4.0, -2.0, -3.0)]])
    found = sensitivity(name, SCORES[name], observed, null if SCORES[name].conditional else None)
    assert found == pytest.approx([expected], rel=1e-6, nan_ok=True)


def test_sensitivity_of_normalised_pmi_is_its_derivative() -> None:
    observed, null = continuations([[row(" abc", -6.0)]]), continuations([[row(" abc", -9.0)]])
    found = sensitivity("normalised_pmi", SCORES["normalised_pmi"], observed, null)
    assert found == pytest.approx([(1 + 6 / 9) / 9], rel=1e-3)


@given(items=random_items(least_tokens=1))
def test_means_move_no_further_than_their_sensitivity_says(items: list[list[Row]]) -> None:
    observed = continuations(items)
    for name in ("sum", "token_mean", "byte_mean", "char_mean", "word_mean", "gnmt_0.6"):
        bound = sensitivity(name, SCORES[name], observed, None)
        lengths = SCORES[name](observed) / np.where(observed.sums == 0, np.nan, observed.sums)
        known = ~np.isnan(lengths) & ~np.isnan(bound)
        assert bound[known] == pytest.approx((lengths * np.sqrt(observed.counts))[known], rel=1e-3, abs=1e-9)


def test_every_score_of_single_tokens_has_a_sensitivity() -> None:
    assert set(FIXED) == {*TOKENWISE, *ACROSS}
