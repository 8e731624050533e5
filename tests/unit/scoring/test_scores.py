"""Every score against a plain reference, row by row, the identities between them, and the array that they read."""

import math
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from statistics import fmean

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import choicewise
from choicewise.errors import StoreError, UsageError
from choicewise.protocols.protocol import Protocol
from choicewise.protocols.readings import ACROSS, ALONG, CONDITIONAL, TOKENWISE
from choicewise.scoring.combine import OVER_CHAINS, OVER_SPELLINGS, SELECT
from choicewise.scoring.decide import OUTSIDE, argmax, gold_rows, limited
from choicewise.scoring.observed import reduce_rows, row_of
from choicewise.scoring.scores import (
    FIXED,
    LACKS,
    SCORES,
    bare,
    bytes_bare,
    chars,
    gnmt,
    lacking,
    sensitivity,
    token_bytes,
    token_power,
    tokens,
)
from tests.helpers.messages import Gist
from tests.helpers.observed import Row, continuations, random_items, random_rows, row

Items = list[list[Row]]
NAN = math.nan


def divided(row: Row, length: int) -> float:
    return math.fsum(row.logprobs) / length if row.logprobs and length else NAN


def of_tokens(function: Callable[[Row], float]) -> Callable[[Row], float]:
    return lambda row: function(row) if row.logprobs else NAN


MEANS: dict[str, Callable[[Row], float]] = {
    "sum": lambda row: divided(row, 1),
    "token_mean": lambda row: divided(row, len(row.logprobs)),
    "byte_mean": lambda row: divided(row, sum(row.sizes)),
    "byte_mean_bare": lambda row: divided(row, len(row.text[row.text.startswith(" ") :].encode())),
    "char_mean": lambda row: divided(row, len(row.text)),
    "char_mean_bare": lambda row: divided(row, len(row.text[row.text.startswith(" ") :])),
}
REFERENCE = {
    **MEANS,
    "word_mean": lambda row: divided(row, len(row.text.split())),
    "token_power_0.5": lambda row: divided(row, math.sqrt(len(row.logprobs))),
    "gnmt_0.6": lambda row: divided(row, ((5 + len(row.logprobs)) / 6) ** 0.6),
    "arithmetic_mean": of_tokens(lambda row: math.log(fmean(map(math.exp, row.logprobs)))),
    "harmonic_mean": of_tokens(
        lambda row: -math.log(fmean(math.exp(-value) for value in row.logprobs))
    ),
    "least_likely": of_tokens(lambda row: min(row.logprobs)),
    "first_token": of_tokens(lambda row: row.logprobs[0]),
    "greedy": of_tokens(lambda row: float(all(rank == 0 for rank in row.ranks))),
}


def scored(name: str, *rows: Row) -> list[float]:
    """The score of the choices of one item."""
    values: list[float] = SCORES[name](continuations([[*rows]])).tolist()
    return values


@given(items=random_items())
def test_scores_equal_the_plain_reference(items: Items) -> None:
    observed, rows = continuations(items), [choice for item in items for choice in item]
    for name, reference in REFERENCE.items():
        scores, rtol = SCORES[name](observed), 1e-12 if name in MEANS else 1e-9
        assert scores.dtype == np.float64
        np.testing.assert_allclose(
            scores, [reference(row) for row in rows], rtol, 1e-12 * (rtol > 1e-12), err_msg=name
        )
    assert observed.counts.tolist() == [len(choice.logprobs) for choice in rows]
    np.testing.assert_allclose(observed.sums, SCORES["sum"](observed), rtol=1e-12)
    np.testing.assert_allclose(
        SCORES["token_mean"](observed) * observed.counts, observed.sums, rtol=1e-12
    )
    np.testing.assert_allclose(token_power(observed, 0.0), observed.sums)
    np.testing.assert_allclose(
        token_power(observed, 1.0), SCORES["token_mean"](observed), rtol=1e-12
    )
    np.testing.assert_allclose(gnmt(observed, 0.0), observed.sums)


@given(pairs=st.lists(st.tuples(random_rows(), random_rows()), max_size=4))
def test_pmi_is_the_difference_of_sums(pairs: list[tuple[Row, Row]]) -> None:
    asked, null = (
        continuations([[left for left, _ in pairs]]),
        continuations([[right for _, right in pairs]]),
    )
    expected = [MEANS["sum"](left) - MEANS["sum"](right) for left, right in pairs]
    np.testing.assert_allclose(SCORES["pmi"](asked, null), expected, rtol=1e-12, atol=1e-12)


def test_pmi_refuses_to_run_without_null_continuations() -> None:
    observed = continuations([[row(" a", -1.0), row(" b", -2.0)]])
    with pytest.raises(UsageError, match="null context"):
        SCORES["pmi"](observed)
    with pytest.raises(UsageError, match="1 continuations .* 2 choices"):
        SCORES["pmi"](observed, continuations([[row(" a", -1.0)]]))


def test_worked_example_by_hand() -> None:
    observed = continuations([[row(" größer", -1.0, -2.0, -3.0, sizes=(3, 4, 2))]])
    expected = dict(zip(MEANS, (-6.0, -2.0, -6 / 9, -6 / 8, -6 / 7, -1.0), strict=True))
    assert {name: SCORES[name](observed)[0] for name in MEANS} == expected


def test_a_missing_choice_or_an_empty_text_is_nan_and_never_a_number() -> None:
    scores = {name: scored(name, row(" a"), row(" ", -1.0)) for name in MEANS}
    assert all(np.isnan(values[0]) for values in scores.values())
    assert (math.isnan(scores["char_mean_bare"][1]), scores["char_mean"][1]) == (True, -1.0)


def test_lengths_disagree_as_published_normalisations_do() -> None:
    observed = continuations([[row(" größer  Wert", -1.0, -2.0, sizes=(3, 11)), row("")]])
    np.testing.assert_array_equal(token_bytes(observed), [14.0, NAN])
    measured = [length(observed).tolist() for length in (tokens, bytes_bare, chars)]
    assert measured == [[2, 0], [14, 0], [13, 0]]
    means = [SCORES[name](observed)[0] for name in ("char_mean_bare", "word_mean")]
    assert means == [-3 / 12, -3 / 2]
    assert [bare(" a b"), bare("  a"), bare("a "), bare("")] == [
        "a b",
        " a",
        "a ",
        "",
    ]  # one separating space


@given(logprobs=st.lists(st.floats(-30, 0, width=32), min_size=2, max_size=5, unique=True))
def test_single_tokens_score_alike_whatever_the_reduction(logprobs: list[float]) -> None:
    observed = continuations(
        [[row(" x", each, tokens=(n,), sizes=(2,)) for n, each in enumerate(logprobs)]]
    )
    lengths = {"byte_mean": 2, "char_mean": 2}
    for name in [*REFERENCE, "first_divergent"]:
        if name != "greedy":
            scores = SCORES[name](observed) * lengths.get(name, 1)
            np.testing.assert_allclose(scores, logprobs, rtol=1e-9, atol=1e-12, err_msg=name)


@given(items=random_items(), random=st.randoms(use_true_random=False))
def test_permuting_the_choices_permutes_every_score(items: Items, random) -> None:
    orders = [random.sample(range(len(item)), len(item)) for item in items]
    before = continuations(items)
    after = continuations(
        [[item[index] for index in order] for item, order in zip(items, orders, strict=True)]
    )
    starts = zip(before.item_offsets, orders, strict=False)
    moved = np.array([start + index for start, order in starts for index in order], dtype=int)
    for name in set(SCORES) - {"locally_renormalised", "constrained_greedy"}:
        score = SCORES[name]
        old, new = (
            score(each, each) if score.conditional else score(each) for each in (before, after)
        )
        np.testing.assert_array_equal(new, old[moved], err_msg=name)


def test_every_protocol_score_has_a_documented_function() -> None:
    fields = Protocol.__dataclass_fields__
    special = {*SELECT, *OVER_CHAINS, *OVER_SPELLINGS, *ALONG}
    assert set(fields["score"].metadata["allowed"]) - {"none"} <= {*SCORES, *special}
    assert all(getattr(score.function, "func", score.function).__doc__ for score in SCORES.values())
    assert {name for name, score in SCORES.items() if score.conditional} == set(CONDITIONAL)
    assert set(FIXED) == {*TOKENWISE, *ACROSS}  # every score of single tokens has a sensitivity
    assert set(fields["outside"].metadata["allowed"]) == set(OUTSIDE)


def test_a_score_takes_a_name_in_the_readings_and_a_function_and_nothing_else() -> None:
    source = Path(choicewise.__file__).parent
    names = {"word_mean", "harmonic_mean", "first_divergent", "normalised_pmi"}
    files = {
        str(path.relative_to(source)): path.read_text(encoding="utf-8")
        for path in source.rglob("*.py")
    }
    having = {path: {name for name in names if name in text} for path, text in files.items()}
    assert {path: found for path, found in having.items() if found} == dict.fromkeys(
        ("protocols/readings.py", "scoring/scores.py"), names
    )


@given(items=random_items(least_tokens=1))
def test_the_means_of_probabilities_stand_in_their_order(items: Items) -> None:
    observed = continuations(items)
    for less, more in pairwise(("least_likely", "harmonic_mean", "token_mean", "arithmetic_mean")):
        assert (SCORES[less](observed) <= SCORES[more](observed) + 1e-9).all(), (less, more)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("pmi", [3.0, -1.0, 0.0, NAN, NAN]),  # impossible in both contexts: missing
        ("dc_pmi", [3.0, -1.0, 0.0, NAN, NAN]),
        ("normalised_pmi", [0.75, -0.5, NAN, NAN, NAN]),
        ("domain_conditional", [-4.0, -2.0, 0.0, NAN, -math.inf]),
    ],
)
def test_conditional_scores_by_hand(name: str, expected: list[float]) -> None:
    nulls = continuations(
        [[row(" a", -4.0), row(" b", -2.0), row(" c", 0.0), row(" d"), row(" e", -math.inf)]]
    )
    asked = continuations(
        [[row(" a", -1.0), row(" b", -3.0), row(" c", 0.0), row(" d", -1.0), row(" e", -math.inf)]]
    )
    np.testing.assert_array_equal(SCORES[name](asked, nulls), expected)
    if name == "domain_conditional":  # of a choice that was not scored it is missing
        np.testing.assert_array_equal(SCORES[name](nulls, asked), [-1.0, -3.0, 0.0, NAN, -math.inf])


# The trie: " red", " red wine" ... as tokens; every choice sees the same log-probability at a shared prefix.
TRIE = [
    row(" a", -0.5, -1.0, tokens=(1, 2)),
    row(" b", -0.5, -2.0, -0.25, tokens=(1, 3, 4)),
    row(" c", -0.6, -0.1, tokens=(5, 2)),
]
SHORT = row(" s", -0.5, tokens=(1,))


def test_first_divergent_reads_the_token_after_the_prefix_all_share() -> None:
    observed = continuations([TRIE, TRIE[:2]])
    assert SCORES["first_divergent"](observed).tolist() == pytest.approx(
        [-0.5, -0.5, -0.6, -1.0, -2.0]
    )
    # it has nothing to say of a choice that begins all others
    np.testing.assert_array_equal(scored("first_divergent", SHORT, *TRIE[:2]), [NAN, -1, -2])
    np.testing.assert_array_equal(scored("first_divergent", row(" m"), SHORT), [NAN] * 2)


def test_constrained_greedy_takes_the_likeliest_token_and_not_the_likeliest_choice() -> None:
    assert continuations([TRIE]).sums.argmax() == 2
    assert scored("constrained_greedy", *TRIE) == [1.0, 0.0, 0.0]
    assert scored("constrained_greedy", replace(TRIE[0], logprobs=(-0.5, -2.0)), *TRIE[1:]) == [
        1.0,
        1.0,
        0.0,
    ]


def test_locally_renormalised_by_hand() -> None:
    first, second = math.exp(-0.5) + math.exp(-0.6), math.exp(-1) + math.exp(-2)
    expected = [
        -0.5 - math.log(first) - 1 - math.log(second),
        -0.5 - math.log(first) - 2 - math.log(second),
    ]
    np.testing.assert_allclose(
        scored("locally_renormalised", *TRIE), [*expected, -0.6 - math.log(first)], rtol=1e-6
    )
    never, nothing = row(" a", -math.inf, -1.0, tokens=(1, 2)), row(" a", -math.inf, tokens=(1,))
    assert scored("locally_renormalised", never, row(" b", -1.0, tokens=(3,))) == [-math.inf, 0.0]
    assert scored("locally_renormalised", nothing, replace(nothing, tokens=(3,))) == [-math.inf] * 2


@st.composite
def tries(draw: st.DrawFn) -> list[Row]:
    """Distinct token sequences, none the beginning of another, with one log-probability per node."""
    sequences = draw(
        st.sets(
            st.lists(st.integers(0, 2), min_size=3, max_size=3).map(tuple), min_size=1, max_size=8
        )
    )
    seen: dict[tuple[int, ...], float] = {}
    rows = []
    for sequence in sequences:
        prefixes = [sequence[: length + 1] for length in range(len(sequence))]
        values = [seen.setdefault(prefix, draw(st.floats(-8, 0, width=32))) for prefix in prefixes]
        rows.append(row(" x", *values, tokens=sequence))
    return rows


@given(rows=tries())
def test_decoding_among_choices_equals_a_walk_down_the_trie(rows: list[Row]) -> None:
    scores = scored("locally_renormalised", *rows)
    assert np.exp(scores).sum() == pytest.approx(1, abs=1e-6)
    for score, choice in zip(scores, rows, strict=True):
        expected = 0.0
        for depth, value in enumerate(choice.logprobs):
            with_prefix = [other for other in rows if other.tokens[:depth] == choice.tokens[:depth]]
            siblings = {
                other.tokens[depth]: math.exp(other.logprobs[depth]) for other in with_prefix
            }
            expected += value - math.log(sum(siblings.values()))
        assert score == pytest.approx(expected, abs=1e-6)
    alive = list(range(len(rows)))
    for depth in range(3):
        best = max(rows[index].logprobs[depth] for index in alive)
        alive = [index for index in alive if rows[index].logprobs[depth] == best]
    survivors = {
        index for index, score in enumerate(scored("constrained_greedy", *rows)) if score == 1
    }
    # branches that tie are each followed to their own end, where one step-by-step walk keeps the better end only
    assert set(alive) <= survivors
    assert {rows[index].logprobs[0] for index in survivors} == {
        max(choice.logprobs[0] for choice in rows)
    }


@pytest.mark.parametrize("name", ["constrained_greedy", "locally_renormalised"])
def test_decoding_among_choices_that_cannot_be_told_apart_is_missing(name: str) -> None:
    for odd in (SHORT, row(" m"), replace(TRIE[0], logprobs=(-0.5, NAN))):
        assert np.isnan(scored(name, odd, *TRIE[1:])).all()
    twins = scored(name, TRIE[0], TRIE[0], TRIE[2])
    assert twins[0] == twins[1]
    assert not np.isnan(twins).any()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        *(
            ("sum", 3**0.5),
            ("token_mean", 3**-0.5),
            ("char_mean", 3**0.5 / 4),
            ("char_mean_bare", 3**-0.5),
        ),
        *(
            ("pmi", 2 * 3**0.5),
            ("domain_conditional", 3**0.5),
            ("first_token", 1.0),
            ("least_likely", 1.0),
        ),
        *(("locally_renormalised", 2.0), ("greedy", NAN)),
    ],
)
def test_sensitivity_by_hand(name: str, expected: float) -> None:
    """How far an error in the log-likelihoods moves a score."""
    observed, null = (continuations([[row(" abc", first, -2.0, -3.0)]]) for first in (-1.0, -4.0))
    told = sensitivity(name, SCORES[name], observed, null if SCORES[name].conditional else None)
    assert told == pytest.approx([expected], rel=1e-6, nan_ok=True)


def test_sensitivity_of_normalised_pmi_is_its_derivative() -> None:
    observed, null = continuations([[row(" abc", -6.0)]]), continuations([[row(" abc", -9.0)]])
    told = sensitivity("normalised_pmi", SCORES["normalised_pmi"], observed, null)
    assert told == pytest.approx([(1 + 6 / 9) / 9], rel=1e-3)


@given(items=random_items(least_tokens=1))
def test_means_move_no_further_than_their_sensitivity_says(items: Items) -> None:
    observed = continuations(items)
    for name in ("sum", "token_mean", "byte_mean", "char_mean", "word_mean", "gnmt_0.6"):
        bound = sensitivity(name, SCORES[name], observed, None)
        lengths = SCORES[name](observed) / np.where(observed.sums == 0, np.nan, observed.sums)
        known = ~np.isnan(lengths) & ~np.isnan(bound)
        assert bound[known] == pytest.approx(
            (lengths * np.sqrt(observed.counts))[known], rel=1e-3, abs=1e-9
        )


@given(rows=st.lists(st.lists(st.floats(-1e6, 1e6), max_size=12), max_size=8))
def test_reduce_rows_equals_a_loop_and_leaves_empty_rows_nan(rows: list[list[float]]) -> None:
    values, offsets = (
        np.array([value for row in rows for value in row]),
        np.cumsum([0] + [len(row) for row in rows]),
    )
    for ufunc in (np.add, np.minimum, np.maximum):
        expected = [ufunc.reduce(np.array(row)) if row else np.nan for row in rows]
        np.testing.assert_allclose(
            reduce_rows(ufunc, values, offsets), expected, rtol=1e-12, atol=1e-9
        )
    assert row_of(offsets).tolist() == [index for index, row in enumerate(rows) for _ in row]


def test_float32_logprobs_are_added_in_float64() -> None:
    observed = continuations([[row(" a", -(2.0**20), *[-(2.0**-10)] * 4)]])
    assert observed.sums[0] == -(2.0**20) - 4 * 2.0**-10  # float32 would lose every small term


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


def test_only_a_row_without_the_score_lacks_something() -> None:
    totals, lengths = np.array([-1.0, -2.0, NAN, NAN]), np.array([2.0, NAN, NAN, 1.0])
    rows = continuations([[row(" a"), row(" b"), row(" c"), row(" d", -3.0)]])
    observed = replace(rows, totals=totals, token_counts=lengths)
    told = [LACKS[code] for code in lacking(SCORES["token_mean"], observed, None)]
    assert [text.partition(";")[0] for text in told] == ["", Gist("token counts"), "", ""]
    assert not lacking(SCORES["token_mean"], rows, None).any()


@given(items=random_items())
def test_outside_replaces_exactly_the_tokens_that_are_not_among_the_top(items: Items) -> None:
    observed, rows = continuations(items), [row for item in items for row in item]
    flat = [pair for row in rows for pair in zip(row.ranks, row.logprobs, strict=True)]
    assert OUTSIDE["top100=-100"](observed).logprobs.tolist() == [
        -100.0 if rank >= 100 else v for rank, v in flat
    ]
    assert OUTSIDE["keep"](observed) is observed
    assert limited(observed, 1, -5.0).logprobs.tolist() == [
        -5.0 if rank >= 1 else v for rank, v in flat
    ]


def test_four_letters_outside_the_top_tie_and_the_first_wins_as_in_the_original() -> None:
    letters = [
        row(f" {letter}", -9.0 + index, ranks=(100 + index,)) for index, letter in enumerate("ABCD")
    ]
    observed = OUTSIDE["top100=-100"](
        continuations([letters, [replace(letters[0], ranks=(99,)), *letters[1:]]])
    )
    decided = argmax(
        observed.sums, observed.item_offsets, gold_rows([[0], [0]], observed.item_offsets), "first"
    )
    assert (decided.prediction.tolist(), decided.tied.tolist()) == ([0, 0], [True, False])


TOKEN = st.tuples(st.floats(-9, 0, width=32), st.integers(-9, 8))


@given(
    st.lists(
        st.tuples(st.booleans(), st.lists(TOKEN, min_size=1, max_size=4)), min_size=1, max_size=6
    ),
    st.sampled_from([1, 4]),
)
@example([(False, [(0.0, -1)])], 1)  # nothing is likelier than what is certain
def test_bounds_outside_the_top_token_by_token(
    rows: list[tuple[bool, list[tuple[float, int]]]], top: int
) -> None:
    """``-1 - rank`` tokens at least are likelier than one of a negative rank."""
    floor = -5.0
    observed = continuations(
        [[Row("x", *zip(*[(v, 0, 1, r) for v, r in tokens], strict=True)) for _, tokens in rows]]
    )
    told = limited(replace(observed, at_most=np.array([bound for bound, _ in rows])), top, floor)
    logprobs, bounds = [], []
    for bound, pairs in rows:
        unsure = [rank < 0 and -1 - rank < top for _, rank in pairs]
        for (value, rank), open_ in zip(pairs, unsure, strict=True):
            if rank >= top or -1 - rank >= top:
                logprobs.append(floor)
            elif bound:
                logprobs.append(max(value, floor))
            else:
                logprobs.append(np.nan if open_ and value < -np.log(top) else value)
        bounds.append(bound and (any(unsure) or all(rank >= 0 for _, rank in pairs)))
    np.testing.assert_array_equal(told.logprobs, np.array(logprobs, dtype=np.float32))
    assert told.at_most is not None
    assert told.at_most.tolist() == bounds
