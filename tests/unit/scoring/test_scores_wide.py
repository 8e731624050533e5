"""The further scores against plain references, and the identities that tie them to the first ones."""

import math
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from choicewise.scoring.scores import SCORES, gnmt, token_power
from tests.helpers.observed import Row, continuations, random_items, row


def mean_of(values: list[float]) -> float:
    return math.fsum(values) / len(values)


REFERENCE: dict[str, Callable[[Row], float]] = {
    "word_mean": lambda row: sum(row.logprobs) / len(row.text.split()) if row.text.strip() else math.nan,
    "token_power_0.5": lambda row: sum(row.logprobs) / math.sqrt(len(row.logprobs)),
    "gnmt_0.6": lambda row: sum(row.logprobs) / ((5 + len(row.logprobs)) / 6) ** 0.6,
    "arithmetic_mean": lambda row: math.log(mean_of([math.exp(value) for value in row.logprobs])),
    "harmonic_mean": lambda row: -math.log(mean_of([math.exp(-value) for value in row.logprobs])),
    "least_likely": lambda row: min(row.logprobs),
    "first_token": lambda row: row.logprobs[0],
    "greedy": lambda row: float(all(rank == 0 for rank in row.ranks)),
}


@given(items=random_items())
def test_token_scores_equal_the_plain_reference(items: list[list[Row]]) -> None:
    rows = [choice for item in items for choice in item]
    for name, reference in REFERENCE.items():
        expected = [reference(choice) if choice.logprobs else math.nan for choice in rows]
        np.testing.assert_allclose(SCORES[name](continuations(items)), expected, rtol=1e-9, atol=1e-12, err_msg=name)


@given(items=random_items())
def test_token_power_spans_from_the_sum_to_the_token_mean_and_gnmt_starts_at_the_sum(items: list[list[Row]]) -> None:
    observed = continuations(items)
    np.testing.assert_allclose(token_power(observed, 0.0), observed.sums)
    np.testing.assert_allclose(token_power(observed, 1.0), SCORES["token_mean"](observed), rtol=1e-12)
    np.testing.assert_allclose(gnmt(observed, 0.0), observed.sums)


@given(items=random_items(least_tokens=1))
def test_the_means_of_probabilities_stand_in_their_order(items: list[list[Row]]) -> None:
    observed = continuations(items)
    names = ("least_likely", "harmonic_mean", "token_mean", "arithmetic_mean")
    for less, more in pairwise(names):
        assert (SCORES[less](observed) <= SCORES[more](observed) + 1e-9).all(), (less, more)


@given(logprobs=st.lists(st.floats(-30, 0, width=32), min_size=2, max_size=5, unique=True))
def test_single_token_choices_score_alike_whatever_the_reduction(logprobs: list[float]) -> None:
    letters = [row(" x", value, tokens=(index,)) for index, value in enumerate(logprobs)]
    observed = continuations([letters])
    names = ["token_power_0.5", "gnmt_0.6", "arithmetic_mean", "harmonic_mean", "least_likely"]
    for name in [*names, "first_token", "first_divergent", "word_mean"]:
        np.testing.assert_allclose(SCORES[name](observed), logprobs, rtol=1e-9, atol=1e-12, err_msg=name)


NULLS = continuations([[row(" a", -4.0), row(" b", -2.0), row(" c", 0.0), row(" d"), row(" e", -math.inf)]])
ASKED = continuations([[row(" a", -1.0), row(" b", -3.0), row(" c", 0.0), row(" d", -1.0), row(" e", -math.inf)]])


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("dc_pmi", [3.0, -1.0, 0.0, math.nan, math.nan]),
        ("normalised_pmi", [0.75, -0.5, math.nan, math.nan, math.nan]),
        ("domain_conditional", [-4.0, -2.0, 0.0, math.nan, -math.inf]),
    ],
)
def test_conditional_scores_by_hand(name: str, expected: list[float]) -> None:
    np.testing.assert_array_equal(SCORES[name](ASKED, NULLS), expected)


def test_domain_conditional_of_a_choice_that_was_not_scored_is_missing() -> None:
    np.testing.assert_array_equal(SCORES["domain_conditional"](NULLS, ASKED), [-1.0, -3.0, 0.0, math.nan, -math.inf])


# The trie: " red", " red wine" ... as tokens; every choice sees the same log-probability at a shared prefix.
TRIE = [
    row(" a", -0.5, -1.0, tokens=(1, 2)),
    row(" b", -0.5, -2.0, -0.25, tokens=(1, 3, 4)),
    row(" c", -0.6, -0.1, tokens=(5, 2)),
]


def test_first_divergent_reads_the_token_after_the_prefix_all_share() -> None:
    assert SCORES["first_divergent"](continuations([TRIE, TRIE[:2]])).tolist() == pytest.approx(
        [-0.5, -0.5, -0.6, -1.0, -2.0]
    )


def test_first_divergent_has_nothing_to_say_of_a_choice_that_begins_all_others() -> None:
    short = row(" s", -0.5, tokens=(1,))
    np.testing.assert_array_equal(SCORES["first_divergent"](continuations([[short, *TRIE[:2]]])), [math.nan, -1, -2])
    np.testing.assert_array_equal(SCORES["first_divergent"](continuations([[row(" m"), short]])), [math.nan] * 2)


def test_constrained_greedy_takes_the_likeliest_token_and_not_the_likeliest_choice() -> None:
    observed = continuations([TRIE])
    assert observed.sums.argmax() == 2
    assert SCORES["constrained_greedy"](observed).tolist() == [1.0, 0.0, 0.0]
    tied = [replace(TRIE[0], logprobs=(-0.5, -2.0)), *TRIE[1:]]
    assert SCORES["constrained_greedy"](continuations([tied])).tolist() == [1.0, 1.0, 0.0]


def test_locally_renormalised_by_hand() -> None:
    first, second = math.exp(-0.5) + math.exp(-0.6), math.exp(-1) + math.exp(-2)
    expected = [-0.5 - math.log(first) - 1 - math.log(second), -0.5 - math.log(first) - 2 - math.log(second)]
    scores = SCORES["locally_renormalised"](continuations([TRIE]))
    np.testing.assert_allclose(scores, [*expected, -0.6 - math.log(first)], rtol=1e-6)


@st.composite
def tries(draw: st.DrawFn) -> list[Row]:
    """Distinct token sequences, none the beginning of another, with one log-probability per node."""
    sequences = draw(st.sets(st.lists(st.integers(0, 2), min_size=3, max_size=3).map(tuple), min_size=1, max_size=8))
    seen: dict[tuple[int, ...], float] = {}
    rows = []
    for sequence in sequences:
        prefixes = [sequence[: length + 1] for length in range(len(sequence))]
        values = [seen.setdefault(prefix, draw(st.floats(-8, 0, width=32))) for prefix in prefixes]
        rows.append(row(" x", *values, tokens=sequence))
    return rows


@given(rows=tries())
def test_locally_renormalised_choices_sum_to_one_and_equal_a_walk_down_the_trie(rows: list[Row]) -> None:
    scores = SCORES["locally_renormalised"](continuations([rows]))
    assert np.exp(scores).sum() == pytest.approx(1, abs=1e-6)
    for score, choice in zip(scores, rows, strict=True):
        expected = 0.0
        for depth, value in enumerate(choice.logprobs):
            with_prefix = [other for other in rows if other.tokens[:depth] == choice.tokens[:depth]]
            siblings = {other.tokens[depth]: math.exp(other.logprobs[depth]) for other in with_prefix}
            expected += value - math.log(sum(siblings.values()))
        assert score == pytest.approx(expected, abs=1e-6)


@given(rows=tries())
def test_constrained_greedy_equals_descending_step_by_step(rows: list[Row]) -> None:
    alive = list(range(len(rows)))
    for depth in range(3):
        best = max(rows[index].logprobs[depth] for index in alive)
        alive = [index for index in alive if rows[index].logprobs[depth] == best]
    scores = SCORES["constrained_greedy"](continuations([rows]))
    survivors = {index for index in range(len(rows)) if scores[index] == 1}
    # Branches that tie are each followed to their own end, where one step-by-step walk keeps the better end only.
    assert set(alive) <= survivors
    paths = {rows[index].logprobs[0] for index in survivors}
    assert paths == {max(choice.logprobs[0] for choice in rows)}


@pytest.mark.parametrize("name", ["constrained_greedy", "locally_renormalised"])
def test_decoding_among_choices_that_cannot_be_told_apart_is_missing(name: str) -> None:
    beginning = row(" s", -0.5, tokens=(1,))
    not_a_number = replace(TRIE[0], logprobs=(-0.5, math.nan))
    for odd in (beginning, row(" m"), not_a_number):
        assert np.isnan(SCORES[name](continuations([[odd, *TRIE[1:]]]))).all()
    twins = SCORES[name](continuations([[TRIE[0], TRIE[0], TRIE[2]]]))
    assert twins[0] == twins[1]
    assert not np.isnan(twins).any()


def test_impossible_tokens_are_never_drawn() -> None:
    never = [row(" a", -math.inf, -1.0, tokens=(1, 2)), row(" b", -1.0, tokens=(3,))]
    assert SCORES["locally_renormalised"](continuations([never])).tolist() == [-math.inf, 0.0]
    nothing = [row(" a", -math.inf, tokens=(1,)), row(" b", -math.inf, tokens=(3,))]
    assert SCORES["locally_renormalised"](continuations([nothing])).tolist() == [-math.inf, -math.inf]


@given(items=random_items(), random=st.randoms(use_true_random=False))
def test_permuting_the_choices_permutes_every_score(items: list[list[Row]], random) -> None:
    orders = [random.sample(range(len(item)), len(item)) for item in items]
    before = continuations(items)
    after = continuations([[item[index] for index in order] for item, order in zip(items, orders, strict=True)])
    moved = np.array(
        [start + index for start, order in zip(before.item_offsets, orders, strict=False) for index in order], dtype=int
    )
    for name in set(SCORES) - {"locally_renormalised", "constrained_greedy"}:
        score = SCORES[name]
        old, new = (score(each, each) if score.conditional else score(each) for each in (before, after))
        np.testing.assert_array_equal(new, old[moved], err_msg=name)
