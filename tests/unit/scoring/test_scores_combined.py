"""Several answers about a choice made one number, and generated text made an option's tokens."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from choicewise.protocols.readings import READINGS
from choicewise.requests.ask import ASKERS
from choicewise.scoring.combine import (
    COMBINERS,
    difference,
    expected_rating,
    log_sum,
    option_match,
    said_options,
    without_end,
)
from choicewise.scoring.observed import Continuations
from tests.helpers.observed import Row, continuations, row

LOGPROB = st.floats(-30, -0.01)


def single(*sums: float, tokens: tuple[int, ...] = ()) -> Continuations:
    """One item with a choice per sum, each a token of its own."""
    rows = [row("x", value, tokens=((tokens or range(len(sums)))[index],)) for index, value in enumerate(sums)]
    return continuations([rows])


@pytest.mark.parametrize("reading", READINGS)
def test_every_reading_is_asked_in_one_file_and_combined_in_one(reading: str) -> None:
    asking, combining = ASKERS[reading], COMBINERS[reading]
    assert all(callable(each) for each in (asking.reserve, asking.ask, asking.ask_null, combining.decision))


def test_log_sum_counts_every_event_once() -> None:
    spaced, bare, same = (
        single(-1.0, -2.0, tokens=(5, 6)),
        single(-3.0, -1.0, tokens=(7, 8)),
        single(-1.0, -9.0, tokens=(5, 9)),
    )
    expected = [np.logaddexp(-1, -3), np.logaddexp.reduce([-2, -1, -9])]
    np.testing.assert_allclose(log_sum([spaced, bare, same]), expected, rtol=1e-6)
    short, long = (
        continuations([[row("(", -1.0, tokens=(4,))]]),
        continuations([[row("(A", -1.0, -2.0, tokens=(4, 5))]]),
    )
    assert log_sum([short, long])[0] == log_sum([long, short])[0] == -1.0
    assert math.isnan(log_sum([short, continuations([[Row("A")]])])[0])


@given(yes=LOGPROB, no=LOGPROB)
def test_difference_is_the_log_odds_of_the_first(yes: float, no: float) -> None:
    one, other = single(yes), single(no)
    assert difference([one, other])[0] == pytest.approx(yes - no, abs=1e-5)
    assert difference([one, other])[0] == -difference([other, one])[0]


@given(sums=st.lists(LOGPROB, min_size=2, max_size=7))
def test_expected_rating_is_a_mean_of_the_labels(sums: list[float]) -> None:
    likelihoods = [math.exp(value) for value in sums]
    mean = sum((index + 1) * value for index, value in enumerate(likelihoods)) / sum(likelihoods)
    assert expected_rating([single(value) for value in sums])[0] == pytest.approx(mean, abs=1e-4)


@given(logprobs=st.lists(st.floats(-5, -0.7), min_size=1, max_size=4), end=st.floats(-9, -0.8))
def test_without_end_renormalises_every_token(logprobs: list[float], end: float) -> None:
    observed = continuations([[row("x", *logprobs), row("y", -1.0)]])
    ends = [continuations([[row("", end), row("", end) if place == 0 else Row("")]]) for place in range(len(logprobs))]
    corrected = without_end([observed, *ends])
    scale = math.log(1 - math.exp(end))
    np.testing.assert_allclose(corrected.logprobs, [*(value - scale for value in logprobs), -1.0 - scale], rtol=1e-5)
    assert without_end([observed]).logprobs.tolist() == observed.logprobs.tolist()


@pytest.mark.parametrize(
    ("pieces", "choice", "tokens"),
    [
        ([' "', "red", '"', " or"], 0, 3),
        (['"', "red", '".'], None, 0),  # the last token reaches beyond the quotation mark
        ([' "', "reddish", '"'], 1, 3),
        ([' "', "red"], None, 0),
        ([" ", '"', "red", '"'], 0, 4),  # the space is the option's own
        (['"', "red", '"', "\n"], 0, 3),
        (["\n\n", '"', "red", '"'], None, 0),  # these line breaks are not
        (["\n", ' "', "red", '"'], None, 0),
        (["  ", '"', "red", '"'], None, 0),
        (["red"], None, 0),
        ([], None, 0),
    ],
)
def test_said_options_finds_the_option_that_the_text_begins_with(
    pieces: list[str], choice: int | None, tokens: int
) -> None:
    text = "".join(pieces)
    generated = continuations(
        [[row(text, *[-1.0] * len(pieces), sizes=tuple(len(piece.encode()) for piece in pieces))]]
    )
    said = said_options(generated, [[' "red"', ' "reddish"', ' "red"']], np.array([0, 3]))
    assert said.counts.tolist() == [tokens if index == choice else 0 for index in range(3)]
    assert list(said.text) == [' "red"', ' "reddish"', ' "red"']
    decided = option_match(said, np.array([False, False, True]))
    assert decided.prediction.tolist() == [-1 if choice is None else choice]
    assert decided.missing.tolist() == [choice is None]
    if choice is not None:
        assert decided.credit[0] == (choice == 0)  # right, as its text stands at the right place, too


def test_said_options_takes_the_longest_of_several() -> None:
    generated = continuations([[row("mat", -1.0, sizes=(3,))], [row("matron", -1.0, -1.0, sizes=(3, 3))]])
    said = said_options(generated, [["mat", "matron"]] * 2, np.array([0, 2, 4]))
    assert said.counts.tolist() == [1, 0, 0, 2]
