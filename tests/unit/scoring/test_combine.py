"""Several answers about a choice made one number: calibrations, orders, readings of several parts, SGLang's select."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from choicewise.errors import ProtocolError
from choicewise.protocols.readings import READINGS, VIEWS
from choicewise.protocols.readings import SELECT as NAMES
from choicewise.questions import Ids
from choicewise.requests.prompters import PROMPTERS
from choicewise.scoring.calibrate import (
    batch,
    contextual,
    label_prior,
    log_shares,
    view_mean,
    without,
)
from choicewise.scoring.combine import (
    COMBINERS,
    SELECT,
    difference,
    expected_rating,
    log_greatest,
    log_sum,
    option_match,
    said_options,
    without_end,
)
from choicewise.scoring.decide import choice_distribution, option_mass
from choicewise.scoring.observed import Continuations
from choicewise.tokens.boundary import select_spans
from choicewise.tokens.encode import Encodings
from choicewise.tokens.tokenizer import ByteTokenizer
from tests.helpers.hash_models import MergingTokenizer
from tests.helpers.observed import Row, continuations, row
from tests.helpers.protocols import mmlu_protocol

NAN = math.nan
LOGPROB = st.floats(-30, -0.01)
VALUES = st.floats(-30, 0)
LABELS = arrays(np.float64, st.tuples(st.integers(1, 6), st.integers(2, 5)), elements=VALUES)


def softmax(values: list[float]) -> list[float]:
    weights = [math.exp(value - max(values)) for value in values]
    return [weight / sum(weights) for weight in weights]


@given(items=st.lists(st.lists(VALUES, max_size=5), max_size=5), temperature=st.floats(0.1, 10))
def test_choice_distribution_and_mass_equal_loops(
    items: list[list[float]], temperature: float
) -> None:
    flat, offsets = (
        np.array([v for item in items for v in item]),
        np.cumsum([0] + [len(item) for item in items]),
    )
    expected = [
        p for item in items for p in (softmax([v / temperature for v in item]) if item else [])
    ]
    np.testing.assert_allclose(choice_distribution(flat, offsets, temperature), expected, rtol=1e-9)
    masses = [sum(map(math.exp, item)) if item else NAN for item in items]
    np.testing.assert_allclose(option_mass(flat, offsets), masses, rtol=1e-9)


def test_a_missing_or_impossible_choice_has_no_distribution() -> None:
    scores, items = (
        np.array([NAN, -1.0, -math.inf, -math.inf, -math.inf, -2.0]),
        np.array([0, 2, 4, 6]),
    )
    np.testing.assert_array_equal(choice_distribution(scores, items), [NAN] * 4 + [0.0, 1.0])
    np.testing.assert_allclose(option_mass(scores, items), [NAN, 0.0, math.exp(-2)])


@given(scores=LABELS, shift=st.floats(-5, 5))
def test_log_shares_are_probabilities_and_ignore_a_common_factor(
    scores: np.ndarray, shift: float
) -> None:
    np.testing.assert_allclose(np.exp(log_shares(scores)).sum(axis=1), 1)
    np.testing.assert_allclose(log_shares(scores + shift), log_shares(scores), atol=1e-9)


@given(scores=LABELS)
def test_contextual_calibration_equals_a_loop_and_levels_its_own_inputs(scores: np.ndarray) -> None:
    neutral = scores[:2]
    prior = np.mean([softmax(list(inputs)) for inputs in neutral], axis=0)
    expected = [
        [math.log(p) - math.log(q) for p, q in zip(softmax(list(r)), prior, strict=True)]
        for r in scores
    ]
    np.testing.assert_allclose(contextual(scores, neutral), expected, atol=1e-9)
    np.testing.assert_allclose(contextual(scores[:1], scores[:1]), 0, atol=1e-9)


@given(scores=LABELS)
def test_batch_calibration_of_one_item_is_uniform_and_of_many_is_contextual(
    scores: np.ndarray,
) -> None:
    np.testing.assert_allclose(batch(scores[:1]), 0, atol=1e-9)
    np.testing.assert_array_equal(batch(scores), contextual(scores, scores))
    np.testing.assert_allclose(np.exp(batch(scores)).mean(axis=0), 1)


def test_calibration_leaves_missing_items_out_of_the_estimate() -> None:
    scores = np.array([[-1.0, -2.0], [NAN, -1.0], [-math.inf, -math.inf]])
    np.testing.assert_array_equal(batch(scores), [[0.0, 0.0], [NAN] * 2, [NAN] * 2])
    np.testing.assert_array_equal(batch(scores[1:]), [[NAN] * 2] * 2)


@given(
    liking=arrays(np.float64, 4, elements=st.floats(-3, 0)),
    content=arrays(np.float64, (5, 4), elements=st.floats(-3, 0)),
)
def test_pride_removes_a_pure_preference_for_labels(
    liking: np.ndarray, content: np.ndarray
) -> None:
    orders = np.array(VIEWS["cyclic"](4, 0))
    observed = (
        content[:, orders] + liking
    )  # the option under each label, plus how the label itself is liked
    prior = label_prior(observed)
    np.testing.assert_allclose(prior, log_shares(liking), atol=1e-9)
    debiased = without(observed[:, 0], prior)
    np.testing.assert_allclose(log_shares(debiased), log_shares(content), atol=1e-9)


@pytest.mark.parametrize("views", ["cyclic", "full"])
@given(scores=arrays(np.float64, (2, 6, 3), elements=VALUES))
def test_view_mean_of_options_under_their_labels_equals_a_loop_over_labels(
    views: str, scores: np.ndarray
) -> None:
    orders = np.array(VIEWS[views](3, 0))
    by_label = scores[:, : len(orders)]
    expected = np.zeros((2, 3))
    for item in range(2):
        for number, order in enumerate(orders):
            for label, option in enumerate(order):
                expected[item, option] += softmax(list(by_label[item, number]))[label] / len(orders)
    by_option = np.take_along_axis(by_label, np.argsort(orders, axis=-1)[None], axis=-1)
    np.testing.assert_allclose(np.exp(view_mean(by_option)), expected, rtol=1e-9)
    np.testing.assert_allclose(np.exp(view_mean(by_option)).sum(axis=1), 1)
    turned = np.roll(by_option, 1, axis=1)  # it does not depend on which view came first
    np.testing.assert_allclose(view_mean(turned), view_mean(by_option), atol=1e-9)


def test_orders_start_as_given_and_put_every_option_under_every_label_equally_often() -> None:
    for views, count in (("cyclic", 4), ("full", 24)):
        orders = np.array(VIEWS[views](4, 0))
        assert orders.shape == (count, 4)
        assert orders[0].tolist() == [0, 1, 2, 3]
        assert len({tuple(order) for order in orders.tolist()}) == count
        for label in range(4):
            assert np.bincount(orders[:, label]).tolist() == [count // 4] * 4


def single(*sums: float, tokens: tuple[int, ...] = ()) -> Continuations:
    """One item with a choice per sum, each a token of its own."""
    ids = tokens or range(len(sums))
    return continuations(
        [[row("x", value, tokens=(ids[index],)) for index, value in enumerate(sums)]]
    )


def test_every_reading_is_asked_in_one_file_and_combined_in_one() -> None:
    for reading in READINGS:
        asking, combining = PROMPTERS[reading], COMBINERS[reading]
        assert all(
            callable(each)
            for each in (
                asking.reserve,
                asking.add_prompts,
                asking.add_null_prompts,
                combining.decision,
            )
        )


def test_log_sum_counts_every_event_once() -> None:
    parts = [
        single(-1.0, -2.0, tokens=(5, 6)),
        single(-3.0, -1.0, tokens=(7, 8)),
        single(-1.0, -9.0, tokens=(5, 9)),
    ]
    np.testing.assert_allclose(
        log_sum(parts), [np.logaddexp(-1, -3), np.logaddexp.reduce([-2, -1, -9])], rtol=1e-6
    )
    short, long = single(-1.0, tokens=(4,)), continuations([[row("(A", -1.0, -2.0, tokens=(4, 5))]])
    assert log_sum([short, long])[0] == log_sum([long, short])[0] == -1.0
    assert math.isnan(log_sum([short, continuations([[Row("A")]])])[0])
    assert log_greatest(parts).tolist() == [-1.0, -1.0]
    assert math.isnan(log_greatest([short, continuations([[Row("A")]])])[0])


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


@given(items=st.lists(st.lists(LOGPROB, min_size=5, max_size=5), min_size=2, max_size=40))
def test_a_rating_does_not_depend_on_the_items_beside_it(items: list[list[float]]) -> None:
    together = expected_rating(
        [continuations([[row("x", item[label])] for item in items]) for label in range(5)]
    )
    alone = [expected_rating([single(value) for value in item])[0] for item in items]
    assert together.tolist() == alone


@given(logprobs=st.lists(st.floats(-5, -0.7), min_size=1, max_size=4), end=st.floats(-9, -0.8))
def test_without_end_renormalises_every_token(logprobs: list[float], end: float) -> None:
    observed = continuations([[row("x", *logprobs), row("y", -1.0)]])
    ends = [
        continuations([[row("", end), row("", end) if place == 0 else Row("")]])
        for place in range(len(logprobs))
    ]
    corrected = without_end([observed, *ends])
    scale = math.log(1 - math.exp(end))
    np.testing.assert_allclose(
        corrected.logprobs, [*(value - scale for value in logprobs), -1.0 - scale], rtol=1e-5
    )
    assert without_end([observed]).logprobs.tolist() == observed.logprobs.tolist()


@pytest.mark.parametrize(
    ("pieces", "choice"),
    [
        *(
            ([' "', "red", '"', " or"], 0),
            ([' "', "reddish", '"'], 1),
            (['"', "red", '"', "\n"], 0),
        ),
        ([" ", '"', "red", '"'], 0),  # the space is the option's own
        (['"', "red", '".'], None),  # the last token reaches beyond the quotation mark
        *(([' "', "red"], None), (["red"], None), ([], None)),
        # line breaks and a second space are not
        *(
            (["\n\n", '"', "red", '"'], None),
            (["\n", ' "', "red", '"'], None),
            (["  ", '"', "red", '"'], None),
        ),
    ],
)
def test_said_options_finds_the_option_that_the_text_begins_with(
    pieces: list[str], choice: int | None
) -> None:
    sizes, options = (
        tuple(len(piece.encode()) for piece in pieces),
        [' "red"', ' "reddish"', ' "red"'],
    )
    generated = continuations([[row("".join(pieces), *[-1.0] * len(pieces), sizes=sizes)]])
    said = said_options(generated, [options], np.array([0, 3]))
    tokens = 4 if pieces[:1] == [" "] else 3
    assert said.counts.tolist() == [tokens if index == choice else 0 for index in range(3)]
    assert list(said.text) == options
    decided = option_match(said, np.array([False, False, True]))
    assert decided.prediction.tolist() == [-1 if choice is None else choice]
    assert decided.missing.tolist() == [choice is None]
    if choice is not None:
        assert decided.credit[0] == (
            choice == 0
        )  # right, as its text stands at the right place, too


def test_said_options_takes_the_longest_of_several() -> None:
    generated = continuations(
        [[row("mat", -1.0, sizes=(3,))], [row("matron", -1.0, -1.0, sizes=(3, 3))]]
    )
    said = said_options(generated, [["mat", "matron"]] * 2, np.array([0, 2, 4]))
    assert said.counts.tolist() == [1, 0, 0, 2]


BYTES, MERGING = ByteTokenizer(), MergingTokenizer(b"bc")


def spans(
    tokenizer: ByteTokenizer,
    context: str,
    text: str,
    gold: bool | None = None,
    bos: str = "default",
) -> tuple[Any, list[Any]]:
    """What select asks, and as bytes (context, continuation) of what it scores, removes, and scores alone."""
    asked = select_spans(Encodings(tokenizer, bos), context, text, gold)

    def named(tokens: Ids) -> list[bytes]:
        return [tokenizer.token_bytes[token] for token in tokens.tolist()]

    shown = [
        each and (named(each.context), named(each.continuation))
        for each in (asked.span, *asked.parts)
    ]
    return asked, shown


def test_select_spans_takes_the_prompts_last_token_away_again() -> None:
    asked, shown = spans(BYTES, "ab", "cd", True)
    assert shown == [([b"", b"a", b"b"], [b"c", b"d"]), ([b"", b"a"], [b"b"]), ([b"c"], [b"d"])]
    assert (asked.merged, asked.bos, asked.span.gold) == (False, 1, True)
    assert spans(BYTES, "ab", "c")[1][2] is None


def test_select_spans_scores_a_healed_token() -> None:
    asked, (scored, removed, _) = spans(MERGING, "ab", "cd")
    assert (scored[1], removed, asked.merged) == ([b"bc", b"d"], None, True)
    # the last byte of the Chinese character decodes to no text that the prompt could end with
    asked, (scored, *_) = spans(BYTES, "你", "b")
    assert (scored[1], asked.merged) == (["你".encode()[-1:], b"b"], False)


@pytest.mark.parametrize(
    ("context", "continuation", "message"),
    [
        ("xab", "", "leaves select no token"),
        ("xyb", "c", None),
        ("x", "yz", "too short: select"),
    ],
)
def test_select_spans_says_where_select_stops(
    context: str, continuation: str, message: str | None
) -> None:
    asked, _ = spans(MERGING, context, continuation, bos="none")
    assert (asked.span is None) == (message is not None)
    assert (message or "") in (asked.missing or "")


def test_select_spans_goes_back_no_further_than_the_second_token() -> None:
    """The server has no number for the first token, and nothing is taken away where the prompt does not end with it."""
    assert spans(MERGING, "ab", "d", bos="none")[1][0][1] == [b"b", b"d"]
    assert spans(BYTES, "", "cd")[1][0][1] == [b"c", b"d"]


Choice = tuple[list[float], float | None, list[float]]
"""Log-probabilities: scored, removed, and unconditional ones from the second token on."""


def by_hand(items: list[list[Choice]]) -> list[Continuations]:
    def rows(
        scored: list[float], removed: float | None, alone: list[float]
    ) -> tuple[Row, Row, Row]:
        return row(" x", *scored), Row("") if removed is None else row("", removed), row("", *alone)

    shown = [[rows(*choice) for choice in item] for item in items]
    return [
        continuations([[choice[part] for choice in item] for item in shown]) for part in range(3)
    ]


def test_the_numbers_of_select_by_hand() -> None:
    """lang/choices.py@28f6866d and compute_normalized_prompt_logprobs on fixed log-probabilities."""
    choices: list[Choice] = [
        ([-1.0, -3.0], -0.5, [-2.0]),  # nothing exactly 0: the plain mean
        ([-1.0, 0.0], -0.5, [-2.0]),  # one 0: mean of two numbers times three, less the prompt's
        ([-4.0, 0.0, -2.0], None, [0.0, -1.0]),  # healed
        ([0.0], None, []),  # nothing but 0: select divides by zero
    ]
    numbers = {name: function(by_hand([choices])).tolist() for name, function in SELECT.items()}
    assert numbers["token_length_normalized"][:3] == [-2.0, (-1.5 / 2 * 3 + 0.5) / 2, -3.0]
    assert math.isnan(numbers["token_length_normalized"][3])
    assert numbers["token_length_normalized_with_prompt"][:3] == [-1.5, -0.75, -3.0]
    assert numbers["unconditional_likelihood_normalized"] == [-1.0, 0.5, (-6.0 + 1.0) / 3, 0.0]


def test_greedy_token_selection_pads_short_choices_with_their_mean() -> None:
    """The first two share the best first number; the short one goes on as -2 against -1.5, and loses."""
    items = [[[-1.0, -3.0], [-1.0, -3.0, -1.5], [-2.0, 0.0]], [[-1.0], [-1.0, -1.0]], [[-1.0], []]]
    greedy = SELECT["greedy_token_selection"](
        by_hand([[(scored, None, []) for scored in item] for item in items])
    )
    np.testing.assert_array_equal(greedy, [0, 1, 0, 1, 1, NAN, NAN])


LOGPROBS = st.one_of(st.just(0.0), st.floats(-20, 0, width=16))
SCORED = st.tuples(
    st.lists(LOGPROBS, min_size=1, max_size=4), st.one_of(st.none(), LOGPROBS), st.just([])
)


@given(st.lists(st.lists(SCORED, min_size=1, max_size=4), min_size=1, max_size=3))
def test_select_equals_the_plain_reference(items: list[list[Choice]]) -> None:
    numbers = {name: function(by_hand(items)) for name, function in SELECT.items()}
    for index, (scored, removed, _) in enumerate(choice for item in items for choice in item):
        entries = ([] if removed is None else [removed]) + scored
        values = [value for value in entries if value]
        mean = sum(values) / len(values) if values else NAN
        taken = mean if removed is None else (mean * len(entries) - removed) / (len(entries) - 1)
        assert numbers["token_length_normalized"][index] == pytest.approx(
            taken, nan_ok=True, abs=1e-9
        )
        assert numbers["token_length_normalized_with_prompt"][index] == pytest.approx(
            mean, nan_ok=True, abs=1e-9
        )
    greedy = [each for item in items for each in plain_greedy([scored for scored, _, _ in item])]
    assert numbers["greedy_token_selection"].tolist() == greedy


def plain_greedy(item: list[list[float]]) -> list[float]:
    left = list(range(len(item)))
    for place in range(max(map(len, item))):
        at = {
            i: item[i][place] if place < len(item[i]) else sum(item[i]) / len(item[i]) for i in left
        }
        left = [i for i in left if at[i] == max(at.values())]
    return [float(i in left) for i in range(len(item))]


def test_the_reading_knows_every_number_of_select() -> None:
    assert tuple(SELECT) == NAMES
    with pytest.raises(ProtocolError, match="or refuse, not cut-start"):
        mmlu_protocol(reading="select", score="token_length_normalized", fit="cut-start")
