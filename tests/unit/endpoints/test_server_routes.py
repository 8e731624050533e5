"""Ways of asking as pure functions: which requests questions become, and how answers are read."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from choicewise.extensions.endpoints.server import routes
from choicewise.extensions.endpoints.server.faults import Unanswerable
from choicewise.extensions.endpoints.server.generation_routes import settings, text_scores
from choicewise.extensions.endpoints.server.next_token_routes import (
    MOST,
    MOST_MEMBERS,
    ChosenTokens,
    SglangChosen,
)
from choicewise.extensions.endpoints.server.routes import (
    PromptLogprobs,
    SglangPrompts,
    TextPrompts,
    whole_spans,
)
from choicewise.extensions.endpoints.vllm.vllm_routes import ByLength
from choicewise.questions import NOT_FIRST, UNKNOWN, Generation, Mass, Sampling, Span, TokenSet
from choicewise.scoring.decide import limited
from choicewise.scoring.observed import Continuations
from choicewise.scoring.scores import SCORES
from choicewise.tokens.chat_template import Message, ServedChat
from choicewise.tokens.tokenizer import ByteTokenizer
from tests.helpers.answers import ids
from tests.helpers.observed import continuations, row

TOKENS = st.lists(st.integers(0, 3), min_size=1, max_size=6).map(lambda tokens: ids(*tokens))
SPANS = st.lists(st.builds(Span, TOKENS, TOKENS), min_size=1, max_size=15)


@given(spans=SPANS)
def test_nodes_are_every_prefix_that_is_read(spans: list[Span]) -> None:
    """Against the slow way: every prefix of every span, in the order of a dictionary."""
    true = {}
    for index, span in enumerate(spans):
        tokens = [*span.context.tolist(), *span.continuation.tolist()]
        for number, place in enumerate(range(len(span.context), len(tokens))):
            wanted = true.setdefault(tuple(tokens[:place]), {})
            wanted.setdefault(tokens[place], set()).add((index, number))
    given_ = list(routes.nodes([*enumerate(spans)]))
    read = {
        tuple(node.prefix): {token: set(parts) for token, parts in node.tokens.items()}
        for node in given_
    }
    assert read == true
    assert [tuple(node.prefix) for node in given_] == sorted(true)


@given(spans=SPANS)
def test_whole_spans_hold_every_span_and_none_is_the_beginning_of_the_next(
    spans: list[Span],
) -> None:
    wholes = list(whole_spans([*enumerate(spans)]))
    assert sorted(index for whole in wholes for index, *_ in whole.spans) == list(range(len(spans)))
    assert not any(
        after.tokens[: len(whole.tokens)] == whole.tokens for whole, after in pairwise(wholes)
    )
    for whole in wholes:
        places = range(whole.first, len(whole.tokens))
        read = whole.scores([-float(at) for at in places], [*places])
        for (index, *_), scores in zip(whole.spans, read, strict=True):
            span = spans[index]
            assert scores.tokens.tolist() == span.continuation.tolist()
            assert scores.ranks.tolist() == [
                *range(len(span.context), len(span.context) + len(span.continuation))
            ]


def test_large_sets_are_asked_in_chunks_and_larger_ones_not_at_all() -> None:
    route = ChosenTokens("m")
    mass = Mass(ids(1), TokenSet(range(2 * MOST + 1)))
    calls = list(route.calls([(0, mass)]))
    assert [len(call.body["logprob_token_ids"]) for call in calls] == [MOST, MOST, 1]
    assert route.parts(mass) == 3
    assert "requests" in str(route.objection(Mass(ids(1), TokenSet(range(MOST_MEMBERS + 1)))))
    assert route.objection(Mass(ids(1), TokenSet([]))) is not None


@pytest.mark.parametrize(
    ("before", "scored", "whole"),
    [(700, 1, False), (700, 90, False), (700, 100, True), (60, 4, False), (60, 5, True)],
)
def test_the_rule_of_costs(before: int, scored: int, whole: bool) -> None:
    span = Span(np.zeros(before, np.int32), np.zeros(scored, np.int32))
    (call, *_) = ByLength(ChosenTokens("m"), PromptLogprobs("m")).calls([(0, span)])
    assert ("prompt_logprobs" in call.body) == whole
    (short, *_) = ByLength(ChosenTokens("m"), PromptLogprobs("m"), longest=100).calls([(0, span)])
    assert ("prompt_logprobs" in short.body) == (whole and before + scored <= 100)


def test_sglang_is_asked_from_the_token_before_and_gives_chosen_next_tokens() -> None:
    span = Span(ids(5, 6, 7), ids(8, 9))
    (call,) = SglangPrompts("m").calls([(3, span)])
    assert call.body["input_ids"] == [5, 6, 7, 8, 9]
    assert call.body["logprob_start_len"] == 2
    entries = [[None, 7, None], [-1.5, 8, None], [-0.5, 9, None]]
    (scores,) = call.read({"meta_info": {"prompt_tokens": 5, "input_token_logprobs": entries}})
    assert scores.logprobs.tolist() == [-1.5, -0.5]
    assert scores.ranks.tolist() == [UNKNOWN, UNKNOWN]
    for wrong in (entries[1:], [entries[0], entries[2], entries[1]], [*entries, entries[2]]):
        with pytest.raises(Unanswerable):
            call.read({"meta_info": {"input_token_logprobs": wrong}})
    with pytest.raises(Unanswerable, match="instead of a log-probability"):
        call.read(
            {"meta_info": {"input_token_logprobs": [entries[0], [None, 8, None], entries[2]]}}
        )
    (call,) = SglangChosen("m").calls([(0, Span(ids(5), ids(8))), (1, Span(ids(5), ids(9)))])
    assert call.body["token_ids_logprob"] == [8, 9]
    meta = {"output_token_ids_logprobs": [[[-2.0, 8, None], [-3.0, 9, None]]]}
    first, second = call.read({"meta_info": {"output_token_logprobs": [[-0.5, 4, None]], **meta}})
    assert (first.logprobs.tolist(), second.logprobs.tolist()) == ([-2.0], [-3.0])
    assert first.ranks.tolist() == [NOT_FIRST]


def test_stops_and_seeds_are_sent_and_texts_end_where_a_stop_begins() -> None:
    stops = (b"\n\n", b"Q:")
    assert text_scores(Generation(ids(1), 9, stops), "one\nQ: two\n\nthree").text == "one\n"
    assert (
        text_scores(Generation(ids(1), 9, stops, keep_stop=True), "one\nQ: two\n\nthree").text
        == "one\nQ:"
    )
    assert text_scores(Generation(ids(1), 9, stops), "one").text == "one"
    stops = (b"\n", b"\xff", b"a", b"b", b"c", b"d")
    sampled = Generation(ids(1), 7, stops, Sampling.of(1, "item", 2))
    body = settings(sampled, unchanged=False)
    assert body == {
        "max_tokens": 7,
        "top_p": 1,
        "temperature": 1,
        "seed": body["seed"],
        "stop": ["\n", "a", "b", "c"],
    }
    assert settings(Generation(ids(1), 7), unchanged=True)["top_k"] == 0


def test_a_text_is_sent_for_its_own_tokens_alone() -> None:
    prompts = TextPrompts(ByteTokenizer(), (256,))
    assert prompts.prompt([256, *b"Where?"]) == "Where?"
    assert prompts.prompt([*b"Where?"]) is None
    assert "BOS" in str(prompts.objection([*b"Where?"]))
    assert "no text encodes" in str(prompts.objection([256, 0xFF]))


@given(
    st.lists(
        st.tuples(st.sampled_from(["system", "user", "assistant"]), st.text()),
        min_size=1,
        max_size=5,
    )
)
def test_messages_are_read_back_from_the_text_of_a_served_chat(
    turns: list[tuple[str, str]],
) -> None:
    messages = [Message(*turn) for turn in turns]
    assert ServedChat.messages(ServedChat().render(messages)) == messages


def test_other_texts_are_no_messages() -> None:
    for text in (
        "",
        "Question: what?",
        '[["user"]]',
        '[["user", 1]]',
        '[["user", "a"]',
        '[["a","b","c"]]',
    ):
        assert ServedChat.messages(text) is None


def observed(ranks: list[int], logprobs: list[float]) -> Continuations:
    return continuations(
        [[row("x", value, ranks=(rank,)) for rank, value in zip(ranks, logprobs, strict=True)]]
    )


def test_ranks_that_are_not_told_count_as_missing_where_they_matter() -> None:
    """Ranks 3 and 300, then at least 0, 1, 99 and 100, of unlikely tokens; then nothing known of a likely one."""
    rows = observed([3, 300, UNKNOWN, NOT_FIRST, -100, -101, UNKNOWN], [*[-7.0] * 6, -4.0])
    given_ = limited(rows, 100, -100.0).logprobs
    np.testing.assert_array_equal(
        given_, np.asarray([-7, -100, np.nan, np.nan, np.nan, -100, -4], np.float32)
    )
    greedy = SCORES["greedy"](observed([0, 3, UNKNOWN, NOT_FIRST], [-1.0] * 4), None)
    np.testing.assert_array_equal(greedy, [1, 0, np.nan, 0])
