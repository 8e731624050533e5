"""Every score against a plain reference, row by row, and the identities between them."""

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import choicewise
from choicewise.errors import UsageError
from choicewise.protocols.protocol import Protocol
from choicewise.protocols.readings import CONDITIONAL
from choicewise.scoring.combine import OVER_CHAINS, SELECT
from choicewise.scoring.scores import SCORES, bare, bytes_bare, chars, chars_bare, token_bytes, tokens, words
from tests.helpers.observed import Row, continuations, random_items, random_rows, row


def divided(row: Row, length: int) -> float:
    return math.fsum(row.logprobs) / length if row.logprobs and length else math.nan


LENGTHS = (tokens, token_bytes, bytes_bare, chars, chars_bare, words)

REFERENCE: dict[str, Callable[[Row], float]] = {
    "sum": lambda row: divided(row, 1),
    "token_mean": lambda row: divided(row, len(row.logprobs)),
    "byte_mean": lambda row: divided(row, sum(row.sizes)),
    "byte_mean_bare": lambda row: divided(row, len(row.text[row.text.startswith(" ") :].encode())),
    "char_mean": lambda row: divided(row, len(row.text)),
    "char_mean_bare": lambda row: divided(row, len(row.text[row.text.startswith(" ") :])),
}


@given(items=random_items())
def test_means_equal_the_plain_reference(items: list[list[Row]]) -> None:
    for name, reference in REFERENCE.items():
        scores = SCORES[name](continuations(items))
        assert scores.dtype == np.float64
        np.testing.assert_allclose(scores, [reference(row) for item in items for row in item], rtol=1e-12, err_msg=name)
    observed = continuations(items)
    np.testing.assert_allclose(SCORES["token_mean"](observed) * observed.counts, SCORES["sum"](observed), rtol=1e-12)


@given(pairs=st.lists(st.tuples(random_rows(), random_rows()), max_size=4))
def test_pmi_is_the_difference_of_sums(pairs: list[tuple[Row, Row]]) -> None:
    asked, null = continuations([[left for left, _ in pairs]]), continuations([[right for _, right in pairs]])
    expected = [REFERENCE["sum"](left) - REFERENCE["sum"](right) for left, right in pairs]
    np.testing.assert_allclose(SCORES["pmi"](asked, null), expected, rtol=1e-12, atol=1e-12)


def test_pmi_refuses_to_run_without_null_continuations() -> None:
    observed = continuations([[row(" a", -1.0), row(" b", -2.0)]])
    with pytest.raises(UsageError, match="null context"):
        SCORES["pmi"](observed)
    with pytest.raises(UsageError, match="1 continuations after the null context for 2 choices"):
        SCORES["pmi"](observed, continuations([[row(" a", -1.0)]]))


def test_pmi_of_a_continuation_impossible_in_both_contexts_is_missing() -> None:
    never = continuations([[row(" a", -math.inf), row(" b", -1.0)]])
    np.testing.assert_array_equal(SCORES["pmi"](never, never), [math.nan, 0.0])


def test_worked_example_by_hand() -> None:
    observed = continuations([[row(" größer", -1.0, -2.0, -3.0, sizes=(3, 4, 2))]])
    assert {name: SCORES[name](observed)[0] for name in REFERENCE} == {
        "sum": -6.0,
        "token_mean": -2.0,
        "byte_mean": -6 / 9,
        "byte_mean_bare": -6 / 8,
        "char_mean": -6 / 7,
        "char_mean_bare": -1.0,
    }


def test_a_missing_choice_or_an_empty_text_is_nan_and_never_a_number() -> None:
    scores = {name: SCORES[name](continuations([[row(" a"), row(" ", -1.0)]])) for name in REFERENCE}
    assert all(np.isnan(values[0]) for values in scores.values())
    assert np.isnan(scores["char_mean_bare"][1])
    assert scores["char_mean"][1] == -1.0


def test_lengths_disagree_as_published_normalisations_do() -> None:
    observed = continuations([[row(" größer  Wert", -1.0, -2.0, sizes=(3, 11)), row("")]])
    measured = {length.__name__: length(observed).tolist() for length in LENGTHS}
    assert measured["token_bytes"] == [14.0, pytest.approx(math.nan, nan_ok=True)]
    del measured["token_bytes"]
    assert measured == {
        "tokens": [2, 0],
        "bytes_bare": [14, 0],
        "chars": [13, 0],
        "chars_bare": [12, 0],
        "words": [2, 0],
    }


def test_bare_removes_the_one_separating_space_and_no_other() -> None:
    assert [bare(" a b"), bare("  a"), bare("a "), bare("")] == ["a b", " a", "a ", ""]


@given(
    rows=st.lists(random_rows(), max_size=6).flatmap(
        lambda rows: st.tuples(st.just(rows), st.permutations(range(len(rows))))
    )
)
def test_permuting_the_choices_permutes_the_scores_exactly(rows: tuple[list[Row], list[int]]) -> None:
    given_rows, order = rows
    before, after = continuations([given_rows]), continuations([[given_rows[index] for index in order]])
    for name in REFERENCE:
        np.testing.assert_array_equal(SCORES[name](after), SCORES[name](before)[order], err_msg=name)


@given(logprobs=st.lists(st.floats(-30, 0, width=32), min_size=2, max_size=5))
def test_single_tokens_of_equal_length_rank_alike_under_every_mean(logprobs: list[float]) -> None:
    letters = [row(f" {letter}", value, sizes=(2,)) for letter, value in zip("ABCDE", logprobs, strict=False)]
    observed = continuations([letters])
    for name in REFERENCE:
        np.testing.assert_allclose(SCORES[name](observed) * {"byte_mean": 2, "char_mean": 2}.get(name, 1), logprobs)


def test_every_protocol_score_has_a_documented_function() -> None:
    allowed = Protocol.__dataclass_fields__["score"].metadata["allowed"]
    assert set(allowed) - {"none"} <= {*SCORES, *SELECT, *OVER_CHAINS}
    assert all(getattr(score.function, "func", score.function).__doc__ for score in SCORES.values())
    assert {name for name, score in SCORES.items() if score.conditional} == set(CONDITIONAL)


@pytest.mark.parametrize("name", ["word_mean", "harmonic_mean", "first_divergent", "normalised_pmi"])
def test_a_score_takes_a_name_in_the_readings_and_a_function_and_nothing_else(name: str) -> None:
    source = Path(choicewise.__file__).parent
    files = {str(path.relative_to(source)) for path in source.rglob("*.py") if name in path.read_text()}
    assert files == {"protocols/readings.py", "scoring/scores.py"}
