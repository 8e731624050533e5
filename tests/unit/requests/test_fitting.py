"""Fitting: shots go before anything else does, and nothing goes unsaid."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from choicewise.data.items import Item
from choicewise.protocols.protocol import Protocol
from choicewise.questions import Ids
from choicewise.requests.ask import add_requests
from choicewise.requests.request import FittedRequest, PreparedBlock, PromptRows, Request, fit_requests
from choicewise.tokens.tokenizer import ByteTokenizer
from tests.helpers.protocols import mmlu_protocol

POLICIES = ("drop-last-shot", "drop-last-shot-then-cut-end", "cut-start", "refuse")
ITEM = Item("i", "q", ("a", "b"), (0,))


def request(*shots: str, query: str = "query") -> Request:
    return Request(ITEM, "header|", shots, query, " ", (" A", " B"), ("a", "b"), (0,), ((" A",), (" B",)))


def tokens(text: str) -> int:
    """A BOS and one token per byte."""
    return len(text.encode()) + 1


class Answerer:
    """A tokenizer of bytes, and a window; ``asked`` has the texts of every call that encoded sequences."""

    def __init__(self, window: int) -> None:
        self.window, self.asked = window, list[list[str]]()
        answerer = self

        class Counting(ByteTokenizer):
            def encode(self, texts: Sequence[str], *, special: bool) -> list[Ids]:
                if special and len(texts[0]) > 1:  # not the one-letter text that shows what is added to every text
                    answerer.asked.append([*texts])
                return super().encode(texts, special=special)

        self.tokenizer = Counting()


def fit(protocol: Protocol, requests: list[Request], model: Answerer, reserve: list[int]) -> list[FittedRequest]:
    return fit_requests(PromptRows(PreparedBlock(), protocol, model), requests, reserve)


def plain_fit(protocol: Protocol, request: Request, window: int, reserve: int) -> tuple[int | None, bool]:
    """(remaining shots or None when missing, cut_end) of one request: the policies as they are written down."""
    limit = min(window, protocol.limit or window)
    if reserve >= limit:
        return None, False
    most = len(request.shots)
    if protocol.fit == "cut-start":
        return most, False
    for left in range(most, -1, -1) if protocol.fit != "refuse" else [most]:
        if tokens(request.context(left)) + reserve <= limit:
            return left, False
    return (0, True) if protocol.fit == "drop-last-shot-then-cut-end" else (None, False)


REQUESTS = st.lists(
    st.builds(lambda shots, query: request(*shots, query=query), st.lists(st.text(max_size=9), max_size=5), st.text())
)


@given(REQUESTS, st.sampled_from(POLICIES), st.none() | st.integers(1, 60), st.integers(1, 60), st.data())
def test_fit_agrees_with_one_request_at_a_time(
    asked: list[Request], policy: str, limit: int | None, window: int, data: st.DataObject
) -> None:
    protocol = mmlu_protocol(fit=policy, limit=limit)
    reserve = [data.draw(st.integers(0, 9)) for _ in asked]
    for one, space, fitted in zip(asked, reserve, fit(protocol, asked, Answerer(window), reserve), strict=True):
        shots, cut_end = plain_fit(protocol, one, window, space)
        assert (fitted.missing is None) == (shots is not None)
        assert fitted.cut_end == cut_end
        assert fitted.context == one.context(fitted.shots)
        assert fitted.shots + fitted.shots_dropped == len(one.shots)
        assert fitted.context.startswith(one.header)
        assert fitted.context.endswith(one.query)
        if shots is not None:
            assert fitted.shots == shots


def test_fit_counts_everything_once_and_only_the_long_again() -> None:
    asked = [request("one", "two"), request("x" * 40, "y"), request(query="other"), request("one", "z" * 40)]
    model = Answerer(25)
    assert [one.shots for one in fit(mmlu_protocol(), asked, model, [0] * 4)] == [2, 0, 0, 1]
    assert [len(texts) for texts in model.asked] == [4, 2, 1]


ONE = request("shot")
WHOLE = tokens(ONE.context())
DROPPED = FittedRequest(ONE, ONE.context(0), 0, 1)


@pytest.mark.parametrize(
    ("axes", "window", "reserve", "fitted"),
    [
        ({}, WHOLE + 3, 3, FittedRequest(ONE, ONE.context(), 1)),
        ({}, WHOLE + 2, 3, DROPPED),
        ({"limit": WHOLE - 1}, 2048, 0, DROPPED),
        ({"fit": "drop-last-shot-then-cut-end"}, 10, 1, replace(DROPPED, cut_end=True)),
    ],
)
def test_reserve_is_free_to_the_token_and_a_limit_holds_below_the_window(
    axes: dict[str, Any], window: int, reserve: int, fitted: FittedRequest
) -> None:
    assert fit(mmlu_protocol(**axes), [ONE], Answerer(window), [reserve]) == [fitted]


def test_a_question_that_fits_in_no_way_is_missing_with_its_reason() -> None:
    reasons = {"drop-last-shot": "13 tokens without any shot, 9 fit", "refuse": "18 tokens, 9 fit"}
    for policy, reason in reasons.items():
        missing = f"too long: {reason} (10 minus 1 for the answer)"
        fitted = fit(mmlu_protocol(fit=policy), [ONE], Answerer(10), [1])
        assert fitted == [FittedRequest(ONE, ONE.context(), 1, missing=missing)]


def test_an_answer_that_alone_fills_the_window_is_missing() -> None:
    """Under every policy, and all of them agree on what fits."""
    for policy in POLICIES:
        (fitted,) = fit(mmlu_protocol(fit=policy), [request()], Answerer(10), [10])
        assert fitted.missing == "too long: the answer alone takes 10 of 10 tokens"
    assert len({fit(mmlu_protocol(fit=policy), [ONE], Answerer(99), [1])[0] for policy in POLICIES}) == 1


@pytest.mark.parametrize(
    "axes",
    [
        {"boundary": "joint"},
        {"reading": "select", "score": "token_length_normalized"},
        {"reading": "embedding", "score": "none"},
        {"reading": "generate", "score": "none", "decision": "letter-match", "new_tokens": 1},
    ],
)
def test_fitting_and_asking_encode_every_text_once(axes: dict[str, Any]) -> None:
    model, block = Answerer(40), PreparedBlock()
    add_requests(block, mmlu_protocol(**axes), [request("one", "two"), request("x" * 40, "y"), request()], model)
    sequences = [text for texts in model.asked for text in texts if len(text) > 1]
    assert {row.context for row in block.requests} <= set(sequences)
    assert len(sequences) == len(set(sequences))


@pytest.mark.parametrize(
    ("axes", "after"),
    [
        ({"reading": "loglikelihood", "fit": "refuse"}, 1),
        ({"reading": "loglikelihood", "fit": "cut-start"}, 1),
        ({"reading": "masked", "fit": "refuse"}, 2),
        ({"reading": "pseudo-loglikelihood", "boundary": "lcp", "fit": "refuse"}, 2),
        ({"reading": "embedding", "score": "none", "fit": "refuse"}, 0),
    ],
)
def test_a_request_fits_a_window_of_just_its_input_tokens(axes: dict[str, str], after: int) -> None:
    """``after``: what the reading feeds behind the context; a causal model is not fed the last token that it scores."""
    needed = WHOLE + after
    for window in (needed, needed - 1):
        block = PreparedBlock()
        add_requests(block, mmlu_protocol(**axes), [ONE], Answerer(window))
        (row,) = block.requests
        dropped = [span.tokens_dropped for span in block.spans]
        whole = row.missing is None and not any(dropped) and all(span.missing is None for span in block.spans)
        assert whole == (window == needed), (window, row, dropped)
        assert row.tokens_dropped == max(dropped, default=0)
