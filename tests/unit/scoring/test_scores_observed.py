"""The ragged array of observed continuations, and the rule for tokens an API would not have shown."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from choicewise.errors import StoreError
from choicewise.protocols.protocol import Protocol
from choicewise.scoring.decide import OUTSIDE, argmax, gold_rows, limited
from choicewise.scoring.observed import reduce_rows, row_of
from tests.helpers.observed import Row, continuations, random_items, row


@given(rows=st.lists(st.lists(st.floats(-1e6, 1e6), max_size=12), max_size=8))
def test_reduce_rows_equals_a_loop_and_leaves_empty_rows_nan(rows: list[list[float]]) -> None:
    values = np.array([value for row in rows for value in row])
    offsets = np.cumsum([0] + [len(row) for row in rows])
    for ufunc in (np.add, np.minimum, np.maximum):
        expected = [ufunc.reduce(np.array(row)) if row else np.nan for row in rows]
        np.testing.assert_allclose(reduce_rows(ufunc, values, offsets), expected, rtol=1e-12, atol=1e-9)
    assert row_of(offsets).tolist() == [index for index, row in enumerate(rows) for _ in row]


def test_float32_logprobs_are_added_in_float64() -> None:
    observed = continuations([[row(" a", -(2.0**20), *[-(2.0**-10)] * 4)]])
    assert observed.sums[0] == -(2.0**20) - 4 * 2.0**-10  # float32 would lose every small term


@given(items=random_items())
def test_continuations_know_their_sums_and_counts(items: list[list[Row]]) -> None:
    rows = [choice for item in items for choice in item]
    observed = continuations(items)
    assert observed.counts.tolist() == [len(choice.logprobs) for choice in rows]
    expected = [sum(choice.logprobs) if choice.logprobs else np.nan for choice in rows]
    np.testing.assert_allclose(observed.sums, expected, rtol=1e-12)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ranks": np.zeros(2, dtype=np.int32)}, "3 tokens but 2 ranks"),
        ({"offsets": np.array([0, 2, 2])}, "offsets .* from 0 to 3"),
        ({"offsets": np.array([0, 4, 3])}, "offsets .* from 0 to 3"),
        ({"item_offsets": np.array([0, 1])}, "item_offsets .* from 0 to 2"),
        ({"offsets": np.array([0, 3])}, "2 continuation texts but 1 rows"),
    ],
)
def test_continuations_refuse_arrays_that_do_not_fit(change: dict, message: str) -> None:
    observed = continuations([[row(" a", -1.0, -2.0), row(" b", -3.0)]])
    with pytest.raises(StoreError, match=message):
        replace(observed, **change)


@given(items=random_items())
def test_outside_replaces_exactly_the_tokens_that_are_not_among_the_top(items: list[list[Row]]) -> None:
    observed = continuations(items)
    flat = [
        (rank, value) for item in items for row in item for rank, value in zip(row.ranks, row.logprobs, strict=True)
    ]
    assert OUTSIDE["top100=-100"](observed).logprobs.tolist() == [-100.0 if rank >= 100 else v for rank, v in flat]
    assert OUTSIDE["keep"](observed) is observed
    assert limited(observed, 1, -5.0).logprobs.tolist() == [-5.0 if rank >= 1 else v for rank, v in flat]


def test_four_letters_outside_the_top_tie_and_the_first_wins_as_in_the_original() -> None:
    letters = [row(f" {letter}", -9.0 + index, ranks=(100 + index,)) for index, letter in enumerate("ABCD")]
    observed = OUTSIDE["top100=-100"](continuations([letters, [replace(letters[0], ranks=(99,)), *letters[1:]]]))
    decided = argmax(observed.sums, observed.item_offsets, gold_rows([[0], [0]], observed.item_offsets), "first")
    assert decided.prediction.tolist() == [0, 0]
    assert decided.tied.tolist() == [True, False]


def test_every_rule_of_the_protocol_exists() -> None:
    assert set(Protocol.__dataclass_fields__["outside"].metadata["allowed"]) == set(OUTSIDE)


TOKEN = st.tuples(st.floats(-9, 0, width=32), st.integers(-9, 8))


@given(st.lists(st.tuples(st.booleans(), st.lists(TOKEN, min_size=1, max_size=4)), min_size=1, max_size=6))
def test_bounds_outside_the_top_token_by_token(rows: list[tuple[bool, list[tuple[float, int]]]]) -> None:
    """``-1 - rank`` tokens at least are likelier than one of a negative rank."""
    top, floor = 4, -5.0
    observed = continuations([[Row("x", *zip(*[(v, 0, 1, r) for v, r in tokens], strict=True)) for _, tokens in rows]])
    told = limited(replace(observed, at_most=np.array([bound for bound, _ in rows])), top, floor)
    place, bounds = 0, []
    for bound, tokens in rows:
        unsure = [rank < 0 and -1 - rank < top for _, rank in tokens]
        for (value, rank), open_ in zip(tokens, unsure, strict=True):
            if rank >= top or -1 - rank >= top:
                expected = floor
            elif bound:
                expected = max(value, floor)
            else:
                expected = np.nan if open_ and value < -np.log(top) else value
            np.testing.assert_equal(told.logprobs[place], np.float32(expected))
            place += 1
        bounds.append(bound and (any(unsure) or all(rank >= 0 for _, rank in tokens)))
    assert told.at_most is not None
    assert told.at_most.tolist() == bounds
